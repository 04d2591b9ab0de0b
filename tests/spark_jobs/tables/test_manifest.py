"""Tables that belong together: what a restore of some of them is met with, and what a kill leaves is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.jobs import ingest
from spark_jobs.tables import manifest, storage
from spark_jobs.tables.arrow import arrow_schema as columns_of
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.manifest import NAME, TOGETHER
from spark_jobs.tables.schema import AGENTS, ALERTS, CAMPAIGNS, DEAD_LETTERS, HEARTBEATS, SEQS, TABLES, WIN_5M, Table
from spark_jobs.tables.tables import Tables, open_tables
from tests.differences import walk
from tests.spark_jobs.conftest import JARS, run
from tests.spark_jobs.found import campaign, write
from tests.spark_jobs.landed import DAY, alert, land

pytestmark = pytest.mark.spark

OTHERS = (HEARTBEATS, AGENTS, SEQS, DEAD_LETTERS)
OF_INGEST = (*TOGETHER, *OTHERS)


class Backups(NamedTuple):
    """The tables of a landing as they were after its first half, and as they are."""

    landing: Path
    before: Path
    now: Path


@pytest.fixture(scope="module")
def backups(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Backups:
    """Those of ``whole``, and beside them a row of each half in the tables of ingest's other streams."""
    folder = tmp_path_factory.mktemp("backups")
    for half, name in enumerate(("before", "tables")):
        shutil.copytree(whole / name, folder / name)
        tables = open_tables(f"{folder}/{name}")
        with manifest.writing(tables, "status", OTHERS):
            for table in OTHERS:
                if half:
                    shutil.copytree(folder / "before" / table.name, folder / name / table.name)
                row = {"fleet": "north", "agent_id": f"agent-{half}", "date": DAY, "reason": "r"}
                known = {column: value for column, value in row.items() if column in table.names}
                tables.append(table, pa.Table.from_pylist([known]))
    return Backups(whole / "landing", folder / "before", folder / "tables")


def refusal(do: Callable[[], object]) -> str:
    """The line with which it is refused; empty when it is not."""
    try:
        do()
    except ValueError as error:
        return str(error)
    return ""


CASES = {
    "lost": ("now", "", "is lost"),
    "of another set": ("now", "other", "was created again"),
    "older": ("now", "before", "is older than the set"),
    "newer": ("before", "now", "is newer than the set"),
}
"""Of each the tables, where one of them comes from, and what is said of it."""


@walk(("table", "case"), [(table, case) for table in OF_INGEST for case in CASES])
def test_a_restore_of_some_tables_is_refused_by_name(
    spark: SparkSession, backups: Backups, tmp_path: Path, table: Table, case: str
) -> None:
    """Each table of ingest lost, of another set, and alone from an older backup; all but it from the older backup:
    report and ingest say which, where and what to do, in one line, and write nothing."""
    rest, origin, said = CASES[case]
    open_tables(f"{tmp_path}/other").append(table, columns_of(table.columns).empty_table())
    folders, tables = {**backups._asdict(), "other": tmp_path / "other"}, tmp_path / "tables"
    shutil.copytree(folders[rest], tables, ignore=lambda _, names: {table.name} & set(names))
    if origin:
        shutil.copytree(folders[origin] / table.name, tables / table.name)
    line = refusal(lambda: run(None, "report", f"--tables={tables}"))
    if case == "newer" and table not in TOGETHER:  # its rows are known, or merged, when they come again
        assert line == ""
        return
    assert line.startswith(f"{tables}: {table.name} {said}")
    landed = case == "newer" or table not in TOGETHER[1:]
    assert line.endswith(f"vedette-spark reconcile --tables {tables}" + (" --landing DIR" if landed else ""))
    assert len(line.splitlines()) == 1
    listing = sorted(tables.rglob("*"))
    assert refusal(lambda: run(spark, "ingest", f"--landing={backups.landing}", f"--tables={tables}")) == line
    assert sorted(tables.rglob("*")) == listing


@pytest.mark.long
def test_a_restore_of_all_goes_on(spark: SparkSession, backups: Backups, tmp_path: Path) -> None:
    """Tables, checkpoints and all from one backup are no matter, and what landed since comes in once."""
    shutil.copytree(backups.before, tmp_path / "tables")
    said = run(spark, "ingest", f"--landing={backups.landing}", f"--tables={tmp_path}/tables")
    assert "alerts: 1 file, 11 rows: 11 new, 0 duplicates" in said
    assert sum(open_tables(f"{tmp_path}/tables").arrow(WIN_5M, ["alerts"])["alerts"].to_pylist()) == 20


