"""Formats beside rules: a bad file is refused by itself, and ``test``, ``lint``, ``explain`` and ``list`` know them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from vedette.cli.main import main
from vedette.rules import build
from vedette.rules.formats import failures
from vedette.runtime.rulesets.compiled import Sources

FORMAT = """name = "gate"
regex = '(?P<gate>GATE\\d+) (?P<way>IN|OUT)'
map = {way = {IN = "entry"}}
logsource = {product = "acme"}
[[examples]]
message = "GATE3 IN"
fields = {gate = "GATE3", way = "entry"}
[[examples]]
message = "DOOR3 IN"
"""
RULE = """title: R
id: 6a1f0000-0000-4000-8000-000000000001
status: test
description: d
falsepositives: [none]
logsource: {product: acme}
detection: {one: {gate: GATE3, way: entry}, condition: one}
level: high
"""
TEST = '- match: {raw: "GATE3 IN", codec: "rules:gate"}\n- no_match: {raw: "GATE3 OUT", codec: "rules:gate"}\n'


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    (folder / "formats").mkdir(parents=True)
    (folder / "formats" / "gate.toml").write_text(FORMAT)
    (folder / "r.yml").write_text(RULE)
    (folder / "r.test.yml").write_text(TEST)
    return folder


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def test_files(rules: Path) -> None:
    """In ``formats/`` below a folder of rules; other TOML there is nobody's, and a change of one is a change."""
    (rules / "pyproject.toml").write_text("[tool.x]\n")
    plan = build.build([rules])
    assert ([one.name for one in plan.formats], plan.refused) == (["gate"], ())
    assert plan.formats[0].path == str(rules / "formats" / "gate.toml")
    before = Sources((rules,)).digest()
    (rules / "formats" / "gate.toml").write_text(FORMAT.replace("GATE3", "GATE4"))
    assert Sources((rules,)).digest() != before


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name = ", "format: Invalid value (at end of document)"),
        ('name = "a"\nregex = "("\n', "format: regex: missing )"),
        ('name = "gate"\njson = true\n', "format: name: {folder}/formats/gate.toml has a format gate, too"),
        ("\xff", "format: "),
    ],
)
def test_a_bad_file(rules: Path, text: str, reason: str) -> None:
    """It is refused with its reason; the others load."""
    (rules / "formats" / "x.toml").write_text(text, "latin-1")
    plan = build.build([rules])
    assert [one.name for one in plan.formats] == ["gate"]
    (refused,) = plan.refused
    assert refused.path == str(rules / "formats" / "x.toml")
    assert refused.reason.startswith(reason.format(folder=rules))


def test_several_mistakes(rules: Path) -> None:
    """All of them are reported at once."""
    (rules / "formats" / "x.toml").write_text('name = "x"\nregex = "(?P<pid>x)"\nstarts = 1\n')
    assert len(build.build([rules]).refused) == 2


def test_test(rules: Path) -> None:
    """``rules test`` runs a format's examples, and rules' test events by their format."""
    code, text = run("rules", "test", rules)
    assert (code, "1 formats, 2 examples, 0 failures, 0 mistakes" in text) == (0, True), text
    wrong = FORMAT.replace('way = "entry"}\n[[', 'way = "IN", more = "x"}\n[[').replace("DOOR3", "GATE4")
    (rules / "formats" / "gate.toml").write_text(wrong)
    code, text = run("rules", "test", rules)
    assert code == 1
    assert "examples[0]: way is 'entry', expected 'IN'" in text
    assert "examples[0]: more is None, expected 'x'" in text
    assert "examples[1]: gate is 'GATE4', expected none" in text
    (rules / "formats" / "gate.toml").write_text(FORMAT.partition("[[")[0])
    code, text = run("rules", "test", rules)
    assert (code, "gate.toml:1: no [[examples]] in it (format gate)" in text) == (1, True)


def test_an_example_with_a_time(rules: Path) -> None:
    """Its time is compared, too."""
    text = (
        'name = "t"\nheader = "none"\nregex = "(?P<at>.*)"\ntime = {field = "at"}\n[[examples]]\n'
        'message = "2026-02-01T10:00:00Z"\nfields = {at = "2026-02-01T10:00:00Z"}\ntime = "2026-02-01T11:00:00+01:00"\n'
    )
    (rules / "formats" / "t.toml").write_text(text)
    assert [*failures(build.build([rules]).formats[1])] == []
    (rules / "formats" / "t.toml").write_text(text.replace("11:00:00+01:00", "11:00:00Z"))
    assert "its time is" in next(failures(build.build([rules]).formats[1]))


def test_lint(rules: Path) -> None:
    """A format without examples is a note, one whose examples fail an error; its log source is detected."""
    code, text = run("rules", "lint", rules)
    assert (code, "no decoder detects" in text, "formats" in text) == (0, False, False), text
    (rules / "formats" / "gate.toml").write_text(FORMAT.partition("[[")[0])
    assert "gate.toml:1: note: no [[examples]] [tests] (gate)" in run("rules", "lint", rules)[1]
    (rules / "formats" / "gate.toml").write_text(FORMAT.replace("GATE3 IN", "GATE4 IN"))
    code, text = run("rules", "lint", rules)
    assert code == 1
    assert "gate.toml:1: error: examples[0]: gate is 'GATE4', expected 'GATE3' [tests]" in text


def test_explain(rules: Path) -> None:
    """What a format gives, how, and what it makes of an event."""
    file = rules / "formats" / "gate.toml"
    code, text = run("rules", "explain", file, "GATE3 IN")
    assert code == 0
    assert 'format gate: format = "rules:gate" of an input' in text
    assert "field gate: verbatim" in text
    assert "field way: synthetic" in text
    assert "way = entry" in text
    code, text = run("rules", "explain", rules / "r.yml", "--with", rules, "--format", "rules:gate", "GATE3 IN")
    assert (code, "MATCH" in text) == (0, True), text


def test_list(rules: Path) -> None:
    """A format is a row; by it rules of its log source are not dead."""
    config = rules.parent / "vedette.toml"
    source = '[[input]]\ntype = "file"\nname = "i"\npaths = ["/x"]\nformat = "rules:{}"\n[rules]\npaths = ["{}"]\n'
    config.write_text(source.format("gate", rules))
    code, text = run("rules", "list", "--json", "-c", config)
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert {(row["kind"], row["state"]) for row in rows} == {("format", "active"), ("detection", "active")}
    config.write_text(source.format("other", rules))
    assert (code, run("rules", "list", "-c", config)[0]) == (0, 1)


def test_check(rules: Path) -> None:
    """``check`` finds an input whose format no rule set has."""
    config = rules.parent / "vedette.toml"
    source = '[[input]]\ntype = "file"\nname = "i"\npaths = ["/x"]\nformat = "rules:{}"\n[rules]\npaths = ["{}"]\n'
    config.write_text(source.format("gate", rules))
    assert run("check", "-c", config)[0] == 0
    config.write_text(source.format("gates", rules))
    code, text = run("check", "-c", config)
    assert (code, "input i: no rule set has the format 'rules:gates': its events are read as auto" in text) == (1, True)


def test_scan(rules: Path) -> None:
    """``scan --format rules:NAME`` reads files as the rules' format."""
    (rules.parent / "x.log").write_text("GATE3 IN\nGATE3 OUT\n")
    code, text = run("scan", "--rules", rules, "--format", "rules:gate", "--no-cache", rules.parent / "x.log")
    assert (code in (0, 1), '"line":1' in text.replace(" ", ""), '"line":2' in text.replace(" ", "")) == (
        True, True, False,
    )  # fmt: skip
