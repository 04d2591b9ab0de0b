"""``python -m spark_jobs JOB``, also as the script of ``spark-submit``.

Exit codes: 0 done, 1 failed, 2 asked for wrongly. What happens goes to stderr, the result to stdout. A job is a module
with ``HELP``, ``arguments(parser)``, ``check(parser, given)`` and ``run(spark, tables, given, stop) -> str``, which
gives what is printed; ``JOBS`` lists them. One that says ``WITHOUT_SPARK`` gets None for a session where the tables are
in the backend ``delta``, and no JVM is started.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from threading import Event
from types import ModuleType

from pyspark.sql import SparkSession

from spark_jobs.common import given
from spark_jobs.common.session import DELTA, open_session
from spark_jobs.intake import landing
from spark_jobs.jobs import backtest, baselines, campaigns, coverage, export, ingest, maintain, noise, report
from spark_jobs.tables.tables import FORMS, open_tables

JOBS: Mapping[str, ModuleType] = {
    "ingest": ingest,
    "campaigns": campaigns,
    "baselines": baselines,
    "noise": noise,
    "coverage": coverage,
    "report": report,
    "export": export,
    "backtest": backtest,
    "maintain": maintain,
}

_EXAMPLES = """examples:
  python -m spark_jobs ingest  --landing landing --tables tables
  python -m spark_jobs ingest  --landing landing --tables tables --every 1m
  python -m spark_jobs campaigns --tables tables --lookups lookups
  python -m spark_jobs report  --tables tables --date yesterday --days 7 --html week.html
  spark-submit --master spark://spark:7077 --py-files spark_jobs.zip spark_jobs/__main__.py ingest \\
      --landing hdfs:///vedette/landing --tables hdfs:///vedette/tables
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; the exit code."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING, stream=sys.stderr)
    logging.getLogger("spark_jobs").setLevel(logging.INFO)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would show the trace of what is raised here again
    said = parse(arguments)
    stop = Event()
    try:
        if said.backend == "delta" and getattr(JOBS[said.job], "WITHOUT_SPARK", False):
            print(work(None, said, stop))
            return 0
        needed = DELTA if said.backend == "delta-spark" else {}
        spark = open_session(said.job, master=said.master, settings={**needed, **dict(said.conf)})
        # Set after the session is there, because that sets a handler of its own, which raises.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        try:
            print(work(spark, said, stop))
        finally:
            spark.stop()
    except (OSError, ImportError, ValueError) as error:
        print(f"{said.job}: {error}", file=sys.stderr)
        return 1
    except landing.FAILURES as error:
        print(f"{said.job}: Spark failed: {landing.reason(error)}", file=sys.stderr)
        return 1
    return 0


def work(spark: SparkSession | None, said: argparse.Namespace, stop: Event | None = None) -> str:
    """Do the job that ``said`` (of ``parse``) asks for, a streaming one until ``stop`` is set; what it has to say.
    Raises what the job raises."""
    tables = open_tables(getattr(said, "tables", ""), said.backend, spark=spark)
    result: str = JOBS[said.job].run(spark, tables, said, stop or Event())
    return result


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line says; ends the program with code 2 and a sentence when it says it wrongly."""
    root, jobs = _parsers()
    said = root.parse_args(arguments)
    JOBS[said.job].check(jobs[said.job], said)
    return said


def parser() -> argparse.ArgumentParser:
    """The command line, for whoever asks what it knows."""
    return _parsers()[0]


def _parsers() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    root = argparse.ArgumentParser(
        prog="python -m spark_jobs",
        description="The region's Spark jobs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--backend", choices=FORMS, default="delta", help="who writes the tables: deltalake, or Spark")
    common.add_argument("--master", metavar="URL", help="Spark master (default: spark-submit's, or local[*])")
    common.add_argument(
        "--conf",
        action="append",
        default=[],
        type=given.setting,
        metavar="KEY=VALUE",
        help="Spark property; repeatable",
    )
    jobs = root.add_subparsers(dest="job", required=True, metavar="|".join(JOBS))
    parsers = {}
    for name, module in JOBS.items():
        parsers[name] = jobs.add_parser(name, parents=[common], help=module.HELP)
        if name != "backtest":
            parsers[name].add_argument(
                "--tables", required=True, type=given.folder, metavar="DIR", help="folder of the tables"
            )
        module.arguments(parsers[name])
    return root, parsers


if __name__ == "__main__":
    sys.exit(main())
