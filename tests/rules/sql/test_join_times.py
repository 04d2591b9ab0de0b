"""Which times the bounds of a join are about, where a side has several."""

from __future__ import annotations

from typing import Any

import pytest

from vedette.plan.query import SECOND, Statement
from vedette.rules import build
from vedette.stream.keyed import Budget
from vedette.stream.network.network import Network

TABLES = "".join(
    f"CREATE TABLE {name} (ts TIMESTAMP(3), host STRING, n INT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)"
    " WITH ('connector' = 'vedette');\n"
    for name in ("a", "b", "c")
)
PAIR = "a JOIN b ON a.host = b.host AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '10' SECOND"


def compiled(query: str) -> tuple[tuple[Statement, ...], list[str]]:
    rules = build.empty()
    rules.front_ends[".sql"].add(f"{TABLES}INSERT INTO alerts {query};\n", "x.sql")
    return tuple(rules.statements), [one.reason for one in rules.refused]


def results(query: str, *rows: tuple[str, int, int]) -> list[tuple[Any, ...]]:
    """Of rows (table, second, n) in order of time."""
    statements, refused = compiled(query)
    assert not refused
    network = Network(statements, Budget())
    for origin, (table, second, n) in enumerate(rows):
        values = {"ts": second * SECOND, "host": "h", "n": n}
        for rule, scans in network.scans.items():
            for at, scan in enumerate(scans):
                if scan.table == table:
                    network.feed(rule, (origin, *(values[source.path] for source in scan.sources)), at)
    return [row[1:] for _, row in network.finish()]


@pytest.mark.parametrize(("side", "expected"), [("a", [(1, 2), (1, 3)]), ("b", [(1, 3), (1, 4)])])
def test_the_time_that_the_bounds_name(side: str, expected: list[tuple[int, int]]) -> None:
    """A join of a join goes by whichever of both times its bounds compare."""
    query = f"""SELECT a.n, c.n AS m FROM {PAIR}
      JOIN c ON c.host = a.host AND c.ts BETWEEN {side}.ts AND {side}.ts + INTERVAL '20' SECOND"""
    assert results(query, ("a", 100, 1), ("c", 105, 2), ("b", 108, 1), ("c", 120, 3), ("c", 128, 4)) == expected


def test_bounds_on_two_times_of_one_side() -> None:
    """They are refused: rows are in order of one of them."""
    _, refused = compiled(
        f"SELECT a.n, c.n AS m FROM {PAIR} JOIN c ON c.host = a.host"
        " AND c.ts >= a.ts AND c.ts <= b.ts + INTERVAL '1' MINUTE"
    )
    assert "two times of one side" in refused[0]
