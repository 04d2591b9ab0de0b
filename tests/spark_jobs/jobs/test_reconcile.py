"""Tables one set again: counts from alerts, alerts from what has landed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
from pyspark.sql import SparkSession

from spark_jobs.intake.counts import COUNTS
from spark_jobs.jobs import reconcile
from spark_jobs.jobs.all import NAMES
from spark_jobs.tables import manifest
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.manifest import TOGETHER
from spark_jobs.tables.schema import ALERTS, RULES, WIN_5M
from spark_jobs.tables.tables import Tables, open_tables
from tests.differences import walk
from tests.spark_jobs.conftest import ingest_alerts, run
from tests.spark_jobs.landed import NOON, alert, land

pytestmark = pytest.mark.spark


OF_COUNTS = [table.name for table in (*COUNTS, RULES)]


class Killed(BaseException):
    """Stands for the end of the process."""


def content(tables: Tables, but: str = "batch") -> dict[str, list[str]]:
    """All rows, but for the names of the batches that brought them, and the column ``but``."""
    rows = {table.name: tables.arrow(table).to_pylist() for table in TOGETHER}
    return {name: sorted(repr({**row, "batch": "", but: ""}) for row in of_table) for name, of_table in rows.items()}


def damage(folder: Path, whole: Path, way: str) -> None:
    """Tables in ``folder`` as ``way`` has it: names that are lost, or ``-name`` and ``+name``, from the older backup or
    into it."""
    shutil.copytree(whole / ("before" if way[0] == "+" else "tables"), folder)
    for name in way.lstrip("+-").split():
        shutil.rmtree(folder / name)
        if way[0] in "+-":
            shutil.copytree(whole / ("tables" if way[0] == "+" else "before") / name, folder / name.partition("/")[0])


def mended(spark: SparkSession, whole: Path, folder: Path, way: str) -> None:
    """What is damaged is refused, mended from alerts alone or with the landing, and then equals what was never."""
    damage(folder, whole, way)
    tables = open_tables(str(folder))
    with pytest.raises(ValueError, match=f"vedette-spark reconcile --tables {folder}"):
        run(spark, "report", f"--tables={folder}")
    words = ["reconcile", f"--tables={folder}"]
    if way.startswith("+") or "alerts" in way:
        with pytest.raises(ValueError, match=r"name --landing DIR"):
            run(spark, *words)
        words.append(f"--landing={whole}/landing")
    assert run(spark, *words).endswith("counts of 2 days rebuilt")
    assert content(tables) == content(open_tables(f"{whole}/tables"))
    assert "counts agree with alerts" in run(spark, "report", f"--tables={folder}", "--date=2026-11-21", "--days=2")
    assert run(spark, "ingest", f"--landing={whole}/landing", f"--tables={folder}") == "ingest: nothing new"


def test_every_day_that_is_kept_is_checked(spark: SparkSession, whole: Path, tmp_path: Path) -> None:
    """Counts that differ fail the check, with the day and by how much, and the report says so, of whatever days it is;
    a day whose counts are known to say more is none of these."""
    shutil.copytree(whole / "tables", tmp_path / "tables")
    words, tables = ["reconcile", f"--tables={tmp_path}/tables", "--check"], open_tables(f"{tmp_path}/tables")
    assert run(spark, *words) == "reconcile: counts of 2 days agree with alerts"
    tables.drop(WIN_5M, ["2026-11-20"])
    wrong = r"COUNTS DIFFER from alerts on 1 day of 2 \(2026-11-20: 10 alerts, 0 counted, 15 matches, 0 counted\)"
    (tmp_path / "tables" / manifest.NAME).unlink()
    with pytest.raises(click.ClickException, match=f"^{wrong}$"):
        run(spark, *words)
    skipped = [f"--skip={name}" for name in NAMES if name not in ("reconcile", "report")]
    with pytest.raises(click.ClickException, match=f"^1 of 2 jobs failed: reconcile: {wrong}$"):
        run(spark, "all", f"--tables={tmp_path}/tables", *skipped)
    assert re.search(f"^Vedette report, .*: {wrong}", run(spark, "report", f"--tables={tmp_path}/tables"))
    manifest.freeze(str(tmp_path / "tables"), ["2026-11-20"])
    assert run(spark, *words) == "reconcile: counts of 1 day agree with alerts"


def test_what_was_lost_is_made_again(spark: SparkSession, whole: Path, tmp_path: Path) -> None:
    """Alerts, with the checkpoints, from the landing, and counts from alerts."""
    mended(spark, whole, tmp_path / "tables", "alerts _checkpoints win_5m")


WAYS = (
    "win_5m", "alerts _checkpoints", "alerts/_delta_log", "rules", "entity_site_5m host_1h", "win_5m rules",
    *(f"{sign}{table.name}" for sign in "-+" for table in TOGETHER),
)  # fmt: skip


@pytest.mark.long
@walk("way", WAYS)
def test_whatever_of_them_was_lost_or_restored(spark: SparkSession, whole: Path, tmp_path: Path, way: str) -> None:
    """Each table alone from an older backup, and all but it; without its log; several at once."""
    mended(spark, whole, tmp_path / "tables", way)


@pytest.mark.long
def test_doubled_counts_are_single_again(spark: SparkSession, whole: Path, tmp_path: Path) -> None:
    """Alerts taken a second time behind the note's back doubled all counts, and upkeep those of ``rules`` for ever: the
    first line of the report says so, and both jobs make them right."""
    shutil.copytree(whole / "tables", tmp_path / "tables")
    tables = open_tables(f"{tmp_path}/tables")
    shutil.rmtree(tables.path(ALERTS))
    shutil.rmtree(f"{tables.root}/_checkpoints")
    (tmp_path / "tables" / manifest.NAME).unlink()
    ingest_alerts(spark, tables, whole / "landing")
    assert sum(tables.arrow(RULES, ["alerts"])["alerts"].to_pylist()) == 40
    days = (f"--tables={tables.root}", "--date=2026-11-21", "--days=2")
    said = run(spark, "report", *days).splitlines()[0]
    assert "COUNTS DIFFER from alerts on 2 days (2026-11-20: 10 alerts, 20 counted)" in said
    shutil.copytree(tables.root, tmp_path / "upkeep")
    assert "counts of 0 days rebuilt" in run(spark, "reconcile", f"--tables={tables.root}")
    assert "counts of 2 days rebuilt" in run(spark, "reconcile", f"--tables={tables.root}", "--lower")
    assert content(tables) == content(open_tables(f"{whole}/tables"))
    run(spark, "maintain", f"--tables={tmp_path}/upkeep", *days[1:])
    assert content(open_tables(f"{tmp_path}/upkeep")) == content(tables)


@pytest.mark.long
def test_a_landing_that_has_not_all(
    spark: SparkSession, whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of alerts that were lost the landing has its last days alone: the counts of days of which it has some, or none,
    stay as they are, in upkeep as well, until it has all."""
    shutil.copytree(whole / "tables", tmp_path / "tables")
    tables = open_tables(f"{tmp_path}/tables")
    shutil.rmtree(tables.path(ALERTS))
    words = ["reconcile", f"--tables={tables.root}", f"--landing={tmp_path}/landing"]
    with pytest.raises(ValueError, match="holds no landed alerts"):
        run(spark, *words)
    assert manifest.read(tables.root) == manifest.read(f"{whole}/tables")
    times = {"event_time": NOON, "detected_at": NOON}
    land(tmp_path / "landing", [alert(0, rule_id="r0", tags=["attack.t1003"], **times)])
    assert "counts of 0 days rebuilt" in run(spark, *words)
    assert tables.arrow(ALERTS).num_rows == 1
    assert manifest.read(tables.root).frozen == ["2026-11-20", "2026-11-21"]
    counted, every = content(tables), content(open_tables(f"{whole}/tables"))
    assert {name: counted[name] for name in OF_COUNTS} == {name: every[name] for name in OF_COUNTS}
    run(spark, "maintain", f"--tables={tables.root}", "--date=2026-11-21", "--days=2")
    assert content(tables) == counted
    assert "counts of 2026-11-20 are kept: not all of the alerts" in caplog.text
    assert "counts of 2 days rebuilt" in run(spark, *words[:2], f"--landing={whole}/landing")
    assert (content(tables), manifest.read(tables.root).frozen) == (every, [])


