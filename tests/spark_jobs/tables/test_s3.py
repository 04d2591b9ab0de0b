"""Tables in an S3 store, by the name that Spark has for it: a real MinIO keeps what the default backend writes.

MinIO is the program of ``VEDETTE_MINIO``, ``build/minio``, or the one on the PATH; without one the test is skipped.
Spark's own way there needs the jars of hadoop-aws and goes untested here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.tables.ask import open_reader
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import RULES, WIN_5M
from spark_jobs.tables.tables import Txn, Where
from tests.broker import free_port
from tests.spark_jobs.found import AT

pytestmark = pytest.mark.peer

BUILT = Path(__file__).parents[3] / "build" / "minio"
MINIO = os.environ.get("VEDETTE_MINIO") or (str(BUILT) if BUILT.exists() else shutil.which("minio"))
USER, SECRET = "vedette-tests", "only-for-tests"


def ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/minio/health/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a bucket, as Spark writes it; its address and key are in the environment."""
    if not MINIO:
        pytest.skip("no MinIO: VEDETTE_MINIO names one")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    (tmp_path / "data" / "bucket").mkdir(parents=True)
    command = [MINIO, "server", "--quiet", "--address", f"127.0.0.1:{port}", str(tmp_path / "data")]
    environment = {**os.environ, "MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_CI_CD": "1"}
    for name, value in {
        "AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not ready(address):
            assert process.poll() is None, "MinIO ended"
            assert time.monotonic() < deadline, "MinIO is not ready after 60 s"
            time.sleep(0.05)
        yield "s3a://bucket"
    finally:
        process.kill()
        process.wait()


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
