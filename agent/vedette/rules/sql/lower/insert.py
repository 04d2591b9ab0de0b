"""INSERT INTO a sink's table: the rows of a query as rows of the table's columns, by Flink's rules.

Columns go by place, or by the names that stand behind the table's; those without a value are NULL. A value is cast
where Flink casts it by itself (``LogicalTypeCasts`` of Apache Flink 2.3, its implicit rules), else the statement is
refused: nothing is lost that nobody asked to lose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vedette.plan.query import Call, Column, Expression, Literal, Type
from vedette.rules.sql.lower.relation import Relation, calc
from vedette.rules.sql.names.catalog import SinkTable
from vedette.rules.sql.names.scope import Col
from vedette.rules.sql.parse.trees import Wrong
from vedette.stream.functions.library import LIBRARY
from vedette.stream.values.types import BINARY, NUMERIC, STAMP, TEXT, WHOLE

_FROM: Mapping[str, Sequence[str]] = {
    **{name: WHOLE[: at + 1] for at, name in enumerate(WHOLE)},
    "DECIMAL": NUMERIC,
    "FLOAT": (*WHOLE, "FLOAT", "DECIMAL"),
    "DOUBLE": NUMERIC,
    "VARCHAR": TEXT,
    "STRING": TEXT,
    "VARBINARY": BINARY,
    "BYTES": BINARY,
    "DATE": ("DATE", "TIMESTAMP"),
    "TIME": ("TIME", "TIMESTAMP"),
    **dict.fromkeys(STAMP, STAMP),
}
"""By type of a column the types whose values become it without CAST; others only their own, of any length."""


def becomes(source: Type, to: Type) -> bool:
    """Whether a value of ``source`` is stored as ``to`` without CAST."""
    if source == to or source.name == "NULL":
        return True
    if source.args or to.args:
        pairs = [[part[1] if kind.name == "ROW" else part for part in kind.args] for kind in (source, to)]
        same = source.name == to.name and len(pairs[0]) == len(pairs[1])
        return same and all(becomes(part, of) for part, of in zip(*pairs, strict=True))
    return source.name in _FROM.get(to.name, (to.name,))


def inserted(relation: Relation, table: SinkTable, names: Sequence[str], node: Any) -> Relation:
    """Return the rows of ``relation`` as rows of ``table``. ``names``: the columns that they are of; empty: all, in
    order. Raises Wrong at ``node``."""
    targets = dict(table.columns)
    for at, name in enumerate(names):
        if name not in targets:
            raise Wrong(node, f"{table.name} has no column {name}", f"one of {', '.join([*targets][:12])}")
        if name in names[:at]:
            raise Wrong(node, f"the column {name} twice")
    written = names or [*targets]
    if len(written) != len(relation.cols):
        raise Wrong(node, f"{len(relation.cols)} columns for {len(written)} of {table.name}", ", ".join(written[:12]))
    values = dict[str, Expression]()
    for at, (name, col) in enumerate(zip(written, relation.cols, strict=True), 1):
        to = targets[name]
        if not becomes(col.type, to):
            hint = f"CAST(… AS {to}) AS {name}"
            raise Wrong(node, f"the column {name} of {table.name} is {to}, the {at}. of the query {col.type}", hint)
        value = Column(at, col.type)
        values[name] = (
            value if col.type == to else Call("CAST", (value,), LIBRARY.infer("CAST", (value,), (to,)), (to,))
        )
    exprs = [values.get(name) or Literal(None, to) for name, to in targets.items()]
    return calc(relation, exprs, [Col(name, to) for name, to in targets.items()])
