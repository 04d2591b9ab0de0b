"""Other people's patterns on other people's texts: decided in a time linear in the text, or within a bound of CPU."""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.decode.bounded import (
    DEBT,
    MEAN,
    MOST_COPIES,
    QUARANTINE_AFTER,
    SECONDS,
    Guard,
    TooSlow,
    compiled,
    copies,
    finder,
    grows,
    why_slow,
)
from vedette.fleet.evidence import validate
from vedette.plan.patterns import fallback
from vedette.stream.functions import javaregex

SLOW = r"^(a|aa|b)*(?<!x)c(?!d)"
TEXT = "a" * 60 + "cd"


@pytest.mark.parametrize(
    "pattern",
    [
        r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d", r"^\s|^Caused by", r"^(?:Jan|Feb|Mar) +\d+", r"^\[?\d+\]", r"ERROR",
        r"^[^ ]+ +[^ ]+ +INFO", r"^<\d+>\w+ ", r"^\s+at .*$", r"^.*Exception", r"^(?!\s|at )", r"^\S++ \S++ .*",
        r"^(\d{1,3}\.){3}\d{1,3} ", r"(?i)^trace: .*", r"^\d+$",
    ],
)  # fmt: skip
def test_usual_patterns_need_no_clock(pattern: str) -> None:
    """As text and as bytes."""
    assert why_slow(pattern) == ""
    assert why_slow(pattern.encode()) == ""


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"^(\w+\s?)*:", "a part that fits in several ways is repeated"),
        (r"^(a|aa)+$", "a part that fits in several ways is repeated"),
        (r"(x+x+)+y", "a part that fits in several ways is repeated"),
        (r"^.*x.*y", "it has several parts of any length, or one that is sought at any place"),
        (r"ERROR.*x", "it has several parts of any length, or one that is sought at any place"),
        (r"(?m)^\s+x", "it has several parts of any length, or one that is sought at any place"),
        (r"(a?){40}a{40}b", "its parts fit in many ways"),
        (r"^(a+)\1b", "it refers to a group"),
        (r"^\p{L}+", "it is more than this can tell of"),
    ],
)
def test_what_may_take_long(pattern: str, why: str) -> None:
    assert why_slow(pattern) == why


def test_what_grows_beyond_every_power() -> None:
    """Of that alone the owner of a short text is warned."""
    assert grows(r"user=(\S+ ?)*;")
    assert not grows(r"user=\S+ from \S+")
    assert not grows(r"(['\"])(.*?)\1")


ATOMS = ["a", "b", "ab", "[ab]", "[^a]", r"\w", r"\s", r"\d", ".", "(a|b)", "(a|ab)", "(?:ab?)", "é", "(?=a)", "(?i:k)"]
PART = st.tuples(st.sampled_from(ATOMS), st.sampled_from(["", "", "*", "+", "?", "{2,5}", "*?", "++"])).map("".join)
SEQUENCE = st.lists(PART, min_size=1, max_size=5).map("".join)
GROUPED = st.lists(st.one_of(PART, st.lists(SEQUENCE, min_size=1, max_size=2).map(lambda of: f"({'|'.join(of)})"),
                             SEQUENCE.map(lambda of: f"({of})*")), min_size=1, max_size=5).map("".join)  # fmt: skip


