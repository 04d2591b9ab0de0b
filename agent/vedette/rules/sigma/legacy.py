"""Conditions of Sigma 1 with an aggregation (``selection | count() by src_ip > 5``): the correlation to write instead.

Sigma 2 has no pipe in conditions. The refusal carries YAML that can take its place: the rule with
the plain condition and a name, and a correlation of it. Sigma 1, "Aggregation expressions".
"""

from __future__ import annotations

import copy
import re
from typing import Any

import yaml

_TYPES = {"count": "value_count", "sum": "value_sum", "avg": "value_avg"}
_OPERATORS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "=": "eq", "==": "eq"}
_AGGREGATION = re.compile(
    r"(?P<function>count|min|max|avg|sum)\s*\(\s*(?P<field>[^)]*?)\s*\)"
    r"(?:\s+by\s+(?P<by>.+?))?\s*(?P<operator>>=|<=|==|[<>=])\s*(?P<number>[0-9.]+)",
    re.I,
)
_NEAR = re.compile(r"near\s+(?P<names>[\w-]+(?:\s+and\s+[\w-]+)*)", re.I)


def correlation(document: dict[str, Any]) -> tuple[str, str, str] | None:
    """Reason, part of the rule and the YAML to write instead, for a rule with a pipe in its condition; else None."""
    detection = document.get("detection")
    condition = detection.get("condition") if isinstance(detection, dict) else None
    conditions = condition if isinstance(condition, list) else [condition]
    piped = next((text for text in conditions if isinstance(text, str) and "|" in text), None)
    if piped is None:
        return None
    plain, _, rest = (part.strip() for part in piped.partition("|"))
    reason = f"the pipe syntax '| {rest}' is Sigma 1: write a correlation"
    if len(conditions) == 1 and (match := _AGGREGATION.fullmatch(rest)):
        return reason, "condition", _counted(document, plain, match)
    if len(conditions) == 1 and (match := _NEAR.fullmatch(rest)):
        return reason, "condition", _near(document, plain, re.split(r"\s+and\s+", match["names"], flags=re.I))
    return reason, "condition", ""


def _counted(document: dict[str, Any], plain: str, match: re.Match[str]) -> str:
    function = match["function"].lower()
    counted = match["field"]
    if function not in _TYPES:
        return f"# Sigma 2 has no correlation for a {function}imum, only for counts, sums, averages and percentiles\n"
    kind = _TYPES[function] if counted else "event_count"
    number = float(match["number"])
    condition: dict[str, Any] = {_OPERATORS[match["operator"]]: int(number) if number.is_integer() else number}
    if counted:
        condition["field"] = counted
    name = _slug(document)
    body: dict[str, Any] = {"type": kind, "rules": [name]}
    if match["by"]:
        body["group-by"] = [part.strip() for part in match["by"].split(",")]
    return _written(document, [_base(document, name, plain)], body, condition)


def _near(document: dict[str, Any], plain: str, others: list[str]) -> str:
    names = [plain, *others]
    bases = [
        _base(document, f"{_slug(document)}_{re.sub(r'[^a-z0-9]+', '_', condition.lower())}", condition)
        for condition in names
    ]
    return _written(document, bases, {"type": "temporal", "rules": [base["name"] for base in bases]}, None)


def _written(
    document: dict[str, Any], bases: list[dict[str, Any]], body: dict[str, Any], condition: dict[str, Any] | None
) -> str:
    body["timespan"] = str(document["detection"].get("timeframe", "1h"))
    if condition is not None:
        body["condition"] = condition
    top = {"title": document.get("title", ""), "correlation": body, "level": document.get("level", "medium")}
    return yaml.safe_dump_all([*bases, top], sort_keys=False, allow_unicode=True, default_flow_style=False)


def _base(document: dict[str, Any], name: str, condition: str) -> dict[str, Any]:
    """The rule that is counted: ``document`` with a name, the plain condition and without what the correlation has."""
    base = copy.deepcopy(document)
    base["detection"]["condition"] = condition
    base["detection"].pop("timeframe", None)
    base.pop("level", None)
    return {"title": base.pop("title", ""), "name": name, **base}


def _slug(document: dict[str, Any]) -> str:
    return re.sub(r"[^a-z0-9]+", "_", str(document.get("name") or document.get("title", "rule")).lower()).strip("_")
