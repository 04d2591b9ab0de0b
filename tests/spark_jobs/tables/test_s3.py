"""Tables in an S3 store, by the name that Spark has for it: a real server (``tests/archive/s3.py``) keeps what the
default backend writes; without one the test is skipped. Spark's own way there needs the jars of hadoop-aws, some
hundreds of megabytes, and goes untested here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.tables.ask import open_reader
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import RULES, WIN_5M
from spark_jobs.tables.tables import Txn, Where
from tests.archive import s3
from tests.spark_jobs.found import AT

pytestmark = pytest.mark.peer


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a bucket, as Spark writes it; its address and key are in the environment."""
    with s3.serving(tmp_path, "bucket") as port:
        for name, value in {
            "AWS_ACCESS_KEY_ID": s3.USER, "AWS_SECRET_ACCESS_KEY": s3.SECRET, "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        yield "s3a://bucket"


def test_tables_are_written_and_read_by_s3a(bucket: str) -> None:
    """Append, upsert once by name, Arrow, and DuckDB's questions, divided by days or not."""
    tables = DeltaTables(f"{bucket}/tables")
    assert tables.upsert(RULES, pa.table({"rule_id": ["a", "b"]}), Txn("q", 1))
    assert not tables.upsert(RULES, pa.table({"rule_id": ["c"]}), Txn("q", 1))
    rows = [
        {"date": day, "window_start": AT, "fleet": "f", "alerts": n}
        for n, day in enumerate(("2026-11-19", "2026-11-20"), 1)
    ]
    tables.append(WIN_5M, pa.Table.from_pylist(rows))
    assert tables.arrow(RULES)["rule_id"].to_pylist() == ["a", "b"]
    assert tables.dataset(WIN_5M, Where("2026-11-20")).to_table()["date"].to_pylist() == ["2026-11-20"]
    assert tables.partitions(WIN_5M) == ["2026-11-19", "2026-11-20"]
    reader = open_reader(tables, None)
    reader.view("win", WIN_5M, "2026-11-19")
    assert reader.only("SELECT CAST(sum(alerts) AS BIGINT) AS n FROM win")["n"] == 3
    reader.close()
