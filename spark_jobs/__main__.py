"""``python -m spark_jobs counts|summary``, also as the script of ``spark-submit``.

Exit codes: 0 done, 1 failed, 2 asked for wrongly. What happens goes to stderr, the result to stdout.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from spark_jobs import counts, landing, render, summary
from spark_jobs.session import open_session

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}

_EXAMPLES = """examples:
  python -m spark_jobs counts  --landing landing --tables tables
  python -m spark_jobs counts  --landing landing --tables tables --every 1m
  python -m spark_jobs summary --landing landing --tables tables --date yesterday --html summary.html
  spark-submit --master spark://spark:7077 --py-files spark_jobs.zip spark_jobs/__main__.py counts \\
      --landing hdfs:///vedette/landing --tables hdfs:///vedette/tables
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; the exit code."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING, stream=sys.stderr)
    logging.getLogger("spark_jobs").setLevel(logging.INFO)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would show the trace of what is raised here again
    given = parser().parse_args(arguments)
    stop = Event()
    try:
        spark = open_session(given.job, master=given.master, settings=dict(given.conf))
        if given.job == "counts":
            # Set after the session is there, because that sets a handler of its own, which raises.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stop.set())
        try:
            work(spark, given, stop)
        finally:
            spark.stop()
    except OSError as error:
        print(f"{given.job}: {error}", file=sys.stderr)
        return 1
    except landing.FAILURES as error:
        print(f"{given.job}: Spark failed: {landing.reason(error)}", file=sys.stderr)
        return 1
    return 0


def work(spark: SparkSession, given: argparse.Namespace, stop: Event) -> None:
    """Do the job that ``given`` (of ``parser``) asks for; raises what the job raises."""
    if given.job == "counts":
        account = counts.run(
            spark,
            given.landing,
            given.tables,
            checkpoint=given.checkpoint,
            every=given.every,
            files_per_batch=given.files_per_batch,
            stop=stop,
        )
        print(f"counts: {account}")
    else:
        found = summary.summarise(spark, given.tables, given.date, landing_root=given.landing, top=given.top)
        if given.html:
            _replace(given.html, render.as_html(found))
        print(render.as_text(found))


def _replace(file: Path, text: str) -> None:
    """Make ``text`` the content of ``file``, whole or not at all."""
    temporary = file.with_name(f".{file.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)


def parser() -> argparse.ArgumentParser:
    """What the command line may say."""
    root = argparse.ArgumentParser(
        prog="python -m spark_jobs",
        description="The region's Spark jobs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--tables", required=True, type=_folder, metavar="DIR", help="folder of the tables")
    common.add_argument("--master", metavar="URL", help="Spark master (default: spark-submit's, or local[*])")
    common.add_argument(
        "--conf", action="append", default=[], type=_setting, metavar="KEY=VALUE", help="Spark property; repeatable"
    )
    jobs = root.add_subparsers(dest="job", required=True, metavar="counts|summary")

    job = jobs.add_parser("counts", parents=[common], help="landed alerts into the alerts and counts_5m tables")
    job.add_argument("--landing", required=True, type=_folder, metavar="DIR", help="folder that the landing writes")
    job.add_argument("--checkpoint", type=_folder, metavar="DIR", help="default: TABLES/_checkpoints/counts")
    job.add_argument("--every", type=_seconds, metavar="TIME", help="go on, looking each TIME (30s, 5m); default: once")
    job.add_argument("--files-per-batch", type=_positive, default=counts.FILES_PER_BATCH, metavar="N")

    job = jobs.add_parser("summary", parents=[common], help="one day's summary as text, and as HTML")
    job.add_argument("--landing", type=_folder, metavar="DIR", help="adds heartbeats and dead letters")
    job.add_argument("--date", type=_day, default="today", metavar="DAY", help="YYYY-MM-DD, today or yesterday (UTC)")
    job.add_argument("--top", type=_positive, default=summary.TOP, metavar="N", help="rows of each list")
    job.add_argument("--html", type=Path, metavar="FILE", help="write a page as well")
    return root


def _folder(text: str) -> str:
    if not text.strip("/"):
        raise argparse.ArgumentTypeError("names no folder")
    return text.rstrip("/")


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise argparse.ArgumentTypeError(f"expects spark.KEY=VALUE, not {text!r}")
    return key, value


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", text)
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"expects a time such as 30s, 5m or 1h, not {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expects a number from 1, not {text!r}")
    return int(text)


def _day(text: str) -> date:
    today = datetime.now(UTC).date()
    if text in ("today", "yesterday"):
        return today - timedelta(days=text == "yesterday")
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expects YYYY-MM-DD, today or yesterday, not {text!r}") from None


if __name__ == "__main__":
    sys.exit(main())
