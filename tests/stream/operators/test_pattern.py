"""MATCH_RECOGNIZE: against all paths through all rows, by examples that Flink answered, and over crashes."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differences import walk
from tests.stream.operators.steps import Driven, at, stream
from tests.stream.walk import BIGINT, BOOLEAN, STRING, TIME, scan
from vedette.plan.pattern import AGGREGATE, ANY, FIRST, LAST, ROWTIME
from vedette.plan.query import SECOND, Call, Column, Expression, Literal, Match, Named, Row, Type, Variable
from vedette.stream.operators import pattern as pattern_module
from vedette.stream.operators import rows as rows_module
from vedette.stream.operators.base import FOREVER
from vedette.stream.operators.pattern import Match as Operator

EVENTS = scan((("ts", TIME), ("host", STRING), ("kind", STRING), ("n", BIGINT)))
KIND, NUMBER = Column(3, STRING), Column(4, BIGINT)


def call(name: str, *args: Expression, type: Type = BOOLEAN) -> Call:
    return Call(name, args, type)


def of(name: str, variable: str, column: Column = NUMBER, distance: int = 0) -> Call:
    return Call(name, (column,), column.type, (variable, distance))


def over(name: str, variable: str, *args: Expression) -> Call:
    return Call(AGGREGATE, args, BIGINT, (variable, name))


def number(value: int) -> Literal:
    return Literal(value, BIGINT)


def is_kind(*kinds: str) -> Call:
    return call("OR", *(call("=", KIND, Literal(kind, STRING)) for kind in kinds), Literal(False, BOOLEAN))


KINDS = {"X": is_kind("X"), "Y": is_kind("Y"), "Z": is_kind("Z")}


def parse(text: str) -> tuple[Variable, ...]:
    """``X+? Y{1,2} Z`` as variables."""
    found = []
    for word in text.split():
        name, rest = word[0], word[1:]
        greedy = not (rest.endswith("?") and len(rest) > 1)
        rest = rest if greedy else rest[:-1]
        bounds: tuple[int, int | None]
        if rest.startswith("{"):
            least, _, most = rest[1:-1].partition(",")
            bounds = int(least), (int(least) if "," not in rest else int(most) if most else None)
        else:
            bounds = {"": (1, 1), "?": (0, 1), "*": (0, None), "+": (1, None)}[rest]  # type: ignore[assignment]
        found.append(Variable(name, *bounds, greedy))
    return tuple(found)


def match(
    text: str, defines: dict[str, Expression] = KINDS, measures: Sequence[Expression] | None = None, **more: Any
) -> Match:
    variables = parse(text)
    if measures is None:
        firsts = [of(FIRST, variable.name) for variable in variables]
        lasts = [of(LAST, variable.name) for variable in variables]
        measures = (of(FIRST, ANY), of(LAST, ANY), *firsts, *lasts)
    names = {variable.name for variable in variables}
    columns = (Named("host", STRING), *(Named(f"m{i}", one.type) for i, one in enumerate(measures)))
    chosen = tuple((name, one) for name, one in defines.items() if name in names)
    return Match(columns, 0, EVENTS, (2,), variables, chosen, tuple(measures), **more)


def rows(text: str, host: str | None = "h") -> list[Row]:
    """``X1 Y4 …``: kinds with their seconds; n counts from 1."""
    return [
        (number * 10, at(float(word[1:])), host, word[0], number) for number, word in enumerate(text.split(), start=1)
    ]


def results(node: Match, rows: Sequence[Row], delay: int = 5) -> list[Row]:
    return Driven(lambda budget: Operator(node, budget)).run(stream(rows, delay=delay))


def firsts_and_lasts(node: Match, rows: Sequence[Row], delay: int = 5) -> list[tuple[int, int]]:
    return [(row[2], row[3]) for row in results(node, rows, delay)]


# --- by example


A_A_A_B = "X1 X2 X3 Z4"


@walk(
    ("text", "skip", "expected"),
    [
        ("X+ Z", {}, [(1, 4), (2, 4), (3, 4)]),
        ("X+ Z", {"skip": "PAST"}, [(1, 4)]),
        ("X{2} Z", {}, [(2, 4)]),
        ("X{1,2} Z", {}, [(2, 4), (3, 4)]),
        ("X* Z", {}, [(1, 4), (2, 4), (3, 4), (4, 4)]),
        ("X* Z", {"skip": "LAST", "skip_to": "Z"}, [(1, 4)]),
        ("X+ Z", {"skip": "FIRST", "skip_to": "Z"}, [(1, 4)]),
        ("X Z?", {}, [(1, 1), (2, 2), (3, 3)]),
        ("X+ Z", {"within": 3 * SECOND}, [(2, 4), (3, 4)]),
    ],
)
def test_examples(text: str, skip: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    """Quantifiers, skips and WITHIN (which is strict), as Flink answers them."""
    assert firsts_and_lasts(match(text, **skip), rows(A_A_A_B)) == expected


def test_greedy_never_goes_back() -> None:
    """A row fit for a greedy variable goes to it: X of any row leaves nothing for what follows, reluctant X does."""
    every = {"X": Literal(True, BOOLEAN), "Z": is_kind("Z")}
    assert firsts_and_lasts(match("X+ Z", every), rows(A_A_A_B)) == []
    assert firsts_and_lasts(match("X+? Z", every, skip="PAST"), rows(A_A_A_B)) == [(1, 4)]


def test_undefined_is_any_row() -> None:
    """A variable without a condition takes any row."""
    assert firsts_and_lasts(match("X W Z"), rows("X1 Q2 Z3")) == [(1, 3)]


def test_order_and_lateness() -> None:
    """Rows go by time, ties as they came; one that comes behind the watermark is dropped and counted."""
    given = [*rows("X1 Z9 X5 Z30 Z2")]
    driven = Driven(lambda budget: Operator(match("X Z"), budget))
    found = driven.run(stream(given))
    assert [(row[2], row[3]) for row in found] == [(3, 2)]
    assert driven.operator.late == 1
    tied = rows("X1 Z1 X1 Z1")
    assert firsts_and_lasts(match("X Z"), tied) == [(1, 2), (3, 4)]


def test_a_match_waits_for_what_began_earlier() -> None:
    """Matches come in the order of their first rows; WITHIN frees one at the time at which its predecessor is too old,
    which is its MATCH_ROWTIME(); else that is its last row's time."""
    defines = {"X": is_kind("X"), "Z": call("AND", is_kind("Z"), call("=", of(LAST, "X"), number(2)))}
    measures = (of(FIRST, ANY), of(LAST, ANY), Call(ROWTIME, (), TIME))
    node = match("X W*? Z", defines, measures, within=10 * SECOND)
    driven = Driven(lambda budget: Operator(node, budget))
    assert driven.run(stream(rows("X1 X2 Z3 Q4"), delay=0, end=False)) == []
    driven.operator.advance(0, at(10.999))
    assert driven.sink.rows == []
    driven.operator.advance(0, at(30))
    assert [row[2:] for row in driven.sink.rows] == [(2, 3, at(11))]
    alone = match("X Z", measures=measures)
    assert [row[2:] for row in results(alone, rows("X1 Z3"))] == [(1, 2, at(3))]
    forever = match("X W*? Z", defines, measures)
    assert results(forever, rows("X1 X2 Z3 Q4")) == []


