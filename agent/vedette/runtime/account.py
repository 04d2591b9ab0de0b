"""The agent checks its own account: every event and every alert is somewhere, at every moment.

Per input ``received = stored + dropped`` and ``stored = judged + backlog + lost``; for the agent
``alerts made = receipted + in outbox + lost``. Every figure is counted at its own stage and none is worked out from the
others, or the equations would always hold:

========== =====================================================================================================
received   by the input's door, when it hands over (``inputs/deliver.py``) or drops
stored     by the raw log, when it has written (``rawlog/log.py``)
judged     by the judge, when the cursor passes an event (``progress.py``)
lost       by the raw log, when it reads a frame that is damaged
backlog    by both, up at the intake and down at the judge; none when the cursor is at the end of the log
made       by the pipeline, when an alert is encoded (``committing.py``); by the store, when it is committed
receipted  by the store, when it moves an alert out of the outbox
in outbox  entries of the outbox's table, and alerts on their way to it
lost       by the store, when it is made again, and when an alert of these is (``rebuild.py``)
========== =====================================================================================================

``Auditor`` looks every ``CHECK_SECONDS``, says what newly does not hold (``identity_broken``) and when it holds again,
and counts its alarms (``totals.identity_alarms``), which a restart does not take back. All figures are read in the
event loop between two steps of it, where they are of one moment.
"""

from __future__ import annotations

import asyncio

import structlog

from vedette.delivery.queue import Outbox
from vedette.model.counters import Counters, Log
from vedette.runtime.pipeline import Pipeline

log = structlog.get_logger()

CHECK_SECONDS = 5.0


def broken(counters: Counters, pipeline: Pipeline, outbox: Outbox) -> list[str]:
    """The equations that do not hold now, in words; empty when all is well."""
    found = counters.identity(pipeline.backlog, pipeline.storing.held)
    if pipeline.progress.caught_up and (waiting := sum(pipeline.backlog.values())):
        found.append(f"all inputs: backlog {waiting}, but the log is judged to its end")
    account = outbox.account()
    made, way = counters.totals["alerts_made"], pipeline.committing.uncommitted(account.next_seq)
    if made != account.made + way:
        found.append(f"alerts: made {made} != committed {account.made} + on their way {way}")
    if made != account.receipted + account.entries + way + account.lost:
        waiting, lost = account.entries + way, f" + lost {account.lost}" if account.lost else ""
        found.append(f"alerts: made {made} != receipted {account.receipted} + in outbox {waiting}{lost}")
    return found


class Auditor:
    """Sees to it that a broken account does not go unsaid."""

    def __init__(self, counters: Counters, pipeline: Pipeline, outbox: Outbox) -> None:
        self._counters, self._pipeline, self._outbox = counters, pipeline, outbox
        self._known: set[str] = set()
        """Names of the equations that did not hold at the last look."""
        if pipeline.progress.inherited:
            self._alarm(pipeline.progress.inherited)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(CHECK_SECONDS)

    def look(self) -> list[str]:
        """Check now; returns what does not hold, and says what is new of it."""
        found = broken(self._counters, self._pipeline, self._outbox)
        names = {_name(one) for one in found}
        if names - self._known:
            self._alarm([one for one in found if _name(one) not in self._known])
        if self._known and not names:
            log.warning(Log.IDENTITY_RESTORED, action="the account adds up again")
        self._known = names
        return found

    def _alarm(self, reasons: list[str]) -> None:
        self._counters.totals["identity_alarms"] += 1
        log.error(
            Log.IDENTITY_BROKEN,
            reasons=reasons,
            action="the agent goes on; keep its log and its data folder, and report it",
        )


def _name(reason: str) -> str:
    """An equation without its figures, which change."""
    return "".join(c for c in reason if not c.isdigit())
