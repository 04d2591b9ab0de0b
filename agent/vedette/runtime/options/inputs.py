"""The inputs that are open, a task for each, and whether each that is configured works.

Opened at start, changed by a reload, closed together at the stop. One that cannot be opened keeps no other waiting: it
is tried again until it is open, and ``states`` says why it is not. A fault of one, whatever it raises, is no end of the
others: where it ends ``run`` it is closed and tried again in the same way; after one in a callback of the event loop it
goes on, and is failing until it has run for a while without. Only a raw log that cannot be written (OSError) ends all.
An input that is closed leaves its context: events of it may still wait for evaluation. One that is opened again goes on
where its events end in the raw log, evaluated or not: files by ``Progress.positions``, MQTT by the log's newest
messages.
"""

from __future__ import annotations

import asyncio
import math
import socket
import traceback
from collections.abc import Coroutine, Sequence
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from zoneinfo import ZoneInfo

import structlog

from vedette.engine.match import Context
from vedette.inputs.base import Running, Surroundings
from vedette.inputs.condition import OPENING, WORKS, Condition, failing, waiting
from vedette.inputs.opening import opened
from vedette.inputs.settings import InputSettings
from vedette.model.counters import Log
from vedette.model.event import LogSource
from vedette.rawlog import read
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.pipeline.ingest import Ingest
from vedette.system import descriptors
from vedette.system.descriptors import ADVICE
from vedette.system.trouble import BACKOFF, Backoff

log = structlog.get_logger()

STEADY_SECONDS = BACKOFF[1]
"""Of running without a fault, after which an input that had one works again: the longest pause before it is tried."""
MAX_TEXT = 500
"""Characters of what a fault says of itself, in the agent's own log."""
MAX_PLACES = 10
CLOSED = "the input is closed, and tried again unless it was to end"


