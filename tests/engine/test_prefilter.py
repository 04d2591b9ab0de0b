"""The chunk scan: which events it names, in both ways of delimiting, and where it gives up; by the kernel and without.

Each test runs on both paths; ``test_both_paths_name_the_same`` compares them with each other and with a naive search.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.deep import examples
from tests.differences import walk
from tests.engine.test_property import rule
from vedette.engine import prefilter
from vedette.engine.match import Engine
from vedette.engine.prefilter import Candidate, Lines, Prefilter, measured, tolerant
from vedette.model.event import Chunk
from vedette.plan.database import MODULE, Pattern, Scanner
from vedette.plan.ir import And, Leaf, Not, Op, Predicate
from vedette.plan.literals import (
    FOREIGN_GUARDS,
    NUMBER_GUARDS,
    Literals,
    folded,
    is_foreign,
    is_numeric,
    unescaped,
)
from vedette.plan.plan import Plan, build


@pytest.fixture(autouse=True, params=["kernel", "plain"])
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which of the two a prefilter scans by."""
    if request.param == "kernel" and Lines is None:
        pytest.skip("the kernel is not built")
    with mock.patch.object(prefilter, "Lines", Lines if request.param == "kernel" else None):
        yield request.param


def plan_of(*texts: str | None) -> Plan:
    """A rule per text: ``f`` contains it; None: a rule that is always a candidate."""
    predicates = [Predicate("message", Op.CONTAINS if text else Op.EXISTS, text) for text in texts]
    return build([rule(i, Leaf(i)) for i in range(len(texts))], predicates)


def lines(*events: bytes) -> Chunk:
    return Chunk("in", "text", 0, b"".join(event + b"\n" for event in events))


def datagrams(*events: bytes) -> Chunk:
    ends, end = array("I"), 0
    for event in events:
        ends.append(end := end + len(event))
    return Chunk("in", "text", 0, b"".join(events), ends)


def named(candidates: list[Candidate], chunk: Chunk) -> list[tuple[bytes, list[int]]]:
    return [(chunk.data[start:end], sorted(rules)) for start, end, rules in candidates]


def test_lines_with_a_literal_are_named_once() -> None:
    """Each event with hits, in order, with the rules of all its hits; neighbours are not."""
    chunk = lines(b"no", b"alpha and beta, alpha", b"", b"beta", b"no")
    hits = list(Prefilter(plan_of("alpha", "beta", "gamma")).hits(chunk))
    assert named(hits, chunk) == [(b"alpha and beta, alpha", [0, 1]), (b"beta", [1])]


def test_explicit_ends() -> None:
    """Events may hold newlines; a hit across two events names the second only: too many, never too few."""
    chunk = datagrams(b"a\nalpha\n", b"al", b"pha", b"beta")
    hits = list(Prefilter(plan_of("alpha", "beta")).hits(chunk))
    assert named(hits, chunk) == [(b"a\nalpha\n", [0]), (b"pha", [0]), (b"beta", [1])]
    assert not list(Engine(plan_of("alpha"), route=False).evaluate(datagrams(b"al", b"pha")))


def test_a_value_that_no_header_has_is_searched_for() -> None:
    """``severity: critical`` can only be a document's own: a literal; ``severity: crit`` may be a header's: none."""
    asked = [(Op.EXACT, "critical"), (Op.EXACT, "crit"), (Op.CONTAINS, "igh"), (Op.PREFIX, "war"), (Op.EXACT, "high")]
    plan = build([rule(i, Leaf(i)) for i in range(len(asked))], [Predicate("severity", *one) for one in asked])
    assert Prefilter(plan).always == {1, 3}
    texts = [
        '{"severity":"Critical"}',
        '{"severity":"\\u0048igh"}',
        "severity=HIGH x",
        "words",
        "CEF:0|a|b|1|2|n|high|",
    ]
    events = [f"<36>Nov 20 10:00:00 web1 eset[1]: {text}\n".encode() for text in texts]
    found: dict[str, set[int]] = {text: set() for text in texts}
    for match in Engine(plan, route=False).evaluate(Chunk("in", "auto", 0, b"".join(events))):
        found[match.record.text.partition(": ")[2]].add(match.rule)
    assert [found[text] for text in texts] == [{0}, {2, 4}, {2, 4}, {3}, {2, 4}]


