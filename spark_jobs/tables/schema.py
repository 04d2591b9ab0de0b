"""The one schema: columns of the landing, as agents and landing write them, and every table that the jobs make.

Every read names its columns: Spark never infers them, so a file with columns of a later version is read by the columns
known here, and a file without some of them gives nulls. Columns are only ever added, at the end, nullable; none
changes its type or its meaning. Those of ``LANDED_…`` equal the agent's ``delivery/envelope.py``
(``tests/spark_jobs/tables/test_schema.py``). ``docs/tables.md`` tells the tables to their readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SCHEMA_VERSION = 1
"""Newest ``schema_version`` whose columns are all known here."""

_STRING, _INT, _LONG, _TIME = StringType(), IntegerType(), LongType(), TimestampType()
_BINARY, _BOOL, _DOUBLE = BinaryType(), BooleanType(), DoubleType()


def _struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def _types(columns: StructType) -> dict[str, DataType]:
    return {field.name: field.dataType for field in columns.fields}


def _with(columns: StructType, **more: DataType) -> StructType:
    return StructType([*columns.fields, *_struct(**more).fields])


_RAW_REF = _struct(log_id=_STRING, offset=_LONG, length=_INT)
_LANDED = _struct(received_at=_TIME, ingest=_struct(collector_id=_STRING, topic=_STRING)).fields

LANDED_ALERT = StructType(
    [
        *_struct(
            schema_version=_INT,
            alert_id=_STRING,
            parent_id=_STRING,
            seq=_LONG,
            kind=_STRING,
            rule_id=_STRING,
            rule_title=_STRING,
            rule_digest=_STRING,
            level=_STRING,
            tags=ArrayType(_STRING),
            agent_id=_STRING,
            site=_STRING,
            fleet=_STRING,
            host=_STRING,
            event_time=_TIME,
            detected_at=_TIME,
            received_date=_STRING,
            source=_STRING,
            logsource=_struct(product=_STRING, category=_STRING, service=_STRING),
            fields=MapType(_STRING, _STRING),
            entities=ArrayType(_struct(kind=_STRING, value=_STRING)),
            raw=_STRING,
            raw_ref=_RAW_REF,
            contributing=ArrayType(_struct(rule_id=_STRING, event_time=_TIME, raw_ref=_RAW_REF)),
            group_by=MapType(_STRING, _STRING),
            count=_LONG,
            first_time=_TIME,
            last_time=_TIME,
            bundle=_STRING,
            flags=ArrayType(_STRING),
        ).fields,
        *_LANDED,
    ]
)
"""One landed alert. ``received_date`` is the edge's UTC date of detection, ``YYYY-MM-DD``: a copy that is sent again
has the same one, however late it comes."""

LANDED_STATUS = StructType(
    [
        *_struct(
            agent_id=_STRING,
            fleet=_STRING,
            site=_STRING,
            state=_STRING,
            version=_STRING,
            bundle=_STRING,
            plan_digest=_STRING,
            seq_high=_LONG,
            payload=_STRING,
        ).fields,
        *_LANDED,
    ]
)
"""One heartbeat or last will; ``payload`` is its whole JSON text."""

LANDED_BAD = _struct(topic=_STRING, reason=_STRING, payload=_BINARY, received_at=_TIME)
"""What the landing could not read."""

LANDED_SEQS = _struct(agent_id=_STRING, fleet=_STRING, log_id=_STRING, first=_LONG, last=_LONG, received_at=_TIME)
"""A run of an agent's alert numbers (``seq``) that are in the landing, in ``alerts`` or ``bad``."""


@dataclass(frozen=True, slots=True)
class Table:
    """What a table promises: its columns, what it is divided by, and what happens when a key is written again.

    A column of a key is never null: where there is no value it holds the empty text.
    """

    name: str
    columns: StructType
    partition: str | None
    """A text column ``YYYY-MM-DD``; reads name a range of it. None: the table is small and lies in one piece."""
    keys: tuple[str, ...] = ()
    """At most one row has these values. Empty: rows are only ever appended."""
    sums: tuple[str, ...] = ()
    """Columns that an upsert adds to what is there; null counts as 0."""
    lows: tuple[str, ...] = ()
    """Columns of which an upsert keeps the smaller value."""
    highs: tuple[str, ...] = ()
    """Columns of which an upsert keeps the larger value."""
    newest: str | None = None
    """One of ``highs``: every other column is taken from the row in which this is larger (at a tie, the one written
    later). None: the row written later wins."""

    @property
    def names(self) -> list[str]:
        return self.columns.names


