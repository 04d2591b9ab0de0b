"""The commands as their users see them: what they print, where, and the exit code."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import click
import pytest
import zstandard
from click.testing import CliRunner, Result

from tests.e2e.agent import run_to_its_end
from tests.waits import DEADLINE
from vedette.cli.main import main
from vedette.config.settings import RawLogSettings
from vedette.delivery.envelope import encode
from vedette.model.counters import Counters
from vedette.model.event import Chunk, Cursor
from vedette.rawlog.log import RawLog
from vedette.rules.build import from_rules
from vedette.store.store import Store

RULE = """\
title: Failed Password
id: 6a1f0000-0000-4000-8000-000000000001
status: test
description: A test's own rule.
author: Vedette
date: 2026-11-21
logsource: {product: linux, service: sshd}
detection:
    keywords: ['Failed password']
    condition: keywords
falsepositives: [none]
level: high
"""
WRITTEN_OUT = "Bad \\x1b[2J\\x0a\\u202e"
"""What people see of a title with an escape sequence, a line end and a right-to-left override."""
ATTACK = "Nov 20 10:00:00 web1 sshd[7]: Failed password for root from 203.0.113.9 port 22 ssh2"
HARMLESS = "Nov 20 10:00:00 web1 sshd[7]: Connection closed"


def vedette(*arguments: object, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def ended(result: Result, code: int) -> Result:
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "one.yml").write_text(RULE)
    (folder / "one.test.yml").write_text(f'- match: "{ATTACK}"\n- no_match: "{HARMLESS}"\n')
    return folder


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("path", list(commands(main)), ids=" ".join)
def test_help(path: tuple[str, ...]) -> None:
    """Every command explains itself, and one that does something shows an example of itself."""
    shown = ended(vedette(*path, "--help"), 0).output
    assert len(shown.splitlines()) > 3
    if "COMMAND [ARGS]" not in shown:
        assert f"Example: vedette {' '.join(path)}" in " ".join(shown.split())


def test_version() -> None:
    """Version of the agent and of the library that databases are bound to."""
    assert ended(vedette("version"), 0).output.startswith("vedette 0.")
    assert ended(vedette("--version"), 0).output.startswith("vedette 0.")
    assert "vectorscan" in vedette("version").output


# --- check


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "vedette.toml"
    path.write_text(f'[agent]\nid = "a1"\ndata_dir = "{tmp_path}/data"\n{text}')
    return path


def test_check(tmp_path: Path, rules: Path) -> None:
    """A good configuration: 0; a rule that does not run: 1, with its place; mistakes: 2, all of them."""
    path = config(tmp_path, f'[rules]\npaths = ["{rules}"]\n')
    assert (
        "rules: 1 and 0 correlations run (0 always candidates), 0 do not run"
        in ended(vedette("check", "-c", path), 0).stdout
    )
    (rules / "bad.yml").write_text("title: Bad\n")
    assert f"{rules}/bad.yml:" in ended(vedette("check", "-c", path), 1).stderr
    path = config(tmp_path, '[ruels]\n[log]\nlevel = "loud"\n')
    said = ended(vedette("check", "-c", path), 2).stderr
    assert f"{path}: ruels: unknown key" in said
    assert f"{path}: log.level: expects one of" in said


SYSLOG = '[[input]]\ntype = "syslog"\nname = "s"\nudp = "127.0.0.1:0"\n'
FAILURES = """title: Failures
id: 6a1f0000-0000-4000-8000-000000000009
correlation:
    type: event_count
    rules: [6a1f0000-0000-4000-8000-000000000001]
    group-by: [src_ip]
    timespan: 5m
    condition: {gte: 2}
level: critical
"""
SEQUENCE = f"""- sequence:
    - {{at: "2026-11-20T10:00:00Z", raw: "{ATTACK}"}}
    - {{at: "2026-11-20T10:00:01Z", raw: "{ATTACK}"}}
