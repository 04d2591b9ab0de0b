"""Campaigns: found where they were planted, not where they look like it; an id that stays; sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bench.simulate import Plan
from spark_jobs.common import period
from spark_jobs.common.period import Period
from spark_jobs.findings import moves
from spark_jobs.intake.enrich import Lookups
from spark_jobs.jobs import campaigns
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import ALERTS, CAMPAIGNS, ENTITY_SITE_5M, RULES, SESSIONS
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.fleet import SEEDS, Fleet, made, told

pytestmark = pytest.mark.spark

DAY = datetime(2026, 11, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)
TACTICS = ("reconnaissance", "initial-access", "execution", "exfiltration")


class Region:
    """Tables filled by hand: activity is given as (value, site, rule, hours since the beginning of ``DAY``)."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.tables = spark, open_tables(str(folder))
        rules = [
            {"rule_id": f"r{n}", "level": "high", "tactics": [name], "techniques": [f"T100{n}"]}
            for n, name in enumerate(TACTICS)
        ]
        self.tables.upsert(RULES, pa.Table.from_pylist(rules, _arrow(RULES, rules)))

    def alert(self, activity: Iterable[tuple[str, str, str, float]], kind: str = "ip", level: str = "high") -> None:
        rows = []
        for (value, site, rule, hours), number in Counter(activity).items():
            at = DAY + hours * HOUR
            start = at - timedelta(seconds=at.timestamp() % 300)
            rows.append(
                {"date": f"{start:%Y-%m-%d}", "window_start": start, "kind": kind, "value": value, "fleet": "north",
                 "site": site, "rule_id": rule, "level": level, "alerts": number, "matches": number,
                 "first_time": at, "last_time": at}
            )  # fmt: skip
        self.tables.upsert(ENTITY_SITE_5M, pa.Table.from_pylist(rows, _arrow(ENTITY_SITE_5M, rows)))

    def land(self, rows: Iterable[tuple[str, str, float, list[tuple[str, str]]]]) -> None:
        """Alerts with all that they name: (site, rule, hours, entities)."""
        alerts = [
            {"agent_id": "agent-1", "alert_id": str(n), "kind": "detection", "fleet": "north", "site": site,
             "received_date": "2026-11-20", "rule_id": rule, "counted_at": DAY + hours * HOUR, "contributing": [],
             "raw_ref": {"log_id": "log", "offset": n, "length": 1},
             "entities": [{"kind": kind, "value": value} for kind, value in names]}
            for n, (site, rule, hours, names) in enumerate(rows)
        ]  # fmt: skip
        self.tables.append(ALERTS, pa.Table.from_pylist(alerts, _arrow(ALERTS, alerts)))

    def ordinary(self, days: int = 6) -> None:
        """One alert of something else on each of the days up to ``DAY``: there has been a past."""
        self.alert([("203.0.113.1", "a", "r1", -24 * day) for day in range(days)])

    def run(self, hours: float = 24, days: int = 10, **given: Any) -> dict[str, dict[str, Any]]:
        """Campaigns by value, as the job leaves them when it runs ``hours`` after the beginning of ``DAY``."""
        now = DAY + hours * HOUR
        wanted = Period((now - timedelta(days=days)).date(), (now - timedelta(seconds=1)).date(), now)
        campaigns.write(self.spark, self.tables, wanted, **given)
        rows = self.tables.arrow(CAMPAIGNS).to_pylist()
        assert len({row["campaign_id"] for row in rows}) == len(rows)
        return {row["value"]: row for row in rows}


def _arrow(table: Any, rows: list[dict[str, Any]]) -> pa.Schema:
    whole = arrow_schema(table.columns)
    return pa.schema([field for field in whole if field.name in rows[0]])


@pytest.fixture
def region(spark: SparkSession, tmp_path: Path) -> Region:
    return Region(spark, tmp_path)


def attack(value: str, sites: str, begin: float, rules: int = 2) -> list[tuple[str, str, str, float]]:
    """``rules`` rules at each of ``sites``, one site each two hours."""
    return [(value, site, f"r{n}", begin + 2 * m + n / 2) for m, site in enumerate(sites) for n in range(rules)]


@pytest.fixture(scope="module", params=SEEDS)
def fleet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Fleet:
    """A fortnight of a fleet that no threshold has seen."""
    seed = request.param
    plan = Plan(alerts=15_000, days=14, seed=seed, sites=24, rules=60, hosts=10, campaigns=40, scanners=6, red_teams=4)
    return made(spark, tmp_path_factory.mktemp("fleet"), plan, ENTITY_SITE_5M, RULES)