def test_no_event_and_no_literal() -> None:
    """Empty chunks and plans without literals name nothing."""
    empty = Prefilter(Plan((), (), ()))
    assert list(empty.hits(lines(b"x"))) == []
    assert empty.databases() == {}
    plan = Prefilter(plan_of("alpha"))
    assert list(plan.hits(lines())) == []
    assert list(plan.hits(datagrams())) == []
    assert list(plan.candidates(lines(), frozenset({0}))) == []


def test_rules_without_literals_are_candidates_everywhere() -> None:
    """``always`` and hits come together, event by event."""
    filtered = Prefilter(plan_of("alpha", None))
    assert filtered.always == {1}
    chunk = lines(b"x", b"alpha", b"y")
    found = list(filtered.candidates(chunk, filtered.always))
    assert named(found, chunk) == [(b"x", [1]), (b"alpha", [0, 1]), (b"y", [1])]
    assert named(list(filtered.candidates(chunk, frozenset())), chunk) == [(b"alpha", [0])]


def test_escaped_events_are_searched_again() -> None:
    """What a JSON escape or a folding character hides is found; a number printed otherwise: the rules with digits."""
    filtered = Prefilter(plan_of("alpha", "4720", "disk", None))
    chunk = lines(
        rb'{"message": "\u0061lpha"}', b"1.0e3", b"dis\xe2\x84\xaa", rb'{"message": "\\u0061lpha"}', rb"\u0041"
    )
    assert named(list(filtered.hits(chunk)), chunk) == [
        (rb'{"message": "\u0061lpha"}', [0]),
        (b"1.0e3", [1]),
        (b"dis\xe2\x84\xaa", [2]),
    ]


@walk("text", ['say "hi"', "a/b/c", "C:\\Temp\\x", "a]b]c", '\\"quoted\\"', "\\\\srv\\share"])
def test_backslash_escapes_are_tolerated(text: str) -> None:
    """A literal is found plain, and as JSON and RFC 5424 escape it."""
    filtered = Prefilter(plan_of(text))
    assert filtered.always == frozenset()
    plain = text.encode()
    escaped = plain.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    for raw in (plain, escaped, escaped.replace(b"/", b"\\/"), escaped.replace(b"]", b"\\]")):
        assert len(list(filtered.hits(lines(b"x" + raw + b"y")))) == 1


def test_too_many_hits_make_every_event_a_candidate(path: str) -> None:
    """Past the bound the chunk's events are all candidates of all filtered rules: nothing is missed."""
    if path == "kernel":
        pytest.skip("its bound is fixed")
    plan = plan_of("alpha", "beta", None)
    chunk = lines(b"beta", *[b"alpha alpha"] * 20, b"nothing", b"beta")
    expected = [(m.start, m.rule) for m in Engine(plan, route=False, prefilter=False).evaluate(chunk)]
    for most in (1, 2, 5, 41, 42, 43, 100):
        with mock.patch.object(prefilter, "MAX_HITS", most):
            found = list(Prefilter(plan).hits(chunk))
            if most <= 42:
                assert named(found, chunk) == [(chunk.data[a:b], [0, 1]) for a, b in chunk.spans()]
            assert [(m.start, m.rule) for m in Engine(plan, route=False).evaluate(chunk)] == expected


def test_the_real_bound_holds() -> None:
    """A chunk of a hundred thousand hits is judged whole."""
    plan = plan_of("alpha", "omega")
    chunk = lines(*[b"alpha" * 100] * 1000, b"omega")
    assert [hit.rules for hit in Prefilter(plan).hits(chunk)] == [{0, 1}] * 1001
    assert [hit.rules for hit in Prefilter(plan).hits(chunk, 0b10)] == [{1}] * 1001
    assert len(list(Engine(plan, route=False).evaluate(chunk))) == 1001


