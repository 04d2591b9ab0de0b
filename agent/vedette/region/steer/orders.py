"""What operators order of the controller: ``pause``, ``resume`` or ``abort`` a change, or all that are under way.

An order is a request as hosts get them (``fleet/requests.py``), of kind ``rollout``, to CONTROLLER: signed by a key
that ``operators.json`` names with the role ``operator``, not expired, and carried out once. It lies retained at the
broker until the controller has taken it, which may be after the controller's own restart. Whoever may write at the
broker can take it away, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct

from vedette.fleet.operators import Operators
from vedette.fleet.requests import MAX_LIFE, Host, Refused, Request, admit
from vedette.system import documents

CONTROLLER = ".controller"
"""Whom orders ask; no agent."""
KIND = "rollout"
_Command = Literal["pause", "resume", "abort"]
COMMANDS: tuple[str, ...] = get_args(_Command)
LIFE = 24 * 3_600_000_000
"""For how long an order waits for a controller, in microseconds."""


@dataclass(frozen=True, slots=True)
class _Row:
    role: str
    validate: Callable[[Mapping[str, Any]], None]


class _Order(Struct, frozen=True):
    """``change``: its id; empty: all that are under way."""

    command: _Command
    change: Annotated[str, Meta(max_length=128, description="the id of a change, or nothing")]


def _validate(body: Mapping[str, Any]) -> None:
    documents.read(_Order, body)


_KINDS = {KIND: _Row("operator", _validate)}


def order(fleet: str, operator: str, command: str, change: str, now: int, reason: str = "") -> Request:
    """To be signed by the operator. ``now``: UTC microseconds."""
    body = {"command": command, "change": change}
    return Request(fleet, KIND, operator, now, now + LIFE, body, agents=(CONTROLLER,), reason=reason)


def taken(
    data: bytes, fleet: str, operators: Operators | None, trusted_until: int, seen: Mapping[str, int], now: int
) -> Request:
    """The order in an envelope, when the controller carries it out. Raises ``fleet.requests.Refused``."""
    host = Host(fleet, CONTROLLER, {}, (KIND,), operators, trusted_until, lambda: now)
    request = admit(data, host, _KINDS, lambda nonce: nonce in seen, lambda id: "")
    if request.kind != KIND:
        raise Refused("kind", f"{request.kind!r} is no order to the controller", request)
    return request


def keep_until(request: Request) -> int:
    """Until when its nonce must be known."""
    return min(request.expires, request.created + MAX_LIFE)