def test_planted_campaigns_are_found_and_decoys_are_not(spark: SparkSession, fleet: Fleet) -> None:
    """Recall and precision of 0.95 against the truth; of those found, sites, rules and times are the planted ones."""
    wanted = period.period(date(2026, 11, 15), 14)
    campaigns.write(spark, fleet.tables, wanted, Lookups(fleet.lookups))
    found = {(row["kind"], row["value"]): row for row in fleet.tables.arrow(CAMPAIGNS).to_pylist()}
    truth = {(one["kind"], one["value"]): one for one in fleet.truth["campaigns"]}
    both = truth.keys() & found.keys()
    told("campaigns", fleet, len(both), len(truth), len(both), len(found))
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


def test_a_campaign_keeps_its_id_while_it_grows(region: Region) -> None:
    """More sites, late alerts before its first and the end: one row, one id, one date; only then is it closed."""
    region.ordinary()
    region.alert(attack("198.51.100.7", "abc", begin=6))
    first = region.run(hours=12)["198.51.100.7"]
    assert (first["state"], len(first["sites"]), first["stage"]) == ("open", 3, "initial-access")
    assert (first["alerts"], first["level"], first["date"]) == (6, "high", "2026-11-20")
    region.alert([*attack("198.51.100.7", "def", begin=12, rules=4), ("198.51.100.7", "z", "r0", -5)])
    grown = region.run()["198.51.100.7"]
    assert (grown["campaign_id"], grown["date"]) == (first["campaign_id"], first["date"])
    assert grown["sites"] == [f"north/{name}" for name in "abcdefz"]
    assert grown["first_seen"] == DAY - 5 * HOUR
    assert grown["stage"] == "exfiltration"
    assert grown["score"] > first["score"]
    assert grown["evidence"] > first["evidence"] >= moves.MIN_EVIDENCE
    ended = region.run(hours=72)["198.51.100.7"]
    assert (ended["state"], ended["campaign_id"]) == ("closed", first["campaign_id"])


def test_an_open_campaign_is_closed_however_late_the_job_runs(region: Region) -> None:
    """The job did not run for 100 days: a campaign left open is closed as it was, and no later run looks back to it."""
    region.ordinary()
    region.alert(attack("198.51.100.7", "abc", begin=6))
    left = region.run(hours=12)["198.51.100.7"]
    known, later = region.tables.arrow(CAMPAIGNS).to_pylist(), period.period(date(2027, 2, 28), 10)
    furthest = later.from_day(date(2026, 12, 28))
    assert campaigns._from_open_campaigns(known, later, furthest) == later
    ended = region.run(hours=100 * 24)["198.51.100.7"]
    assert ended == {**left, "state": "closed", "updated_at": DAY + 2400 * HOUR}


def test_two_campaigns_that_turn_out_to_be_one(region: Region) -> None:
    """Late alerts that fill the gap between two: the earlier goes on, the other is closed and names it."""
    region.ordinary()
    region.alert([*attack("198.51.100.7", "abc", begin=-40), *attack("198.51.100.7", "def", begin=4)])
    wanted = Period(date(2026, 11, 10), date(2026, 11, 20), DAY + 24 * HOUR)
    campaigns.write(region.spark, region.tables, wanted)
    two = sorted(region.tables.arrow(CAMPAIGNS).to_pylist(), key=lambda row: row["first_seen"])
    assert [row["score"] > 0 for row in two] == [True, True]
    region.alert([("198.51.100.7", "c", "r2", -18)])
    campaigns.write(region.spark, region.tables, wanted)
    earlier, later = sorted(region.tables.arrow(CAMPAIGNS).to_pylist(), key=lambda row: row["first_seen"])
    assert [earlier["campaign_id"], later["campaign_id"]] == [row["campaign_id"] for row in two]
    assert len(earlier["sites"]) == 6
    assert (later["state"], later["score"]) == ("closed", 0)
    assert later["reason"] == f"merged into campaign {earlier['campaign_id']}"


def test_what_looks_like_a_campaign_and_is_none(region: Region, tmp_path: Path) -> None:
    """One alert at each of four sites, a scanner, a private address, what has always been there, a red team: none.
    Without its lookup the red team is one, and is withdrawn when the lookup comes."""
    region.ordinary()
    region.alert([("192.0.2.4", site, f"r{n}", 2 + 5 * n) for n, site in enumerate("abcd")])
    region.alert([("192.0.2.5", site, "r0", 3 + n) for n, site in enumerate("abcdefgh") for _ in "12"])
    region.alert(attack("10.1.1.1", "abcd", begin=4))
    region.alert([row for day in range(6) for row in attack("192.0.2.6", "abcd", begin=2 - 24 * day)])
    region.alert(attack("192.0.2.7", "abcd", begin=4))
    assert list(region.run()) == ["192.0.2.7"]
    own = [{"kind": "ip", "value": "192.0.2.0/29", "threat": "exercise"}]
    (tmp_path / "lookups").mkdir()
    pq.write_table(
        pa.Table.from_pylist([{**row, "kind": "cidr"} for row in own]), tmp_path / "lookups" / "intel.parquet"
    )
    row = region.run(lookups=Lookups(str(tmp_path / "lookups")))["192.0.2.7"]
    assert (row["state"], row["score"], row["reason"][:9]) == ("closed", 0, "withdrawn")


