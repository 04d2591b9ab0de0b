"""Equal rows of different windows have different ids, whatever operators follow the windows."""

from __future__ import annotations

import orjson
import pytest

from tests.decode.test_decoder import record
from tests.rules.sql.plans import read
from vedette.stream.reader import Event
from vedette.stream.statements import Statements

HEAD = """
CREATE TABLE t (ts TIMESTAMP(3), a STRING, WATERMARK FOR ts AS ts) WITH ('connector' = 'vedette');
CREATE TABLE u (ts TIMESTAMP(3), b STRING, WATERMARK FOR ts AS ts) WITH ('connector' = 'vedette');
"""
HOP = "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '30' SECOND))"
COUNTED = f"SELECT a, COUNT(*) AS n FROM {HOP} GROUP BY a, window_start, window_end"
TIMED = COUNTED.replace("n FROM", "n, window_time AS `at` FROM").replace("_end", "_end, window_time")
STATEMENTS = {
    "plain": COUNTED,
    "unnest": f"SELECT a FROM ({COUNTED}) AS w CROSS JOIN UNNEST(ARRAY['x', 'y']) AS v(x)",
    "unnest of unnest": f"""SELECT a, n, x FROM ({COUNTED}) AS w
        CROSS JOIN UNNEST(ARRAY['x', 'y']) AS v(x) CROSS JOIN UNNEST(ARRAY['x', 'y']) AS z(y) WHERE n > 0 AND y <> x""",
    "union": f"{COUNTED} UNION ALL {COUNTED}",
    "nested union": f"""SELECT a FROM (SELECT a FROM ({COUNTED}) AS w UNION ALL SELECT a FROM ({COUNTED}) AS w) AS q
        CROSS JOIN UNNEST(ARRAY['x', 'y']) AS v(x)""",
    "union of unions": f"""SELECT a FROM (SELECT a, n FROM (SELECT a, n FROM ({COUNTED}) AS w UNION ALL
        SELECT a, n + 1 FROM ({COUNTED}) AS w) AS p WHERE n > 0 UNION ALL {COUNTED}) AS q""",
    "interval join": f"""SELECT l.a FROM ({TIMED}) AS l JOIN u ON l.a = u.b
        AND u.ts BETWEEN l.`at` - INTERVAL '1' HOUR AND l.`at` + INTERVAL '1' HOUR""",
    "unnest of an interval join": f"""SELECT a FROM (SELECT l.a, u.b FROM u JOIN ({TIMED}) AS l ON l.a = u.b
        AND l.`at` BETWEEN u.ts - INTERVAL '1' HOUR AND u.ts + INTERVAL '1' HOUR) AS j
        CROSS JOIN UNNEST(ARRAY['x', 'y']) AS v(x)""",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_equal_rows_of_windows(name: str) -> None:
    """Of one event and windows that end apart, each row is an alert of its own: as many keys as rows, although none
    waits from one window's end to the next."""
    rules = read(HEAD + f"INSERT INTO alerts {STATEMENTS[name]};")
    assert not rules.refused, rules.refused
    running, found = Statements(rules.statements), list[tuple[int, bytes, int]]()
    for offset, second in enumerate((0, 11, 21, 31, 41, 51, 300)):
        events = {"a": "k" if offset < 2 else "later", "b": "k" if offset < 2 else "other"}
        read_ = record(orjson.dumps({"ts": f"2026-11-20 12:{second // 60:02}:{second % 60:02}", **events}), "json")
        one = Event(read_, offset, input="in", host=lambda: None, time=lambda: None)
        for rule in running.network.scans:
            running.add(rule, one)
        for row in running.take():
            if row.fields["a"] == "k":
                found.append((row.offset, row.key, running.number(row)))
    assert len({offset for offset, _, _ in found}) <= 2
    assert len(found) >= 4
    assert len({*found}) == len(found)
