"""GROUP BY: aggregates by window and keys, GROUPING SETS, the older group windows, HAVING."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

from sqlglot import exp

from vedette.plan.grid import Grid
from vedette.plan.query import (
    PYTHON,
    Aggregate,
    Assign,
    Call,
    Column,
    Expression,
    Grouped,
    Literal,
    Node,
    Type,
    Windowed,
)
from vedette.plan.query import nodes as every_node
from vedette.rules.sql.lower.relation import (
    TIMESTAMP,
    GroupedSets,
    Relation,
    calc,
    column_of,
    grid_of,
    timed,
    with_keys,
)
from vedette.rules.sql.names import expressions
from vedette.rules.sql.names.check import Checker
from vedette.rules.sql.names.expressions import BIGINT, BOOLEAN, unnamed
from vedette.rules.sql.names.scope import Col, Scope, time_column
from vedette.rules.sql.parse import trees
from vedette.rules.sql.parse.trees import Wrong, only
from vedette.stream.aggregates.table import AGGREGATES
from vedette.stream.functions.table import WrongTypes

MAX_SETS = 64
"""GROUPING SETS of one query."""

_OF_WINDOW = {
    f"{kind}{end}": (kind, what)
    for kind in ("TUMBLE", "HOP", "SESSION")
    for end, what in (("_START", "start"), ("_END", "end"), ("_ROWTIME", "time"), ("_PROCTIME", "time"))
}
_OTHER = {True: ("ROWTIME", "PROCTIME"), False: ("PROCTIME", "ROWTIME")}
"""By whether a window is over PROCTIME() what of a function's name is wrong, and what is right."""


