"""The job ``report``: a day or a week as one page of HTML, and its first screen as text.

All figures come from the tables by questions with small answers (``ask``); the page is ``page``'s, the text ``text``'s.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from spark_jobs.common import period
from spark_jobs.common.period import Period
from spark_jobs.report import page, text
from spark_jobs.report.accounts import accounts
from spark_jobs.report.figures import counts
from spark_jobs.report.findings import findings
from spark_jobs.report.headline import Report
from spark_jobs.tables import storage
from spark_jobs.tables.ask import Reader, open_reader
from spark_jobs.tables.tables import Tables

HELP = "a day or week as one page, and as text"

WITHOUT_SPARK = True
"""Delta tables are read without a session."""

MAX_DAYS = 31


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command line of the job may say."""
    period.arguments(parser, 1, "days that the report spans")
    parser.add_argument("--html", type=Path, metavar="FILE", help="the page, replaced as a whole")


def check(parser: argparse.ArgumentParser, said: argparse.Namespace) -> None:
    """Refuse more days than a page can show."""
    if said.days > MAX_DAYS:
        parser.error(f"argument --days: at most {MAX_DAYS}, not {said.days}")


def run(spark: SparkSession | None, tables: Tables, said: argparse.Namespace, stop: Event) -> str:
    """The report as text; with ``--html`` also as a page."""
    reader = open_reader(tables, spark)
    try:
        found = report(reader, period.of(said))
    finally:
        reader.close()
    if said.html:
        storage.replace(said.html, page.html(found))
    return text.text(found)


def report(reader: Reader, wanted: Period) -> Report:
    """The report of ``wanted``."""
    counted = counts(reader, wanted)
    return Report(wanted, counted, findings(reader, wanted, counted.known), accounts(reader, wanted))
