"""Texts that a sender chooses fail a row at most, and are not kept."""

from __future__ import annotations

from typing import Any

import pytest

from vedette.model.event import MAX_EVENT
from vedette.plan.query import Call, Column, Expression, Literal, Type
from vedette.stream import expression
from vedette.stream.functions import ip, json
from vedette.stream.functions.library import LIBRARY

TEXT, TEXTS = Type("STRING"), Type("ARRAY", args=(Type("STRING"),))


def call(name: str, *args: Expression) -> Call:
    return Call(name, args, LIBRARY.infer(name, args))


def values_of(expr: Expression, *values: Any) -> tuple[list[Any], int]:
    """The values of a row each, and how many failed."""
    rows, failed = expression.calc([expr])([(0, value) for value in values])
    return [value for _, value in rows], failed


def test_a_text_that_nests_deep_fails_its_row_alone() -> None:
    """Of whatever depth, in whatever place of Python's stack: other rows have their values."""
    query = call("JSON_QUERY", Column(1, TEXT), Literal("$", TEXT))
    deep = ['{"a":' * depth + "1" + "}" * depth for depth in range(100, 3000, 100)]
    values, failed = values_of(query, *deep, '{"b": 2}')
    assert failed
    assert values[-1] == '{"b":2}'


def test_a_pattern_that_nests_deep_fails_its_row_alone() -> None:
    matched = call("REGEXP", Literal("x", TEXT), Column(1, TEXT))
    values, _ = values_of(matched, "(" * 5000 + ")" * 5000, "x")
    assert values[-1] is True


@pytest.mark.parametrize("name", ["ARRAY_INTERSECT", "ARRAY_EXCEPT"])
def test_arrays_are_compared_by_what_makes_elements_equal(name: str) -> None:
    """In a time that does not grow with the product of their lengths: a million pairs a thousand times over."""
    long = tuple(map(str, range(30_000)))
    made = expression.evaluator(call(name, Column(1, TEXTS), Column(2, TEXTS)))
    found = made((0, (*long, None, *long), (*long[::-1], "x")))
    assert found == (long if name == "ARRAY_INTERSECT" else (None,))


def test_long_texts_are_not_remembered() -> None:
    """Neither as addresses nor, but for the last one, as documents: their number was bounded, their bytes were not."""
    version = expression.evaluator(call("IP_VERSION", Column(1, TEXT)))
    value = expression.evaluator(call("JSON_VALUE", Column(1, TEXT), Literal("$.a", TEXT)))
    ip._remembered.cache_clear()
    for number in range(4):
        assert version((0, f"{number}" + "x" * MAX_EVENT)) is None
        assert value((0, f'{{"a": {number}, "b": "{"x" * MAX_EVENT}"}}')) == str(number)
    assert ip._remembered.cache_info().currsize == 0
    assert json._long.cache_info().currsize == 1
