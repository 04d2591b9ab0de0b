"""What joins keep of one key: bounded, its own oldest rows give way, counted, and no other key loses any by it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.stream.operators.steps import Driven, Step, at
from tests.stream.operators.test_join import interval, windowed, windows
from tests.stream.walk import BIGINT, BOOLEAN
from vedette.plan.query import Call, Column, Join
from vedette.stream.operators import join
from vedette.stream.operators.base import FOREVER, RUN
from vedette.stream.operators.rows import CHUNK

LESS = Call("<", (Column(3, BIGINT), Column(9, BIGINT)), BOOLEAN)
"""The left row's n is less than the right row's, of rows with windows."""
END: list[Step] = [(0, FOREVER), (1, FOREVER)]


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each pair that was tried."""
    tried: list[int] = []
    pair = join.Join._pair

    def counted(self: join.Join, *rows: Any) -> Any:
        tried.append(1)
        return pair(self, *rows)

    monkeypatch.setattr(join.Join, "_pair", counted)
    return tried


def driven(node: Join) -> Driven:
    return Driven(lambda budget: join.Join(node, budget))


@pytest.mark.parametrize("cuts", [(), (5000, 5001)])
def test_a_row_meets_no_more_than_so_many(cuts: tuple[int, ...], pairs: list[int]) -> None:
    """5,000 rows of one key at once: one of the other side joins the newest. Another key has all of its rows, what
    gave way is counted and its time said, and a restart changes nothing."""
    flood: list[Step] = [(0, (n, at(1), "hot", n)) for n in range(5000)]
    life = driven(interval("INNER", 0, 80))
    few: list[Step] = [(0, (9000 + n, at(1), "other", n)) for n in range(3)]
    life.run([*few, *flood, (1, (9100, at(2), "hot", 0)), (1, (9101, at(2), "other", 0))], cuts)
    kept = join.MAX_CHUNKS * CHUNK
    assert len(pairs) == len(life.sink.rows)
    joined = [row[3] for row in life.sink.rows if row[2] == "hot"]
    assert joined == list(range(5000 - len(joined), 5000))
    assert kept - CHUNK < len(joined) <= kept
    assert len(pairs) == len(joined) + 3
    table = life.operator.tables[0]
    if not cuts:  # counts begin with a process
        assert table.evicted == (5000 - len(joined)) // CHUNK
        assert table.torn == at(1)


def test_rows_of_all_of_an_interval(pairs: list[int]) -> None:
    """Over the whole interval a row meets the rows of its parts, however far before it rows go."""
    life = driven(interval("INNER", 0, 8))
    life.run([(0, (n, at(n / 1000), "hot", n)) for n in range(30_000)])
    life.run([(1, (30_000, at(20), "hot", 0))])
    assert len(pairs) == 8001  # a row a millisecond, both ends inclusive
    life.run([(0, (40_000 + n, at(12 + n / 5000), "hot", n)) for n in range(40_000)])
    pairs.clear()
    life.run([(1, (80_000, at(20), "hot", 0))])
    assert len(pairs) <= (join.SLOTS + 1) * join.MAX_CHUNKS * CHUNK


@pytest.mark.parametrize("kind", ["INNER", "ANTI"])
@pytest.mark.parametrize(("lefts", "rights"), [(300, 300), (20, 500), (500, 1)])
def test_pairs_of_a_window(
    kind: str, lefts: int, rights: int, pairs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a window and key the longer side gives way; a few rows meet very many."""
    monkeypatch.setattr(join, "MAX_PAIRS", 16)
    life = driven(windows(kind, LESS))
    few: list[Step] = [(n % 2, (n, at(1), "other", -n)) for n in range(4)]
    steps: list[Step] = [(0, (9 + n, at(1), "hot", 1)) for n in range(lefts)]
    steps += [(1, (9 + n, at(1), "hot", 0)) for n in range(rights)]
    life.run([*windowed([*few, *steps]), *END])
    most = 16 * CHUNK * CHUNK
    evicted = sum(table.evicted for table in life.operator.tables)
    if lefts * rights <= most:
        assert len(pairs) == lefts * rights + (4 if kind == "INNER" else 3)
        assert evicted == 0
    else:
        assert most / 2 < len(pairs) <= most + 4
        assert evicted > 0
    assert [row[3] for row in life.sink.rows if row[2] == "other"] == ([0] if kind == "ANTI" else [-2])


def test_rows_go_on_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """And between them what joins is not held, nor the loop: an operator gives way at least for each run."""
    life = driven(interval("INNER", 0, 80))
    sizes: list[int] = []
    ways: list[int] = []
    sink: Any = life.sink
    monkeypatch.setattr(sink, "push", lambda port, rows: sizes.append(len(rows)))
    life.budget.give_way = lambda: ways.append(len(sizes))
    life.run([(0, (n, at(1), "hot", n)) for n in range(900)])
    life.operator.push(1, [(n, at(2), "hot", 0) for n in range(100)])
    assert sum(sizes) == 90_000
    assert max(sizes) <= RUN
    assert max(after - before for before, after in pairwise(ways)) <= 2


def test_the_partners_of_a_row_keep_nobody_waiting(pairs: list[int]) -> None:
    """Nor does one row that meets many, however few of them join it."""
    life = driven(interval("INNER", 0, 80))
    life.run([(0, (n, at(1), "hot", n)) for n in range(900)])
    ways: list[int] = []
    life.budget.give_way = lambda: ways.append(len(pairs))
    life.operator.push(1, [(900, at(2), "hot", 0)])
    assert len(pairs) == 900
    assert max(after - before for before, after in pairwise([0, *ways, 900])) <= CHUNK
