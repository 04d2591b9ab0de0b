"""The intermediate form: folding, expressions as lists, values as texts."""

from __future__ import annotations

import unicodedata

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.differences import walk
from vedette.plan import ir
from vedette.plan.ir import And, Leaf, Not, Or, as_shown, dump, fold, leaves, load, text


def simple_fold(char: str) -> str:
    """CaseFolding.txt's status C and S, from what Python knows: full folding where it is one character, else the
    lower-case mapping where that is one, else nothing."""
    return next((form for form in (char.casefold(), char.lower()) if len(form) == 1), char)


def test_fold_is_simple_case_folding_for_every_code_point() -> None:
    """Every assigned character folds as the Unicode tables say, to one character."""
    wrong = [
        hex(code)
        for code in range(0x110000)
        if unicodedata.category(char := chr(code)) not in ("Cs", "Cn") and fold(char) != simple_fold(char)
    ]
    assert not wrong


@walk(
    ("char", "folded"),
    [
        ("A", "a"),
        ("z", "z"),
        ("\u017f", "s"),
        ("\u212a", "k"),
        ("\u212b", "\u00e5"),
        ("\u0130", "\u0130"),
        ("\u0131", "\u0131"),
        ("\u00df", "\u00df"),
        ("\u1e9e", "\u00df"),
        ("\u03a3", "\u03c3"),
        ("\u03c2", "\u03c3"),
        ("\u1f88", "\u1f80"),
        ("\u0390", "\u0390"),
        ("\ufb00", "\ufb00"),
        ("\u13a0", "\u13a0"),
        ("\u13f8", "\u13f0"),
        ("\uab70", "\u13a0"),
        ("\U0001e900", "\U0001e922"),
        ("\U00010400", "\U00010428"),
        ("\u00b5", "\u03bc"),
    ],
)
def test_fold_of_special_characters(char: str, folded: str) -> None:
    """Rows of CaseFolding.txt: C and S are applied, F (ss for sharp s) and T (Turkic i) are not."""
    assert fold(char) == folded


@given(st.text())
def test_fold_keeps_positions_and_is_idempotent(value: str) -> None:
    """A folded text is as long as the text, and folding it again changes nothing."""
    assert len(fold(value)) == len(value)
    assert fold(fold(value)) == fold(value)


@given(
    st.text(
        st.sampled_from("aKz\u0130\u00b5\u00c0\u00df\u00ff\u00d7\u017f\u212a\u03a3\u03c2\u1e9e\U00010400\ud800")
        | st.characters()
    )
)
def test_a_text_folds_as_its_characters_do(value: str) -> None:
    """However far its characters lie apart, and whatever stands beside one (a sigma at a word's end)."""
    assert fold(value) == "".join(map(simple_fold, value))


exprs = st.recursive(
    st.integers(0, 9).map(Leaf),
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=1).map(lambda args: And(tuple(args))),
        st.lists(inner, min_size=1).map(lambda args: Or(tuple(args))),
    ),
)


@given(exprs)
def test_an_expression_survives_dump_and_load(expr: ir.Expr) -> None:
    """``load`` is the inverse of ``dump``, and the predicates come in the same order."""
    assert load(dump(expr)) == expr
    assert list(ir.tests(load(dump(expr)))) == list(ir.tests(expr))


def test_nesting_is_bounded() -> None:
    """An expression as deep as the compiler lets through is read; one far deeper is refused, not a crash."""
    for depth, fits in ((ir.MAX_DEPTH, True), (ir.MAX_DEPTH + 2, False), (500, False)):
        data: object = 0
        for _ in range(depth):
            data = ["not", data]
        if fits:
            assert dump(load(data)) == data
        else:
            with pytest.raises(ValueError, match="nested deeper"):
                load(data)


def test_dump_is_nested_lists() -> None:
    """The wire form is what the format says: numbers, and lists that begin with a word."""
    assert dump(And((Leaf(0), Not(Or((Leaf(1), Leaf(2))))))) == ["and", 0, ["not", ["or", 1, 2]]]


@walk(
    "data",
    [None, "and", [], ["or"], ["not"], ["not", 1, 2], ["xor", 1, 2], ["and", None], True, 1.0, {"and": 1}],
)
def test_what_is_no_expression_is_refused(data: object) -> None:
    """Damaged data raises ValueError."""
    with pytest.raises(ValueError, match="not an expression"):
        load(data)


@pytest.mark.parametrize(
    ("value", "as_text"),
    [("x", "x"), (1, "1"), (1.0, "1.0"), (1e16, "1e+16"), (True, "true"), (False, "false"), (None, None), ({}, None)],
)
def test_text_of_values(value: object, as_text: str | None) -> None:
    """Scalars have texts: numbers as Python prints them, booleans in lower case; null and objects have none."""
    assert text(value) == as_text


def test_leaves_of_deeply_nested_lists() -> None:
    """Lists nested deeper than Python recurses are flattened in order; objects are leaves."""
    deep: object = ["last"]
    for i in range(5000):
        deep = [i, deep]
    assert leaves(deep) == [*range(4999, -1, -1), "last"]
    assert leaves("x") == ["x"]
    assert leaves([{"a": [1]}, []]) == [{"a": [1]}]


def test_as_shown() -> None:
    """People see a list's texts joined; what has no text is left out."""
    assert as_shown(["a", [1, None, ["b"]], {}]) == "a, 1, b"
    assert as_shown([None, {}]) is None
    assert as_shown(True) == "true"
    assert as_shown(None) is None
