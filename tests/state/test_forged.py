"""Whoever sends chooses time and host of a line: what is sent under a host's name silences none of its correlations,
whatever the host's clock says and however its lines come."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state.drawn import EXAMPLES, SECOND, SHAPES, correlation_of, correlations, hits
from tests.state.naive import Fired, Hit, firings
from tests.state.test_correlate import in_time
from vedette.model.times import MAX_SKEW
from vedette.plan.aggregates import Kind
from vedette.plan.relation import Correlation
from vedette.state import correlate, packed, windows
from vedette.state.clock import MAX_GAP, Clock
from vedette.state.correlate import Correlator
from vedette.state.firing import Firing
from vedette.state.graph import Item
from vedette.state.windows import Window

NOW = 1_790_000_000 * SECOND
WEEK = 7 * 86_400 * SECOND
PAUSE = 100
"""Seconds in the middle, in which all that is due is decided."""
APART = 20 * SECOND
"""More than the span: what lies further from each other is in no window together."""
SKEWS = {
    "right": 0, "ahead": 240 * SECOND, "behind": -240 * SECOND, "an hour behind": -3600 * SECOND, "1970": -NOW,
}  # fmt: skip
FORGED = (290 * SECOND, 100 * SECOND, 0, -100 * SECOND, -2 * 3600 * SECOND, -WEEK)


class Received(NamedTuple):
    at: int
    hit: Hit


@pytest.fixture(autouse=True)
def _compact_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows are compacted at every chance, so that few matches show what it forgets."""
    monkeypatch.setattr(packed, "room", lambda least, entries: min(entries + 1, packed.MAX))
    monkeypatch.setattr(windows, "MIN_LIMIT", 1)
    monkeypatch.setattr(windows, "MAX_CONTRIBUTING", 1)
    monkeypatch.setattr(Window, "limit", property(lambda self: 1, lambda self, value: None))


def drive(c: Correlation, events: list[Received], settle: bool) -> list[Firing]:
    """Every match in turn, all of one host; then silence until nothing is left to wait for."""
    one, fired = Correlator([c], Clock(30 * SECOND), max_bytes=1 << 26, settle=settle), list[Firing]()

    def until(received_at: int, step: int = SECOND) -> None:
        while (now := one.clock.received_at) < received_at:
            one.clock.advance(min(now + step, received_at) if now else received_at)
            fired.extend(one.advance())

    for received_at, hit in events:
        until(received_at)
        lane, _ = one.clock.observe("in", "h", hit.time)
        fired += one.add([Item(one.nodes[0], hit.slot, hit.group, hit.value, None)], lane, hit.time, hit.order, 1)
    until(one.clock.received_at + 2 * MAX_SKEW + c.span, MAX_GAP)
    assert not one.finish()
    return fired


def check(c: Correlation, honest: list[Received], forged: list[Received], settle: bool) -> None:
    """All that the host's own lines fire is fired, when the others lie among them; what is forged far from them fires
    by itself, and what is of another group is not looked at."""
    apart = [
        one if all(abs(one.hit.time - other.hit.time) > APART for other in honest + forged[:i]) else None
        for i, one in enumerate(forged)
    ]
    forged = [far or one._replace(hit=one.hit._replace(group=("z",))) for far, one in zip(apart, forged, strict=True)]
    events = sorted([*honest, *forged], key=lambda one: one.at)
    places = {order: place for place, order in enumerate(dict.fromkeys(one.hit.order for one in events))}
    events = [one._replace(hit=one.hit._replace(order=places[one.hit.order])) for one in events]
    fired = [Fired(one.values, one.event.offset) for one in drive(c, events, settle)]
    expected = firings(c, [one.hit for one in events])
    assert sorted(one for one in fired if one.group != ("z",)) == sorted(one for one in expected if one.group != ("z",))


@st.composite
def lines(draw: st.DrawFn, c: Correlation, skews: tuple[int, int], step: int = SECOND) -> list[Received]:
    """A host's matches in the order of their times: before the pause by the first skew, after it by the second.

    ``step``: between two receipts for each second between their times.
    """
    found, middle = in_time(draw(hits(c.kind))), draw(st.integers(0, 30)) * SECOND
    received = []
    for hit in found:
        paused = hit.time > middle
        time = NOW + hit.time + (PAUSE * SECOND if paused else 0)
        at = NOW + (time - NOW) * step // SECOND
        received.append(Received(at, hit._replace(time=time + skews[paused])))
    return received


