"""How alerts are counted, as SQL: one arithmetic, which Spark and DuckDB both run. Nothing is read or run here.

The statements differ in a few functions only (``Dialect``). Each takes names of views: ``alerts`` with columns of
``ALERTS``, ``counted`` as ``counted`` gives it, ``rules`` with the ``RULES`` of these.

Sums by a hash table need numbers and times only; a text among what is kept would have Spark sort all rows instead. So
the title, which follows from the rule, comes from ``rules``, which has few rows. The level is the alert's own, and a
key: were it the rule's, or that of the newest alert, one member could lower it for all.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_jobs.tables.schema import ENTITY_KINDS, ENTITY_SITE_5M, HOST_1H, WIN_5M, Table

MAX_COUNT = (1 << 31) - 1
"""A fold that claims to stand for more matches counts as this many, so that no sum overflows."""

WINDOW_SECONDS = 300
_HOUR_SECONDS = 3600

_SUMS = (
    "CAST(sum(alerts) AS BIGINT) AS alerts, CAST(sum(matches) AS BIGINT) AS matches, "
    "min(counted_at) AS first_time, max(counted_at) AS last_time"
)


class Dialect(NamedTuple):
    """Functions whose names differ between engines; ``{}`` is the argument."""

    micros: str
    """Of a time, microseconds since 1970, UTC."""
    time: str
    """The time of that many."""
    day: str
    """``YYYY-MM-DD`` of a time."""
    explode: str
    hash: str
    """A number that stands for a text."""


SPARK = Dialect("unix_micros({})", "timestamp_micros({})", "date_format({}, 'yyyy-MM-dd')", "explode", "xxhash64({})")
DUCK = Dialect("epoch_us({})", "make_timestamptz({})", "strftime({}, '%Y-%m-%d')", "unnest", "hash({})")


def counted(alerts: str) -> str:
    """The columns that the counts are made of.

    ``matches`` is how many an alert counts: the ``count`` of a fold is the number of further alerts. That
    of a correlation is what its condition speaks of, events or values: the correlation matched once.
    """
    fold = "coalesce(kind, '') = 'fold'"
    texts = ", ".join(f"coalesce({name}, '') AS {name}" for name in ("fleet", "site", "host", "rule_id", "level"))
    return (
        f"SELECT {texts}, agent_id, rule_title, tags, entities, received_at, counted_at, "
        "counted_at <> event_time AS odd_time, "
        f"CAST(CASE WHEN {fold} THEN 0 ELSE 1 END AS BIGINT) AS alerts, "
        f"CAST(CASE WHEN {fold} THEN least(greatest(coalesce(count, 1), 0), {MAX_COUNT}) ELSE 1 END AS BIGINT) "
        f"AS matches FROM {alerts}"
    )


def rule_texts(counted: str, engine: Dialect) -> str:
    """Sums by rule and each of the texts that its alerts carry; the number of ``rows``, of ``odd`` times among them.
    ``least_agent`` and ``most_agent`` are alike where all of these are of a single agent."""
    agent = engine.hash.format("agent_id")
    return (
        f"SELECT rule_id, rule_title, level, tags, {_SUMS}, CAST(count(*) AS BIGINT) AS rows, "
        "min(received_at) AS first_landed, "
        f"CAST(count_if(odd_time) AS BIGINT) AS odd, min({agent}) AS least_agent, max({agent}) AS most_agent "
        f"FROM {counted} GROUP BY rule_id, rule_title, level, tags"
    )


def rows_of(table: Table, counted: str, rules: str, engine: Dialect) -> str:
    """The rows of ``WIN_5M``, ``HOST_1H`` (alerts that name no host are left out) or ``ENTITY_SITE_5M`` (each different
    entity of an alert once)."""
    source, start, seconds = _SOURCES[table.name]
    source = source.format(counted=counted, explode=engine.explode)
    micros, length = engine.micros.format("counted_at"), seconds * 1_000_000
    began = engine.time.format(f"{micros} - (({micros} % {length}) + {length}) % {length}")
    keys = ", ".join(key for key in table.keys if key != "date")
    grouped = f"SELECT {keys}, {_SUMS} FROM (SELECT *, {began} AS {start} FROM ({source}) AS o) AS p GROUP BY {keys}"
    titled = "rule_title" in table.names
    names = [f"{'k' if name == 'rule_title' else 'g'}.{name}" for name in table.names if name != "date"]
    joined = f"FROM ({grouped}) AS g" + (f" JOIN {rules} AS k ON g.rule_id = k.rule_id" if titled else "")
    return f"SELECT /*+ BROADCAST(k) */ {engine.day.format(f'g.{start}')} AS date, {', '.join(names)} {joined}"


_KINDS = ", ".join(f"'{kind}'" for kind in ENTITY_KINDS)
_SOURCES = {
    WIN_5M.name: ("SELECT * FROM {counted}", "window_start", WINDOW_SECONDS),
    HOST_1H.name: ("SELECT * FROM {counted} WHERE host <> ''", "hour", _HOUR_SECONDS),
    ENTITY_SITE_5M.name: (
        "SELECT *, entity.kind AS kind, entity.value AS value FROM "
        "(SELECT *, {explode}(array_distinct(entities)) AS entity FROM {counted}) AS e "
        f"WHERE entity.kind IN ({_KINDS}) AND length(entity.value) > 0",
        "window_start",
        WINDOW_SECONDS,
    ),
}
"""Of each table what is summed, the column that begins a window, and the window's seconds."""
