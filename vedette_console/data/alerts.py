"""Alerts by a search, newest first; one alert in full, and what was near it in time.

A page is found by walking back in time, a few files at a time, until it is full: the table's log says between which
times a file's alerts lie, so that the newest of a hundred million are found in a day's files. An entity is looked for
on the days only on which the table of counts has it (``pruned``). Only the order's columns are read of all alerts, the
others of the page's. A text may be in any alert, so it is looked for in ``TEXT_DAYS`` days only, unless the search
names a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from spark_jobs.common.attack import of_tags
from spark_jobs.tables.ask import Row, text, time
from spark_jobs.tables.delta import DataFile
from spark_jobs.tables.schema import ALERTS, ENTITY_KINDS, ENTITY_SITE_5M
from spark_jobs.tables.tables import Where
from vedette.model.times import micros
from vedette_console.data.findings import decided
from vedette_console.data.models import Alert, AlertRow, Related, RelatedGroup, Span
from vedette_console.data.query import KINDS, All, Search, Term, Tree, parse, term
from vedette_console.data.reader import Reader
from vedette_console.data.rows import (
    ALERT_ROW,
    EPOCH,
    NEWEST,
    alert_row,
    alert_values,
    cursor,
    limited,
    moment,
    place,
    technique,
    titles,
    whole_alert,
)
from vedette_console.data.sql import NOT_FOLD, condition, names
from vedette_console.web import Listing, Problem

DAY = 86_400_000_000
"""Microseconds."""


def entities_of(tree: Tree) -> list[tuple[str, str]]:
    """Kinds and values of entities that whatever ``tree`` finds must have, of the kinds that are counted."""
    match tree:
        case Term(field, pattern, ":") if field in ENTITY_KINDS and len(pattern.parts) == 1:
            return [(field, pattern.parts[0])]
        case All(parts):
            return [entity for part in parts for entity in entities_of(part)]
    return []


def pruned(reader: Reader, asked: Search, files: Sequence[DataFile]) -> list[DataFile]:
    """Those of ``files`` of ``alerts`` that may hold what is asked for."""
    entities = entities_of(asked.tree)
    counted = reader.catalog.days(ENTITY_SITE_5M)
    if not entities or len(counted) < 2 or not files:
        return list(files)
    reader.view("seen", ENTITY_SITE_5M)
    rows = reader.rows(
        " INTERSECT ".join(
            f"SELECT DISTINCT date FROM seen WHERE kind = '{kind}' AND lower(value) = lower({text(value)})"
            for kind, value in entities
        )
    )
    have = {row["date"] for row in rows}
    # Days of which the counts say that nothing is there.
    without = {day for day in counted[:-1] if day not in have}
    return [file for file in files if not _within(file, without)]


def _within(file: DataFile, days: set[str]) -> bool:
    """Whether all times of a file lie in ``days``."""
    low, high = file.bounds.get("counted_at", (None, None))
    if low is None or high is None or high - low > 400 * DAY:
        return False
    numbers = range((low - 1000) // DAY, (high + 1000) // DAY + 1)
    return all((EPOCH.date() + timedelta(days=number)).isoformat() in days for number in numbers)


FIRST_ROWS = 50_000
GROWTH = 4
"""So many rows of files are looked at first, then so many times as many."""
TEXT_DAYS = 14
ALWAYS = (datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC))


def search(
    reader: Reader, q: str = "", after: str = "", limit: int = 50, now: datetime | None = None
) -> Listing[AlertRow]:
    """Alerts that ``q`` finds, newest first. Raises Problem 400 for a search that cannot be understood."""
    asked, limit = parse(q, now_or(now)), limited(limit)
    last = place(after, int, str, str)
    files = files_of(reader, asked, moment(last[0]) if last else None)
    keys = walk(reader, files, condition(asked), last, limit + 1)
    items = [alert_row(row) for row in whole(reader, keys[:limit], ALERT_ROW)]
    if len(keys) <= limit:
        return Listing(items=items)
    end = keys[limit - 1]
    return Listing(items=items, next=cursor(micros(end["counted_at"]), end["agent_id"], end["alert_id"]))


def now_or(now: datetime | None) -> datetime:
    """``now``; None: the clock's."""
    return now or datetime.now(UTC)


def files_of(reader: Reader, asked: Search, before: datetime | None = None) -> list[DataFile]:
    """Files that may hold what is asked for, the newest first. Raises Problem 400 for a text without a time."""
    since, until = asked.since or ALWAYS[0], min(asked.until or ALWAYS[1], before or ALWAYS[1])
    since, until = max(since, ALWAYS[0]), max(until, ALWAYS[0])
    if since > until:
        return []
    files = reader.files(ALERTS, Where(near={"counted_at": [(since, until)]}))
    if asked.has("text") and not asked.timed:
        _bounded(files)
    return sorted(pruned(reader, asked, files), key=_newest, reverse=True)


