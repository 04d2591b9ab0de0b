"""Tables given to ``bundle build``: lookups with the keys that the bundle's rules ask for, signed with it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.bundle.conftest import Author
from vedette import __version__
from vedette.bundle.trust import verify
from vedette.cli.main import main
from vedette.lookup.sets import carried
from vedette.lookup.table import Lookup

SQL = """
CREATE TABLE assets (ip STRING, site STRING, owner STRING, risk BIGINT, low BIGINT, high BIGINT)
  WITH ('connector' = 'vedette', 'lookup' = 'assets');
-- title: One key
INSERT INTO alerts SELECT e.src_ip, a.owner, a.risk
FROM events AS e JOIN assets FOR SYSTEM_TIME AS OF e.event_time AS a ON a.ip = e.src_ip WHERE a.risk > 7;
-- title: Two keys
INSERT INTO alerts SELECT e.src_ip, a.risk
FROM events AS e JOIN assets FOR SYSTEM_TIME AS OF e.event_time AS a ON a.site = e.site AND a.owner = e.`user`;
-- title: In
INSERT INTO alerts SELECT owned FROM events WHERE owned IN (SELECT owner FROM assets);
-- title: Exists
INSERT INTO alerts SELECT port FROM events WHERE EXISTS (
  SELECT 1 FROM assets
  WHERE CAST(events.port AS BIGINT) BETWEEN assets.low AND assets.high AND assets.site = events.place);
"""
SIGMA = """title: {0}
id: 00000000-0000-4000-8000-00000000000{1}
logsource: {{product: test}}
detection: {{s: {{{2}}}, condition: s}}
level: low
---
"""
EXPANDS = (
    ("Expand", "host|expand: '%assets%'"),
    ("Cased", "cs|cased|expand: '%assets.name%'"),
    ("Network", "dst|cidr|expand: '%assets.net%'"),
)
ROWS: list[dict[str, Any]] = [
    {"ip": f"10.0.{n}.1", "net": f"10.0.{n}.0/24", "host": f"Host{n}", "name": f"Host{n}", "site": f"s{n // 3}",
     "owner": f"o{n % 3}", "risk": n, "low": n * 10, "high": n * 10 + 5, "unused": "x" * 50}
    for n in range(9)
]  # fmt: skip
EVENTS = (
    ({"src_ip": "10.0.8.1"}, {"One key"}),
    ({"src_ip": "10.0.7.1"}, set()),
    ({"site": "s1", "user": "o2"}, {"Two keys"}),
    ({"site": "s1", "user": "o3"}, set()),
    ({"owned": "o1"}, {"In"}),
    ({"owned": "O1"}, set()),
    ({"port": 85, "place": "s2"}, {"Exists"}),
    ({"port": 85, "place": "s1"}, set()),
    ({"port": 86, "place": "s2"}, set()),
    ({"host": "hOST3"}, {"Expand"}),
    ({"cs": "Host3"}, {"Cased"}),
    ({"cs": "host3"}, set()),
    ({"dst": "10.0.5.77"}, {"Network"}),
    ({"dst": "10.0.9.77"}, set()),
)
"""Each with the rules that it makes alerts of."""


def table(path: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    match path.suffix:
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case ".parquet":
            pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        case _:
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
    return path


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "a.sql").write_text(SQL)
    (folder / "b.yml").write_text("".join(SIGMA.format(name, n, one) for n, (name, one) in enumerate(EXPANDS, 1)))
    return folder


def build(rules: Path, *lookups: Path, options: tuple[str, ...] = ()) -> Result:
    given = [word for one in lookups for word in ("--lookup", str(one))]
    target = rules.parent / "b.vbundle"
    return CliRunner().invoke(
        main, ["bundle", "build", str(rules), "-o", str(target), "--version", "1", *given, *options]
    )


def signed(rules: Path) -> tuple[Path, Author, dict[str, Lookup]]:
    """The bundle, who signed it, and the lookups that it carries."""
    bundle, author = rules.parent / "b.vbundle", Author(rules.parent / "key.pem")
    done = CliRunner().invoke(main, ["bundle", "sign", str(bundle), "--key", str(rules.parent / "key.pem")])
    assert done.exit_code == 0, done.output
    return bundle, author, carried(verify(bundle.read_bytes(), [author.public], __version__).parts)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_rules_ask_a_table(rules: Path, suffix: str) -> None:
    """Keys and columns are those that the rules ask for, whatever the source; the signed bundle makes their alerts."""
    done = build(rules, table(rules.parent / f"assets{suffix}"), options=("--strict",))
    assert done.exit_code == 0, done.output
    bundle, author, lookups = signed(rules)
    (made,) = lookups.values()
    assert {f"{'..'.join(one.columns)}:{one.kind}" for one in made.indexes} == {
        "ip:text", "site:text", "owner:text", "low..high:range", "host:nocase", "name:text", "net:cidr"
    }  # fmt: skip
    assert {column.name: column.type for column in made.columns} == {
        "ip": "text", "site": "text", "owner": "text", "risk": "int", "low": "int", "high": "int", "host": "text",
        "name": "text", "net": "text",
    }  # fmt: skip
    events = rules.parent / "events.json"
    events.write_text("".join(json.dumps({"timestamp": "2026-05-06T07:08:09Z", **event}) + "\n" for event, _ in EVENTS))
    arguments = ["scan", "--rules", str(bundle), "--trusted-key", author.public, "--format", "json", str(events)]
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 0, found.output
    alerts = [json.loads(line) for line in found.stdout.splitlines()]
    for number, (event, titles) in enumerate(EVENTS, 1):
        assert {one["rule_title"] for one in alerts if one["line"] == number} == titles, event


def test_a_build_is_reproducible(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same table, rules and time give the same bundle."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    assets, made = table(rules.parent / "assets.csv"), []
    for _ in range(2):
        assert build(rules, assets).exit_code == 0
        made.append((rules.parent / "b.vbundle").read_bytes())
    assert made[0] == made[1]


def test_a_list_stays_a_list(rules: Path) -> None:
    """CSV that no rule asks for a column gives a placeholder its values, wildcards among them; a table beside it in its
    folder is built, and a folder's table that nobody asks is left out."""
    folder = rules.parent / "lookups"
    folder.mkdir()
    table(folder / "assets.jsonl")
    table(folder / "nobody.jsonl")
    (folder / "admins.csv").write_text("value,more\nadm_*,1\nroot,2\n")
    (rules / "c.yml").write_text(SIGMA.format("Admin", 9, "user|expand: '%admins%'"))
    (rules / "c.test.yml").write_text(
        "- match: {event: {user: adm_anna}}\n- match: {event: {user: root}}\n- no_match: {event: {user: bob}}\n"
    )
    done = build(rules, folder, options=("--strict",))
    assert (done.exit_code, done.stderr) == (0, "")
    assert "3 test events" in done.stdout
    assert list(signed(rules)[2]) == ["assets"]