def test_many_sites_within_the_hour_are_one_though_each_saw_one_rule(region: Region) -> None:
    """A password sprayed over ten sites: no depth and no sequence, but no chance either."""
    region.ordinary()
    region.alert([("evil", site, "r1", 3 + n / 12) for n, site in enumerate("abcdefghij")], kind="user")
    assert region.run()["evil"]["evidence"] >= moves.MIN_EVIDENCE


def test_a_daily_past_of_one_low_rule_hides_no_attack(region: Region) -> None:
    """An account with one low alert at home on each day, and then grave ones at four sites: a campaign, of these alone.
    The same low alert, and another account's rounds of all sites day by day, are usual."""
    region.ordinary()
    region.alert([("anna", "a", "r1", 8 - 24 * day) for day in range(6)], kind="user", level="low")
    rounds = [("svc", site, f"r{n}", 9 - 24 * day) for day in range(6) for site in "abcdef" for n in (1, 2)]
    region.alert(rounds, kind="user", level="medium")
    region.alert([("anna", site, f"r{n}", 10 + m + n / 9) for m, site in enumerate("abcd") for n in range(4)],
                 kind="user", level="critical")  # fmt: skip
    (row,) = region.run().values()
    assert (row["value"], row["level"], row["stage"], row["alerts"]) == ("anna", "critical", "exfiltration", 16)
    assert row["score"] > 90
    assert row["reason"].startswith("level critical, reached exfiltration; 4 sites within 24 h")


def test_severity_and_stage_come_before_breadth(region: Region) -> None:
    """Four sites under critical rules before ten under high ones, and these before twenty under medium ones, of a
    further stage too. An update that runs everywhere under one rule, and a patching under low ones, are none."""
    region.ordinary()
    sites = [f"s{n}" for n in range(20)]
    region.alert(attack("wide", sites[:10], begin=1, rules=3), kind="user")
    region.alert(attack("far", sites, begin=-20, rules=4), kind="user", level="medium")
    region.alert(attack("deep", sites[:4], begin=2, rules=2), kind="user", level="critical")
    region.alert([("Browser/131", site, "r2", 3 + n / 60) for n, site in enumerate(sites)], "user_agent", "medium")
    region.alert([("patcher", site, f"r{n}", 3 + n) for site in sites for n in range(4)], kind="user", level="low")
    region.alert([("198.51.100.9", site, f"r{n}", 5 + n) for site in sites for n in (0, 1)], level="high")
    rows = region.run()
    assert sorted(rows, key=lambda who: -rows[who]["score"]) == ["deep", "wide", "far"]
    assert "nothing beyond initial access was seen" in rows["deep"]["against"]
    assert "every site saw the same rules, as in a roll-out" in rows["far"]["against"]
    assert rows["wide"]["confidence"] > rows["deep"]["confidence"]


@pytest.mark.parametrize("begin", [0, 1, 2, 3, 4, 5])
def test_sites_within_a_day_do_not_hang_on_the_clock(region: Region, begin: int) -> None:
    """Three sites within 22 hours, whenever the first of them was."""
    region.ordinary()
    visits = [("evil", site, f"r{n}", begin + hours + n / 60) for site, hours in (("a", 0), ("b", 11), ("c", 22))
              for n in range(3)]  # fmt: skip
    region.alert(visits, kind="user")
    row = region.run(hours=30)["evil"]
    assert "3 sites within 24 h" in row["reason"]


def test_who_moves_slowly_is_met_by_the_number_of_sites(region: Region) -> None:
    """Twenty-two sites, one each 13 hours; twenty-five within three days, by one rule a site."""
    region.alert([("203.0.113.1", "a", "r1", -24 * day) for day in range(14)])
    region.alert([("slow", f"s{n}", "r2", 20 - 13 * (21 - n)) for n in range(22)], kind="user")
    region.alert([("steady", f"s{n}", "r3", 20 - 2.9 * (24 - n)) for n in range(25)], kind="user", level="medium")
    rows = region.run(days=16)
    assert rows.keys() == {"slow", "steady"}
    assert "2 sites within 24 h (1 within 1 h), 22 in all" in rows["slow"]["reason"]


