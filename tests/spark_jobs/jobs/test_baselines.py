"""What is usual, and what was not: against a made-up fleet's truth, and to the digit by hand."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bench.simulate import Plan
from spark_jobs.common import period
from spark_jobs.common.period import Period
from spark_jobs.findings import newness
from spark_jobs.intake.enrich import Lookups
from spark_jobs.jobs import baselines
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import (
    AGENTS,
    ANOMALIES,
    BASELINES,
    ENTITY_SITE_5M,
    FIRST_SEEN,
    HEARTBEATS,
    RULES,
    WIN_5M,
    Table,
)
from spark_jobs.tables.tables import open_tables
from tests.spark_jobs.fleet import SEEDS, Fleet, made, told

pytestmark = pytest.mark.spark

MONDAY = datetime(2026, 11, 2, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Region:
    """Tables filled by hand: (site, rule, hours since ``MONDAY``, matches)."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.tables = spark, open_tables(str(folder / "tables"))
        self.lookups = Lookups(str(folder / "lookups"))

    def match(
        self,
        rows: Iterable[tuple[str, str, float, int]],
        level: str = "low",
        user: str = "",
        kind: str = "user",
        alerts: int = 1,
    ) -> None:
        counts, rules, people = [], {}, []
        for site, rule, hours, matches in rows:
            at = MONDAY + hours * HOUR
            row = {"date": f"{at:%Y-%m-%d}", "window_start": at, "fleet": "north", "site": site, "rule_id": rule,
                   "level": level, "alerts": alerts, "matches": matches, "first_time": at, "last_time": at}  # fmt: skip
            counts.append({**row, "rule_title": rule.upper()})
            first = min(at, rules.get(rule, {"first_time": at})["first_time"])
            rules[rule] = {"rule_id": rule, "rule_title": rule.upper(), "first_time": first, "last_time": at}
            if user:
                people.append({**row, "kind": kind, "value": user})
        self._upsert(WIN_5M, counts)
        self._upsert(RULES, list(rules.values()))
        if people:
            self._upsert(ENTITY_SITE_5M, people)

    def people(self, rows: Iterable[dict[str, Any]]) -> None:
        self._upsert(ENTITY_SITE_5M, list(rows))

    def _upsert(self, table: Table, rows: list[dict[str, Any]]) -> None:
        self.tables.upsert(table, _arrow(table, rows))

    def run(self, first: int, days: int = 7, until: float | None = None, weeks: int = 4) -> list[dict[str, Any]]:
        """Judge ``days`` days from day ``first`` since ``MONDAY`` on; its anomalies in order."""
        start = (MONDAY + first * DAY).date()
        now = MONDAY + until * HOUR if until else MONDAY + (first + days) * DAY
        wanted = Period(start, start + timedelta(days=days - 1), now)
        baselines.write(self.spark, self.tables, wanted, weeks, self.lookups)
        rows = self.tables.arrow(ANOMALIES).to_pylist()
        assert len({row["anomaly_id"] for row in rows}) == len(rows)
        return sorted(rows, key=lambda row: (row["started_at"], row["kind"], row["site"]))


def _arrow(table: Table, rows: list[dict[str, Any]]) -> pa.Table:
    kinds = [field for field in arrow_schema(table.columns) if field.name in rows[0]]
    return pa.Table.from_pylist(rows, pa.schema(kinds))


@pytest.fixture
def region(spark: SparkSession, tmp_path: Path) -> Region:
    return Region(spark, tmp_path)


@pytest.fixture(scope="module", params=SEEDS)
def fleet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Fleet:
    """A fortnight of a fleet that no threshold has seen: its second week is judged by its first."""
    seed = request.param
    plan = Plan(
        alerts=40_000, days=14, seed=seed, sites=10, rules=30, hosts=10, campaigns=2, bursts=24, silences=3, new_rules=4
    )
    fleet = made(spark, tmp_path_factory.mktemp("fleet"), plan, WIN_5M, RULES, AGENTS)
    baselines.write(spark, fleet.tables, period.period(date(2026, 11, 15), 6), 4, Lookups(fleet.lookups))
    return fleet


def _overlap(row: dict[str, Any], one: dict[str, Any]) -> bool:
    place = f"{row['fleet']}/{row['site']}" == one["site"]
    begins, ends = row["started_at"].timestamp() * 1e6, row["ended_at"].timestamp() * 1e6
    return place and begins < one["end"] and ends > one["start"] and row["rule_id"] == one.get("rule_id", "")


