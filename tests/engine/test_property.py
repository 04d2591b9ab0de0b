"""The fast paths against the naive one: prefilter on, prefilter off and ``tests/reference.py`` give the same matches.

``VEDETTE_DEEP=1`` draws 100,000 examples (each several rules and events) instead of a few hundred.
"""

from __future__ import annotations

import os
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable
from unittest import mock

import hypothesis.strategies as st
import yaml
from hypothesis import HealthCheck, given, note, settings

from tests import reference
from tests.engine import drawn
from vedette.compiler import plan as plans
from vedette.compiler import sigma
from vedette.compiler.ir import Rule, fold
from vedette.compiler.plan import Plan
from vedette.engine import evaluate
from vedette.engine.match import Engine
from vedette.event import Chunk, LogSource
from vedette.inputs.decode import record

DEEP = os.environ.get("VEDETTE_DEEP") == "1"


def cases(default: int) -> settings:
    return settings(
        max_examples=100_000 if DEEP else default,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )


def chunks(events: Iterable[drawn.Drawn], ends_wanted: bool) -> list[tuple[Chunk, list[int]]]:
    """One chunk per codec and way of delimiting; with the numbers of the events in it."""
    sorted_out: dict[tuple[str, bool], list[int]] = defaultdict(list)
    events = list(events)
    for number, event in enumerate(events):
        lines = b"\n" not in event.raw and not ends_wanted
        sorted_out[event.codec, lines].append(number)
    made = []
    for (codec, lines), numbers in sorted_out.items():
        origins = tuple(dict.fromkeys(events[n].origin for n in numbers))
        origin_of = array("H", [origins.index(events[n].origin) for n in numbers])
        data, ends = b"", array("I")
        for number in numbers:
            data += events[number].raw + (b"\n" if lines else b"")
            ends.append(len(data))
        chunk = Chunk("test", codec, 0, data, None if lines else ends, origins, origin_of)
        made.append((chunk, numbers))
    return made


def found(engine: Engine, batch: Iterable[tuple[Chunk, list[int]]]) -> set[tuple[int, int]]:
    """(event, rule) of every match; each match once and in order."""
    result: list[tuple[int, int]] = []
    for chunk, numbers in batch:
        spans, matches = list(chunk.spans()), []
        for m in engine.judge(chunk):
            number = chunk.index(m.start)
            assert spans[number] == (m.start, m.end)
            matches.append((number, m.rule))
        assert matches == sorted(matches)
        result.extend((numbers[event], rule) for event, rule in matches)
    assert len(result) == len(set(result))
    return set(result)


def agree(plan: Plan, events: list[drawn.Drawn], *, ends: bool = False, reloaded: bool = False) -> set[tuple[int, int]]:
    """The matches of ``plan``, the same three (or four) ways."""
    events = [event._replace(raw=event.raw.replace(drawn.SERIAL, b"%d" % i)) for i, event in enumerate(events)]
    expected = {
        (number, rule)
        for number, event in enumerate(events)
        for rule in reference.matches(plan, record(event.raw, event.codec, origin=event.origin))
    }
    batch = chunks(events, ends)
    on, off = Engine(plan, route=False), Engine(plan, route=False, prefilter=False)
    assert found(off, batch) == expected
    assert found(on, batch) == expected
    assert not on.tally.undecided
    if reloaded:
        again = Plan.from_bytes(plan.to_bytes())
        assert again == plan
        assert found(Engine(again, on.databases(), route=False), batch) == expected
    return expected


def rule(number: int, expr: object, predicates: list[object]) -> Rule:
    return Rule(str(number), f"rule {number}", "low", (), LogSource(), (), expr, str(number), "f.yml", 1)  # type: ignore[arg-type]


