"""The fast paths against the naive one: prefilter on, prefilter off and ``tests/reference.py`` give the same matches.

``VEDETTE_DEEP=1`` draws 20,000 examples for each of the eight claims (each of several rules and events) instead of
some dozens, 160,000 in all: some three hours of CPU time.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from unittest import mock

import hypothesis.strategies as st
import yaml
from hypothesis import given, note

from tests import reference
from tests.deep import examples
from tests.engine import drawn
from vedette.decode.decoder import CODECS, possible_source, record
from vedette.decode.formats.base import union
from vedette.engine import group, prefilter
from vedette.engine.match import Context, Engine
from vedette.model.event import Chunk, LogSource
from vedette.plan import plan as plans
from vedette.plan.database import refused
from vedette.plan.ir import ANY, KEYWORDS, STAR, Expr, Leaf, Op, Predicate, Rule, fold, leaves, text
from vedette.plan.literals import windows
from vedette.plan.patterns import End, fallback, search
from vedette.plan.plan import Plan
from vedette.rules import build


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


def matches_of(
    engine: Engine, batch: Iterable[tuple[Chunk, list[int]]], context: Context = Context()
) -> set[tuple[int, int]]:
    """(event, rule) of every match; each match once, those of one event together and in order."""
    result: list[tuple[int, int]] = []
    for chunk, numbers in batch:
        spans, matches = list(chunk.spans()), []
        for m in engine.evaluate(chunk, context):
            number = chunk.index(m.start)
            assert spans[number] == (m.start, m.end)
            matches.append((number, m.rule))
        runs = [(event, [rule for _, rule in run]) for event, run in groupby(matches, key=itemgetter(0))]
        assert len({event for event, _ in runs}) == len(runs)
        assert all(run == sorted(run) for _, run in runs)
        result.extend((numbers[event], rule) for event, rule in matches)
    assert len(result) == len(set(result))
    return set(result)


def agree(plan: Plan, events: list[drawn.Drawn], *, ends: bool = False, reloaded: bool = False) -> set[tuple[int, int]]:
    """The matches of ``plan``, the same four (or five) ways."""
    events = [event._replace(raw=event.raw.replace(drawn.SERIAL, b"%d" % i)) for i, event in enumerate(events)]
    expected = {
        (number, rule)
        for number, event in enumerate(events)
        for rule in reference.matches(plan, record(event.raw, event.codec, origin=event.origin))
    }
    batch = chunks(events, ends)
    on, off = Engine(plan, route=False), Engine(plan, route=False, prefilter=False)
    assert matches_of(off, batch) == expected
    assert matches_of(on, batch) == expected
    with mock.patch.object(prefilter, "Lines", None):
        assert matches_of(Engine(plan, on.databases(), route=False), batch) == expected
    assert not on.tally.undecided
    if reloaded:
        again = Plan.from_bytes(plan.to_bytes())
        assert again == plan
        assert matches_of(Engine(again, on.databases(), route=False), batch) == expected
    return expected


def rule(number: int, expr: Expr) -> Rule:
    return Rule(str(number), f"rule {number}", "low", (), LogSource(), (), expr, str(number), "f.yml", 1)


@examples(50)
@given(data=st.data())
def test_prefilter_on_off_and_reference_agree_on_random_plans(data: st.DataObject) -> None:
    """Any predicates under any expression over any codec's events: one answer, however it is found."""
    fragments = data.draw(drawn.FRAGMENTS)
    predicates = data.draw(st.lists(drawn.predicate(fragments), min_size=1, max_size=6, unique=True))
    exprs = data.draw(st.lists(drawn.exprs(len(predicates)), min_size=1, max_size=5))
    rules = [rule(i, expr) for i, expr in enumerate(exprs)]
    salt = data.draw(st.integers(0, 3)).to_bytes(1, "big")
    plan = plans.build(rules, predicates, cost=Salted(salt))
    events = data.draw(st.lists(drawn.event(fragments), min_size=1, max_size=6))
    with mock.patch.object(group, "SCAN_FROM", data.draw(st.sampled_from([1, 8, 1000]))):
        matches = agree(plan, events, ends=data.draw(st.booleans()), reloaded=data.draw(st.booleans()))
    note(f"{len(matches)} matches")


