"""The commands of lookups on real files: what they print, and what they refuse by file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vedette.cli.main import main

CSV = "ip,net,host,owner,risk,seen\n" + "".join(
    f"10.0.{n}.1,10.0.{n}.0/24,h{n}.example.com,team-{n % 3},{n},2026-05-06T07:08:{n % 60:02d}Z\n" for n in range(200)
)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["lookup", *map(str, arguments)])


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    (tmp_path / "assets.csv").write_text(CSV)
    target = tmp_path / "assets.vlookup"
    done = run("build", tmp_path / "assets.csv", "-o", target, "--key", "ip:ip", "--key", "net:cidr",
               "--key", "host:domain", "--type", "risk:int", "--type", "seen:time")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "200 rows" in done.output
    return target


def test_build_get_show(assets: Path) -> None:
    """A table is built, asked by each of its keys, and shown."""
    row = {"ip": "10.0.7.1", "net": "10.0.7.0/24", "host": "h7.example.com", "owner": "team-1", "risk": 7,
           "seen": 1778051287000000}  # fmt: skip
    assert json.loads(run("get", assets, "10.0.7.1").stdout) == row
    assert json.loads(run("get", assets, "10.0.7.99", "--index", "net", "--all").stdout) == row
    assert json.loads(run("get", assets, "www.H7.example.com", "--index", "host").stdout) == row
    missing = run("get", assets, "10.9.9.9")
    assert (missing.exit_code, missing.stdout) == (1, "")
    unknown = run("get", assets, "x", "--index", "owner")
    assert unknown.exit_code == 2
    assert "no key owner; there are ip, net, host" in unknown.stderr
    shown = json.loads(run("show", assets, "--json").stdout)
    assert (shown["rows"], shown["name"], shown["signed_for"]) == (200, "assets", None)
    assert "host (domain, hash)" in run("show", assets).stdout


def test_signed(assets: Path, tmp_path: Path) -> None:
    """A signed file is read as the unsigned one; one that another key signed or that changed is refused."""
    keys = [tmp_path / name for name in ("region.pem", "other.pem")]
    public = [CliRunner().invoke(main, ["bundle", "keygen", str(key)]).stdout.strip() for key in keys]
    refused = run("verify", assets, "--trusted-key", public[0])
    assert refused.exit_code == 1
    assert "not signed: sign it with `vedette lookup sign`" in refused.stderr
    version = json.loads(run("show", assets, "--json").stdout)["version"]
    for _ in range(2):  # a second signature replaces the first
        assert run("sign", assets, "--key", keys[0], "--fleet", "plants").exit_code == 0
    shown = json.loads(run("show", assets, "--json").stdout)
    assert (shown["version"], shown["signed_for"]) == (version, {"fleet": "plants", "channel": "stable"})
    assert json.loads(run("get", assets, "10.0.7.1").stdout)["risk"] == 7
    good = run("verify", assets, "--trusted-key", public[0])
    assert good.exit_code == 0
    assert "for fleet plants, channel stable" in good.stdout
    assert "not among bundles.trusted_keys" in run("verify", assets, "--trusted-key", public[1]).stderr
    data = bytearray(assets.read_bytes())
    data[len(data) // 2] ^= 1
    assets.write_bytes(data)
    for arguments in ((), ("--trusted-key", public[0])):
        assert run("verify", assets, *arguments).exit_code == 1
    assets.write_bytes(data[:-7])
    assert "copy it again" in run("verify", assets, "--trusted-key", public[0]).stderr


@pytest.mark.parametrize(
    ("name", "text", "options", "wrong"),
    [
        ("a.csv", "ip,n\n10.0.0.1,1\n10.0.0.1,2\n", ["--key", "ip:ip"], "a.csv:3: key ip:ip: the same key as on"),
        ("a.csv", 'ip,n\n"10.0.0.1",1\n10.0.0.x,2\n', ["--key", "ip:ip"], "a.csv:3: column ip: '10.0.0.x'"),
        ("a.csv", 'k,n\n"a\nb",1\nc,x\n', ["--key", "k", "--type", "n:int"], "a.csv:4: column n: 'x'"),
        ("a.csv", "k,n\na\n", ["--key", "k"], "a.csv:2: 1 values, expects 2"),
        ("a.csv", 'k,n\na,"b\n', ["--key", "k"], "not CSV in UTF-8"),
        ("a.csv", "k,k\na,b\n", ["--key", "k"], "each once"),
        ("a.csv", "k,n\na,b\n", ["--key", "z"], "there is no column z"),
        ("a.csv", "k,n\na,b\n", ["--key", "k:soundex"], "'soundex' is no kind of key"),
        ("a.csv", "k,n\na,b\n", ["--key", "k", "--type", "n:money"], "'money' is no type"),
        ("a.jsonl", '{"k":"a"}\n{"k":"b","z":1}\n', ["--key", "k"], "a.jsonl:2: 'z' is not among the keys"),
        ("a.jsonl", '{"k":"a"}\n[1]\n', ["--key", "k"], "a.jsonl:2: expects an object"),
        ("a.jsonl", '{"k":"a"}\n{"k":', ["--key", "k"], "a.jsonl:2: not JSON"),
        ("a.jsonl", '{"k":"a","n":1}\n{"k":"b","n":[1]}\n', ["--key", "k"], "a.jsonl:2: column n: [1]; expects"),
        ("a.xls", "k", ["--key", "k"], "expects a file that ends in .csv"),
    ],
)  # fmt: skip
def test_refused_tables(tmp_path: Path, name: str, text: str, options: list[str], wrong: str) -> None:
    """What cannot be taken is named by file and line; the lookup that was there stays as it was."""
    (tmp_path / name).write_text(text)
    target = tmp_path / "a.vlookup"
    target.write_bytes(b"as it was")
    done = run("build", tmp_path / name, "-o", target, *options)
    assert done.exit_code == 2
    assert wrong in done.stderr
    assert target.read_bytes() == b"as it was"


def test_other_sources(tmp_path: Path) -> None:
    """JSON Lines and Parquet bring their types along."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"k": "a", "n": 1, "f": 0.5, "b": True, "s": None}, {"k": "b", "n": None, "f": None, "b": None, "s": "x"}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    for name in ("t.jsonl", "t.parquet"):
        assert run("build", tmp_path / name, "-o", tmp_path / "t.vlookup", "--key", "k").exit_code == 0
        assert [json.loads(run("get", tmp_path / "t.vlookup", key).stdout) for key in "ab"] == rows