def test_a_filter_asks_a_table(rules: Path) -> None:
    """What a Sigma filter adds to a rule is asked as what the rule says itself."""
    (rules / "filter.yml").write_text(
        "title: known\nlogsource: {product: test}\n"
        "filter: {rules: any, s: {user|cased|expand: '%staff.login%'}, condition: not s}\n"
    )
    (rules / "c.yml").write_text(SIGMA.format("Login", 9, "event: login"))
    (rules / "c.test.yml").write_text(
        "- match: {event: {event: login, user: eve}}\n  rule: Login\n- no_match: {event: {event: login, user: ann}}\n"
        "  rule: Login\n"
    )
    staff = table(rules.parent / "staff.csv", [{"login": "ann"}])
    done = build(rules, staff, table(rules.parent / "assets.csv"), options=("--strict",))
    assert (done.exit_code, done.stderr) == (0, "")
    assert sorted(signed(rules)[2]) == ["assets", "staff"]


def test_a_table_that_nobody_asks(rules: Path) -> None:
    """It is named and left out, the bundle is built."""
    done = build(rules, table(rules.parent / "other.jsonl"), table(rules.parent / "assets.csv"))
    assert done.exit_code == 0
    assert done.stderr == f"{rules.parent / 'other.jsonl'}: no rule asks the lookup other: left out\n"


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ([{**ROWS[0], "net": "10.0.0.0/33"}], "assets.csv:2: column net: '10.0.0.0/33'; expects a network"),
        ([ROWS[0], {**ROWS[1], "risk": "high"}], "assets.csv:3: column risk: 'high'; expects an integer of 64 bits"),
        ([{"ip": "x", "net": "10.0.0.0/8"}], "assets.csv:1: there is no column owner, which "),
    ],
)
def test_a_table_that_rules_cannot_ask(rules: Path, rows: list[dict[str, Any]], wrong: str) -> None:
    """The error names the table's file, line and column; nothing is built."""
    done = build(rules, table(rules.parent / "assets.csv", rows))
    assert (done.exit_code, wrong in done.stderr) == (2, True), done.output
    assert not (rules.parent / "b.vbundle").exists()


def test_two_kinds_of_one_column(rules: Path) -> None:
    """Both rules are named, with what to do."""
    (rules / "c.yml").write_text(SIGMA.format("Other", 9, "src_ip|expand: '%assets.ip%'"))
    done = build(rules, table(rules.parent / "assets.csv"))
    assert done.exit_code == 2
    assert f"{rules / 'a.sql'}:5 asks for the column ip as text, {rules / 'c.yml'}:1 as nocase" in done.stderr


def test_two_rows_of_a_key(rules: Path) -> None:
    """Refused where rules do no more than join by it; and two lookups of one name are."""
    (rules / "b.yml").unlink()
    (rules / "a.sql").write_text(SQL.partition("-- title: Two keys")[0])
    assets = table(rules.parent / "assets.csv", [ROWS[8], ROWS[8]])
    assert "assets.csv:3: key ip:text: the same key as on line 2; remove one" in build(rules, assets).stderr
    done = build(rules, assets, table(rules.parent / "assets.jsonl"))
    assert done.exit_code == 2
    assert "is a lookup of the same name: give one of them" in done.stderr
