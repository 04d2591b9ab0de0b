"""Redaction of alerts: the last step before the outbox, so that uplink, sinks, ``vedette alerts`` and the region have
the same, and of what a retro-hunt finds.

Evaluation is over by then: ids, groups and suppression go by the values themselves. What is left of an alert says so in
its ``flags``: ``REDACTED``, and ``REDACTED:NAME`` for each field, or ``raw``, ``entities``, ``host``, ``title``,
``tags``. Redaction never holds an alert back: one at which it fails leaves without all that came of its event, flagged
``FAILED``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from vedette.config.redact import redaction
from vedette.config.settings import Config
from vedette.decode.decoder import Record
from vedette.decode.redact import MARK, Redaction, Shown
from vedette.model.counters import Counters, Log
from vedette.model.event import Alert, Entity
from vedette.plan import lineage
from vedette.plan.plan import AnyRule, Plan
from vedette.response import decide

if TYPE_CHECKING:
    from vedette.runtime.alerts.events import Event
    from vedette.stream.statements import Selected

logger = structlog.get_logger()

REDACTED, FAILED = "redacted", "redaction_failed"
"""Among an alert's ``flags``."""
MAX_NAMED, MAX_NAME = 40, 200
"""Flags that say where, and characters of a name in one."""
_NO_ORIGINS: Mapping[str, Iterable[str]] = {}


class Origins:
    """By rule the fields behind what its alerts name otherwise."""

    def __init__(self, plan: Plan) -> None:
        self._of = {rule.id: lineage.of_correlation(rule) for rule in plan.correlations}
        self._of |= {rule.id: lineage.of_statement(rule) for rule in plan.statements}
        every: list[AnyRule] = [*plan.rules, *plan.correlations, *plan.statements]
        self.titles = {rule.id: (rule.title, rule.tags) for rule in every}

    def of(self, rule_id: str) -> Mapping[str, Iterable[str]]:
        return self._of.get(rule_id, _NO_ORIGINS)


class AlertRedaction:
    """See the module's text."""

    def __init__(self, config: Config, plan: Plan, counters: Counters) -> None:
        self._redaction, wrong = redaction(config)
        self._counters, self._origins = counters, Origins(plan)
        if wrong:
            logger.error(Log.REDACTION_KEY, reason=wrong)

    def of(self, alert: Alert, record: Record | None, failed: Callable[[str, Exception], None]) -> Alert:
        """``record``: the event that the alert is about; None: it has none, or that is gone. ``failed`` is given what
        redaction itself raises."""
        try:
            redacted = self._of(alert, record)
        except Exception as error:  # whatever it is: the alert leaves, with nothing of its event
            title, tags = self._origins.titles.get(alert.rule_id, ("", ()))
            failed(f"redacting an alert of {title}", error)  # the rule's own title: the alert's may quote its event
            self._counters.totals["redactions_failed"] += 1
            redacted = replace(
                alert, rule_title=title, tags=tags, host=None, fields={}, entities=(), raw="", group_by={},
                flags=(*alert.flags, REDACTED, FAILED),
            )  # fmt: skip
        if redacted is not alert:
            self._counters.totals["alerts_redacted"] += 1
        return redacted

    def _of(self, alert: Alert, record: Record | None) -> Alert:
        title, tags = self._origins.titles.get(alert.rule_id, (alert.rule_title, alert.tags))
        texts = [] if alert.rule_title == title else [alert.rule_title]
        texts += [] if alert.tags == tags else alert.tags
        fields = None
        if record is not None:
            try:
                fields = record.fields()
            except Exception:  # the alert is flagged ``partial`` for that
                fields = None
        shown = Shown({**alert.group_by, **alert.fields}, self._origins.of(alert.rule_id), texts, alert.entities)
        case = self._redaction.case(alert.raw, fields, host=alert.host, shown=shown)
        alert_fields, group = case.fields(alert.fields), case.fields(alert.group_by)
        entities = dict[Entity, None]()
        for entity in alert.entities:
            value = case.entity(entity.kind, entity.value)
            if value is not None:
                entities[Entity(entity.kind, value)] = None
        host, named = alert.host, alert.rule_title
        if host:
            host = case.host(host)
        if texts and named != title:
            named = case.text(named, "title")
        if alert.tags != tags:
            tags = tuple(case.text(tag, "tags") for tag in alert.tags)
        raw, _ = case.raw()
        if case.failed:
            self._counters.totals["redactions_failed"] += case.failed
        if not case.redacted:
            return alert
        if decide.FLAG in alert.flags and alert_fields.get(decide.ADDRESS) != alert.fields.get(decide.ADDRESS):
            alert_fields = {**alert_fields, decide.TEXT: "nothing blocked: the address is redacted"}
            alert_fields.pop(decide.ADDRESS, None)
        flags = [*alert.flags, REDACTED, *([FAILED] if case.failed else [])]
        flags += [f"{REDACTED}:{name[:MAX_NAME]}" for name in case.redacted][:MAX_NAMED]
        return replace(
            alert, rule_title=named, tags=tags, host=host, fields=alert_fields, group_by=group,
            entities=tuple(entities), raw=raw, flags=tuple(flags),
        )  # fmt: skip


class ColumnRedaction:
    """Of rows of statements for sinks."""

    def __init__(
        self, config: Config, plan: Plan, counters: Counters, failed: Callable[[str, Exception], None]
    ) -> None:
        """``failed``: see ``AlertRedaction.of``."""
        (self._redaction, _), self._counters, self._failed = redaction(config), counters, failed
        self._origins = Origins(plan)

    def of(self, row: Selected, values: dict[str, Any], event: Event) -> dict[str, Any]:
        """``values``, without what is hidden; ``event``: the newest behind the row. Where redaction fails, nothing is
        left of it."""
        try:
            record = event.record if event.frame.chunk.data else None
            fields = {name: text(row.row[at]) for at, name, text in row.every if row.row[at] is not None}
            shown = Shown(fields, self._origins.of(row.statement.id), [], ())
            text, every, host = ("", None, None) if record is None else (record.text, record.fields(), event.host)
            case = self._redaction.case(text, every, host=host, shown=shown)
            left = case.fields(fields)
            self._counters.totals["redactions_failed"] += case.failed
        except Exception as error:  # a decoder, or redaction itself: the row counts, and says nothing
            self._failed(f"redacting a row of {row.statement.title}", error)
            self._counters.totals["redactions_failed"] += 1
            return dict.fromkeys(values)
        return {
            name: value if name not in fields or left.get(name) == fields[name]
            else left.get(name) if isinstance(value, str) else None
            for name, value in values.items()
        }  # fmt: skip


class RowRedaction:
    """Of rows that ``vedette scan`` would print."""

    def __init__(self, redaction: Redaction, plan: Plan) -> None:
        self._redaction, self._origins = redaction, Origins(plan)

    def host(self, host: str) -> str:
        return self._redaction.case("", {}, host=host).host(host) or MARK

    def row(self, row: Mapping[str, Any], record: Record | None) -> dict[str, Any]:
        """Raises what a decoder raises."""
        fields = {name: str(value) for name, value in row["fields"].items()}
        title, (own, _) = row["rule_title"], self._origins.titles[row["rule_id"]]
        texts = [] if title == own else [title]
        shown, text, every = Shown(fields, self._origins.of(row["rule_id"]), texts), "", None
        if record is not None:
            text, every = record.text, record.fields()
        case = self._redaction.case(text, every, host=None if record is None else record.host, shown=shown)
        return {**row, "rule_title": case.text(title) if texts else title, "fields": case.fields(fields)}