RULES = """
CREATE TABLE assets (ip STRING, host STRING, owner STRING, risk BIGINT, low BIGINT, high BIGINT)
  WITH ('connector' = 'vedette', 'lookup' = 'assets');
-- title: A
INSERT INTO alerts SELECT e.src_ip, a.owner, a.risk
FROM events AS e JOIN assets FOR SYSTEM_TIME AS OF e.event_time AS a ON a.ip = e.src_ip;
-- title: B
INSERT INTO alerts SELECT src_ip FROM events WHERE EXISTS (
  SELECT 1 FROM assets WHERE CAST(events.src_port AS BIGINT) BETWEEN assets.low AND assets.high);
"""
SIGMA = """title: Rule {0}
logsource: {{product: test}}
detection:
  s: {{"{1}": "{2}"}}
  condition: s
level: low
---
"""


@pytest.fixture
def asking(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "a.sql").write_text(RULES)
    items = [("host|expand", "%assets%"), ("x|cidr|expand", "%assets.net%"), ("x|cased|expand", "%assets.ip%"),
             ("x|expand", "%other%"), ("x|contains|expand", "%assets%")]  # fmt: skip
    (folder / "b.yml").write_text("".join(SIGMA.format(n, *item) for n, item in enumerate(items)))
    rows = "".join(f"10.0.{n}.1,10.0.{n}.0/24,h{n},o{n},{n},{n * 10},{n * 10 + 5},unused\n" for n in range(99))
    (tmp_path / "assets.csv").write_text("ip,net,host,owner,risk,low,high,more\n" + rows)
    return tmp_path


def test_keys_that_rules_ask_for(asking: Path) -> None:
    """Their kinds by how rules ask, the columns that they return with the types that they declare; then rules run."""
    target = asking / "assets.vlookup"
    done = run("build", asking / "assets.csv", "-o", target, "--rules", asking / "rules")
    assert done.exit_code == 0, done.output
    shown = json.loads(run("show", target, "--json").stdout)
    keys = {(index["columns"][0], index["kind"]) for index in shown["keys"]}
    assert keys == {("ip", "text"), ("low", "range"), ("host", "nocase"), ("net", "cidr")}
    types = {column["name"]: column["type"] for column in shown["columns"]}
    assert types == {
        "ip": "text",
        "low": "int",
        "high": "int",
        "host": "text",
        "net": "text",
        "owner": "text",
        "risk": "int",
    }
    listed = CliRunner().invoke(main, ["rules", "list", "--json", "--lookup", str(target), str(asking / "rules")])
    states = {row["title"]: row["state"] for row in map(json.loads, listed.stdout.splitlines())}
    dead = {title for title, state in states.items() if state == "dead"}
    assert dead == {"Rule 3", "Rule 4"}


def test_keys_that_a_file_lacks(asking: Path) -> None:
    """Each rule that asks otherwise is refused by the lookup's name, with what to do."""
    target = asking / "assets.vlookup"
    assert run("build", asking / "assets.csv", "-o", target, "--key", "ip:nocase").exit_code == 0
    listed = CliRunner().invoke(main, ["rules", "list", "--lookup", str(target), str(asking / "rules")])
    assert "asks the lookup assets by low..high, which is no key of it" in listed.stdout
    assert (
        "the lookup assets has no key that this can ask; it has ip (nocase): build it with this rule" in listed.stdout
    )
    assert listed.stdout.count("vedette lookup build --rules") >= 2


def test_what_rules_cannot_tell(asking: Path) -> None:
    """A table that no rule asks, one that lacks a column, and one without a key."""
    source, rules = asking / "assets.csv", asking / "rules"
    for arguments, says in (
        (["-o", asking / "nobody.vlookup", "--rules", rules], "no rule asks the lookup nobody"),
        (["-o", asking / "assets.vlookup"], "what is the table asked by?"),
    ):
        done = run("build", source, *arguments)
        assert (done.exit_code, says in done.output) == (2, True), done.output
    source.write_text("ip,host\na,b\n")
    done = run("build", source, "-o", asking / "assets.vlookup", "--rules", rules)
    assert done.exit_code == 2
    assert "assets.csv:1: there is no column owner, which " in done.output
    assert "a.sql:5 asks of the lookup assets: add it or write another in the rule; there are ip, host" in done.output
