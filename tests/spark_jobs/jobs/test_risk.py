"""Entity risk, compared with a naive reckoning: many small alerts add up, one noisy rule does not."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from math import log
from statistics import median
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.common.attack import TACTICS
from spark_jobs.common.entities import scope, usual
from spark_jobs.common.period import Period
from spark_jobs.intake.enrich import Lookups
from spark_jobs.jobs import campaigns, risk
from spark_jobs.jobs.report import figures
from spark_jobs.report import page
from spark_jobs.report.headline import MAX_RISKS, look_first
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.ask import open_reader
from spark_jobs.tables.schema import (
    ALERTS,
    CAMPAIGNS,
    ENTITY_SITE_5M,
    HOST_1H,
    RISK,
    RULES,
    TRIAGE,
    WIN_5M,
    Table,
)
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.conftest import run
from tests.spark_jobs.found import HOSTILE, campaign

pytestmark = pytest.mark.spark

NOW = datetime(2026, 11, 20, 18, tzinfo=UTC)
PERIOD = Period(date(2026, 10, 24), date(2026, 11, 20), NOW)
"""Four half-lives."""
HALF_LIFE = 7
POINTS = {"informational": 2, "low": 10, "medium": 20, "high": 40, "critical": 100}
WORTH = {1: 0.5, 2: 0.75, 4: 1.5, 5: 2.0}
HUGE = "x" * 70_000
SITE = "north/plant"
INTEL = {"203.0.113.66": "exercise", "192.0.2.99": "scanner", "192.0.2.98": "shared", "10.1.1.1": "botnet"}


class Alert(NamedTuple):
    """What an alert says; ``age`` in days before ``NOW``."""

    age: float
    rule: str
    level: str | None = "low"
    user: str = ""
    ip: str = ""
    host: str = "web1"
    site: str = "plant"

    @property
    def at(self) -> datetime:
        at = NOW - timedelta(days=self.age)
        return at.replace(microsecond=at.microsecond // 1000 * 1000)


def tactic(rule: str) -> str:
    """Of ``NAME.NUMBER`` the tactic of that number; empty where there is no number."""
    number = rule.rpartition(".")[2]
    return TACTICS[int(number) % len(TACTICS)] if number.isdecimal() else ""


def alerts() -> list[Alert]:
    draw = random.Random(20)
    levels = [*POINTS, *["low"] * 12, "", "odd"]
    rows = [Alert(day + 0.1, f"slow{day}.{13 - day}", user="slow") for day in range(14)]
    rows += [Alert(day / 24, "noisy.5", "high", user="loud", ip="198.51.100.1", site="mill") for day in range(24 * 20)]
    rows += [Alert(day + 0.2, f"daily{day}.{day}", "medium", user="clerk", site="mill") for day in range(27)]
    rows += [Alert(1.5, "once.8", "critical", user="struck", site="mill")]
    rows += [Alert(20.5, "once.8", "critical", user="recovered", site="mill")]
    rows += [Alert(7.0, "half.3", "medium", user="half", site="hill"), Alert(14.0, "half.4", "high", user="half")]
    rows += [Alert(2.0, "own.3", "critical", ip="203.0.113.66"), Alert(3.0, "own.2", "high", ip="10.1.1.1")]
    # A red team and a scanner of one's own at hosts that nobody else troubles, and beside others; a shared address.
    rows += [Alert(2.5, "own.3", "critical", ip="203.0.113.66", host="web9", site="hall"),
             Alert(2.0, "own.3", "critical", user="user3"), Alert(1.2, "scan.1", "high", ip="192.0.2.99", host="web8"),
             Alert(1.4, "proxy.4", "high", ip="192.0.2.98", host="web7")]  # fmt: skip
    rows += [Alert(3.0, "doubted.2", "high", user="doubtful"), Alert(1.0, "doubted.2", "high", user="doubtful")]
    rows += [Alert(2.0, "odd", None, user=HOSTILE), Alert(1.0, "", HOSTILE, user=HUGE), Alert(1.0, HOSTILE, user=HUGE)]
    rows += [Alert(-0.2, "ahead.2", "medium", user="ahead"), Alert(2.0, "nobody.3", "high", host="", site="")]
    # Twenty persons of one site, each by fourteen rules on fourteen days, as "slow", but each rule names five of them.
    rows += [Alert(day + 0.1, f"shared{n % 4}-{day}.{13 - day}", user=f"crowd{n}", site="office")
             for n in range(20) for day in range(14)]  # fmt: skip
    rows += [Alert(25.3 + n / 100, f"sudden.{n}", user="sudden") for n in range(3)]
    # An account that all have, and one that is at a new site each day.
    rows += [
        Alert(5.0 + day, f"all{n}.9", "medium", user="root", host=f"h{n}", site=f"s{n}")
        for n in range(12)
        for day in range(3)
    ]
    rows += [Alert(9.2, "sweep.9", "medium", user="swept", host="", site=f"s{n}") for n in range(12)]
    rows += [Alert(day + 0.3, "moves.5", "medium", user="moves", host="", site=f"s{day}") for day in range(8)]
    rows += [Alert(day + 0.3, "stays.5", "medium", user="stays", host="", site="s9") for day in range(8)]
    rows += [Alert(1.3, "everyone.6", "critical", user=f"hall{n}", site="hall") for n in range(60)]
    rows += [Alert(4.3, "both.6", user=user, site=site) for user, site in
             (("roamer", "office"), ("crowd1", "office"), ("roamer", "plant"))]  # fmt: skip
    for _ in range(150):
        rows.append(
            Alert(draw.uniform(0, 26), f"r{draw.randrange(9)}.{draw.randrange(16)}", draw.choice(levels),
                  f"user{draw.randrange(20)}", draw.choice(["192.0.2.7", "10.0.0.9", ""]), f"web{draw.randrange(4)}",
                  draw.choice(["plant", "mill"]))
        )  # fmt: skip
    return rows


def put(tables: Tables, table: Table, rows: list[dict[str, Any]]) -> None:
    tables.upsert(table, pa.Table.from_pylist(rows, arrow_schema(table.columns)))


def count(tables: Tables, every: list[Alert]) -> None:
    """The counts of ingest."""
    sums: dict[str, dict[tuple[object, ...], dict[str, Any]]] = defaultdict(dict)
    for alert in every:
        window = alert.at - timedelta(seconds=alert.at.timestamp() % 300)
        same = {"date": f"{alert.at:%Y-%m-%d}", "fleet": "north" if alert.site else "", "site": alert.site,
                "rule_id": alert.rule, "level": alert.level}  # fmt: skip
        rows: list[tuple[Table, dict[str, Any]]] = [
            (WIN_5M, {**same, "window_start": window}),
            (HOST_1H, {**same, "hour": window.replace(minute=0), "host": alert.host}),
        ]
        named = (("user", alert.user), ("ip", alert.ip), ("domain", "example.org"))
        rows += [(ENTITY_SITE_5M, {**same, "window_start": window, "kind": k, "value": v}) for k, v in named]
        for table, row in rows:
            key = tuple(row[name] for name in table.keys)
            counted = sums[table.name].setdefault(
                key, {**row, "alerts": 0, "matches": 0, "first_time": alert.at, "last_time": alert.at}
            )
            counted["alerts"] += 1
            counted["matches"] += 1
            counted["first_time"] = min(counted["first_time"], alert.at)
            counted["last_time"] = max(counted["last_time"], alert.at)
            counted["level"] = alert.level
    for table in (WIN_5M, HOST_1H, ENTITY_SITE_5M):
        put(tables, table, list(sums[table.name].values()))
    # By an agent's clock that stands at 1970: the day of receipt says nothing.
    named = [
        {"alert_id": f"a{number}", "kind": "detection", "rule_id": alert.rule, "level": alert.level, "host": alert.host,
         "fleet": "north", "site": alert.site, "counted_at": alert.at, "event_time": alert.at,
         "received_date": "1970-01-01", "intel": [{"kind": "ip", "value": alert.ip, "threat": INTEL[alert.ip]}]}
        for number, alert in enumerate(every) if alert.ip in INTEL
    ]  # fmt: skip
    tables.append(ALERTS, pa.Table.from_pylist(named, arrow_schema(ALERTS.columns)))
    put(tables, RULES, [
        {"rule_id": rule, "rule_title": rule, "level": "low", "tactics": [tactic(rule)] if tactic(rule) else None}
        for rule in {alert.rule for alert in every} if rule != "odd"
    ])  # fmt: skip


def naive(every: list[Alert]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Score, usual and contributions of each entity, alert by alert and day by day."""
    days: dict[tuple[str, str, str], dict[tuple[str, str], list[Alert]]] = defaultdict(lambda: defaultdict(list))
    there: dict[tuple[str, str], set[str]] = defaultdict(set)
    named: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    seen: dict[tuple[str, str], set[date]] = defaultdict(set)

    def where(kind: str, alert: Alert) -> str:
        return "" if kind == "site" else f"north/{alert.site}" if alert.site else "/"

    for alert in every:
        place = f"north/{alert.site}" if alert.site else "/"
        who = [("user", alert.user, ""), ("ip", alert.ip, place if alert.ip.startswith("10.") else ""),
               ("host", alert.host, place), ("site", place if alert.site else "", "")]  # fmt: skip
        trial = INTEL.get(alert.ip) in ("exercise", "scanner")
        if not trial:
            seen[place, alert.rule].add(alert.at.date())
        for entity in who:
            if entity[1] and not (trial and entity[0] in ("host", "site")):
                days[entity][f"{alert.at:%Y-%m-%d}", alert.rule].append(alert)
                there[entity[0], where(entity[0], alert)].add(entity[1])
                named[entity[0], where(entity[0], alert), alert.rule].add(entity[1])

    def rarity(kind: str, alert: Alert) -> float:
        place = where(kind, alert)
        return float((1 - log(len(named[kind, place, alert.rule])) / log(len(there[kind, place]) + 1)) ** 2)

    first = {place: min(day for (at, _), days in seen.items() if at == place for day in days) for place, _ in seen}
    size = len({(place, day) for (place, _), days in seen.items() for day in days}) + 100

    def surprise(alert: Alert) -> float:
        place, day = f"north/{alert.site}" if alert.site else "/", alert.at.date()
        k = sum(len(days) for (_, rule), days in seen.items() if rule == alert.rule)
        had = sum(other < day for other in seen[place, alert.rule])
        share = had / ((day - first[place]).days + 3)
        return float((log(size / k) / log(size)) ** 2 * (1 - share) ** 2) if k else 1.0

    worth = {("user", "user1", ""): 5, ("site", "north/mill", ""): 1, ("host", "web2", "north/mill"): 4,
             ("host", "web3", "north/mill"): 2, ("host", "web3", SITE): 2}  # fmt: skip
    moments = [NOW - timedelta(days=HALF_LIFE * n / 4) for n in range(2, 16)]
    begin = min(alert.at for alert in every).replace(hour=0, minute=0, second=0, microsecond=0)
    scores = {}
    for entity, cells in days.items():
        parts, turns, met = [], defaultdict[str, int](int), set[str]()
        been: set[tuple[str, str]] = set()
        new: list[tuple[str, float]] = []
        order = sorted(cells, key=lambda cell: (cell[0], min(alert.at for alert in cells[cell]), cell[1]))
        for day, rule in order:
            some, stage = cells[day, rule], tactic(rule) if rule != "odd" else ""
            base = float(max(POINTS.get(alert.level or "", 2) for alert in some))
            tried = stage in ("reconnaissance", "resource-development", "initial-access")
            tried = tried and entity[0] in ("host", "site") and all(alert.level != "critical" for alert in some)
            base *= 0.2 if tried else 0.7 + 0.6 * TACTICS.index(stage) / 13 if stage else 1.0
            base *= 1.3 if stage and stage not in met else 1.15 if not turns[rule] else 1.0
            rare = max(rarity(entity[0], alert) for alert in some)
            base *= rare * max(surprise(alert) for alert in some) ** (0.5 if entity[0] == "user" else 1)
            if not turns[rule]:
                m = sum(round(100 * rare_part) for before, rare_part in new if before < day) / 100
                base *= 1 + m / (m + 5)
                new.append((day, rare))
            base *= {"doubted.2": 2 / 3}.get(rule, 1.0) * WORTH.get(worth.get(entity, 3), 1.0)
            places = {(rule, alert.site) for alert in some}
            if places <= been:
                base /= 3 ** turns[rule]
            been |= places
            turns[rule] += 1
            met.add(stage)
            parts.append((max(alert.at for alert in some), rule, base))

        def total(at: datetime, parts: list[tuple[datetime, str, float]] = parts) -> float:
            return sum(
                base * 0.5 ** (max((at - last) / timedelta(days=1), 0) / HALF_LIFE)
                for last, _, base in parts
                if last <= at or at == NOW
            )

        scores[entity] = {
            "score": total(NOW), "usual": median(total(at) for at in moments if at >= begin), "cells": len(parts)
        }  # fmt: skip
    return scores


