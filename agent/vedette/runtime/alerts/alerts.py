"""From matches to alerts: detections as they are, correlations when they fire, all through suppression.

``of`` takes the matches of events, in the log's order, ``advance`` the passing of time; what suppression has closed
comes from ``folds``. Each gives the alerts that result, numbered in that order. An alert of which a part cannot be
made, because a decoder raises, is still emitted: with its event as text, without fields and entities, flagged
``PARTIAL``. What is kept from one call to the next is in ``state/state.py``. An alert about an event of an earlier
frame (a correlation that could only be decided now) reads that event, with all its audit records, back from the raw
log. What an alert goes through once it is made is ``Finish``; a plan with statements has the builder of
``rows.py``, which makes alerts of their rows as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

from vedette.decode.decoder import Record
from vedette.decode.entities import entities as entities_of
from vedette.delivery import envelope
from vedette.engine.join import Joined
from vedette.engine.match import Context, Engine, Match
from vedette.engine.rows import Batch
from vedette.model.event import NO_FLAGS, Alert, Contribution, Entity, Flag, Frame, LogSource, RawRef
from vedette.plan.ir import Rule, Suppress, as_shown, fold, scalar
from vedette.plan.plan import AnyRule, Plan
from vedette.runtime.alerts.events import Event, Events, gone
from vedette.runtime.pipeline.context import EvaluationContext
from vedette.state.state import State
from vedette.state.suppress import Fold, Source

if TYPE_CHECKING:
    from vedette.runtime.alerts.enrich import Enrichment
    from vedette.runtime.alerts.redact import AlertRedaction
    from vedette.state.firing import Firing

SEPARATOR = "\0"
"""Between the values of a group in an alert's id."""
AHEAD_SECONDS = 0.003
"""For which events of alerts that are made together are decoded before the first is made."""
PARTIAL, INCOMPLETE = "partial", "incomplete"
"""Among an alert's ``flags``."""
NO_CONTEXT = Context()
NO_GROUP: Mapping[str, str] = {}


@lru_cache(maxsize=64)
def _names(flags: Flag) -> tuple[str, ...]:
    return tuple(str(flag.name).lower() for flag in flags)


Credit = str | Mapping[str, str] | None
"""What alerts have as their ``bundle``: all the same, or by the id of the rule."""


_READS: tuple[Callable[[Event], object], ...] = (lambda event: event.record.fields(), Event.entities)


def as_written(rule_id: str, sets: Iterable[str]) -> set[str]:
    """The ids by which a configuration may name a rule of a plan that is merged of ``sets``: that in the plan, and that
    in its own set."""
    return {rule_id, *(rule_id.removesuffix(f"@{name}") for name in sets)}