@cases(3000)
@given(data=st.data())
def test_prefilter_on_off_and_reference_agree_on_random_plans(data: st.DataObject) -> None:
    """Any predicates under any expression over any codec's events: one answer, however it is found."""
    fragments = data.draw(drawn.FRAGMENTS)
    predicates = data.draw(st.lists(drawn.predicate(fragments), min_size=1, max_size=6, unique=True))
    rules = [
        rule(i, expr, predicates)  # type: ignore[arg-type]
        for i, expr in enumerate(data.draw(st.lists(drawn.exprs(len(predicates)), min_size=1, max_size=5)))
    ]
    salt = data.draw(st.integers(0, 3)).to_bytes(1, "big")
    plan = plans.build(rules, predicates, cost=lambda literal: zlib.crc32(salt + literal) / 2**32)
    events = data.draw(st.lists(drawn.event(fragments), min_size=1, max_size=6))
    with mock.patch.object(evaluate, "SCAN_FROM", data.draw(st.sampled_from([1, 8, 1000]))):
        matches = agree(plan, events, ends=data.draw(st.booleans()), reloaded=data.draw(st.booleans()))
    note(f"{len(matches)} matches")


_MODIFIERS = (
    *("", "|contains", "|startswith", "|endswith", "|contains|all", "|cased", "|contains|cased", "|windash|contains"),
    *("|base64", "|base64offset|contains", "|wide|base64offset|contains", "|neq", "|contains|neq", "|utf16|base64"),
    *("|utf16be", "|wide", "|startswith|cased", "|endswith|cased"),
)


@st.composite
def detection(draw: st.DrawFn, fragments: list[str]) -> dict[str, object]:
    text = drawn.rule_text(fragments).flatmap(lambda value: st.sampled_from([value, value + "*", "?" + value, value]))
    scalar = st.one_of(text, text, st.sampled_from([0, 15, 4720, 0.5, True, False, None]))
    made: dict[str, object] = {}
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(drawn.FIELDS))
        modifier = draw(st.sampled_from(_MODIFIERS))
        value = scalar if modifier in ("", "|neq") else text
        made[name + modifier] = draw(st.one_of(value, st.lists(value, min_size=1, max_size=3)))
    return made


@cases(1500)
@given(data=st.data())
def test_sigma_rules_mean_the_same_on_every_path(data: st.DataObject) -> None:
    """Rules written as YAML: parsed, compiled, dumped and loaded, they match what the reference says."""
    fragments = data.draw(drawn.FRAGMENTS.filter(lambda items: not any("\0" in item for item in items)))
    documents = []
    for i in range(data.draw(st.integers(1, 3))):
        block = detection(fragments)
        words = st.lists(drawn.rule_text(fragments), min_size=1, max_size=3)
        documents.append(
            {
                "title": f"rule {i}",
                "logsource": {"product": "any"},
                "detection": {
                    "one": data.draw(st.one_of(block, st.lists(block, min_size=1, max_size=2), words)),
                    "two": data.draw(block),
                    "condition": data.draw(
                        st.sampled_from(
                            ["one", "one and two", "one or two", "one and not two", "not one", "1 of *", "all of them"]
                        )
                    ),
                },
            }
        )
    rules = sigma.RuleSet()
    sigma.add(rules, yaml.safe_dump_all(documents, allow_unicode=data.draw(st.booleans())))
    assert len(rules.rules) + len(rules.refused) == len(documents)
    plan = plans.build(rules.rules, rules.predicates, rules.refused)
    events = data.draw(st.lists(drawn.event(fragments), min_size=1, max_size=5))
    agree(plan, events, ends=data.draw(st.booleans()), reloaded=data.draw(st.booleans()))


@settings(max_examples=20_000 if DEEP else 300, deadline=None)
@given(st.text(drawn.CHARS))
def test_fold_is_per_character(text: str) -> None:
    """Folding a text is folding its characters; folding twice changes nothing."""
    assert fold(text) == "".join(map(fold, text))
    assert fold(fold(text)) == fold(text)
    assert len(fold(text)) == len(text)
