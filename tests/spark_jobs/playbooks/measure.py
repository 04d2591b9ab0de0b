"""Reads what the jobs say of a region as an analyst does, and holds it against what was planted.

The landing comes day by day, and after each the jobs run, so that it is known when an attack was first seen. A line of
the first screen is about an attack when it **names** what is its alone (an address, a hash, an account that was taken,
from its first alert on) or a rule that hardly anything else sets off, or a host that tells of it together with a time
or a rule of it, or one of its sites with one of its rules or a private address of its, or a site that it darkened. This
module knows no number of the program and reads only what the screen says.

``python -m tests.spark_jobs.playbooks.measure --seed 1 --folder DIR`` writes ``DIR/measured.json`` and prints tables.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from spark_jobs.common.period import period
from spark_jobs.jobs.report import figures
from spark_jobs.report.headline import Pointer, look_first
from spark_jobs.tables.ask import open_reader
from spark_jobs.tables.schema import ALERTS, ANOMALIES, CAMPAIGNS, RISK
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.conftest import run
from tests.spark_jobs.playbooks import Attack, Size, Truth, make

FIRST = 10
"""Lines of the first screen that are read."""
SPAN = 7
"""Days that it spans."""
EARLY = 2
"""Days that land before the jobs run for the first time; no attack becomes one in them."""
SHORT = 26
"""Characters that a long name is shown with at least."""
SEEDS = [int(os.environ.get("VEDETTE_SEED", "9001")) + n for n in range(int(os.environ.get("VEDETTE_FLEETS", "1")))]
SITES = int(os.environ.get("VEDETTE_SITES", "60"))
"""What ``make evaluate`` asks for."""

Row = dict[str, Any]


class Line(NamedTuple):
    """A line of the first screen: what it says, and what of ``attack``, ``outage``, ``neutral`` and ``wrong`` it is."""

    kind: str
    text: str
    verdict: str
    about: list[str]


class Sight(NamedTuple):
    """Where an attack was seen: by hours from its moment to the end of the day on which it first was (None: never), and
    on which line of the last day's screen it is."""

    name: str
    alerts: int
    moment: str
    recent: bool
    rank: int | None
    anywhere: bool
    screen_hours: float | None
    anywhere_hours: float | None
    by: list[str]


class Measured(NamedTuple):
    """What became of a region."""

    seed: int
    alerts: int
    landed: int
    sights: list[Sight]
    days: dict[str, list[Line]]
    pointers: int


def names(text: str, value: str) -> bool:
    """Whether a sentence names ``value``, be it cut."""
    if re.search(rf"(?<![\w.@:-]){re.escape(value)}(?![\w@-]|[.:]\w)", text):
        return True
    return len(value) > SHORT and value[:SHORT] + "…" in text


def overlaps(since: datetime | None, until: datetime | None, attack: Attack) -> bool:
    return (since is None or since <= attack.end + timedelta(hours=1)) and (
        until is None or until >= attack.begin - timedelta(hours=1)
    )


def is_about(pointer: Pointer, attack: Attack, dark: set[str], day_end: datetime) -> bool:
    """Whether a line leads to ``attack``, of which nothing may have happened yet."""
    text = f"{pointer.text} {pointer.note}"
    if attack.begin >= day_end or not overlaps(pointer.since, pointer.until, attack):
        return False
    rule = any(title in text for title in attack.rules)
    if any(names(text, value) for _, value in attack.own) or any(title in text for title in attack.marks):
        return True
    if any(names(text, host) for host in attack.hosts) and (rule or pointer.since is not None):
        return True
    sites = [site for site in attack.sites if names(text, site) or names(text, site.partition("/")[2])]
    came_from = any(names(text, address) for address in attack.inner)
    return any(rule or came_from or site in dark for site in sites)


def judged(pointer: Pointer, truth: Truth, day_end: datetime) -> Line:
    """What a line is about."""
    outages = {o.site for o in truth.outages if o.begin < day_end}
    about = [attack.name for attack in truth.attacks if is_about(pointer, attack, outages, day_end)]
    text = f"{pointer.text} {pointer.note}"
    if about:
        return Line(pointer.kind, text, "attack", about)
    dark = [site for site in outages if names(text, site) or names(text, site.partition("/")[2])]
    if any(title in text for title in truth.rules.values()):
        dark = []  # what a rule did there does not say that the site is dark
    recent = any(o.begin < day_end <= o.end + timedelta(days=1) for o in truth.outages)
    if dark or (pointer.kind == "agents" and recent):
        return Line(pointer.kind, text, "outage", dark)
    if pointer.kind == "noise":
        return Line(pointer.kind, text, "neutral", [])
    decoys = [
        decoy.name
        for decoy in truth.decoys
        if any(names(text, value) for _, value in decoy.entities)
        or any(title in text for title in decoy.marks)
        or (len(decoy.sites) < 3 and any(names(text, site) for site in decoy.sites))
    ]
    return Line(pointer.kind, text, "wrong", decoys)


