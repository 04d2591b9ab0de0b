"""Campaigns: found where they were planted, not where they look like it; an id that stays; sessions."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bench.simulate import Plan
from spark_jobs.common import period
from spark_jobs.findings import moves
from spark_jobs.intake.enrich import Lookups
from spark_jobs.jobs import campaigns
from spark_jobs.tables.schema import CAMPAIGNS, ENTITY_SITE_5M, RULES, SESSIONS
from tests.spark_jobs.fleet import SEEDS, Fleet, print_score, simulated
from tests.spark_jobs.visits import DAY, HOUR, PAST, TACTICS, Region, Row, Visit, attack

pytestmark = pytest.mark.spark


class Seen(NamedTuple):
    """What one run of the job left."""

    campaigns: list[Row]
    sessions: list[Row]

    def of(self, value: str) -> list[Row]:
        return [row for row in self.campaigns if row["value"] == value]

    def one(self, value: str) -> Row:
        (row,) = self.of(value)
        return row

    def spans(self, value: str) -> list[tuple[float, float, int]]:
        """Of each session of ``value`` when it began and ended, in hours of ``DAY``, and its alerts."""
        mine = (row for row in self.sessions if row["value"] == value)
        return sorted(((row["started_at"] - DAY) / HOUR, (row["ended_at"] - DAY) / HOUR, row["alerts"]) for row in mine)


HAPPENS: dict[float, list[tuple[list[Visit], str, str]]] = {30: [], 72: []}
"""What has come in when the job runs so many hours after the beginning of ``DAY``, beside what had before. A run plans
for seconds whatever there is to look at, and looks at each entity by itself: so the cases of this file are entities of
one region, and share its runs."""


def happens(activity: Iterable[Visit], kind: str = "ip", level: str = "high", *, by: float = 30) -> Any:
    """Of a test: its activity is there in the run at ``by`` hours."""
    HAPPENS[by].append((list(activity), kind, level))
    return lambda test: test


@pytest.fixture(scope="module")
def region(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Region:
    region = Region(spark, tmp_path_factory.mktemp("region"))
    region.ordinary()
    return region


def _looked(region: Region, hours: float, **options: Any) -> Seen:
    region.alerts(HAPPENS[hours])
    campaigns = region.run(hours, session_days=["2026-11-20"], **options)
    return Seen(campaigns, region.tables.arrow(SESSIONS).to_pylist())


@pytest.fixture(scope="module")
def second(region: Region) -> Seen:
    """The day and a quarter of the next have passed."""
    return _looked(region, 30)


@pytest.fixture(scope="module")
def left(second: Seen, region: Region, tmp_path_factory: pytest.TempPathFactory) -> Region:
    """The region as that run left it, on its own."""
    copy = tmp_path_factory.mktemp("left") / "tables"
    shutil.copytree(region.tables.root, copy)
    return Region(region.spark, copy)


@pytest.fixture(scope="module")
def third(second: Seen, left: Region, region: Region, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """All is over; alerts name what they are about, and a lookup says who the red team is."""
    region.land(NAMED)
    folder = tmp_path_factory.mktemp("lookups")
    own = [{"kind": "cidr", "value": "192.0.2.0/29", "threat": "exercise"}]
    pq.write_table(pa.Table.from_pylist(own), folder / "intel.parquet")
    return _looked(region, 72, lookups=Lookups(str(folder)))


@pytest.fixture(scope="module", params=SEEDS)
def fleet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Fleet:
    """A fortnight of a fleet that no threshold has seen."""
    seed = request.param
    alerts = 15_000 if len(SEEDS) > 1 else 6_000
    plan = Plan(alerts=alerts, days=14, seed=seed, sites=24, rules=60, hosts=10, campaigns=40, scanners=6, red_teams=4)
    return simulated(spark, tmp_path_factory.mktemp("fleet"), plan, ENTITY_SITE_5M, RULES)


def test_planted_campaigns_are_found_and_decoys_are_not(spark: SparkSession, fleet: Fleet) -> None:
    """Recall and precision of 0.95 against the truth; of those found, sites, rules and times are the planted ones."""
    wanted = period.period(date(2026, 11, 15), 14)
    campaigns.write(spark, fleet.tables, wanted, Lookups(fleet.lookups))
    rows = fleet.tables.arrow(CAMPAIGNS).to_pylist()
    found = {(row["kind"], row["value"]): row for row in rows if row["score"] > 0}
    truth = {(one["kind"], one["value"]): one for one in fleet.truth["campaigns"]}
    both = truth.keys() & found.keys()
    print_score("campaigns", fleet, len(both), len(truth), len(both), len(found))
    assert len(truth) == 40
    assert len(both) / len(truth) >= 0.95
    assert len(both) / len(found) >= 0.95
    assert len(fleet.truth["decoys"]) == 14
    for key in both:
        row, one = found[key], truth[key]
        assert (row["sites"], row["rules"]) == (one["sites"], one["rules"])
        assert row["first_seen"].timestamp() * 1e6 == pytest.approx(one["first"], abs=2)
        assert row["alerts"] == one["alerts"]
        assert set(row["tactics"]) == set(one["tactics"])
        assert row["steps"] == sorted(row["steps"], key=lambda step: step["time"])


@pytest.mark.long
def test_a_campaign_keeps_its_id_while_it_grows(spark: SparkSession, tmp_path: Path) -> None:
    """More sites, late alerts before its first and the end: one row, one id, one date; only then is it closed."""
    region = Region(spark, tmp_path)
    region.ordinary()
    region.alert(attack("198.51.100.1", "abc", begin=6))
    (begun,) = region.run(12)
    region.alert([*attack("198.51.100.1", "def", begin=12, rules=4), ("198.51.100.1", "z", "r0", -5)])
    (grown,) = region.run(30)
    (ended,) = region.run(72)
    assert (begun["state"], len(begun["sites"]), begun["stage"]) == ("open", 3, "initial-access")
    assert (begun["alerts"], begun["level"], begun["date"]) == (6, "high", "2026-11-20")
    assert (grown["campaign_id"], grown["date"]) == (begun["campaign_id"], begun["date"])
    assert grown["sites"] == [f"north/{name}" for name in "abcdefz"]
    assert grown["first_seen"] == DAY - 5 * HOUR
    assert grown["stage"] == "exfiltration"
    assert grown["score"] > begun["score"]
    assert grown["evidence"] > begun["evidence"] >= moves.MIN_EVIDENCE
    assert (grown["state"], ended["state"], ended["campaign_id"]) == ("open", "closed", begun["campaign_id"])


@pytest.mark.long
def test_an_open_campaign_is_closed_however_late_the_job_runs(second: Seen, left: Region) -> None:
    """The job did not run for 100 days: a campaign left open is closed as it was, and no later run looks back to it."""
    known, later = left.tables.arrow(CAMPAIGNS).to_pylist(), period.period(date(2027, 2, 28), 10)
    furthest = later.from_day(date(2026, 12, 28))
    assert campaigns._from_open_campaigns(known, later, furthest) == later
    assert "open" in {row["state"] for row in known}
    end = {"state": "closed", "updated_at": DAY + 2400 * HOUR}
    assert left.run(hours=100 * 24) == [row | end if row["state"] == "open" else row for row in second.campaigns]


@happens([*attack("198.51.100.2", "abc", begin=-40), *attack("198.51.100.2", "def", begin=4)])
@happens([("198.51.100.2", "c", "r2", -18)], by=72)
@pytest.mark.long
def test_two_campaigns_that_turn_out_to_be_one(second: Seen, third: Seen) -> None:
    """Late alerts that fill the gap between two: the earlier goes on, the other is closed and names it."""
    apart = second.of("198.51.100.2")
    assert [row["score"] > 0 for row in apart] == [True, True]
    earlier, later = third.of("198.51.100.2")
    assert [earlier["campaign_id"], later["campaign_id"]] == [row["campaign_id"] for row in apart]
    assert len(earlier["sites"]) == 6
    assert (later["state"], later["score"]) == ("closed", 0)
    assert later["reason"] == f"merged into campaign {earlier['campaign_id']}"


@happens(("192.0.2.4", site, f"r{n}", 2 + 5 * n) for n, site in enumerate("abcd"))
@happens(("192.0.2.5", site, "r0", 3 + n) for n, site in enumerate("abcdefgh") for _ in "12")
@happens(attack("10.1.1.1", "abcd", begin=4))
@happens(row for day in range(PAST) for row in attack("192.0.2.6", "abcd", begin=2 - 24 * day))
@happens(attack("192.0.2.7", "abcd", begin=4))
@pytest.mark.long
def test_what_looks_like_a_campaign_and_is_none(second: Seen, third: Seen, region: Region) -> None:
    """One alert at each of four sites, a scanner, a private address, what has always been there, a red team: none.
    Without its lookup the red team is one, and is held back when the lookup comes."""
    for seen, those in ((second, ["192.0.2.7"]), (third, [])):
        assert [row["value"] for row in seen.campaigns if row["value"].startswith(("192.", "10."))] == those
    before = second.one("192.0.2.7")
    assert before["score"] > 0
    (row,) = (row for row in region.tables.arrow(CAMPAIGNS).to_pylist() if row["value"] == "192.0.2.7")
    assert (row["campaign_id"], row["state"], row["score"]) == (before["campaign_id"], "closed", 0)
    assert row["reason"].startswith("held back: exercise; level high")


@happens([("sprayed", site, "r1", 3 + n / 12) for n, site in enumerate("abcdefghij")], kind="user")
def test_many_sites_within_the_hour_are_one_though_each_saw_one_rule(second: Seen) -> None:
    """A password sprayed over ten sites: no depth and no sequence, but no chance either."""
    assert second.one("sprayed")["evidence"] >= moves.MIN_EVIDENCE


@happens([("anna", "a", "r1", 8 - 24 * day) for day in range(PAST)], kind="user", level="low")
@happens(
    [("svc", site, f"r{n}", 9 - 24 * day) for day in range(PAST) for site in "abcdef" for n in (1, 2)], "user", "medium"
)
@happens(
    [("anna", site, f"r{n}", 10 + m + n / 9) for m, site in enumerate("abcd") for n in range(4)], "user", "critical"
)
def test_a_daily_past_of_one_low_rule_hides_no_attack(second: Seen) -> None:
    """An account with one low alert at home on each day, and then grave ones at four sites: a campaign, of these alone.
    The same low alert, and another account's rounds of all sites day by day, are usual."""
    row = second.one("anna")
    assert (row["level"], row["stage"], row["alerts"]) == ("critical", "exfiltration", 16)
    assert row["score"] > 90
    assert row["reason"].startswith("level critical, reached exfiltration; 4 sites within 24 h")
    assert second.of("svc") == []