class Done(NamedTuple):
    """A run of the job."""

    tables: Tables
    lookups: Lookups
    said: str
    rows: dict[tuple[str, str, str], dict[str, Any]]


def again(spark: SparkSession, tables: Tables, lookups: Lookups) -> tuple[str, list[dict[str, Any]]]:
    with closing(open_reader(tables, None)) as reader:
        trusted = risk.confidence(reader, PERIOD)
    said = risk.write(spark, tables, PERIOD, HALF_LIFE, lookups, trusted, top=50)
    return said, tables.arrow(RISK).to_pylist()


@pytest.fixture(scope="module")
def done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("risk")
    tables = open_tables(str(folder / "tables"))
    count(tables, alerts())
    (folder / "assets.csv").write_text("host,site,criticality\nweb2,mill,4\nweb3,,2\nweb1,mill,99\n")
    (folder / "entities.csv").write_text("kind,value,criticality\nuser,user1,5\nsite,north/mill,1\nuser,user2,high\n")
    (folder / "intel.csv").write_text("kind,value,threat\n" + "".join(f"ip,{ip},{of}\n" for ip, of in INTEL.items()))
    put(tables, CAMPAIGNS, [campaign(n, rules=["doubted.2"]) for n in range(1, 4)])
    decided = [("campaign-1", "false-positive", None), ("campaign-2", "true-positive", NOW - timedelta(days=1)),
               ("campaign-3", "false-positive", None), ("campaign-3", "acknowledged", None)]  # fmt: skip
    for number, (finding, state, expires) in enumerate(decided):
        row = {"finding_id": finding, "state": state, "expires_at": expires, "author": "ann", "reason": "r"}
        row["updated_at"] = NOW - timedelta(days=2) + timedelta(hours=number)
        tables.append(TRIAGE, pa.Table.from_pylist([row], arrow_schema(TRIAGE.columns)))
    lookups = Lookups(str(folder))
    said, rows = again(spark, tables, lookups)
    return Done(tables, lookups, said, {(row["kind"], row["value"], row["scope"]): row for row in rows})


