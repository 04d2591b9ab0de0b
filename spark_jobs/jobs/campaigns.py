"""The job ``campaigns``: the same entities at many sites, along the tactics of an attack; and everyone's sessions.

**A campaign** is a run of one entity's activity, without a gap of ``GAP``, of what is not usual for it
(``entities``), for which there is enough evidence and which is no decoy (``weight``). Entities whose alerts are
largely the same (``merging``) are one campaign: it names all of them, and goes by the one with most evidence.

**Decoys** also are entities that the lookup ``intel`` knows as one's own by their threat (``OWN``). They are written
closed, with score 0 and what they are held back as; so is a campaign that turns out to be one. A campaign for which
there is no evidence any more is withdrawn: closed, with score 0 and a reason.

**A campaign keeps its id** and its date while it grows, when late alerts let it begin earlier, and when entities join
it. Two that turn out to be one go on under the id of the earlier; the other is closed and says so. Runs of this job
over the same tables give the same rows, so a run that was cut short is simply done again; but for an open campaign near
the first day looked at: the next run looks further back for its sake, and may see more.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, TypeAlias

import click
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.common import entities
from spark_jobs.common.entities import LEVELS, MAX_DAYS, MIN_HISTORY, QUIET_DAYS, WHO, Usual
from spark_jobs.common.islands import identity, runs
from spark_jobs.common.materialised import materialised
from spark_jobs.common.period import Period, period
from spark_jobs.common.plain import many
from spark_jobs.findings import merging, moves, sessions
from spark_jobs.findings.weight import Way, decoy, held_as, held_back, weighed, withheld
from spark_jobs.intake.enrich import Lookups
from spark_jobs.intake.own import EXERCISE, OWN, threats_of
from spark_jobs.jobs.job import SPAN, Job, days_options, lookups_option, spark_job
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import ALERTS, CAMPAIGNS, ENTITY_SITE_5M, RULES
from spark_jobs.tables.tables import Tables

log = logging.getLogger(__name__)

DAYS = 14
"""Days looked at: enough to tell what comes back every working day from what does not."""

GAP = timedelta(days=1)
"""A campaign that pauses for a night goes on; one that is back after a whole day of silence is another."""

JUMP = 20
"""So many campaigns that are new in one run, and more than those that go on, are no attacks: something in the tables,
such as the days kept or who sends at all, is not what it was."""

_RUN = [*WHO, "run"]
_LISTS = ("sites", "rules", "tactics", "techniques")

Row: TypeAlias = dict[str, Any]


@spark_job()
@days_options(DAYS, "Days looked at.", most=MAX_DAYS)
@click.option("--session-days", type=SPAN, default=2, show_default=True, help="Last days, whose sessions are written.")
@lookups_option("Folder with the lookup intel.")
def campaigns(job: Job, last: date, days: int, session_days: int, lookups: Lookups | None) -> str:
    """Find entities at many sites, and sessions.

    Example: vedette-spark campaigns --tables tables --lookups lookups
    """
    if session_days > days:
        raise click.UsageError(f"--session-days: at most the {days} of --days, not {session_days}")
    wanted = period(last, days)
    return write(job.spark, job.tables, wanted, lookups, wanted.days[-session_days:])


def write(
    spark: SparkSession,
    tables: Tables,
    wanted: Period,
    lookups: Lookups | None = None,
    session_days: Sequence[str] = (),
) -> str:
    """Write the campaigns of ``wanted`` and the sessions that begin on ``session_days``; how many of each."""
    furthest = wanted.from_day(wanted.last - timedelta(days=MAX_DAYS - 1))
    recent = (F.col("state") == "open") | (F.col("last_seen") >= F.lit(furthest.start))
    before = tables.frame(spark, CAMPAIGNS).where(recent).toArrow().to_pylist()
    asked, wanted = wanted, _from_open_campaigns(before, wanted, furthest)
    there = wanted.among(tables.partitions(ENTITY_SITE_5M))
    early = min([wanted.since, *(sessions.day_before(day) for day in session_days)])
    every = tables.frame(spark, ENTITY_SITE_5M, early, wanted.until).withColumn("scope", entities.scope())
    rules = tables.frame(spark, RULES)
    here = every.where(F.col("date") >= wanted.since)
    if wanted.first < asked.first:
        here = here.join(F.broadcast(_going_on(spark, before)), ["kind", "value"], "left").fillna({"whole": False})
    usual = entities.usual(here, wanted.first, there, asked.first)
    if wanted.first < asked.first:
        here = here.where(F.col("whole") | (F.col("date") >= asked.since)).drop("whole")
    if usual.days < MIN_HISTORY:
        log.warning(
            "only %d days have alerts: below %d new entities cannot be distinguished from usual ones",
            usual.days,
            MIN_HISTORY,
        )
    seen = moves.telling(materialised(suspects(here, usual)), min(usual.days, len(asked.days)))
    each = find(spark, tables, seen, lookups, wanted.now)
    ways = [withheld(way, what) if (what := way["held"] or decoy(way)) else weighed(way) for way in each]
    text = _write(tables, named(ways, before, wanted, asked), before, wanted)
    if held := Counter(way["held"] for way in ways if way["held"]):
        text += f"; held back: {held_back(held)}"
    if session_days:
        text += f"; {sessions.write(tables, usual.left(every), rules, session_days, wanted.now)}"
    return text


def _from_open_campaigns(before: Iterable[Row], wanted: Period, furthest: Period) -> Period:
    """``wanted`` from early enough to see open campaigns whole, and that they were not there before; as far back as
    one look can span. What ended before that cannot go on in it: ``paused`` closes it unseen."""
    begins = [
        row["first_seen"] for row in before if row["state"] == "open" and row["last_seen"] + GAP >= furthest.start
    ]
    if not begins:
        return wanted
    begin = min(begins).date() - timedelta(days=QUIET_DAYS)
    return wanted.from_day(max(min(begin, wanted.first), furthest.first))


def _going_on(spark: SparkSession, before: Iterable[Row]) -> DataFrame:
    """The entities of open campaigns, whose rows are looked at ``whole``: what others have become used to is judged by
    the days that were asked for, however long an attack goes on."""
    those = {who for row in before if row["state"] == "open" for who in _names(row)}
    return spark.createDataFrame([(*who, True) for who in sorted(those)], "kind STRING, value STRING, whole BOOLEAN")


def _write(tables: Tables, rows: Sequence[Row], before: Sequence[Row], wanted: Period) -> str:
    """Write ``rows`` and the ends of those ``before`` that have paused; how many of each."""
    written, earlier = {row["campaign_id"] for row in rows}, {row["campaign_id"] for row in before if row["score"] > 0}
    left = paused([row for row in before if row["campaign_id"] not in written], wanted)
    first = not tables.exists(CAMPAIGNS)
    tables.upsert(CAMPAIGNS, pa.Table.from_pylist([*rows, *left], arrow_schema(CAMPAIGNS.columns)))
    meant = [row for row in rows if row["score"] > 0 or row["campaign_id"] in earlier]
    said = Counter(row["state"] if row["score"] > 0 else "ended" for row in meant)
    text = f"{many(said['open'], 'open campaign')}, {said['closed'] + len(left):,} closed"
    text += f", {said['ended']} withdrawn" if said["ended"] else ""
    new = sum(row["state"] == "open" and row["campaign_id"] not in earlier for row in rows)
    if first or new < max(JUMP, len(written & earlier)):
        return text
    log.warning("%d campaigns are new since the last run: something in the tables is not what it was", new)
    return f"{text}; {new:,} new since the last run: has the history changed?"


def suspects(rows: DataFrame, usual: Usual) -> DataFrame:
    """The ``rows`` that are not ``usual``, of entities that have it at ``MIN_SITES`` or more sites, with the number of
    their run."""
    some = usual.left(rows, usual.at_sites(moves.MIN_SITES))
    return runs(some, WHO, int(GAP.total_seconds()), "first_time", "last_time")


def find(spark: SparkSession, tables: Tables, seen: DataFrame, lookups: Lookups | None, now: datetime) -> list[Way]:
    """The ways of ``suspects`` for which there is evidence at ``now``, those of one attack as one; each with which of
    ``OWN`` it is, as ``held``."""
    rules = tables.frame(spark, RULES)
    key = identity(*map(F.col, WHO), F.col("run").cast("string"))
    alone = moves.find(seen, rules, _RUN, now).where(F.col("evidence") >= moves.MIN_EVIDENCE)
    suspected = materialised(alone.withColumn("member", key))
    threats = {} if lookups is None else threats_of(spark, suspected, lookups)
    ways, own = {}, []
    for way in suspected.toArrow().to_pylist():
        mine = threats.get(way["member"], frozenset()) & OWN
        held = EXERCISE if EXERCISE in mine else min(mine, default="")
        who = {name: way[name] for name in ("kind", "value", "alerts", "tactics")}
        whole = {**way, "entities": [who], "held": held}
        if held in ("", EXERCISE):
            ways[way["member"]] = whole
        else:
            own.append(whole)
    if len(ways) > 1:
        span = min(way["first_seen"] for way in ways.values()), max(way["last_seen"] for way in ways.values())
        links = merging.links(suspected, tables.frame(spark, ALERTS, near={"counted_at": [span]}))
        if pairs := [pair for pair in links if pair[0] in ways and pair[1] in ways]:
            _merge(spark, ways, seen, rules, merging.groups(pairs), now)
    return [*own, *ways.values()]


def _merge(
    spark: SparkSession, ways: dict[str, Way], seen: DataFrame, rules: DataFrame, groups: Mapping[str, str],
    now: datetime,
) -> None:  # fmt: skip
    """Put one way in the place of those of each of ``groups``. What several entities have at a site, by a rule, in 5
    minutes, is taken for the same alerts: the most that one of them has is counted."""
    whose = [(*(ways[member][name] for name in _RUN), group) for member, group in sorted(groups.items())]
    said = spark.createDataFrame(whose, "kind STRING, value STRING, scope STRING, run LONG, group STRING")
    cells = (
        seen.join(F.broadcast(said), _RUN)
        .groupBy("group", "fleet", "site", "rule_id", "window_start")
        .agg(
            F.max_by("level", F.array_position(F.array(*map(F.lit, LEVELS)), F.col("level"))).alias("level"),
            F.max("alerts").alias("alerts"),
            F.max("matches").alias("matches"),
            F.min("first_time").alias("first_time"),
            F.max("last_time").alias("last_time"),
            F.bool_or("telling").alias("telling"),
        )
    )
    whole = {way["group"]: way for way in moves.find(cells, rules, ["group"], now).toArrow().to_pylist()}
    for group, way in sorted(whole.items()):
        mine = [ways.pop(member) for member, of in sorted(groups.items()) if of == group]
        mine.sort(key=lambda way: (-way["evidence"], -way["alerts"], way["kind"], way["value"]))
        names = {name: mine[0][name] for name in _RUN}
        every = [entity for each in mine for entity in each["entities"]]
        held = max(way["held"] for way in mine)
        ways[group] = {**way, **names, "member": group, "entities": every, "held": held}


def named(ways: Sequence[Way], earlier: Sequence[Row], wanted: Period, asked: Period) -> list[Row]:
    """Rows of ``CAMPAIGNS`` for an upsert: ``ways`` under the ids that ``earlier`` has for them, and the ends of
    those in ``earlier`` that are no campaigns any more.

    Of a campaign that began before ``wanted``, or is closed and began before ``asked``, what was known about that time
    stays.
    """

    def whole(row: Row) -> bool:
        return bool(row["first_seen"] >= (wanted if row["state"] == "open" else asked).start)

    old = [row for row in earlier if row["last_seen"] >= wanted.start and (row["score"] > 0 or held_as(row["reason"]))]
    by_entity: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in sorted(old, key=lambda row: (row["first_seen"], row["campaign_id"])):
        for who in _names(row):
            by_entity[who].append(row)
    successors: dict[str, str] = {}
    rows = []
    for way in sorted(ways, key=lambda way: (way["first_seen"], way["kind"], way["value"])):
        near = [
            row for who in _names(way) for row in by_entity[who]
            if row["last_seen"] + GAP >= way["first_seen"] and row["first_seen"] - GAP <= way["last_seen"]
        ]  # fmt: skip
        before = min(near, key=lambda row: (row["first_seen"], row["campaign_id"]), default=None)
        if before is not None and before["campaign_id"] in successors:
            before = None
        row = _row(way, before, wanted, before is None or whole(before))
        successors[row["campaign_id"]] = row["campaign_id"]
        for other in near:
            successors.setdefault(other["campaign_id"], row["campaign_id"])
        rows.append(row)
    mine = {row["campaign_id"] for row in rows}
    for row in old:
        if row["campaign_id"] not in mine and row["score"] > 0 and whole(row):
            into = successors.get(row["campaign_id"])
            reason = f"merged into campaign {into}" if into else "withdrawn: usual by now, your own, or too weak"
            rows.append({**row, "state": "closed", "score": 0.0, "reason": reason, "updated_at": wanted.now})
    return rows


def _row(way: Way, before: Row | None, wanted: Period, whole: bool) -> Row:
    """The row of ``way``, which goes on from ``before``, of which all has been seen again if it is ``whole``."""
    begin = str(round(way["first_seen"].timestamp() * 1e6))
    key = json.dumps([way["kind"], way["value"], begin], separators=(",", ":"))
    row = {
        **way,
        "campaign_id": before["campaign_id"] if before else hashlib.sha256(key.encode()).hexdigest()[:32],
        "date": before["date"] if before else f"{way['first_seen']:%Y-%m-%d}",
        "state": "open" if way["last_seen"] + GAP >= wanted.now and not way["held"] else "closed",
        "updated_at": wanted.now,
    }
    if before and not whole:
        row |= {name: list(dict.fromkeys([*(before[name] or ()), *way[name]])) for name in _LISTS}
        row |= {name: max(before[name], way[name]) for name in ("alerts", "matches")}
        gone = [entity for entity in before["entities"] or () if (entity["kind"], entity["value"]) not in _names(way)]
        row["entities"] = [*way["entities"], *gone]
    return {name: row[name] for name in CAMPAIGNS.names}


def _names(row: Row) -> list[tuple[str, str]]:
    """The entities of a row."""
    return [(entity["kind"], entity["value"]) for entity in row["entities"] or ()]


def paused(rows: Iterable[Row], wanted: Period) -> list[Row]:
    """The ends of those ``rows`` that are open and were last seen longer ago than ``GAP``: what began before
    the days looked at, or before any that can be."""
    left = (row for row in rows if row["state"] == "open" and row["last_seen"] + GAP < wanted.now)
    return [{**row, "state": "closed", "updated_at": wanted.now} for row in left]
