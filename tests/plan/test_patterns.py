"""Searches as patterns: which hits count, and that the library's fault at the end of data cannot hide a match."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.deep import examples
from tests.differences import walk
from tests.engine.test_evaluate import plan_of
from vedette.decode.decoder import from_mapping
from vedette.engine.group import SCAN_FROM
from vedette.engine.match import Engine
from vedette.plan.ir import ANY, STAR, Op, Predicate
from vedette.plan.patterns import End, counts, fallback, search


def regex(source: str, flags: str = "") -> Predicate:
    return Predicate("f", Op.REGEX, source, True, flags)


@walk(
    ("predicate", "expression", "end"),
    [
        (Predicate("f", Op.CONTAINS, "a.b"), rb"a\x2eb", End.WITHIN),
        (Predicate("f", Op.PREFIX, "ab"), rb"^ab", End.WITHIN),
        (Predicate("f", Op.SUFFIX, "ab"), rb"ab\n", End.AT_END),
        (Predicate("f", Op.GLOB, (STAR, "a", ANY, STAR)), rb"a.", End.WITHIN),
        (Predicate("f", Op.GLOB, ("a", STAR, "b")), rb"^a.*b\n", End.AT_END),
        (Predicate("f", Op.GLOB, (STAR,)), rb"", End.WITHIN),
        (regex("a.b"), rb"a.b", End.WITHIN),
        (regex("ab$"), rb"ab\n", End.AT_LINE_END),
        (regex(r"ab\z"), rb"ab\n", End.AT_END),
        (regex("^(a|b)$"), rb"^(a|b)\n", End.AT_LINE_END),
        (regex(r"a\$"), rb"a\$", End.WITHIN),
        (regex("a[$]"), rb"a[$]", End.WITHIN),
        (regex("[]$]"), rb"[]$]", End.WITHIN),
        (regex(r"\\$"), rb"\\\n", End.AT_LINE_END),
        (regex("a|b$"), rb"a|b(?:)", End.PERHAPS),
        (regex("(a|b$)"), rb"(a|b(?:))", End.PERHAPS),
        (regex(r"(a$)\Z"), rb"(a(?:))(?:)", End.PERHAPS),
        (regex("ab$", "m"), rb"ab(?:)", End.PERHAPS),
        (regex("(?m)ab$"), rb"(?m)ab(?:)", End.PERHAPS),
        (regex("^ab", "m"), rb"^ab", End.PERHAPS),
        (regex("ab", "m"), rb"ab", End.WITHIN),
        (regex("(?i)ab$"), rb"(?i)ab\n", End.AT_LINE_END),
        (regex("é\\d[^à-ë]$"), rb"\x{e9}\d[^\x{e0}-\x{eb}]\n", End.AT_LINE_END),
        (regex("\\\\é|\\😀"), rb"\\\x{e9}|\x{1f600}", End.WITHIN),
    ],
)
def test_how_a_search_is_written(predicate: Predicate, expression: bytes, end: End) -> None:
    """End anchors become the pad's newline where nothing else can end there, else they are left out and proved."""
    found = search(predicate)
    assert (found.pattern.expression, found.end) == (expression, end)


@pytest.mark.parametrize("source", [r"é\d", r"é\w", r"xé\d", r"(É)\d$", r"[é-ë]\d", r"É[0-9]"])
def test_letters_beyond_ascii_without_regard_to_case(source: str) -> None:
    """Beside classes, too, which are ASCII's."""
    engine = Engine(plan_of([Predicate("f", Op.REGEX, source, False, "i")]), route=False)
    assert [engine.true(from_mapping({"f": value})) for value in ("xé1", "xÉ1", "xÉ٣")] == [[0], [0], []]


def test_which_hits_count() -> None:
    """By where they end in the value and its pad."""
    assert [to for to in range(5) if counts(End.WITHIN, to, b"ab")] == [0, 1, 2]
    assert [to for to in range(5) if counts(End.PERHAPS, to, b"ab")] == []
    assert [to for to in range(5) if counts(End.AT_END, to, b"ab")] == [3]
    assert [to for to in range(5) if counts(End.AT_LINE_END, to, b"ab")] == [3]
    assert [to for to in range(5) if counts(End.AT_LINE_END, to, b"a\n")] == [2, 3]


