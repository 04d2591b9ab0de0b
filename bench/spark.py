"""``make bench-spark``: what the region's jobs take on a made-up fleet, on ``local[2]``.

``python -m bench.spark [--alerts N] [--skew SHARE] [--job NAME …]`` makes the landing of that many alerts
(``bench.simulate``; kept in ``--folder`` for the next run, the same each time), then runs the jobs one after the
other in one process and one Spark session, as ``vedette-spark all`` does: ``ingest`` into empty tables, the others over
what it made, without tables of their own from an earlier run. **start** is what it takes to open the session and run
all of them once on a small fleet, which loads Spark's classes: a figure by itself, and in no other. Of each job are
taken:

* **rows** it has to read: landed alerts and heartbeats for ingest, lines written for export, rows of the tables that it
  reads for the others;
* **seconds**, and **CPU-seconds** of its process, the JVM and the Python workers (``usage``);
* **memory**: the largest resident size of the JVM, and of all Python together;
* **longest**: seconds of Spark's longest task, and how many times the mean of its stage that is (``uneven``). A site
  that stalls a job shows here: run again with ``--skew 0.5``, which gives one site half of all alerts;
* **files**: data files and bytes of the tables it wrote.

The figures go into ``docs/scale/measured.json``, those of the same size, skew and machine replaced, and from there into
the tables of ``docs/scale.md`` (``bench.scale``).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bench import scale
from bench.host import machine
from bench.simulate import Plan, simulate
from bench.usage import Usage, measured
from spark_jobs.__main__ import main as jobs
from spark_jobs.common.session import open_session
from spark_jobs.jobs.ingest import BYTES_PER_BATCH

ROOT = Path(__file__).parents[1]
WARM = 20_000
"""Alerts of the small fleet."""
MIN_TASK = 0.5
"""Seconds; a task shorter than this stalls nothing, however uneven its stage."""
MASTER = "local[2]"


class Asked(NamedTuple):
    """A job as it is run: its options, the tables whose rows it reads, and those that it writes."""

    options: str
    reads: str = ""
    writes: str = ""


COUNTS = "win_5m entity_site_5m host_1h"
PLAN: dict[str, Asked] = {
    "ingest": Asked("--landing={out}/landing --lookups={out}/lookups", "", f"alerts {COUNTS}"),
    "campaigns": Asked("--date={last} --lookups={out}/lookups", "entity_site_5m", "campaigns sessions"),
    "baselines": Asked("--date={last} --days=6 --lookups={out}/lookups", "win_5m entity_site_5m",
                       "baselines anomalies first_seen"),
    "risk": Asked("--date={last} --lookups={out}/lookups", f"alerts {COUNTS}", "risk"),
    "noise": Asked("--date={last} --days=14", COUNTS, "noise"),
    "coverage": Asked("--date={last} --days=14 --rules={out}/landing/rules", "win_5m", "coverage"),
    "report": Asked("--date={last} --days=14 --html={out}/report.html", f"alerts {COUNTS}"),
    "export": Asked("--date={last} --format=ocsf --output={out}/export"),
    "maintain": Asked("--date={last} --days=14", "alerts win_5m", f"alerts {COUNTS}"),
}  # fmt: skip
"""In the order in which they run."""


@dataclass(slots=True)
class Cost(Usage):
    """What one job took."""

    job: str = ""
    rows: int = 0
    tasks: int = 0
    longest: float = 0.0
    uneven: float = 0.0
    files: int = 0
    file_mb: float = 0.0
    said: str = ""
    tables_mb: dict[str, float] = field(default_factory=dict)


def plan(alerts: int, skew: float) -> Plan:
    """The fleet: 100 sites of 50 hosts and 5 agents, 200 rules, two weeks. That of ``WARM`` alerts has 10 sites."""
    if alerts == WARM:
        return Plan(alerts=alerts, days=14, seed=9001, sites=10, rules=50, hosts=10, campaigns=4)
    return Plan(alerts=alerts, skew=skew, days=14, seed=9001, sites=100, rules=200, hosts=50, campaigns=24)


def fleet(alerts: int, skew: float, out: Path) -> dict[str, Any]:
    """The truth of that fleet, made in ``out`` unless it is there."""
    truth = out / "truth.json"
    if not truth.exists():
        shutil.rmtree(out, ignore_errors=True)
        simulate(plan(alerts, skew), out)
    planted: dict[str, Any] = json.loads(truth.read_text("utf-8"))
    return planted


def session(jobs: Sequence[str], said: argparse.Namespace, out: Path, truth: dict[str, Any]) -> Iterator[list[Cost]]:
    """Run ``jobs`` in one session: all once on the small fleet (``start``), then each, measured, on the large one.

    After each job the costs so far; at the end all of them again, with what the event log tells of their tasks."""
    warm, start, costs, began = said.folder / "warm", Cost(job="start"), list[Cost](), list[float]()
    with tempfile.TemporaryDirectory(prefix="vedette-bench-") as events:
        settings = {
            "spark.driver.memory": said.memory,
            "spark.sql.shuffle.partitions": "4",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{events}",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        }
        with measured(start):
            spark = open_session("bench", master=MASTER, settings=settings)
            for job in jobs:
                clear(job, warm)
                _run(spark, job, plan(WARM, 0.0), warm)
        for job in jobs:
            clear(job, out)
            cost = Cost(job=job, rows=rows_of(job, out, truth))
            costs.append(cost)
            began.append(time.time())
            with measured(cost):
                cost.said = _run(spark, job, plan(said.alerts, said.skew), out)
            cost.rows = cost.rows or rows_of(job, out, truth)
            for table in PLAN[job].writes.split():
                files, size = files_of(out / "tables" / table)
                cost.files, cost.file_mb = cost.files + files, cost.file_mb + size
                cost.tables_mb[table] = size
            print(cost, file=sys.stderr, flush=True)
            yield [start, *costs]
        spark.stop()
        for cost, since, until in zip(costs, began, [*began[1:], time.time()], strict=True):
            cost.tasks, cost.longest, cost.uneven = stalls(Path(events), since, until)
    yield [start, *costs]


def _run(spark: SparkSession, job: str, plan: Plan, out: Path) -> str:
    last = plan.start + timedelta(days=plan.days - 1)
    options = PLAN[job].options.format(out=out, last=last).split()
    said: str = jobs.main([job, f"--tables={out}/tables", *options], standalone_mode=False, obj=spark)
    return said.splitlines()[0].replace(f"{out}/", "")


def stalls(events: Path, since: float, until: float) -> tuple[int, float, float]:
    """Of the event log's tasks from ``since`` to ``until`` (seconds since 1970): how many, seconds of the longest, and
    the worst ratio of a stage's longest task, if of ``MIN_TASK`` seconds, to the mean of the stage."""
    stages: dict[int, list[float]] = {}
    for file in events.iterdir():
        with file.open("rb") as lines:
            for line in lines:
                if b'"SparkListenerTaskEnd"' not in line:
                    continue
                event = json.loads(line)
                info = event["Task Info"]
                if since * 1000 <= info["Launch Time"] < until * 1000:
                    took = (info["Finish Time"] - info["Launch Time"]) / 1000
                    stages.setdefault(event["Stage ID"], []).append(took)
    every = [took for tasks in stages.values() for took in tasks]
    long = [tasks for tasks in stages.values() if len(tasks) > 1 and max(tasks) >= MIN_TASK]
    return (
        len(every),
        max(every, default=0.0),
        max((max(tasks) * len(tasks) / sum(tasks) for tasks in long), default=1.0),
    )


