"""The job ``triage``: what somebody decides about a campaign, an anomaly or a risk, kept in the table ``triage``.

Decisions are only ever added, so the table says who decided what and when. The report shows the one that holds.
"""

from __future__ import annotations

import getpass
import re
from contextlib import closing
from datetime import UTC, datetime, timedelta

import click

from spark_jobs.common.plain import plain
from spark_jobs.jobs.job import YEARS, Job, Value, spark_job
from spark_jobs.report.figures import Line
from spark_jobs.report.triage import NEW, STATES, decide, decisions, mistake, words
from spark_jobs.tables.ask import Reader
from spark_jobs.tables.schema import ANOMALIES, CAMPAIGNS, RISK
from spark_jobs.tables.tables import texts

MAX_SHOWN = 50


def _until(text: str) -> datetime:
    now = datetime.now(UTC)
    if days := re.fullmatch(r"([1-9][0-9]{0,3})d", text):
        return now + timedelta(days=int(days[1]))
    try:
        until = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"expects days such as 30d, or YYYY-MM-DD, not {text!r}") from None
    if until.year not in YEARS:
        raise ValueError(f"expects a day until {YEARS[-1]}, not {text!r}")
    if until <= now:
        raise ValueError(f"{text} has passed")
    return until


@spark_job()
@click.argument("finding", required=False)
@click.option("--state", type=click.Choice(STATES), help="What is decided; without it, what was decided is printed.")
@click.option("--assignee", metavar="NAME", default="", help="Who is to look into it, of assigned.")
@click.option("--reason", metavar="TEXT", default="", help="Why; needed to close.")
@click.option("--expires", type=Value("time", _until), metavar="TIME", help="New again after 30d, or on YYYY-MM-DD.")
@click.option("--author", metavar="NAME", help="Who decides.  [default: you]")
def triage(
    job: Job, finding: str | None, state: str | None, assignee: str, reason: str, expires: datetime | None,
    author: str | None,
) -> str:  # fmt: skip
    """Acknowledge, assign or close a campaign, an anomaly or a risk.

    FINDING is its id, which the report shows, or the beginning of it; without one, open campaigns are listed.

    Example: vedette-spark triage --tables tables 3f2a91 --state false-positive --reason scanner --expires 90d
    """
    if state is not None and finding is None:
        raise click.UsageError("--state needs the id of a finding")
    if wrong := mistake(state or "", assignee, reason, "--"):
        raise click.UsageError(wrong)
    now = datetime.now(UTC)
    with closing(job.reader()) as reader:
        if finding is None:
            return _listed(reader, now)
        kind, full_id = _found(reader, finding)
        if state is None:
            return _line(kind, full_id, decisions(reader, [full_id], now).get(full_id, NEW))
    decided = decide(
        job.tables, full_id, kind, state, author=author or getpass.getuser(), now=now, assignee=assignee, reason=reason,
        expires=expires,
    )  # fmt: skip
    return _line(kind, full_id, decided)


def _found(reader: Reader, beginning: str) -> tuple[str, str]:
    """Kind and id of the one finding whose id begins so; raises ValueError when there is none, or several."""
    reader.view("campaigns", CAMPAIGNS)
    reader.view("anomalies", ANOMALIES)
    reader.view("risk", RISK)
    size, wanted = len(beginning), texts([beginning])
    rows = reader.rows(
        f"""SELECT 'campaign' AS kind, campaign_id AS id FROM campaigns WHERE substr(campaign_id, 1, {size}) = {wanted}
        UNION SELECT 'anomaly' AS kind, anomaly_id AS id FROM anomalies WHERE substr(anomaly_id, 1, {size}) = {wanted}
        UNION SELECT 'risk' AS kind, risk_id AS id FROM risk WHERE substr(risk_id, 1, {size}) = {wanted}
        ORDER BY id LIMIT 3"""
    )
    exact = [row for row in rows if row["id"] == beginning] or rows
    if len(exact) != 1:
        raise ValueError(f"{beginning}: {'several findings begin so' if exact else 'no such finding'}; the "
                         "report shows the ids")  # fmt: skip
    return exact[0]["kind"], exact[0]["id"]


def _listed(reader: Reader, now: datetime) -> str:
    reader.view("campaigns", CAMPAIGNS)
    rows = reader.rows(
        f"""SELECT campaign_id, kind, value, score FROM campaigns WHERE score > 0 AND state = 'open'
        ORDER BY score DESC, campaign_id LIMIT {MAX_SHOWN}"""
    )
    decided = decisions(reader, [row["campaign_id"] for row in rows], now)
    shown = [
        f"{_line('campaign', row['campaign_id'], decided.get(row['campaign_id'], NEW))}  "
        f"{row['kind']} {plain(row['value'])}, score {row['score']:.0f}"
        for row in rows
    ]
    return "\n".join(shown) or "no open campaigns"


def _line(kind: str, finding: str, decision: Line) -> str:
    return f"{kind} {plain(finding)}: {plain(words(decision)) or 'new'}"