@pytest.mark.long
def test_counts_outlive_alerts_that_have_expired(spark: SparkSession, whole: Path, tmp_path: Path) -> None:
    """Days that retention has dropped keep their counts, and days of which nobody has alerts; rules their texts. So
    when the landing still has their alerts. When these landed nobody knows any more: their first time stands for it."""
    shutil.copytree(whole / "tables", tmp_path / "tables")
    tables = open_tables(f"{tmp_path}/tables")
    before = content(tables, "first_landed")
    run(spark, "maintain", f"--tables={tables.root}", "--keep=alerts=1", "--date=2026-11-21", "--days=1")
    assert tables.partitions(ALERTS) == ["2026-11-21"]
    shutil.rmtree(tables.path(RULES))
    assert run(spark, "reconcile", f"--tables={tables.root}") == "reconcile: counts of 1 day rebuilt"
    for more in ([], [f"--landing={whole}/landing"]):
        run(spark, "reconcile", f"--tables={tables.root}", *more)
        after = content(tables, "first_landed")
        assert {name: after[name] for name in OF_COUNTS} == {name: before[name] for name in OF_COUNTS}
        assert any(row["first_landed"] == row["first_time"] for row in tables.arrow(RULES).to_pylist())
    assert tables.partitions(ALERTS) == ["2026-11-20", "2026-11-21"]


