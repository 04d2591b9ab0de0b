"""What a report says of a period: how much, where, when, by which rules, and which alerts are the most severe.

Here are the questions about alerts; those about what the other jobs found are in ``findings``, those about agents in
``accounts``. An answer's rows are ``Line``s, the question's columns their attributes; a name that no question gives
raises, in the page's template too. Every list has a named bound, and says how many there are beyond it. Days are UTC
days of ``counted_at``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

from spark_jobs.common.period import Period, last_hours
from spark_jobs.tables.ask import LEVELS, Reader, severity, time, total
from spark_jobs.tables.schema import ALERTS, ENTITY_SITE_5M, HOST_1H, RULES, WIN_5M, Table
from spark_jobs.tables.tables import texts

MAX_HEAT_SITES = 40
MAX_HEAT_RULES = 24
MAX_SITES = 500
"""Of the map."""

PLACE_DAYS = 30

MAX_LISTED = 25
"""Rules, hosts, entities."""

MAX_SEVERE = 25
MAX_SEVERE_OF_A_RULE = 3
MAX_RULES = 20_000
MAX_OTHER = 7

OTHER = "other"
"""Level of alerts of which the agent gave none that there is."""


Line: TypeAlias = SimpleNamespace


class Listed(NamedTuple):
    """The first of a longer list; ``of`` is how many there are in all."""

    items: tuple[Any, ...] = ()
    of: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """What the tables of ingest say of a period. ``matches`` are what alerts stand for, with folded repeats."""

    now: Line
    before: Line
    """Of as many days, or hours, right before."""
    levels: tuple[Line, ...]
    """The most severe first."""
    hours: tuple[Line, ...]
    heat: tuple[Line, ...]
    """The sites, and the rules, with the most critical alerts; of equals, with the most high ones, and so on."""
    sites: Listed
    """Those that alerted in the last ``PLACE_DAYS`` days, in the period or not. ``critical`` are their
    critical alerts; name and coordinates are the lookup's for the newest alert, None without one."""
    rules: Listed
    hosts: Listed
    entities: Listed
    severest: tuple[Line, ...]
    rules_by_id: dict[str, Line]
    """What is known of a rule by its tags, by its id; those that alerted last, where there are over ``MAX_RULES``."""
    other_days: tuple[tuple[str, int], ...] = ()
    """The newest days with alerts and how many, where the period has none."""

    def title(self, rule_id: str) -> str:
        """Of a rule, or its id where none is known."""
        rule = self.rules_by_id.get(rule_id)
        return (rule.rule_title if rule else "") or rule_id


ALERT = ("counted_at", "level", "rule_id", "rule_title", "fleet", "site", "host", "agent_id", "alert_id", "raw",
         "log_id", "raw_offset", "raw_length")  # fmt: skip
"""Columns of an alert, with what leads back to its event on the host."""

ALERT_COLUMNS = """counted_at, coalesce(level, '') AS level, coalesce(rule_id, '') AS rule_id,
    coalesce(rule_title, '') AS rule_title, coalesce(fleet, '') AS fleet, coalesce(site, '') AS site,
    coalesce(host, '') AS host, agent_id, alert_id, coalesce(raw, '') AS raw, raw_ref.log_id AS log_id,
    raw_ref.offset AS raw_offset, raw_ref.length AS raw_length"""
"""SQL: the columns ``ALERT``."""


def counts(reader: Reader, period: Period) -> Counts:
    """The figures of ``period``."""
    earlier = _before(period)
    view_counts(reader, "win", WIN_5M, period)
    view_counts(reader, "win_before", WIN_5M, earlier, period.start)
    view_counts(reader, "entity", ENTITY_SITE_5M, period)
    view_counts(reader, "host", HOST_1H, period)
    view_counts(reader, "host_before", HOST_1H, earlier, period.start)
    reader.view("rules", RULES)
    view_alerts(reader, period)
    now, before = _sums(reader, "win", "host"), _sums(reader, "win_before", "host_before")
    entities = reader.only("SELECT count(*) AS n FROM (SELECT kind, value FROM entity GROUP BY kind, value)")
    return Counts(
        now=now,
        before=before,
        levels=tuple(sorted(lines(reader, _LEVELS), key=lambda level: (*LEVELS, OTHER).index(level.level))),
        hours=lines(reader, _HOURS),
        heat=lines(reader, _HEAT),
        sites=_sites(reader, period),
        rules=Listed(lines(reader, _RULES), now.rules),
        hosts=Listed(lines(reader, _HOSTS), now.hosts),
        entities=Listed(lines(reader, _ENTITIES), entities["n"]),
        severest=_severest(reader, period),
        rules_by_id={rule.rule_id: rule for rule in lines(reader, _KNOWN)},
        other_days=() if now.alerts or now.matches else _other_days(reader),
    )


