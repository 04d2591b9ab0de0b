"""Requests of rules to a table that is not built yet: its keys, the columns that they return, and their types.

A key is of the kind that means what the rule says: of ``JOIN … ON a.ip = e.src_ip`` and ``IN`` texts are ``text``,
whole numbers ``number``, ``BETWEEN a.low AND a.high`` is a ``range``; of a placeholder ``expand`` is ``nocase``,
``cased|expand`` ``text``, ``cidr|expand`` ``cidr``. A column may be a key in several ways. ``%NAME%`` without a column
asks the one that is called as the rule's field, else the table's first.

Rows of equal keys are kept where some rule needs them or does not mind: a join that compares further columns (a key of
two columns), IN, EXISTS, a placeholder. Where all that rules do is join by one key, a second row of a key is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from vedette.lookup.batch import Key
from vedette.lookup.recipe import Recipe
from vedette.lookup.source import header
from vedette.plan.query import Call, Column, Expression, LookupJoin, Type
from vedette.rules.ruleset import RuleSet

OF_SIGMA = frozenset({"nocase", "cidr"})
"""Kinds of keys that only placeholders ask for: an index of another kind would not do."""
TEXTS = frozenset({"text", "nocase", "cidr"})
"""Kinds that keep a column's texts each in its own form: a column can have one of these."""

_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), "int"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), "float"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), "time"),
    "BOOLEAN": "bool",
}


@dataclass(slots=True)
class Asks:
    """``keys`` and ``by``: of a key and of a column the file and line of the first rule that asks for it; ``columns``:
    those that rules return, in order; ``types``: of columns that are not texts; ``several``: rows of equal keys are
    kept."""

    keys: dict[Key, str] = field(default_factory=dict)
    columns: dict[str, None] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    by: dict[str, str] = field(default_factory=dict)
    several: bool = False

    def key(self, key: Key, rule: str) -> None:
        self.keys.setdefault(key, rule)
        for column in key.columns:
            self.by.setdefault(column, rule)


def recipe(name: str, table: Path, rules: RuleSet, declared: Recipe) -> Recipe:
    """``declared``, with what ``rules``, loaded with it as ``wanted``, ask of the lookup ``name``, which is to be built
    of ``table``. Raises ValueError for a column that the table lacks, and when no rule asks it."""
    there = header(table)
    asked = asks(name, there, rules)
    if not asked.keys:
        refused = next((str(refusal) for refusal in rules.refused), "")
        raise ValueError(
            f"no rule asks the lookup {name}" + (f"; the first that is refused: {refused}" if refused else "")
        )
    for column, rule in asked.by.items():
        if column not in there:
            raise ValueError(
                f"{table}:1: there is no column {column}, which {rule} asks of the lookup {name}: add it or write"
                f" another in the rule; there are {', '.join(there)}"
            )
    for key, other in combinations(asked.keys, 2):
        if key.columns == other.columns and {key.kind, other.kind} <= TEXTS:
            raise ValueError(
                f"{table}:1: {asked.keys[key]} asks for the column {key.columns[0]} as {key.kind},"
                f" {asked.keys[other]} as {other.kind}: ask alike in both, or give the table the column twice"
            )
    declared_keys = {key.columns for key in declared.keys}  # keys that were declared have precedence for joins
    more = [
        key
        for key in asked.keys
        if key not in declared.keys and (key.kind in OF_SIGMA or key.columns not in declared_keys)
    ]
    keys = (*declared.keys, *more)
    needed = [*(column for key in keys for column in key.columns), *asked.columns, *(declared.valid or ())]
    return replace(
        declared,
        keys=keys,
        types={**asked.types, **declared.types},
        columns=declared.columns or tuple(dict.fromkeys(needed)),
        duplicates=declared.duplicates or ("keep" if asked.several else "refuse"),
    )


def asks(name: str, header: tuple[str, ...], rules: RuleSet) -> Asks:
    """Collect what ``rules`` ask of the lookup ``name``, whose table has the columns ``header``; no keys: nothing."""
    asked = Asks()
    for statement in rules.statements:
        for node in statement.lookups:
            if node.lookup == name:
                _joined(asked, node, f"{statement.path}:{statement.line}")
    for request in rules.wanted:
        if request.lookup == name:
            column = request.column or (request.field if request.field in header else "")
            key = Key((column or header[0],), request.kind)
            asked.key(key, request.rule)
            asked.several = True
            if not column:
                asked.keys = {key: request.rule, **asked.keys}  # such a placeholder asks the lookup's first key
    return asked


def by_column(name: str, rules: RuleSet) -> bool:
    """Whether some rule asks the lookup ``name`` for a column, which a list of values has none of."""
    joined = any(node.lookup == name for statement in rules.statements for node in statement.lookups)
    return joined or any(request.lookup == name and request.column for request in rules.wanted)


def _joined(asked: Asks, node: LookupJoin, rule: str) -> None:
    of = _type(node.key.type)
    key = tuple(node.index.split(".."))
    kind = "range" if len(key) == 2 else "number" if of == "int" else "text"
    asked.key(Key(key, kind), rule)
    if kind != "text":
        asked.types.update(dict.fromkeys(key, of))
    width = len(node.input.columns)
    types = {
        **dict(_columns(node.when)),
        **{at: column.type for at, column in enumerate(node.columns[width:], width + 1)},
    }
    for at, name in enumerate(node.wanted, width + 1):
        if at in types:
            asked.columns[name] = None
            asked.by.setdefault(name, rule)
            if (kind := _type(types[at])) != "text":
                asked.types[name] = kind
    asked.several |= node.kind in ("SEMI", "ANTI") or _has_key(node.when, width)


def _has_key(condition: Expression | None, width: int) -> bool:
    """Whether a part of it is an equality of a column of the table with one of the row, which has ``width``."""
    if not isinstance(condition, Call):
        return False
    if condition.name == "AND":
        return any(_has_key(operand, width) for operand in condition.args)
    sides = [{at > width for at, _ in _columns(side)} for side in condition.args]
    return condition.name == "=" and sides in ([{False}, {True}], [{True}, {False}])


def _columns(expression: Any) -> Iterator[tuple[int, Type]]:
    if isinstance(expression, Column):
        yield expression.index, expression.type
    elif isinstance(expression, Call):
        for operand in expression.args:
            yield from _columns(operand)


def _type(of: Type) -> str:
    return _TYPES.get(of.name, "text")
