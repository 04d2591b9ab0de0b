"""The batch jobs cut short and run again: the tables are those of a run that nothing disturbed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bench.simulate import Plan
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import CAMPAIGNS, COVERAGE, FIRST_SEEN, NOISE, Table
from spark_jobs.tables.tables import Txn, open_tables
from tests.spark_jobs.conftest import content
from tests.spark_jobs.conftest import run as job_run
from tests.spark_jobs.fleet import Fleet, simulated

pytestmark = pytest.mark.spark


class Crash(Exception):
    """Stands for the end of the process."""


@pytest.fixture(scope="module")
def fleet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Ten days of a small fleet, alerts and all."""
    plan = Plan(alerts=3000, days=10, seed=31, sites=8, rules=20, hosts=4, campaigns=4, bursts=3, silences=1)
    return simulated(spark, tmp_path_factory.mktemp("fleet"), plan)


@pytest.mark.long
@pytest.mark.parametrize(
    ("job", "last"),
    [
        (["campaigns", "--days=10", "--session-days=1"], CAMPAIGNS),
        (["baselines", "--days=1"], FIRST_SEEN),
        (["noise"], NOISE),
        (["coverage", "--rules={landing}/rules"], COVERAGE),
    ],
    ids=lambda case: case.name if isinstance(case, Table) else case[0],
)
def test_a_job_cut_short_and_run_again_leaves_what_one_run_does(
    spark: SparkSession, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: list[str], last: Table
) -> None:
    """It ends right after its write of one table, is run again, and again: the tables equal those of one run in full,
    row for row."""
    shutil.copytree(fleet.tables.root, tmp_path / "once")
    shutil.copytree(fleet.tables.root, tmp_path / "again")
    words = [word.format(landing=fleet.folder / "landing") for word in job]

    def run(name: str) -> str:
        return job_run(spark, *words, f"--tables={tmp_path / name}", "--date=2026-11-11")

    write = DeltaTables._once

    def die(self: DeltaTables, table: Table, txn: Txn | None, doing: Callable[[Any], None]) -> bool:
        write(self, table, txn, doing)
        if table.name == last.name:
            raise Crash
        return True

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTables, "_once", die)
        with pytest.raises(Crash):
            run("again")
    said = run("once")
    assert run("again") == said
    once, again = (content(open_tables(str(tmp_path / name))) for name in ("once", "again"))
    assert once[last.name]
    assert again == once


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.long
def test_an_empty_day_is_no_failure(spark: SparkSession, fleet: Fleet, tmp_path: Path, full: bool) -> None:
    """Before anything has come in every job says that there is nothing, and so does each that answers for a day on one
    on which nothing did."""
    tables = tmp_path / "tables"
    if full:
        shutil.copytree(fleet.tables.root, tables)
    jobs = [
        ["campaigns", "--days=1", "--session-days=1"],
        ["baselines", "--days=1", "--weeks=1"],
        ["noise"],
        ["coverage", f"--rules={fleet.folder}/landing/rules"],
        ["report"],
        ["export", "--format=ecs", f"--output={tmp_path / 'out'}"],
    ]
    if not full:
        jobs += [["maintain"], ["risk"]]
    told = {job[0]: job_run(spark, *job, f"--tables={tables}", "--date=2026-09-05") for job in jobs}
    assert told["campaigns"] == "0 open campaigns, 0 closed; 0 sessions"
    assert told["baselines"] == "0 bursts, 0 silences, 0 new rules, 0 new entities"
    assert told["noise"] == "noise: score, rule, reason"
    assert " 0 not deployed fired; 0 of " in told["coverage"]
    assert "No alerts." in told["report"]
    assert told["export"].endswith("ecs-2026-09-05.ndjson: 0 alerts")
    assert full or "0 files deleted" in told["maintain"]
    assert full or told["risk"] == "risk: 0 entities over the threshold"