class Inputs:
    def __init__(self, context: RunContext, ingest: Ingest, group: asyncio.TaskGroup, file: Path | None) -> None:
        """Their tasks run in ``group``; the context's ``input_contexts`` follow the inputs. ``file``: of the
        configuration."""
        self._context, self._ingest, self._group, self._file = context, ingest, group, file
        self._surroundings = Surroundings(
            ingest,
            context.counters,
            context.clock,
            context.config.agent.id,
            positions=lambda: context.progress.positions.values(),
            private=self._private,
            recent=partial(read.recent_messages, context.config.agent.raw_dir),
            recall=context.store.get,
            remember=lambda *value: self._loop.run_in_executor(context.writer, context.store.put, *value),
        )
        self._open: dict[str, tuple[Running, asyncio.Task[None]]] = {}
        self._refused: dict[str, tuple[InputSettings, str]] = {}
        """Those that could not be opened, and why."""
        self._faults: dict[str, tuple[str, float]] = {}
        """Those that ended by a fault: why, and from when on, by the loop's clock, it is over."""
        self._retrying: asyncio.Task[None] | None = None
        self._backoff, self._retried = Backoff(), -math.inf
        """The pauses of ``_retry``, and when it ended last."""
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._changing = asyncio.Lock()
        self._shares = share(descriptors.limit(), ())

    def __len__(self) -> int:
        return len(self._open)

    def _private(self, descriptor: int) -> bool:
        """Whether an open file is the agent's own. Raises OSError."""
        from vedette.config.private import is_private  # with the first file that an input opens

        return is_private(self._context.config, self._file, descriptor)

    def share(self, inputs: tuple[InputSettings, ...]) -> None:
        """Give each of ``inputs`` its part of the descriptors, those that are open among them."""
        self._shares = share(descriptors.limit(), inputs)
        if lines := remarks(self._shares, inputs):
            log.warning(Log.DESCRIPTORS_FEW, limit=self._shares.limit, reason="; ".join(lines))
        for name, (running, _) in self._open.items():
            running.bound(self._shares.of(name))

    def states(self, inputs: tuple[InputSettings, ...]) -> list[dict[str, Any]]:
        """Of each of ``inputs``, as status, heartbeat and metrics have it; JSON-able."""
        conditions = {settings.name: self._condition(settings.name) for settings in inputs}
        return [{"name": name, "state": state, "reason": reason} for name, (state, reason) in conditions.items()]

    def _condition(self, name: str) -> Condition:
        if name in self._refused:
            return failing(self._refused[name][1])
        if name not in self._open:
            return OPENING
        if name in self._faults and self._loop.time() < self._faults[name][1]:
            return failing(self._faults[name][0])
        condition = self._open[name][0].condition
        paused = condition.state == WORKS.state and not self._ingest.accepting()
        return waiting("the raw log takes nothing at the moment") if paused else condition

    async def start(self, inputs: tuple[InputSettings, ...]) -> None:
        """Open all that can be opened."""
        self.share(inputs)
        async with self._changing:
            for settings in inputs:
                await self._try(settings)

    async def _try(self, settings: InputSettings) -> None:
        """Open it, or have it tried again."""
        name = settings.name
        try:
            await self._open_one(settings)
        except OSError as error:
            reason = (error.strerror or str(error)).removeprefix(f"input {name!r}: ")
            if (before := self._refused.get(name)) is None or before[1] != reason:
                log.error(Log.CONFIG_REFUSED, mistakes=[f"input {name!r}: {reason}"], action="the input is tried again")
            self._try_again(settings, reason)

    def _try_again(self, settings: InputSettings, reason: str) -> None:
        self._refused[settings.name] = settings, reason
        if self._retrying is None:
            self._retrying = self._group.create_task(self._retry())

    async def _retry(self) -> None:
        if self._loop.time() - self._retried >= STEADY_SECONDS:  # else one was opened and failed again: longer pauses
            self._backoff.reset()
        while self._refused:
            await asyncio.sleep(self._backoff.failed())
            async with self._changing:
                for settings, _ in [*self._refused.values()]:
                    await self._try(settings)
        self._retried = self._loop.time()
        self._retrying = None

    async def _open_one(self, settings: InputSettings) -> None:
        """Raises OSError when it cannot be opened."""
        input_context = context_of(settings)
        try:
            running = await opened(settings, self._surroundings, self._shares.of(settings.name))
        except OSError:
            raise
        except Exception as error:  # a fault of one input is no end of the others
            raise OSError(f"input {settings.name!r}: {self._report(settings.name, error)}") from error
        self._refused.pop(settings.name, None)
        self._context.input_contexts[settings.name] = input_context
        if settings.name in self._faults:
            self._faults[settings.name] = self._faults[settings.name][0], self._loop.time() + STEADY_SECONDS
        self._open[settings.name] = running, self._group.create_task(self._run(settings, running))

    async def _run(self, settings: InputSettings, running: Running) -> None:
        """Run it until it is closed or ends by a fault. Raises OSError when the raw log cannot be written."""
        error = await _fault(running.run())
        if error is not None:
            reason = self._report(settings.name, error)
            await self._stop(settings.name, running)
            if not self._closing and self._open.get(settings.name, (None,))[0] is running:
                del self._open[settings.name]
                self._try_again(settings, reason)

    async def _stop(self, name: str, running: Running) -> None:
        if (error := await _fault(running.stop())) is not None:
            self._report(name, error)

    def blamed(self, error: BaseException | None) -> bool:
        """Whether ``error``, which a callback of the event loop or a task has raised, came through an open input: that
        is failing then."""
        owners = (
            [] if error is None else [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
        )
        for name, (running, _) in self._open.items():
            if isinstance(error, Exception) and any(owner is running for owner in owners):
                reason = self._report(name, error, "the input goes on without what it was at")
                self._faults[name] = reason, self._loop.time() + STEADY_SECONDS
                return True
        return False

    def _report(self, name: str, error: Exception, action: str = CLOSED) -> str:
        """Log a fault, once while its reason lasts; return the reason."""
        places = _places(error)
        inner = next(place for place in reversed(places) if place.startswith("vedette."))
        reason = f"a fault of the agent: {type(error).__name__} at {inner}"
        before, over = self._faults.get(name, ("", 0.0))
        if before != reason or self._loop.time() >= over:
            text, places = str(error)[:MAX_TEXT], places[-MAX_PLACES:]  # not in the reason: they may quote an event
            log.error(Log.INPUT_FAILED, input=name, reason=reason, text=text, places=places, action=action)
        self._faults[name] = reason, math.inf
        return reason

    async def _close(self, name: str) -> None:
        if self._refused.pop(name, None) is None:
            running, task = self._open.pop(name)
            await self._stop(name, running)
            await asyncio.wait({task})
        self._faults.pop(name, None)

    async def close_all(self) -> None:
        self._closing = True
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.wait({self._retrying})
        await asyncio.gather(*(self._stop(name, running) for name, (running, _) in self._open.items()))

    async def adopt(
        self, before: tuple[InputSettings, ...], after: tuple[InputSettings, ...]
    ) -> tuple[tuple[InputSettings, ...], list[str]]:
        """Close what is gone or changed, open what is new or changed; what cannot be opened is as it was.

        Returns the inputs that are in force now, and why others are not.
        """
        async with self._changing:
            return await self._adopt(before, after)

    async def _adopt(
        self, before: tuple[InputSettings, ...], after: tuple[InputSettings, ...]
    ) -> tuple[tuple[InputSettings, ...], list[str]]:
        old, new = ({item.name: item for item in items} for items in (before, after))
        changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        refused: list[str] = []
        now = dict(new)
        self.share(after)
        for name in changed:
            if name in old:
                await self._close(name)
        for name in changed:
            if name not in new:
                continue
            try:
                await self._open_in_time(new[name])
            except OSError as error:
                refused.append(str(error))
                del now[name]
                self._faults.pop(name, None)
                if name in old:
                    await self._try(old[name])
                    now[name] = old[name]
        if refused:
            self.share(tuple(now.values()))
        return tuple(now.values()), refused

    async def _open_in_time(self, settings: InputSettings) -> None:
        """``_open_one``, retried while no file descriptor is left."""
        logged = False
        while True:
            try:
                await self._open_one(settings)
                return
            except OSError as error:
                if error.errno not in descriptors.SPENT:
                    raise
                if not logged:
                    logged = True
                    action = f"retrying; {descriptors.ADVICE}"
                    log.error(Log.DESCRIPTORS_SPENT, input=settings.name, reason=str(error), action=action)
                await asyncio.sleep(descriptors.RETRY_SECONDS)


async def _fault(work: Coroutine[Any, Any, None]) -> Exception | None:
    """What ``work`` raises by a fault of its own. Raises OSError."""
    try:
        await work
    except OSError:
        raise
    except Exception as error:  # a fault of one input is no end of the others
        return error
    return None


def _places(error: Exception) -> list[str]:
    """Modules and lines that it came through, the innermost last."""
    return [f"{frame.f_globals.get('__name__', '')}:{line}" for frame, line in traceback.walk_tb(error.__traceback__)]


class Described(Protocol):
    """What an input's settings say about its events."""

    @property
    def timezone(self) -> str: ...
    @property
    def logsource(self) -> LogSource: ...
    @property
    def local(self) -> bool: ...


def context_of(item: Described) -> Context:
    return Context(
        ZoneInfo(item.timezone) if item.timezone else host_zone(),
        item.logsource,
        socket.gethostname() if item.local else None,
    )


def host_zone() -> tzinfo | None:
    """The host's time zone, of times that name none; None is UTC. Raises OSError when no descriptor is left."""
    try:
        with open("/etc/localtime", "rb") as file:
            return ZoneInfo.from_file(file)
    except ValueError:
        return None
    except OSError as error:
        if error.errno in descriptors.SPENT:  # UTC instead would be wrong, and nobody would know
            raise
        return None


OWN = 64
"""Of the agent: standard streams, store, raw log, uplink, control socket, metrics, and what child processes need."""
EACH = 8
"""Of an input: its listening sockets, or its connection to a broker."""
LEAST = 128
"""Below this the agent may lack descriptors whatever it does."""


class Shares(NamedTuple):
    """``files`` and ``connections`` by input: how many it may hold open."""

    limit: int
    files: dict[str, int]
    connections: dict[str, int]

    def of(self, name: str) -> int:
        return self.files.get(name, 0) or self.connections.get(name, 0)


def share(limit: int, inputs: Sequence[InputSettings]) -> Shares:
    """Divide the file descriptors that this process may have (``system/descriptors.py``).

    The agent itself comes first, then the files that inputs hold open (at most half of the rest; a file that is closed
    is opened again when it grows), then connections. So however many connect, files, raw log, store, uplink and control
    socket have what they need. Where the limit leaves fewer connections than are configured, each input gets its part
    of them."""
    left = limit - OWN - EACH * len(inputs)
    files = _within({settings.name: settings.open_files for settings in inputs if settings.open_files}, left // 2)
    left -= sum(files.values())
    connections = {settings.name: settings.connections for settings in inputs if settings.connections}
    return Shares(limit, files, _within(connections, left))


def _within(wanted: dict[str, int], most: int) -> dict[str, int]:
    """The same, or where it is more than ``most`` its part of it, one at least."""
    total = sum(wanted.values())
    return wanted if total <= most else {name: max(1, n * most // total) for name, n in wanted.items()}


def remarks(shares: Shares, inputs: Sequence[InputSettings]) -> list[str]:
    """What an operator should know of them."""
    lines = []
    if shares.limit < LEAST:
        lines.append(f"the limit of open files is {shares.limit}, and the agent needs {LEAST}: {ADVICE}")
    for settings in inputs:
        if shares.connections.get(settings.name, settings.connections) < settings.connections:
            lines.append(
                f"input {settings.name!r}: max_connections = {settings.connections}, of which"
                f" {shares.connections[settings.name]} fit the limit of open files, {shares.limit}: {ADVICE}"
            )
    return lines
