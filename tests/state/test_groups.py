"""Groups: which goes first, bytes and windows, and what is written of them."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.state.drawn import correlation_of, row_of
from vedette.plan.aggregates import Kind
from vedette.state import packed, recency
from vedette.state.clock import Clock
from vedette.state.correlate import Correlator
from vedette.state.entries import HELD, Arrival, meta
from vedette.state.graph import Graph, Item
from vedette.state.recency import Recency
from vedette.state.windows import Window


@given(st.lists(st.tuples(st.sampled_from(["touch", "touch", "least", "sweep", "drop", "fill"]), st.integers(0, 15))))
@settings(max_examples=300)
def test_recency(steps: list[tuple[str, int]]) -> None:
    """The least is always the one touched longest ago, whatever was looked at and forgotten between."""
    stamps: dict[bytes, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recency, "CHUNK", 3)
        one = Recency(stamps.get)
        for now, (what, number) in enumerate(steps):
            key = bytes([number])
            if what == "touch":
                known = key in stamps
                stamps[key] = now
                if not known:
                    one.put(key, now)
            elif what == "least" and stamps:
                least = one.least()
                assert least == min(stamps, key=lambda key: stamps[key])
                del stamps[least]
            elif what == "sweep":
                for found in one.some():
                    if found[0] % 4 == number % 4:
                        del stamps[found]
                one.next()
            elif what == "fill":
                one.fill(stamps)
        for key in sorted(stamps, key=lambda key: stamps[key]):
            assert one.least() == key
            del stamps[key]


@given(
    st.lists(
        st.tuples(st.integers(-(1 << 61), 1 << 61), st.integers(0, 1 << 39), st.integers(0, 65535), st.integers(0, 63),
                  st.booleans()), min_size=1, max_size=20,
    )
)  # fmt: skip
def test_packed(entries: list[tuple[int, int, int, int, bool]]) -> None:
    """Bytes hold all that a window does."""
    window = Window()
    window.sources = (7,)
    for time, offset, length, slot, held in entries:
        window.insert(time, offset, meta(slot, length) | held, None, None)
    value = packed.packed(window)
    assert value is not None
    assert row_of(packed.unpacked(value, 0)) == row_of(window)
    assert packed.newest(value) == window.time(len(window) - 1)
    assert bool(value[packed.MARK] & HELD) == window.held(len(window) - 1)


def test_what_cannot_be_packed() -> None:
    """Nothing, two sources, a long event, a far offset: a window as before."""
    assert packed.packed(Window()) is None
    for sources, length, offset in (((1, 2), 1, 1), ((1,), 1 << 16, 1), ((1,), 1, 1 << 41)):
        window = Window()
        window.sources = sources
        window.insert(1, 0, meta(0, 1), None, None)
        window.insert(2, offset, meta(0, length), None, None)
        assert packed.packed(window) is None


@pytest.mark.parametrize(("span", "times"), [(25, [20, 30, 40]), (5, [30, 40])])
def test_what_is_forgotten_of_bytes(span: int, times: list[int]) -> None:
    """Of what is settled the newest stay, as many as the condition asks for, where they lie within the span."""
    window = Window()
    window.sources = (7,)
    for number in range(5):
        window.insert(10 * number, number, meta(0, 1), None, None)
    value = packed.packed(window)
    assert value is not None
    left = packed.unpacked(packed.compacted(value, 2, span, 35), 0)
    assert [left.time(place) for place in range(len(left))] == times


@pytest.mark.parametrize(("time", "counted"), [(10, True), (11, False)])
def test_both_ends_of_a_span_count(time: int, counted: bool) -> None:
    """The second of two matches that are exactly a span apart completes them, one that comes later does not."""
    first = packed.begun(Arrival(7, 0, 0, 1), 0, 2)
    assert first is not None
    both = packed.appended(first, Arrival(7, time, 1, 1), 0, 2, 10)
    assert both
    assert bool(both[packed.MARK] & HELD) == counted


@given(st.lists(st.text(max_size=5), min_size=0, max_size=3))
def test_keys(values: list[str]) -> None:
    """A group's values come back from its key, and no two have the same."""
    node = Graph([correlation_of(Kind.EVENT_COUNT, group_by=tuple("abc"[: len(values)]))], settle=False).nodes[0]
    assert node.values_of(node.text(tuple(values))) == tuple(values)


STEPS = st.tuples(st.sampled_from(["add", "add", "add", "hold", "drop", "keep", "write", "write"]), st.integers(0, 20))


@given(st.lists(STEPS, max_size=40), st.booleans())
@settings(max_examples=300)
def test_rows(steps: list[tuple[str, int]], carried: bool) -> None:
    """Of a window only what is new is written, and it makes the whole of what was written before."""
    window, whole = Window(share=8), Window(share=8)
    for number, (what, n) in enumerate([*steps, ("write", 0)]):
        i = n % len(window) if len(window) else 0
        if what == "add":
            value = None if n % 3 == 0 else f"v{n}"
            window.insert(n, number, meta(0, 1), value, (f"{n}",) if carried else None)
        elif what == "write":
            whole.apply(msgpack.unpackb(msgpack.packb(window.row())))
            assert row_of(whole) == row_of(window)
            assert whole.size == window.size
        elif len(window):
            if what == "hold":
                window.hold(i)
            elif what == "drop":
                window.drop(i)
            else:
                window.keep(sorted({i, len(window) - 1}))


def test_deltas_are_small() -> None:
    """A match in a group of thousands writes that match, not the group."""
    one = Correlator([correlation_of(Kind.VALUE_AVG, span=10**9)], Clock(10**9), max_bytes=1 << 30)
    for i in range(5000):
        source, _ = one.clock.observe("in", "h", i)
        one.add([Item(one.nodes[0], 0, ("g",), i, None)], source, i, i, 9)
    assert len(msgpack.packb(one.delta())) > 100_000
    one.clock.observe("in", "h", 5000)
    one.add([Item(one.nodes[0], 0, ("g",), 1, None)], source, 5000, 5000, 9)
    assert len(msgpack.packb(one.delta())) < 300
