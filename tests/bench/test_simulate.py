"""The made-up fleet: the landing holds what the truth says, the same each time."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.simulate import Plan, Truth, main, simulate
from bench.simulated import alert_ids
from tests.spark_jobs import landed

PLAN = Plan(
    alerts=15_000,
    days=10,
    start=date(2026, 11, 2),
    seed=5,
    sites=20,
    rules=60,
    hosts=20,
    silences=1,
    rows_per_file=2000,
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth, list[dict[str, Any]]]:
    """The folder, the truth, and every landed alert in the order of landing."""
    out = tmp_path_factory.mktemp("fleet")
    truth = simulate(PLAN, out)
    files = sorted((out / "landing" / "alerts").rglob("*.parquet"), key=lambda file: file.name)
    return out, truth, pa.concat_tables(pq.read_table(file, partitioning=None) for file in files).to_pylist()


def test_the_landing_holds_what_the_truth_says(fleet: tuple[Path, Truth, list[dict[str, Any]]]) -> None:
    """Numbers of rows, alerts, folds and matches by day are those counted in the files, about as many as asked for."""
    _, truth, rows = fleet
    alerts = {row["alert_id"]: row for row in rows}
    assert (truth.rows, truth.alerts) == (len(rows), len(alerts))
    assert sum(row["kind"] == "fold" for row in alerts.values()) == truth.folds
    by_day: Counter[str] = Counter()
    for row in alerts.values():
        by_day[f"{row['event_time']:%Y-%m-%d}"] += row["count"]
    assert by_day == truth.by_day
    assert sum(by_day.values()) == truth.matches
    assert 0.9 < (truth.alerts - truth.folds) / PLAN.alerts < 1.6
    assert {row["parent_id"] for row in alerts.values() if row["kind"] == "fold"} < alerts.keys()


def test_rows_are_of_the_landed_schema_and_in_order(fleet: tuple[Path, Truth, list[dict[str, Any]]]) -> None:
    """Files have the envelope's columns and lie in their hour; rows come as they were received; copies are alike."""
    out, _, rows = fleet
    first = next((out / "landing" / "alerts").rglob("*.parquet"))
    assert pq.read_schema(first).equals(landed.ALERTS)
    received = [row["received_at"] for row in rows]
    assert received == sorted(received)
    copies = defaultdict(list)
    for row in rows:
        copies[row["alert_id"]].append({**row, "received_at": None})
    assert all(one == same[0] for same in copies.values() for one in same)
    assert any(len(same) > 1 for same in copies.values())
    assert all(row["received_date"] == f"{row['detected_at']:%Y-%m-%d}" for row in rows)


def test_planted_things_are_there(fleet: tuple[Path, Truth, list[dict[str, Any]]]) -> None:
    """Campaigns have their alerts at their sites in order of tactics, bursts their hour, silent sites none, lossy
    agents their gap, agents cut off their alerts late; scanners are everywhere."""
    _, truth, rows = fleet
    alerts = list({row["alert_id"]: row for row in rows if row["kind"] != "fold"}.values())
    sites = defaultdict(set)
    counts: Counter[tuple[str, str]] = Counter()
    for row in alerts:
        for one in row["entities"]:
            sites[one["kind"], one["value"]].add(f"{row['fleet']}/{row['site']}")
            counts[one["kind"], one["value"]] += 1
    for one in truth.campaigns:
        assert sites[one["kind"], one["value"]] == set(one["sites"])
        assert counts[one["kind"], one["value"]] == one["alerts"]
        assert len(one["sites"]) >= 4
    for one in truth.decoys:
        assert len(sites[one["kind"], one["value"]]) >= 4, one
    for name in ("campaigns", "bursts", "silences", "new_rules", "lossy", "offline"):
        assert len(getattr(truth, name)) == getattr(PLAN, name) > 0, name
    assert Counter(one["reason"] for one in truth.decoys) == {"scanner": 4, "shared address": 4, "red team": 2}

    def between(row: dict[str, Any], start: int, end: int) -> bool:
        return bool(_time(start) <= row["event_time"] < _time(end))

    for one in truth.bursts:
        there = [r for r in alerts if r["rule_id"] == one["rule_id"] and f"{r['fleet']}/{r['site']}" == one["site"]]
        assert sum(between(row, one["start"], one["end"]) for row in there) >= one["alerts"] >= 60
    for one in truth.silences:
        there = [row for row in alerts if f"{row['fleet']}/{row['site']}" == one["site"]]
        inside = sum(between(row, one["start"], one["end"]) for row in there)
        assert inside < one["expected"] / 10
        assert len(there) > inside
    for one in truth.new_rules:
        assert all(r["event_time"] >= _time(one["first"]) for r in alerts if r["rule_id"] == one["rule_id"])
    for one in truth.lossy:
        seqs = {row["seq"] for row in rows if row["agent_id"] == one["agent_id"]}
        assert max(seqs) - min(seqs) + 1 - len(seqs) == one["missing"]
    for one in truth.offline:
        cut = [r for r in rows if r["agent_id"] == one["agent_id"]
               and _time(one["since"]) <= r["detected_at"] < _time(one["until"])]  # fmt: skip
        assert all(row["received_at"] >= _time(one["until"]) for row in cut)


