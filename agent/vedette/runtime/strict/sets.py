"""All strict rule sets of an agent: which there are, when they begin and end, and what the rest of it asks of them.

* A set that becomes strict begins where the evaluation of the others is, with an empty state.
* One that is merged again, or gone, gives up its cursor and its state; what it had not evaluated is logged
  (``ruleset_merged``), and its events are none of the others' business: they have evaluated theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from vedette.config.settings import RulesetSettings
from vedette.model.counters import Log
from vedette.runtime.checkpointer import Checkpointer
from vedette.runtime.context import RunContext
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
            for name, one in self.running.items():
                self._tasks[name] = self._group.create_task(one.run())
            await asyncio.Event().wait()

    def update(self, settings: RulesetSettings, isolated: Isolated, position: int) -> None:
        """The set evaluates with this from now on; a new one from raw offset ``position`` on. Raises OSError."""
        if (known := self.running.get(settings.name)) is not None:
            if (known.settings, known.isolated) != (settings, isolated):
                known.replace(settings, isolated)
            return
        context = self._context
        backlog = settings.backlog_bytes(context.config.raw_log)
        account = context.accounts.begin(settings.name, position, backlog)
        one = self.running[settings.name] = StrictSet(context, self._checkpointer, settings, account, isolated)
        log.info(Log.RULESET_ISOLATED, ruleset=settings.name, offset=account.committed)
        if self._group is not None:
            self._tasks[settings.name] = self._group.create_task(one.run())

    async def keep(self, names: set[str]) -> None:
        """All others are strict no more. Raises OSError."""
        for name in {*self.running, *self._context.accounts.left} - names:
            one, task = self.running.pop(name, None), self._tasks.pop(name, None)
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
            await self._checkpointer.commit()  # what its process sent last
            waiting = sum(one.account.progress.backlog.values()) if one is not None else None
            self._context.accounts.forget(name)
            store, loop = self._context.store, asyncio.get_running_loop()
            await loop.run_in_executor(self._context.writer, store.forget_set, name)
            log.warning(
                Log.RULESET_MERGED, ruleset=name, not_evaluated=waiting,
                action="its cursor and its state are gone; if it is configured, it goes on with the others",
            )  # fmt: skip

    def restart(self) -> None:
        """Settings have changed that processes begin with."""
        for one in self.running.values():
            one.replace(one.settings, one.isolated)

    async def release(self) -> None:
        """Nothing is in quarantine any more."""
        for one in self.running.values():
            await one.release()

    def finish(self) -> None:
        """The agent is about to stop."""
        for one in self.running.values():
            one.finish()

    @property
    def quarantined(self) -> int:
        """Rules in quarantine."""
        return sum(one.figures.get("quarantined_count", 0) for one in self.running.values())

    @property
    def caught_up(self) -> bool:
        return all(one.caught_up for one in self.running.values())

    def close(self) -> None:
        for one in self.running.values():
            one.close()

    def broken(self) -> list[str]:
        """The equations of accounts that do not hold now."""
        return [line for one in self.running.values() for line in one.account.broken()]

    def status(self) -> Mapping[str, dict[str, Any]]:
        """JSON-able, by set: its row in the status, and as ``process`` what it runs in."""
        now = self._context.clock()
        found = {}
        for name, one in self.running.items():
            figures, progress = one.figures, one.account.progress
            since, events = figures.get("waiting_since", 0), figures.get("events", 0)
            behind = sum(progress.backlog.values())
            found[name] = {
                "us_per_event": round(figures.get("evaluation_seconds", 0.0) * 1e6 / (events or 1), 4),
                "state_bytes": figures.get("state_bytes", 0),
                "alerts": one.account.counters.totals["alerts_made"],
                "quarantined": figures.get("quarantined_count", 0) + figures.get("formats_quarantined", 0),
                "lag_events": behind,
                "lag_seconds": max(0.0, (now - since) / 1e6) if since and behind else 0.0,
                "process": one.status() | {"quarantined": figures.get("quarantined", [])},
            }
        return found
