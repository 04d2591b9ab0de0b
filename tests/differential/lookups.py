"""Random lookups, and joins and tests that ask them, for ``generate.py``: of its table ``e`` and its views."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from typing import Any

COLUMNS = "host STRING, owner STRING, lim INT"
KNOWN = [{"host": "a", "owner": "ann", "lim": 2}, {"host": "c", "owner": None, "lim": None}]
"""Rows that hold at all times."""
FINAL = "host FROM k"
"""What stands in a statement whose rows are right when Flink has read both tables; meanwhile it takes rows back."""


class Lookups:
    """``late``: of streams with late rows."""

    def __init__(self, random: Random, *, late: bool) -> None:
        self._random, self._late = random, late

    def tables(self) -> list[dict[str, Any]]:
        return [
            {"name": "a", "columns": COLUMNS, "keys": "host", "events": self._versions()},
            {"name": "k", "columns": COLUMNS, "keys": "host", "events": KNOWN},
        ]

    def _versions(self) -> list[dict[str, Any]]:
        """Of each host up to three versions, one after the other, with and without a gap. For late rows one: which of
        several Flink still has depends on which table is read first."""
        pick, rows = self._random, list[dict[str, Any]]()
        for host in ("a", "b", "d"):
            number = 1 if self._late else pick.choice([1, 2, 3])
            times = sorted(pick.sample([5, 10, 20, 30, 45, 60, 90], 2 * number))
            since: str | None = None
            for place in range(number):
                more = place + 1 < number
                until = _moment(times[2 * place]) if more or (not self._late and pick.random() < 0.3) else None
                rows.append({
                    "host": host, "owner": pick.choice(["ann", "bob", None]), "lim": pick.choice([0, 2, 5, None]),
                    "since": since, "until": until,
                })  # fmt: skip
                since = until if pick.random() < 0.6 else _moment(times[2 * place + 1])
        return rows

    def join(self, window: str) -> str:
        """``window``: a window function over ``w``, what is joined."""
        pick = self._random.choice
        word, more = pick(["JOIN", "LEFT JOIN"]), pick(["", " AND a.lim < e.n", " AND a.owner <> e.kind"])
        joined = f"{pick('eelr')} e {word} a FOR SYSTEM_TIME AS OF e.ts AS a ON a.host = e.host{more}"
        match self._random.randrange(4):
            case 0 if not self._late:  # behind the join a row is late by the least watermark of both tables' readers
                return (
                    f"WITH w AS (SELECT e.ts, e.host, e.n, a.owner, a.lim FROM {joined}) SELECT window_start, owner,"
                    f" COUNT(*) AS c, SUM(n) AS s, MAX(lim) AS m FROM {window} GROUP BY window_start, window_end, owner"
                )
            case 1:
                where = pick(["a.owner IS NULL", "a.owner = 'ann'", "a.lim IS NOT NULL OR e.n > 3", "e.n > 1"])
                return f"SELECT e.ts, e.host, e.n, a.owner, a.lim FROM {joined} WHERE {where}"
            case _:
                return f"SELECT e.ts, e.kind, e.n, a.owner, a.lim + e.n AS k, a.host FROM {joined}"

    def test(self, condition: str) -> str:
        test = self._random.choice(
            ["host IN ({})", "host NOT IN ({})", "EXISTS ({} WHERE {})", "NOT EXISTS ({} WHERE {})"]
        )
        more = self._random.choice(["", " AND k.lim < e.n"])
        asked = test.format(f"SELECT {FINAL}", f"k.host = e.host{more}")
        return f"SELECT kind, n FROM e WHERE {asked} AND {condition}"


def _moment(seconds: int) -> str:
    return (datetime(2026, 1, 1) + timedelta(seconds=seconds)).isoformat()