@pytest.mark.long
def test_cut_short_it_is_run_again(
    spark: SparkSession, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended between any two of its writes: all other jobs refuse the tables until it has run to its end."""
    damage(tmp_path / "tables", whole, "rules win_5m")
    tables, writes, replace = open_tables(f"{tmp_path}/tables"), iter(range(3)), DeltaTables.replace

    def die(self: DeltaTables, *arguments: Any) -> None:
        if next(writes, None) is None:
            raise Killed
        replace(self, *arguments)

    words = ("reconcile", f"--tables={tables.root}")
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTables, "replace", die)
        with pytest.raises(Killed):
            run(spark, *words)
    for job in (["report"], ["ingest", f"--landing={whole}/landing"], ["maintain", "--date=2026-11-21"]):
        with pytest.raises(ValueError, match="reconcile was interrupted"):
            run(spark, *job, f"--tables={tables.root}")
    run(spark, *words)
    assert content(tables) == content(open_tables(f"{whole}/tables"))


def test_cut_short_while_it_reads_it_reads_again(spark: SparkSession, whole: Path, tmp_path: Path) -> None:
    """What is still to be read would be counted by ingest, on top of what is: it asks for the source again."""
    shutil.copytree(whole / "tables", tmp_path / "tables")
    tables = open_tables(f"{tmp_path}/tables")
    manifest.begin_again(tables.root)
    with manifest.writing(tables, "alerts:query", (ALERTS,)) as noted:
        noted.batches["query"] = manifest.Done(0, "plan")
    with pytest.raises(ValueError, match=r"cut short while it read what has landed; name --landing"):
        run(spark, "reconcile", f"--tables={tables.root}")


@pytest.mark.long
def test_beside_an_interrupted_ingest_it_takes_the_landing(
    spark: SparkSession, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alerts of a batch whose counts are still to come would be counted twice: it asks for the landing, and with that
    both are right."""
    shutil.copytree(whole / "tables", tmp_path / "tables")
    shutil.copytree(whole / "landing", tmp_path / "landing")
    tables = open_tables(f"{tmp_path}/tables")
    land(tmp_path / "landing", [alert(50)])
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTables, "upsert", lambda *_: (_ for _ in ()).throw(RuntimeError("cut short")))
        with pytest.raises(RuntimeError, match="cut short"):
            ingest_alerts(spark, tables, tmp_path / "landing")
    words = ["reconcile", f"--tables={tables.root}"]
    with pytest.raises(ValueError, match=r"ingest was interrupted.*name --landing"):
        run(spark, *words)
    run(spark, *words, f"--landing={tmp_path}/landing")
    assert sum(tables.arrow(WIN_5M, ["alerts"])["alerts"].to_pylist()) == 21
    assert reconcile.recount(spark, tables) == ["2026-11-20", "2026-11-21"]