S = [f"s{n}" for n in range(20)]


@happens(attack("wide", S[:10], begin=1, rules=3), kind="user")
@happens(attack("far", S, begin=-20, rules=4), kind="user", level="medium")
@happens(attack("deep", S[:4], begin=2, rules=2), kind="user", level="critical")
@happens([("Browser/131", site, "r2", 3 + n / 60) for n, site in enumerate(S)], "user_agent", "medium")
@happens([("patcher", site, f"r{n}", 3 + n) for site in S for n in range(4)], kind="user", level="low")
@happens([("198.51.100.9", site, f"r{n}", 5 + n) for site in S for n in (0, 1)], level="high")
def test_severity_and_stage_come_before_breadth(second: Seen) -> None:
    """Four sites under critical rules before ten under high ones, and these before twenty under medium ones, of a
    further stage too. An update that runs everywhere under one rule, and a patching under low ones, are none."""
    deep, wide, far = (second.one(name) for name in ("deep", "wide", "far"))
    assert deep["score"] > wide["score"] > far["score"]
    assert "nothing beyond initial access was seen" in deep["against"]
    assert "every site saw the same rules, as in a roll-out" in far["against"]
    assert wide["confidence"] > deep["confidence"]
    assert [second.of(name) for name in ("Browser/131", "patcher", "198.51.100.9")] == [[], [], []]


