"""``python -m vedette.runtime.strict.worker``: the process that evaluates one rule set in strict isolation.

The stages are the agent's own: ``Stored`` reads the raw log beside its writer, the evaluator is the same, and what it
makes goes to the agent (``messages.py``), which commits it. Nothing is kept here: a process that dies is followed by
one that begins at the set's cursor, and its alerts have the same ids.

Bounds: private memory by RLIMIT_DATA (a quarter more than the agent's own watch allows), a share of the CPU by sleeping
between steps, ``nice`` below the agent. A MemoryError ends it: what is left is of no use. It dies with the agent.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import pickle
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
import structlog

from vedette.decode.formats import base as formats
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.lookup.sets import engine_of
from vedette.lookup.table import Lookup
from vedette.model.counters import Counters, Log
from vedette.model.event import Cursor, Frame
from vedette.rawlog.checkpoint import Checkpoint, RestartPoint
from vedette.runtime.agent.logs import configure_logging, report_suppressed
from vedette.runtime.options.inputs import context_of
from vedette.runtime.pipeline.blackbox import NOWHERE, BlackBox, Stage
from vedette.runtime.pipeline.context import EvaluationContext
from vedette.runtime.pipeline.failures import DeadLetters, Failures
from vedette.runtime.pipeline.progress import Progress
from vedette.runtime.pipeline.stored import Stored
from vedette.runtime.strict.beside import LogBeside
from vedette.runtime.strict.messages import ALIVE_SECONDS, LENGTH, OUT_OF_MEMORY, Begin, frame
from vedette.runtime.strict.sender import Sender
from vedette.runtime.strict.watched import Watched
from vedette.state.state import State
from vedette.store.store import Saved
from vedette.system import descriptors, memory
from vedette.system.wallclock import WallClock
from vedette.udf.host import Host, Limits

log = structlog.get_logger()

NICE = 5
THROTTLE_SECONDS = 0.02
"""Between two looks at the CPU that was used."""
LONGEST_SLEEP = 0.25
_PR_SET_PDEATHSIG = 1


class FatalFailures(Failures):
    """Those of the agent, but where memory is over the process is."""

    def event(self, frame: Frame, start: int, end: int, error: Exception, about: str = "") -> None:
        _end_without_memory(error)
        super().event(frame, start, end, error, about)

    def step(self, what: str, error: Exception) -> None:
        _end_without_memory(error)
        super().step(what, error)


def _end_without_memory(error: Exception) -> None:
    if isinstance(error, MemoryError):
        os._exit(OUT_OF_MEMORY)


def _read(file: BinaryIO) -> bytes:
    """A frame; ends the process when the agent is gone."""
    head = file.read(LENGTH.size)
    if len(head) == LENGTH.size:
        (size,) = LENGTH.unpack(head)
        data = file.read(size)
        if len(data) == size:
            return data
    os._exit(0)


class Worker:
    def __init__(self, begin: Begin, taking: BinaryIO, giving: int) -> None:
        self._begin, self._taking, self._giving = begin, taking, giving
        config, ruleset = begin.config, begin.ruleset
        self._counters = Counters()
        self._log = LogBeside(config.agent.raw_dir, begin.log_id, self._counters)
        self._log.advance(*begin.log[:3])
        clock = WallClock()
        clock.begin(begin.newest)
        restart = RestartPoint(self._counters)
        restart.begin(Checkpoint(), Checkpoint())
        saved = Saved(Cursor(begin.log_id, begin.offset), begin.counters, [])
        progress = Progress(self._log, self._counters, saved, {})
        self._letters = letters = DeadLetters(config.agent.quarantine_dir / ruleset.name)
        failures = FatalFailures(self._counters, letters, begin.log_id, begin.quarantined)
        self._context = EvaluationContext(config, self._log, self._counters, clock, restart, progress, failures)
        self._context.input_contexts.update((item.name, context_of(item)) for item in config.input)
        self._box = box = BlackBox(begin.blackbox)
        if config.plugins.allow:
            from vedette.runtime.options import decoders

            calls = decoders.Calls(box, begin.forbidden, careful=bool(begin.blamed.suspects))
            decoders.adopt(config, calls)
        self._engine = _engine(begin)
        settings = config.functions
        self._functions = Host(Limits(settings.max_seconds, settings.max_memory)) if settings.allow else None
        with box.within(Stage.RESTORING, NOWHERE):
            self._state = self._restored()
        self._engine.prepare(tuple(dict.fromkeys((item.codec, item.logsource) for item in config.input)))
        self._stored = Stored(self._context)
        self._sender = Sender(self._context, self._state, self._send, begin.log[3], box)
        self._evaluator = Watched(
            self._context, self._stored, self._sender, self._state, self._engine, box, begin.credit,
            blamed=begin.blamed,
        )  # fmt: skip
        self._started, self._used = time.monotonic(), time.process_time()

    def _restored(self) -> State:
        def parts() -> Any:
            while part := msgpack.unpackb(_read(self._taking))[1]:
                yield part

        stored, state = parts(), self._empty()
        try:
            state.restore(stored)
        except ValueError as error:
            for _ in stored:
                pass
            state = self._empty()  # part of it may have been restored
            log.error(Log.STATE_LOST, reason=str(error), action="correlations and suppression start empty")
        return state

    def _empty(self) -> State:
        settings = self._begin.config.state
        return State(
            self._engine.plan, log_id=self._begin.log_id, lateness=int(settings.max_lateness * 1_000_000),
            max_bytes=settings.max_bytes, settle=settings.settle, functions=self._functions,
            at_work=self._box.at_work,
        )  # fmt: skip

    def _send(self, message: list[Any]) -> None:
        data = memoryview(frame(message))
        while data:
            data = data[os.write(self._giving, data) :]

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop,), daemon=True).start()
        self._send(["alive", self._figures()])  # before any rule is asked: from here on each step is short
        async with asyncio.TaskGroup() as group:
            group.create_task(self._evaluator.run())
            group.create_task(self._evaluator.ticks())
            group.create_task(self._sender.commits())
            group.create_task(self._alive())
            group.create_task(self._throttle())

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        taking: dict[str, Callable[..., None]] = {
            "log": self._take_log, "done": self._sender.done, "commit": self._sender.due.set,
        }  # fmt: skip
        while True:
            kind, *rest = msgpack.unpackb(_read(self._taking))
            loop.call_soon_threadsafe(taking[kind], *rest)

    def _take_log(self, start: int, end: int, events: int, waiting: int) -> None:
        self._log.advance(start, end, events)
        self._sender.outbox(waiting)
        self._stored.arrived.set()

    async def _alive(self) -> None:
        while True:
            self._send(["alive", self._figures()])
            report_suppressed()
            await asyncio.sleep(ALIVE_SECONDS)

    def _figures(self) -> dict[str, Any]:
        engine, state, tally = self._engine, self._state, self._engine.tally
        correlations, statements, cache = state.status(), state.statements.status(), engine.cache.account()
        progress, rules = self._context.progress, engine.plan.rules
        muted = state.muted()
        rows = self._context.failures.quarantined.values()
        own = {rules[number].digest for number in engine.quarantined}
        quarantined = [row for row in rows if row["digest"] in own or row["rule_id"] in muted]
        return {
            "cpu_seconds": time.process_time() - self._used,
            "evaluation_seconds": tally.seconds,
            "events": tally.events,
            "candidates": tally.candidates,
            "alerts": sum(self._sender.by_rule.values()),
            "state_bytes": correlations["bytes"] + statements["bytes"],
            "cache_bytes": cache["bytes"],
            "quarantined": quarantined[:LISTED],
            "quarantined_count": len(quarantined),
            "formats_quarantined": sum(declared.guard.quarantined for declared in engine.plan.formats),
            "undecided": sum(tally.undecided.values()),
            "started_empty": state.started_empty[:LISTED],
            "without_functions": len(state.statements.refused),
            "evaluated": progress.evaluated,
            "dead_letters": self._letters.events,
            "dearest": engine.tally.dearest(engine.plan.rules, LISTED),
        }

    async def _throttle(self) -> None:
        """Give the CPU away, where more than the share was used."""
        share = self._begin.ruleset.max_cpu
        if share >= 1:
            return
        wall, used = time.monotonic(), time.process_time()
        while True:
            await asyncio.sleep(THROTTLE_SECONDS)
            debt = (time.process_time() - used) / share - (time.monotonic() - wall)
            if debt > 0:
                time.sleep(min(debt, LONGEST_SLEEP))  # noqa: ASYNC251  # to hold up all of it is what it is for
            elif time.monotonic() - wall > 1.0:  # what was not used is not saved up
                wall, used = time.monotonic(), time.process_time()


LISTED = 50


def _engine(begin: Begin) -> Engine:
    lookups = {name: Lookup.open(path) for name, path in begin.lookups.items()}
    return engine_of(Artifact.from_bytes(begin.plan.read_bytes()), lookups)


def _bounded(begin: Begin) -> None:
    most = begin.ruleset.max_memory * 5 // 4
    with suppress(OSError, ValueError):  # a unit's system call filter may forbid it: the agent's watch holds
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    with suppress(OSError):
        os.nice(NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def main() -> int:
    agent = os.getppid()
    if memory.LIBC is not None:
        memory.LIBC.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != agent:
        return 0  # it died before
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # of the whole group: the agent says what is to be
        signal.signal(number, signal.SIG_IGN)
    taking, giving = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nowhere, descriptor)
    begin: Begin = pickle.loads(_read(taking))  # noqa: S301  # from the agent, over a pipe that nobody else has
    configure_logging(begin.config.log, ruleset=begin.ruleset.name)
    memory.settle()
    descriptors.SPARE.keep()
    formats.load = descriptors.importing
    _bounded(begin)
    try:
        worker = Worker(begin, taking, giving)
        gc.collect()
        gc.freeze()
        asyncio.run(worker.run())
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    return 0


if __name__ == "__main__":
    sys.exit(main())
