"""Campaigns against a region that is made up here, by code that shares none with the jobs: attacks and their decoys.

Each seed draws other sites, times and amounts. What an analyst would call an attack is found, nothing else is, and the
first screen is attacks.
"""

from __future__ import annotations

import os
import random
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.common.period import period
from spark_jobs.jobs import campaigns
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import ALERTS, CAMPAIGNS, ENTITY_SITE_5M, RULES, Table
from spark_jobs.tables.tables import Tables, open_tables

pytestmark = pytest.mark.spark

SEEDS = [4201 + number for number in range(int(os.environ.get("VEDETTE_FLEETS", "1")))]
START = datetime(2026, 11, 7, tzinfo=UTC)
DAYS, SITES = 14, 30

STAGES = ("reconnaissance", "initial-access", "execution", "persistence", "credential-access", "discovery",
          "lateral-movement", "command-and-control", "exfiltration")  # fmt: skip
GRADES = ("low", "medium", "high", "critical")

Names = list[tuple[str, str]]


class Happening(NamedTuple):
    """An alert: when, in hours since ``START``, where, by which rule, and whom it names."""

    hours: float
    site: int
    rule: str
    names: Names


class Made(NamedTuple):
    """A region, and the entities of its attacks, each attack by itself."""

    tables: Tables
    attacks: list[set[tuple[str, str]]]


def rule(stage: str, grade: str, number: int = 0) -> str:
    return f"{stage}.{grade}.{number}"