class Salted:
    """A cost that makes any clause, and any window of a long literal, the one that is taken."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt

    def __call__(self, literal: bytes) -> float:
        return zlib.crc32(self._salt + literal) / 2**32

    def cut(self, literals: Iterable[bytes]) -> dict[bytes, bytes]:
        return {whole: min(parts, key=self) for whole in literals if (parts := windows(whole))}


def scalars(value: object) -> list[object]:
    return [leaf for leaf in leaves(value) if text(leaf) is not None]


@st.composite
def cut_from(draw: st.DrawFn, event: drawn.Drawn) -> Predicate | None:
    """A predicate that holds for ``event``, made of one of its own values; None when it has none."""
    decoded = record(event.raw, event.codec, origin=event.origin)
    values = [(name, leaf) for name, value in decoded.fields().items() for leaf in scalars(value)]
    values += [(KEYWORDS, item) for item in decoded.keywords()]
    if not values or drawn.SERIAL in event.raw:  # which the batch replaces
        return None
    name, value = draw(st.sampled_from(values))
    own = str(text(value))
    cased = draw(st.booleans())
    if not cased:
        own = fold(own)
    start = draw(st.integers(0, len(own)))
    stop = draw(st.integers(start, len(own)))
    part = own[start:stop]
    match draw(st.integers(0, 7)):
        case 7 if name != KEYWORDS:
            return Predicate(name, Op.EXISTS)
        case 0 if name != KEYWORDS:
            return Predicate(name, Op.EXACT, own, cased)
        case 1 if name != KEYWORDS:
            return Predicate(name, Op.PREFIX, own[:stop], cased)
        case 2 if name != KEYWORDS:
            return Predicate(name, Op.SUFFIX, own[start:], cased)
        case 3:
            middle = draw(st.integers(start, stop))
            parts = (STAR, own[start:middle], ANY, own[middle + 1 : stop], STAR) if middle < stop else (STAR,)
            return Predicate(name, Op.GLOB, tuple(p for p in parts if p), cased)
        case 4 if cased:
            pattern = re.escape(part).replace("\0", r"\x00")
            return Predicate(name, Op.REGEX, pattern, True, draw(st.sampled_from(["", "i"])))
        case 5 if isinstance(value, int | float) and not isinstance(value, bool):
            return Predicate(name, Op.NUMBER, value)
    return Predicate(name, Op.CONTAINS, part, cased)


@examples(50)
@given(data=st.data())
def test_a_rule_made_of_an_events_own_values_finds_it(data: st.DataObject) -> None:
    """What is in a decoded value is found through the prefilter, whatever the codec's bytes look like."""
    fragments = data.draw(drawn.FRAGMENTS)
    events = data.draw(st.lists(drawn.event(fragments), min_size=1, max_size=4))
    predicates: list[Predicate] = []
    for event in events:
        made = data.draw(st.lists(cut_from(event), max_size=4))
        predicates += [predicate for predicate in made if predicate is not None and predicate not in predicates]
    if not predicates:
        return
    rules = [rule(i, Leaf(i)) for i in range(len(predicates))]
    salt = data.draw(st.integers(0, 3)).to_bytes(1, "big")
    plan = plans.build(rules, predicates, cost=Salted(salt))
    matches = agree(plan, events, ends=data.draw(st.booleans()))
    assert {number for _, number in matches} == set(range(len(predicates)))


DIGITS = st.text("0123456789", min_size=1, max_size=20)
NUMBER_TEXTS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    DIGITS.map(lambda digits: digits.lstrip("0") or "0"),
    st.one_of(st.just(""), DIGITS.map(".{}".format)),
    st.one_of(st.just(""), st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), DIGITS)),
).filter(lambda number: len(number.lower().partition("e")[2]) < 4)


@examples(40)
@given(number=st.one_of(NUMBER_TEXTS, st.sampled_from(drawn.NUMBERS)), data=st.data())
def test_numbers_are_found_as_python_prints_them(number: str, data: st.DataObject) -> None:
    """Any way to write a number in JSON: rules cut from its printed form find it through the prefilter."""
    event = drawn.Drawn("json", f'{{"a": {number}}}'.encode(), "")
    made = data.draw(st.lists(cut_from(event), min_size=3, max_size=8))
    predicates = list(dict.fromkeys(predicate for predicate in made if predicate is not None))
    plan = plans.build([rule(i, Leaf(i)) for i in range(len(predicates))], predicates)
    assert len(agree(plan, [event])) == len(predicates)


