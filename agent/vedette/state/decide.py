"""When a condition holds: of the entries of a window, at which it does and which of those begin a run.

An **occurrence** is an event at which the condition holds; those that follow each other within the span, with none
between at which it does not hold, are a **run**, and its first fires. Where windows do not slide (``extent.py``), those
of one window are a run. ``HELD`` marks the entries at which it held. The
entries of one event are decided as one.

``arrived`` decides a prompt correlation at a new entry and at those after it that this may have made true; ``passed``
decides any at a time of which all entries are known. Both are as much work as there are entries to decide, times what
it costs to measure one stretch (``measure.py``): of ``event_count`` one comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from vedette.plan.aggregates import Keeps, Reads
from vedette.plan.relation import Clause, Correlation
from vedette.state.entries import HELD
from vedette.state.extent import Session
from vedette.state.graph import Node
from vedette.state.measure import chained, metric, slots
from vedette.state.windows import Window

MAX_AFTER = 256
"""Entries that a match which arrives out of order makes ``arrived`` look at."""


class Occurrence(NamedTuple):
    """``at``: the entry that completes it; ``time``: of the end of its window, the entries ``start`` to ``stop``."""

    at: int
    time: int
    start: int
    stop: int
    fires: bool


def arrived(node: Node, window: Window, at: int) -> Sequence[Occurrence]:
    """Decide a prompt correlation at the event of the new entry ``at``, and at those after it."""
    entries, span = window.entries, node.c.span
    last = len(entries) - 3
    if 3 * at != last or (at and entries[last - 2] == entries[last + 1]):
        return _inserted(node, window, at)
    if not holds(node, window, at):  # as it comes most: an event of one entry, and the newest
        return ()
    time = entries[last]
    continues = at > 0 and entries[last - 1] & HELD
    if continues:
        continues = time - entries[last - 3] <= span if node.slides else node.extent.one_run(window, at - 1, at)
    entries[last + 2] |= HELD
    if at < window.clean:
        window.clean = at
    if continues and not node.parents:
        return ()
    start = window.since(time - span if node.slides else node.extent.begin(window, time))
    return (Occurrence(at, time, start, at + 1, not continues),)


def _inserted(node: Node, window: Window, at: int) -> list[Occurrence]:
    n, extent, time = len(window), node.extent, window.time(at)
    end, stop = extent.after(window, time) - 1, _reach(node, window, at)
    if node.slides:
        end = time + node.c.span
    elif isinstance(extent, Session):  # what comes between two sessions makes one of them, or moves where others begin
        end, stop = window.time(n - 1), min(n, at + MAX_AFTER)
    new: list[tuple[int, int]] = []
    first, i = window.begins(at), at
    while i < stop and window.time(i) <= end:
        last = window.ends(i)
        if first < at <= last and window.held(first):
            window.hold(at)  # another match of an event at which it held already
        elif not window.held(first) and holds(node, window, last):
            window.hold(first, last)
            new.append((first, last))
        elif isinstance(extent, Session) and window.held(first) and not holds(node, window, last):
            window.hold(first, last, False)  # its session begins later now
        first = i = last + 1
    occurrences, begin = [], 0
    while begin < len(new):
        done = begin
        while (
            done + 1 < len(new)
            and new[done + 1][0] == new[done][1] + 1
            and extent.one_run(window, *_between(new, done))
        ):
            done += 1
        first, last = new[begin][0], new[done][1]
        continues = _goes_on(node, window, first) or (
            last + 1 < n and window.held(last + 1) and extent.one_run(window, last, last + 1)
        )
        occurrences += [ending(node, window, new[i][1], i == begin and not continues) for i in range(begin, done + 1)]
        begin = done + 1
    return occurrences


def _reach(node: Node, window: Window, at: int) -> int:
    """The first entry after ``at`` whose window, and those of all after it, say the same as without ``at``."""
    stop = min(len(window), at + MAX_AFTER)
    row = node.c.kind.row
    if row.keeps is Keeps.NEWEST:
        return min(stop, at + max(node.least, 1))
    if row.keeps is not Keeps.ONE_EACH:
        return stop
    things: Sequence[Any] = [None] if window.values is None else window.values[at:stop]
    if row.reads is Reads.RULE:
        things = window.slots(at, stop)
    if things[0] is None:
        return at + 1
    return next((at + i for i in range(1, len(things)) if things[i] == things[0]), stop)


def _between(new: list[tuple[int, int]], i: int) -> tuple[int, int]:
    return new[i][1], new[i + 1][0]


def passed(node: Node, window: Window, time: int) -> list[Occurrence]:
    """Decide at all entries of one ``time``: of ``Correlation.forward`` the window that begins there, else those that
    end there; where windows do not slide, the one that ``time`` is in. Where it held before, because they came in
    parts, it is not reported again; nor is a run that goes on."""
    c, extent = node.c, node.extent
    if c.forward and node.slides:
        return _looking_forward(node, window, window.first(time), window.first(time + 1))
    first, after = (
        window.first(time if node.slides else extent.begin(window, time)),
        window.first(extent.after(window, time)),
    )
    if c.forward:
        done = [at for clause in c.clauses if (at := completed(c, clause, window, first, after)) is not None]
        return _once(window, min(done), extent.over(window, time), first, after) if done else []
    if not node.c.prompt and not node.slides:
        true = c.holds(metric(c, window, first, after))
        return _once(window, after - 1, extent.over(window, time), first, after) if true else []
    if not node.c.prompt:
        start = window.since(time - c.span)
        if not c.holds(metric(c, window, start, after)):
            return []
        before = any(window.held(i) for i in range(first, after))
        window.hold(first, after - 1)
        return [] if before else [Occurrence(after - 1, time, start, after, not _joins(node, window, first, after))]
    occurrences, i = [], first
    while i < after:  # as if decided at once: event by event
        last = window.ends(i)
        if not window.held(i) and holds(node, window, last):
            window.hold(i, last)
            occurrences.append(ending(node, window, last, not _joins(node, window, i, last + 1)))
        i = last + 1
    return occurrences


def _once(window: Window, at: int, time: int, first: int, after: int) -> list[Occurrence]:
    """The condition holds for a window that is over: an occurrence, if it is the first."""
    before = any(window.held(i) for i in range(first, after))
    window.hold(first, after - 1)
    return [] if before else [Occurrence(at, time, first, after, True)]


def _looking_forward(node: Node, window: Window, first: int, after: int) -> list[Occurrence]:
    """The window that begins at the entries ``first`` to ``after``."""
    c, near = node.c, node.extent.one_run
    end = window.time(first) + c.span
    stop = window.first(end + 1)
    here = {window.slot(i) for i in range(first, after)}
    done = [
        at
        for clause in c.clauses
        if here.intersection(clause.wanted) and (at := completed(c, clause, window, first, stop)) is not None
    ]
    if not done:
        return []
    wanted = {slot for clause in c.clauses for slot in clause.wanted}
    if any(window.held(i) for i in range(first, after)):
        window.hold(first, after - 1)
        return []
    window.hold(first, after - 1)
    before, behind = first - 1, after
    while before >= 0 and window.slot(before) not in wanted:
        before -= 1
    while behind < len(window) and window.slot(behind) not in wanted and near(window, first, behind):
        behind += 1
    continues = before >= 0 and window.held(before) and near(window, before, first)
    continues |= behind < len(window) and window.held(behind) and near(window, first, behind)
    return [Occurrence(min(done), end, first, stop, not continues)]


def ending(node: Node, window: Window, at: int, fires: bool) -> Occurrence:
    """The occurrence at entry ``at``."""
    time = window.time(at)
    return Occurrence(at, time, window.since(node.extent.begin(window, time)), at + 1, fires)


def _goes_on(node: Node, window: Window, first: int) -> bool:
    """True when it held at the entry before ``first``, which is of the same run."""
    return first > 0 and window.held(first - 1) and node.extent.one_run(window, first - 1, first)


def _joins(node: Node, window: Window, first: int, after: int) -> bool:
    """``_goes_on``, or it is known to hold at the entry ``after`` already, which is of the same run."""
    if _goes_on(node, window, first):
        return True
    return after < len(window) and window.held(after) and node.extent.one_run(window, first, after)


def holds(node: Node, window: Window, i: int) -> bool:
    """The truth of a prompt condition at entry ``i``."""
    if i + 1 < node.needs:
        return False
    c, entries = node.c, window.entries
    begin = entries[3 * i] - c.span if node.slides else node.extent.begin(window, entries[3 * i])
    if node.newest:
        return node.least <= 0 or entries[3 * (i + 1 - node.least)] >= begin
    start = window.since(begin)
    if i + 1 - start < node.needs:
        return False
    if node.tracks:
        return chained(node, window, start, i + 1)
    if c.clauses:
        here = slots(c, window, start, i + 1)
        return any(all(slot in here for slot in clause.wanted) for clause in c.clauses)
    measured = metric(c, window, start, i + 1)
    return measured is not None and measured >= node.least if node.counts else c.holds(measured)


def completed(c: Correlation, clause: Clause, window: Window, start: int, stop: int) -> int | None:
    """The index of the entry that completes ``clause``'s wanted slots in the stretch; None when it does not hold."""
    here = slots(c, window, start, stop)
    if not all(slot in here for slot in clause.wanted) or any(slot in here for slot in clause.forbidden):
        return None
    if c.kind.row.ordered:
        wanted = list(clause.wanted)
        last = None
        for i in range(start, stop):
            if window.slot(i) == wanted[0] and window.offset(i) != last:
                del wanted[0]
                last = window.offset(i)
                if not wanted:
                    return i
        return None
    missing = set(clause.wanted)
    for i in range(start, stop):
        missing.discard(window.slot(i))
        if not missing:
            return i
    return None
