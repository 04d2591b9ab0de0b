"""Which fields of events a value comes from that is called otherwise: columns of statements, groups of correlations.

Every column an expression names counts, and the condition under which a row is there does not: the value of a column
says something of what it was made of. A count says nothing of what was counted. A lookup's columns come from its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vedette.decode.redact import TEXT
from vedette.plan.query import (
    Aggregate,
    Apply,
    Assign,
    Calc,
    Expand,
    Grouped,
    Join,
    LookupJoin,
    Match,
    Node,
    Over,
    Scan,
    Statement,
    Top,
    Union,
    Windowed,
    indexes,
    nodes,
)
from vedette.plan.relation import Correlation

_METADATA = {"raw": TEXT, "host": "hostname"}
Fields = frozenset[str]
_NONE: Fields = frozenset()


def of_statement(statement: Statement) -> Mapping[str, Fields]:
    """By the name of a column of the statement's rows the fields that it comes from."""
    by_node = dict[bytes, list[Fields]]()
    for node in nodes(statement.root):
        below = [by_node[source.fingerprint] for source in node.inputs]
        columns = _columns(node, below)
        every = _all(column for input_columns in below for column in input_columns)
        by_node[node.fingerprint] = [*columns, *[every] * (len(node.columns) - len(columns))][: len(node.columns)]
    by_name = dict[str, Fields]()
    for named, fields in zip(statement.root.columns, by_node[statement.root.fingerprint], strict=True):
        by_name[named.name] = by_name.get(named.name, _NONE) | fields
    return by_name


def _columns(node: Node, below: list[list[Fields]]) -> list[Fields]:
    """Return the fields of each column; what lacks at the end comes from all."""
    first = below[0] if below else []

    def of(value: Any) -> Fields:
        if isinstance(value, Aggregate) and value.name == "COUNT":
            return _NONE
        return _all(first[at - 1] for at in indexes(value) if 0 < at <= len(first))

    match node:
        case Scan():
            return [
                frozenset({_METADATA.get(source.path, source.path) if source.metadata else source.path})
                for source in node.sources
            ]
        case Calc():
            return [of(expression) for expression in node.exprs]
        case Apply():
            return [*first, *map(of, node.functions)]
        case Union():
            return [_all(columns) for columns in zip(*below, strict=True)]
        case Expand():
            return [*first, *[of(node.function)] * (len(node.columns) - len(first))]
        case Assign() | Top():
            return [*first, *[_NONE] * (len(node.columns) - len(first))]
        case Over():
            return [*first, *map(of, node.aggregates)]
        case Windowed() | Grouped():
            grouped = [*(first[at - 1] for at in node.keys), *map(of, node.aggregates)]
            return [*grouped, *[_NONE] * (len(node.columns) - len(grouped))]
        case LookupJoin():
            return [*first, *[of(node.key)] * (len(node.columns) - len(first))]
        case Join():
            return [*first, *below[1]]
        case Match():
            return [*(first[at - 1] for at in node.keys), *map(of, node.measures)]
    return []


def of_correlation(correlation: Correlation) -> Mapping[str, Fields]:
    """By the name of a group or a value in its alerts the fields of its rules that are meant."""
    by_name = {name: frozenset(slot.field(name) for slot in correlation.slots) for name in correlation.group_by}
    if correlation.kind.row.numeric:
        by_name[correlation.kind.value] = frozenset(
            slot.field(name) for slot in correlation.slots for name in correlation.field
        )
    return by_name


def _all(parts: Iterable[Fields]) -> Fields:
    return frozenset().union(*parts)
