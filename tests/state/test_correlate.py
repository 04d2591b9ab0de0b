"""Correlations over time: the fast evaluator against the naive one, in any order, over any restart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.state.drawn import SECOND, correlations, hits
from tests.state.naive import Fired, Hit, firings, occurrences
from vedette.compiler.relation import Correlation, Kind
from vedette.state import windows
from vedette.state.clock import Clock
from vedette.state.correlate import Correlator, Firing, Item

LONG = 1000 * SECOND


def correlator(*found: Correlation, lateness: int = LONG, settle: bool = False, max_bytes: int = 1 << 26) -> Correlator:
    return Correlator(found, Clock(lateness), max_bytes=max_bytes, settle=settle)


def feed(one: Correlator, found: Iterable[Hit]) -> list[Firing]:
    """Every match in turn, all of one source."""
    fired = []
    for hit in found:
        source = one.clock.source("in", "h")
        if one.clock.observe(source, hit.time):
            item = Item(one.nodes[0], hit.slot, hit.group, hit.value, None)
            fired += one.add([item], source, hit.time, hit.order, 1)
    return fired


def shown(fired: Iterable[Firing]) -> list[Fired]:
    return [Fired(one.values, one.event.offset) for one in fired]


def in_time(found: Sequence[Hit]) -> list[Hit]:
    return sorted(found, key=lambda hit: (hit.time, hit.order, hit.slot))


@st.composite
def cases(draw: st.DrawFn, ties: bool = True) -> tuple[Correlation, list[Hit]]:
    c = draw(correlations())
    return c, draw(hits(c.kind, ties=ties))


@given(cases())
@settings(max_examples=400, deadline=None)
def test_in_the_order_of_time(case: tuple[Correlation, list[Hit]]) -> None:
    """Matches in the order of their times fire as the naive evaluator says, whatever the kind and condition."""
    c, found = case
    one = correlator(c, lateness=0)
    fired = feed(one, in_time(found)) + one.finish()
    assert sorted(shown(fired)) == sorted(firings(c, found))


@pytest.fixture(autouse=True)
def _compact_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows are compacted at every chance, so that few matches show what it forgets."""
    monkeypatch.setattr(windows, "MIN_LIMIT", 1)


@given(cases())
@settings(max_examples=300, deadline=None)
def test_settled_in_any_order(case: tuple[Correlation, list[Hit]]) -> None:
    """With ``settle``, any order of arrival within the lateness fires what the order of time fires."""
    c, found = case
    one = correlator(c, settle=True)
    fired = feed(one, found) + one.finish()
    assert sorted(shown(fired)) == sorted(firings(c, found))


@given(cases())
@settings(max_examples=300, deadline=None)
def test_in_any_order(case: tuple[Correlation, list[Hit]]) -> None:
    """In any order of arrival: what is decided at the end fires the same; of what is decided at once every run fires,
    at one of its own matches, and no other."""
    c, found = case
    one = correlator(c)
    fired = feed(one, found) + one.finish()
    if not c.prompt:
        assert sorted(shown(fired)) == sorted(firings(c, found))
        return
    if c.kind is Kind.VALUE_SUM:
        found = [hit for hit in found if hit.value is None or hit.value >= 0]
    runs: list[set[Fired]] = []
    for group, order, first in sorted(occurrences(c, found), key=lambda o: o[0]):
        if first:
            runs.append(set())
        runs[-1].add(Fired(group, order))
    assert set(shown(fired)) <= set().union(*runs)
    assert all(run & set(shown(fired)) for run in runs)


@given(cases(), st.integers(0, 30), st.data())
@settings(max_examples=200, deadline=None)
def test_late_matches_are_counted_and_not_used(
    case: tuple[Correlation, list[Hit]], lateness: int, data: st.DataObject
) -> None:
    """What comes below the watermark changes nothing but a count: the rest fires as if it had not been."""
    c, found = case
    newest, taken = None, []
    for hit in found:
        if newest is None or hit.time >= newest - lateness * SECOND:
            taken.append(hit)
            newest = hit.time if newest is None else max(newest, hit.time)
    one = correlator(c, lateness=lateness * SECOND, settle=True)
    fired = feed(one, found) + one.finish()
    assert sorted(shown(fired)) == sorted(firings(c, taken))


@given(cases(), st.booleans(), st.integers(0, 60), st.sampled_from([600, 1 << 20]), st.data())
@settings(max_examples=300, deadline=None)
def test_after_a_restart(
    case: tuple[Correlation, list[Hit]], settle: bool, lateness: int, size: int, data: st.DataObject
) -> None:
    """Stopped after any match and restored from its deltas, it goes on as if it had not been stopped."""
    c, found = case
    whole = correlator(c, settle=settle, lateness=lateness * SECOND, max_bytes=size)
    expected = feed(whole, found) + whole.finish()
    stops = sorted(data.draw(st.sets(st.integers(0, len(found)), max_size=3)))
    saved: list[bytes] = []
    fired, start = [], 0
    for stop in [*stops, len(found)]:
        one = correlator(c, settle=settle, lateness=lateness * SECOND, max_bytes=size)
        for packed in saved:
            clock, groups = msgpack.unpackb(packed)
            one.clock.load(clock)
            one.restore(groups)
        one.resume()
        fired += feed(one, found[start:stop])
        if data.draw(st.booleans()):
            saved.append(msgpack.packb([one.clock.delta(), one.delta()]))
        else:
            saved = [msgpack.packb([one.clock.dump(), one.dump()])]
        start = stop
    fired += one.finish()
    assert sorted(shown(fired)) == sorted(shown(expected))
    assert (one.bytes, one.evicted, list(one.groups)) == (whole.bytes, whole.evicted, list(whole.groups))
