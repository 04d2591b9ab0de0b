"""Recall and precision of rules, by what was closed."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import ANOMALIES, CAMPAIGNS, RULES, TRIAGE
from spark_jobs.tables.tables import open_tables
from tests.spark_jobs.conftest import run
from tests.spark_jobs.found import AT, anomaly, campaign, write


def test_rules_by_closed_findings(tmp_path: Path) -> None:
    """Two true campaigns and two false findings: a rule of both kinds, one of true ones alone, one of false ones; what
    is open, or whose decision has expired, counts for nothing."""
    tables = open_tables(str(tmp_path / "tables"))
    write(tables, RULES, {"rule_id": "a", "rule_title": "Rule A"})
    campaigns = [campaign(1, rules=["a", "b"]), campaign(2, rules=["b"]), campaign(3, rules=["a", "c"]), campaign(4)]
    write(tables, CAMPAIGNS, *campaigns, campaign(5, rules=["c"]))
    write(tables, ANOMALIES, anomaly(1, kind="burst", rule_id="c"))
    decided = [("campaign-1", "true", None), ("campaign-2", "true", None), ("campaign-3", "false", None),
               ("anomaly-1", "false", None), ("campaign-5", "true", AT + timedelta(hours=1))]  # fmt: skip
    for finding, what, expires in decided:
        row = {"finding_id": finding, "state": f"{what}-positive", "expires_at": expires, "updated_at": AT}
        tables.append(TRIAGE, pa.Table.from_pylist([row], arrow_schema(TRIAGE.columns)))
    said = run(None, "quality", f"--tables={tables.root}", f"--output={tmp_path}/new/quality.json").splitlines()
    assert said == [
        "quality: 4 closed findings: 2 true, 2 false",
        "  precision  recall  true  false  rule",
        "         0%      0%     0      2  c",
        "        50%     50%     1      1  Rule A",
        "       100%    100%     2      0  b",
    ]
    rows = json.loads((tmp_path / "new" / "quality.json").read_text())
    assert rows[1] == {
        "rule_id": "a",
        "title": "Rule A",
        "true": 1,
        "false": 1,
        "of": 2,
        "precision": 0.5,
        "recall": 0.5,
    }
    assert run(None, "quality", f"--tables={tmp_path}/nothing") == "quality: 0 closed findings: 0 true, 0 false"