def places(tables: Tables, attack: Attack, titles: dict[str, str], day: date, day_end: datetime) -> list[str]:
    """Which tables of findings have a row of ``attack`` that stands at the end of ``day``."""
    if attack.begin >= day_end:
        return []
    since = day_end - timedelta(days=SPAN)
    rules = {key for key, title in titles.items() if title in attack.rules}
    marks = {key for key, title in titles.items() if title in attack.marks}
    hits = []
    for row in tables.arrow(CAMPAIGNS).to_pylist():
        named = {(row["kind"], row["value"]), *((entity["kind"], entity["value"]) for entity in row["entities"] or ())}
        if row["score"] > 0 and row["last_seen"] >= max(since, attack.begin) and named & attack.own:
            hits.append("campaign")
    for row in tables.arrow(ANOMALIES).to_pylist():
        if row["ended_at"] < max(since, attack.begin - timedelta(hours=1)) or row[
            "started_at"
        ] > attack.end + timedelta(hours=1):
            continue
        whom = (row["entity_kind"], row["entity_value"])
        here = f"{row['fleet']}/{row['site']}" in attack.sites if row["site"] else row["rule_id"] in marks
        if whom in attack.own or (row["rule_id"] in rules and here):
            hits.append(row["kind"])
        if row["kind"] == "silence" and here and row["site"]:
            hits.append("silence")
    for row in tables.arrow(RISK, since=day.isoformat(), until=day.isoformat()).to_pylist():
        whom = (row["kind"], row["value"])
        mine = whom in attack.own or (row["kind"] == "host" and row["value"] in attack.hosts)
        mine |= row["kind"] == "ip" and row["value"] in attack.inner and row["scope"] in attack.sites
        if row["over"] and mine and row["last_seen"] >= attack.begin:
            hits.append("risk")
    return sorted(set(hits))


Make = Callable[[Path, int, Size], Truth]
"""Writes a region's ``landing`` and ``lookups`` into a folder, by seed and size."""


def measure(
    spark: SparkSession, folder: Path, seed: int, size: Size = Size(), last_only: bool = False, make: Make = make  # noqa: B008
) -> Measured:  # fmt: skip
    """Make a region in ``folder``, land it day by day, run the jobs after each, and read the screens."""
    truth = make(folder / "made", seed, size)
    landing, tables = folder / "landing", f"--tables={folder}/tables"
    lookups = f"--lookups={folder}/made/lookups"
    days: dict[str, list[Line]] = {}
    seen: dict[str, list[tuple[datetime, bool, list[str]]]] = {attack.name: [] for attack in truth.attacks}
    first = truth.start.date()
    pointers: list[Pointer] = []
    for number in range(size.days):
        day = first + timedelta(days=number)
        for table in ("alerts", "status"):
            for place in sorted((folder / "made" / "landing" / table).glob(f"dt={day}")):
                shutil.copytree(place, landing / table / place.name)
        if number < (size.days - 1 if last_only else EARLY):
            continue
        run(spark, "ingest", tables, lookups, f"--landing={landing}")
        for words in (["campaigns", lookups], ["baselines", lookups], ["risk", lookups]):
            run(spark, *words, tables, f"--date={day}")
        kept = open_tables(f"{folder}/tables")
        day_end = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
        with closing(open_reader(kept, None)) as reader:
            pointers = look_first(figures(reader, period(day, SPAN)))
        lines = days[f"{day}"] = [judged(pointer, truth, day_end) for pointer in pointers[:FIRST]]
        shown = {name for line in lines for name in line.about}
        for attack in truth.attacks:
            seen[attack.name].append((day_end, attack.name in shown, places(kept, attack, truth.rules, day, day_end)))
        sys.stdout.write(f"seed {seed} {day}: {' '.join(line.verdict for line in lines)}\n")
        sys.stdout.flush()
    landed = open_tables(f"{folder}/tables").arrow(ALERTS, ["alert_id"]).num_rows
    sights = [_sight(attack, seen[attack.name], truth, days[f"{day}"]) for attack in truth.attacks]
    return Measured(seed, truth.alerts, landed, sights, days, len(pointers))


