"""LIKE takes a time linear in the text, whatever stands in pattern and text."""

from __future__ import annotations

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from vedette.stream.functions.pattern import _NO_END, _like_test, _parts


def plainly(pattern: str, value: str) -> bool:
    """By the expression that tries every place."""
    parts = _parts(pattern, "!")
    text = "".join(_NO_END if one is None else "(?s:.*)" if one == "%" else re.escape(one[1:]) for one in parts)
    return re.fullmatch(text, value) is not None


@given(st.text("ab_%", max_size=8), st.text("ab\n", max_size=10))
def test_the_same_as_every_place(pattern: str, value: str) -> None:
    assert _like_test(pattern, "!")(value) == plainly(pattern, value)


def test_many_wildcards() -> None:
    """Eight of them over 2,000 letters, which took hours."""
    used = time.process_time()
    assert not _like_test("%a%a%a%a%a%a%a%a_b", "")("a" * 2000)
    assert _like_test("%a%a%a%a%a%a%a%a_b", "")("a" * 2000 + "xb")
    assert time.process_time() - used < 5
