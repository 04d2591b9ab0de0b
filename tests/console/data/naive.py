"""What a search finds, evaluated in plain Python over rows: the reference for the SQL."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Any

from vedette_console.data import query
from vedette_console.data.query import KINDS, All, Not, Pattern, Search, Term, Tree
from vedette_console.data.sql import COLUMNS

LEVELS = {"informational": 1, "low": 2, "medium": 3, "high": 4, "critical": 5}
OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, ":": operator.eq}


def matches(search: Search, row: Mapping[str, Any]) -> bool:
    """Whether ``row`` of ``alerts`` is found."""
    if not search.has("kind") and row["kind"] == "fold":
        return False
    return holds(search.tree, row)


def holds(tree: Tree, row: Mapping[str, Any]) -> bool:
    match tree:
        case Not(part):
            return not holds(part, row)
        case All(parts):
            return all(holds(part, row) for part in parts)
        case query.Any(parts):
            return any(holds(part, row) for part in parts)
        case Term():
            return term(tree, row)


def term(asked: Term, row: Mapping[str, Any]) -> bool:
    tags = [tag.lower() for tag in row["tags"] or ()]
    attack = [tag.removeprefix("attack.") for tag in tags if tag.startswith("attack.")]
    fields = dict(row["fields"] or {})
    match asked.field:
        case "level" if asked.op != ":":
            return bool(OPERATORS[asked.op](LEVELS.get(row["level"] or "", 0), asked.number))
        case "count" | "seq":
            return bool(OPERATORS[asked.op](row[asked.field] or 0, asked.number))
        case "fields.NAME":
            value = fields.get(asked.name) or ""
            if asked.op == ":":
                return like(value, asked.pattern)
            is_number = re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", value)
            return bool(is_number and OPERATORS[asked.op](float(value), asked.number))
        case "rule":
            return any(like(row[name] or "", asked.pattern) for name in ("rule_id", "rule_title"))
        case "tag":
            return any(like(tag, asked.pattern) for tag in tags)
        case "flag":
            return any(like(flag, asked.pattern) for flag in row["flags"] or ())
        case "tactic":
            dashed = Pattern(tuple(part.replace("_", "-") for part in asked.pattern.parts))
            return any(like(name.replace("_", "-"), dashed) for name in attack)
        case "technique":
            below = Pattern((*asked.pattern.parts[:-1], asked.pattern.parts[-1] + ".", ""))
            names = [name for name in attack if name.startswith("t")]
            return any(like(name, asked.pattern) or like(name, below) for name in names)
        case "text":
            inside = Pattern(("", *asked.pattern.parts, ""))
            texts = [row["rule_title"] or "", row["raw"] or "", *(value or "" for value in fields.values())]
            return any(like(text, inside) for text in texts)
        case field if field in KINDS or field == "entity":
            those = [e["value"] or "" for e in row["entities"] or () if field in ("entity", e["kind"])]
            return any(like(value, asked.pattern) for value in those)
        case field:
            return like(row[COLUMNS[field]] or "", asked.pattern)


def like(value: str, pattern: Pattern) -> bool:
    """Whether ``value`` is as ``pattern`` says, whatever its case."""
    if pattern.anything:
        return value != ""
    whole = ".*".join(re.escape(part.lower()) for part in pattern.parts)
    return re.fullmatch(whole, value.lower(), re.DOTALL) is not None
