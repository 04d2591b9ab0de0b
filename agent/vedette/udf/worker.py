"""``python -m vedette.udf.worker``: the child that runs the functions of one set of modules, batch by batch.

Frames on what was standard input and output: four bytes of length, little-endian, then msgpack. The first has the
modules (``[[name, is_package, source], …]``) and the bound on a value in seconds of CPU; the answer is what
``sandbox.enclose`` has put in force. Then requests, each answered by ``["ok", …]`` or ``["error", text]``:

    ["describe", target]                       kind, types, arguments and more of ``module.attr``
    ["open", number, target, method, argument types, result types]
    ["call", number, rows]                     values of the first of the rows, and the failures by place

``call`` stops early, so that an answer never takes long where single values do not: the parent sends the rest again. A
row's value by method:

    eval     arguments          the value; of a table function the list of its rows
    fold     [accumulator, …]   the accumulator after what follows: tuples of arguments, or accumulators to merge
    value    accumulator        the aggregate's value

What a function prints goes nowhere. The end of the input ends the process.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, BinaryIO

from vedette.system import sandbox
from vedette.udf import shim
from vedette.udf.datatypes import Row
from vedette.udf.values import (
    MAX_ACCUMULATOR,
    Change,
    given,
    pack,
    pack_accumulator,
    taken,
    unpack,
    unpack_accumulator,
)

MAX_FRAME = 3 << 20
ANSWER_BYTES = 1 << 20
"""Of the values of one answer, and the last of them goes over it: the rest is asked again."""
_LENGTH = struct.Struct("<I")


class TookTooLong(BaseException):
    """No ``Exception``: what a function catches shall not be this."""


class Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The modules of a set, from memory."""

    def __init__(self, modules: Sequence[tuple[str, bool, str]]) -> None:
        self._sources = {name: (package, source) for name, package, source in modules}

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        if fullname in self._sources:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=self._sources[fullname][0])
        if any(name.startswith(f"{fullname}.") for name in self._sources):  # a folder without __init__.py
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        _, source = self._sources.get(name, (True, ""))
        exec(compile(source, f"{name}.py", "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # what it is for


class Worker:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._opened: dict[int, Callable[[Any], Any]] = {}
        self._alive: dict[str, shim.Wrapped] = {}
        self._started = self._seen = 0
        """Values that were begun, and as the last tick saw it."""
        self._within = False

    def tick(self, signum: int, frame: Any) -> None:
        """A value that was under way at the last tick as well takes too long."""
        if self._within and self._started == self._seen:
            raise TookTooLong
        self._seen = self._started

    # --- requests

    def answer(self, request: Sequence[Any]) -> list[Any]:
        kind, *parts = request
        try:
            match kind:
                case "describe":
                    return ["ok", self.describe(*parts)]
                case "open":
                    self.open(*parts)
                    return ["ok"]
                case "call":
                    return ["ok", *self.call(*parts)]
        except (Exception, SystemExit) as error:  # whatever a module does
            return ["error", explained(error)]
        return ["error", f"no request {kind!r:.40}"]

    def found(self, target: str) -> shim.Wrapped:
        """The function ``module.attr``; raises what importing it raises."""
        name, _, attribute = target.rpartition(".")
        try:
            wrapped = getattr(importlib.import_module(name), attribute)
        except AttributeError:
            raise TypeError(f"the module {name} has no {attribute}") from None
        if isinstance(wrapped, type) and issubclass(wrapped, shim.UserDefinedFunction):
            raise TypeError(f"{attribute} is a class: {attribute.lower()} = udf({attribute}(), result_type=…)")
        if not isinstance(wrapped, shim.Wrapped):
            raise TypeError(f"{target} is no function made by udf, udtf or udaf")
        return wrapped

    def describe(self, target: str) -> dict[str, Any]:
        wrapped = self.found(target)
        least, most = wrapped.arguments()
        methods = {"scalar": ["eval"], "table": ["eval"]}.get(
            wrapped.kind, ["create_accumulator", "accumulate", "get_value"]
        )
        for name in methods:
            wrapped.method(name)
        for result in wrapped.result:
            taken(result)
        return {
            "kind": wrapped.kind,
            "input": wrapped.input_types,
            "result": wrapped.result,
            "least": least,
            "most": most,
            "deterministic": bool(wrapped.deterministic),
            "merges": wrapped.kind == "aggregate" and hasattr(wrapped.function, "merge"),
        }

    def open(self, number: int, target: str, method: str, args: Sequence[Any], result: Sequence[Any]) -> None:
        wrapped = self._alive.get(target)
        if wrapped is None:
            wrapped = self.found(target)
            if isinstance(wrapped.function, shim.UserDefinedFunction):
                wrapped.function.open(shim.FunctionContext())
            self._alive[target] = wrapped
        changes = [given(of) for of in args]
        match method:
            case "eval" if wrapped.kind == "table":
                step = _table(wrapped, changes, [taken(of) for of in result])
            case "eval":
                step = _scalar(wrapped, changes, taken(result[0]))
            case "fold":
                step = self._fold(wrapped.function, changes)
            case _:
                step = _value(wrapped.function, taken(result[0]))
        self._opened[number] = step

    def close(self) -> None:
        for wrapped in self._alive.values():
            if isinstance(wrapped.function, shim.UserDefinedFunction):
                wrapped.function.close()

    def call(self, number: int, rows: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Values, and failures as pairs of place and reason."""
        function, values, failures = self._opened[number], list[Any](), list[Any]()
        used = resource.getrusage(resource.RUSAGE_SELF)
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        spent = int(used.ru_utime + used.ru_stime + 20 * self._seconds) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (spent, most))
        until, size = time.monotonic() + self._seconds, 0
        signal.setitimer(signal.ITIMER_PROF, self._seconds, self._seconds)
        try:
            for at, row in enumerate(rows):
                self._started += 1
                self._within = True
                try:
                    value = function(row)
                    self._within = False
                    values.append(value)
                except TookTooLong:
                    self._within = False
                    values.append(None)
                    failures.append((at, f"took more than {self._seconds:g} s of CPU", True))
                except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit) as error:
                    self._within = False
                    values.append(None)
                    failures.append((at, explained(error), False))
                size += _length(values[-1])
                if time.monotonic() > until or size > ANSWER_BYTES:
                    break
        finally:
            self._within = False
            signal.setitimer(signal.ITIMER_PROF, 0)
        return values, failures

    def _fold(self, function: Any, changes: Sequence[Change | None]) -> Callable[[Any], Any]:
        def replayed(before: bytes | None, items: Sequence[Any], left_out: set[int]) -> Any:
            accumulator = function.create_accumulator() if before is None else unpack_accumulator(before)
            for at, item in enumerate(items):
                if at in left_out:
                    continue
                self._started += 1
                self._at = at
                if isinstance(item, bytes):
                    function.merge(accumulator, [unpack_accumulator(item)])
                else:
                    function.accumulate(accumulator, *_arguments(changes, item))
            return accumulator

        def fold(row: Sequence[Any]) -> Any:
            before, *items = row
            left_out: set[int] = set()
            why, slow = "", False
            while True:  # an item that fails may have changed the accumulator: again without it
                self._at = -1
                try:
                    accumulator = replayed(before, items, left_out)
                    self._at = -1
                    packed = pack_accumulator(accumulator)
                    if len(packed) > MAX_ACCUMULATOR:
                        raise ValueError(f"the accumulator has more than {MAX_ACCUMULATOR >> 20} MiB")
                    return packed, len(left_out), why, slow
                except (Exception, SystemExit, TookTooLong) as error:
                    slow = slow or isinstance(error, TookTooLong)
                    why = "took too long" if isinstance(error, TookTooLong) else explained(error)
                    if self._at in left_out or self._at < 0:
                        raise ValueError(why) from None
                    left_out.add(self._at)

        return fold

    _at = -1
    """The item under way."""


def _arguments(changes: Sequence[Change | None], row: Sequence[Any]) -> list[Any]:
    return [
        argument if change is None or argument is None else change(argument)
        for change, argument in zip(changes, row, strict=True)
    ]


def _scalar(wrapped: shim.Wrapped, changes: Sequence[Change | None], result: Change) -> Callable[[Any], Any]:
    function = wrapped.method("eval")
    plain = not any(changes)

    def value(row: Sequence[Any]) -> Any:
        answer = function(*row) if plain else function(*_arguments(changes, row))
        return None if answer is None else _sized(result(answer))

    return value


def _table(wrapped: shim.Wrapped, changes: Sequence[Change | None], results: Sequence[Change]) -> Callable[[Any], Any]:
    function = wrapped.method("eval")

    def rows(row: Sequence[Any]) -> Any:
        produced: list[tuple[Any, ...]] = []
        size = 0
        for each in function(*_arguments(changes, row)) or ():
            parts = each if isinstance(each, tuple | Row) else (each,)
            if len(parts) != len(results):
                raise TypeError(f"gave {len(parts)} columns, not {len(results)}")
            produced.append(tuple(
                None if part is None else result(part) for part, result in zip(parts, results, strict=True)
            ))  # fmt: skip
            size += _length(produced[-1])
            if size > MAX_ACCUMULATOR:
                raise ValueError(f"gave more than {MAX_ACCUMULATOR >> 20} MiB of rows for one")
        return produced

    return rows


def _value(function: Any, result: Change) -> Callable[[Any], Any]:
    def value(row: bytes | None) -> Any:
        accumulator = function.create_accumulator() if row is None else unpack_accumulator(row)
        answer = function.get_value(accumulator)
        return None if answer is None else _sized(result(answer))

    return value


def _length(value: Any) -> int:
    """Bytes of a row's value, about."""
    if isinstance(value, list | tuple | dict):
        return 8 + sum(map(_length, value.values() if isinstance(value, dict) else value))
    if isinstance(value, str) and not value.isascii():
        value = value.encode("utf-8", "surrogatepass")
    return 8 + len(value) if isinstance(value, str | bytes) else 8


def _sized(value: Any) -> Any:
    if isinstance(value, str | bytes | tuple | dict) and len(value) > MAX_ACCUMULATOR >> 2:
        raise ValueError("gave a value that is too long")
    return value


def explained(error: BaseException) -> str:
    """One line: what was raised, and where in the modules."""
    where = [frame for frame in traceback.extract_tb(error.__traceback__) if "/" not in frame.filename]
    where = [frame for frame in where if not frame.filename.startswith("<")]
    place = f"{where[-1].filename}:{where[-1].lineno}: " if where else ""
    if isinstance(error, SyntaxError) and error.filename and "/" not in error.filename:
        place = f"{error.filename}:{error.lineno}: "
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:  # its own __str__ may raise
        text = ""
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return " ".join(f"{place}{said}".split())[:300]


# --- frames


def read(file: BinaryIO) -> Any:
    head = file.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    return unpack(file.read(size))


def write(file: BinaryIO, value: Any) -> None:
    data = pack(value)
    if len(data) > MAX_FRAME:
        data = pack(["error", "more than a frame holds"])
    file.write(_LENGTH.pack(len(data)) + data)
    file.flush()


def _imported(sources: Iterable[str]) -> set[str]:
    """What modules name in their imports; nothing of them is executed."""
    names: set[str] = set()
    for source in sources:
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # importing it says so
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Import):
                    names.update(alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.add(node.module)
    return names


def main() -> int:
    taking, giving = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    first = read(taking)
    if first is None:
        return 0
    modules, seconds = first
    before = {*sys.modules}
    in_force = sandbox.enclose(_imported(source for _, _, source in modules))
    for name, _, _ in modules:  # a module of the set comes before one of Python's that nobody has needed so far
        if name not in before:
            sys.modules.pop(name, None)
    shim.install()
    sys.meta_path.insert(0, Modules(modules))
    worker = Worker(seconds)
    signal.signal(signal.SIGPROF, worker.tick)
    write(giving, in_force)
    while (request := read(taking)) is not None:
        write(giving, worker.answer(request))
    worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
