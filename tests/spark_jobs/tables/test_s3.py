"""Tables in an S3 store, by the name that Spark has for it: a real server (``tests/archive/s3.py``) keeps what the
default backend writes; without one the test is skipped. Spark's own way there needs the jars of hadoop-aws, some
hundreds of megabytes, and goes untested here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.tables import lease, storage
from spark_jobs.tables.ask import open_reader
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import RULES, WIN_5M
from spark_jobs.tables.tables import Txn, Where
from tests.archive import s3
from tests.spark_jobs.found import AT
from tests.waits import DEADLINE, until

pytestmark = pytest.mark.peer

ROOT = Path(__file__).parents[3]


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


@pytest.fixture
def proxy(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.Proxy]:
    """Before the store of ``bucket``, from now on."""
    with s3.Proxy(int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2])) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        yield proxy


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


HOLD = """
import sys
from spark_jobs.tables import lease, storage

lease.RENEWED, lease.ENDS = 0.1, float(sys.argv[2])
with storage.one_writer(sys.argv[1], "ingest"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(folder: str, ends: float = DEADLINE) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the tables until its standard input ends."""
    command = [sys.executable, "-c", HOLD, folder, str(ends)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


def take_over(folder: str) -> bool:
    """Whether this process had the tables for a moment."""
    try:
        with storage.one_writer(folder, "ingest"):
            return True
    except BlockingIOError:
        return False


def test_one_process_at_a_time_writes(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one is refused while the first one is there, and names it; it is taken on when that has ended, was
    killed, or was stopped, which then ends as soon as it goes on. Jobs of another name are no matter."""
    folder = f"{bucket}/tables"
    monkeypatch.setattr(lease, "RENEWED", 0.1)
    monkeypatch.setattr(lease, "DEAD", DEADLINE)
    with holder(folder) as first:
        said = rf"another ingest is writing these tables \(.*, process {first.pid}\)"
        with (
            pytest.raises(BlockingIOError, match=said),
            storage.one_writer(folder, "ingest"),
        ):
            pass
        with storage.one_writer(folder, "maintain"):
            pass
        first.communicate()
        assert first.returncode == 0
    assert take_over(folder)
    monkeypatch.setattr(lease, "DEAD", 0.0)
    with holder(folder) as second:
        second.kill()
        second.wait()
        until("the tables of one that was killed", lambda: take_over(folder))
    with holder(folder) as third:
        os.kill(third.pid, signal.SIGSTOP)
        until("the tables of one that was stopped", lambda: take_over(folder))
        os.kill(third.pid, signal.SIGCONT)
        assert third.wait(DEADLINE) == 1
    assert len(storage.names(f"{folder}/.ingest.lock")) <= 3


@pytest.mark.long
def test_a_holder_ends_before_another_one_may_follow(bucket: str, proxy: s3.Proxy) -> None:
    """When the store refuses to renew the lease, and when it does not answer."""
    modes: tuple[s3.Mode, ...] = ("500", "dead")
    for mode in modes:
        with holder(f"{bucket}/{mode}", ends=2.0) as process:
            proxy.mode = mode
            assert process.wait(DEADLINE) == 1
        proxy.mode = "pass"


def test_a_store_that_refuses_is_said_in_one_line(bucket: str, proxy: s3.Proxy) -> None:
    """As the command shows it of a disk."""
    proxy.mode = "revoked"
    with pytest.raises(OSError, match=r"\As3a://bucket/lock: .*\Z"):
        storage.create(f"{bucket}/lock", "")
