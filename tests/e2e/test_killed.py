"""State over kills: an agent with statements and correlations of every kind, killed at named points and at random,
gives the alerts of one that nobody disturbed: the same ids and fields, each once."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import count, cycle, islice
from pathlib import Path

import pytest

from tests.e2e.agent import KILLS, chance, reborn, say, vedette
from tests.e2e.faults import Faults
from tests.e2e.points import RANDOM, ROTATION, STORING, SWITCH, Call, at_call, fell
from tests.e2e.test_correlation import RULES, START, WINDOWS, Door, line
from tests.e2e.test_statements import STATEMENTS, TABLE, inserts
from vedette.rawlog.machine import bind

POINTS: dict[str, Call] = {
    **{name: point._replace(most=min(point.most, 8)) for name, point in STORING.items()},
    **SWITCH,
    **ROTATION,
    "before an alert's file": Call("before-rename", "/alerts-landing/", 3),
    "after an alert's file": Call("after-rename", "/alerts-landing/", 3),
}
ROUNDS = max(len(POINTS) + 1, KILLS)
LINES = 250
"""Of a round, over about a second."""
JOINED = {
    "Doors of the region": """
        SELECT e.src, e.ts AS at_time, a.owner FROM door AS e JOIN assets FOR SYSTEM_TIME AS OF e.ts AS a
        ON a.src = e.src WHERE e.ev = 'open' AND a.level > 1""",
    "First seen at a door": """
        SELECT src, door, ts AS since FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY src, door ORDER BY ts) AS n
        FROM door) WHERE n = 1""",
    "Fast in a row": """
        SELECT src, at_time, fails FROM (SELECT src, ts AS at_time, ev, COUNT(*) OVER w AS fails FROM door
        WINDOW w AS (PARTITION BY src ORDER BY ts RANGE BETWEEN INTERVAL '20' SECOND PRECEDING AND CURRENT ROW))
        WHERE fails >= 4 AND ev = 'open'""",
    "Mean of the last five": """
        SELECT src, at_time, mean FROM (SELECT src, ts AS at_time, AVG(CAST(door AS DOUBLE)) OVER w AS mean FROM door
        WINDOW w AS (PARTITION BY src ORDER BY ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)) WHERE mean > 2.5""",
    "Busiest of a minute": """
        SELECT src, window_end, fails FROM (SELECT src, window_end, fails,
        ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY fails DESC, src) AS n
        FROM (SELECT src, window_start, window_end, COUNT(*) AS fails
        FROM TABLE(TUMBLE(TABLE door, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
        WHERE ev = 'fail' GROUP BY window_start, window_end, src)) WHERE n <= 2""",
    "Failed and opened in a window": """
        SELECT f.src, f.window_end, f.fails, o.opened FROM (SELECT src, window_start, window_end, COUNT(*) AS fails
        FROM TABLE(CUMULATE(TABLE door, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '3' MINUTE))
        WHERE ev = 'fail' GROUP BY window_start, window_end, src) AS f
        FULL JOIN (SELECT src, window_start, window_end, COUNT(*) AS opened
        FROM TABLE(CUMULATE(TABLE door, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '3' MINUTE))
        WHERE ev = 'open' GROUP BY window_start, window_end, src) AS o
        ON f.src = o.src AND f.window_start = o.window_start AND f.window_end = o.window_end
        WHERE f.src IS NULL OR o.opened > f.fails""",
    "Groups of doors": """
        SELECT src, door, window_end, GROUPING(door) AS every_door, COUNT(*) AS n, LISTAGG(ev) AS events,
        PERCENTILE(door, 0.5) AS middle
        FROM TABLE(HOP(TABLE door, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)) WHERE src <> '10.0.0.1'
        GROUP BY window_start, window_end, ROLLUP (src, door) HAVING COUNT(*) > 9""",
}
LOOKUP = """
CREATE TABLE assets (src STRING, owner STRING, level INT) WITH ('connector' = 'vedette', 'lookup' = 'assets');
"""


CORRELATIONS = {
    "Many doors": "type: value_count, rules: [failed], group-by: [src], timespan: 2m, condition: {gte: 4, field: door}",
    "Failed and opened": "type: temporal, rules: [failed, opened], group-by: [src], timespan: 1m",
    "Failed, then opened": "type: temporal_ordered, rules: [failed, opened], group-by: [door], timespan: 5m",
    "Doors opened": "type: value_sum, rules: [opened], group-by: [src], timespan: 5m, condition: {gte: 9, field: door}",
    "Mean door": "type: value_avg, rules: [failed], group-by: [src], timespan: 2m, condition: {gte: 2, field: door}",
    "Only failed": "type: temporal, group-by: [src], timespan: 30s, condition: failed and not opened",
    "Busy, then opened": "type: temporal_ordered, rules: [busy, opened], group-by: [src], timespan: 5m",
}
"""Besides those of ``test_correlation``, of which one is over another."""
FIRE = {
    *CORRELATIONS, "Opened after failures", "Different doors", "Minute with few failures", "Third failure in a minute",
    "Series of failures at few doors", "Series of failures",
}  # fmt: skip


def correlations() -> str:
    busy = "type: value_count, rules: [failed, opened], group-by: [src], timespan: 2m, condition: {gte: 3, field: door}"
    named = {"Doors in use\nname: busy": busy, **CORRELATIONS}
    return RULES + WINDOWS + "".join(f"---\ntitle: {title}\ncorrelation: {{{one}}}\n" for title, one in named.items())


class Place(Door):
    """A door with statements and correlations of every kind."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        rows = "".join(f"10.0.0.{i},owner-{i},{i % 4}\n" for i in range(12))
        (folder / "assets.csv").write_text("src,owner,level\n" + rows)
        vedette(
            "lookup",
            "build",
            folder / "assets.csv",
            "-o",
            folder / "assets.vlookup",
            "--key",
            "src",
            "--type",
            "level:int",
        )
        sql = TABLE + LOOKUP + inserts({**STATEMENTS, **JOINED})
        super().__init__(folder, rules=sql, name="door.sql", lookup=folder / "assets.vlookup", segment_bytes=4 << 10)
        (self.rules / "door.yml").write_text(correlations())
        self._unseen = count()

    def another_rule(self) -> None:
        """A rule that no event matches: the rules are switched, and what is not changed goes on."""
        text = f"title: Never {next(self._unseen)}\nlogsource: {{product: door}}\ndetection:\n"
        partial = self.folder / "never.new"
        partial.write_text(f"{text}  s: {{ev: never{next(self._unseen)}}}\n  condition: s\n")
        partial.replace(self.rules / "never.yml")

    def alerts(self) -> Counter[str]:
        """What the region gets, but for what says when, and in what order, it was made."""
        return Counter(
            json.dumps({key: row[key] for key in row if key not in WHEN}, default=str, sort_keys=True)
            for row in self.agent.alerts()
        )


WHEN = {"seq", "received_at", "detected_at", "emitted_at", "plan_digest", "bundle"}


def events(rng: random.Random) -> Iterator[bytes]:
    """A door's, in the order of their times."""
    second = 0.0
    while True:
        second += rng.choice([0.5, 1, 2])
        ev = rng.choice(["fail", "fail", "fail", "open"])
        yield line(second, ev, f"10.0.0.{rng.randrange(12)}", rng.randrange(4))


def feed(door: Door, lines: list[bytes]) -> None:
    for start in range(0, len(lines), 20):
        door.add(*lines[start : start + 20])
        time.sleep(0.05)


def rounds(fallen: Container[str]) -> Iterator[tuple[str, int]]:
    """Each point in its turn, and the last of its calls that may be meant; a moment drawn at random; in the end those
    that are not in ``fallen``, by their first call: an agent that lags makes one large append of many small ones."""
    for name in islice(cycle([*POINTS, RANDOM]), ROUNDS):
        yield name, POINTS[name].most if name in POINTS else 0
    yield from ((name, 1) for name in POINTS if name not in fallen)


@pytest.mark.long
def test_killed_at_named_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Around raw appends, commits, rotations, plan switches and alerts' files: windows, sessions, joins
    (by interval, by window, with a lookup), OVER, Top-N and patterns, and correlations, also of correlations, as an
    undisturbed agent has them."""
    rng = chance()
    stream = events(rng)
    door, other = Place(tmp_path / "killed"), Place(tmp_path / "other")
    door.agent.up()
    assert door.agent.stop() == 0
    shutil.copytree(door.agent.data, other.agent.data, dirs_exist_ok=True)  # one log id, so one id of each alert
    bind(other.agent.data / "raw")
    faults = Faults(tmp_path, monkeypatch)
    fallen: Counter[str] = Counter()
    door.agent.up()
    try:
        with ThreadPoolExecutor(1) as pool:
            for name, most in rounds(fallen):
                work = pool.submit(feed, door, [next(stream) for _ in range(LINES)])
                if point := POINTS.get(name):
                    at_call(faults, point, rng.randint(1, most))
                    if point.change:
                        door.another_rule()
                    name = name if fell(door.agent) else RANDOM
                else:
                    time.sleep(rng.uniform(0.0, 1.0))
                    door.agent.kill()
                fallen[name] += 1
                faults.set()
                reborn(door.agent, rng)
                door.agent.ready()
                work.result()
        lines = door.file.read_bytes().splitlines()
        last, newest = door.file.stat().st_size, json.loads(lines[-1])["@timestamp"]
        second = datetime.fromisoformat(newest).timestamp() - START
        # What waits for late events is decided by lines, not by how long either agent goes on running.
        door.add(*(line(second + 20 * step, "open", f"last-{step}") for step in range(1, 16)))
        second = 10 * ROUNDS * LINES
        door.add(line(second, "other", "x"), line(second + 3600, "other", "y"))  # every window comes to its end
        stored = door.file.read_bytes().count(b"\n")
        door.agent.settled(stored)
        assert door.agent.stop() == 0
        other.file.write_bytes(door.file.read_bytes())
        other.agent.up()
        other.agent.settled(stored)
        assert other.agent.stop() == 0
    finally:
        door.agent.kill()
        other.agent.kill()
    found, expected = door.alerts(), other.alerts()
    assert not found - expected, f"missing {list(expected - found)[:3]}, too many {list(found - expected)[:3]}"
    assert not expected - found, f"missing {list(expected - found)[:3]}"
    rows = door.agent.alerts()
    assert len({row["alert_id"] for row in rows}) == len(rows) == found.total()
    titles = Counter(row["rule_title"] for row in rows if row["raw_ref"]["offset"] < last)
    assert not {*STATEMENTS, *JOINED, *FIRE} - {*titles}, titles
    assert len(set(fallen) - {RANDOM}) >= len(POINTS) * 3 // 4, f"points not reached: {set(POINTS) - set(fallen)}"
    say(capsys, f"{fallen.total()} kills: {dict(fallen)}\n  {len(rows)} alerts: {dict(titles)}")