def test_measures() -> None:
    """FIRST and LAST with a distance, aggregates by variable and of all rows; NULL where there is no such row."""
    measures = (
        of(LAST, "X", distance=1), of(FIRST, "X", distance=1), of(LAST, "Y"), of(LAST, ANY, distance=3),
        over("COUNT", "X", NUMBER), over("SUM", ANY, NUMBER), over("COUNT", ANY), over("MAX", "Y", NUMBER),
        call("-", of(LAST, "Z"), of(FIRST, "X"), type=BIGINT),
    )  # fmt: skip
    found = results(match("X+ Y* Z", measures=measures), rows("X1 X2 X3 Z4"))
    assert [row[2:] for row in found] == [
        (2, 2, None, 1, 3, 10, 4, None, 3),
        (2, 3, None, None, 2, 9, 3, None, 2),
        (None, None, None, None, 1, 7, 2, None, 1),
    ]


def test_conditions_see_the_match_so_far() -> None:
    """Aggregates of DEFINE include the row under test; LAST(X, 1) is the row before it."""
    before = of(LAST, "X", distance=1)
    growing = {
        "X": call("OR", call("IS NULL", before), call(">", NUMBER, before)),
        "Y": call("<", NUMBER, of(LAST, "X")),
    }
    given = [(i, at(i), "h", "k", n) for i, n in enumerate([1, 3, 7, 2, 9], start=1)]
    assert firsts_and_lasts(match("X+ Y", growing, skip="PAST"), given) == [(1, 2)]
    few = {"X": call("<", over("SUM", "X", NUMBER), number(5)), "Y": Literal(True, BOOLEAN)}
    assert firsts_and_lasts(match("X+ Y", few), given) == [(1, 7), (3, 7), (2, 9)]


