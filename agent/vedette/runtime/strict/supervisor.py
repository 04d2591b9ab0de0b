"""One strict rule set in the agent: its process is started at the set's cursor, and again when it has ended.

A change of rules or settings ends the process and starts the next one at the cursor: what it had not committed is
evaluated again, under the same alert ids. A process that dies is followed by another after a back-off, which is over
when the cursor has moved. What it was at is in the black box (``blackbox.py``); of what one died of twice, the next
leaves out the rule, or the event (``watched.py``). A correlation, statement or decoder plugin that was at work in
``CONDEMNED_AFTER`` deaths, less than ``FORGET_SECONDS`` apart, goes into quarantine: the others are then evaluated on
the events at which they died. Where several in a row die of a step that is about no event, at one cursor, and none of
these was at work, the state is what they die of: the next one starts with an empty one.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from vedette.config.settings import RulesetSettings
from vedette.model.counters import Log
from vedette.runtime.pipeline.blackbox import EVENTLESS, BlackBox, Note, Stage
from vedette.runtime.pipeline.checkpointer import Checkpointer
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.strict.account import Account, Sent
from vedette.runtime.strict.messages import Begin
from vedette.runtime.strict.process import Ended, KilledFromOutside, Process
from vedette.runtime.strict.watched import ALL, UNSCANNED, Blamed, Suspect
from vedette.store.store import quarantined_of
from vedette.system.trouble import Backoff

log = structlog.get_logger()

BACKOFF = (0.2, 30.0)
FEED_SECONDS = 0.002
"""Between two words about what the raw log holds."""
IDLE_SECONDS = 1.0
"""Longest time between them."""
FINISH_SECONDS = 0.05
"""The same when the agent is about to stop."""
SUSPECTS = 100
EXCLUDED = 10_000
CONDEMNED_AFTER = 3
"""Deaths at one correlation, statement or decoder plugin."""
FORGET_SECONDS = 3600.0
OF_PLUGINS = (Stage.LOADING, Stage.DECODING)
EVENTLESS_DEATHS = 5
"""In a row at one cursor, after which the state is given up: three seconds of back-off."""


class Isolated(NamedTuple):
    """What a strict rule set evaluates with. ``plan``: a file (``engine/artifact.py``)."""

    plan: Path
    digest: str
    lookups: Mapping[str, Path]
    credit: str | None


def _checked(counters: Any) -> dict[str, Any]:
    """Of what a process counted what is taken. Raises TypeError, ValueError, KeyError or AttributeError."""
    none = {"received": 0, "stored": 0, "bytes_in": 0, "cut": 0, "dropped": {}}
    return {
        "inputs": {
            str(name): {
                **none,
                "judged": int(row["judged"]),
                "lost": {str(reason): int(events) for reason, events in row["lost"].items()},
            }
            for name, row in counters["inputs"].items()
        },
        "totals": {str(name): int(count) for name, count in counters["totals"].items()},
    }


class StrictSet:
    def __init__(
        self, context: RunContext, checkpointer: Checkpointer, settings: RulesetSettings, account: Account,
        isolated: Isolated,
    ) -> None:  # fmt: skip
        self._context, self._checkpointer = context, checkpointer
        self.settings, self.account, self.isolated = settings, account, isolated
        self._box = BlackBox.make()
        self._backoff = Backoff(BACKOFF)
        self._process: Process | None = None
        self._again = asyncio.Event()
        """Set to have another process in place of this one."""
        self._pending: asyncio.Future[None] | None = None
        """Of the last batch."""
        self._suspects: list[Suspect] = []
        self._excluded: dict[int, tuple[str, ...]] = {}
        self._deadly = Counter[str]()
        self._at_work = Counter[str]()
        """By id of a correlation or statement, or name of a plugin, deaths while it ran."""
        self._plugins: set[str] = set()
        """Those of ``_at_work`` that are plugins."""
        self._without: dict[int, str] = {}
        """By offset of an event the plugin that is in quarantine since."""
        self._blamed_at = 0.0
        """Monotonic: the last of these."""
        self._eventless = 0
        """Deaths in a row in a step that is about no event."""
        self._finishing = False
        self.starts = self.deaths = 0
        self.last_death = ""
        self.waiting_until = 0.0
        """Monotonic: when the next process is started; 0: one is running."""
        self.figures: dict[str, Any] = {}
        self.by_rule = Counter[str]()
        """Alerts since the agent began, by the id of their rule."""
        self.titles: dict[str, str] = {}
        """Of these rules."""
        self._spent = 0.0
        """CPU seconds of the processes before."""

    # --- what the agent asks for

    def replace(self, settings: RulesetSettings, isolated: Isolated) -> None:
        """Go on with these."""
        self.settings, self.isolated = settings, isolated
        self.account.max_backlog = settings.backlog_bytes(self._context.config.raw_log)
        self._suspects, self._excluded, self._deadly, self._at_work = [], {}, Counter(), Counter()
        self._without = {}
        self._again.set()

    async def release(self) -> None:
        """Nothing is in quarantine any more."""
        loop, name = asyncio.get_running_loop(), quarantined_of(self.account.name)
        await loop.run_in_executor(self._context.writer, self._context.store.put, name, None)
        self.replace(self.settings, self.isolated)

    def finish(self) -> None:
        """The agent is about to stop: what is evaluated is to be committed without waiting for more."""
        self._finishing = True
        self.account.arrived.set()

    @property
    def caught_up(self) -> bool:
        """Whether all that is stored is committed; so it counts while no process runs: nobody waits for that."""
        return self._process is None or self.account.committed >= self._context.raw_log.end

    def close(self) -> None:
        if self._process is not None:
            self._process.kill("the agent ended")
        self._box.close()

    # --- the process

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._again.clear()
                before, reason, outside = self.account.committed, "", False
                try:
                    await self._one()
                except (Ended, OSError) as error:
                    reason, outside = str(error), isinstance(error, KilledFromOutside)
                if self.account.committed > before:
                    self._backoff.reset()
                    self._eventless = 0
                if not reason:
                    continue
                self._died(reason, outside)
                if self._eventless >= EVENTLESS_DEATHS:
                    await self._give_up_state()
                wait = self._backoff.failed()
                self.waiting_until = time.monotonic() + wait
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._again.wait()
                self.waiting_until = 0.0
        finally:
            self.close()

    async def _one(self) -> None:
        """One process, to its end. Raises Ended or OSError when that was not asked for."""
        self._box.note(Stage.OTHER)
        process = self._process = await Process.start(self.settings, self._box.descriptor)
        self.starts += 1
        parts = (
            self._converse(process),
            process.watch(),
            self._again.wait(),
            self._moved(self.account.generation),
        )
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[1].done():  # it has ended: why, its conversation knows
                await asyncio.wait({tasks[0]}, timeout=5.0)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await process.end()
            self._spent += process.cpu_seconds
            self._process = None
        asked = any(task.done() and not task.cancelled() for task in tasks[2:])
        if not asked and (error := None if tasks[0].cancelled() else tasks[0].exception()) is not None:
            raise error

    async def _moved(self, generation: int) -> None:
        """Until the cursor has moved otherwise than by what the process sent."""
        while self.account.generation == generation:
            await asyncio.sleep(0.2)

    async def _converse(self, process: Process) -> None:
        if self._pending is not None:  # what the process before sent last
            await asyncio.shield(self._pending)
        await process.begin(self._begin(), self._context.store.of_set(self.account.name).parts())
        feeding = asyncio.create_task(self._feed(process))
        try:
            async for message in process.messages():
                await self._take(process, message)
        finally:
            feeding.cancel()
            await asyncio.wait({feeding})

    def _begin(self) -> Begin:
        context, account, isolated = self._context, self.account, self.isolated
        return Begin(
            context.config, self.settings, isolated.plan, dict(isolated.lookups), isolated.credit,
            context.raw_log.log_id,
            self._log_now(), context.raw_log.newest, account.committed, account.row()[2],
            context.store.get(quarantined_of(account.name)), self._blamed(),
            {**context.failures.forbidden(), **self._forbidden()}, self._box.descriptor,
        )  # fmt: skip

    def _blamed(self) -> Blamed:
        condemned = {part: deaths for part, deaths in self._at_work.items() if deaths >= CONDEMNED_AFTER}
        return Blamed(tuple(self._suspects), dict(self._excluded), dict(self._deadly), condemned, dict(self._without))

    def _forbidden(self) -> dict[str, str]:
        """The plugins that this set does without, and why."""
        reason = f"{CONDEMNED_AFTER} processes of the rule set {self.account.name} died while it was at work"
        return {part: reason for part in sorted(self._plugins) if self._at_work[part] >= CONDEMNED_AFTER}

    def _log_now(self) -> tuple[int, int, int, int]:
        raw_log = self._context.raw_log
        return raw_log.start, raw_log.end, raw_log.events, self._context.outbox.bytes

    async def _feed(self, process: Process) -> None:
        arrived = self.account.arrived
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FINISH_SECONDS if self._finishing else IDLE_SECONDS):
                    await arrived.wait()
            arrived.clear()
            await process.say("log", *self._log_now())
            if self._finishing and not self.caught_up:
                await process.say("commit")
            await asyncio.sleep(FEED_SECONDS)

    async def _take(self, process: Process, message: list[Any]) -> None:
        try:
            match message:
                case ["alive", dict(figures)]:
                    if not self.figures:
                        log.info(Log.RULESET_STARTED, ruleset=self.account.name, pid=process.pid)
                    self.figures = figures
                case ["batch", *parts]:
                    await self._commit(*parts)
                    store = self._context.store.of_set(self.account.name)
                    await process.say("done", store.is_long(), self._context.outbox.bytes)
                case _:
                    raise ValueError(f"{message[0]!r:.40}")
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            process.kill(f"what it sent is no message: {error}")

    async def _commit(
        self, offset: int, counters: Any, alerts: list[bytes], counts: Mapping[Any, Any], state: bytes, begins: bool,
        whole: bool, quarantined: Any, rows_wait: bool,
    ) -> None:  # fmt: skip
        account = self.account
        if not account.committed <= offset <= self._context.raw_log.end:
            raise ValueError(f"a cursor of {offset}")
        by_rule = {str(rule): (str(title), int(count)) for rule, (title, count) in counts.items()}
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sent = Sent(account, offset, _checked(counters), alerts, state, begins, whole, quarantined, rows_wait, done)
        self._checkpointer.take_sent(sent)
        self._pending = done
        self.titles |= {rule: title for rule, (title, _) in by_rule.items()}
        self.by_rule.update({rule: count for rule, (_, count) in by_rule.items()})
        await asyncio.shield(done)
        self._suspects = [suspect for suspect in self._suspects if suspect.last >= offset]
        self._excluded = {at: rules for at, rules in self._excluded.items() if at >= offset}
        self._without = {at: part for at, part in self._without.items() if at >= offset}

    # --- what it died of

    def _died(self, reason: str, outside: bool) -> None:
        self.deaths += 1
        note, self.figures = self._box.read(), {}
        what = self._condemn(note, outside) or self._blame(note)
        self.last_death = f"{reason}{what}"
        log.error(
            Log.RULESET_DIED, ruleset=self.account.name, reason=self.last_death, offset=self.account.committed,
            action="it goes on at its cursor; other rule sets are not touched",
        )  # fmt: skip

    async def _give_up_state(self) -> None:
        """Raises ValueError when the store is damaged."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._context.writer, self._context.store.forget_state, self.account.name)
        except OSError:  # after the next death again
            return
        self._eventless = 0
        log.error(
            Log.STATE_LOST, ruleset=self.account.name,
            reason=f"{EVENTLESS_DEATHS} processes in a row ended over it: {self.last_death}",
            action="correlations, statements and suppression of this rule set start empty",
        )  # fmt: skip

    def _condemn(self, note: Note, outside: bool) -> str:
        """``_blame`` of a correlation, statement or plugin; empty when none was at work, or it is in quarantine
        already. A plugin may have killed its process itself."""
        of_plugin, now = note.stage in OF_PLUGINS, time.monotonic()
        at_work = "" if note.stage is Stage.MATCHING or (outside and not of_plugin) else note.part
        if now - self._blamed_at > FORGET_SECONDS:
            self._at_work = Counter(
                {part: deaths for part, deaths in self._at_work.items() if deaths >= CONDEMNED_AFTER}
            )
        if not at_work or self._at_work[at_work] >= CONDEMNED_AFTER:
            return ""
        self._blamed_at, self._eventless = now, 0
        self._at_work[at_work] += 1
        if not of_plugin:
            return f"; at the correlation or statement {at_work}"
        self._plugins.add(at_work)
        if note.stage is Stage.DECODING and self._at_work[at_work] >= CONDEMNED_AFTER:
            self._without[note.first] = at_work
        return f"; at the plugin {at_work}"

    def _blame(self, note: Note) -> str:
        """What the next process does otherwise; in words."""
        first, last, stage, part = note
        if (eventless := EVENTLESS.get(stage)) is not None:
            self._eventless += 1
            return f"; {eventless}"
        self._eventless = 0
        if stage is Stage.OTHER or last < self.account.committed or last > self._context.raw_log.end:
            return ""
        if stage is Stage.FRAME:
            self._suspects = [*self._suspects[-SUSPECTS:], Suspect(first, last)]
            return f"; at the events from offset {first} on"
        left_out = {Stage.SCANNING: UNSCANNED, Stage.ALERTS_ALONE: ALL}.get(stage, part)
        if len(self._excluded) < EXCLUDED:
            self._excluded[first] = (*self._excluded.get(first, ()), left_out)
        if stage is Stage.MATCHING:
            self._deadly[part] += 1
            return f"; at the rule {part} on the event at offset {first}"
        return f"; at {'the alerts of ' if left_out == ALL else ''}the event at offset {first}"

    def status(self) -> dict[str, Any]:
        """JSON-able."""
        process, figures = self._process, self.figures
        return {
            "pid": process.pid if process else None,
            "running": bool(process and figures),
            "starts": self.starts,
            "deaths": self.deaths,
            "last_death": self.last_death or None,
            "without_plugins": [*self._forbidden()],
            "starts_again_in": round(max(0.0, self.waiting_until - time.monotonic()), 1) if self.waiting_until else 0,
            "private_bytes": process.private if process else 0,
            "resident_bytes": process.resident if process else 0,
            "peak_bytes": process.peak if process else 0,
            "max_memory": self.settings.max_memory,
            "max_cpu": self.settings.max_cpu,
            "max_seconds": self.settings.max_seconds,
            "max_backlog": self.account.max_backlog,
            "cpu_seconds": round(self._spent + (process.cpu_seconds if process else 0.0), 3),
            "inputs": self.account.status(),
        }