def lines(reader: Reader, sql: str) -> tuple[Line, ...]:
    """The answer to a question; its lists as tuples."""
    rows = reader.rows(sql)
    return tuple(Line(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}) for row in rows)


def view_counts(reader: Reader, name: str, table: Table, period: Period, end: datetime | None = None) -> None:
    """Let ``name`` be the rows of a table of counts that are of ``period``, up to ``end``."""
    only = "" if period.begin is None else _in("hour" if table is HOST_1H else "window_start", period, end)
    reader.view(name, table, period.since, period.until, only=only)


def view_alerts(reader: Reader, period: Period) -> None:
    """The view ``alerts``: all that may count in ``period``, whenever they landed; ``in_period`` tells."""
    # Not by day of receipt: that is the edge's, whose clock may stand at 1970.
    reader.view("alerts", ALERTS, near={"counted_at": [(period.start, period.end)]})


def in_period(period: Period) -> str:
    """SQL: whether a row of ``alerts`` counts in ``period``."""
    return _in("counted_at", period)


def _in(column: str, period: Period, end: datetime | None = None) -> str:
    return f"{column} >= {time(period.start)} AND {column} < {time(end or period.end)}"


def _before(period: Period) -> Period:
    """As many days, or hours, right before."""
    if period.begin is not None:
        return last_hours(period.begin)
    last = period.first - timedelta(days=1)
    return Period(last - (period.last - period.first), last, period.start)


def _sums(reader: Reader, windows: str, hosts: str) -> Line:
    whole = reader.only(
        f"""SELECT {total("alerts")}, {total("matches")}, count(DISTINCT rule_id) AS rules,
        count(DISTINCT concat(fleet, '/', site)) AS sites FROM {windows}"""
    )
    of_hosts = reader.only(f"SELECT count(DISTINCT concat(fleet, '/', site, '/', host)) AS hosts FROM {hosts}")
    return Line(**whole, **of_hosts)


# The level is the agent's text: made-up ones, as many as one likes, are one.
_LEVEL = f"CASE WHEN level IN ({texts(LEVELS)}) THEN level ELSE '{OTHER}' END AS level"

_LEVELS = f"SELECT {_LEVEL}, {total('alerts')}, {total('matches')} FROM win GROUP BY 1"

_HOURS = f"""SELECT date_trunc('hour', window_start) AS hour, {_LEVEL}, {total("alerts")} FROM win
GROUP BY 1, 2 ORDER BY 1, 2"""

# Critical alerts first, then high ones, …: in a sum weighed by level the many low ones push out the few that count.
_SEVEREST = ", ".join(f"sum(CASE WHEN level = '{level}' THEN alerts ELSE 0 END) DESC" for level in LEVELS)

_HEAT = f"""SELECT fleet, site, rule_id, max({severity()}) AS rank, {total("alerts")}, {total("matches")}
FROM win
JOIN (SELECT fleet, site FROM win GROUP BY fleet, site ORDER BY {_SEVEREST}, fleet, site
      LIMIT {MAX_HEAT_SITES}) s
USING (fleet, site)
JOIN (SELECT rule_id FROM win GROUP BY rule_id
      ORDER BY {_SEVEREST}, rule_id LIMIT {MAX_HEAT_RULES}) r
USING (rule_id)
GROUP BY fleet, site, rule_id ORDER BY fleet, site, rule_id"""

_RULES = f"""SELECT rule_id, coalesce(r.rule_title, w.title) AS rule_title, coalesce(r.level, w.highest) AS level,
    w.alerts, w.matches, sites, coalesce(hosts, 0) AS hosts FROM (
    SELECT rule_id, max(rule_title) AS title, max_by(level, {severity()}) AS highest, {total("alerts")},
        {total("matches")}, count(DISTINCT concat(fleet, '/', site)) AS sites
    FROM win GROUP BY rule_id ORDER BY alerts DESC, rule_id LIMIT {MAX_LISTED}) w
LEFT JOIN rules r USING (rule_id)
LEFT JOIN (SELECT rule_id, count(DISTINCT concat(fleet, '/', site, '/', host)) AS hosts FROM host GROUP BY rule_id) h
USING (rule_id) ORDER BY w.alerts DESC, rule_id"""

