"""Whose word the controller takes, and for what."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from tests.fleet.kit import DAY, FLEET
from tests.region.steer.kit import START
from vedette.fleet.operators import Operator, Operators
from vedette.fleet.requests import Refused, Request
from vedette.region.steer.kept import Kept
from vedette.region.steer.orders import LIFE, keep_until, order, taken

CAROL, EVE, OLD = (Ed25519PrivateKey.generate() for _ in range(3))
OPERATORS = Operators(FLEET, 1, {
    "carol": Operator("carol", CAROL.public_key(), frozenset({"operator"}), START + 30 * DAY),
    "eve": Operator("eve", EVE.public_key(), frozenset({"viewer"}), START + 30 * DAY),
    "old": Operator("old", OLD.public_key(), frozenset({"operator"}), START - 1),
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
        ("operator expired", {"operator": "old"}, OLD, START),
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


@pytest.mark.parametrize("ahead", [30 * DAY, 26_000 * DAY])
def test_none_twice_by_a_wrong_clock(tmp_path: Path, ahead: int) -> None:
    """A controller whose clock was ahead for a while knows what it has carried out; one whose clock is put back takes
    nothing that expired before its last order."""
    clock = [START]
    request = order(FLEET, "carol", "abort", "", START)

    def life() -> Kept:
        kept = Kept(tmp_path, lambda: clock[0])
        kept.close()
        return kept

    kept = life()
    kept.seen[request.nonce] = keep_until(request)
    kept.time.rise(request.created)
    kept.write({})
    clock[0] = START + ahead
    life().write({})
    clock[0] = START
    kept = life()
    with pytest.raises(Refused) as refused:
        take(request, now=kept.time.now(), **kept.seen)
    assert refused.value.kind == "replayed"
    clock[0] = START + 2 * DAY
    kept.time.rise(clock[0])
    kept.write({})
    clock[0] = START
    kept = life()
    assert kept.seen == {}
    with pytest.raises(Refused) as refused:
        taken(request.signed(CAROL), FLEET, OPERATORS, START + 9 * DAY, kept.seen, kept.time.now())
    assert refused.value.kind == "expired"


def test_none_twice() -> None:
    request = order(FLEET, "carol", "abort", "", START)
    with pytest.raises(Refused) as refused:
        take(request, **{request.nonce: START + LIFE})
    assert refused.value.kind == "replayed"
