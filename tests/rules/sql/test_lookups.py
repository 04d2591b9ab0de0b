"""Statements that ask lookups: joined where it is there, refused alone where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from vedette.cli.main import main
from vedette.rules.build import build

SQL = """
CREATE TABLE assets (ip STRING, owner STRING, critical BOOLEAN) WITH ('connector' = 'vedette', 'lookup' = 'assets');

-- title: Login on a critical asset
INSERT INTO alerts
SELECT e.src_ip, e.`user`, a.owner
FROM events AS e JOIN assets FOR SYSTEM_TIME AS OF e.event_time AS a ON a.ip = e.src_ip
WHERE e.message LIKE 'Accepted %' AND a.critical;

-- title: Login from somewhere unknown
INSERT INTO alerts
SELECT src_ip FROM events WHERE message LIKE 'Accepted %' AND src_ip NOT IN (SELECT ip FROM assets);
"""
HEAD = "<38>Nov 20 10:00:00 web1 sshd[7]: Accepted password for alice from "
TESTS = f"""
- match: {{raw: "{HEAD}10.0.0.1 port 1 ssh2"}}
  rule: Login on a critical asset
- no_match: {{raw: "{HEAD}10.0.0.2 port 1 ssh2"}}
  rule: Login on a critical asset
- no_match: {{raw: "{HEAD}10.0.0.2 port 1 ssh2"}}
  rule: Login from somewhere unknown
- match: {{raw: "{HEAD}10.0.0.3 port 1 ssh2"}}
  rule: Login from somewhere unknown
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "logins.sql").write_text(SQL)
    (rules / "logins.test.yml").write_text(TESTS)
    (tmp_path / "assets.csv").write_text("ip,owner,critical\n10.0.0.1,ann,true\n10.0.0.2,bob,false\n")
    made = CliRunner().invoke(
        main, ["lookup", "build", str(tmp_path / "assets.csv"), "-o", str(tmp_path / "assets.vlookup"), "--key", "ip",
               "--type", "critical:bool"],
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    return tmp_path


def test_a_lookup_is_joined(folder: Path) -> None:
    """``rules test`` with the lookup: rows found, rows not found, columns in conditions."""
    arguments = ["rules", "test", "--lookup", str(folder / "assets.vlookup"), str(folder / "rules")]
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "2 statements" in done.stdout


def test_a_lookup_that_is_not_there_refuses_the_statement_alone(folder: Path) -> None:
    """By name, with what to do; nothing stays behind that would make alerts, and other statements run."""
    other = folder / "rules" / "other.sql"
    other.write_text("INSERT INTO alerts SELECT host, message FROM events WHERE message LIKE 'Accepted %';")
    plan = build([folder / "rules"])
    assert [refused.reason for refused in plan.refused] == ["asks the lookup assets, which is not there"] * 2
    assert len(plan.statements) == 1
    assert plan.detections == ()
    with_lookup = build([folder / "rules"], lookups=[folder / "assets.vlookup"])
    assert len(with_lookup.statements) == 3
