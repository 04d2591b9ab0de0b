"""The guard of every request, before and after its route: who asks, CSRF, size, headers, and the audit log.

``Guard`` finds out who asks once, refuses bodies that are too large and changes that come from another site or lack the
CSRF token, and puts the security headers on every answer. Before the answer to a request that changes something
leaves, one row is written to the audit log: by whom, which act, what, and how it ended. When that cannot be written
the answer is an error, so no act goes unrecorded without being seen.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vedette_console.security import csrf, headers
from vedette_console.security.identity import bearer, cookie_name, identify
from vedette_console.settings import Settings, is_loopback
from vedette_console.store.database import Unavailable
from vedette_console.store.store import Store
from vedette_console.web import CHANGING, ErrorBody

STATIC = "/static/"
LOGINS = frozenset({"/api/v1/login", "/api/v1/login/once"})
"""What needs no session's token, as it begins a session; it must come from the console's own pages all the same."""


class _TooLarge(Exception):
    pass


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, settings: Settings, store: Store) -> None:
        self._app, self._settings, self._store = app, settings, store
        self._cookie = cookie_name(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        state: dict[str, Any] = scope.setdefault("state", {})
        changing = scope["method"] in CHANGING
        begun = dropped = False

        async def answer(message: Message) -> None:
            nonlocal begun, dropped
            if message["type"] == "http.response.start":
                begun = True
                instead = await self._instead(scope, state, changing, message["status"])
                if instead is not None:
                    dropped = True
                    await self._error(send, *instead)
                    return
                self._put_headers(message)
            if not dropped:
                await send(message)

        try:
            if not scope["path"].startswith(STATIC):
                state["who"] = await asyncio.to_thread(identify, request, self._store, self._settings)
                state["csrf"] = csrf.token(request.cookies.get(self._cookie, ""))
        except Unavailable:
            await self._error(send, 503, ErrorBody(error="the console's database does not answer"))
            return
        refused = self._elsewhere(request) or (self._refusal(request) if changing else None)
        if refused is not None:
            state["problem"] = refused[1]
            await self._error(answer, *refused)
            return
        try:
            await self._app(scope, self._bounded(receive, state), answer)
        except _TooLarge:
            if begun:
                raise
            await self._error(answer, 413, _too_large(self._settings.limits.body_bytes))

    async def _instead(
        self, scope: Scope, state: dict[str, Any], changing: bool, status: int
    ) -> tuple[int, ErrorBody] | None:
        """Write the audit log's row; what is answered in place of what the route answers, None to let that pass."""
        if state.get("too_large") and status != 413:
            return 413, _too_large(self._settings.limits.body_bytes)
        if self._noted(state, changing, status):
            try:
                await asyncio.to_thread(self._audit, scope, state, status)
            except Unavailable:
                return 503, ErrorBody(error="the audit log cannot be written", what_to_do="look whether it was done")
        return None

    def _elsewhere(self, request: HTTPConnection) -> tuple[int, ErrorBody] | None:
        """Whether it is asked by a name that is not its own, as a page does whose name was made to point here, or not
        by one name (RFC 9112, 3.2)."""
        fields = request.headers.getlist("host")
        if len(fields) > 1 or not (fields or request.scope["http_version"] == "1.0"):
            return 400, ErrorBody(error=f"expects one Host, not {len(fields) or 'none'}", where="Host")
        name = host_of(fields[0]) if fields else ""
        if not self._settings.hosts or name in self._settings.hosts or is_loopback(name):
            return None
        return 421, ErrorBody(error="the console is not at this address", where="Host",
                              what_to_do=f"use {self._settings.url}")  # fmt: skip

    def _refusal(self, request: HTTPConnection) -> tuple[int, ErrorBody] | None:
        sent, limits = request.headers, self._settings.limits
        length = sent.get("content-length", "0")
        if not length.isdigit() or int(length) > limits.body_bytes:
            return 413, _too_large(limits.body_bytes)
        if bearer(request) is not None:
            return None
        if csrf.foreign(sent.get("origin", ""), sent.get("sec-fetch-site", ""), sent.get("host", "")):
            return 403, ErrorBody(error="the request comes from another site", where="Origin",
                                  what_to_do="use the console's own pages, or an API token")  # fmt: skip
        cookie = request.cookies.get(self._cookie, "")
        has_session = request.scope["state"].get("who") is not None and request.url.path not in LOGINS
        if has_session and not csrf.valid(cookie, sent.get(csrf.HEADER, "")):
            return 403, ErrorBody(
                error="the CSRF token is missing or not this session's", where="X-CSRF-Token",
                what_to_do="send the value 'csrf' of GET /api/v1/me, or load the page again",
            )  # fmt: skip
        return None

    def _bounded(self, receive: Receive, state: dict[str, Any]) -> Receive:
        got = 0

        async def take() -> Message:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > self._settings.limits.body_bytes:
                state["too_large"] = True  # whatever a parser of the body makes of the exception
                raise _TooLarge
            return message

        return take

    async def _error(self, send: Send, status: int, body: ErrorBody) -> None:
        text = json.dumps(body.model_dump()).encode()
        start: Message = {"type": "http.response.start", "status": status, "headers": []}
        start["headers"] += [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
        self._put_headers(start)
        await send(start)
        await send({"type": "http.response.body", "body": text})

    def _put_headers(self, message: Message) -> None:
        own = Headers(raw=message["headers"])
        message["headers"] = [*message["headers"], *((k, v) for k, v in headers.HEADERS if k.decode() not in own)]
        if self._settings.secure and headers.TLS[0].decode() not in own:
            message["headers"].append(headers.TLS)
        if "cache-control" not in own:
            message["headers"].append(headers.UNCACHED)

    def _noted(self, state: dict[str, Any], changing: bool, status: int) -> bool:
        """Whether a request goes into the audit log. What nobody in particular tries and is refused does not, unless
        its route says so, as the login does: strangers do not fill the log."""
        identified = state.get("who") is not None or status < 400
        return bool(state.get("audit", changing and identified))

    def _audit(self, scope: Scope, state: dict[str, Any], status: int) -> None:
        who, problem = state.get("who"), state.get("problem")
        outcome = state.get("outcome", "done")
        if status >= 400:
            text = problem.error if isinstance(problem, ErrorBody) else f"status {status}"
            outcome = f"{'failed' if status >= 500 else 'refused'}: {text}"
        what = {"request": f"{scope['method']} {scope['path']}"[:500], **state.get("details", {})}
        client = scope.get("client")
        self._store.audit.add(
            state.get("actor") or (who.who if who else ""), state.get("act", ""), what, outcome=outcome[:500],
            address=client[0] if client else "",
        )  # fmt: skip


def host_of(value: str) -> str:
    """The name in a header Host, without its port; "" for what is none."""
    try:
        return (urlsplit(f"//{value}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _too_large(most: int) -> ErrorBody:
    return ErrorBody(error=f"the body has more than {most:,} bytes", what_to_do="send less at once")
