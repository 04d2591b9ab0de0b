"""All strict rule sets of an agent: which there are, when they begin and end, and what the rest of it asks of them.

* A set that becomes strict begins where the evaluation of the others is, with an empty state.
* One that is merged again, or gone, gives up its cursor and its state; what it had not evaluated is logged
  (``ruleset_merged``), and its events are none of the others' business: they have evaluated theirs.

What starts and follows a process (``supervisor.py``) is imported with the first strict set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from vedette.config.settings import RulesetSettings
from vedette.model.counters import Log
from vedette.runtime.pipeline.checkpointer import Checkpointer
from vedette.runtime.pipeline.context import RunContext

if TYPE_CHECKING:
    from vedette.runtime.strict.supervisor import Isolated, StrictSet

log = structlog.get_logger()


class StrictSets:
    """Belongs to the event loop."""

    def __init__(self, context: RunContext, checkpointer: Checkpointer) -> None:
        self._context, self._checkpointer = context, checkpointer
        self.running: dict[str, StrictSet] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Until cancelled; an error that is none of a process ends the agent."""
        async with asyncio.TaskGroup() as self._group:
            for name, strict in self.running.items():
                self._tasks[name] = self._group.create_task(strict.run())
            await asyncio.Event().wait()

    def update(self, settings: RulesetSettings, isolated: Isolated, position: int) -> None:
        """The set evaluates with this from now on; a new one from raw offset ``position`` on. Raises OSError."""
        if (former := self.running.get(settings.name)) is not None:
            if (former.settings, former.isolated) != (settings, isolated):
                former.replace(settings, isolated)
            return
        from vedette.runtime.strict.supervisor import StrictSet

        context = self._context
        backlog = settings.backlog_bytes(context.config.raw_log)
        account = context.isolate().begin(settings.name, position, backlog)
        strict = self.running[settings.name] = StrictSet(context, self._checkpointer, settings, account, isolated)
        log.info(Log.RULESET_ISOLATED, ruleset=settings.name, offset=account.committed)
        if self._group is not None:
            self._tasks[settings.name] = self._group.create_task(strict.run())

    async def keep(self, names: set[str]) -> None:
        """All others are strict no more. Raises OSError."""
        accounts = self._context.isolate()
        for name in {*self.running, *accounts.left} - names:
            strict, task = self.running.pop(name, None), self._tasks.pop(name, None)
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
            await self._checkpointer.commit()  # what its process sent last
            waiting = sum(strict.account.progress.backlog.values()) if strict is not None else None
            accounts.forget(name)
            store, loop = self._context.store, asyncio.get_running_loop()
            await loop.run_in_executor(self._context.writer, store.forget_set, name)
            log.warning(
                Log.RULESET_MERGED, ruleset=name, not_evaluated=waiting,
                action="its cursor and its state are gone; if it is configured, it goes on with the others",
            )  # fmt: skip

    def restart(self) -> None:
        """Settings have changed that processes begin with."""
        for strict in self.running.values():
            strict.replace(strict.settings, strict.isolated)

    async def release(self) -> None:
        """Nothing is in quarantine any more."""
        for strict in self.running.values():
            await strict.release()

    def finish(self) -> None:
        """The agent is about to stop."""
        for strict in self.running.values():
            strict.finish()

    @property
    def quarantined(self) -> int:
        """Rules in quarantine."""
        return sum(strict.figures.get("quarantined_count", 0) for strict in self.running.values())

    @property
    def caught_up(self) -> bool:
        return all(strict.caught_up for strict in self.running.values())

    def close(self) -> None:
        for strict in self.running.values():
            strict.close()

    def broken(self) -> list[str]:
        """The equations of accounts that do not hold now."""
        return [line for strict in self.running.values() for line in strict.account.broken()]

    def status(self) -> Mapping[str, dict[str, Any]]:
        """JSON-able, by set: its row in the status, and as ``process`` what it runs in."""
        rows = {}
        for name, strict in self.running.items():
            figures, progress = strict.figures, strict.account.progress
            rows[name] = {
                "us_per_event": round(figures.get("evaluation_seconds", 0.0) * 1e6 / (figures.get("events") or 1), 4),
                "state_bytes": figures.get("state_bytes", 0),
                "alerts": strict.account.counters.totals["alerts_made"],
                "quarantined": figures.get("quarantined_count", 0) + figures.get("formats_quarantined", 0),
                "lag_events": sum(progress.backlog.values()),
                "lag_seconds": progress.lag,
                "process": strict.status() | {"quarantined": figures.get("quarantined", [])},
            }
        return rows
