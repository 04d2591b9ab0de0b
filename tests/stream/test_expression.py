"""Compiled expressions against a naive evaluator that walks the tree, over drawn expressions full of NULL."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from vedette.plan.query import Calc as CalcNode
from vedette.plan.query import Call, Column, Expression, Literal, Named, Row, Scan, Type
from vedette.stream import expression
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import Function
from vedette.stream.keyed import Budget
from vedette.stream.operators.stateless import Calc
from vedette.stream.values.types import BIGINT, BOOLEAN, DOUBLE, INT, NULL, STRING


def call(name: str, *args: Expression, options: tuple[Any, ...] = ()) -> Call:
    return Call(name, args, LIBRARY.infer(name, args, options), options)


I, J, S, T, D, B = (Column(index, one) for index, one in enumerate((INT, INT, STRING, STRING, DOUBLE, BOOLEAN), 1))  # noqa: E741
COLUMNS = {INT: (I, J), STRING: (S, T), DOUBLE: (D,), BOOLEAN: (B,)}
LITERALS = {
    INT: (0, 1, -7, 2**31 - 1, -(2**31)), STRING: ("", "a", "b"), DOUBLE: (0.0, -1.5, 3.0), BOOLEAN: (True, False),
}  # fmt: skip
ROWS: list[Row] = [
    (offset, *rest)
    for offset, rest in enumerate(
        [
            (1, 2, "a", "b", 1.5, True), (None, 2, None, "b", None, None), (0, 0, "", "", 0.0, False),
            (2**31 - 1, 1, "a", "a", -1.5, None), (-(2**31), -1, "b", None, 3.0, True), (None,) * 6,
            (-7, None, "a", "", None, False),
        ]
    )
]  # fmt: skip


# --- the naive evaluator


class NoValue(Exception):
    pass


def wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def divide(a: int, b: int) -> int:
    if b == 0:
        raise NoValue
    return wrap(int(Decimal(a) / Decimal(b)))


SIMPLE: dict[str, Callable[..., Any]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "NOT": operator.not_,
}  # fmt: skip


def naive(one: Expression, row: Row) -> Any:
    """SQL's textbook: every argument first, NULL for any NULL, but for the words that say otherwise."""
    if isinstance(one, Column):
        return row[one.index]
    if isinstance(one, Literal):
        return one.value
    if one.name in ("AND", "OR"):
        decided = one.name == "OR"
        unknown = False
        for arg in one.args:
            value = naive(arg, row)
            if value is decided:
                return decided
            unknown = unknown or value is None
        return None if unknown else not decided
    if one.name == "CASE":
        for place in range(0, len(one.args) - 1, 2):
            if naive(one.args[place], row):
                return naive(one.args[place + 1], row)
        return naive(one.args[-1], row)
    if one.name == "COALESCE":
        return next((value for arg in one.args if (value := naive(arg, row)) is not None), None)
    values = [naive(arg, row) for arg in one.args]
    if one.name == "IN":
        tests = [None if values[0] is None or other is None else values[0] == other for other in values[1:]]
        return True if True in tests else None if None in tests else False
    if one.name == "BETWEEN":
        x, low, high = values
        tests = [None if x is None or low is None else x >= low, None if x is None or high is None else x <= high]
        return False if False in tests else None if None in tests else True
    if one.name.startswith("IS "):
        wanted = {"NULL": None, "UNKNOWN": None, "TRUE": True, "FALSE": False}
        if "DISTINCT" in one.name:
            same = values[0] is values[1] if None in values else values[0] == values[1]
            return same if "NOT" in one.name else not same
        return (values[0] is wanted[one.name.split()[-1]]) is not ("NOT" in one.name)
    if None in values:
        return None
    if one.name in SIMPLE:
        return SIMPLE[one.name](*values)
    if one.type == INT:
        return divide(*values) if one.name == "/" else wrap({"+": operator.add, "-": operator.sub, "*": operator.mul}[
            one.name](*values))  # fmt: skip
    return {"+": operator.add, "-": operator.sub, "*": operator.mul}[one.name](*map(float, values))


