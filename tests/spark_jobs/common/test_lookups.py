"""A DataFrame joined with a lookup has the rows that the edge's own reader gives, for every kind of key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from spark_jobs.common.lookups import join
from tests.lookup.tables import lookup_of
from vedette.lookup.table import Lookup

TIME = 1_700_000_000_000_000
BEGAN = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=TIME)
KEYS: dict[str, tuple[str, str, list[tuple[Any, ...]], T.DataType, list[Any]]] = {
    "text": ("k v:int", "k", [("Ann", 1), ("ann", 2), ("é", None)], T.StringType(), ["ann", "Ann", "ANN", "é", None]),
    "nocase": ("k v", "k:nocase", [("Ann", "x"), ("ÉVA", "y")], T.StringType(), ["aNN", "éva", "", None]),
    "number": ("k:int v:float", "k:number", [(7, 0.5), (-1, None)], T.DoubleType(), [7.0, -1.0, 7.5, None]),
    "numbers as texts": ("k:int v:bool", "k:number", [(7, True), (8, False)], T.StringType(), ["7", "8", "07x"]),
    "ip": ("k v", "k:ip", [("10.0.0.1", "a"), ("::1", "b")], T.StringType(), ["10.0.0.1", "0:0::1", "x"]),
    "cidr": (
        "k v", "k:cidr", [("10.0.0.0/8", "a"), ("10.1.0.0/16", "b"), ("2001:db8::/32", "c")], T.StringType(),
        ["10.1.2.3", "10.2.0.0", "2001:db8::9", "11.0.0.0", "no address", None],
    ),
    "domain": (
        "k v", "k:domain", [("example.com", "a"), ("mail.example.com", "b")], T.StringType(),
        ["x.mail.example.com", "Example.COM.", "notexample.com", None],
    ),
    "range": (
        "low:int high:int v", "low..high:range", [(0, 99, "a"), (10, 19, "b")], T.LongType(), [15, 20, 100, None],
    ),
    "validity": (
        "k v since:time until:time", "k", [("a", "old", None, TIME), ("a", "new", TIME, None)], T.StringType(),
        ["a", "b", None],
    ),
}  # fmt: skip

WAYS = ((False, False), (False, True), (True, False), (True, True))
"""Whether all rows are wanted, and none for those that find none."""
DIAGONAL = (WAYS[0], WAYS[3])


@pytest.mark.parametrize("kind", KEYS)
def test_as_on_the_edge(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """First and all rows, with and without those that find none: each of each kind of key, each pair of one."""
    columns, key, rows, asked, values = KEYS[kind]
    valid = ("since", "until") if kind == "validity" else None
    path = tmp_path / "table.vlookup"
    lookup_of(path, columns, key, rows, valid=valid).close()
    times = [BEGAN + timedelta(seconds=one) for one in (-1, 0, 1)] if valid else [BEGAN]
    given = [(value, time, number) for number, value in enumerate(values) for time in times]
    schema = T.StructType().add("key", asked).add("at", T.TimestampType()).add("n", T.LongType())
    frame = spark.createDataFrame(given, schema)
    with Lookup.open(path, native=False) as edge:
        index, names = edge.indexes[0].name, [column.name for column in edge.columns]
        for every, inner in WAYS if kind == "text" else DIAGONAL:
            expected = []
            for value, time, number in given:
                found = edge.all(index, value, TIME + (time - BEGAN) // timedelta(microseconds=1))
                found = found if every else found[:1]
                expected += [(number, time, *row) for row in found or ([] if inner else [[None] * len(names)])]
            joined = join(
                frame, path, on="key", at="at", prefix="t_", how="inner" if inner else "left",
                matches="all" if every else "first",
            )  # fmt: skip
            got = [(row.n, row.at.astimezone(UTC), *(row[f"t_{name}"] for name in names)) for row in joined.collect()]
            assert sorted(map(_plain, got)) == sorted(map(_plain, expected))


def _plain(row: tuple[Any, ...]) -> str:
    """A row to compare, its times as UTC microseconds."""
    return repr([_micros(one) if isinstance(one, datetime) else one for one in row])


def _micros(time: datetime) -> int:
    return (time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def test_some_columns_of_two_versions(spark: SparkSession, tmp_path: Path) -> None:
    """Two versions of one file name, in one session, are told apart; columns are those that were asked."""
    frame = spark.createDataFrame([("10.0.0.1",)], "ip string")
    found = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        lookup_of(folder / "assets.vlookup", "ip owner risk:int", "ip:ip", [("10.0.0.1", "ann", number)]).close()
        found.append(join(frame, folder / "assets.vlookup", on="ip", columns=["risk"]))
    assert [[tuple(row) for row in one.collect()] for one in found] == [[("10.0.0.1", 1)], [("10.0.0.1", 2)]]


@pytest.mark.parametrize(
    ("more", "wrong"),
    [({"on": "host"}, "no column host"), ({"on": "ip", "index": "name"}, "no key name; there are ip"),
     ({"on": "ip", "columns": ["team"]}, "no column team; there are ip, owner"), ({"on": "ip"}, "a column ip already")],
)  # fmt: skip
def test_refused(spark: SparkSession, tmp_path: Path, more: dict[str, Any], wrong: str) -> None:
    lookup_of(tmp_path / "assets.vlookup", "ip owner", "ip:ip", [("10.0.0.1", "ann")]).close()
    with pytest.raises(ValueError, match=wrong):
        join(spark.createDataFrame([("10.0.0.1",)], "ip string"), tmp_path / "assets.vlookup", **more)
