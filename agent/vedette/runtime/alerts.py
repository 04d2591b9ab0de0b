"""From matches to alerts: detections as they are, correlations when they fire, statements by their rows, all through
suppression.

``of`` takes the matches of events, in the log's order, ``advance`` the passing of time; what both mean to statements
comes from ``statements``, so many rows at a time, what they have closed from ``folds``. Each gives the alerts that
result, numbered in that order. An alert of which a part cannot be made, because a decoder raises, is still emitted:
with its event as text, without fields and entities, flagged ``PARTIAL``. What is kept from one call to the next is in
``state/state.py``. An alert about an event of an earlier frame (a correlation that could only be decided now, a window
that ended) reads that event, with all its audit records, back from the raw log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import structlog

from vedette.decode.decoder import Record
from vedette.decode.entities import MAX_ENTITIES
from vedette.decode.entities import entities as entities_of
from vedette.delivery import envelope
from vedette.engine.match import Context, Engine, Match
from vedette.engine.rows import Batch
from vedette.model.event import NO_FLAGS, Alert, Contribution, Entity, Flag, Frame, LogSource, RawRef
from vedette.plan.ir import LEVELS, Rule, as_shown, fold
from vedette.plan.merge import as_written
from vedette.plan.plan import AnyRule, Plan
from vedette.plan.query import Statement
from vedette.plan.relation import Suppress
from vedette.response import decide
from vedette.runtime.context import EvaluationContext
from vedette.runtime.enrich import MISSING, Enrichment
from vedette.runtime.events import Event, Events, Read, Reread, gone
from vedette.state.firing import Firing, shown_group
from vedette.state.graph import scalar
from vedette.state.state import State
from vedette.state.suppress import Fold, Source
from vedette.stream.statements import Selected

if TYPE_CHECKING:
    from vedette.runtime.redact import AlertRedaction

logger = structlog.get_logger()

SEPARATOR = "\0"
"""Between the values of a group in an alert's id."""
PARTIAL, INCOMPLETE = "partial", "incomplete"
"""Among an alert's ``flags``."""
_NO_CONTEXT, _NO_GROUP, _NO_ROWS = Context(), dict[str, str](), tuple[Selected, ...]()


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


@lru_cache(maxsize=64)
def _names(flags: Flag) -> tuple[str, ...]:
    return tuple(str(flag.name).lower() for flag in flags)


Credit = str | Mapping[str, str] | None
"""What alerts have as their ``bundle``: all the same, or by the id of the rule."""


_READS: tuple[Callable[[Event], object], ...] = (lambda one: one.record.fields(), Event.entities)