PIECES = st.sampled_from([b"alpha", b"beta", b"lph", b" ", b"a", b"\n"])


@settings(max_examples=60)
@given(st.lists(st.lists(PIECES, max_size=4).map(b"".join), max_size=8))
def test_events_are_named_exactly(events: list[bytes]) -> None:
    """In explicit ends: every event that holds a literal is named, in order, at its own bounds."""
    chunk = datagrams(*(event or b"\n" for event in events))
    hits = list(Prefilter(plan_of("alpha", "beta")).hits(chunk))
    spans = list(chunk.spans())
    assert [(hit.start, hit.end) for hit in hits] == sorted({(hit.start, hit.end) for hit in hits})
    assert {(hit.start, hit.end) for hit in hits} <= set(spans)
    for start, end in spans:
        wanted = {i for i, text in enumerate((b"alpha", b"beta")) if text in chunk.data[start:end]}
        assert wanted <= {i for hit in hits if hit.start == start for i in hit.rules}


def conjunction() -> Plan:
    """A rule that needs two literals, one that needs one, both in ``message``."""
    predicates = [Predicate("message", Op.CONTAINS, text) for text in ("alpha", "beta", "gamma")]
    shares = {b"alpha": 0.4, b"beta": 0.5, b"gamma": 0.5}
    plan = build([rule(0, And((Leaf(0), Leaf(1)))), rule(1, Leaf(2))], predicates, cost=shares.__getitem__)
    assert (plan.literals[0], plan.further) == ({b"alpha"}, ({b"beta"}, None))
    return plan


def test_a_hot_rule_needs_two_literals() -> None:
    """Both in one event, in any order; hits in two events, or in a straddled one, are not together."""
    filtered = Prefilter(conjunction())
    for chunk in (lines, datagrams):
        events = chunk(b"alpha", b"beta", b"xbeta alpha", b"gamma", b"alpha gamma", rb'{"a":"\u0061lpha beta"}')
        assert named(list(filtered.hits(events)), events) == [
            (b"xbeta alpha", [0]),
            (b"gamma", [1]),
            (b"alpha gamma", [1]),
            (rb'{"a":"\u0061lpha beta"}', [0]),
        ]


def test_records_that_may_be_joined_need_one() -> None:
    """The second literal may be in another record of the same audit event."""
    records = b"type=EXECVE msg=audit(1.5:7): a0=alpha", b"type=PATH msg=audit(1.5:7): name=beta"
    chunk = Chunk("in", "auditd", 0, b"\n".join((*records, b"")))
    assert named(list(Prefilter(conjunction()).hits(chunk, apart=True)), chunk) == [(records[0], [0])]
    assert len(list(Engine(conjunction(), route=False).evaluate(chunk))) == 1


def test_only_rules_within_are_named() -> None:
    """Hits of rules that an input's events cannot meet name no event."""
    filtered = Prefilter(plan_of("alpha", "beta"))
    chunk = lines(b"alpha", b"beta", b"alpha beta")
    assert named(list(filtered.hits(chunk, 0b10)), chunk) == [(b"beta", [1]), (b"alpha beta", [1])]
    assert list(filtered.hits(chunk, 0)) == []
    assert named(list(Prefilter(plan_of("alpha", "beta"), rules=frozenset({1})).hits(chunk)), chunk) == [
        (b"beta", [1]),
        (b"alpha beta", [1]),
    ]


def test_a_number_that_is_a_whole_event() -> None:
    """It has nothing before it: not the line before it, nor a datagram that ends in a letter."""
    filtered = Prefilter(build([rule(0, Leaf(0))], [Predicate("value", Op.NUMBER, 100000)]))
    for chunk in (lines(b"1e5", b"x", b"1e5"), datagrams(b"1e5", b"x", b"1e5"), datagrams(b"x", b" 1e5")):
        assert len(list(filtered.hits(chunk))) == len(chunk) - 1
    assert list(filtered.hits(lines(b"a1e5", b"c0ffee1e5"))) == []