"""


def test_check_tells_what_no_input_reaches(tmp_path: Path, rules: Path) -> None:
    """Correlations are counted; a rule of another log source and what needs it are reported, and it is no mistake."""
    (rules / "failures.yml").write_text(FAILURES)
    path = config(tmp_path, f'{SYSLOG}[rules]\npaths = ["{rules}"]\n')
    done = ended(vedette("check", "-c", path), 0)
    assert (
        "rules: 1 and 1 correlations run (0 always candidates), 0 do not run; 0 are reached by no input" in done.stdout
    )
    assert done.stderr == ""
    (rules / "one.yml").write_text(RULE.replace("service: sshd", "service: nosuch"))
    done = ended(vedette("check", "-c", path), 0)
    assert "0 do not run; 2 are reached by no input" in done.stdout
    assert f"{rules}/one.yml:1: no input has its log source linux//nosuch (Failed Password)" in done.stderr
    assert f"{rules}/failures.yml:1: rules that it needs cannot fire (Failures)" in done.stderr


def test_check_uses_pipelines_and_lookups(tmp_path: Path, rules: Path) -> None:
    """A rule that needs the configuration's lookup runs in the check as it will in the agent."""
    (rules / "one.yml").write_text(RULE.replace("keywords: ['Failed password']", "keywords: {user|expand: '%names%'}"))
    (tmp_path / "names.txt").write_text("root\n")
    text = f'{SYSLOG}[rules]\npaths = ["{rules}"]\n'
    ended(vedette("check", "-c", config(tmp_path, text)), 1)
    ended(vedette("check", "-c", config(tmp_path, f'{text}lookups = ["{tmp_path}/names.txt"]\n')), 0)


def test_check_lets_nothing_of_a_rule_act_on_the_terminal(tmp_path: Path, rules: Path) -> None:
    """A title in a refusal is text: its escapes, line ends and turns of direction are written out."""
    (rules / "bad.yml").write_text('title: "Bad \\e[2J\\n\\u202e"\n')
    path = config(tmp_path, f'{SYSLOG}[rules]\npaths = ["{rules}"]\n')
    said = ended(vedette("check", "-c", path), 1).stderr
    assert WRITTEN_OUT in said
    assert said.count("\n") == 1


def test_commands_without_a_configuration(tmp_path: Path) -> None:
    """Each command that needs one says which file it looked for, and ends with 2."""
    none = tmp_path / "none.toml"
    for command in (("run",), ("check",), ("status",), ("alerts",), ("logs", "search", "x")):
        assert f"{none}: cannot be read" in ended(vedette(*command, "-c", none), 2).stderr


# --- scan


