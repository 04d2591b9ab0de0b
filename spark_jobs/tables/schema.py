"""The one schema: columns of the landing, as agents and landing write them, and every table that the jobs make.

Every read names its columns: Spark never infers them, so a file with columns of a later version is read by the columns
known here, and a file without some of them gives nulls. Columns are only ever added, at the end, nullable; none
changes its type or its meaning. Those of ``LANDED_…`` equal the agent's ``delivery/envelope.py``
(``tests/spark_jobs/tables/test_schema.py``). ``docs/tables.md`` tells the tables to their readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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

_KINDS: Mapping[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "bool": BooleanType(),
    "time": TimestampType(),
    "binary": BinaryType(),
    "strings": ArrayType(StringType()),
    "map": MapType(StringType(), StringType()),
}


def columns(text: str, **kinds: DataType) -> StructType:
    """Columns in their order: ``kind name name; kind name``; a kind is one of ``_KINDS`` or of ``kinds``."""
    fields = []
    for part in text.split(";"):
        kind, *names = part.split()
        fields += [StructField(name, kinds.get(kind) or _KINDS[kind]) for name in names]
    return StructType(fields)


def _with(columns: StructType, more: StructType) -> StructType:
    return StructType([*columns.fields, *more.fields])


def _structs_last(columns: StructType) -> StructType:
    """``columns`` with structs behind all others: deltalake reads no statistics of a column behind a struct."""
    return StructType(sorted(columns.fields, key=lambda field: isinstance(field.dataType, StructType)))


_RAW_REF = columns("string log_id; long offset; int length")
_LANDED = columns("time received_at; ingest ingest; string stated_site", ingest=columns("string collector_id topic"))

LANDED_ALERT = _with(
    columns(
        """int schema_version; string alert_id parent_id; long seq; string kind rule_id rule_title rule_digest level;
        strings tags; string agent_id site fleet host; time event_time detected_at; string received_date source;
        logsource logsource; map fields; entities entities; string raw; raw_ref raw_ref; contributing contributing;
        map group_by; long count; time first_time last_time; string bundle; strings flags""",
        logsource=columns("string product category service"),
        entities=ArrayType(columns("string kind value")),
        raw_ref=_RAW_REF,
        contributing=ArrayType(columns("string rule_id; time event_time; raw_ref raw_ref", raw_ref=_RAW_REF)),
    ),
    _LANDED,
)
"""One landed alert. ``received_date`` is the edge's UTC date of detection, ``YYYY-MM-DD``: a copy that is sent again
has the same one, however late it comes."""

LANDED_STATUS = _with(
    columns("string agent_id fleet site state version bundle plan_digest; long seq_high; string payload"), _LANDED
)
"""One heartbeat or last will; ``payload`` is its whole JSON text."""

LANDED_BAD = columns("string topic reason; binary payload; time received_at")
"""What the landing could not read."""

LANDED_SEQS = columns("string agent_id fleet log_id; long first last; time received_at")
"""A range of an agent's alert numbers (``seq``) that are in the landing, in ``alerts`` or ``bad``."""


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
    newest: str | None = None
    """Of this column an upsert keeps the larger value; every other column is taken from the row in which this is larger
    (at a tie, the one written later). None: the row written later wins."""

    @property
    def names(self) -> list[str]:
        return self.columns.names


_GEO = columns("string name country; double latitude longitude; string timezone")
_ASSET = columns("string owner role environment; int criticality")
INTEL_HITS = ArrayType(columns("string kind value indicator source threat; int score"))

