"""The job ``report``: a day or a week as one page of HTML, and its first screen as text.

All figures come from the tables by questions with small answers (``ask``); the page is ``page``'s, the text ``text``'s.
"""

from __future__ import annotations

from contextlib import closing
from datetime import date
from pathlib import Path

import click

from spark_jobs.common.period import Period, period
from spark_jobs.jobs.job import Job, days_options, spark_job
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
@days_options(1, "Days that the report spans.", most=MAX_DAYS)
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the page, replaced as a whole.")
def report(job: Job, last: date, days: int, html: Path | None) -> str:
    """Report a day or a week, as text and HTML.

    Example: vedette-spark report --tables tables --date yesterday --days 7 --html week.html
    """
    with closing(job.reader()) as reader:
        whole = figures(reader, period(last, days))
    if html:
        storage.replace(html, page.html(whole))
    return text.text(whole)


def figures(reader: Reader, wanted: Period) -> Report:
    """All that a report of ``wanted`` shows."""
    counted = counts(reader, wanted)
    others = findings(reader, wanted, counted.rules_by_id)
    return Report(wanted, counted, others, accounts(reader, wanted), freshness(reader, wanted))
