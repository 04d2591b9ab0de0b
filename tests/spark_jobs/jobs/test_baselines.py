"""What is usual, and what was not: against a made-up fleet's truth, and to the digit by hand."""

from __future__ import annotations

import json
import logging
from datetime import date
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import available_timezones

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bench.simulate import Plan
from spark_jobs.common import period
from spark_jobs.findings import newness
from spark_jobs.intake.enrich import Lookups
from spark_jobs.jobs import baselines
from spark_jobs.tables.schema import (
    AGENTS,
    ANOMALIES,
    BASELINES,
    FIRST_SEEN,
    HEARTBEATS,
    RULES,
    WIN_5M,
)
from tests.spark_jobs.fleet import SEEDS, Fleet, print_score, simulated
from tests.spark_jobs.judged import DAY, HOUR, MONDAY, Case, Region, Row, arrow, filled

pytestmark = pytest.mark.spark


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    """That of this test."""
    return Case(request.node.name)


@pytest.fixture(scope="module")
def region(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Region:
    region = Region(spark, tmp_path_factory.mktemp("region"))
    for table, rows in ((HEARTBEATS, BEATS), (AGENTS, KNOWN_AGENTS)):
        region.tables.append(table, arrow(table, rows))
    folder = Path(region.lookups.folder)
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(PLACES), folder / "sites.parquet")
    return region


@pytest.fixture(scope="module")
def in_the_evening(region: Region) -> list[Row]:
    """The eighth day until half past eight."""
    return region.run(7, days=1, until=7 * 24 + 20.5)


@pytest.fixture(scope="module")
def two_days(in_the_evening: list[Row], region: Region) -> list[Row]:
    """The eighth and the ninth day in full."""
    return region.run(7, days=2)


@pytest.fixture(scope="module")
def two_days_again(two_days: list[Row], region: Region) -> list[Row]:
    return region.run(7, days=2)


@pytest.fixture(scope="module")
def ninth_day(two_days_again: list[Row], region: Region) -> list[Row]:
    """The ninth day alone; the anomalies of the eighth are those of the run before."""
    return region.run(8, days=1, until=9 * 24)


class Usual(NamedTuple):
    """What a run held to be usual, and what it logged."""

    rows: list[Row]
    said: str


@pytest.fixture(scope="module")
def after_three_weeks(ninth_day: list[Row], region: Region) -> Usual:
    log, said = logging.getLogger("spark_jobs"), BufferingHandler(1000)
    log.addHandler(said)
    try:
        region.run(21, weeks=3)
    finally:
        log.removeHandler(said)
    rows = region.tables.arrow(BASELINES).to_pylist()
    return Usual(
        [row for row in rows if row["as_of"] == "2026-11-23"], "\n".join(map(logging.LogRecord.getMessage, said.buffer))
    )


@pytest.fixture(scope="module", params=SEEDS)
def fleet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Fleet:
    """A fortnight of a fleet that no threshold has seen: its second week is judged by its first."""
    seed = request.param
    plan = Plan(
        alerts=40_000, days=14, seed=seed, sites=10, rules=30, hosts=10, campaigns=2, bursts=24, silences=3, new_rules=4
    )
    fleet = simulated(spark, tmp_path_factory.mktemp("fleet"), plan, WIN_5M, RULES, AGENTS)
    baselines.write(spark, fleet.tables, period.period(date(2026, 11, 15), 6), 4, Lookups(fleet.lookups))
    return fleet


def _overlap(row: dict[str, Any], one: dict[str, Any]) -> bool:
    place = f"{row['fleet']}/{row['site']}" == one["site"]
    begins, ends = row["started_at"].timestamp() * 1e6, row["ended_at"].timestamp() * 1e6
    return place and begins < one["end"] and ends > one["start"] and row["rule_id"] == one.get("rule_id", "")


