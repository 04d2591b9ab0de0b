"""What a report says of a period: how much, where, when, by which rules, and which alerts are the most severe.

``Figures`` is all that ``page`` and ``text`` show. Here are the questions about alerts; those about what the other jobs
found are in ``findings``, those about agents in ``accounts``. Every list has a named bound, and says how many there are
beyond it. Days are UTC days of ``counted_at``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from spark_jobs.common.period import Period
from spark_jobs.tables.ask import LEVELS, Reader, Row, severity, total, within
from spark_jobs.tables.schema import ALERTS, ENTITY_SITE_5M, HOST_1H, RULES, WIN_5M
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

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Listed(Generic[Item]):
    """The first of a longer list; ``of`` is how many there are in all."""

    items: tuple[Item, ...] = ()
    of: int = 0


@dataclass(frozen=True, slots=True)
class Sums:
    """The whole of a period."""

    alerts: int
    matches: int
    """What the alerts stand for, with the repeats that were folded into one."""
    rules: int
    sites: int
    hosts: int


@dataclass(frozen=True, slots=True)
class Level:
    """Alerts of a level of ``ask.LEVELS``, or of any ``OTHER``."""

    level: str
    alerts: int
    matches: int


@dataclass(frozen=True, slots=True)
class Hour:
    """Alerts of a level, as in ``Level``, in an hour."""

    hour: datetime
    level: str
    alerts: int


@dataclass(frozen=True, slots=True)
class Cell:
    """A rule at a site."""

    fleet: str
    site: str
    rule_id: str
    rank: int
    alerts: int
    matches: int


@dataclass(frozen=True, slots=True)
class Site:
    """A site that alerted in the last ``PLACE_DAYS`` days, in the period or not. ``rank`` is that of its worst alert in
    the period (5 critical to 0); ``name`` to ``longitude`` are the lookup's for the newest alert, None without one."""

    fleet: str
    site: str
    alerts: int
    matches: int
    rules: int
    rank: int
    name: str | None
    country: str | None
    latitude: float | None
    longitude: float | None


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that alerted in the period."""

    rule_id: str
    rule_title: str
    level: str
    alerts: int
    matches: int
    sites: int
    hosts: int


@dataclass(frozen=True, slots=True)
class Host:
    """A host that alerted in the period."""

    host: str
    site: str
    fleet: str
    alerts: int
    matches: int
    rules: int


@dataclass(frozen=True, slots=True)
class Entity:
    """Who or what alerts of the period are about."""

    kind: str
    value: str
    alerts: int
    rules: int
    sites: int


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert, with what leads back to its event on the host."""

    counted_at: datetime
    level: str
    rule_id: str
    rule_title: str
    fleet: str
    site: str
    host: str
    agent_id: str
    alert_id: str
    raw: str
    log_id: str | None
    raw_offset: int | None
    raw_length: int | None


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a rule by its tags, whenever it alerted."""

    rule_id: str
    rule_title: str
    level: str
    tactics: tuple[str, ...]
    techniques: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """What the tables of ingest say of a period."""

    now: Sums
    before: Sums
    """Of as many days right before."""
    levels: tuple[Level, ...]
    hours: tuple[Hour, ...]
    heat: tuple[Cell, ...]
    """The busiest sites, and the rules with most alerts weighed by level."""
    sites: Listed[Site]
    rules: Listed[Rule]
    hosts: Listed[Host]
    entities: Listed[Entity]
    severest: tuple[Alert, ...]
    known: dict[str, Known]
    """By rule id; those that alerted last, where there are more than ``MAX_RULES``."""
    other_days: tuple[tuple[str, int], ...] = ()
    """The newest days with alerts and how many, where the period has none."""


ALERT_COLUMNS = """counted_at, coalesce(level, '') AS level, coalesce(rule_id, '') AS rule_id,
    coalesce(rule_title, '') AS rule_title, coalesce(fleet, '') AS fleet, coalesce(site, '') AS site,
    coalesce(host, '') AS host, agent_id, alert_id, coalesce(raw, '') AS raw, raw_ref.log_id AS log_id,
    raw_ref.offset AS raw_offset, raw_ref.length AS raw_length"""
"""SQL: the columns of ``Alert``."""


def counts(reader: Reader, period: Period) -> Counts:
    """The figures of ``period``."""
    earlier = _before(period)
    reader.view("win", WIN_5M, period.since, period.until)
    reader.view("win_before", WIN_5M, earlier.since, earlier.until)
    reader.view("entity", ENTITY_SITE_5M, period.since, period.until)
    reader.view("host", HOST_1H, period.since, period.until)
    reader.view("host_before", HOST_1H, earlier.since, earlier.until)
    reader.view("rules", RULES)
    view_alerts(reader, period)
    now, before = _sums(reader, "win", "host"), _sums(reader, "win_before", "host_before")
    entities = reader.only("SELECT count(*) AS n FROM (SELECT kind, value FROM entity GROUP BY kind, value)")
    return Counts(
        now=now,
        before=before,
        levels=tuple(Level(**row) for row in reader.rows(_LEVELS)),
        hours=tuple(Hour(**row) for row in reader.rows(_HOURS)),
        heat=tuple(Cell(**row) for row in reader.rows(_HEAT)),
        sites=_sites(reader, period),
        rules=Listed(tuple(Rule(**row) for row in reader.rows(_RULES)), now.rules),
        hosts=Listed(tuple(Host(**row) for row in reader.rows(_HOSTS)), now.hosts),
        entities=Listed(tuple(Entity(**row) for row in reader.rows(_ENTITIES)), entities["n"]),
        severest=_severest(reader, period),
        known={row["rule_id"]: _known(row) for row in reader.rows(_KNOWN)},
        other_days=() if now.alerts or now.matches else _other_days(reader, period),
    )


def view_alerts(reader: Reader, period: Period) -> None:
    """The view ``alerts``: all that may count in ``period``, whenever they landed; ``in_period`` tells."""
    # Not by day of receipt: that is the edge's, whose clock may stand at 1970.
    reader.view("alerts", ALERTS, near={"counted_at": [(period.start, period.end)]})


def in_period(period: Period) -> str:
    """SQL: whether a row of ``alerts`` counts in ``period``."""
    return within("counted_at", period.since, period.until)


def _before(period: Period) -> Period:
    """As many days right before."""
    last = period.first - timedelta(days=1)
    return Period(last - (period.last - period.first), last, period.start)


def _sums(reader: Reader, windows: str, hosts: str) -> Sums:
    whole = reader.only(
        f"""SELECT {total("alerts")}, {total("matches")}, count(DISTINCT rule_id) AS rules,
        count(DISTINCT concat(fleet, '/', site)) AS sites FROM {windows}"""
    )
    of_hosts = reader.only(f"SELECT count(DISTINCT concat(fleet, '/', site, '/', host)) AS hosts FROM {hosts}")
    return Sums(**whole, **of_hosts)


# The level is the agent's text: made-up ones, as many as one likes, are one.
_LEVEL = f"CASE WHEN level IN ({texts(LEVELS)}) THEN level ELSE '{OTHER}' END AS level"

_LEVELS = f"SELECT {_LEVEL}, {total('alerts')}, {total('matches')} FROM win GROUP BY 1 ORDER BY 1"

_HOURS = f"""SELECT date_trunc('hour', window_start) AS hour, {_LEVEL}, {total("alerts")} FROM win
GROUP BY 1, 2 ORDER BY 1, 2"""

_HEAT = f"""SELECT fleet, site, rule_id, max({severity()}) AS rank, {total("alerts")}, {total("matches")}
FROM win
JOIN (SELECT fleet, site FROM win GROUP BY fleet, site ORDER BY sum(alerts) DESC, fleet, site LIMIT {MAX_HEAT_SITES}) s
USING (fleet, site)
JOIN (SELECT rule_id FROM win GROUP BY rule_id
      ORDER BY sum(alerts * {severity()}) DESC, rule_id LIMIT {MAX_HEAT_RULES}) r
