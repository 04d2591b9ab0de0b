"""One request at work on an agent: what it may use up, and its reply, which is on disk as it grows.

A kind's ``run`` calls ``emit`` for each record, ``checkpoint`` where it could go on from, and ``pace`` between steps of
work. Records before a checkpoint become part of the reply together with it, in one file: killed anywhere, ``run`` is
called again with the cursor of the newest part, and no record is there twice or lacks.

Work that takes the processor or the disk runs in a thread of its own (``aside``), which ``pace`` holds below the share
of a core that the kind has.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from vedette.config.settings import Config
from vedette.fleet.replies import MAX_RECORD, PART_RAW, RUNNING, Part, packed
from vedette.fleet.requests import Request
from vedette.fleet.spool import Held, Kept

PART_SECONDS = 1.0
"""A checkpoint makes a part of what there is when the one before is so old, or when PART_FULL bytes are there."""
PART_FULL = 64 << 10
_STEP = 0.01

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request of a kind may take of a host."""

    bytes: int
    """Of records, before compression."""
    seconds: float
    """Over restarts, without the time between."""
    cpu: float
    """Share of a core."""
    at_once: int
    """Requests of the kind that run at the same time; others wait."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A row of the table of kinds (``kinds.py``).

    ``role``: what the operator must have. ``validate`` raises ValueError for a body that cannot be answered. ``run``
    works on the request; what it raises of ValueError, OSError and LookupError ends the reply as failed.
    """

    name: str
    role: str
    validate: Callable[[Mapping[str, Any]], None]
    run: Callable[[Job], Awaitable[None]]
    limits: Limits


@dataclass(frozen=True, slots=True)
class Services:
    """What an agent lets kinds use: the configuration in force, and the commands of its control socket."""

    config: Callable[[], Config]
    command: Callable[..., Awaitable[Any]]
    """``command(name, **words)``. Raises ValueError and OSError."""
    formats: Callable[[], tuple[tuple[str, str], ...]] = tuple
    """Text and path of the formats that the rules in force declare."""


class Limited(Exception):
    """What the request may take is used up."""


class Cancelled(Exception):
    """It is not wanted any more; the text says why."""


class Stopped(Exception):
    """The agent stops; the request goes on with its next start."""


