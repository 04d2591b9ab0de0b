"""Completions at a place of a search: fields, operators, and values that there are."""

from __future__ import annotations

import re
from datetime import datetime

from spark_jobs.common.attack import TACTICS
from spark_jobs.tables.ask import LEVELS, text
from spark_jobs.tables.schema import AGENTS, ENTITY_SITE_5M, HOST_1H, RULES, WIN_5M
from vedette_console.data.models import Completion
from vedette_console.data.query import FIELDS, KINDS, MAX_SEARCH, quoted
from vedette_console.data.reader import Reader
from vedette_console.data.rows import last_days
from vedette_console.web import Listing

MOST = 12
DAYS = 7
_TOKEN = re.compile(r'-?(?:[A-Za-z_][\w.]*(?::|>=|<=|>|<))?(?:"(?:[^"\\]|\\.)*"?|[^\s()"]*)$')
_PARTS = re.compile(r"(-?)([A-Za-z_][\w.]*)(:|>=|<=|>|<)(.*)", re.DOTALL)
_FIXED = {
    "level": list(LEVELS),
    "kind": ["detection", "correlation", "fold"],
    "tactic": list(TACTICS),
    "since": ["1h", "24h", "7d", "14d", "30d"],
    "flag": ["cut", "clamped_time", "time_jump", "dup", "partial", "incomplete", "redacted", "response"],
}
"""Fields whose values are known without asking."""


def complete(reader: Reader, q: str, at: int, now: datetime | None = None) -> Listing[Completion]:
    """Texts that may stand in place of the word that ends at character ``at`` of ``q``."""
    at = max(0, min(at, len(q), MAX_SEARCH))
    match = _TOKEN.search(q[:at])
    word = match[0] if match else ""
    start = at - len(word)
    parts = _PARTS.fullmatch(word)
    if parts is None:
        return Listing(items=_fields(word, start, at))
    minus, field, op, value = parts.groups()
    begun = value.strip('"').replace('\\"', '"').replace("\\\\", "\\")
    items = [
        Completion(text=f"{minus}{field}{op}{quoted(proposal)} ", label=proposal, start=start, end=at)
        for proposal in values(reader, field, begun, now)
        if proposal
    ]
    return Listing(items=items)


def _fields(word: str, start: int, end: int) -> list[Completion]:
    minus = "-" if word.startswith("-") else ""
    begun = word.removeprefix("-").lower()
    return [
        Completion(text=f"{minus}{name.removesuffix('NAME')}" + ("" if name.endswith("NAME") else ":"),
                   label=f"{name}: {what}", start=start, end=end)
        for name, what in FIELDS.items() if name.startswith(begun)
    ][: MOST if begun else len(FIELDS)]  # fmt: skip


def values(reader: Reader, field: str, begun: str, now: datetime | None = None) -> list[str]:
    """Values of ``field`` that begin so, or hold it, the commonest first."""
    if field in _FIXED:
        return [value for value in _FIXED[field] if value.startswith(begun.lower())]
    source = _source(reader, field, now)
    if source is None:
        return []
    lower = f"lower({text(begun)})"
    rows = reader.rows(
        f"""SELECT v, sum(n) AS n FROM ({source}) WHERE v <> '' AND contains(lower(v), {lower})
        GROUP BY v ORDER BY starts_with(lower(v), {lower}) DESC, sum(n) DESC, v LIMIT {MOST}"""
    )
    return [row["v"] for row in rows]


def _source(reader: Reader, field: str, now: datetime | None) -> str | None:
    """SQL: values ``v`` of a field and how often, ``n``; None for one whose values are not known."""
    period = last_days(DAYS, now)
    if field in KINDS or field == "entity":
        reader.view("entity", ENTITY_SITE_5M, period.since, period.until)
        kind = "true" if field == "entity" else f"kind = '{field}'"
        return f"SELECT value AS v, alerts AS n FROM entity WHERE {kind}"
    if field in ("rule", "title", "tag", "technique"):
        reader.view("rule_names", RULES)
        column = {"tag": "unnest(tags)", "technique": "unnest(techniques)"}.get(field, "rule_title")
        return f"SELECT {column} AS v, coalesce(alerts, 1) AS n FROM rule_names"
    if field in ("site", "fleet"):
        reader.view("win", WIN_5M, period.since, period.until)
        return f"SELECT {field} AS v, alerts AS n FROM win"
    if field == "host":
        reader.view("host", HOST_1H, period.since, period.until)
        return "SELECT host AS v, alerts AS n FROM host"
    if field in ("agent", "bundle"):
        reader.view("agents", AGENTS)
        return f"SELECT {'agent_id' if field == 'agent' else 'bundle'} AS v, 1 AS n FROM agents"
    return None