def _bounded(files: Sequence[DataFile]) -> None:
    bounds = [file.bounds.get("counted_at", (None, None)) for file in files]
    lows, highs = [low for low, _ in bounds if low is not None], [high for _, high in bounds if high is not None]
    days = (max(highs) - min(lows)) / 86_400e6 if lows and highs else 0
    if days > TEXT_DAYS:
        raise Problem(400, f"a text in {days:.0f} days of alerts takes too long to look for", where="q",
                      what_to_do=f"add since:{TEXT_DAYS}d, or from: and to:")  # fmt: skip


def _newest(file: DataFile) -> float:
    high = file.bounds.get("counted_at", (None, None))[1]
    return float("inf") if high is None else float(high)


def portions(files: Sequence[DataFile], first: int = FIRST_ROWS) -> Iterator[tuple[list[DataFile], float]]:
    """``files`` a few at a time, ever more; and the newest time, in microseconds, that those after them may hold."""
    budget, portion, rows = first, list[DataFile](), 0
    for number, file in enumerate(files, 1):
        portion.append(file)
        rows += file.rows
        if rows >= budget or number == len(files):
            yield portion, _newest(files[number]) if number < len(files) else float("-inf")
            budget, portion, rows = budget * GROWTH, [], 0


def walk(reader: Reader, files: Sequence[DataFile], test: str, last: Sequence[Any] | None, limit: int) -> list[Row]:
    """The order's columns of the first ``limit`` alerts after ``last`` that pass ``test`` (SQL), newest first."""
    if last is not None:
        at = f"{time(moment(last[0]))}::TIMESTAMPTZ"
        later = f"(agent_id, alert_id) > ({text(last[1])}, {text(last[2])})"
        test = f"({test}) AND counted_at <= {at} AND (counted_at < {at} OR {later})"
    rows: list[Row] = []
    for these, rest in portions(files):
        least = f" AND counted_at >= {time(rows[limit - 1]['counted_at'])}::TIMESTAMPTZ" if len(rows) >= limit else ""
        reader.show("alerts", ALERTS, these)
        rows += reader.rows(
            f"""SELECT received_date, counted_at, agent_id, alert_id FROM alerts WHERE ({test}){least}
            AND counted_at IS NOT NULL ORDER BY {NEWEST} LIMIT {limit}"""
        )
        rows.sort(key=lambda row: (-micros(row["counted_at"]), row["agent_id"], row["alert_id"]))
        del rows[limit:]
        if len(rows) == limit and micros(rows[-1]["counted_at"]) > rest:
            break
    return rows


def whole(reader: Reader, keys: Sequence[Row], columns: str) -> list[Row]:
    """``columns`` of the alerts that ``keys`` name, newest first."""
    if not keys:
        return []
    times = [row["counted_at"] for row in keys]
    near = (min(times), max(times))
    days = {row["received_date"] for row in keys}
    reader.show("alerts", ALERTS, reader.files(ALERTS, Where(only=days, near={"counted_at": [near]})))
    pairs = ", ".join(f"({text(row['agent_id'])}, {text(row['alert_id'])})" for row in keys)
    ids = ", ".join(text(row["alert_id"]) for row in keys)
    return reader.rows(
        f"""SELECT {columns} FROM alerts WHERE alert_id IN ({ids})
        AND counted_at BETWEEN {time(near[0])}::TIMESTAMPTZ AND {time(near[1])}::TIMESTAMPTZ
        AND (agent_id, alert_id) IN ({pairs}) ORDER BY {NEWEST}"""
    )


def newest(reader: Reader, test: str, since: datetime, until: datetime, limit: int) -> list[AlertRow]:
    """The newest alerts that pass ``test`` (SQL), at times of a range, both ends included."""
    files = reader.files(ALERTS, Where(near={"counted_at": [(since, until)]}))
    within = f"counted_at BETWEEN {time(since)}::TIMESTAMPTZ AND {time(until)}::TIMESTAMPTZ"
    keys = walk(reader, sorted(files, key=_newest, reverse=True), f"({test}) AND {within}", None, limit)
    return [alert_row(row) for row in whole(reader, keys, ALERT_ROW)]


def alert(reader: Reader, day: str, agent_id: str, alert_id: str) -> Alert:
    """One alert in full. Raises Problem 404 when there is none that is seen."""
    row = whole_alert(reader, day, agent_id, alert_id)
    tactics, techniques = of_tags(row["tags"])
    fields = {name: value or "" for name, value in row["fields"] or ()}
    events = [event for event in row["contributing"] or () if event]
    titled = titles(reader, (event["rule_id"] for event in events))
    (decision,) = decided(reader, [{"id": f"alert:{agent_id}/{alert_id}", **row}], "id", "counted_at")
    return Alert.model_validate(
        {
            **alert_values(row),
            "tactics": tactics,
            "techniques": [technique(name) for name in techniques],
            "contributing": [{**event, "rule_title": titled.get(event["rule_id"], "")} for event in events],
            "highlights": highlights(row["raw"] or "", fields),
            "triage": decision,
        }
    )


MOST = 64
SHORTEST = 2
"""Characters of a value that is looked for: a single digit stands everywhere."""