@pytest.mark.parametrize("older", ["tables", pytest.param("checkpoints", marks=pytest.mark.long)])
def test_checkpoints_of_another_time_are_refused(
    spark: SparkSession, backups: Backups, tmp_path: Path, older: str
) -> None:
    """Tables restored without the checkpoints, and these without the tables: the batch that comes is not the one after
    the last, and is not taken; without the checkpoints all is read again."""
    bases = (backups.before, backups.now) if older == "tables" else (backups.now, backups.before)
    shutil.copytree(bases[0], tmp_path / "tables", ignore=shutil.ignore_patterns("_checkpoints"))
    shutil.copytree(bases[1] / "_checkpoints", tmp_path / "tables" / "_checkpoints")
    shutil.copytree(backups.landing, tmp_path / "landing")
    words = ("ingest", f"--landing={tmp_path}/landing", f"--tables={tmp_path}/tables")
    land(tmp_path / "landing", [alert(50)])
    with pytest.raises(ValueError, match=r"_checkpoints/alerts: .*of another time; .*delete this folder"):
        run(spark, *words)
    shutil.rmtree(tmp_path / "tables" / "_checkpoints")
    run(spark, *words)
    alerts = open_tables(f"{tmp_path}/tables").arrow(ALERTS, ["alert_id"])["alert_id"].to_pylist()
    assert sorted(alerts) == sorted(alert(n)["alert_id"] for n in (*range(20), 50, 90, 91))