@pytest.mark.parametrize("source", [r"\Qa.b\E", "(a$|b)(?i)c"])
def test_what_cannot_be_rewritten(source: str) -> None:
    """Quotes, and flags that begin in the middle of a pattern with anchors."""
    with pytest.raises(ValueError, match="not supported"):
        search(regex(source))


@walk("size", [0, 1, 13, 14, 15, 16, 29, 30, 31, 32, 33, 61, 62, 63, 64, 65, 100, 255])
def test_matches_at_the_last_byte_are_found(size: int) -> None:
    """Searches of two bytes beside a pattern with a class: the library alone misses these at the end of a value."""
    predicates = [
        Predicate("f", Op.CONTAINS, "\\1", True),
        Predicate("f", Op.SUFFIX, "xy", True),
        Predicate("f", Op.GLOB, (STAR, "Fa", ANY, STAR), True),
        Predicate("f", Op.GLOB, (STAR, "q", STAR, "ab"), True),
        regex("cd$"),
        regex("gh|ij$"),
        regex(r"kl\z"),
    ]
    engine = Engine(plan_of(predicates), route=False)
    for tail, rule in (("\\1", 0), ("xy", 1), ("Fa-", 2), ("qab", 3), ("cd", 4), ("gh", 5), ("ij", 5), ("kl", 6)):
        assert engine.true(from_mapping({"f": "0" * size + tail})) == [rule], (size, tail)


LETTERS = st.text("abAB01\n", min_size=1, max_size=4)
BODIES = st.recursive(
    st.one_of(LETTERS.map(re.escape), st.sampled_from([".", ".*", "[ab]", r"\d", r"\b", "a?", "^", "$", r"\n"])),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        inner.map(lambda body: f"(?:{body})+"),
    ),
    max_leaves=5,
)


@examples(200)
@given(
    bodies=st.lists(st.tuples(BODIES, st.sampled_from(["", "$", "^"]), st.sampled_from(["", "m", "s"])), max_size=6),
    values=st.lists(st.tuples(st.integers(0, 70), LETTERS, st.integers(0, 3)), min_size=1, max_size=8),
)
def test_regexes_with_anchors_anywhere(bodies: list[tuple[str, str, str]], values: list[tuple[int, str, int]]) -> None:
    """Groups of patterns over values around the widths of vectors: what Python's engine finds, with PCRE's anchors."""
    sources = {((f"^{body}" if at == "^" else body + at), flags) for body, at, flags in bodies}
    predicates = [regex(source, flags) for source, flags in sorted(sources)]
    predicates += [Predicate("f", Op.CONTAINS, f"crowd{i}", True) for i in range(SCAN_FROM)]
    engine = Engine(plan_of(predicates), route=False)
    expected = [fallback(source, flags) for source, flags in sorted(sources)]
    for size, tail, after in values:
        value = "-" * size + tail + "-" * after
        found = engine.true(from_mapping({"f": value}))
        assert found == [i for i, compiled in enumerate(expected) if compiled.search(value)]
    assert not engine.tally.undecided


@settings(max_examples=150)
@given(
    texts=st.lists(st.tuples(st.sampled_from(list(Op)[1:4]), LETTERS), min_size=SCAN_FROM, max_size=12, unique=True),
    sizes=st.lists(st.integers(0, 70), min_size=1, max_size=4),
)
def test_plain_searches_in_large_groups(texts: list[tuple[Op, str]], sizes: list[int]) -> None:
    """Prefix, suffix and substring by one scan are what Python's own operations say, at every length."""
    engine = Engine(plan_of([Predicate("f", op, text, True) for op, text in texts]), route=False)
    tests = {Op.PREFIX: str.startswith, Op.SUFFIX: str.endswith, Op.CONTAINS: str.__contains__}
    for size in sizes:
        for _, tail in texts:
            for value in ("-" * size + tail, tail + "-" * size, "-" * size + tail + "\n"):
                expected = [i for i, (op, text) in enumerate(texts) if tests[op](value, text)]
                assert engine.true(from_mapping({"f": value})) == expected
