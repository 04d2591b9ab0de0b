"""Lint: each check finds what it is for, at its place, and nothing in a good rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differences import walk
from vedette.decode.decoder import record
from vedette.engine.prefilter import measured
from vedette.rules import build
from vedette.rules.authoring import lint
from vedette.rules.authoring.lint import Finding, Severity

GOOD = """title: A Good Rule of Tests
id: 929a690e-bef0-4204-a928-ef5e620d6fcc
status: test
description: Says what it finds.
author: Vedette
date: 2025-11-20
tags:
    - attack.execution
    - attack.t1059.004
logsource:
    product: linux
    service: sshd
detection:
    selection:
        message|contains: something rare
    condition: selection
falsepositives:
    - Unknown
level: low
"""


def findings(
    folder: Path, text: str, *, name: str = "a_good_rule.yml", sample: bytes = b"", tested: bool = True
) -> list[Finding]:
    (folder / name).write_text(text)
    if tested:
        (folder / name.replace(".yml", ".test.yml")).write_text("- match: something rare\n")
    rules = build.load([folder])
    plan = build.from_rules(rules, sample=sample)
    literals = frozenset[bytes]().union(*(chosen or frozenset() for chosen in plan.literals))
    return lint.lint([folder], rules, plan, cost=measured(set(literals), sample) if sample else None)


def test_a_good_rule(tmp_path: Path) -> None:
    """No finding."""
    assert findings(tmp_path, GOOD) == []


def test_no_validator_needs_the_network() -> None:
    """Those that load MITRE's lists are left out, all others are in."""
    assert "dangling_detection" in lint.OFFLINE
    assert not [kind for kind in lint.OFFLINE.values() if "ATTACK" in kind.__name__ or "D3FEND" in kind.__name__]


@walk(
    ("old", "new", "check", "line", "says"),
    [
        ("message|contains", "message|bogus", "refused", 15, "Unknown modifier"),
        ("message|contains: something", "message|re: (?=x)", "fallback", 13, "Hyperscan does not take"),
        ("message|contains: something rare", "pid|gt: 5", "cost", 13, "evaluated on every event (pid > 5)"),
        ("condition: selection", "condition: not selection", "cost", 13, "not: message contains"),
        ("message|contains", "mesage|contains", "fields", 13, "no decoder of sshd gives the field 'mesage'"),
        ("service: sshd", "service: nosuch", "logsource", 10, "no decoder detects service = 'nosuch'"),
        ("attack.t1059.004", "attack.t1059004", "attack", 7, "attack.t1059004"),
        ("status: test", "status: deprecated", "retired", 3, "deprecated"),
        ("falsepositives:\n    - Unknown\n", "", "metadata", 1, "falsepositives is missing"),
        ("date: 2025-11-20", "date: tomorrow", "metadata", 6, "tomorrow"),
        ("selection\nfalse", "selection\n    x: {a: b}\nfalse", "DanglingDetection", 17, "not referenced"),
    ],
)  # fmt: skip
def test_checks(old: str, new: str, check: str, line: int, says: str, tmp_path: Path) -> None:
    """One doubtful change gives one finding of its check, at its line."""
    found = [one for one in findings(tmp_path, GOOD.replace(old, new, 1)) if one.check == check]
    assert [(one.line, says in one.message) for one in found[:1]] == [(line, True)], found
    assert str(found[0]).startswith(f"{tmp_path}/a_good_rule.yml:{line}:")


@pytest.mark.parametrize("service", ["asterisk", "cyrus", "dante", "dovecot", "fail2ban", "sendmail"])
def test_who_and_from_where(service: str, tmp_path: Path) -> None:
    """No decoder's row names them, yet the words of a message tell them: they are not unusual."""
    line = f"<38>Nov 20 10:00:00 h {service}[1]: Login failed for user bob from 192.0.2.1 port 5"
    assert record(line.encode(), "auto").get("src_port") == "5"
    text = GOOD.replace("product: linux", "definition: x").replace("sshd", service)
    text = text.replace("message|contains: something rare", "src_port: 5\n        user: bob")
    assert [one for one in findings(tmp_path, text) if one.check == "fields"] == []


def test_missing_and_broken_tests(tmp_path: Path) -> None:
    """A rule without test events is noted; a test file that is none is an error at its line."""
    assert [one.check for one in findings(tmp_path, GOOD, tested=False)] == ["tests"]
    (tmp_path / "a_good_rule.test.yml").write_text("- match: x\n- maybe: y\n")
    (found,) = findings(tmp_path, GOOD, tested=False)
    assert (found.severity, found.check, found.line) == (Severity.ERROR, "tests", 2)
    assert found.path.endswith("a_good_rule.test.yml")


def test_rules_of_the_same_meaning(tmp_path: Path) -> None:
    """Two rules with one digest name each other, whatever they are called."""
    findings(tmp_path, GOOD)
    other = GOOD.replace("A Good", "Another").replace("929a690e", "829a690e").replace("selection", "sel")
    found = [one for one in findings(tmp_path, other, name="another_rule.yml") if one.check == "duplicate"]
    assert [one.path.rpartition("/")[2] for one in found] == ["a_good_rule.yml", "another_rule.yml"]
    assert "A Good Rule" in found[1].message


def test_obsolete_rules_that_run(tmp_path: Path) -> None:
    """A rule that another one here makes obsolete is told at the one that does."""
    findings(tmp_path, GOOD)
    other = GOOD.replace("929a690e", "829a690e").replace("something", "anything").replace("A Good", "New")
    other += "related:\n    - id: 929a690e-bef0-4204-a928-ef5e620d6fcc\n      type: obsolete\n"
    (found,) = [one for one in findings(tmp_path, other, name="new_rule_of_tests.yml") if one.check == "retired"]
    assert found.line == 20


