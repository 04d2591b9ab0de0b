"""The parent's side of user functions: a child for each set of modules, started when it is first asked.

A batch that its child does not survive (it exits, takes too much memory, writes what is no frame, takes too long) is
asked again of a new child, row by row; the row on which that dies too has failed, and all others have their values. So
a child that something else killed costs nothing but time, and results are the same.

``Host`` is what ``stream/userfunctions.py`` calls. A call may take as long as ``RUN_SECONDS`` and one answer, while the
event loop goes on (``system/turns.py``). A function that does harm is ended long before: by what its process uses of
the CPU, which a busy host does not change, and by its sleeping, which no function has a reason to do.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgpack

from vedette.plan.query import Modules, dump
from vedette.stream.keyed import pack, unpack
from vedette.stream.userfunctions import HARMFUL, Answers, Broken, Spec
from vedette.system import child, sandbox, turns
from vedette.udf import answers

ROWS = 1024
"""Of a batch, at most."""
BATCH_BYTES = 1 << 20
"""Of a batch, about."""
START_SECONDS = 30.0
"""For a child to start, and to import its modules."""
IMPORT_SECONDS = 5.0
"""Of CPU, for importing modules and opening functions."""
LOOK_SECONDS = 0.05
"""Between two looks at a child that does not answer."""
ASLEEP = 4
"""Looks at which it neither runs nor has run since the last one: it sleeps."""
RUN_SECONDS = 30.0
"""For all rows of one call."""
MAX_FRAME = 3 << 20
"""Bytes of an answer; as Python's objects it can take eighty times that."""
MAX_REASON = 400
"""Characters of what a child says is wrong."""
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
        """Seconds for an answer, by the clock, on whatever busy host: what a child does is seen by its CPU, and that it
        sleeps by /proc."""
        return max(30.0, 300 * self.seconds)

    @property
    def answer(self) -> float:
        """The same of CPU: who takes that long does not even return to Python."""
        return 5 * self.seconds

    @property
    def mean(self) -> float:
        """Seconds of CPU that a value may take in the long run."""
        return self.seconds / 50

    @property
    def burst(self) -> float:
        """Seconds of CPU that a function may use beyond."""
        return 10 * self.seconds


class Died(Exception):
    """The child did not answer."""


class Harmed(Died):
    """It was ended for what its function does."""


class _Watch:
    """Looks at a child while it does not answer. ``seconds``: of CPU that it may use until then."""

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid, self._seconds = pid, seconds
        self._began = self._used = cpu(pid)
        self._asleep = 0

    def look(self) -> None:
        """Raises ``Harmed`` when it will not answer in time."""
        used = cpu(self._pid)
        if used - self._began > self._seconds:
            raise Harmed(f"it took more than {self._seconds:g} s of CPU for an answer")
        self._asleep = self._asleep + 1 if used == self._used and _sleeps(self._pid) else 0
        self._used = used
        if self._asleep >= ASLEEP:
            raise Harmed("it sleeps in place of answering")


def cpu(pid: int) -> float:
    """Seconds of CPU that a child has used; 0 when it is gone."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3), which Python lacks
    except OSError:
        return 0.0


def _sleeps(pid: int) -> bool:
    """Whether it waits for something that is not the disk. False where /proc does not say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"S"
    except OSError:
        return False