def test_scores_are_those_of_a_naive_reckoning(done: Done) -> None:
    """Of every entity, by all factors and its past; one's own has no row."""
    own = [ip for ip, of in INTEL.items() if of != "botnet"]
    expected = {who: row for who, row in naive(alerts()).items() if who[1] not in (*own, "root")}
    halls = {who for who in expected if who[1].startswith("hall")}
    assert done.rows.keys() == {who for who, row in expected.items() if row["score"] >= 0.005} | halls
    for who, row in done.rows.items():
        near = 0.0051 * expected[who]["cells"]
        assert row["score"] == pytest.approx(expected[who]["score"], abs=near), who
        assert row["usual"] == pytest.approx(expected[who]["usual"], abs=near), who


def test_a_trial_of_ones_own_raises_no_host(done: Done) -> None:
    """Neither red team nor scanner; who comes by a shared address does, and who does the same beside them."""
    assert not any(who[:2] in (("host", "web8"), ("host", "web9")) for who in done.rows)
    assert done.rows["host", "web7", SITE]["rules"] == 1
    assert done.rows["host", "web1", SITE]["level"] == "critical"


def test_contributions_add_up_to_the_score(done: Done) -> None:
    """With what is summed up as others, to the hundredth; the largest come first, and there are no more than eight."""
    for who, row in done.rows.items():
        points = [part["points"] for part in row["contributions"]]
        assert round(sum(points) + row["others_points"], 2) == row["score"], who
        assert points == sorted(points, reverse=True)
        assert 1 <= len(points) <= 8
        assert (row["others"] > 0) == (row["others_points"] > 0) == (len(points) == 8 and row["others"] > 0)
    assert done.rows["user", "slow", ""]["others"] == 6


