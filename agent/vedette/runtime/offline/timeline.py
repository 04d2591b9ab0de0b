"""What fires over time in an offline evaluation: correlations and statements over the matches of all that was read.

A ``Timeline`` keeps what they need of the matches, sorts it by time (and where times are equal, as it was read), and
lets every window come to its end. Nothing is late and nothing suppressed.

Who has more matches than fit in memory sorts them outside of it: ``take`` hands over what was kept so far, as
``Moment`` values, which ``to_bytes`` writes, and another ``Timeline`` of the same plan is given them one by one, in
the order of ``Moment.order``, by ``pass_by``, and then ``finish``. It finds the same, and keeps only state of them.

What makes rows of events is imported by a plan that has statements.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from datetime import tzinfo
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from vedette.decode.decoder import Record
from vedette.model.times import HOUR, bsd_time, time_of, written_time
from vedette.plan.ir import as_shown, scalar
from vedette.plan.numbers import number_of
from vedette.plan.plan import Plan
from vedette.runtime.offline.evaluation import Detection
from vedette.state.clock import Clock
from vedette.state.correlate import MAX_ENTRIES, Correlator
from vedette.state.firing import Firing, shown_group
from vedette.state.graph import Item, key_of
from vedette.stream import opening
from vedette.stream.keyed import pack, unpack

if TYPE_CHECKING:
    from vedette.stream.statements import Read, Selected
    from vedette.stream.userfunctions import Functions

MAX_SPELLED = 1 << 20
"""Events of which it is kept how they spell their groups, where that is not how groups are compared. Of older ones a
group is shown folded to lower case."""
PASSED_AT_ONCE = 1000
"""Rows of statements between two looks at what they have given."""
_LANE = 1
"""That of all events: receipts count for nothing."""
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
        """What ``vedette scan`` prints; for a sink it adds ``row``."""
        statement = self.selected.statement
        of_sink = {"kind": "row", "sink": statement.sink} if statement.sink else {}
        return {
            "rule_id": statement.id,
            "rule_title": self.selected.head("title") or statement.title,
            "level": self.selected.head("level") or statement.level,
            "kind": "correlation" if statement.stateful else "detection",
            "file": self.file,
            "line": self.line,
            "fields": self.selected.fields,
            **of_sink,
        }

    @property
    def row(self) -> dict[str, Any]:
        """What a sink gets: values of JSON."""
        from vedette.stream.written import written

        return written(self.selected.statement.root.columns)(self.selected.row)


class Moment(NamedTuple):
    """What a match, or several of one event, mean to correlations (``items``), or to one statement (``read``)."""

    time: int
    place: int
    """Of the event: a number that grows in the order in which events were read."""
    items: list[Item]
    spelled: dict[str, Any]
    """Fields that name a group, where the event spells them otherwise than groups are compared."""
    read: Read | None = None

    @property
    def order(self) -> tuple[bool, int, int]:
        """Correlations first, as ``vedette scan`` prints them."""
        return self.read is not None, self.time, self.place

    def to_bytes(self) -> bytes:
        items = [(item.node.number, item.slot, item.values, _kept(item.value), item.carried and _kept(item.carried))
                 for item in self.items]  # fmt: skip
        spelled = {name: _kept(value) for name, value in self.spelled.items()}
        return pack((self.time, self.place, items, spelled, self.read))


def _kept(value: Any) -> Any:
    """A value as msgpack can carry it: whole numbers of more than 64 bits as texts, which are compared the same."""
    if isinstance(value, tuple):
        return tuple(map(_kept, value))
    return str(value) if type(value) is int and not -1 << 63 <= value < 1 << 63 else value


class Timeline:
    """What correlations and statements need of the matches of one scan."""

    def __init__(
        self, plan: Plan, time_field: str = "", zone: tzinfo | None = None, functions: Functions | None = None,
        *, received: bool = False, max_bytes: int = 1 << 62, where: Callable[[int], tuple[str, int]] | None = None,
    ) -> None:  # fmt: skip
        """``time_field``: the field that says when an event happened; empty: what its decoder finds. ``functions`` runs
        user functions; without it statements that call some do not run (``without_functions``). ``received``: whether
        events say when they were received, which is the time of one that says none; else that is when they happened.
        ``max_bytes`` bounds what correlations remember, and what statements do. ``where``: file and line of a
        ``Moment.place``; default: as ``add`` was given them."""
        self._plan, self._field, self._zone, self._received = plan, time_field, zone, received
        self._correlator = Correlator(plan.correlations, Clock(0), max_bytes=max_bytes)
        self._grouped = {rule.id: self._correlator.graph.grouped(rule.id) for rule in plan.rules}
        self._moments: list[Moment] = []
        self._places: list[tuple[str, int]] = []
        self._where = where or self._places.__getitem__
        self._spelled = OrderedDict[int, dict[str, Any]]()
        self._timeless = 0
        self._statements = opening.opened(plan, max_bytes=max_bytes, functions=functions)
        self._fed = 0

    @property
    def without_functions(self) -> list[str]:
        """The titles of statements that do not run."""
        return [statement.title for statement in self._statements.refused]

    def failures(self, said: Callable[[Exception], str] = str) -> list[str]:
        """Correlations that raised, by the kind of error, which quotes no event; statements that were given up, and
        why, as ``said`` says it; of others how many rows failed."""
        given_up = [
            f"{failure.correlation.title}: {failure.reason.partition(':')[0]}"
            for failure in self._correlator.failures()
        ]
        given_up += [f"{statement.title}: {said(error)}" for statement, error in self._statements.failures()]
        counts = self._statements.status()["statements"]
        return given_up + [f"{row['title']}: {row['failed']} rows failed" for row in counts if row["failed"]]

    def wants(self, rule_id: str) -> bool:
        """Whether a correlation or a statement looks at what this rule matches."""
        return self._correlator.graph.wants(rule_id) or self._statements.wants(rule_id)

    def add(self, detection: Detection, file: str) -> None:
        """One match, in the order in which they were read."""
        if not self._places or self._places[-1] != (file, detection.line):
            self._places.append((file, detection.line))
        self.put(detection, len(self._places) - 1, file)

    def put(self, detection: Detection, place: int, input: str) -> None:
        """One match of the event at ``place``, as ``add``, which came by ``input``."""
        rule_id, event = detection.rule.id, detection.record
        states, correlates = self._statements.wants(rule_id), self._correlator.graph.wants(rule_id)
        if not (states or correlates):
            return
        time = event.event_time if not self._field else _time_in(event, self._field, self._zone)
        if time is None and self._received:
            time = event.received_at
        if states:
            from vedette.stream.reader import Event

            received_at = None if self._received else time
            row_of = Event(
                event, place, input=input, host=lambda: event.host, time=lambda: time, received_at=received_at
            )
            for read in self._statements.read(rule_id, row_of):
                at = read.row[read.time] if read.time else time
                self._moments.append(Moment(at if at is not None else 0, place, [], {}, read))
        if not correlates:
            return
        if time is None:
            self._timeless += 1
            return
        values = {name: scalar(event.get(name)) for name in self._grouped[rule_id]}
        spelled = {name: value for name, value in values.items() if as_shown(value) != key_of(value)}
        items = self._correlator.graph.prepare(rule_id, event)
        for last in reversed(self._moments):
            if last.place != place:
                break
            if last.read is None:  # an event that matches several rules is looked at when all its matches are in
                last.items.extend(items)
                last.spelled.update(spelled)
                return
        self._moments.append(Moment(time, place, items, spelled))

    def take(self) -> list[Moment]:
        """What was kept of the matches so far, to be kept elsewhere."""
        moments, self._moments = self._moments, []
        return moments

    def moment(self, data: bytes) -> Moment:
        """What ``Moment.to_bytes`` of another timeline of the same plan wrote."""
        time, place, packed, spelled, read = unpack(data)
        nodes = self._correlator.nodes
        items = [Item(nodes[number], slot, values, value, carried) for number, slot, values, value, carried in packed]
        if read is None:
            return Moment(time, place, items, spelled)
        from vedette.stream.statements import Read

        return Moment(time, place, items, spelled, Read(*read))

    def correlate(self) -> Iterator[Correlated | Stated]:
        """What fires, by time; then what statements give."""
        moments = sorted(self.take(), key=lambda moment: moment.order)
        first = bisect_left(moments, True, key=lambda moment: moment.read is not None)
        for moment in islice(moments, first):
            yield from self.pass_by(moment)
        yield from self._fired(self._correlator.finish())
        for moment in islice(moments, first, None):
            yield from self.pass_by(moment)
        yield from self.finish()

    def pass_by(self, moment: Moment) -> Iterator[Correlated | Stated]:
        """What ``moment`` completes; moments come by their ``order``, each once."""
        if moment.read is not None:
            self._statements.feed([moment.read])
            self._fed += 1
            if self._fed % PASSED_AT_ONCE == 0:
                yield from map(self._stated, self._statements.take())
            return
        clock = self._correlator.clock
        clock.advance(moment.time)
        clock.move(_LANE, moment.time)
        yield from self._fired(self._correlator.advance())
        if moment.spelled:
            self._spelled[moment.place] = moment.spelled
            if len(self._spelled) > MAX_SPELLED:
                self._spelled.popitem(last=False)
        yield from self._fired(self._correlator.add(moment.items, _LANE, moment.time, moment.place, 0))

    def finish(self) -> Iterator[Correlated | Stated]:
        """No further moment comes: every window ends."""
        yield from self._fired(self._correlator.finish())
        yield from map(self._stated, self._statements.finish())

    def _stated(self, row: Selected) -> Stated:
        return Stated(row, *self._where(row.offset))

    def _fired(self, fired: Iterable[Firing]) -> Iterator[Correlated]:
        for firing in fired:
            if firing.correlation.id not in self._plan.silent:
                group = shown_group(firing, self._spelled.get(firing.event.offset, {}).get)
                yield Correlated(firing, *self._where(firing.event.offset), group)

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
        if self._correlator.groups.evicted:
            yield f"the oldest of {self._correlator.groups.evicted} groups, because correlations remember too much"
        if evicted := self._statements.status()["evicted"]:
            yield f"the rows of {evicted} of the oldest keys, because statements remember too much"


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
