"""Statements in SQL in the real agent, over kills."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import KILLS, chance, reborn, vedette
from tests.e2e.faults import Faults
from tests.e2e.points import Call, at_call, fell
from tests.e2e.test_correlation import Door, line
from tests.waits import until
from vedette.store.store import Store

TABLE = """
CREATE TABLE door (
    ev STRING, src STRING, door INT,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'vedette', 'product' = 'door');
"""
STATEMENTS = {
    "Failed logins a minute": """
        SELECT src, window_start, window_end, COUNT(*) AS fails, AVG(CAST(door AS DOUBLE)) AS mean
        FROM TABLE(TUMBLE(TABLE door, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
        WHERE ev = 'fail' GROUP BY window_start, window_end, src HAVING COUNT(*) >= 3""",
    "Doors in two minutes": """
        SELECT src, window_start, window_end, COUNT(DISTINCT door) AS doors
        FROM TABLE(HOP(TABLE door, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '2' MINUTE))
        GROUP BY window_start, window_end, src HAVING COUNT(DISTINCT door) = 4""",
    "Busy without a break": """
        SELECT src, window_start, window_end, COUNT(*) AS events
        FROM TABLE(SESSION(TABLE door PARTITION BY src, DESCRIPTOR(ts), INTERVAL '15' SECOND))
        GROUP BY window_start, window_end, src HAVING COUNT(*) >= 5""",
    "Failed and not opened": """
        SELECT f.src, f.ts AS since FROM (SELECT * FROM door WHERE ev = 'fail' AND door = 1) AS f
        LEFT JOIN (SELECT * FROM door WHERE ev = 'open') AS o
        ON f.src = o.src AND o.ts BETWEEN f.ts AND f.ts + INTERVAL '40' SECOND WHERE o.src IS NULL""",
    "Opened after failures": """
        SELECT * FROM door MATCH_RECOGNIZE (PARTITION BY src ORDER BY ts
            MEASURES FIRST(f.ts) AS since, LAST(o.ts) AS opened
            ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (f{2,} o) WITHIN INTERVAL '2' MINUTE
            DEFINE f AS f.ev = 'fail', o AS o.ev = 'open')""",
}


def inserts(statements: Mapping[str, str]) -> str:
    return "".join(
        f"\n-- title: {title}\n-- level: high\nINSERT INTO alerts {query};\n" for title, query in statements.items()
    )


SQL = TABLE + inserts(STATEMENTS)
LINES = 500
"""Before each kill, and after the last."""


def alerts_of(door: Door) -> Counter[tuple[str, str]]:
    """Title and fields of each alert."""
    return Counter((row["rule_title"], json.dumps(dict(row["fields"]), sort_keys=True)) for row in door.agent.alerts())


def scanned(door: Door, before: int) -> Counter[tuple[str, str]]:
    """The same of what ``scan`` finds, but for rows that the lines from ``before`` on (from 1) complete."""
    done = vedette("scan", "--rules", door.rules, "--format", "json", door.file).stdout
    rows: list[dict[str, Any]] = [json.loads(row) for row in done.splitlines()]
    return Counter(
        (row["rule_title"], json.dumps(row["fields"], sort_keys=True)) for row in rows if row["line"] < before
    )


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """Killed at random while events come in the order of their times: windows, sessions, joins and patterns give the
    rows that ``scan`` gives over the file, each once."""
    # Over 3 s: three lives of an agent and more, with ``scan`` over the same statements.
    rng = chance()
    door, second = Door(tmp_path, rules=SQL, name="door.sql"), 0.0
    door.agent.up()
    try:
        for kill in range(KILLS + 1):
            lines = []
            for _ in range(LINES):
                second += rng.choice([0.5, 1, 2])
                ev = rng.choice(["fail", "fail", "fail", "open"])
                lines.append(line(second, ev, f"10.0.0.{rng.randrange(12)}", rng.randrange(4)))
            door.add(*lines)
            if kill < KILLS:
                until("some to be judged", lambda: door.agent.alive() and door.agent.input()["judged"])
                door.agent.kill()
                reborn(door.agent, rng)
                door.agent.ready()
        last = door.file.read_bytes().count(b"\n")
        door.add(line(second + 3600, "other", "x"), line(second + 7200, "other", "y"))  # every window comes to its end
        every = scanned(door, last)
        until("the end", lambda: door.settled()["alerts"]["made"] >= every.total() and not every - alerts_of(door))
        found = alerts_of(door)
    finally:
        door.agent.kill()
    assert {title for title, _ in every} == set(STATEMENTS)
    assert set(found.values()) == {1}
    assert not every - found
    assert not found - scanned(door, last + 3)


MANY = "".join(
    f"""
-- title: Every door {n}
INSERT INTO alerts SELECT src, window_end, COUNT(*) AS n, {n} AS rule
    FROM TABLE(TUMBLE(TABLE door, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, src;
"""
    for n in range(20)
)
SOURCES = 250
ENOUGH, MOST = 4, 15
"""Kills, and how many at most until one fell between two batches: a quick machine makes all rows in a commit or two."""


@pytest.mark.long
def test_killed_between_two_batches_of_a_windows_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window's end is 5,000 rows, made into alerts batch by batch; killed around the commits between, again and
    again, the agent goes on with those that wait: each once, as an undisturbed run gives them."""
    faults = Faults(tmp_path, monkeypatch)
    rng, door, between = chance(), Door(tmp_path, rules=TABLE + MANY, name="door.sql"), 0
    agent = door.agent.up()
    kill = 0
    try:
        while kill < ENOUGH or (not between and kill < MOST):
            kill += 1
            door.add(*(line(600 * kill + n / 10, "fail", f"10.0.{n}.{kill}", 1) for n in range(SOURCES)))
            door.settled()
            at_call(faults, Call(rng.choice(["before-commit", "after-commit"]), "data.mdb"), rng.randint(1, 2))
            door.add(line(600 * kill + 300, "other", "x", 1))
            fell(agent)
            faults.set()
            store = Store.open(agent.data / "store")
            between += store.account().made % (20 * SOURCES) > 20 * kill  # so many are of x
            store.close()
            agent.up()
        until("the end", lambda: not agent.status()["statement_state"]["waiting"] and door.settled())
        rows = agent.alerts()
    finally:
        agent.kill()
    assert between
    fields = [dict(row["fields"]) for row in rows]
    found = Counter((one["rule"], one["src"]) for one in fields if one["src"] != "x")
    assert set(found.values()) == {1}
    assert len(found) == kill * 20 * SOURCES
    assert len({row["alert_id"] for row in rows}) == len(rows)
