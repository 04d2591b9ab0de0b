"""Loud rules: numbers by hand, and proposals that the real commands take."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spark_jobs.common import period
from spark_jobs.jobs import noise
from spark_jobs.tables.ask import open_reader
from spark_jobs.tables.schema import NOISE
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.conftest import run
from tests.spark_jobs.fleet import take
from tests.spark_jobs.landed import alert

pytestmark = pytest.mark.spark

RULE = "5b7e1c1a-6d0e-4f43-9a4f-0c8f5a1d2e01"
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


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """A rule of which 80 of 100 alerts, by an agent whose clock stands at 1970, name one user, one that is mostly held
    back, and one grave one."""
    rows: list[dict[str, Any]] = []
    for n in range(100):
        user = r"svc\scan*" if n < 80 else f"user{n}"
        rows.append(
            alert(n, rule_id=RULE, rule_title="Failed SSH Password", level="low", host=f"web{n % 4}",
                  received_date="1970-01-01",
                  logsource={"product": "linux", "category": None, "service": "sshd"},
                  fields={"user": user, "src_ip": f"198.51.100.{n}"},
                  entities=[{"kind": "user", "value": user}, {"kind": "ip", "value": f"198.51.100.{n}"}])
        )  # fmt: skip
    rows.append(alert(200, rule_id="held", level="low", entities=[]))
    rows.append(alert(201, rule_id="held", level="low", kind="fold", count=899, entities=[], parent_id="p"))
    rows += [
        alert(300 + n, rule_id="grave", level="critical", site=f"s{n % 2}", fields={"ip": "10.0.0.9"},
              entities=[{"kind": "ip", "value": "10.0.0.9"}]) for n in range(100)
    ]  # fmt: skip
    tables = open_tables(str(tmp_path_factory.mktemp("noise")))
    take(spark, tables, "batch", rows)
    return tables


def write(tables: Tables, wanted: period.Period, session: SparkSession | None = None) -> list[dict[str, Any]]:
    """Write the noise of ``wanted``, asked of DuckDB or of ``session``; its rows."""
    with closing(open_reader(tables, session)) as reader:
        return noise.write(reader, tables, wanted)


def test_numbers_are_those_of_the_alerts(spark: SparkSession, tables: Tables) -> None:
    """Volume, share held back, sites, hosts and the loudest entity; a grave rule counts half; Spark says the same."""
    wanted = period.period(date(2026, 11, 20), 7)
    assert write(tables, wanted, spark) == write(tables, wanted)
    rows = {row["rule_id"]: row for row in tables.arrow(NOISE).to_pylist()}
    ssh, suppressed, grave = rows[RULE], rows["held"], rows["grave"]
    assert (ssh["alerts"], ssh["matches"], ssh["sites"], ssh["hosts"]) == (100, 100, 1, 4)
    assert (ssh["share"], ssh["share_suppressed"]) == (pytest.approx(100 / 1100), 0)
    assert (ssh["top_kind"], ssh["top_value"], ssh["top_share"]) == ("user", r"svc\scan*", 0.8)
    assert (suppressed["alerts"], suppressed["matches"], suppressed["top_kind"]) == (1, 900, None)
    assert suppressed["share_suppressed"] == pytest.approx(1 - 1 / 900)
    assert suppressed["top_share"] == 0, "a rule that names no entity has none that makes it loud"
    loud = (100 / 1100 / 0.2) ** 0.5
    assert ssh["score"] == pytest.approx(loud * (40 + 0.8 * 30), abs=0.05)
    assert suppressed["score"] == pytest.approx(40 + 30 * (1 - 1 / 900), abs=0.05)
    # A private address is another machine at each of the two sites: half of the alerts each.
    assert grave["top_share"] == 0.5
    assert grave["score"] == pytest.approx(loud * (40 + 0.5 * 30) / 2, abs=0.05)
    assert [rule_id for rule_id, row in rows.items() if row["proposal"]] == [RULE]
    assert ssh["reason"] == (
        r"100 matches, 9 % of all; 0 % suppressed; at 1 site, 4 hosts; 80 % of the alerts name user svc\scan*"
    )


class Proposed(NamedTuple):
    """What the command said, and where it put its proposals."""

    text: str
    folder: Path
    patch: Path


@pytest.fixture(scope="module")
def proposed(spark: SparkSession, tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Proposed:
    """One run of the command, with filters as files and as a patch."""
    folder = tmp_path_factory.mktemp("proposed")
    words = [f"--proposals={folder / 'rules'}", f"--patch={folder / 'noise.patch'}"]
    text = run(spark, "noise", f"--tables={tables.root}", "--date=2026-11-20", *words)
    return Proposed(text, folder / "rules", folder / "noise.patch")


def test_a_proposal_is_a_filter_that_vedette_takes(proposed: Proposed, tmp_path: Path) -> None:
    """Beside its rule it has no error in lint, and scan no longer reports that entity, wildcards in it and all."""
    text, folder = proposed.text, shutil.copytree(proposed.folder, tmp_path / "rules")
    assert text.splitlines()[1].startswith(" 70.0  Failed logins: 900 matches")
    (proposal,) = folder.iterdir()
    assert proposal.name == f"filter-{RULE}.yml"
    (folder / "failed.yml").write_text(SIGMA)
    log = tmp_path / "auth.log"
    line = "<38>Nov 20 10:00:00 web1 sshd[7]: Failed password for {} from 203.0.113.9 port 22 ssh2\n"
    log.write_text("".join(line.format(user) for user in (r"svc\scan*", r"svc\scanner", "anna")))
    assert _vedette("rules", "lint", "--skip", "tests", str(folder)).returncode == 0
    scanned = _vedette("scan", "--rules", str(folder), "--route", "--product", "linux", str(log))
    assert [json.loads(line)["line"] for line in scanned.stdout.splitlines()] == [2, 3]
    assert "not run" not in scanned.stderr


@pytest.mark.parametrize("command", [["git", "apply"], ["patch", "-s", "-p1", "-i"]])
def test_the_patch_applies_to_the_folder_of_the_rules(proposed: Proposed, tmp_path: Path, command: list[str]) -> None:
    """In a folder of a repository, by git and by patch: the files are those of ``--proposals``, which lint and scan
    have taken."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} on this host")
    folder = tmp_path / "repository" / "rules"
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(folder.parent)], check=True, timeout=60)
    (folder / "failed.yml").write_text(SIGMA)
    subprocess.run([*command, str(proposed.patch)], cwd=folder, check=True, timeout=60)
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert files.pop("failed.yml") == SIGMA.encode()
    assert files == {file.name: file.read_bytes() for file in proposed.folder.iterdir()}


