"""Test events beside rules: forms, mistakes with their lines, and what running them tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differences import walk
from vedette.engine.match import Engine
from vedette.rules.authoring import cases
from vedette.rules.build import build
from vedette.rules.selftest import Case, check

RULE = """title: t
id: 929a690e-bef0-4204-a928-ef5e620d6fcc
logsource: {product: linux}
detection: {s: {temp|gt: 90}, condition: s}
"""
ID = "929a690e-bef0-4204-a928-ef5e620d6fcc"


def write(folder: Path, tests: str, name: str = "rule") -> tuple[list[Case], list[str]]:
    (folder / f"{name}.yml").write_text(RULE)
    (folder / f"{name}.test.yml").write_text(tests)
    return cases.load(build([folder]))


def test_the_forms_of_a_case(tmp_path: Path) -> None:
    """Raw lines, structured events and MQTT messages, each with the codec that fits unless one is given."""
    found, mistakes = write(
        tmp_path,
        """- match: '{"temp": 99}'
- no_match: a line
- match: {event: {temp: 99}}
- match: {raw: '{"temp": 99}', topic: plant/1}
- match: {raw: '{"temp": 99}', codec: json}
- no_match: {event: {temp: 1}, codec: syslog}
""",
    )
    assert not mistakes
    where = str(tmp_path / "rule.test.yml")
    assert found == [
        Case(ID, True, b'{"temp": 99}', "auto", "", f"{where}:1"),
        Case(ID, False, b"a line", "auto", "", f"{where}:2"),
        Case(ID, True, b'{"temp":99}', "json", "", f"{where}:3"),
        Case(ID, True, b'{"temp": 99}', "mqtt", "plant/1", f"{where}:4"),
        Case(ID, True, b'{"temp": 99}', "json", "", f"{where}:5"),
        Case(ID, False, b'{"temp":1}', "syslog", "", f"{where}:6"),
    ]
    assert [Case(*case.to_row()) for case in found] == found
    assert check(Engine(build([tmp_path])), found) == []


@walk(
    ("item", "says"),
    [
        ("- maybe: x", "expects one of"),
        ("- {match: x, no_match: y}", "expects one of"),
        ("- text", "expects one of"),
        ("- match: 5", "expects a raw line"),
        ("- match: {raw: x, event: {a: 1}}", "expects a raw line"),
        ("- match: {codec: json}", "expects a raw line"),
        ("- match: {raw: x, other: y}", "expects a raw line"),
        ("- match: {raw: x, codec: xml}", "codec 'xml' is not one of"),
        ("- match: {event: {a: 99999999999999999999999}}", "64-bit"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, item: str, says: str) -> None:
    """A wrong item is told where it is; the others are taken."""
    found, mistakes = write(tmp_path, f"- match: good\n{item}\n")
    assert len(found) == 1
    (mistake,) = mistakes
    assert says in mistake
    assert f"{tmp_path / 'rule.test.yml'}:2: " in mistake


@pytest.mark.parametrize("text", ["match: x", "5", "", "- [", "\0"])
def test_files_that_are_no_list(tmp_path: Path, text: str) -> None:
    """A file of another form is one mistake."""
    found, mistakes = write(tmp_path, text)
    assert not found
    assert len(mistakes) == 1


def test_dots_in_a_rules_name(tmp_path: Path) -> None:
    """NAME.test.yml goes with NAME.yml also where NAME has dots in it."""
    found, mistakes = write(tmp_path, "- match: x\n", "proc.v2")
    assert (len(found), mistakes) == (1, [])


def test_a_rule_without_cases(tmp_path: Path) -> None:
    """It is no mistake of the loader: ``rules test`` says it."""
    (tmp_path / "rule.yml").write_text(RULE)
    assert cases.load(build([tmp_path])) == ([], [])


def test_what_failures_say(tmp_path: Path) -> None:
    """Both ways to fail, and a rule that does not run, with the case's place."""
    found, _ = write(tmp_path, "- match: nothing\n- no_match: {event: {temp: 99}}\n")
    engine = Engine(build([tmp_path]))
    failures = check(engine, [*found, found[0]._replace(rule_id="gone")])
    assert [failure.reason for failure in failures] == [
        "should match and does not",
        "should not match and does",
        "the rule gone does not run",
    ]
    assert str(failures[0]) == f"{tmp_path / 'rule.test.yml'}:1: should match and does not: nothing"


CORRELATION = f"""title: c
id: 829a690e-bef0-4204-a928-ef5e620d6fcc
correlation: {{type: event_count, rules: [{ID}], timespan: 5m, condition: {{gte: 1}}}}
"""


@pytest.mark.parametrize(
    ("tests", "says"),
    [
        ("- match: x\n", ":1: expects 'sequence'"),
        ("- rule: d\n  sequence: [{raw: x, at: '2026-11-20T10:00:00Z'}]\n", ":1: rule: nothing in the file"),
        ("- sequence: []\n", ":1: sequence: expects a list"),
        ("a: b\n", ":1: expects a list"),
        ("- [\n", ":2: not valid YAML"),
    ],
)
def test_files_beside_correlations_alone(tmp_path: Path, tests: str, says: str) -> None:
    """Mistakes in them are told, though no detection is in the rule file."""
    (tmp_path / "rule.yml").write_text(RULE)
    (tmp_path / "c.yml").write_text(CORRELATION)
    (tmp_path / "c.test.yml").write_text(tests)
    found, (mistake,) = cases.sequences(build([tmp_path]))
    assert (found, mistake.startswith(f"{tmp_path}/c.test.yml{says}")) == ([], True), mistake


def test_both_endings(tmp_path: Path) -> None:
    """``NAME.test.yaml`` is a test file as ``NAME.test.yml`` is."""
    (tmp_path / "rule.yaml").write_text(RULE)
    (tmp_path / "rule.test.yaml").write_text("- no_match: x\n")
    assert len(cases.load(build([tmp_path]))[0]) == 1
    assert [cases.is_test(tmp_path / name) for name in ("rule.yaml", "rule.test.yaml", "test.yml")] == [
        False, True, False,
    ]  # fmt: skip


def test_a_rule_that_is_refused_is_known(tmp_path: Path) -> None:
    """Events about it are no further mistake: the refusal is told already."""
    (tmp_path / "rule.yml").write_text(RULE + "---\ntitle: broken\n")
    (tmp_path / "rule.test.yml").write_text("- rule: broken\n  match: x\n")
    assert cases.sequences(build([tmp_path])) == ([], [])