class AlertBuilder:
    """See the module's text."""

    def __init__(self, context: EvaluationContext, state: State, engine: Engine, bundle: Credit = None) -> None:
        """``bundle``: what ``engine`` is of."""
        self._context, self._state = context, state
        self._agent, self._log = context.config.agent, context.raw_log
        self._events = Events(context)
        self._clock, self._next_seq, self._failed = context.clock, context.restart.take_seq, context.failures.event
        self._use(engine, bundle)

    def switch(self, engine: Engine, bundle: Credit) -> None:
        """Go on under another plan, by the settings in force."""
        self._state.switch(engine.plan)
        self._use(engine, bundle)

    def _use(self, engine: Engine, bundle: Credit) -> None:
        self._settings, self._response = self._context.config.suppress, self._context.config.response
        self._sets = [one.name for one in self._context.config.rulesets]
        self._bundle_of = bundle.get if isinstance(bundle, Mapping) else lambda _: bundle
        self._engine, plan = engine, engine.plan
        self._events.codecs = plan.codecs
        self._redaction = self._redacting(plan)
        self._enrichment = Enrichment(self._context.config.enrich, plan.lookups, self._context.counters)
        self._numbers = {rule.id: number for number, rule in enumerate(plan.rules)}
        every: list[AnyRule] = [*plan.rules, *plan.correlations, *plan.statements]
        self._suppress = {one.id: self._suppression(one) for one in every}
        graph = self._state.correlator.graph
        self._wanted = {rule.id for rule in plan.rules if graph.wants(rule.id)}
        """Rules that correlations look at."""
        self._stateful = self._wanted | {rule.id for rule in plan.rules if self._suppress[rule.id]}
        self._scans = plan.scans
        self._filters = {rule for rule in self._scans if self._state.statements.filters(rule)}
        """Those of which statements give at once what comes of an event."""
        self._recent: dict[int, Callable[[], Event]] = {}
        """Events that statements have taken since none of their rows waited, by offset."""
        self._batches: list[tuple[Frame, Batch]] = []
        """Those that they have taken together, in the order of the log."""
        self._reread = Reread(self._events)
        """Of earlier frames, since then."""
        self._begun = envelope.AlertId(self._agent.id, self._log.log_id)

    def _redacting(self, plan: Plan) -> AlertRedaction | None:
        """Loaded by agents that redact."""
        if not self._context.config.redact:
            return None
        from vedette.runtime.redact import AlertRedaction

        return AlertRedaction(self._context.config, plan, self._context.counters)

    def _suppression(self, rule: AnyRule) -> Suppress | None:
        """What the configuration says of this rule, else the rule itself, else the configuration of all."""
        ids = as_written(rule.id, self._sets)
        named = next((settings for settings in self._settings if not ids.isdisjoint(settings.rules)), None)
        if named is None and rule.suppress is not None:
            return rule.suppress
        chosen = named or next((settings for settings in self._settings if not settings.rules), None)
        return None if chosen is None else Suppress(chosen.by, chosen.for_)

    # --- in

    def advance(self, received_at: int) -> Iterator[Alert]:
        """The alerts that follow from time having come to ``received_at``."""
        yield from self._correlations(self._state.advance(received_at), None)

    def of(self, events: Sequence[tuple[Frame, Sequence[Match]]]) -> Iterator[Iterator[Alert]]:
        """By event the alerts that follow, given its frame and its matches (at least one, by the rules' order in the
        plan). What they need of all events is read first, one kind of work after the other."""
        rows = self._filtered(events) if self._filters else [_NO_ROWS for _ in events]
        for (frame, matches), selected, event in zip(events, rows, self._read_events(events, rows), strict=True):
            yield self._of(frame, matches, selected, event)

    def _of(
        self, frame: Frame, matches: Sequence[Match], rows: Sequence[Selected], event: Event | None
    ) -> Iterator[Alert]:
        """``rows``: of statements that filter; ``event``: None when it could not be read."""
        plan, first = self._engine.plan, matches[0]
        matched = [(plan.rules[match.rule], match.rule) for match in matches]
        if self._scans:
            for row in rows:
                alert = self._of_row(row, 0, self._event_behind(row) if event is None else event)
                if alert is not None:
                    yield alert
            scanning = [rule for rule, _ in matched if rule.id in self._scans]
            if unfiltered := [rule for rule in scanning if rule.id not in self._filters]:
                self._take(unfiltered, frame, first, event)
            if len(scanning) == len(matched):
                return
        if event is None:
            event = self._events.of(frame, first.start, first.end, first.record)
        if self._stateful and any(rule.id in self._stateful for rule, _ in matched):
            event.source, jumps = self._state.observe(frame.chunk.input, event.host, event.time)
            if jumps:
                event.flags |= Flag.TIME_JUMP
        for rule, number in matched:
            if rule.id in plan.silent:
                continue
            try:
                passes = self._passes(rule, event, _NO_GROUP)
            except Exception as error:  # better one alert too many
                self._failed(frame, event.start, event.end, error, rule.title)
                passes = True
            if passes:
                yield self._finished(self._detection(rule, number, event), event)
        if self._wanted and (wanted := [rule.id for rule, _ in matched if rule.id in self._wanted]):
            length = first.end - first.start
            try:
                fired = self._state.match(wanted, event.record, event.source, event.time, event.offset, length)
            except Exception as error:
                self._failed(frame, event.start, event.end, error, "correlations")
                fired = []
            yield from self._correlations(fired, event)

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
            selected, failed = self._state.statements.filter(rule.id, [self._read(*event) for event in events])
            for row in selected:
                rows.setdefault(row.offset, []).append(row)
            for event, error in failed:
                frame, match = next(each for each in events if each[0].offset + each[1].start == event.offset)
                self._failed(frame, match.start, match.end, error, rule.title)
        return [rows.get(frame.offset + matches[0].start, _NO_ROWS) for frame, matches in events_of_frames]

    def _read(self, frame: Frame, match: Match) -> Read:
        context = self._context.input_contexts.get(frame.chunk.input, _NO_CONTEXT)
        event = partial(self._events.of, frame, match.start, match.end, match.record)
        return Read(self._engine, frame, match, context, event)

    def _take(self, rules: Iterable[Rule], frame: Frame, match: Match, event: Event | None) -> None:
        """The event to the statements for which ``rules`` select it; ``event`` is read when it is needed."""

        def known() -> Event:
            nonlocal event
            if event is None:
                event = self._events.of(frame, match.start, match.end, match.record)
            return event

        context = self._context.input_contexts.get(frame.chunk.input, _NO_CONTEXT)
        read = Read(self._engine, frame, match, context, known)
        for rule in rules:
            try:
                self._state.statements.add(rule.id, read)
            except Exception as error:  # other statements take their rows
                self._failed(frame, match.start, match.end, error, rule.title)
        self._recent[read.offset] = known

    def take(self, frame: Frame, batch: Batch) -> None:
        """Events to the statements for which rules select them: their alerts are given by ``statements``."""
        engine, chunk = self._engine, frame.chunk
        context = self._context.input_contexts.get(chunk.input, _NO_CONTEXT)

        def event(number: int) -> Read:
            match = engine.alone(batch, number, frame, context)
            return Read(engine, frame, match, context, lambda: self._of_batch(frame, batch, number))

        rules = [engine.plan.rules[rule] for rule in sorted(batch.rules)]
        names = [rule.id for rule in rules]
        failed = self._state.statements.add_all(names, batch.rows, batch.hosts, chunk.input, chunk.received_at, event)
        for number, error in failed:
            self._failed(frame, *batch.spans[number], error, rules[0].title)
        self._batches.append((frame, batch))

    def filters(self, batch: Batch) -> bool:
        """Whether ``of_batch`` gives all that comes of these events."""
        rules = self._engine.plan.rules
        return all(rules[rule].id in self._filters for rule in batch.rules)

    def of_batch(self, frame: Frame, batch: Batch) -> Iterator[Alert]:
        """The alerts of statements that only filter the events of a batch."""
        engine, rules = self._engine, [self._engine.plan.rules[rule] for rule in sorted(batch.rules)]
        context = self._context.input_contexts.get(frame.chunk.input, _NO_CONTEXT)

        def match(number: int) -> Match:
            return engine.alone(batch, number, frame, context)

        selected, failed = self._state.statements.filter_all(
            [rule.id for rule in rules], batch.rows, lambda number: self._read(frame, match(number))
        )
        for one_failed, error in failed:
            start = one_failed.offset - frame.offset
            self._failed(frame, *batch.spans[bisect_left(batch.spans, (start, 0))], error, rules[0].title)
        rows = dict[int, list[Selected]]()
        for row in selected:
            rows.setdefault(row.offset, []).append(row)
        numbers = (bisect_left(batch.spans, (offset - frame.offset, 0)) for offset in sorted(rows))
        found = [(frame, [match(number)]) for number in numbers]
        of_events = [rows[frame.offset + of_event[0].start] for _, of_event in found]
        for of_event, event in zip(of_events, self._read_events(found, of_events), strict=True):
            for row in of_event:
                alert = self._of_row(row, 0, self._event_behind(row) if event is None else event)
                if alert is not None:
                    yield alert

    def _of_batch(self, frame: Frame, batch: Batch, number: int) -> Event:
        context = self._context.input_contexts.get(frame.chunk.input, _NO_CONTEXT)
        match = self._engine.alone(batch, number, frame, context)
        return self._events.of(frame, match.start, match.end, match.record)

    def statements(self, most: int) -> Iterator[Alert]:
        """The alerts of ``most`` of the rows that statements have given, or of as many as are asked for."""
        statements = self._state.statements
        if not (statements or statements.waiting):
            return
        try:
            for row in islice(statements.take(), max(0, most)):
                if (alert := self._of_row(row, statements.number(row), self._event_behind(row))) is not None:
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
        return self._finished(self._incomplete(alert) if self._state.statements.incomplete(row) else alert, event)

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
        """What raises is left to whoever needs it. ``rows``: by event those of statements that filter."""
        rules, later = self._engine.plan.rules, self._stateful | self._scans
        events, alone = list[Event | None](), list[Event]()
        for (frame, matches), selected in zip(matched, rows, strict=True):
            first = matches[0]
            if self._scans and not selected and all(rules[match.rule].id in self._scans for match in matches):
                events.append(None)  # its alerts, if any, are of later
                continue
            try:
                event = self._events.of(frame, first.start, first.end, first.record)
            except Exception:  # it raises again, and is counted, where its alerts are made
                events.append(None)
                continue
            events.append(event)
            if selected:
                if not self._suppress[selected[0].statement.id]:
                    alone.append(event)
            elif rules[first.rule].id not in later:  # else its alert may be folded into another
                alone.append(event)
        for read in _READS:
            for event in alone:
                try:
                    read(event)
                except Exception:  # ``suppress`` takes three times as long
                    continue
        return events

    def folds(self) -> Iterator[Alert]:
        """Alerts that suppression has folded others into, since the last call."""
        for folded in self._state.folds():
            yield self._redacted(self._fold(folded), None)

    # --- events

    # --- out

    def _passes(self, rule: AnyRule, event: Event, group: Mapping[str, str], alert_id: str = "") -> bool:
        """False when the alert was folded into an earlier one. ``alert_id``: where it is not of ``group``."""
        # a row that has waited may be of a statement that is no longer there
        suppress = self._suppress[rule.id] if rule.id in self._suppress else self._suppression(rule)
        if suppress is None:
            return True
        values = {name: group.get(name) or as_shown(scalar(event.record.get(name))) or "" for name in suppress.by}
        logsource = rule.logsource if isinstance(rule, Rule) else LogSource()
        chunk, parts = event.frame.chunk, (logsource.product, logsource.category, logsource.service)
        source = Source(
            rule.id, rule.title, rule.digest, rule.level, rule.tags, parts, chunk.input, event.host, chunk.received_at,
            event.offset, event.end - event.start,
        )  # fmt: skip
        alert_id = alert_id or self._alert_id(rule.id, event.offset, group)
        number = event.source or self._state.clock.lane(chunk.input, event.host or "", event.time)
        return self._state.suppressor.take(suppress, values, event.time, number, alert_id, source)

    def _alert_id(self, rule_id: str, offset: int, group: Mapping[str, str]) -> str:
        return self._begun.of(rule_id, offset, SEPARATOR.join(map(fold, group.values())) if group else "")

    def _alert(
        self, rule: AnyRule, event: Event, fields: Mapping[str, str], logsource: LogSource = LogSource(), *,
        bare: bool = False, alert_id: str = "", entities: tuple[Entity, ...] | None = None,
    ) -> Alert:  # fmt: skip
        """``bare``: without what depends on the event's fields. ``alert_id``, ``entities``: others than the event's."""
        if bare:
            event = event.bare()
        agent, chunk, flags = self._agent, event.frame.chunk, event.flags
        names = _names(flags) if flags is not NO_FLAGS else ()
        return Alert(
            alert_id=alert_id or self._begun.of(rule.id, event.offset),
            rule_id=rule.id,
            rule_title=rule.title,
            rule_digest=rule.digest,
            level=rule.level,
            tags=rule.tags,
            agent_id=agent.id,
            site=agent.site,
            fleet=agent.fleet,
            host=event.host,
            event_time=event.time,
            detected_at=self._clock(),
            received_date=envelope.received_date(chunk.received_at),
            source=chunk.input,
            logsource=logsource,
            fields=fields,
            entities=event.entities() if entities is None else entities,
            raw=event.record.text,
            raw_ref=RawRef(self._log.log_id, event.offset, event.end - event.start),
            group_by=_NO_GROUP,
            bundle=self._bundle_of(rule.id),
            flags=(*names, PARTIAL) if bare else names,
            seq=self._next_seq(),  # the last: an alert that cannot be made takes none
        )

    def _detection(self, rule: Rule, number: int, event: Event) -> Alert:
        try:
            return self._alert(rule, event, self._engine.shown(number, event.record), rule.logsource)
        except Exception as error:
            self._failed(event.frame, event.start, event.end, error, rule.title)
            return self._alert(rule, event, {}, rule.logsource, bare=True)

    def _correlations(self, fired: Iterable[Firing], now: Event | None) -> Iterator[Alert]:
        for firing in fired:
            if firing.correlation.id in self._engine.plan.silent:
                continue
            same, event = now is not None and now.offset == firing.event.offset, now
            try:
                event = self._event_of(firing, now)
                alert = self._correlation(firing, event)
            except Exception as error:
                if event is None or not same:
                    event = gone(firing.event.offset, firing.event.length, firing.event.time)
                self._failed(event.frame, event.start, event.end, error, firing.correlation.title)
                group = dict(zip(firing.correlation.group_by, firing.values, strict=True))
                details = self._details(firing, event, group)
                alert = replace(self._alert(firing.correlation, event, {}, bare=True), **details)
            if alert is not None:
                if firing.incomplete:
                    alert = self._incomplete(alert)
                yield self._finished(alert, event, at_hand=same)

    def _incomplete(self, alert: Alert) -> Alert:
        """State that it is about may have given way to a bound."""
        self._context.counters.totals["alerts_incomplete"] += 1
        return replace(alert, flags=(*alert.flags, INCOMPLETE))

    def _finished(self, alert: Alert, event: Event, *, at_hand: bool = True) -> Alert:
        """``alert`` as it is kept and sent. ``at_hand``: of its event's fields it may be enriched."""
        near = event if at_hand else None
        if self._enrichment:
            alert = self._enriched(alert, near)
        if self._response.enabled:
            alert = self._responded(alert, near)
        return self._redacted(alert, event.record if event.frame.chunk.data else None)

    def _redacted(self, alert: Alert, record: Record | None) -> Alert:
        if self._redaction is None:
            return alert
        return self._redaction.of(alert, record, self._context.failures.step)

    def _responded(self, alert: Alert, event: Event | None) -> Alert:
        """With what it asks of local response."""
        try:
            asked = decide.asked(
                self._response, alert,
                lambda name: None if event is None else as_shown(scalar(event.record.get(name))),
            )  # fmt: skip
        except Exception as error:  # the alert leaves all the same
            self._context.failures.step(f"local response to an alert of {alert.rule_title}", error)
            return alert
        if asked is None:
            return alert
        others = {name: value for name, value in alert.fields.items() if name not in decide.TAKEN}
        own = {decide.TEXT: asked.text, **({decide.ADDRESS: asked.address} if asked.address else {})}
        return replace(alert, fields={**own, **others}, flags=(*alert.flags, decide.FLAG))

    def _enriched(self, alert: Alert, event: Event | None) -> Alert:
        """With the columns of lookups that the configuration asks for."""
        try:
            return self._enrichment.of(alert, lambda name: None if event is None else event.record.get(name))
        except Exception as error:  # the alert leaves all the same
            self._context.failures.step(f"enriching an alert of {alert.rule_title}", error)
            return replace(alert, flags=(*alert.flags, MISSING))

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

    def _event_of(self, firing: Firing, now: Event | None) -> Event:
        """The event at which a correlation fired; ``now``: the one that is being evaluated."""
        if now is not None and now.offset == firing.event.offset:
            return now
        return self._events.logged(firing.event.offset, firing.event.length, firing.event.time)

    def _correlation(self, firing: Firing, event: Event) -> Alert | None:
        """None when the alert was folded."""
        group = shown_group(firing, event.record.get)
        if not self._passes(firing.correlation, event, group):
            return None
        fields = dict(group)
        number = self._numbers.get(firing.event.rule_id)
        if number is not None:
            fields = {**self._engine.shown(number, event.record), **fields}
        if firing.correlation.kind.row.numeric:
            fields[firing.correlation.kind.value] = str(firing.metric)
        details = self._details(firing, event, group)
        return replace(self._alert(firing.correlation, event, fields), **details)

    def _details(self, firing: Firing, event: Event, group: Mapping[str, str]) -> dict[str, Any]:
        """What an alert of a correlation has besides."""
        return {
            "alert_id": self._alert_id(firing.correlation.id, event.offset, group),
            "kind": "correlation",
            "event_time": firing.event.time,
            "group_by": group,
            "count": firing.count,
            "first_time": firing.first_time,
            "last_time": firing.last_time,
            "contributing": tuple(
                Contribution(part.rule_id, part.time, RawRef(self._log.log_id, part.offset, part.length))
                for part in firing.contributing
            ),
        }

    def _fold(self, folded: Fold) -> Alert:
        agent, source, fold_key = self._agent, folded.source, f"fold {folded.parent_id}"
        return Alert(
            alert_id=self._begun.of(source.rule_id, source.offset, fold_key),
            parent_id=folded.parent_id,
            seq=self._next_seq(),
            kind="fold",
            rule_id=source.rule_id,
            rule_title=source.title,
            rule_digest=source.digest,
            level=source.level,
            tags=source.tags,
            agent_id=agent.id,
            site=agent.site,
            fleet=agent.fleet,
            host=source.host,
            event_time=folded.last_time,
            detected_at=self._clock(),
            received_date=envelope.received_date(source.received_at),
            source=source.input,
            logsource=LogSource(*source.logsource),
            fields=folded.values,
            entities=entities_of(folded.values, source.host),
            raw="",
            raw_ref=RawRef(self._log.log_id, source.offset, source.length),
            group_by=folded.values,
            count=folded.count,
            first_time=folded.first_time,
            last_time=folded.last_time,
            bundle=self._bundle_of(source.rule_id),
        )
