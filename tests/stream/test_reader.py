"""Rows from events: each type's values, what does not fit, and what the agent knows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
import pytest

from tests.differences import walk
from vedette.decode.decoder import record
from vedette.plan.query import METADATA, Column, Field, Named, Scan, Type
from vedette.stream.reader import Event, Reader, converter
from vedette.stream.values.numbers import single

TIME = 1_795_168_800_123_456
ROW = Type("ROW", args=(("a", Type("INT")), ("b", Type("STRING"))))


def scan(of: Type, path: str = "v", time: int = 0, *, metadata: bool = False) -> Scan:
    mark = Column(1, of) if time else None
    return Scan((Named("v", of),), time, "t", "r", (Field(path, metadata),), mark)


def event(value: Any, received_at: int = 0) -> Event:
    one = record(orjson.dumps({"v": value, "o": {"v": value}}), "json", received_at=received_at)
    return Event(one, 7, input="in", host=lambda: "h", time=lambda: TIME)


@walk(
    ("of", "value", "expected"),
    [
        (Type("STRING"), "x", "x"),
        (Type("STRING"), 5, "5"),
        (Type("STRING"), 1e7, "10000000.0"),
        (Type("STRING"), True, "true"),
        (Type("INT"), 5, 5),
        (Type("INT"), 3.7, 3),
        (Type("INT"), "-5", -5),
        (Type("TINYINT"), -128, -128),
        (Type("BIGINT"), (1 << 63) - 1, (1 << 63) - 1),
        (Type("DOUBLE"), 5, 5.0),
        (Type("DOUBLE"), "1e3", 1000.0),
        (Type("FLOAT"), 0.1, single(0.1)),
        (Type("DECIMAL", 4, 2), 1.005, Decimal("1.01")),
        (Type("DECIMAL", 4, 2), "12.345", Decimal("12.35")),
        (Type("BOOLEAN"), True, True),
        (Type("BOOLEAN"), "FALSE", False),
        (Type("DATE"), "1970-02-01", 31),
        (Type("TIME", 3), "00:00:01.5", 1500),
        (Type("TIMESTAMP", 3), "2026-11-20T10:00:00.123456", 1_795_168_800_123_000),
        (Type("TIMESTAMP_LTZ", 3), "2026-11-20T11:00:00+01:00", 1_795_168_800_000_000),
        (Type("TIMESTAMP_LTZ", 6), 1_795_168_800, 1_795_168_800_000_000),
        (Type("BYTES"), "aGk=", b"hi"),
        (Type("ARRAY", args=(Type("INT"),)), [1, None, "2"], (1, None, 2)),
        (Type("MAP", args=(Type("STRING"), Type("INT"))), {"a": 1}, {"a": 1}),
        (ROW, {"a": 1}, (1, None)),
    ],
)  # fmt: skip
def test_a_value_of_each_type(of: Type, value: object, expected: object) -> None:
    """By name and by dotted path; null and absent are NULL."""
    for path in ("v", "o.v"):
        one = scan(of, path)
        reader = Reader([one])
        assert reader.row(one, event(value)) == (7, expected)
        assert reader.row(one, event(None)) == (7, None)
        assert reader.unfit == 0
    gone = scan(of, "nothing")
    assert Reader([gone]).row(gone, event(value)) == (7, None)


@walk(
    ("of", "value"),
    [
        (Type("STRING"), ["x"]),
        (Type("STRING"), {"x": 1}),
        (Type("INT"), "5.0"),
        (Type("INT"), 1 << 31),
        (Type("INT"), True),
        (Type("INT"), "9" * 5000),
        (Type("DOUBLE"), "x"),
        (Type("DECIMAL", 4, 2), 100),
        (Type("DECIMAL", 4, 2), "1e999999"),
        (Type("BOOLEAN"), 1),
        (Type("DATE"), "yesterday"),
        (Type("TIME", 3), "25:00:00"),
        (Type("TIMESTAMP", 3), "then"),
        (Type("BYTES"), "é"),
        (Type("ARRAY", args=(Type("INT"),)), 1),
        (Type("ARRAY", args=(Type("INT"),)), [[1]]),
        (ROW, [1]),
    ],
)
def test_what_does_not_fit_is_null_and_counted(of: Type, value: object) -> None:
    """One bad field takes nothing else with it."""
    one = scan(of)
    reader = Reader([one])
    assert (reader.row(one, event(value)), reader.unfit) == ((7, None), 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("event_time", TIME // 1000 * 1000), ("received_at", TIME // 1000 * 1000), ("host", "h"), ("input", "in"),
     ("raw", '{"v":1,"o":{"v":1}}'), ("offset", 7)],
)  # fmt: skip
def test_metadata(name: str, expected: object) -> None:
    """What the agent knows of an event, each of the table's names."""
    one = scan(METADATA[name], name, metadata=True)
    assert Reader([one]).row(one, event(1, TIME)) == (7, expected)


def test_every_metadata_name_has_a_value() -> None:
    """No row of the table is without one."""
    for name, of in METADATA.items():
        one = scan(of, name, metadata=True)
        assert Reader([one]).row(one, event(1, TIME))[1] is not None, name


def test_a_time_far_after_the_receipt_is_the_receipt() -> None:
    """So that one wrong clock does not make all others late; times have whole milliseconds."""
    one = scan(Type("TIMESTAMP_LTZ", 3), time=1)
    assert Reader([one]).row(one, event("2199-01-01T00:00:00Z", TIME)) == (7, TIME // 1000 * 1000)
    assert Reader([one]).row(one, event("2026-11-20T10:00:00Z", TIME)) == (7, 1_795_168_800_000_000)


def test_a_type_that_no_event_has_is_refused() -> None:
    """When the plan is loaded, not at an event."""
    with pytest.raises(ValueError, match="cannot be of type INTERVAL_SECOND"):
        converter(Type("INTERVAL_SECOND"))