def test_databases_are_used() -> None:
    """A dumped scan loads and names the same; a damaged one is a ValueError."""
    plan = plan_of("alpha", "beta")
    first = Prefilter(plan)
    second = Prefilter(plan, first.databases())
    chunk = lines(b"alpha", b"x", b"beta")
    assert list(second.hits(chunk)) == list(first.hits(chunk))
    assert second.databases() == first.databases()
    with pytest.raises(ValueError, match="cannot be loaded"):
        Prefilter(plan, {"prefilter": b"damaged"})


def test_databases_of_the_release_before_are_used() -> None:
    """What they hold besides is left aside."""
    plan = plan_of("alpha", "4720")
    own = Prefilter(plan).databases()
    assert Prefilter(plan, {**own, "prefilter-once": b"x", "prefilter-numbers": b"x"}).databases() == own


def test_measured_costs() -> None:
    """A literal costs its share of the sample's lines, escapes tolerated; an unseen one costs less than one seen."""
    sample = b'alpha beta\nALPHA\n{"path": "a\\/b\\/c"}\nx\n'
    cost = measured({b"alpha", b"beta", b"a/b/c", b"gamma-delta", b"xyz"}, sample)
    assert 0.5 <= cost(b"alpha") < 0.8
    assert 0.25 <= cost(b"beta") < 0.6
    assert 0.25 <= cost(b"a/b/c") < 0.6
    assert cost(b"gamma-delta") < cost(b"xyz") <= 0.25
    assert measured(set(), sample)(b"x") >= 0


def test_a_negated_literal_is_not_required() -> None:
    """NOT gives no literal: such a rule sees every event."""
    predicates = [Predicate("message", Op.CONTAINS, "alpha")]
    plan = build([rule(0, Not(Leaf(0)))], predicates)
    assert [m.start for m in Engine(plan, route=False).evaluate(lines(b"alpha", b"x"))] == [6]


def test_databases_of_other_patterns_are_left_aside() -> None:
    """What another version's decoders made of the same plan is compiled anew."""
    plan, chunk = plan_of("alpha", "beta"), lines(b"alpha", b"beta")
    other = Prefilter(plan_of("beta", "gamma", "alpha")).databases()
    again = Prefilter(plan, other)
    assert named(list(again.hits(chunk)), chunk) == [(b"alpha", [0]), (b"beta", [1])]
    assert again.databases() == Prefilter(plan).databases()


WORDS = (b"alpha", b"lph", b"beta", b'a"b', b"c:/d", b"4720", b"1e5", b"skunk", "\u00e9t\u00e9".encode(), b"<k")
HOSTILE = st.sampled_from((
    *WORDS, b"ALPHA", rb"\u0061lph\u0041", rb"al\\u0070ha", b"&#97;lpha", b"&#x62;eta", b"\xc5\xbf\xe2\x84\xaaunk",
    rb"a\"b", b"a&quot;b", rb"c:\/d", rb"\u00e9", b"&#233;", rb"\u017f", b"\\", b" 1.5e+3", b"12E5", b"0.00001",
    b"12345678.12345678", b"0.000", b"-", b" ", b"", b"\0", b"\xff\xfe", b"\xc3", b"\n", b"\r\n", b"aaaaaaa",
))  # fmt: skip


@st.composite
def searched(draw: st.DrawFn) -> Plan:
    """A plan whose rules have any literals of one or two kinds, or none."""
    count = draw(st.integers(1, 70))
    clause = st.frozensets(st.sampled_from(WORDS), min_size=1, max_size=3)
    firsts = tuple(draw(st.lists(st.none() | clause, min_size=count, max_size=count)))
    further = tuple(draw(st.none() | clause) if first else None for first in firsts)
    return replace(plan_of(*["x"] * count), literals=firsts, further=further)