ALPHABETS = st.sampled_from(["ab/", 'ab"', "ab\\", "ab]", "abs", "abk", "ab'<#", "abAB", "ab\u017f\u212a/\\"])
WORDS = ALPHABETS.flatmap(lambda alphabet: st.text(alphabet, min_size=3, max_size=7))
"""Texts with few traps in each: one trap's guard must not hide that another's is missing."""


@examples(40)
@given(texts=st.lists(WORDS, min_size=1, max_size=3), data=st.data())
def test_escaped_texts_are_found(texts: list[str], data: st.DataObject) -> None:
    """However JSON or structured data write a text, and in whatever case, a search for it finds it."""
    predicates, events = [], []
    for own in texts:
        shown = data.draw(drawn.variant(own))
        if data.draw(st.booleans()):
            events.append(drawn.Drawn("json", f'{{"a": {data.draw(drawn.json_string(shown))}}}'.encode(), ""))
            name = data.draw(st.sampled_from(["a", KEYWORDS]))
        else:
            events.append(drawn.Drawn("syslog", drawn.structured(shown, "x").encode(), ""))
            name = data.draw(st.sampled_from(["s@1.p", KEYWORDS]))
        start = data.draw(st.integers(0, len(own) - 3))
        predicates.append(Predicate(name, Op.CONTAINS, fold(own)[start : data.draw(st.integers(start + 3, len(own)))]))
    predicates = list(dict.fromkeys(predicates))
    plan = plans.build([rule(i, Leaf(i)) for i in range(len(predicates))], predicates)
    assert {number for _, number in agree(plan, events)} == set(range(len(predicates)))


_TOKENS = (
    *((r"[^[:space:]]", "x"), ("[[:digit:]]", "5"), ("[a[:digit:]]", "7"), ("[^a]", "\u00e9"), ("[]x]", "]")),
    *((r"\d", "5"), (r"\w", "k"), (r"\s", " "), (".", "\u212a"), ("^", ""), ("$", ""), (r"\b", ""), (r"\\", "\\")),
    *((r"\.", "."), (r"\/", "/"), ("/", "/"), (r"\x41", "A"), ("k", "k"), ("pa", "pa")),
    *(("]", "]"), ("a{,2}", "a{,2}"), ("{", "{"), ("}", "}"), (r"\x{17f}", "\u017f"), (r"\u0041", "u0041")),
)


_WORD_TOKENS = (
    *(
        ("passw", "passw"),
        ("ord]", "ord]"),
        ("key", "key"),
        ("a/b/", "a/b/"),
        ("(?:foo|bar)", "bar"),
        ("ab?c+d", "accd"),
    ),
    *(("[^[:space:]]passw", "xpassw"), ("[a[:digit:]]key", "7key"), ("[[:alpha:]]ord", "aord")),
)


@st.composite
def regex_and_text(draw: st.DrawFn, depth: int = 0) -> tuple[str, str]:
    """A regular expression, and a text that it describes but for its anchors."""
    kind = draw(st.integers(0, 9 if depth < 3 else 4))
    if kind <= 2:
        return draw(st.sampled_from(_WORD_TOKENS))
    if kind <= 4:
        return draw(st.sampled_from(_TOKENS))
    inner = st.deferred(lambda: regex_and_text(depth + 1))
    pattern, own = draw(inner)
    if kind == 5:
        other, other_text = draw(inner)
        return draw(st.sampled_from([(f"(?:{pattern}|{other})", own), (f"({pattern}|{other})", other_text)]))
    if kind == 6:
        repeats, times = draw(
            st.sampled_from(
                [("*", 0), ("?", 0), ("{0,2}", 0), ("+", 1), ("{1,2}", 2), ("{2}", 2), ("*?", 1), ("{2,}", 3)]
            )
        )
        return f"(?:{pattern}){repeats}", own * times
    for _ in range(2):
        more, more_text = draw(inner)
        pattern, own = pattern + more, own + more_text
    return pattern, own


