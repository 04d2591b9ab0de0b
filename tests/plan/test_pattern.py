"""Which patterns there are: each mistake is named at its word, with what to write instead."""

from __future__ import annotations

from typing import Any

from tests.differences import walk
from vedette.plan.pattern import ANY, LAST, REFUSED, Mistake, calls, mistakes
from vedette.plan.query import Call, Column, Field, Literal, Match, Named, Scan, Type, Variable

INT = Type("INT")
SCAN = Scan((Named("ts", Type("TIMESTAMP", 3)), Named("n", INT)), 1, "events", "r", (Field("ts"), Field("n")))
A, B = Variable("A", 1, 1), Variable("B", 1, 1)


def match(*pattern: Variable, **more: Any) -> Match:
    measure = Call(LAST, (Column(2, INT),), INT, ("B", 0))
    given = {"defines": (), "measures": (measure,), **more}
    return Match((Named("n", INT),), 0, SCAN, (), pattern, **given)


def places_of_mistakes(node: Match) -> list[str]:
    return [mistake.at for mistake in mistakes(node)]


@walk(
    "pattern",
    [
        (A, B),
        (Variable("A", 1, None), B),
        (Variable("A", 2, 4), B),
        (A, Variable("B", 1, None, greedy=False)),
        (A, Variable("B", 2, 2)),
        (A, Variable("B", 0, 1)),
        (Variable("A", 1, None), Variable("C", 0, 2), B),
        (Variable("A", 1, None, greedy=False), Variable("C", 0, 1), B),
        (Variable("A", 0, None), B),
    ],
)
def test_what_runs(pattern: tuple[Variable, ...]) -> None:
    """What Flink runs has no mistake."""
    assert places_of_mistakes(match(*pattern)) == []


@walk(
    ("pattern", "at"),
    [
        ((A, B, A), "A"),
        ((A, Variable("B", 1, None)), "B"),
        ((A, Variable("B", 1, 2)), "B"),
        ((Variable("A", 2, 1), B), "A"),
        ((Variable("A", 0, 0), B), "A"),
        ((Variable("A", 0, 1, greedy=False), B), "A"),
        ((Variable("A", 0, 1), Variable("B", 0, 1)), "A"),
        ((Variable("A", 1, 2_000), B), "A"),
        ((Variable("A", 1, None), Variable("C", 0, 1), B), "C"),
        ((Variable("A", 0, None), Variable("C", 0, None), B), "C"),
    ],
)
def test_what_does_not(pattern: tuple[Variable, ...], at: str) -> None:
    """A variable twice, a greedy last one, impossible numbers, ?? and what is empty are mistakes at their variable."""
    assert at in places_of_mistakes(match(*pattern))


def test_what_stands_beside_the_pattern() -> None:
    """Skips to no variable or to the first, unknown variables, SUBSET and a negative WITHIN are mistakes."""
    assert places_of_mistakes(match(A, B, skip="LAST", skip_to="C")) == ["C"]
    assert places_of_mistakes(match(A, B, skip="FIRST", skip_to="A")) == ["A"]
    assert places_of_mistakes(match(A, B, skip="LAST", skip_to="B")) == []
    assert places_of_mistakes(match(A, B, subsets=(("U", ("A", "B")),))) == ["SUBSET"]
    assert places_of_mistakes(match(A, B, within=-1)) == ["WITHIN"]
    of_c = Call(LAST, (Column(2, INT),), INT, ("C", 0))
    assert places_of_mistakes(match(A, B, defines=(("A", Call("=", (of_c, Literal(1, INT)), INT)),))) == ["C"]
    assert places_of_mistakes(match(A, B, measures=(Call(LAST, (Column(2, INT),), INT, (ANY, 1)),))) == []


def test_no_pattern() -> None:
    """A pattern of nothing is a mistake, and the only one."""
    assert places_of_mistakes(match()) == ["PATTERN"]


def test_calls() -> None:
    """Calls within calls are found, outermost first."""
    inner = Call("UPPER", (Column(1, INT),), INT)
    outer = Call("=", (inner, Literal("x", INT)), INT)
    assert list(calls(outer)) == [outer, inner]


def test_refused_words_say_what_to_write() -> None:
    """Each word that is refused comes with a text."""
    assert all(isinstance(one, Mistake) and len(one.text) > 20 for one in REFUSED)
