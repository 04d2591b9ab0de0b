"""Patterns over rows (MATCH_RECOGNIZE): how expressions refer to the rows of a match, and which patterns there are.

In ``Match.defines`` and ``Match.measures``, beside ordinary expressions:

| call | means |
|---|---|
| ``Call(LAST, (Column(i, t),), t, (variable, n))`` | the column of the variable's last row, or n rows before it |
| ``Call(FIRST, (Column(i, t),), t, (variable, n))`` | of its first row, or n rows behind it |
| ``Call(AGGREGATE, args, t, (variable, name, *options))`` | the aggregate ``name`` of ``stream/aggregates`` over the
variable's rows; ``args`` are expressions of one of its rows |
| ``Call(ROWTIME, (), t)`` | MATCH_ROWTIME() |

``variable`` is a name of the pattern, or ``ANY`` for all rows of the match so far, which is what a column without a
variable means. NULL where there is no such row. In ``defines``, the row under test is the last row of the variable that
is being defined and of ``ANY``, and a bare ``Column(i)`` is its column. In ``measures``, every column stands in one of
the calls above. SQL to calls: ``A.c`` and ``LAST(A.c)`` are ``(A, 0)``, ``LAST(A.c, 2)`` is ``(A, 2)``;
``LAST(A.c + A.d, 1)`` is the sum of two calls; ``COUNT(*)`` is an aggregate of no arguments over ``ANY``.

What Flink 2.3 refuses is refused; ``mistakes`` says why, for whoever makes a ``Match``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from vedette.plan.query import Aggregate, Call, Expression, Literal, Match, Variable

LAST, FIRST, AGGREGATE, ROWTIME = "PATTERN.LAST", "PATTERN.FIRST", "PATTERN.AGGREGATE", "PATTERN.ROWTIME"
ANY = "*"
"""The variable that means all rows of the match."""
MOST_ROWS = 1_000
"""The largest number in a quantifier: each row that it counts is a state of the pattern."""


class Mistake(NamedTuple):
    """``at``: the word of the statement that it is about; ``text``: what is wrong, and what to write instead."""

    at: str
    text: str


REFUSED: tuple[Mistake, ...] = (
    Mistake("|", "alternatives in PATTERN are not supported: write one statement for each"),
    Mistake("(", "groups in PATTERN are not supported: give each variable its own quantifier"),
    Mistake("PERMUTE", "PERMUTE is not supported: write one statement for each order"),
    Mistake("{-", "exclusion {- -} is not supported: leave the variable out of MEASURES"),
    Mistake("^", "the anchors ^ and $ are not supported: leave them out"),
    Mistake("$", "the anchors ^ and $ are not supported: leave them out"),
    Mistake("??", "the reluctant quantifier ?? is not supported: write ?"),
    Mistake("{,", "a quantifier needs its least number: write {0,n}"),
    Mistake("ALL ROWS PER MATCH", "ALL ROWS PER MATCH is not supported: write ONE ROW PER MATCH"),
    Mistake("SUBSET", "SUBSET is not supported: name the variables in MEASURES"),
    Mistake("CLASSIFIER", "CLASSIFIER is not supported: compare LAST of the variables with each other"),
    Mistake("MATCH_NUMBER", "MATCH_NUMBER is not supported: leave it out"),
    Mistake("MATCH_PROCTIME", "MATCH_PROCTIME() stands behind ORDER BY of PROCTIME(): write MATCH_ROWTIME()"),
    Mistake("NEXT", "NEXT is not supported: test the row that follows by a variable of its own"),
    Mistake("PREV", "PREV is not supported: write LAST(variable.column, 1)"),
    Mistake("DISTINCT", "DISTINCT is not supported in a pattern: leave it out"),
    Mistake("FILTER", "FILTER is not supported in a pattern: write CASE WHEN within the aggregate"),
    Mistake("DESC", "the rows of a pattern are in ascending order of the time attribute: leave DESC out"),
)  # fmt: skip
"""Words and signs of MATCH_RECOGNIZE that ``Match`` has no place for: the front end points at them."""


def mistakes(match: Match) -> Iterator[Mistake]:
    """Say what is wrong with a pattern that ``Match`` can say."""
    names = [variable.name for variable in match.pattern]
    for variable in match.pattern:
        name, least, most, takes_all = variable
        if names.count(name) > 1:
            yield Mistake(name, f"{name} is in PATTERN more than once: give each place a name of its own")
        if most is not None and (most < least or most == 0):
            yield Mistake(name, f"{name} cannot take {least} to {most} rows: the most is at least 1 and the least")
        if max(least, most or 0) > MOST_ROWS:
            yield Mistake(name, f"{name} takes more than {MOST_ROWS:,} rows by number: use +, or a condition on COUNT")
        if not takes_all and (least, most) == (0, 1):
            yield Mistake(name, f"{name}?? is not supported: write {name}?")
    for before, variable in pairwise(match.pattern):
        if greedy(before) and variable.least == 0 and variable.most in (1, None):
            text = f"{variable.name} may take no row behind {before.name}, which takes all it can: not supported"
            yield Mistake(variable.name, f"{text}; make {before.name} reluctant, as {before.name}+?")
    if not match.pattern:
        yield Mistake("PATTERN", "PATTERN needs a variable")
        return
    last = match.pattern[-1]
    if greedy(last):
        text = (
            f"the last variable takes rows greedily and so never ends: write {last.name} without a quantifier behind it"
        )
        yield Mistake(last.name, f"{text}, or a reluctant quantifier, as {last.name}+?")
    if all(variable.least == 0 for variable in match.pattern):
        yield Mistake(names[0], "the pattern would match no row at all: one variable must take a row")
    if match.subsets:
        yield next(mistake for mistake in REFUSED if mistake.at == "SUBSET")
    if match.skip in {"FIRST", "LAST"} and match.skip_to not in names:
        yield Mistake(match.skip_to, f"AFTER MATCH SKIP TO {match.skip_to}: PATTERN has no such variable")
    if match.skip == "FIRST" and match.skip_to == names[0]:
        text = (
            "skips to the row at which the match began, which would never end: skip to another variable, or TO NEXT ROW"
        )
        yield Mistake(match.skip_to, f"AFTER MATCH SKIP TO FIRST {match.skip_to} {text}")
    if match.within < 0:
        yield Mistake("WITHIN", "WITHIN needs an interval of at least a millisecond")
    variables = {*names, ANY}
    for expression in (*(condition for _, condition in match.defines), *match.measures):
        for call in calls(expression):
            if call.name.startswith("PATTERN.") and call.options and call.options[0] not in variables:
                yield Mistake(str(call.options[0]), f"PATTERN has no variable {call.options[0]}")


def greedy(variable: Variable) -> bool:
    """Whether it takes every row that it can. ``?`` is not, nor what takes a fixed number of rows."""
    return variable.greedy and variable.least != variable.most and (variable.least, variable.most) != (0, 1)


def calls(expression: Expression | Aggregate) -> Iterator[Call]:
    """Every call within an expression, outermost first."""
    if isinstance(expression, Call):
        yield expression
    if not isinstance(expression, Literal):
        for part in getattr(expression, "args", ()):
            yield from calls(part)
