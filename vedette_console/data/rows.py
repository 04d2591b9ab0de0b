"""Rows of answers as models, and what lists share: columns, cursors, bounds, and the days that a question is about."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from spark_jobs.common.period import Period, period
from spark_jobs.report.page import attack_link, attack_name
from spark_jobs.tables.ask import Row, text
from spark_jobs.tables.schema import ALERTS, RULES, Table
from spark_jobs.tables.tables import Where
from vedette_console.data.models import AlertRow, Technique
from vedette_console.data.reader import Reader
from vedette_console.web import MAX_LIMIT, Problem

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RAW = 240
"""Characters of an alert's text in a list."""
ENTITIES = 8
"""Of an alert in a list."""

ALERT_ROW = f"""received_date, agent_id, alert_id, counted_at, kind, level, rule_id, rule_title, fleet, site, host,
source, count, entities[1:{ENTITIES}] AS entities, left(raw, {RAW}) AS raw"""
"""SQL: the columns of ``alert_row``."""

NEWEST = "counted_at DESC, agent_id, alert_id"
"""SQL: the order of alerts in a list."""


def alert_values(row: Row) -> Row:
    """A row of the table, with what an ``AlertRow`` calls otherwise."""
    return {**row, "day": row["received_date"], "time": row["counted_at"]}


def alert_row(row: Row) -> AlertRow:
    """An alert of a list, of the columns ``ALERT_ROW``."""
    return AlertRow.model_validate(alert_values(row))


def technique(name: str) -> Technique:
    return Technique(id=name, name=attack_name(name), link=attack_link(name))


def limited(limit: int) -> int:
    """A limit within ``MAX_LIMIT``."""
    return max(1, min(limit, MAX_LIMIT))


def cursor(*values: int | float | str) -> str:
    """The name of the last row of a page: its place in the order."""
    return base64.urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).decode().rstrip("=")


def place(after: str, *kinds: type) -> list[Any] | None:
    """The values of a ``cursor``, of these types; None for the first page. Raises Problem 400 for another text."""
    if not after:
        return None
    try:
        values = json.loads(base64.urlsafe_b64decode(after.encode() + b"=" * (-len(after) % 4)))
        if isinstance(values, list) and [type(value) for value in values] == list(kinds):
            return values
    except (ValueError, RecursionError):
        pass
    raise _unknown_page()


def _unknown_page() -> Problem:
    return Problem(400, "this page of the list is unknown", where="after", what_to_do="begin with the first page")


def offset(after: str) -> int:
    """The number of rows before a page of a list that is cut by number."""
    values = place(after, int)
    if values is None:
        return 0
    if not 0 <= values[0] <= 10_000_000:
        raise _unknown_page()
    return int(values[0])


def following(before: int, shown: int, total: int) -> str | None:
    """The cursor of the next page of such a list."""
    return cursor(before + shown) if shown and before + shown < total else None


def moment(number: int) -> datetime:
    """The time of UTC microseconds since 1970. Raises Problem 400 for one beyond the calendar."""
    try:
        return EPOCH + timedelta(microseconds=number)
    except OverflowError:
        raise _unknown_page() from None


class Part(NamedTuple):
    """Rows of a list that is cut by number, how many it has in all, and the cursor of those that follow."""

    rows: list[Row]
    total: int
    next: str | None


def part(reader: Reader, source: str, order: str, after: str, limit: int) -> Part:
    """Rows of ``source`` in ``order`` (both SQL), from the cursor ``after`` on. Raises Problem 400."""
    before = offset(after)
    rows = reader.rows(
        f"SELECT *, count(*) OVER () AS of FROM {source} ORDER BY {order} LIMIT {limited(limit)} OFFSET {before}"
    )
    total = rows[0]["of"] if rows else 0
    return Part(rows, total, following(before, len(rows), total))


def titles(reader: Reader, rules: Iterable[str | None]) -> dict[str | None, str]:
    """Titles of those of ``rules`` (ids) that have alerted, by id."""
    ids = ", ".join(text(rule) for rule in sorted({rule for rule in rules if rule}))
    if not ids:
        return {}
    reader.view("rule_titles", RULES)
    rows = reader.rows(f"SELECT rule_id, rule_title FROM rule_titles WHERE rule_id IN ({ids})")
    return {row["rule_id"]: row["rule_title"] or "" for row in rows}


def whole_alert(reader: Reader, day: str, agent_id: str, alert_id: str, columns: str = "*") -> Row:
    """``columns`` of an alert; ``day`` empty: of any day. Raises Problem 404 when there is none that is seen."""
    # A copy has the same day, so that the day and the two ids name one row in the files of one day.
    reader.show("alerts", ALERTS, reader.files(ALERTS, Where(only=(day,)) if day else None))
    rows = reader.rows(
        f"SELECT {columns} FROM alerts WHERE alert_id = {text(alert_id)} AND agent_id = {text(agent_id)} LIMIT 1"
    )
    if not rows:
        raise none("alert")
    return rows[0]


def none(what: str) -> Problem:
    """There is none, or none that may be seen: the same answer for both."""
    return Problem(404, f"no such {what}", what_to_do="it may have expired, or lie at a site that you do not see")


MAX_DAYS = 90


def last_days(days: int, now: datetime | None = None) -> Period:
    """The last ``days`` days, today among them, within ``MAX_DAYS``, up to ``now`` (None: the clock's)."""
    at = now or datetime.now(UTC)
    return period(at.date(), max(1, min(days, MAX_DAYS)), at)


def newest_day(reader: Reader, name: str, table: Table, until: str = "9999") -> str:
    """Let ``name`` be the newest day of ``table`` up to ``until``, else its oldest; which, empty for none."""
    days = reader.catalog.days(table)
    day = max((day for day in days if day <= until), default=min(days, default=""))
    reader.view(name, table, day or "0", day or "0")
    return day
