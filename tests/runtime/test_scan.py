"""``vedette scan`` as a user runs it: rows, line numbers, arrays, standard input, cut lines, routing, exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.waits import DEADLINE
from vedette.cli.main import main
from vedette.decode.decoder import Record
from vedette.engine.match import Engine
from vedette.model.event import CHUNK_BYTES, MAX_EVENT
from vedette.runtime.offline.scan import elements, events, lines

RULE = """title: root
id: 929a690e-bef0-4204-a928-ef5e620d6fcc
level: high
logsource: {product: linux, service: sshd}
fields: [src_ip]
detection: {s: {message|contains: needle}, condition: s}
"""
COUNTED = """title: twice
correlation: {type: event_count, rules: [root], generate: true, timespan: 1h, condition: {gte: 2}}
"""
WEB = """title: web
logsource: {category: webserver}
detection: {s: {cs-uri-stem|contains: needle}, condition: s}
"""
SSH = b"<38>Nov 20 10:00:00 web1 sshd[7]: Failed password for needle from 203.0.113.9 port 22 ssh2"
ACCESS = b'203.0.113.9 - - [10/Oct/2025:13:55:36 +0200] "GET /needle HTTP/1.1" 200 15 "-" "curl"'


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "root.yml").write_text(RULE)
    (folder / "web.yml").write_text(WEB)
    return folder


def scan(*arguments: object, stdin: bytes = b"", code: int = 0) -> tuple[list[dict[str, Any]], str]:
    """The rows on standard output and the text on standard error."""
    result: Result = CliRunner().invoke(main, ["scan", *map(str, arguments)], input=stdin)
    assert result.exit_code == code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def write(folder: Path, data: bytes, name: str = "events.log") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_a_row_per_match(rules: Path, tmp_path: Path) -> None:
    """Rule, level, kind, file, line from 1, and the fields that the rule tests or wants shown."""
    file = write(tmp_path, b"nothing\n" + SSH + b"\n\n" + ACCESS + b"\n")
    rows, summary = scan("--rules", rules, file)
    ssh, message, web = rows
    assert ssh == {
        "rule_id": "929a690e-bef0-4204-a928-ef5e620d6fcc",
        "rule_title": "root",
        "level": "high",
        "kind": "detection",
        "file": str(file),
        "line": 2,
        "fields": {
            "message": "Failed password for needle from 203.0.113.9 port 22 ssh2",
            "src_ip": "203.0.113.9",
        },
    }
    assert (message["rule_title"], message["line"]) == ("root", 4)  # log sources are ignored
    assert (web["rule_title"], web["line"], web["fields"]) == ("web", 4, {"cs-uri-stem": "/needle"})
    assert summary.startswith("4 events, ")
    assert "3 matches of 2 rules" in summary


def test_line_numbers_across_chunks(rules: Path, tmp_path: Path) -> None:
    """Lines are counted on over chunk ends, and a last line needs no newline."""
    wanted = [1, 2, 2000, 9000, 9001, 20000]
    events = [b"needle" if number in wanted else b"x" * 60 for number in range(1, 20001)]
    file = write(tmp_path, b"\n".join(events))
    assert file.stat().st_size > 4 * CHUNK_BYTES
    rows, _ = scan("--rules", rules, file)
    assert [row["line"] for row in rows] == wanted


def test_several_files_count_for_themselves(rules: Path, tmp_path: Path) -> None:
    """Each file begins at line 1 again; a missing one is told, and the others are judged."""
    first = write(tmp_path, b"x\nneedle\n", "a.log")
    second = write(tmp_path, b"needle\n", "b.log")
    rows, errors = scan("--rules", rules, first, tmp_path / "missing.log", second, code=2)
    assert [(row["file"], row["line"]) for row in rows] == [(str(first), 2), (str(second), 1)]
    assert "missing.log" in errors


def test_a_json_array(rules: Path, tmp_path: Path) -> None:
    """The elements of one JSON array are events, numbered from 0; what only begins like one is an error."""
    array = write(tmp_path, b' [{"message": "x"}, {"message": "a needle"}, 5, ["needle"]]', "events.json")
    rows, _ = scan("--rules", rules, "--format", "json", array)
    assert [(row["line"], row["fields"]["message"]) for row in rows] == [(1, "a needle"), (3, '["needle"]')]
    assert [row["line"] for row in scan("--rules", rules, array)[0]] == [1, 3]
    broken = write(tmp_path, b'[{"message": "needle"}', "broken.json")
    rows, errors = scan("--rules", rules, broken, code=2)
    assert rows == []
    assert "broken.json: not a JSON array" in errors


def test_json_lines_in_a_json_file(rules: Path, tmp_path: Path) -> None:
    """A file of objects, one per line, is read by line whatever its name is."""
    file = write(tmp_path, b'{"message": "x"}\n{"message": "needle"}\n', "events.json")
    assert [row["line"] for row in scan("--rules", rules, file)[0]] == [2]


def test_standard_input(rules: Path) -> None:
    """A dash is standard input."""
    rows, _ = scan("--rules", rules, "-", stdin=b"x\nneedle\n")
    assert [(row["file"], row["line"]) for row in rows] == [("-", 2)]


def test_routing(rules: Path, tmp_path: Path) -> None:
    """With --route a rule sees events of its log source only; --product adds what the lines do not say."""
    file = write(tmp_path, SSH.replace(b"sshd", b"someapp") + b"\n" + ACCESS + b"\n")
    assert [(row["rule_title"], row["line"]) for row in scan("--rules", rules, "--route", file)[0]] == [("web", 2)]
    file = write(tmp_path, SSH + b"\n" + ACCESS + b"\n")
    rows, _ = scan("--rules", rules, "--route", "--product", "linux", file)
    assert [(row["rule_title"], row["line"]) for row in rows] == [("root", 1), ("web", 2)]


def test_the_format_is_the_users(rules: Path, tmp_path: Path) -> None:
    """--format says how events are read; one that does not exist is a usage error that lists those that do."""
    file = write(tmp_path, b'{"message": "no", "other": "needle"}\n')
    assert scan("--rules", rules, file)[0] == []
    assert len(scan("--rules", rules, "--format", "text", file)[0]) == 1
    assert "--format sylog: expects one of auto," in scan("--rules", rules, "--format", "sylog", file, code=2)[1]
    _, errors = scan("--rules", rules, "--format", "xml", file, code=2)
    assert "expects one of" in errors


def test_long_lines_are_cut(rules: Path, tmp_path: Path) -> None:
    """A line beyond the bound is judged as far as the bound goes, and the next lines keep their numbers."""
    inside = b"needle".rjust(MAX_EVENT, b"x")
    straddling = inside + b"y" * (10 << 20)
    outside = b"x" * MAX_EVENT + b"needle"
    file = write(tmp_path, b"\n".join([straddling, outside, inside, b"needle", outside + b"z" * MAX_EVENT]))
    assert [row["line"] for row in scan("--rules", rules, file)[0]] == [1, 3, 4]


@pytest.mark.parametrize("extra", [-1, 0, 1, 5, CHUNK_BYTES, 3 * CHUNK_BYTES])
def test_lines_around_the_bound(extra: int) -> None:
    """Every line comes once, at most MAX_EVENT long, whatever its length is."""
    data = b"a\n" + b"x" * (MAX_EVENT + extra) + b"\nb\n" + b"y" * (MAX_EVENT + extra)
    chunks = list(lines(io.BytesIO(data)))
    events = [chunk.data[start:end] for chunk in chunks for start, end in chunk.spans()]
    assert [event[:1] for event in events] == [b"a", b"x", b"b", b"y"]
    kept = min(MAX_EVENT, MAX_EVENT + extra)
    assert [len(event) for event in events] == [1, kept, 1, kept]
    assert all(chunk.data.endswith(b"\n") for chunk in chunks)


def test_odd_bytes(rules: Path, tmp_path: Path) -> None:
    """Carriage returns, NUL, invalid UTF-8 and empty lines are judged and counted as lines."""
    file = write(tmp_path, b"\r\n\0needle\0\r\n\xffneedle\xff\n\n\nneedle")
    assert [row["line"] for row in scan("--rules", rules, file)[0]] == [2, 3, 6]
    assert scan("--rules", rules, write(tmp_path, b""))[0] == []
    assert list(lines(io.BytesIO(b""))) == []


def test_elements_are_cut_and_checked() -> None:
    """An element beyond the bound is cut like any event; an array that begins and is none raises."""
    (chunk,) = elements(["x" * (MAX_EVENT + 9)])
    assert (len(chunk), len(chunk.data)) == (1, MAX_EVENT)
    for data in (b"[", b"[1,", b"[\xff", b"[1] x"):
        with pytest.raises(ValueError, match="not a JSON array"):
            events(io.BytesIO(data), "json")


@pytest.mark.parametrize("name", ["-", "a.jsonl", "a.JSON", "a"])
@pytest.mark.parametrize("codec", ["auto", "json"])
def test_json_over_several_lines(rules: Path, tmp_path: Path, name: str, codec: str) -> None:
    """An array is its elements and an object one event, wherever it is read from; arrays a line and other texts that
    begin so are lines."""
    for data, found in (
        (b'[{"message": "x"},\n {"message": "a needle"}]\n', [1]),
        (b'{\n  "message": "needle",\n  "a": [1]\n}\n', [1]),
        (b'{"message": "x"}\n{"message": "needle"}\n', [2]),
        (b'["x"]\n["needle"]\n', [2]),
        (b'{\n"message": "needle"\n{\n', [2]),
    ):
        file = name if name == "-" else write(tmp_path, data, name)
        rows, _ = scan("--rules", rules, "--format", codec, file, stdin=data if name == "-" else b"")
        assert [row["line"] for row in rows] == found
    text = b"[Mon Dec 05 10:00:00 2025] [error] needle\n"
    assert [row["line"] for row in scan("--rules", rules, write(tmp_path, text, "x.log"))[0]] == [1]


def test_rules_that_do_not_run_are_told(rules: Path, tmp_path: Path) -> None:
    """A refused rule is named with file, line and reason; the others run; when none does the exit code is 2."""
    (rules / "bad.yml").write_text("title: bad\nlogsource: {product: x}\ndetection: {s: {f|no: 1}, condition: s}\n")
    rows, errors = scan("--rules", rules, write(tmp_path, b"needle\n"))
    assert len(rows) == 1
    assert f"not run: {rules / 'bad.yml'}:3:17: Unknown modifier 'no' (bad)" in errors
    assert "no rule runs" in scan("--rules", rules / "bad.yml", write(tmp_path, b"needle\n"), code=2)[1]


def test_usage_errors(rules: Path, tmp_path: Path) -> None:
    """Missing rules or files end with code 2 and a message."""
    file = write(tmp_path, b"needle\n")
    assert "no such rule file or folder" in scan("--rules", tmp_path / "nowhere", file, code=2)[1]
    assert "Missing option '--rules'" in scan(file, code=2)[1]
    assert "Missing argument" in scan("--rules", rules, code=2)[1]
    assert "directory" in scan("--rules", rules, tmp_path, code=2)[1].lower()


def test_a_bundle_needs_a_key(tmp_path: Path) -> None:
    """A bundle runs only when its signature can be verified."""
    bundle = write(tmp_path, b"PK", "rules.vbundle")
    file = write(tmp_path, b"needle\n")
    assert "--trusted-key is needed" in scan("--rules", bundle, file, code=2)[1]
    key = "ed25519:" + "A" * 43 + "="
    assert "rules.vbundle" in scan("--rules", bundle, "--trusted-key", key, file, code=2)[1]


def test_as_a_process(rules: Path) -> None:
    """The real command: NDJSON on standard output as it goes, the summary on standard error."""
    command = [sys.executable, "-m", "vedette", "scan", "--rules", str(rules), "-"]
    done = subprocess.run(command, input=b"x\nneedle\n", capture_output=True, timeout=DEADLINE, check=True)
    assert [json.loads(line)["line"] for line in done.stdout.splitlines()] == [2]
    assert b"2 events, 1 candidates, 1 matches of 2 rules" in done.stderr


AUDIT = """title: hidden file run
logsource: {product: linux, service: auditd}
detection:
  ran: {type: EXECVE, a1|contains: payload}
  file: {type: PATH, name|startswith: /tmp/hidden}
  condition: ran and file
