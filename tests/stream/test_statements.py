"""Statements as evaluation sees them: rows as alerts' texts, and time that passes without rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from vedette.plan.query import Calc, Column, Named, Scan, Statement, Type
from vedette.stream.statements import Selected, shown

TEXT, TIME = Type("STRING"), Type("TIMESTAMP_LTZ", 3)
NOON = 1_795_176_000_000_000


def selected(*columns: tuple[str, Type, Any], offset: int = 7) -> Selected:
    named = tuple(Named(name, of) for name, of, _ in columns)
    scan = Scan(named, 0, "t", "r", ())
    root = Calc(named, 0, scan, tuple(Column(i, one.type) for i, one in enumerate(named, 1)))
    return Selected(
        Statement("s", "S", "low", (), root, "d", "a.sql", 1), (offset, *(value for _, _, value in columns))
    )


@pytest.mark.parametrize(
    ("value", "of", "expected"),
    [
        (None, TEXT, None),
        ("x", TEXT, "x"),
        (True, Type("BOOLEAN"), "true"),
        (5, Type("INT"), "5"),
        (1.5, Type("DOUBLE"), "1.5"),
        (Decimal("1.50"), Type("DECIMAL", 4, 2), "1.50"),
        (b"\x01\xff", Type("BYTES"), "01ff"),
        (NOON, TIME, "2026-11-20T12:00:00.000Z"),
        (NOON, Type("TIMESTAMP", 3), "2026-11-20T12:00:00.000"),
        (31, Type("DATE"), "1970-02-01"),
        (1500, Type("TIME", 3), "00:00:01.500000"),
        ((1, None, 2), Type("ARRAY", args=(Type("INT"),)), "1, , 2"),
        ({"a": 1}, Type("MAP", args=(TEXT, Type("INT"))), "a=1"),
        ((1, "b"), Type("ROW", args=(("x", Type("INT")), ("y", TEXT))), "x=1, y=b"),
    ],
)  # fmt: skip
def test_a_value_as_a_text(value: Any, of: Type, expected: str | None) -> None:
    """Of every type that a column can have; NULL has none."""
    assert shown(value, of) == expected


def test_what_an_alert_is_made_of() -> None:
    """Columns are fields but those that go before the statement's own words; a window and a count are known by name."""
    one = selected(
        ("level", TEXT, "high"), ("Title", TEXT, "T"), ("src", TEXT, "a"), ("gone", TEXT, None),
        ("count", Type("BIGINT"), 3), ("window_start", TIME, NOON), ("window_end", TIME, NOON + 60_000_000),
    )  # fmt: skip
    assert (one.offset, one.head("level"), one.head("title"), one.head("tags"), one.times) == (7, "high", "T", "", 3)
    assert one.window == (NOON, NOON + 59_999_999)
    assert one.fields == {
        "src": "a", "count": "3", "window_start": "2026-11-20T12:00:00.000Z", "window_end": "2026-11-20T12:01:00.000Z",
    }  # fmt: skip
    plain = selected(("src", TEXT, "a"))
    assert (plain.window, plain.times, plain.head("level"), plain.key) == (None, 1, "", b"")
