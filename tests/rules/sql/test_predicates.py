# ruff: noqa: E501 - conditions as they are
"""A WHERE and the rule that selects its events: whenever the WHERE is true, so is the rule."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deep import examples
from tests.differences import walk
from tests.reference import holds as naive
from tests.reference import true
from tests.rules.sql.plans import read, selecting
from vedette.decode.decoder import Record, record
from vedette.plan.query import Calc, Scan
from vedette.stream.expression import condition
from vedette.stream.functions.library import LIBRARY
from vedette.stream.reader import Event, Reader

TABLE = (
    "CREATE TABLE t (s STRING, v VARCHAR(9), n INT, b BIGINT, d DOUBLE, f FLOAT, m DECIMAL(6, 2), g BOOLEAN, `o.p` STRING)"
    " WITH ('connector' = 'vedette');\n"
)
TEXTS = ["", "a", "A", "ab", "aB%", "a_b", "b\na", "\u212a", "k", "é", "É", "5", "-5", "5.0", "05", "1e2", " 5", "true", "TRUE",
         "nan", "\u0665", "1_0"]  # fmt: skip
NUMBERS = [
    0,
    1,
    -1,
    5,
    -5,
    6,
    100,
    2147483647,
    1 << 40,
    0.5,
    -0.5,
    5.5,
    -5.5,
    5.004,
    5.005,
    1.45,
    99.999,
    1e10,
    1e-10,
    0.1,
]
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.sampled_from(TEXTS), st.sampled_from(NUMBERS), st.integers(-12, 12)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["p", "q"]), inner, max_size=2)
    ),
    max_leaves=3,
)
ODD_TEXTS = [" 5", "+5", "1_0", "\u0665", "5.", ".5", "nan", "inf", "Infinity", "0x5", "5e0", "005", "-0", "1e400"]
ODD = st.sampled_from([*NUMBERS, *map(str, NUMBERS), *ODD_TEXTS])
EVENTS = st.fixed_dictionaries(
    {},
    optional={name: st.one_of(ODD, VALUES) for name in "nbdfm"}
    | {name: st.one_of(st.sampled_from(TEXTS), VALUES) for name in "svgo"},
)
WORDS = [one for one in ("LIKE", "LOWER") if one in LIBRARY]


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@st.composite
def conditions(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["text", "number", "null", "flag", "in", "between", *WORDS]))
    text = draw(st.sampled_from(["s", "v", "`o.p`"]))
    number = draw(st.sampled_from(["n", "b", "d", "f", "m"]))
    values = [0, 1, 5, -5, 100, 0.5, 5.5, 1.45, 5.01, -0.5] if number in "dfm" else [0, 1, -1, 5, -5, 100, 2147483647]
    op = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    some = st.sampled_from(values)
    match kind:
        case "text":
            return f"{text} {draw(st.sampled_from(['=', '<>', '>']))} {quoted(draw(st.sampled_from(TEXTS)))}"
        case "number":
            return f"{number} {op} {draw(some)}" if draw(st.booleans()) else f"{draw(some)} {op} {number}"
        case "null":
            return f"{draw(st.sampled_from([text, number]))} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case "flag":
            return draw(
                st.sampled_from(
                    ["g", "g IS TRUE", "g IS FALSE", "NOT g", "n > d", "s = v", "s IS NOT DISTINCT FROM 'a'"]
                )
            )
        case "in":
            return f"{text} {draw(st.sampled_from(['', 'NOT ']))}IN ({', '.join(map(quoted, draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3))))})"
        case "between":
            return f"{number} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {draw(some)} AND {draw(some)}"
        case "LIKE":
            pattern = "".join(draw(st.lists(st.sampled_from(["%", "_", "a", "b", "A", "\\", "k", "\n"]), max_size=4)))
            escape = draw(st.sampled_from(["", " ESCAPE '\\'"]))
            return f"{text} {draw(st.sampled_from(['', 'NOT ']))}LIKE {quoted(pattern)}{escape}"
    return f"LOWER({text}) = {quoted(draw(st.sampled_from(['a', 'ab', 'k', '5', 'A'])))}"


CONDITIONS = st.recursive(
    conditions(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: f"({two[0]} AND {two[1]})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]} OR {two[1]})"),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=4,
)


def events_taken(where: str, events: list[Record]) -> tuple[int, int]:
    """How many events a WHERE takes, and how many its rule; the rule all that the WHERE takes."""
    rules = read(f"{TABLE}SELECT 1 AS `one` FROM t WHERE {where}")
    if rules.refused:  # ESCAPE before another letter
        assert "LIKE" in where, rules.refused
        return 0, 0
    root = rules.statements[0].root
    assert isinstance(root, Calc)
    scan = root.input
    assert isinstance(scan, Scan)
    assert root.when is not None
    holds, reader = condition(root.when), Reader([scan])
    taken = selected = 0
    for event in events:
        row = reader.row(scan, Event(event, 1, input="x", host=lambda: None, time=lambda: 0))
        by_rule = true(rules.rules[0].expr, [naive(one, event) for one in rules.predicates].__getitem__)
        try:
            by_where = holds(row)
        except (ArithmeticError, ValueError):
            continue
        assert by_rule or not by_where, (where, event.raw)
        taken, selected = taken + by_where, selected + by_rule
    return taken, selected


@examples(80)
@given(CONDITIONS, st.lists(EVENTS, min_size=1, max_size=12))
def test_a_rule_holds_whenever_the_where_does(where: str, events: list[dict[str, Any]]) -> None:
    """On decoded events, through the reader of rows: no event that a WHERE takes is one that its rule leaves out."""
    events_taken(where, [record(orjson.dumps(event), "json") for event in events])


@pytest.mark.parametrize("column", ["n", "b", "d", "f", "m"])
def test_numbers_however_they_are_written(column: str) -> None:
    """Each comparison of a number column, over numbers and texts that may be ones: no row that the rule leaves out."""
    given = [
        *NUMBERS,
        *map(str, NUMBERS),
        *ODD_TEXTS,
        *TEXTS,
        *(x / 1000 for x in range(-5600, 5700, 95)),
        [5],
        {"p": 5},
        True,
    ]
    events = [record(orjson.dumps({column: value}), "json") for value in given]
    total = 0
    for op in ("=", "<>", "<", "<=", ">", ">="):
        for number in (0, 1, -1, 5, -5, 100, 0.5, 5.5, -5.5, 1.45, 1.44, 5.01):
            total += events_taken(f"{column} {op} {number}", events)[0]
    assert total > 1_000


@walk(
    ("where", "expected"),
    [
        ("s = 'a' AND n > 5", "(s is 'a' (case-sensitive)) and (n >= 6)"),
        ("s = 'a' OR s = 'b'", "(s is 'a' (case-sensitive)) or (s is 'b' (case-sensitive))"),
        ("s = 'a' OR UPPER(s) = 'B'" if "UPPER" in LIBRARY else "s = 'a' OR s = s || s", "any"),
        ("s IN ('a', 'b') AND s = v", "((s is 'a' (case-sensitive)) or (s is 'b' (case-sensitive))) and ((not (s is null or absent)) and (not (v is null or absent)))"),
        ("NOT (s = 'a' OR n IS NULL)", "((not (s is null or absent)) and (not (s is 'a' (case-sensitive)))) and (not (n is null or absent))"),
        ("n = 5", "(n >= 5) and (n < 6)"),
        ("n = 0", "(n > -1) and (n < 1)"),
        ("n BETWEEN -5 AND 5", "(n > -6) and (n < 6)"),
        ("s IS NULL", "any"),
        ("g", "g is 'true'"),
    ],
)  # fmt: skip
def test_what_a_where_selects(where: str, expected: str) -> None:
    """Equality, IN, comparisons of numbers, AND, OR, NOT and IS NOT NULL become predicates; the rest says nothing."""
    assert selecting(f"{TABLE}SELECT 1 AS `one` FROM t WHERE {where}") == [expected]


def test_a_watermark_is_moved_by_all_events() -> None:
    """A table's watermark needs all its events, unless the table says otherwise; ``events`` does."""
    columns = "a STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time', WATERMARK FOR ts AS ts"
    window = (
        "SELECT TUMBLE_END(ts, INTERVAL '1' MINUTE) AS e FROM {} WHERE a = 'x' GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"
    )
    for option, expected in (("", "any"), (", 'watermark' = 'selected'", "a is 'x' (case-sensitive)")):
        table = f"CREATE TABLE t ({columns}) WITH ('connector' = 'vedette'{option});\n"
        assert selecting(table + window.format("t")) == [expected]
    assert selecting(window.replace("ts", "event_time").format("events")) == ["a is 'x' (case-sensitive)"]
    assert selecting(
        f"CREATE TABLE t ({columns}) WITH ('connector' = 'vedette');\nSELECT ts AS e FROM t WHERE a = 'x'"
    ) == ["a is 'x' (case-sensitive)"]