@pytest.mark.parametrize(("kind", "name", "least"), [("burst", "bursts", 24), ("silence", "silences", 2)])
@pytest.mark.long
def test_planted_anomalies_are_found_and_nothing_else(fleet: Fleet, kind: str, name: str, least: int) -> None:
    """Recall and precision of 0.95 against the truth, by site, rule and time."""
    rows = [row for row in fleet.tables.arrow(ANOMALIES).to_pylist() if row["kind"] == kind]
    truth = fleet.truth[name]
    assert len(truth) >= least
    met = sum(any(_overlap(row, one) for row in rows) for one in truth)
    right = sum(any(_overlap(row, one) for one in truth) for row in rows)
    print_score(name, fleet, met, len(truth), right, len(rows))
    assert met / len(truth) >= 0.95
    assert right / len(rows) >= 0.95
    if kind == "silence":
        for one in truth:
            (row,) = (row for row in rows if _overlap(row, one))
            assert abs(row["started_at"].timestamp() - one["start"] / 1e6) <= 7200
            assert abs(row["ended_at"].timestamp() - one["end"] / 1e6) <= 7200


@pytest.mark.long
def test_rules_new_in_the_fleet_are_found(fleet: Fleet) -> None:
    """Every planted rule, and no other, is new in the fleet."""
    rows = [row for row in fleet.tables.arrow(ANOMALIES).to_pylist() if row["kind"] == "new_rule" and not row["site"]]
    assert {row["rule_id"] for row in rows} == {one["rule_id"] for one in fleet.truth["new_rules"]}
    assert len(rows) == 4


def _three_hours(case: Case) -> None:
    counts = [[10, 20, 30], [40, 0, 50], [60, 70, 80]]
    case.match(
        ("a", "r", week * 168 + 9 + n, counts[week][n]) for week in range(3) for n in range(3) if counts[week][n]
    )


@filled(_three_hours, by=5)
@pytest.mark.long
def test_the_median_counts_hours_without_a_match_as_none(case: Case, after_three_weeks: Usual) -> None:
    """Three hours each of three weeks, one of the nine without a match: median and MAD as by hand, of the rule and of
    all rules together; hours beside which there is little are not there."""
    rows = case.of(after_three_weeks.rows)
    found = {(row["rule_id"], row["hour_of_week"]): (row["median"], row["mad"], row["weeks"]) for row in rows}
    assert found["r", 10] == (40.0, 20.0, 3)  # 0 10 20 30 40 50 60 70 80; 0 10 10 20 20 30 30 40 40
    assert found["", 10] == found["r", 10]
    assert {hour for _, hour in found} == {9, 10, 11}


PLACES = [
    {"site": "tokyo", "fleet": "test_hours_of_the_week_are_those_of_the_place", "timezone": "Asia/Tokyo"},
    {"site": "seoul", "fleet": None, "timezone": "Asia/Seoul"},
    {"site": "moon", "fleet": "test_hours_of_the_week_are_those_of_the_place", "timezone": "Moon/Crater"},
    {"site": "works", "fleet": "test_hours_of_the_week_are_those_of_the_place", "timezone": "Factory"},
]
"""The lookup of sites, in every run."""


def _mornings(case: Case) -> None:
    for place in PLACES:
        site = str(place["site"])
        case.match([(site, "r", 0, 1)])  # from here on it is known, so the hours before the others are seen thrice
        case.match((site, "r", week * 168 + hour, 9) for week in range(3) for hour in (7, 8, 9))


@filled(_mornings, by=5)
@pytest.mark.long
def test_hours_of_the_week_are_those_of_the_place(case: Case, after_three_weeks: Usual) -> None:
    """08:00 UTC is 17:00 in Tokyo, also of a fleet not named; a time zone that is none, or one that the JVM
    does not know, is said, and UTC taken."""
    assert "Factory" in available_timezones()
    rows = case.of(after_three_weeks.rows)
    hours = {site: sorted({row["hour_of_week"] for row in rows if row["site"] == site}) for site in
             ("tokyo", "seoul", "moon", "works")}  # fmt: skip
    assert hours == {"tokyo": [16, 17, 18], "seoul": [16, 17, 18], "moon": [7, 8, 9], "works": [7, 8, 9]}
    assert "unknown time zones: Factory, Moon/Crater" in after_three_weeks.said


def _loud_hours(case: Case) -> None:
    case.match(("a", "r", 24 * day + hour + 0.25 * n, 3) for day in range(7) for hour in range(24) for n in range(4))
    case.match(("a", rule, 0, 1) for rule in ("fold", "flood"))
    case.match(("a", "r", 7 * 24 + hour + n / 12, 10 * (hour - 8)) for hour in (10, 11, 12) for n in range(12))
    case.match([("a", "fold", 7 * 24 + 15, 400), ("a", "flood", 7 * 24 + 16, 4000)])


