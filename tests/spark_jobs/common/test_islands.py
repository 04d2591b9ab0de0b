"""Exact sliding windows against the naive count."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from spark_jobs.common.islands import most_within, runs

pytestmark = pytest.mark.spark

START = datetime(2026, 11, 20, tzinfo=UTC)


def test_the_most_within_a_time_is_that_of_every_window(spark: SparkSession) -> None:
    """Fifty drawn walks, with visits at the very ends of a window among them: the same as from each visit on."""
    draw = random.Random(7)
    walks = {
        walk: [(draw.choice("abcdef"), draw.randrange(0, 40) * 1800, draw.choice([0, 300])) for _ in
        range(draw.randrange(1, 12))] for walk in range(50)
    }  # fmt: skip
    rows = [
        (walk, place, START + timedelta(seconds=at), START + timedelta(seconds=at + stay))
        for walk, visits in walks.items() for place, at, stay in visits
    ]  # fmt: skip
    frame = spark.createDataFrame(rows, "run INT, site STRING, first_time TIMESTAMP, last_time TIMESTAMP")
    seconds = 4 * 3600
    most = {row.run: row.most for row in most_within(frame, ["run"], ["site"], seconds).collect()}
    assert most == {
        walk: max(
            len({place for place, at, stay in visits if begin <= at + stay and at <= begin + seconds})
            for _, first, length in visits for begin in (first, first + length)
        )
        for walk, visits in walks.items()
    }  # fmt: skip


def test_a_long_row_holds_its_run_together(spark: SparkSession) -> None:
    """A short row within it is not the end from which the gap is counted."""
    times = [(0, 100), (10, 20), (115, 120), (145, 150)]
    rows = [("a", *(START + timedelta(seconds=second) for second in pair)) for pair in times]
    frame = spark.createDataFrame(rows, "site STRING, first_time TIMESTAMP, last_time TIMESTAMP")
    parted = runs(frame, ["site"], 20, "first_time", "last_time").orderBy("first_time")
    assert [row.run for row in parted.collect()] == [1, 1, 1, 2]
