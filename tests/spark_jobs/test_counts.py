"""The streaming job on real Spark: what lands is in the tables once, whatever is done to the job or the files."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import counts, frames, storage
from spark_jobs.batches import Table, Tables
from spark_jobs.counts import Account
from tests.spark_jobs.conftest import Calm, content
from tests.spark_jobs.landed import ALERTS, DAY, HOUR, MINUTE, NOON, alert, land, place

pytestmark = pytest.mark.spark

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Region:
    """A landing, its tables, and the job over both."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.landing = spark, folder, folder / "landing"
        self.tables = Tables(str(folder / "tables"))
        self.landing.mkdir(parents=True, exist_ok=True)

    def run(self, **settings: Any) -> Account:
        return counts.run(self.spark, str(self.landing), self.tables.root, **settings)

    def alerts(self) -> list[tuple[str, str]]:
        """Agent and id of each row of the alerts table, sorted; a doubled row is there twice."""
        rows = self.tables.alerts.read(self.spark).select("agent_id", "alert_id").collect()
        return sorted((row.agent_id, row.alert_id) for row in rows)

    def counts(self) -> Counter[tuple[str, str, str, str]]:
        """Matches by window start, rule, site and host."""
        found = frames.totals(self.tables.counts.read(self.spark)).collect()
        return Counter({(f"{r.window_start:%F %T}", r.rule_id, r.site, r.host): r.matches for r in found})


@pytest.fixture
def region(spark: SparkSession, tmp_path: Path) -> Region:
    return Region(spark, tmp_path)