@filled(_loud_hours)
@pytest.mark.long
def test_a_burst_is_told_once_with_its_worst_hour(case: Case, two_days: list[Row]) -> None:
    """Three loud hours in a row are one burst; a fold of 400 matches is none, 4,000 within five minutes are."""
    burst, flood = (row for row in case.of(two_days) if row["kind"] == "burst")
    assert (burst["rule_id"], burst["started_at"], burst["ended_at"]) == (
        "r", MONDAY + (7 * 24 + 10) * HOUR, MONDAY + (7 * 24 + 13) * HOUR,
    )  # fmt: skip
    assert (burst["observed"], burst["median"], burst["mad"], burst["level"]) == (480, 12, 0, "high")
    assert burst["reason"] == "up to 480 matches an hour where 12.0 are usual"
    assert (flood["rule_id"], flood["observed"]) == ("flood", 4000)


def _folds(case: Case) -> None:
    case.match((site, "r", hour, 1) for hour in range(0, 8 * 24, 6) for site in "ab")
    case.match([("b", "scanned", 30, 90), ("b", "scanned", 80, 600)])
    case.match(("b", f"probed{n}", 40 + n, 800) for n in range(3))
    case.match([("a", "scanned", 7 * 24 + 3, 130), ("a", "scanned", 7 * 24 + 3.2, 85)])
    case.match(
        [("a", "probed0", 7 * 24 + 9, 1200), ("a", "fresh", 7 * 24 + 12, 700), ("b", "fresh", 7 * 24 + 15, 9000)]
    )


@filled(_folds)
@pytest.mark.long
def test_folds_as_others_are_make_no_burst(case: Case, two_days: list[Row]) -> None:
    """A lone full five minutes as this rule has had them on two days, or as three rules have had them; nor two folds of
    that rule in an hour. One beyond all of these is a burst, though the fleet has not had its rule before."""
    (burst,) = (row for row in case.of(two_days) if row["kind"] == "burst")
    assert (burst["site"], burst["rule_id"], burst["observed"]) == ("b", "fresh", 9000)


def _sweeps(case: Case) -> None:
    case.match(("a", "r", hour, 1) for hour in range(0, 8 * 24, 6))
    for rule, days in (("sweep", (1, 4, 7)), ("anew", (3, 7))):
        case.match(("a", rule, 25 * day + n / 60, 1) for day in days for n in range(50))


@filled(_sweeps)
@pytest.mark.long
def test_what_comes_back_at_other_hours_is_no_burst(case: Case, two_days: list[Row]) -> None:
    """Fifty alerts in an hour that the site has had on two of the days before; on a single one is no habit."""
    (burst,) = (row for row in case.of(two_days) if row["kind"] == "burst")
    assert (burst["rule_id"], burst["observed"]) == ("anew", 50)


def _until_noon(case: Case) -> None:
    case.match(("a", "r", hour, 6) for hour in range(7 * 24 + 12))
    case.match(("b", "r", hour, 6) for hour in range(9 * 24))


def _late(case: Case) -> None:
    case.match(("a", "r", hour, 6) for hour in range(7 * 24 + 12, 9 * 24))


@filled(_until_noon)
@filled(_late, by=2)
@pytest.mark.long
def test_a_silence_ends_with_late_alerts(case: Case, in_the_evening: list[Row], two_days: list[Row]) -> None:
    """A site without a match since noon is silent until now; when its alerts arrive late, it was not."""
    (row,) = case.of(in_the_evening)
    assert (row["kind"], row["site"], row["rule_id"]) == ("silence", "a", "")
    assert (row["started_at"], row["ended_at"]) == (MONDAY + (7 * 24 + 12) * HOUR, MONDAY + (7 * 24 + 20) * HOUR)
    assert (row["observed"], row["median"]) == (0, 48)
    assert row["reason"].startswith("no match for 8 h where 48 are usual")
    assert case.of(two_days) == []


@pytest.mark.long
def test_days_judged_again_are_judged_the_same(two_days: list[Row], two_days_again: list[Row]) -> None:
    """Nothing has come in: the same rows, of every kind."""
    assert {row["kind"] for row in two_days} == {"burst", "silence", "new_rule", "new_entity"}
    assert two_days_again == two_days