@pytest.mark.parametrize(
    "name",
    [
        "auth.log.1.gz",
        pytest.param("auth.log.1.zst", marks=pytest.mark.long),
        pytest.param("auth.log.1.xz", marks=pytest.mark.long),
        "-",
    ],
)
def test_scan_compressed(tmp_path: Path, rules: Path, name: str) -> None:
    """A rotated log is read as what is in it, whatever its name, also from a pipe; lines are counted on over members.
    One that is cut off is reported, and what was read of it counts; the exit code is then 2."""
    packs = {".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}
    pack = packs.get(Path(name).suffix, gzip.compress)
    data = pack(f"{HARMLESS}\n{ATTACK}\n".encode()) + pack(f"{ATTACK}\n".encode())
    lines = "".join(f"{ATTACK.replace('22', str(port))}\n" for port in range(4_000)).encode()
    for content, code in ((data, 0), (data + pack(lines)[:-9], 2)):
        path = tmp_path / name
        path.write_bytes(content)
        where, stdin = ("-", content) if name == "-" else (path, b"")
        done = run_to_its_end("scan", "--rules", rules, where, stdin=stdin, code=code)
        found = [json.loads(line)["line"] for line in done.out.splitlines()]
        assert found[:2] == [2, 3]
        assert len(found) == 2 if code == 0 else 2_000 < len(found) <= 4_002
        assert (b"it is cut off" in done.err) == (code == 2)


def test_scan_a_compressed_json_array(tmp_path: Path, rules: Path) -> None:
    """Its form is recognised by its first bytes; a broken one is reported by name."""
    path = tmp_path / "events.json.gz"
    path.write_bytes(gzip.compress(b'[{"a": 1},\n {"message": "Failed password"}]'))
    (row,) = map(json.loads, ended(vedette("scan", "--rules", rules, path), 0).stdout.splitlines())
    assert row["line"] == 1
    path.write_bytes(gzip.compress(b"[{]"))
    assert f"{path}: not a JSON array" in ended(vedette("scan", "--rules", rules, path), 2).stderr


def test_scan_uses_the_databases_of_a_bundle(tmp_path: Path, rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled again: they come with it."""
    key, path = tmp_path / "region.pem", tmp_path / "b.vbundle"
    public = ended(vedette("bundle", "keygen", key), 0).stdout.strip()
    ended(vedette("bundle", "build", rules, "-o", path, "--version", "1"), 0)
    ended(vedette("bundle", "sign", path, "--key", key), 0)

    def compile(*_: object) -> None:
        raise AssertionError("it compiles")

    monkeypatch.setattr("vedette.plan.database.Scanner.compile", compile)
    found = ended(vedette("scan", "--rules", path, "--trusted-key", public, "-", stdin=ATTACK), 0)
    assert json.loads(found.stdout)["rule_title"] == "Failed Password"


def test_scan_compiles_rules_once(tmp_path: Path, rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second scan of the same files takes what the first one compiled, with the same matches and refusals; a changed
    file or ``--no-cache`` compiles."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    (rules / "bad.yml").write_text("title: Bad\nlogsource: {}\ndetection: {condition: a}\n")
    compiled = []
    monkeypatch.setattr("vedette.rules.build.from_rules", lambda rules: (compiled.append(0), from_rules(rules))[1])

    def scanned(*options: str) -> tuple[str, str]:
        done = ended(vedette("scan", "--rules", rules, *options, "-", stdin=ATTACK), 0)
        return done.stdout, done.stderr.partition(" events, ")[0]

    first = scanned()
    assert first[0].count("Failed Password") == 1
    assert "not run: " in first[1]
    assert [scanned(), scanned("--route", "--product", "linux"), len(compiled)] == [first, first, 1]
    assert [scanned("--no-cache"), len(compiled)] == [first, 2]
    (rules / "bad.yml").unlink()
    assert [scanned()[0], len(compiled)] == [first[0], 3]


def test_scan_writes_out_what_acts_on_a_terminal(tmp_path: Path, rules: Path) -> None:
    """In JSON as ``\\u`` escapes, whose values are unchanged; in messages about rules and files as in ``safe``."""
    (rules / "bad.yml").write_text('title: "Bad \\e[2J\\n\\u202e"\n')
    log = tmp_path / "a\x7f\x9b2J\u202e\u2067\u200f\u061c"
    log.write_text(ATTACK)
    done = ended(vedette("scan", "--rules", rules, log, tmp_path / "no\x9bne"), 2)
    assert "\\u007f\\u009b2J\\u202e\\u2067\\u200f\\u061c" in done.stdout
    assert json.loads(done.stdout)["file"] == str(log)
    assert f"not run: {rules}/bad.yml:" in done.stderr
    assert WRITTEN_OUT in done.stderr
    assert "no\\x9bne" in done.stderr


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [*product(["scan", "rules list", "--help"], ["", "1"]), ("rules --help", "")],
)
def test_into_a_pipe_that_closes(tmp_path: Path, rules: Path, command: str, unbuffered: str) -> None:
    """``vedette scan … | head -1`` ends without a word and with code 0, and so does every command, also one whose
    reader has gone before it prints."""
    arguments = {"scan": ["--rules", str(rules), str(attacks(tmp_path))], "rules list": [str(rules)]}.get(command, [])
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as output:
        if command != "scan":
            output.close()
        process = printing([*command.split(), *arguments], writing, unbuffered)
        os.close(writing)
        if command == "scan":
            assert output.readline().startswith(b'{"rule_id"')
    _, said = process.communicate(timeout=DEADLINE)
    assert (process.returncode, said) == (0, b"")


@pytest.mark.parametrize("command", ["scan", "rules list", "--help"])
def test_onto_a_full_disk(tmp_path: Path, rules: Path, command: str) -> None:
    """What standard output does not take makes the exit code 2, with a line that blames nothing else."""
    arguments = {"scan": ["--rules", str(rules), str(attacks(tmp_path))], "rules list": [str(rules)]}.get(command, [])
    with open("/dev/full", "wb") as full:
        process = printing([*command.split(), *arguments], full.fileno())
        _, said = process.communicate(timeout=DEADLINE)
    assert (process.returncode, said) == (2, b"vedette: standard output: No space left on device\n")


def attacks(folder: Path) -> Path:
    """A log with far more matches than a pipe holds."""
    log = folder / "auth.log"
    log.write_text(f"{ATTACK}\n" * 1000)
    return log


def printing(arguments: list[str], output: int, unbuffered: str = "") -> subprocess.Popen[bytes]:
    """A command as a process of its own; unless ``unbuffered`` it writes when there is much, and at its end."""
    return subprocess.Popen(
        [sys.executable, "-m", "vedette", *arguments],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered}, stdout=output, stderr=subprocess.PIPE,
    )  # fmt: skip


# --- rules


def test_rules_test(rules: Path) -> None:
    """Good tests: 0. A failure, a rule without tests, a rule that does not run: 1, each with its place."""
    assert ended(vedette("rules", "test", rules), 0).stdout == (
        "1 rules, 0 correlations, 2 events, 0 sequences, 0 failures, 0 mistakes\n"
    )
    (rules / "one.test.yml").write_text(f'- match: "{ATTACK}"\n- match: "{HARMLESS} \\e[2J"\n')
    (rules / "two.yml").write_text(RULE.replace("0001", "0002").replace("Failed Password", "Two"))
    (rules / "three.yml").write_text("title: Three\n")
    done = ended(vedette("rules", "test", rules), 1)
    said = done.stderr
    assert f"{rules}/one.test.yml:2: should match and does not" in said
    assert f"{rules}/two.yml:1: no test events beside it (Two)" in said
    assert f"{rules}/three.yml:" in said
    assert "\x1b" not in done.output


def test_rules_list(rules: Path) -> None:
    """A line a rule; one that does not run is in it, and makes the exit code 1."""
    assert ended(vedette("rules", "list", rules), 0).stdout.split() == [
        "active", "detection", "high", "linux//sshd", "Failed", "Password",
    ]  # fmt: skip
    (rules / "bad.yml").write_text("title: Bad\n")
    assert f": {rules}/bad.yml:1:" in ended(vedette("rules", "list", rules), 1).stdout


COMPILER = """
import sys
from vedette.cli.main import main
try:
    main(sys.argv[1:], prog_name="vedette")
finally:
    print("loaded:", *{"jinja2", "pyparsing", "sigma", "sqlglot", "structlog", "yaml"} & sys.modules.keys())
"""
"""The command line, which says at its end what of the rule compiler it has loaded."""


def test_rules_list_compiles_rules_once(tmp_path: Path, rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was listed is listed again without the rule compiler, with the same rows, refusals, reasons and exit code;
    a changed file compiles, and so does a scan, which keeps more."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    (rules / "bad.yml").write_text("title: Bad\n")
    first = ended(vedette("rules", "list", "--json", rules), 1)
    command = [sys.executable, "-c", COMPILER, "rules", "list", "--json", str(rules)]
    again = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (again.returncode, again.stdout, again.stderr) == (1, f"{first.stdout}loaded:\n", first.stderr)
    (rules / "two.yml").write_text(
        RULE.replace("0001", "0002").replace("condition: keywords", "condition: not keywords")
    )
    changed = ended(vedette("rules", "list", rules), 1)
    assert "evaluated on every event of its log source: not: " in changed.stdout
    assert vedette("rules", "list", rules).output == changed.output
    ended(vedette("scan", "--rules", rules, "-", stdin=ATTACK), 0)
    assert len([*(tmp_path / "xdg" / "vedette").iterdir()]) == 3


def test_rules_list_tells_kinds(rules: Path) -> None:
    """What a correlation is stands in a column and a key of its own, not in its log source."""
    (rules / "two.yml").write_text(FAILURES)
    lines = ended(vedette("rules", "list", rules), 0)
    assert lines.stdout.splitlines()[1].split() == ["active", "event_count", "critical", "Failures"]
    assert "1 rules, 1 correlations: 2 active, 0 always, 0 dead" in lines.stderr
    rows = [json.loads(line) for line in ended(vedette("rules", "list", "--json", rules), 0).stdout.splitlines()]
    assert [(row["kind"], row["logsource"]) for row in rows] == [("detection", "linux//sshd"), ("event_count", "")]


def test_files_of_test_events_are_no_rules(tmp_path: Path, rules: Path) -> None:
    """A shell's ``*.yml`` names them, too: they are passed over wherever rules are asked for."""
    named = sorted(rules.glob("*.yml"))
    assert [path.name for path in named] == ["one.test.yml", "one.yml"]
    assert ended(vedette("rules", "test", *named), 0).stdout.startswith("1 rules, 0 correlations, 2 events")
    assert "1 rules, 0 correlations, 0 refused" in ended(vedette("rules", "lint", *named), 0).stderr
    assert len(ended(vedette("rules", "list", *named), 0).stdout.splitlines()) == 1
    options = [word for path in named for word in ("--rules", path)]
    assert len(ended(vedette("scan", *options, "-", stdin=ATTACK), 0).stdout.splitlines()) == 1
    assert "0 refused" in ended(vedette("bundle", "build", *named, "-o", tmp_path / "b", "--version", 1), 0).stdout + (
        vedette("bundle", "show", tmp_path / "b").stdout
    )
    ended(vedette("rules", "explain", "--with", named[0], "--with", rules, named[1]), 0)
    alone = ended(vedette("rules", "test", named[0]), 2)
    assert f"{named[0]}: holds test events: give the rule file beside it" in alone.stderr


def test_rules_list_and_test_write_out_what_acts_on_a_terminal(rules: Path) -> None:
    """A title is one line of text, of a rule that runs and of one that does not."""
    (rules / "two.yml").write_text(RULE.replace("0001", "0002").replace("Failed Password", '"Bad \\e[2J\\n\\u202e"'))
    (rules / "three.yml").write_text('title: "Bad \\e[2J\\n\\u202e"\n')
    assert ended(vedette("rules", "list", rules), 1).output.count(WRITTEN_OUT) == 2
    assert ended(vedette("rules", "test", rules), 1).output.count(WRITTEN_OUT) == 2


# --- bundle


def test_a_bundle_from_key_to_scan(tmp_path: Path, rules: Path) -> None:
    """keygen, build, sign, verify, show and scan fit together; another key is refused with exit code 1."""
    key, path = tmp_path / "region.pem", tmp_path / "b.vbundle"
    public = ended(vedette("bundle", "keygen", key), 0).stdout.strip()
    assert public.startswith("ed25519:")
    ended(vedette("bundle", "build", rules, "-o", path, "--version", 3, "--name", "demo"), 0)
    assert "refused" in ended(vedette("bundle", "verify", path, "--trusted-key", public), 1).stderr
    assert public in ended(vedette("bundle", "sign", path, "--key", key), 0).stdout
    assert (
        "good: 1 rules, 0 correlations, 2 self-tests pass"
        in ended(vedette("bundle", "verify", path, "--trusted-key", public), 0).stdout
    )
    other = vedette("bundle", "keygen", tmp_path / "other.pem").stdout.strip()
    assert "refused" in ended(vedette("bundle", "verify", path, "--trusted-key", other), 1).stderr
    shown = json.loads(ended(vedette("bundle", "show", path, "--json"), 0).stdout)
    assert shown["manifest"]["version"] == 3
    assert "demo version 3" in ended(vedette("bundle", "show", path), 0).stdout
    found = ended(vedette("scan", "--rules", path, "--trusted-key", public, "-", stdin=ATTACK), 0)
    assert json.loads(found.stdout)["rule_title"] == "Failed Password"
    assert "--trusted-key is needed" in ended(vedette("scan", "--rules", path, "-"), 2).stderr
    for command in ("verify", "show"):
        keys = ("--trusted-key", public) if command == "verify" else ()
        assert "none.vbundle" in ended(vedette("bundle", command, tmp_path / "none.vbundle", *keys), 2).stderr


def test_a_bundle_with_correlations(tmp_path: Path, rules: Path) -> None:
    """build, verify and show count correlations and sequences; show tells each one's kind, and what was refused."""
    (rules / "two.yml").write_text(FAILURES)
    (rules / "two.test.yml").write_text(SEQUENCE)
    (rules / "bad.yml").write_text("title: Bad\n")
    path = tmp_path / "b.vbundle"
    built = ended(vedette("bundle", "build", rules, "-o", path, "--version", 3), 0).stdout
    assert "1 rules, 1 correlations, 2 test events, 1 sequences" in built
    shown = ended(vedette("bundle", "show", path), 0).stdout
    assert "1 rules, 1 correlations, 1 refused, 3 self-tests" in shown
    assert [line.split()[0] for line in shown.splitlines()[-3:]] == ["detection", "event_count", "refused"]


def test_a_bundle_whose_tests_fail_is_not_built(tmp_path: Path, rules: Path) -> None:
    """What an agent would refuse is not built, and the place of the failing event is reported."""
    (rules / "one.test.yml").write_text(f'- match: "{HARMLESS}"\n')
    done = ended(vedette("bundle", "build", rules, "-o", tmp_path / "b.vbundle", "--version", 1), 2)
    assert f"{rules}/one.test.yml:1: should match and does not" in done.stderr
    assert not (tmp_path / "b.vbundle").exists()


# --- a host's data


NOW = time.time_ns() // 1000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a raw log of three events and a store with two alerts, one of them receipted."""
    from tests.delivery.kit import alert

    folder = tmp_path / "data"
    with_log = RawLog.open(folder / "raw", RawLogSettings(), Counters())
    hour = 3_600_000_000
    with_log.append(Chunk("syslog", "syslog", NOW - 5 * hour, b"an old event\n"))
    with_log.append(Chunk("syslog", "syslog", NOW - hour, b"Failed PASSWORD \x1b[31m\xff\n"))
    with_log.append(Chunk("mqtt", "mqtt", NOW, b"two\nlines", array("I", [9]), ("plant/1",)))
    with_log.close()
    with Store.open(folder / "store") as store:
        store.commit(Cursor(with_log.log_id, 0), {}, [], [(n, encode(alert(n, raw=f"evil \x1b {n}"))) for n in (1, 2)])
        store.receipt([(1, 1)])
    return folder


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_logs_search_of_a_damaged_log(data: Path, options: tuple[str, ...]) -> None:
    """What is damaged is logged on standard error; standard output has the events and nothing else."""
    (segment,) = (data / "raw").glob("*.seg")
    whole = segment.read_bytes()
    segment.write_bytes(whole.replace(b"Failed PASSWORD", b"FAILED password"))
    done = ended(vedette("logs", "search", "--data-dir", data, *options, "."), 0)
    assert len(done.stdout.splitlines()) == 2
    assert [json.loads(line)["raw"] for line in done.stdout.splitlines() if options] == ["an old event", "two\nlines"][
        : 2 * len(options)
    ]
    assert "raw_log_damaged" in done.stderr
    assert segment.name in done.stderr


def test_logs_search(data: Path) -> None:
    """Stored events by expression, time and input; control characters do not reach the terminal."""
    done = ended(vedette("logs", "search", "--data-dir", data, "failed password"), 0)
    assert done.stdout.endswith("Z syslog Failed PASSWORD \\x1b[31m\ufffd\n")
    assert ended(vedette("logs", "search", "--data-dir", data, "--since", "2h", "."), 0).stdout.count("\n") == 2
    assert ended(vedette("logs", "search", "--data-dir", data, "--until", "2h", "event"), 0).stdout.count("\n") == 1
    row = json.loads(ended(vedette("logs", "search", "--data-dir", data, "--input", "mqtt", "--json", "two"), 0).stdout)
    assert (row["raw"], row["input"], row["length"]) == ("two\nlines", "mqtt", 9)
    assert ended(vedette("logs", "search", "--data-dir", data, "nowhere"), 1).output == ""
    assert "stopped after 1 events" in ended(vedette("logs", "search", "--data-dir", data, "--limit", 1, "."), 0).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("(",), "is not a regular expression"), (("--since", "yesterday", "x"), "expects RFC 3339")],
)
def test_logs_search_asked_wrongly(data: Path, arguments: tuple[str, ...], said: str) -> None:
    """A bad expression or time: exit code 2 and what is expected."""
    assert said in ended(vedette("logs", "search", "--data-dir", data, *arguments), 2).stderr


