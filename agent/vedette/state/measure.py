"""What a correlation measures over a stretch of a window.

A stretch of fewer than ``MIN_SLIDE`` entries is looked at anew each time; of a longer one a slide (``slides.py``) is
moved there from the stretch that was asked for last, so that each of a window's entries is looked at twice in all, not
once for every other.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vedette.plan.relation import Correlation, Kind
from vedette.state.slides import (
    MIN_LINKS,
    MIN_SLIDE,
    Distinct,
    Links,
    Longest,
    Number,
    Ranked,
    Slide,
    Slots,
    Sum,
    at_rank,
    mean,
    total,
)
from vedette.state.windows import Window

if TYPE_CHECKING:
    from vedette.state.graph import Node

MAX_SLIDES = 2
"""Of one window: at its end, and at where late events come in."""


def metric(c: Correlation, window: Window, start: int, stop: int) -> Number | None:
    """What ``c`` measures over the entries ``start`` to ``stop`` (exclusive)."""
    kind = c.kind
    if kind is Kind.VALUE_COUNT:
        return distinct(c, window, start, stop)
    if kind is Kind.EVENT_COUNT:
        return stop - start
    if kind is Kind.TEMPORAL:
        return len(counted(c, window, start, stop))
    if kind is Kind.TEMPORAL_ORDERED:
        return longest_chain(c, window, start, stop)
    if stop - start >= MIN_SLIDE:
        return _measured(c, slide(c, window, start, stop))
    values = [] if window.values is None else [v for v in window.values[start:stop] if v is not None]
    if not values:
        return None
    if kind is Kind.VALUE_SUM:
        return _total(values)
    if kind is Kind.VALUE_AVG:
        return mean(values)
    return percentile(values, c.percentile if c.kind is Kind.VALUE_PERCENTILE else 50.0)


def distinct(c: Correlation, window: Window, start: int, stop: int) -> int:
    """How many different values there are."""
    if stop - start < MIN_SLIDE:
        found = set() if window.values is None else set(window.values[start:stop])
        return len(found) - (None in found)
    moved = slide(c, window, start, stop)
    assert isinstance(moved, Distinct)
    return len(moved.counts)


def _measured(c: Correlation, found: Slide) -> Number | None:
    if isinstance(found, Sum) and found.count:
        return found.total if c.kind is Kind.VALUE_SUM else found.mean
    if isinstance(found, Ranked) and found.numbers:
        return at_rank(found.numbers, c.percentile if c.kind is Kind.VALUE_PERCENTILE else 50.0)
    return None


_SLIDES: dict[Kind, type[Slide]] = {
    Kind.VALUE_COUNT: Distinct,
    Kind.VALUE_SUM: Sum,
    Kind.VALUE_AVG: Sum,
    Kind.VALUE_MEDIAN: Ranked,
    Kind.VALUE_PERCENTILE: Ranked,
    Kind.TEMPORAL: Slots,
    Kind.TEMPORAL_ORDERED: Slots,
}


def slide(c: Correlation, window: Window, start: int, stop: int) -> Slide:
    """The slide of ``window`` that was nearest to this stretch, moved there."""
    slides = window.slides
    if slides is None:
        slides = window.slides = []
    near = slides[0] if len(slides) == 1 else min(slides, key=lambda one: one.distance(start, stop), default=None)
    if near is None or (len(slides) < MAX_SLIDES and near.distance(start, stop) * 2 > stop - start):
        near = _SLIDES[c.kind]()
        slides.append(near)
    near.to(window, start, stop)
    return near


def counted(c: Correlation, window: Window, start: int, stop: int) -> set[int] | dict[int, int]:
    """The slots with an entry in the stretch."""
    if stop - start < MIN_SLIDE:
        return set(window.slots(start, stop))
    found = slide(c, window, start, stop)
    assert isinstance(found, Slots)
    return found.counts


def _total(values: list[Number]) -> Number:
    """The exact sum, rounded once."""
    found = sum(values)
    if type(found) is int:
        return found
    return math.fsum(values) if max(map(abs, values)) <= 1 << 53 else total(values)


def percentile(values: list[Number], percent: float) -> Number:
    """See ``at_rank``."""
    return at_rank(sorted(values), percent)


def longest_chain(c: Correlation, window: Window, start: int, stop: int) -> int:
    """How many slots can be picked in ascending order, each from a later event than the one before."""
    links = window.links
    if links is None and stop - start >= MIN_LINKS:
        links = window.links = Longest(len(c.slots))
    if not isinstance(links, Longest):
        links = Longest(len(c.slots))
    return links.measure(window, start, stop)


def chained(node: Node, window: Window, start: int, stop: int) -> bool:
    """True when one of the node's ``tracks`` lies in the stretch."""
    links = window.links
    if links is None:
        if stop - start >= MIN_LINKS:
            links = window.links = Links(node.tracks)
        else:
            if node.links is None:
                node.links = Links(node.tracks)
            links = node.links
            links.reset()
    return links.measure(window, start, stop) > 0
