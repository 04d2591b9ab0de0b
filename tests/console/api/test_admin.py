"""What admins do: users, all tokens, settings, the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.kit import Console, console
from vedette_console.security.principal import Grant, Role
from vedette_console.store.audit import from_json, verify

EVERYWHERE = [{"role": "viewer", "fleet": "*", "site": "*"}]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Shared: each test has users of its own."""
    with console(tmp_path_factory.mktemp("console")) as served:
        yield served


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Console]:
    """Of a test that looks at all that there is."""
    with console(tmp_path) as served:
        yield served


def test_users(alone: Console) -> None:
    """A user's life, each step in the audit log with its details."""
    root = alone.session("root")
    created = root.post("/api/v1/users", json={"name": "ann", "grants": EVERYWHERE}).json()
    assert (created["user"]["name"], created["user"]["password"]) == ("ann", False)
    assert created["link"].startswith(f"{alone.app.state.settings.url}/login/once?token=")
    ann = alone.client()
    assert ann.post("/api/v1/login/once", json={"token": created["link"].partition("=")[2]}).status_code == 200
    grants = [{"role": "operator", "fleet": "plants", "site": "vienna"}]
    assert root.put("/api/v1/users/ann", json={"grants": grants}).json()["grants"] == grants
    assert ann.get("/api/v1/me").json()["grants"] == grants, "at once"
    script = alone.token("ann", Grant(Role.VIEWER))
    assert root.put("/api/v1/users/ann/password", json={"password": "correct horse battery"}).status_code == 200
    assert ann.get("/api/v1/me").status_code == 401, "sessions end with the password"
    assert script.get("/api/v1/alerts").status_code == 200, "tokens do not"
    assert ann.post("/api/v1/login", json={"name": "ann", "password": "correct horse battery"}).status_code == 200
    assert root.put("/api/v1/users/ann", json={"disabled": True}).json()["disabled"]
    assert ann.get("/api/v1/me").status_code == 401
    assert root.put("/api/v1/users/ann", json={"disabled": False}).status_code == 200
    assert "token=" in root.post("/api/v1/users/ann/link").json()["link"]
    assert [user["name"] for user in root.get("/api/v1/users").json()["items"]] == ["ann", "root"]
    assert root.delete("/api/v1/users/ann").status_code == 200
    assert root.delete("/api/v1/users/ann").status_code == 404
    rows = alone.store.audit.read(who="root", act="users")
    assert rows[-1].what == {"request": "POST /api/v1/users", "user": "ann", "grants": "viewer */*"}
    assert all(row.what["user"] == "ann" for row in rows)
    assert "horse" not in repr(rows)


def test_a_user_of_the_provider(alone: Console) -> None:
    """The form sends what was granted, not what the provider caps it to, and can give the provider's role back."""
    root, accounts = alone.session("root"), alone.store.accounts
    accounts.add("ann", [Grant(Role.VIEWER)], subject="provider ann")
    granted = [{"role": "operator", "fleet": "plants", "site": "vienna"}]
    root.put("/api/v1/users/ann", json={"grants": granted})
    accounts.set_role("ann", Role.ANALYST)
    (ann, _) = root.get("/api/v1/users").json()["items"]
    assert (ann["grants"], ann["follows"], ann["provided"]) == (granted, False, "analyst")
    page = root.get("/users").text
    assert "operator plants/vienna" in page
    assert "up to analyst" in page
    root.put("/api/v1/users/ann", json={"grants": ann["grants"], "disabled": True})
    assert accounts.set_role("ann", Role.ADMIN).grants == (Grant(Role.OPERATOR, "plants", "vienna"),)
    assert root.put("/api/v1/users/ann", json={"grants": granted, "follows": True}).json()["where"] == "follows"
    ann = root.put("/api/v1/users/ann", json={"follows": True}).json()
    assert (ann["grants"], ann["follows"]) == ([{"role": "admin", "fleet": "*", "site": "*"}], True)
    assert "as the provider says" in root.get("/users").text
    assert root.put("/api/v1/users/root", json={"follows": True}).status_code == 422


@pytest.mark.parametrize(
    ("body", "status", "where"),
    [
        ({"name": "root", "grants": EVERYWHERE}, 409, "name"),
        ({"name": "a b", "grants": EVERYWHERE}, 422, "name"),
        ({"name": "ann", "grants": []}, 422, "grants"),
        ({"name": "ann", "grants": [{"role": "king"}]}, 422, "grants.0.role"),
        ({"name": "ann", "grants": [{"role": "viewer", "site": "a'b"}]}, 422, "grants.0.site"),
        ({"name": "ann", "grants": EVERYWHERE, "password": "short"}, 422, "password"),
        ({"name": "ann", "grants": EVERYWHERE, "admin": True}, 422, "admin"),
    ],
)
def test_bad_users(served: Console, body: dict[str, object], status: int, where: str) -> None:
    """Are refused with the place of the mistake."""
    refused = served.session("root").post("/api/v1/users", json=body)
    assert (refused.status_code, refused.json()["where"]) == (status, where)


def test_the_last_admin(served: Console) -> None:
    """Stays."""
    root = served.session("root")
    for answer in (
        root.delete("/api/v1/users/root"),
        root.put("/api/v1/users/root", json={"disabled": True}),
        root.put("/api/v1/users/root", json={"grants": EVERYWHERE}),
    ):
        assert answer.status_code == 409
    assert root.get("/api/v1/me").json()["role"] == "admin"


