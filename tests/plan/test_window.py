"""Parts of literals: which may stand for the whole, and which of them is taken."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.engine.test_property import rule
from vedette.engine.prefilter import measured
from vedette.plan.ir import Leaf, Op, Predicate
from vedette.plan.literals import WINDOW, is_numeric, rarest, windows
from vedette.plan.plan import build


@given(st.text("ab1.e- /\\\u00e9", min_size=1, max_size=20))
def test_a_window_is_a_part_that_needs_no_guard_of_its_own(text: str) -> None:
    """Whatever holds the literal holds each of its windows; none could be a number where the literal could not."""
    literal = text.encode()
    for part in windows(literal):
        assert part in literal
        assert len(part) == WINDOW
        assert not part.isspace()
        assert not is_numeric(part)
        assert not is_numeric(literal)
        assert literal.isascii()


@pytest.mark.parametrize("whole", [b"eight by", b"1234567890.5", "\u00e9t\u00e9 \u00e0 Paris".encode(), b"          "])
def test_what_stays_whole(whole: bytes) -> None:
    """Short literals, those that may be a number, those outside ASCII, and blanks."""
    assert windows(whole) == []


def test_the_rarest_window_is_taken() -> None:
    """By lines of the sample, read without JSON's escapes; of equally rare ones that without a character to escape."""
    lines = [b'{"x":"C:\\\\windows\\\\system32\\\\other.exe"}'] * 3
    whole = b"\\windows\\system32\\evil-app.exe"
    assert b"evil" in rarest([whole], lines)[whole]
    assert b"\\" not in rarest([whole], lines)[whole]
    assert rarest([b"\\a\\b\\c\\d\\"], lines) == {b"\\a\\b\\c\\d\\": min(windows(b"\\a\\b\\c\\d\\"))}
    assert rarest([b"short"], lines) == {}


def test_a_plan_searches_for_windows_no_more_common_than_the_literals() -> None:
    """A literal that only a common part could stand for stays whole."""
    predicates = [Predicate("message", Op.CONTAINS, text) for text in ("session opened by mallory", "aaaaaaaaab")]
    sample = b"session opened by alice\naaaaaaaa b\naaaaaaa ab\n aaaaaaaab\n"
    cost = measured({b"session opened by mallory", b"aaaaaaaaab"}, sample)
    plan = build([rule(0, Leaf(0)), rule(1, Leaf(1))], predicates, cost=cost)
    first, second = plan.literals
    assert first is not None
    assert [len(item) for item in first] == [WINDOW]
    assert next(iter(first)) in b"session opened by mallory"
    assert not any(item in sample for item in first)
    assert second == {b"aaaaaaaaab"}
    assert cost.share([first]) == 0
