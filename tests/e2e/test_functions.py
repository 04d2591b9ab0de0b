"""Functions in Python in the real agent: over kills of it and of its child, beside hostile ones, and not allowed."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import KILLS, Agent, chance, reborn, vedette
from tests.e2e.test_correlation import Door, line
from tests.e2e.test_statements import TABLE, alerts_of
from tests.waits import until

ALLOW = "[functions]\nallow = true\n"
MODULE = """
import os, time
from pyflink.table import DataTypes
from pyflink.table.udf import AggregateFunction, udaf, udf, udtf

@udf(result_type=DataTypes.STRING())
def last(src):
    return src.rpartition(".")[2]

@udtf(result_types=[DataTypes.STRING()])
def parts(src):
    yield from src.split(".")[1:3]

class Doors(AggregateFunction):
    def create_accumulator(self):
        return {"seen": [], "sum": 0}
    def accumulate(self, accumulator, door, weight):
        accumulator["sum"] += door * weight
        if door not in accumulator["seen"]:
            accumulator["seen"].append(door)
    def merge(self, accumulator, others):
        for one in others:
            accumulator["sum"] += one["sum"]
            accumulator["seen"] += [door for door in one["seen"] if door not in accumulator["seen"]]
    def get_value(self, accumulator):
        return f"{sorted(accumulator['seen'])} {accumulator['sum']}"

doors = udaf(Doors(), result_type="STRING")

@udf(result_type=DataTypes.INT())
def hostile(door):
    if door == 1:
        while True:
            pass
    if door == 2:
        os._exit(1)
    if door == 3:
        raise ValueError(door)
    return door
