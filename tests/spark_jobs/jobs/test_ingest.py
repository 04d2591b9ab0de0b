"""The streaming job on real Spark: what lands is in the tables once, whatever is done to the job or the files."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_jobs.intake import batch
from spark_jobs.intake.batch import Account
from spark_jobs.intake.enrich import Lookups
from spark_jobs.jobs import ingest
from spark_jobs.tables import manifest, storage
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import (
    AGENTS,
    ALERTS,
    DEAD_LETTERS,
    ENTITY_SITE_5M,
    HEARTBEATS,
    HOST_1H,
    RULES,
    SEQS,
    WIN_5M,
    Table,
)
from spark_jobs.tables.tables import Txn, open_tables
from tests.spark_jobs.conftest import Calm, content, ingest_alerts
from tests.spark_jobs.landed import ALERTS as LANDED
from tests.spark_jobs.landed import DAY, HOUR, MINUTE, NOON, alert, arrow_schema, land, place
from tests.waits import until
from vedette.delivery import envelope

pytestmark = pytest.mark.spark

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Region:
    """A landing, its tables, and the job over both."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.landing = spark, folder, folder / "landing"
        self.tables = open_tables(str(folder / "tables"))
        self.landing.mkdir(parents=True, exist_ok=True)

    def run(self, **settings: Any) -> Account:
        """Take over the alerts."""
        return ingest_alerts(self.spark, self.tables, self.landing, **settings)

    def run_all(self, **settings: Any) -> dict[str, Account]:
        """Take over alerts, heartbeats and dead letters."""
        sources = ingest.landing_sources(str(self.landing))
        done = ingest.take_over(self.spark, self.tables, sources, **settings)
        return {stream.name: stream.account for stream in done}

    def alerts(self) -> list[tuple[str, str]]:
        """Agent and id of each row of the alerts table, sorted; a doubled row is there twice."""
        rows = self.tables.arrow(ALERTS, ["agent_id", "alert_id"]).to_pylist()
        return sorted((row["agent_id"], row["alert_id"]) for row in rows)

    def windows(self) -> Counter[tuple[str, str, str]]:
        """Matches by window start, rule and site."""
        rows = self.tables.arrow(WIN_5M).to_pylist()
        return Counter({(f"{r['window_start']:%F %T}", r["rule_id"], r["site"]): r["matches"] for r in rows})

    def letters(self) -> list[dict[str, Any]]:
        letters: list[dict[str, Any]] = self.tables.arrow(DEAD_LETTERS).to_pylist()
        return letters


class Crash(Exception):
    """Stands for a failure at one point of a batch."""


@pytest.fixture
def region(spark: SparkSession, tmp_path: Path) -> Region:
    return Region(spark, tmp_path)


