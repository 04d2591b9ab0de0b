"""The parent's side of user functions: a child for each set of modules, started when it is first asked.

A batch that its child does not survive (it exits, takes too much memory, writes what is no frame, takes too long) is
asked again of a new child, row by row; the row on which that dies too has failed, and all others have their values. So
a child that something else killed costs nothing but time, and results are the same.

``Host`` is what ``stream/userfunctions.py`` calls; it blocks, for no longer than ``RUN_SECONDS``.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgpack

from vedette.plan.query import Modules, dump
from vedette.stream.keyed import pack, unpack
from vedette.stream.userfunctions import Answers, Broken, Spec
from vedette.system import child

ROWS = 1024
"""Of a batch, at most."""
BATCH_BYTES = 4 << 20
"""Of a batch, about."""
START_SECONDS = 30.0
"""For a child to start, and to import its modules."""
RUN_SECONDS = 10.0
"""For all rows of one call."""
MAX_FRAME = 64 << 20
BACKOFF_SECONDS = 0.05
"""Before the second start in succession; doubled for each further one."""
TRIES = 5
"""Starts in succession without an answer."""
_LENGTH = struct.Struct("<I")


class Limits(NamedTuple):
    """Bounds of a child. ``seconds``: of CPU for one value; ``memory``: bytes of addresses."""

    seconds: float = 0.1
    memory: int = 256 << 20

    @property
    def wall(self) -> float:
        """Seconds for an answer, by the clock: the child answers after ``seconds`` or a value."""
        return max(3.0, 30 * self.seconds)


class Died(Exception):
    """The child did not answer."""


class Child:
    """One process, with the modules of one set. Raises OSError when it cannot be started, ``Died``."""

    def __init__(self, modules: Modules, limits: Limits) -> None:
        self._limits = limits
        self._process = subprocess.Popen(
            child.command("vedette.udf.worker", memory=limits.memory, seeded=True),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/",
            env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._numbers: dict[Spec, int] = {}
        self.bytes = 0
        first = [[list(one) for one in modules.modules], limits.seconds]
        self.isolation: tuple[str, ...] = tuple(self._exchange(pack(first), START_SECONDS))

    @property
    def pid(self) -> int:
        return self._process.pid

    def describe(self, target: str) -> dict[str, Any]:
        """What ``module.attr`` is. Raises ValueError with what is wrong with it."""
        return dict(self._ask(["describe", target], START_SECONDS)[0])

    def call(self, spec: Spec, rows: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Values of the first of ``rows``, and failures by place. Raises ``Broken`` when the function cannot be
        used."""
        number = self._numbers.get(spec)
        if number is None:
            number = len(self._numbers)
            args, result = [dump(one) for one in spec.args], [dump(one) for one in spec.result]
            try:
                self._ask(["open", number, spec.target, spec.method, args, result], START_SECONDS)
            except ValueError as error:
                raise Broken(str(error)) from None
            self._numbers[spec] = number
        try:
            values, failures = self._ask(["call", number, rows], self._limits.wall)
            if not 0 < len(values) <= len(rows) or any(not 0 <= at < len(values) for at, _, _ in failures):
                raise TypeError
        except (TypeError, ValueError) as error:
            self.end()
            raise Died(f"its answer is none: {error}") from None
        return values, failures

    def _ask(self, request: Any, seconds: float) -> Sequence[Any]:
        answer = self._exchange(pack(request), seconds)
        if not isinstance(answer, tuple) or not answer or answer[0] not in ("ok", "error"):
            self.end()
            raise Died("its answer is none")
        if answer[0] == "error":
            raise ValueError(str(answer[1]))
        return answer[1:]

    def _exchange(self, data: bytes, seconds: float) -> Any:
        until = time.monotonic() + seconds
        try:
            self._write(_LENGTH.pack(len(data)) + data, until)
            (size,) = _LENGTH.unpack(self._read(_LENGTH.size, until))
            if size > MAX_FRAME:
                raise Died("its answer is too long")
            return unpack(self._read(size, until))
        except TimeoutError:
            raise Died(self._ended() or f"no answer within {seconds:g} s") from None
        except (OSError, Died, msgpack.UnpackException, ValueError, ArithmeticError) as error:
            raise Died(self._ended() or f"its answer is none: {error}") from None

    def _write(self, data: bytes, until: float) -> None:
        waiting = memoryview(data)
        poll = select.poll()
        poll.register(self._to, select.POLLOUT)
        while waiting:
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                raise TimeoutError
            waiting = waiting[os.write(self._to, waiting[: 1 << 16]) :]

    def _read(self, size: int, until: float) -> bytes:
        parts: list[bytes] = []
        poll = select.poll()
        poll.register(self._from, select.POLLIN)
        while size:
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                raise TimeoutError
            part = os.read(self._from, min(size, 1 << 20))
            if not part:
                raise OSError("it ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _ended(self) -> str:
        """How the process ended, which it has done behind this; empty if it was still running."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.05)
        code = self._process.returncode
        self.end()
        return "" if code is None else f"it ended with code {code}" if code >= 0 else f"it was killed by signal {-code}"

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def leave(self) -> None:
        """Let it end by itself for a moment, so that functions are closed."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        self.end()


class Host:
    """See the module's text."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008  # a value
        self._limits = limits
        self._modules: dict[str, Modules] = {}
        self._children: dict[str, Child] = {}
        self._starts: dict[str, int] = {}
        """Of each set the starts since its last answer."""
        self.started = self.died = self.calls = 0
        self.isolation: tuple[str, ...] = ()

    def know(self, modules: Iterable[Modules]) -> None:
        self._modules |= {one.digest: one for one in modules}

    def keep(self, modules: Iterable[Modules]) -> None:
        kept = {one.digest for one in modules}
        for digest in self._modules.keys() - kept:
            del self._modules[digest]
            self._starts.pop(digest, None)
            if (running := self._children.pop(digest, None)) is not None:
                running.leave()

    def close(self) -> None:
        self.keep(())

    def describe(self, modules: Modules, target: str) -> dict[str, Any]:
        """What a function is. Raises ValueError with what is wrong with it, or with its modules."""
        self.know((modules,))
        try:
            return self._child(modules.digest).describe(target)
        except Died as error:
            self._dead(modules.digest)
            raise ValueError(f"importing it does not end well: {error}") from None
        except Broken as error:
            raise ValueError(str(error)) from None

    def call(self, spec: Spec, rows: Sequence[Any]) -> Answers:
        values: list[Any] = []
        failed: dict[int, str] = {}
        harmful: list[str] = []
        alone = 0
        until = time.monotonic() + RUN_SECONDS
        while (at := len(values)) < len(rows):
            if time.monotonic() > until:
                raise Broken(f"{spec.target} takes too long: {at} of {len(rows)} rows in {RUN_SECONDS:g} s")
            part = rows[at : at + 1] if at < alone else _batch(rows, at)
            try:
                given, failures = self._child(spec.modules).call(spec, part)
            except Died as error:
                self._dead(spec.modules)
                if at < alone:
                    failed[at] = f"{spec.target}: the process did not survive it: {error}"
                    harmful.append(failed[at])
                    values.append(None)
                else:
                    alone = at + len(part)
                continue
            self._starts[spec.modules] = 0
            self.calls += len(given)
            values += given
            for place, reason, slow in failures:
                failed[at + place] = f"{spec.target}: {reason}"
                if slow:
                    harmful.append(failed[at + place])
        return Answers(values, failed, harmful)

    def _child(self, digest: str) -> Child:
        running = self._children.get(digest)
        while running is None:
            starts = self._starts.get(digest, 0)
            if starts >= TRIES:
                self._starts[digest] = 0
                raise Broken(f"the process of its functions ended {starts} times before an answer")
            self._starts[digest] = starts + 1
            if starts:
                time.sleep(BACKOFF_SECONDS * 2 ** (starts - 1))
            with suppress(Died, OSError):
                running = self._children[digest] = Child(self._modules[digest], self._limits)
                self.started += 1
                self.isolation = running.isolation
        return running

    def _dead(self, digest: str) -> None:
        self.died += 1
        if (running := self._children.pop(digest, None)) is not None:
            running.end()

    def pids(self) -> list[int]:
        """Of the children that run."""
        return [one.pid for one in self._children.values()]

    def status(self) -> Mapping[str, Any]:
        """JSON-able; counts are since the start."""
        return {
            "processes": len(self._children),
            "started": self.started,
            "died": self.died,
            "calls": self.calls,
            "isolation": list(self.isolation),
        }


def _batch(rows: Sequence[Any], at: int) -> Sequence[Any]:
    """The next rows, as many as a batch takes."""
    size, end = 0, at
    while end < len(rows) and end - at < ROWS and size < BATCH_BYTES:
        size += _size(rows[end])
        end += 1
    return rows[at:end]


def _size(value: Any) -> int:
    if isinstance(value, tuple | list):
        return 8 + sum(map(_size, value))
    return len(value) if isinstance(value, str | bytes) else 8