class AlertBuilder:
    """See the module's text."""

    def __init__(self, context: EvaluationContext, state: State, engine: Engine, bundle: Credit = None) -> None:
        """``bundle``: what ``engine`` is of. By the settings in force and the plan that ``state`` is at."""
        self._context, self._state, self._engine = context, state, engine
        self._agent, self._log = context.config.agent, context.raw_log
        plan, config = engine.plan, context.config
        self._events = Events(context, plan.codecs)
        self._clock, self._next_seq, self._failed = context.clock, context.restart.take_seq, context.failures.event
        self._settings = config.suppress
        self._sets = [ruleset.name for ruleset in config.rulesets]
        self._bundle_of = bundle.get if isinstance(bundle, Mapping) else lambda _: bundle
        self._finish = Finish(context, plan)
        self._numbers = {rule.id: number for number, rule in enumerate(plan.rules)}
        every: list[AnyRule] = [*plan.rules, *plan.correlations, *plan.statements]
        self._suppress = {rule.id: self._suppression(rule) for rule in every}
        graph = state.correlator.graph
        self._wanted = {rule.id for rule in plan.rules if graph.wants(rule.id)}
        """Rules that correlations look at."""
        self._stateful = self._wanted | {rule.id for rule in plan.rules if self._suppress[rule.id]}
        self._begun = envelope.AlertId(self._agent.id, self._log.log_id)

    def _suppression(self, rule: AnyRule) -> Suppress | None:
        """What the configuration says of this rule, else the rule itself, else the configuration of all."""
        by_rule = (settings for settings in self._settings if settings.rules)
        named = next((by for by in by_rule if not as_written(rule.id, self._sets).isdisjoint(by.rules)), None)
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
        read = [self._read_event(frame, matches[0]) for frame, matches in events]
        rules = self._engine.plan.rules
        firsts = [rules[matches[0].rule].id for _, matches in events]
        self._look_ahead(
            event
            for event, first in zip(read, firsts, strict=True)
            if event is not None and first not in self._stateful  # else its alert may be folded into another
        )
        for (frame, matches), event in zip(events, read, strict=True):
            yield self._of(frame, matches, event)

    def _of(self, frame: Frame, matches: Sequence[Match], event: Event | None) -> Iterator[Alert]:
        """``event``: None when it could not be read."""
        plan, first = self._engine.plan, matches[0]
        matched = [(plan.rules[match.rule], match.rule) for match in matches]
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
                passes = self._passes(rule, event, NO_GROUP)
            except Exception as error:  # better one alert too many
                self._failed(frame, event.start, event.end, error, rule.title)
                passes = True
            if passes:
                yield self._finish.of(self._detection(rule, number, event), event)
        if self._wanted and (wanted := [rule.id for rule, _ in matched if rule.id in self._wanted]):
            length = first.end - first.start
            try:
                fired = self._state.match(wanted, event.record, event.source, event.time, event.offset, length)
            except Exception as error:
                self._failed(frame, event.start, event.end, error, "correlations")
                fired = []
            yield from self._correlations(fired, event)

    def _read_event(self, frame: Frame, match: Match) -> Event | None:
        """None where it raises: it raises again, and is counted, where its alerts are made."""
        try:
            return self._events.of(frame, match.start, match.end, match.record)
        except Exception:
            return None

    @staticmethod
    def _look_ahead(events: Iterable[Event]) -> None:
        """Decode what the alerts of ``events`` need. What raises is left to whoever needs it, as is what is late."""
        until = time.perf_counter() + AHEAD_SECONDS
        for read, event in product(_READS, events):
            if time.perf_counter() >= until:
                return
            try:
                read(event)
            except Exception:  # ``suppress`` takes three times as long
                continue

    # --- rows of statements, which a plan without statements does not have: ``rows.py``

    def parts(self, events: Iterable[Joined | Batch], most: int) -> Iterable[Joined | Batch]:
        """``events`` in parts that are evaluated at once: where one may give an alert an event, of ``most`` at most."""
        return events

    def filters(self, batch: Batch) -> bool:
        """Whether ``of_batch`` gives all that comes of these events."""
        return False

    def take(self, frame: Frame, batch: Batch) -> None:
        """Events to the statements for which rules select them: their alerts are given by ``statements``."""

    def of_batch(self, frame: Frame, batch: Batch) -> Iterator[Alert]:
        """The alerts of statements that only filter the events of a batch."""
        return iter(())

    def statements(self, most: int) -> Iterator[Alert]:
        """The alerts of ``most`` of the rows that statements have given, or of as many as are asked for."""
        return iter(())

    # --- what suppression has closed

    def folds(self) -> Iterator[Alert]:
        """Alerts that suppression has folded others into, since the last call."""
        for folded in self._state.folds():
            yield self._finish.redacted(self._fold(folded), None)

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
            group_by=NO_GROUP,
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
                yield self._finish.of(alert, event, at_hand=same)

    def _incomplete(self, alert: Alert) -> Alert:
        """State that it is about may have given way to a bound."""
        self._context.counters.totals["alerts_incomplete"] += 1
        return replace(alert, flags=(*alert.flags, INCOMPLETE))

    def _event_of(self, firing: Firing, now: Event | None) -> Event:
        """The event at which a correlation fired; ``now``: the one that is being evaluated."""
        if now is not None and now.offset == firing.event.offset:
            return now
        return self._events.logged(firing.event.offset, firing.event.length, firing.event.time)

    def _correlation(self, firing: Firing, event: Event) -> Alert | None:
        """None when the alert was folded."""
        from vedette.state.firing import shown_group  # there by now: see ``state/state.py``

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


class Finish:
    """The steps that an alert of one plan takes once it is made, before it is kept: enriched, given to local response,
    redacted, in this order, by the settings in force. Each takes an alert and gives one; none holds it back: one that
    fails is counted, and the alert leaves. A step is imported by the agents whose configuration has it."""

    def __init__(self, context: EvaluationContext, plan: Plan) -> None:
        self._failed = context.failures.step
        config = context.config
        self._enrichment: Enrichment | None = None
        self._redaction: AlertRedaction | None = None
        self._respond: Callable[[Alert, Callable[[str], str | None]], Alert] | None = None
        if config.enrich:
            from vedette.runtime.alerts.enrich import Enrichment

            self._enrichment = Enrichment(config.enrich, plan.lookups, context.counters)
        if config.response.enabled:
            from vedette.response.decide import marked

            settings = config.response
            self._respond = lambda alert, get: marked(settings, alert, get)
        if config.redact:
            from vedette.runtime.alerts.redact import AlertRedaction

            self._redaction = AlertRedaction(config, plan, context.counters)

    def of(self, alert: Alert, event: Event, *, at_hand: bool = True) -> Alert:
        """``alert`` as it is kept and sent. ``at_hand``: of its event's fields it may be enriched."""
        near = event if at_hand else None
        if self._enrichment is not None:
            alert = self._enrichment.safely(
                alert, lambda name: None if near is None else near.record.get(name), self._failed
            )
        if self._respond is not None:
            try:
                alert = self._respond(
                    alert, lambda name: None if near is None else as_shown(scalar(near.record.get(name)))
                )
            except Exception as error:  # the alert leaves all the same
                self._failed(f"local response to an alert of {alert.rule_title}", error)
        return self.redacted(alert, event.record if event.frame.chunk.data else None)

    def redacted(self, alert: Alert, record: Record | None) -> Alert:
        """``record``: the event that the alert is about; None: it has none, or that is gone."""
        return alert if self._redaction is None else self._redaction.of(alert, record, self._failed)