def test_hot_literals_by_a_sample(tmp_path: Path) -> None:
    """With traffic at hand a literal that is in much of it is told, with its share."""
    sample = b"something rare here\nnothing\n" * 100
    (found,) = findings(tmp_path, GOOD, sample=sample)
    assert found.check == "cost"
    assert "50%" in found.message


def test_filters_that_filter_nothing_out(tmp_path: Path) -> None:
    """A filter's condition without a negation keeps what it describes: told, because it is rarely meant."""
    text = GOOD + "---\ntitle: F\nlogsource: {product: linux}\nfilter: {rules: any, s: {user: x}, condition: s}\n"
    (found,) = [one for one in findings(tmp_path, text) if one.check == "filter"]
    assert (found.line, found.severity) == (23, Severity.WARNING)


def test_the_hint_of_a_legacy_condition(tmp_path: Path) -> None:
    """The correlation to write instead comes with the finding."""
    text = GOOD.replace("condition: selection", "condition: selection | count() by src_ip > 5")
    (found,) = [one for one in findings(tmp_path, text) if one.check == "refused"]
    assert "type: event_count" in found.hint


def test_what_is_skipped_and_what_is_no_rule(tmp_path: Path) -> None:
    """A check can be left out; files that are no YAML are errors and nothing else."""
    (tmp_path / "bad.yml").write_text("a: [\n")
    rules = build.load([tmp_path])
    plan = build.from_rules(rules)
    assert [one.check for one in lint.lint([tmp_path], rules, plan)] == ["refused"]
    assert lint.lint([tmp_path], rules, plan, skip=["refused"]) == []


CORRELATION = """---
title: Correlated Things of Tests
id: 829a690e-bef0-4204-a928-ef5e620d6fcc
status: test
description: Says what it finds.
author: Vedette
date: 2025-11-20
tags:
    - attack.execution
    - attack.t1059.004
correlation:
    type: event_count
    rules: [929a690e-bef0-4204-a928-ef5e620d6fcc]
    timespan: 5m
    condition: {gte: 1}
falsepositives:
    - Unknown
level: low
"""
SEQUENCE = "- sequence: [{raw: something rare, at: '2026-11-20T10:00:00Z'}]\n"


def with_tests(folder: Path, text: str, tests: str) -> list[Finding]:
    (folder / "a_good_rule.test.yml").write_text(tests)
    return findings(folder, text, tested=False)


def test_a_sequence_tests_the_rules_below(tmp_path: Path) -> None:
    """A rule that a tested correlation looks at counts as tested, as for ``rules test``; nothing else is found."""
    assert with_tests(tmp_path, GOOD + CORRELATION, SEQUENCE) == []


def test_correlations_without_tests(tmp_path: Path) -> None:
    """Noted at the correlation; test events of its rule do not test it."""
    (found,) = with_tests(tmp_path, GOOD + CORRELATION, "- match: something rare\n")
    assert (found.check, found.line, found.severity) == ("tests", 21, Severity.NOTE)
    assert found.message == "no sequence of test events beside it (NAME.test.yml)"


def test_mistakes_in_sequences(tmp_path: Path) -> None:
    """What ``rules test`` says of a test file, lint says too, at its line."""
    tests = f"{SEQUENCE}- sequence: [{{raw: x}}]\n- rule: Nobody\n  match: x\n"
    found = with_tests(tmp_path, GOOD + CORRELATION, tests)
    assert [(one.severity, one.line) for one in found] == [(Severity.ERROR, 2), (Severity.ERROR, 3)]
    assert "says when it happens" in found[0].message
    assert "nothing in the file has the id or title 'Nobody'" in found[1].message


@pytest.mark.parametrize(
    ("old", "new", "check", "line", "says"),
    [
        ("falsepositives:\n    - Unknown\n", "", "metadata", 21, "falsepositives is missing"),
        ("date: 2025-11-20", "date: tomorrow", "metadata", 26, "tomorrow"),
        ("attack.t1059.004", "attack.t1059004", "attack", 27, "attack.t1059004"),
        ("status: test", "status: deprecated", "retired", 23, "deprecated"),
        ("gte: 1", "bogus: 1", "refused", 34, "no comparison"),
    ],
)
def test_checks_of_correlations(old: str, new: str, check: str, line: int, says: str, tmp_path: Path) -> None:
    """One doubtful change in a correlation gives one finding, at its line."""
    text = GOOD + CORRELATION.replace(old, new, 1)
    found = [one for one in with_tests(tmp_path, text, "- match: something rare\n") if one.check != "tests"]
    assert [(one.check, one.line) for one in found] == [(check, line)], found
    assert says in found[0].message


def test_a_correlation_with_a_range(tmp_path: Path) -> None:
    """Two comparisons, which pySigma does not take, do not end the command."""
    text = GOOD + CORRELATION.replace("gte: 1", "gte: 1, lt: 5", 1)
    assert not [one for one in with_tests(tmp_path, text, "- match: something rare\n") if one.check != "tests"]


def test_correlations_of_the_same_meaning(tmp_path: Path) -> None:
    """Two of one digest name each other."""
    again = CORRELATION.replace("829a690e", "729a690e").replace("Correlated", "Further")
    found = with_tests(tmp_path, GOOD + CORRELATION + again, "- match: something rare\n")
    assert [one.line for one in found if one.check == "duplicate"] == [30, 48]
