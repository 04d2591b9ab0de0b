"""One process of a strict rule set, from the agent's side: started, fed, watched, ended.

It is ended when it takes more private memory than ``max_memory``, when it has used ``max_seconds`` of CPU, or waited
``STUCK`` times as long, without a word, and when the agent does not want it any more. What a process sends is checked:
one that sends what is no message is ended like one that died.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgpack

from vedette.config.settings import RulesetSettings
from vedette.runtime.strict.messages import LENGTH, MAX_FRAME, OUT_OF_MEMORY, Begin, frame
from vedette.system import child
from vedette.system.processes import used

WATCH_SECONDS = 0.25
START_SECONDS = 60.0
"""Of CPU, until the first word: rules are compiled where the agent's databases do not fit."""
STUCK = 6
LEAST_STUCK = 30.0
"""Seconds; a host may be busy with something else."""


class Ended(Exception):
    """The process is no more; says why."""


class KilledFromOutside(Ended):
    """By a SIGKILL that the agent has not sent: what it ran is not at fault."""


class Process:
    """See the module's text."""

    def __init__(self, process: asyncio.subprocess.Process, settings: RulesetSettings) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._settings = process, settings
        self._to, self._from = process.stdin, process.stdout
        self.started = self._heard = time.monotonic()
        self._cpu_then = 0.0
        """Used when it was last heard."""
        self._spoke = False
        self.cpu_seconds = 0.0
        self.private = self.resident = self.peak = 0
        self._reason = ""

    @classmethod
    async def start(cls, settings: RulesetSettings, blackbox: int) -> Process:
        """Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *child.command("vedette.runtime.strict.worker"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(blackbox,), limit=1 << 20,
        )  # fmt: skip
        return cls(process, settings)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def begin(self, begin: Begin, state: Iterator[bytes]) -> None:
        """Raises Ended, and what reading ``state`` raises."""
        data = pickle.dumps(begin)
        await self._write(LENGTH.pack(len(data)) + data)
        while (part := await asyncio.to_thread(next, state, None)) is not None:
            await self._write(frame(["state", part]))
        await self._write(frame(["state", b""]))

    async def say(self, *message: Any) -> None:
        """Raises Ended."""
        await self._write(frame([*message]))

    async def _write(self, data: bytes) -> None:
        try:
            self._to.write(data)
            await self._to.drain()
        except (OSError, RuntimeError):
            raise await self._why() from None

    async def messages(self) -> AsyncIterator[list[Any]]:
        """Until it ends: then Ended is raised."""
        while True:
            try:
                (size,) = LENGTH.unpack(await self._from.readexactly(LENGTH.size))
                if size > MAX_FRAME:
                    raise ValueError("a frame is too long")
                message = msgpack.unpackb(await self._from.readexactly(size))
                if not isinstance(message, list) or not message:
                    raise ValueError("it is no list")
            except (asyncio.IncompleteReadError, OSError):
                raise await self._why() from None
            except (ValueError, msgpack.UnpackException) as error:
                self.kill(f"what it sent is no message: {error}")
                raise await self._why() from None
            self._heard, self._cpu_then, self._spoke = time.monotonic(), self.cpu_seconds, True
            yield message

    async def watch(self) -> None:
        """Until it ends; ends it where it is beyond its bounds."""
        most = self._settings
        while self._process.returncode is None:
            await asyncio.sleep(WATCH_SECONDS)
            if (now := used(self.pid)) is None:
                continue
            self.cpu_seconds, self.private, self.resident = now
            self.peak = max(self.peak, self.private)
            seconds = most.max_seconds if self._spoke else max(START_SECONDS, most.max_seconds)
            silent = time.monotonic() - self._heard
            if self.private > most.max_memory:
                self.kill(f"more than max_memory: {self.private >> 20} MiB")
            elif silent > 1.0 and self.cpu_seconds - self._cpu_then > seconds:
                self.kill(f"more than max_seconds: {seconds:g} s of CPU without a word")
            elif silent > max(LEAST_STUCK, STUCK * seconds):
                self.kill(f"it stood still for {silent:.0f} s")

    def kill(self, reason: str = "") -> None:
        self._reason = self._reason or reason
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def _why(self) -> Ended:
        self.kill()
        code = await self._process.wait()
        if self._reason:
            return Ended(self._reason)
        if code == OUT_OF_MEMORY:
            return Ended("no memory was left within max_memory")
        if code < 0:
            kind = KilledFromOutside if code == -signal.SIGKILL else Ended
            return kind(f"killed by {signal.Signals(-code).name}")
        return Ended(f"it ended with code {code}")

    async def end(self) -> None:
        """Kill it, and wait until it is gone."""
        self.kill("the agent ended it")
        await self._process.wait()
        self._to.close()