def test_decay_is_exact(done: Done) -> None:
    """A half-life halves the points, to the hundredth; what is dated ahead is not more than new."""
    half, ahead = done.rows["user", "half", ""], done.rows["user", "ahead", ""]
    stages = [0.7 + 0.6 * number / 13 for number in range(14)]
    assert [(part["rule_id"], part["points"]) for part in half["contributions"]] == [
        ("half.3", round(20 * stages[3] * 1.3 * (1 + 1 / 6) / 2, 2)), ("half.4", round(40 * stages[4] * 1.3 / 4, 2)),
    ]  # fmt: skip
    assert half["contributions"][1]["why"] == "first of its tactic"
    assert ahead["score"] == round(20 * stages[2] * 1.3, 2)


def test_slow_and_low_is_found_that_is_no_campaign(spark: SparkSession, done: Done) -> None:
    """One low alert a day by another rule, at one site, for two weeks, by an account without a past."""
    slow = done.rows["user", "slow", ""]
    assert (slow["over"], slow["level"], slow["rules"], slow["days"], slow["usual"]) == (True, "low", 14, 14, 0)
    assert slow["threshold"] < slow["score"]
    seen = done.tables.frame(spark, ENTITY_SITE_5M).where("value = 'slow'").withColumn("scope", scope())
    nothing = usual(seen, date(2026, 11, 1), [])
    assert campaigns.suspects(seen, nothing).isEmpty(), "no campaign is made of what is at one site"


