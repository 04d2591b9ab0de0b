"""Event time: clamping, watermarks, silence, bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.state import clock
from vedette.state.clock import MAX_SKEW, Clock, clamp

SECOND = 1_000_000
NOW = 1_790_000_000 * SECOND
YEARS = 70 * 365 * 86_400 * SECOND


def test_clamp() -> None:
    """A time more than five minutes after its receipt becomes the receipt and is told; none is the receipt."""
    assert clamp(NOW + MAX_SKEW, NOW) == (NOW + MAX_SKEW, False)
    assert clamp(NOW + MAX_SKEW + 1, NOW) == (NOW, True)
    assert clamp(5, NOW) == (5, False)
    assert clamp(None, NOW) == (NOW, False)


def test_late_events() -> None:
    """What lies more than the lateness before the newest event is late, and moves nothing."""
    one = Clock(30 * SECOND)
    source = one.source("in", "h")
    assert one.observe(source, NOW)
    assert one.observe(source, NOW - 30 * SECOND)
    assert not one.observe(source, NOW - 30 * SECOND - 1)
    assert one.watermark(source) == NOW - 30 * SECOND


def test_each_source_for_itself() -> None:
    """A host that is ahead, or one of another input, makes no other's events late."""
    one = Clock(30 * SECOND)
    ahead, behind, other = one.source("in", "a"), one.source("in", "b"), one.source("out", "a")
    assert one.observe(ahead, NOW + 200 * SECOND)
    assert one.observe(behind, NOW)
    assert one.observe(other, NOW - 3600 * SECOND)


def test_silence() -> None:
    """A silent source comes along with what others receive: by as much, from where it was; not over a long gap."""
    one = Clock(30 * SECOND)
    source = one.source("in", "h")
    one.advance(NOW)
    one.observe(source, NOW - 3600 * SECOND)  # its clock is an hour behind
    for second in range(1, 41):
        one.advance(NOW + second * SECOND)
    assert one.watermark(source) == NOW - 3600 * SECOND + 10 * SECOND
    assert one.observe(source, NOW - 3600 * SECOND + 41 * SECOND)
    one.advance(NOW + 3 * 3600 * SECOND)  # the agent was down
    assert one.observe(source, NOW - 3600 * SECOND + 42 * SECOND)


def test_a_clock_that_was_set_back() -> None:
    """After a time that was ahead by less than what is clamped, events are late until time has caught up."""
    one = Clock(30 * SECOND)
    source = one.source("in", "h")
    one.advance(NOW)
    assert one.observe(source, NOW + 100 * SECOND)
    assert not one.observe(source, NOW)
    assert one.observe(source, NOW + 80 * SECOND)


def test_the_agents_own_clock_was_set_back() -> None:
    """After its own clock was far ahead (events without a time are of its time), the agent goes on at once: sources
    come back to it, and silence counts again."""
    one = Clock(30 * SECOND)
    ahead, steady = one.source("in", "ahead"), one.source("in", "steady")
    one.advance(NOW)
    one.observe(steady, NOW)
    one.advance(NOW + YEARS)
    one.observe(ahead, NOW + YEARS)
    one.delta()
    one.advance(NOW + SECOND)
    assert one.watermark(ahead) == NOW + SECOND - 30 * SECOND
    assert one.watermark(steady) == NOW + clock.MAX_GAP - 30 * SECOND
    assert one.changed
    assert one.observe(ahead, NOW + 300 * SECOND)
    running = one.running
    one.advance(NOW + 2 * SECOND)
    assert one.running == running + SECOND
    copy = Clock(30 * SECOND)
    copy.load(one.delta())
    assert copy.watermark(ahead) == one.watermark(ahead)


def test_the_agents_own_clock_was_unset() -> None:
    """Events judged while its clock stood in 1970 do not make those late that come when it is set."""
    one = Clock(30 * SECOND)
    source = one.source("in", "h")
    one.advance(NOW)
    one.observe(source, NOW)
    one.advance(60 * SECOND)
    assert one.observe(source, clamp(NOW + SECOND, 60 * SECOND)[0])
    one.advance(NOW + 2 * SECOND)
    assert one.observe(source, NOW + 2 * SECOND)
    assert not one.observe(source, NOW - 30 * SECOND)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 500), st.integers(0, 100)), max_size=40))
def test_it_never_goes_back(steps: list[tuple[str, int, int]]) -> None:
    """Whatever comes in whatever order, no watermark ever falls (but for the agent's clock set far back)."""
    one = Clock(10 * SECOND)
    highest: dict[int, int] = {}
    for host, time, received in steps:
        source = one.source("in", host)
        one.advance(NOW + received * SECOND)
        one.observe(source, NOW + time * SECOND)
        for known in highest:
            mark = one.watermark(known)
            assert mark is not None
            assert mark >= highest[known]
        mark = one.watermark(source)
        assert mark is not None
        highest[source] = mark


def test_many_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source longest without an event goes; when it comes back, it begins anew."""
    monkeypatch.setattr(clock, "MAX_SOURCES", 2)
    one = Clock(0)
    first = one.source("in", "a")
    one.observe(first, NOW)
    for host in "bc":
        one.observe(one.source("in", host), NOW)
    assert len(one) == 2
    assert one.watermark(first) is None
    again = one.source("in", "a")
    assert again != first
    assert one.observe(again, NOW - SECOND)
    copy = Clock(0)
    copy.load(one.delta())
    assert copy.dump() == one.dump()