def test_logs_show(data: Path) -> None:
    """The event at each place that search tells, control characters escaped; a place that is not kept: code 1."""
    rows = ended(vedette("logs", "search", "--data-dir", data, "--json", "."), 0).stdout.splitlines()
    for row in map(json.loads, rows):
        place = f"{row['log_id']}:{row['offset']}+{row['length']}"
        done = ended(vedette("logs", "show", "--data-dir", data, place), 0)
        assert done.stdout == row["raw"].replace("\n", "\\x0a").replace("\x1b", "\\x1b") + "\n"
    gone = ended(vedette("logs", "show", "--data-dir", data, f"{'0' * 32}:0+5"), 1)
    assert f"raw event {'0' * 32}:0+5: not in" in gone.stderr
    beyond = ended(vedette("logs", "show", "--data-dir", data, f"{row['log_id']}:{row['offset']}+999"), 1)
    assert "has only 9 bytes" in beyond.stderr


@pytest.mark.parametrize(
    "place", ["", "12", "0:0+1", f"{'0' * 32}:-1+5", f"{'0' * 32}:0+5; id", f"{'0' * 32}:0+{'9' * 40}"]
)
def test_logs_show_asked_wrongly(data: Path, place: str) -> None:
    """What is no place: exit code 2 and how one is written."""
    assert "is not LOG_ID:OFFSET+LENGTH" in ended(vedette("logs", "show", "--data-dir", data, "--", place), 2).stderr


