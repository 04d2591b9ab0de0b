"""What a function may honestly give is believed; what only a forger can give is not."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from vedette.plan.query import Type, dump
from vedette.stream.keyed import unpack
from vedette.stream.userfunctions import Spec
from vedette.udf.answers import checked
from vedette.udf.values import MAX_ACCUMULATOR, pack, taken

DECIMAL = Type("DECIMAL", 5, 2)
ROW = Type("ROW", args=(("a", Type("INT")), ("b", Type("STRING"))))
HONEST: list[tuple[Type, list[Any]]] = [
    (Type("BOOLEAN"), [True, 0, 255]),
    (Type("TINYINT"), [-128, 127, 1.9]),
    (Type("INT"), [-(1 << 31), (1 << 31) - 1, True]),
    (Type("BIGINT"), [-(1 << 63), (1 << 63) - 1]),
    (Type("FLOAT"), [1, 0.1, float("inf"), float("nan")]),
    (Type("DOUBLE"), [1, 0.1, float("-inf")]),
    (DECIMAL, [Decimal("-999.99"), Decimal(1), Decimal("0.005"), Decimal("-0"), Decimal("1E+2")]),
    (Type("DECIMAL", 38, 0), [Decimal("9" * 38), Decimal("9" * 38).copy_negate()]),
    (Type("STRING"), ["", "é", "\ud800"]),
    (Type("BYTES"), [b"", bytearray(b"x")]),
    (Type("DATE"), [date.min, date.max, datetime(2026, 1, 1)]),
    (Type("TIME"), [time.min, time.max]),
    (Type("TIMESTAMP", 6), [datetime.min, datetime.max]),
    (Type("TIMESTAMP_LTZ", 3), [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)]),
    (Type("ARRAY", args=(DECIMAL,)), [[], [Decimal(1), None]]),
    (Type("MAP", args=(Type("STRING"), Type("INT"))), [{}, {"a": 1, None: None}]),
    (ROW, [(1, "a"), [None, None]]),
]


def believed(of: Type, value: Any, method: str = "eval") -> bool:
    return checked(Spec("", "f.g", method, (), (of,)))(value)


@pytest.mark.parametrize(("of", "values"), HONEST, ids=str)
def test_honest_values(of: Type, values: list[Any]) -> None:
    """All that the child's own check lets through, at its bounds, also as the value of an aggregate and in rows of a
    table function."""
    change = taken(dump(of))
    for value in values:
        sent = unpack(pack(change(value)))
        assert believed(of, sent), value
        assert believed(of, sent, "value")
        assert believed(of, ((sent,), (None,)))
    assert believed(of, None)


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (DECIMAL, Decimal("1E+999999999")), (DECIMAL, Decimal("1.5")), (DECIMAL, Decimal("1000.00")),
        (DECIMAL, Decimal("NaN")), (DECIMAL, 1), (Type("INT"), 1 << 31), (Type("INT"), "1"), (Type("INT"), True),
        (Type("BIGINT"), 1.0), (Type("DATE"), 1 << 40), (Type("TIME"), 86_400_000), (Type("TIMESTAMP", 6), 1 << 62),
        (Type("STRING"), b"x"), (Type("DOUBLE"), "nan"), (Type("ARRAY", args=(DECIMAL,)), (Decimal("1E+9"),)),
        (Type("MAP", args=(Type("INT"), Type("INT"))), {"a": 1}), (ROW, (1,)), (ROW, (1, 2)), (Type("NULL"), 1),
    ],
    ids=str,
)  # fmt: skip
def test_forged_values(of: Type, value: Any) -> None:
    """Too large, of another type, of another shape."""
    assert not believed(of, value)


def test_accumulators() -> None:
    """Bytes up to their bound, with how many items failed and why."""
    fold = checked(Spec("", "f.g", "fold", (), (Type("INT"),)))
    assert fold((b"x", 0, "", False))
    assert fold(None)
    for forged in (
        (b"x" * (MAX_ACCUMULATOR + 1), 0, "", False),
        ("x", 0, "", False),
        (b"x", -1, "", False),
        (b"x",),
        1,
    ):
        assert not fold(forged)
