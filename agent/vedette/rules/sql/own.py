"""User functions in SQL: CREATE FUNCTION, calls of them, and where in a plan they are evaluated.

What a function is (its kind, its types) its modules say: they are imported to find out, in an isolated subprocess
(``udf/``), and only where that is allowed. A call is then like any other expression; ``applied`` takes calls out of the
expressions of a Calc into ``Apply`` below it, those of WHERE before those of SELECT, and what WHERE asks of plain
columns before both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vedette.plan.query import (
    PYTHON,
    Apply,
    Calc,
    Call,
    Column,
    Expand,
    Expression,
    Join,
    LookupJoin,
    Match,
    Modules,
    Named,
    Node,
    Scan,
    Type,
    Union,
    Windowed,
    load,
    nodes,
)
from vedette.rules.ruleset import RuleSet, Unsupported
from vedette.rules.sql.checked import calls_own, every, parts
from vedette.rules.sql.trees import Wrong
from vedette.stream.aggregates import AGGREGATES
from vedette.stream.functions import cast
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import WrongTypes
from vedette.udf.modules import collected

NONE = Modules(())
_NOT_TAKEN = ("INTERVAL_SECOND", "INTERVAL_MONTH")


@dataclass(frozen=True)
class Own:
    """A declared function. ``problem``: why it cannot be called, where it cannot."""

    name: str
    target: str
    kind: str = ""
    modules: Modules = NONE
    input: tuple[Type, ...] | None = None
    result: tuple[Type, ...] = ()
    least: int = 0
    most: int | None = None
    merges: bool = True
    problem: str = ""
    hint: str = ""

    @property
    def options(self) -> tuple[Any, ...]:
        return self.target, self.modules.digest

    def usable(self, node: Any) -> None:
        """Raises Wrong when it cannot be called."""
        if self.problem:
            raise Wrong(node, f"{self.name} cannot be called: {self.problem}", self.hint)

    def arguments(self, node: Any, given: Sequence[Expression]) -> tuple[Expression, ...]:
        """The arguments of a call, of the types that the function has declared. Raises Wrong."""
        count, most = len(given), self.most
        wanted = self.input
        least = len(wanted) if wanted is not None else self.least
        most = len(wanted) if wanted is not None else most
        if count < least or (most is not None and count > most):
            takes = str(least) if least == most else f"{least} or more" if most is None else f"{least} to {most}"
            raise Wrong(node, f"{self.name} takes {takes} argument{'s' * (takes != '1')}, not {count}")
        found = []
        for at, one in enumerate(given):
            if one.type.name in _NOT_TAKEN:
                raise Wrong(
                    node, f"{self.name}: argument {at + 1} is an interval, which functions in Python do not take"
                )
            found.append(one if wanted is None else self._fitting(node, at, one, wanted[at]))
        return tuple(found)

    def _fitting(self, node: Any, at: int, given: Expression, to: Type) -> Expression:
        try:
            change = cast.implicit(given.type, to)
        except WrongTypes:
            change = None
            raise Wrong(node, f"{self.name}: argument {at + 1} is {to}, not {given.type}", f"CAST(… AS {to})") from None
        narrower = given.type.name not in ("NULL",) and change is not None and not _widens(given.type, to)
        if narrower:
            raise Wrong(node, f"{self.name}: argument {at + 1} is {to}, not {given.type}", f"CAST(… AS {to})")
        if change is None:
            return given
        return Call("CAST", (given,), LIBRARY.infer("CAST", (given,), (to,)), (to,))


_ORDER = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "FLOAT", "DOUBLE")


def _widens(given: Type, to: Type) -> bool:
    """Whether Flink brings an argument of one type to the other by itself."""
    if given.name in _ORDER and to.name in _ORDER:
        return _ORDER.index(given.name) <= _ORDER.index(to.name)
    return given.name == to.name or {given.name, to.name} <= {"TIMESTAMP", "TIMESTAMP_LTZ"}


@dataclass
class Declaring:
    """Makes functions of what one file declares."""

    rules: RuleSet
    path: str
    files: list[Path] = field(default_factory=list)

    def function(self, node: Any, name: str, target: str, language: str) -> Own:
        """Raises Wrong when it is none."""
        if language != "PYTHON":
            raise Wrong(node, f"{name} is written in {language or 'Java'}", "AS 'module.attribute' LANGUAGE PYTHON")
        if name in LIBRARY or name in LIBRARY.refused or name in AGGREGATES:
            raise Wrong(node, f"{name} is a function of Flink", "another name")
        try:
            target, modules, files = collected(Path(self.path).parent, target)
        except ValueError as error:
            raise Wrong(node, f"{name}: {error}", "a file beside this one, or in functions/") from None
        if self.rules.functions is None:
            return Own(
                name, target, problem="functions in Python are not allowed here",
                hint="--functions, or [functions] allow = true of an agent: it runs the code of these rules",
            )  # fmt: skip
        try:
            found = self.rules.functions.describe(modules, target)
        except ValueError as error:
            raise Wrong(node, f"{name}: {error}", "udf, udtf or udaf with types, in the module") from None
        self.rules.modules[modules.digest] = modules
        self.rules.module_files.update(dict.fromkeys(files))
        try:
            result = tuple(load(_lists(one)) for one in found["result"])
            given = None if found["input"] is None else tuple(load(_lists(one)) for one in found["input"])
        except (ValueError, KeyError, TypeError) as error:
            raise Wrong(node, f"{name}: {error}") from None
        return Own(name, target, found["kind"], modules, given, result, found["least"], found["most"], found["merges"])


def _lists(value: Any) -> Any:
    return [_lists(one) for one in value] if isinstance(value, tuple | list) else value


# --- in a plan


def merging(root: Node, functions: Iterable[Own]) -> None:
    """Raises Unsupported for an aggregate without ``merge`` where windows are made of slices."""
    known = {one.options: one for one in functions}
    for node in nodes(root):
        if isinstance(node, Windowed) and node.grid.kind != "TUMBLE":
            for one in node.aggregates:
                if one.name == PYTHON and not known[one.options].merges:
                    name = known[one.options].name
                    raise Unsupported(f"the aggregate {name} has no merge, which {node.grid.kind} needs",
                                      hint="def merge(self, accumulator, accumulators)")  # fmt: skip


def applied(node: Node) -> Node:
    """The nodes with an ``Apply`` for each step of calls of user functions. Raises Unsupported where one stands where
    it cannot."""
    changes: dict[str, Any] = {}
    for key in ("input", "left", "right"):
        if isinstance(below := getattr(node, key, None), Node):
            changes[key] = applied(below)
    if isinstance(node, Union):
        changes["parts"] = tuple(applied(one) for one in node.parts)
    if changes:
        node = replace(node, **changes)
    match node:
        case Calc():
            return _calc(node)
        case Expand(function=Call() as function) if any(map(calls_own, function.args)):
            return _expand(node)
        case Join(when=when) if when is not None and _own(when):
            raise Unsupported(f"{_own(when)[0].options[0]} depends on both sides of a join", hint=_BELOW)
        case LookupJoin(key=asked, when=when) if _own(asked) or (when is not None and _own(when)):
            raise Unsupported("a user function stands in the join with a lookup", hint=_BELOW)
        case Match() if any(_own(one) for one in (*(each for _, each in node.defines), *node.measures)):
            raise Unsupported("a user function stands in MATCH_RECOGNIZE", hint=_BELOW)
        case Scan(mark=mark) if mark is not None and _own(mark):
            raise Unsupported("a user function stands in WATERMARK", hint="a column of the table")
    return node


_BELOW = "SELECT f(x) AS y … in a query of its own below, and y here"


def _own(expression: Any) -> list[Call]:
    """The calls of user functions in it whose arguments hold none."""
    if not isinstance(expression, Call):
        return []
    inner = [one for arg in expression.args for one in _own(arg)]
    return inner or ([expression] if expression.name == PYTHON else [])


def _replaced(expression: Any, of: dict[Expression, Column]) -> Any:
    if isinstance(expression, Call):
        if expression in of:
            return of[expression]
        args = tuple(_replaced(arg, of) for arg in expression.args)
        return replace(expression, args=args)
    return expression


def _identity(node: Node) -> tuple[Column, ...]:
    return tuple(Column(at, one.type) for at, one in enumerate(node.columns, 1))


def _plain(node: Node) -> tuple[Named, ...]:
    return tuple(Named("", one.type) for one in node.columns)


def _with(node: Node, expressions: list[Any], others: list[Any]) -> tuple[Node, list[Any], list[Any]]:
    """``node`` with the values of all user functions in ``expressions`` behind its columns, and these without any;
    ``others`` take what is computed for these."""
    while calls := list(dict.fromkeys(call for one in expressions for call in _own(one))):
        width = len(node.columns)
        node = Apply((*_plain(node), *(Named("", one.type) for one in calls)), node.time, node, tuple(calls))
        of: dict[Expression, Column] = {one: Column(width + at, one.type) for at, one in enumerate(calls, 1)}
        expressions = [_replaced(one, of) for one in expressions]
        others = [_replaced(one, of) for one in others]
    return node, expressions, others


def _filtered(node: Node, when: Expression | None) -> Node:
    return Calc(_plain(node), node.time, node, _identity(node), when)


def _calc(node: Calc) -> Node:
    conditions = list(parts(node.when))
    late = [one for one in conditions if calls_own(one)]
    if not late and not any(map(calls_own, node.exprs)):
        return node
    early = every([one for one in conditions if not calls_own(one)])
    below, exprs = node.input, list(node.exprs)
    if early is not None or isinstance(below, Scan):
        below = _filtered(below, early)
    if late:
        below, late, exprs = _with(below, late, exprs)
        if any(map(calls_own, exprs)):
            below, late = _filtered(below, every(late)), []
    below, exprs, _ = _with(below, exprs, [])
    return Calc(node.columns, node.time, below, tuple(exprs), every(late))


def _expand(node: Expand) -> Node:
    width = len(node.input.columns)
    given, args, _ = _with(node.input, list(node.function.args), [])
    back = (*(Column(at, one.type) for at, one in enumerate(node.columns[:width], 1)),
            *(Column(len(given.columns) + at, one.type) for at, one in enumerate(node.columns[width:], 1)))  # fmt: skip
    behind = (*_plain(given), *(Named("", one.type) for one in node.columns[width:]))
    made = replace(node, columns=behind, input=given, function=replace(node.function, args=tuple(args)))
    return Calc(node.columns, node.time, made, back)