"""
FUNCTIONS = "".join(
    f"CREATE TEMPORARY FUNCTION {name} AS 'own.{name}' LANGUAGE PYTHON;\n"
    for name in ("last", "parts", "doors", "hostile")
)
STATEMENTS = {
    "Opened by the seventh": "SELECT src, last(src) AS host, ts FROM door WHERE ev = 'open' AND last(src) = '7'",
    "A part is ten": "SELECT p, src, ts FROM door, LATERAL TABLE(parts(src)) AS t (p) WHERE p = '10' AND ev = 'open'",
    "Doors of a minute": """
        SELECT src, window_end, doors(door, 3) AS doors
        FROM TABLE(TUMBLE(TABLE door, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, src""",
    "Doors of two minutes": """
        SELECT src, window_end, doors(door, 1) AS doors, COUNT(*) AS n
        FROM TABLE(HOP(TABLE door, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE))
        GROUP BY window_start, window_end, src""",
    "Doors of a session": """
        SELECT src, window_start, window_end, doors(door, 2) AS doors
        FROM TABLE(SESSION(TABLE door PARTITION BY src, DESCRIPTOR(ts), INTERVAL '15' SECOND))
        GROUP BY window_start, window_end, src""",
}


def sql(statements: dict[str, str]) -> str:
    inserts = (f"\n-- title: {title}\n-- level: high\nINSERT INTO alerts {one};\n" for title, one in statements.items())
    return TABLE + FUNCTIONS + "".join(inserts)


def door_of(folder: Path, more: str, statements: dict[str, str]) -> Door:
    door = Door(folder, more, rules=sql(statements), name="door.sql")
    (door.rules / "functions").mkdir()
    (door.rules / "functions" / "own.py").write_text(MODULE)
    return door


def children(agent: Agent) -> list[int]:
    """The processes that run functions for the agent."""
    found = []
    assert agent.process is not None
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == agent.process.pid and b"vedette.udf.worker" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


def scanned(door: Door, before: int) -> Counter[tuple[str, str]]:
    """What ``scan`` finds, but for rows that the lines from ``before`` on (from 1) complete."""
    done = vedette("scan", "--functions", "--rules", door.rules, "--format", "json", door.file).stdout
    rows: list[dict[str, Any]] = [json.loads(row) for row in done.splitlines()]
    return Counter(
        (row["rule_title"], json.dumps(row["fields"], sort_keys=True)) for row in rows if row["line"] < before
    )


@pytest.mark.long
def test_killed_in_the_middle(tmp_path: Path) -> None:
    """The agent and its child killed by turns while events come: values, rows and accumulators are those that ``scan``
    has over the file, each once."""
    rng = chance()
    door, second = door_of(tmp_path, ALLOW, STATEMENTS), 0.0
    door.agent.up()
    killed = 0
    try:
        for kill in range(2 * KILLS + 1):
            lines = []
            for _ in range(600):
                second += rng.choice([0.5, 1, 2])
                ev = rng.choice(["fail", "fail", "open"])
                lines.append(line(second, ev, f"10.0.{rng.choice([0, 10])}.{rng.randrange(12)}", rng.randrange(4)))
            door.add(*lines)
            if kill == 2 * KILLS:
                break
            until("some to be evaluated", lambda: door.agent.alive() and door.agent.input()["judged"])
            if kill % 2:
                door.agent.kill()
                reborn(door.agent, rng)
                door.agent.ready()
            else:
                for pid in until("a child", lambda: children(door.agent)):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        end = door.file.read_bytes().count(b"\n")
        door.add(line(second + 3600, "other", "x"), line(second + 7200, "other", "y"))  # every window comes to its end
        every = scanned(door, end)
        until("the end", lambda: door.settled()["alerts"]["made"] >= every.total() and not every - alerts_of(door))
        found, status = alerts_of(door), door.agent.status()
    finally:
        door.agent.kill()
    assert killed
    assert {title for title, _ in every} == set(STATEMENTS)
    assert set(found.values()) == {1}
    assert not found - scanned(door, end + 3)
    assert not any(one["failed"] for one in status["statement_state"]["statements"])


@pytest.mark.long
def test_hostile_functions(tmp_path: Path) -> None:
    """One that hangs and exits goes into quarantine; others, and the agent, go on; no process is left behind."""
    statements = {
        "Hostile": "SELECT src, hostile(door) AS door, ts FROM door WHERE ev = 'fail'",
        "Friendly": "SELECT src, last(src) AS host, ts FROM door WHERE ev = 'fail'",
    }
    door = door_of(tmp_path, ALLOW, statements)
    agent = door.agent.up()
    try:
        door.add(*(line(second, "fail", f"10.0.0.{second}", second % 4) for second in range(40)))
        door.settled()
        until("all friendly ones", lambda: sum(title == "Friendly" for title, _ in alerts_of(door)) == 40)
        status = agent.status()
        door.add(line(50, "fail", "10.0.0.50"))
        door.settled()
        until("the one after", lambda: sum(title == "Friendly" for title, _ in alerts_of(door)) == 41)
        left = children(agent)
        assert agent.stop() == 0
    finally:
        agent.kill()
    (quarantined,) = status["rules"]["quarantined"]
    assert quarantined["title"] == "Hostile"
    assert "took more than 0.1 s of CPU" in quarantined["reason"] or "did not survive" in quarantined["reason"]
    assert status["statement_state"]["functions"]["died"] >= 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in left)


@pytest.mark.long
def test_not_allowed(tmp_path: Path) -> None:
    """Without ``[functions] allow`` statements that call some are refused by name, and nothing of theirs is started;
    all others run. An agent of a bundle says so, too, and runs them once it is allowed."""
    statements = {
        "Own": "SELECT src, last(src) AS host FROM door",
        "Plain": "SELECT src, ts FROM door WHERE ev = 'fail'",
    }
    door = door_of(tmp_path, "", statements)
    agent = door.agent.up()
    try:
        door.add(line(0, "fail", "a"))
        door.settled()
        until("the plain one", lambda: alerts_of(door))
        status = agent.status()
        assert not children(agent)
    finally:
        agent.kill()
    assert {title for title, _ in alerts_of(door)} == {"Plain"}
    assert any("functions in Python are not allowed here" in reason for reason in status["rules"]["dead"])


@pytest.mark.long
def test_in_a_bundle(tmp_path: Path) -> None:
    """Signed with its modules; an agent that does not allow them runs the rest and names what does not run; one that
    does runs all; a changed module is refused before anything of it is looked at."""
    statements = {
        "Own": "SELECT src, last(src) AS host FROM door",
        "Plain": "SELECT src, ts FROM door WHERE ev = 'fail'",
    }
    door = door_of(tmp_path, "", statements)
    bundle, key = tmp_path / "b.vbundle", tmp_path / "k.pem"
    vedette("bundle", "build", "--functions", door.rules, "-o", bundle, "--version", 1)
    public = vedette("bundle", "keygen", key).stdout.split()[-1]
    vedette("bundle", "sign", bundle, "--key", key)
    data = bundle.read_bytes()
    assert b"rules/functions/own.py" in data
    changed = tmp_path / "changed.vbundle"
    changed.write_bytes(data.replace(b"rpartition", b"partition_"))
    refused = vedette("scan", "--rules", changed, "--trusted-key", public, "--functions", door.file, code=2)
    assert "damaged or changed after signing" in refused.stderr
    door.add(line(0, "fail", "10.0.0.1"))
    without = vedette("scan", "--rules", bundle, "--trusted-key", public, "--format", "json", door.file)
    assert "not run: Own: it calls functions in Python" in without.stderr
    assert [json.loads(row)["rule_title"] for row in without.stdout.splitlines()] == ["Plain"]

    settings = door.agent.config.read_text()
    settings = settings[settings.index("[[input]]") : settings.index("[log]")]
    settings += f'[bundles]\nfile = "{bundle}"\ntrusted_keys = ["{public}"]\n'
    for allowed, titles in (("", {"Plain"}), (ALLOW, {"Plain", "Own"})):
        agent = Agent(tmp_path / f"agent{len(allowed)}", settings + allowed, rules=None)
        agent.up()
        try:
            agent.settled(1)
            until("alerts", lambda agent=agent, titles=titles: {row["rule_title"] for row in agent.alerts()} == titles)
            status = agent.status()
        finally:
            agent.kill()
        assert [one["title"] for one in status["statement_state"]["without_functions"]] == ([] if allowed else ["Own"])
        assert any("calls functions in Python" in reason for reason in status["rules"]["dead"]) is not bool(allowed)
