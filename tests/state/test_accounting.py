"""What the state says it takes is what it takes, at its bound, whatever its groups are like."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from random import Random
from types import FunctionType, ModuleType
from typing import Any

import pytest

from tests.state.drawn import SECOND, correlation_of
from vedette.plan.aggregates import Kind
from vedette.plan.grid import Grid
from vedette.state.clock import Clock
from vedette.state.correlate import Correlator
from vedette.state.graph import Item

SHARED = type, ModuleType, FunctionType
"""No state leads on through these."""
BOUND = 1 << 19
NOW = 1_790_000_000 * SECOND


def text(rng: Random) -> str:
    return f"user-{rng.randrange(10**6)}"


def number(rng: Random) -> float:
    return rng.random() * 1000


def reachable(root: object) -> int:
    """Bytes that Python has asked for, for everything that ``root`` leads to."""
    seen, level, size = {id(root)}, [root], 0
    while level:
        size += sum(map(sys.getsizeof, level))
        fresh = {id(each): each for each in gc.get_referents(*level) if not isinstance(each, SHARED)}
        level = [each for key, each in fresh.items() if key not in seen]
        seen.update(fresh)
    return size


@pytest.mark.parametrize(
    ("kind", "bound", "groups", "matches", "hosts", "value"),
    [
        (Kind.EVENT_COUNT, 5, 8_000, 1, 1, None),
        (Kind.EVENT_COUNT, 12, 1_500, 10, 1, None),
        (Kind.EVENT_COUNT, 12, 900, 8, 2, None),
        (Kind.EVENT_COUNT, 90, 200, 100, 1, None),
        (Kind.VALUE_COUNT, 5, 1_000, 6, 1, text),
        (Kind.VALUE_COUNT, 40, 100, 60, 1, text),
        (Kind.VALUE_AVG, 5, 900, 5, 1, number),
        (Kind.VALUE_AVG, 5, 75, 100, 1, number),
        (Kind.VALUE_SUM, 1 << 40, 175, 60, 1, number),
        (Kind.TEMPORAL, 2, 1_400, 3, 1, None),
        (Kind.TEMPORAL_ORDERED, 2, 1_400, 4, 1, None),
    ],
)
@pytest.mark.parametrize("grid", [None, Grid("SESSION", 10)], ids=["sliding", "a session each"])
def test_bytes_are_those_that_were_allocated(
    grid: Grid | None,
    kind: Kind,
    bound: int,
    groups: int,
    matches: int,
    hosts: int,
    value: Callable[[Random], Any] | None,
) -> None:
    """Never less than 85 % of what Python has asked for, so that the bound holds; at most 130 %, so that it is used."""
    one = Correlator(
        [correlation_of(kind, span=3600 * SECOND, bounds=(("gte", bound),), grid=grid)],
        Clock(30 * SECOND),
        max_bytes=BOUND,
    )
    rng, at, node = Random(1), NOW, one.nodes[0]
    one.clock.advance(NOW)
    before = reachable(one)
    for turn in range(matches):
        for group in range(groups):
            at += 20
            lane, _ = one.clock.observe("in", f"host-{(turn + group) % hosts}", at)
            read = None if value is None else value(rng)
            item = Item(node, turn % 3, (f"203.0.{group >> 8}.{group & 255}",), read, None)
            one.add([item], lane, at, (1 << 34) + at - NOW, 300)
            if group % 500 == 0:
                one.delta()
    one.delta()
    taken = reachable(one) - before
    assert 0.8 * BOUND < one.groups.bytes <= BOUND
    assert 0.85 < one.groups.bytes / taken < 1.3