class Author:
    """Writes what happens in a region."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.happened: list[Happening] = []
        self.attacks: list[set[tuple[str, str]]] = []

    def some(self, number: int) -> list[int]:
        return self.draw.sample(range(SITES), number)

    def attack(self, names: Names, begin: float, hours: float, sites: int, grade: str) -> None:
        """Along the stages at each of some sites, from one to the next."""
        for number, site in enumerate(self.some(sites)):
            at = begin + number * hours / sites
            for n, stage in enumerate(sorted(self.draw.sample(range(1, len(STAGES)), 4))):
                mine = rule(STAGES[stage], grade if n else "medium", self.draw.randrange(3))
                for _ in range(self.draw.randrange(1, 4)):
                    self.happened.append(
                        Happening(at + n * hours / sites / 5 + self.draw.random() / 30, site, mine, names)
                    )
        self.attacks.append(set(names))

    def daily(self, names: Names, sites: list[int], rules: list[str], share: float = 1.0) -> None:
        for day in range(DAYS):
            for site in sites:
                for one in rules:
                    if self.draw.random() < share:
                        self.happened.append(Happening(24 * day + 7 + 10 * self.draw.random(), site, one, names))

    def write(self) -> None:
        """Attacks fast and slow, by accounts with a daily past too; and what looks like them."""
        draw = self.draw
        for n in range(4):
            who = [("ip", f"198.51.100.{n}"), ("user", f"taken{n}"), ("user_agent", f"kit/{n}")][: draw.randrange(1, 4)]
            self.attack(who, draw.uniform(72, 300), draw.uniform(1, 20), draw.randrange(4, 9), draw.choice(GRADES[2:]))
        for n in range(4):
            home = draw.randrange(SITES)
            self.daily([("user", f"clerk{n}")], [home], [rule("privilege-escalation", "low")], 0.8)
            self.attack([("user", f"clerk{n}")], draw.uniform(120, 300), draw.uniform(2, 12), 4, "critical")
        for n in range(2):
            step, begin = draw.uniform(10, 14), draw.uniform(72, 80)
            for number, site in enumerate(self.some(18)):
                at = begin + number * step
                self.happened.append(Happening(at, site, rule(STAGES[6], "high"), [("user", f"slow{n}")]))
            self.attacks.append({("user", f"slow{n}")})
        self.attack([("hash", "e" * 64)], draw.uniform(72, 300), 0.8, 12, "high")
        everywhere = list(range(SITES))
        for n in range(5):  # scanners of a day, and one that is there every day
            begin = draw.uniform(72, 300)
            for site in self.some(20):
                for stage in STAGES[:2]:
                    at = begin + 20 * draw.random()
                    self.happened.append(Happening(at, site, rule(stage, "high"), [("ip", f"203.0.113.{n}")]))
        self.daily([("ip", "203.0.113.99")], everywhere, [rule(stage, "high") for stage in STAGES[:2]], 0.7)
        shared = [rule(stage, grade) for stage in STAGES[1:7] for grade in ("medium", "high")]
        self.daily([("ip", "192.0.2.1")], everywhere[:8], shared, 0.3)  # the address of a company
        self.daily([("user", "svc-monitor")], everywhere, [rule("discovery", "medium"), rule("execution", "medium")])
        for n, kind in enumerate(("user_agent", "user_agent", "hash")):  # what is rolled out
            begin = draw.uniform(72, 300)
            for site in everywhere:
                at = begin + 6 * draw.random()
                self.happened.append(Happening(at, site, rule("execution", "medium", 5 + n), [(kind, f"release-{n}")]))
        begin = draw.uniform(72, 300)
        for site in everywhere:  # a patching by an administrator
            for stage in STAGES[2:7]:
                at = begin + 8 * draw.random()
                self.happened.append(Happening(at, site, rule(stage, "low"), [("user", "patcher")]))
        for _ in range(3000):  # and everyone else
            site, who = draw.randrange(SITES), draw.randrange(40)
            one = rule(draw.choice(STAGES), draw.choices(GRADES, (60, 30, 9, 1))[0], draw.randrange(5))
            names = [("user", f"user{who}.{site}"), ("ip", f"100.{draw.randrange(200)}.{draw.randrange(200)}.9")]
            self.happened.append(Happening(24 * DAYS * draw.random(), site, one, names))
        self.happened = [one for one in self.happened if 0 <= one.hours < 24 * DAYS]


def put(tables: Tables, table: Table, rows: list[dict[str, Any]]) -> None:
    schema = pa.schema([field for field in arrow_schema(table.columns) if field.name in rows[0]])
    tables.append(table, pa.Table.from_pylist(rows, schema))


def made(folder: Path, seed: int) -> Made:
    """A region in tables: counts by five minutes, and the alerts that they are of."""
    author, tables = Author(seed), open_tables(str(folder))
    author.write()
    counts: dict[Any, dict[str, Any]] = {}
    alerts = []
    for number, one in enumerate(author.happened):
        at = START + timedelta(hours=one.hours)
        window = at - timedelta(seconds=at.timestamp() % 300)
        site, level = f"s{one.site:02}", one.rule.split(".")[1]
        alerts.append({
            "agent_id": site, "alert_id": str(number), "kind": "detection", "fleet": "f", "site": site, "level": level,
            "received_date": f"{at:%Y-%m-%d}", "rule_id": one.rule, "counted_at": at, "contributing": [],
            "raw_ref": {"log_id": site, "offset": number, "length": 1},
            "entities": [{"kind": kind, "value": value} for kind, value in one.names],
        })  # fmt: skip
        for kind, value in one.names:
            row = counts.setdefault((window, kind, value, site, one.rule), {
                "date": f"{window:%Y-%m-%d}", "window_start": window, "kind": kind, "value": value, "fleet": "f",
                "site": site, "rule_id": one.rule, "level": level, "alerts": 0, "matches": 0, "first_time": at,
                "last_time": at,
            })  # fmt: skip
            row["alerts"] += 1
            row["matches"] += 1
            row["first_time"], row["last_time"] = min(row["first_time"], at), max(row["last_time"], at)
    rules = {one.rule: one.rule.split(".") for one in author.happened}
    put(tables, RULES, [
        {"rule_id": name, "rule_title": name, "level": parts[1], "tactics": [parts[0]], "techniques": []}
        for name, parts in rules.items()
    ])  # fmt: skip
    put(tables, ENTITY_SITE_5M, list(counts.values()))
    put(tables, ALERTS, alerts)
    return Made(tables, author.attacks)


@pytest.mark.parametrize("seed", SEEDS)
def test_planted_attacks_come_first_and_nothing_else_comes(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Recall and precision of 0.95, one campaign for each attack, nine attacks at least among the first ten."""
    region = made(tmp_path, seed)
    campaigns.write(spark, region.tables, period(date(2026, 11, 20), DAYS))
    rows = sorted(region.tables.arrow(CAMPAIGNS).to_pylist(), key=lambda row: -row["score"])
    whose = [{(one["kind"], one["value"]) for one in row["entities"]} for row in rows]
    right = [any(names & attack for attack in region.attacks) for names in whose]
    met = [sum(bool(names & attack) for names in whose) for attack in region.attacks]
    sys.stdout.write(
        f"\nseed {seed}: attacks: {sum(map(bool, met))} of {len(met)} are found, {sum(right)} of {len(rows)} campaigns "
        f"are attacks, {sum(right[:10])} of the first 10\n"
    )
    wrong = [(sorted(names), row["reason"]) for names, row, good in zip(whose, rows, right, strict=True) if not good]
    missed = [sorted(attack) for attack, number in zip(region.attacks, met, strict=True) if not number]
    assert sum(map(bool, met)) >= 0.95 * len(met), missed
    assert sum(right) >= 0.95 * len(rows), wrong
    assert sum(right[:10]) >= 9, wrong
    assert max(met) == 1, "one attack, one campaign"
