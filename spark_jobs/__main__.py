"""``vedette-spark JOB``, also ``python -m spark_jobs JOB`` and the script of ``spark-submit``. Jobs are listed here.

Exit codes: 0 done, 1 failed, 2 wrong usage. What happens goes to standard error, the result to standard output.
"""

from __future__ import annotations

import logging
import sys

import click

from spark_jobs.common.plain import plain
from spark_jobs.intake import landing
from spark_jobs.jobs.all import all_due
from spark_jobs.jobs.backtest import backtest
from spark_jobs.jobs.baselines import baselines
from spark_jobs.jobs.campaigns import campaigns
from spark_jobs.jobs.coverage import coverage
from spark_jobs.jobs.export import export
from spark_jobs.jobs.filters import filters
from spark_jobs.jobs.ingest import ingest
from spark_jobs.jobs.maintain import maintain
from spark_jobs.jobs.noise import noise
from spark_jobs.jobs.notify import notify
from spark_jobs.jobs.quality import quality
from spark_jobs.jobs.reconcile import reconcile
from spark_jobs.jobs.report import report
from spark_jobs.jobs.risk import risk
from spark_jobs.jobs.triage import triage
from spark_jobs.jobs.views import views

JOBS = (
    ingest,
    campaigns,
    baselines,
    noise,
    coverage,
    risk,
    report,
    export,
    backtest,
    maintain,
    reconcile,
    triage,
    filters,
    quality,
    notify,
    views,
    all_due,
)


@click.group(commands=JOBS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """The region's Spark jobs: what has landed into tables, and tables into findings.

    Exit codes: 0 done; 1 failed; 2 wrong usage.

    Example: vedette-spark ingest --landing landing --tables tables

    Example: spark-submit --master spark://spark:7077 --py-files spark_jobs.zip spark_jobs/__main__.py
    ingest --backend delta-spark --landing hdfs:///vedette/landing --tables hdfs:///vedette/tables
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING, stream=sys.stderr)
    logging.getLogger("spark_jobs").setLevel(logging.INFO)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would show the trace of what is raised here again


def run() -> None:
    """The command line; ends the program."""
    try:
        main()
    except landing.FAILURES as error:
        failure = f"Spark failed: {landing.reason(error)}"
    except (OSError, ImportError, ValueError) as error:
        failure = str(error)
    click.echo(f"spark_jobs: {plain(failure)}", err=True)
    sys.exit(1)


if __name__ == "__main__":
    run()