_GEO = _struct(name=_STRING, country=_STRING, latitude=_DOUBLE, longitude=_DOUBLE, timezone=_STRING)
_ASSET = _struct(owner=_STRING, role=_STRING, environment=_STRING, criticality=_INT)
INTEL_HITS = ArrayType(
    _struct(kind=_STRING, value=_STRING, indicator=_STRING, source=_STRING, threat=_STRING, score=_INT)
)
_STRINGS = ArrayType(_STRING)
_COUNTED = ("alerts", "matches")

ALERTS = Table(
    "alerts",
    _with(LANDED_ALERT, counted_at=_TIME, asset=_ASSET, place=_GEO, intel=INTEL_HITS, batch=_STRING),
    partition="received_date",
)
"""Every alert once, in full. ``counted_at`` is the time by which it is counted everywhere below: ``event_time``, or
``received_at`` where the event's own time is absurd (``frames.counted_at``). ``asset``, ``place`` and ``intel`` come
from the lookups as they were when the alert came in (null, or an empty list, where nothing is known): of ``host``, of
``site``, of ``entities``. ``batch`` names the micro-batch that wrote the row."""

WIN_5M = Table(
    "win_5m",
    _struct(
        date=_STRING,
        window_start=_TIME,
        fleet=_STRING,
        site=_STRING,
        rule_id=_STRING,
        level=_STRING,
        rule_title=_STRING,
        alerts=_LONG,
        matches=_LONG,
        first_time=_TIME,
        last_time=_TIME,
    ),
    partition="date",
    keys=("date", "window_start", "fleet", "site", "rule_id", "level"),
    sums=_COUNTED,
    lows=("first_time",),
    highs=("last_time",),
    newest="last_time",
)
"""Counts by 5 minutes of ``counted_at``. ``alerts`` are alerts proper (a fold is none); ``matches`` how often the rule
matched: an alert stands for one, of a correlation too, and a fold for its ``count``. ``date`` is the window's, UTC."""

ENTITY_SITE_5M = Table(
    "entity_site_5m",
    _struct(
        date=_STRING,
        window_start=_TIME,
        kind=_STRING,
        value=_STRING,
        fleet=_STRING,
        site=_STRING,
        rule_id=_STRING,
        level=_STRING,
        alerts=_LONG,
        matches=_LONG,
        first_time=_TIME,
        last_time=_TIME,
    ),
    partition="date",
    keys=("date", "window_start", "kind", "value", "fleet", "site", "rule_id"),
    sums=_COUNTED,
    lows=("first_time",),
    highs=("last_time",),
    newest="last_time",
)
"""The same by who or what: one alert counts once for each of its different entities of ``ENTITY_KINDS``. Tactics and
techniques of a rule are in ``RULES``."""

ENTITY_KINDS = ("ip", "user", "hash", "user_agent", "domain", "device")
"""Kinds of ``entities`` that ``ENTITY_SITE_5M`` counts: hosts have a table of their own, and URLs hardly repeat."""

HOST_1H = Table(
    "host_1h",
    _struct(
        date=_STRING,
        hour=_TIME,
        fleet=_STRING,
        site=_STRING,
        host=_STRING,
        rule_id=_STRING,
        level=_STRING,
        alerts=_LONG,
        matches=_LONG,
        first_time=_TIME,
        last_time=_TIME,
    ),
    partition="date",
    keys=("date", "hour", "fleet", "site", "host", "rule_id"),
    sums=_COUNTED,
    lows=("first_time",),
    highs=("last_time",),
    newest="last_time",
)
"""The same by host and hour of ``counted_at``."""

RULES = Table(
    "rules",
    _struct(
        rule_id=_STRING,
        rule_title=_STRING,
        level=_STRING,
        tags=_STRINGS,
        tactics=_STRINGS,
        techniques=_STRINGS,
        alerts=_LONG,
        matches=_LONG,
        first_time=_TIME,
        last_time=_TIME,
    ),
    partition=None,
    keys=("rule_id",),
    sums=_COUNTED,
    lows=("first_time",),
    highs=("last_time",),
    newest="last_time",
)
"""Every rule that has alerted. ``tactics`` are ATT&CK short names with hyphens (``initial-access``), ``techniques``
upper-case ids (``T1110.001``), both from ``tags`` (``attack.initial_access``, ``attack.t1110.001``)."""

