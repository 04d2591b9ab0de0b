"""The jobs' schemas against the agent's: two lists of columns, one truth."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from spark_jobs.intake import landing
from spark_jobs.tables import schema
from spark_jobs.tables.meanings import MEANINGS, OF_TABLE, meaning
from spark_jobs.tables.schema import TABLES
from tests.spark_jobs.landed import alert
from vedette.delivery import columns, envelope, parquet

_SCALARS: dict[columns.Type, T.DataType] = {
    columns.STRING: T.StringType(),
    columns.BINARY: T.BinaryType(),
    columns.BOOL: T.BooleanType(),
    columns.INT32: T.IntegerType(),
    columns.INT64: T.LongType(),
    columns.TIMESTAMP: T.TimestampType(),
}


def _spark(kind: columns.Type) -> T.DataType:
    match kind:
        case columns.Scalar():
            return _SCALARS[kind]
        case columns.List(of):
            return T.ArrayType(_spark(of))
        case columns.Map():
            return T.MapType(T.StringType(), T.StringType())
        case columns.Struct(parts):
            return T.StructType([T.StructField(part.name, _spark(part.type)) for part in parts])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (schema.LANDED_ALERT, envelope.LANDED_ALERT),
        (schema.LANDED_STATUS, envelope.STATUS),
        (schema.LANDED_BAD, envelope.DEAD_LETTER),
        (schema.LANDED_SEQS, envelope.SEQS),
    ],
)
def test_columns_are_the_envelopes(ours: T.StructType, theirs: columns.Schema) -> None:
    """Names, order and types of every landed table are those the agent's envelope fixes."""
    assert ours == _spark(columns.Struct(theirs))


def test_version_is_the_envelopes() -> None:
    """The jobs know every column of the version that agents write."""
    assert schema.SCHEMA_VERSION == envelope.SCHEMA_VERSION


@pytest.mark.spark
def test_spark_reads_what_the_agents_writer_writes(spark: SparkSession, tmp_path: Path) -> None:
    """A file of the edge's own Parquet writer gives Spark the rows that went in, nested values and nulls included."""
    rows = [
        alert(1),
        alert(2, host=None, fields={}, entities=[], tags=[], group_by={"user": "röot"}, flags=["cut", "dup"]),
        alert(
            3,
            contributing=[
                {"rule_id": "r", "event_time": 5, "raw_ref": {"log_id": "ab", "offset": 1 << 40, "length": 7}},
                {"rule_id": "s", "event_time": -5, "raw_ref": {"log_id": "cd", "offset": 0, "length": 1}},
            ],
            entities=[{"kind": "ip", "value": "::1"}, {"kind": "user", "value": "root"}],
            raw="snow ☃ and NUL \x00",
        ),
    ]
    file = tmp_path / "x.parquet"
    file.write_bytes(parquet.write(envelope.LANDED_ALERT, rows))

    read = landing.read(spark, [str(file)], schema.LANDED_ALERT).orderBy("position").toArrow().to_pylist()

    assert [row["alert_id"] for row in read] == [row["alert_id"] for row in rows]
    for got, put in zip(read, rows, strict=True):
        for name in ("seq", "host", "tags", "entities", "logsource", "raw", "raw_ref", "flags", "count", "ingest"):
            assert got[name] == put[name], name
        assert dict(got["fields"]) == put["fields"]
        assert dict(got["group_by"]) == put["group_by"]
        assert got["event_time"].timestamp() == put["event_time"] / 1e6
        assert [(c["rule_id"], c["raw_ref"]) for c in got["contributing"]] == [
            (c["rule_id"], c["raw_ref"]) for c in put["contributing"]
        ]


def test_every_column_has_a_meaning() -> None:
    """Of each table; and nothing is told of a column that is not there."""
    there = {(table.name, name) for table in TABLES.values() for name in table.names}
    assert all(meaning(*one) for one in there)
    assert set(OF_TABLE) <= there
    assert {name for _, name in there} == set(MEANINGS)
