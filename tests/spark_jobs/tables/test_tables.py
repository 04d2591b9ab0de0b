"""The tables' promises, in every backend: merged by their word, exactly once, partitions replaced, columns added."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs.tables import delta
from spark_jobs.tables.ask import open_reader
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import ALERTS, RULES, TABLES, WIN_5M, Table
from spark_jobs.tables.tables import BACKENDS, Tables, Txn, open_tables
from tests.spark_jobs.conftest import JARS, LONG

pytestmark = pytest.mark.spark

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
needs_jars = pytest.mark.skipif(not JARS, reason="no jars in build/jars: run tools/jars.sh")
EVERY = [name if name == "delta" else pytest.param(name, marks=[needs_jars, pytest.mark.long]) for name in BACKENDS]
everywhere = pytest.mark.parametrize("tables", EVERY, indirect=True)
"""Delta by Spark takes seconds for each write, so it runs the test that says most."""

everywhere_at_length = pytest.mark.parametrize("tables", EVERY if LONG else EVERY[:1], indirect=True)
"""Tests that Delta by Spark runs in ``make test-crash``."""


@pytest.fixture(params=["delta"])
def tables(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Tables:
    return open_tables(str(tmp_path / "tables"), request.param, spark=spark)


def window(matches: int, **changes: Any) -> dict[str, Any]:
    return {
        "date": "2026-11-20",
        "window_start": NOON,
        "fleet": "f",
        "site": "s",
        "rule_id": "r",
        "level": "high",
        "rule_title": "R",
        "alerts": 1,
        "matches": matches,
        "first_time": NOON,
        "last_time": NOON,
        **changes,
    }


def rows(*columns: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(columns))


def read_rows(tables: Tables, table: Table = WIN_5M, *columns: str, **asked: Any) -> list[tuple[Any, ...]]:
    read = tables.arrow(table, columns, **asked).to_pylist()
    return sorted(tuple(row.values()) for row in read)


@everywhere
def test_an_upsert_merges_by_the_tables_word(tables: Tables, spark: SparkSession) -> None:
    """Sums are added, the first stays first and the last last, texts are of the newest, null keys are the empty text;
    Spark and Arrow read the same."""
    second = timedelta(seconds=1)
    tables.upsert(WIN_5M, rows(window(1, last_time=NOON + 5 * second), window(2, site=None)))
    older = window(10, rule_title="older", first_time=NOON - second, last_time=NOON + 4 * second, alerts=None)
    tables.upsert(WIN_5M, rows(older, window(3, site=None), window(4, site="new's")))
    tables.upsert(WIN_5M, spark.createDataFrame([window(5, rule_title="newer", last_time=NOON + 6 * second)]))

    columns = ("site", "alerts", "matches", "rule_title", "first_time", "last_time")
    assert read_rows(tables, WIN_5M, *columns) == [
        ("", 2, 5, "R", NOON, NOON),
        ("new's", 1, 4, "R", NOON, NOON),
        ("s", 2, 16, "newer", NOON - second, NOON + 6 * second),
    ]
    assert sorted(tables.frame(spark, WIN_5M).toArrow().to_pylist(), key=str) == sorted(
        tables.arrow(WIN_5M).to_pylist(), key=str
    )


@pytest.mark.parametrize("folder", ["a b", "ä'%\"q", "{x=*}?#", "gone/../tables"])
def test_a_folder_of_any_name(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    """Written, merged, and read by Spark, as Arrow and by DuckDB."""
    tables = open_tables(str(tmp_path / folder))
    tables.upsert(WIN_5M, rows(window(1)))
    tables.upsert(WIN_5M, rows(window(2)))
    assert read_rows(tables, WIN_5M, "matches") == [(3,)]
    assert [row.matches for row in tables.frame(spark, WIN_5M).collect()] == [3]
    with closing(open_reader(tables, None)) as reader:
        reader.view("win", WIN_5M, "2026-11-20")
        assert reader.rows("SELECT date, matches FROM win") == [{"date": "2026-11-20", "matches": 3}]


@pytest.mark.parametrize("folder", ["x[1]", "a|b", "100%25", "back\\slash"])
def test_a_folder_that_deltalake_cannot_write_to(folder: str) -> None:
    """Refused at once, with the reason."""
    with pytest.raises(ValueError, match=r"deltalake accepts no .* choose another folder"):
        open_tables(folder)


@everywhere_at_length
def test_a_write_is_done_once_by_its_name(tables: Tables) -> None:
    """A number that is not above the application's last one changes nothing, whatever the kind of write; others do."""
    assert tables.version(WIN_5M, "q") is None
    assert tables.upsert(WIN_5M, rows(window(1)), Txn("q", 0))
    assert tables.version(WIN_5M, "q") == 0
    assert not tables.upsert(WIN_5M, rows(window(1)), Txn("q", 0))
    assert tables.upsert(WIN_5M, rows(window(1)), Txn("q", 3))
    assert not tables.append(WIN_5M, rows(window(1, site="x")), Txn("q", 2))
    assert tables.upsert(WIN_5M, rows(window(1)), Txn("other", 0))
    assert (tables.version(WIN_5M, "q"), tables.version(WIN_5M, "other")) == (3, 0)
    assert read_rows(tables, WIN_5M, "matches") == [(3,)]