def _calls(tree: Any) -> Iterator[Any]:
    """The functions of an expression, those behind OVER and in queries within it left out."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Window):
            stack += [*node.this.iter_expressions()] if isinstance(node.this, exp.Expr) else []
            continue
        if isinstance(node, exp.Query):
            continue
        if isinstance(node, exp.Anonymous):
            yield node
        stack += list(node.iter_expressions())


def is_aggregate(scope: Scope, name: str) -> bool:
    return name in AGGREGATES or (name in scope.functions and scope.functions[name].kind == "aggregate")


def has_aggregates(select: Any, scope: Scope) -> bool:
    return any(is_aggregate(scope, trees.function_name(call)) for item in select.expressions for call in _calls(item))


def aggregate(checker: Checker, node: Any) -> Aggregate | None:
    """The aggregate that a call means over the rows of ``checker``; None for any other node."""
    whole = node
    when = None
    if isinstance(node, exp.Filter):
        only(node, "this", "expression")
        when = checker.condition(node.expression.this)
        node = node.this
    if isinstance(node, exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        inner = node.this
        if isinstance(inner, exp.Anonymous) and is_aggregate(checker.scope, trees.function_name(inner)):
            raise Wrong(node, f"{trees.named(node)} is not supported", "LISTAGG(x, ',') in the order of the events")
        return None
    if not isinstance(node, exp.Anonymous) or not is_aggregate(checker.scope, name := trees.function_name(node)):
        return None
    only(node, "this", "expressions")
    items = list(node.expressions)
    distinct = False
    if items and isinstance(items[0], exp.Distinct):
        only(items[0], "expressions")
        distinct = True
        items = [*items[0].expressions, *items[1:]]
    if len(items) == 1 and isinstance(items[0], exp.Star):
        if name != "COUNT" or distinct:
            raise Wrong(items[0], f"* is for COUNT(*), not for {name}", f"{name}(column)")
        items = []
    elif not items and name == "COUNT":
        raise Wrong(node, "COUNT() of nothing", "COUNT(*)")
    inner_checker = Checker(checker.scope, partial(_nested, checker.scope))
    args = [inner_checker.of(item) for item in items]
    if name not in AGGREGATES:
        own = checker.scope.functions[name]
        own.usable(node)
        if checker.scope.without or distinct:
            where = checker.scope.without or "DISTINCT"
            raise Wrong(node, f"{name} cannot stand in {where}: it is a user function", "GROUP BY a window")
        return Aggregate(PYTHON, own.arguments(node, args), own.result[0], False, when, own.options)
    options: list[Any] = []
    while len(args) > 1 and (constant := _constant(args[-1])) is not None:
        args.pop()
        options.insert(0, constant[0])
    kind = _type_of(whole, name, tuple(args), tuple(options))
    return Aggregate(name, tuple(args), kind, distinct, when, tuple(options))


def inputs(fold: Aggregate) -> tuple[Expression, ...]:
    """The expressions that an aggregate is over: its arguments, and the condition of its FILTER."""
    return fold.args if fold.when is None else (*fold.args, fold.when)


def over_columns(fold: Aggregate, places: Iterator[int]) -> Aggregate:
    """The aggregate over columns at ``places``, which hold its ``inputs``."""
    args = tuple(Column(next(places), value.type) for value in fold.args)
    return replace(fold, args=args, when=None if fold.when is None else Column(next(places), BOOLEAN))


def _type_of(node: Any, name: str, args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    try:
        return AGGREGATES[name].infer(args, options)
    except WrongTypes as error:
        types = ", ".join(str(arg.type) for arg in args)
        raise Wrong(node, f"{name}({types}): {error}") from None


def _constant(value: Expression) -> tuple[Any] | None:
    """The value of a literal, or of an ARRAY of them."""
    if isinstance(value, Literal):
        return (value.value,)
    if isinstance(value, Call) and value.name == "ARRAY" and all(isinstance(item, Literal) for item in value.args):
        return (tuple(item.value for item in value.args if isinstance(item, Literal)),)
    return None


def _nested(scope: Scope, node: Any) -> None:
    if isinstance(node, exp.Anonymous) and is_aggregate(scope, trees.function_name(node)):
        raise Wrong(node, "an aggregate within an aggregate", "a query around it")


@dataclass(slots=True)
class Keys:
    """Keys that GROUP BY names: plain ones, the sets of GROUPING SETS (as lists of trees), and a group window."""

    plain: list[Any] = field(default_factory=list)
    sets: list[list[Any]] = field(default_factory=list)
    legacy: Any = None


def group_of(group: Any) -> Keys:
    keys = Keys()
    if group is None:
        return keys
    only(group, "expressions", "grouping_sets", "cube", "rollup")
    several: list[list[list[Any]]] = []
    for item in group.expressions:
        if isinstance(item, exp.Cube | exp.Rollup):
            several.append(_spread(type(item).__name__.lower(), list(item.expressions)))
            continue
        if isinstance(item, exp.GroupingSets):
            several.append(_sets(item))
            continue
        for part in item.expressions if isinstance(item, exp.Tuple) else [item]:
            if isinstance(part, trees.Call) and part.this in ("TUMBLE", "HOP", "SESSION"):
                if keys.legacy is not None:
                    raise Wrong(part, "two group windows", "one of them, or FROM TABLE(TUMBLE(…))")
                keys.legacy = part
            elif isinstance(part, exp.Literal):
                raise Wrong(part, "GROUP BY of a number is not supported", "the column's name")
            else:
                keys.plain.append(part)
    for sets in group.args.get("grouping_sets") or ():
        several.append(_sets(sets))
    for key in ("cube", "rollup"):
        for cube in group.args.get(key) or ():
            several.append(_spread(key, list(cube.expressions)))
    if several:
        for chosen in product(*several):
            keys.sets.append([part for group in chosen for part in group])
            if len(keys.sets) > MAX_SETS:
                raise Wrong(group, f"more than {MAX_SETS} GROUPING SETS")
    return keys


def _spread(kind: str, parts: list[Any]) -> list[list[Any]]:
    groups = [
        list(part.expressions) if isinstance(part, exp.Tuple) else [part.this if isinstance(part, exp.Paren) else part]
        for part in parts
    ]
    if kind == "rollup":
        chosen: list[Sequence[int]] = [range(n) for n in range(len(groups), -1, -1)]
    else:
        if len(groups) > 6:
            raise Wrong(parts[0], f"CUBE of {len(groups)} columns: more than {MAX_SETS} sets")
        chosen = [[at for at in range(len(groups)) if not bits >> at & 1] for bits in range(1 << len(groups))]
    return [[part for at in places for part in groups[at]] for places in chosen]


def _sets(group: Any) -> list[list[Any]]:
    sets: list[list[Any]] = []
    for part in group.expressions:
        if isinstance(part, exp.Tuple):
            sets.append(list(part.expressions))
        elif isinstance(part, exp.Paren):
            sets.append([part.this])
        elif isinstance(part, exp.Cube | exp.Rollup):
            sets += _spread(type(part).__name__.lower(), list(part.expressions))
        elif isinstance(part, exp.GroupingSets):
            sets += _sets(part)
        else:
            sets.append([part])
    return sets


class Grouping:
    """One SELECT with aggregates over ``relation``."""

    def __init__(self, tree: Any, scope: Scope, relation: Relation, keys: Keys) -> None:
        self.tree = tree
        self.scope = scope
        self.relation = relation
        self.checker = Checker(scope)
        self.keys: list[Expression] = []
        self.grid: Grid | None = None
        self.time = 0
        for node in keys.plain:
            self.key(node)
        always = len(self.keys)
        self.sets: list[tuple[int, ...]] = []
        for group in keys.sets:
            places = tuple(sorted({*range(always), *(self.key(node) for node in group)}))
            self.sets.append(places)
        if keys.legacy is not None:
            self.legacy(keys.legacy)
        self.aggregates: list[Aggregate] = []

    def refuse_sessions(self, node: Node) -> None:
        """Flink's rows of these are of other sessions than those of PARTITION BY: nothing to be compared with."""
        if any(isinstance(window, Assign) and window.grid.kind == "SESSION" for window in every_node(node)):
            raise Wrong(
                self.tree.args["group"], "GROUPING SETS, ROLLUP, CUBE over SESSION", "one statement for each set"
            )

    def key(self, node: Any) -> int:
        value = self.checker.of(node)
        if not expressions.columns(value):
            raise Wrong(node, "a key of GROUP BY names a column")
        if value not in self.keys:
            self.keys.append(value)
        return self.keys.index(value)

    def legacy(self, node: Any) -> None:
        if node.this == "SESSION" and self.sets:  # as in Flink
            raise Wrong(node, "GROUP BY SESSION(…) with GROUPING SETS", "one statement for each set")
        time, *rest = node.expressions
        index = time_column(self.checker.of(time), self.relation.cols)
        if index is None:
            raise Wrong(time, f"{node.this} takes a time attribute first", f"{node.this}(event_time, …)")
        self.grid = grid_of(node, node.this, rest)
        if self.grid.offset:
            raise Wrong(node, "a group window has no offset", "FROM TABLE(TUMBLE(TABLE …, DESCRIPTOR(…), …))")
        self.time = index

    # --- what the items mean over the groups

    def hook(self, node: Any) -> Expression | None:
        fold = aggregate(self.checker, node)
        if fold is not None:
            if fold not in self.aggregates:
                self.aggregates.append(fold)
            return Column(_AGGREGATES + self.aggregates.index(fold), fold.type)
        if isinstance(node, exp.Anonymous):
            name = trees.function_name(node)
            received = self.time > 0 and self.relation.cols[self.time - 1].receipt
            if name.endswith("TIME") and name in _OF_WINDOW and name.endswith("_PROCTIME") != received:
                raise Wrong(node, f"{name} is of another time than its window", name.replace(*_OTHER[received]))
            if name in _OF_WINDOW:
                return self.of_window(node, *_OF_WINDOW[name])
            if name in ("GROUPING", "GROUPING_ID"):
                return self.grouping(node)
        if isinstance(node, exp.Window):
            raise Wrong(node, "OVER beside GROUP BY", "a query around it")
        if isinstance(node, exp.Literal | exp.Null | exp.Boolean | trees.IntervalLiteral | trees.TimeLiteral):
            return None
        if isinstance(node, exp.Column | exp.Dot) or any(not isinstance(key, Column) for key in self.keys):
            try:
                value = self.checker.of(node)
            except Wrong:
                if isinstance(node, exp.Column | exp.Dot):
                    raise
                return None
            if value in self.keys:
                return Column(_KEYS + self.keys.index(value), value.type)
            if isinstance(node, exp.Column | exp.Dot):
                raise Wrong(
                    node,
                    f"{node.sql()} is neither in GROUP BY nor in an aggregate",
                    "the column in GROUP BY, or MIN, MAX, LAST_VALUE of it",
                )
        return None

    def of_window(self, node: Any, kind: str, what: str) -> Expression:
        if self.grid is None or self.grid.kind != kind:
            raise Wrong(node, f"{trees.function_name(node)} without {kind} in GROUP BY", f"window_{what}")
        time, *rest = node.expressions or [None]
        same = time is not None and self.checker.of(time) == Column(self.time, self.relation.cols[self.time - 1].type)
        if not same or grid_of(node, kind, rest) != self.grid:
            raise Wrong(node, f"{trees.function_name(node)} has the arguments that {kind} has in GROUP BY")
        return Column(_WINDOW[what], TIMESTAMP if what != "time" else self.relation.cols[self.time - 1].type)

    def grouping(self, node: Any) -> Expression:
        """Bits of the keys that a row's set leaves out, the last argument's lowest."""
        if not self.sets:
            raise Wrong(node, f"{trees.function_name(node)} without GROUPING SETS")
        places = []
        for arg in node.expressions:
            value = self.checker.of(arg)
            if value not in self.keys:
                raise Wrong(arg, f"{trees.function_name(node)} takes keys of GROUP BY")
            places.append(self.keys.index(value))
        if not places:
            raise Wrong(node, f"{trees.function_name(node)} takes keys of GROUP BY")
        total: Expression | None = None
        for at, place in enumerate(places):
            bit: Expression = Column(_BITS, BIGINT)
            shift = len(self.keys) - 1 - place
            if shift:
                bit = self.checker.call(node, "/", (bit, Literal(1 << shift, BIGINT)))
            bit = self.checker.call(node, "%", (bit, Literal(2, BIGINT)))
            weight = 1 << (len(places) - 1 - at)
            if weight > 1:
                bit = self.checker.call(node, "*", (bit, Literal(weight, BIGINT)))
            total = bit if total is None else self.checker.call(node, "+", (total, bit))
        assert total is not None
        return total

    def lowered(self, items: list[tuple[str, Any, int]], having: Any) -> Relation:
        """The relation of the SELECT: ``items`` over the groups of which ``having`` is true."""
        over = Checker(self.scope, self.hook)
        exprs: list[Expression] = []
        for _, node, at in items:
            if at:
                raise Wrong(node, "* beside GROUP BY", "the columns by name")
            exprs.append(over.of(node))
        when = None if having is None else over.condition(having.this)
        grouped = self._grouped()
        count = len(self.keys)
        width = count + len(self.aggregates)
        places = {_WINDOW["start"]: width + 1, _WINDOW["end"]: width + 2, _WINDOW["time"]: width + 3}
        places[_BITS] = len(grouped.cols)

        def placed(index: int, kind: Any) -> Expression:
            if index in places:
                return Column(places[index], kind)
            if index >= _AGGREGATES:
                return Column(count + 1 + index - _AGGREGATES, kind)
            return Column(1 + index - _KEYS, kind)

        values = [expressions.substituted(expr, placed) for expr in exprs]
        shown = [column_of(name, value, grouped) for (name, _, _), value in zip(items, values, strict=True)]
        return calc(grouped, values, shown, None if when is None else expressions.substituted(when, placed))

    def _grouped(self) -> Relation:
        """Groups: a column for each key and aggregate, then those of a group window, then the bits of the sets."""
        relation = self.relation if self.grid is None else timed(self.relation, self.time)
        base, places = with_keys(relation, [*self.keys, *(value for fold in self.aggregates for value in inputs(fold))])
        keys = places[: len(self.keys)]
        rest = iter(places[len(self.keys) :])
        folds = tuple(over_columns(fold, rest) for fold in self.aggregates)
        cols = [replace(base.cols[at - 1], name="") for at in keys] + [Col("", fold.type) for fold in folds]
        bits = [Col("", BIGINT)] if self.sets else []
        sets = tuple(self.sets)
        if self.grid is not None:
            cols = [replace(col, rowtime=False, window="", receipt=False) for col in cols]
            cols += [Col("", TIMESTAMP, window="start"), Col("", TIMESTAMP, window="end")]
            cols.append(Col("", relation.cols[self.time - 1].type, True, "time"))
            time = len(cols)
            cols += bits
            return Relation(Windowed(unnamed(cols), time, base.node, self.grid, keys, folds, sets, True), cols)
        window = self._window(relation, keys)
        cols = [replace(col, rowtime=col.window == "time", receipt=False) for col in cols]
        time = next((at for at, col in enumerate(cols, 1) if col.rowtime), 0)
        if not sets:
            return Relation(Grouped(unnamed(cols), time, base.node, keys, folds, window), cols)
        self.refuse_sessions(base.node)
        cols += bits
        return Relation(GroupedSets(unnamed(cols), time, base.node, keys, folds, window, sets), cols)

    def _window(self, relation: Relation, keys: tuple[int, ...]) -> tuple[int, int]:
        """Start and end of the window that is among the keys, in each of the sets."""
        window = relation.window()
        if window is None or not {*window} <= {*keys}:
            reason = "GROUP BY of a window needs window_start and window_end"
            if window is None:
                reason = "GROUP BY without a window would change rows already given"
            raise Wrong(self.tree.args.get("group") or self.tree, reason, _INSTEAD)
        needed = {keys.index(at) for at in window}
        if any(not needed <= {*places} for places in self.sets):
            raise Wrong(
                self.tree.args["group"],
                "each of the GROUPING SETS holds window_start and window_end",
                "GROUP BY window_start, window_end, GROUPING SETS (…)",
            )
        return window


_INSTEAD = (
    "FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '10' MINUTE))"
    " GROUP BY window_start, window_end, …"
)
_KEYS = 1 << 16
_AGGREGATES = 1 << 17
_BITS = 1 << 18
"""Places of columns of groups until the layout is known."""
_WINDOW = {"start": _BITS + 1, "end": _BITS + 2, "time": _BITS + 3}
