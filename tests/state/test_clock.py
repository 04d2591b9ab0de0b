"""Event time: clamping, lanes and their watermarks, silence, bounds."""

from __future__ import annotations

from datetime import UTC, datetime

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state.drawn import all_of
from vedette.model.event import MAX_EVENT, MAX_HOST
from vedette.model.times import MAX_SKEW, clamp, micros
from vedette.state import clock
from vedette.state.clock import FOREVER, LANES, Clock

SECOND = 1_000_000
NOW = 1_790_000_000 * SECOND
HOUR = 3600 * SECOND
YEARS = 70 * 365 * 24 * HOUR


def received(one: Clock, seconds: int) -> None:
    """Receipts of all seconds up to this one after NOW."""
    for second in range((one.received_at - NOW) // SECOND + 1, seconds + 1):
        one.advance(NOW + second * SECOND)


def begun(lateness: int = 30 * SECOND) -> Clock:
    one = Clock(lateness)
    one.advance(NOW)
    return one


def test_clamp() -> None:
    """A time more than five minutes after its receipt becomes the receipt and is flagged; none is the receipt."""
    assert clamp(NOW + MAX_SKEW, NOW) == (NOW + MAX_SKEW, False)
    assert clamp(NOW + MAX_SKEW + 1, NOW) == (NOW, True)
    assert clamp(5, NOW) == (5, False)
    assert clamp(None, NOW) == (NOW, False)
    first = micros(datetime(1, 1, 1, tzinfo=UTC))
    assert clamp(first, NOW) == (first, False)
    assert clamp(first - 1, NOW) == (NOW, True)


@pytest.mark.parametrize("skew", [0, 240 * SECOND, -240 * SECOND, -HOUR, -YEARS])
def test_a_clock_that_is_off(skew: int) -> None:
    """A host whose clock runs ahead or behind has one lane, and nothing of it jumps; its watermark is never beyond the
    receipts."""
    one = begun()
    for second in range(100):
        received(one, second)
        lane, jumps = one.observe("in", "h", NOW + skew + (second - second % 3 * 9) * SECOND)
        assert (lane, jumps) == (1, False)
    assert one.watermark(1) == NOW + min(skew, 0) + 69 * SECOND


def test_a_line_that_is_ahead() -> None:
    """One line ahead of the others, by whatever the clamp lets through, is counted and moves no watermark but its
    own."""
    one = begun()
    lane, _ = one.observe("in", "h", NOW)
    for jumps, ahead in enumerate((31, 100, 290), 1):
        before = one.watermark(lane)
        forged, jumped = one.observe("in", "h", NOW + ahead * SECOND)
        assert forged != lane
        assert jumped
        assert one.watermark(lane) == before
        assert one.jumps == jumps
        assert one.observe("in", "h", NOW + 1 * SECOND) == (lane, False)


@pytest.mark.parametrize("behind", [240 * SECOND, HOUR, YEARS])
def test_a_line_of_now_where_all_are_old(behind: int) -> None:
    """A host whose clock lags, or whose old log is read: a line of now begins a lane beside it. That is no jump: a
    line of now is as it should be."""
    one = begun()
    lane, _ = one.observe("in", "h", NOW - behind)
    before = one.watermark(lane)
    now, jumps = one.observe("in", "h", NOW)
    assert now != lane
    assert not jumps
    assert one.watermark(lane) == before
    assert one.observe("in", "h", NOW - behind + SECOND) == (lane, False)


def test_a_clock_that_is_set_back() -> None:
    """What comes after goes on in a lane of its own; the jump is counted once."""
    one = begun()
    lane, _ = one.observe("in", "h", NOW)
    back, jumps = one.observe("in", "h", NOW - HOUR)
    assert back != lane
    assert jumps
    for second in range(1, 40):
        received(one, second)
        assert one.observe("in", "h", NOW - HOUR + second * SECOND) == (back, False)
    assert one.jumps == 1


def test_many_lines_move_no_watermark_beyond_the_receipts() -> None:
    """Each line moves its lane a little further; a host whose clock is right is not left behind by any number."""
    one = begun()
    lane, _ = one.observe("in", "h", NOW)
    for second in range(1, 300, 7):
        one.observe("in", "h", NOW + second * SECOND)
    assert one.watermark(lane) == NOW - 30 * SECOND
    assert one.observe("in", "h", NOW - 20 * SECOND) == (lane, False)


def test_each_source_for_itself() -> None:
    """A host that is ahead, or one of another input, has nothing to do with others."""
    one = begun()
    found = [
        one.observe("in", "a", NOW + 200 * SECOND), one.observe("in", "b", NOW), one.observe("out", "a", NOW - HOUR),
    ]  # fmt: skip
    assert found == [(1, False), (2, False), (3, False)]
    assert one.watermark(3) == NOW - HOUR - 30 * SECOND


def test_silence() -> None:
    """A silent lane comes along with what others receive: by as much, from where it was; not over a long gap."""
    one = begun()
    lane, _ = one.observe("in", "h", NOW - HOUR)  # its clock is an hour behind
    received(one, 40)
    assert one.watermark(lane) == NOW - HOUR + 10 * SECOND
    assert one.observe("in", "h", NOW - HOUR + 41 * SECOND) == (lane, False)
    one.advance(NOW + 3 * HOUR)  # the agent was down
    assert one.observe("in", "h", NOW - HOUR + 42 * SECOND) == (lane, False)


def test_more_lanes_than_there_are() -> None:
    """The lane longest without an event is retired: it goes on as a silent one, and takes no event."""
    one = begun()
    lane, _ = one.observe("in", "h", NOW)
    for hours in range(1, LANES + 1):
        assert one.taking(lane)
        one.observe("in", "h", NOW - hours * HOUR)
    assert not one.taking(lane)
    assert one.watermark(lane) == NOW - 30 * SECOND
    received(one, 10)
    assert one.watermark(lane) == NOW - 20 * SECOND
    assert one.observe("in", "h", NOW + 10 * SECOND)[0] == LANES + 2


def test_whom_a_group_waits_for() -> None:
    """For the slowest lane, but not for long when it is far behind and silent; for none that is not known."""
    one = begun()
    lag, _ = one.observe("in", "lag", NOW - 240 * SECOND)
    old, _ = one.observe("in", "old", NOW - YEARS)
    live, _ = one.observe("in", "live", NOW)
    assert one.slowest((lag, old, live)) == (one.watermark(old), old)
    assert one.slowest((lag, live, 99)) == (one.watermark(lag), lag)
    assert one.slowest((99,)) == (FOREVER, 0)
    received(one, 301)
    assert one.slowest((lag, old, live)) == (one.watermark(lag), lag)
    assert one.slowest((old,)) == (one.watermark(old), old)


@pytest.mark.parametrize("jump", [-NOW + 60 * SECOND, YEARS])
def test_the_agents_own_clock_jumps(jump: int) -> None:
    """To 1970 or 2099 and back, with events judged meanwhile: what comes then goes on in its lane."""
    one = begun()
    lane, _ = one.observe("in", "h", NOW)
    one.advance(NOW + jump)
    one.observe("in", "other", NOW + jump)
    one.observe("in", "h", clamp(NOW + SECOND, NOW + jump)[0])
    one.advance(NOW + 2 * SECOND)
    assert one.observe("in", "h", NOW + 2 * SECOND) == (lane, False)
    running = one.running
    one.advance(NOW + 3 * SECOND)
    assert one.running == running + SECOND
    mark = one.watermark(lane)
    assert mark is not None
    assert NOW - 30 * SECOND <= mark <= NOW - 27 * SECOND


events = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([0, 1, 5, 29, 31, 290, -20, -31, -4000]), st.integers(0, 100)),
    max_size=60,
)


