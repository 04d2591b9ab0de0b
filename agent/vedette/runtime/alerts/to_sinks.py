"""Rows of statements for sinks: the JSON that leaves, without what ``[[redact]]`` hides, into the next commit.

A row is no alert: it has no envelope, no entities, is not suppressed and not enriched. With ``[[redact]]`` its texts
are hidden as those of an alert's fields are, and any other value that is hidden is null. A statement whose sink this
agent does not have, or not for rows, makes none: that is logged when rules or settings change, and is in the status.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from vedette.delivery.rows import RowQueues
from vedette.model.counters import Log
from vedette.plan.plan import Plan
from vedette.plan.query import Row
from vedette.runtime.alerts.events import Event
from vedette.runtime.pipeline.context import EvaluationContext, RunContext
from vedette.stream.statements import Selected
from vedette.stream.written import Values, as_line, written

log = structlog.get_logger()


class SinkRows:
    """See the module's text."""

    def __init__(self, context: EvaluationContext, plan: Plan) -> None:
        self._queues, taking = None, frozenset[str]()
        if isinstance(context, RunContext):  # in the process of a strict rule set no sink takes rows
            self._queues = rows_of(context)
            taking = frozenset(sink.name for sink in context.config.sink if sink.takes != "alerts")
        self._sinks = taking
        self._values = dict[tuple[str, str], Callable[[Row], Values]]()
        self._hide: Callable[[Selected, Values, Event], Values] | None = None
        if context.config.redact:
            from vedette.runtime.alerts.redact import ColumnRedaction

            self._hide = ColumnRedaction(context.config, plan, context.counters, context.failures.step).of
        without = [statement for statement in plan.statements if statement.sink not in ("", *self._sinks)]
        if without:
            log.warning(
                Log.SINK_MISSING, sinks=sorted({statement.sink for statement in without}),
                statements=[statement.title for statement in without],
                action='they make no rows: add a [[sink]] of this name with takes = "rows"',
            )  # fmt: skip

    def add(self, row: Selected, event: Callable[[], Event]) -> None:
        """``event``: the newest behind the row, read when it is asked for."""
        statement = row.statement
        if self._queues is None or (sink := statement.sink) not in self._sinks:
            return
        name = statement.id, statement.digest
        if (values_of := self._values.get(name)) is None:
            values_of = self._values[name] = written(statement.root.columns)
        values = values_of(row.row)
        if self._hide is not None:
            values = self._hide(row, values, event())
        self._queues.add(sink, as_line(values))


def rows_of(context: RunContext) -> RowQueues:
    """Return the rows of an agent's store. Raises OSError, ValueError."""
    if context.rows is None:
        agent = context.config.agent
        of_agent = {"agent_id": agent.id, "fleet": agent.fleet, "site": agent.site, "host": None}
        head = {**of_agent, "level": "informational", "kind": "row"}
        context.rows = RowQueues(context.store.env, context.writer, context.outbox.log_id, head)
    return context.rows
