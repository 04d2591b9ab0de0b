"""What slides say of a stretch is what the same entries give when looked at anew, wherever they come from."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.state import naive
from tests.state.drawn import made
from tests.state.naive import Hit
from vedette.plan.relation import Clause, Correlation, Kind
from vedette.state import decide, measure, slides
from vedette.state.clock import Clock
from vedette.state.correlate import Correlator
from vedette.state.graph import Item
from vedette.state.measure import metric
from vedette.state.slides import Links, Longest
from vedette.state.windows import Window, meta

NUMBERS = st.none() | st.integers(-(1 << 62), 1 << 62) | st.floats(allow_nan=False, allow_infinity=False)
SMALL = st.none() | st.sampled_from([1, 1.0, 2, 2.5, -3])
KINDS = [Kind.VALUE_COUNT, Kind.VALUE_SUM, Kind.VALUE_AVG, Kind.VALUE_MEDIAN, Kind.VALUE_PERCENTILE, Kind.TEMPORAL]
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "look", "look", "drop"]), st.integers(0, 30), st.integers(0, 30))
)


def anew(c: Correlation, window: Window, start: int, stop: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(measure, "MIN_SLIDE", 1 << 30)
        return metric(c, window, start, stop)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("values", [NUMBERS, SMALL])
@given(data=st.data(), steps=STEPS)
@settings(max_examples=60, deadline=None)
def test_slides(kind: Kind, values: st.SearchStrategy[Any], data: st.DataObject, steps: list[Any]) -> None:
    """Whatever is put in anywhere, goes from the front, and is asked for: value and type are as if looked at anew."""
    c, window = made(kind, percentile=30.0), Window()
    with pytest.MonkeyPatch.context() as patch:
        for number, (what, a, b) in enumerate(steps):
            if what == "add":
                window.insert(a, number, meta(b % 3, 1), data.draw(values), None)
            elif what == "drop":
                window.drop(min(a // 4, len(window)))
            else:
                start, stop = sorted((a % (len(window) + 1), b % (len(window) + 1)))
                patch.setattr(measure, "MIN_SLIDE", 0)
                found, expected = metric(c, window, start, stop), anew(c, window, start, stop, patch)
                assert (found, type(found)) == (expected, type(expected))


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.booleans()), max_size=40), st.integers(0, 39),
    st.sampled_from([[(0, 1, 2)], [(0, 1), (2,)], [(0, 2)]]),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_links(found: list[tuple[int, int, bool]], dropped: int, tracks: list[tuple[int, ...]]) -> None:
    """A chain is found exactly where there is one, in any order of arrival, with some gone from the front."""
    c = made(Kind.TEMPORAL_ORDERED, bounds=(), clauses=tuple(map(Clause, tracks)))
    window, links, offset, time = Window(), Links(tracks), 0, 0
    window.links = links
    for number, (at, slot, same) in enumerate(found):
        if not same:
            offset, time = offset + 1, at
        at = window.insert(time, offset, meta(slot, 1), None, None)
        if number == dropped:
            window.drop(at)
            at = 0
        stop = window.ends(at) + 1
        start = window.first(window.time(at) - 10)
        holds = any(decide.completed(c, clause, window, start, stop) is not None for clause in c.clauses)
        assert (links.measure(window, start, stop) > 0) == holds


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.booleans()), max_size=30), st.integers(0, 30))
@settings(max_examples=200, deadline=None)
def test_the_longest_chain(found: list[tuple[int, int, bool]], dropped: int) -> None:
    """The number of links is that of the naive evaluator, in any order of arrival, with some gone from the front."""
    c, window, links = made(Kind.TEMPORAL_ORDERED), Window(), Longest(3)
    window.links = links
    offset = time = 0
    for number, (at, slot, same) in enumerate(found):
        if not same:
            offset, time = offset + 1, at
        at = window.insert(time, offset, meta(slot, 1), None, None)
        if number == dropped:
            window.drop(at)
            at = 0
        stop = window.ends(at) + 1
        start = window.first(window.time(at) - 10)
        hits = [Hit(window.time(i), window.offset(i), window.slot(i)) for i in range(start, stop)]
        assert links.measure(window, start, stop) == naive.measure(c, hits)


LARGE = [*KINDS, Kind.TEMPORAL_ORDERED, Kind.EVENT_COUNT]


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("settle", [False, True])
@pytest.mark.parametrize("number", range(3))
def test_large_windows(kind: Kind, settle: bool, number: int) -> None:
    """Hundreds of events in one group, some out of order: what fires does not depend on slides."""
    seed = random.Random(number)
    bound = {Kind.VALUE_COUNT: 30, Kind.TEMPORAL: 2, Kind.TEMPORAL_ORDERED: 2 - number % 2, Kind.VALUE_SUM: 300}.get(
        kind, 3
    )
    c = made(kind, bounds=(("gt", bound),), span=100_000)
    events = []
    for i in range(400):
        late = seed.choice([0, 0, 0, 50, 3000])
        slot = 0 if seed.random() < 0.98 else seed.randrange(3)
        value = f"v{seed.randrange(40)}" if kind is Kind.VALUE_COUNT else seed.choice([1, 2, 3.5, 9, None])
        events.append(((i + 5000) * 1000 - late * 10, i, slot, value))
    told = []
    for least in (0, 1 << 30):
        with pytest.MonkeyPatch.context() as patch:
            for module in (measure, slides):
                patch.setattr(module, "MIN_SLIDE", least)
            patch.setattr(measure, "MIN_LINKS", least)
            one = Correlator([c], Clock(20_000), max_bytes=1 << 30, settle=settle)
            fired = []
            for time, offset, slot, value in events:
                source, _ = one.clock.observe("in", "h", time)
                item = Item(one.nodes[0], slot, ("g",), value if c.field else None, None)
                fired += one.add([item], source, time, offset, 9)
            told.append([(f.event, f.metric, f.count, f.contributing) for f in fired + one.finish()])
    assert told[0] == told[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_does_not_grow_with_the_window(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty thousand matches in one group: one more moves a slide by one entry, it does not look at all of them."""
    c, window, moved = made(kind, percentile=90.0), Window(), []
    for i in range(20_000):
        window.insert(i, i, meta(0, 1), i % 1000, None)
    metric(c, window, 0, 19_990)
    assert window.slides is not None
    slide = type(window.slides[0])
    take, leave = slide.take, slide.leave

    def taken(self: Any, window: Window, start: int, stop: int) -> None:
        moved.append(stop - start)
        take(self, window, start, stop)

    def left(self: Any, window: Window, start: int, stop: int) -> None:
        moved.append(stop - start)
        leave(self, window, start, stop)

    monkeypatch.setattr(slide, "take", taken)
    monkeypatch.setattr(slide, "leave", left)
    for stop in range(19_991, 20_001):
        metric(c, window, stop - 19_990, stop)
    assert moved == [1] * 20
