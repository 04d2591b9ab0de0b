"""What fires over time in an offline evaluation: correlations and statements over the matches of all that was read.

A ``Timeline`` keeps what they need of the matches, sorts it by time (and where times are equal, as it was read), and
lets every window come to its end. Nothing is late and nothing suppressed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import tzinfo
from typing import Any, NamedTuple

from vedette.decode.decoder import Record
from vedette.model.times import HOUR, bsd_time, time_of, written_time
from vedette.plan.aggregates import number_of
from vedette.plan.plan import Plan
from vedette.runtime.evaluation import Detection
from vedette.state.clock import Clock
from vedette.state.correlate import MAX_ENTRIES, Correlator
from vedette.state.firing import Firing, shown_group
from vedette.state.graph import Item, scalar
from vedette.stream.reader import Event
from vedette.stream.statements import Read, Selected, Statements
from vedette.stream.userfunctions import Functions

_BSD = re.compile(r"[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}")


class Correlated(NamedTuple):
    """A correlation that fired; ``line`` is that of the event that completed it, in ``file``."""

    firing: Firing
    file: str
    line: int
    group: dict[str, str]

    def to_row(self) -> dict[str, Any]:
        """What ``vedette scan`` prints."""
        c, fields = self.firing.correlation, dict[str, Any](self.group)
        if c.kind.row.numeric:
            fields[c.kind.value] = self.firing.metric
        return {
            "rule_id": c.id,
            "rule_title": c.title,
            "level": c.level,
            "kind": "correlation",
            "file": self.file,
            "line": self.line,
            "fields": {**fields, "count": self.firing.count},
        }


class Stated(NamedTuple):
    """A row that a statement gives; ``line`` is that of the newest event behind it, in ``file``."""

    selected: Selected
    file: str
    line: int

    def to_row(self) -> dict[str, Any]:
        """What ``vedette scan`` prints."""
        one = self.selected.statement
        return {
            "rule_id": one.id,
            "rule_title": self.selected.head("title") or one.title,
            "level": self.selected.head("level") or one.level,
            "kind": "correlation" if one.stateful else "detection",
            "file": self.file,
            "line": self.line,
            "fields": self.selected.fields,
        }


class Timeline:
    """What correlations and statements need of the matches of one scan."""

    def __init__(
        self, plan: Plan, time_field: str = "", zone: tzinfo | None = None, functions: Functions | None = None
    ) -> None:
        """``time_field``: the field that says when an event happened; empty: what its decoder finds. ``functions`` runs
        user functions; without it statements that call some do not run (``without_functions``)."""
        self._plan, self._field, self._zone = plan, time_field, zone
        self._correlator = Correlator(plan.correlations, Clock(0), max_bytes=1 << 62)
        self._grouped = {rule.id: self._correlator.graph.grouped(rule.id) for rule in plan.rules}
        self._items: list[tuple[int, int, list[Item]]] = []
        self._places: list[tuple[str, int, dict[str, Any]]] = []
        self._timeless = 0
        self._statements = Statements(
            plan.statements, plan.lookups, max_bytes=1 << 62, functions=functions, modules=plan.modules
        )
        self._rows: list[tuple[int, int, Read]] = []

    @property
    def without_functions(self) -> list[str]:
        """The titles of statements that do not run."""
        return [one.title for one in self._statements.refused]

    def failures(self) -> list[str]:
        """Statements that were given up, and why; of others how many rows failed."""
        given_up = [f"{one.title}: {error}" for one, error in self._statements.failures()]
        counts = self._statements.status()["statements"]
        return given_up + [f"{one['title']}: {one['failed']} rows failed" for one in counts if one["failed"]]

    def wants(self, rule_id: str) -> bool:
        """Whether a correlation or a statement looks at what this rule matches."""
        return self._correlator.graph.wants(rule_id) or self._statements.wants(rule_id)

    def add(self, found: Detection, file: str) -> None:
        """One match, in the order in which they were read."""
        rule_id, event = found.rule.id, found.record
        if self._statements.wants(rule_id):
            self._select(rule_id, event, file, found.line)
        if not self._correlator.graph.wants(rule_id):
            return
        time = event.event_time if not self._field else _time_in(event, self._field, self._zone)
        if time is None:
            self._timeless += 1
            return
        values = {name: scalar(event.get(name)) for name in self._grouped[rule_id]}
        items = self._correlator.graph.prepare(rule_id, event)
        place = self._place(file, found.line)
        self._places[place][2].update(values)
        if self._items and self._items[-1][1] == place:
            self._items[-1][2].extend(items)
        else:
            self._items.append((time, place, items))

    def _place(self, file: str, line: int) -> int:
        if not self._places or self._places[-1][:2] != (file, line):
            self._places.append((file, line, {}))
        return len(self._places) - 1

    def _select(self, rule_id: str, event: Record, file: str, line: int) -> None:
        """Rows for statements; their time is that of the table, else the event's."""
        time = event.event_time if not self._field else _time_in(event, self._field, self._zone)
        place = self._place(file, line)
        for one in self._statements.read(
            rule_id, Event(event, place, input=file, host=lambda: event.host, time=lambda: time)
        ):
            at = one.row[one.time] if one.time else time
            self._rows.append((at if at is not None else 0, place, one))

    def correlate(self) -> Iterator[Correlated | Stated]:
        """What fires, by time; then what statements give."""
        clock = self._correlator.clock
        for time, place, items in sorted(self._items, key=lambda item: item[:2]):
            clock.move(1, time)
            yield from self._fired(self._correlator.add(items, 1, time, place, 0))
        yield from self._fired(self._correlator.finish())
        self._statements.feed(row for _, _, row in sorted(self._rows, key=lambda item: item[:2]))
        for one in self._statements.finish():
            yield Stated(one, *self._places[one.offset][:2])

    def _fired(self, fired: Iterable[Firing]) -> Iterator[Correlated]:
        for one in fired:
            if one.correlation.id not in self._plan.silent:
                file, line, values = self._places[one.event.offset]
                yield Correlated(one, file, line, shown_group(one, values.get))

    def unused(self) -> Iterator[str]:
        """Why matches were not used, one text a reason."""
        if self._timeless:
            where = f"the field {self._field!r} of the event" if self._field else "the event"
            yield f"{self._timeless} matches, because {where} holds no time"
        for node in self._correlator.nodes:
            if node.ungrouped:
                yield f"{node.ungrouped} matches of {node.c.title!r}, because they lack a field to group by"
        if self._correlator.groups.cut:
            yield f"{self._correlator.groups.cut} of the oldest matches of groups that hold more than {MAX_ENTRIES}"


def _time_in(event: Record, field: str, zone: tzinfo | None) -> int | None:
    """The time in a field that is known to hold one: any number counts from 1970, whatever its unit by its size.

    A syslog line without such a field has the time of its header.
    """
    value = scalar(event.get(field))
    if value is None and event.header is not None:
        return event.header.timestamp
    value = value.strip() if isinstance(value, str) else value
    if (time := time_of(value, zone)) is not None:
        return time
    if (number := number_of(value)) is not None:
        unit = next((unit for limit, unit in ((1e11, 1_000_000), (1e14, 1000), (1e17, 1)) if abs(number) < limit), None)
        return round(number * unit) if unit else round(number / 1000)
    if not isinstance(value, str):
        return None
    written = written_time(value, zone)
    if written is None and _BSD.fullmatch(value):
        return bsd_time(value.encode(), 0, event.received_at // HOUR, zone)
    return written