@st.composite
def others(draw: st.DrawFn, c: Correlation, skew: st.SearchStrategy[int]) -> list[Received]:
    """Matches at any time, forged by as much after or before their receipt."""
    received = []
    for hit in draw(hits(c.kind)):
        at = NOW + hit.time + (PAUSE * SECOND if draw(st.booleans()) else 0)
        received.append(Received(at, hit._replace(time=at + draw(skew), order=1000 + hit.order)))
    return received


every_shape = pytest.mark.parametrize("shape", SHAPES)


@every_shape
@given(st.data(), st.sampled_from([*SKEWS]), st.booleans())
@EXAMPLES
def test_a_few_times_forged(shape: str, data: st.DataObject, skew: str, settle: bool) -> None:
    """Of a host whose clock is right, ahead or behind by whatever, while lines of six other times come among its."""
    c = data.draw(correlations(shape))
    honest = data.draw(lines(c, (SKEWS[skew], SKEWS[skew])))
    check(c, honest, data.draw(others(c, st.sampled_from(FORGED))), settle)


@every_shape
@given(st.data(), st.sampled_from(["right", "ahead"]), st.booleans())
@EXAMPLES
def test_any_times_forged(shape: str, data: st.DataObject, skew: str, settle: bool) -> None:
    """Of a host whose clock is right or ahead, whatever and however much is forged."""
    c = data.draw(correlations(shape))
    honest = data.draw(lines(c, (SKEWS[skew], SKEWS[skew])))
    check(c, honest, data.draw(others(c, st.integers(-WEEK, MAX_SKEW))), settle)


@every_shape
@given(st.data(), st.sampled_from(["right", "ahead"]), st.booleans())
@EXAMPLES
def test_any_number_forged(shape: str, data: st.DataObject, skew: str, settle: bool) -> None:
    """The same when three are more than a group keeps, and it knows two lanes."""
    c = data.draw(correlations(shape))
    honest = data.draw(lines(c, (SKEWS[skew], SKEWS[skew])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(correlate, "MAX_TAIL", 2)
        patch.setattr(windows, "LANES", 2)
        check(c, honest, data.draw(others(c, st.integers(-WEEK, MAX_SKEW))), settle)


def test_the_furthest_lane_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """More lanes than a group knows, each begun 5 minutes behind the one before, put off its decision no further."""
    monkeypatch.setattr(windows, "LANES", 2)
    c = correlation_of(Kind.EVENT_COUNT, bounds=(("lt", 2),))
    events = [Received(NOW, Hit(NOW - i * 290 * SECOND, i, 0, ("x",), None)) for i in range(6)]
    assert len(drive(c, events, settle=False)) == len(events)


@every_shape
@given(st.data(), st.sampled_from([-3600 * SECOND, -200 * SECOND, 240 * SECOND]), st.booleans())
@EXAMPLES
def test_a_clock_that_is_set(shape: str, data: st.DataObject, jump: int, settle: bool) -> None:
    """Of a host whose clock is set back or forth: what comes before and what comes after, each by itself."""
    c = data.draw(correlations(shape))
    honest = data.draw(lines(c, (0, jump)))
    check(c, honest, data.draw(others(c, st.sampled_from(FORGED[:4]))), settle)


@every_shape
@given(st.data(), st.booleans())
@EXAMPLES
def test_an_old_log(shape: str, data: st.DataObject, settle: bool) -> None:
    """Of a log of weeks ago that is read in a moment, while the host's own lines of now come, and forged ones."""
    c = data.draw(correlations(shape))
    honest = data.draw(lines(c, (-3 * WEEK, -3 * WEEK), step=1000))
    live = [one._replace(hit=one.hit._replace(order=500 + one.hit.order)) for one in data.draw(lines(c, (0, 0)))]
    check(c, honest + live, data.draw(others(c, st.sampled_from(FORGED))), settle)