def _stray(case: Case) -> None:
    case.match((site, "r", hour, 6) for hour in range(7 * 24 + 2) for site in "ab")
    case.match([("a", "r", 7 * 24 + hour, 1) for hour in (5.5, 11, 12, 17.2)], alerts=1)
    case.match((site, "r", hour, 6) for hour in range(7 * 24 + 20, 9 * 24) for site in "ab")
    case.match(("b", "r", hour, 6) for hour in (7 * 24 + 10, 7 * 24 + 11))


@filled(_stray)
@pytest.mark.long
def test_a_stray_alert_ends_no_silence(case: Case, two_days: list[Row]) -> None:
    """Eighteen hours with four matches are one silence, that says so; two hours as they usually are end one."""
    whole, *others = sorted(case.of(two_days), key=lambda row: (row["site"], row["started_at"]))
    start, end, eight = MONDAY + (7 * 24 + 2) * HOUR, MONDAY + (7 * 24 + 20) * HOUR, 8 * HOUR
    assert (whole["site"], whole["started_at"], whole["ended_at"]) == ("a", start, end)
    assert (whole["observed"], whole["median"]) == (4, 108)
    assert whole["reason"].startswith("4 matches for 18 h where 108 are usual")
    assert [(row["started_at"], row["ended_at"]) for row in others] == [(start, start + eight), (end - eight, end)]


SILENT = "test_a_silence_tells_who_was_heard_meanwhile"
INPUTS = "test_a_silence_tells_whether_inputs_took_in_anything"
BEATS = [
    {"agent_id": agent, "fleet": SILENT, "site": "a", "state": state, "received_at": MONDAY + hour * HOUR,
     "payload": None, "date": f"{MONDAY + hour * HOUR:%Y-%m-%d}"}
    for agent, state, hour in (
        ("up", "running", 12 * 24), ("down", "running", 7 * 24 + 11), ("down", "running", 7 * 24 + 23),
        ("down", "running", 7 * 24 + 12.5),
        *(("up", "running", 7 * 24 + hour) for hour in range(24)), ("down", "lost", 7 * 24 + 13),
    )
] + [
    {"agent_id": f"of-{site}", "fleet": INPUTS, "site": site, "state": "running", "received_at": MONDAY + hour * HOUR,
     "payload": json.dumps({"inputs": {"log": {"received": 7}, "wire": {"received": min(hour, last)}}}),
     "date": f"{MONDAY + hour * HOUR:%Y-%m-%d}"}
    for hour in range(7 * 24, 8 * 24)
    for site, last in (("a", 7 * 24 + 11), ("b", 8 * 24))
]  # fmt: skip
KNOWN_AGENTS = [
    {"fleet": SILENT, "agent_id": agent, "site": "a", "first_seen": MONDAY, "last_seen": MONDAY + 7 * DAY + 23 * HOUR}
    for agent in ("up", "down")
] + [
    {"fleet": INPUTS, "agent_id": f"of-{site}", "site": site, "first_seen": MONDAY, "last_seen": MONDAY + 8 * DAY}
    for site in "ab"
]


@filled(lambda case: case.match(("a", "r", hour, 6) for hour in range(7 * 24 + 12)))
@pytest.mark.long
def test_a_silence_tells_who_was_heard_meanwhile(case: Case, in_the_evening: list[Row]) -> None:
    """Of two agents one sent heartbeats in the silence; the other before and after it, in its first hour, and a last
    will in it."""
    (row,) = case.of(in_the_evening)
    assert row["reason"] == (
        "no match for 8 h where 48 are usual; 1 of 2 agents sent heartbeats in half of these hours "
        "or more: they run, and what they read is silent"
    )


@filled(lambda case: case.match((site, "r", hour, 6) for hour in range(7 * 24 + 12) for site in "ab"))
@pytest.mark.long
def test_a_silence_tells_whether_inputs_took_in_anything(case: Case, in_the_evening: list[Row]) -> None:
    """By the count of what they received, in the heartbeats of the silent hours."""
    starved, fed = case.of(in_the_evening)
    assert starved["reason"].endswith("or more: they run, and their inputs took in nothing")
    assert fed["reason"].endswith("or more: 1 took in events, and no rule matched")


