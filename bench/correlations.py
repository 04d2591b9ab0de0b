"""How fast correlations take in matches, and what a group costs: ``python -m bench.correlations``.

Matches come in the order of time, a millisecond apart, from one source; their groups are drawn at random. Bytes a group
are what ``tracemalloc`` sees, with everything that belongs to the group.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from typing import Any

from vedette.compiler.relation import Correlation, Kind, Slot
from vedette.state.clock import Clock
from vedette.state.correlate import Correlator
from vedette.state.graph import Item

LATENESS = 30_000_000
STEP = 1000
"""Microseconds between two matches."""


def correlation(kind: Kind, **changes: Any) -> Correlation:
    given: dict[str, Any] = {
        "id": "c", "title": "t", "level": "high", "tags": (), "slots": (Slot("r", False),), "group_by": ("src",),
        "span": 60_000_000, "bounds": (("gte", 5),), "digest": "d",
    }  # fmt: skip
    return Correlation(kind=kind, **{**given, **changes})


def group(number: int) -> tuple[str, ...]:
    return (f"203.{number >> 16}.{number >> 8 & 255}.{number & 255}",)


def speed(c: Correlation, groups: int, matches: int, values: list[Any]) -> None:
    """Print updates a second."""
    one = Correlator([c], Clock(LATENESS), max_bytes=1 << 40)
    source, node, rng = one.clock.source("in", "h"), one.nodes[0], random.Random(1)
    keys = [group(number) for number in range(groups)]
    items = [Item(node, 0, keys[rng.randrange(groups)], values[i % len(values)], None) for i in range(matches)]
    began, fired = time.perf_counter(), 0
    for i, item in enumerate(items):
        one.clock.observe(source, i * STEP)
        fired += len(one.add((item,), source, i * STEP, i * 100, 100))
    rate = matches / (time.perf_counter() - began)
    taken = one.groups.bytes
    print(f"{c.kind:<17} {groups:>7,} groups: {rate:>9,.0f} updates/s, {fired:>6,} firings, {taken:>12,} bytes")


def size(groups: int = 100_000) -> None:
    """Print bytes a group with one to three matches."""
    one = Correlator([correlation(Kind.EVENT_COUNT)], Clock(LATENESS), max_bytes=1 << 40)
    source, node = one.clock.source("in", "h"), one.nodes[0]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for matches in (1, 2, 3):
        for number in range(groups):
            at = matches * 1_000_000 + number
            one.clock.observe(source, at)
            one.add((Item(node, 0, group(number), None, None),), source, at, at * 100, 100)
        one.delta()
        taken = (tracemalloc.get_traced_memory()[0] - before) / groups
        print(f"a group of {matches}: {taken:.0f} bytes, accounted as {one.groups.bytes / groups:.0f}")


def main() -> None:
    count = correlation(Kind.EVENT_COUNT)
    speed(count, 100_000, 300_000, [None])
    speed(count, 100, 300_000, [None])
    speed(correlation(Kind.VALUE_COUNT, field=("v",)), 1000, 200_000, [str(i) for i in range(50)])
    two = (Slot("r", False), Slot("s", False))
    speed(correlation(Kind.TEMPORAL, slots=two, bounds=(("gte", 2),)), 1000, 200_000, [None])
    speed(correlation(Kind.VALUE_SUM, field=("v",), bounds=(("gt", 10**9),)), 1000, 200_000, [5, 7])
    speed(correlation(Kind.VALUE_AVG, field=("v",)), 1000, 100_000, [5, 7])
    size()


if __name__ == "__main__":
    main()
