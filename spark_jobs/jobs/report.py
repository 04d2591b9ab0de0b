"""The job ``report``: the last 24 hours, a day or a week as one page of HTML, and its first screen as text.

All figures come from the tables by questions with small answers (``ask``); the page is ``page``'s, the text ``text``'s.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path

import click

from spark_jobs.common.period import Period, last_hours, period
from spark_jobs.jobs.job import Job, date_option, spark_job
from spark_jobs.report import page, text
from spark_jobs.report.accounts import accounts
from spark_jobs.report.figures import counts
from spark_jobs.report.findings import findings
from spark_jobs.report.freshness import freshness
from spark_jobs.report.headline import Report
from spark_jobs.tables import storage
from spark_jobs.tables.ask import Reader

MAX_DAYS = 31


@spark_job()
@date_option("Last of these", "", "the last 24 hours")
@click.option("--days", type=click.IntRange(1, MAX_DAYS), metavar="N", help="Days that the report spans, up to today.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the page, replaced as a whole.")
def report(job: Job, last: date | None, days: int | None, html: Path | None) -> str:
    """Report the last 24 hours and all that is open, or days, as text and HTML.

    Example: vedette-spark report --tables tables --date yesterday --days 7 --html week.html
    """
    with closing(job.reader()) as reader:
        whole = figures(reader, period(last or _today(), days or 1) if last or days else last_hours())
    if html:
        storage.replace(html, page.html(whole))
    return text.text(whole)


def _today() -> date:
    return datetime.now(UTC).date()


def figures(reader: Reader, wanted: Period) -> Report:
    """All that a report of ``wanted`` shows."""
    counted = counts(reader, wanted)
    others = findings(reader, wanted, counted.rules_by_id)
    return Report(wanted, counted, others, accounts(reader, wanted), freshness(reader, wanted))
