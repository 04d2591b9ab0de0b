"""Correlations over time: the fast evaluator against the naive one, in any order, over any restart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state.drawn import SECOND, SHAPES, THREE_WAYS, all_of, correlations, hits
from tests.state.naive import Fired, Hit, firings, occurrences
from vedette.plan.aggregates import Kind
from vedette.plan.relation import Correlation
from vedette.state import measure, packed, windows
from vedette.state.clock import Clock
from vedette.state.correlate import Correlator
from vedette.state.firing import Firing
from vedette.state.graph import Item
from vedette.state.windows import Window

LONG = 1000 * SECOND


def correlator(
    *correlations: Correlation, lateness: int = LONG, settle: bool = False, max_bytes: int = 1 << 26
) -> Correlator:
    return Correlator(correlations, Clock(lateness), max_bytes=max_bytes, settle=settle)


def feed(one: Correlator, hits: Iterable[Hit]) -> list[Firing]:
    """Every match in turn, all of one source."""
    fired = []
    for hit in hits:
        source, _ = one.clock.observe("in", "h", hit.time)
        item = Item(one.nodes[0], hit.slot, hit.group, hit.value, None)
        fired += one.add([item], source, hit.time, hit.order, 1)
    return fired


def shown(fired: Iterable[Firing]) -> list[Fired]:
    return [Fired(one.values, one.event.offset) for one in fired]


def in_time(hits: Sequence[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: (hit.time, hit.order, hit.slot))


@st.composite
def cases(draw: st.DrawFn, shape: str) -> tuple[Correlation, list[Hit]]:
    c = draw(correlations(shape))
    return c, draw(hits(c.kind))


@st.composite
def disordered(draw: st.DrawFn, shape: str, lateness: int) -> tuple[Correlation, list[Hit]]:
    """Of which none comes more than ``lateness`` seconds after a later one."""
    c, found = draw(cases(shape))
    behind = {order: draw(st.integers(0, lateness)) * SECOND for order in {hit.order for hit in found}}
    found.sort(key=lambda hit: (hit.time + behind[hit.order], hit.order))
    places = {order: place for place, order in enumerate(dict.fromkeys(hit.order for hit in found))}
    return c, [hit._replace(order=places[hit.order]) for hit in found]


def runs(c: Correlation, hits: Sequence[Hit]) -> list[set[Fired]]:
    """The completing events of every run."""
    made: list[set[Fired]] = []
    for group, order, first in sorted(occurrences(c, hits), key=lambda one: one[0]):
        if first:
            made.append(set())
        made[-1].add(Fired(group, order))
    return made


WAYS = st.sampled_from(["", "slides", "few"])


@contextmanager
def compacted_early(way: str) -> Iterator[None]:
    """Windows are compacted at every chance, so that few matches show what it forgets. The smallest stretches are
    measured by slides, too; groups of more than three events cannot be bytes."""
    with pytest.MonkeyPatch.context() as patch:
        if way == "slides":
            patch.setattr(measure, "MIN_SLIDE", 0)
            patch.setattr(measure, "MIN_LINKS", 0)
        if way == "few":
            patch.setattr(packed, "MAX", 3)
        patch.setattr(packed, "room", lambda least, entries: min(entries + 1, packed.MAX))
        patch.setattr(windows, "MIN_LIMIT", 1)
        patch.setattr(windows, "MAX_CONTRIBUTING", 1)
        patch.setattr(Window, "limit", property(lambda self: 1, lambda self, value: None))
        yield


every_shape = pytest.mark.parametrize("shape", SHAPES)


@every_shape
@given(st.data())
@THREE_WAYS
def test_in_the_order_of_time(shape: str, data: st.DataObject) -> None:
    """Matches in the order of their times fire as the naive evaluator says, whatever the kind and condition."""
    with compacted_early(data.draw(WAYS)):
        c, found = data.draw(cases(shape))
        one = correlator(c, lateness=0)
        fired = feed(one, in_time(found)) + one.finish()
        assert sorted(shown(fired)) == sorted(firings(c, found))


@every_shape
@given(st.data(), st.integers(0, 40), st.booleans())
@THREE_WAYS
def test_settled_in_any_order(shape: str, data: st.DataObject, lateness: int, settle: bool) -> None:
    """With ``settle``, and for what is not prompt without it, any order within the lateness fires what the order of
    time fires."""
    with compacted_early(data.draw(WAYS)):
        c, found = data.draw(disordered(shape, lateness))
        one = correlator(c, settle=settle or c.prompt, lateness=lateness * SECOND)
        fired = feed(one, found) + one.finish()
        assert sorted(shown(fired)) == sorted(firings(c, found))


@every_shape
@given(st.data(), st.integers(0, 40))
@THREE_WAYS
def test_prompt_in_any_order(shape: str, data: st.DataObject, lateness: int) -> None:
    """What is decided at once: after every match each run has fired, by itself or as a part of one that a later match
    has parted, also where another has joined the part since; and none fires that had fired before."""
    with compacted_early(data.draw(WAYS)):
        c, found = data.draw(disordered(shape, lateness))
        if not c.prompt:
            return
        one, told, whole = correlator(c, lateness=lateness * SECOND), set[Fired](), list[set[Fired]]()
        if c.kind is Kind.VALUE_SUM:
            found = [hit for hit in found if hit.value is None or hit.value >= 0]
        for i, hit in enumerate(found):
            new = shown(feed(one, [hit]))
            known = runs(c, found[: i + 1])
            for anchor in new:
                (run,) = (run for run in known if anchor in run)
                assert not run & told
            assert len(new) == len(set(new))
            told.update(new)
            assert all(run & told or any(run & before for before in whole) for run in known)
            whole += [run for run in known if run & told]


@every_shape
@given(st.data(), st.booleans(), st.integers(0, 40), st.sampled_from([900, 1 << 20]))
@THREE_WAYS
def test_after_a_restart(shape: str, data: st.DataObject, settle: bool, lateness: int, size: int) -> None:
    """Stopped after any match and restored from its deltas, it goes on as if it had not been stopped."""
    with compacted_early(data.draw(WAYS)):
        c, found = data.draw(cases(shape))

        def begin() -> Correlator:
            return correlator(c, settle=settle, lateness=lateness * SECOND, max_bytes=size)

        whole, expected = begin(), list[Firing]()
        expected = feed(whole, found) + whole.finish()
        stops = sorted(data.draw(st.sets(st.integers(0, len(found)), max_size=4)))
        saved: list[bytes] = []
        fired, start = list[Firing](), 0
        for stop in [*stops, len(found)]:
            one = begin()
            for part in saved:
                clock, groups = msgpack.unpackb(part)
                one.clock.load(clock)
                one.restore(groups)
            one.resume()
            fired += feed(one, found[start:stop])
            if data.draw(st.booleans()):
                saved.append(msgpack.packb([one.clock.delta(), one.delta()]))
            else:
                saved = [msgpack.packb([all_of(one.clock), all_of(one)])]
            start = stop
        fired += one.finish()
        assert sorted(shown(fired)) == sorted(shown(expected))
        a, b = one.groups, whole.groups
        assert (a.bytes, a.evicted, list(a)) == (b.bytes, b.evicted, list(b))


@given(st.data())
@THREE_WAYS
def test_two_sources(data: st.DataObject) -> None:
    """A group of two sources is decided when both have gone past; the one that is behind is not late by the other."""
    with compacted_early(data.draw(WAYS)):
        c, found = data.draw(cases("value_avg"))
        one, fired = correlator(c, lateness=0), list[Firing]()
        hosts = {hit: data.draw(st.sampled_from("pq")) for hit in in_time(found)}
        behind = [hit for hit in in_time(found) if hosts[hit] == "q"]
        ahead = [hit for hit in in_time(found) if hosts[hit] == "p"]
        for host in "pq":  # both are there from the start, in every group
            source, _ = one.clock.observe("in", host, -1)
            for group in "xy":
                fired += one.add([Item(one.nodes[0], 0, (group,), None, None)], source, -1, 1000 + ord(host), 1)
        for host, mine in (("p", ahead), ("q", behind)):
            for hit in mine:
                source, _ = one.clock.observe("in", host, hit.time)
                fired += one.add(
                    [Item(one.nodes[0], hit.slot, hit.group, hit.value, None)], source, hit.time, hit.order, 1
                )
        fired += one.finish()
        every = [*found, *(Hit(-1, 1000 + ord(host), 0, (group,)) for host in "pq" for group in "xy")]
        times = {hit.order: hit.time for hit in every}  # of events of one time, the order is that of arrival
        expected = sorted((group, times[order]) for group, order in firings(c, every))
        assert sorted((group, times[order]) for group, order in shown(fired)) == expected