def test_one_attack_is_one_campaign(region: Region) -> None:
    """An address, the account it took, and its tool share most of their events: one campaign, named by all. A user
    agent that half of the world has is none of it, nor is an account that shares one alert of many. Found apart at
    first, they go on under the id of the earlier."""
    region.ordinary()
    address = attack("198.51.100.7", "abcd", begin=4, rules=3)
    account = [("anna", *rest) for _, *rest in address if rest[1] != "r0"]
    region.alert(address)
    region.alert(account, kind="user", level="critical")
    region.alert(attack("other", "abcd", begin=4, rules=4), kind="user")
    apart = region.run()
    assert apart.keys() == {"198.51.100.7", "anna", "other"}
    assert [one["kind"] for one in apart["anna"]["entities"]] == ["user"]
    named = [
        (site, rule, hours, [("ip", "198.51.100.7"), *([("user", "anna")] if rule != "r0" else []),
                             *([("user", "other")] if (site, rule) == ("a", "r1") else [])])
        for _, site, rule, hours in address
    ]  # fmt: skip
    region.land([*named, *((*rest, [("user", "other")]) for _, *rest in attack("other", "abcd", begin=4, rules=4))])
    together = region.run()
    lead = next(row for row in together.values() if len(row["entities"]) == 2)
    assert {(one["kind"], one["value"]) for one in lead["entities"]} == {("ip", "198.51.100.7"), ("user", "anna")}
    assert (lead["level"], len(lead["sites"]), lead["alerts"]) == ("critical", 4, 12)
    assert lead["campaign_id"] == apart["198.51.100.7"]["campaign_id"]
    assert "2 entities share its events" in lead["reason"]
    gone = region.tables.arrow(CAMPAIGNS).to_pylist()
    assert sorted(row["reason"].split()[0] for row in gone if row["score"] == 0) == ["merged"]
    assert together["other"]["score"] > 0


def test_a_campaign_tells_its_story(region: Region) -> None:
    """Its stages in the order reached, each with where, by what and how much; and what is new since yesterday."""
    region.ordinary()
    region.alert([("eve", site, f"r{n}", -10 + 8 * n + m) for m, site in enumerate("abc") for n in range(4)], "user")
    row = region.run()["eve"]
    assert [one["tactic"] for one in row["story"]] == list(TACTICS)
    first, last = row["story"][0], row["story"][-1]
    assert (first["sites"], first["rules"], first["alerts"]) == (["north/a", "north/b", "north/c"], ["r0"], 3)
    assert (first["first"], last["last"]) == (DAY - 10 * HOUR, DAY + 16 * HOUR)
    assert row["new_steps"] == 6
    assert row["against"] == ["every site saw the same rules, as in a roll-out"]
    assert 0 < row["confidence"] < row["evidence"] / 100


def test_sessions_end_with_a_gap_and_are_rewritten_by_late_alerts(region: Region) -> None:
    """Two runs of an hour apart are two sessions, a match alone is none; an alert between them makes one of them."""
    region.ordinary()
    region.alert([("198.51.100.7", "a", "r0", hour) for hour in (1, 1.5, 3, 3.5, 9)])
    region.run(session_days=["2026-11-20"])
    assert _sessions(region.tables) == [(1.0, 1.5, 2), (3.0, 3.5, 2)]
    region.alert([("198.51.100.7", "a", "r1", 2.25)])
    region.run(session_days=["2026-11-20"])
    assert _sessions(region.tables) == [(1.0, 3.5, 5)]
    (row,) = region.tables.arrow(SESSIONS).to_pylist()
    assert (row["rules"], row["tactics"]) == (["r0", "r1"], ["reconnaissance", "initial-access"])


def test_a_session_that_goes_on_into_the_first_day_did_not_begin_on_it(region: Region) -> None:
    """Also when no more days are looked at than sessions are asked for."""
    region.ordinary()
    region.alert([("198.51.100.7", "a", "r0", hour) for hour in (-0.25, 0.25, 0.5, 3, 3.5)])
    region.run(days=1, session_days=["2026-11-20"])
    assert _sessions(region.tables) == [(3.0, 3.5, 2)]


def _sessions(tables: Tables) -> list[tuple[float, float, int]]:
    rows = tables.arrow(SESSIONS).to_pylist()
    return sorted(((row["started_at"] - DAY) / HOUR, (row["ended_at"] - DAY) / HOUR, row["alerts"]) for row in rows)


def test_without_a_past_it_says_so(region: Region, caplog: pytest.LogCaptureFixture) -> None:
    """On a first day what is at more than half of many sites is held to be usual; an attack on few is found."""
    common = [(f"s{n}", "r1", hour) for n in range(20) for hour in (1, 2, 3)]
    region.alert([("root", *one) for one in common], kind="user", level="medium")
    region.alert(attack("198.51.100.7", "abcd", begin=2))
    assert list(region.run(days=1)) == ["198.51.100.7"]
    assert "cannot be distinguished from usual ones" in caplog.text
