"""Lookups joined to alerts: what is found, for which times, and what happens when a lookup is not what it should be."""

from __future__ import annotations

import ipaddress
import logging
import os
import random
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession

from spark_jobs.intake import enrich
from spark_jobs.intake.enrich import Lookups, containing, networks

pytestmark = pytest.mark.spark

_SCHEMA = (
    "file LONG, position LONG, counted_at TIMESTAMP, host STRING, site STRING, fleet STRING, "
    "entities ARRAY<STRUCT<kind: STRING, value: STRING>>"
)


def alerts(spark: SparkSession, rows: Iterable[dict[str, Any]]) -> DataFrame:
    common = {"file": 1, "counted_at": datetime(2026, 11, 20, tzinfo=UTC), "host": "web1", "site": "plant",
              "fleet": "north", "entities": []}  # fmt: skip
    names = ("file", "position", "counted_at", "host", "site", "fleet", "entities")
    filled = [{**common, "position": number, **row} for number, row in enumerate(rows)]
    return spark.createDataFrame([tuple(row[name] for name in names) for row in filled], _SCHEMA)


def enriched(spark: SparkSession, folder: Path, rows: Iterable[dict[str, Any]]) -> list[Row]:
    # Sorted here: Spark would work out all rows a first time for how they are spread.
    got = Lookups(str(folder)).enrich(spark, alerts(spark, rows)).collect()
    return sorted(got, key=lambda row: row.position)


def indicators(row: Row) -> list[tuple[str, str]]:
    """Of each hit the entity and the indicator."""
    return [(hit.value, hit.indicator) for hit in row.intel]


def test_hosts_and_sites_are_joined_by_the_nearest_key(spark: SparkSession, tmp_path: Path) -> None:
    """A row for the site or fleet goes before one for every one; unknown ones, and a null host, stay without."""
    (tmp_path / "assets.csv").write_text(
        "site,host,owner,criticality,unknown\n,web1,everywhere,1,x\nplant,web1,plant team,high,x\n,web2,web,3,x\n"
    )
    pq.write_table(
        pa.table({"site": ["plant", "plant"], "fleet": ["north", None], "latitude": [48.2, 1.0], "name": ["P", "Q"]}),
        tmp_path / "sites.parquet",
    )
    rows = [{}, {"site": "office"}, {"host": "web2", "fleet": "south"}, {"host": None}, {"host": "web9", "site": None}]
    got = enriched(spark, tmp_path, rows)
    assert [row.asset and row.asset.owner for row in got] == ["plant team", "everywhere", "web", None, None]
    assert [row.asset and row.asset.criticality for row in got[:3]] == [None, 1, 3]
    assert [row.place and (row.place.name, row.place.latitude) for row in got] == [
        ("P", 48.2), None, ("Q", 1.0), ("P", 48.2), None,
    ]  # fmt: skip


