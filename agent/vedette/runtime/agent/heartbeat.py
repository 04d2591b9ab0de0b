"""The status as the region gets it, every ``uplink.heartbeat``: all that it reads, and of long lists the first rows.

``vedette status --json`` and ``/metrics`` have the whole status; a heartbeat is sent by every agent of a fleet every
minute and kept by the broker and the landing, so it must not grow with the rules. Whole in it: ``inputs``, ``totals``,
``input_states``, ``alerts``, ``rules.alerts``, ``process``, ``actual`` and all figures. Of a list it has the first
``LISTED`` rows, those that matter most, and ``NAME_count``, how many there are when that is more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

HEARTBEAT_BYTES = 1 << 20
"""Of a heartbeat, at most (``delivery.envelope.MAX_MESSAGE``): of a longer one, with very many inputs or rule sets, no
lists are sent."""
LISTED = 5
"""Rows of a list."""
TEXT = 200
"""Characters of a reason or a title."""


def heartbeat(status: Mapping[str, Any]) -> bytes:
    """Of a whole status."""
    data = orjson.dumps(_brief(status, LISTED))
    return data if len(data) <= HEARTBEAT_BYTES else orjson.dumps(_brief(status, 0))


def _brief(status: Mapping[str, Any], most: int) -> dict[str, Any]:
    rules, state, statements = status["rules"], status["correlation_state"], status["statement_state"]
    lookups, listed = status["lookups"], {*rules["dead"]}
    faults = rules["dead"][: max(0, rules["dead_count"] - sum(rules["waiting"].values()))]
    undecided = sorted(rules["undecided"].items(), key=lambda item: -item[1])
    moving = [
        {name: value for name, value in row.items() if name != "title"}
        for row in sorted(state["correlations"], key=lambda row: [-row[name] for name in _MOVING])
        if any(row[name] for name in _MOVING)
    ]
    largest = sorted(statements["statements"], key=lambda row: -row["bytes"])
    return {
        **status,
        "rules": {
            **rules,
            "dead": _first(faults, most),  # those that only wait for an input are counted in ``waiting``
            **_rows("waiting", rules["waiting"], most),
            **_rows("undecided", dict(undecided), most),
            "quarantined": _first(rules["quarantined"], most),
        },
        "rulesets": [_ruleset(row, listed, most) for row in status["rulesets"]],
        "lookups": {name: value for part, rows in lookups.items() for name, value in _rows(part, rows, most).items()},
        "correlation_state": {
            **state,
            **_rows("started_empty", state["started_empty"], most),
            **_rows("correlations", moving, most),
        },
        "statement_state": {
            **statements,
            **_rows("statements", largest, most),
            **_rows("without_functions", statements["without_functions"], most),
            **_rows("for_sinks", statements["for_sinks"], most),
        },
        "input_states": [_short(row) for row in status["input_states"]],
        **_rows("problems", status["problems"], most),
        "budgets": {name: _budget(row) for name, row in status["budgets"].items()},
    }


_MOVING = ("groups", "fired", "late", "ungrouped")
"""A correlation without any of these has nothing to report."""


def _ruleset(row: Mapping[str, Any], listed: set[str], most: int) -> dict[str, Any]:
    """``listed``: reasons that ``rules`` has counted or named already, mostly all."""
    dead = [reason for reason in row["dead"] if reason not in listed]
    brief = {**row, "dead": _first(dead, most), "renamed": _first(row["renamed"], most)}
    return brief if most else {name: value for name, value in brief.items() if name != "process"}


def _budget(row: Mapping[str, Any]) -> dict[str, Any]:
    """``unit`` and ``action`` only while the action is under way."""
    return {name: value for name, value in row.items() if row["reached"] or name not in ("unit", "action")}


def _rows(name: str, rows: Any, most: int) -> dict[str, Any]:
    """The first of them, and how many there are when these are not all."""
    first = {name: _first(rows, most)}
    return first if len(rows) <= most else {**first, f"{name}_count": len(rows)}


def _first(rows: Any, most: int) -> Any:
    """Of a list or a map, texts cut."""
    pairs = isinstance(rows, Mapping)
    return dict([*rows.items()][:most]) if pairs else [_short(row) for row in [*rows][:most]]


def _short(value: Any) -> Any:
    """``value`` with its texts cut; those within lists stay."""
    if isinstance(value, str):
        return value if len(value) <= TEXT else f"{value[: TEXT - 1]}…"
    return {name: _short(entry) for name, entry in value.items()} if isinstance(value, dict) else value