def test_skips_that_cannot_be() -> None:
    """A skip to a variable without rows, or to the first row, gives no match and is counted."""
    driven = Driven(lambda budget: Operator(match("X Y? Z", skip="FIRST", skip_to="Y"), budget))
    assert [(row[2], row[3]) for row in driven.run(stream(rows("X1 Z2 X3 Y4 Z5")))] == [(3, 5)]
    assert driven.operator.failed == 1
    driven = Driven(lambda budget: Operator(match("X+ Z", skip="LAST", skip_to="X"), budget))
    assert [(row[2], row[3]) for row in driven.run(stream(rows("X1 X2 Z3")))] == [(1, 3)]
    assert driven.operator.failed == 1


def test_a_condition_that_fails() -> None:
    """The row is left out as if it had not come, and counted; so is a match whose measure fails."""
    by_zero = call(">=", call("%", number(6), call("-", NUMBER, number(2), type=BIGINT), type=BIGINT), number(0))
    node = match("X Z", {"X": by_zero, "Z": is_kind("Z")})
    driven = Driven(lambda budget: Operator(node, budget))
    assert [(row[2], row[3]) for row in driven.run(stream(rows("X1 Q2 Z3")))] == [(1, 3)]
    assert driven.operator.failed == 1
    divided = call("%", number(1), call("-", of(LAST, "Z"), number(2), type=BIGINT), type=BIGINT)
    driven = Driven(lambda budget: Operator(match("X Z", measures=(of(LAST, ANY), divided)), budget))
    assert [row[2] for row in driven.run(stream(rows("X1 Z2 X3 Z4")))] == [4]
    assert driven.operator.failed == 1


def test_origin_is_the_newest_row() -> None:
    """A match's origin is the largest offset among its rows, in whatever order they came."""
    given = [(70, at(1), "h", "X", 1), (20, at(2), "h", "Z", 2)]
    assert [row[0] for row in results(match("X Z"), given)] == [70]


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a key so many partial matches and rows are kept: the first to begin give way, and are counted."""
    every = {"X": Literal(True, BOOLEAN), "Z": is_kind("Z")}
    monkeypatch.setattr(pattern_module, "MAX_PARTIALS", 5)
    driven = Driven(lambda budget: Operator(match("X+? Z", every), budget))
    given = rows(" ".join(f"Q{i}" for i in range(1, 20)) + " Z20")
    assert [(row[2], row[3]) for row in driven.run(stream(given))] == [(n, 20) for n in range(15, 20)]
    assert sum(table.evicted for table in driven.operator.tables) == 14
    monkeypatch.setattr(pattern_module, "MAX_ROWS", 3)
    assert firsts_and_lasts(match("X+? Z", every, skip="PAST"), given) == [(17, 20)]


def test_keys_without_a_partial_match_take_nothing() -> None:
    """What no partial match needs is not kept; WITHIN lets go at the watermark without a further row."""
    node = match("X Y Z", within=10 * SECOND)
    driven = Driven(lambda budget: Operator(node, budget))
    driven.run(stream(rows("X1 Y2"), delay=0, end=False))
    assert [len(table) for table in driven.operator.tables][1:] == [1, 1]
    driven.operator.advance(0, at(10.999))
    assert [len(table) for table in driven.operator.tables][1:] == [1, 1]
    driven.operator.advance(0, at(11))
    driven.budget.settle()
    assert [len(table) for table in driven.operator.tables] == [0, 0, 0]
    assert driven.budget.used == 0


def test_eviction_of_a_part() -> None:
    """A budget that takes single parts of a key's state leaves no match that lacks rows, and the operator goes on."""
    driven = Driven(lambda budget: Operator(match("X+ Z"), budget), limit=6_000)
    given = [row for i in range(60) for row in [(i, at(i), f"h{i % 7}", "X" if i % 11 else "Z", i)]]
    found = driven.run(stream(given, delay=1), cuts=range(0, 200, 13))
    assert sum(table.evicted for table in driven.operator.tables)
    assert all(row[2] is not None and row[3] is not None for row in found)
    assert firsts_and_lasts(match("X+ Z"), rows(A_A_A_B))


# --- against all paths