"""


@pytest.mark.parametrize("size", [CHUNK_BYTES, 1, 100, 4096])
def test_audit_records_over_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """However a file is read, the records of an audit event are one event, told at the line of its first record; those
    that nothing completes are judged at the end."""
    monkeypatch.setattr("vedette.runtime.offline.scan.CHUNK_BYTES", size)
    rule = tmp_path / "audit.yml"
    rule.write_text(AUDIT)
    run, hidden = (
        'type=EXECVE msg=audit(1.5:{}): a0="sh" a1="payload"',
        'type=PATH msg=audit(1.5:{}): name="/tmp/hidden/x"',
    )
    end = "type=PROCTITLE msg=audit(1.5:{}): proctitle=6C73"
    order = [
        (run, 1),
        (run, 2),
        ("x", 0),
        (hidden, 3),
        (hidden, 2),
        (hidden, 1),
        (end, 2),
        (end, 1),
        (run, 4),
        (hidden, 4),
    ]
    file = write(tmp_path, b"".join(text.format(number).encode() + b"\n" for text, number in order))
    rows, summary = scan("--rules", rule, file)
    assert [row["line"] for row in rows] == [2, 1, 9]
    assert rows[0]["fields"]["name"] == "/tmp/hidden/x"
    assert "10 events" in summary


def test_audit_records_far_apart(tmp_path: Path) -> None:
    """Records of one id that lie further apart than the agent looks for them, as where a log is in a file twice, are
    events of their own, told at their lines."""
    rule = tmp_path / "audit.yml"
    rule.write_text(AUDIT)
    run = b'type=EXECVE msg=audit(1.5:1): a0="sh" a1="payload"\n'
    hidden = b'type=PATH msg=audit(1.5:1): name="/tmp/hidden/x"\n'
    between = b"x" * 99 + b"\n"
    near = write(tmp_path, run + between * 9_000 + hidden)
    assert [row["line"] for row in scan("--rules", rule, near)[0]] == [1]
    far = write(tmp_path, run + between * 20_000 + hidden + run + hidden)
    assert [row["line"] for row in scan("--rules", rule, far)[0]] == [20_002]


def test_a_nested_value_hides_nothing(rules: Path, tmp_path: Path) -> None:
    """What nests as deep as JSON may, beside what a rule looks for, in lines, an array and one object: the others are
    evaluated, and of what cannot be read it is said."""
    deep = b'{"EventID":%s,"message":"needle"}' % (b"[" * 1015 + b"]" * 1015)
    for data, hits in ((deep + b"\n" + SSH + b"\n", [1, 2]), (b'[\n%s,\n{"message":"needle"}]' % deep, [0, 1])):
        rows, _ = scan("--rules", rules, write(tmp_path, data))
        assert [row["line"] for row in rows] == hits
    whole = write(tmp_path, deep.replace(b"{", b"{\n", 1), "whole.log")
    result = CliRunner().invoke(main, ["scan", "--rules", str(rules), str(whole), str(write(tmp_path, SSH + b"\n"))])
    said = f"vedette: {whole}: maximum recursion depth" in result.stderr  # newer Pythons write it as a line
    assert result.exit_code == (2 if said else 0)
    assert [json.loads(line)["line"] for line in result.stdout.splitlines()] == ([1] if said else [1, 1])


@pytest.mark.parametrize(("owner", "face"), [(Record, "source"), (Record, "event_time"), (Engine, "shown")])
def test_an_event_at_which_a_decoder_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, face: str
) -> None:
    """It is named with its file and number and the reason, and the exit code is 2; the others are evaluated, and a
    match that is known before is printed."""
    rule = write(tmp_path, f"{RULE}name: root\n---\n{COUNTED}".encode(), "rule.yml")
    real = getattr(owner, face)
    call = real.fget if owner is Record else real

    def raising(*arguments: Any) -> object:
        if b"boom" in arguments[-1].raw:
            raise RecursionError("too deep")
        return call(*arguments)

    monkeypatch.setattr(owner, face, property(raising) if owner is Record else raising)
    file = write(tmp_path, b"\n".join((SSH, SSH + b" boom", SSH)) + b"\n")
    rows, summary = scan("--rules", rule, "--route", file, code=2)
    told = [line for line in summary.splitlines() if line.startswith("vedette: ")]
    assert told == [f"vedette: {file}: event 2: RecursionError: too deep"]
    found = {row["line"]: bool(row["fields"]) for row in rows if row["kind"] == "detection"}
    assert found == {1: True, 3: True} | ({} if face == "source" else {2: face == "event_time"})
    assert [row["line"] for row in rows if row["kind"] == "correlation"] == [2 if face == "shown" else 3]
