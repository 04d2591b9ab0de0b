"""Backtests: what `vedette scan` finds, from segments of a raw log, however it is cut; damage is reported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from bench import traffic
from spark_jobs.backtest.rows import MATCHES
from spark_jobs.backtest.segments import segment_rows
from spark_jobs.jobs import backtest
from tests.lookup.tables import lookup_of
from tests.settings import SegmentedLog
from tests.spark_jobs.conftest import run
from vedette.config.settings import RawLogSettings
from vedette.model.counters import Counters
from vedette.model.event import Chunk
from vedette.rawlog.log import RawLog
from vedette.rawlog.segment import segments
from vedette.region.sign import keygen

ROOT = Path(__file__).parents[3]
NOW = 1_795_176_000_000_000
"""2026-11-20, 12:00:00."""
AUDIT = """title: Hidden File Run
id: 5b7e1c1a-6d0e-4f43-9a4f-0c8f5a1d2eff
logsource: {product: linux, service: auditd}
detection:
  ran: {type: EXECVE, a1|contains: payload}
  file: {type: PATH, name|startswith: /tmp/hidden}
  condition: ran and file
level: high
"""
RECORDS = (
    'type=EXECVE msg=audit(1795176000.5:{}): argc=2 a0="sh" a1="payload"',
    'type=PATH msg=audit(1795176000.5:{}): item=0 name="/tmp/hidden/x"',
    "type=PROCTITLE msg=audit(1795176000.5:{}): proctitle=6C73",
)


class Export(NamedTuple):
    """A log as text, and as an agent's raw log."""

    text: Path
    logs: Path
    rules: Path


def _guesses() -> list[bytes]:
    """An address tries many users, then one user again and again, and gets in; what came last is received first."""
    line = "<38>Nov 20 11:{:02}:{:02} Web9 sshd[7]: {} password for {} from 203.0.113.77 port 22 ssh2"
    tries = [*(("Failed", f"User{n}") for n in range(12)), *[("Failed", "Carl")] * 12, ("Accepted", "Carl")]
    return [line.format(*divmod(n * 5, 60), *what).encode() for n, what in enumerate(tries * 2)][::-1]


def _written() -> Iterator[bytes]:
    """Lines with attacks, and audit events whose records lie apart; what completes a correlation lies far apart."""
    waiting, guesses = list[str](), _guesses()
    for number, line in enumerate(traffic.lines(3, 1200, attack_rate=0.05)):
        yield line
        if number % 30 == 0 and guesses:
            yield guesses.pop(0)
        if number % 40 == 0:
            waiting += [record.format(number) for record in RECORDS]
        if waiting and number % 7 == 0:
            yield waiting.pop(0).encode()


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """1,200 lines and more; two agents have them, in frames and segments of different sizes."""
    folder = tmp_path_factory.mktemp("export")
    events = list(_written())
    (folder / "log.txt").write_bytes(b"".join(event + b"\n" for event in events))
    os.utime(folder / "log.txt", (NOW / 1e6, NOW / 1e6))
    for agent, lines, size in (("a", 37, 8 << 10), ("fleet/b", 120, 5 << 10)):
        log = RawLog.open(folder / "logs" / agent, SegmentedLog(segment_bytes=size), Counters(), clock=lambda: NOW)
        for first in range(0, len(events), lines):
            data = b"".join(event + b"\n" for event in events[first : first + lines])
            log.append(Chunk("auth", "auto", NOW, data))
        log.close()
        assert len(segments(folder / "logs" / agent)) >= 5
    rules = folder / "rules"
    rules.mkdir()
    (rules / "hidden.yml").write_text(AUDIT)
    for rule in sorted((ROOT / "rules/sigma/linux").glob("*.yml")):
        if rule.name.startswith(("account", "cron", "download", "root", "ssh", "sudo")) and ".test." not in rule.name:
            shutil.copy(rule, rules)
    for name in ("password_spray", "guessed_password", "sudo_session"):
        shutil.copy(ROOT / f"rules/sql/linux/{name}.sql", rules)
    return Export(folder / "log.txt", folder / "logs", rules)


Row = tuple[int, str, str]


