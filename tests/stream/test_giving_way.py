"""Operators give way within whatever one event, or one watermark, makes them do with 3,000 rows of one key."""

from __future__ import annotations

from itertools import pairwise

import pytest

from vedette.rules import build
from vedette.stream.network.network import Network
from vedette.stream.operators.base import RUN
from vedette.stream.statements import Statements

WINDOW = "TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' HOUR))"
OVER = "OVER (PARTITION BY host ORDER BY event_time RANGE BETWEEN INTERVAL '{}' SECOND PRECEDING AND CURRENT ROW)"
QUERIES = {
    "over": f"SELECT host, COUNT(*) {OVER.format(900)} AS n, MIN(name) {OVER.format(900)} AS m FROM events",
    "sessions": """SELECT host, name, window_start, window_end FROM TABLE(
        SESSION(TABLE events PARTITION BY host, DESCRIPTOR(event_time), INTERVAL '1' HOUR))""",
    "top": f"""SELECT host, name, window_start, window_end FROM (SELECT *, ROW_NUMBER() OVER (
        PARTITION BY window_start, window_end, host ORDER BY name DESC) AS r FROM {WINDOW}) WHERE r <= 5000""",
    "match": """SELECT * FROM events MATCH_RECOGNIZE (PARTITION BY host ORDER BY event_time
        MEASURES LAST(b.name) AS name AFTER MATCH SKIP TO NEXT ROW
        PATTERN (a b) DEFINE a AS a.name <> '', b AS b.name <> '')""",
    "hop": """SELECT host, window_start, window_end, COUNT(DISTINCT name) AS n FROM TABLE(HOP(TABLE events,
        DESCRIPTOR(event_time), INTERVAL '1' SECOND, INTERVAL '15' MINUTE)) GROUP BY host, window_start, window_end""",
    "keys": f"""SELECT name, window_start, window_end, COUNT(*) AS n FROM {WINDOW}
        GROUP BY name, window_start, window_end""",
}
TABLE = """CREATE TABLE events (host STRING, name STRING, event_time TIMESTAMP_LTZ(3) METADATA,
    WATERMARK FOR event_time AS event_time - INTERVAL '5' MINUTE) WITH ('connector' = 'vedette');
INSERT INTO alerts {};"""


@pytest.fixture(params=QUERIES)
def network(request: pytest.FixtureRequest) -> Network:
    rules = build.empty()
    rules.front_ends[".sql"].add(TABLE.format(QUERIES[request.param]), "rule.sql")
    plan = build.from_rules(rules)
    assert not plan.refused
    return Statements(plan.statements).network


def test_what_the_end_of_3000_rows_makes(network: Network) -> None:
    """All of them become due at once, and what comes of them goes on in runs."""
    ((rule, (scan,)),) = network.scans.items()
    ways: list[int] = []
    network.budget.give_way = lambda: ways.append(len(network.waiting))
    for n in range(3000):
        row = {"host": "h", "name": f"{n:04}", "event_time": (n + 1) * 100_000}
        network.feed(rule, (n, *(row[column.name] for column in scan.columns)), 0, ("in", "h"), 1 << 50)
    network.end()
    given_rows = [0, *ways, len(network.waiting)]
    assert given_rows[-1] >= 1000
    assert max(after - before for before, after in pairwise(given_rows)) <= RUN