@pytest.mark.parametrize(("kind", "name", "least"), [("burst", "bursts", 24), ("silence", "silences", 2)])
def test_planted_anomalies_are_found_and_nothing_else(fleet: Fleet, kind: str, name: str, least: int) -> None:
    """Recall and precision of 0.95 against the truth, by site, rule and time."""
    rows = [row for row in fleet.tables.arrow(ANOMALIES).to_pylist() if row["kind"] == kind]
    truth = fleet.truth[name]
    assert len(truth) >= least
    met = sum(any(_overlap(row, one) for row in rows) for one in truth)
    right = sum(any(_overlap(row, one) for one in truth) for row in rows)
    told(name, fleet, met, len(truth), right, len(rows))
    assert met / len(truth) >= 0.95
    assert right / len(rows) >= 0.95
    if kind == "silence":
        for one in truth:
            (row,) = (row for row in rows if _overlap(row, one))
            assert abs(row["started_at"].timestamp() - one["start"] / 1e6) <= 7200
            assert abs(row["ended_at"].timestamp() - one["end"] / 1e6) <= 7200


def test_rules_new_in_the_fleet_are_found(fleet: Fleet) -> None:
    """Every planted rule, and no other, is new in the fleet."""
    rows = [row for row in fleet.tables.arrow(ANOMALIES).to_pylist() if row["kind"] == "new_rule" and not row["site"]]
    assert {row["rule_id"] for row in rows} == {one["rule_id"] for one in fleet.truth["new_rules"]}
    assert len(rows) == 4


def test_the_median_counts_hours_without_a_match_as_none(region: Region) -> None:
    """Three hours each of three weeks, one of the nine without a match: median and MAD as by hand, of the rule and of
    all rules together; hours beside which there is little are not there."""
    counts = [[10, 20, 30], [40, 0, 50], [60, 70, 80]]
    region.match(
        ("a", "r", week * 168 + 9 + n, counts[week][n]) for week in range(3) for n in range(3) if counts[week][n]
    )
    region.run(21, weeks=3)
    rows = region.tables.arrow(BASELINES).to_pylist()
    found = {(row["rule_id"], row["hour_of_week"]): (row["median"], row["mad"], row["weeks"]) for row in rows}
    assert found["r", 10] == (40.0, 20.0, 3)  # 0 10 20 30 40 50 60 70 80; 0 10 10 20 20 30 30 40 40
    assert found["", 10] == found["r", 10]
    assert {hour for _, hour in found} == {9, 10, 11}
    assert {row["as_of"] for row in rows} == {"2026-11-23"}


def test_hours_of_the_week_are_those_of_the_place(region: Region, tmp_path: Path, caplog: Any) -> None:
    """08:00 UTC is 17:00 in Tokyo, also of a fleet not named; a time zone that is none, or one that the JVM
    does not know, is said, and UTC taken."""
    (tmp_path / "lookups").mkdir()
    places = [
        {"site": "tokyo", "fleet": "north", "timezone": "Asia/Tokyo"},
        {"site": "seoul", "fleet": None, "timezone": "Asia/Seoul"},
        {"site": "moon", "fleet": "north", "timezone": "Moon/Crater"},
        {"site": "works", "fleet": "north", "timezone": "Factory"},
    ]
    pq.write_table(pa.Table.from_pylist(places), tmp_path / "lookups" / "sites.parquet")
    assert "Factory" in available_timezones()
    for site in ("tokyo", "seoul", "moon", "works"):
        region.match([(site, "r", 0, 1)])  # from here on it is known, so the hours before the others are seen twice
        region.match((site, "r", week * 168 + hour, 9) for week in range(2) for hour in (7, 8, 9))
    region.run(14)
    rows = region.tables.arrow(BASELINES).to_pylist()
    hours = {site: sorted({row["hour_of_week"] for row in rows if row["site"] == site}) for site in
             ("tokyo", "seoul", "moon", "works")}  # fmt: skip
    assert hours == {"tokyo": [16, 17, 18], "seoul": [16, 17, 18], "moon": [7, 8, 9], "works": [7, 8, 9]}
    assert "unknown time zones: Factory, Moon/Crater" in caplog.text


