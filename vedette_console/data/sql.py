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


NOT_FOLD = "coalesce(kind, '') <> 'fold'"
"""SQL: whether an alert is none that stands for others."""


def names(kind: str, value: str) -> str:
    """SQL: whether an alert names the entity; never null."""
    return f"coalesce(list_contains(entities, {{'kind': {text(kind)}, 'value': {text(value)}}}), false)"


def condition(search: Search) -> str:
    """SQL: whether a row of ``alerts`` is found."""
    parts = [where(search.tree)]
    if not search.has("kind"):
        parts.append(NOT_FOLD)
    if search.since is not None:
        parts.append(f"counted_at >= {time(search.since)}::TIMESTAMPTZ")
    if search.until is not None:
        parts.append(f"counted_at < {time(search.until)}::TIMESTAMPTZ")
    return " AND ".join(f"({part})" for part in parts)


def where(tree: Tree) -> str:
    """SQL: whether ``tree`` holds; never null."""
    match tree:
        case Not(part):
            return f"NOT ({where(part)})"
        case All(parts):
            return " AND ".join(f"({where(part)})" for part in parts) or "true"
        case Any(parts):
            return " OR ".join(f"({where(part)})" for part in parts)
        case Term():
            return _term(tree)


def _term(term: Term) -> str:
    field, pattern = term.field, term.pattern
    if field in KINDS or field == "entity":
        kind = "" if field == "entity" else f"e.kind = '{field}' AND "
        return _some("entities", "e", f"{kind}{_is('e.value', pattern)}")
    if field == "level" and term.op != ":":
        return f"{severity()} {term.op} {int(term.number)}"
    if field == "fields.NAME":
        value = f"coalesce(fields[{text(term.name)}], '')"
        return _is(value, pattern) if term.op == ":" else _compared(value, term)
    if field in COLUMNS:
        return _is(f"coalesce({COLUMNS[field]}, '')", pattern)
    return _OTHERS[field](term)


def _rule(term: Term) -> str:
    return " OR ".join(_is(f"coalesce({column}, '')", term.pattern) for column in ("rule_id", "rule_title"))


def _tactic(term: Term) -> str:
    named = Pattern(tuple(part.replace("_", "-") for part in term.pattern.parts))
    test = _is("replace(substr(t, 8), '_', '-')", named)
    return _some("tags", "t", f"starts_with(lower(t), 'attack.') AND {test}")


def _technique(term: Term) -> str:
    below = Pattern((*term.pattern.parts[:-1], term.pattern.parts[-1] + ".", ""))
    test = f"{_is('substr(t, 8)', term.pattern)} OR {_is('substr(t, 8)', below)}"
    return _some("tags", "t", f"starts_with(lower(t), 'attack.t') AND ({test})")


def _text(term: Term) -> str:
    inside = Pattern(("", *term.pattern.parts, ""))
    values = _some("map_values(fields)", "v", _is("coalesce(v, '')", inside))
    return " OR ".join([*(_is(f"coalesce({column}, '')", inside) for column in ("rule_title", "raw")), values])


def _whole(term: Term) -> str:
    """A column of whole numbers."""
    sign = "=" if term.op == ":" else term.op
    return f"coalesce({term.field}, 0) {sign} {term.number!r}"


_OTHERS: dict[str, Callable[[Term], str]] = {
    "rule": _rule,
    "tag": lambda term: _some("tags", "t", _is("t", term.pattern)),
    "flag": lambda term: _some("flags", "t", _is("t", term.pattern)),
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


def _compared(value: str, term: Term) -> str:
    return (
        f"CASE WHEN regexp_full_match({value}, {NUMERIC}) "
        f"THEN coalesce(TRY_CAST({value} AS DOUBLE) {term.op} CAST({term.number!r} AS DOUBLE), false) ELSE false END"
    )