ALERTS = Table(
    "alerts",
    _structs_last(
        _with(
            LANDED_ALERT,
            columns(
                "time counted_at; asset asset; place place; intel intel; string batch",
                asset=_ASSET,
                place=_GEO,
                intel=INTEL_HITS,
            ),
        )
    ),
    partition="received_date",
)
"""Every alert once, in full. ``counted_at`` is the time by which it is counted everywhere below: ``event_time``, or
``received_at`` where the event's own time is absurd (``frames.counted_at``). ``asset``, ``place`` and ``intel`` come
from the lookups as they were when the alert came in (null, or an empty list, where nothing is known): of ``host``, of
``site``, of ``entities``. ``batch`` names the micro-batch that wrote the row. ``site`` is what the region knows of the
agent, where it knows one; ``stated_site`` then the other one that the agent states. So in the tables below."""


def _counts(name: str, first: str, *keys: str, partition: str | None = "date") -> Table:
    """A table of sums: columns ``first``, then how many alerts and matches, and when the first and the last were."""
    return Table(
        name,
        columns(f"{first}; long alerts matches; time first_time last_time"),
        partition,
        keys,
        sums=("alerts", "matches"),
        lows=("first_time",),
        newest="last_time",
    )


WIN_5M = _counts(
    "win_5m", "string date; time window_start; string fleet site rule_id level rule_title",
    "date", "window_start", "fleet", "site", "rule_id", "level",
)  # fmt: skip
"""Counts by 5 minutes of ``counted_at``. ``alerts`` are alerts proper (a fold is none); ``matches`` how often the rule
matched: an alert counts one, of a correlation too, and a fold its ``count``. ``date`` is the window's, UTC."""

ENTITY_SITE_5M = _counts(
    "entity_site_5m", "string date; time window_start; string kind value fleet site rule_id level",
    "date", "window_start", "kind", "value", "fleet", "site", "rule_id", "level",
)  # fmt: skip
"""The same by who or what: one alert counts once for each of its different entities of ``ENTITY_KINDS``. Tactics and
techniques of a rule are in ``RULES``."""

ENTITY_KINDS = ("ip", "user", "hash", "user_agent", "domain", "device")
"""Kinds of ``entities`` that ``ENTITY_SITE_5M`` counts: hosts have a table of their own, and URLs hardly repeat."""

HOST_1H = _counts(
    "host_1h", "string date; time hour; string fleet site host rule_id level",
    "date", "hour", "fleet", "site", "host", "rule_id", "level",
)  # fmt: skip
"""The same by host and hour of ``counted_at``."""

_RULES = _counts("rules", "string rule_id rule_title level; strings tags tactics techniques", "rule_id", partition=None)
RULES = replace(
    _RULES,
    columns=_with(_RULES.columns, columns("bool published; time first_landed")),
    lows=("first_time", "first_landed"),
)
"""Every rule that has alerted. ``tactics`` are ATT&CK short names with hyphens (``initial-access``), ``techniques``
upper-case ids (``T1110.001``), both from ``tags`` (``attack.initial_access``, ``attack.t1110.001``). Texts are those
that the region ``published``, else what no single agent decides (``intake/texts.py``). ``first_landed`` is the least
``received_at``: no member moves it back by an event's time."""

HEARTBEATS = Table("heartbeats", _with(LANDED_STATUS, columns("string date batch")), partition="date")
"""Every heartbeat and last will, as landed; ``date`` is that of ``received_at``."""

AGENTS = Table(
    "agents",
    columns(
        """string fleet agent_id site state version bundle plan_digest;
        long seq_high received stored judged backlog dropped lost alerts_made alerts_receipted in_outbox;
        double lag_seconds; long dead_rules; strings identity_broken; time first_seen last_seen;
        string stated_site"""
    ),
    partition=None,
    keys=("fleet", "agent_id"),
    lows=("first_seen",),
    newest="last_seen",
)
"""The agents' own accounts by their newest heartbeats; ``received`` to ``lost`` are summed over inputs and reasons.
A last will carries no counters, so they are null while ``state`` is ``lost``: the last ones are in ``heartbeats``."""

SEQS = Table("seqs", _with(LANDED_SEQS, columns("string date batch")), partition="date")
"""Runs of the numbers of agents' alerts that have landed, as landed: a number between two of one ``log_id`` that is in
no run is missing. Runs may overlap. ``date`` is that of ``received_at``."""

