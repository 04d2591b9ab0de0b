"""Measures of a correlation over a stretch of a window (``plan/aggregates.py``).

A stretch of fewer than ``MIN_SLIDE`` entries is read as a whole each time. Of a longer one the aggregate's running form
is moved there (``slides.py``), and so are chains (``chains.py``). Both give exactly the same.
"""

from __future__ import annotations

from collections.abc import Collection

from vedette.plan.aggregates import Aggregate, Distinct, Running
from vedette.plan.numbers import Number
from vedette.plan.relation import Correlation
from vedette.state.chains import Links, Longest
from vedette.state.graph import Node
from vedette.state.slides import MAX_SLIDES, MIN_SLIDE, Slide, read
from vedette.state.windows import Window

MIN_LINKS = 16
"""Entries below which a whole stretch is looked at for chains each time."""


def metric(c: Correlation, window: Window, start: int, stop: int) -> Number | None:
    """Return what ``c`` measures over the entries ``start`` to ``stop`` (exclusive); None: of numbers there are
    none."""
    row = c.kind.row
    if row.ordered:
        return longest_chain(c, window, start, stop)
    percent = c.percentile if row.percentile else 50.0
    if stop - start >= MIN_SLIDE and row.running is not None:
        return slide(row, row.running, window, start, stop).value(percent)
    values = read(row, window, start, stop)
    return row.measure(values, percent) if values or not row.numeric else None


def slots(c: Correlation, window: Window, start: int, stop: int) -> Collection[int]:
    """The slots with an entry in the stretch; of a kind that reads the rule of each match."""
    if stop - start < MIN_SLIDE:
        return set(window.slots(start, stop))
    running = slide(c.kind.row, Distinct, window, start, stop)
    assert isinstance(running, Distinct)
    return running.counts.keys()


def slide(row: Aggregate, make: type[Running], window: Window, start: int, stop: int) -> Running:
    """The slide of ``window`` that was nearest to this stretch, moved there."""
    slides = window.slides
    if slides is None:
        slides = window.slides = []
    near = slides[0] if len(slides) == 1 else min(slides, key=lambda slide: slide.distance(start, stop), default=None)
    if near is None or (len(slides) < MAX_SLIDES and near.distance(start, stop) * 2 > stop - start):
        near = Slide(row, make)
        slides.append(near)
    near.to(window, start, stop)
    return near.running


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