def passes(when: Expression, row: Row) -> bool:
    """Of a condition's parts none is evaluated behind one that is not true."""
    if isinstance(when, Call) and when.name == "AND":
        return all(passes(arg, row) for arg in when.args)
    return naive(when, row) is True


# --- drawn expressions


class Drawn:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._made: dict[Type, list[Expression]] = {INT: [], STRING: [], DOUBLE: [], BOOLEAN: []}

    def of(self, type: Type, depth: int) -> Expression:
        pick = self._random.random()
        if self._made[type] and pick < 0.15:  # the same again
            return self._random.choice(self._made[type])
        if depth == 0 or pick < 0.3:
            if self._random.random() < 0.7:
                return self._random.choice(COLUMNS[type])
            return Literal(None if self._random.random() < 0.15 else self._random.choice(LITERALS[type]), type)
        made = self._call(type, depth - 1)
        self._made[type].append(made)
        return made

    def _call(self, type: Type, depth: int) -> Expression:
        name = self._random.choice(["CASE", "COALESCE", "own", "own", "own"])
        if name == "CASE":
            return call("CASE", self.of(BOOLEAN, depth), self.of(type, depth), self.of(BOOLEAN, depth),
                        self.of(type, depth), self.of(type, depth))  # fmt: skip
        if name == "COALESCE" or type == STRING:
            return call("COALESCE", self.of(type, depth), self.of(type, depth))
        if type != BOOLEAN:
            return call(self._random.choice("+-*/" if type == INT else "+-*"), self.of(type, depth),
                        self.of(type, depth))  # fmt: skip
        other = self._random.choice([INT, STRING, DOUBLE])
        name = self._random.choice(["=", "<>", "<", ">=", "AND", "OR", "NOT", "IS", "IN", "BETWEEN", "DISTINCT"])
        match name:
            case "AND" | "OR":
                return call(name, *(self.of(BOOLEAN, depth) for _ in range(self._random.randint(2, 4))))
            case "NOT":
                return call(name, self.of(BOOLEAN, depth))
            case "IS":
                words = self._random.choice(["NULL", "NOT NULL", "TRUE", "NOT TRUE", "FALSE", "UNKNOWN"])
                return call(f"IS {words}", self.of(BOOLEAN, depth))
            case "IN":
                return call("IN", *(self.of(other, depth) for _ in range(4)))
            case "BETWEEN":
                return call("BETWEEN", *(self.of(other, depth) for _ in range(3)))
            case "DISTINCT":
                return call("IS NOT DISTINCT FROM", self.of(other, depth), self.of(other, depth))
        return call(name, self.of(other, depth), self.of(other, depth))


def outcome(compute: Callable[[], Any]) -> Any:
    """The value, with its class (1, 1.0 and True are equal in Python); "none" where there is none."""
    try:
        value = compute()
    except (NoValue, *expression.FAILURES):
        return "none"
    return type(value), repr(value)


@pytest.mark.parametrize("seed", range(8))
def test_compiled_is_what_a_walk_of_the_tree_gives(seed: int) -> None:
    """Value, NULL, or no value: equal for every drawn expression and row, alone, in a row, and as a condition."""
    drawn = Drawn(seed)
    for _ in range(20):
        exprs = [drawn.of(type, 4) for type in (INT, BOOLEAN, DOUBLE, STRING)]
        for each in exprs:
            function = expression.evaluator(each)
            for row in ROWS:
                assert outcome(lambda: function(row)) == outcome(lambda: naive(each, row)), each  # noqa: B023
        when = drawn.of(BOOLEAN, 3)
        found, failed = expression.calc(exprs, when)(ROWS)
        wanted, dropped = [], 0
        for row in ROWS:
            try:
                if passes(when, row):
                    wanted.append((row[0], *(naive(each, row) for each in exprs)))
            except NoValue:
                dropped += 1
        assert repr(found) == repr(wanted)
        assert failed == dropped
        test = expression.condition(when)
        for row in ROWS:
            assert outcome(lambda: test(row)) == outcome(lambda: passes(when, row))  # noqa: B023


