"""Chains are found exactly where they are, in any order of arrival, with some gone from the front."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.state import naive
from tests.state.drawn import correlation_of
from tests.state.naive import Hit
from vedette.plan.aggregates import Kind
from vedette.plan.relation import Clause
from vedette.state import decide
from vedette.state.chains import Links, Longest
from vedette.state.entries import meta
from vedette.state.measure import longest_chain
from vedette.state.windows import Window


def arrivals(window: Window, events: list[tuple[int, int, bool]], dropped: int) -> Iterator[tuple[int, int]]:
    """Put them in, all before one of them out; after each, where what lies within 10 before it begins and ends."""
    offset = time = 0
    for number, (at, slot, same) in enumerate(events):
        if not same:
            offset, time = offset + 1, at
        at = window.insert(time, offset, meta(slot, 1), None, None)
        if number == dropped:
            window.drop(at)
            at = 0
        stop = window.ends(at) + 1
        start = window.first(window.time(at) - 10)
        yield start, stop


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.booleans()), max_size=40), st.integers(0, 39),
    st.sampled_from([[(0, 1, 2)], [(0, 1), (2,)], [(0, 2)]]),
)  # fmt: skip
@settings(max_examples=200)
def test_links(events: list[tuple[int, int, bool]], dropped: int, tracks: list[tuple[int, ...]]) -> None:
    """A chain is found exactly where there is one, in any order of arrival, with some gone from the front."""
    c = correlation_of(Kind.TEMPORAL_ORDERED, bounds=(), clauses=tuple(map(Clause, tracks)))
    window, links = Window(), Links(tracks)
    window.links = links
    for start, stop in arrivals(window, events, dropped):
        holds = any(decide.completed(c, clause, window, start, stop) is not None for clause in c.clauses)
        assert (links.measure(window, start, stop) > 0) == holds


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.booleans()), max_size=30), st.integers(0, 30))
@settings(max_examples=200)
def test_the_longest_chain(events: list[tuple[int, int, bool]], dropped: int) -> None:
    """The number of links is that of the naive evaluator, in any order of arrival, with some gone from the front."""
    c, window, links = correlation_of(Kind.TEMPORAL_ORDERED), Window(), Longest(3)
    window.links = links
    for start, stop in arrivals(window, events, dropped):
        hits = [Hit(window.time(i), window.offset(i), window.slot(i)) for i in range(start, stop)]
        assert links.measure(window, start, stop) == naive.measure(c, hits)


def test_a_chain_takes_one_link_of_an_event() -> None:
    """One event that matches two rules is not the one after the other; two events of one time are, as they came."""
    c = correlation_of(Kind.TEMPORAL_ORDERED)
    window = Window()
    window.insert(5, 100, meta(0, 1), None, None)
    window.insert(5, 100, meta(1, 1), None, None)
    assert longest_chain(c, window, 0, 2) == 1
    window.insert(5, 200, meta(1, 1), None, None)
    assert longest_chain(c, window, 0, 3) == 2