USING (rule_id)
GROUP BY fleet, site, rule_id ORDER BY fleet, site, rule_id"""

_RULES = f"""SELECT rule_id, rule_title, level, alerts, matches, sites, coalesce(hosts, 0) AS hosts FROM (
    SELECT rule_id, max(rule_title) AS rule_title, max(level) AS level, {total("alerts")}, {total("matches")},
        count(DISTINCT concat(fleet, '/', site)) AS sites
    FROM win GROUP BY rule_id ORDER BY alerts DESC, rule_id LIMIT {MAX_LISTED}) w
LEFT JOIN (SELECT rule_id, count(DISTINCT concat(fleet, '/', site, '/', host)) AS hosts FROM host GROUP BY rule_id) h
USING (rule_id) ORDER BY alerts DESC, rule_id"""

_HOSTS = f"""SELECT host, site, fleet, {total("alerts")}, {total("matches")}, count(DISTINCT rule_id) AS rules
FROM host GROUP BY host, site, fleet ORDER BY alerts DESC, fleet, site, host LIMIT {MAX_LISTED}"""

_ENTITIES = f"""SELECT kind, value, {total("alerts")}, count(DISTINCT rule_id) AS rules,
    count(DISTINCT concat(fleet, '/', site)) AS sites
FROM entity GROUP BY kind, value ORDER BY alerts DESC, kind, value LIMIT {MAX_LISTED}"""

_KNOWN = f"""SELECT rule_id, coalesce(rule_title, '') AS rule_title, coalesce(level, '') AS level, tactics, techniques
FROM rules ORDER BY last_time DESC NULLS LAST, rule_id LIMIT {MAX_RULES}"""


def _severest(reader: Reader, period: Period) -> tuple[Alert, ...]:
    """The most severe alerts, the newest first within a level, a few of each rule."""
    found: list[Alert] = []
    of_rule: Counter[str] = Counter()
    # Level by level: the many of the lower ones are seldom looked at.
    for is_level in (*(f"level = '{level}'" for level in LEVELS), f"coalesce(level, '') NOT IN ({texts(LEVELS)})"):
        for row in reader.rows(_newest(period, is_level)) if len(found) < MAX_SEVERE else ():
            of_rule[row["rule_id"]] += 1
            if of_rule[row["rule_id"]] <= MAX_SEVERE_OF_A_RULE:
                found.append(Alert(**row))
    return tuple(found[:MAX_SEVERE])


def _newest(period: Period, is_level: str) -> str:
    """SQL: the newest alerts of a level, a few of each rule."""
    return f"""SELECT {", ".join(Alert.__slots__)} FROM (
        SELECT *, row_number() OVER (PARTITION BY rule_id ORDER BY counted_at DESC, agent_id, alert_id) AS place
        FROM (SELECT {ALERT_COLUMNS} FROM alerts
              WHERE {is_level} AND coalesce(kind, '') <> 'fold' AND {in_period(period)}) a) b
    WHERE place <= {MAX_SEVERE_OF_A_RULE}
    ORDER BY counted_at DESC, agent_id, alert_id LIMIT {MAX_SEVERE}"""


def _sites(reader: Reader, period: Period) -> Listed[Site]:
    first = period.from_day(period.first - timedelta(days=PLACE_DAYS))
    reader.view("placed", ALERTS, near={"counted_at": [(first.start, period.end)]})
    places = f"""SELECT fleet, site, place.name AS name, place.country AS country, place.latitude AS latitude,
        place.longitude AS longitude FROM (
            SELECT coalesce(fleet, '') AS fleet, coalesce(site, '') AS site,
                max_by(place, counted_at) FILTER (WHERE place IS NOT NULL) AS place
            FROM placed WHERE {in_period(first)} GROUP BY 1, 2) one"""
    sums = f"""SELECT fleet, site, {total("alerts")}, {total("matches")}, count(DISTINCT rule_id) AS rules,
        max({severity()}) AS rank FROM win GROUP BY fleet, site"""
    number = reader.only(f"SELECT count(*) AS n FROM ({places}) p")["n"]
    rows = reader.rows(
        f"""SELECT fleet, site, coalesce(alerts, 0) AS alerts, coalesce(matches, 0) AS matches,
        coalesce(rules, 0) AS rules, coalesce(rank, 0) AS rank, name, country, latitude, longitude
        FROM ({places}) p LEFT JOIN ({sums}) s USING (fleet, site)
        ORDER BY coalesce(alerts, 0) DESC, fleet, site LIMIT {MAX_SITES}"""
    )
    return Listed(tuple(Site(**row) for row in rows), number)


def _known(row: Row) -> Known:
    return Known(**{**row, "tactics": tuple(row["tactics"] or ()), "techniques": tuple(row["techniques"] or ())})


def _other_days(reader: Reader, period: Period) -> tuple[tuple[str, int], ...]:
    reader.view("any_win", WIN_5M)
    rows = reader.rows(
        f"SELECT date, {total('alerts')} FROM any_win GROUP BY date ORDER BY date DESC LIMIT {MAX_OTHER}"
    )
    return tuple((row["date"], row["alerts"]) for row in reversed(rows))