@happens(
    [
        (f"evil-{begin}", site, f"r{n}", begin + hours + n / 60)
        for begin in range(6) for site, hours in (("a", 0), ("b", 11), ("c", 22)) for n in range(3)
    ],
    kind="user",
)  # fmt: skip
def test_sites_within_a_day_do_not_hang_on_the_clock(second: Seen) -> None:
    """Three sites within 22 hours, whenever the first of them was."""
    for begin in range(6):
        assert "3 sites within 24 h" in second.one(f"evil-{begin}")["reason"]


@happens([("slow", f"s{n}", "r2", 20 - 13 * (21 - n)) for n in range(22)], kind="user")
@happens([("steady", f"s{n}", "r3", 20 - 2.9 * (24 - n)) for n in range(25)], kind="user", level="medium")
def test_who_moves_slowly_is_met_by_the_number_of_sites(second: Seen) -> None:
    """Twenty-two sites, one each 13 hours; twenty-five within three days, by one rule a site."""
    assert "2 sites within 24 h (1 within 1 h), 22 in all" in second.one("slow")["reason"]
    assert second.one("steady")["score"] > 0


CROWD = [
    (f"198.18.{day}.{n}", site, rule, 3.05 - 24 * day + n / 9)
    for day in range(8) for n in range(moves.CROWD) for site in "abcd" for rule in ("loud", "louder")
]  # fmt: skip
"""Other addresses each day, that all do the same at the same sites."""


