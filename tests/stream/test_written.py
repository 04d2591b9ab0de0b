"""Rows as JSON: what Flink's format ``json`` writes."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from tests.differences import walk
from vedette.plan.query import Named, Type
from vedette.stream.written import as_line, written

ROW = Type("ROW", args=(("x", Type("INT")), ("y", Type("DATE"))))


@walk(
    ("kind", "value", "text"),
    [
        (Type("BOOLEAN"), True, "true"),
        (Type("BIGINT"), -(1 << 63), "-9223372036854775808"),
        (Type("DOUBLE"), 1.5, "1.5"),
        (Type("DOUBLE"), float("nan"), '"NaN"'),
        (Type("DOUBLE"), float("-inf"), '"-Infinity"'),
        (Type("FLOAT"), 0.10000000149011612, "0.1"),
        (Type("DECIMAL", 10, 2), Decimal("1.50"), "1.50"),
        (Type("DECIMAL", 38, 0), Decimal("9" * 38), "9" * 38),
        (Type("DECIMAL", 10, 8), Decimal("0.00000010"), "0.00000010"),
        (Type("STRING"), 'a"\u20ac\n', '"a\\"€\\n"'),
        (Type("STRING"), "half \ud800", '"half ?"'),
        (Type("BYTES"), b"\x00\xff", '"AP8="'),
        (Type("DATE"), 20485, '"2026-02-01"'),
        (Type("TIME", 3), 45_296_789, '"12:34:56"'),
        (Type("TIMESTAMP", 3), 1_770_091_445_678_000, '"2026-02-03 04:04:05.678"'),
        (Type("TIMESTAMP", 3), 1_770_091_445_600_000, '"2026-02-03 04:04:05.6"'),
        (Type("TIMESTAMP", 6), 1_770_091_445_000_001, '"2026-02-03 04:04:05.000001"'),
        (Type("TIMESTAMP", 3), 1_770_091_445_000_000, '"2026-02-03 04:04:05"'),
        (Type("TIMESTAMP_LTZ", 3), -1000, '"1969-12-31 23:59:59.999Z"'),
        (Type("ARRAY", args=(Type("DECIMAL", 2, 1),)), (Decimal("1.0"), None), "[1.0,null]"),
        (Type("MAP", args=(Type("STRING"), Type("DATE"))), {"k": 0, "n": None}, '{"k":"1970-01-01","n":null}'),
        (ROW, (1, 0), '{"x":1,"y":"1970-01-01"}'),
        (Type("ARRAY", args=(ROW,)), ((None, None),), '[{"x":null,"y":null}]'),
        (Type("STRING"), None, "null"),
    ],
)
def test_a_value(kind: Type, value: Any, text: str) -> None:
    line = as_line(written((Named("v", kind),))((0, value)))
    assert line.decode() == f'{{"v":{text}}}'
    json.loads(line)
