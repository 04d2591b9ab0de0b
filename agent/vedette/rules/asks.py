"""What rules ask of a table that is not built yet: its keys, the columns that they return, and their types.

A key is of the kind that means what the rule says: of ``JOIN … ON a.ip = e.src_ip`` and ``IN`` texts are ``text``,
whole numbers ``number``, ``BETWEEN a.low AND a.high`` is a ``range``; of a placeholder ``expand`` is ``nocase``,
``cased|expand`` ``text``, ``cidr|expand`` ``cidr``. A column may be a key in several ways. ``%NAME%`` without a column
asks the one that is called as the rule's field, else the table's first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vedette.lookup.batch import Key
from vedette.plan.query import LookupJoin, Type
from vedette.rules.ruleset import RuleSet

OF_SIGMA = frozenset({"nocase", "cidr"})
"""Kinds of keys that only placeholders ask for: an index of another kind would not do."""

_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), "int"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), "float"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), "time"),
    "BOOLEAN": "bool",
}


@dataclass(slots=True)
class Asks:
    """``columns``: those that rules return, in order; ``types``: of columns that are not texts."""

    keys: dict[Key, None] = field(default_factory=dict)
    columns: dict[str, None] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)


def asks(name: str, header: tuple[str, ...], rules: RuleSet) -> Asks:
    """What ``rules``, loaded with it as ``wanted``, ask of the lookup ``name``, whose table has the columns ``header``.

    Raises ValueError for a column that the table lacks, and when no rule asks it.
    """
    found = Asks()
    for statement in rules.statements:
        for node in statement.lookups:
            if node.lookup == name:
                _joined(found, node)
    _placeholders(found, rules, name, header)
    if not found.keys:
        refused = next((str(one) for one in rules.refused), "")
        raise ValueError(
            f"no rule asks the lookup {name}" + (f"; the first that is refused: {refused}" if refused else "")
        )
    for column in (*found.columns, *(one for key in found.keys for one in key.columns)):
        if column not in header:
            raise ValueError(f"rules ask the lookup {name} for the column {column}; the table has {', '.join(header)}")
    return found


def _joined(found: Asks, node: LookupJoin) -> None:
    of = _type(node.key.type)
    columns = tuple(node.index.split(".."))
    kind = "range" if len(columns) == 2 else "number" if of == "int" else "text"
    found.keys[Key(columns, kind)] = None
    if kind != "text":
        found.types.update(dict.fromkeys(columns, of))
    given = node.columns[len(node.input.columns) :]
    for name, column in zip(node.wanted, given, strict=False):  # SEMI and ANTI give none
        found.columns[name] = None
        if (kind := _type(column.type)) != "text":
            found.types[name] = kind


def _placeholders(found: Asks, rules: RuleSet, name: str, header: tuple[str, ...]) -> None:
    for asked, column, of_field, kind in rules.wanted:
        if asked == name:
            chosen = column or (of_field if of_field in header else header[0])
            found.keys[Key((chosen,), kind)] = None


def _type(of: Type) -> str:
    return _TYPES.get(of.name, "text")