HEARTBEATS = Table(
    "heartbeats",
    _with(LANDED_STATUS, date=_STRING, batch=_STRING),
    partition="date",
)
"""Every heartbeat and last will, as landed; ``date`` is that of ``received_at``."""

AGENTS = Table(
    "agents",
    _struct(
        fleet=_STRING,
        agent_id=_STRING,
        site=_STRING,
        state=_STRING,
        version=_STRING,
        bundle=_STRING,
        plan_digest=_STRING,
        seq_high=_LONG,
        received=_LONG,
        stored=_LONG,
        judged=_LONG,
        backlog=_LONG,
        dropped=_LONG,
        lost=_LONG,
        alerts_made=_LONG,
        alerts_receipted=_LONG,
        in_outbox=_LONG,
        lag_seconds=_DOUBLE,
        dead_rules=_LONG,
        identity_broken=_STRINGS,
        first_seen=_TIME,
        last_seen=_TIME,
    ),
    partition=None,
    keys=("fleet", "agent_id"),
    lows=("first_seen",),
    highs=("last_seen",),
    newest="last_seen",
)
"""The agents' own accounts by their newest heartbeats; ``received`` to ``lost`` are summed over inputs and reasons.
A last will carries no counters, so they are null while ``state`` is ``lost``: the last ones are in ``heartbeats``."""

SEQS = Table(
    "seqs",
    _with(LANDED_SEQS, date=_STRING, batch=_STRING),
    partition="date",
)
"""Runs of the numbers of agents' alerts that have landed, as landed: a number between two of one ``log_id`` that is in
no run is missing. Runs may overlap. ``date`` is that of ``received_at``."""

DEAD_LETTERS = Table(
    "dead_letters",
    _struct(
        date=_STRING,
        kind=_STRING,
        source=_STRING,
        reason=_STRING,
        rows=_LONG,
        payload=_BINARY,
        received_at=_TIME,
        batch=_STRING,
    ),
    partition="date",
)
"""What no other table holds, and why. ``kind``: ``file`` (a landed file of which nothing can be read; it stays where
it is), ``row`` (one landed row, ``payload`` its JSON), ``message`` (what the landing, or the Kafka source, could not
decode; ``payload`` its bytes). ``source`` is the path or topic, ``date`` that of ``received_at``."""

CAMPAIGNS = Table(
    "campaigns",
    _struct(
        date=_STRING,
        campaign_id=_STRING,
        kind=_STRING,
        value=_STRING,
        first_seen=_TIME,
        last_seen=_TIME,
        state=_STRING,
        stage=_STRING,
        score=_DOUBLE,
        level=_STRING,
        alerts=_LONG,
        matches=_LONG,
        sites=_STRINGS,
        rules=_STRINGS,
        tactics=_STRINGS,
        techniques=_STRINGS,
        steps=ArrayType(
            _struct(time=_TIME, fleet=_STRING, site=_STRING, rule_id=_STRING, tactic=_STRING, alerts=_LONG)
        ),
        reason=_STRING,
        updated_at=_TIME,
    ),
    partition="date",
    keys=("date", "campaign_id"),
    lows=("first_seen",),
    highs=("updated_at",),
    newest="updated_at",
)
"""One entity (``kind``, ``value``) at many sites. ``campaign_id`` and ``date`` (of the first ``first_seen``) stay while
it grows. ``sites`` are ``FLEET/SITE``; ``state`` open or closed; ``tactics`` in the order seen, ``stage`` the furthest;
``steps`` at most 200."""

SESSIONS = Table(
    "sessions",
    _struct(
        date=_STRING,
        session_id=_STRING,
        kind=_STRING,
        value=_STRING,
        started_at=_TIME,
        ended_at=_TIME,
        alerts=_LONG,
        matches=_LONG,
        sites=_STRINGS,
        rules=_STRINGS,
        tactics=_STRINGS,
        updated_at=_TIME,
    ),
    partition="date",
    keys=("date", "session_id"),
    lows=("started_at",),
    highs=("updated_at",),
    newest="updated_at",
)
"""Runs of one entity's activity without a gap longer than the job's. ``date`` is that of ``started_at``."""

