"""The job ``export``: alerts for other systems, as NDJSON files, one a day of landing.

``OUT/FORMAT-DAY.ndjson`` holds the alerts that landed on that UTC day (``received_at``), a line each, in no order. Late
alerts are in the day they came, so a day that is over does not change, and exporting each day once gives each alert
once. A file appears whole. Rows pass in small batches: memory does not grow with their number.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.common import period
from spark_jobs.export import ecs, ocsf
from spark_jobs.tables.ask import Reader, Row, open_reader, within
from spark_jobs.tables.schema import ALERTS
from spark_jobs.tables.tables import Tables

HELP = "alerts for other systems: OCSF or ECS, as NDJSON"

WITHOUT_SPARK = True

FORMATS: Mapping[str, Callable[[Row], dict[str, Any]]] = {"ocsf": ocsf.finding, "ecs": ecs.document}


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command line of the job may say."""
    period.arguments(parser, 1, "days of landing that are exported")
    parser.add_argument("--format", choices=tuple(FORMATS), required=True, help="what a line is")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the files; made when missing")


def check(parser: argparse.ArgumentParser, said: argparse.Namespace) -> None:
    """Nothing is refused."""


def run(spark: SparkSession | None, tables: Tables, said: argparse.Namespace, stop: Event) -> str:
    """Write the files; how many alerts each holds."""
    said.out.mkdir(parents=True, exist_ok=True)
    reader = open_reader(tables, spark)
    try:
        # An edge that was offline gives a day of receipt long before that of landing, so that column says nothing here.
        reader.view("exported", ALERTS)
        told = []
        for day in period.of(said).days:
            file = said.out / f"{said.format}-{day}.ndjson"
            told.append(f"{file}: {write(reader, day, FORMATS[said.format], file)} alerts")
    finally:
        reader.close()
    return "\n".join(told)


def write(reader: Reader, day: str, made: Callable[[Row], dict[str, Any]], file: Path) -> int:
    """Write the alerts that landed on ``day``, each by ``made``, as ``file``; how many."""
    rows = reader.stream(f"SELECT * FROM exported WHERE {within('received_at', day, day)}")
    temporary = file.with_name(f".{file.name}.tmp")
    number = 0
    with open(temporary, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(made(row), ensure_ascii=False, separators=(",", ":")) + "\n")
            number += 1
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)
    return number
