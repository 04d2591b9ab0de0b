"""The job ``export``: alerts for other systems, as NDJSON files, one a day of landing.

``OUT/FORMAT-DAY.ndjson`` holds the alerts that landed on that UTC day (``received_at``), a line each, in no order. Late
alerts are in the day they came, so a day that is over does not change, and exporting each day once gives each alert
once: ``--new`` does. Of the table only files with alerts of these days are opened. A file appears whole. Rows pass in
small batches: memory does not grow with their number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import click

from spark_jobs.common.period import period
from spark_jobs.common.plain import many
from spark_jobs.export import ecs, ocsf
from spark_jobs.jobs.job import FILE, Job, days_options, spark_job
from spark_jobs.tables import storage
from spark_jobs.tables.ask import Reader, Row, within
from spark_jobs.tables.schema import ALERTS

FORMATS: Mapping[str, Callable[[Row], dict[str, Any]]] = {"ocsf": ocsf.finding, "ecs": ecs.document}


@spark_job()
@days_options(1, "Days of landing that are exported.")
@click.option("--format", "name", type=click.Choice(tuple(FORMATS)), required=True, help="What a line is.")
@click.option("-o", "--output", type=FILE, required=True, metavar="DIR", help="Folder of the files.")
@click.option("--new", is_flag=True, help="Only days that are over and have no file yet.")
def export(job: Job, last: date, days: int, name: str, output: Path, new: bool) -> str:
    """Write alerts as NDJSON, in OCSF or ECS.

    Example: vedette-spark export --tables tables --format ocsf --date yesterday --days 7 --new --output export
    """
    output.mkdir(parents=True, exist_ok=True)
    with closing(job.reader()) as reader:
        wanted = period(last, days)
        files = {day: output / f"{name}-{day}.ndjson" for day in wanted.days}
        if new:
            files = lacking(files, datetime.now(UTC).date().isoformat())
        if not files:
            return "nothing new"
        # An edge that was offline gives a day of receipt long before that of landing, so that column says nothing here;
        # the files' own bounds of received_at do.
        reader.view("exported", ALERTS, near={"received_at": [(wanted.start, wanted.end)]})
        return "\n".join(
            f"{file}: {many(write(reader, day, FORMATS[name], file), 'alert')}" for day, file in files.items()
        )


def lacking(files: Mapping[str, Path], today: str) -> dict[str, Path]:
    """The ``files``, by day, of days that were over when ``today`` began, and that are not there."""
    return {day: file for day, file in files.items() if day < today and not file.exists()}


def write(reader: Reader, day: str, form: Callable[[Row], dict[str, Any]], file: Path) -> int:
    """Write the alerts that landed on ``day``, each in ``form``, as ``file``; how many."""
    rows = reader.stream(f"SELECT * FROM exported WHERE {within('received_at', day, day)}")
    number = 0
    with storage.replacing(file) as out:
        for row in rows:
            out.write(json.dumps(form(row), ensure_ascii=False, separators=(",", ":")) + "\n")
            number += 1
    return number