BASELINES = Table(
    "baselines",
    _struct(
        as_of=_STRING,
        fleet=_STRING,
        site=_STRING,
        rule_id=_STRING,
        hour_of_week=_INT,
        median=_DOUBLE,
        mad=_DOUBLE,
        weeks=_INT,
    ),
    partition="as_of",
    keys=("as_of", "fleet", "site", "rule_id", "hour_of_week"),
)
"""What is usual for a rule at a site in an hour of the week (0 is Monday 00:00 of the site's time zone), in matches an
hour. ``rule_id`` empty: all rules together."""

ANOMALIES = Table(
    "anomalies",
    _struct(
        date=_STRING,
        anomaly_id=_STRING,
        kind=_STRING,
        fleet=_STRING,
        site=_STRING,
        rule_id=_STRING,
        started_at=_TIME,
        ended_at=_TIME,
        observed=_DOUBLE,
        median=_DOUBLE,
        mad=_DOUBLE,
        score=_DOUBLE,
        level=_STRING,
        reason=_STRING,
        updated_at=_TIME,
        entity_kind=_STRING,
        entity_value=_STRING,
    ),
    partition="date",
    keys=("date", "anomaly_id"),
    highs=("updated_at",),
    newest="updated_at",
)
"""What is unlike a site's past. ``kind``: ``burst``, ``silence``, ``new_rule`` (``site`` empty: new in the fleet),
``new_entity`` (``entity_kind``, ``entity_value``)."""

FIRST_SEEN = Table(
    "first_seen",
    _struct(kind=_STRING, value=_STRING, fleet=_STRING, site=_STRING, first_seen=_TIME, last_seen=_TIME, alerts=_LONG),
    partition=None,
    keys=("kind", "value", "fleet", "site"),
    sums=("alerts",),
    lows=("first_seen",),
    highs=("last_seen",),
    newest="last_seen",
)
"""When a rule (``kind`` ``rule``), a user, a device or a user agent was first alerted on at a site."""

NOISE = Table(
    "noise",
    _struct(
        as_of=_STRING,
        rule_id=_STRING,
        rule_title=_STRING,
        level=_STRING,
        alerts=_LONG,
        matches=_LONG,
        share=_DOUBLE,
        share_suppressed=_DOUBLE,
        sites=_LONG,
        hosts=_LONG,
        top_kind=_STRING,
        top_value=_STRING,
        top_share=_DOUBLE,
        score=_DOUBLE,
        reason=_STRING,
        proposal=_STRING,
    ),
    partition="as_of",
    keys=("as_of", "rule_id"),
)
"""How loud each rule was in the days up to ``as_of``; ``proposal`` is the Sigma filter for its author, empty
when there is none."""

COVERAGE = Table(
    "coverage",
    _struct(
        as_of=_STRING,
        technique=_STRING,
        rule_id=_STRING,
        rule_title=_STRING,
        level=_STRING,
        tactics=_STRINGS,
        deployed=_BOOL,
        alerts=_LONG,
        matches=_LONG,
        sites=_LONG,
        first_seen=_TIME,
        last_seen=_TIME,
    ),
    partition="as_of",
    keys=("as_of", "technique", "rule_id"),
)
"""Which rule speaks for which ATT&CK technique, and what it has seen; ``alerts`` 0 for a rule that never fired,
``technique`` empty for one without tags, ``deployed`` false for one that alerted and is in no bundle landed."""

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        ALERTS,
        WIN_5M,
        ENTITY_SITE_5M,
        HOST_1H,
        RULES,
        HEARTBEATS,
        AGENTS,
        SEQS,
        DEAD_LETTERS,
        CAMPAIGNS,
        SESSIONS,
        BASELINES,
        ANOMALIES,
        FIRST_SEEN,
        NOISE,
        COVERAGE,
    )
}
"""Every table by name."""

LOOKUPS: Mapping[str, StructType] = {
    "assets": _with(_struct(host=_STRING, site=_STRING), **_types(_ASSET)),
    "sites": _with(_struct(site=_STRING, fleet=_STRING), **_types(_GEO)),
    "intel": _struct(
        kind=_STRING, value=_STRING, source=_STRING, threat=_STRING, score=_INT, valid_from=_TIME, valid_until=_TIME
    ),
}
"""Columns of the lookups that ``enrich`` joins; ``docs/tables.md`` says what they mean."""
