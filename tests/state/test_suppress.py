"""Suppression: what leaves at once, what is folded, when the fold leaves, and that nothing is lost."""

from __future__ import annotations

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from vedette.model.event import MAX_EVENT
from vedette.plan.ir import Suppress
from vedette.state.clock import Clock
from vedette.state.suppress import MAX_TEXT, Fold, Source, Suppressor

SECOND = 1_000_000
TEN = Suppress(("u",), 10.0)


def source(offset: int = 0) -> Source:
    return Source("r", "t", "d", "high", ("x",), ("linux", "", ""), "in", "h", 7, offset, 1)


def take(one: Suppressor, clock: Clock, second: float, user: str = "a", offset: int = 0) -> bool:
    number, _ = clock.observe("in", "h", int(second * SECOND))
    return one.take(TEN, {"u": user}, int(second * SECOND), number, f"id-{offset}", source(offset))


def suppressor(lateness: int = 0) -> tuple[Suppressor, Clock]:
    clock = Clock(lateness)
    return Suppressor(clock), clock


def test_first_leaves_further_ones_are_folded() -> None:
    """Up to the window's end, which is included; the fold names the first, the number and the times."""
    one, clock = suppressor()
    assert [take(one, clock, second, offset=i) for i, second in enumerate((0, 3, 10))] == [True, False, False]
    one.advance()
    assert one.closed() == []
    assert take(one, clock, 10.5, offset=9)
    assert one.closed() == [Fold("id-0", {"u": "a"}, 2, 3 * SECOND, 10 * SECOND, source(2))]


def test_the_watermark_closes() -> None:
    """A window closes when its source has gone past; without further alerts it leaves no fold."""
    one, clock = suppressor()
    take(one, clock, 0, "a")
    take(one, clock, 1, "b")
    take(one, clock, 2, "b", 2)
    for second in range(3, 31):
        clock.observe("in", "h", second * SECOND)
    one.advance()
    assert [(fold.values, fold.count) for fold in one.closed()] == [({"u": "b"}, 1)]
    assert len(one) == 0


def test_an_old_alert() -> None:
    """An alert from long before the window is not folded into it."""
    one, clock = suppressor(1 << 60)
    assert take(one, clock, 100)
    assert not take(one, clock, 95)
    assert take(one, clock, 50)


def test_bounded() -> None:
    """Beyond the bound the window longest without an alert closes early; what it counted leaves."""
    clock = Clock(0)
    one = Suppressor(clock, max_windows=2)
    for offset, user in enumerate("aabc"):
        take(one, clock, 0, user, offset)
    assert [(fold.values["u"], fold.count) for fold in one.closed()] == [("a", 1)]
    assert (len(one), one.closed_early) == (2, 1)


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from("ab")), max_size=30), st.integers(0, 30), st.booleans())
def test_nothing_is_lost(alerts: list[tuple[int, str]], stop: int, advance: bool) -> None:
    """Sent and folded alerts are all there are, over a restart at any place too."""
    one, clock = suppressor(5 * SECOND)
    sent = folded = 0
    for i, (second, user) in enumerate(alerts):
        if i == stop:
            packed = msgpack.packb([clock.delta(), one.delta()])
            one, clock = suppressor(5 * SECOND)
            times, windows = msgpack.unpackb(packed)
            clock.load(times)
            one.restore(windows)
        sent += take(one, clock, second, user, i)
        if advance:
            one.advance()
        folded += sum(fold.count for fold in one.closed())
    for second in range(1, 101):
        clock.advance(second * SECOND)
    one.advance()
    folded += sum(fold.count for fold in one.closed())
    assert sent + folded == len(alerts)
    assert len(one) == 0


def test_values_of_any_length() -> None:
    """They tell alerts apart by all of their text, and of what a sender writes little is kept."""
    one, clock = suppressor()
    for number, end in enumerate("abca"):
        assert take(one, clock, 1, "u" * MAX_EVENT + end, number) == (number < 3)
    delta = one.delta()
    assert len(msgpack.packb(delta)) < 3 * (MAX_TEXT + 500)
    copy = Suppressor(clock)
    copy.restore(msgpack.unpackb(msgpack.packb(delta)))
    assert not take(copy, clock, 2, "u" * MAX_EVENT + "b", 9)