def naive(node: Match, rows: Sequence[Row], delay: int) -> list[tuple[Any, ...]]:
    """Key, first and last n of each match, keys apart: every path from every row, then AFTER MATCH SKIP."""
    mark = -FOREVER
    kept: dict[Any, list[Row]] = {}
    for row in rows:
        if row[1] > mark:
            kept.setdefault(row[2], []).append(row)
        mark = max(mark, row[1] - delay * SECOND)
    found: list[tuple[Any, ...]] = []
    for key, ones in kept.items():
        ones.sort(key=lambda row: row[1])
        found += [(key, *one) for one in _naive_of_key(node, ones)]
    return sorted(found, key=repr)


def _greedy(variable: Variable) -> bool:
    return variable.greedy and variable.least != variable.most and (variable.least, variable.most) != (0, 1)


def _naive_of_key(node: Match, ones: Sequence[Row]) -> Iterator[tuple[int, int]]:
    conditions: dict[str, Callable[[Row, Sequence[Row]], bool]] = CONDITIONS
    pattern, until = node.pattern, -1

    def fits(place: int, row: Row, behind: Sequence[Row]) -> bool:
        name = pattern[place].name
        return name not in conditions or conditions[name](row, behind)

    def before(place: int, row: Row, behind: Sequence[Row]) -> bool:
        """Whether the row is fit for a greedy variable just before."""
        return bool(place) and _greedy(pattern[place - 1]) and fits(place - 1, row, behind)

    def edges(place: int, count: int, row: Row, behind: Sequence[Row]) -> Iterator[tuple[int, int]]:
        if place == len(pattern) or (count == 0 and before(place, row, behind)):
            return
        _, least, most, _ = pattern[place]
        if (most is None or count < most) and fits(place, row, behind):
            yield place, count + 1
        if count >= least:
            yield from edges(place + 1, 0, row, behind)

    def ends(place: int, count: int, row: Row, behind: Sequence[Row]) -> bool:
        if place == len(pattern):
            return True
        if count == 0 and before(place, row, behind):
            return False
        return count >= pattern[place].least and ends(place + 1, 0, row, behind)

    for start in range(len(ones)):
        if start <= until:
            continue
        paths: list[list[tuple[int, int]]] = [[(0, 0)]]
        complete: list[tuple[int, int]] | None = None
        at_end = False
        for index in range(start, len(ones)):
            row, behind = ones[index], ones[start:index]
            if node.within and row[1] - ones[start][1] >= node.within:
                paths = []
                break
            after = []
            for path in paths:
                for place, count in edges(*path[-1], row, behind):
                    longer = [*path, (place, count)]
                    if complete is None and ends(place, count, row, behind):
                        complete = longer
                    after.append(longer)
            paths = after
            if complete or not paths:
                break
        at_end = bool(paths) and complete is None and not node.within
        if complete:
            taken = [place for place, _ in complete[1:]]
            until = start
            if node.skip == "PAST":
                until = start + len(taken) - 1
            elif node.skip in ("FIRST", "LAST"):
                name = [variable.name for variable in pattern].index(node.skip_to)
                places = [start + i for i, place in enumerate(taken) if place == name]
                to = (places[0] if node.skip == "FIRST" else places[-1]) if places else start
                if to == start:
                    continue
                until = to - 1
            yield ones[start][4], ones[start + len(taken) - 1][4]
        elif at_end:
            return


CONDITIONS: dict[str, Callable[[Row, Sequence[Row]], bool]] = {
    "A": lambda row, behind: row[4] % 2 == 0,
    "B": lambda row, behind: row[4] % 3 == 0,
    "C": lambda row, behind: not behind or row[4] > behind[-1][4],
}
SAME: dict[str, Expression] = {
    "A": call("=", call("%", NUMBER, number(2), type=BIGINT), number(0)),
    "B": call("=", call("%", NUMBER, number(3), type=BIGINT), number(0)),
    "C": call("OR", call("IS NULL", of(LAST, ANY, distance=1)), call(">", NUMBER, of(LAST, ANY, distance=1))),
}
QUANTIFIERS = ["", "?", "*", "+", "{2}", "{2,}", "{1,3}", "{0,2}", "*?", "+?", "{1,2}?", "{2,}?"]
LAST_QUANTIFIERS = ["", "?", "{2}", "+?", "*?", "{1,2}?"]


