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
from vedette.rules.sql import checked, nodes, trees
from vedette.rules.sql.check import Checker
from vedette.rules.sql.checked import BIGINT, BOOLEAN
from vedette.rules.sql.relation import (
    TIMESTAMP,
    GroupedSets,
    Relation,
    calc,
    column_of,
    named,
    timed,
    with_keys,
)
from vedette.rules.sql.scope import Col, Scope
from vedette.rules.sql.tables import grid_of
from vedette.rules.sql.trees import Wrong, only
from vedette.stream.aggregates import AGGREGATES
from vedette.stream.functions.table import WrongTypes

MAX_SETS = 64
"""GROUPING SETS of one query."""

_OF_WINDOW = {f"{kind}{end}": (kind, what) for kind in ("TUMBLE", "HOP", "SESSION")
              for end, what in (("_START", "start"), ("_END", "end"), ("_ROWTIME", "time"))}  # fmt: skip


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
    return any(is_aggregate(scope, trees.function_name(one)) for item in select.expressions for one in _calls(item))


def aggregate(checker: Checker, node: Any) -> Aggregate | None:
    """What an aggregate's call means over the rows of ``checker``; None for anything else."""
    whole, when = node, None
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
    given, distinct = list(node.expressions), False
    if given and isinstance(given[0], exp.Distinct):
        only(given[0], "expressions")
        distinct, given = True, [*given[0].expressions, *given[1:]]
    if len(given) == 1 and isinstance(given[0], exp.Star):
        if name != "COUNT" or distinct:
            raise Wrong(given[0], f"* is for COUNT(*), not for {name}", f"{name}(column)")
        given = []
    elif not given and name == "COUNT":
        raise Wrong(node, "COUNT() of nothing", "COUNT(*)")
    inner_checker = Checker(checker.scope, partial(_nested, checker.scope))
    args = [inner_checker.of(one) for one in given]
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


