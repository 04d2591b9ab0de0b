"""Patterns of the fallback engine in bounds: undecided is no answer, and who keeps failing is asked no more."""

from __future__ import annotations

import time

import pytest

from vedette.api import compile_rules
from vedette.decode.decoder import Record, from_mapping
from vedette.engine import fallback
from vedette.engine.match import Engine, UndecidedEvent
from vedette.model.event import Chunk
from vedette.plan import timepart

RULES = """title: slow
logsource: {product: x}
detection: {s: {f|re: '(?=a)(a|aa)+$'}, condition: s}
---
title: quick
logsource: {product: x}
detection: {s: {f|startswith: aaa}, condition: s}
"""
HARD = b'{"f": "%s!"}\n' % (b"a" * 60)


def engine_of(text: str = RULES, after: int = 3) -> Engine:
    plan = compile_rules(text=text)
    assert not plan.refused
    return Engine(plan, route=False, quarantine_after=after)


def judged(engine: Engine, data: bytes) -> list[int]:
    return [match.rule for match in engine.evaluate(Chunk("test", "json", 0, data))]


def test_look_around_and_back_references_run() -> None:
    """Rules with what Hyperscan lacks compile and match, by every flag."""
    for item, good, bad in [
        ("f|re: '(?<!x)evil'", "an evil", "xevil"),
        (r"f|re: '(\w)\1z'", "aaz", "abz"),
        ("f|re|i: '^(?!ok)[a-z]+$'", "EVIL", "OK"),
        ("f|re|m|s: '(?=a)a.b$'", "x\na\nb", "ab"),
        ("f|re: 'a++b'", "aab", "b"),
    ]:
        text = f"title: t\nlogsource: {{product: x}}\ndetection:\n  s:\n    {item}\n  condition: s\n"
        engine = engine_of(text)
        assert engine.true(from_mapping({"f": good})) == [0], item
        assert engine.true(from_mapping({"f": bad})) == [], item


def test_undecided_events_are_set_aside() -> None:
    """Each with its place in the chunk and the reason; the other rules are decided."""
    engine = engine_of()
    data = b'{"f": "aaa"}\n' + HARD
    assert judged(engine, data) == [0, 1, 1]
    (aside,) = engine.undecided_events()
    assert aside == UndecidedEvent(0, 13, len(data) - 1, aside.reason)
    assert "longer than" in aside.reason
    assert engine.undecided_events() == []


def test_a_rule_that_goes_on_failing_is_asked_no_more() -> None:
    """After so many undecided events; what it is not asked on is counted; the others run on."""
    engine = engine_of(after=2)
    assert judged(engine, HARD * 50) == [1] * 50
    assert engine.quarantined == {0}
    assert engine.tally.undecided == {0: 2}
    assert engine.tally.skipped == {0: 48}
    assert len(engine.undecided_events()) == 2
    assert judged(engine, b'{"f": "aaa"}\n') == [1]


def test_quarantine_outlives_a_plan() -> None:
    """A rule of the same meaning stays in quarantine under the next plan, a changed one does not."""
    engine = engine_of(after=1)
    judged(engine, HARD)
    digests = {engine.plan.rules[i].digest for i in engine.quarantined}
    same, changed = engine_of(RULES.replace("title: slow", "title: other")), engine_of(RULES.replace("aa)+", "aaa)+"))
    same.quarantine(digests)
    changed.quarantine(digests)
    assert (same.quarantined, changed.quarantined) == ({0}, frozenset())


def test_the_time_of_one_event_is_bounded() -> None:
    """Many slow patterns on one event share its time; the next event has its own."""
    rules = "---\n".join(RULES.split("---")[0].replace("(?=a)", f"(?=a)(?!{i})") + "\n" for i in range(30))
    engine = engine_of(rules, after=100)
    began = time.thread_time()
    judged(engine, HARD)
    assert time.thread_time() - began < 2 * fallback.EVENT_TIMEOUT + 0.5
    assert len(engine.tally.undecided) == 30
    assert judged(engine, b'{"f": "aaa"}\n') == list(range(30))


def test_slow_rules_take_no_fast_one_with_them() -> None:
    """When slow patterns have used up an event's time a fast one is decided all the same, and stays in force."""
    slow = "---\n".join(RULES.split("---")[0].replace("(?=a)", f"(?=a)(?!{i})") + "\n" for i in range(6))
    engine = engine_of(slow + "---\n" + RULES.split("---")[0].replace("(?=a)(a|aa)+$", "a(?!b)"))
    for _ in range(4):
        assert judged(engine, HARD) == [6]
    assert engine.quarantined == set(range(6))


def test_the_time_of_many_values_is_bounded() -> None:
    """Values at each of which a pattern takes less than it may take no more time together than one event has."""
    values = b",".join(b'"%s!%d"' % (b"a" * 10, i) for i in range(40_000))
    engine, began = engine_of(), time.thread_time()
    judged(engine, b'{"f": [%s]}\n' % values)
    assert time.thread_time() - began < 2


def test_a_rule_that_raises_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect under one rule takes that rule, and no other."""

    def failing(text: str, unit: str) -> int:
        raise LookupError("defect")

    monkeypatch.setattr(timepart, "part", failing)
    text = RULES.replace("f|re: '(?=a)(a|aa)+$'", "f|hour: 5").replace("f|startswith", "g|startswith")
    engine = engine_of(text, after=2)
    assert judged(engine, b'{"f": "aaa", "g": "aaa"}\n' * 3) == [1, 1, 1]
    assert engine.quarantined == {0}
    assert "LookupError: defect" in engine.tally.reasons[0]


def test_what_a_decoder_raises_is_no_fault_of_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised to the caller, who sets the event aside; no rule goes into quarantine for it."""

    def failing(self: Record, field: str) -> object:
        raise LookupError("defect")

    monkeypatch.setattr(Record, "get", failing)
    engine = engine_of(after=1)
    with pytest.raises(LookupError, match="defect"):
        judged(engine, b'{"f": "aaa"}\n')
    assert not engine.quarantined
