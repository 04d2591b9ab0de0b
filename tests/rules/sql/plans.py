# ruff: noqa: E501 - SQL and plans as they are
"""What a file of SQL comes to, as text that tests can spell out.

    Windowed(keys=2, aggregates=[COUNT(), MAX($3)], TUMBLE 600s)
      Calc($1, $2, $4 | =($3, 'fail'))
        Scan(events: event_time@, host@, action, user)

``$n`` is a column, ``|`` stands before a condition, ``@`` marks metadata. A Scan says behind its columns ``mark`` (what
its watermark is) and ``rule``, the condition that selects its events.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from vedette.plan import ir
from vedette.plan.grid import Grid
from vedette.plan.operators import described
from vedette.plan.query import (
    ALL_ROWS,
    SECOND,
    Aggregate,
    Assign,
    Calc,
    Call,
    Column,
    Grouped,
    Join,
    Literal,
    LookupJoin,
    Match,
    Node,
    Over,
    Scan,
    Top,
    Type,
    Union,
    Windowed,
)  # fmt: skip
from vedette.rules.ruleset import RuleSet
from vedette.rules.sql.frontend import Sql


def read(sql: str, path: str = "rule.sql") -> RuleSet:
    rules = RuleSet()
    Sql(rules).add(sql, path)
    return rules


def plan(sql: str) -> str:
    """The nodes of the last statement of ``sql``, of which none is refused."""
    rules = read(sql)
    assert not rules.refused, rules.refused
    return "\n".join(_lines(rules.statements[-1].root, rules, 0))


def names(sql: str) -> list[str]:
    rules = read(sql)
    assert not rules.refused, rules.refused
    return [f"{one.name} {one.type}" for one in rules.statements[-1].root.columns]


def selecting(sql: str) -> list[str]:
    """Of each Scan of the statements the condition that selects its events."""
    rules = read(sql)
    assert not rules.refused, rules.refused
    rows = {one.id: one for one in rules.rules}
    return [_rule(rows[scan.rule].expr, rules) for one in rules.statements for scan in one.scans]


def _rule(expr: ir.Expr, rules: RuleSet) -> str:
    match expr:
        case ir.Leaf(predicate):
            return described(rules.predicates[predicate])
        case ir.Not(arg):
            return f"not ({_rule(arg, rules)})"
        case ir.And(()):
            return "any"
        case ir.And(args):
            return " and ".join(f"({_rule(one, rules)})" for one in args)
        case ir.Or(args):
            return " or ".join(f"({_rule(one, rules)})" for one in args)
    raise AssertionError(expr)


def text(value: Any) -> str:
    """An expression or an aggregate."""
    match value:
        case Column(index):
            return f"${index}"
        case Literal(found):
            return repr(found) if not hasattr(found, "quantize") else str(found)
        case Call(name, args, _, options):
            return f"{name}({', '.join([*map(text, args), *(str(one) for one in options)])})"
        case Aggregate(name, args, _, distinct, when, options):
            inner = ", ".join([*map(text, args), *map(str, options)])
            return f"{name}({'DISTINCT ' * distinct}{inner}){f' | {text(when)}' if when is not None else ''}"
    return str(value)


def _grid(grid: Grid) -> str:
    parts = [grid.kind, f"{grid.size / SECOND:g}s"]
    parts += [f"step {grid.step / SECOND:g}s"] * bool(grid.step) + [f"offset {grid.offset / SECOND:g}s"] * bool(
        grid.offset
    )
    return " ".join(parts)


def _numbers(values: Any) -> str:
    return "+".join(map(str, values)) or "none"


def _inside(node: Node, rules: RuleSet) -> str:
    match node:
        case Scan():
            columns = ", ".join(one.path + "@" * one.metadata for one in node.sources)
            mark = f"; mark {text(node.mark)}" if node.mark is not None else ""
            inputs = f"; of {', '.join(node.inputs_named)}" if node.inputs_named else ""
            return f"{node.table}: {columns}{mark}{inputs}"
        case Calc():
            when = f" | {text(node.when)}" if node.when is not None else ""
            return ", ".join(map(text, node.exprs)) + when
        case Windowed():
            sets = f", sets={[*map(list, node.sets)]}" if node.sets else ""
            folds = ", ".join(map(text, node.aggregates))
            return f"keys={_numbers(node.keys)}, [{folds}], {_grid(node.grid)}{sets}{', legacy' * node.legacy}"
        case Assign():
            return f"keys={_numbers(node.keys)}, {_grid(node.grid)}"
        case Grouped():
            folds = ", ".join(map(text, node.aggregates))
            return f"keys={_numbers(node.keys)}, [{folds}], window={_numbers(node.window)}"
        case Over():
            frame = (
                f"rows {'all' if node.rows == ALL_ROWS else node.rows}"
                if node.rows is not None
                else f"range {node.range}"
                if node.range is not None
                else "all"
            )
            return f"keys={_numbers(node.keys)}, [{', '.join(map(text, node.aggregates))}], {frame}"
        case Top():
            order = ", ".join(f"{at}{' desc' * down}{' nulls last' * last}" for at, down, last in node.order)
            window = f", window={_numbers(node.window)}" if node.window[0] else ""
            return f"keys={_numbers(node.keys)}, order={order}, {node.first} to {node.last}{window}{', ranked' * node.ranked}"
        case Join():
            keys = f"{_numbers(node.left_keys)} = {_numbers(node.right_keys)}"
            bounds = (
                f"windows {node.windows}" if node.windows else f"{node.lower / SECOND:g}s to {node.upper / SECOND:g}s"
            )
            return f"{node.kind}, {keys}, {bounds}{f' | {text(node.when)}' if node.when is not None else ''}"
        case LookupJoin():
            when = f" | {text(node.when)}" if node.when is not None else ""
            wanted = ", ".join(node.wanted)
            return f"{node.kind} {node.lookup} by {node.index} = {text(node.key)}: {wanted}; at {node.at}{when}"
        case Match():
            pattern = " ".join(
                f"{one.name}{{{one.least},{'' if one.most is None else one.most}}}{'' if one.greedy else '?'}"
                for one in node.pattern
            )
            defines = "; ".join(f"{name} AS {text(one)}" for name, one in node.defines)
            skip = f"{node.skip} {node.skip_to}".strip()
            return (
                f"keys={_numbers(node.keys)}, {pattern}, {skip}, within {node.within / SECOND:g}s, [{defines}],"
                f" [{', '.join(map(text, node.measures))}]"
            )
        case Union():
            return ""
    values = [getattr(node, one.name) for one in fields(node) if one.name not in ("columns", "time", "input")]
    return ", ".join(text(one) if isinstance(one, Call) else str(one) for one in values)


def _lines(node: Node, rules: RuleSet, depth: int) -> list[str]:
    lines = [f"{'  ' * depth}{type(node).__name__}({_inside(node, rules)})"]
    for below in node.inputs:
        lines += _lines(below, rules, depth + 1)
    return lines


__all__ = ["Type", "names", "plan", "read", "selecting", "text"]
