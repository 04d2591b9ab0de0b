"""Names and paths from outside, at every route of the console that takes one, in its path, its query and its body.

The application is asked in this process, with the path as a client wrote it. ``VEDETTE_DEEP=N`` draws N instead of 100.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple
from urllib.parse import quote

from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from tests.bundle.conftest import Author
from tests.console.api.test_routes import CALLS
from tests.deep import examples
from tests.fleet.kit import Centre
from tests.fuzz.outside import CANARY, Box, names
from tests.fuzz.test_names import bent
from vedette_console.app import create
from vedette_console.security.principal import Grant, Role
from vedette_console.settings import Settings
from vedette_console.store.store import open_store

RULE = "title: Needle\nid: 0b2f8d5c-0000-4000-8000-000000000001\nlogsource: {product: linux}\n"
RULE += "detection: {k: [needle], condition: k}\n"
FILES = [{"path": "needle.yml", "text": RULE}, {"path": "linux/hay.yml", "text": None}]
BODIES: dict[str, list[dict[str, Any]]] = {
    "POST /rollouts/propose": [
        {"rules": FILES, "group": "vienna", "ruleset": "default", "reason": "case 17"},
        {"bundle": "bundles/rules-1.vbundle", "group": "vienna", "ruleset": "default", "reason": "case 17"},
    ],
    "POST /hunts": [{"rules": FILES, "agents": ["a1"], "since": "1d", "reason": "case 17"}],
    "POST /backtests": [{"rules": FILES, "source": "raw", "since": "1d", "reason": "case 17"}],
    "POST /evidence": [{"alert": "0" * 32, "agent": "a1", "day": "2026-11-22", "reason": "case 17"}],
    "POST /fleet/{fleet}/{agent}/ask": [{"what": "status", "reason": "case 17"}],
    "POST /fleet/{fleet}/{agent}/do": [{"command": "rollback", "ruleset": "default", "reason": "case 17"}],
    "POST /rules/explain": [{"text": RULE, "kind": "sigma", "event": "x", "format": "auto", "topic": "a"}],
    "POST /users": [{"name": "ann", "grants": [{"role": "viewer", "fleet": "plants", "site": "vienna"}]}],
    "PUT /users/{name}": [{"grants": [{"role": "viewer", "fleet": "plants", "site": "vienna"}]}],
    "POST /tokens": [{"label": "x", "acts": ["read"]}],
    "POST /searches": [{"name": "x", "query": "level:high"}],
    "POST /findings/{finding:path}/triage": [{"state": "closed", "note": "x"}],
    "POST /reports": [{"days": 1, "last": "2026-11-22"}],
    "PUT /settings": [{"timezone": "UTC"}],
    "PUT /me/preferences": [{"timezone": "UTC"}],
}
"""By route, one that is right or nearly so."""
QUERY = ("q", "site", "fleet", "day", "cursor", "format", "topics", "kind", "last", "days", "source", "agent", "tz")
APART = ("/login", "/logout", "/me/password", "/users/{name}/password", "/events", "/rules/lint", "/rules/test")
"""Routes that take no name, cost a hash of a password, or end when their reader goes."""
ASKED = [call for call in CALLS if not call.path.removeprefix("/api/v1").startswith(APART)]


class Said(NamedTuple):
    status: int
    text: str


async def ask(app: FastAPI, token: str, method: str, path: str, query: str, body: bytes) -> Said:
    """The answer to one request, as a server hands it over."""
    headers = {"host": "127.0.0.1", "authorization": f"Bearer {token}", "content-type": "application/json",
               "content-length": str(len(body))}  # fmt: skip
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": quote(path).encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {},
    }  # fmt: skip
    status, answer, over = 0, bytearray(), asyncio.Event()
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            answer.extend(message.get("body", b""))
            if not message.get("more_body"):
                over.set()

    await app(scope, receive, send)
    return Said(status, answer.decode("utf-8", "replace"))


class Console:
    """A console with all that it can be given, but a broker that answers."""

    def __init__(self, box: Box) -> None:
        folder = self.folder = box.folder
        self.rules = folder / "rules"
        for name in ("rules", "fleet/bundles", "reports", "evidence", "requests", "raw", "landing", "work", "tables"):
            (folder / name).mkdir(parents=True)
        for name in ("fleet", "fleet/bundles", "reports", "evidence", "requests", "work"):
            (folder / name / "out").symlink_to(box.root / "elsewhere")
        (self.rules / "needle.yml").write_text(RULE)
        (folder / "fleet" / "fleet.toml").write_text('[[group]]\nname = "vienna"\nmatch = "all"\n')
        Centre(folder / "trust")
        for name in ("author", "otto"):
            Author(folder / f"{name}.pem")
        settings = Settings(
            database=f"sqlite:{folder / 'console.db'}", tables=str(folder / "tables"), landing=folder / "landing",
            fleet="plants", trust=folder / "trust", requests=folder / "requests", evidence=folder / "evidence",
            operator="otto", operator_key=folder / "otto.pem", author_key=folder / "author.pem",
            fleet_file=folder / "fleet" / "fleet.toml", work=folder / "work", rules=(self.rules,),
            backtest_sources=(str(folder / "raw"),), reports=folder / "reports",
        )  # fmt: skip
        self.store = open_store(settings)
        self.store.accounts.add("root", [Grant(Role.ADMIN)])
        _, self.token = self.store.tokens.add("root", "test", [Grant(Role.ADMIN)])
        self.app = create(settings, self.store)
        self.runner = asyncio.Runner()
        self.lifespan = self.app.router.lifespan_context(self.app)

    def __enter__(self) -> Console:
        self.runner.run(self.lifespan.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.run(self.lifespan.__aexit__(None, None, None))
        self.runner.close()
        self.store.close()

    def ask(self, method: str, path: str, query: str = "", body: bytes = b"") -> Said:
        return self.runner.run(ask(self.app, self.token, method, path, query, body))


def spelled(call: Any, name: str, number: int) -> tuple[str, str, bytes]:
    """Path, query and body of a request with the name in one place."""
    name = name.encode("utf-8", "replace").decode()
    parts = call.path.split("{")
    places = len(parts) - 1
    bodies = BODIES.get(f"{call.method} {call.path.removeprefix('/api/v1')}", [])
    kinds = ["path"] * places + ["body"] * len(bodies) * 2 + ["query"]
    kind, number = kinds[number % len(kinds)], number // len(kinds)
    path = parts[0]
    for at, part in enumerate(parts[1:]):
        variable, _, rest = part.partition("}")
        plain = "2026-11-22" if variable == "day" else "x"
        path += (name if kind == "path" and at == number % places else plain) + rest
    query = f"{QUERY[number % len(QUERY)]}={quote(name)}" if kind == "query" else ""
    body = b""
    if bodies:
        body = json.dumps(bodies[number % len(bodies)]).encode()
        body = bent(body, number // len(bodies), name) if kind == "body" else body
    return path, query, body or (b"{}" if call.method != "GET" else b"")


def test_no_name_leads_out_of_the_console(box: Box) -> None:  # the quick test of its promise: seconds, for 100 requests
    """Whatever the name, and wherever it stands in a request: an answer without a fault of the console, an error in one
    line, and nothing outside its folders is touched or shown."""
    with Console(box) as it:

        @examples(100)
        @given(names(box), st.sampled_from(ASKED), st.integers(0, 999))
        def tried(name: str, call: Any, number: int) -> None:
            path, query, body = spelled(call, name, number)
            what = f"{call.method} {path!r}?{query} {body[:300]!r}"
            with box.closed(what):
                said = it.ask(call.method, path, query, body)
            assert said.status not in (0, 500), f"{what}: {said}"
            assert CANARY not in said.text, f"{what}: {said}"
            if said.status >= 400 and said.text.startswith("{"):
                error = json.loads(said.text)["error"]
                assert error, what
                assert "\n" not in error, f"{what}: {error!r}"

        tried()
        assert (it.rules / "needle.yml").read_text() == RULE