DEAD_LETTERS = Table(
    "dead_letters",
    columns("string date kind source reason; long rows; binary payload; time received_at; string batch"),
    partition="date",
)
"""What no other table holds, and why. ``kind``: ``file`` (a landed file of which nothing can be read; it stays where
it is), ``row`` (one landed row, ``payload`` its JSON), ``message`` (what the landing, or the Kafka source, could not
decode; ``payload`` its bytes). ``source`` is the path or topic, ``date`` that of ``received_at``."""

CAMPAIGNS = Table(
    "campaigns",
    columns(
        """string date campaign_id kind value; time first_seen last_seen; string state stage; double score;
        string level; long alerts matches; strings sites rules tactics techniques; steps steps; string reason;
        time updated_at; entities entities; double evidence confidence; strings against; story story; int new_steps""",
        steps=ArrayType(columns("time time; string fleet site rule_id tactic; long alerts")),
        entities=ArrayType(columns("string kind value; long alerts; strings tactics")),
        story=ArrayType(columns("time first last; string tactic; strings sites rules; long alerts")),
    ),
    partition="date",
    keys=("date", "campaign_id"),
    lows=("first_seen",),
    newest="updated_at",
)
"""Entities at many sites: ``kind`` and ``value`` are those of the one with most evidence, ``entities`` all, most
evidence first. ``campaign_id`` and ``date`` (of the first ``first_seen``) stay while it grows. ``sites`` are
``FLEET/SITE``; ``state`` open or closed; ``tactics`` in the order seen, ``stage`` the furthest; ``steps`` at most 200,
the first and the last hundred.
``score`` is the order in which to look: level, stage, then ``confidence`` (0 to 1), which is ``evidence`` (0 to 100)
less for each of ``against``; ``reason`` says the same in words. ``story`` are the stages in the order reached
(``tactic`` empty: none is known), ``new_steps`` how many steps are of the 24 hours before ``updated_at``; both are
reckoned from all steps."""

SESSIONS = Table(
    "sessions",
    columns(
        """string date session_id kind value; time started_at ended_at; long alerts matches;
        strings sites rules tactics; time updated_at"""
    ),
    partition="date",
    keys=("date", "session_id"),
    lows=("started_at",),
    newest="updated_at",
)
"""Runs of one entity's activity without a gap longer than the job's. ``date`` is that of ``started_at``."""

BASELINES = Table(
    "baselines",
    columns("string as_of fleet site rule_id; int hour_of_week; double median mad; int weeks"),
    partition="as_of",
    keys=("as_of", "fleet", "site", "rule_id", "hour_of_week"),
)
"""What is usual for a rule at a site in an hour of the week (0 is Monday 00:00 of the site's time zone), in matches an
hour. ``rule_id`` empty: all rules together."""

ANOMALIES = Table(
    "anomalies",
    columns(
        """string date anomaly_id kind fleet site rule_id; time started_at ended_at; double observed median mad score;
        string level reason; time updated_at; string entity_kind entity_value"""
    ),
    partition="date",
    keys=("date", "anomaly_id"),
    newest="updated_at",
)
"""What is unlike a site's past. ``kind``: ``burst``, ``silence``, ``new_rule`` (``site`` empty: new in the fleet),
``new_entity`` (``entity_kind``, ``entity_value``)."""

FIRST_SEEN = Table(
    "first_seen",
    columns("string kind value fleet site; time first_seen last_seen; long alerts"),
    partition=None,
    keys=("kind", "value", "fleet", "site"),
    sums=("alerts",),
    lows=("first_seen",),
    newest="last_seen",
)
"""When a rule (``kind`` ``rule``), a user, a device or a user agent was first alerted on at a site."""

