"""A correlation's firing: which event completed it, what was measured, which events are behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vedette.plan.ir import as_shown, scalar
from vedette.plan.relation import Correlation
from vedette.state.graph import key_of
from vedette.state.measure import metric
from vedette.state.windows import MAX_CONTRIBUTING, Window


class Contributor(NamedTuple):
    """An event behind a firing; ``rule_id`` is that of the slot it came in by."""

    rule_id: str
    time: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Firing:
    """A correlation's condition became true for the group ``values`` (of its ``group_by``, folded texts).

    ``count``: the metric of a kind that counts, else the number of events in the window. ``event`` completed it.
    """

    correlation: Correlation
    values: tuple[str, ...]
    event: Contributor
    slot: int
    metric: int | float | None
    count: int
    first_time: int
    last_time: int
    contributing: tuple[Contributor, ...]
    incomplete: bool = False
    """Matches of its window may lack, since groups or entries gave way to a bound."""


def firing_of(c: Correlation, window: Window, values: tuple[str, ...], i: int, start: int, stop: int) -> Firing:
    if c.kind.row.ordered and c.prompt and not c.clauses and c.least == len(c.slots):
        measured: int | float | None = c.least  # there are no more
    else:
        measured = None if c.clauses else metric(c, window, start, stop)
    events: Sequence[int] = window.mattering(c, start, stop)
    newest = {0: stop - 1}
    if len(c.slots) > 1:
        slots = window.slots(start, stop)
        if c.clauses:
            wanted = {slot for clause in c.clauses for slot in clause.wanted}
            events = [index for index in events if slots[index - start] in wanted]
        newest = {slots[index - start]: index for index in events}
    # The newest of each slot, then the newest.
    chosen = set(sorted(newest.values())[-MAX_CONTRIBUTING:])
    for index in reversed(events):
        if len(chosen) >= MAX_CONTRIBUTING:
            break
        chosen.add(index)
    counts = len(newest) if c.clauses else measured

    def contributor(index: int) -> Contributor:
        rule_id = c.slots[window.slot(index)].rule_id
        return Contributor(rule_id, window.time(index), window.offset(index), window.length(index))

    return Firing(
        correlation=c,
        values=values,
        event=contributor(i),
        slot=window.slot(i),
        metric=measured,
        count=len(events) if c.kind.row.numeric or counts is None else int(counts),
        first_time=window.time(events[0]),
        last_time=window.time(events[-1]),
        contributing=tuple(contributor(index) for index in sorted(chosen)),
    )


def shown_group(firing: Firing, get: Callable[[str], Any]) -> dict[str, str]:
    """The firing's group by field, its values spelled as in the event that completed it where they are the same.

    ``get`` gives a field of that event.
    """
    slot = firing.correlation.slots[firing.slot]
    shown = {}
    for name, value in zip(firing.correlation.group_by, firing.values, strict=True):
        written = scalar(get(slot.field(name)))
        shown[name] = as_shown(written) or value if key_of(written) == value else value
    return shown