def _in_the_night(case: Case) -> None:
    case.match(("a", rule, 1.17 + hour, 1) for hour in range(0, 8 * 24, 5) for rule in ("r", "fold"))
    case.match([("a", "r", 7 * 24 + 12, 45)], alerts=45)
    case.match([("a", "fold", 7 * 24 + 12, 45)])


@filled(_in_the_night)
@pytest.mark.long
def test_a_burst_of_45_alerts_at_a_site_that_began_in_the_night(case: Case, two_days: list[Row]) -> None:
    """A site whose first alert came at 01:10 has a week of history when its eighth day begins; 45 alerts within five
    minutes are a burst, 45 matches of one alert and its fold are none."""
    (row,) = case.of(two_days)
    assert (row["kind"], row["rule_id"], row["observed"]) == ("burst", "r", 45)


def _between_two_hours(case: Case) -> None:
    case.match(("a", rule, hour, 1) for hour in range(0, 8 * 24, 5) for rule in ("r", "long"))
    case.match((("a", "r", 7 * 24 + 11.75 + n / 90, 1) for n in range(45)), alerts=1)
    case.match((("a", "long", 7 * 24 + 15 + n / 30, 1) for n in range(60)), alerts=1)


@filled(_between_two_hours)
@pytest.mark.long
def test_a_burst_does_not_hang_on_the_clock(case: Case, two_days: list[Row]) -> None:
    """46 alerts within the half hour around noon, half of them before it, are a burst as well; one that fills hours
    of the clock is told by these alone."""
    spread, long = sorted(case.of(two_days), key=lambda row: row["started_at"])
    assert (spread["rule_id"], spread["observed"]) == ("r", 46)
    assert (spread["started_at"], spread["ended_at"]) == (
        MONDAY + (7 * 24 + 11.5) * HOUR, MONDAY + (7 * 24 + 12.5) * HOUR,
    )  # fmt: skip
    assert (long["rule_id"], long["started_at"], long["ended_at"]) == (
        "long", MONDAY + (7 * 24 + 15) * HOUR, MONDAY + (7 * 24 + 17) * HOUR,
    )  # fmt: skip


def _a_flood_and_many(case: Case) -> None:
    case.match((site, "r", hour, 6) for hour in range(0, 9 * 24, 6) for site in "ab")
    case.match([("a", "severe", 30, 1), ("b", "severe", 30, 1)], level="high")
    case.match([("a", "flood", 7 * 24 + n / 12, 1) for n in range(40)], alerts=450)
    at = MONDAY + 7 * DAY + 3 * HOUR
    case.people(
        {"date": f"{at:%Y-%m-%d}", "window_start": at, "kind": "user", "value": f"user{n:03}", "site": site,
         "rule_id": "severe", "level": "high", "alerts": 1, "matches": 1, "first_time": at, "last_time": at}
        for n in range(newness.MAX_ENTITIES + 10) for site in "ab"
    )  # fmt: skip


@filled(_a_flood_and_many)
@pytest.mark.long
def test_a_loud_new_rule_is_before_the_many_new_entities(case: Case, two_days: list[Row]) -> None:
    """A rule new in the fleet comes first; entities that severe rules name for the first time are a
    row each, however many sites they are new at, and no more than a reader takes."""
    rows = sorted(case.of(two_days), key=lambda row: -row["score"])
    first = rows[0]
    assert (first["kind"], first["rule_id"], first["observed"]) == ("new_rule", "flood", 18_000)
    assert sum(row["kind"] == "new_entity" for row in two_days) == newness.MAX_ENTITIES
    entities = [row for row in rows if row["kind"] == "new_entity"]
    assert len(entities) == newness.MAX_ENTITIES - 1  # and one of another fleet, with more alerts
    assert min(row["score"] for row in rows) > 0
    assert {row["reason"].split(" is ")[1] for row in entities} == {"new at 2 sites"}


def _six_days(case: Case) -> None:
    case.match(("a", "r", 24 + hour, 6) for hour in range(6 * 24))
    case.match(("a", "r", 7 * 24 + 1 + n / 12, 100) for n in range(12))
    case.match([("a", "new", 7 * 24 + 5, 1), ("a", "newer", 8 * 24 + 5, 1)], level="critical")