def test_a_noisy_rule_does_not_lift(done: Done) -> None:
    """A high alert each hour for twenty days: the site is used to it."""
    loud = done.rows["user", "loud", ""]
    assert (loud["over"], loud["alerts"], loud["rules"]) == (False, 480, 1)
    assert loud["score"] < 40


def test_moving_on_does_not_lower_the_risk(done: Done) -> None:
    """One medium rule at a new site each day: every day counts as the first, where at one site it is a third."""
    moves, stays = done.rows["user", "moves", ""], done.rows["user", "stays", ""]
    assert moves["score"] > 3 * stays["score"]
    assert moves["contributions"][1]["why"].startswith("day 7 of this rule, first at a site")


def test_what_a_rule_says_of_many_counts_little(done: Done) -> None:
    """Who meets rules that five of twenty meet has less than a fifth of the points of who meets rules that name nobody
    else; the rarity in its reason is that of its rules."""
    slow, crowd = done.rows["user", "slow", ""], done.rows["user", "crowd0", ""]
    rarity = (1 - log(5) / log(22)) ** 2  # twenty persons, and one who goes from site to site
    assert 0.225 < rarity < 0.235
    assert (crowd["rules"], crowd["tactics"], crowd["over"]) == (14, 14, False)
    assert crowd["score"] < rarity * slow["score"]
    assert all(", rarity 23 %" in part["why"] for part in crowd["contributions"])


def test_ever_new_rules_add_up_faster_by_the_day(done: Done) -> None:
    """Of rules that name nobody else the fourteenth day's has 13 / (13 + 5) more; what comes on one day has no more."""
    slow = {part["rule_id"]: part["why"] for part in done.rows["user", "slow", ""]["contributions"]}
    assert slow["slow0.13"] == "first of its tactic, breadth 172 %"
    burst = done.rows["user", "sudden", ""]["contributions"]
    assert [part["why"] for part in burst] == ["first of its tactic"] * 3


def test_rarity_is_of_the_site_where_it_is_highest(done: Done) -> None:
    """A rule's day at two sites, at one of which it names another person as well."""
    (roamed,) = done.rows["user", "roamer", ""]["contributions"]
    (crowd,) = (part for part in done.rows["user", "crowd1", ""]["contributions"] if part["rule_id"] == "both.6")
    assert (roamed["why"].startswith("first of its tactic, surprise "), roamed["alerts"]) == (True, 2)
    assert crowd["points"] < roamed["points"]


