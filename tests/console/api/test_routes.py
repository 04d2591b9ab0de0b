"""Who may call what: each role × each route of the API and of the pages, against the table of acts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pkgutil import resolve_name
from typing import Any, NamedTuple

import httpx2
import pytest

from tests.console.kit import Console, console
from vedette_console import views
from vedette_console.security.principal import ACTS, EVERYWHERE, Grant, Role
from vedette_console.web import CHANGING, who

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
    calls = []
    for names, prefix in ((views.API, "/api/v1"), (views.PAGES, "")):
        for name in names:
            for route in resolve_name(f"vedette_console.{name}").routes:
                acts = [*_acts(route.dependant)]
                assert len(acts) < 2, f"{route.path} needs several acts"
                needs_login = bool(acts) or _uses_who(route.dependant)
                calls += [Call(method, prefix + route.path, "".join(acts), not needs_login) for method in route.methods]
    return calls


def _acts(dependant: Any) -> Iterator[str]:
    yield from (act for dependency in dependant.dependencies if (act := getattr(dependency.call, "act", "")))


def _uses_who(dependant: Any) -> bool:
    return any(dependency.call is who or _uses_who(dependency) for dependency in dependant.dependencies)


CALLS = calls()


def test_which_are_open() -> None:
    """Only what is listed here, by hand."""
    assert {call.path for call in CALLS if call.open and not call.path.startswith("/static/")} <= OPEN
    assert {call.path for call in CALLS if not call.open and not call.act} <= NOT_ACTS


def test_the_act_of_each_route() -> None:
    """As it is listed here, by hand."""
    acts = {
        f"{call.method} {call.path.removeprefix('/api/v1')}": call.act
        for call in CALLS
        if call.path.startswith("/api/")
    }
    assert {route: act for route, act in acts.items() if act not in ("", "read")} == ACT_OF


def test_what_changes_something_is_no_reading() -> None:
    """No route that changes something needs ``read`` alone, and none of the pages does: the API has them all."""
    changing = [call for call in CALLS if call.method in CHANGING]
    assert not [call for call in changing if call.act == "read"]
    assert not [call for call in changing if not call.path.startswith("/api/v1/")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with console(tmp_path_factory.mktemp("console")) as served:
        yield served


def ask(client: httpx2.Client, call: Call) -> int:
    """The status of the answer."""
    body: dict[str, Any] = {"json": {}} if call.method in CHANGING else {}
    return client.request(call.method, call.url, **body).status_code


def test_each_role_and_each_route(served: Console) -> None:
    """A stranger is sent to log in, a role below the act's is refused, each from there on is not; an admin of one site
    does not reach what concerns the console. Some 500 requests: seconds of work."""
    stranger = served.client()
    roles = {role: served.as_user(f"a-{role}", str(role)) for role in Role}
    local = served.as_user("local-admin", "admin", "plants", "vienna")
    wrong = []
    for call in CALLS:
        if call.open:
            continue
        if (status := ask(stranger, call)) != (401 if call.path.startswith("/api/") else 303):
            wrong.append(f"{call.method} {call.path}: {status} for a stranger")
        for role, client in roles.items():
            status = ask(client, call)
            if not call.act:  # it may end the session
                client.close()
                roles[role] = served.session(f"a-{role}")
            refused = (401, 403) if call.act else (401,)
            if (status in refused) == (not call.act or role.covers(ACTS[call.act])):
                wrong.append(f"{call.method} {call.path}: {status} for a {role}")
        if call.act in EVERYWHERE and (status := ask(local, call)) != 403:
            wrong.append(f"{call.method} {call.path}: {status} for the admin of a site")
    assert wrong == []


def test_nothing_changes_without_the_sessions_token(served: Console) -> None:
    """Nor with that of another session, whoever is logged in."""
    bare, other = served.as_user("root-1", "admin"), served.as_user("root-2", "admin")
    statuses = {}
    for token in ("", other.headers["X-CSRF-Token"]):
        bare.headers["X-CSRF-Token"] = token
        statuses |= {f"{call.method} {call.path}": ask(bare, call) for call in CALLS if call.method in CHANGING}
    logins = {"/api/v1/login", "/api/v1/login/once"}
    assert {route for route, status in statuses.items() if status != 403} <= {f"POST {path}" for path in logins}
    assert len(statuses) > 20


def test_tokens_have_the_acts_that_they_were_made_for(served: Console) -> None:
    """A token of an admin that is for another act is refused."""
    first, second = list(ACTS)[:2]
    of_first, of_second = (served.token("root", Grant(Role.ADMIN), acts=[act]) for act in (first, second))
    calls = [call for call in CALLS if call.act]
    statuses = {f"{call.method} {call.path}": ask(of_second if call.act == first else of_first, call) for call in calls}
    assert {route: status for route, status in statuses.items() if status != 403} == {}


def test_what_is_refused_is_audited(served: Console) -> None:
    """With the act, by whom, and that it was refused: one row; of every route whose act not everybody may do, and that
    changes something."""
    viewer = served.as_user("viewer", "viewer")
    wrong, asked = [], 0
    for call in CALLS:
        if call.method not in CHANGING or not call.act or call.path in UNAUDITED or ACTS[call.act] is Role.VIEWER:
            continue
        asked += 1
        before = served.store.audit.read(limit=1)
        ask(viewer, call)
        row = served.store.audit.read(limit=1)[0]
        seen = row.seq - (before[0].seq if before else 0), row.who, row.act, row.outcome.partition(":")[0].split()[0]
        if seen != (1, "viewer", call.act, "refused"):
            wrong.append((f"{call.method} {call.path}", seen))
    assert wrong == []
    assert asked > 20