def rows_of(job: str, out: Path, truth: dict[str, Any]) -> int:
    """Rows that ``job`` has to read, before it runs; of export, that it has written."""
    if job == "ingest":
        beats = (out / "landing" / "status").rglob("*.parquet")
        return int(truth["rows"]) + sum(int(pq.ParquetFile(file).metadata.num_rows) for file in beats)
    if job == "export":
        return sum(file.read_bytes().count(b"\n") for file in (out / "export").glob("*.ndjson"))
    return sum(_rows(out / "tables" / table) for table in PLAN[job].reads.split())


def _rows(path: Path) -> int:
    if not DeltaTable.is_deltatable(str(path)):
        return 0
    return sum(pa.table(DeltaTable(str(path)).get_add_actions(flatten=True))["num_records"].to_pylist())


def files_of(path: Path) -> tuple[int, float]:
    """How many data files a table is, and their megabytes."""
    if not DeltaTable.is_deltatable(str(path)):
        return 0, 0.0
    sizes = [Path(file.removeprefix("file://")).stat().st_size for file in DeltaTable(str(path)).file_uris()]
    return len(sizes), sum(sizes) / 1e6


def folder_mb(path: Path) -> float:
    """Megabytes of all files below ``path``."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6


def run(said: argparse.Namespace) -> None:
    """Make the fleets, run the jobs asked for, and write down what each took, as soon as it has ended: a long run that
    is cut short has not been in vain."""
    name = f"{said.alerts}-skew-{said.skew:g}" if said.skew else str(said.alerts)
    out, began = said.folder / name, time.monotonic()
    with ProcessPoolExecutor(1) as pool:  # so that what it takes to make them is not counted as the jobs'
        pool.submit(fleet, WARM, 0.0, said.folder / "warm").result()
        truth = pool.submit(fleet, said.alerts, said.skew, out).result()
    landing = folder_mb(out / "landing" / "alerts")
    print(f"{truth['rows']:,} rows landed, {landing:,.0f} MB", file=sys.stderr)
    results: dict[str, Any] = {
        "alerts": said.alerts,
        "skew": said.skew,
        "landed": truth["rows"],
        "made_seconds": round(time.monotonic() - began, 1),
        "landing_mb": round(landing, 1),
        "batch_bytes": BYTES_PER_BATCH,
    }
    about = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "load": round(os.getloadavg()[0], 1)}
    jobs = said.job or list(PLAN)
    for start, *costs in session(jobs, said, out, truth):
        about |= {"code": code(), "start_cpu_seconds": round(start.cpu_seconds, 1)}
        results["jobs"] = {cost.job: {**scale.rounded(asdict(cost)), **about} for cost in costs}
        if "ingest" in jobs:
            checkpoint = out / "tables" / "_checkpoints" / "alerts"
            batches = sum(file.name.isdecimal() for file in (checkpoint / "commits").iterdir())
            results |= {"checkpoint_mb": round(folder_mb(checkpoint), 3), "batches": batches}
        results["disk_mb"] = round(folder_mb(out), 1)
        if not said.no_docs:
            scale.keep(results, machine())
            scale.document()
    print(f"start: {start.seconds:.1f} s, {start.cpu_seconds:.1f} CPU-s", file=sys.stderr)


def code() -> str | None:
    """The jobs' code: git's name of its folder; None outside of a clone, and where something in it is not committed."""
    git = ("git", "-C", str(ROOT))
    if shutil.which("git") is None:
        return None
    if subprocess.run([*git, "status", "--porcelain", "spark_jobs"], capture_output=True).stdout:
        return None
    named = subprocess.run([*git, "rev-parse", "--short=10", "HEAD:spark_jobs"], capture_output=True, text=True)
    return named.stdout.strip() or None


def clear(job: str, folder: Path) -> None:
    """Have ``job`` find the tables of ``folder`` as before its first run: without those that it writes, of ingest none
    at all; maintain's are its subject. Raises SystemExit when ingest has not run there."""
    if job == "ingest":
        shutil.rmtree(folder / "tables", ignore_errors=True)
    elif not (folder / "tables").exists():
        raise SystemExit(f"{folder}: no tables yet; run ingest first")
    elif job != "maintain":
        for table in PLAN[job].writes.split():
            shutil.rmtree(folder / "tables" / table, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--alerts", type=int, default=1_000_000, metavar="N", help="default 1,000,000")
    parser.add_argument("--skew", type=float, default=0.0, metavar="SHARE", help="of all alerts, at one site")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench-spark", metavar="DIR")
    parser.add_argument("--memory", default="2g", metavar="SIZE", help="heap of the JVM, default 2g")
    parser.add_argument("--job", action="append", default=[], choices=list(PLAN), help="only this one; repeatable")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/scale.md and its figures as they are")
    said = parser.parse_args(arguments)
    said.folder = said.folder.resolve()
    run(said)
    return 0


if __name__ == "__main__":
    sys.exit(main())
