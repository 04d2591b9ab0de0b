"""The jobs' arithmetic, literal rows in and literal rows out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from spark_jobs.intake import frames
from spark_jobs.tables import sums
from spark_jobs.tables.schema import ENTITY_SITE_5M, HOST_1H, LANDED_STATUS, WIN_5M
from spark_jobs.tables.schema import LANDED_ALERT as ALERTS
from vedette.model.counters import Counters, Dropped

pytestmark = pytest.mark.spark

_PLACED = StructType([*ALERTS.fields, StructField("file", LongType()), StructField("position", LongType())])


def _at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-20T{text}+00:00")


def _alerts(spark: SparkSession, rows: Iterable[dict[str, Any]]) -> DataFrame:
    """Rows with what the test leaves open filled in alike."""
    common = {
        "alert_id": "a",
        "agent_id": "agent-1",
        "received_date": "2026-11-20",
        "event_time": _at("12:00:00"),
        "received_at": _at("12:30:00"),
        "kind": "detection",
        "rule_id": "r",
        "rule_title": "R",
        "level": "high",
        "fleet": "f",
        "site": "s",
        "host": "h",
        "count": 1,
    }
    filled = [{**common, **row} for row in rows]
    return spark.createDataFrame([tuple(row.get(name) for name in _PLACED.names) for row in filled], _PLACED)


def _left(rows: DataFrame, gone: DataFrame) -> list[str]:
    return sorted(row.raw for row in rows.join(gone, frames.PLACE, "left_anti").collect())


def test_the_first_received_copy_stays(spark: SparkSession) -> None:
    """Of copies the earliest received stays, of equals the first by place; another agent's is no copy."""
    rows = _alerts(
        spark,
        [
            {"received_at": _at("12:09:00"), "file": 1, "position": 0, "raw": "late"},
            {"received_at": _at("12:01:00"), "file": 3, "position": 5, "raw": "third"},
            {"received_at": _at("12:01:00"), "file": 2, "position": 2, "raw": "second"},
            {"received_at": _at("12:01:00"), "file": 2, "position": 1, "raw": "first"},
            {"received_at": _at("12:05:00"), "file": 9, "position": 9, "agent_id": "agent-2", "raw": "other"},
        ],
    )
    assert _left(rows, frames.later_copies(rows)) == ["first", "other"]


def test_what_the_table_holds_is_left_out(spark: SparkSession) -> None:
    """Known means the same agent, id and edge date; a row that shares only some of them is new."""
    known = _alerts(spark, [{"alert_id": "a"}, {"alert_id": "a"}, {"alert_id": "b"}])
    rows = _alerts(
        spark,
        [
            {"alert_id": "a", "raw": "known", "file": 1, "position": 0},
            {"alert_id": "c", "raw": "new id", "file": 1, "position": 1},
            {"alert_id": "a", "agent_id": "agent-2", "raw": "new agent", "file": 1, "position": 2},
            {"alert_id": "b", "received_date": "2026-11-21", "raw": "new date", "file": 1, "position": 3},
        ],
    )
    assert _left(rows, frames.known_copies(rows, known)) == ["new agent", "new date", "new id"]


