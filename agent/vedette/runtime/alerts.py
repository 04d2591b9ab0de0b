"""From matches to alerts: detections as they are, correlations when they fire, both through suppression.

``event`` takes the matches of one event, in the log's order, ``advance`` the passing of time, ``folds`` ends a frame;
each gives the alerts that result, numbered in that order. An alert of which a part cannot be made, because a decoder
raises, is still emitted: with its event as text, without fields and entities, flagged ``PARTIAL``. What is
kept from one call to the next is in ``state/state.py``. An alert about an event of an earlier frame (a
correlation that could only be decided now) reads that event, with all its audit records, back from the raw log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import structlog

from vedette.decode.decoder import Record, record
from vedette.decode.entities import entities
from vedette.delivery import envelope
from vedette.engine.join import gather
from vedette.engine.match import Context, Engine, Match
from vedette.model.counters import Log
from vedette.model.event import Alert, Chunk, Contribution, Flag, Frame, LogSource, RawRef
from vedette.plan.ir import Rule, as_shown, fold
from vedette.plan.relation import Correlation, Suppress
from vedette.runtime.context import RunContext
from vedette.state.clock import clamp
from vedette.state.firing import Firing, shown_group
from vedette.state.graph import scalar
from vedette.state.state import State
from vedette.state.suppress import Fold, Source

logger = structlog.get_logger()

SEPARATOR = "\0"
"""Between the values of a group in an alert's id."""
PARTIAL = "partial"
"""Among an alert's ``flags``."""


@lru_cache(maxsize=64)
def _names(flags: Flag) -> tuple[str, ...]:
    return tuple(str(flag.name).lower() for flag in flags)


class _Event(NamedTuple):
    """An event with its place and its time; ``source``: its lane (``state/clock.py``)."""

    frame: Frame
    start: int
    end: int
    record: Record
    host: str | None
    time: int
    flags: Flag
    source: int = 0

    @property
    def offset(self) -> int:
        return self.frame.offset + self.start