@given(events, st.sets(st.integers(0, 60)), st.booleans())
def test_lanes(steps: list[tuple[str, int, int]], commits: set[int], whole: bool) -> None:
    """Whatever comes in whatever order: each event has a lane whose watermark it is not before, none lies beyond the
    newest receipt less the lateness, none falls; and a copy by ``delta`` goes on the same."""
    one, copy = Clock(10 * SECOND), Clock(10 * SECOND)
    highest: dict[int, int] = {}
    for i, (host, skew, second) in enumerate(steps):
        one.advance(NOW + second * SECOND)
        time = NOW + (second + skew) * SECOND
        lane, _ = one.observe("in", host, time)
        assert one.watermark(lane) <= time
        for known in {*highest, lane}:
            mark = one.watermark(known)
            assert highest.get(known, 0) <= mark <= one.received_at - 10 * SECOND
            highest[known] = mark
        if i in commits:
            if whole:
                copy = Clock(10 * SECOND)
            copy.load(all_of(one) if whole else one.delta())
            assert copy.watermark(lane) == one.watermark(lane)
    copy = Clock(10 * SECOND) if whole else copy
    copy.load(all_of(one) if whole else one.delta())
    assert all_of(copy) == all_of(one)
    assert copy.observe("in", "a", NOW) == one.observe("in", "a", NOW)


def test_many_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many lanes the first retired goes, then the source longest without an event, which begins anew."""
    monkeypatch.setattr(clock, "MAX_LANES", LANES + 2)
    one, copy = Clock(0), Clock(0)
    quiet, _ = one.observe("in", "quiet", NOW)
    for hours in range(1, LANES + 3):
        one.observe("in", "a", NOW - hours * HOUR)
    copy.load(one.delta())
    assert one.watermark(2) == FOREVER
    assert one.watermark(quiet) == NOW
    for host in "bc":
        one.observe("in", host, NOW)
    assert one.watermark(quiet) == FOREVER
    assert len(one) == 3
    copy.load(one.delta())
    assert all_of(copy) == all_of(one)
    assert one.observe("in", "quiet", NOW - SECOND)[1] is False


def test_hosts_of_any_length() -> None:
    """What a sender writes in the place of a host is not kept beyond ``MAX_HOST`` characters."""
    one, copy = Clock(0), Clock(0)
    for number in range(3):
        lane, _ = one.observe("in", f"{number}" + "h" * MAX_EVENT, NOW)
        assert one.lane("in", f"{number}" + "h" * MAX_EVENT, NOW) == lane
    assert len(one) == 3
    delta = one.delta()
    assert len(msgpack.packb(delta)) < 4 * (MAX_HOST + 100)
    copy.load(delta)
    assert all_of(copy) == all_of(one)
