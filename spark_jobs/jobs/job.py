"""The parts that all jobs share: their command, the common options, and the session and tables that a job works with.

A job is one module of this room and one line of ``JOBS`` (``spark_jobs/__main__.py``): a function that takes a ``Job``
and its options and returns what is printed, under ``@spark_job()`` and ``click.option``. Its docstring is its help.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, wraps
from pathlib import Path
from threading import Event
from typing import Any

import click
from pyspark.sql import SparkSession

from spark_jobs.common.session import DELTA, open_session
from spark_jobs.intake.enrich import Lookups
from spark_jobs.tables import manifest, storage
from spark_jobs.tables.ask import Reader, open_reader
from spark_jobs.tables.schema import TABLES
from spark_jobs.tables.tables import BACKENDS, Tables, open_tables


@dataclass
class Job:
    """The session and tables of a job. The session is opened when it is first asked for, so a job that does not is
    done without a JVM, and one that refuses its options has not waited for it."""

    name: str
    root: str
    """Folder of the tables."""
    backend: str
    master: str | None
    settings: Mapping[str, str]
    """Spark properties."""
    outer: SparkSession | Job | None
    """The session to use, of a caller that has one; or the job that this one is a part of."""
    landing: str | None = None
    """Folder of what has landed, where the job takes it."""
    ends: bool = False
    """Whether it looks at the tables, and at what landed in a folder, and then ends."""
    stop: Event = field(default_factory=Event)
    """Set by SIGTERM and Ctrl-C: a job that runs continuously ends."""

    @cached_property
    def spark(self) -> SparkSession:
        if self.outer is not None:
            return self.outer.spark if isinstance(self.outer, Job) else self.outer
        needed = DELTA if self.backend == "delta-spark" else {}
        settings = {**needed, **self.settings}
        spark = open_session(self.name, master=self.master, settings=settings, small=self.small())
        # Set after the session is there, because that sets a handler of its own, which raises.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop.set())
        return spark

    def small(self) -> bool:
        """Whether there is little to look at (``SMALL_ROWS``, ``SMALL_BYTES``), by what is known without Spark."""
        here = all(storage.local(folder) is not None for folder in (self.root, self.landing or self.root))
        if not self.ends or self.backend != "delta" or not here:
            return False
        taken = max((time for _, time in storage.stamps(f"{self.root}/_checkpoints/alerts/commits")), default=0)
        landed = storage.stamps(self.landing) if self.landing else []
        states = map(self.unchecked.state, TABLES.values())
        rows = sum(state.rows for state in states if state is not None)
        return rows <= SMALL_ROWS and sum(size for size, time in landed if time >= taken) <= SMALL_BYTES

    @cached_property
    def unchecked(self) -> Tables:
        """The tables, whatever state they are in."""
        return open_tables(self.root, self.backend, spark=None if self.backend == "delta" else self.spark)

    @cached_property
    def tables(self) -> Tables:
        """The tables; raises ValueError when they are no whole set (``manifest``)."""
        manifest.check(self.unchecked)
        return self.unchecked

    def reader(self) -> Reader:
        """For questions to the tables: by DuckDB where this process reads them, else by Spark."""
        return open_reader(self.tables, None if self.tables.in_process else self.spark)

    def close(self) -> None:
        """Stop a session that was opened here."""
        if self.outer is None and "spark" in self.__dict__:
            self.spark.stop()


SMALL_ROWS = 1_000_000
"""Of all tables."""
SMALL_BYTES = 32 << 20
"""Of files that landed since ingest last took some."""


def spark_job(*, tables: bool = True, name: str | None = None) -> Callable[[Callable[..., str]], click.Command]:
    """Make a command of ``function(job, **options)``; it prints what the function returns. ``tables``: it takes
    ``--tables``. ``name``: its own, where the function's would be a word of Python."""

    def command(run: Callable[..., str]) -> click.Command:
        @wraps(run)
        def call(backend: str, master: str | None, conf: tuple[tuple[str, str], ...], **options: Any) -> str:
            context = click.get_current_context()
            name, root = str(context.info_name), options.pop("tables", "")
            job = Job(name, root, backend, master, dict(conf), context.obj)
            job.landing = options.get("landing") or options.get("folder")
            job.ends = tables and not options.get("every") and not options.get("kafka")
            if isinstance(context.obj, Job):
                job.stop = context.obj.stop
            try:
                text = run(job, **options)
            finally:
                job.close()
            click.echo(text)
            return text

        for option in (
            click.option("--conf", type=SETTING, multiple=True, metavar="KEY=VALUE",
                         help="Spark property; may be repeated."),
            click.option("--master", metavar="URL", help="Spark master; default: spark-submit's, or local[*]."),
            click.option("--backend", type=BACKEND, default="delta", show_default=True, metavar="|".join(BACKENDS),
                         help="Who writes the tables: delta is deltalake, delta-spark is Spark."),
            *([click.option("--tables", type=FOLDER, required=True, metavar="DIR", help="Folder of the tables.")]
              if tables else []),
        ):  # fmt: skip
            option(call)
        return click.command(name)(call)

    return command