def test_a_daily_past_needs_more(done: Done) -> None:
    """An account that has had an alert each day for a month has more points than the new one: not over."""
    clerk, slow = done.rows["user", "clerk", ""], done.rows["user", "slow", ""]
    assert clerk["score"] > slow["score"]
    assert clerk["threshold"] == pytest.approx(2 * clerk["usual"], abs=0.01)
    assert clerk["threshold"] > slow["threshold"]
    assert (clerk["over"], slow["over"]) == (False, True)
    assert "needed by its own past" in clerk["reason"]


def test_a_critical_alert_is_always_shown(done: Done) -> None:
    """For a week, whatever the score is; after that by the score."""
    struck, recovered = done.rows["user", "struck", ""], done.rows["user", "recovered", ""]
    assert (struck["over"], struck["level"]) == (True, "critical")
    assert struck["reason"].endswith("; a critical alert")
    assert (recovered["over"], recovered["critical_at"]) == (False, NOW - timedelta(days=20.5))


def test_a_critical_alert_that_names_everyone_is_shown_too(done: Done) -> None:
    """Without points: sixty accounts of one site by one critical rule."""
    hall = done.rows["user", "hall7", ""]
    assert (hall["score"], hall["over"], hall["others"]) == (0, True, 0)
    assert [(part["rule_id"], part["points"]) for part in hall["contributions"]] == [("everyone.6", 0)]
    assert hall["contributions"][0]["why"] == "first of its tactic, rarity 0 %"


def test_explains_itself(done: Done) -> None:
    """By rule, time, points and why; and by the words of the command."""
    first, second = done.rows["user", "doubtful", ""]["contributions"]
    assert (first["rule_id"], first["time"], first["level"]) == ("doubted.2", NOW - timedelta(days=3), "high")
    assert first["why"].startswith("first of its tactic, rule confidence 67 %, surprise ")
    assert second["why"].startswith("day 2 of this rule, rule confidence 67 %, surprise ")
    whys = {part["why"] for part in done.rows["user", "user1", ""]["contributions"]}
    assert all(why.endswith("criticality 5") for why in whys)
    slow = next(line for line in done.said.splitlines() if " user slow: " in line)
    assert "50 needed" in slow
    assert "14 rules, 14 tactics, 14 days" in slow


@pytest.mark.long
def test_a_second_run_gives_the_same(spark: SparkSession, done: Done) -> None:
    said, rows = again(spark, done.tables, done.lookups)
    assert said == done.said
    assert {(row["kind"], row["value"], row["scope"]): row for row in rows} == done.rows


def test_the_page_shows_what_the_points_are_made_of(done: Done) -> None:
    """Each entity over its threshold with its contributions; hostile and huge texts are text, and cut."""
    with closing(open_reader(done.tables, None)) as reader:
        report = figures(reader, PERIOD.from_day(PERIOD.last))
    shown = page.html(report)
    assert "user slow</b>" in shown
    assert "first of its tactic" in shown
    assert HOSTILE[:20] not in shown
    assert HUGE not in shown
    pointers = [pointer for pointer in look_first(report) if pointer.kind == "risk"]
    assert len(pointers) == MAX_RISKS
    assert report.findings.over == sum(row["over"] for row in done.rows.values())


def test_a_risk_is_a_finding(done: Done) -> None:
    """It is triaged by its id, and a false positive leaves the first screen and doubts its rules the day after."""
    slow = done.rows["user", "slow", ""]
    where = f"--tables={done.tables.root}"
    said = run(None, "triage", where, slow["risk_id"][:12], "--state=false-positive", "--reason=a test of ours")
    assert said.startswith(f"risk {slow['risk_id']}: false positive by ")
    later = Period(PERIOD.first, date(2999, 1, 1), datetime(2999, 1, 1, tzinfo=UTC))
    with closing(open_reader(done.tables, None)) as reader:
        trusted = risk.confidence(reader, later)
        report = figures(reader, PERIOD.from_day(PERIOD.last))
    assert trusted[slow["contributions"][0]["rule_id"]] == pytest.approx(2 / 3)
    closed = [risk.triage.state for risk in report.findings.risks.items if risk.value == "slow"]
    assert closed == ["false-positive"]
    assert not any("user slow" in pointer.text for pointer in look_first(report))
