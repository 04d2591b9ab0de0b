"""Accumulators of some aggregates, each part once, and the code that adds rows, merges stretches and gives values.

The code of many parts is put together for wherever the fields lie: a list for each group, columns for all groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from types import CodeType
from typing import Any

from vedette.plan.query import PYTHON, Aggregate, Call, Column, Expression, Literal, Type
from vedette.stream.aggregates.parts import GLOBALS, LIST_BEFORE, part_of
from vedette.stream.aggregates.table import Finish, row_of
from vedette.stream.aggregates.users import Users
from vedette.stream.expression import evaluator

Place = Callable[[int], str]


@dataclass(frozen=True)
class Accumulated:
    """A part of particular rows: its name, of which argument (None: of rows), with which FILTER."""

    kind: str
    arg: Expression | None
    when: Expression | None
    nulls: bool = False


def _shifted(place: Place, by: int) -> Place:
    return lambda i: place(i + by)


class Accumulators:
    """The parts of ``aggregates``, each once, and the code that keeps them.

    ``fields``: the kinds of all fields, one after the other.
    """

    def __init__(self, aggregates: Iterable[Aggregate]) -> None:
        self.parts: dict[Accumulated, int] = {}
        """With the number of its first field."""
        self.fields = ""
        self._finish: dict[Aggregate, tuple[list[int], Callable[..., Any] | None]] = {}
        self.users = Users()
        for aggregate in aggregates:
            self._take(aggregate)

    def _take(self, aggregate: Aggregate) -> None:
        row = row_of(aggregate.name)
        finish = _distinct(aggregate) if aggregate.distinct and not row.once else row.finish(aggregate)
        arg = aggregate.args[0] if aggregate.args else None
        if aggregate.name == PYTHON:
            kind = Type("ROW", args=tuple((f"f{at}", arg.type) for at, arg in enumerate(aggregate.args)))
            arg = Call("ROW", aggregate.args, kind) if aggregate.args else Literal((), kind)
        numbers: list[int] = []
        for name in finish.parts:
            part = Accumulated(name, arg, aggregate.when, row.nulls)
            if part not in self.parts:
                self.parts[part] = len(self.fields)
                self.fields += part_of(name).fields
            start = self.parts[part]
            numbers += range(start, start + len(part_of(name).fields))
        self._finish[aggregate] = (numbers, finish.value)
        if aggregate.name == PYTHON:
            self.users.fields[aggregate] = numbers[0]

    def new(self) -> list[Any]:
        """The fields of no rows."""
        return [0 if kind == "q" else 0.0 if kind == "d" else None for kind in self.fields]

    def add(self, place: Place, names: dict[str, Any], leave: bool = False) -> tuple[list[str], list[str]]:
        """Code that adds ``row``: lines that evaluate arguments, which may raise, then lines that change fields.
        ``leave``: that takes it out again, the first that is there.

        ``place``: the text for a field. ``names``: gets what the code refers to."""
        names.update(GLOBALS)
        before: list[str] = []
        lines: list[str] = []
        texts: dict[Expression, str] = {}

        def text_of(expression: Expression) -> str:
            if expression not in texts:
                if isinstance(expression, Column):
                    texts[expression] = f"row[{expression.index}]"
                else:
                    name = f"f{len(texts)}"
                    names[name] = evaluator(expression)
                    texts[expression] = f"{name}_"
                    before.append(f"{name}_ = {name}(row)")
            return texts[expression]

        groups: dict[tuple[Expression | None, Expression | None, bool], list[Accumulated]] = {}
        for part in self.parts:
            groups.setdefault((part.when, part.arg, part.nulls), []).append(part)
        for (when, arg, nulls), parts in groups.items():
            indent = ""
            if when is not None:
                lines.append(f"if {text_of(when)} is True:")
                indent = "    "
            if arg is not None:
                lines.append(f"{indent}v = {text_of(arg)}")
                if not nulls:
                    lines.append(f"{indent}if v is not None:")
                    indent += "    "
            for part in parts:
                code = part_of(part.kind).leave if leave else part_of(part.kind).add
                lines += _filled(code, self.parts[part], place, None, indent)
        return before, lines

    def merge(
        self, place: Place, other: Accumulators, others: Place, names: dict[str, Any], before: bool = False
    ) -> list[str]:
        """Code that adds the fields of ``other``, which has all of these parts. ``before``: lists of later rows go
        before those of earlier ones."""
        names.update(GLOBALS)
        lines: list[str] = []
        for part, start in self.parts.items():
            first = other.parts[part]
            code = LIST_BEFORE if before and part.kind == "list" else part_of(part.kind).merge
            lines += _filled(code, start, place, _shifted(others, first), "")
        return lines

    def result(self, aggregate: Aggregate, place: Place, names: dict[str, Any]) -> str:
        """Code for the value of ``aggregate``."""
        numbers, value = self._finish[aggregate]
        if aggregate.name == PYTHON:
            value = partial(self.users.value, aggregate)
        if value is None:
            return place(numbers[0])
        name = f"r{len(names)}"
        names[name] = value
        return f"{name}({', '.join(map(place, numbers))})"

    # --- groups as lists of fields

    def compiled(
        self, aggregates: Sequence[Aggregate]
    ) -> tuple[Callable[..., None], Callable[..., None], Callable[..., Any]]:
        """For fields in a list: ``add(fields, row)``, ``merge(fields, others)`` and ``values(fields)``, a tuple."""
        names: dict[str, Any] = {}

        def place(i: int) -> str:
            return f"a[{i}]"

        before, lines = self.add(place, names)
        merge = self.merge(place, self, lambda i: f"o[{i}]", names)
        values = "".join(f"{self.result(aggregate, place, names)}, " for aggregate in aggregates)
        text = "\n".join(
            [
                "def add(a, row):",
                *_in([*before, *lines] or ["pass"], 1),
                "def merge(a, o):",
                *_in(merge or ["pass"], 1),
                "def values(a):",
                f"    return ({values})",
            ]
        )
        functions = run(text, names)
        return functions["add"], functions["merge"], functions["values"]

    def leaving(self) -> Callable[..., None]:
        """Return ``leave(fields, row)`` for fields in a list."""
        names: dict[str, Any] = {}
        before, lines = self.add(lambda i: f"a[{i}]", names, leave=True)
        leave: Callable[..., None] = run("\n".join(["def leave(a, row):", *_in([*before, *lines], 1)]), names)["leave"]
        return leave


def _distinct(aggregate: Aggregate) -> Finish:
    """DISTINCT: the values are kept, and the aggregate is made of each once."""
    if aggregate.name == "COUNT":
        return Finish(("bag",), lambda counts: len(counts or ()))
    plain = Aggregate(aggregate.name, (Column(0, aggregate.args[0].type),), aggregate.type, options=aggregate.options)
    whole = Accumulators([plain])
    add, _, values = whole.compiled([plain])

    def value(counts: dict[Any, int] | None) -> Any:
        fields = whole.new()
        for each in counts or ():
            add(fields, (each,))
        return values(fields)[0]

    return Finish(("bag",), value)


def _filled(code: str, start: int, place: Place, others: Place | None, indent: str) -> list[str]:
    own = [place(start + i) for i in range(3)]
    named = dict(zip("abc", (others(i) for i in range(3)), strict=True)) if others else {}
    return [indent + line for line in code.format(*own, **named).split("\n")]


def _in(lines: Iterable[str], depth: int) -> list[str]:
    return ["    " * depth + line for line in lines]


def run(text: str, names: dict[str, Any]) -> dict[str, Any]:
    """The functions that the generated ``text`` defines. It holds numbers and names of this module's making only."""
    namespace: dict[str, Any] = dict(names)
    exec(_code(text), namespace)  # noqa: S102  # text of ours only: names of parts and numbers
    return namespace


@lru_cache(256)
def _code(text: str) -> CodeType:
    return compile(text, "<aggregates>", "exec")