@happens(CROWD)
@happens(("198.18.0.0", site, "r3", 4 + n / 9) for n, site in enumerate("abc"))
@happens([("crowded", site, rule, 3.3 + n) for n, site in enumerate("abcd") for rule in ("loud", "louder")], "user")
def test_what_many_do_every_day_tells_of_none_of_them(second: Seen) -> None:
    """What one of them does besides does, at the sites where it does so; and what is common of addresses is not of
    accounts."""
    assert [row["value"] for row in second.campaigns if row["value"].startswith("198.18.")] == ["198.18.0.0"]
    row = second.one("198.18.0.0")
    assert "3 sites within 24 h (3 within 1 h), 4 in all; 3 sites with 2 or more rules" in row["reason"]
    assert second.one("crowded")["score"] > 0


ADDRESS, OTHER = attack("198.51.100.7", "abcd", begin=4, rules=3), attack("other", "abcd", begin=4, rules=4)
NAMED = [
    *(
        (site, rule, hours, [("ip", "198.51.100.7"), *([("user", "bea")] if rule != "r0" else []),
                             *([("user", "other")] if (site, rule) == ("a", "r1") else [])])
        for _, site, rule, hours in ADDRESS
    ),
    *((site, rule, hours, [("user", "other")]) for _, site, rule, hours in OTHER),
]  # fmt: skip
"""The alerts of three entities with all that they name; there in the third run."""


@happens(ADDRESS)
@happens([("bea", *rest) for _, *rest in ADDRESS if rest[1] != "r0"], kind="user", level="critical")
@happens(OTHER, kind="user")
@pytest.mark.long
def test_one_attack_is_one_campaign(second: Seen, third: Seen) -> None:
    """An address, the account it took, and its tool share most of their events: one campaign, named by all. A user
    agent that half of the world has is none of it, nor is an account that shares one alert of many. Found apart at
    first, they go on under the id of the earlier."""
    apart = second.one("198.51.100.7")
    assert [one["kind"] for one in second.one("bea")["entities"]] == ["user"]
    assert {len(row["entities"]) for row in second.campaigns} == {1}
    (lead,) = (row for row in third.campaigns if len(row["entities"]) == 2)
    assert {(one["kind"], one["value"]) for one in lead["entities"]} == {("ip", "198.51.100.7"), ("user", "bea")}
    assert (lead["level"], len(lead["sites"]), lead["alerts"]) == ("critical", 4, 12)
    assert lead["campaign_id"] == apart["campaign_id"]
    assert "2 entities share its events" in lead["reason"]
    gone = [row for value in ("198.51.100.7", "bea", "other") for row in third.of(value) if row["score"] == 0]
    assert [row["reason"].split()[0] for row in gone] == ["merged"]
    assert third.one("other")["score"] > 0