NOISE = Table(
    "noise",
    columns(
        """string as_of rule_id rule_title level; long alerts matches; double share share_suppressed; long sites hosts;
        string top_kind top_value; double top_share score; string reason proposal"""
    ),
    partition="as_of",
    keys=("as_of", "rule_id"),
)
"""How loud each rule was in the days up to ``as_of``; ``proposal`` is the Sigma filter for its author, empty
when there is none."""

COVERAGE = Table(
    "coverage",
    columns(
        """string as_of technique rule_id rule_title level; strings tactics; bool deployed; long alerts matches sites;
        time first_seen last_seen"""
    ),
    partition="as_of",
    keys=("as_of", "technique", "rule_id"),
)
"""Which rule speaks for which ATT&CK technique, and what it has seen; ``alerts`` 0 for a rule that never fired,
``technique`` empty for one without tags, ``deployed`` false for one that alerted and is in no bundle landed."""

RISK = Table(
    "risk",
    columns(
        """string as_of risk_id kind value scope; double score threshold usual; bool over; string level;
        time critical_at; long alerts rules tactics days; time first_seen last_seen; contributions contributions;
        long others; double others_points; string reason leader; time updated_at""",
        contributions=ArrayType(
            columns("double points; time time; string rule_id level tactic; long alerts; string why")
        ),
    ),
    partition="as_of",
    keys=("as_of", "kind", "value", "scope"),
)
"""What an entity has come to by ``as_of``, of those with most. ``kind`` is user, ip, device, host or site (``value``
``FLEET/SITE``); ``scope`` is the site of a host and of a private address, else empty; ``risk_id`` is the same every
day. ``score`` is the sum of the points of ``contributions`` (the largest) and of the ``others``; ``threshold`` is what
it takes to be ``over``: the larger of a fixed one and twice what is ``usual`` for this entity (null: its past is too
short). An entity with a ``critical_at`` of the last days is over as well. ``leader`` is the ``risk_id`` of the one with
which it is one incident, may be its own; empty below the threshold."""

TRIAGE = Table(
    "triage",
    columns("string finding_id kind state assignee reason author; time expires_at updated_at"),
    partition=None,
)
"""What people decided about campaigns, anomalies, risks and, in the console, alerts, a row a decision, the newest
``updated_at`` of a ``finding_id`` counts: ``state`` is ``new``, ``acknowledged``, ``assigned`` (to ``assignee``),
``true-positive`` or ``false-positive``; it holds until ``expires_at`` (null: for good)."""

NOTICES = Table(
    "notices",
    columns("string finding_id receiver; time sent_at; string refused"),
    partition=None,
    keys=("finding_id", "receiver"),
    newest="sent_at",
)
"""Which receiver has been sent which finding (``notify``); ``refused`` is why it will never take it, else empty."""

RUNS = Table(
    "runs",
    columns("string job; time started_at ended_at succeeded_at; string error inputs"),
    partition=None,
    keys=("job",),
    newest="started_at",
)
"""How each job fared when ``vedette-spark all`` last ran it: ``succeeded_at`` is when the last run began that did not
fail, ``error`` why the last one failed (empty: it did not), ``inputs`` what the last one worked with, in words."""

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        ALERTS, WIN_5M, ENTITY_SITE_5M, HOST_1H, RULES, HEARTBEATS, AGENTS, SEQS, DEAD_LETTERS,
        CAMPAIGNS, SESSIONS, BASELINES, ANOMALIES, FIRST_SEEN, NOISE, COVERAGE, RISK, TRIAGE, NOTICES, RUNS,
    )
}  # fmt: skip
"""Every table by name."""

LOOKUPS: Mapping[str, StructType] = {
    "assets": _with(columns("string host site"), _ASSET),
    "sites": _with(columns("string site fleet"), _GEO),
    "intel": columns("string kind value source threat; int score; time valid_from valid_until"),
    "entities": columns("string kind value; int criticality"),
}
"""Columns of the lookups; ``docs/tables.md`` says what they mean."""
