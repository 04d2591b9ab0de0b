"""Statements as one network: shared operators, exact watermarks over runs of rows, and state by fingerprint."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.stream.walk import BIGINT, STRING, TIME, calc, scan, seconds, statement
from vedette.plan.query import SECOND, Call, Column, Expand, Literal, Node, Row, Statement, Type, Union
from vedette.stream.keyed import Budget, Table, pack, unpack
from vedette.stream.network.network import MAX_OVERRUNS, Counts, Network
from vedette.stream.operators.base import Operator
from vedette.stream.operators.table import OPERATORS

STEP = Type("INTERVAL_SECOND")
COLUMNS = (("ts", TIME), ("host", STRING), ("n", BIGINT))


def more_than(n: int) -> Call:
    return Call(">", (Column(3, BIGINT), Literal(n, BIGINT)), Type("BOOLEAN"))


class Tumbled(Operator):
    """Rows by 10 s: given with their number when the watermark reaches the end. Stands in for ``Expand``."""

    pushes = 0

    def __init__(self, node: Node, budget: Budget) -> None:
        super().__init__(node, budget)
        self.open: Table[int] = Table(budget, lambda value: 8)
        self.tables.append(self.open)

    def push(self, port: int, rows: Sequence[Row]) -> None:
        Tumbled.pushes += 1
        for row in rows:
            end = (row[1] // (10 * SECOND) + 1) * 10 * SECOND
            if self.mark >= end - 1000:
                self.late += 1
            else:
                self.open.put((end,), self.open.values.get((end,), 0) + 1)

    def due(self, mark: int) -> None:
        for key in sorted(key for key in self.open.values if key[0] - 1000 <= mark):
            self.emit([(0, key[0], "", self.open.values[key])])
            self.open.remove(key)

    def boundary(self, mark: int) -> int:
        return ((mark + 1000) // (10 * SECOND) + 1) * 10 * SECOND - 1000


class Each(Tumbled):
    """The same, but it asks to see every watermark."""

    def boundary(self, mark: int) -> int:
        return mark + 1


def windows(input: Node) -> Expand:
    return Expand(input.columns, 1, input, Call("f", (), BIGINT))


def network(*statements: Statement, operator: type[Operator] = Tumbled) -> Network:
    return Network(statements, Budget(), {**OPERATORS, Expand: operator})


def test_who_is_at_work() -> None:
    """A caller is given the id of a statement while its operators run, and an empty one afterwards, also where they
    raise."""

    class Seen(Tumbled):
        def push(self, port: int, rows: Sequence[Row]) -> None:
            held.append(seen[-1])
            raise ValueError

    seen, held = list[str](), list[str]()
    statements = (statement("a", calc(scan(COLUMNS), more_than(1))), statement("b", windows(scan(COLUMNS))))
    one = Network(statements, Budget(), {**OPERATORS, Expand: Seen}, seen.append)
    one.feed("r", (2, seconds(2), "h", 2))
    one.drain()
    assert sorted(zip(seen[::2], seen[1::2], strict=True)) == [("a", ""), ("b", "")]
    assert held == ["b"]


def test_a_filter_gives_its_rows_in_order() -> None:
    one = network(statement("a", calc(scan(COLUMNS), more_than(1))))
    for n in (1, 2, 3):
        one.feed("r", (n, seconds(n), "h", n))
    assert [(found.id, row) for found, row in one.flush()] == [
        ("a", (2, seconds(2), "h", 2)),
        ("a", (3, seconds(3), "h", 3)),
    ]
    assert one.flush() == []


def test_a_row_without_a_time_is_dropped_and_counted_by_table() -> None:
    one = network(statement("a", calc(scan(COLUMNS, table="logins"))))
    one.feed("r", (1, None, "h", 1))
    assert one.flush() == []
    assert one.timeless == {"logins": 1}


QUOTIENT = Call("/", (Literal(60, BIGINT), Column(3, BIGINT)), BIGINT)


@given(
    st.lists(st.tuples(st.none() | st.integers(0, 40), st.none() | st.integers(-2, 5)), max_size=40),
    st.lists(st.integers(1, 9), min_size=1),
)
def test_filters_give_at_once_what_the_network_gives(
    events: list[tuple[int | None, int | None]], sizes: list[int]
) -> None:
    """However many rows come together, with the same counts: rows without a time, expressions that fail, two
    statements of equal nodes, two tables of one rule."""
    dividing = calc(scan(COLUMNS), Call(">", (QUOTIENT, Literal(15, BIGINT)), Type("BOOLEAN")))
    filters = [
        statement("divided", dividing),
        statement("again", dividing),
        statement("other", calc(scan(COLUMNS, table="others"), more_than(1))),
    ]
    at_once, naive = network(*filters), network(*filters)
    assert at_once.filters("r")
    assert len(at_once.scans["r"]) == 2
    rows = [(i, None if time is None else seconds(time), "h", n) for i, (time, n) in enumerate(events)]
    found: list[tuple[str, Row]] = []
    begin = 0
    for size in itertools.cycle(sizes):
        if begin >= len(rows):
            break
        for at in range(2):
            for of, some in at_once.filter("r", rows[begin : begin + size], at):
                found += [(of.id, row) for row in some]
        begin += size
    for row in rows:
        naive.feed("r", row, 0)
        naive.feed("r", row, 1)
    assert sorted(found) == sorted((of.id, row) for of, row in naive.flush())
    assert at_once.counts() == naive.counts()
    assert at_once.timeless == naive.timeless
    assert at_once.flush() == []


def test_a_rule_whose_rows_also_go_elsewhere_has_no_filters() -> None:
    """To a window, to a union, or on from a filter."""
    rows = calc(scan(COLUMNS), more_than(1))
    assert network(statement("a", rows)).filters("r")
    for other in (windows(scan(COLUMNS)), Union(rows.columns, 1, (rows, rows)), windows(rows)):
        assert not network(statement("a", rows), statement("b", other)).filters("r")


class Asked(Tumbled):
    asked = 0

    def boundary(self, mark: int) -> int:
        Asked.asked += 1
        return super().boundary(mark)


def test_a_drain_of_nothing_asks_no_operator() -> None:
    """The agent drains after each group of matches, also where no statement has taken one of them."""
    subject = network(statement("one", windows(scan(COLUMNS))), operator=Asked)
    subject.feed("r", (1, seconds(1), "h", 1))
    subject.drain()
    before = Asked.asked
    subject.drain()
    assert subject.flush() == []
    assert Asked.asked == before
    subject.feed("r", (2, seconds(2), "h", 1))
    subject.drain()
    assert Asked.asked > before


def test_equal_nodes_of_two_statements_run_once_and_serve_both() -> None:
    below = windows(calc(scan(COLUMNS)))
    one = network(statement("a", below), statement("b", calc(below)), statement("c", below))
    assert len(one.operators) == 3  # two of them above a scan, and the filter of b
    one.feed("r", (1, seconds(1), "h", 1))
    assert sorted((found.id, row[3]) for found, row in one.finish()) == [("a", 1), ("b", 1), ("c", 1)]


def test_rows_wait_while_the_watermark_stays_below_the_boundary() -> None:
    one = network(statement("a", windows(calc(scan(COLUMNS)))))
    before = Tumbled.pushes
    for i in range(200):  # 0 to 20 s: with a delay of 5 s the watermark passes the end of one window
        one.feed("r", (i, seconds(i / 10), "h", i))
    one.flush()
    assert Tumbled.pushes - before == 4  # up to the first watermark, to 0 s, to 10 s, and what waits


def test_the_row_comes_before_the_watermark_that_it_moves() -> None:
    one = network(statement("a", windows(calc(scan(COLUMNS, delay=0)))))
    for time in (0, 9.999, 9, 10):
        one.feed("r", (0, seconds(time), "h", 0))
    assert [row[3] for _, row in one.flush()] == [2]
    assert one.counts()["a"].late == 1


@given(
    st.lists(
        st.tuples(st.sampled_from("rs"), st.integers(0, 60), st.sampled_from(["", "", "a", "b", None])), max_size=40
    ),
    st.lists(st.integers(0, 40)),
)
def test_runs_give_what_single_rows_give(events: list[tuple[str, int, str | None]], stops: list[int]) -> None:
    """Over two tables with watermarks of their own, a statement on each and one on both, whatever is flushed when:
    rows of several hosts come, or time passes."""
    a, b = calc(scan(COLUMNS, seconds(5))), calc(scan(COLUMNS, seconds(9), "s", "others"))
    both = Union(a.columns, 1, (a, b))
    statements = [statement("a", windows(a)), statement("b", windows(b)), statement("ab", windows(both))]

    def run(operator: type[Operator], stops: Sequence[int]) -> Any:
        """At each of ``stops`` the network goes on from what was saved of it."""
        one = network(*statements, operator=operator)
        found, saved, receipts = [], [], 0
        for i, (rule, time, host) in enumerate(events):
            if host is not None:
                one.feed(rule, (i, seconds(time), "h", i), 0, ("in", host), seconds(40))
            else:
                receipts += seconds(time - 1)
                one.advance(receipts)
            if i in stops:
                found += one.flush()
                saved.append(unpack(pack(one.delta())))
                one = network(*statements, operator=operator)
                for delta in saved:
                    one.restore(delta)
                one.resume()
        found += one.finish()
        by_statement = {id: [row for at, row in found if at.id == id] for id in ("a", "b", "ab")}
        return by_statement, {id: one.counts()[id].late for id in by_statement}

    undisturbed = run(Each, ())
    assert run(Tumbled, ()) == undisturbed
    assert run(Tumbled, stops) == undisturbed
    assert run(Each, range(len(events))) == undisturbed


def test_state_is_found_again_by_fingerprint_and_the_rest_is_left_out() -> None:
    kept, gone = windows(calc(scan(COLUMNS))), windows(calc(scan(COLUMNS), more_than(1)))
    one = network(statement("kept", kept), statement("gone", gone))
    deltas = []
    for i in range(4):
        one.feed("r", (i, seconds(i), "h", i))
        one.flush()
        deltas.append(unpack(pack(one.delta())))
    new = windows(calc(scan(COLUMNS), more_than(2)))
    other = network(statement("new", new), statement("kept", kept))
    for delta in deltas:
        other.restore(delta)
    other.resume()
    other.feed("r", (4, seconds(4), "h", 4))
    assert {found.id: row[3] for found, row in other.finish()} == {"kept": 5, "new": 1}


def test_a_hot_update_keeps_the_state_of_what_stays() -> None:
    kept = windows(calc(scan(COLUMNS)))
    one = network(statement("kept", kept))
    one.feed("r", (0, seconds(30), "h", 0))
    one.flush()
    one.delta()
    new = windows(calc(scan(COLUMNS), more_than(2)))
    other = network(statement("kept", kept), statement("new", new))
    other.adopt(one)
    other.feed("r", (1, seconds(1), "h", 9))  # late for both: the watermark is the table's
    assert [(found.id, row[3]) for found, row in other.finish()] == [("kept", 1)]
    assert other.counts()["new"].late == 1
    whole = network(statement("kept", kept))
    whole.restore(unpack(pack(other.delta())))
    whole.resume()
    assert whole.finish() == []  # it is over: the state says so


def test_nothing_changed_is_no_delta_and_touch_gives_everything() -> None:
    one = network(statement("a", windows(calc(scan(COLUMNS)))))
    one.feed("r", (0, seconds(30), "h", 0))
    first = one.delta()
    assert first
    assert not one.delta()
    one.touch()
    assert one.delta() == first


def test_a_silent_input_is_moved_from_outside() -> None:
    one = network(statement("a", windows(calc(scan(COLUMNS)))), statement("b", calc(scan(COLUMNS, None, "s"))))
    one.advance(seconds(59))  # has not begun
    one.feed("r", (0, seconds(30), "h", 0))
    assert one.flush() == []
    one.advance(seconds(59 + 59))
    one.advance(seconds(59 + 60 + 14.998))  # the watermark was five seconds before the row, and then it was idle
    assert one.flush() == []
    one.advance(seconds(59 + 60 + 14.999))
    assert [row[3] for _, row in one.flush()] == [1]
    assert one.counts()["a"] == Counts(1, 0, 0, 0, 0, 0)


def test_an_operator_that_needs_every_watermark_costs_no_other_its_runs() -> None:
    class Both(Tumbled):
        def boundary(self, mark: int) -> int:
            return mark + 1 if isinstance(self.node, Expand) and self.node.outer else super().boundary(mark)

    a = calc(scan(COLUMNS, 0))
    b = calc(scan(COLUMNS, 0), more_than(-1))
    one = Network(
        [statement("each", Expand(a.columns, 1, a, Call("f", (), BIGINT), True)), statement("runs", windows(b))],
        Budget(), {**OPERATORS, Expand: Both},
    )  # fmt: skip
    seen: list[int] = []
    for operator in one.operators.values():
        if isinstance(operator, Both) and not operator.node.outer:  # type: ignore[attr-defined]
            push = operator.push
            operator.push = lambda port, rows, push=push: (seen.append(len(rows)), push(port, rows))  # type: ignore[method-assign]
    for i in range(9):
        one.feed("r", (i, seconds(i), "h", i))
    one.flush()
    assert seen == [1, 8]  # the first row has the first watermark


def test_a_watermark_may_be_any_expression() -> None:
    mark = Call("-", (Call("-", (Column(1, TIME), Literal(1000, STEP)), TIME), Literal(1000, STEP)), TIME)
    plain = scan(COLUMNS)
    odd = type(plain)(plain.columns, 1, "events", "r", plain.sources, mark)
    one = Network([statement("a", windows(calc(odd)))], Budget(), {**OPERATORS, Expand: Tumbled})
    one.feed("r", (0, seconds(1), "h", 0))
    one.feed("r", (0, seconds(10), "h", 0))
    assert one.flush() == []
    one.feed("r", (0, seconds(10.001), "h", 0))
    assert [row[3] for _, row in one.flush()] == [1]


def test_a_regular_expression_that_is_too_slow_mutes_its_statements_alone() -> None:
    """The rows before that are dropped and counted; a fast one is not concerned, nor is a new start."""
    slow = Call("REGEXP", (Column(2, STRING), Literal("^(a|aa)+$", STRING)), Type("BOOLEAN"))
    one = network(statement("slow", calc(scan(COLUMNS), slow)), statement("good", calc(scan(COLUMNS), more_than(1))))
    hard = "a" * 50 + "b"
    for i in range(MAX_OVERRUNS - 1):
        one.feed("r", (i, seconds(i), hard, 5))
    one.feed("r", (20, seconds(20), "aa", 5))
    given = one.flush()
    assert [found.id for found, _ in given] == ["slow", *["good"] * MAX_OVERRUNS]
    assert one.failures() == []
    assert one.counts()["slow"].failed == MAX_OVERRUNS - 1
    for i in range(100):
        one.feed("r", (i, seconds(i), hard, 5))
    assert len(one.flush()) == 100
    ((failed, error),) = one.failures()
    assert failed.id == "slow"
    assert "too often" in str(error)
    assert one.muted() == {"slow"}
    one.mute(())
    one.feed("r", (200, seconds(200), hard, 5))
    one.flush()
    assert (one.muted(), one.failures()) == (set(), [])


def test_a_filter_that_is_too_slow_gives_nothing_at_once_any_more() -> None:
    """As where rows wait: its statement is muted, the other of the same rule is not."""
    slow = Call("REGEXP", (Column(2, STRING), Literal("^(a|aa)+$", STRING)), Type("BOOLEAN"))
    one = network(statement("slow", calc(scan(COLUMNS), slow)), statement("good", calc(scan(COLUMNS), more_than(1))))
    rows = [(i, seconds(i), "a" * 50 + "b", 5) for i in range(MAX_OVERRUNS)]
    for row in rows:
        assert [found.id for found, given in one.filter("r", [row]) if given] == ["good"]
    assert [failed.id for failed, _ in one.failures()] == ["slow"]
    easy = [(20, seconds(20), "aa", 5)]
    assert [found.id for found, given in one.filter("r", easy) if given] == ["good"]
    one.mute(())
    assert [found.id for found, given in one.filter("r", easy) if given] == ["slow", "good"]


class Raising(Tumbled):
    """Raises on the number 13."""

    def push(self, port: int, rows: Sequence[Row]) -> None:
        if any(row[3] == 13 for row in rows):
            raise RuntimeError("unlucky")
        super().push(port, rows)


def test_an_operator_that_raises_mutes_its_statements_alone() -> None:
    """They are named once, with the reason, and take no rows; muted no longer, they begin empty."""
    bad, good = windows(calc(scan(COLUMNS))), calc(scan(COLUMNS), more_than(1))
    one = network(statement("bad", bad), statement("also", calc(bad)), statement("good", good), operator=Raising)
    one.feed("r", (1, seconds(1), "h", 7))
    one.flush()
    one.feed("r", (2, seconds(2), "h", 13))
    assert [found.id for found, _ in one.flush()] == ["good"]
    assert [(failed.id, str(error)) for failed, error in one.failures()] == [("bad", "unlucky"), ("also", "unlucky")]
    assert one.failures() == []
    assert one.muted() == {"bad", "also"}
    one.feed("r", (3, seconds(60), "h", 8))
    assert [found.id for found, _ in one.flush()] == ["good"]
    one.mute(())
    one.feed("r", (4, seconds(61), "h", 9))
    assert sorted((found.id, row[3]) for found, row in one.finish()) == [("also", 1), ("bad", 1), ("good", 9)]
    again = network(statement("bad", bad), statement("good", good), operator=Raising)
    again.mute({"bad"})
    again.feed("r", (2, seconds(2), "h", 13))
    assert ([found.id for found, _ in again.finish()], again.failures()) == (["good"], [])