@happens([("eve", site, f"r{n}", -4 + 8 * n + m) for m, site in enumerate("abc") for n in range(4)], "user")
def test_a_campaign_tells_its_story(second: Seen) -> None:
    """Its stages in the order reached, each with where, by what and how much; and what is new since yesterday."""
    row = second.one("eve")
    assert [one["tactic"] for one in row["story"]] == list(TACTICS)
    first, last = row["story"][0], row["story"][-1]
    assert (first["sites"], first["rules"], first["alerts"]) == (["north/a", "north/b", "north/c"], ["r0"], 3)
    assert (first["first"], last["last"]) == (DAY - 4 * HOUR, DAY + 22 * HOUR)
    assert row["new_steps"] == 6
    assert row["against"] == ["every site saw the same rules, as in a roll-out"]
    assert 0 < row["confidence"] < row["evidence"] / 100


MANY = [f"t{n:02}" for n in range(70)]


@happens(
    [("tireless", site, f"r{n}", 1 + 7 * n + m / 12) for n in range(4) for m, site in enumerate(MANY)], kind="user"
)
@happens([("tireless", MANY[-1], "r3", 29)], kind="user")
def test_more_steps_than_are_kept(second: Seen) -> None:
    """Of 280 steps the first and the last hundred are kept; stages, sites, alerts and what is new count all of them."""
    row = second.one("tireless")
    assert len(row["steps"]) == moves.MAX_STEPS
    times = [(step["time"] - DAY) / HOUR for step in row["steps"]]
    assert (times[0], times[-1]) == (1, pytest.approx(22 + 69 / 12))
    assert [(one["tactic"], len(one["sites"]), one["alerts"]) for one in row["story"]] == [
        (tactic, 70, 70 + (tactic == "exfiltration")) for tactic in TACTICS
    ]
    assert row["story"][-1]["last"] == DAY + 29 * HOUR
    assert row["story"][0]["sites"] == [f"north/{site}" for site in MANY]
    assert row["new_steps"] == 280 - 61  # until 06:00 of the first day


VALUES = {
    *("198.51.100.2", "192.0.2.7", "sprayed", "anna", "deep", "wide", "far", "slow", "steady", "198.51.100.7", "bea"),
    *("other", "eve", "tireless", "198.18.0.0", "crowded"),
    *(f"evil-{begin}" for begin in range(6)),
}
"""Values of the campaigns of the tests above."""


def test_nothing_else_is_a_campaign(second: Seen) -> None:
    """No entity that they call none."""
    assert {row["value"] for row in second.campaigns} == VALUES


@pytest.mark.long
def test_nor_is_it_later(third: Seen) -> None:
    assert {row["value"] for row in third.campaigns} == VALUES - {"192.0.2.7"}


@happens([("198.51.100.3", "a", "r0", hour) for hour in (1, 1.5, 3, 3.5, 9)])
def test_sessions_end_with_a_gap(second: Seen) -> None:
    """Two runs of an hour apart are two sessions, a match alone is none."""
    assert second.spans("198.51.100.3") == [(1.0, 1.5, 2), (3.0, 3.5, 2)]


@pytest.mark.long
@happens([("198.51.100.3", "a", "r1", 2.25)], by=72)
def test_sessions_are_rewritten_by_late_alerts(third: Seen) -> None:
    """An alert between two of them makes one of them."""
    assert third.spans("198.51.100.3") == [(1.0, 3.5, 5)]
    (row,) = (row for row in third.sessions if row["value"] == "198.51.100.3")
    assert (row["rules"], row["tactics"]) == (["r0", "r1"], ["reconnaissance", "initial-access"])