@everywhere_at_length
def test_partitions_are_read_replaced_and_dropped(tables: Tables, spark: SparkSession) -> None:
    """A range is read without the rest; replacing one day leaves the others; a stranger among the rows is refused."""
    days = [f"2026-11-{day}" for day in (18, 19, 20)]
    tables.append(WIN_5M, rows(*(window(n, date=day) for n, day in enumerate(days))))
    assert tables.partitions(WIN_5M) == days
    assert read_rows(tables, WIN_5M, "date", since=days[1]) == [(days[1],), (days[2],)]
    assert [row.date for row in tables.frame(spark, WIN_5M, until=days[0]).collect()] == [days[0]]
    assert {row.date for row in tables.frame(spark, WIN_5M, only=[days[0], days[2]]).collect()} == {days[0], days[2]}

    tables.replace(WIN_5M, rows(window(7, date=days[1]), window(8, date=days[1], site="t")), [days[1]])
    assert read_rows(tables, WIN_5M, "date", "matches") == [(days[0], 0), (days[1], 7), (days[1], 8), (days[2], 2)]
    with pytest.raises(ValueError, match="rows of 2026-11-18 are outside the partitions to replace"):
        tables.replace(WIN_5M, rows(window(7, date=days[0])), [days[1]])
    tables.drop(WIN_5M, [days[1]])
    assert tables.partitions(WIN_5M) == [days[0], days[2]]


def test_upkeep_changes_no_row(tables: Tables) -> None:
    """Compacting many small writes and deleting what they left gives the same rows, and later upserts still merge."""
    for number in range(5):
        tables.upsert(WIN_5M, rows(window(1), window(1, site=f"s{number}")), Txn("q", number))
    before = read_rows(tables)
    tables.compact(WIN_5M, ["2026-11-20"])
    tables.vacuum(WIN_5M, 0)
    assert read_rows(tables) == before
    assert not tables.upsert(WIN_5M, rows(window(1)), Txn("q", 4))
    tables.upsert(WIN_5M, rows(window(1)), Txn("q", 5))
    assert ("s", 6) in read_rows(tables, WIN_5M, "site", "matches")


@everywhere_at_length
def test_columns_are_added_and_never_lost(tables: Tables, spark: SparkSession) -> None:
    """A later version's table gains its column and keeps the earlier rows, and the earlier version still reads and
    writes it; a column that no version has, or of another type, is refused by name."""
    later = replace(WIN_5M, columns=StructType([*WIN_5M.columns.fields, StructField("mood", StringType())]))
    tables.upsert(WIN_5M, rows(window(1)))
    tables.upsert(later, rows(window(1, site="t", mood="calm")))
    tables.upsert(WIN_5M, rows(window(1), window(1, site="u")))
    assert read_rows(tables, later, "site", "matches", "mood") == [("s", 2, None), ("t", 1, "calm"), ("u", 1, None)]
    assert tables.frame(spark, WIN_5M).count() == tables.frame(spark, later).count() == 3
    with closing(open_reader(tables, None if isinstance(tables, DeltaTables) else spark)) as reader:
        reader.view("later", later)
        reader.view("now", WIN_5M)
        assert reader.rows("SELECT site, mood FROM later ORDER BY site")[1:] == [
            {"site": "t", "mood": "calm"}, {"site": "u", "mood": None},
        ]  # fmt: skip
        assert list(reader.rows("SELECT * FROM now WHERE site = 't'")[0]) == list(WIN_5M.names)
    with pytest.raises(ValueError, match="win_5m: has no column colour"):
        tables.append(WIN_5M, rows(window(1, colour="red")))
    with pytest.raises(ValueError, match=r"win_5m\.matches"):
        tables.append(WIN_5M, rows({**window(1), "matches": "many"}))