_HOSTS = f"""SELECT host, site, fleet, {total("alerts")}, {total("matches")}, count(DISTINCT rule_id) AS rules
FROM host GROUP BY host, site, fleet ORDER BY alerts DESC, fleet, site, host LIMIT {MAX_LISTED}"""

_ENTITIES = f"""SELECT kind, value, {total("alerts")}, count(DISTINCT rule_id) AS rules,
    count(DISTINCT concat(fleet, '/', site)) AS sites
FROM entity GROUP BY kind, value ORDER BY alerts DESC, kind, value LIMIT {MAX_LISTED}"""

_KNOWN = f"""SELECT rule_id, coalesce(rule_title, '') AS rule_title, coalesce(level, '') AS level, tactics, techniques,
    first_time
FROM rules ORDER BY last_time DESC NULLS LAST, rule_id LIMIT {MAX_RULES}"""


def _severest(reader: Reader, period: Period) -> tuple[Line, ...]:
    """The most severe alerts, the newest first within a level, a few of each rule."""
    chosen: list[Line] = []
    of_rule: Counter[str] = Counter()
    # Level by level: the many of the lower ones are seldom looked at.
    for is_level in (*(f"level = '{level}'" for level in LEVELS), f"coalesce(level, '') NOT IN ({texts(LEVELS)})"):
        for alert in lines(reader, _newest(period, is_level)) if len(chosen) < MAX_SEVERE else ():
            of_rule[alert.rule_id] += 1
            if of_rule[alert.rule_id] <= MAX_SEVERE_OF_A_RULE:
                chosen.append(alert)
    return tuple(chosen[:MAX_SEVERE])


def _newest(period: Period, is_level: str) -> str:
    """SQL: the newest alerts of a level, a few of each rule."""
    return f"""SELECT {", ".join(ALERT)} FROM (
        SELECT *, row_number() OVER (PARTITION BY rule_id ORDER BY counted_at DESC, agent_id, alert_id) AS place
        FROM (SELECT {ALERT_COLUMNS} FROM alerts
              WHERE {is_level} AND coalesce(kind, '') <> 'fold' AND {in_period(period)}) a) b
    WHERE place <= {MAX_SEVERE_OF_A_RULE}
    ORDER BY counted_at DESC, agent_id, alert_id LIMIT {MAX_SEVERE}"""


def _sites(reader: Reader, period: Period) -> Listed:
    first = period.from_day(period.first - timedelta(days=PLACE_DAYS))
    reader.view("placed", ALERTS, near={"counted_at": [(first.start, period.end)]})
    places = f"""SELECT fleet, site, place.name AS name, place.country AS country, place.latitude AS latitude,
        place.longitude AS longitude FROM (
            SELECT coalesce(fleet, '') AS fleet, coalesce(site, '') AS site,
                max_by(place, counted_at) FILTER (WHERE place IS NOT NULL) AS place
            FROM placed WHERE {in_period(first)} GROUP BY 1, 2) one"""
    sums = f"""SELECT fleet, site, {total("alerts")}, {total("matches")}, count(DISTINCT rule_id) AS rules,
        {total("CASE WHEN level = 'critical' THEN alerts ELSE 0 END", "critical")} FROM win GROUP BY fleet, site"""
    number = reader.only(f"SELECT count(*) AS n FROM ({places}) p")["n"]
    sites = lines(
        reader,
        f"""SELECT fleet, site, coalesce(alerts, 0) AS alerts, coalesce(matches, 0) AS matches,
        coalesce(rules, 0) AS rules, coalesce(critical, 0) AS critical, name, country, latitude, longitude
        FROM ({places}) p LEFT JOIN ({sums}) s USING (fleet, site)
        ORDER BY coalesce(alerts, 0) DESC, fleet, site LIMIT {MAX_SITES}""",
    )
    return Listed(sites, number)


def _other_days(reader: Reader) -> tuple[tuple[str, int], ...]:
    reader.view("any_win", WIN_5M)
    rows = reader.rows(
        f"SELECT date, {total('alerts')} FROM any_win GROUP BY date ORDER BY date DESC LIMIT {MAX_OTHER}"
    )
    return tuple((row["date"], row["alerts"]) for row in reversed(rows))