def test_tokens(served: Console) -> None:
    """Give a part of what their owner may, as long as the owner may it."""
    ann = served.as_user("tom", "operator", "plants")
    wanted = {"label": "script", "grants": [{"role": "analyst", "fleet": "plants", "site": "vienna"}], "acts": ["read"]}
    created = ann.post("/api/v1/tokens", json=wanted).json()
    script = served.client({"Authorization": f"Bearer {created['secret']}"})
    me = script.get("/api/v1/me").json()
    assert (me["name"], me["kind"], me["acts"], me["csrf"]) == ("tom", "token", ["read"], "")
    assert script.post("/api/v1/tokens", json=wanted).status_code == 403
    assert ann.get("/api/v1/tokens").json()["items"][0]["used"] is not None
    served.store.accounts.grant("tom", [Grant(Role.VIEWER, "plants", "vienna")])
    assert script.get("/api/v1/me").json()["grants"] == [{"role": "viewer", "fleet": "plants", "site": "vienna"}]
    served.store.accounts.grant("tom", [Grant(Role.VIEWER, "shops")])
    assert script.get("/api/v1/me").json()["grants"] == []
    assert script.get("/api/v1/searches").status_code == 403
    served.store.accounts.disable("tom", True)
    assert script.get("/api/v1/me").status_code == 401


def test_more_than_one_has(served: Console) -> None:
    """Cannot be put into a token."""
    ann = served.as_user("max", "analyst", "plants")
    for grant in ({"role": "operator", "fleet": "plants"}, {"role": "viewer", "fleet": "shops"}, {"role": "viewer"}):
        refused = ann.post("/api/v1/tokens", json={"label": "x", "grants": [grant]})
        assert (refused.status_code, refused.json()["where"]) == (422, "grants")
    assert ann.post("/api/v1/tokens", json={"label": "x", "acts": ["fly"]}).json()["where"] == "acts"


def test_whose_tokens(alone: Console) -> None:
    """Everybody sees and revokes their own; an admin those of all."""
    ann, bob, root = alone.as_user("ann", "viewer"), alone.as_user("bob", "viewer"), alone.session("root")
    id = ann.post("/api/v1/tokens", json={"label": "x"}).json()["token"]["id"]
    assert bob.get("/api/v1/tokens").json()["items"] == []
    assert bob.get("/api/v1/tokens?all=true").status_code == 403
    assert bob.delete(f"/api/v1/tokens/{id}").status_code == 404
    assert [token["id"] for token in root.get("/api/v1/tokens?all=true").json()["items"]] == [id]
    assert root.delete(f"/api/v1/tokens/{id}").status_code == 200
    assert ann.delete(f"/api/v1/tokens/{id}").status_code == 404


def test_searches(served: Console) -> None:
    """One's own and the shared ones of others; only one's own are removed."""
    ann, bob = served.as_user("sue", "viewer"), served.as_user("ben", "viewer")
    created = ann.post("/api/v1/searches", json={"name": "critical", "query": "level:critical", "shared": True}).json()
    assert bob.get("/api/v1/searches").json()["items"] == [created]
    assert bob.delete(f"/api/v1/searches/{created['id']}").status_code == 404
    assert ann.delete(f"/api/v1/searches/{created['id']}").status_code == 200
    assert bob.get("/api/v1/searches").json()["items"] == []


def test_settings(served: Console) -> None:
    """Everybody reads them, admins set them."""
    root, ann = served.session("root"), served.as_user("olga", "operator")
    assert ann.put("/api/v1/settings", json={"banner": "x"}).status_code == 403
    assert root.put("/api/v1/settings", json={"banner": "Maintenance at 18:00"}).status_code == 200
    answer = ann.get("/api/v1/settings").json()
    assert answer["chosen"] == {"banner": "Maintenance at 18:00", "time_zone": ""}
    assert not any(answer["features"].values())


def test_audit(alone: Console) -> None:
    """Is read in pages, exported whole, verified; who reads the export stands in it."""
    root = alone.session("root")
    for number in range(5):
        root.put("/api/v1/settings", json={"banner": str(number)})
    first = root.get("/api/v1/audit?limit=2").json()
    assert [row["what"]["banner"] for row in first["items"]] == ["4", "3"]
    second = root.get("/api/v1/audit", params={"limit": 3, "after": first["next"]}).json()
    assert [row["what"]["banner"] for row in second["items"]] == ["2", "1", "0"]
    assert second["next"] is None
    lines = root.get("/api/v1/audit/export").text.splitlines()
    rows = [from_json(line) for line in lines]
    assert verify(rows).broken is None
    assert (rows[-1].act, rows[-1].who) == ("audit.read", "root")
    noted = {"seq": rows[-1].seq, "hash": rows[-1].hash}
    whole = root.get("/api/v1/audit/verify", params=noted).json()
    assert (whole["whole"], whole["rows"]) == (True, len(rows))
    alone.store.database.run("UPDATE audit SET who = 'bob' WHERE seq = 3")
    broken = root.get("/api/v1/audit/verify").json()
    assert (broken["whole"], broken["broken"], broken["reason"]) == (False, 3, "it was changed")
    assert root.get("/api/v1/audit?since=yesterday").json()["where"] == "since"
    assert root.get("/api/v1/audit?since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z").json()["items"] == []
    assert json.loads(lines[0])["previous"] == "0" * 64


def test_refused_acts_are_audited(served: Console) -> None:
    """Those of users; those of strangers do not fill the log."""
    served.as_user("rita", "viewer").delete("/api/v1/users/root")
    row = served.store.audit.read(limit=1)[0]
    assert (row.who, row.act, row.outcome) == ("rita", "users", "refused: rita may not do this: users")
    served.client().delete("/api/v1/users/root")
    served.client().post("/nothing")
    assert served.store.audit.read(limit=1)[0].seq == row.seq
