"""The agent's clock over a host's that is set, drifts, and sleeps."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from vedette.model.times import MAX_SKEW
from vedette.system.wallclock import BELIEVED, MAX_BACK, SLEW, WallClock

SECOND = 1_000_000
START = 1_795_228_874 * SECOND


class Host:
    """Clocks of a host: real time goes by, the wall clock may be set, and it may sleep."""

    def __init__(self) -> None:
        self.wall, self.monotonic, self.slept = START, 7 * SECOND, 0
        self.clock = WallClock(
            lambda: self.wall * 1000, lambda: self.monotonic * 1000, lambda: (self.monotonic + self.slept) * 1000
        )

    def passes(self, time: int) -> int:
        self.wall += time
        self.monotonic += time
        return self.clock()

    def sleeps(self, time: int) -> int:
        self.wall += time
        self.slept += time
        return self.clock()

    def is_set(self, by: int) -> int:
        self.wall += by
        return self.clock()


def test_without_steps_it_is_the_hosts_clock() -> None:
    """Time that passes is time that passes."""
    host = Host()
    assert [host.passes(SECOND) - START for _ in range(3)] == [SECOND, 2 * SECOND, 3 * SECOND]
    assert (host.clock.steps, host.clock.ahead) == (0, 0)


def test_set_back_a_little() -> None:
    """Set back by a minute, receipts go on at their pace but for one part in SLEW, until the lead is used up."""
    host = Host()
    before = host.passes(SECOND)
    assert host.is_set(-60 * SECOND) == before
    times = [before] + [host.passes(SECOND) for _ in range(10)]
    paces = [b - a for a, b in pairwise(times)]
    assert all(SECOND * (SLEW - 1) // SLEW <= pace <= SECOND for pace in paces)
    for _ in range(60 * SLEW):
        host.passes(SECOND)
    assert host.clock() == host.wall
    assert (host.clock.steps, host.clock.ahead) == (1, 0)


def test_set_back_far() -> None:
    """A clock that was far ahead was wrong: its new time is taken at once."""
    host = Host()
    host.passes(SECOND)
    assert host.is_set(-(MAX_BACK + SECOND)) == host.wall
    assert host.passes(SECOND) == host.wall
    assert host.clock.steps == 1
    assert MAX_BACK == MAX_SKEW  # from there on state/clock.py takes watermarks back


def test_many_small_steps_back_are_a_far_one() -> None:
    """The lead has a bound: what NTP takes back again and again is followed once it comes to MAX_BACK."""
    host = Host()
    for _ in range(12):
        host.is_set(-60 * SECOND)
        assert host.clock() - host.wall <= MAX_BACK
    assert host.clock.steps == 12


def test_set_forward_is_followed_and_not_trusted() -> None:
    """Receipts follow a jump forward at once; what deletes old segments does so hours later, or never if it is taken
    back."""
    host = Host()
    host.passes(SECOND)
    host.is_set(365 * 86400 * SECOND)
    assert host.clock() == host.wall
    assert host.clock.trusted() == START + SECOND
    host.passes(3600 * SECOND)
    assert host.clock.trusted() == START + 3601 * SECOND
    host.is_set(-365 * 86400 * SECOND)
    assert host.clock.trusted() == host.clock() == START + 3601 * SECOND
    host.is_set(365 * 86400 * SECOND)
    host.passes((BELIEVED + 1) * SECOND)
    assert host.clock.trusted() == host.clock() == host.wall


def test_sleep_is_no_step() -> None:
    """A host that slept for a day has no clock that was set: nothing is counted, and the time is believed."""
    host = Host()
    host.passes(SECOND)
    assert host.sleeps(86400 * SECOND) == host.wall
    assert host.clock.steps == 0
    assert host.clock.trusted() == host.wall


def test_a_start_after_a_step_back() -> None:
    """A clock that was set back a little while the agent was down goes on after the newest receipt of the log; one that
    was set back far is taken."""
    host = Host()
    newest = START + 30 * SECOND
    host.clock.begin(newest)
    assert host.clock() == newest
    assert host.passes(SECOND) > newest
    far = Host()
    far.clock.begin(START + MAX_BACK + SECOND)
    assert far.clock() == far.wall
    assert far.clock.steps == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["passes", "sleeps", "is_set"]),
            st.integers(min_value=-MAX_BACK // 4, max_value=MAX_BACK * 4),
        ),
        max_size=40,
    )
)
def test_it_goes_back_only_when_the_host_was_far_ahead(steps: list[tuple[str, int]]) -> None:
    """Whatever happens to the host's clock: a receipt is never before the host's time, never more than MAX_BACK after
    it, and before the last receipt only when the two could not be brought together otherwise."""
    host = Host()
    last = host.clock()
    for what, by in steps:
        now = getattr(host, what)(by if what == "is_set" else abs(by))
        assert host.wall <= now <= host.wall + MAX_BACK
        assert now >= last or last - host.wall > MAX_BACK
        last = now