# --- by hand


def test_no_text_of_a_rule_is_code() -> None:
    """Whatever a literal says, it is bound; the function gives it back."""
    evil = '"""); import os; os.abort()  #\n\''
    assert expression.evaluator(Literal(evil, STRING))(()) == evil
    found, _ = expression.calc([Literal(evil, STRING)], call("=", S, Literal(evil, STRING)))([(7, 0, 0, evil)])
    assert found == [(7, evil)]


def test_what_is_behind_a_decision_is_not_evaluated() -> None:
    """AND, OR, CASE and COALESCE guard a division; a sum beside NULL does not."""
    divided = call(">", call("/", I, J), Literal(1, INT))
    row = (0, 8, 0, None, None, None, False)
    assert expression.evaluator(call("AND", call("<>", J, Literal(0, INT)), divided))(row) is False
    assert expression.evaluator(call("OR", call("=", J, Literal(0, INT)), divided))(row) is True
    assert expression.evaluator(call("COALESCE", I, call("/", I, J)))(row) == 8
    with pytest.raises(ArithmeticError):
        expression.evaluator(call("+", Literal(None, INT), call("/", I, J)))(row)


def test_a_common_subexpression_is_computed_once() -> None:
    """In a Calc also between the condition and the columns, but not out of a branch that may not run."""
    calls = []
    counted = Function(lambda args, options: INT, lambda value: calls.append(value) or value)
    library = {**LIBRARY, "COUNTED": counted}
    once = Call("COUNTED", (I,), INT)
    expression.calc([once, call("+", once, J)], call(">", once, Literal(0, INT)), library)(ROWS[:1])
    assert calls == [1]
    calls.clear()
    expression.evaluator(call("CASE", B, once, call("+", once, once)), library)(ROWS[2])
    assert calls == [0]


def test_long_and_deep_expressions() -> None:
    """Hundreds of operands and branches compile; Python's bounds for nesting and indentation are not met."""
    long: Expression = I
    for _ in range(380):
        long = call("+", long, J)
    assert expression.evaluator(long)((0, 1, 1)) == 381
    deep: Expression = J
    for number in range(120):
        deep = call("CASE", call("=", I, Literal(number, INT)), Literal(number + 1, INT), deep)
    assert [expression.evaluator(deep)((0, value, -1)) for value in (5, 119, 500)] == [6, 120, -1]
    wide = call("CASE", *(part for n in range(150) for part in (call("=", I, Literal(n, INT)), Literal(n + 1, INT))), J)
    assert [expression.evaluator(wide)((0, value, -1)) for value in (0, 149, 150)] == [1, 150, -1]


def test_values_are_brought_to_the_type_in_which_they_are_compared() -> None:
    """BIGINT and DOUBLE compare as doubles do in Java; a CASE of INT and DOUBLE gives floats; a text is read once."""
    big = Column(1, BIGINT)
    assert expression.evaluator(call("=", big, D))((0, 2**53 + 1, None, None, None, float(2**53))) is True
    value = expression.evaluator(call("CASE", B, I, D))((0, 1, None, None, None, 2.5, True))
    assert (type(value), value) == (float, 1.0)
    assert expression.evaluator(call(">", I, Literal("3", Type("CHAR", 1))))((0, 7)) is True
    assert expression.evaluator(call("COALESCE", I, Literal(None, NULL)))((0, None)) is None


def test_calc_counts_what_fails() -> None:
    """The operator gives the rows that have values and counts the others."""
    scan = Scan((Named("i", INT), Named("j", INT)), 0, "events", "rule", ())
    node = CalcNode((Named("q", INT),), 0, scan, (call("/", I, J),), None)
    running = Calc(node, Budget())
    taken: list[Row] = []

    class Taker(Calc):
        def push(self, port: int, rows: Any) -> None:
            taken.extend(rows)

    running.outputs.append((Taker(node, Budget()), 0))
    running.push(0, [(1, 8, 2), (2, 1, 0), (3, None, 0)])
    assert (taken, running.failed) == ([(1, 4), (3, None)], 1)
