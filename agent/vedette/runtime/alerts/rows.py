"""Alerts of statements: matches of rules that select events become rows, rows that statements give become alerts.

Loaded with the first plan that has statements. What statements only filter gives its alerts with its event; of all else
an event is taken in where it matches (``take``), and the rows that have come out since become alerts by
``AlertBuilder.statements``, as many at a time as are asked for. Rows for a sink become none (``to_sinks.py``). A row of
a window that ended is about an event of an earlier frame, which is read back from the raw log once for all rows that
are made together (``Reread``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING

from vedette.decode import kafka
from vedette.decode.entities import MAX_ENTITIES
from vedette.decode.entities import entities as entities_of
from vedette.engine.join import Joined
from vedette.engine.match import Context, Engine, Match
from vedette.engine.rows import Batch
from vedette.model.event import Alert, Chunk, Entity, Frame
from vedette.model.times import clamp, time_of
from vedette.plan.ir import LEVELS, Rule
from vedette.plan.query import Statement
from vedette.runtime.alerts.alerts import NO_CONTEXT, AlertBuilder, Credit
from vedette.runtime.alerts.events import Event, Events, gone
from vedette.runtime.pipeline.context import EvaluationContext
from vedette.state.state import State
from vedette.stream.reader import Event as Row
from vedette.stream.statements import Selected, Statements
from vedette.system import turns

if TYPE_CHECKING:
    from vedette.runtime.alerts.to_sinks import SinkRows

KEPT_BYTES = 16 << 20
"""Of frames and events that a ``Reread`` keeps."""
EVENT_BYTES = 2048
"""What an event, decoded, is counted as, about; and a frame beside its data."""
_NO_ROWS: tuple[Selected, ...] = ()


def _source(chunk: Chunk) -> str:
    """Whose watermark events go by, with their host: the input's, of Kafka the partition's."""
    file = chunk.file
    return f"{file.path}/{file.inode}" if file and file.path.startswith(kafka.PREFIX) else chunk.input


class Group(Batch):
    """Neighbours that match different rules, as a batch of them all; ``batches``: of those that match the same."""

    batches: list[Batch]

    @property
    def matches(self) -> int:
        return sum(batch.matches for batch in self.batches)


def _grouped(neighbours: list[Batch]) -> Batch:
    """Streams that are split come one event of each after the other: a batch for each rather than one an event."""
    if len(neighbours) == 1:
        return neighbours[0]
    by_rules = dict[frozenset[int], Batch]()
    start, end = neighbours[0].start, neighbours[-1].end
    for _, _, rules, spans, rows, hosts in neighbours:
        batch = by_rules.setdefault(rules, Batch(start, end, rules, [], [], []))
        batch.spans.extend(spans)
        batch.rows.extend(rows)
        batch.hosts.extend(hosts)
    spans = sorted(span for batch in neighbours for span in batch.spans)
    group = Group(start, end, frozenset[int]().union(*by_rules), spans, [], [])
    group.batches = [*by_rules.values()]
    return group


class Read(Row):
    """The event of a match for statements: what the native kernel knows of it as it says, all else by ``event``."""

    __slots__ = ("_chunk", "_context", "_event")

    def __init__(
        self, engine: Engine, frame: Frame, match: Match, context: Context, event: Callable[[], Event]
    ) -> None:
        chunk = self._chunk = frame.chunk
        self.record, self.offset, self.converted = match.record, frame.offset + match.start, {}
        self.received_at = chunk.received_at
        self._context, self._event, self.input = context, event, chunk.input
        self.values = values = engine.columns(match, chunk, context)
        if values is not None:
            self.places = engine.places

    @property
    def source(self) -> str:
        return _source(self._chunk)

    def host(self) -> str | None:
        values = self.values
        if values is None or values[1] is ...:
            return self._event().host
        return values[1] or self.record.peer or self._context.host

    def time(self) -> int | None:
        values, time = self.values, None
        if values is None or values[0] is ...:
            return self._event().time
        if values[0] is not None and (time := time_of(values[0], self._context.zone)) is None:
            return self._event().time  # another field may say it
        return clamp(time, self._chunk.received_at)[0]


class Reread:
    """Events of earlier frames for alerts that are made together: an event is read and decoded once for all of them,
    as long as ``KEPT_BYTES`` hold it. A window of many statements ends with many alerts about few events."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._events_at: dict[int, Event | None] = {}
        """By offset; None: the log does not hold it any more."""
        self._frames: dict[int, Frame] = {}
        self._starts: list[int] = []
        self._bytes = 0

    def logged(self, offset: int, time: int) -> Event:
        """``Events.logged`` of an event whose length is not known."""
        if offset not in self._events_at:
            self._add(offset, time)
        return self._events_at[offset] or gone(offset, 0, time)

    def _add(self, offset: int, time: int) -> None:
        if self._bytes > KEPT_BYTES:
            self._events_at, self._frames, self._starts, self._bytes = {}, {}, [], 0
        at = bisect_right(self._starts, offset) - 1
        near = self._frames[self._starts[at]] if at >= 0 else None
        if near is not None and offset >= near.offset + len(near.chunk.data):
            near = None
        event = self._events.logged(offset, 0, time, near)
        frame = event.frame
        self._bytes += EVENT_BYTES
        self._events_at[offset] = event if frame.chunk.data else None
        if near is None and frame.chunk.data:
            self._bytes += EVENT_BYTES + len(frame.chunk.data)
            self._frames[frame.offset] = frame
            insort(self._starts, frame.offset)


