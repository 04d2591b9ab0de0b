"""The Sigma specification 2.1 sentence by sentence, through ``vedette scan``: each case is a detection, events that it
matches and events that it does not. Evaluated by hand from the specification; nothing here asks another engine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.differences import walk
from vedette.cli.main import main

HEAD = "title: t\nlogsource:\n  category: test\n"


def scan(
    tmp_path: Path, rules: str, data: bytes, *options: str, name: str = "events.jsonl", code: int = 0
) -> tuple[list[int], str]:
    """The lines that match, in order, and what is said on standard error; ``code`` is the exit code that is due."""
    (tmp_path / "rules.yml").write_text(rules, "utf-8")
    (tmp_path / name).write_bytes(data)
    done = CliRunner().invoke(main, ["scan", "--rules", str(tmp_path / "rules.yml"), *options, str(tmp_path / name)])
    assert done.exit_code == code, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(row["kind"] == "detection" for row in rows)
    return [row["line"] for row in rows], done.stderr


def lines(*events: Any) -> bytes:
    return b"".join(json.dumps(event, ensure_ascii=False).encode() + b"\n" for event in events)


def one(item: str) -> str:
    return f"s: {{{item}}}\ncondition: s"


CASES: list[tuple[str, list[Any], list[Any]]] = [
    # General
    (one("a: VaLue"), [{"a": "value"}, {"a": "VALUE"}], [{"a": "values"}, {"b": "value"}, {}]),
    (one("a: ΣΊΓΜΑς"), [{"a": "σίγμασ"}, {"a": "Σίγμας"}], [{"a": "σιγμας"}]),
    (one("a: straße"), [{"a": "STRAẞE"}], [{"a": "strasse"}]),
    (one("a: kelvin"), [{"a": "\u212aelvin"}], []),
    (one("a: istanbul"), [{"a": "ISTANBUL"}], [{"a": "İstanbul"}, {"a": "ıstanbul"}]),
    (one("a|contains: 'it''s'"), [{"a": "it's"}], [{"a": "its"}]),
    # String Wildcard
    (one("a: prog?.exe"), [{"a": "progA.exe"}, {"a": "PROGb.EXE"}], [{"a": "prog.exe"}, {"a": "progAB.exe"}]),
    (
        one("a: antivirus_V*.exe"),
        [{"a": "antivirus_V1.exe"}, {"a": "antivirus_V21.2.1.exe"}, {"a": "antivirus_V.exe"}],
        [{"a": "antivirus_V1.exe "}],
    ),
    (one("a: '*'"), [{"a": ""}, {"a": "x"}, {"a": 0}, {"a": "one\ntwo"}], [{}, {"a": None}]),
    # Escape Character
    (one(r"a: 'C:\Windows'"), [{"a": "c:\\windows"}], [{"a": "c:\\\\windows"}]),
    (one(r"a: 'C:\\Windows'"), [{"a": "c:\\windows"}], [{"a": "c:\\\\windows"}]),
    (one(r"a: 'x\*'"), [{"a": "x*"}], [{"a": "x\\*"}, {"a": "xy"}]),
    (one(r"a: 'x\?'"), [{"a": "x?"}], [{"a": "xy"}, {"a": "x\\y"}]),
    (one(r"a: 'x\\*'"), [{"a": "x\\"}, {"a": "x\\y"}], [{"a": "x*"}, {"a": "xy"}]),
    (one(r"a: 'x\\\*'"), [{"a": "x\\*"}], [{"a": "x\\y"}, {"a": "x*"}]),
    (one(r"a: 'x\\\y'"), [{"a": "x\\\\y"}], [{"a": "x\\y"}]),
    (one(r"a: 'x\\\\y'"), [{"a": "x\\\\y"}], [{"a": "x\\y"}]),
    (one(r"a: 'x\'"), [{"a": "x\\"}], [{"a": "x"}]),
    (one(r"a|endswith: '\'"), [{"a": "C:\\"}], [{"a": "C:"}]),
    # Lists
    (
        "keywords:\n- EVILSERVICE\n- svchost.exe -n evil\ncondition: keywords",
        [{"m": "an EvilService"}, {"deep": {"er": ["SVCHOST.EXE -n evil x"]}}],
        [{"evilservice": 1}, {"m": "svchost.exe", "n": "-n evil"}],
    ),
    (
        "s:\n- Image|endswith: '\\\\example.exe'\n- Description|contains: Test executable\ncondition: s",
        [{"Image": "C:\\example.exe"}, {"Description": "a test executable."}],
        [{"Image": "example.exe"}],
    ),
    # Maps
    (
        "s:\n  EventLog: Security\n  EventID: [517, 1102]\ncondition: s",
        [{"EventLog": "security", "EventID": 517}, {"EventLog": "Security", "EventID": "1102"}],
        [{"EventLog": "Security", "EventID": 5170}, {"EventID": 517}],
    ),
    (one("TicketOptions: '0x40810000'"), [{"TicketOptions": "0X40810000"}], [{"TicketOptions": 0x40810000}]),
    # Special Field Values
    (
        "s: {EventID: 4738}\nfilter: {PasswordLastSet: null}\ncondition: s and not filter",
        [{"EventID": 4738, "PasswordLastSet": ""}, {"EventID": 4738, "PasswordLastSet": "x"}],
        [{"EventID": 4738}, {"EventID": 4738, "PasswordLastSet": None}],
    ),
    (
        "m: {A: something}\ne1: {B: ''}\ne2: {B: null}\ncondition: m and 1 of e*",
        [{"A": "something", "B": ""}, {"A": "something", "B": None}, {"A": "something"}],
        [{"A": "something", "B": " "}, {"B": ""}],
    ),
    # Field Existence
    (
        one("EventID: 4738, P|exists: true"),
        [{"EventID": 4738, "P": None}, {"EventID": 4738, "P": ""}, {"EventID": 4738, "P": {}}],
        [{"EventID": 4738}],
    ),
    (one("P|exists: false"), [{"Q": 1}], [{"P": None}, {"P": []}]),
    # Keywords search
    (
        "k:\n  '|all':\n  - OabVirtualDirectory\n  - ' -ExternalUrl '\ncondition: k",
        [{"a": "oabvirtualdirectory", "b": "set -externalurl x"}],
        [{"a": "OabVirtualDirectory"}, {"a": "OabVirtualDirectory -ExternalUrl"}],
    ),
    ("k: ['event::cl?ar', 'a*z']\ncondition: k", [{"m": "x event::clear"}, {"m": "-abcz-"}], [{"m": "a", "n": "z"}]),
    # Condition
    ("a: {f: 1}\nb: {g: 1}\n_c: {h: 1}\ncondition: all of them", [{"f": 1, "g": 1}], [{"f": 1, "h": 1}]),
    ("a: {f: 1}\n_c: {h: 1}\ncondition: 1 of them", [{"f": 1}], [{"h": 1}]),
    ("s_a: {f: 1}\ns_b: {g: 1}\nx: {h: 1}\ncondition: all of s_*", [{"f": 1, "g": 1}], [{"f": 1, "h": 1}]),
    ("a_s: {f: 1}\nb_s: {g: 1}\ncondition: 1 of *_s", [{"f": 1}, {"g": 1}], [{"f": 2}]),
    ("a: {f: 1}\nb: {g: 1}\nc: {h: 1}\ncondition: a or b and c", [{"f": 1}, {"g": 1, "h": 1}], [{"g": 1}]),
    ("a: {f: 1}\nb: {g: 1}\ncondition: not a and b", [{"g": 1}], [{"f": 1, "g": 1}, {}]),
    ("a: {f: 1}\nb: {g: 1}\ncondition: not (a and b)", [{"g": 1}, {}], [{"f": 1, "g": 1}]),
    ("a: {f: 1}\nb: {g: 1}\nc: {h: 1}\ncondition: (a or b) and c", [{"f": 1, "h": 1}], [{"f": 1}]),
    ("a: {f: 1}\nf_a: {g: 1}\nf_b: {h: 1}\ncondition: a and not 1 of f_*", [{"f": 1}], [{"f": 1, "h": 1}]),
    ("a: {f: 1}\nb: {g: 1}\ncondition: [a, b]", [{"f": 1}, {"g": 1}, {"f": 1, "g": 1}], [{}]),
    # Generic modifiers
    (one("c|contains|all: [-a, -b]"), [{"c": "x -B y -A"}], [{"c": "-a"}]),
    (one("c|startswith: adm"), [{"c": "ADMIN"}], [{"c": "xadm"}]),
    (one(r"c|endswith: \cmd.exe"), [{"c": "C:\\CMD.exe"}], [{"c": "C:\\cmd.exe2"}]),
    (one("c|contains: a?c"), [{"c": "xxabcx"}], [{"c": "ac"}]),
    (one("c|cased: AbC"), [{"c": "AbC"}], [{"c": "abc"}]),
    (one("c|contains|cased: [A*c, É]"), [{"c": "xAbc"}, {"c": "É"}], [{"c": "abc"}, {"c": "é"}]),
    (one("c|neq: [x, y]"), [{"c": "z"}, {}, {"c": None}], [{"c": "X"}, {"c": ["z", "y"]}]),
    (one("n|neq: 5"), [{"n": 6}, {"n": "05"}], [{"n": 5}, {"n": 5.0}, {"n": "5"}]),
    # String modifiers
    (
        one("c|windash|contains: ' -f'"),
        [{"c": f"x {dash}f"} for dash in "-/\u2013\u2014\u2015"],
        [{"c": "x f"}, {"c": "x+f"}],
    ),
    (one("c|re: '^a.c$'"), [{"c": "abc"}], [{"c": "Abc"}, {"c": "xabc"}, {"c": "a\nc"}]),
    (one("c|re|i: ^e"), [{"c": "Ea"}], [{"c": "ae"}]),
    (one("c|re|m: ^b$"), [{"c": "a\nb\nc"}], [{"c": "a\nbb"}]),
    (one("c|re|s: a.c"), [{"c": "a\nc"}], [{"c": "ac"}]),
    (one("c|re: '[0-9]{2,3}(x|y)+'"), [{"c": "12xyx"}], [{"c": "1x"}]),
    (one("c|re: '(?<!a)b(?=c)'"), [{"c": "xbc"}], [{"c": "abc"}, {"c": "xbd"}]),
    (one("c|base64: foo"), [{"c": "Zm9v"}], [{"c": "xZm9v"}]),
    (
        one("c|base64offset|contains: /bin/sh"),
        [{"c": "L2Jpbi9zaA=="}, {"c": "eC9iaW4vc2g="}, {"c": "eHgvYmluL3No"}],
        [{"c": "/bin/sh"}],
    ),
    (one("c|wide|base64offset|contains: cmd"), [{"c": "YwBtAGQA"}], [{"c": "Y21k"}]),
    (one("c|utf16le|base64: cmd"), [{"c": "YwBtAGQA"}], []),
    (one("c|utf16be|base64: cmd"), [{"c": "AGMAbQBk"}], []),
    (one("c|utf16|base64: cmd"), [{"c": "//5jAG0AZAA="}], []),
    # Numeric, time and IP modifiers
    (one("n|lt: 5"), [{"n": 4}, {"n": "4.5"}, {"n": -10}], [{"n": 5}, {"n": "x"}, {"n": "10"}, {}]),
    (one("n|gte: 5"), [{"n": 5}, {"n": "10"}], [{"n": 4.9}, {"n": True}]),
    (one("n|gt: 1, n|lte: 3"), [{"n": 2}, {"n": 3}], [{"n": 1}, {"n": 4}]),
    (one("n: 9007199254740993"), [{"n": 9007199254740993}], [{"n": 9007199254740992}]),
    (one("t|hour: 23"), [{"t": "2025-03-30T23:59:00Z"}, {"t": "2025-03-30 23:00:00"}], [{"t": "2025-03-30"}]),
    (one("t|day: 30, t|month: 3, t|year: 2025, t|minute: 59"), [{"t": "2025-03-30T23:59:00-08:00"}], []),
    (one("i|cidr: 10.0.0.0/9"), [{"i": "10.127.255.255"}], [{"i": "10.128.0.0"}, {"i": "10.0.0"}]),
    (one("i|cidr: ['2001:db8::/33', 192.0.2.0/28]"), [{"i": "2001:DB8:0:0::1"}], [{"i": "2001:db8:8000::"}]),
    # Specific modifiers
    (one("a|fieldref: b"), [{"a": "X", "b": "x"}, {"a": 5, "b": "5"}], [{"a": "x"}, {"b": "x"}, {}]),
    (one("a|fieldref|neq: b"), [{"a": "x", "b": "y"}, {"a": "x"}], [{"a": "x", "b": "X"}]),
    (one("a|fieldref|startswith: b"), [{"a": "abc", "b": "AB"}], [{"a": "ab", "b": "abc"}]),
    (one("a|fieldref|endswith: b"), [{"a": "abc", "b": "bc"}], [{"a": "abc", "b": "b"}]),
    (one("a|fieldref|contains: b"), [{"a": "abc", "b": "b"}], [{"a": "abc", "b": "*"}]),
    (one("a: '%name%'"), [{"a": "%NAME%"}], [{"a": "name"}]),
    # Events: nested and dotted names, arrays, kinds of values
    (one("a.b: 1"), [{"a": {"b": 1}}, {"a.b": 1}, {"a": [{"b": 2}, {"b": 1}]}], [{"a": {"b": 2}, "b": 1}]),
    (one("a.b.c: x"), [{"a": {"b.c": "x"}}, {"a.b": {"c": "x"}}], [{"a": {"b": "x"}}]),
    (one("'a b': x"), [{"a b": "x"}], [{"ab": "x"}]),
    (one("a: x"), [{"a": ["y", ["x"]]}], [{"a": {"x": "x"}}, {"A": "x"}]),
    (one("a: true"), [{"a": True}, {"a": "TRUE"}], [{"a": 1}, {"a": False}]),
    (one("a: yes"), [{"a": "Yes"}], [{"a": True}]),
    (one("a: 010"), [{"a": 10}, {"a": "010"}, {"a": "10"}], [{"a": 8}]),
    (one("a|contains: 12e5"), [{"a": "0012E5"}], [{"a": 1200000}]),
]


@walk(("detection", "matching", "others"), CASES)
def test_detections(detection: str, matching: list[Any], others: list[Any], tmp_path: Path) -> None:
    """The detection holds for these events and for no others."""
    body = "".join(f"  {line}\n" for line in detection.splitlines())
    found, said = scan(tmp_path, f"{HEAD}detection:\n{body}", lines(*matching, *others))
    assert "not run" not in said
    assert found == list(range(1, len(matching) + 1))


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("a|expand: '%servers%'", "no value"),
        ("a|lt: x", "lt compares numbers"),
        ("a|exists: maybe", "exists takes true or false"),
        ("a|cidr: 10.0.0.0/33", "CIDR"),
        ("a|re: '('", "regular expression"),
        ("a|nonsense: x", "Unknown modifier"),
    ],
)
def test_what_cannot_run_is_named(item: str, reason: str, tmp_path: Path) -> None:
    """A rule that cannot be judged is refused by its place and a reason; it never silently finds nothing."""
    _, said = scan(tmp_path, f"{HEAD}detection:\n  s: {{{item}}}\n  condition: s\n", lines({"a": "x"}), code=2)
    assert "not run:" in said
    assert "rules.yml:5:" in said
    assert reason.lower() in said.lower()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_encodings_of_files(encoding: str, newline: str, tmp_path: Path) -> None:
    """Byte order marks and UTF-16 files are read; lines count from 1, blank and last ones too."""
    text = newline.join(('{"a": "é"}', "", '{"a": "x"}', '{"a": "É"}'))
    rule = f"{HEAD}detection:\n  s: {{a: é}}\n  condition: s\n"
    assert scan(tmp_path, rule, text.encode(encoding))[0] == [1, 4]
    array = '[{"a": "é"}, 5, {"a": ["É"]}]'.encode(encoding)
    assert scan(tmp_path, rule, array, name="events.json")[0] == [0, 2]


@pytest.mark.parametrize(
    "slip", [rb'"\xff"', rb'"\ud800"', b"NaN", b"-Infinity", b"1e999", b'"\t"', b"1" * 400, b'"\\udfff\\ud800x"']
)
def test_a_slip_in_json_hides_nothing(slip: bytes, tmp_path: Path) -> None:
    """An event with a value that is not quite JSON is still judged by its other values, in lines and arrays."""
    slip = slip.replace(rb"\xff", b"\xff")
    rule = f"{HEAD}detection:\n  s: {{a: needle}}\n  condition: s\n"
    event = b'{"a": "needle", "b": ' + slip + b"}"
    assert scan(tmp_path, rule, event + b"\n" + event)[0] == [1, 2]
    assert scan(tmp_path, rule, b"[" + event + b"]", name="events.json")[0] == [0]
