"""A search as SQL over the table ``alerts``. No text of a search ever stands in it but as hexadecimal (``ask.text``).

A test is never null: where an alert has no value it is as if it had the empty text. Cases do not matter, as DuckDB's
``lower`` has it. ``tests/console/data/naive.py`` says the same in Python.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_jobs.tables.ask import severity, text, time
from vedette_console.data.query import KINDS, All, Any, Not, Pattern, Search, Term, Tree

COLUMNS = {
    "title": "rule_title",
    "site": "site",
    "fleet": "fleet",
    "host": "host",
    "agent": "agent_id",
    "kind": "kind",
    "source": "source",
    "bundle": "bundle",
    "id": "alert_id",
    "level": "level",
}
"""Fields that are a column."""

NUMERIC = r"'-?[0-9]{1,15}(\.[0-9]{1,15})?'"
"""What of a text is taken for a number."""


def condition(search: Search) -> str:
    """SQL: whether a row of ``alerts`` is found."""
    parts = [where(search.tree)]
    if not search.has("kind"):
        parts.append("coalesce(kind, '') <> 'fold'")
    if search.since is not None:
        parts.append(f"counted_at >= {time(search.since)}::TIMESTAMPTZ")
    if search.until is not None:
        parts.append(f"counted_at < {time(search.until)}::TIMESTAMPTZ")
    return " AND ".join(f"({one})" for one in parts)


def where(tree: Tree) -> str:
    """SQL: whether ``tree`` holds; never null."""
    match tree:
        case Not(part):
            return f"NOT ({where(part)})"
        case All(parts):
            return " AND ".join(f"({where(one)})" for one in parts) or "true"
        case Any(parts):
            return " OR ".join(f"({where(one)})" for one in parts)
        case Term():
            return _term(tree)


def _term(one: Term) -> str:
    field, pattern = one.field, one.pattern
    if field in KINDS or field == "entity":
        kind = "" if field == "entity" else f"e.kind = '{field}' AND "
        return _some("entities", "e", f"{kind}{_is('e.value', pattern)}")
    if field == "level" and one.op != ":":
        return f"{severity()} {one.op} {int(one.number)}"
    if field == "fields.NAME":
        value = f"coalesce(fields[{text(one.name)}], '')"
        return _is(value, pattern) if one.op == ":" else _compared(value, one)
    if field in COLUMNS:
        return _is(f"coalesce({COLUMNS[field]}, '')", pattern)
    return _OTHERS[field](one)


def _rule(one: Term) -> str:
    return " OR ".join(_is(f"coalesce({column}, '')", one.pattern) for column in ("rule_id", "rule_title"))


def _tactic(one: Term) -> str:
    named = Pattern(tuple(part.replace("_", "-") for part in one.pattern.parts))
    test = _is("replace(substr(t, 8), '_', '-')", named)
    return _some("tags", "t", f"starts_with(lower(t), 'attack.') AND {test}")


def _technique(one: Term) -> str:
    below = Pattern((*one.pattern.parts[:-1], one.pattern.parts[-1] + ".", ""))
    test = f"{_is('substr(t, 8)', one.pattern)} OR {_is('substr(t, 8)', below)}"
    return _some("tags", "t", f"starts_with(lower(t), 'attack.t') AND ({test})")


def _text(one: Term) -> str:
    inside = Pattern(("", *one.pattern.parts, ""))
    values = _some("map_values(fields)", "v", _is("coalesce(v, '')", inside))
    return " OR ".join([*(_is(f"coalesce({column}, '')", inside) for column in ("rule_title", "raw")), values])


def _whole(one: Term) -> str:
    """A column of whole numbers."""
    sign = "=" if one.op == ":" else one.op
    return f"coalesce({one.field}, 0) {sign} {one.number!r}"


_OTHERS: dict[str, Callable[[Term], str]] = {
    "rule": _rule,
    "tag": lambda one: _some("tags", "t", _is("t", one.pattern)),
    "flag": lambda one: _some("flags", "t", _is("t", one.pattern)),
    "tactic": _tactic,
    "technique": _technique,
    "text": _text,
    "count": _whole,
    "seq": _whole,
}


def _some(column: str, name: str, test: str) -> str:
    """Whether ``test`` holds for an element ``name`` of a list."""
    return f"coalesce(len(list_filter({column}, lambda {name}: {test})), 0) > 0"


def _is(value: str, pattern: Pattern) -> str:
    """Whether the text ``value`` is as ``pattern`` says."""
    if pattern.anything:
        return f"{value} <> ''"
    match pattern.parts:
        case (whole,):
            return f"lower({value}) = lower({text(whole)})"
        case ("", part, ""):
            return f"contains(lower({value}), lower({text(part)}))"
    like = "%".join(_literal(part) for part in pattern.parts)
    return f"lower({value}) LIKE lower({text(like)}) ESCAPE '\\'"


def _literal(part: str) -> str:
    """``part`` with what means something in LIKE taken literally."""
    return part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _compared(value: str, one: Term) -> str:
    return (
        f"CASE WHEN regexp_full_match({value}, {NUMERIC}) "
        f"THEN coalesce(TRY_CAST({value} AS DOUBLE) {one.op} CAST({one.number!r} AS DOUBLE), false) ELSE false END"
    )