def _entities(rule: Statement, fields: Mapping[str, str], event: Event) -> tuple[Entity, ...]:
    """Of a statement's row: those that the statement names, those of its other columns, and those of the event that it
    is about, where that is one."""
    own = () if rule.stateful else event.entities()
    if own and not rule.entities and len(own) < MAX_ENTITIES:
        of_event = event.record.fields()
        if all(of_event.get(name) == value for name, value in fields.items()):
            return own
    kinds = {name: kind for name, kind in rule.entities if name in fields}
    others = {name: value for name, value in fields.items() if name not in kinds} if kinds else fields
    named = [Entity(kind, fields[name]) for name, kind in kinds.items()]
    return tuple(dict.fromkeys([*named, *entities_of(others, event.host), *own]))[:MAX_ENTITIES]


class RowBuilder(AlertBuilder):
    """See the module's text."""

    def __init__(
        self, context: EvaluationContext, state: State, engine: Engine, bundle: Credit, statements: Statements
    ) -> None:
        """``statements``: those of ``state``."""
        super().__init__(context, state, engine, bundle)
        self._statements, self._scans = statements, engine.plan.scans
        statements.network.budget.give_way = turns.give_way
        self._filters = {rule for rule in self._scans if statements.filters(rule)}
        """Those of which statements give at once what comes of an event."""
        self._recent: dict[int, Callable[[], Event]] = {}
        """Events that statements have taken since none of their rows waited, by offset."""
        self._batches: list[tuple[Frame, Batch]] = []
        """Those that they have taken together, in the order of the log."""
        self._reread = Reread(self._events)
        """Of earlier frames, since then."""
        of_alerts = {scan.rule for each in engine.plan.statements if not each.sink for scan in each.scans}
        filters = self._filters - of_alerts
        self._of_sinks = frozenset(at for at, rule in enumerate(engine.plan.rules) if rule.id in filters)
        """Rules of which statements at once give rows for sinks, and nothing else."""
        self._to_sinks: SinkRows | None = None
        if any(statement.sink for statement in engine.plan.statements):
            self._to_sinks = self._open_sinks()

    def _open_sinks(self) -> SinkRows:
        from vedette.runtime.alerts.to_sinks import SinkRows

        return SinkRows(self._context, self._engine.plan)

    def _to_sink(self, row: Selected) -> None:
        """A row of a statement for a sink, which may be of an earlier plan."""
        if self._to_sinks is None:
            self._to_sinks = self._open_sinks()
        self._to_sinks.add(row, partial(self._event_behind, row))

    def of(self, events: Sequence[tuple[Frame, Sequence[Match]]]) -> Iterator[Iterator[Alert]]:
        """As of ``AlertBuilder``; first of an event those of statements that only filter."""
        rows = self._filtered(events) if self._filters else [_NO_ROWS for _ in events]
        for (frame, matches), selected, event in zip(events, rows, self._read_events(events, rows), strict=True):
            yield self._with_rows(frame, matches, selected, event)

    def _with_rows(
        self, frame: Frame, matches: Sequence[Match], rows: Sequence[Selected], event: Event | None
    ) -> Iterator[Alert]:
        """``rows``: of statements that filter; ``event``: None when it could not be read."""
        rules = [self._engine.plan.rules[match.rule] for match in matches]
        for row in rows:
            alert = self._of_row(row, 0, self._event_behind(row) if event is None else event)
            if alert is not None:
                yield alert
        scanning = [rule for rule in rules if rule.id in self._scans]
        if unfiltered := [rule for rule in scanning if rule.id not in self._filters]:
            self._take(unfiltered, frame, matches[0], event)
        if len(scanning) < len(rules):
            yield from self._of(frame, matches, event)

    def _filtered(self, events_of_frames: Sequence[tuple[Frame, Sequence[Match]]]) -> list[Sequence[Selected]]:
        """By event the rows that statements which only filter give for it."""
        rules, by_rule = self._engine.plan.rules, dict[int, list[tuple[Frame, Match]]]()
        for frame, matches in events_of_frames:
            for match in matches:
                if rules[match.rule].id in self._filters:
                    by_rule.setdefault(match.rule, []).append((frame, match))
        rows = dict[int, list[Selected]]()
        for number, events in sorted(by_rule.items()):
            rule = rules[number]
            selected, failed = self._statements.filter(rule.id, [self._read(*event) for event in events])
            for row in selected:
                if row.statement.sink:
                    self._to_sink(row)
                else:
                    rows.setdefault(row.offset, []).append(row)
            for event, error in failed:
                frame, match = next(each for each in events if each[0].offset + each[1].start == event.offset)
                self._failed(frame, match.start, match.end, error, rule.title)
        return [rows.get(frame.offset + matches[0].start, _NO_ROWS) for frame, matches in events_of_frames]

    def _read(self, frame: Frame, match: Match) -> Read:
        context = self._context.input_contexts.get(frame.chunk.input, NO_CONTEXT)
        event = partial(self._events.of, frame, match.start, match.end, match.record)
        return Read(self._engine, frame, match, context, event)

    def _take(self, rules: Iterable[Rule], frame: Frame, match: Match, event: Event | None) -> None:
        """The event to the statements for which ``rules`` select it; ``event`` is read when it is needed."""

        def known() -> Event:
            nonlocal event
            if event is None:
                event = self._events.of(frame, match.start, match.end, match.record)
            return event

        context = self._context.input_contexts.get(frame.chunk.input, NO_CONTEXT)
        read = Read(self._engine, frame, match, context, known)
        for rule in rules:
            try:
                self._statements.add(rule.id, read)
            except Exception as error:  # other statements take their rows
                self._failed(frame, match.start, match.end, error, rule.title)
        self._recent[read.offset] = known

    def take(self, frame: Frame, batch: Batch) -> None:
        """Events to the statements for which rules select them: their alerts are given by ``statements``."""
        engine, chunk = self._engine, frame.chunk
        context = self._context.input_contexts.get(chunk.input, NO_CONTEXT)

        def event(number: int) -> Read:
            match = engine.alone(batch, number, frame, context)
            return Read(engine, frame, match, context, lambda: self._of_batch(frame, batch, number))

        rules = [engine.plan.rules[rule] for rule in sorted(batch.rules)]
        names = [rule.id for rule in rules]
        failed = self._statements.add_all(names, batch.rows, batch.hosts, _source(chunk), chunk.received_at, event)
        for number, error in failed:
            self._failed(frame, *batch.spans[number], error, rules[0].title)
        self._batches.append((frame, batch))

    def parts(self, events: Iterable[Joined | Batch], most: int) -> Iterator[Joined | Batch]:
        """As of ``AlertBuilder``; neighbours that only give rows for sinks are evaluated together."""
        neighbours, count = list[Batch](), 0
        for event in events:
            parts: Iterable[Joined | Batch] = (event,)
            if isinstance(event, Batch) and self.filters(event):
                parts = event.parts(most) if len(event.spans) > most else parts
            for part in parts:
                joins = isinstance(part, Batch) and part.rules <= self._of_sinks
                size = len(part.spans) if isinstance(part, Batch) else 0
                if neighbours and (not joins or count + size > most):
                    yield _grouped(neighbours)
                    neighbours, count = [], 0
                if joins and isinstance(part, Batch):
                    neighbours.append(part)
                    count += size
                else:
                    yield part
        if neighbours:
            yield _grouped(neighbours)

    def filters(self, batch: Batch) -> bool:
        """Whether ``of_batch`` gives all that comes of these events."""
        rules = self._engine.plan.rules
        return all(rules[rule].id in self._filters for rule in batch.rules)

    def of_batch(self, frame: Frame, batch: Batch) -> Iterator[Alert]:
        """The alerts of statements that only filter the events of a batch."""
        if isinstance(batch, Group):
            for each in batch.batches:
                yield from self.of_batch(frame, each)
            return
        engine, rules = self._engine, [self._engine.plan.rules[rule] for rule in sorted(batch.rules)]
        context = self._context.input_contexts.get(frame.chunk.input, NO_CONTEXT)

        def match(number: int) -> Match:
            return engine.alone(batch, number, frame, context)

        selected, failed = self._statements.filter_all(
            [rule.id for rule in rules], batch.rows, lambda number: self._read(frame, match(number))
        )
        for one_failed, error in failed:
            start = one_failed.offset - frame.offset
            self._failed(frame, *batch.spans[bisect_left(batch.spans, (start, 0))], error, rules[0].title)
        rows = dict[int, list[Selected]]()
        for row in selected:
            if row.statement.sink:
                self._to_sink(row)
            else:
                rows.setdefault(row.offset, []).append(row)
        numbers = (bisect_left(batch.spans, (offset - frame.offset, 0)) for offset in sorted(rows))
        matched = [(frame, [match(number)]) for number in numbers]
        of_events = [rows[frame.offset + of_event[0].start] for _, of_event in matched]
        for of_event, event in zip(of_events, self._read_events(matched, of_events), strict=True):
            for row in of_event:
                alert = self._of_row(row, 0, self._event_behind(row) if event is None else event)
                if alert is not None:
                    yield alert

    def _of_batch(self, frame: Frame, batch: Batch, number: int) -> Event:
        context = self._context.input_contexts.get(frame.chunk.input, NO_CONTEXT)
        match = self._engine.alone(batch, number, frame, context)
        return self._events.of(frame, match.start, match.end, match.record)

    def statements(self, most: int) -> Iterator[Alert]:
        """The alerts of ``most`` of the rows that statements have given, or of as many as are asked for."""
        statements = self._statements
        try:
            for row in islice(statements.take(), max(0, most)):
                if row.statement.sink:
                    self._to_sink(row)
                elif (alert := self._of_row(row, statements.number(row), self._event_behind(row))) is not None:
                    yield alert
        finally:
            if not statements.waiting:
                self._recent.clear()
                self._batches.clear()
                self._reread = Reread(self._events)

    def _of_row(self, row: Selected, number: int, event: Event) -> Alert | None:
        """None when it was folded. ``number``: of rows equal to this one, which the same event completes."""
        alert_id = self._begun.of(row.statement.id, row.offset, row.key.hex() + "+" * number)
        try:
            alert = self._selected(row, event, alert_id)
        except Exception as error:  # an entity or a level that cannot be read: the alert leaves without
            self._failed(event.frame, event.start, event.end, error, row.statement.title)
            alert = self._selected(row, event.bare(), alert_id, bare=True)
        if alert is None:
            return None
        return self._finish.of(self._incomplete(alert) if self._statements.incomplete(row) else alert, event)

    def _event_behind(self, row: Selected) -> Event:
        """The newest event behind a row."""
        offset = row.offset
        read = self._recent.get(offset) or self._in_batch(offset)
        try:
            return read() if read else self._reread.logged(offset, self._time_of(row))
        except Exception as error:  # a decoder raised: the alert leaves all the same, without the event
            self._context.failures.step("the event behind a statement's row", error)
            return gone(offset, 0, self._time_of(row))

    def _time_of(self, row: Selected) -> int:
        """What to take for the time of the event behind a row where it cannot be read any more."""
        window = row.window
        return window[1] if window else self._clock()

    def _in_batch(self, offset: int) -> Callable[[], Event] | None:
        """An event of a batch; it is read once for all rows that it completes."""
        for frame, batch in self._batches:
            start = offset - frame.offset
            if batch.start <= start < batch.end:
                number = bisect_left(batch.spans, (start, 0))
                if number < len(batch.spans) and batch.spans[number][0] == start:
                    event = cache(partial(self._of_batch, frame, batch, number))
                    self._recent[offset] = event
                    return event
        return None

    def _read_events(
        self, matched: Iterable[tuple[Frame, Sequence[Match]]], rows: Iterable[Sequence[Selected]]
    ) -> list[Event | None]:
        """``rows``: by event those of statements that filter."""
        rules, later = self._engine.plan.rules, self._stateful | self._scans
        events, alone = list[Event | None](), list[Event]()
        for (frame, matches), selected in zip(matched, rows, strict=True):
            first = matches[0]
            if not selected and all(rules[match.rule].id in self._scans for match in matches):
                events.append(None)  # its alerts, if any, are of later
                continue
            event = self._read_event(frame, first)
            events.append(event)
            if event is None:
                continue
            if selected:
                if not self._suppress[selected[0].statement.id]:
                    alone.append(event)
            elif rules[first.rule].id not in later:  # else its alert may be folded into another
                alone.append(event)
        self._look_ahead(alone)
        return events

    def _selected(self, row: Selected, event: Event, alert_id: str, *, bare: bool = False) -> Alert | None:
        """The alert of a statement's row; None when it was folded. ``bare``: also without its fields."""
        rule, fields = row.statement, {} if bare else row.fields
        if not bare and not self._passes(rule, event, fields, alert_id):
            return None
        entities = _entities(rule, fields, event)
        if rule.plain:
            return self._alert(rule, event, fields, bare=bare, alert_id=alert_id, entities=entities)
        window, level = row.window, row.head("level").lower()
        tags = tuple(tag for part in row.head("tags").split(",") if (tag := part.strip()))
        alert = self._alert(rule, event, fields, bare=bare, alert_id=alert_id, entities=entities)
        alert.kind = "correlation" if rule.stateful else "detection"
        alert.rule_title = row.head("title") or rule.title
        alert.level, alert.tags = level if level in LEVELS else rule.level, tags or rule.tags
        alert.count = row.times
        if window:
            alert.first_time, alert.last_time = window
        return alert