def naive(plan: Plan, event: bytes, apart: bool) -> set[int]:
    """The rules that an event may match, literal by literal."""
    forms = event.lower(), unescaped(event).lower(), folded(event).lower()
    number = any(re.search(guard, event, re.I) for guard in NUMBER_GUARDS) or NUMBER.match(event)
    foreign = any(re.search(guard, event, re.I) for guard in FOREIGN_GUARDS)

    def holds(clause: Literals | None) -> bool:
        return any(
            any(re.search(tolerant(item), form) for form in forms)
            or (is_numeric(item) and number)
            or (is_foreign(item) and foreign)
            for item in clause or ()
        )

    return {
        i for i, (first, second) in enumerate(zip(plan.literals, plan.further, strict=True))
        if holds(first) and (apart or second is None or holds(second))
    }  # fmt: skip


NUMBER = re.compile(rb"-?[0-9]+(\.[0-9]+)?e[-+]?[0-9]", re.I)


@examples(40)
@given(
    plan=searched(), events=st.lists(st.lists(HOSTILE, max_size=5).map(b"".join), max_size=12), ends=st.booleans(),
    asked=st.data(),
)  # fmt: skip
def test_both_paths_name_the_same(plan: Plan, events: list[bytes], ends: bool, asked: st.DataObject) -> None:
    """By the kernel and without it the same events of the same rules, and all of those of a naive search.

    With explicit ends a long number across events may be the second's on the plain path alone.
    """
    within = asked.draw(st.sampled_from([-1, 1]) | st.integers(0, (1 << len(plan.rules)) - 1))
    apart = asked.draw(st.booleans())
    chunk = datagrams(*(event or b"\n" for event in events)) if ends else lines(*b"\n".join(events).split(b"\n"))
    kernel, plain = (Prefilter(plan, native=native).hits(chunk, within, apart) for native in (True, False))
    by_kernel = {(start, end): rules for start, end, rules in kernel}
    by_plain = {(start, end): rules for start, end, rules in plain}
    assert list(by_kernel) == sorted(by_kernel)
    assert list(by_plain) == sorted(by_plain)
    if not ends:
        assert by_kernel == by_plain
    for span in chunk.spans():
        start, end = span
        wanted = {rule for rule in naive(plan, chunk.data[start:end], apart) if within >> rule & 1}
        assert wanted <= by_kernel.get(span, frozenset()) <= by_plain.get(span, frozenset())


@pytest.mark.skipif(Lines is None, reason="the kernel is not built")
@pytest.mark.parametrize("framed", [lines, datagrams])
def test_parts_of_a_chunk(framed: Callable[..., Chunk]) -> None:
    """Runs of whole events are searched as the chunk would be; what is no run is refused."""
    chunk = framed(b"alpha", b"beta", b"1e5", b"alpha beta", b"x")
    database = Scanner.compile([Pattern(word) for word in (b"alpha", b"beta", b"1e5")]).dump()
    native = Lines(MODULE, database, 3, [[0], [1], [2], []], [], b"\xff")
    every = native.within(b"\xff")
    spans = list(chunk.spans())
    stops = [start for start, _ in spans[1:]] + [len(chunk.data)]

    def named(*runs: int) -> list[tuple[int, ...]]:
        found, rows = (
            array("I", native.candidates(chunk.data, chunk.ends, every, False, array("I", runs).tobytes())),
            [],
        )
        while found:
            rows.append((spans.index((found[0], found[1])), *found[3 : 3 + found[2]]))
            del found[: 3 + found[2]]
        return rows

    assert named(0, len(chunk.data)) == [(0, 0), (1, 1), (2, 2), (3, 0, 1)]
    assert named(0, stops[0], spans[2][0], stops[3]) == [(0, 0), (2, 2), (3, 0, 1)]
    assert named(spans[4][0], stops[4]) == named(spans[1][0], spans[1][0]) == named() == []
    for wrong in ((0,), (5, 2), (0, len(chunk.data) + 1)):
        with pytest.raises(ValueError, match="no such"):
            named(*wrong)
    with pytest.raises(ValueError, match="no such"):
        native.candidates(b"", None, every + 1, False)
    assert native.panics == 0