def test_equal_hashes_make_no_copies(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were all hashes alike, the key would still tell alerts apart."""
    monkeypatch.setattr(frames, "_hash", lambda: F.lit(0).cast("long").alias("hash"))
    test_the_first_received_copy_stays(spark)
    test_what_the_table_holds_is_left_out(spark)


@given(st.lists(st.integers(-500_000, 500_000), max_size=200))
def test_ranges_hold_every_bucket(buckets: list[int]) -> None:
    """Few ranges, ascending and apart, that begin and end with a bucket and leave none out."""
    found = frames.ranges(buckets, 3600)
    hours = [(int(start.timestamp()) // 3600, int(end.timestamp()) // 3600 - 1) for start, end in found]
    assert len(found) <= frames.MAX_RANGES
    assert all(any(first <= one <= last for first, last in hours) for one in buckets)
    assert {one for pair in hours for one in pair} <= set(buckets)
    assert all(last < first for (_, last), (first, _) in pairwise(hours))


def test_ranges_of_absurd_times_end_with_the_calendar() -> None:
    """Hours outside of the years 1 to 9999 become its ends, not an error."""
    ((start, _), (_, end)) = frames.ranges([-(10**12), 10**12])
    assert (start.year, end.year) == (1, 9999)


def test_windows_count_alerts_and_what_they_stand_for(spark: SparkSession) -> None:
    """A fold adds its count to the matches and is no alert; a detection and a correlation match once, whatever they
    count; windows begin at whole 5 minutes; a null host is a host."""
    rows = _alerts(
        spark,
        [
            {"event_time": _at("12:00:00")},
            {"event_time": _at("12:04:59.999999")},
            {"event_time": _at("12:04:00"), "kind": "fold", "count": 40},
            {"event_time": _at("12:04:00"), "kind": "correlation", "count": 5000},
            {"event_time": _at("12:05:00"), "host": None},
            {"event_time": _at("12:05:00"), "host": None, "count": None, "kind": None},
            {"event_time": _at("12:05:00"), "host": None, "count": None, "kind": "fold"},
            {"event_time": _at("12:05:00"), "level": "low", "count": 9},
            {"event_time": _at("12:05:00"), "level": "low", "count": -7, "kind": "fold"},
            {"event_time": _at("12:05:00"), "level": "low", "count": (1 << 63) - 1, "kind": "fold"},
            {"event_time": _at("12:05:00"), "level": "low", "count": (1 << 63) - 1, "kind": "fold"},
        ],
    )
    counted = frames.counted(rows.withColumn("counted_at", frames.counted_at()))
    rules = frames.rules(counted)
    got = {
        (f"{r.window_start:%H:%M}", r.level): (r.alerts, r.matches, r.date, r.rule_title)
        for r in frames.rows_of(WIN_5M, counted, rules).collect()
    }
    assert got == {
        ("12:00", "high"): (3, 43, "2026-11-20", "R"),
        ("12:05", "high"): (2, 3, "2026-11-20", "R"),
        ("12:05", "low"): (1, 1 + 2 * sums.MAX_COUNT, "2026-11-20", "R"),
    }
    by_host = frames.rows_of(HOST_1H, counted, rules).collect()
    assert sorted((r.host, r.level, f"{r.hour:%H:%M}", r.alerts) for r in by_host) == [
        ("h", "high", "12:00", 3), ("h", "low", "12:00", 1),
    ]  # fmt: skip


def test_an_entity_counts_once_an_alert(spark: SparkSession) -> None:
    """Doubles within an alert count once, hosts and empty values not at all; folds add to the matches."""
    ip, user, host = (("ip", "192.0.2.1"), ("user", "root"), ("host", "h"))
    rows = _alerts(
        spark,
        [
            {"entities": [ip, ip, user, host, ("ip", "")]},
            {"entities": [ip]},
            {"entities": [ip], "kind": "fold", "count": 5},
            {"entities": [ip], "site": "elsewhere"},
            {"entities": []},
            {"entities": None},
        ],
    )
    counted = frames.counted(rows.withColumn("counted_at", frames.counted_at()))
    got = sorted(
        (r.site, r.kind, r.value, r.alerts, r.matches)
        for r in frames.rows_of(ENTITY_SITE_5M, counted, frames.rules(counted)).collect()
    )
    assert got == [
        ("elsewhere", "ip", "192.0.2.1", 1, 1),
        ("s", "ip", "192.0.2.1", 2, 7),
        ("s", "user", "root", 1, 1),
    ]


def test_rules_name_tactics_and_techniques(spark: SparkSession) -> None:
    """Tactics with hyphens, techniques in capitals, other tags neither; the newest alert's title and tags are
    kept, and the tactics of all."""
    tags = [
        "attack.initial_access",
        "attack.Initial-Access",
        "attack.t1110.001",
        "attack.T1078",
        "attack.g0016",
        "attack.t1111\n",
        "cve.1",
    ]
    rows = _alerts(
        spark,
        [
            {"event_time": _at("12:00:00"), "rule_title": "old", "tags": ["attack.impact"]},
            {"event_time": _at("12:01:00"), "rule_title": "new", "tags": tags},
        ],
    )
    (row,) = frames.rules(frames.counted(rows.withColumn("counted_at", frames.counted_at()))).collect()
    assert (row.rule_title, row.alerts, row.tags) == ("new", 2, tags)
    assert row.tactics == ["initial-access", "impact"]
    assert row.techniques == ["T1110.001", "T1078"]


@pytest.mark.parametrize(
    ("event", "landed", "counted"),
    [
        ("2026-11-20T11:00:00", "2026-11-20T12:00:00", "2026-11-20T11:00:00"),
        ("2026-11-21T11:59:00", "2026-11-20T12:00:00", "2026-11-21T11:59:00"),
        ("2025-11-01T00:00:00", "2026-11-20T12:00:00", "2025-11-01T00:00:00"),
        ("1970-01-01T00:00:00", "2026-11-20T12:00:00", "2026-11-20T12:00:00"),
        ("2099-01-01T00:00:00", "2026-11-20T12:00:00", "2026-11-20T12:00:00"),
        ("0001-01-02T00:00:00", "2026-11-20T12:00:00", "2026-11-20T12:00:00"),
    ],
)
def test_an_absurd_time_is_counted_when_it_landed(spark: SparkSession, event: str, landed: str, counted: str) -> None:
    """More than 400 days old or a day ahead of its landing is absurd; late and early clocks are not."""
    times = {"event_time": event, "received_at": landed}
    rows = _alerts(spark, [{name: datetime.fromisoformat(f"{text}+00:00") for name, text in times.items()}])
    (row,) = rows.select(F.date_format(frames.counted_at(), "yyyy-MM-dd'T'HH:mm:ss").alias("at")).collect()
    assert row.at == counted


def test_rows_without_identity_or_time_are_refused(spark: SparkSession) -> None:
    """What cannot be told apart, placed by date or put in a window is refused and says why; an early year is not."""
    rows = _alerts(
        spark,
        [
            {"raw": "good"},
            {"raw": "year 1", "event_time": datetime.fromisoformat("0001-01-02T00:00:00+00:00")},
            {"alert_id": None},
            {"agent_id": ""},
            {"received_date": None},
            {"received_date": "../../etc"},
            {"received_date": "2026-11-20/batch=x"},
            {"received_date": "2026-02-30"},
            {"received_date": "2026-11-20\n"},
            {"event_time": None},
            {"received_at": None},
        ],
    )
    found = Counter(row.why for row in rows.select(frames.trouble(*frames.NEEDED).alias("why")).collect())
    assert found == {
        None: 2,
        "without alert_id": 1,
        "without agent_id": 1,
        "received_date is no date YYYY-MM-DD": 5,
        "without event_time": 1,
        "without received_at": 1,
    }


def test_agents_are_their_newest_heartbeats(spark: SparkSession) -> None:
    """The account adds up counters over inputs and reasons as the agent's own status has them; a payload of another
    form leaves nulls, and so does a last will; a number that counts nothing is left out."""
    counters = Counters()
    for name in ("syslog", "files"):
        counters.received[name], counters.stored[name], counters.judged[name] = 7, 5, 4
        counters.drop(name, Dropped.KERNEL, 2)
    said = json.dumps({"agent_id": "a", "lag_seconds": 3, "identity_broken": ["x"], **counters.snapshot()})
    columns = StructType([field for field in LANDED_STATUS.fields if field.name != "ingest"])

    def beat(agent: str, minute: int, state: str, payload: str | None) -> tuple[object, ...]:
        return (agent, "f", "s", state, "0.1", None, None, 9, payload, _at(f"12:{minute:02}:00"), agent)

    rows = [
        beat("a", 1, "old", "{}"),
        beat("a", 2, "running", said),
        beat("b", 1, "running", said),
        beat("b", 3, "lost", '{"state": "lost"}'),
        *(beat(f"c{n}", 1, "odd", text) for n, text in enumerate((None, "", "{", "[]", '{"inputs": 3}'))),
    ]
    last = (1 << 63) - 1
    absurd = {"inputs": {name: {"received": last, "stored": -1, "judged": 2} for name in "ab"}, "backlog": {"r": last}}
    rows.append(beat("d", 1, "running", json.dumps({**absurd, "alerts": {"made": last, "in_outbox": 3}})))
    lags = ("NaN", "Infinity", 1e308, -1.0)
    rows += [beat(f"l{n}", 1, "running", json.dumps({"lag_seconds": lag})) for n, lag in enumerate(lags)]
    many = {"inputs": {str(n): {"received": (1 << 53) - 1} for n in range(3000)}}
    rows.append(beat("e", 1, "running", json.dumps(many)))
    got = {row.agent_id: row for row in frames.agents(spark.createDataFrame(rows, columns)).collect()}
    d = got["d"]
    assert (d.received, d.stored, d.judged, d.backlog, d.alerts_made, d.in_outbox) == (0, 0, 4, 0, None, 3)
    assert got["e"].received == (1 << 53) - 1
    assert all(got[f"l{n}"].lag_seconds is None for n in range(4))
    a = got["a"]
    assert (a.state, a.received, a.stored, a.judged, a.dropped, a.lost) == ("running", 18, 10, 8, 4, 0)
    assert (a.lag_seconds, a.identity_broken, a.seq_high, a.stated_site) == (3.0, ["x"], 9, "a")
    assert (f"{a.first_seen:%M}", f"{a.last_seen:%M}") == ("01", "02")
    assert (got["b"].state, got["b"].received, got["b"].judged) == ("lost", None, None)
    assert all(got[f"c{n}"].received is None for n in range(5))
