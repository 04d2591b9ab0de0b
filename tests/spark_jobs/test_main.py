"""The commands: what they refuse before Spark starts, and what they say."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession

from spark_jobs.__main__ import parser, work
from tests.spark_jobs.landed import alert, land


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "counts|summary"),
        ("count --tables t", "invalid choice"),
        ("counts --tables t", "--landing"),
        ("counts --landing l --tables /", "names no folder"),
        ("counts --landing l --tables t --every 5", "expects a time such as 30s, 5m or 1h, not '5'"),
        ("counts --landing l --tables t --every 0s", "expects a time"),
        ("counts --landing l --tables t --files-per-batch 0", "expects a number from 1, not '0'"),
        ("counts --landing l --tables t --conf memory=2g", "expects spark.KEY=VALUE, not 'memory=2g'"),
        ("summary --tables t --date 20.11.2026", "expects YYYY-MM-DD, today or yesterday, not '20.11.2026'"),
    ],
)
def test_a_wrong_argument_is_named(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and a sentence that says which argument, what it holds and what it should."""
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(arguments.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_arguments_are_understood() -> None:
    """Times in seconds, days by name in UTC, settings as pairs, folders without a slash at the end."""
    given = parser().parse_args(["counts", "--landing=l/", "--tables=t", "--every=1.5m", "--conf=spark.a=b=c"])
    assert (given.landing, given.every, given.conf) == ("l", 90.0, [("spark.a", "b=c")])
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date()
    assert parser().parse_args(["summary", "--tables=t", "--date=yesterday"]).date == yesterday


@pytest.mark.spark
def test_counts_then_summary(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts says its account; summary prints text and leaves one whole page."""
    landing, tables, page = tmp_path / "landing", f"--tables={tmp_path / 'tables'}", tmp_path / "day.html"
    land(landing, [alert(1), alert(2), alert(1)])
    work(spark, parser().parse_args(["counts", f"--landing={landing}", tables]), Event())
    assert capsys.readouterr().out == "counts: 1 files, 3 rows: 2 new alerts, 1 duplicates\n"
    work(spark, parser().parse_args(["summary", tables, "--date=2026-11-20", f"--html={page}"]), Event())
    assert "2 alerts standing for 2 matches" in capsys.readouterr().out
    assert page.read_text().endswith("</html>\n")
    assert sorted(os.listdir(tmp_path)) == ["day.html", "landing", "tables"]
