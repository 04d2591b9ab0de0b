"""Triage: what somebody decides is kept with who and why, shown by the report, and holds as long as it should."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner

from spark_jobs.__main__ import main
from spark_jobs.common.period import period
from spark_jobs.jobs.report import figures
from spark_jobs.report import closed, page
from spark_jobs.report.headline import Report, look_first
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.ask import open_reader
from spark_jobs.tables.schema import ANOMALIES, CAMPAIGNS, TRIAGE
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.conftest import run
from tests.spark_jobs.found import AT, anomaly, campaign, write
from tests.spark_jobs.landed import DAY

LATER = AT + timedelta(hours=2)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    tables = open_tables(str(tmp_path / "tables"))
    write(tables, CAMPAIGNS, campaign(1, level="critical"), campaign(2, value="203.0.113.10"))
    write(tables, ANOMALIES, anomaly(1))
    return tables


def report_of(tables: Tables) -> Report:
    reader = open_reader(tables, None)
    try:
        return figures(reader, period(date.fromisoformat(DAY), 1))
    finally:
        reader.close()


def first(tables: Tables) -> list[str]:
    """Anchors of the findings on the first screen."""
    return [pointer.anchor for pointer in look_first(report_of(tables)) if pointer.kind in ("campaign", "gone quiet")]


def decide(tables: Tables, finding: str, **row: object) -> None:
    """A decision as the job writes it, at a time of one's own."""
    whole = {"finding_id": finding, "kind": "campaign", "author": "ann", "updated_at": LATER, **row}
    tables.append(TRIAGE, pa.Table.from_pylist([whole], arrow_schema(TRIAGE.columns)))


def test_a_decision_is_kept_and_shown(tables: Tables) -> None:
    """Who decided what and why is in the table, each decision as a row of its own, and on the page."""
    where = f"--tables={tables.root}"
    assert run(None, "triage", where, "campaign-1") == "campaign campaign-1: new"
    said = run(None, "triage", where, "campaign-1", "--state=assigned", "--assignee=ben", "--author=ann")
    assert said.startswith("campaign campaign-1: assigned to ben by ann, ")
    said = run(None, "triage", where, "anomaly", "--state=acknowledged", "--author=ann", "--expires=30d")
    assert said.startswith("anomaly anomaly-1: acknowledged by ann, ")
    why = ["--state=false-positive", "--reason=our scanner <b>"]
    run(None, "triage", where, "campaign-1", *why, "--author=ben", "--expires=2199-01-31")
    assert tables.arrow(TRIAGE).num_rows == 3
    listed = run(None, "triage", where).splitlines()
    assert "false positive by ben" in listed[0]
    assert listed[1] == "campaign campaign-2: new  ip 203.0.113.10, score 78"
    shown = page.html(report_of(tables))
    assert "until 31 Jan 2199: our scanner &lt;b&gt;" in shown
    assert "acknowledged by ann" in shown


def test_a_closed_finding_leaves_the_first_screen(tables: Tables) -> None:
    """A critical campaign, too, once somebody has closed it; an acknowledged one stays."""
    assert first(tables) == ["campaign-1", "campaign-2", "anomalies"]
    decide(tables, "campaign-1", state="acknowledged")
    assert first(tables) == ["campaign-1", "campaign-2", "anomalies"]
    decide(tables, "campaign-1", state="true-positive", reason="contained", updated_at=LATER + timedelta(minutes=1))
    decide(tables, "anomaly-1", state="false-positive", reason="moved", updated_at=AT + timedelta(hours=5))
    assert first(tables) == ["campaign-2"]


def test_a_closed_finding_comes_back(tables: Tables) -> None:
    """When it is active after the decision, when this has expired, and when somebody makes it new."""
    decide(tables, "campaign-1", state="false-positive", reason="r")
    assert first(tables) == ["campaign-2", "anomalies"]
    decide(tables, "campaign-1", state="false-positive", reason="r", updated_at=LATER + timedelta(minutes=1),
           expires_at=LATER + timedelta(minutes=2))  # fmt: skip
    assert first(tables)[0] == "campaign-1"
    decide(tables, "campaign-1", state="false-positive", reason="r", updated_at=AT + timedelta(hours=3))
    assert first(tables)[0] == "campaign-2"
    decide(tables, "campaign-1", state="new", updated_at=AT + timedelta(hours=4))
    assert first(tables)[0] == "campaign-1"
    decide(tables, "campaign-2", state="true-positive", reason="r")
    write(tables, CAMPAIGNS, campaign(2, last_seen=LATER + timedelta(hours=1), updated_at=datetime.now(UTC)))
    assert "campaign-2" in first(tables)


def test_a_decision_under_a_clock_that_was_ahead(tables: Tables) -> None:
    """Does not count once the clock is right, and none of those after it are hidden."""
    ahead = datetime.now(UTC) + timedelta(days=365)
    decide(tables, "campaign-1", state="false-positive", reason="r", updated_at=ahead)
    assert first(tables)[0] == "campaign-1"
    decide(tables, "campaign-1", state="acknowledged", author="bob", updated_at=datetime.now(UTC))
    assert "acknowledged by bob" in run(None, "triage", f"--tables={tables.root}", "campaign-1")
    reader = open_reader(tables, None)
    try:
        closed.take_apart(reader, datetime.now(UTC))
        assert closed.findings(reader) == {"correct": 0, "incorrect": 0}
    finally:
        reader.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--state=new", "--state needs the id of a finding"),
        ("campaign-1 --state=assigned", "--state assigned needs --assignee"),
        ("campaign-1 --state=acknowledged --assignee=ann", "--assignee belongs to --state assigned"),
        ("campaign-1 --state=true-positive", "--state true-positive needs --reason"),
        ("campaign-1 --state=new --expires=soon", "expects days such as 30d, or YYYY-MM-DD, not 'soon'"),
        ("campaign-1 --state=new --expires=2001-01-01", "2001-01-01 has passed"),
        ("campaign-1 --state=done", "'done' is not one of"),
    ],
)
def test_a_wrong_decision_is_refused(words: str, said: str) -> None:
    """By its argument, before anything is read."""
    done = CliRunner().invoke(main, ["triage", "--tables=t", *words.split()])
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def test_the_finding_must_be_one(tables: Tables) -> None:
    """An id that none or several begin with is refused, quotes in it or not."""
    for beginning, said in (
        ("campaign-", "several findings begin so"),
        ("x' OR 'a'='a", "no such finding"),
    ):
        with pytest.raises(ValueError, match=said):
            run(None, "triage", f"--tables={tables.root}", beginning, "--state=acknowledged")
    with pytest.raises(click.UsageError):
        run(None, "triage", f"--tables={tables.root}", "--state=acknowledged")