@given(st.sampled_from(["", "^"]), GROUPED, st.sampled_from(["", "$"]))
def test_what_is_called_linear_is(begin: str, pattern: str, end: str) -> None:
    """No text of 3,000 letters takes what a quadratic time would, a second."""
    pattern = begin + pattern + end
    if why_slow(pattern):
        return
    search = re.compile(pattern).search if not begin else re.compile(pattern).match
    for unit in ("a", "ab", "a b", "aé", "1"):
        used = time.process_time()
        search(unit * (3000 // len(unit)) + "!")
        assert time.process_time() - used < 0.5, (pattern, unit)


@given(GROUPED, st.text("ab 1é!", max_size=12))
def test_the_answers_are_those_of_re(pattern: str, text: str) -> None:
    """Whichever engine it is."""
    for source, value in ((pattern, text), (pattern.encode(), text.encode())):
        wanted = re.search(source, value) is not None  # type: ignore[type-var]
        assert (finder(source, Guard())(value) is not None) == wanted  # type: ignore[type-var]


def test_too_slow_is_no_answer() -> None:
    """It is undecided, and after some the pattern is asked no more; no more CPU goes then."""
    guard = Guard()
    found = finder(SLOW, guard)
    assert found("aac") is not None
    for count in range(1, QUARANTINE_AFTER + 1):
        assert not guard.quarantined
        with pytest.raises(TooSlow):
            found(TEXT)
        assert guard.overruns == count
    assert guard.quarantined
    used = time.thread_time()
    for _ in range(100):
        with pytest.raises(TooSlow):
            found(TEXT)
    assert time.thread_time() - used < SECONDS
    assert guard.overruns == QUARANTINE_AFTER


def test_slow_on_every_text() -> None:
    """A question that stays below the bound each time ends in quarantine, too: they take too much together."""
    guard = Guard()

    def question(text: Any, timeout: float) -> bool:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return True

    asked = 0
    while not guard.quarantined and asked < 1000:
        guard.ask(question, "x")
        asked += 1
    assert 1 < asked <= DEBT / (0.02 - MEAN) + 1
    assert guard.overruns == 0
    with pytest.raises(TooSlow):
        guard.ask(question, "x")


def test_quick_questions_are_no_debt() -> None:
    guard = Guard()
    for _ in range(5000):
        guard.ask(compiled(r"a.*b").search, "xxaxb")
    assert guard.debt < DEBT / 10


def test_the_bound_is_of_cpu() -> None:
    """While the process waits, however long, no time passes for a pattern."""

    def question(text: Any, timeout: float) -> Any:
        began = time.monotonic()
        while time.monotonic() - began < 2 * SECONDS:
            time.sleep(SECONDS / 10)
        return compiled(r"(a|b)*c").search(text, timeout=timeout)

    assert Guard().ask(question, "abc") is not None


def test_what_is_no_pattern() -> None:
    with pytest.raises(ValueError, match="missing"):
        finder("(a", Guard())


@pytest.mark.parametrize(
    ("pattern", "text"), [("(?<=a|bc)d", "xbcd"), ("^(?<!a+)b", "b"), ("(?m:^b)", "a\nb"), ("(?m:^b)|^c", "a\nb")]
)
def test_what_re_does_not_take_or_sees_otherwise(pattern: str, text: str) -> None:
    """A look-behind of any width, and the beginning of a line within a group of its own flags."""
    assert finder(pattern, Guard())(text)
    assert finder(pattern.encode(), Guard())(text.encode())


BOMB = "(?:" * 10 + "ab" + "){3}" * 10


def test_what_takes_too_much_memory_is_no_pattern() -> None:
    """Whoever compiles it by ``regex``: the first takes 40 MB, and four times as much with each further group. What is
    large and takes little is one."""
    for pattern in (
        BOMB,
        "(?:" * 20 + "a" + "){1,9}" * 20,
        "((((a{30}){30}){30}){30})",
        "(" * 20 + "[)]+" + ")+?" * 20,
        "(?x)" + "(?:" * 10 + "ab" + ") {3}" * 10,
        "(?:" * 10 + "ab" + ")(?#[){3}" * 10,
    ):
        assert copies(pattern) > MOST_COPIES
        for use in (compiled, partial(fallback, flags=""), javaregex.compiled):
            with pytest.raises(ValueError, match=r"multiply|no flag #"):  # Java has no such comments
                use(pattern)
        with pytest.raises(ValueError, match="pattern: its repeats"):
            validate({"since": 0, "until": 1, "pattern": pattern})
    for pattern in (
        "(?:ab){50000}",
        "(?:" * 30 + "a" + ")*" * 30,
        r"[(){99}]\({9}\{9}",
        "(?:a{9}|b{9}){9}",
        "a+b+c+" * 99,
    ):
        assert copies(pattern) <= MOST_COPIES
        compiled(pattern)
