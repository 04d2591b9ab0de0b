"""The fleet's side through the API: roles, CSRF, the audit log, sites, and a broker that is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import paho.mqtt.publish
import pytest
from paho.mqtt.client import MQTTv5

from tests.console.fleet.kit import Region, beat
from tests.console.kit import Console, console
from tests.fleet.kit import FLEET, desired, group
from tests.waits import until

pytestmark = pytest.mark.peer
RULE = "title: X\nlogsource: {product: linux}\ndetection: {k: [needle], condition: k}\nlevel: high\n"
RULES = [{"path": "x.yml", "text": RULE}]
WHY = {"reason": "case 17"}
EVIDENCE = {"alert": "a-1", "agent": "vienna-1", "day": "2026-11-22", **WHY}
POSTS: list[tuple[str, str, dict[str, Any]]] = [
    ("analyst", "/hunts", {"rules": RULES, "group": "all", **WHY}),
    ("analyst", "/evidence", EVIDENCE),
    ("analyst", "/rules/lint", {"text": RULE, "kind": "sigma"}),
    ("analyst", "/rules/explain", {"text": RULE, "kind": "sigma", "event": "a needle"}),
    ("analyst", "/rules/test", {"text": RULE, "kind": "sigma", "tests": "- match: a needle\n"}),
    ("analyst", "/backtests", {"rules": RULES}),
    ("operator", "/rollouts/abc/pause", WHY),
    ("operator", "/rollouts/abc/resume", WHY),
    ("operator", "/rollouts/abc/abort", WHY),
    ("operator", "/rollouts/propose", {"rules": RULES, "group": "vienna", **WHY}),
    ("operator", f"/fleet/{FLEET}/vienna-1/ask", {"question": "disk"}),
    ("operator", f"/fleet/{FLEET}/vienna-1/do", {"action": "reload", **WHY}),
]
GETS = ("/fleet", "/rollouts", "/rollouts/proposals", "/hunts", "/backtests", "/evidence?alert=a-1")
API = "/api/v1"
ORDER = ("viewer", "analyst", "operator", "admin")


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    made = Region(tmp_path / "region", desired(1, group("vienna", "site = vienna"), group("rest")))
    made.broker.start()
    yield made
    made.broker.kill()


@pytest.fixture
def served(region: Region, tmp_path: Path) -> Iterator[Console]:
    folder = region.folder
    with console(
        tmp_path, broker=region.settings, trust=folder / "trust", requests=folder / "requests", operator="otto",
        evidence=folder / "evidence", operator_key=folder / "otto.pem", authorities=folder / "ca.pem",
    ) as made:  # fmt: skip
        yield made


def heartbeats(region: Region, **agents: str) -> None:
    for agent, site in agents.items():
        name = agent.replace("_", "-")
        paho.mqtt.publish.single(
            f"vedette/v1/{FLEET}/{name}/status", orjson.dumps(beat(name, site)), qos=1, retain=True,
            hostname="127.0.0.1", port=region.broker.port, protocol=MQTTv5,
        )  # fmt: skip


def heard(client: Any, agents: int) -> None:
    until("heartbeats", lambda: client.get(f"{API}/fleet").json()["total"] == agents)


@pytest.mark.long
def test_each_role_and_each_act(served: Console, region: Region) -> None:
    """Who has the role gets as far as the act itself; who has not is refused before; without the CSRF token nobody."""
    heartbeats(region, vienna_1="vienna")
    heard(served.as_user("admin", "admin"), 1)
    for role in ORDER:
        client = served.as_user(role, role)
        for path in GETS:
            assert client.get(API + path).status_code == 200, path
        for least, path, body in POSTS:
            answer = client.post(API + path, json=body)
            allowed = ORDER.index(role) >= ORDER.index(least)
            assert (answer.status_code != 403) == allowed, (role, path, answer.text)
            assert answer.status_code < 500 or answer.status_code == 503, (role, path, answer.text)
            bare = client.post(API + path, json=body, headers={"X-CSRF-Token": ""})
            assert bare.status_code == 403
    rows = served.as_user("admin", "admin").get(f"{API}/audit?limit=500").json()["items"]
    acts = {(row["act"], row["outcome"]) for row in rows}
    assert {act for act, _ in acts} >= {"hunt", "evidence", "fleet.ask", "rollout.pause", "rollout.propose"}


def test_sites(served: Console, region: Region) -> None:
    """Who may see one site sees that one, and cannot ask for another."""
    heartbeats(region, vienna_1="vienna", linz_1="linz")
    heard(served.as_user("ada", "admin"), 2)
    client = served.as_user("vic", "operator", FLEET, "vienna")
    page = client.get(f"{API}/fleet").json()
    assert [row["agent"] for row in page["items"]] == ["vienna-1"]
    assert client.get(f"{API}/fleet/{FLEET}/linz-1").status_code == 404
    assert client.post(f"{API}/fleet/{FLEET}/linz-1/ask", json={"question": "disk"}).status_code == 404
    assert client.post(f"{API}/evidence", json={**EVIDENCE, "agent": "linz-1"}).status_code == 404
    hunt = {"rules": RULES, "group": "site = linz", **WHY}
    answer = client.post(f"{API}/hunts", json=hunt)
    assert (answer.status_code, answer.json()["where"]) == (422, "group")


def test_a_broker_that_is_away(served: Console, region: Region) -> None:
    """Every page is there, and says so."""
    region.broker.kill()
    client = served.as_user("ada", "admin")
    link: dict[str, Any] = {}
    until("the outage", lambda: link.update(client.get(f"{API}/fleet").json()["link"]) or link["state"] == "away")
    assert link["reason"]
    for path in GETS:
        assert client.get(API + path).status_code == 200
    assert client.get(f"{API}/hunts/{'0' * 32}").status_code == 404
    assert client.get(f"{API}/fleet?after=x").status_code in (400, 422)