@given(st.text(max_size=40))
@settings(max_examples=100)
def test_any_entity_makes_a_filter_of_that_value(value: str) -> None:
    """YAML gives back whatever was in the log, wildcards escaped, and each line of the patch is a line of the file."""
    source = {"product": "linux", "category": None, "service": "sshd"}
    about = {"top_value": value, "rule_title": value, "rule_id": RULE, "top_share": 0.8, "alerts": 100}
    text = noise.filter_of(about, "user", source)
    read = yaml.safe_load(text)
    assert read["filter"]["selection"]["user"] == re.sub(r"[\\*?]", lambda match: "\\" + match[0], value)
    assert read["filter"]["rules"] == [RULE]
    patch = noise.added("f.yml", text).split("\n")
    assert "\n".join(line[1:] for line in patch[3:]) == text
    assert f"+1,{len(patch) - 4} @@" in patch[2]


def _vedette(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "vedette", *arguments], capture_output=True, text=True, timeout=60)


def test_a_second_run_replaces_the_first(tables: Tables) -> None:
    """The same day again gives the same rows, not more."""
    wanted = period.period(date(2026, 11, 20), 7, datetime(2026, 11, 20, tzinfo=UTC) + timedelta(hours=13))
    write(tables, wanted)
    first = sorted(map(repr, tables.arrow(NOISE).to_pylist()))
    write(tables, wanted)
    assert sorted(map(repr, tables.arrow(NOISE).to_pylist())) == first
