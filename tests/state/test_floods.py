"""What one sender can cost and hide by many matches in one group: of one time, of many hosts, ahead of the host's own.

Costs are counted, not timed.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.state.drawn import SECOND, all_of, correlation_of, row_of
from vedette.plan.aggregates import Kind
from vedette.plan.relation import Correlation
from vedette.state import correlate, windows
from vedette.state.clock import Clock
from vedette.state.correlate import MAX_TAIL, Correlator
from vedette.state.firing import Firing
from vedette.state.graph import Item
from vedette.state.windows import Window

NOW = 1_790_000_000 * SECOND
DECIDING = (Kind.EVENT_COUNT, Kind.VALUE_COUNT, Kind.TEMPORAL, Kind.TEMPORAL_ORDERED)
every_kind = pytest.mark.parametrize("kind", DECIDING)
MATCHES = 2 * MAX_TAIL + 500
TAIL = 2 * windows.LANES
SOME = 2 * TAIL + 500
"""As many as ``MATCHES`` where no more than ``TAIL`` are kept."""


class Sent:
    """Matches of one correlation, one after another."""

    def __init__(self, c: Correlation) -> None:
        self.one, self.fired, self.sent = Correlator([c], Clock(30 * SECOND), max_bytes=1 << 30), list[Firing](), 0
        self.until(NOW)

    def until(self, received_at: int) -> None:
        while (now := self.one.clock.received_at) < received_at:
            self.one.clock.advance(min(now + SECOND, received_at) if now else received_at)
            self.fired += self.one.advance()

    def send(self, time: int, slot: int = 0, value: Any = None, host: str = "h", group: str = "g") -> None:
        self.sent += 1
        lane, _ = self.one.clock.observe("in", host, time)
        self.fired += self.one.add([Item(self.one.nodes[0], slot, (group,), value, None)], lane, time, self.sent, 1)

    @property
    def window(self) -> Window:
        return next(iter(self.one.groups.values()))


def counting(monkeypatch: pytest.MonkeyPatch, of: type, *names: str) -> Counter[str]:
    """How often these methods are called from now on."""
    calls = Counter[str]()

    def counted(name: str) -> Any:
        method = getattr(of, name)

        def call(*args: Any) -> Any:
            calls[name] += 1
            return method(*args)

        return call

    for name in names:
        monkeypatch.setattr(of, name, counted(name))
    return calls


@every_kind
def test_matches_of_one_time(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event costs the same however many have its time; so many are compacted like any other."""
    sent, calls = Sent(correlation_of(kind)), counting(monkeypatch, Window, "offset", "slot", "time")
    for number in range(MATCHES):
        sent.send(NOW, number % 3 if len(sent.one.nodes[0].tracks) else 0, f"v{number % 50}")
        assert len(sent.one.groups) == 1
    assert sum(calls.values()) < 8 * MATCHES
    assert len(sent.window) <= MAX_TAIL


def test_events_of_many_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event of another host costs the same however many a group has; what is known of them is bounded, counted
    among the bytes, and as it was after a restart."""
    sent, calls = (
        Sent(correlation_of(Kind.EVENT_COUNT, span=600 * SECOND)),
        counting(monkeypatch, Clock, "taking", "mark"),
    )
    hosts = 20 * windows.LANES
    for number in range(hosts):
        sent.send(NOW, host=f"h{number}")
    assert sum(calls.values()) < 50 * hosts
    assert len(sent.window.sources) == windows.LANES
    assert sent.one.groups.bytes == sent.window.size >= windows.LANES * windows.LANE_BYTES
    again = Correlator([correlation_of(Kind.EVENT_COUNT, span=600 * SECOND)], sent.one.clock, max_bytes=1 << 30)
    again.restore(all_of(sent.one))
    again.resume()
    assert row_of(next(iter(again.groups.values()))) == row_of(sent.window)
    assert again.groups.bytes == sent.one.groups.bytes


@every_kind
@pytest.mark.parametrize("ahead", [0, 25, 290])
@pytest.mark.parametrize("skew", [0, 240])
@pytest.mark.parametrize("values", [1, SOME])
def test_many_matches_ahead(kind: Kind, ahead: int, skew: int, values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hide nothing of a host whose clock is right or ahead, in whose own group they are, also ones of many values
    or hosts."""
    monkeypatch.setattr(correlate, "MAX_TAIL", TAIL)
    sent = Sent(correlation_of(kind, span=20 * SECOND))
    sent.send(NOW + skew * SECOND, 0, "a")
    for number in range(SOME):
        sent.send(NOW + (ahead + 1) * SECOND, 0, f"v{number % values}", host=f"h{number % values}")
    sent.until(NOW + 3 * SECOND)
    sent.send(NOW + (skew + 2) * SECOND, 1, "b")
    before = len(sent.fired)
    assert not [one for one in sent.fired if one.last_time == NOW + (skew + 3) * SECOND]
    sent.send(NOW + (skew + 3) * SECOND, 2, "c")
    known = sent.fired[:before]
    mixed = abs(ahead + 1 - skew) <= 20  # what is forged into the window itself may have fired before
    assert len(sent.fired) == before + 1 or (mixed and known)


@pytest.mark.parametrize(("after", "fires"), [(800_000, False), (SECOND, True)])
def test_how_many_in_one_second_hide_what_is_in_it(after: int, fires: bool) -> None:
    """More than are kept, forged ahead into the very second of a host's own: its chain within that second is lost."""
    sent = Sent(correlation_of(Kind.TEMPORAL_ORDERED))
    sent.send(NOW, 0)
    for _ in range(MATCHES):
        sent.send(NOW + after, 0)
    sent.send(NOW + 300_000, 1)
    sent.send(NOW + 400_000, 2)
    assert bool(sent.fired) is fires
