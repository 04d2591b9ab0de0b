"""Type rules: what Flink gives for arithmetic, for choices, and what it refuses (vectors: tests/differential)."""

from __future__ import annotations

import pytest

from tests.differences import walk
from vedette.plan.query import Column, Literal, Type
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import WrongTypes
from vedette.stream.values.types import BIGINT, BOOLEAN, DOUBLE, FLOAT, INT, NULL, STRING, TINYINT, decimal

MONEY = Type("DECIMAL", 10, 2)


@walk(
    ("name", "types", "value"),
    [
        ("+", (TINYINT, TINYINT), TINYINT),
        ("+", (INT, BIGINT), BIGINT),
        ("*", (MONEY, MONEY), Type("DECIMAL", 21, 4)),
        ("/", (MONEY, INT), Type("DECIMAL", 21, 13)),
        ("%", (BIGINT, INT), INT),
        ("+", (MONEY, DOUBLE), DOUBLE),
        ("*", (FLOAT, Type("DECIMAL", 2, 1)), DOUBLE),
        ("CASE", (BOOLEAN, INT, Type("DECIMAL", 2, 1)), Type("DECIMAL", 11, 1)),
        ("CASE", (BOOLEAN, Type("CHAR", 1), Type("CHAR", 3)), Type("VARCHAR", 3)),
        ("COALESCE", (INT, NULL), INT),
        ("=", (STRING, NULL), BOOLEAN),
        ("+", (Type("TIMESTAMP", 3), Type("INTERVAL_SECOND")), Type("TIMESTAMP", 3)),
    ],
)
def test_types_of_values(name: str, types: tuple[Type, ...], value: Type) -> None:
    """Widest integers, DECIMAL by Flink's formulas, the first of two floats, VARCHAR for texts of two lengths."""
    assert LIBRARY.infer(name, [Column(index, one) for index, one in enumerate(types, 1)]) == value


@walk(
    ("name", "types", "text"),
    [
        ("=", (INT, STRING), r"=\(INT, STRING\): the two cannot be compared; CAST one of them"),
        ("+", (INT, STRING), "argument 2 must be a number, not STRING"),
        ("%", (DOUBLE, INT), "whole numbers"),
        ("AND", (INT, BOOLEAN), "argument 1 must be BOOLEAN"),
        ("-", (Type("TIMESTAMP", 3), Type("TIMESTAMP", 3)), "write TIMESTAMPDIFF"),
        ("ABS", (INT, INT), "takes 1 argument, got 2"),
        ("RAND", (), "a replay must give the same"),
        ("CURRENT_TIMESTAMP", (), "use the event's time"),
        ("NOSUCH", (INT,), "there is no function NOSUCH"),
    ],
)
def test_refusals(name: str, types: tuple[Type, ...], text: str) -> None:
    """What Flink refuses is refused, and what would not replay; the text names function, types, and what to write."""
    with pytest.raises(WrongTypes, match=text):
        LIBRARY.infer(name, [Column(index, one) for index, one in enumerate(types, 1)])


def test_a_text_beside_a_number_in_an_ordered_comparison() -> None:
    """``>`` reads a text as a number, ``=`` does not."""
    assert LIBRARY.infer(">", [Column(1, INT), Literal("3", Type("CHAR", 1))]) == BOOLEAN


def test_decimals_of_more_than_38_digits() -> None:
    """The fraction gives way, but for 6 digits."""
    assert decimal(41, 21) == Type("DECIMAL", 38, 18)
    assert decimal(60, 30) == Type("DECIMAL", 38, 8)
    assert decimal(50, 4) == Type("DECIMAL", 38, 4)