def test_a_burst_is_told_once_with_its_worst_hour(region: Region) -> None:
    """Three loud hours in a row are one burst; a fold of 400 matches is none, 4,000 within five minutes are."""
    region.match(("a", "r", 24 * day + hour + 0.25 * n, 3) for day in range(7) for hour in range(24) for n in range(4))
    region.match(("a", rule, 0, 1) for rule in ("fold", "flood"))
    region.match(("a", "r", 7 * 24 + hour + n / 12, 10 * (hour - 8)) for hour in (10, 11, 12) for n in range(12))
    region.match([("a", "fold", 7 * 24 + 15, 400), ("a", "flood", 7 * 24 + 16, 4000)])
    burst, flood = (row for row in region.run(7, days=1) if row["kind"] == "burst")
    assert (burst["rule_id"], burst["started_at"], burst["ended_at"]) == (
        "r", MONDAY + (7 * 24 + 10) * HOUR, MONDAY + (7 * 24 + 13) * HOUR,
    )  # fmt: skip
    assert (burst["observed"], burst["median"], burst["mad"], burst["level"]) == (480, 12, 0, "high")
    assert burst["reason"] == "up to 480 matches an hour where 12.0 are usual"
    assert (flood["rule_id"], flood["observed"]) == ("flood", 4000)


def test_a_silence_ends_with_late_alerts(region: Region) -> None:
    """A site without a match since noon is silent until now; when its alerts arrive late, it was not."""
    region.match(("a", "r", hour, 6) for hour in range(7 * 24 + 12))
    region.match(("b", "r", hour, 6) for hour in range(7 * 24 + 24))
    (row,) = region.run(7, days=1, until=7 * 24 + 20.5)
    assert (row["kind"], row["site"], row["rule_id"]) == ("silence", "a", "")
    assert (row["started_at"], row["ended_at"]) == (MONDAY + (7 * 24 + 12) * HOUR, MONDAY + (7 * 24 + 20) * HOUR)
    assert (row["observed"], row["median"]) == (0, 48)
    assert row["reason"].startswith("no match for 8 h where 48 are usual")
    again = region.run(7, days=1, until=7 * 24 + 20.5)
    assert again == [row]
    region.match(("a", "r", hour, 6) for hour in range(7 * 24 + 12, 7 * 24 + 24))
    assert region.run(7, days=1) == []


def test_a_silence_tells_who_was_heard_meanwhile(region: Region) -> None:
    """Of two agents one sent heartbeats in the silence; the other before and after it, and a last will in it."""
    region.match(("a", "r", hour, 6) for hour in range(7 * 24 + 12))
    hours = [("up", "running", 12 * 24), ("down", "running", 7 * 24 + 11), ("down", "running", 7 * 24 + 23),
             *(("up", "running", 7 * 24 + hour) for hour in range(24)), ("down", "lost", 7 * 24 + 13)]  # fmt: skip
    beats = [{"agent_id": agent, "fleet": "north", "site": "a", "state": state, "received_at": MONDAY + hour * HOUR,
              "date": f"{MONDAY + hour * HOUR:%Y-%m-%d}"} for agent, state, hour in hours]  # fmt: skip
    region.tables.append(HEARTBEATS, _arrow(HEARTBEATS, beats))
    region.tables.upsert(AGENTS, _arrow(AGENTS, [
        {"fleet": "north", "agent_id": agent, "site": "a", "first_seen": MONDAY, "last_seen": MONDAY + 7 * DAY + 23 *
        HOUR} for agent in ("up", "down")
    ]))  # fmt: skip
    (row,) = region.run(7, days=1, until=7 * 24 + 20.5)
    assert row["reason"] == (
        "no match for 8 h where 48 are usual; 1 of 2 agents sent a heartbeat meanwhile: "
        "they run, and what they read is silent"
    )


def test_a_burst_of_45_alerts_at_a_site_that_began_in_the_night(region: Region) -> None:
    """A site whose first alert came at 01:10 has a week of history when its eighth day begins; 45 alerts within five
    minutes are a burst, 45 matches of one alert and its fold are none."""
    region.match(("a", rule, 1.17 + hour, 1) for hour in range(0, 8 * 24, 5) for rule in ("r", "fold"))
    region.match([("a", "r", 7 * 24 + 12, 45)], alerts=45)
    region.match([("a", "fold", 7 * 24 + 12, 45)])
    (row,) = region.run(7, days=1)
    assert (row["kind"], row["rule_id"], row["observed"]) == ("burst", "r", 45)


