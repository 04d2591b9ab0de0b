"""What is usual, by hashes in Spark and by a naive reading of what ``entities`` says of it."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from statistics import median
from typing import NamedTuple, TypeAlias

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.common import entities
from spark_jobs.common.entities import LEVELS, SEVERE
from spark_jobs.common.materialised import materialised

pytestmark = pytest.mark.spark

FIRST = date(2026, 11, 1)
Who: TypeAlias = tuple[str, str, str]


class Cell(NamedTuple):
    """A row of ``ENTITY_SITE_5M``, of which days and names count."""

    kind: str
    value: str
    scope: str
    fleet: str
    site: str
    rule_id: str
    level: str
    date: str

    @property
    def who(self) -> Who:
        return self.kind, self.value, self.scope

    @property
    def severe(self) -> bool:
        return self.level in SEVERE

    @property
    def place(self) -> tuple[str, str]:
        return self.fleet, self.site


def usual(rows: Sequence[Cell], dates: Sequence[str]) -> set[Cell]:
    """Of ``rows`` those that are usual."""
    met = [len({row._replace(date="") for row in rows if row.date == day}) for day in dates]
    begin = next((n for n in range(len(dates)) if met[n] >= 0.1 * median(met[n:])), 0)
    every, dates = rows, dates[begin:]
    rows = [row for row in rows if row.date in dates]
    since = {row.place: min(other.date for other in rows if other.place == row.place) for row in rows}

    def comes_back(days: Iterable[str], since: str = "") -> bool:
        there = sorted(set(days))
        return len(there) >= max(3, 0.4 * len(dates)) and sum(since <= day < there[0] for day in dates) < 3

    places = defaultdict[tuple[Who, bool], dict[tuple[str, str], set[str]]](lambda: defaultdict(set))
    of_rule, of_cell = defaultdict[tuple[Who, str], set[str]](set), defaultdict[Cell, set[str]](set)
    for row in rows:
        places[row.who, row.severe][row.place].add(row.date)
        of_cell[row._replace(date="")].add(row.date)
        if row.severe:
            of_rule[row.who, row.rule_id].add(row.date)
    if len(dates) < 3:
        sites = {row.place for row in every}
        at = defaultdict[Who, set[tuple[str, str]]](set)
        for row in every:
            at[row.who].add(row.place)
        common = {who for who, some in at.items() if len(sites) >= 10 and len(some) > len(sites) / 2}
        return {row for row in every if row.who in common and not row.severe}
    early = dates[: (len(dates) + 1) // 2]

    def goes_about(sites: dict[tuple[str, str], set[str]]) -> bool:
        return (
            comes_back(day for days in sites.values() for day in days)
            and sum(any(day in early for day in days) for days in sites.values()) >= 3
            and sum(map(stays, sites.values())) >= 1.3 * len(sites)
        )

    def stays(days: set[str]) -> int:
        first, last = (date.fromisoformat(day) for day in (min(days), max(days)))
        return 1 if len(days) == 2 and (last - first).days == 1 else len(days)

    about = {who for who, sites in places.items() if goes_about(sites)}

    def is_usual(row: Cell) -> bool:
        if not row.severe:
            mine = of_cell[row._replace(date="")]
            return (row.who, False) in about or (bool(mine) and comes_back(mine, since[row.place]))
        days = of_rule[row.who, row.rule_id]
        return (row.who, True) in about and (comes_back(days) if row.level == "critical" else len(days) >= 3)

    return {row for row in every if is_usual(row)}


def drawn_cells(seed: int, days: int) -> list[Cell]:
    """What 180 entities did: some everywhere each day, some once, some from a later day on. Threes of them share their
    value, and sites of two fleets their names."""
    draw, rows = random.Random(seed), set[Cell]()
    for number in range(180):
        kind, scope = (("user", ""), ("ip", "f0/s0"), ("ip", ""))[number % 3]
        sites, often, begin = draw.choice((1, 2, 4, 8)), draw.choice((0.1, 0.5, 1.0)), draw.choice((0, 0, 2, 6))
        levels = draw.choice((LEVELS[:3], SEVERE, LEVELS))
        for day in range(min(begin, days - 1), days):
            when = (FIRST + timedelta(days=day)).isoformat()
            for site in draw.sample(range(12), sites):
                if draw.random() < often:
                    rule, level, place = f"r{draw.randrange(3)}", draw.choice(levels), (f"f{site % 2}", f"s{site // 2}")
                    rows.add(Cell(kind, f"u{number // 3}", scope, *place, rule, level, when))
    return sorted(rows)


@pytest.mark.long
@pytest.mark.parametrize(("days", "thin"), [(2, 0), (10, 0), (10, 3)])
def test_what_is_usual_is_what_a_naive_reading_finds(spark: SparkSession, days: int, thin: int) -> None:
    """Of each level there are some; and who has what is not usual at three sites is found by numbers alone. ``thin``
    days before all others have a pilot at one site only, and one site joins later."""
    late = (FIRST + timedelta(days=4)).isoformat()
    rows = [row for row in drawn_cells(7 + days, days) if row.site != "s5" or row.date >= late or days < 10]
    rows += [
        row._replace(date=(FIRST - timedelta(days=n + 1)).isoformat())
        for n in range(thin) for row in rows[:2]
    ]  # fmt: skip
    dates = sorted({row.date for row in rows})
    expected = set(rows) - usual(rows, dates)
    frame = spark.createDataFrame(rows, list(Cell._fields))
    ordinary = entities.usual(frame, date.fromisoformat(dates[0]), dates)
    assert {Cell(*row) for row in ordinary.left(frame).collect()} == expected
    assert ordinary.days == days
    for levels in [LEVELS[:3], ("high",), ("critical",)] if days == 10 else [LEVELS[:3]]:
        mine = {row for row in rows if row.level in levels}
        assert mine & expected
        assert mine - expected
    sites = defaultdict[Who, set[tuple[str, str]]](set)
    for row in expected:
        sites[row.who].add(row.place)
    some = {row for row in expected if len(sites[row.who]) >= 3}
    assert {Cell(*row) for row in ordinary.left(frame, ordinary.at_sites(3)).collect()} == some != expected


def test_rows_of_other_days_are_judged_by_those_asked(spark: SparkSession) -> None:
    """The day before, whose sessions go on, and later ones: whoever goes about does so there, by another rule, too."""
    rows = [
        Cell("user", "u", "", "f", f"s{site}", "r", "low", (FIRST + timedelta(days=day)).isoformat())
        for site in range(4)
        for day in range(10)
    ]
    frame = spark.createDataFrame(rows, list(Cell._fields))
    ordinary = entities.usual(frame, FIRST, sorted({row.date for row in rows}))
    others = [
        rows[0]._replace(rule_id="other", level=level, date=(FIRST + timedelta(days=day)).isoformat())
        for level in ("low", "high")
        for day in (-1, 0, 10)
    ]
    left = ordinary.left(spark.createDataFrame(others, list(Cell._fields))).collect()
    assert {Cell(*row) for row in left} == {*others[3:]}


@pytest.mark.parametrize("thin", [0, 3])
def test_a_history_begins_when_there_is_something_to_be_absent_from(spark: SparkSession, thin: int) -> None:
    """Three days of a pilot at one site, or of a late clock's host, do not make all that is there since look new; nor
    do ten days that a site was not there yet. What comes to a site that was is new, however often it does."""
    begin = FIRST + timedelta(days=thin)

    def daily(value: str, site: str, since: int, until: int = 14) -> list[Cell]:
        return [
            Cell("user", value, "", "f", site, "r", "low", (begin + timedelta(days=day)).isoformat())
            for day in range(since, until)
        ]

    rows = [cell for n in range(40) for cell in daily(f"u{n}", f"s{n % 4}", 0)]
    rows += [*daily("u0", "s0", -thin, 0), *daily("joined", "late", 7), *daily("intruder", "s0", 4)]
    frame = spark.createDataFrame(rows, list(Cell._fields))
    ordinary = entities.usual(frame, FIRST, sorted({row.date for row in rows}))
    assert {row.value for row in ordinary.left(frame).collect()} == {"intruder"}
    assert ordinary.days == 14


def test_who_moves_on_each_day_does_not_go_about(spark: SparkSession) -> None:
    """A new site each day, over midnight: each site is left for good."""
    rows = [
        Cell("user", "mover", "", "f", f"s{day}", "r", "medium", (FIRST + timedelta(days=day + night)).isoformat())
        for day in range(9)
        for night in range(2)
    ]
    frame = spark.createDataFrame(rows, list(Cell._fields))
    ordinary = entities.usual(frame, FIRST, sorted({row.date for row in rows}))
    assert len(ordinary.left(frame).collect()) == len(rows)


def test_what_others_are_used_to_is_judged_by_the_days_asked_for(spark: SparkSession) -> None:
    """However far back one look goes for the sake of one of them."""
    rows = [
        (*Cell("user", value, "", "f", "s", "r", "low", (FIRST + timedelta(days=day)).isoformat()), value == "attacker")
        for value, since in (("old", 0), ("attacker", 20), ("colleague", 20))
        for day in range(since, 34)
    ]
    frame = spark.createDataFrame(rows, [*Cell._fields, "whole"])
    ordinary = entities.usual(frame, FIRST, sorted({row[7] for row in rows}), FIRST + timedelta(days=20))
    assert {row.value for row in ordinary.left(frame).collect()} == {"attacker"}


def test_plans_of_kept_frames_do_not_grow(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """A frame that is kept is a leaf of the plans of those made of it, however it was made itself."""
    frame = spark.range(10).toDF("one")
    lines = []
    for _ in range(3):
        frame = materialised(frame.join(frame.withColumn("two", F.lit(2)), "one").select("one"))
        frame.explain()
        lines.append(len(capsys.readouterr().out.splitlines()))
    assert len({*lines}) == 1
    assert frame.count() == 10
