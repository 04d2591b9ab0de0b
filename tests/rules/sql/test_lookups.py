"""Statements that ask lookups: joined where it is there, refused alone where it is not."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from tests import reference
from tests.differences import walk
from tests.lookup.tables import reference_lookups
from vedette.cli.main import main
from vedette.decode.decoder import record
from vedette.plan.ir import Leaf, Op
from vedette.rules.build import build
from vedette.rules.ruleset import RuleSet
from vedette.rules.sql.frontend import Sql
from vedette.stream.reader import Event, Reader

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


TABLES = (
    "CREATE TABLE k (t STRING, n STRING, d STRING, i BIGINT, a STRING, c STRING, l BIGINT, h BIGINT)"
    " WITH ('connector' = 'vedette', 'lookup' = 'all');\n"
    "CREATE TABLE e (s STRING, b BIGINT, m INT, ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time', WATERMARK FOR ts AS ts)"
    " WITH ('connector' = 'vedette', 'watermark' = 'selected');\n"
)
TEXTS = [
    *(key for keys in reference.TABLES["all"].values() for key in keys),
    *(
        "SECURITY",
        "www.x",
        "a.EXE.",
        "10.1.2.3",
        " 10.1.2.3 ",
        "::ffff:10.1.2.3",
        "fe80::2",
        "007",
        "1.5",
        "1e3",
        "",
        ".",
    ),
]
NUMBERS = [1, 2, 2.9, 1.0, -15, -15.5, 4688, 450, 450.9, 1e3, 1e16, 2**53 + 1]
VALUES = [*TEXTS, *NUMBERS, True, None, [1], ["1"], ["x"], {"y": 1}]
CONDITIONS = [f"e.s = k.{key}" for key in "tndac"]
CONDITIONS += [
    "k.t = e.s AND k.n <> e.s",
    "e.b = k.i",
    "e.m = k.i",
    "e.b BETWEEN k.l AND k.h",
    "e.m BETWEEN k.l AND k.h",
]


@walk("condition", CONDITIONS)
@walk(
    "query",
    [
        "SELECT e.s, e.b, e.m FROM e WHERE EXISTS (SELECT 1 FROM k WHERE {})",
        "SELECT e.s, e.b, e.m, k.n FROM e JOIN k FOR SYSTEM_TIME AS OF e.ts ON {}",
        "SELECT v.m, v.s, v.b FROM (SELECT m, b, s, ts FROM e) AS v JOIN k FOR SYSTEM_TIME AS OF v.ts ON {}"
        " WHERE k.h <> 7",
    ],
)
def test_no_event_is_left_out_that_has_a_partner(query: str, condition: str) -> None:
    """Its rule holds for every event whose value the lookup has, however it is written, and not for all others."""
    rules = RuleSet(lookups=reference_lookups())
    sql = query.format(condition.replace("e.", "v.") if " AS v " in query else condition)
    Sql(rules).add(f"{TABLES}INSERT INTO alerts {sql};", "x.sql")
    assert not rules.refused, rules.refused
    (statement,), (rule,) = rules.statements, rules.rules
    (node,), (scan,) = statement.lookups, statement.scans
    lookup, reader = reference_lookups()["all"], Reader([scan])
    column = re.findall(r"e\.(.)", condition)[0]
    found = left_out = 0
    for value in VALUES:
        event = record(orjson.dumps({column: value, "z": 1}), "json")
        row = reader.row(scan, Event(event, 1, input="x", host=lambda: None, time=lambda: 0))
        asked = row[[source.path for source in scan.sources].index(column) + 1]
        has = asked is not None and lookup.contains(node.index, asked)
        holds = reference.true(rule.expr, [reference.holds(one, event) for one in rules.predicates].__getitem__)
        assert holds or not has, (sql, value)
        found, left_out = found + has, left_out + (not holds)
    assert found > 5
    assert left_out > 15


def test_which_joins_select_events() -> None:
    """INNER joins, IN and EXISTS; LEFT JOIN and NOT IN also need events without a partner."""

    def asked(query: str) -> bool:
        rules = RuleSet(lookups=reference_lookups())
        Sql(rules).add(f"{TABLES}INSERT INTO alerts {query};", "x.sql")
        assert not rules.refused, rules.refused
        return any(p.op is Op.LOOKUP for p in rules.predicates)

    joined = "SELECT e.s, k.n FROM e {} JOIN k FOR SYSTEM_TIME AS OF e.ts ON k.t = e.s"
    assert asked(joined.format(""))
    assert not asked(joined.format("LEFT"))
    assert asked("SELECT s FROM e WHERE s IN (SELECT t FROM k)")
    assert not asked("SELECT s FROM e WHERE s NOT IN (SELECT t FROM k)")
    assert asked("SELECT s FROM e WHERE b = 1 AND s IN (SELECT t FROM k WHERE i > 3)")
    assert not asked("SELECT s FROM e WHERE LOWER(s) IN (SELECT t FROM k)")
    both = "SELECT s FROM e WHERE s IN (SELECT t FROM k) UNION ALL SELECT s FROM e WHERE s IN (SELECT n FROM k)"
    assert asked(both)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT e.b FROM e JOIN k FOR SYSTEM_TIME AS OF e.ts ON k.t = e.s",
        "SELECT b FROM e WHERE s IN (SELECT t FROM k)",
        "SELECT b FROM e WHERE EXISTS (SELECT 1 FROM k WHERE k.t = e.s)",
    ],
)
def test_a_table_with_a_watermark(query: str) -> None:
    """A lookup is asked as of the row's time, and selects the table's events all the same: no window needs others."""
    rules, tables = RuleSet(lookups=reference_lookups()), TABLES.replace(", 'watermark' = 'selected'", "")
    Sql(rules).add(f"{tables}INSERT INTO alerts {query};", "x.sql")
    (statement,), (rule,) = rules.statements, rules.rules
    (node,) = statement.lookups
    assert node.input.columns[node.at - 1].type.name == "TIMESTAMP_LTZ"
    assert rule.expr == Leaf(0)
    assert [one.op for one in rules.predicates] == [Op.LOOKUP]
