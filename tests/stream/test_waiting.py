"""Rows that wait: each once and in order, with its number, however many are taken at a time and over restarts."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deep import examples
from tests.stream.walk import BIGINT, STRING, TIME, scan, statement
from vedette.plan.query import Row, Statement, Union
from vedette.stream.keyed import pack, unpack
from vedette.stream.network import waiting
from vedette.stream.network.waiting import Waiting

EVENTS = scan((("ts", TIME), ("host", STRING), ("n", BIGINT)))
ONE = statement("one", EVENTS)
MANY = [statement(name, Union(EVENTS.columns, 1, (EVENTS, EVENTS))) for name in ("many", "other")]
EVERY = [ONE, *MANY]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOSE", 5)
    monkeypatch.setattr(waiting, "BLOCK", 3)


def numbered(rows: list[tuple[Statement, Row]]) -> list[tuple[str, Row, int]]:
    """As one batch has them."""
    seen: Counter[tuple[str, Row]] = Counter()
    found = []
    for one, row in rows:
        found.append((one.id, row, 0 if one.single else seen[one.id, row]))
        seen[one.id, row] += 1
    return found


def numbered_rows(one: Waiting, most: int) -> list[tuple[str, Row, int]]:
    return [
        (statement.id, row, one.number(statement, row) if number is None else number)
        for statement, row, number in islice(one.take(), most)
    ]


ROWS = st.tuples(st.sampled_from(EVERY), st.tuples(st.integers(0, 2), st.integers(0, 1), st.sampled_from(["a", None])))


@examples(150)
@given(st.lists(st.tuples(st.lists(ROWS, max_size=20), st.lists(st.integers(0, 9), max_size=4)), max_size=5), st.data())
def test_each_row_once_with_its_number(rounds: list[Any], data: st.DataObject) -> None:
    """Taken by any number at a time, with deltas, restarts and whole deltas between; what was taken behind the last
    delta comes again after a restart, with the same numbers."""
    one, deltas = Waiting(EVERY, 1 << 20), list[bytes]()
    for rows, parts in rounds:
        for of, row in rows:
            one.add(of, [row])
        expected, at, saved = numbered(rows), 0, 0
        assert len(one) == len(expected)
        durable = False
        for most in parts:
            assert numbered_rows(one, most) == expected[at : at + most]
            at = min(len(expected), at + most)
            match data.draw(st.sampled_from(["on", "delta", "restart", "touch"])):
                case "delta" | "touch" as how:
                    if how == "touch":
                        one.touch()
                    made = one.delta()
                    deltas += [pack(made)] if made is not None else []
                    saved, durable = at, True
                case "restart" if durable:
                    one, at = Waiting(EVERY, 1 << 20), saved
                    for delta in deltas:
                        one.restore(unpack(delta))
            assert len(one) == len(expected) - at
        assert numbered_rows(one, 1000) == expected[at:]
        made = one.delta()
        deltas += [pack(made)] if made is not None else []
    again = Waiting(EVERY, 1 << 20)
    for delta in deltas:
        again.restore(unpack(delta))
    assert len(again) == 0


def test_nothing_is_written_where_nothing_waits() -> None:
    one = Waiting(EVERY, 1 << 20)
    for _ in range(3):
        one.add(ONE, [(1, 2, "a", 3)] * 9)
        assert len(numbered_rows(one, 9)) == 9
        assert one.delta() is None
        one.touch()
        assert one.delta() is None


def test_a_whole_delta_needs_none_before_it() -> None:
    one = Waiting(EVERY, 1 << 20)
    one.add(MANY[0], [(n, 0, "a") for n in range(12)])
    first = one.delta()
    assert numbered_rows(one, 4) == [("many", (n, 0, "a"), 0) for n in range(4)]
    one.touch()
    whole = one.delta()
    for deltas in ([whole], [first, whole]):
        again = Waiting(EVERY, 1 << 20)
        for delta in deltas:
            again.restore(unpack(pack(delta)))
        assert numbered_rows(again, 20) == [("many", (n, 0, "a"), 0) for n in range(4, 12)]


def test_rows_outlive_their_statement() -> None:
    """A plan that does not have it any more, or has another of its id: the rows are of the one that gave them."""
    one = Waiting(EVERY, 1 << 20)
    one.add(MANY[0], [(n, 0, "a") for n in range(8)])
    delta = unpack(pack(one.delta()))
    other = statement("many", EVENTS)
    for known in ([], [other]):
        again = Waiting(known, 1 << 20)
        again.restore(delta)
        assert [found[:2] for found in again.take()] == [(MANY[0], (n, 0, "a")) for n in range(8)]


def test_what_has_no_room_is_dropped_and_counted() -> None:
    """The rows that wait already stay."""
    one = Waiting(EVERY, 1)
    one.add(ONE, [(n, 0, "a") for n in range(9)])
    assert dict(one.dropped) == {"one": 6}
    assert [row[0] for _, row, _ in numbered_rows(one, 9)] == [0, 1, 2]
    assert one.bytes == 0
    one.add(ONE, [(9, 0, "a")])
    assert [row[0] for _, row, _ in numbered_rows(one, 9)] == [9]


def test_a_value_that_cannot_wait_costs_no_other_row_its_place() -> None:
    one = Waiting(EVERY, 1 << 20)
    one.add(ONE, [(n, 0 if n % 2 else object(), "a") for n in range(7)])
    assert [row[0] for _, row, _ in numbered_rows(one, 9)] == [1, 3, 5]
    assert one.dropped["one"] == 4


def test_a_number_of_any_size_waits() -> None:
    one = Waiting(EVERY, 1 << 20)
    one.add(ONE, [(n, sign << n, "a") for n in range(60, 70) for sign in (1, -1)])
    again = Waiting(EVERY, 1 << 20)
    again.restore(unpack(pack(one.delta())))
    assert [row[1] for _, row, _ in numbered_rows(again, 20)] == [sign << n for n in range(60, 70) for sign in (1, -1)]


@pytest.mark.parametrize(
    "wrong",
    [None, [], [0, b"", []], [0, b"\x28\xb5\x2f\xfd\x20\x01\x09\x00\x00\x00", []], [0, 5, []]],
)
def test_what_is_no_delta_is_refused(wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        Waiting(EVERY, 1 << 20).restore(wrong)


def test_a_block_of_an_unknown_statement_is_refused() -> None:
    one = Waiting(EVERY, 1 << 20)
    one.add(ONE, [(0, 0, "a"), (1, 0, "a")])
    first, _, blocks = unpack(pack(one.delta()))
    numbered_rows(one, 1)
    _, nothing, _ = unpack(pack(one.delta()))
    with pytest.raises(ValueError, match="not known"):
        Waiting([], 1 << 20).restore((first, nothing, blocks))
