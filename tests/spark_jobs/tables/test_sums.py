"""The arithmetic of counts, by DuckDB alone: where a window begins, and what an alert counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from spark_jobs.tables import sums
from spark_jobs.tables.arrow import arrow_schema, conform
from spark_jobs.tables.duck import database
from spark_jobs.tables.schema import ALERTS, WIN_5M
from tests.spark_jobs.landed import HOUR, MINUTE, NOON, alert

DAY = 24 * HOUR


@contextmanager
def counted(*alerts: dict[str, Any]) -> Iterator[Any]:
    """A database with their view ``counted``."""
    rows = pa.Table.from_pylist([*alerts], arrow_schema(ALERTS.columns))
    with database() as duck:
        duck.register("alerts", conform(ALERTS, rows))
        duck.execute(f"CREATE TEMP TABLE counted AS {sums.counted('alerts')}")
        yield duck


def windows(*alerts: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Begin, alerts and matches of each window of five minutes."""
    with counted(*alerts) as duck:
        duck.execute("CREATE TEMP TABLE known AS SELECT DISTINCT rule_id, rule_title, level FROM counted")
        summed = sums.rows_of(WIN_5M, "counted", "known", sums.DUCK)
        columns = "epoch_us(window_start), alerts, matches"
        return list(duck.sql(f"SELECT {columns} FROM ({summed}) ORDER BY 1").fetchall())


def test_windows_begin_at_multiples_of_their_length() -> None:
    """Before 1970, too: each holds its alerts."""
    times = (-5 * MINUTE - 1, -1, 0, NOON, NOON + 5 * MINUTE - 1, NOON + 5 * MINUTE)
    begins = [-10 * MINUTE, -5 * MINUTE, 0, NOON, NOON + 5 * MINUTE]
    rows = [alert(number) | {"counted_at": at} for number, at in enumerate(times)]
    assert [begin for begin, _, _ in windows(*rows)] == begins


def test_what_an_alert_counts() -> None:
    """A fold stands for the further matches of an alert that has counted already: it is none of its own."""
    rows = [alert(1, kind="detection", count=None), alert(2, kind="fold", count=7), alert(3, kind="fold", count=-5)]
    assert windows(*(row | {"counted_at": NOON} for row in rows)) == [(NOON, 1, 8)]


def test_an_old_event_time_makes_no_rule_old() -> None:
    """When a rule came to the fleet, by which it is new, is when its first alert landed."""
    times = [(NOON - 30 * DAY, NOON + HOUR), (NOON - HOUR, NOON + 1), (NOON + DAY, NOON)]
    rows = [alert(n, received_at=landed) | {"counted_at": at} for n, (at, landed) in enumerate(times)]
    columns = "epoch_us(first_time), epoch_us(first_landed)"
    with counted(*rows) as duck:
        texts = sums.rule_texts("counted", sums.DUCK)
        assert duck.sql(f"SELECT {columns} FROM ({texts})").fetchall() == [(NOON - 30 * DAY, NOON)]