class Child:
    """One process, with the modules of one set. Raises OSError when it cannot be started, ``Died``."""

    def __init__(self, modules: Modules, limits: Limits) -> None:
        self._limits = limits
        with turns.waiting():  # for what it takes to start a program
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
        self._opened: dict[Spec, tuple[int, answers.Check]] = {}
        first = [[list(module) for module in modules.modules], limits.seconds]
        self.isolation: tuple[str, ...] = tuple(self._exchange(pack(first), START_SECONDS, START_SECONDS))

    @property
    def pid(self) -> int:
        return self._process.pid

    def describe(self, target: str) -> dict[str, Any]:
        """What ``module.attr`` is. Raises ValueError with what is wrong with it."""
        return dict(self._ask(["describe", target], START_SECONDS, IMPORT_SECONDS)[0])

    def call(self, spec: Spec, rows: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Values of the first of ``rows``, and failures by place. Raises ``Broken`` when the function cannot be
        used."""
        opened = self._opened.get(spec)
        if opened is None:
            number = len(self._opened)
            args, result = [dump(type_) for type_ in spec.args], [dump(type_) for type_ in spec.result]
            try:
                self._ask(["open", number, spec.target, spec.method, args, result], START_SECONDS, IMPORT_SECONDS)
            except ValueError as error:
                raise Broken(str(error)) from None
            opened = self._opened[spec] = number, answers.checked(spec)
        number, check = opened
        try:
            values, failures = self._ask(["call", number, rows], self._limits.wall, self._limits.answer)
            if not 0 < len(values) <= len(rows) or not all(map(check, values)):
                raise TypeError("values of other types than the function has declared, or of other rows")
            for at, reason, _ in failures:
                if type(at) is not int or not 0 <= at < len(values) or type(reason) is not str:
                    raise TypeError("failures of other rows")
        except (TypeError, ValueError) as error:
            self.end()
            raise Died(f"its answer is none: {error}") from None
        return values, failures

    def _ask(self, request: Any, seconds: float, of_cpu: float) -> Sequence[Any]:
        answer = self._exchange(pack(request), seconds, of_cpu)
        if not isinstance(answer, tuple) or not answer or answer[0] not in ("ok", "error"):
            self.end()
            raise Died("its answer is none")
        if answer[0] == "error":
            raise ValueError(str(answer[1])[:MAX_REASON])
        return answer[1:]

    def _exchange(self, data: bytes, seconds: float, of_cpu: float) -> Any:
        until, watch = time.monotonic() + seconds, _Watch(self.pid, of_cpu)
        try:
            self._write(_LENGTH.pack(len(data)) + data, until, watch)
            (size,) = _LENGTH.unpack(self._read(_LENGTH.size, until, watch))
            if size > MAX_FRAME:
                raise Died("its answer is too long")
            return unpack(self._read(size, until, watch))
        except TimeoutError:
            raise Died(self._ended() or f"no answer within {seconds:g} s") from None
        except Harmed:
            self.end()
            raise
        except (OSError, Died, msgpack.UnpackException, ValueError, ArithmeticError) as error:
            reason = str(error) if isinstance(error, Died) else f"its answer is none: {error}"
            raise Died(self._ended() or reason) from None

    def _write(self, data: bytes, until: float, watch: _Watch) -> None:
        waiting = memoryview(data)
        poll = select.poll()
        poll.register(self._to, select.POLLOUT)
        while waiting:
            _wait(poll, until, watch)
            waiting = waiting[os.write(self._to, waiting[: 1 << 16]) :]

    def _read(self, size: int, until: float, watch: _Watch) -> bytes:
        parts: list[bytes] = []
        poll = select.poll()
        poll.register(self._from, select.POLLIN)
        while size:
            _wait(poll, until, watch)
            part = os.read(self._from, min(size, 1 << 20))
            if not part:
                raise OSError("it ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _ended(self) -> str:
        """How the process ended, which it has done behind this; empty if it was still running."""
        with turns.waiting(), suppress(subprocess.TimeoutExpired):
            self._process.wait(0.05)
        code = self._process.returncode
        self.end()
        return "" if code is None else f"it ended with code {code}" if code >= 0 else f"it was killed by signal {-code}"

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        with turns.waiting():
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


def _wait(poll: select.poll, until: float, watch: _Watch) -> None:
    """Until the pipe is ready. Raises TimeoutError, ``Died``."""
    if poll.poll(turns.patience() * 1000):
        return
    with turns.waiting():
        while not poll.poll(LOOK_SECONDS * 1000):
            watch.look()
            if time.monotonic() > until:
                raise TimeoutError


class Host:
    """See the module's text."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008  # a value
        self._limits = limits
        self._modules: dict[str, Modules] = {}
        self._children: dict[str, Child] = {}
        self._starts: dict[str, int] = {}
        """Of each set the starts since its last answer."""
        self._why: dict[str, str] = {}
        """Of each set how its last process ended."""
        self._spent: dict[Spec, float] = {}
        """Of each function the CPU that it has used beyond ``Limits.mean`` a value."""
        self.started = self.died = self.calls = 0
        self.isolation: tuple[str, ...] = ()

    def know(self, modules: Iterable[Modules]) -> None:
        self._modules |= {group.digest: group for group in modules}

    def keep(self, modules: Iterable[Modules]) -> None:
        wanted = {group.digest for group in modules}
        for digest in self._modules.keys() - wanted:
            del self._modules[digest]
            self._starts.pop(digest, None)
            self._why.pop(digest, None)
            if (running := self._children.pop(digest, None)) is not None:
                threading.Thread(target=running.leave, name="functions end", daemon=True).start()
        for spec in [other for other in self._spent if other.modules not in wanted]:
            del self._spent[spec]

    def close(self) -> None:
        ending, self._children = self._children, {}
        self.keep(())
        for process in ending.values():
            process.leave()

    def describe(self, modules: Modules, target: str) -> dict[str, Any]:
        """What a function is. Raises ValueError with what is wrong with it, or with its modules."""
        self.know((modules,))
        try:
            return self._child(modules.digest).describe(target)
        except Died as error:
            self._dead(modules.digest, error)
            raise ValueError(f"importing it does not end well: {error}") from None
        except Broken as error:
            raise ValueError(str(error)) from None

    def refused(self) -> str:
        """Why no function runs on this host; empty where they do."""
        empty = Modules(())
        self.know((empty,))
        try:
            self._child(empty.digest)
        except Broken as error:
            return str(error)
        return ""

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
                running = self._child(spec.modules)
                used = cpu(running.pid)
                answers, failures = running.call(spec, part)
                self._charge(spec, _values(spec, part[: len(answers)]), cpu(running.pid) - used)
            except Died as error:
                self._dead(spec.modules, error)
                if at < alone or (len(part) == 1 and isinstance(error, Harmed)):
                    failed[at] = f"{spec.target}: the process did not survive it: {error}"
                    harmful.append(failed[at])
                    values.append(None)
                    if len(harmful) >= HARMFUL:
                        raise Broken(harmful[-1]) from None
                else:
                    alone = at + len(part)
                continue
            self._starts[spec.modules] = 0
            self.calls += len(answers)
            values += answers
            for place, reason, slow in failures:
                failed[at + place] = f"{spec.target}: {reason[:MAX_REASON]}"
                if slow:
                    harmful.append(failed[at + place])
            if len(harmful) >= HARMFUL:
                raise Broken(harmful[-1])
        return Answers(values, failed, harmful)

    def _charge(self, spec: Spec, values: int, seconds: float) -> None:
        """Raises ``Broken`` when the function takes too much for each value, over many."""
        spent = self._spent.get(spec, 0.0) + seconds - values * self._limits.mean
        self._spent[spec] = max(0.0, spent)
        if spent > self._limits.burst:
            del self._spent[spec]
            raise Broken(
                f"{spec.target} takes too long: more than {self._limits.mean * 1000:g} ms of CPU a value, and"
                f" {self._limits.burst:g} s beyond that"
            )

    def _child(self, digest: str) -> Child:
        running = self._children.get(digest)
        while running is None:
            starts = self._starts.get(digest, 0)
            if starts >= TRIES:
                self._starts[digest] = 0
                why = self._why.pop(digest, "it did not start")
                raise Broken(f"the process of its functions ended {starts} times before an answer; at last: {why}")
            self._starts[digest] = starts + 1
            if starts:
                with turns.waiting():
                    time.sleep(BACKOFF_SECONDS * 2 ** (starts - 1))
            with suppress(Died, OSError):
                running = Child(self._modules[digest], self._limits)
                self.started += 1
                self.isolation = running.isolation
                if lacking := [guard for guard in sandbox.NEEDED if guard not in running.isolation]:
                    running.end()
                    raise Broken(f"functions are refused on this host: it does not grant {' and '.join(lacking)}")
                self._children[digest] = running
        return running

    def _dead(self, digest: str, error: Died) -> None:
        self.died += 1
        self._why[digest] = str(error)
        if (running := self._children.pop(digest, None)) is not None:
            running.end()

    def pids(self) -> list[int]:
        """Of the children that run."""
        return [child.pid for child in self._children.values()]

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


def _values(spec: Spec, rows: Sequence[Any]) -> int:
    """How many values rows are about: of a fold the items that it takes in."""
    return sum(len(row) - 1 for row in rows) if spec.method == "fold" else len(rows)


def _size(value: Any) -> int:
    if isinstance(value, tuple | list):
        return 8 + sum(map(_size, value))
    return len(value) if isinstance(value, str | bytes) else 8