def test_a_loud_new_rule_is_before_the_many_new_entities(region: Region) -> None:
    """A rule new in the fleet with 18,000 alerts comes first; entities that severe rules name for the first time are a
    row each, however many sites they are new at, and no more than a reader takes."""
    region.match((site, "r", hour, 6) for hour in range(0, 9 * 24, 6) for site in "ab")
    region.match([("a", "severe", 30, 1), ("b", "severe", 30, 1)], level="high")
    region.match([("a", "flood", 7 * 24 + n / 12, 1) for n in range(40)], alerts=450)
    at = MONDAY + 7 * DAY + 3 * HOUR
    region.people(
        {"date": f"{at:%Y-%m-%d}", "window_start": at, "kind": "user", "value": f"user{n:03}", "fleet": "north",
         "site": site, "rule_id": "severe", "level": "high", "alerts": 1, "matches": 1, "first_time": at, "last_time":
         at}
        for n in range(newness.MAX_ENTITIES + 10) for site in "ab"
    )  # fmt: skip
    rows = sorted(region.run(7, days=2), key=lambda row: -row["score"])
    first = rows[0]
    assert (first["kind"], first["rule_id"], first["observed"]) == ("new_rule", "flood", 18_000)
    entities = [row for row in rows if row["kind"] == "new_entity"]
    assert len(entities) == newness.MAX_ENTITIES
    assert min(row["score"] for row in rows) > 0
    assert {row["reason"].split(" is ")[1] for row in entities} == {"new at 2 sites"}


def test_a_week_is_needed_before_anything_is_judged(region: Region) -> None:
    """Of a site six days old nothing is unusual."""
    region.match(("a", "r", 24 + hour, 6) for hour in range(6 * 24))
    region.match(("a", "r", 7 * 24 + 1 + n / 12, 100) for n in range(12))
    region.match([("a", "new", 7 * 24 + 5, 1)], level="critical")
    assert region.run(7, days=1) == []


def test_what_is_new_at_a_site_is_told_when_it_is_grave(region: Region) -> None:
    """New to the fleet: any rule. New to the site: rules of a high level, users they name. Each only once, and a day
    counts once in ``first_seen`` however often it is judged."""
    region.match((site, "r", hour, 6) for hour in range(0, 9 * 24, 6) for site in "ab")
    region.match([("a", "rare", 30, 1)], level="high", user="carol")
    region.match([("b", "rare", 7 * 24 + 3, 1)], level="high", user="carol")
    region.match([("b", "rare", 7 * 24 + 3, 1)], level="high", user="203.0.113.9", kind="ip")
    region.match([("b", "r2", 7 * 24 + 4, 1)], user="dave")
    region.match([("a", "rare", 7 * 24 + 5, 1)], level="high", user="carol")
    found = region.run(7, days=2)
    assert [(row["kind"], row["site"], row["rule_id"], row["entity_value"]) for row in found] == [
        ("new_entity", "b", "", "carol"), ("new_rule", "b", "rare", None), ("new_rule", "", "r2", None),
    ]  # fmt: skip
    assert region.run(7, days=2) == found
    assert region.run(8, days=1, until=9 * 24) == found
    seen = {(row["kind"], row["value"], row["site"]): row for row in region.tables.arrow(FIRST_SEEN).to_pylist()}
    assert {kind for kind, _, _ in seen} == {"rule", "user"}
    assert seen["rule", "r", "a"]["alerts"] == 36
    assert seen["rule", "r", "a"]["first_seen"] == MONDAY
    assert seen["user", "carol", "a"]["last_seen"] == MONDAY + (7 * 24 + 5) * HOUR


def test_whom_a_cut_off_agent_saw_is_not_new(region: Region) -> None:
    """Alerts that come late for a day that is in ``first_seen`` already and judged no more: their users are known from
    then on."""
    region.match((site, "r", hour, 6) for hour in range(0, 9 * 24, 6) for site in "ab")
    region.match([("a", "rare", 30, 1)], level="high", user="carol")
    region.run(7, days=1)
    region.match([("b", "rare", 2 * 24 + 3, 1)], level="high", user="dave")
    region.match([("b", "rare", 8 * 24 + 3, 1)], level="high", user="dave")
    region.match([("b", "rare", 8 * 24 + 3, 1)], level="high", user="erin")
    found = region.run(8, days=1)
    assert [(row["kind"], row["entity_value"]) for row in found] == [("new_entity", "erin")]