@pytest.mark.long
def test_without_a_past_it_says_so(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """On a first day what is at more than half of many sites is held to be usual; an attack on few is found. A session
    that goes on into the first day did not begin on it, also when no more days are looked at than sessions are asked
    for."""
    region = Region(spark, tmp_path)
    common = [(f"s{n}", "r1", hour) for n in range(20) for hour in (1, 2, 3)]
    region.alert([("root", *one) for one in common], kind="user", level="medium")
    region.alert(attack("198.51.100.7", "abcd", begin=2))
    region.alert([("198.51.100.8", "a", "r0", hour) for hour in (-0.25, 0.25, 0.5, 3, 3.5)])
    assert [row["value"] for row in region.run(days=1, session_days=["2026-11-20"])] == ["198.51.100.7"]
    assert "cannot be distinguished from usual ones" in caplog.text
    assert Seen([], region.tables.arrow(SESSIONS).to_pylist()).spans("198.51.100.8") == [(3.0, 3.5, 2)]


def test_what_is_held_back_is_told_and_so_is_a_jump(spark: SparkSession, tmp_path: Path) -> None:
    """By what it was held back; and that more campaigns are new than go on, once there have been some."""
    region = Region(spark, tmp_path / "tables")
    region.ordinary()
    own = [{"kind": "ip", "value": "192.0.2.1", "threat": "scanner"}]
    (tmp_path / "lookups").mkdir()
    pq.write_table(pa.Table.from_pylist(own), tmp_path / "lookups" / "intel.parquet")
    region.alerts([
        ([*attack("192.0.2.1", "abcd", begin=4), *attack("192.0.2.2", "abcdefgh", begin=4)], "ip", "high"),
        ([("Browser/131", site, "r2", 3 + n / 60) for n, site in enumerate(S)], "user_agent", "medium"),
        (attack("user-0", "abcd", begin=4), "user", "high"),
    ])  # fmt: skip
    lookups = Lookups(str(tmp_path / "lookups"))
    assert len(region.run(lookups=lookups)) == 1
    held = "held back: 1 own scanner, 1 roll-out, 1 scan"
    assert region.said == f"1 open campaign, 0 closed; {held}"
    region.alert([row for n in range(campaigns.JUMP) for row in attack(f"user-{n + 1}", "abcd", begin=5)], "user")
    assert len(region.run(lookups=lookups)) == 1 + campaigns.JUMP
    assert region.said == f"21 open campaigns, 0 closed; 20 new since the last run: has the history changed?; {held}"
    rows = [row for row in region.tables.arrow(CAMPAIGNS).to_pylist() if row["score"] == 0]
    assert {(row["value"], row["state"], row["reason"].split(";")[0]) for row in rows} == {
        ("192.0.2.1", "closed", "held back: scanner"), ("192.0.2.2", "closed", "held back: scan"),
        ("Browser/131", "closed", "held back: roll-out"),
    }  # fmt: skip
    assert len(rows) == 3


@pytest.mark.long
def test_a_campaign_of_weeks_makes_no_others(spark: SparkSession, tmp_path: Path) -> None:
    """It is seen whole, however long it goes on; a colleague who came after it began is used to by now."""
    region = Region(spark, tmp_path)
    region.alert([("203.0.113.1", "a", "r1", -24 * day) for day in range(45)])
    region.alert(
        [("mover", f"s{3 * day + n}", f"r{n}", 4 - 24 * day + n) for day in range(27) for n in range(3)], "user"
    )
    (begun,) = region.run(-24 * 20)
    region.alert(
        [("colleague", s, r, 8 - 24 * day) for day in range(16) for s in "abc" for r in ("r1", "r2")], "user", "medium"
    )
    (grown,) = region.run()
    assert (grown["value"], grown["campaign_id"], grown["state"]) == ("mover", begun["campaign_id"], "open")
    assert (grown["first_seen"], len(grown["sites"])) == (begun["first_seen"], 81)


def test_that_there_is_none_is_written_down(spark: SparkSession, tmp_path: Path) -> None:
    """A run that finds nothing leaves the table, so that no report says that it has not run."""
    region = Region(spark, tmp_path)
    region.alert([("198.51.100.8", "a", "r0", 1)])
    assert region.run(days=1) == []
    assert region.tables.exists(CAMPAIGNS)
