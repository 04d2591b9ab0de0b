"""Whose word the controller takes, and for what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.fleet.kit import DAY, FLEET
from tests.region.steer.kit import START
from vedette.fleet.operators import Operator, Operators
from vedette.fleet.requests import Refused, Request
from vedette.region.steer.orders import LIFE, keep_until, order, taken

CAROL, EVE = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
OPERATORS = Operators(FLEET, 1, {
    "carol": Operator("carol", CAROL.public_key(), frozenset({"operator"}), START + 30 * DAY),
    "eve": Operator("eve", EVE.public_key(), frozenset({"viewer"}), START + 30 * DAY),
    "old": Operator("old", CAROL.public_key(), frozenset({"operator"}), START - 1),
})  # fmt: skip


def take(request: Request, key: Ed25519PrivateKey = CAROL, now: int = START, **seen: int) -> Request:
    return taken(request.signed(key), FLEET, OPERATORS, START + 2 * DAY, seen, now)


def test_an_operators_order() -> None:
    """It is taken, and its nonce is to be known for as long as it could come again."""
    request = order(FLEET, "carol", "pause", "c1", START)
    assert take(request).body == {"command": "pause", "change": "c1"}
    assert keep_until(request) == START + LIFE


@pytest.mark.parametrize(
    ("kind", "change", "key", "now"),
    [
        ("signature", {}, EVE, START),
        ("role", {"operator": "eve"}, EVE, START),
        ("operator", {"operator": "mallory"}, CAROL, START),
        ("operator expired", {"operator": "old"}, CAROL, START),
        ("expired", {}, CAROL, START + LIFE),
        ("trust expired", {"expires": START + 3 * DAY}, CAROL, START + 2 * DAY),
        ("fleet", {"fleet": "other"}, CAROL, START),
        ("agent", {"agents": ("agent-1",)}, CAROL, START),
        ("kind", {"kind": "do"}, CAROL, START),
        ("body", {"body": {"command": "done", "change": ""}}, CAROL, START),
        ("body", {"body": {"command": "abort", "change": 7}}, CAROL, START),
        ("kind", {"kind": "cancel", "body": {"request": "0" * 32}}, CAROL, START),
    ],
)
def test_refused(kind: str, change: dict[str, object], key: Ed25519PrivateKey, now: int) -> None:
    """By another's key, role or time, of another fleet, for an agent, or no order at all; and none twice."""
    request = replace(order(FLEET, "carol", "abort", "", START), **change)  # type: ignore[arg-type]  # as the table has
    with pytest.raises(Refused) as refused:
        take(request, key, now)
    assert refused.value.kind == kind


def test_none_twice() -> None:
    request = order(FLEET, "carol", "abort", "", START)
    with pytest.raises(Refused) as refused:
        take(request, **{request.nonce: START + LIFE})
    assert refused.value.kind == "replayed"