@filled(_six_days)
@pytest.mark.long
def test_a_week_is_needed_before_anything_is_judged(case: Case, two_days: list[Row]) -> None:
    """Of a site six days old nothing is unusual; what is new on the day after is."""
    assert [(row["kind"], row["rule_id"]) for row in case.of(two_days)] == [("new_rule", "newer")]


def _carol(case: Case) -> None:
    case.match((site, "r", hour, 6) for hour in range(0, 9 * 24, 6) for site in "ab")
    case.match([("a", "rare", 30, 1)], level="high", user="carol")
    case.match([("b", "rare", 7 * 24 + 3, 1)], level="high", user="carol", alerts=8)
    case.match([("b", "rare", 7 * 24 + 3, 1)], level="high", user="203.0.113.9", kind="ip")
    case.match([("b", "r2", 7 * 24 + 4, 1)], user="dave")
    case.match([("a", "rare", 7 * 24 + 5, 1)], level="high", user="carol")


@filled(_carol)
@pytest.mark.long
def test_what_is_new_at_a_site_is_told_when_it_is_grave(
    case: Case, region: Region, two_days: list[Row], two_days_again: list[Row], ninth_day: list[Row]
) -> None:
    """New to the fleet: any rule. New to the site: rules of a high level, users they name. Each only once, and a day
    counts once in ``first_seen`` however often it is judged."""
    found = case.of(two_days)
    assert sorted((row["kind"], row["site"], row["rule_id"], row["entity_value"]) for row in found) == [
        ("new_entity", "b", "", "carol"), ("new_rule", "", "r2", None), ("new_rule", "b", "rare", None),
    ]  # fmt: skip
    assert case.of(two_days_again) == found
    assert case.of(ninth_day) == found
    kept = case.of(region.tables.arrow(FIRST_SEEN).to_pylist())
    seen = {(row["kind"], row["value"], row["site"]): row for row in kept}
    assert {kind for kind, _, _ in seen} == {"rule", "user"}
    assert seen["rule", "r", "a"]["alerts"] == 36
    assert seen["rule", "r", "a"]["first_seen"] == MONDAY
    assert seen["user", "carol", "a"]["last_seen"] == MONDAY + (7 * 24 + 5) * HOUR


def _everywhere(case: Case) -> None:
    sites = [f"s{n:02}" for n in range(12)]
    case.match((site, "r", hour, 6) for hour in range(0, 9 * 24, 6) for site in sites)
    case.match([("s00", "spread", 30, 1)], level="high")
    case.match(((site, "spread", 7 * 24 + 5 + n / 2, 1) for n, site in enumerate(sites[1:])), level="high")


@filled(_everywhere)
@pytest.mark.long
def test_a_rule_that_spreads_is_one_row(case: Case, two_days: list[Row]) -> None:
    """A severe rule that is new at eleven sites: told once, where it was first, with how many others there are."""
    (row,) = case.of(two_days)
    assert (row["kind"], row["site"], row["started_at"]) == ("new_rule", "s01", MONDAY + (7 * 24 + 5) * HOUR)
    assert (row["observed"], row["reason"].split(":")[-1]) == (
        11, row["rule_id"].upper() + ", and those of 10 others",
    )  # fmt: skip


def _cut_off(case: Case) -> None:
    case.match([("b", "rare", 2 * 24 + 3, 1)], level="high", user="dave")
    case.match([("b", "rare", 8 * 24 + 3, 1)], level="high", user="dave")
    case.match([("b", "rare", 8 * 24 + 3, 1)], level="high", user="erin")


def _before(case: Case) -> None:
    case.match((site, "r", hour, 6) for hour in range(0, 9 * 24, 6) for site in "ab")
    case.match([("a", "rare", 30, 1)], level="high", user="carol")


@filled(_before)
@filled(_cut_off, by=4)
@pytest.mark.long
def test_whom_a_cut_off_agent_saw_is_not_new(case: Case, two_days: list[Row], ninth_day: list[Row]) -> None:
    """Alerts that come late for a day that is in ``first_seen`` already and judged no more: their users are known from
    then on."""
    assert case.of(two_days) == []
    assert [(row["kind"], row["entity_value"]) for row in case.of(ninth_day)] == [("new_entity", "erin")]