def highlights(raw: str, fields: Mapping[str, str]) -> list[Span]:
    """The spans where each value stands first in ``raw``, in order; of those that overlap the longest."""
    spans: list[Span] = []
    for field, value in sorted(fields.items(), key=lambda item: (-len(item[1]), item[0]))[:MOST]:
        if len(value) < SHORTEST or value == raw:
            continue
        start = raw.find(value)
        while start >= 0 and any(span.start < start + len(value) and start < span.end for span in spans):
            start = raw.find(value, start + 1)
        if start >= 0:
            spans.append(Span(start=start, end=start + len(value), field=field))
    return sorted(spans, key=lambda span: span.start)


SHOWN = 10
"""Of a group."""
MAX_ENTITIES = 6
MINUTES = (1, 7 * 24 * 60)


def related(reader: Reader, day: str, agent_id: str, alert_id: str, minutes: int = 60) -> Related:
    """Alerts of at most ``minutes`` before and after. Raises Problem 404 when there is no such alert."""
    minutes = max(MINUTES[0], min(minutes, MINUTES[1]))
    row = whole_alert(reader, day, agent_id, alert_id)
    if row["counted_at"] is None:
        return Related(minutes=minutes, groups=[])
    since, until = (row["counted_at"] + timedelta(minutes=shift) for shift in (-minutes, minutes))
    near = f"counted_at BETWEEN {time(since)}::TIMESTAMPTZ AND {time(until)}::TIMESTAMPTZ"
    reader.show("alerts", ALERTS, reader.files(ALERTS, Where(near={"counted_at": [(since, until)]})))
    groups = []
    # All tests in one pass over these hours; each alert counts in every group that it is of.
    tests = _tests(row)
    marks = ", ".join(f"({test}) AS in_{number}" for number, (_, _, _, test) in enumerate(tests))
    any_of = " OR ".join(f"in_{number}" for number in range(len(tests)))
    keys = reader.rows(
        f"""SELECT * FROM (
            SELECT g, received_date, counted_at, agent_id, alert_id, row_number() OVER (
                PARTITION BY g ORDER BY abs(epoch_us(counted_at) - epoch_us({time(row["counted_at"])}::TIMESTAMPTZ)),
                agent_id, alert_id) AS place
            FROM (SELECT unnest([{", ".join(f"CASE WHEN in_{n} THEN {n} END" for n in range(len(tests)))}]) AS g,
                      received_date, counted_at, agent_id, alert_id
                  FROM (SELECT received_date, counted_at, agent_id, alert_id, {marks} FROM alerts WHERE {near}
                        AND NOT (agent_id = {text(agent_id)} AND alert_id = {text(alert_id)})) WHERE {any_of})
            WHERE g IS NOT NULL) WHERE place <= {SHOWN + 1} ORDER BY g, {NEWEST}"""
    )
    rows = {(row["agent_id"], row["alert_id"]): alert_row(row) for row in whole(reader, keys, ALERT_ROW)}
    time_range = f"from:{since:%Y-%m-%dT%H:%M:%S} to:{until:%Y-%m-%dT%H:%M:%S}"
    for number, (by, value, query, _) in enumerate(tests):
        ids = [(key["agent_id"], key["alert_id"]) for key in keys if key["g"] == number]
        items = [rows[id] for id in ids if id in rows]
        if items:
            groups.append(RelatedGroup(by=by, value=value, query=f"{query} {time_range}".strip(),
                                       items=items[:SHOWN], more=len(items) > SHOWN))  # fmt: skip
    return Related(minutes=minutes, groups=groups)


def _tests(row: Row) -> list[tuple[str, str, str, str]]:
    """Ways in which an alert may be related to others: the way, the value, the search for all such, and the SQL."""
    kin = f"parent_id = {text(row['alert_id'])}"
    if row["parent_id"]:
        kin += f" OR alert_id = {text(row['parent_id'])} OR parent_id = {text(row['parent_id'])}"
    agent = text(row["agent_id"])
    tests = [("fold", row["alert_id"], f"kind:* {term('agent', row['agent_id'])}",
              f"agent_id = {agent} AND coalesce({kin}, false)")]  # fmt: skip
    entities = dict.fromkeys((part["kind"] or "", part["value"]) for part in row["entities"] or () if part)
    for kind, value in [entity for entity in entities if entity[1]][:MAX_ENTITIES]:
        query = term(kind if kind in KINDS else "entity", value)
        tests.append(("entity", f"{kind} {value}", query, f"{names(kind, value)} AND {NOT_FOLD}"))
    if row["host"]:
        place = {name: row[name] or "" for name in ("host", "fleet", "site")}
        query = " ".join(term(name, value) for name, value in place.items())
        test = " AND ".join(f"coalesce({name}, '') = {text(value)}" for name, value in place.items())
        tests.append(("host", row["host"], query, f"{test} AND {NOT_FOLD}"))
    if row["rule_id"]:
        test = f"coalesce(rule_id = {text(row['rule_id'])}, false) AND {NOT_FOLD}"
        tests.append(("rule", row["rule_title"] or row["rule_id"], term("rule", row["rule_id"]), test))
    return tests