def keys(rows: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Agent and id of each different alert among ``rows``, sorted."""
    return sorted({(row["agent_id"], row["alert_id"]) for row in rows})


def test_tables_hold_each_alert_once_and_count_it_in_its_window(region: Region) -> None:
    """Two agents, doubles within a file and over files, a fold: the tables equal a count by hand."""
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
    by_hand: Counter[tuple[str, str, str, str]] = Counter()
    for row in rows:
        start = datetime.fromtimestamp(row["event_time"] // (5 * MINUTE) * 300, UTC)
        by_hand[f"{start:%F %T}", row["rule_id"], row["site"], row["host"]] += row["count"]
    assert region.counts() == by_hand
    assert sum(r.alerts for r in region.tables.counts.read(region.spark).collect()) == 35
    assert region.run() == Account()


def test_a_copy_is_known_after_any_time_and_restart(region: Region, caplog: pytest.LogCaptureFixture) -> None:
    """An agent offline for days and resends weeks later add nothing, nor does a job that has lost its checkpoint."""
    old = [alert(i, detected_at=NOON - 5 * 24 * HOUR, received_at=NOON + i * HOUR) for i in range(4)]
    new = [alert(i) for i in range(10, 14)]
    land(region.landing, new)
    land(region.landing, old[:2])
    region.run(files_per_batch=1)
    land(region.landing, [{**row, "received_at": NOON + 30 * 24 * HOUR} for row in [*old, *new]])
    # Landed by another landing whose clock is behind, or copied in later: older than all that the job has seen.
    land(region.landing, [{**alert(20), "received_at": NOON - 9 * 24 * HOUR}])
    late = region.run()
    assert (late.new, late.duplicates) == (3, 6)

    shutil.rmtree(f"{region.tables.root}/_checkpoints")
    again = region.run()

    assert (again.rows, again.new) == (15, 0)
    assert region.alerts() == keys([*old, *new, alert(20)])
    assert sum(region.counts().values()) == 9


def test_bad_files_are_named_and_the_rest_goes_on(region: Region, caplog: pytest.LogCaptureFixture) -> None:
    """Empty, cut, garbled, foreign and wrongly typed files are said, recorded and passed over; good rows all arrive."""
    good = [alert(i, raw=f"{i} " + os.urandom(400).hex()) for i in range(40)]
    whole = land(region.landing, good[:10], name="a.parquet").read_bytes()
    place(region.landing, b"", at=AT, name="empty.parquet")
    place(region.landing, whole[: len(whole) // 2], at=AT, name="cut.parquet")
    place(region.landing, whole[:600] + bytes(600) + whole[1200:], at=AT, name="garbled.parquet")
    place(region.landing, b"not parquet at all", at=AT, name="text.parquet")
    place(region.landing, pa.table({"colour": ["red", "blue"]}), at=AT, name="foreign.parquet")
    place(region.landing, pa.table({"alert_id": [1, 2]}), at=AT, name="typed.parquet")
    place(region.landing, pa.Table.from_pylist([], ALERTS), at=AT, name="no rows.parquet")
    place(region.landing, b"half a file", at=AT, name="b.parquet.tmp")
    land(region.landing, good[10:20], name="odd [1]{2}%20*.parquet")
    shutil.copy(land(region.landing, good[20:30], name="c.parquet"), region.landing / "alerts" / "unsorted.parquet")
    land(region.landing, [*good[30:], alert(99, agent_id=None)], name="d.parquet")

    with caplog.at_level(logging.INFO, "spark_jobs"):
        account = region.run()

    assert region.alerts() == keys(good)
    assert (account.files, account.bad_files, account.unusable, account.new, account.duplicates) == (12, 5, 3, 40, 10)
    bad = {Path(r.path).name: (r.rows, r.reason) for r in region.tables.bad_files.read(region.spark).collect()}
    assert {name: rows for name, (rows, _) in bad.items()} == {
        "empty.parquet": None,
        "cut.parquet": None,
        "garbled.parquet": None,
        "text.parquet": None,
        "typed.parquet": None,
        "foreign.parquet": 2,
        "d.parquet": 1,
    }
    assert bad["empty.parquet"][1] == "is empty (0 bytes)"
    assert bad["text.parquet"][1].startswith("is not a Parquet file")
    assert "alert_id" in bad["typed.parquet"][1]
    assert "1 temporary files" in caplog.text
    for name, (_, reason) in bad.items():
        assert any(name in line and reason in line for line in caplog.text.splitlines())


def test_only_bad_files_are_no_failure(region: Region) -> None:
    """A landing of nothing but garbage and empty files ends well, with empty tables, and then with something good."""
    place(region.landing, b"garbage", at=AT)
    place(region.landing, b"", at=AT)
    assert region.run(files_per_batch=1) == Account(batches=2, files=2, bad_files=2)
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


def test_files_of_other_versions_are_read(region: Region, caplog: pytest.LogCaptureFixture) -> None:
    """A later version's extra column and an earlier one's missing column change nothing; a later version is said."""
    later = pa.Table.from_pylist([alert(1, schema_version=2)], ALERTS)
    later = later.append_column("mood", pa.array([{"deep": ["unknown"]}]))
    earlier = pa.Table.from_pylist([alert(2)], ALERTS).drop_columns(["bundle", "flags", "count"])
    place(region.landing, later, at=AT)
    place(region.landing, earlier, at=AT)
    with caplog.at_level(logging.INFO, "spark_jobs"):
        assert region.run().new == 2
    assert sum(region.counts().values()) == 2
    assert "schema version 2" in caplog.text


def test_an_absurd_event_time_is_counted_where_it_says(region: Region) -> None:
    """Years 1 and 9999, which an agent can send, neither stop the job nor spoil the file they came in."""
    first, last = -62_135_596_800_000_000 + HOUR, 253_402_128_000_000_000
    land(region.landing, [alert(1, event_time=first), alert(2, event_time=last), alert(3)])
    assert region.run().new == 3
    assert sorted(region.tables.counts.dates(region.spark)) == ["0001-01-01", DAY, "9999-12-30"]


def test_a_failing_disk_is_no_bad_file(region: Region) -> None:
    """When the tables cannot be written the job fails, and takes the same files over once they can."""
    land(region.landing, [alert(1)])
    blocked = Path(region.tables.alerts.path)
    blocked.parent.mkdir(parents=True)
    blocked.write_text("in the way")
    with pytest.raises(Exception, match="alerts"):
        region.run()
    blocked.unlink()
    assert region.run().new == 1
    assert region.tables.bad_files.read(region.spark).count() == 0


def test_a_second_writer_is_refused(region: Region) -> None:
    """Two jobs on one set of tables would double rows: the second ends with the reason."""
    with (
        storage.one_writer(region.spark, region.tables.root),
        pytest.raises(BlockingIOError, match="another job is writing"),
    ):
        region.run()


def test_it_goes_on_with_what_lands_later(region: Region) -> None:
    """With ``every`` the job waits for the landing to appear, takes each new file, and ends when told to."""
    stop, done = threading.Event(), []
    job = threading.Thread(target=lambda: done.append(region.run(every=0.2, stop=stop)))
    job.start()
    try:
        commits = Path(region.tables.root) / "_checkpoints/counts/commits"
        for number in (0, 1):
            land(region.landing, [alert(number)])
            _wait((commits / str(number)).exists)
    finally:
        stop.set()
        job.join(30)
    assert [account.new for account in done] == [2]
    assert len(region.alerts()) == 2


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited 30 s"
        time.sleep(0.1)


class Crash(Exception):
    """Stands for a failure at one point of a batch."""


@pytest.mark.parametrize("point", ["before alerts", "between alerts and counts"])
def test_a_failure_within_a_batch_leaves_no_trace(
    spark: SparkSession, calm: Calm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Fail the second batch at a point, start again: all tables equal, row for row, those of an undisturbed run."""
    with monkeypatch.context() as patch:
        _fail(patch, point)
        with pytest.raises(Crash):
            counts.run(spark, str(calm.landing), str(tmp_path), files_per_batch=1)
    counts.run(spark, str(calm.landing), str(tmp_path), files_per_batch=1)
    assert content(Tables(str(tmp_path)), spark) == calm.content


def _fail(patch: pytest.MonkeyPatch, point: str) -> None:
    """Make batch 1 fail at ``point``."""
    write, name = Table.write, "alerts" if point == "before alerts" else "counts_5m"

    def failing_write(table: Table, rows: DataFrame, batch: str) -> None:
        if batch.endswith("1") and Path(table.path).name == name:
            raise Crash
        write(table, rows, batch)

    patch.setattr(Table, "write", failing_write)
