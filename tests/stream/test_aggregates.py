"""Aggregates: Flink's types, exact values, and the same whatever the stretches that are merged."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differences import walk
from tests.stream import naive
from vedette.plan.query import Aggregate, Column, Type
from vedette.stream.aggregates.accumulators import Accumulators
from vedette.stream.aggregates.parts import dump, load, size
from vedette.stream.aggregates.table import AGGREGATES, REFUSED
from vedette.stream.functions.table import WrongTypes
from vedette.stream.keyed import pack, unpack

PRICES = tuple(Decimal(n) for n in ("1.00", "2.00", "4.00", "8.00", "7.00", "16.00", "3.00"))
INT, BIGINT, DOUBLE, FLOAT, STRING = map(Type, ("INT", "BIGINT", "DOUBLE", "FLOAT", "STRING"))
TINYINT, DECIMAL = Type("TINYINT"), Type("DECIMAL", 10, 2)


def make(name: str, kind: Type, options: tuple[Any, ...] = (), **more: Any) -> Aggregate:
    args = (Column(1, kind),)
    return Aggregate(name, args, AGGREGATES[name].infer(args, options), options=options, **more)


def value(one: Aggregate, *values: Any) -> Any:
    held = Accumulators([one])
    add, _, values_of = held.compiled([one])
    fields = held.new()
    for each in values:
        add(fields, (0, each))
    return values_of(fields)[0]


CASES: list[tuple[str, Type, tuple[Any, ...], tuple[Any, ...], Any, Type]] = [
    ("COUNT", STRING, (), ("a", None, "b"), 2, BIGINT),
    ("SUM", INT, (), ((1 << 31) - 1, 1), -(1 << 31), INT),
    ("SUM", TINYINT, (), (100, 100), -56, TINYINT),
    ("SUM", BIGINT, (), ((1 << 63) - 1, 2), -(1 << 63) + 1, BIGINT),
    ("SUM", INT, (), (None,), None, INT),
    ("SUM", DOUBLE, (), (1e300, 1.0, 1e-300, -1e300, -1.0), 1e-300, DOUBLE),
    ("SUM", DOUBLE, (), (0.1,) * 10, 1.0, DOUBLE),
    ("SUM", DOUBLE, (), (1e308, 1e308, -1e308), 1e308, DOUBLE),
    ("SUM", DOUBLE, (), (1e308, 1e308), math.inf, DOUBLE),
    ("SUM", DOUBLE, (), (math.inf, 1.0), math.inf, DOUBLE),
    ("SUM", FLOAT, (), (0.5, 0.25), 0.75, FLOAT),
    ("SUM", DECIMAL, (), (Decimal("1.10"), Decimal("2.20")), Decimal("3.30"), Type("DECIMAL", 38, 2)),
    ("AVG", INT, (), (1, 2, 4), 2, INT),
    ("AVG", INT, (), (-1, -2, -4), -2, INT),
    ("AVG", DOUBLE, (), (1.0, 2.0), 1.5, DOUBLE),
    ("AVG", FLOAT, (), (0.5, 1.5, -4.5), -0.8333333134651184, FLOAT),
    ("AVG", DECIMAL, (), (Decimal("1.00"), Decimal("1.00"), Decimal("3.00")), Decimal("1.666667"),
     Type("DECIMAL", 38, 6)),
    ("MIN", STRING, (), ("b", "a", None), "a", STRING),
    ("MAX", INT, (), (None, 3, 5), 5, INT),
    ("STDDEV_POP", INT, (), (1, 2, 8, 7, 16), 5, INT),
    ("STDDEV_SAMP", INT, (), (4, 3), 0, INT),
    ("STDDEV_SAMP", INT, (), (4,), None, INT),
    ("STDDEV", DOUBLE, (), (0.0, 2.0), math.sqrt(2), DOUBLE),
    ("VAR_POP", INT, (), (1, 2, 8, 7, 16), 28, INT),
    ("VAR_SAMP", INT, (), (1, 2, 8, 7, 16), 35, INT),
    ("VARIANCE", DOUBLE, (), (1e9, 1e9 + 1), 0.5, DOUBLE),
    ("VAR_POP", DOUBLE, (), (math.inf, 1.0), None, DOUBLE),
    ("STDDEV_SAMP", DECIMAL, (), PRICES,
     Decimal("5.145502"), Type("DECIMAL", 38, 6)),
    ("VAR_POP", DECIMAL, (), PRICES,
     Decimal("22.693878"), Type("DECIMAL", 38, 6)),
    ("PERCENTILE", INT, (0.5,), (1, 2, 4, 8, 7, 16, 3), 4.0, DOUBLE),
    ("PERCENTILE", DOUBLE, (0.9,), (0.5, 1.5, 2.25, 4.5, -4.5, 3.5, 7.75), 5.800000000000001, DOUBLE),
    ("PERCENTILE", INT, ((0.5, 0.9),), (1, 2, 4, 8, 7, 16, 3), (4.0, 11.200000000000003),
     Type("ARRAY", args=(DOUBLE,))),
    ("FIRST_VALUE", INT, (), (None, 3, 5), 3, INT),
    ("LAST_VALUE", INT, (), (3, 5, None), 5, INT),
    ("LISTAGG", STRING, (), ("a", None, "b"), "a,b", STRING),
    ("LISTAGG", STRING, ("|",), ("a", "b"), "a|b", STRING),
    ("LISTAGG", STRING, (), (None,), None, STRING),
    ("COLLECT", STRING, (), ("a", "b", None, "a"), {"a": 2, "b": 1}, Type("MAP", args=(STRING, INT))),
    ("ARRAY_AGG", INT, (), (3, None, 5), (3, None, 5), Type("ARRAY", args=(INT,))),
]  # fmt: skip
"""Name, type and options; the values; what comes of them, and its type."""


@walk(("name", "kind", "options", "values", "expected", "type"), CASES)
def test_each_aggregate_as_flink_has_it(
    name: str, kind: Type, options: tuple[Any, ...], values: tuple[Any, ...], expected: Any, type: Type
) -> None:
    one = make(name, kind, options)
    assert one.type == type
    found = value(one, *values)
    if expected is None and found is not None:
        assert math.isnan(found)
    else:
        assert found == expected


def test_every_row_has_a_case_above() -> None:
    assert {name for name, *_ in CASES} == set(AGGREGATES)
    assert not AGGREGATES.keys() & REFUSED.keys()


@pytest.mark.parametrize(
    ("name", "kind", "options", "says"),
    [
        ("SUM", STRING, (), "takes a number"),
        ("LISTAGG", INT, (), "CAST"),
        ("PERCENTILE", INT, (), "percentage"),
        ("PERCENTILE", INT, (1.5,), "between 0 and 1"),
        ("MIN", Type("ARRAY", args=(INT,)), (), "no order"),
    ],
)
def test_wrong_types_are_refused_with_what_is_right(name: str, kind: Type, options: tuple[Any, ...], says: str) -> None:
    with pytest.raises(WrongTypes, match=says):
        make(name, kind, options)


def test_aggregates_share_their_parts() -> None:
    every = [make(name, DOUBLE) for name in ("COUNT", "SUM", "AVG")]
    assert len(Accumulators(every).parts) == 2


@given(
    st.sampled_from(["SUM", "AVG", "VAR_POP", "STDDEV_SAMP", "MIN", "MAX", "COUNT", "PERCENTILE", "ARRAY_AGG"]),
    st.lists(st.lists(st.none() | st.floats(-1e200, 1e200), max_size=8), max_size=5), st.booleans(),
)  # fmt: skip
def test_stretches_merge_to_what_all_rows_give(name: str, stretches: list[list[Any]], distinct: bool) -> None:
    """With what was written of each and read again."""
    one = make(name, DOUBLE, (0.3,) if name == "PERCENTILE" else (), distinct=distinct and name != "ARRAY_AGG")
    held = Accumulators([one])
    add, merge, values = held.compiled([one])
    whole = held.new()
    for stretch in stretches:
        fields = held.new()
        for each in stretch:
            add(fields, (0, each))
        data = unpack(pack(list(map(dump, held.fields, fields))))
        merge(whole, list(map(load, held.fields, data)))
    assert all(size(kind, field) >= 8 for kind, field in zip(held.fields, whole, strict=True))
    expected = naive.aggregate(one, [(0, each) for stretch in stretches for each in stretch])
    assert values(whole)[0] == expected


def test_the_page_has_a_line_for_each_aggregate() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sql.md").read_text("utf-8")
    missing = [
        line for name, row in AGGREGATES.items() if (line := f"| `{name}` | `{row.example}` | {row.says} |") not in page
    ]
    assert not missing
