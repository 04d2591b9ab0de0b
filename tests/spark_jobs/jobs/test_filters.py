"""Filters from false positives: the smallest that spares what is true, measured, and taken by the real commands."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections import defaultdict
from contextlib import closing
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.common.period import period
from spark_jobs.jobs.filters import proposals
from spark_jobs.report import closed
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.ask import open_reader
from spark_jobs.tables.schema import ALERTS, ANOMALIES, CAMPAIGNS, RISK, TRIAGE
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.conftest import run
from tests.spark_jobs.found import AT, anomaly, campaign, write
from tests.spark_jobs.landed import DAY, HOUR, NOON, alert
from vedette.cli.fleet_hunt import hunt

RULE, OTHER_RULE = "5b7e1c1a-6d0e-4f43-9a4f-0c8f5a1d2e01", "5b7e1c1a-6d0e-4f43-9a4f-0c8f5a1d2e02"
SIGMA = f"""title: Failed SSH Password
id: {RULE}
status: stable
description: A password was refused.
author: Vedette
date: 2026-11-20
logsource: {{product: linux, service: sshd}}
detection:
    failed: {{message|contains: Failed password}}
    condition: failed
falsepositives: [Typing]
level: low
fields: [user, src_ip]
"""
LINE = "<38>Nov 20 10:00:00 web1 sshd[7]: Failed password for {} from {} port 22 ssh2"
SCANNER, INTRUDER = r"198.51.100.7", "203.0.113.66"


def failed(number: int, user: str, ip: str, **changes: Any) -> dict[str, Any]:
    """An alert of the rule."""
    row = alert(
        number, rule_id=RULE, rule_title="Failed SSH Password", level="low", fields={"user": user, "src_ip": ip},
        entities=[{"kind": "ip", "value": ip}, {"kind": "user", "value": user}],
    )  # fmt: skip
    return {**row, "counted_at": row["event_time"], **changes}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Eight failed logins of a scanner that was closed as false, three of an intruder by the same account closed as
    true, one of the scanner after the decision, others; and a rule of which all alerts look the same."""
    tables = open_tables(str(tmp_path / "tables"))
    rows = [failed(n, "Svc*Scan" if n % 2 else "svc*scan", SCANNER) for n in range(8)]
    rows += [failed(20 + n, "svc*scan", INTRUDER) for n in range(3)]
    rows += [failed(30 + n, f"user{n}", f"192.0.2.{n}") for n in range(4)]
    rows.append(failed(40, "svc*scan", SCANNER, counted_at=NOON + 90 * HOUR // 60))
    same = {"rule_id": OTHER_RULE, "rule_title": "Same", "fields": {"program": "sshd"}}
    rows += [failed(50 + n, "x", SCANNER, **same) for n in range(6)]
    tables.append(ALERTS, pa.Table.from_pylist(rows, arrow_schema(ALERTS.columns)))
    rules = [RULE, OTHER_RULE]
    write(tables, CAMPAIGNS, campaign(1, value=SCANNER, rules=rules), campaign(2, value=INTRUDER, rules=rules))
    write(tables, ANOMALIES, anomaly(1))
    decided = [("campaign-1", "true", 10), ("campaign-1", "false", 60), ("campaign-2", "true", 60)]
    for finding, what, minutes in [*decided, ("anomaly-1", "false", 60)]:
        at = AT + timedelta(minutes=minutes)
        row = {"finding_id": finding, "state": f"{what}-positive", "author": "ann", "updated_at": at}
        tables.append(TRIAGE, pa.Table.from_pylist([row], arrow_schema(TRIAGE.columns)))
    return tables


def risk(number: int, kind: str, value: str, scope: str = "", **changes: Any) -> dict[str, Any]:
    """What an entity had come to by noon, by one rule."""
    part = {"points": 60.0, "time": AT, "rule_id": RULE, "level": "low", "tactic": "", "alerts": 1, "why": ""}
    return {"as_of": DAY, "risk_id": f"risk-{number}", "kind": kind, "value": value, "scope": scope, "score": 120.0,
            "threshold": 100.0, "over": True, "first_seen": AT - timedelta(hours=1), "last_seen": AT +
            timedelta(minutes=50), "level": "low", "reason": "r", "contributions": [part], **changes}  # fmt: skip


def test_a_risk_that_was_closed_is_a_case(tables: Tables) -> None:
    """Of its entity, host or site the alerts of the rules that it was made of on the day of the decision, not those of
    a later day; a host of the same name at another site is another."""
    write(tables, RISK, risk(1, "ip", INTRUDER), risk(2, "host", "web1", "north/plant"), risk(3, "site", "north/plant"),
          risk(1, "ip", INTRUDER, as_of="2026-11-22", contributions=[]))  # fmt: skip
    for number in (1, 2, 3):
        row = {"finding_id": f"risk-{number}", "state": "false-positive", "updated_at": AT + timedelta(minutes=55)}
        tables.append(TRIAGE, pa.Table.from_pylist([row], arrow_schema(TRIAGE.columns)))
    rows = [
        failed(100, "x", INTRUDER, counted_at=NOON),
        failed(101, "x", SCANNER, counted_at=NOON),
        failed(102, "x", "192.0.2.9", counted_at=NOON, host="web2"),
        failed(103, "x", "192.0.2.9", counted_at=NOON, site="mill"),
        failed(104, "x", "192.0.2.9", counted_at=NOON, host="web2", rule_id=OTHER_RULE),
        failed(105, "x", "192.0.2.9", counted_at=NOON + 56 * HOUR // 60),
    ]
    assert findings_of(tables, rows, AT + timedelta(days=5)) == {
        100: {"risk-1", "risk-2", "risk-3"},
        101: {"risk-2", "risk-3"},
        102: {"risk-3"},
    }


def findings_of(tables: Tables, rows: list[dict[str, Any]], now: datetime) -> dict[int, set[str]]:
    """The risks that the alerts ``rows`` are of, by their numbers."""
    ids = {row["alert_id"]: int(row["seq"]) for row in rows}
    tables.append(ALERTS, pa.Table.from_pylist(rows, arrow_schema(ALERTS.columns)))
    of: dict[int, set[str]] = defaultdict(set)
    with closing(open_reader(tables, None)) as reader:
        reader.view("alerts", ALERTS)
        closed.take_apart(reader, now)
        for row in reader.rows(closed.alerts_of("SELECT * FROM alerts")):
            if row["alert_id"] in ids and row["finding"].startswith("risk"):
                of[ids[row["alert_id"]]].add(row["finding"])
    return of


def _vedette(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vedette", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_false_positives_become_a_filter_that_spares_what_is_true(tables: Tables, tmp_path: Path) -> None:
    """Its effect is printed and written; lint and test take it beside its rule; scan no longer reports the scanner,
    and still reports the intruder."""
    folder, patch = tmp_path / "rules", tmp_path / "filters.patch"
    words = [
        f"--tables={tables.root}",
        f"--proposals={folder}",
        f"--patch={patch}",
        "--date=2026-11-20",
        f"--rules={folder}",
    ]
    text = run(None, "filters", *words)
    assert "1 proposal of" in text.splitlines()[0]
    assert (
        "removed 9 of 16 alerts: 8 of 8 closed as false positives, 0 closed as true, 0 open and high, 1 other" in text
    )
    assert "no filter for Same: no one or two fields" in text
    hunt_on_hosts = shlex.split(text.partition("on hosts: vedette fleet hunt ")[2].splitlines()[0])
    asked = hunt.make_context("hunt", hunt_on_hosts, resilient_parsing=True).params
    assert asked["rules"] == (folder, folder / f"filter-{RULE}.yml")
    assert (asked["agents"], asked["since"]) == (("agent-1",), "30d")
    name = f"filter-{RULE}"
    effect = json.loads((folder / f"{name}.effect.json").read_text())
    assert (effect["fields"], effect["findings"]) == ({"src_ip": [SCANNER]}, ["campaign-1"])
    assert (effect["removed"], effect["removed_true"], effect["alerts"]) == (9, 0, 16)
    assert sorted(path.name for path in folder.iterdir()) == [f"{name}.effect.json", f"{name}.yml"]
    assert (folder / f"{name}.yml").read_text() == "\n".join(line[1:] for line in patch.read_text().split("\n")[3:])

    (folder / "failed.yml").write_text(SIGMA)
    cases = [{"match": LINE.format("anna", INTRUDER)}, {"no_match": LINE.format("anna", SCANNER)}]
    (folder / "failed.test.yml").write_text(json.dumps(cases))
    for command in ("lint", "test"):
        done = _vedette("rules", command, folder)
        assert done.returncode == 0, done.stdout + done.stderr
    log = tmp_path / "auth.log"
    log.write_text("".join(LINE.format("svc*scan", ip) + "\n" for ip in (SCANNER, INTRUDER, "192.0.2.9")))
    scanned = _vedette("scan", "--rules", folder, "--route", "--product", "linux", log)
    assert [json.loads(line)["line"] for line in scanned.stdout.splitlines()] == [2, 3], scanned.stderr


@pytest.mark.long
@pytest.mark.spark
def test_spark_reads_the_same(spark: SparkSession, tables: Tables) -> None:
    """Where DuckDB cannot read the tables, Spark gives the same filters and reasons."""
    answers = []
    for session in (None, spark):
        with closing(open_reader(tables, session)) as reader:
            proposed, refused = proposals(reader, period(date.fromisoformat(DAY), 7), 5)
        answers.append(([proposal._asdict() for proposal in proposed], refused))
    assert answers[0] == answers[1]
    assert [len(some) for some in answers[0]] == [1, 1]


def test_too_few_or_nothing_closed_proposes_nothing(tables: Tables, tmp_path: Path) -> None:
    """Below ``--least``; in other days; in tables where nobody decided anything."""
    words = [f"--proposals={tmp_path / 'out'}", "--date=2026-11-20"]
    assert run(None, "filters", f"--tables={tables.root}", "--least=9", *words).count("\n") == 0
    assert "0 proposals" in run(None, "filters", f"--tables={tables.root}", words[0], "--date=2026-11-01", "--days=3")
    empty = open_tables(str(tmp_path / "empty"))
    empty.append(ALERTS, pa.Table.from_pylist([failed(1, "anna", INTRUDER)], arrow_schema(ALERTS.columns)))
    assert "0 proposals" in run(None, "filters", f"--tables={empty.root}", *words)
    assert list((tmp_path / "out").iterdir()) == []


Fields = dict[str, str]


def chosen(folder: Path, false: list[Fields], others: list[tuple[str, Fields]], *places: str) -> tuple[str, ...]:
    """Fields of the filter that is proposed for ``false`` alerts, beside ``others`` with their labels (``true``,
    ``open``, ``other``) and one more alert at each of ``places``; every value but of ``program`` is an entity."""
    tables = open_tables(str(folder / str(len([*folder.iterdir()]))))
    labelled = [*(("false", fields) for fields in false), *others, *(("other", Fields()) for _ in places)]
    rows = []
    for number, (label, fields) in enumerate(labelled):
        entities = [{"kind": "user", "value": value} for name, value in fields.items() if name != "program"]
        case = [{"kind": "hash", "value": label}] if label in ("false", "true") else []
        row = failed(number, "", "", fields=fields, entities=[*entities, *case])
        rows.append({**row, "level": "high" if label == "open" else "low"})
    for row, place in zip(rows[len(rows) - len(places) :], places, strict=True):
        row["fleet"], row["site"] = place.split("/")
    copies = [*rows, *rows]  # as a job that was cut short may leave them until ``maintain``
    tables.append(ALERTS, pa.Table.from_pylist(copies, arrow_schema(ALERTS.columns)))
    for number, label in enumerate(("false", "true"), 1):
        write(tables, CAMPAIGNS, campaign(number, kind="hash", value=label, rules=[RULE], sites=["north/plant"]))
        row = {"finding_id": f"campaign-{number}", "state": f"{label}-positive", "updated_at": AT + timedelta(days=1)}
        tables.append(TRIAGE, pa.Table.from_pylist([row], arrow_schema(TRIAGE.columns)))
    with closing(open_reader(tables, None)) as reader:
        proposed, _ = proposals(reader, period(date.fromisoformat(DAY), 7), 1)
    return tuple(proposed[0].values) if proposed else ()


def test_the_smallest_conjunction_is_chosen(tmp_path: Path) -> None:
    """One field before two; of these the one that takes fewer others along; never one that an alert to spare has."""
    scan = {"user": "svc", "ip": "198.51.100.7", "program": "sshd"}
    assert chosen(tmp_path, [scan, {**scan, "user": "SVC"}], []) == ("ip",)
    assert chosen(tmp_path, [scan], [("other", {"ip": "198.51.100.7"})]) == ("user",)
    by_user, by_ip = ("true", {**scan, "ip": "203.0.113.1"}), ("open", {**scan, "user": "root"})
    assert chosen(tmp_path, [scan], [by_user]) == ("ip",)
    assert chosen(tmp_path, [scan], [by_user, by_ip]) == ("ip", "user")
    assert chosen(tmp_path, [scan], [("true", {**scan, "ip": "203.0.113.1", "program": "su"}), by_ip]) == ("ip", "user")
    assert chosen(tmp_path, [scan], [("open", {name: value.upper() for name, value in scan.items()})]) == ()


def test_what_names_nobody_is_not_proposed(tmp_path: Path) -> None:
    """A program's name alone; a field that some false positive lacks, or of which each has another value; a private
    address of a rule that alerts at several sites."""
    assert chosen(tmp_path, [{"program": "sshd"}], []) == ()
    assert chosen(tmp_path, [{"user": "svc", "program": "sshd"}, {"program": "sshd"}], []) == ()
    assert chosen(tmp_path, [{"user": f"user{n}"} for n in range(6)], []) == ()
    assert chosen(tmp_path, [{"user": f"user{n}"} for n in range(5)], []) == ("user",)
    assert chosen(tmp_path, [{"ip": "10.0.0.9"}], []) == ("ip",)
    assert chosen(tmp_path, [{"ip": "10.0.0.9"}], [], "north/office") == ()