def test_what_is_not_there_is_empty(tables: Tables, spark: SparkSession) -> None:
    """Every table reads as empty, with its columns, before anything was written; upkeep of nothing is nothing."""
    for table in TABLES.values():
        assert tables.frame(spark, table).columns == table.names
        assert (tables.arrow(table).num_rows, tables.arrow(table).column_names) == (0, table.names)
        assert tables.partitions(table) == []
    tables.compact(ALERTS)
    tables.drop(ALERTS, ["2026-11-20"])
    assert tables.vacuum(ALERTS) == 0


_BATCH = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 5)), max_size=6)


@given(st.lists(_BATCH, max_size=4))
@settings(max_examples=15)
def test_upserts_equal_a_count_by_hand(batches: list[list[tuple[str, int, int]]]) -> None:
    """Any upserts of any rules leave the sums, the newest title, and the ends of time that a dictionary gives."""
    by_hand: dict[str, dict[str, Any]] = {}
    with TemporaryDirectory() as folder:
        tables = open_tables(folder)
        for batch in batches:
            unique = {rule: (matches, NOON + timedelta(seconds=at)) for rule, matches, at in batch}
            made = [
                {"rule_id": rule, "rule_title": f"{rule}{at:%S}", "matches": matches, "first_time": at, "last_time": at}
                for rule, (matches, at) in unique.items()
            ]
            if made:
                tables.upsert(RULES, rows(*made))
            for row in made:
                old = by_hand.setdefault(row["rule_id"], {**row, "matches": 0})
                if row["last_time"] >= old["last_time"]:
                    old["rule_title"] = row["rule_title"]
                old["matches"] += row["matches"]
                old["first_time"] = min(old["first_time"], row["first_time"])
                old["last_time"] = max(old["last_time"], row["last_time"])
        columns = ["rule_id", "rule_title", "matches", "first_time", "last_time"]
        assert {row["rule_id"]: row for row in tables.arrow(RULES, columns).to_pylist()} == by_hand


class Cut(BaseException):
    """A kill between two commits."""


_LATE = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=12)


@given(st.lists(st.tuples(_LATE, st.booleans()), min_size=2, max_size=8), st.integers(1, 6))
@settings(max_examples=20)
@pytest.mark.long
def test_windows_in_files_of_their_own_equal_a_count_by_hand(
    batches: list[tuple[list[tuple[str, int, int]], bool]], full: int
) -> None:
    """Whatever comes late, however few rows fill a file, and wherever an upsert is cut short and done again, beside
    another writer's and a compaction: each row counts once, and no key comes twice."""
    by_hand: dict[tuple[datetime, str], int] = {}
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta, "FULL", full)
        tables = open_tables(folder)
        for number, (batch, cut) in enumerate(batches):
            unique = {
                (NOON + timedelta(hours=4 * (site == "b"), minutes=5 * (at + number))): n for site, at, n in batch
            }
            made = [
                window(n, window_start=start, date=f"{start + timedelta(hours=9):%Y-%m-%d}")
                for start, n in unique.items()
            ]
            if cut:
                with patch.context() as within:
                    within.setattr(delta, "_merge", _once_then(delta._merge, Cut()))
                    with suppress(Cut):
                        tables.upsert(WIN_5M, rows(*made), Txn("q", number))
                tables.upsert(WIN_5M, rows({**made[-1], "site": "other"}), Txn("other", number))
                tables.compact(WIN_5M)
                by_hand[made[-1]["window_start"], "other"] = (
                    by_hand.get((made[-1]["window_start"], "other"), 0) + made[-1]["matches"]
                )
            tables.upsert(WIN_5M, rows(*made), Txn("q", number))
            assert not tables.upsert(WIN_5M, rows(*made), Txn("q", number))
            for start, n in unique.items():
                by_hand[start, "s"] = by_hand.get((start, "s"), 0) + n
        assert read_rows(tables, WIN_5M, "window_start", "site", "matches") == sorted(
            (*key, n) for key, n in by_hand.items()
        )


def _once_then(merge: Callable[..., None], error: BaseException) -> Callable[..., None]:
    """``merge`` the first time, and ``error`` after it."""

    def cut(*arguments: Any) -> None:
        merge(*arguments)
        raise error

    return cut


