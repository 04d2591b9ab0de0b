"""The job ``all``: every job that is due, one after the other in one Spark session.

A JVM that starts costs more than most jobs do. Each job is the command of its own name with its defaults, so what is
here is only when a job is due and what it is given. A job that fails is logged, noted in the table ``runs`` and tried
again by the next run; the others go on. Ingest and report are due each time; the others once in each hour, or day, of
UTC that has begun since their last success, so that a timer that comes a second early skips none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import click
import pyarrow as pa

from spark_jobs.intake.landing import FAILURES, reason
from spark_jobs.jobs.baselines import baselines
from spark_jobs.jobs.campaigns import campaigns
from spark_jobs.jobs.coverage import coverage
from spark_jobs.jobs.ingest import ingest
from spark_jobs.jobs.job import DURATION, FOLDER, SPAN, Job, spark_job
from spark_jobs.jobs.maintain import maintain
from spark_jobs.jobs.noise import noise
from spark_jobs.jobs.reconcile import reconcile
from spark_jobs.jobs.report import report
from spark_jobs.jobs.risk import risk
from spark_jobs.tables import storage
from spark_jobs.tables.schema import RUNS
from spark_jobs.tables.tables import Tables

log = logging.getLogger(__name__)

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
COMMANDS: tuple[tuple[click.Command, timedelta | None], ...] = (
    (ingest, None), (campaigns, HOUR), (baselines, HOUR), (risk, HOUR), (noise, DAY), (coverage, DAY),
    (maintain, DAY), (reconcile, DAY), (report, None),
)  # fmt: skip
"""The jobs in the order in which they run, and how often; None: each time."""
TAKE_LOOKUPS = {
    str(command.name) for command, _ in COMMANDS if any(option.name == "lookups" for option in command.params)
} - {"reconcile"}
INPUTS = ("landing", "kafka", "lookups", "rules")
"""Options of jobs that say what they work with."""
NO_RULES = "name --rules, or have region publish or fleet apply write them with --landing"
NAMES = tuple(str(command.name) for command, _ in COMMANDS)


@spark_job(name="all")
@click.option("--landing", type=FOLDER, metavar="DIR", help="Folder that the landing writes.")
@click.option("--kafka", metavar="HOST:PORT,…", help="Ingest from Kafka topics instead.")
@click.option("--lookups", type=FOLDER, metavar="DIR", help="Folder of the lookups.")
@click.option("--rules", type=FOLDER, metavar="PATH", help="Of coverage.  [default: LANDING/rules, if it is there]")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the report's page.")
@click.option("--days", type=SPAN, metavar="N", help="Days that the report spans.  [default: the last 24 hours]")
@click.option("--keep", multiple=True, metavar="TABLE=DAYS", help="Of maintain; may be repeated.")
@click.option("--landing-days", type=SPAN, metavar="N", help="Of maintain: days of the landing that are kept.")
@click.option("--skip", type=click.Choice(NAMES), multiple=True, help="Leave a job out; may be repeated.")
@click.option("--now", is_flag=True, help="Run every job, due or not.")
@click.option("--every", type=DURATION, metavar="TIME", help="Go on, looking each TIME (30s, 5m, …); else once.")
def all_due(
    job: Job, landing: str | None, kafka: str | None, lookups: str | None, rules: str | None, html: Path | None,
    days: int | None, keep: tuple[str, ...], landing_days: int | None, skip: tuple[str, ...], now: bool,
    every: float | None,
) -> str:  # fmt: skip
    """Run every job that is due, in one Spark session.

    Exit code 1 when one of them failed; the others have run all the same.

    Example: vedette-spark all --tables tables --landing landing --lookups lookups --html report.html
    """
    if bool(landing) == bool(kafka) and "ingest" not in skip:
        raise click.UsageError("all needs --landing DIR, or --kafka HOST:PORT, or --skip ingest")
    if landing_days is not None and not landing:
        raise click.UsageError("--landing-days needs --landing")
    words = {
        "ingest": ["--landing", landing] if landing else ["--kafka", str(kafka)],
        "campaigns": [],
        "baselines": [],
        "risk": [],
        "noise": ["--date", "yesterday"],
        "maintain": [f"--keep={setting}" for setting in keep]
        + ([] if landing_days is None else ["--landing", str(landing), "--landing-days", str(landing_days)]),
        "reconcile": ["--check"],
        "report": [*([] if days is None else ["--days", str(days)]), *([] if html is None else ["--html", str(html)])],
    }
    with storage.one_writer(job.root, "all"):
        while True:
            if rules or (landing and storage.exists(f"{landing}/rules")):
                words["coverage"] = ["--rules", rules or f"{landing}/rules", "--date", "yesterday"]
            chosen = {name: words[name] for name in NAMES if name in words and name not in skip}
            failed, done = run_due(job, with_lookups(chosen, lookups), force=now)
            if every is None or job.stop.wait(every):
                break
    if failed:
        why = "; ".join(f"{name}: {error}" for name, error in failed.items())
        raise click.ClickException(f"{len(failed)} of {len(failed) + len(done)} jobs failed: {why}")
    text = f"all: {', '.join(done) or 'nothing is due'}"
    return text if "coverage" in {*words, *skip} else f"{text}; not coverage, for want of rules: {NO_RULES}"


def with_lookups(words: Mapping[str, list[str]], folder: str | None) -> dict[str, list[str]]:
    """``words``, with the folder of the lookups for each job that takes one."""
    more = [] if folder is None else ["--lookups", folder]
    return {name: [*mine, *(more if name in TAKE_LOOKUPS else ())] for name, mine in words.items()}


def inputs_of(words: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """By job what it works with, in words."""
    inputs = {}
    for name, mine in words.items():
        values = dict(pairwise(mine))
        parts = [f"{key} {values[f'--{key}']}" for key in INPUTS if f"--{key}" in values]
        inputs[name] = ", ".join(parts + ["no lookups"] * (name in TAKE_LOOKUPS and "--lookups" not in values))
    return inputs


def run_due(job: Job, words: Mapping[str, Sequence[str]], *, force: bool = False) -> tuple[dict[str, str], list[str]]:
    """Run those jobs of ``words``, with these, that are due, all of them by ``force``; why which failed, and which did
    not. Ends early when ``job`` is to stop."""
    failed: dict[str, str] = {}
    done: list[str] = []
    inputs = inputs_of(words)
    before = {row["job"]: row["succeeded_at"] for row in job.tables.arrow(RUNS).to_pylist()}
    for command, often in COMMANDS:
        name, started = str(command.name), datetime.now(UTC)
        if job.stop.is_set() or name not in words or not (force or due(before.get(name), often, started)):
            continue
        error = _run(job, command, words[name])
        if error:
            failed[name] = error
            log.error("%s failed: %s", name, error)
        else:
            done.append(f"{name} ({inputs[name]})" if inputs[name] else name)
        _note(job.tables, name, started, before.get(name) if error else started, error, inputs[name])
    return failed, done


def due(succeeded: datetime | None, often: timedelta | None, now: datetime) -> bool:
    """Whether another hour or day of UTC has begun since a job's last success (None: it had none)."""
    return succeeded is None or often is None or (now.timestamp() // often.total_seconds()
                                                  > succeeded.timestamp() // often.total_seconds())  # fmt: skip


def _run(job: Job, command: click.Command, words: Sequence[str]) -> str:
    """Run ``command`` in the session of ``job``; why it failed, empty when it did not."""
    common = ["--tables", job.root, "--backend", job.backend]
    try:
        command.main([*common, *words], prog_name=str(command.name), standalone_mode=False, obj=job)
    except FAILURES as error:
        return reason(error)
    except click.ClickException as error:
        return error.format_message()
    except Exception as error:  # whatever it is: no job stops another
        return f"{type(error).__name__}: {error}"
    return ""


def _note(tables: Tables, name: str, started: datetime, succeeded: datetime | None, error: str, inputs: str) -> None:
    row = {"job": name, "started_at": started, "ended_at": datetime.now(UTC), "succeeded_at": succeeded,
           "error": error, "inputs": inputs}  # fmt: skip
    times = [(column, pa.timestamp("us", tz="UTC")) for column in ("started_at", "ended_at", "succeeded_at")]
    schema = pa.schema([("job", pa.string()), *times, ("error", pa.string()), ("inputs", pa.string())])
    tables.upsert(RUNS, pa.Table.from_pylist([row], schema))
