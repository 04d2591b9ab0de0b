"""Random statements in SQL and streams of events, for ``fresh.py`` to hold against a real Flink.

Of each shape that rules use: expressions and casts at their limits, aggregates in every window function with GROUPING
SETS, FILTER and HAVING, windows over windows, joins (by interval, by window, of views, with lookups), OVER, Top-N,
patterns with every SKIP. A statement may be one that Flink refuses. The same seed gives the same file.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

from tests.differential.expressions import DOCUMENTS, KINDS, TEXTS, Expressions, listed
from tests.differential.lookups import FINAL, Lookups

COLUMNS = (
    "ts TIMESTAMP(3), host STRING, kind STRING, n INT, b BIGINT, d DOUBLE, x DECIMAL(10, 2), s STRING, j STRING,"
    " t TIMESTAMP(3), o BOOLEAN"
)
STREAMS = ("ordered", "late", "ties", "sparse", "shuffled", "empty")
AGGREGATES = listed("""COUNT(*); COUNT(n); COUNT(DISTINCT kind); SUM(n); SUM(b); SUM(d); SUM(x); AVG(n); AVG(d); AVG(x);
    AVG(b); MIN(s); MAX(d); MIN(x); MAX(n); MIN(ts); MAX(o); STDDEV_POP(d); STDDEV_SAMP(n); VAR_POP(x); VAR_SAMP(d);
    PERCENTILE(d, 0.5); PERCENTILE(n, 0.25); PERCENTILE(n, ARRAY[0.1, 0.9]); LISTAGG(kind); LISTAGG(s, '|');
    COUNT(DISTINCT n); SUM(DISTINCT n); AVG(DISTINCT d); COLLECT(kind); ARRAY_AGG(n); FIRST_VALUE(n); LAST_VALUE(s);
    COUNT(DISTINCT x); MAX(n + b); SUM(n * 2); MIN(CHAR_LENGTH(s)); SUM(CASE WHEN kind = 'in' THEN 1 ELSE 0 END);
    MAX(UPPER(host)); SUM(CAST(d AS INT))""")
TESTS = listed("""{v}.kind = 'in'; {v}.kind <> 'ok'; {v}.n > 1; {v}.n > LAST({v}.n, 1); {v}.d > 0; {v}.n IS NULL; {v}.o;
    {v}.n >= FIRST(A.n); SUM({v}.n) < 9; {v}.kind IN ('out', 'fail'); COUNT({v}.n) < 3; {v}.n < AVG(A.d); {v}.ts > A.ts;
    LAST({v}.n, 1) IS NULL OR {v}.n < LAST({v}.n, 1)""")
FRAMES = listed("""; ROWS BETWEEN 2 PRECEDING AND CURRENT ROW; ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW;
    RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW; ROWS BETWEEN 0 PRECEDING AND CURRENT ROW;
    RANGE BETWEEN INTERVAL '30' SECOND PRECEDING AND CURRENT ROW;
    RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW""")
BY_WINDOW = " GROUP BY window_start, window_end, host"


class Generator:
    """The statements and events of one file of vectors."""

    def __init__(self, seed: int) -> None:
        self.seed, self._random = seed, random.Random(seed)
        self._expressions = Expressions(self._random)
        self.stream = STREAMS[seed % len(STREAMS)]
        self._lookups = Lookups(self._random, late=self.stream == "late")

    def vectors(self, statements: int = 40, expressions: int = 80) -> dict[str, Any]:
        """A file as ``flink.py write`` takes it."""
        shapes = [self._windowed] * 4 + [self._over_windows] * 2 + [self._window_join] * 3 + [self._interval_join] * 3
        shapes += [self._over, self._over, self._top, self._top, self._pattern, self._pattern, self._pattern]
        shapes += [
            self._group_windows,
            self._assigned,
            self._union,
            self._lookup_join,
            self._lookup_join,
            self._lookup_test,
        ]
        table = {"name": "e", "columns": COLUMNS, "watermark": "ts - INTERVAL '5' SECOND", "events": self._events()}
        return {
            "tables": [
                table,
                *self._lookups.tables(),
            ],
            "before": [
                "CREATE VIEW l AS SELECT * FROM e WHERE kind IN ('in', 'fail')",
                "CREATE VIEW r AS SELECT ts, host, kind, n, b, d, x, s FROM e WHERE kind NOT IN ('in', 'fail')",
            ],
            "seed": self.seed,
            "statements": [
                {"sql": sql, **({"ours": "final"} if FINAL in sql else {})}
                for sql in (self._one(shapes)() for _ in range(statements))
            ],
            "expressions": [{"sql": self._expressions.value(self._one(list(KINDS)), 3)} for _ in range(expressions)],
        }

    # --- events

    def _events(self) -> list[dict[str, Any]]:
        if self.stream == "empty":
            return []
        pick, at, events = self._random, 0.0, []
        step = {"sparse": (5, 60), "ties": (0, 0, 0, 5), "late": (0, 1, 2.5, 7)}.get(self.stream, (0, 0.5, 1, 2, 4))
        for _ in range(pick.choice([12, 35, 60])):
            at += pick.choice(step)
            back = {"late": (0, 0, 1, 8, 20), "shuffled": (0, 0, 1, 3, 4.5)}.get(self.stream, (0,))
            moment = datetime(2026, 1, 1) + timedelta(seconds=max(0.0, at - pick.choice(back)))
            events.append(
                {
                    "ts": moment.isoformat(timespec="milliseconds"),
                    "host": self._one(["a", "a", "b", "c", None]),
                    "kind": self._one(["in", "in", "out", "fail", "ok", None]),
                    "n": self._one([0, 1, 2, 3, 5, 8, -3, 12, 12, None]),
                    "b": self._one([0, 1, -1, 7, 4_000_000_000, -5, None]),
                    "d": self._one([0.0, 0.5, -1.25, 2.75, 1e3, 1e7, 12.5, 3.0, None]),
                    "x": self._one(["0.00", "1.25", "-3.50", "10.01", "99999999.99", "7.00", None]),
                    "s": self._one([*TEXTS, None]),
                    "j": self._one([*DOCUMENTS, None]),
                    "t": self._one(["2026-03-29T01:59:59.999", "2024-02-29T12:00:00", "1970-01-01T00:00:00"])
                    if pick.random() < 0.8
                    else None,
                    "o": self._one([True, False, None]),
                }
            )
        return events

    def _one(self, values: list[Any]) -> Any:
        return self._random.choice(values)

    def _chance(self, of: float) -> bool:
        return self._random.random() < of

    def _where(self, of: float = 0.4) -> str:
        return f" WHERE {self._condition()}" if self._chance(of) else ""

    def _condition(self) -> str:
        simple = [
            "n > 1",
            "n <> 12",
            "kind = 'in'",
            "kind IN ('in', 'out')",
            "host IS NOT NULL",
            "d >= 0.5",
            "o",
            "x < 7",
        ]
        return str(self._one([*simple, "n > 1 AND kind <> 'ok'", "NOT (n < 2 OR kind = 'ok')", "s LIKE '%a%'"]))

    # --- windows

    def _window(self, table: str = "e", keys: str = "", *, session: bool = True) -> str:
        offset = self._one(["", "", ", INTERVAL '3' SECOND", ", INTERVAL '-7' SECOND"])
        match self._one(["TUMBLE", "HOP", "CUMULATE", *["SESSION"] * session]):
            case "TUMBLE":
                words = f"INTERVAL '{self._one([1, 5, 10, 45, 60])}' SECOND{offset}"
                return f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(ts), {words}))"
            case "SESSION":
                by = f" PARTITION BY ({keys})" if keys else ""
                return f"TABLE(SESSION(TABLE {table}{by}, DESCRIPTOR(ts), INTERVAL '{self._one([2, 5, 15])}' SECOND))"
            case name:
                step = self._one([5, 10, 20])
                words = f"INTERVAL '{step}' SECOND, INTERVAL '{step * self._one([1, 2, 3, 4])}' SECOND{offset}"
                return f"TABLE({name}(TABLE {table}, DESCRIPTOR(ts), {words}))"

    def _aggregates(self, most: int = 4) -> str:
        aggregates = []
        for place in range(self._random.randint(1, most)):
            call = self._one(AGGREGATES)
            only = f" FILTER (WHERE {self._condition()})" if self._chance(0.2) else ""
            aggregates.append(f"{call}{only} AS a{place}")
        return ", ".join(aggregates)

    def _having(self) -> str:
        tests = ["COUNT(*) > 1", "SUM(n) > 3", "AVG(d) IS NOT NULL", "MAX(n) - MIN(n) >= 2", "COUNT(DISTINCT kind) < 3"]
        return f" HAVING {self._one(tests)}" if self._chance(0.35) else ""

    def _windowed(self) -> str:
        keys = self._one([["host"], ["host", "kind"], ["kind"], [], ["o"], ["n"]])
        head = "window_start, window_end"
        by = ", ".join(["window_start", "window_end", *keys])
        extra = ""
        if keys and self._chance(0.35):
            last = keys[-1]
            sets = f"({', '.join(keys)}), (), ({last})" if len(keys) > 1 else f"({last}), ()"
            grouped = self._one([f"GROUPING SETS ({sets})", f"ROLLUP ({', '.join(keys)})", f"CUBE ({', '.join(keys)})"])
            by = f"window_start, window_end, {grouped}"
            extra = f"GROUPING({last}) AS g, "
        columns = "".join(f"{key}, " for key in keys)
        return (
            f"SELECT {head}, {columns}{extra}{self._aggregates()}"
            f" FROM {self._window('e', ', '.join(keys))}{self._where()} GROUP BY {by}{self._having()}"
        )

    def _group_windows(self) -> str:
        name, words = self._one(
            [
                ("TUMBLE", "INTERVAL '10' SECOND"),
                ("TUMBLE", "INTERVAL '1' MINUTE"),
                ("HOP", "INTERVAL '5' SECOND, INTERVAL '20' SECOND"),
                ("HOP", "INTERVAL '10' SECOND, INTERVAL '25' SECOND"),
                ("SESSION", "INTERVAL '4' SECOND"),
                ("SESSION", "INTERVAL '12' SECOND"),
            ]
        )
        keys = self._one(["", ", host", ", kind, host"])
        times = ", ".join(f"{name}_{part}(ts, {words}) AS w{part[0]}" for part in ("START", "END", "ROWTIME"))
        return (
            f"SELECT {times}{keys}, {self._aggregates(3)} FROM e{self._where()} GROUP BY {name}(ts, {words}){keys}"
            f"{self._having()}"
        )

    def _assigned(self) -> str:
        return f"SELECT window_start, window_end, window_time, host, n FROM {self._window('e', 'host')}{self._where()}"

    def _inner(self, keys: str = "host") -> str:
        """A window aggregate that keeps its time attribute."""
        return (
            f"SELECT window_start, window_end, window_time AS ts, {keys}, COUNT(*) AS c, SUM(n) AS n, MAX(d) AS d"
            f" FROM {self._window('e', keys)}{self._where()} GROUP BY window_start, window_end, window_time, {keys}"
        )

    def _over_windows(self) -> str:
        inner = self._inner("host")
        match self._random.randrange(4):
            case 0:
                return (
                    "SELECT window_start, window_end, COUNT(*) AS k, SUM(c) AS c, MAX(n) AS n, MIN(d) AS d"
                    f" FROM ({inner}) GROUP BY window_start, window_end"
                )
            case 1:
                size = self._one([20, 60])
                return (
                    f"WITH w AS (SELECT ts, host, c, n FROM ({inner})) SELECT window_start, host, SUM(c) AS c,"
                    " AVG(n) AS n, LISTAGG(host) AS h"
                    f" FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(ts), INTERVAL '{size}' SECOND)){BY_WINDOW}"
                )
            case 2:
                return (
                    "SELECT * FROM (SELECT window_end, host, c,"
                    " ROW_NUMBER() OVER (PARTITION BY window_start, window_end"
                    f" ORDER BY c DESC, n, host) AS r FROM ({inner})) WHERE r <= {self._one([1, 2])}"
                )
            case _:
                return (
                    "SELECT host, c,"
                    " SUM(c) OVER (PARTITION BY host ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
                    f" AS k FROM ({inner})"
                )

    def _union(self) -> str:
        if self.stream == "late":  # as in _interval_join: the parts may be two readers
            return self._windowed()
        return (
            "WITH u AS (SELECT ts, host, n FROM l UNION ALL SELECT ts, kind, n + 1 FROM r) SELECT window_start, host,"
            f" COUNT(*) AS c, SUM(n) AS s FROM {self._window('u', 'host')} GROUP BY window_start, window_end, host"
        )

    # --- joins

    def _join_word(self) -> str:
        return str(self._one(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN", "FULL OUTER JOIN"]))

    def _window_join(self) -> str:
        if self.stream == "late":
            return self._over_windows()
        # of sessions Flink compares the ends alone
        window = self._window("e", "host", session=False)
        left = window.replace("TABLE e", "TABLE l")
        right = window.replace("TABLE e", "TABLE r")
        same = "a.host = b.host AND a.window_start = b.window_start AND a.window_end = b.window_end"
        match self._random.randrange(4):
            case 0:
                more = self._one(["", " AND a.n < b.n", " AND a.d <> b.d", " AND a.kind = b.kind"])
                return (
                    "SELECT a.host AS ah, a.n AS an, b.host AS bh, b.n AS bn, COALESCE(a.window_end, b.window_end) AS w"
                    f" FROM (SELECT * FROM {left}) a {self._join_word()} (SELECT * FROM {right}) b ON {same}{more}"
                )
            case 1:
                inside = self._one(["IN", "NOT IN"])
                return (
                    f"SELECT a.host, a.n, a.window_end FROM (SELECT * FROM {left}) a"
                    f" WHERE a.host {inside} (SELECT host FROM (SELECT * FROM {right}) b"
                    " WHERE a.window_start = b.window_start AND a.window_end = b.window_end)"
                )
            case 2:
                word = self._one(["EXISTS", "NOT EXISTS"])
                return (
                    f"SELECT a.host, a.n, a.window_end FROM (SELECT * FROM {left}) a WHERE {word} (SELECT * FROM"
                    f" (SELECT * FROM {right}) b WHERE {same.replace('a.host = b.host', 'a.n = b.n')})"
                )
            case _:
                sums = "SELECT window_start, window_end, host, COUNT(*) AS c, SUM(d) AS d FROM {}" + BY_WINDOW
                return (
                    "SELECT a.host AS ah, a.c AS ac, b.c AS bc, b.d AS bd, a.window_end AS w"
                    f" FROM ({sums.format(left)}) a {self._join_word()} ({sums.format(right)}) b ON {same}"
                )

    def _interval_join(self) -> str:
        # Which kept rows a late one joins is the choice of Flink's clean-up, and views of unlike columns are two
        # readers, of which one may be ahead: no joins of streams with late rows.
        if self.stream == "late":
            return self._windowed()
        low, high = self._one([(0, 10), (-8, 8), (-20, -5), (5, 30), (-3, 0), (0, 0)])
        bounds = (
            f"b.ts BETWEEN a.ts {'-' if low < 0 else '+'} INTERVAL '{abs(low)}' SECOND"
            f" AND a.ts {'-' if high < 0 else '+'} INTERVAL '{abs(high)}' SECOND"
        )
        if self._chance(0.3) and low < high:
            bounds = bounds.replace("BETWEEN ", ">= ").replace(" AND a.ts", " AND b.ts < a.ts")
        key = self._one(["a.host = b.host", "a.n = b.n", "a.host = b.host AND a.n = b.n", "a.x = b.x"])
        more = self._one(["", "", " AND a.n < b.n", " AND a.d + b.d > 1", " AND (a.s = b.s OR a.n > 1)"])
        join = f"l a {self._join_word()} r b ON {key} AND {bounds}{more}"
        match self._random.randrange(4):
            case 0:
                return (
                    "WITH w AS (SELECT a.ts, a.host, b.n FROM l a JOIN r b"
                    f" ON {key} AND {bounds}) SELECT window_end, host, COUNT(*) AS c, SUM(n) AS s"
                    f" FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(ts), INTERVAL '20' SECOND)){BY_WINDOW}"
                )
            case 1:
                null = self._one(["b.ts IS NULL", "a.ts IS NULL", "b.n IS NOT NULL", "COALESCE(a.n, b.n) > 1"])
                return f"SELECT a.ts AS ats, a.host AS ah, b.ts AS bts, b.n AS bn, a.n AS an FROM {join} WHERE {null}"
            case _:
                columns = "a.ts AS ats, a.host AS ah, a.n AS an, b.ts AS bts, b.host AS bh, b.n AS bn, b.s"
                return f"SELECT {columns} FROM {join}"

    def _lookup_join(self) -> str:
        return self._lookups.join(self._window("w", session=False))

    def _lookup_test(self) -> str:
        return self._lookups.test(self._condition())

    # --- OVER, ranks, patterns

    def _over(self) -> str:
        frame = self._one(FRAMES)
        by = self._one(["PARTITION BY host ", "", "PARTITION BY host, kind ", "PARTITION BY o "])
        calls = ["COUNT(*)", "COUNT(n)", "SUM(n)", "AVG(d)", "MIN(n)", "MAX(x)", "FIRST_VALUE(n)", "LAST_VALUE(d)"]
        calls += ["COUNT(DISTINCT n)", "SUM(x)", "STDDEV_POP(d)", "LISTAGG(kind)", "SUM(DISTINCT n)", "AVG(x)"]
        columns = ", ".join(f"{self._one(calls)} OVER w AS a{i}" for i in range(self._random.randint(1, 3)))
        return f"SELECT ts, host, n, {columns} FROM e{self._where()} WINDOW w AS ({by}ORDER BY ts {frame})"

    def _top(self) -> str:
        if self._chance(0.4):
            by = self._one(["host", "host, kind", "n"])
            return (
                f"SELECT ts, host, kind, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY ts ASC) AS k"
                f" FROM e{self._where()}) WHERE k = 1"
            )
        order = self._one(
            ["n DESC, ts, s, j, d, b", "d, n, ts, s, j, b", "ts, n, s, j, d, b", "x DESC, b, ts, n, s, j"]
        )
        by = self._one(["", ", host", ", kind"])
        window = self._window("e", "host" if by == ", host" else "kind" if by == ", kind" else "")
        return (
            "SELECT window_end, host, n, d, k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end"
            f"{by} ORDER BY {order}) AS k FROM {window}{self._where()}) WHERE k <= {self._one([1, 2, 3])}"
        )

    def _pattern(self) -> str:
        pick = self._one
        quantifiers = ["", "+", "*", "?", "+?", "*?", "{2}", "{1,2}", "{2,}", "{2,}?", "{1,3}?", "{0,2}"]
        names = ["A", "B", "C"][: pick([2, 3, 3])]
        pattern = (
            " ".join(name + pick(quantifiers) for name in names[:-1]) + " " + names[-1] + pick(["", "", "{2}", "+?"])
        )
        define = ", ".join(f"{name} AS {pick(TESTS).format(v=name)}" for name in names if self._chance(0.85))
        if not define:
            define = "A AS A.n > 0"
        skips = [
            "",
            "TO NEXT ROW",
            "PAST LAST ROW",
            *(f"TO {end} {name}" for end in ("FIRST", "LAST") for name in names),
        ]
        skip = pick(skips)
        last = names[-1]
        measures = ["FIRST(A.n) AS m0", f"LAST({last}.n) AS m1", "COUNT(A.n) AS m2", f"SUM({last}.d) AS m3"]
        measures += ["LAST(A.kind, 1) AS m4", "AVG(A.x) AS m5", f"{last}.n - A.n AS m6", "MATCH_ROWTIME() AS m7"]
        measures += ["FIRST(A.ts) AS m8", "n + 1 AS m9", "MAX(B.n) AS m10", "CONCAT(A.kind, B.kind) AS m11"]
        within = f" WITHIN INTERVAL '{pick([2, 10, 60])}' SECOND" if self._chance(0.5) else ""
        by = pick(["PARTITION BY host ", "PARTITION BY host ", "PARTITION BY host, o ", ""])
        return (
            f"SELECT * FROM {pick(['e', 'e', 'l'])} MATCH_RECOGNIZE ({by}ORDER BY ts"
            f" MEASURES {', '.join(self._random.sample(measures, 4))} ONE ROW PER MATCH"
            f"{' AFTER MATCH SKIP ' + skip if skip else ''} PATTERN ({pattern}){within} DEFINE {define}) AS m"
        )