def test_a_full_file_is_written_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later windows than those of a full file get a new file; the full one is not even read, and late rows rewrite only
    the file that they belong to."""
    monkeypatch.setattr(delta, "FULL", 3)
    tables = open_tables(str(tmp_path))
    assert isinstance(tables, DeltaTables)

    def files() -> set[str]:
        return {file.path for file in delta.data_files(DeltaTable(str(tmp_path / "win_5m")), WIN_5M, ())}

    def upsert(number: int, *minutes: int) -> None:
        tables.upsert(
            WIN_5M, rows(*(window(1, window_start=NOON + timedelta(minutes=n)) for n in minutes)), Txn("q", number)
        )

    upsert(0, 0, 5, 10)
    first = files()
    upsert(1, 15, 20)
    second = files() - first
    assert (len(first), len(second)) == (1, 1)
    (full,) = map(Path, first)
    full.rename(away := tmp_path / "away")
    upsert(2, 20, 25)
    away.rename(full)
    assert files() & (first | second) == first  # the second was not full
    third = files() - first
    upsert(3, 25, 30, 35)
    assert len(files()) == 3
    assert first < files()
    assert not third & files()
    upsert(4, 5)
    assert len(files()) == 3
    assert not first & files()
    assert sum(n for (n,) in read_rows(tables, WIN_5M, "matches")) == 11


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    """Upserts of two threads into one table, and a compaction beside them, all count."""
    tables = open_tables(str(tmp_path))
    tables.upsert(WIN_5M, rows(window(0)))
    failures: list[BaseException] = []

    def write(site: str) -> None:
        try:
            for _ in range(6):
                tables.upsert(WIN_5M, rows(window(1), window(1, site=site)))
        except BaseException as error:
            failures.append(error)

    writers = [Thread(target=write, args=(site,)) for site in ("x", "y")]
    for writer in writers:
        writer.start()
    tables.compact(WIN_5M)
    for writer in writers:
        writer.join()
    assert not failures
    assert read_rows(tables, WIN_5M, "site", "matches") == [("s", 12), ("x", 6), ("y", 6)]


def test_a_race_that_is_lost_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that others are always ahead of has not happened, and says so."""
    tables = open_tables(str(tmp_path))
    tables.upsert(WIN_5M, rows(window(1)), Txn("q", 0))
    monkeypatch.setattr(delta, "MAX_TRIES", 1)

    def lost(*_: object) -> None:
        raise CommitFailedError("another was first")

    monkeypatch.setattr(delta, "_merge", lost)
    with pytest.raises(CommitFailedError):
        tables.upsert(WIN_5M, rows(window(1)), Txn("q", 1))
    assert tables.version(WIN_5M, "q") == 0


def test_a_key_twice_is_refused(tmp_path: Path) -> None:
    """Rows of one upsert that have the same key are said, and nothing is written."""
    tables = open_tables(str(tmp_path))
    with pytest.raises(ValueError, match="win_5m: 1 rows have a key that another row has"):
        tables.upsert(WIN_5M, rows(window(1), window(2)))
    assert tables.arrow(WIN_5M).num_rows == 0


def test_files_without_the_time_asked_for_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """Of one file an hour, the hours asked for are read, and the batch asked for; nothing that is wanted is missing."""
    tables = open_tables(str(tmp_path))
    table = Table(
        "narrow", StructType([f for f in ALERTS.columns.fields if f.name in ("received_date", "event_time", "batch")]),
        partition="received_date",
    )  # fmt: skip
    for hour in range(6):
        at = NOON + timedelta(hours=hour, microseconds=999)
        tables.append(table, rows({"received_date": "2026-11-20", "event_time": at, "batch": f"b{hour}"}))
    near = {"event_time": [(NOON + timedelta(hours=2), NOON + timedelta(hours=2, microseconds=999))]}
    assert [row.batch for row in tables.frame(spark, table, near=near).collect()] == ["b2"]
    assert [row.batch for row in tables.frame(spark, table, near={"batch": [("b4", "b4")]}).collect()] == ["b4"]


def test_an_unknown_backend_is_named(tmp_path: Path) -> None:
    """The message lists the ones there are."""
    with pytest.raises(ValueError, match="expects one of delta, delta-spark, not 'parquet'"):
        open_tables(str(tmp_path), "parquet")
