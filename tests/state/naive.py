"""The naive evaluator of correlations, judge of the fast one: all matches at once, every window looked at anew.

No memory, no watermark, no compaction: it has the whole table, as a database in retrospect. Meanings are those of
``plan/relation.py`` and ``docs/decisions/0007-correlation-semantics.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from vedette.plan.aggregates import Kind
from vedette.plan.relation import COMPARE, Clause, Correlation


class Hit(NamedTuple):
    """A match of one slot. ``order``: its place in the log, which tells events of one time apart."""

    time: int
    order: int
    slot: int
    group: tuple[str, ...] = ()
    value: Any = None


class Fired(NamedTuple):
    group: tuple[str, ...]
    order: int
    """Of the completing event."""


def firings(c: Correlation, hits: Sequence[Hit]) -> list[Fired]:
    """What fires, by the time of its window's end."""
    return [Fired(group, order) for group, order, first in occurrences(c, hits) if first]


def occurrences(c: Correlation, hits: Sequence[Hit]) -> list[tuple[tuple[str, ...], int, bool]]:
    """Group, completing event, and whether it is the first of its run."""
    fired = []
    for group in {hit.group for hit in hits}:
        mine = sorted({hit for hit in hits if hit.group == group}, key=lambda hit: (hit.time, hit.order, hit.slot))
        every = _by_window if c.grid else _forward if c.forward else _at_once if c.prompt else _at_times
        fired += [(end, group, order, first) for end, order, first in every(c, _once(c, mine))]
    return [(group, order, first) for _, group, order, first in sorted(fired, key=lambda one: one[:3])]


def _once(c: Correlation, hits: list[Hit]) -> list[Hit]:
    """Without repetition where one event counts once, by whichever rule it matched."""
    if c.kind in (Kind.TEMPORAL, Kind.TEMPORAL_ORDERED):
        return hits
    first_hits: dict[Any, Hit] = {}
    for hit in hits:
        first_hits.setdefault((hit.time, hit.order, hit.value), hit)
    return list(first_hits.values())


def _by_window(c: Correlation, hits: list[Hit]) -> list[tuple[int, int, bool]]:
    """Windows that hold each match once: at each event of one that can only become true, else at its end."""
    fired = []
    for window in windows(c, hits):
        if c.prompt:
            begun = [(hit.time, hit.order) for hit in window]
            true = [(at, _true(c, [hit for hit in window if (hit.time, hit.order) <= at])) for at in sorted(set(begun))]
            holding = [at for at, holds in true if holds]
            fired += [(*at, at == holding[0]) for at in holding]
        elif c.clauses:
            done = [at for clause in c.clauses if _satisfied(c, clause, window)
                    and (at := _completed(c, clause, window)) is not None]  # fmt: skip
            fired += [(window[-1].time, window[min(done)].order, True)] if done else []
        elif _true(c, window):
            fired.append((window[-1].time, window[-1].order, True))
    return fired


def windows(c: Correlation, hits: list[Hit]) -> list[list[Hit]]:
    """Sorted matches, by the window that they are in."""
    runs: list[list[Hit]] = []
    for hit in hits:
        whole = bool(runs)
        if whole and c.grid.kind == "TUMBLE":
            whole = hit.time // c.span == runs[-1][0].time // c.span
        elif whole:
            whole = hit.time - runs[-1][-1].time <= c.grid.size and hit.time - runs[-1][0].time <= c.span
        if not whole:
            runs.append([])
        runs[-1].append(hit)
    return runs


def _at_once(c: Correlation, hits: list[Hit]) -> list[tuple[int, int, bool]]:
    """Windows that end at each event; of the events of its time, the earlier ones in the log are in it."""
    fired, before = [], None
    for time, order in sorted({(hit.time, hit.order) for hit in hits}):
        window = [h for h in hits if (h.time, h.order) <= (time, order) and h.time >= time - c.span]
        true = _true(c, window)
        if true:
            fired.append((time, order, before is None or time - before > c.span))
        before = time if true else None
    return fired


def _at_times(c: Correlation, hits: list[Hit]) -> list[tuple[int, int, bool]]:
    """Windows that end at each time at which there is a match, with all of that time in it."""
    fired, before = [], None
    for time in sorted({hit.time for hit in hits}):
        true = _true(c, [hit for hit in hits if time - c.span <= hit.time <= time])
        if true:
            last = [hit.order for hit in hits if hit.time == time][-1]
            fired.append((time, last, before is None or time - before > c.span))
        before = time if true else None
    return fired


def _forward(c: Correlation, hits: list[Hit]) -> list[tuple[int, int, bool]]:
    """Windows that begin at each time at which there is a match of a wanted slot."""
    wanted = {slot for clause in c.clauses for slot in clause.wanted}
    fired, before = [], None
    for time in sorted({hit.time for hit in hits if hit.slot in wanted}):
        window = [hit for hit in hits if time <= hit.time <= time + c.span]
        here = {hit.slot for hit in window if hit.time == time}
        done = [
            first
            for clause in c.clauses
            if here & set(clause.wanted)
            and not any(hit.slot in clause.forbidden for hit in window)
            and (first := _completed(c, clause, window)) is not None
        ]
        if done:
            fired.append((time + c.span, window[min(done)].order, before is None or time - before > c.span))
        before = time if done else None
    return fired


def _completed(c: Correlation, clause: Clause, window: list[Hit]) -> int | None:
    for i in range(len(window)):
        if _satisfied(c, clause, window[: i + 1]):
            return i
    return None


def _satisfied(c: Correlation, clause: Clause, window: list[Hit]) -> bool:
    if any(hit.slot in clause.forbidden for hit in window):
        return False
    if c.kind is Kind.TEMPORAL:
        return set(clause.wanted) <= {hit.slot for hit in window}
    return any(
        [hit.slot for hit in chosen] == list(clause.wanted) and _rising(chosen)
        for chosen in combinations(window, len(clause.wanted))
    )


def _rising(chosen: Sequence[Hit]) -> bool:
    return all((a.time, a.order) < (b.time, b.order) for a, b in pairwise(chosen))


def _true(c: Correlation, window: list[Hit]) -> bool:
    if c.clauses:
        return any(_satisfied(c, clause, window) for clause in c.clauses)
    metric = measure(c, window)
    return metric is not None and all(COMPARE[name](metric, number) for name, number in c.bounds)


def measure(c: Correlation, window: list[Hit]) -> Any:
    """The metric of the events in one window."""
    if c.kind is Kind.EVENT_COUNT:
        return len(window)
    if c.kind is Kind.TEMPORAL:
        return len({hit.slot for hit in window})
    if c.kind is Kind.TEMPORAL_ORDERED:
        return max(
            size
            for size in range(len(c.slots) + 1)
            if any(
                _rising(chosen) and all(a.slot < b.slot for a, b in pairwise(chosen))
                for chosen in combinations(window, size)
            )
        )
    values = [hit.value for hit in window if hit.value is not None]
    if c.kind is Kind.VALUE_COUNT:
        return len(set(values))
    assert c.kind.row.numeric
    if not values:
        return None
    if c.kind is Kind.VALUE_SUM:
        return sum(values)
    if c.kind is Kind.VALUE_AVG:
        return Fraction(sum(values)) / len(values)
    percent = Fraction(50) if c.kind is Kind.VALUE_MEDIAN else Fraction(c.percentile)
    place = (len(values) - 1) * percent / 100
    low = int(place)
    ranked = [*sorted(values), 0]
    return ranked[low] + (ranked[low + 1] - ranked[low]) * (place - low)
