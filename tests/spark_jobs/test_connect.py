"""Spark Connect: the jobs over tables give by a server what they give in a session of their own."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from spark_jobs.tables.schema import ANOMALIES, BASELINES, CAMPAIGNS, NOISE, RISK, Table
from spark_jobs.tables.tables import Tables, open_tables
from tests.broker import own_port
from tests.spark_jobs import attackers
from tests.spark_jobs.conftest import LONG, ROOT, run
from tests.spark_jobs.connected import JOBS
from tests.waits import DEADLINE, until

HOME = Path(pyspark.__file__).parent
DAY = "2026-11-20"
PRIVATE = r"\._(jvm|jsc|jdf|jconf|jsparkSession|sc)\b|\bpy4j\.java_gateway\b|DeltaLog"


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The server of pyspark's own jars."""
    port = own_port()
    command = [
        HOME / "bin" / "spark-class", "org.apache.spark.deploy.SparkSubmit", "--master", "local[2]",
        "--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
        "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2",
        "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(HOME),
        "PYSPARK_PYTHON": sys.executable,
    }
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            until("the server, or its end", lambda: process.poll() is not None or listens(port))
            assert process.poll() is None, (tmp_path / "server.log").read_text()[-3000:]
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(DEADLINE)


def content(tables: Tables, table: Table) -> list[str]:
    """All rows, but for when they were written."""
    rows = tables.arrow(table).to_pylist()
    return sorted(repr({name: value for name, value in row.items() if name != "updated_at"}) for row in rows)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.skipif(not LONG, reason="takes minutes: make test-crash")
@pytest.mark.skipif(not find_spec("grpc"), reason="Spark Connect needs grpcio, grpcio-status, googleapis-common-protos")
def test_a_server_gives_the_same(spark: SparkSession, tmp_path: Path, server: str) -> None:
    """Campaigns, baselines, risk and noise of a made-up region: row by row what a session of this process writes."""
    attackers.make(tmp_path, 7)
    run(spark, "ingest", f"--tables={tmp_path}/tables", f"--landing={tmp_path}/landing")
    shutil.copytree(tmp_path / "tables", tmp_path / "remote")
    command = [sys.executable, "-m", "tests.spark_jobs.connected", server, f"{tmp_path}/remote", DAY]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-4000:]
    for job in JOBS:
        run(spark, job, f"--tables={tmp_path}/tables", f"--date={DAY}")
    mine, theirs = (open_tables(f"{tmp_path}/{name}") for name in ("tables", "remote"))
    for table in (CAMPAIGNS, BASELINES, ANOMALIES, RISK, NOISE):
        assert content(mine, table) == content(theirs, table), table.name
        assert content(mine, table), table.name


def test_no_private_api_of_spark() -> None:
    """No job reaches behind Spark's public Python API."""
    for path in sorted((ROOT / "spark_jobs").rglob("*.py")):
        found = re.search(PRIVATE, path.read_text("utf-8"))
        assert found is None, f"{path}: {found and found[0]}"