@pytest.mark.long
def test_a_batch_cut_short_whose_checkpoint_is_gone_is_refused(
    spark: SparkSession, backups: Backups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its alerts are known to whoever reads them again, and would never be counted; reconcile counts them."""
    shutil.copytree(backups.now, tmp_path / "tables")
    shutil.copytree(backups.landing, tmp_path / "landing")
    tables = open_tables(f"{tmp_path}/tables")
    words = (f"--landing={tmp_path}/landing", f"--tables={tables.root}")
    land(tmp_path / "landing", [alert(50)])

    def cut_short(*_: object) -> bool:
        raise RuntimeError("cut short")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTables, "upsert", cut_short)
        with pytest.raises(RuntimeError, match="cut short"):
            run(spark, "ingest", *words)
    shutil.rmtree(f"{tables.root}/_checkpoints")
    with pytest.raises(ValueError, match=r"a batch of alerts was cut short .*vedette-spark reconcile"):
        run(spark, "ingest", *words)
    run(spark, "reconcile", *words)
    assert sum(tables.arrow(WIN_5M, ["alerts"])["alerts"].to_pylist()) == 21
    assert run(spark, "ingest", *words) == "ingest: nothing new"


def test_without_a_note_all_or_none_must_be_there(backups: Backups, tmp_path: Path) -> None:
    """Where the note went with a table, ingest misses the table all the same; whole tables without one are taken."""
    shutil.copytree(backups.now, tmp_path / "tables")
    (tmp_path / "tables" / NAME).unlink()
    tables = open_tables(str(tmp_path / "tables"))
    manifest.check(tables, whole=True)
    shutil.rmtree(tables.path(ALERTS))
    assert "alerts is lost; " in refusal(lambda: manifest.check(tables, whole=True))
    manifest.check(open_tables(str(tmp_path / "fresh")), whole=True)


def test_a_damaged_note_is_said(backups: Backups, tmp_path: Path) -> None:
    """With its path, and what to do."""
    shutil.copytree(backups.now, tmp_path / "tables")
    for content in ("{", "[]", '{"tables": {"alerts": 3}}', '{"tables": {}, "more": 1}'):
        (tmp_path / "tables" / NAME).write_text(content)
        said = refusal(lambda: run(None, "report", f"--tables={tmp_path}/tables"))
        assert f"{NAME}: cannot be read" in said
        assert "vedette-spark reconcile" in said


def test_what_a_writer_has_begun_is_no_damage(backups: Backups, tmp_path: Path) -> None:
    """While a batch is written, and after a kill in it, tables are newer than noted; a lost one is missed even then."""
    shutil.copytree(backups.now, tmp_path / "tables")
    tables = open_tables(str(tmp_path / "tables"))
    writer = manifest.writing(tables, "alerts", TOGETHER)
    writer.__enter__()
    _touch(tables, WIN_5M)
    manifest.check(tables)
    with manifest.writing(tables, "maintain", TOGETHER):
        _touch(tables, ALERTS)
    assert manifest.read(tables.root).writers == ["alerts"]
    with manifest.writing(tables, "alerts", TOGETHER):
        pass
    assert manifest.read(tables.root).writers == []
    manifest.check(tables)
    _touch(tables, ALERTS)
    assert "alerts is newer than the set" in refusal(lambda: manifest.check(tables))
    manifest.check(tables, newer=False)
    with pytest.raises(ValueError, match="win_5m is lost"), manifest.writing(tables, "alerts", TOGETHER):
        shutil.rmtree(tables.path(WIN_5M))


def _touch(tables: Tables, table: Table) -> None:
    """A version more of the same rows."""
    tables.replace(table, tables.arrow(table), None)


def test_upkeep_is_no_loss(spark: SparkSession, backups: Backups, tmp_path: Path) -> None:
    """Compaction, retention and vacuum make new versions, and fewer rows: noted, with the days dropped, and with the
    tables of all other jobs, of which a lost one is missed from then on."""
    shutil.copytree(backups.now, tmp_path / "tables")
    tables = open_tables(str(tmp_path / "tables"))
    write(tables, CAMPAIGNS, campaign(1))
    words = ("--keep=alerts=1", "--keep=host_1h=1", "--vacuum-hours=1", "--date=2026-11-25")
    run(spark, "maintain", f"--tables={tables.root}", *words)
    assert tables.arrow(ALERTS).num_rows == 0
    assert manifest.read(tables.root).dropped == {"alerts": "2026-11-21", "host_1h": "2026-11-21"}
    assert run(spark, "ingest", f"--landing={backups.landing}", f"--tables={tables.root}") == "ingest: nothing new"
    shutil.rmtree(tables.path(CAMPAIGNS))
    assert "campaigns is lost (1 rows are noted)" in refusal(lambda: run(None, "report", f"--tables={tables.root}"))


def _append(tables: Tables, *names: Table) -> None:
    """A version more of each table, without rows."""
    for table in names:
        tables.append(table, columns_of(table.columns).empty_table())


def test_the_last_day_dropped_stays_the_last(tmp_path: Path) -> None:
    """Where retention meets older days that came late, the newer one noted stays."""
    for day in ("2026-11-20", "2025-03-01"):
        manifest.dropping(str(tmp_path), "win_5m", day)
    assert manifest.read(str(tmp_path)).dropped == {"win_5m": "2026-11-20"}


def test_no_version_is_noted_that_may_not_be_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that another writer commits while the disk is synced is its own to note."""
    tables = open_tables(str(tmp_path))
    _append(tables, SEQS)
    synced = tables.state(SEQS)
    monkeypatch.setattr(storage, "settle", lambda _: _append(tables, SEQS))
    with manifest.writing(tables, "maintain", (SEQS,)):
        pass
    assert manifest.read(tables.root).tables["seqs"] == synced
    assert tables.state(SEQS) != synced, "the disk was not synced"


def test_reconcile_knows_what_was_lost_until_it_is_done(tmp_path: Path) -> None:
    """Cut short it misses the tables that are not back; its own streams may begin them anew, and at its end the note
    is of those that are there."""
    tables = open_tables(str(tmp_path))
    with manifest.writing(tables, "alerts", (ALERTS, SEQS)) as noted:
        _append(tables, ALERTS, SEQS)
        noted.batches["query"] = manifest.Done(1, "plan")
    for table in (ALERTS, SEQS):
        shutil.rmtree(tables.path(table))
    manifest.begin_again(tables.root)
    again = manifest.read(tables.root)
    assert ({*again.tables}, again.writers, again.batches) == ({"alerts", "seqs"}, [manifest.RECONCILE], {})
    with manifest.writing(tables, "alerts", (ALERTS,)):
        _append(tables, ALERTS)
    assert [problem.table for problem in manifest.problems(tables, manifest.read(tables.root), True)] == [SEQS]
    with manifest.writing(tables, manifest.RECONCILE, TABLES.values()):
        pass
    done = manifest.read(tables.root)
    assert (done.writers, done.tables) == ([], {"alerts": tables.state(ALERTS)})


def test_a_note_of_no_table_is_none(tmp_path: Path) -> None:
    """One of days dropped, or of a reconcile, alone does not hide a loss; the tables of a first batch that was cut
    short are no loss."""
    tables = open_tables(str(tmp_path))
    _append(tables, WIN_5M)
    for note in (manifest.Manifest(dropped={"alerts": "2026-11-20"}), manifest.Manifest(writers=[manifest.RECONCILE])):
        assert ALERTS in [problem.table for problem in manifest.problems(tables, note, whole=True)]
    assert manifest.problems(tables, manifest.Manifest(writers=["alerts"]), whole=True) == []


@pytest.mark.long
@pytest.mark.skipif(not JARS, reason="no Delta for Spark: make jars")
def test_both_backends_read_one_note(spark: SparkSession, backups: Backups, tmp_path: Path) -> None:
    """What deltalake has noted Spark finds as it is, and the other way round."""
    shutil.copytree(backups.now, tmp_path / "tables")
    shutil.copytree(backups.landing, tmp_path / "landing")
    mine, other = (open_tables(f"{tmp_path}/tables", name, spark=spark) for name in ("delta", "delta-spark"))
    assert list(map(mine.state, OF_INGEST)) == list(map(other.state, OF_INGEST))
    land(tmp_path / "landing", [alert(50)])
    sources = ingest.landing_sources(f"{tmp_path}/landing")
    ingest.take_over(spark, other, sources)
    manifest.check(mine)
    noted = json.loads((tmp_path / "tables" / NAME).read_text())
    assert (noted["writers"], noted["tables"]["alerts"]["rows"]) == ([], 23)
    shutil.rmtree(tmp_path / "tables" / "win_5m")
    assert "win_5m is lost" in refusal(lambda: manifest.check(other))