def _sight(attack: Attack, seen: Sequence[tuple[datetime, bool, list[str]]], truth: Truth, last: list[Line]) -> Sight:
    def lag(when: datetime | None) -> float | None:
        return None if when is None else max(0.0, (when - attack.moment).total_seconds() / 3600)

    screen = next((when for when, shown, _ in seen if shown), None)
    anywhere = next((when for when, _, hits in seen if hits), None)
    rank = next((number for number, line in enumerate(last, 1) if attack.name in line.about), None)
    return Sight(
        attack.name, len(attack.alerts), f"{attack.moment:%Y-%m-%d %H:%M}",
        attack.end >= truth.end - timedelta(days=SPAN), rank, anywhere is not None, lag(screen),
        lag(anywhere), seen[-1][2],
    )  # fmt: skip


def table(results: Iterable[Measured]) -> str:
    """The attacks of all ``results`` by class, then the figures."""
    results = list(results)
    rows = [
        "| class | seed | alerts | last screen | anywhere | first on a screen, h | anywhere, h | by, at the end |",
        "|---|---|---|---|---|---|---|---|",
    ]

    def hours(value: float | None) -> str:
        return "never" if value is None else f"{value:.0f}"

    for result in results:
        for sight in sorted(result.sights):
            rank = sight.rank or ("**no**" if sight.recent else "(over)")
            anywhere = "yes" if sight.anywhere else "**no**"
            rows.append(
                f"| {sight.name} | {result.seed} | {sight.alerts} | {rank} | {anywhere} | "
                f"{hours(sight.screen_hours)} | {hours(sight.anywhere_hours)} | {', '.join(sight.by)} |"
            )
    return "\n".join([*rows, "", *(summary([result]) for result in results), summary(results)])


class Figures(NamedTuple):
    """Shares, all of 1."""

    precision: float
    recall_screen: float
    recall_anywhere: float
    within_day_screen: float
    within_day_anywhere: float


def figures_of(results: Sequence[Measured]) -> Figures:
    """Precision at 10 and recall of the last screens (of attacks that went on in its days), recall anywhere and ever,
    and the shares that were seen a day after their moment at the latest."""
    lines = [line.verdict for result in results for line in list(result.days.values())[-1] if line.verdict != "neutral"]
    sights = [sight for result in results for sight in result.sights]
    recent = [sight for sight in sights if sight.recent]

    def share(amount: int, of: int) -> float:
        return amount / of if of else 1.0

    return Figures(
        share(sum(verdict != "wrong" for verdict in lines), len(lines)),
        share(sum(sight.rank is not None for sight in recent), len(recent)),
        share(sum(sight.anywhere for sight in sights), len(sights)),
        share(sum(sight.screen_hours is not None and sight.screen_hours <= 24 for sight in sights), len(sights)),
        share(sum(sight.anywhere_hours is not None and sight.anywhere_hours <= 24 for sight in sights), len(sights)),
    )


AIMS = Figures(0.9, 0.8, 0.95, 1.0, 0.0)


def missed(results: Sequence[Measured]) -> dict[str, float]:
    """The figures that are below the aims."""
    shares = figures_of(results)._asdict()
    return {name: share for name, share in shares.items() if share < getattr(AIMS, name)}


def summary(results: Sequence[Measured]) -> str:
    shares = figures_of(results)
    seeds = ", ".join(str(result.seed) for result in results)
    return (
        f"seeds {seeds}: precision at {FIRST} {shares.precision:.2f}; recall on the {SPAN}-day screen "
        f"{shares.recall_screen:.2f}, anywhere {shares.recall_anywhere:.2f}; within a day of its moment on the screen "
        f"{shares.within_day_screen:.2f}, anywhere {shares.within_day_anywhere:.2f}"
    )


def main(prepare: Callable[[Path], Make] = lambda folder: make, size: Size = Size()) -> None:  # noqa: B008
    """Measure one region by the command line. ``prepare`` gives what makes it, and may work in the folder."""
    import argparse

    from spark_jobs.common.session import open_session
    from tests.spark_jobs.conftest import SETTINGS

    parser = argparse.ArgumentParser(description="Measure one region.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--sites", type=int, default=size.sites)
    parser.add_argument("--alerts", type=int, default=size.alerts)
    parser.add_argument(
        "--last-only", action="store_true", help="run the jobs after the last day only: no first sights"
    )
    said = parser.parse_args()
    settings = {**SETTINGS, "spark.sql.warehouse.dir": f"{said.folder}/warehouse"}
    spark = open_session("evaluation", master="local[2]", settings=settings)
    size = Size(sites=said.sites, alerts=said.alerts)
    result = measure(spark, said.folder, said.seed, size, said.last_only, prepare(said.folder))
    (said.folder / "measured.json").write_text(json.dumps(result._asdict(), indent=1, default=str), "utf-8")
    sys.stdout.write(table([result]) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