class AlertBuilder:
    """See the module's text."""

    def __init__(self, context: RunContext, state: State, engine: Engine, bundle: str | None = None) -> None:
        """``bundle``: the one that ``engine`` is of."""
        self._context, self._state = context, state
        self._agent, self._contexts, self._log = context.config.agent, context.input_contexts, context.raw_log
        self._clock, self._next_seq, self._failed = context.clock, context.restart.take_seq, context.failures.event
        self._use(engine, bundle)

    def switch(self, engine: Engine, bundle: str | None) -> None:
        """Go on under another plan, by the settings in force."""
        self._state.switch(engine.plan)
        self._use(engine, bundle)

    def _use(self, engine: Engine, bundle: str | None) -> None:
        self._settings, self._bundle = self._context.config.suppress, bundle
        self._engine, plan = engine, engine.plan
        self._numbers = {rule.id: number for number, rule in enumerate(plan.rules)}
        every: list[Rule | Correlation] = [*plan.rules, *plan.correlations]
        self._suppress = {one.id: self._suppression(one) for one in every}
        self._stateful = {
            rule.id for rule in plan.rules if self._suppress[rule.id] or self._state.correlator.graph.wants(rule.id)
        }

    def _suppression(self, rule: Rule | Correlation) -> Suppress | None:
        """What the configuration says of this rule, else the rule itself, else the configuration of all."""
        named = next((one for one in self._settings if rule.id in one.rules), None)
        if named is None and rule.suppress is not None:
            return rule.suppress
        chosen = named or next((one for one in self._settings if not one.rules), None)
        return None if chosen is None else Suppress(chosen.by, chosen.for_)

    # --- in

    def advance(self, received_at: int) -> Iterator[Alert]:
        """The alerts that follow from time having come to ``received_at``."""
        yield from self._correlations(self._state.advance(received_at), None)
        yield from self.folds()

    def event(self, frame: Frame, matches: Sequence[Match]) -> Iterator[Alert]:
        """The alerts that follow from an event of ``frame``: its matches, by the rules' order in the plan."""
        if not matches:
            return
        silent, graph, first = self._engine.plan.silent, self._state.correlator.graph, matches[0]
        found = [(self._engine.plan.rules[match.rule], match) for match in matches]
        event = self._event(frame, first.start, first.end, first.record)
        if any(rule.id in self._stateful for rule, _ in found):
            lane, jumps = self._state.observe(frame.chunk.input, event.host, event.time)
            event = event._replace(source=lane, flags=event.flags | Flag.TIME_JUMP if jumps else event.flags)
        for rule, match in found:
            if rule.id in silent:
                continue
            try:
                passes = self._passes(rule, event, {})
            except Exception as error:  # better one alert too many
                self._failed(frame, event.start, event.end, error, rule.title)
                passes = True
            if passes:
                yield self._detection(rule, match.rule, event)
        wanted = [rule.id for rule, _ in found if graph.wants(rule.id)]
        if wanted:
            length = first.end - first.start
            try:
                fired = self._state.match(wanted, event.record, event.source, event.time, event.offset, length)
            except Exception as error:
                self._failed(frame, event.start, event.end, error, "correlations")
                fired = []
            yield from self._correlations(fired, event)

    def folds(self) -> Iterator[Alert]:
        """Alerts that suppression has folded others into, since the last call."""
        for one in self._state.folds():
            yield self._fold(one)

    # --- events

    def _event(self, frame: Frame, start: int, end: int, event: Record) -> _Event:
        chunk = frame.chunk
        flags = chunk.flags(start)
        time, clamped = clamp(event.event_time, chunk.received_at)
        if clamped:
            flags |= Flag.CLAMPED_TIME
        context = self._contexts.get(chunk.input, Context())
        return _Event(frame, start, end, event, event.host or context.host, time, flags)

    def _read(self, offset: int, length: int) -> _Event | None:
        """An event of the log; None when the log does not hold it any more."""
        frames = self._log.frames(offset, count_lost=False)
        for frame in frames:
            start = offset - frame.offset
            if start < 0 or start >= len(frame.chunk.data):
                return None
            chunk, context = frame.chunk, self._contexts.get(frame.chunk.input, Context())
            data = record(
                gather(chain((frame,), frames), offset) or chunk.data[start : start + length],
                chunk.codec,
                origin=chunk.origin(start),
                received_at=chunk.received_at,
                zone=context.zone,
                logsource=context.logsource,
            )
            return self._event(frame, start, start + length, data)
        return None

    # --- out

    def _passes(self, rule: Rule | Correlation, event: _Event, group: Mapping[str, str]) -> bool:
        """False when the alert was folded into an earlier one."""
        suppress = self._suppress[rule.id]
        if suppress is None:
            return True
        values = {name: group.get(name) or as_shown(scalar(event.record.get(name))) or "" for name in suppress.by}
        logsource = rule.logsource if isinstance(rule, Rule) else LogSource()
        chunk, parts = event.frame.chunk, (logsource.product, logsource.category, logsource.service)
        source = Source(
            rule.id, rule.title, rule.digest, rule.level, rule.tags, parts, chunk.input, event.host, chunk.received_at,
            event.offset, event.end - event.start,
        )  # fmt: skip
        alert_id = self._alert_id(rule.id, event.offset, group)
        number = event.source or self._state.clock.lane(chunk.input, event.host or "", event.time)
        return self._state.suppressor.take(suppress, values, event.time, number, alert_id, source)

    def _alert_id(self, rule_id: str, offset: int, group: Mapping[str, str]) -> str:
        key = SEPARATOR.join(fold(value) for value in group.values())
        return envelope.alert_id(self._agent.id, self._log.log_id, rule_id, offset, key)

    def _alert(self, rule: Rule | Correlation, event: _Event, *, bare: bool = False, **more: object) -> Alert:
        """``bare``: without what depends on the event's fields."""
        if bare:
            event = event._replace(record=record(event.frame.chunk.data[event.start : event.end], "text"))
        agent, chunk = self._agent, event.frame.chunk
        given: dict[str, object] = {
            "alert_id": self._alert_id(rule.id, event.offset, {}),
            "rule_id": rule.id,
            "rule_title": rule.title,
            "rule_digest": rule.digest,
            "level": rule.level,
            "tags": rule.tags,
            "agent_id": agent.id,
            "site": agent.site,
            "fleet": agent.fleet,
            "host": event.host,
            "event_time": event.time,
            "detected_at": self._clock(),
            "received_date": envelope.received_date(chunk.received_at),
            "source": chunk.input,
            "entities": () if bare else entities(event.record.fields(), event.host),
            "raw": event.record.text,
            "raw_ref": RawRef(self._log.log_id, event.offset, event.end - event.start),
            "bundle": self._bundle,
            "flags": (*_names(event.flags), *([PARTIAL] if bare else ())),
        }
        return Alert(**{**given, **more}, seq=self._next_seq())  # type: ignore[arg-type]

    def _detection(self, rule: Rule, number: int, event: _Event) -> Alert:
        try:
            return self._alert(rule, event, logsource=rule.logsource, fields=self._engine.shown(number, event.record))
        except Exception as error:
            self._failed(event.frame, event.start, event.end, error, rule.title)
            return self._alert(rule, event, bare=True, logsource=rule.logsource)

    def _correlations(self, fired: Iterable[Firing], now: _Event | None) -> Iterator[Alert]:
        for one in fired:
            if one.correlation.id in self._engine.plan.silent:
                continue
            try:
                alert = self._correlation(one, now)
            except Exception as error:
                event = now if now is not None and now.offset == one.event.offset else self._gone(one)
                self._failed(event.frame, event.start, event.end, error, one.correlation.title)
                group = dict(zip(one.correlation.group_by, one.values, strict=True))
                alert = self._alert(one.correlation, event, bare=True, **self._details(one, event, group))
            if alert is not None:
                yield alert

    def _event_of(self, one: Firing, now: _Event | None) -> _Event:
        """The event at which a correlation fired; ``now``: the one that is being evaluated."""
        if now is not None and now.offset == one.event.offset:
            return now
        try:
            return self._read(one.event.offset, one.event.length) or self._gone(one)
        except OSError as error:  # the alert is still built, and says where the event is
            action = "the alert is sent without its event's text"
            logger.warning(Log.RAW_LOG_UNREADABLE, reason=str(error), action=action)
            return self._gone(one)

    def _correlation(self, one: Firing, now: _Event | None) -> Alert | None:
        """None when the alert was folded."""
        event = self._event_of(one, now)
        group = shown_group(one, event.record.get)
        if not self._passes(one.correlation, event, group):
            return None
        fields = dict(group)
        number = self._numbers.get(one.event.rule_id)
        if number is not None:
            fields = {**self._engine.shown(number, event.record), **fields}
        if one.correlation.kind.row.numeric:
            fields[one.correlation.kind.value] = str(one.metric)
        return self._alert(one.correlation, event, fields=fields, **self._details(one, event, group))

    def _details(self, one: Firing, event: _Event, group: Mapping[str, str]) -> dict[str, Any]:
        """What an alert of a correlation has besides."""
        return {
            "alert_id": self._alert_id(one.correlation.id, event.offset, group),
            "kind": "correlation",
            "event_time": one.event.time,
            "group_by": group,
            "count": one.count,
            "first_time": one.first_time,
            "last_time": one.last_time,
            "contributing": tuple(
                Contribution(c.rule_id, c.time, RawRef(self._log.log_id, c.offset, c.length)) for c in one.contributing
            ),
        }

    @staticmethod
    def _gone(one: Firing) -> _Event:
        """In place of an event that the log does not hold any more."""
        frame = Frame(one.event.offset, Chunk("", "text", one.event.time, b""))
        return _Event(frame, 0, one.event.length, record(b"", "text"), None, one.event.time, Flag(0))

    def _fold(self, one: Fold) -> Alert:
        agent, source, fold_key = self._agent, one.source, f"fold {one.parent_id}"
        return Alert(
            alert_id=envelope.alert_id(agent.id, self._log.log_id, source.rule_id, source.offset, fold_key),
            parent_id=one.parent_id,
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
            event_time=one.last_time,
            detected_at=self._clock(),
            received_date=envelope.received_date(source.received_at),
            source=source.input,
            logsource=LogSource(*source.logsource),
            fields=one.values,
            entities=entities(one.values, source.host),
            raw="",
            raw_ref=RawRef(self._log.log_id, source.offset, source.length),
            group_by=one.values,
            count=one.count,
            first_time=one.first_time,
            last_time=one.last_time,
            bundle=self._bundle,
        )