def test_alerts(data: Path) -> None:
    """The newest alerts, those that the region has and those that wait here, as lines or as JSON."""
    lines = ended(vedette("alerts", "--data-dir", data), 0).stdout.splitlines()
    assert [line[:4] for line in lines] == ["sent", "here"]
    assert lines[0].endswith("A rule: evil \\x1b 1")
    rows = [
        json.loads(line)
        for line in ended(vedette("alerts", "--data-dir", data, "--json", "-n", 1), 0).stdout.splitlines()
    ]
    assert [(row["seq"], row["receipted"], row["raw"]) for row in rows] == [(2, False, "evil \x1b 2")]


def test_alerts_of_every_kind(data: Path) -> None:
    """A correlation shows its count, its group and its event; a fold how many more, and of what."""
    from tests.delivery.kit import alert

    group = {"user": "deploy", "src_ip": "10.0.0.5"}
    made = [
        alert(3, kind="correlation", count=5, group_by=group),
        alert(4, kind="correlation", count=3, group_by={}, fields={"value_avg": "93.5"}),
        alert(5, kind="fold", count=4, group_by=group, raw=""),
        alert(6, kind="fold", count=1, group_by={}, raw=""),
    ]
    with Store.open(data / "store") as store:
        store.commit(Cursor("ab" * 16, 0), {}, [], [(one.seq, encode(one)) for one in made])
    lines = ended(vedette("alerts", "--data-dir", data), 0).stdout.splitlines()[2:]
    assert [line[26:] for line in lines] == [
        "high          correlation syslog A rule: count 5, user=deploy, src_ip=10.0.0.5: Failed password for root",
        "high          correlation syslog A rule: count 3, value_avg 93.5: Failed password for root",
        "high          fold        syslog A rule: 4 more, user=deploy, src_ip=10.0.0.5",
        "high          fold        syslog A rule: 1 more",
    ]


def test_data_that_is_not_there(tmp_path: Path) -> None:
    """No log, no store: each is said with the path, exit code 2."""
    for command, part in ((("logs", "search", "x"), "raw"), (("alerts",), "store")):
        assert f"{tmp_path}/none/{part}" in ended(vedette(*command, "--data-dir", tmp_path / "none"), 2).stderr