@st.composite
def patterns(draw: st.DrawFn) -> Match:
    names = draw(st.permutations(["A", "B", "C", "D"]))[: draw(st.integers(1, 3))]
    words = [name + draw(st.sampled_from(QUANTIFIERS)) for name in names[:-1]]
    words.append(names[-1] + draw(st.sampled_from(LAST_QUANTIFIERS)))
    if all(variable.least == 0 for variable in parse(" ".join(words))):
        words[0] = words[0][0]
    skip = draw(st.sampled_from(["NEXT", "PAST", "FIRST", "LAST"]))
    to = draw(st.sampled_from(names)) if skip in ("FIRST", "LAST") else ""
    within = draw(st.sampled_from([0, 0, 3, 8])) * SECOND
    return match(" ".join(words), SAME, (of(FIRST, ANY), of(LAST, ANY)), skip=skip, skip_to=to, within=within)


EVENT = st.tuples(st.integers(0, 25), st.sampled_from(["a", "b", None]), st.integers(0, 12))


@given(patterns(), st.lists(EVENT, max_size=30), st.integers(0, 8), st.sets(st.integers(0, 60), max_size=4))
def test_every_path(node: Match, drawn: list[tuple[int, str | None, int]], delay: int, cuts: set[int]) -> None:
    """Any pattern over rows out of order, late, tied, with NULL keys gives what all paths give, over any crashes."""
    given = [(i, at(second), host, "k", n) for i, (second, host, n) in enumerate(drawn)]
    undisturbed = Driven(lambda budget: Operator(node, budget))
    found = undisturbed.run(stream(given, delay=delay))
    assert sorted(((row[1], row[2], row[3]) for row in found), key=repr) == naive(node, given, delay)
    disturbed = Driven(lambda budget: Operator(node, budget))
    assert disturbed.run(stream(given, delay=delay), cuts) == found
    assert disturbed.operator.late == undisturbed.operator.late
    assert not undisturbed.sink.late


@given(
    patterns(),
    st.lists(EVENT, min_size=10, max_size=40),
    st.integers(0, 3),
    st.dictionaries(
        st.integers(0, 40).map(lambda n: 2 * n + 1), st.sampled_from([0, 1, 1, 2]), min_size=5, max_size=20
    ),
)
def test_what_is_evicted(
    node: Match, drawn: list[tuple[int, str | None, int]], delay: int, evicted: dict[int, int]
) -> None:
    """An operator whose parts are evicted one by one gives what one gives that finds everything in its tables again
    after each; ``evicted``: before which steps, and of which table. Only where
    the watermark moves next: else what the one has found, the other has yet to, and another part is the oldest."""
    given = [(i, at(second), host, "k", n) for i, (second, host, n) in enumerate(sorted(drawn, key=itemgetter(0)))]
    measures = (of(FIRST, ANY), of(LAST, ANY), call(ROWTIME, type=TIME))
    node = replace(node, measures=measures, columns=(*node.columns, Named("at", TIME)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "CHUNK", 2)
        found: list[list[Row]] = []
        for again in (False, True):
            driven = Driven(lambda budget: Operator(node, budget))
            for number, step in enumerate(stream(given, delay=delay)):
                table = driven.operator.tables[evicted.get(number, 0)]
                if number in evicted and len(table) and isinstance(step[1], int) and step[1] > driven.operator.mark:
                    table.evict()
                    if again:
                        driven.operator.resume()
                driven.run([step])
            found.append(sorted(driven.sink.rows, key=repr))
    assert found[0] == found[1]


def calls_of_evictions(keys: int) -> tuple[int, int]:
    """Keys that gave way to 100 further ones beside ``keys``, and the calls of functions that this took."""
    driven = Driven(lambda budget: Operator(match("X+ Z"), budget), limit=keys * 700)
    driven.run(stream([(i, at(i), f"h{i}", "X", i) for i in range(keys)], delay=0, end=False))
    before = sum(table.evicted for table in driven.operator.tables)
    further = stream([(i, at(i), f"h{i}", "X", i) for i in range(keys, keys + 100)], delay=0, end=False)
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        driven.run(further)
    finally:
        sys.setprofile(None)
    return sum(table.evicted for table in driven.operator.tables) - before, calls


def test_evictions_cost_what_is_evicted() -> None:
    """With many keys and little room, an eviction does not go through all that is kept: 3,000 keys, and for each
    further one another gives way. In a process of its own: Python 3.11.2 may loop for ever at the first instruction of
    a profiled function that has run for long without."""
    keys = 3_000
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        evicted, calls = pool.submit(calls_of_evictions, keys).result(60)
    assert evicted >= 100
    assert 0 < calls < 100 * keys