class Job:
    """``wake`` is called, from any thread, when the reply has a new part."""

    def __init__(self, held: Held, limits: Limits, services: Services, wake: Callable[[], None]) -> None:
        self.request: Request = held.request
        self.services, self.limits = services, limits
        self._held, self._wake = held, wake
        newest = held.newest()
        self.cursor: Any = None if newest is None else newest.cursor
        """Of the newest checkpoint; None: from the start. JSON-able."""
        self._size = 0 if newest is None else newest.size
        self._before = 0.0 if newest is None else newest.elapsed
        self._began = self._flushed = time.monotonic()
        self._lines: list[bytes] = []
        self._buffered = 0
        self._end: Cancelled | Stopped | None = None
        self._lock, self._whole = threading.Lock(), False
        self._used = (time.monotonic(), 0.0)

    def emit(self, record: Mapping[str, Any]) -> None:
        """Add a record. Raises Limited, and ValueError for one that is too long, or without a checkpoint for long."""
        line = orjson.dumps(record) + b"\n"
        with self._lock:
            self._add(line)

    def _add(self, line: bytes) -> None:
        if self._whole:
            raise Stopped
        if len(line) > MAX_RECORD or self._buffered + len(line) > PART_RAW:
            raise ValueError(f"a record of {len(line)} bytes, {self._buffered} since the last checkpoint: too many")
        if self._size + len(line) > self.limits.bytes:
            raise Limited(f"its {self.limits.bytes:,} bytes are used up")
        self._lines.append(line)
        self._buffered += len(line)
        self._size += len(line)

    def checkpoint(self, cursor: Any, *, now: bool = False) -> None:
        """All records up to here are whole: after a restart ``run`` goes on from ``cursor``. ``now``: make a part of
        them at once. Raises OSError."""
        with self._lock:
            if self._whole:
                raise Stopped
            self.cursor = cursor
            due = now or self._buffered >= PART_FULL or time.monotonic() - self._flushed >= PART_SECONDS
            if due and (self._lines or now):
                self._part()

    def pace(self) -> None:
        """Wait as long as the share of the processor asks; in a thread of ``aside``. Raises Limited, Cancelled,
        Stopped."""
        since, before = self._used
        used = time.thread_time()
        owed = (used - before) / self.limits.cpu - (time.monotonic() - since)
        if owed > _STEP or self._end is not None:
            until = time.monotonic() + min(owed, 5.0)
            while self._end is None and time.monotonic() < until:
                time.sleep(min(_STEP, max(0.0, until - time.monotonic())))
            self._used = (time.monotonic(), time.thread_time())
        self._stay()
        if self._elapsed() > self.limits.seconds:
            raise Limited(f"its {self.limits.seconds:g} s are used up")

    def _stay(self) -> None:
        """Raises Cancelled, Stopped."""
        if self._end is not None:
            raise self._end

    def cancel(self, reason: str) -> None:
        self._end = Cancelled(reason)

    def stop(self) -> None:
        self._end = self._end or Stopped()

    @property
    def ending(self) -> bool:
        """Cancelled or stopped: for work that waits without ``pace``."""
        return self._end is not None

    async def aside(self, work: Callable[[], T]) -> T:
        """The result of ``work``, in a thread; not of lower priority: who waits for the interpreter's lock would wait
        for that thread to be scheduled."""
        loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if done.cancelled():
                return
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

        def body() -> None:
            self._used = (time.monotonic(), time.thread_time())
            result, failure = None, None
            try:
                result = work()
            except BaseException as error:  # whatever it is, it is raised where it is awaited
                failure = error
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, result, failure)

        threading.Thread(target=body, name=f"request {self.request.kind}", daemon=True).start()
        try:
            result: T = await done
            return result
        except asyncio.CancelledError:
            self.stop()
            raise

    async def run(self, kind: Kind) -> tuple[str, str]:
        """Work until the reply is whole; returns its state and reason. Raises OSError when the reply cannot be written,
        Stopped."""
        try:
            self._stay()
            async with asyncio.timeout(max(1.0, self.limits.seconds - self._elapsed()) + 5.0):
                await kind.run(self)
            state, reason = "done", ""
        except Stopped:
            raise
        except Cancelled as error:
            state, reason = "cancelled", str(error)
        except Limited as error:
            state, reason = "limited", str(error)
        except TimeoutError:
            self.stop()
            state, reason = "limited", f"its {self.limits.seconds:g} s are used up"
        except (ValueError, OSError, LookupError) as error:
            state, reason = "failed", str(error)
        except Exception as error:  # a defect in a kind must not end the agent, nor leave the request without an end
            text = f": {error}" * (not self.services.config().redact)  # it may quote an event
            state, reason = "failed", f"{type(error).__name__}{text}; please report it"
        return await asyncio.to_thread(self.end, state, reason)

    def end(self, state: str, reason: str) -> tuple[str, str]:
        """The last part of the reply. Blocks on the disk. Raises OSError."""
        with self._lock:
            self._whole = True
            self._part(last=True, state=state, reason=reason)
        return state, reason

    @property
    def size(self) -> int:
        """Bytes of records so far."""
        return self._size

    def _elapsed(self) -> float:
        return self._before + time.monotonic() - self._began

    def _part(self, *, last: bool = False, state: str = RUNNING, reason: str = "") -> None:
        lines = b"".join(self._lines)
        part = Part(self._held.parts, packed(lines), len(lines), last, state, reason)
        self._held.add(Kept(part, self.cursor, self._size, self._elapsed()))
        self._lines, self._buffered, self._flushed = [], 0, time.monotonic()
        self._wake()