def _time(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, UTC)


def test_the_same_plan_gives_the_same_bytes(tmp_path: Path) -> None:
    """Twice the same seed is the same landing and truth; another seed is not."""
    small = Plan(alerts=2000, days=3, sites=6, rules=30, campaigns=2, bursts=1, silences=1, offline=1, lossy=1)
    for name, plan in (("a", small), ("b", small), ("c", Plan(**{**_settings(small), "seed": 2}))):
        simulate(plan, tmp_path / name)
    content = {
        name: {str(file.relative_to(tmp_path / name)): file.read_bytes() for file in (tmp_path / name).rglob("*.*")
               if file.is_file()}
        for name in "abc"
    }  # fmt: skip
    assert content["a"] == content["b"]
    assert content["a"]["truth.json"] != content["c"]["truth.json"]


def _settings(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in plan.__dataclass_fields__}


def test_one_site_can_have_half_of_all(tmp_path: Path) -> None:
    """``skew`` is the share of the first site."""
    simulate(Plan(alerts=5000, days=2, sites=10, rules=40, skew=0.5, campaigns=0, bursts=0, scanners=0), tmp_path)
    tables = [pq.read_table(file, partitioning=None) for file in (tmp_path / "landing" / "alerts").rglob("*.parquet")]
    sites = Counter(pa.concat_tables(tables)["site"].to_pylist())
    assert 0.4 < sites["site-000"] / sites.total() < 0.6


def test_rules_that_fit_no_campaign_are_done_without(tmp_path: Path) -> None:
    """None of these few rules tells a user agent and has more than the lowest level; campaigns are planted all the
    same."""
    plan = Plan(alerts=3000, days=10, start=date(2026, 11, 2), sites=16, seed=5, rules=60, hosts=20, silences=1)
    simulate(plan, tmp_path)
    planted = json.loads((tmp_path / "truth.json").read_text("utf-8"))["campaigns"]
    assert {one["kind"] for one in planted} == {"ip", "user", "hash", "user_agent"}
    assert all(one["alerts"] > 0 for one in planted)


def test_identities_are_different_and_hexadecimal() -> None:
    """32 hex digits, none twice, null for none."""
    ids = alert_ids(np.array([*range(5000), -1]), 7).to_pylist()
    assert ids.pop() is None
    assert len(set(ids)) == 5000
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in ids)


def test_the_command_refuses_to_mix_fleets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what it made; a folder that holds a landing is not written into."""
    words = ["--out", str(tmp_path), "--alerts", "500", "--days", "2", "--sites", "5", "--start", "2026-11-01"]
    assert main(words) == 0
    assert json.loads((tmp_path / "truth.json").read_text())["plan"]["start"] == "2026-11-01"
    assert "truth.json says what is in them" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(words)
    assert "is there already" in capsys.readouterr().err