@lru_cache
def _scanned(export: Export, *options: str) -> Counter[Row]:
    """What `vedette scan` finds."""
    command = [sys.executable, "-m", "vedette", "scan", "--rules", str(export.rules), *options, str(export.text)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    rows = (json.loads(line) for line in done.stdout.splitlines())
    return Counter(
        (row["line"], row["rule_id"], json.dumps({k: str(v) for k, v in row["fields"].items()}, sort_keys=True))
        for row in rows
    )


def _by_agent(rows: list[Any], text: Path) -> dict[str, Counter[Row]]:
    lengths = (len(line) for line in text.read_bytes().splitlines(keepends=True))
    line_at = {offset: number for number, offset in enumerate(accumulate(lengths, initial=0), 1)}
    found: dict[str, Counter[Row]] = {}
    for row in rows:
        if row.kind in backtest.FOUND:
            fields = json.dumps(row.fields, sort_keys=True)
            found.setdefault(row.agent, Counter())[line_at[row.offset], row.rule_id, fields] += 1
    return found


@pytest.mark.spark
@pytest.mark.parametrize("options", [(), pytest.param(("--route", "--product", "linux"), marks=pytest.mark.long)])
def test_what_scan_finds_row_for_row(spark: SparkSession, export: Export, options: tuple[str, ...]) -> None:
    """Line, rule and fields of every match, correlation and row of a statement, of both agents, whatever their frames
    and segments; events counted once."""
    rules = backtest.built([export.rules], [], [], [], bool(options), options[2] if options else "")
    rows = backtest.matches(spark, str(export.logs), rules).collect()
    expected = _scanned(export, *options)
    assert sum(expected.values()) > 50
    assert sum(rule_id.endswith("eff") for _, rule_id, _ in expected.elements()) > 16
    found = _by_agent(rows, export.text)
    assert found == {"a": expected, "fleet/b": expected}
    read = [row for row in rows if row.kind == "read"]
    lines = export.text.read_bytes().count(b"\n")
    assert sum(row.events for row in read) == 2 * lines
    assert sum(row.bytes for row in read) == 2 * export.text.stat().st_size
    assert len(read) == sum(1 for _ in export.logs.rglob("*.seg"))
    kinds = Counter(row.kind for row in rows)
    assert min(kinds["correlation"], kinds["statement"]) > 1
    assert kinds.keys() == {"match", "correlation", "statement", "read"}


@pytest.mark.parametrize("bundled", [False, True])
def test_rules_ask_their_lookups(tmp_path: Path, bundled: bool) -> None:
    """Of rule files, and of a bundle that carries them, as an executor evaluates a segment: without the files."""
    (rules := tmp_path / "rules").mkdir()
    (rules / "a.yml").write_text(AUDIT.split("detection:")[0].replace(", service: auditd", "") + (
        "detection:\n  staff: {user|expand: '%staff%'}\n  condition: staff\nlevel: low\n"
    ))  # fmt: skip
    lookup_of(tmp_path / "staff.vlookup", "user team", "user:nocase", [("ann", "it"), ("bob", "ot")]).close()
    log = RawLog.open(tmp_path / "logs" / "a", RawLogSettings(), Counters(), clock=lambda: NOW)
    line = "<38>Nov 20 10:00:00 web1 sshd[7]: Accepted password for {} from 192.0.2.1 port 1 ssh2\n"
    log.append(Chunk("auth", "syslog", NOW, "".join(map(line.format, ("ann", "eve", "BOB"))).encode()))
    log.close()
    keys, lookups, asked = list[str](), [tmp_path / "staff.vlookup"], rules
    if bundled:
        asked, private = tmp_path / "rules.vbundle", tmp_path / "key.pem"
        keys.append(keygen(private))
        for words in (
            ("build", rules, "-o", asked, "--version", 1, "--lookup", lookups.pop()),
            ("sign", asked, "--key", private),
        ):
            subprocess.run([sys.executable, "-m", "vedette", "bundle", *map(str, words)], check=True, timeout=120)
    built = backtest.built([asked], keys, [], lookups, False, "linux")
    (tmp_path / "staff.vlookup").unlink()
    (segment,) = segments(tmp_path / "logs" / "a")
    rows = [*segment_rows(segment.path, tmp_path / "logs", built)]
    assert [row["fields"]["user"] for row in rows if row["kind"] == "match"] == ["ann", "BOB"]


@pytest.mark.long
@pytest.mark.spark
def test_damage_is_told_and_costs_no_other_match(spark: SparkSession, export: Export, tmp_path: Path) -> None:
    """A frame overwritten with zeros is a gap with its number of events; all matches outside of it are there."""
    logs = tmp_path / "logs"
    shutil.copytree(export.logs / "a", logs / "a")
    (logs / "a" / "log.lock").unlink(missing_ok=True)
    segment = segments(logs / "a")[2]
    data = bytearray(segment.path.read_bytes())
    data[1500:1600] = bytes(100)
    segment.path.write_bytes(data)
    rows = backtest.matches(spark, str(logs), backtest.built([export.rules], [], [], [], False, "")).collect()
    (gap,) = (row for row in rows if row.kind == "gap")
    assert gap.events % 37 == 0
    assert gap.offset >= segment.base
    assert gap.reason
    assert sum(row.events for row in rows if row.kind == "read") + gap.events == export.text.read_bytes().count(b"\n")
    found = _by_agent(rows, export.text)["a"]
    single = {row.rule_id for row in rows if row.kind == "match"}
    missing = [one for one in _scanned(export) - found if one[1] in single]
    lost = range(_line(export.text, gap.offset) - 40, _line(export.text, gap.offset) + gap.events)
    assert {line for line, _, _ in missing} <= set(lost)


def _line(text: Path, offset: int) -> int:
    return text.read_bytes()[:offset].count(b"\n") + 1


@pytest.mark.spark
@pytest.mark.long
def test_the_command_tells_and_keeps_its_matches(spark: SparkSession, export: Export, tmp_path: Path) -> None:
    """The account, what does not run, the loudest rules; Parquet of all matches; not twice into one folder."""
    out = tmp_path / "matches"
    command = ["backtest", f"--logs={export.logs}", f"--rules={export.rules}", f"--output={out}", "--top=3"]
    lines = run(spark, *command).splitlines()
    found = Counter(row.kind for row in spark.read.schema(MATCHES).parquet(str(out)).collect())
    assert sum(found[kind] for kind in backtest.FOUND) == sum(_scanned(export).values()) * 2
    said = f"; {found['match']} matches; {found['correlation']} correlations and {found['statement']} rows of"
    assert said in lines[0]
    assert "sudo_and_su_refused.yml" in lines[1], "which refers to a rule that is not there"
    assert lines[1].startswith("not run: ")
    assert len(lines) == 5
    assert " 2 agents  " in lines[2]
    with pytest.raises(Exception, match="already exists"):
        run(spark, *command)


@pytest.mark.spark
def test_nothing_to_try_is_said(spark: SparkSession, export: Export, tmp_path: Path) -> None:
    """A folder without segments, one that is not there, rules of which none runs."""
    rules = f"--rules={export.rules}/hidden.yml"
    with pytest.raises(FileNotFoundError, match="holds no segments"):
        run(spark, "backtest", f"--logs={tmp_path}", rules)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        run(spark, "backtest", f"--logs={tmp_path}/none", rules)
    (tmp_path / "bad.yml").write_text("title: Nothing\nlogsource: {product: linux}\ndetection: {condition: x}\n")
    with pytest.raises(ValueError, match="no rule runs"):
        run(spark, "backtest", f"--logs={export.logs}", f"--rules={tmp_path}/bad.yml")


@pytest.mark.spark
def test_what_cannot_be_read_is_named_and_the_rest_goes_on(spark: SparkSession, export: Export, tmp_path: Path) -> None:
    """A file that is no segment, one of garbage, one cut short, events in an unknown format, a rule that does not
    compile: each is named with its reason, and the events around them are evaluated."""
    logs, rules = tmp_path / "logs", tmp_path / "rules"
    shutil.copytree(export.logs / "a", logs / "a")
    last = segments(logs / "a")[-1].path
    last.write_bytes(last.read_bytes()[:-40])
    (logs / "b").mkdir()
    (logs / "b" / "notes.seg").write_text("no segment")
    (logs / "c").mkdir()
    (logs / "c" / segments(logs / "a")[0].path.name).write_bytes(b"garbage" * 100)
    log = RawLog.open(logs / "d", RawLogSettings(), Counters(), clock=lambda: NOW)
    log.append(Chunk("app", "rules:unheard", NOW, b"first\nsecond\n"))
    log.append(Chunk("auth", "auto", NOW, b"".join(record.format(7).encode() + b"\n" for record in RECORDS)))
    log.close()
    rules.mkdir()
    (rules / "hidden.yml").write_text(AUDIT)
    (rules / "broken.yml").write_text(AUDIT.replace("ran and file", "ran and nothing").replace("eff", "efe"))
    (rules / "broken.sql").write_text("-- title: Broken\nINSERT INTO alerts SELECT x FROM nowhere;\n")
    text = run(spark, "backtest", f"--logs={logs}", f"--rules={rules}", f"--output={tmp_path / 'out'}")
    rows = spark.read.schema(MATCHES).parquet(str(tmp_path / "out")).collect()
    gaps = {(row.agent, row.events): row.reason for row in rows if row.kind == "gap"}
    assert "no whole frame" in gaps["a", 0]
    assert gaps["b", 0] == "notes.seg: is no segment of a raw log"
    assert "no whole frame" in gaps["c", 0]
    assert gaps["d", 2] == "the rules do not know the format 'rules:unheard'"
    assert sum(row.kind == "match" for row in rows if row.agent == "d") == 1
    assert sum(row.kind == "match" for row in rows if row.agent == "a") > 10
    not_run = [line for line in text.splitlines() if line.startswith("not run: ")]
    assert sorted(line.split("/")[-1].split(":")[0] for line in not_run) == ["broken.sql", "broken.yml"]
    assert "2 events cannot be read, in 4 places" in text