MOST_DAYS = 36_525
"""A hundred years."""


def days_options(days: int, what: str, most: int = MOST_DAYS) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """``--date`` (as ``last``) and ``--days``."""

    def added(run: Callable[..., str]) -> Callable[..., str]:
        run = click.option("--days", type=click.IntRange(1, most), default=days, show_default=True, help=what)(run)
        return date_option("Last of these")(run)

    return added


def date_option(
    what: str, default: str = "today", said: str = ""
) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """``--date`` (as ``last``); None where ``default`` is empty: ``said`` is what that stands for."""
    return click.option("--date", "last", type=DAY, default=default or None, show_default=said or True, metavar="DAY",
                        help=f"{what}: YYYY-MM-DD, today or yesterday, in UTC.")  # fmt: skip


def lookups_option(what: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """``--lookups``, as ``Lookups`` or None."""
    return click.option("--lookups", type=FOLDER, metavar="DIR", help=what,
                        callback=lambda _ctx, _param, folder: None if folder is None else Lookups(folder))  # fmt: skip


class Value(click.ParamType[Any]):
    """A value that ``read`` makes of a text; it raises ValueError in plain words."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _folder(text: str) -> str:
    if not text.strip("/"):
        raise ValueError("names no folder")
    return text.rstrip("/")


def pair(text: str) -> tuple[str, str]:
    """``KEY=VALUE``."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"expects KEY=VALUE, not {text!r}")
    return key, value


def setting(text: str) -> tuple[str, str]:
    """A Spark property, ``spark.KEY=VALUE``."""
    if not text.startswith("spark.") or "=" not in text:
        raise ValueError(f"expects spark.KEY=VALUE, not {text!r}")
    return pair(text)


def _duration(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", text)
    if match is None or not float(match[1]):
        raise ValueError(f"expects a time such as 30s, 5m or 1h, not {text!r}")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def _day(text: str) -> date:
    today = datetime.now(UTC).date()
    if text in ("today", "yesterday"):
        return today - timedelta(days=text == "yesterday")
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expects YYYY-MM-DD, today or yesterday, not {text!r}") from None
    if day.year not in YEARS:
        raise ValueError(f"expects a day of {YEARS[0]} to {YEARS[-1]}, not {text!r}")
    return day


def _backend(text: str) -> str:
    if text not in BACKENDS:
        raise ValueError(f"expects {' or '.join(BACKENDS)}, not {text!r}")
    return text


YEARS = range(1970, 2200)
"""Of days that can be counted from and shown."""
FOLDER = Value("folder", _folder)
"""A folder's path or URL, without a slash at its end."""
FILE = click.Path(path_type=Path)
"""A file or folder of this host."""
PAIR = Value("pair", pair)
SETTING = Value("setting", setting)
DURATION = Value("duration", _duration)
"""In seconds."""
DAY = Value("day", _day)
"""A UTC date."""
BACKEND = Value("backend", _backend)
COUNT = click.IntRange(1)
SPAN = click.IntRange(1, MOST_DAYS)
"""Of days."""
