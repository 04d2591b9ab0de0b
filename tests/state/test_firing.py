"""What a correlation's alert shows does not depend on when events were received, nor on what was forgotten since."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state.drawn import EXAMPLES, SECOND, SHAPES, SLOTS, correlation_of, correlations, hits
from tests.state.naive import Hit
from tests.state.test_correlate import LONG, correlator, feed, in_time
from vedette.plan.aggregates import Kind
from vedette.plan.grid import Grid
from vedette.plan.relation import Clause, Correlation
from vedette.state import firing, packed, windows
from vedette.state.firing import Firing
from vedette.state.graph import Item
from vedette.state.windows import Window

PROMPT = {
    "event_count": (correlation_of(Kind.EVENT_COUNT, bounds=(("gte", 25),)), 1),
    "event_count of one rule": (correlation_of(Kind.EVENT_COUNT, bounds=(("gte", 25),), slots=SLOTS[:1]), 1),
    "value_count": (correlation_of(Kind.VALUE_COUNT, bounds=(("gte", 4),)), 20),
    "value_count of many": (correlation_of(Kind.VALUE_COUNT, bounds=(("gte", 30),)), 1),
    "temporal": (correlation_of(Kind.TEMPORAL), 20),
    "temporal_ordered": (correlation_of(Kind.TEMPORAL_ORDERED), 20),
    "clauses": (correlation_of(Kind.TEMPORAL, bounds=(), clauses=(Clause((0, 1)), Clause((0, 2)))), 20),
    "tumbling": (correlation_of(Kind.VALUE_COUNT, bounds=(("gte", 4),), grid=Grid("TUMBLE", 10 * SECOND)), 20),
    "session": (correlation_of(Kind.TEMPORAL, grid=Grid("SESSION", 2 * SECOND)), 20),
    "ordered clauses": (correlation_of(Kind.TEMPORAL_ORDERED, bounds=(), clauses=(Clause((0, 2)),)), 20),
}
"""Correlations that are decided at once, and how rare matches are that tell their rule or value from others."""


def at_pace(c: Correlation, hits: Sequence[Hit], received_at: Callable[[int], int]) -> list[Firing]:
    """What fires of matches in the order of their times, the ``n``-th received at ``received_at(n)``."""
    one, fired = correlator(c, lateness=2 * SECOND), list[Firing]()
    for n, hit in enumerate(hits):
        one.clock.advance(received_at(n))
        fired += one.advance()
        lane, _ = one.clock.observe("in", "h", hit.time)
        fired += one.add([Item(one.nodes[0], hit.slot, hit.group, hit.value, None)], lane, hit.time, hit.order, 1)
    return fired + one.finish()


@pytest.mark.parametrize("name", PROMPT)
def test_when_events_are_received(name: str) -> None:
    """All at once, as they happened, or with a pause now and then, as over a kill: the same alerts in every field."""
    (c, rare), rng, time, found = PROMPT[name], random.Random(name), 0, list[Hit]()
    for order in range(4500):
        time += rng.choice([0, 1, 2]) * SECOND // 8 + rng.choice([0] * 199 + [11 * SECOND])
        slot = rng.randrange(len(c.slots)) if rng.randrange(rare) == 0 else 0
        value = f"v{rng.randrange(40 if rng.randrange(rare) == 0 else 2)}" if c.field else None
        found.append(Hit(time, order, slot, (rng.choice("xxy"),), value))
    start = found[-1].time + 1
    paces: dict[str, Callable[[int], int]] = {
        "as they happened": lambda n: start + found[n].time,
        "half as fast": lambda n: start + n * SECOND // 2,
        "with pauses": lambda n: start + n // 8 * 19 * SECOND // 10,
    }
    expected = at_pace(c, found, lambda _: start)
    assert len(expected) > 20
    assert max(len(fired.contributing) for fired in expected) <= windows.MAX_CONTRIBUTING
    for pace, received_at in paces.items():
        assert at_pace(c, found, received_at) == expected, pace


@pytest.mark.parametrize("shape", SHAPES)
@given(st.data())
@EXAMPLES
def test_what_is_forgotten(shape: str, data: st.DataObject) -> None:
    """Whether windows are compacted at every chance or never: the same alerts in every field."""
    c = data.draw(correlations(shape))
    found = in_time(data.draw(hits(c.kind, size=30)))
    with pytest.MonkeyPatch.context() as patch:
        named = data.draw(st.integers(1, 4))
        patch.setattr(windows, "MAX_CONTRIBUTING", named)  # few matches show what is left out
        patch.setattr(firing, "MAX_CONTRIBUTING", named)
        whole = correlator(c, lateness=LONG)
        expected = feed(whole, found) + whole.finish()
        patch.setattr(packed, "room", lambda least, entries: min(entries + 1, packed.MAX))
        patch.setattr(windows, "MIN_LIMIT", 1)
        patch.setattr(Window, "limit", property(lambda self: 1, lambda self, value: None))
        one = correlator(c, lateness=0)
        fired = feed(one, found) + one.finish()
    assert sorted(fired, key=_place) == sorted(expected, key=_place)


def _place(one: Firing) -> tuple[tuple[str, ...], int]:
    return one.values, one.event.offset