def readable(predicate: Predicate) -> bool:
    """False for a pattern that needs the second engine and that this engine cannot read."""
    try:
        if search(predicate).end is End.PERHAPS:
            fallback(str(predicate.value), predicate.option)
    except ValueError:
        return False
    return True


@examples(30)
@given(drawn_regexes=st.lists(regex_and_text(), min_size=1, max_size=4), data=st.data())
def test_literals_of_a_regex_are_in_what_it_matches(drawn_regexes: list[tuple[str, str]], data: st.DataObject) -> None:
    """Regexes with everything in them that Python and PCRE read differently: the prefilter drops no match."""
    predicates = []
    for pattern, _ in drawn_regexes:
        flags = data.draw(st.sampled_from(["", "i", "m", "s"]))
        predicate = Predicate("message", Op.REGEX, pattern, True, flags)
        if not refused([search(predicate).pattern]) and readable(predicate):
            predicates.append(predicate)
    predicates = list(dict.fromkeys(predicates))
    plan = plans.build([rule(i, Leaf(i)) for i in range(len(predicates))], predicates)
    events = [drawn.Drawn("text", (own or "x").encode(), "") for _, own in drawn_regexes]
    batch = chunks(events, False)
    expected = matches_of(Engine(plan, route=False, prefilter=False), batch)
    assert matches_of(Engine(plan, route=False), batch) == expected


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


@examples(25)
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
    rules = build.read(yaml.safe_dump_all(documents, allow_unicode=data.draw(st.booleans())))
    assert len(rules.rules) + len(rules.refused) == len(documents)
    plan = plans.build(rules.rules, rules.predicates, rules.refused)
    events = data.draw(st.lists(drawn.event(fragments), min_size=1, max_size=5))
    agree(plan, events, ends=data.draw(st.booleans()), reloaded=data.draw(st.booleans()))


PARTS = [sorted(part) for part in union(*(possible_source(codec, LogSource()) for codec in CODECS))]
LOG_SOURCES = st.builds(LogSource, *(st.sampled_from(["", "", "other", *values]) for values in PARTS))


@examples(30)
@given(data=st.data())
def test_routing_before_the_scan_loses_nothing(data: st.DataObject) -> None:
    """Rules of any log source over any input's events: the same matches with the prefilter on and off."""
    fragments = data.draw(drawn.FRAGMENTS)
    predicates = data.draw(st.lists(drawn.predicate(fragments), min_size=1, max_size=4, unique=True))
    predicates.append(Predicate("nothing", Op.NULL))
    events = data.draw(st.lists(drawn.event(fragments), min_size=1, max_size=5))
    events = [event._replace(raw=event.raw.replace(drawn.SERIAL, b"%d" % i)) for i, event in enumerate(events)]
    own = data.draw(st.one_of(st.just(LogSource()), LOG_SOURCES))
    sources = [record(event.raw, event.codec, origin=event.origin, logsource=own).source for event in events]
    rules = []
    for i, expr in enumerate(data.draw(st.lists(drawn.exprs(len(predicates)), min_size=1, max_size=6))):
        source = data.draw(st.sampled_from(sources))  # often a rule fits an event
        near = LogSource(*(data.draw(st.sampled_from(["", *sorted(part)])) for part in source))
        rules.append(replace(rule(i, expr), logsource=near if data.draw(st.booleans()) else data.draw(LOG_SOURCES)))
    plan = plans.build(rules, predicates)
    batch, context = chunks(events, data.draw(st.booleans())), Context(None, own)
    off = matches_of(Engine(plan, prefilter=False), batch, context)
    on = Engine(plan)
    assert matches_of(on, batch, context) == off
    assert off == {
        (number, i)
        for number, event in enumerate(events)
        for i in reference.matches(plan, record(event.raw, event.codec, origin=event.origin))
        if rules[i].logsource.fits(sources[number])
    }


@examples(150)
@given(st.text(drawn.CHARS))
def test_fold_is_per_character(text: str) -> None:
    """Folding a text is folding its characters; folding twice changes nothing."""
    assert fold(text) == "".join(map(fold, text))
    assert fold(fold(text)) == fold(text)
    assert len(fold(text)) == len(text)
