"""The agent checks its own account: every event and every alert is somewhere, at every moment.

Per input ``received = stored + dropped`` and ``stored = judged + backlog + lost``; for the agent
``alerts made = receipted + in outbox + lost``. Every figure is counted at its own stage and none is worked out from the
others, or the equations would always hold:

========== =====================================================================================================
received   by the input, when it hands over (``inputs/base.py``) or drops
stored     by the raw log, when it has written (``rawlog/log.py``)
judged     by the evaluator, when the cursor passes an event (``progress.py``)
lost       by the raw log, when it reads a frame that is damaged
backlog    by both, up at ingestion and down at evaluation; none when the cursor is at the end of the log
made       by the checkpointer, when an alert is encoded; by the store, when it is committed
receipted  by the store, when it moves an alert out of the outbox
in outbox  entries of the outbox's table, and alerts on their way to it
lost       by the store, when it is made again, and when an alert of these is (``rebuild.py``)
========== =====================================================================================================

``Auditor`` checks every ``CHECK_SECONDS``, logs what newly does not hold (``identity_broken``) and when it holds again,
and counts its alarms (``totals.identity_alarms``), which a restart does not take back. All figures are read in the
event loop between two steps of it, where they are of one moment.
"""

from __future__ import annotations

import structlog

from vedette.model.counters import Log
from vedette.runtime.pipeline.pipeline import Pipeline

log = structlog.get_logger()

CHECK_SECONDS = 5.0


def broken(pipeline: Pipeline) -> list[str]:
    """The equations that do not hold now, in words; empty when all is well."""
    context = pipeline.context
    counters, account = context.counters, context.outbox.account()
    reasons = counters.identity(pipeline.backlog, pipeline.ingest.held)
    if context.progress.caught_up and (waiting := sum(pipeline.backlog.values())):
        reasons.append(f"all inputs: backlog {waiting}, but the log is evaluated to its end")
    counted, way = counters.totals["alerts_made"], pipeline.checkpointer.uncommitted(account.next_seq)
    if counted != account.made + way:
        reasons.append(f"alerts: made {counted} != committed {account.made} + on their way {way}")
    if counted != account.receipted + account.entries + way + account.lost:
        waiting, lost = account.entries + way, f" + lost {account.lost}" if account.lost else ""
        reasons.append(f"alerts: made {counted} != receipted {account.receipted} + in outbox {waiting}{lost}")
    return [*reasons, *(() if pipeline.strict is None else pipeline.strict.broken())]


class Auditor:
    """Logs a broken account."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._alarmed: set[str] = set()
        """Names of the equations that did not hold at the last check."""
        if pipeline.context.progress.inherited:
            self._alarm(pipeline.context.progress.inherited)

    def check(self) -> list[str]:
        """What does not hold now; what is new of it is logged."""
        reasons = broken(self._pipeline)
        names = {_name(reason) for reason in reasons}
        if names - self._alarmed:
            self._alarm([reason for reason in reasons if _name(reason) not in self._alarmed])
        if self._alarmed and not names:
            log.warning(Log.IDENTITY_RESTORED, action="the account adds up again")
        self._alarmed = names
        return reasons

    def _alarm(self, reasons: list[str]) -> None:
        self._pipeline.context.counters.totals["identity_alarms"] += 1
        log.error(
            Log.IDENTITY_BROKEN,
            reasons=reasons,
            action="the agent goes on; keep its log and its data folder, and report it",
        )


def _name(reason: str) -> str:
    """An equation without its figures, which change."""
    return "".join(c for c in reason if not c.isdigit())