def _type_of(node: Any, name: str, args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    try:
        return AGGREGATES[name].infer(args, options)
    except WrongTypes as error:
        given = ", ".join(str(one.type) for one in args)
        raise Wrong(node, f"{name}({given}): {error}") from None


def _constant(value: Expression) -> tuple[Any] | None:
    """The value of a literal, or of an ARRAY of them."""
    if isinstance(value, Literal):
        return (value.value,)
    if isinstance(value, Call) and value.name == "ARRAY" and all(isinstance(one, Literal) for one in value.args):
        return (tuple(one.value for one in value.args if isinstance(one, Literal)),)
    return None


def _nested(scope: Scope, node: Any) -> None:
    if isinstance(node, exp.Anonymous) and is_aggregate(scope, trees.function_name(node)):
        raise Wrong(node, "an aggregate within an aggregate", "a query around it")


@dataclass(slots=True)
class Keys:
    """What GROUP BY names: plain keys, the sets of GROUPING SETS (as lists of trees), and a group window."""

    plain: list[Any] = field(default_factory=list)
    sets: list[list[Any]] = field(default_factory=list)
    legacy: Any = None


def group_of(group: Any) -> Keys:
    found = Keys()
    if group is None:
        return found
    only(group, "expressions", "grouping_sets", "cube", "rollup")
    several: list[list[list[Any]]] = []
    for one in group.expressions:
        if isinstance(one, exp.Cube | exp.Rollup):
            several.append(_spread(type(one).__name__.lower(), list(one.expressions)))
            continue
        if isinstance(one, exp.GroupingSets):
            several.append(_sets(one))
            continue
        for part in one.expressions if isinstance(one, exp.Tuple) else [one]:
            if isinstance(part, nodes.Call) and part.this in ("TUMBLE", "HOP", "SESSION"):
                if found.legacy is not None:
                    raise Wrong(part, "two group windows", "one of them, or FROM TABLE(TUMBLE(…))")
                found.legacy = part
            elif isinstance(part, exp.Literal):
                raise Wrong(part, "GROUP BY of a number is not supported", "the column's name")
            else:
                found.plain.append(part)
    for one in group.args.get("grouping_sets") or ():
        several.append(_sets(one))
    for key in ("cube", "rollup"):
        for one in group.args.get(key) or ():
            several.append(_spread(key, list(one.expressions)))
    if several:
        for chosen in product(*several):
            found.sets.append([part for one in chosen for part in one])
            if len(found.sets) > MAX_SETS:
                raise Wrong(group, f"more than {MAX_SETS} GROUPING SETS")
    return found


def _spread(kind: str, parts: list[Any]) -> list[list[Any]]:
    groups = [
        list(one.expressions) if isinstance(one, exp.Tuple) else [one.this if isinstance(one, exp.Paren) else one]
        for one in parts
    ]
    if kind == "rollup":
        chosen: list[Sequence[int]] = [range(n) for n in range(len(groups), -1, -1)]
    else:
        if len(groups) > 6:
            raise Wrong(parts[0], f"CUBE of {len(groups)} columns: more than {MAX_SETS} sets")
        chosen = [[at for at in range(len(groups)) if not bits >> at & 1] for bits in range(1 << len(groups))]
    return [[part for at in one for part in groups[at]] for one in chosen]


def _sets(one: Any) -> list[list[Any]]:
    found: list[list[Any]] = []
    for part in one.expressions:
        if isinstance(part, exp.Tuple):
            found.append(list(part.expressions))
        elif isinstance(part, exp.Paren):
            found.append([part.this])
        elif isinstance(part, exp.Cube | exp.Rollup):
            found += _spread(type(part).__name__.lower(), list(part.expressions))
        elif isinstance(part, exp.GroupingSets):
            found += _sets(part)
        else:
            found.append([part])
    return found


class Grouping:
    """One SELECT with aggregates over ``relation``."""

    def __init__(self, tree: Any, scope: Scope, relation: Relation, keys: Keys) -> None:
        self.tree, self.scope, self.relation = tree, scope, relation
        self.checker = Checker(scope)
        self.keys: list[Expression] = []
        self.grid: Grid | None = None
        self.time = 0
        for node in keys.plain:
            self.key(node)
        always = len(self.keys)
        self.sets: list[tuple[int, ...]] = []
        for one in keys.sets:
            places = tuple(sorted({*range(always), *(self.key(node) for node in one)}))
            self.sets.append(places)
        if keys.legacy is not None:
            self.legacy(keys.legacy)
        self.aggregates: list[Aggregate] = []
        self._quiet = False

    def refuse_sessions(self, node: Node) -> None:
        """Flink's rows of these are of other sessions than those of PARTITION BY: nothing to be compared with."""
        if any(isinstance(one, Assign) and one.grid.kind == "SESSION" for one in every_node(node)):
            raise Wrong(
                self.tree.args["group"], "GROUPING SETS, ROLLUP, CUBE over SESSION", "one statement for each set"
            )

    def key(self, node: Any) -> int:
        value = self.checker.of(node)
        if not checked.columns(value):
            raise Wrong(node, "a key of GROUP BY names a column")
        if value not in self.keys:
            self.keys.append(value)
        return self.keys.index(value)

    def legacy(self, node: Any) -> None:
        if node.this == "SESSION" and self.sets:  # as in Flink
            raise Wrong(node, "GROUP BY SESSION(…) with GROUPING SETS", "one statement for each set")
        time, *rest = node.expressions
        found = self.checker.of(time)
        if not isinstance(found, Column) or not self.relation.cols[found.index - 1].rowtime:
            raise Wrong(time, f"{node.this} takes a time attribute first", f"{node.this}(event_time, …)")
        self.grid = grid_of(node, node.this, rest)
        if self.grid.offset:
            raise Wrong(node, "a group window has no offset", "FROM TABLE(TUMBLE(TABLE …, DESCRIPTOR(…), …))")
        self.time = found.index

    # --- what the items mean over the groups

    def hook(self, node: Any) -> Expression | None:
        made = aggregate(self.checker, node)
        if made is not None:
            if made not in self.aggregates:
                self.aggregates.append(made)
            return Column(_AGGREGATES + self.aggregates.index(made), made.type)
        if isinstance(node, exp.Anonymous):
            name = trees.function_name(node)
            if name in _OF_WINDOW:
                return self.of_window(node, *_OF_WINDOW[name])
            if name in ("GROUPING", "GROUPING_ID"):
                return self.grouping(node)
            if name.endswith("_PROCTIME"):
                raise Wrong(node, f"{name} would depend on the clock", name.replace("PROCTIME", "ROWTIME"))
        if isinstance(node, exp.Window):
            raise Wrong(node, "OVER beside GROUP BY", "a query around it")
        if isinstance(node, exp.Literal | exp.Null | exp.Boolean | nodes.IntervalLiteral | nodes.TimeLiteral):
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
        for one in node.expressions:
            value = self.checker.of(one)
            if value not in self.keys:
                raise Wrong(one, f"{trees.function_name(node)} takes keys of GROUP BY")
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
        over = Checker(self.scope, self.hook)
        exprs: list[Expression] = []
        for _, node, at in items:
            if at:
                raise Wrong(node, "* beside GROUP BY", "the columns by name")
            exprs.append(over.of(node))
        when = None if having is None else over.condition(having.this)
        relation, cols = self.relation, self.relation.cols
        if self.grid is not None:
            relation = timed(relation, self.time)
        given = [
            value for one in self.aggregates for value in (*one.args, *([one.when] if one.when is not None else ()))
        ]
        base, places = with_keys(relation, [*self.keys, *given])
        keys = places[: len(self.keys)]
        rest = iter(places[len(self.keys) :])
        folds = []
        for one in self.aggregates:
            args = tuple(Column(next(rest), value.type) for value in one.args)
            folds.append(replace(one, args=args, when=Column(next(rest), BOOLEAN) if one.when is not None else None))
        out = [replace(base.cols[at - 1], name="") for at in keys] + [Col("", one.type) for one in folds]
        after = [Col("", TIMESTAMP, window="start"), Col("", TIMESTAMP, window="end")]
        bits = [Col("", BIGINT)] if self.sets else []
        width = len(out)
        if self.grid is not None:
            out = [replace(col, rowtime=False, window="") for col in out]
            out += [*after, Col("", cols[self.time - 1].type, True, "time"), *bits]
            made: Relation = Relation(
                Windowed(named(out), width + 3, base.node, self.grid, keys, tuple(folds), tuple(self.sets), True), out
            )
        else:
            window = relation.window()
            if window is None or not {*window} <= {*keys}:
                raise Wrong(self.tree.args.get("group") or self.tree, self.without(window), _INSTEAD)
            needed = {keys.index(at) for at in window}
            if any(not needed <= {*one} for one in self.sets):
                raise Wrong(
                    self.tree.args["group"],
                    "each of the GROUPING SETS holds window_start and window_end",
                    "GROUP BY window_start, window_end, GROUPING SETS (…)",
                )
            if self.sets:
                self.refuse_sessions(base.node)
            out = [replace(col, rowtime=col.window == "time") for col in out]
            time = next((at for at, col in enumerate(out, 1) if col.rowtime), 0)
            if self.sets:
                out += bits
                made = Relation(
                    GroupedSets(named(out), time, base.node, keys, tuple(folds), window, tuple(self.sets)), out
                )
            else:
                made = Relation(Grouped(named(out), time, base.node, keys, tuple(folds), window), out)
        names = {_WINDOW["start"]: width + 1, _WINDOW["end"]: width + 2, _WINDOW["time"]: width + 3, _BITS: len(out)}

        def placed(index: int, kind: Any) -> Expression:
            if index in names:
                return Column(names[index], kind)
            if index >= _AGGREGATES:
                return Column(len(keys) + 1 + index - _AGGREGATES, kind)
            return Column(1 + index - _KEYS, kind)

        found = [checked.substituted(one, placed) for one in exprs]
        shown = [column_of(name, value, made) for (name, _, _), value in zip(items, found, strict=True)]
        return calc(made, found, shown, None if when is None else checked.substituted(when, placed))

    def without(self, window: tuple[int, int] | None) -> str:
        if window is None:
            return "GROUP BY without a window would change rows already given"
        return "GROUP BY of a window needs window_start and window_end"


_INSTEAD = (
    "FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '10' MINUTE))"
    " GROUP BY window_start, window_end, …"
)
_KEYS, _AGGREGATES, _BITS = 1 << 16, 1 << 17, 1 << 18
"""Where columns of groups are until the layout is known."""
_WINDOW = {"start": _BITS + 1, "end": _BITS + 2, "time": _BITS + 3}