@pytest.mark.parametrize("whole", [True, pytest.param(False, marks=pytest.mark.long)])
def test_indicators_match_by_kind_value_range_and_time(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """Exact values, ranges of both protocols, domains above, each only while it is valid, and each once; a row with a
    time that is none is left out and said. So whether the lookup is held or too large."""
    if not whole:
        monkeypatch.setattr(enrich, "HELD_ROWS", 3)
    (tmp_path / "intel.csv").write_text(
        """kind,value,source,threat,score,valid_from,valid_until
ip,203.0.113.9,a,bot,80,,
ip,203.0.113.9,a,bot,80,,
ip,203.0.113.10,a,old,80,,2026-11-20T00:00:00Z
ip,203.0.113.11,a,future,80,2026-11-20T00:00:01Z,
ip,::ffff:203.0.113.12,a,now,80,2026-11-20T00:00:00Z,2026-11-20T00:00:01Z
cidr,203.0.113.0/24,b,net,50,,
cidr,203.0.113.8/29,b,net,50,,
cidr,2001:db8::/32,b,net6,50,,
cidr,not a network,b,net,50,,
domain,Evil.Example,c,c2,90,,
hash,ABCDEF,d,tool,70,no time,
hash,ABCDEE,d,tool,70, ,
user,203.0.113.9,d,not an address,1,,
"""
    )
    entity = [("ip", f"203.0.113.{n}") for n in (9, 10, 11, 12)]
    got = enriched(
        spark,
        tmp_path,
        [
            {"entities": [entity[0], entity[0]]},
            *({"entities": [one]} for one in entity[1:]),
            {"entities": [("ip", "2001:DB8::1"), ("ip", "nonsense"), ("ip", "192.0.2.1")]},
            {"entities": [("domain", "a.b.evil.example"), ("domain", "notevil.example"), ("host", "evil.example")]},
            {"entities": [("hash", "abcdef"), ("hash", "abcdee")]},
            {"entities": []},
            {"entities": None},
        ],
    )
    near, wide = "203.0.113.8/29", "203.0.113.0/24"
    assert [sorted(indicators(row)) for row in got] == [
        [("203.0.113.9", wide), ("203.0.113.9", near), ("203.0.113.9", "203.0.113.9")],
        [("203.0.113.10", wide), ("203.0.113.10", near)],
        [("203.0.113.11", wide), ("203.0.113.11", near)],
        [("203.0.113.12", wide), ("203.0.113.12", "203.0.113.12"), ("203.0.113.12", near)],
        [("2001:db8::1", "2001:db8::/32")],
        [("a.b.evil.example", "evil.example")],
        [("abcdee", "abcdee")],
        [],
        [],
    ]
    assert "1 rows with an invalid time; left out" in caplog.text


def test_a_lookup_that_cannot_be_read_is_left_out(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged lookup is named and the others are joined; replaced by a whole one, the next batch has it."""
    (tmp_path / "assets.csv").write_text("host,owner\nweb1,ops\n")
    (tmp_path / "sites.parquet").write_bytes(b"half a file")
    with caplog.at_level(logging.WARNING, "spark_jobs"):
        (row,) = enriched(spark, tmp_path, [{}])
    assert row.asset.owner == "ops"
    assert "place" not in row
    assert f"{tmp_path}/sites" in caplog.text
    assert "left out for this batch" in caplog.text

    pq.write_table(pa.table({"site": ["plant"], "name": ["P"]}), tmp_path / "new")
    (tmp_path / "new").rename(tmp_path / "sites.parquet")
    (row,) = enriched(spark, tmp_path, [{}])
    assert row.place.name == "P"


@pytest.mark.long
@pytest.mark.parametrize("rows", [enrich.HELD_ROWS, 1])
def test_a_lookup_is_read_again_only_when_it_has_changed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Files that stay are read once where they are small, each batch where they are not; a changed one is in effect
    with the next batch, with its time of change alone changed, too."""
    monkeypatch.setattr(enrich, "HELD_ROWS", rows)
    read, known = enrich._read, Lookups(str(tmp_path))
    paths: list[str] = []

    def noted(spark: SparkSession, path: str, *more: Any, **options: Any) -> DataFrame:
        paths.append(path)
        return read(spark, path, *more, **options)

    monkeypatch.setattr(enrich, "_read", noted)

    def owners(name: str, age: int) -> list[str]:
        (tmp_path / "assets.csv").write_text(f"host,owner\nweb1,{name}\nweb2,{name}\n")
        os.utime(tmp_path / "assets.csv", (time.time() - age,) * 2)
        paths.clear()
        got = [known.enrich(spark, alerts(spark, [{}])).collect()[0] for _ in range(2)]
        return [row.asset.owner for row in got]

    assert owners("ops", 100) == ["ops"] * 2
    assert len(paths) == (1 if rows > 1 else 3)
    assert owners("dev", 90) == ["dev"] * 2
    assert owners("new", -60) == ["new"] * 2
    assert len(paths) == 2


@pytest.mark.long
def test_small_indicators_need_no_question(spark: SparkSession, tmp_path: Path) -> None:
    """With neither domains nor ranges, and with nothing at all, hits are those by kind and value."""
    (tmp_path / "intel.csv").write_text("kind,value,threat\nip,::FFFF:192.0.2.1,bot\nuser,ROOT,\n,x,\nip,,\n")
    found = [("ip", "192.0.2.1"), ("user", "root"), ("hash", "root")]
    rows: list[dict[str, Any]] = [{"entities": found}, {"entities": [("ip", "192.0.2.2")]}, {"entities": None}]
    got = [sorted(indicators(row)) for row in enriched(spark, tmp_path, rows)]
    assert got == [[("192.0.2.1", "192.0.2.1"), ("root", "root")], [], []]
    (tmp_path / "intel.csv").write_text("kind,value\n")
    assert [indicators(row) for row in enriched(spark, tmp_path, rows)] == [[], [], []]


def test_what_feeds_say_reaches_alerts(spark: SparkSession, tmp_path: Path) -> None:
    """The file of ``vedette lookup fetch`` beside the owner's own: both count; one that cannot be read leaves the
    other."""
    feeds = {"kind": ["ip", "cidr"], "value": ["192.0.2.1", "198.51.100.0/24"], "source": ["misp", "misp"]}
    pq.write_table(pa.table(feeds), tmp_path / "intel_feeds.parquet")
    (tmp_path / "intel.csv").write_text("kind,value,threat\nip,192.0.2.9,exercise\n")
    asked = [{"entities": [("ip", value)]} for value in ("192.0.2.1", "198.51.100.7", "192.0.2.9", "203.0.113.1")]

    def met() -> list[list[str]]:
        return [[indicator for _, indicator in indicators(row)] for row in enriched(spark, tmp_path, asked)]

    assert met() == [["192.0.2.1"], ["198.51.100.0/24"], ["192.0.2.9"], []]
    (tmp_path / "intel_feeds.parquet").write_bytes(b"garbage")
    assert met() == [[], [], ["192.0.2.9"], []]


def test_a_lookup_overwritten_after_the_look_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """What the batch asked for is held when the plan is made: overwriting or deleting the files later does no harm."""
    pq.write_table(pa.table({"host": ["web1"], "owner": ["ops"]}), tmp_path / "assets.parquet")
    pq.write_table(pa.table({"kind": ["ip"], "value": ["192.0.2.1"]}), tmp_path / "intel.parquet")
    plan = Lookups(str(tmp_path)).enrich(spark, alerts(spark, [{"entities": [("ip", "192.0.2.1")]}]))
    (tmp_path / "assets.parquet").unlink()
    (tmp_path / "intel.parquet").write_bytes(b"garbage")
    (row,) = plan.collect()
    assert (row.asset.owner, indicators(row)) == ("ops", [("192.0.2.1", "192.0.2.1")])


def test_rows_are_never_doubled(spark: SparkSession, tmp_path: Path) -> None:
    """Lookups with many rows for one key give one: the alerts stay as many as they were."""
    (tmp_path / "assets.csv").write_text("host,site,owner\n" + "web1,plant,a\nweb1,plant,b\nweb1,,c\nweb1,,d\n")
    (tmp_path / "sites.csv").write_text("site,fleet,name\nplant,north,a\nplant,north,b\nplant,,c\nplant,,d\n")
    got = enriched(spark, tmp_path, [{}, {}])
    assert [(row.asset.owner, row.place.name) for row in got] == [("a", "a")] * 2


_RANGES = st.one_of(
    st.builds(lambda n, bits: f"{ipaddress.ip_address(n)}/{bits}", st.integers(0, 2**32 - 1), st.integers(0, 32)),
    st.builds(lambda n, bits: f"{ipaddress.IPv6Address(n)}/{bits}", st.integers(0, 2**128 - 1), st.integers(0, 128)),
    st.text(max_size=8),
)


@given(st.lists(_RANGES, max_size=20), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_ranges_equal_the_plain_form(ranges: list[str], rng: random.Random) -> None:
    """The search by prefix finds the ranges that ``ipaddress`` says an address lies in, and no others."""
    known = {}
    for text in ranges:
        try:
            known[text] = ipaddress.ip_network(text.strip(), strict=False)
        except ValueError:
            continue
    addresses = [str(ipaddress.ip_address(rng.getrandbits(32))) for _ in range(5)]
    addresses += [str(network[rng.randrange(min(network.num_addresses, 1 << 20))]) for network in known.values()]
    batch = pa.RecordBatch.from_arrays([pa.array([*addresses, "none"], pa.string())], names=["entity"])
    (out,) = containing(networks(ranges))(iter([batch]))
    got = sorted(zip(out.column(0).to_pylist(), out.column(1).to_pylist(), strict=True))
    naive = sorted(
        (address, text)
        for address in addresses
        for text, network in [(text, known[text]) for text in ranges if text in known]
        if ipaddress.ip_address(address) in network
    )
    assert got == naive
