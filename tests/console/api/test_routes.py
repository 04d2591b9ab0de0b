"""Who may call what: each role × each route of the API and of the pages, against the table of acts."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.console.kit import Console, console
from vedette_console import api, pages
from vedette_console.security.principal import Grant
from vedette_console.security.roles import ACTS, EVERYWHERE, Role
from vedette_console.web import CHANGING, act_of, who

pytestmark = pytest.mark.slow

OPEN = {
    "/api/v1/login", "/api/v1/login/once", "/api/v1/login/ways", "/api/v1/login/oidc", "/api/v1/login/oidc/callback",
    "/login", "/login/once", "/favicon.ico",
}  # fmt: skip
"""What needs no login, beside what is below ``/static/``."""
NOT_ACTS = {"/api/v1/me", "/api/v1/me/preferences", "/api/v1/me/password", "/api/v1/me/sessions",
            "/api/v1/me/sessions/{id}", "/api/v1/logout"}  # fmt: skip
"""What everybody may who is logged in."""


ACT_OF = {
    "GET /audit": "audit.read",
    "GET /audit/export": "audit.read",
    "GET /audit/verify": "audit.read",
    "POST /evidence": "evidence",
    "POST /evidence/{job}/cancel": "evidence",
    "GET /alerts/export": "export",
    "POST /fleet/{fleet}/{agent}/ask": "fleet.ask",
    "POST /fleet/{fleet}/{agent}/do": "fleet.ask",
    "POST /requests/{id}/cancel": "fleet.ask",
    "POST /hunts": "hunt",
    "POST /hunts/{id}/cancel": "hunt",
    "POST /reports": "report",
    "POST /rollouts/{change}/abort": "rollout.abort",
    "POST /rollouts/{change}/pause": "rollout.pause",
    "POST /rollouts/propose": "rollout.propose",
    "POST /rollouts/{change}/resume": "rollout.resume",
    "POST /backtests": "rules.try",
    "POST /backtests/{id}/cancel": "rules.try",
    "POST /rules/explain": "rules.try",
    "POST /rules/lint": "rules.try",
    "POST /rules/test": "rules.try",
    "POST /searches": "search.save",
    "DELETE /searches/{id}": "search.save",
    "PUT /settings": "settings",
    "GET /tokens": "tokens.own",
    "POST /tokens": "tokens.own",
    "DELETE /tokens/{id}": "tokens.own",
    "POST /findings/{finding:path}/triage": "triage",
    "GET /users": "users",
    "POST /users": "users",
    "DELETE /users/{name}": "users",
    "PUT /users/{name}": "users",
    "POST /users/{name}/link": "users",
    "PUT /users/{name}/password": "users",
}
"""The act of each route of the API that needs another than ``read``. Which role may it: ``tests/console/security``."""
UNAUDITED = {"/api/v1/rules/lint", "/api/v1/rules/explain", "/api/v1/rules/test"}
"""What changes nothing, and is asked at each pause of an editor."""


class Call(NamedTuple):
    """``act``: what the route needs, "" for a login only; ``open``: not even that."""

    method: str
    path: str
    act: str
    open: bool

    @property
    def url(self) -> str:
        """An example, of something that is not there."""
        query = "?topics=none" if self.path.endswith("/events") else ""
        return re.sub(r"\{day\}", "2026-01-01", re.sub(r"\{(?!day)[^}]+\}", "x", self.path)) + query


def calls() -> list[Call]:
    found = []
    for room, prefix in ((api, "/api/v1"), (pages, "")):
        for name in room.ROUTERS:
            for route in importlib.import_module(f"{room.__name__}.{name}").router.routes:
                acts = [*_acts(route.dependant)]
                assert len(acts) < 2, f"{route.path} needs several acts"
                known = bool(acts) or _uses_who(route.dependant)
                found += [Call(method, prefix + route.path, "".join(acts), not known) for method in route.methods]
    return found


def _acts(dependant: Any) -> Iterator[str]:
    yield from (act_of(one.call) for one in dependant.dependencies if act_of(one.call))


def _uses_who(dependant: Any) -> bool:
    return any(one.call is who or _uses_who(one) for one in dependant.dependencies)


CALLS = calls()


def test_which_are_open() -> None:
    """Only what is listed here, by hand."""
    assert {call.path for call in CALLS if call.open and not call.path.startswith("/static/")} <= OPEN
    assert {call.path for call in CALLS if not call.open and not call.act} <= NOT_ACTS


def test_the_act_of_each_route() -> None:
    """As it is listed here, by hand."""
    acts = {
        f"{one.method} {one.path.removeprefix('/api/v1')}": one.act for one in CALLS if one.path.startswith("/api/")
    }
    assert {route: act for route, act in acts.items() if act not in ("", "read")} == ACT_OF


def test_what_changes_something_is_no_reading() -> None:
    """No route that changes something needs ``read`` alone, and none of the pages does: the API has them all."""
    changing = [call for call in CALLS if call.method in CHANGING]
    assert not [call for call in changing if call.act == "read"]
    assert not [call for call in changing if not call.path.startswith("/api/v1/")]


@pytest.fixture(scope="module")
def it(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with console(tmp_path_factory.mktemp("console")) as found:
        yield found


@pytest.mark.parametrize(
    "call", [call for call in CALLS if not call.open], ids=lambda call: f"{call.method} {call.path}"
)
def test_each_role_and_each_route(it: Console, call: Call) -> None:
    """A stranger is sent to log in, a role below the act's is refused, each from there on is not; an admin of one site
    does not reach what concerns the console."""
    asked = {"json": {}} if call.method in CHANGING else {}
    stranger = it.client().request(call.method, call.url, **asked)  # type: ignore[arg-type]
    assert stranger.status_code == (401 if call.path.startswith("/api/") else 303)
    seen = {}
    for role in Role:
        client = it.as_user(f"a-{role}", str(role))
        seen[role] = client.request(call.method, call.url, **asked).status_code  # type: ignore[arg-type]
        allowed = not call.act or role.covers(ACTS[call.act])
        assert (seen[role] in (401, 403)) != allowed or (allowed and seen[role] == 403 and not call.act), (role, seen)
    if call.act in EVERYWHERE:
        client = it.as_user("local-admin", "admin", "plants", "vienna")
        assert client.request(call.method, call.url, **asked).status_code == 403  # type: ignore[arg-type]


@pytest.mark.parametrize("call", [call for call in CALLS if call.act], ids=lambda call: f"{call.method} {call.path}")
def test_tokens_have_the_acts_that_they_were_made_for(it: Console, call: Call) -> None:
    """A token of an admin that is for another act is refused."""
    other = next(act for act in ACTS if act != call.act)
    client = it.token("root", Grant(Role.ADMIN), acts=[other])
    it.store.database.run("DELETE FROM tokens WHERE used IS NOT NULL")
    asked = {"json": {}} if call.method in CHANGING else {}
    assert client.request(call.method, call.url, **asked).status_code == 403  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [call for call in CALLS if call.method in CHANGING and call.act],
    ids=lambda call: f"{call.method} {call.path}",
)
def test_what_is_refused_is_audited(it: Console, call: Call) -> None:
    """With the act, by whom, and that it was refused: one row."""
    if ACTS[call.act] is Role.VIEWER or call.path in UNAUDITED:
        pytest.skip("every role may, or nothing is changed")
    before = it.store.audit.read(limit=1)
    it.as_user("viewer", "viewer").request(call.method, call.url, json={})
    row = it.store.audit.read(limit=1)[0]
    assert row.seq == (before[0].seq if before else 0) + 1
    assert (row.who, row.act) == ("viewer", call.act)
    assert row.outcome.startswith("refused")
