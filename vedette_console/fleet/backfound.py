"""What a backtest has found: its Parquet, counted by rule, host and hour, by DuckDB with little memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from vedette_console.fleet.models import HostCount, HourCount, Match, RuleCount

FOUND = "kind IN ('match', 'correlation', 'statement')"
SHOWN = 200
MAX_HOURS = 24 * 400
MAX_NOTES = 50


@dataclass(slots=True)
class Found:
    events: int = 0
    rules: list[RuleCount] = field(default_factory=list)
    hosts: list[HostCount] = field(default_factory=list)
    by_hour: list[HourCount] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)
    matches_count: int = 0
    notes: list[str] = field(default_factory=list)


def read(folder: Path, since: int, until: int, sites: Mapping[str, str]) -> Found:
    """Of events received in that time, UTC microseconds. Raises OSError, ValueError."""
    parts = [str(path) for path in sorted(folder.glob("*.parquet"))]
    if not parts:
        return Found(notes=["it found nothing"])
    try:
        with duckdb.connect(
            config={"memory_limit": "256MB", "threads": 1, "autoinstall_known_extensions": False}
        ) as duck:
            duck.execute("SET TimeZone = 'UTC'")
            rows = duck.read_parquet(parts)
            rows.create_view("every")
            duck.execute(
                "CREATE TEMP VIEW found AS SELECT *, split_part(agent, '/', 1) AS host_agent FROM every WHERE "
                f"{FOUND} AND (received_at IS NULL OR (epoch_us(received_at) >= {int(since)}"
                f" AND epoch_us(received_at) < {int(until)}))"
            )
            return _read(duck, sites)
    except duckdb.Error as error:
        raise ValueError(str(error).partition("\n")[0]) from error


def _read(duck: Any, sites: Mapping[str, str]) -> Found:
    def ask(text: str) -> list[tuple[Any, ...]]:
        answer: list[tuple[Any, ...]] = duck.execute(text).fetchall()
        return answer

    found = Found()
    found.events = ask("SELECT coalesce(sum(events), 0) FROM every WHERE kind = 'read'")[0][0]
    found.matches_count = ask("SELECT count(*) FROM found")[0][0]
    found.rules = [
        RuleCount(rule_id=rule, title=title, level=level, kind=_kind(kind), matches=n, agents=m)
        for rule, title, level, kind, n, m in ask(
            "SELECT coalesce(rule_id, ''), coalesce(max(rule_title), ''), coalesce(max(level), ''), max(kind),"
            " count(*), count(DISTINCT host_agent) FROM found GROUP BY rule_id ORDER BY 5 DESC, 1 LIMIT 500")
    ]  # fmt: skip
    found.hosts = [
        HostCount(agent=agent, site=sites.get(agent, ""), matches=n)
        for agent, n in ask("SELECT host_agent, count(*) FROM found GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 500")
    ]
    found.by_hour = [
        HourCount(hour=_iso(hour) or "", matches=n)
        for hour, n in ask("SELECT date_trunc('hour', coalesce(event_time, received_at)) AS h, count(*) FROM found"
                           f" WHERE h IS NOT NULL GROUP BY 1 ORDER BY 1 DESC LIMIT {MAX_HOURS}")[::-1]
    ]  # fmt: skip
    found.matches = [_match(row, sites) for row in ask(
        "SELECT host_agent, kind, rule_id, rule_title, level, input, \"offset\", coalesce(event_time, received_at),"
        f" fields, raw FROM found ORDER BY received_at, agent, \"offset\" LIMIT {SHOWN}")]  # fmt: skip
    for kind, text in (
        ("gap", "events cannot be read"),
        ("undecided", "times a rule could not be decided on an event"),
    ):
        if n := ask(f"SELECT coalesce(sum(events), 0) FROM every WHERE kind = '{kind}'")[0][0]:
            found.notes.append(f"{n:,} {text}")
    found.notes += [f"{agent}: {reason}" for agent, reason in ask(
        f"SELECT agent, reason FROM every WHERE kind IN ('gap', 'not_correlated') LIMIT {MAX_NOTES}")]  # fmt: skip
    return found


def _match(row: tuple[Any, ...], sites: Mapping[str, str]) -> Match:
    agent, kind, rule, title, level, source, offset, time, fields, raw = row
    pairs = {str(key): str(value)[:1000] for key, value in [*(fields or {}).items()][:60] if value is not None}
    return Match(
        agent=agent, site=sites.get(agent, ""), rule_id=rule or "", title=title or "", level=level or "",
        kind=_kind(kind), input=source or "", offset=offset or 0, time=_iso(time),
        fields=pairs | ({"raw": raw[:2048]} if raw else {}),
    )  # fmt: skip


def _kind(kind: str) -> str:
    return "detection" if kind == "match" else kind


def _iso(time: object) -> str | None:
    if not isinstance(time, datetime):
        return None
    moment = time if time.tzinfo else time.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
