"""The base of every route: who asks, what they may, how errors and lists look, and what the audit log notes.

A route of the API::

    router = APIRouter(tags=["alerts"])

    @router.post("/findings/{finding}/triage")
    async def triage(finding: str, body: Triage, request: Request, who: Principal = need("triage")) -> Finding:
        note(request, finding=finding, state=body.state)
        …

``need`` refuses who may not do the act anywhere; ``require`` asks for a place. Each request that changes something is
written to the audit log by ``middleware.Guard`` when it is answered: its act is that of ``need``, its details those of
``note``. An error is a ``Problem``; anything else that is raised is answered as 500 without its text, and logged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict

from vedette.bundle.manifest import rfc3339
from vedette.system import foreign
from vedette_console.security.principal import ACTS, ANYWHERE, Principal

CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
MAX_LIMIT = 500
"""Rows of one answer, at most."""


class Model(BaseModel):
    """An answer, or a part of one. Times are UTC, in JSON with ``Z``; durations are seconds, sizes bytes. Texts of
    agents, rules and events are as they came, and the attacker's: whoever shows them escapes them."""

    model_config = ConfigDict(frozen=True)


class Sent(BaseModel):
    """What a caller sends: unknown keys are a mistake, not passed over."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ErrorBody(Model):
    """An error: what is wrong, the field or column that it is about ("" for the request), and what to do."""

    error: str
    where: str = ""
    what_to_do: str = ""


class Problem(Exception):
    """Ends a request with an error that its sender can do something about."""

    def __init__(self, status: int, error: str, *, where: str = "", what_to_do: str = "",
                 headers: dict[str, str] | None = None) -> None:  # fmt: skip
        super().__init__(error)
        self.status, self.headers = status, headers or {}
        self.body = ErrorBody(error=error, where=where, what_to_do=what_to_do)


_ERROR = {"$ref": "#/components/schemas/ErrorBody"}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": text, "content": {"application/json": {"schema": _ERROR}}}
    for status, text in {
        400: "The request cannot be understood.",
        401: "Not logged in.",
        403: "The role does not allow it, or the CSRF token is missing.",
        404: "There is none, or it is not within the sites of the one who asks.",
        409: "It cannot be done in the present state.",
        413: "The body is too large.",
        422: "A value is not allowed.",
        429: "Too many attempts; Retry-After has the seconds to wait.",
        503: "What is needed is not configured, or does not answer.",
    }.items()
}
"""How each route may fail, for the OpenAPI document."""


Item = TypeVar("Item")
Row = TypeVar("Row")


class Listing(Model, Generic[Item]):
    """A page of a list; ``total`` is null where counting would cost too much, ``next`` goes into ``after`` for the rows
    that follow (null: that was all)."""

    items: list[Item]
    total: int | None = None
    next: str | None = None


def part_of(rows: Sequence[Row], start: int, limit: int, show: Callable[[Row], Item]) -> Listing[Item]:
    """Rows ``start`` (from 0) and after, ``limit`` of them, as ``show`` gives each; ``next`` is a number."""
    end = start + limit
    return Listing(items=[*map(show, rows[start:end])], total=len(rows), next=str(end) if end < len(rows) else None)


def written(micros: object) -> str | None:
    """UTC microseconds as ISO 8601, to the second; None for 0 and for what is no time."""
    return rfc3339(foreign.count(micros)) if foreign.count(micros) else None


class Done(Model):
    """An act that has no other answer."""

    done: bool = True


async def who(request: Request) -> Principal:
    """The one who asks. Raises Problem 401 when nobody is logged in."""
    principal = maybe(request)
    if principal is None:
        raise Problem(401, "not logged in", what_to_do="log in, or send 'Authorization: Bearer TOKEN'",
                      headers={"WWW-Authenticate": "Bearer"})  # fmt: skip
    return principal


def maybe(request: Request) -> Principal | None:
    """The one who asks, None when nobody is logged in."""
    return cast("Principal | None", getattr(request.state, "who", None))


def need(act: str, *, audit: bool | None = None) -> Any:
    """A dependency: the one who asks, who may do ``act`` somewhere. ``audit``: whether the request goes into the audit
    log; by default when its method changes something. Raises Problem 401 and 403."""
    ACTS[act]

    async def check(request: Request, who: Principal = Depends(who)) -> Principal:
        request.state.act = act
        if audit is not None:
            request.state.audit = audit
        require(who, act)
        return who

    check.__dict__["act"] = act
    return Depends(check)


def require(who: Principal, act: str, fleet: str = ANYWHERE, site: str = ANYWHERE) -> None:
    """Raises Problem 403 when ``who`` may not do ``act`` at that place (``Principal.may``)."""
    if who.may(act, fleet, site):
        return
    place = "".join(f" {kind} {name}" for kind, name in (("fleet", fleet), ("site", site)) if name)
    if who.acts is not None and act not in who.acts:
        raise Problem(403, f"this token is not for {act}", what_to_do="use a token with that scope")
    raise Problem(403, f"{who.name} may not do this: {act}{' at' + place if place else ''}",
                  what_to_do=f"ask an admin for the role {ACTS[act]}{' at' + place if place else ''}")  # fmt: skip


def note(request: Request, **details: object) -> None:
    """Add ``details`` to what the audit log will hold about this request; texts are cut at 500 characters."""
    details_so_far = getattr(request.state, "details", {})
    request.state.details = {**details_so_far, **{key: _short(value) for key, value in details.items()}}


def _short(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = (
        value
        if isinstance(value, str)
        else repr(value)
        if not isinstance(value, list | tuple)
        else ", ".join(map(str, value))
    )
    return text if len(text) <= 500 else text[:499] + "…"


def address(request: Request) -> str:
    """The address from which the request came; "" when that is unknown."""
    return request.client.host if request.client else ""
