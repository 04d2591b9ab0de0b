"""Numbers of JSON in every form: none is lost to a float that prints otherwise, nor raises."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differences import walk
from vedette.decode.decoder import from_mapping
from vedette.decode.values import from_json, from_strict

BEYOND = str(2**64)


@walk(
    ("text", "value"),
    [
        ("18446744073709551615", 2**64 - 1),
        (BEYOND, BEYOND),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", "-9223372036854775809"),
        ("99999999999999999999999999999999999999", "9" * 38),
        ("1" + "0" * 400, "1" + "0" * 400),
        ("1e400", "1e400"),
        ("-1E+999", "-1E+999"),
        ("1e20", 1e20),
        ("100000000000000000000.0", 1e20),
        ("0.10000000000000000000000000001", 0.1),
        ("-0", 0),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_a_number(text: str, value: Any) -> None:
    """By itself and wherever it stands: 64 bits are a whole number, what is beyond is a text as it is written."""
    for around, way in (
        (text, ()),
        (f'{{"a":{text}}}', ("a",)),
        (f'{{"a":[1,{{"b": {text} }}],"c":"{BEYOND}"}}', ("a", 1, "b")),
        (f' {{"\\ud83d\\ude00":"é","a":{text}}}\r\n', ("a",)),
    ):
        found: Any = from_json(around.encode())
        for step in way:
            found = found[step]
        assert (type(found), found) == (type(value), value), around


def test_a_number_of_python() -> None:
    """An event of a rule's test, or of a caller."""
    event: Any = {"n": 2**64, "a": "\ud800", 3: {1}}
    assert from_mapping(event).get("n") == BEYOND


@given(st.integers(-(10**25), 10**25), st.integers(0, 60), st.booleans())
def test_whole_numbers(number: int, before: int, nested: bool) -> None:
    """At whatever place of a text they stand."""
    text = b'{"%b":%d}' % (b"x" * before, number)
    text = b'{"y":[%b]}' % text if nested else text
    value = from_strict(text)
    while isinstance(value, (dict, list)):
        (value,) = value.values() if isinstance(value, dict) else value
    assert value == (number if -(2**63) <= number < 2**64 else str(number))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers(-(2**63), 2**64 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(json_values, st.integers(10**19, 10**24))
def test_all_else_stays(value: Any, digits: int) -> None:
    """Beside digits enough to look twice, every other value is what it was."""
    text = orjson.dumps({"digits": str(digits), "value": value})
    assert from_json(text) == orjson.loads(text)


@pytest.mark.parametrize("depth", [900, 5000])
def test_deep(depth: int) -> None:
    """Nesting beyond what Python's reader follows: the value is as it is read without it, or there is none."""
    text = b"[" * depth + BEYOND.encode() + b"]" * depth
    try:
        value = from_json(text)
    except ValueError:
        return
    while isinstance(value, list):
        (value,) = value
    assert value == BEYOND or math.isclose(float(str(value)), 2.0**64)