def keys(rows: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Agent and id of each different alert among ``rows``, sorted."""
    return sorted({(row["agent_id"], row["alert_id"]) for row in rows})


def test_tables_hold_each_alert_once_and_count_it_in_its_window(region: Region) -> None:
    """Two agents, doubles within a file and over files, a fold: the tables equal a count by hand. A copy that was
    received earlier and comes in a later batch changes nothing: neither row nor count."""
    rows = [
        *(alert(i, host=f"web{i % 3}", rule_id=f"r{i % 2}", event_time=NOON + i * MINUTE) for i in range(30)),
        *(alert(i, agent_id="agent-2", site="office") for i in range(5)),
        alert(100, kind="fold", parent_id="p", count=17, host="web0", rule_id="r0"),
    ]
    land(region.landing, [*rows[:20], *rows[5:10]])
    land(region.landing, [*rows[15:], rows[0]])

    account = region.run()

    assert (account.files, account.rows, account.new, account.duplicates) == (2, 47, 36, 11)
    assert region.alerts() == keys(rows)
    by_hand: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        start = datetime.fromtimestamp(row["event_time"] // (5 * MINUTE) * 300, UTC)
        by_hand[f"{start:%F %T}", row["rule_id"], row["site"]] += row["count"]
    assert region.windows() == by_hand
    for table in (WIN_5M, HOST_1H, ENTITY_SITE_5M, RULES):
        sums = region.tables.arrow(table, ["alerts", "matches"])
        assert (pc.sum(sums["alerts"]).as_py(), pc.sum(sums["matches"]).as_py()) == (35, 52), table.name
    assert region.run() == Account()
    before = region.tables.arrow(ALERTS), region.windows()
    land(region.landing, [alert(1, raw="received first", received_at=NOON - 5 * HOUR)])
    assert region.run().duplicates == 1
    assert (region.tables.arrow(ALERTS), region.windows()) == before


@pytest.mark.long
def test_a_copy_is_known_after_any_time_and_restart(region: Region, caplog: pytest.LogCaptureFixture) -> None:
    """An agent offline for days and resends weeks later add nothing, nor does a job that has lost its checkpoint."""
    old = [alert(i, detected_at=NOON - 5 * 24 * HOUR, received_at=NOON + i * HOUR) for i in range(4)]
    new = [alert(i) for i in range(10, 14)]
    land(region.landing, new)
    land(region.landing, old[:2])
    region.run(bytes_per_batch=1)
    land(region.landing, [{**row, "received_at": NOON + 30 * 24 * HOUR} for row in [*old, *new]])
    # Landed by another landing whose clock is behind, or copied in later: older than all that the job has seen.
    land(region.landing, [{**alert(20), "received_at": NOON - 9 * 24 * HOUR}])
    late = region.run()
    assert (late.new, late.duplicates) == (3, 6)

    shutil.rmtree(f"{region.tables.root}/_checkpoints")
    again = region.run()

    assert (again.rows, again.new) == (15, 0)
    assert region.alerts() == keys([*old, *new, alert(20)])
    assert sum(region.windows().values()) == 9


def test_bad_files_are_named_and_the_rest_goes_on(region: Region, caplog: pytest.LogCaptureFixture) -> None:
    """Empty, cut, garbled, foreign and wrongly typed files are said, recorded and passed over; good rows all arrive. A
    later version's extra column and an earlier one's missing column change nothing; a later version is said."""
    good = [alert(i, raw=f"{i} " + os.urandom(400).hex()) for i in range(40)]
    whole = land(region.landing, good[:10], name="a.parquet").read_bytes()
    place(region.landing, b"", at=AT, name="empty.parquet")
    place(region.landing, whole[: len(whole) // 2], at=AT, name="cut.parquet")
    place(region.landing, whole[:600] + bytes(600) + whole[1200:], at=AT, name="garbled.parquet")
    place(region.landing, b"not parquet at all", at=AT, name="text.parquet")
    place(region.landing, pa.table({"colour": ["red", "blue"]}), at=AT, name="foreign.parquet")
    place(region.landing, pa.table({"alert_id": [1, 2]}), at=AT, name="typed.parquet")
    place(region.landing, pa.Table.from_pylist([], LANDED), at=AT, name="no rows.parquet")
    place(region.landing, b"half a file", at=AT, name="b.parquet.tmp")
    land(region.landing, good[10:20], name="odd [1]{2}%20*.parquet")
    shutil.copy(land(region.landing, good[20:30], name="c.parquet"), region.landing / "alerts" / "unsorted.parquet")
    land(region.landing, [*good[30:], alert(99, agent_id=None)], name="d.parquet")

    later = pa.Table.from_pylist([alert(41, schema_version=2)], LANDED)
    later = later.append_column("mood", pa.array([{"deep": ["unknown"]}]))
    earlier = pa.Table.from_pylist([alert(42)], LANDED).drop_columns(["bundle", "flags", "count"])
    place(region.landing, later, at=AT)
    place(region.landing, earlier, at=AT)

    with caplog.at_level(logging.INFO, "spark_jobs"):
        account = region.run()

    assert region.alerts() == keys([*good, alert(41), alert(42)])
    assert (account.files, account.bad_files, account.unusable, account.new, account.duplicates) == (14, 5, 3, 42, 10)
    assert sum(region.windows().values()) == 42
    assert "schema version 2" in caplog.text
    bad = {Path(letter["source"]).name: letter for letter in region.letters()}
    assert {name: (letter["kind"], letter["rows"]) for name, letter in bad.items()} == {
        "empty.parquet": ("file", None),
        "cut.parquet": ("file", None),
        "garbled.parquet": ("file", None),
        "text.parquet": ("file", None),
        "typed.parquet": ("file", None),
        "foreign.parquet": ("row", 2),
        "d.parquet": ("row", 1),
    }
    assert bad["empty.parquet"]["reason"] == "is empty (0 bytes)"
    assert bad["text.parquet"]["reason"].startswith("is not a Parquet file")
    assert "alert_id" in bad["typed.parquet"]["reason"]
    assert json.loads(bad["d.parquet"]["payload"])["alert_id"] == alert(99)["alert_id"]
    assert "1 temporary files" in caplog.text
    for name, letter in bad.items():
        assert letter["kind"] == "row" or any(
            name in line and letter["reason"] in line for line in caplog.text.splitlines()
        ), name
    assert "3 rows without agent_id; kept in dead_letters" in caplog.text


@pytest.mark.long
def test_only_bad_files_are_no_failure(region: Region) -> None:
    """A landing of nothing but garbage and empty files ends well, with empty tables, and then with something good."""
    place(region.landing, b"garbage", at=AT)
    place(region.landing, b"", at=AT)
    assert region.run(bytes_per_batch=1) == Account(batches=2, files=2, bad_files=2)
    assert region.alerts() == []
    land(region.landing, [alert(1)])
    assert region.run().new == 1


def test_an_empty_landing_is_no_failure_and_none_is(region: Region) -> None:
    """Before anything has landed the job ends well; a landing that does not exist is said with its path."""
    assert region.run() == Account()
    (region.landing / "alerts").mkdir()
    assert region.run() == Account()
    shutil.rmtree(region.landing)
    with pytest.raises(FileNotFoundError, match="landing: no such landing folder"):
        region.run()


@pytest.mark.long
def test_an_absurd_event_time_is_counted_when_it_landed(region: Region) -> None:
    """Years 1, 1970, 2099 and 9999, which an agent can send, neither stop the job nor make partitions of their own."""
    first, last, soon = -62_135_596_800_000_000 + HOUR, 253_402_300_799_999_999, 4_070_908_800_000_000
    odd = [alert(n, event_time=at) for n, at in enumerate((first, last, 0, soon), 1)]
    land(region.landing, [*odd, alert(5), alert(6, event_time=last + 1)])
    account = region.run()
    assert (account.new, account.odd_times, account.unusable) == (5, 4, 1)
    assert [letter["reason"] for letter in region.letters()] == ["event_time is outside the years 1 to 9999"]
    assert region.tables.partitions(WIN_5M) == [DAY]
    land(region.landing, [alert(1, event_time=first), alert(2, event_time=last)])
    assert region.run().duplicates == 2


@pytest.mark.long
def test_a_batch_of_any_size_is_written_in_parts(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than the driver takes at a time are written part by part; failed between two of them and started again,
    every alert is there once, and so are copies within the batch."""
    rows = [alert(n) for n in range(40)]
    land(region.landing, [*rows, *rows[:10]])
    monkeypatch.setattr(batch, "PART_ROWS", 20)
    append, failed = DeltaTables.append, []

    def fail_once(self: DeltaTables, table: Table, rows: Any, txn: Txn | None = None) -> bool:
        if table is ALERTS and txn is not None and txn.version == 1 and not failed:
            failed.append(txn)
            raise Crash
        return append(self, table, rows, txn)

    monkeypatch.setattr(DeltaTables, "append", fail_once)
    with pytest.raises(Crash):
        region.run()
    assert 0 < len(region.alerts()) < 40
    account = region.run()
    assert (account.new, account.duplicates) == (40, 10)
    assert region.alerts() == keys(rows)
    assert sum(region.windows().values()) == 40


@pytest.mark.long
def test_a_failing_disk_is_no_bad_file(region: Region) -> None:
    """When the tables cannot be written the job fails, and takes the same files over once they can."""
    land(region.landing, [alert(1)])
    blocked = Path(region.tables.path(ALERTS))
    blocked.parent.mkdir(parents=True)
    blocked.write_text("in the way")
    with pytest.raises(Exception, match="alerts"):
        region.run()
    blocked.unlink()
    assert region.run().new == 1
    assert region.letters() == []


def test_a_second_ingest_is_refused(region: Region) -> None:
    """Two of them on one set of tables would double rows: the second ends with the reason."""
    with (
        storage.one_writer(region.tables.root, "ingest"),
        pytest.raises(BlockingIOError, match="another ingest is writing"),
    ):
        region.run()


def test_heartbeats_and_dead_letters_are_taken_over(region: Region) -> None:
    """Every heartbeat is kept, each agent has its newest account, what the landing could not read keeps its bytes; one
    that names no agent is a dead letter; all once."""
    status, bad = arrow_schema(envelope.STATUS), arrow_schema(envelope.DEAD_LETTER)

    def beat(agent: str, minute: int, **said: Any) -> dict[str, Any]:
        said = {"state": "running", "inputs": {"syslog": {"received": 7, "dropped": {"kernel": 2}}}, **said}
        about = {"fleet": "north", "agent_id": agent, "collector_id": "c", "topic": "t"}
        return envelope.status_row(json.dumps(said).encode(), received_at=NOON + minute * MINUTE, **about)

    land(
        region.landing,
        [beat("a", 0), beat("a", 1, state="lost", inputs={}), beat("b", 0)],
        table="status",
        schema=status,
    )
    land(region.landing, [{**beat("a", 2), "agent_id": ""}], table="status", schema=status)
    letters = [envelope.dead_letter(b"\xff", topic="x/alerts", reason="is not msgpack", received_at=NOON)] * 2
    land(region.landing, letters, table="bad", schema=bad)

    run = {"agent_id": "a", "fleet": "north", "log_id": "0", "first": 1, "last": 9, "received_at": NOON}
    land(region.landing, [run], table="seqs", schema=arrow_schema(envelope.SEQS))

    accounts = region.run_all()

    assert {name: (account.new, account.unusable) for name, account in accounts.items()} == {
        "alerts": (0, 0),
        "status": (3, 1),
        "seqs": (1, 0),
        "bad": (2, 0),
    }
    assert region.tables.arrow(HEARTBEATS).num_rows == 3
    assert region.tables.arrow(SEQS, ["first", "last"]).to_pylist() == [{"first": 1, "last": 9}]
    agents = {row["agent_id"]: row for row in region.tables.arrow(AGENTS).to_pylist()}
    assert (agents["a"]["state"], agents["b"]["received"], agents["b"]["dropped"]) == ("lost", 7, 2)
    assert sorted((row["kind"], row["source"], row["reason"], row["rows"]) for row in region.letters()) == [
        ("message", "x/alerts", "is not msgpack", 2),
        ("row", next(row["source"] for row in region.letters() if row["kind"] == "row"), "without agent_id", 1),
    ]
    assert {row["payload"] for row in region.letters() if row["kind"] == "message"} == {b"\xff"}
    assert all(account == Account() for account in region.run_all().values())


@pytest.mark.long
def test_it_goes_on_with_what_lands_later(region: Region) -> None:
    """With ``every`` the job waits for the landing to appear, takes each new file with the lookups as they are then,
    half a lookup too, and ends when told to."""
    stop, done, lookups = threading.Event(), [], region.folder / "lookups"
    lookups.mkdir()
    job = threading.Thread(
        target=lambda: done.append(region.run_all(every=0.2, stop=stop, lookups=Lookups(str(lookups))))
    )
    job.start()
    assets = [pa.table({"host": ["web1"], "owner": [name]}) for name in ("first", "last")]
    try:
        commits = Path(region.tables.root) / "_checkpoints/alerts/commits"
        for number, asset in enumerate((assets[0], b"PAR1 half a lookup", assets[1])):
            if isinstance(asset, bytes):
                (lookups / "assets.parquet").write_bytes(asset)
            else:
                pq.write_table(asset, lookups / ".assets")
                (lookups / ".assets").rename(lookups / "assets.parquet")
            land(region.landing, [alert(number)])
            until("the batch to be taken over", (commits / str(number)).exists)
    finally:
        stop.set()
        job.join(60)
    assert [accounts["alerts"].new for accounts in done] == [3]
    rows = sorted(region.tables.arrow(ALERTS, ["seq", "asset"]).to_pylist(), key=lambda row: row["seq"])
    assert [row["asset"] and row["asset"]["owner"] for row in rows] == ["first", None, "last"]


@pytest.mark.long
@pytest.mark.parametrize("failing", ["entity_site_5m", "dead_letters"])
def test_a_failure_within_a_batch_leaves_no_trace(
    spark: SparkSession, calm: Calm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Fail the second batch at the write of one table; start again: all tables equal, row for row, those of an
    undisturbed run. (At the write of the alerts themselves: ``test_a_batch_of_any_size_is_written_in_parts``.)"""
    tables = open_tables(str(tmp_path))
    write = DeltaTables._once

    def fail(self: DeltaTables, table: Table, txn: Txn | None, *work: Callable[[Any], None]) -> Any:
        if txn is not None and txn.version == batch.MAX_PARTS and table.name == failing:
            raise Crash
        return write(self, table, txn, *work)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTables, "_once", fail)
        with pytest.raises(Crash):
            ingest_alerts(spark, tables, calm.landing, bytes_per_batch=1)
    manifest.check(tables, whole=True)
    ingest_alerts(spark, tables, calm.landing, bytes_per_batch=1)
    assert content(tables) == calm.content
