"""How far a report can be believed: whether its counts agree with alerts, and up to when there are data.

Counts are compared day by day, in the days of the report. How new the data are is said of the tables as a whole: the
newest alert, the last heartbeat of any agent, the last run of any job by ``all``, and the jobs that failed or are
behind. A host's clock may be ahead, so no alert counts as newer than what landed last.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from spark_jobs.common.period import Period
from spark_jobs.common.plain import many
from spark_jobs.report.figures import Line, in_period, lines
from spark_jobs.tables import sums
from spark_jobs.tables.ask import Reader, total
from spark_jobs.tables.schema import AGENTS, RUNS

BEHIND = timedelta(days=2)
"""How long before the newest run of any job the last one of a job may be: ``all`` runs each in every day of UTC, one
after the other, and may take hours."""
LEFT_OUT = timedelta(days=7)
"""The same of a job that is named at all: the row of one that nobody runs any more stays."""

DIFFER = "COUNTS DIFFER"


@dataclass(frozen=True, slots=True)
class Freshness:
    """What the first line of a report says."""

    differing: tuple[Line, ...]
    """Days of which the counts say something else than the alerts: ``date``, ``alerts`` and ``counted``, and the same
    of ``matches`` and ``counted_matches``. A day without alerts has outlived them: its counts stay."""
    alerts: datetime | None
    """When the newest alert was, or landed if that was earlier; None without any. So below."""
    heard: datetime | None
    ran: datetime | None
    runs: tuple[Line, ...]
    """Of each job: when its last run without failure was (``ran``), ``inputs`` of the last one, and its
    ``error``."""
    late: tuple[Line, ...]
    """Jobs whose last run failed (``failed``), or which are behind: ``job``, and ``ran``, when its last success was."""


def freshness(reader: Reader, period: Period) -> Freshness:
    """The freshness of the tables for ``period``; asks the views of ``figures.counts`` and ``accounts.accounts``."""
    reader.view("every_agent", AGENTS)
    reader.view("runs", RUNS)
    alerts = reader.only("SELECT max(last_time) AS newest FROM rules")["newest"]
    landed = reader.only("SELECT max(received_at) AS newest FROM seqs")["newest"]
    columns = "job, started_at AS started, succeeded_at AS ran, coalesce(error, '') <> '' AS failed, error, inputs"
    jobs = lines(reader, f"SELECT {columns} FROM runs ORDER BY job")
    newest = max((job.started for job in jobs), default=None)
    current = tuple(job for job in jobs if newest - job.started <= LEFT_OUT)
    return Freshness(
        differing=lines(reader, _differing(period)),
        alerts=alerts and min(alerts, landed or period.now),
        heard=reader.only("SELECT max(last_seen) AS newest FROM every_agent")["newest"],
        ran=max((job.ran for job in jobs if job.ran), default=None),
        runs=current,
        late=tuple(job for job in current if job.failed or newest - job.started > BEHIND),
    )


def by_day(within: str = "true") -> str:
    """SQL: ``alerts`` and ``matches`` of each ``date`` that has alerts, and what the view ``win`` has ``counted``."""
    day = "CAST(CAST(counted_at AS DATE) AS STRING)"
    names = ("alerts", "counted", "matches", "counted_matches")
    return f"""SELECT date, {", ".join(total(name) for name in names)} FROM (
            SELECT {day} AS date, alerts, matches, 0 AS counted, 0 AS counted_matches
            FROM ({sums.counted("alerts")}) a WHERE {within}
            UNION ALL SELECT date, 0, 0, alerts, matches FROM win) b
        GROUP BY date HAVING sum(matches) > 0"""


def _differing(period: Period) -> str:
    wrong = "alerts <> counted OR matches <> counted_matches"
    return f"SELECT * FROM ({by_day(in_period(period))}) d WHERE {wrong} ORDER BY date"


def sentence(fresh: Freshness, now: datetime) -> str:
    """The same in words, for a report seen at ``now``."""
    return f"{_agreement(fresh)}; {_ages(fresh, now)}"


def ran_with(fresh: Freshness, now: datetime) -> str:
    """Which job ran when and with what, in words; empty where ``all`` has run none."""
    done = [(job.job, _clock(job.ran, now), job.inputs) for job in fresh.runs if job.ran and job.job != "report"]
    return ", ".join(f"{name} {at}" + (f" ({inputs})" if inputs else "") for name, at, inputs in done)


def differ(fresh: Freshness) -> bool:
    """Whether counts differ from alerts, in the days of the report or, as ``reconcile`` last found, in any kept."""
    return bool(fresh.differing or _checked(fresh))


def _checked(fresh: Freshness) -> str:
    """What ``reconcile`` last found to differ, in words; empty when nothing."""
    said = next((str(job.error) for job in fresh.runs if job.job == "reconcile" and job.failed), "")
    return said if said.startswith(DIFFER) else ""


def _agreement(fresh: Freshness) -> str:
    if not fresh.differing:
        return _checked(fresh) or "counts agree with alerts"
    day = fresh.differing[0]
    said = f"{many(day.alerts, 'alert')}, {day.counted:,} counted"
    if day.alerts == day.counted:
        said = f"{many(day.matches, 'match', 'matches')}, {day.counted_matches:,} counted"
    return (
        f"{DIFFER} from alerts on {many(len(fresh.differing), 'day')} ({day.date}: {said}), as while ingest runs; "
        "else run vedette-spark reconcile"
    )


def _ages(fresh: Freshness, now: datetime) -> str:
    said = [
        "no alerts yet" if fresh.alerts is None else f"alerts up to {_clock(fresh.alerts, now)}",
        "no agent heard yet" if fresh.heard is None else f"agents heard up to {_clock(fresh.heard, now)}",
        "no run of jobs noted" if fresh.ran is None else f"jobs run up to {_clock(fresh.ran, now)}",
    ]
    for word, failed in (("failed", True), ("behind", False)):
        jobs = [f"{job.job} ({_ran(job, now)})" for job in fresh.late if job.failed == failed]
        if jobs:
            said.append(f"{word}: {', '.join(jobs)}")
    return ", ".join(said)


def _ran(job: Line, now: datetime) -> str:
    return "not yet done" if job.ran is None else f"run up to {_clock(job.ran, now)}"


def _clock(time: datetime, now: datetime) -> str:
    return f"{time:%H:%M}" if time.date() == now.date() else f"{time:%-d %b %H:%M}"
