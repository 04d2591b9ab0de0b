"""The real ingest as a process of its own, and what kills it at a named point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.spark_jobs.conftest import JARS, SETTINGS

ROOT = Path(__file__).parents[2]

COMMIT = "commit"
"""The point at which all tables of a batch are written and synced, and Spark has not noted it as done."""

LIMIT = 360
"""Seconds that a process may take to where it is killed, beside all other tests."""

DIE = """
import os, signal, sys
from spark_jobs import __main__
from spark_jobs.intake import batch, stream
from spark_jobs.tables.delta import DeltaTables

point = sys.argv.pop(1)

def dying(method):
    def write(self, table, rows, txn=None):
        done = method(self, table, rows, txn)
        if table.name == point and txn is not None and txn.version >= batch.MAX_PARTS:
            os.killpg(0, signal.SIGKILL)
        return done
    return write

DeltaTables.append, DeltaTables.upsert = dying(DeltaTables.append), dying(DeltaTables.upsert)

take = stream.take_batch

def take_and_die(work, *rest):
    account = take(work, *rest)
    if point == "commit" and work.number == 1:
        os.killpg(0, signal.SIGKILL)
    return account

stream.take_batch = take_and_die
__main__.run()
"""
"""``POINT JOB …``: the job, killed in its second batch right after the write of the table ``POINT``."""


def start(tables: Path, source: Sequence[str], *, point: str = "", job: str = "ingest") -> subprocess.Popen[bytes]:
    """Ingest from ``source`` (options), or another ``job`` with these options, in a process group of its own; killed at
    ``point`` when there is one."""
    settings = {**SETTINGS, "spark.jars": ",".join(map(str, JARS))} if "--kafka" in source else SETTINGS
    program = ["-c", DIE, point] if point else ["-m", "spark_jobs"]
    words = [job, *source, "--tables", str(tables), "--master", "local[2]"]
    confs = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    return subprocess.Popen(
        [sys.executable, *program, *words, *confs],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill_in_batch(job: subprocess.Popen[bytes], tables: Path, number: int, seconds: float) -> None:
    """Kill ``job`` so long after Spark has planned micro-batch ``number``, wherever it is then."""
    deadline = time.monotonic() + LIMIT
    while not any(tables.glob(f"_checkpoints/*alerts/offsets/{number}")):
        assert job.poll() is None, "the job ended before it was killed"
        assert time.monotonic() < deadline, f"no batch in {LIMIT} s"
        time.sleep(0.02)
    time.sleep(seconds)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
