"""A strict set over kills of the agent, of its process, and of both, at named points and at random: each of its alerts
once, none missing."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from bench.send import tcp
from tests.e2e.agent import KILLS, Agent, by_line, chance, landed
from tests.e2e.faults import Faults
from tests.e2e.points import ROTATION, STORING, at_call, fell
from tests.e2e.test_rules import rule
from tests.e2e.test_rulesets import THRICE
from tests.e2e.test_strict import configured, evaluated, process
from tests.waits import until

pytestmark = [pytest.mark.peer, pytest.mark.long]

PARTS = ("agent", "process", "both")
LINES = 60
"""In a round, over about a second and a half; each third of them is one of the set's."""
SITE = "6a1f0000-0000-4000-8000-000000000003"
TEN = "6a1f0000-0000-4000-8000-000000000004"


def lines(start: int) -> bytes:
    words = ("own", "site", "none")
    return b"".join(
        f"<13>Nov 20 10:00:00 web{n % 2} app: marker-{words[n % 3]} {n}\n".encode() for n in range(start, start + LINES)
    )


def trickle(agent: Agent, start: int) -> None:
    for line in lines(start).splitlines(keepends=True):
        with suppress(OSError):
            tcp(("127.0.0.1", agent.port), line)
        time.sleep(0.02)


def test_each_alert_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Detections and a correlation that counts over all kills are what one run without kills makes of what the raw log
    holds; no alert was committed twice, and the account of the set adds up."""
    rng, faults = chance(), Faults(tmp_path, monkeypatch)
    path = rule(tmp_path / "site", "site", 3)
    thrice = THRICE.format(word="site", number=4, of=3).replace("gte: 3", "gte: 10").replace("10m", "30d")
    path.write_text(path.read_text() + thrice + "generate: true\n")
    agent = Agent(tmp_path / "a", rules=rule(tmp_path / "own", "own", 1).parent, segment_bytes=4 << 10)
    configured(agent, tmp_path / "site")
    points, rounds, fired = {**STORING, **ROTATION}, max(9, KILLS), Counter[str]()
    agent.up()
    with ThreadPoolExecutor(1) as pool:
        for round in range(rounds):
            part = PARTS[round % len(PARTS)]
            sending = pool.submit(trickle, agent, round * LINES)
            if part == "process":
                time.sleep(rng.uniform(0.1, 1.2))
                with suppress(ProcessLookupError, OSError, TypeError):
                    os.kill(process(agent)["pid"], signal.SIGKILL)
                sending.result()
                continue
            if part == "agent":
                name, point = rng.choice([*points.items()])
                at_call(faults, point, rng.randint(1, min(point.most, 10)))
                fired[name] += fell(agent)
            else:
                time.sleep(rng.uniform(0.1, 1.2))
                pid = process(agent)["pid"]
                agent.kill()
                with suppress(ProcessLookupError, TypeError):
                    os.kill(pid, signal.SIGKILL)
            sending.result()
            faults.set()
            agent.up()
    try:
        account = evaluated(agent)
        assert account["stored"] == account["judged"]
        agent.settled()
        stored = agent.stored()
        marked = [number for number, event in enumerate(stored, 1) if b"marker-site" in event.raw]
        found = by_line((row for row in agent.alerts() if row["rule_id"] in (SITE, TEN)), stored)
        expected = Counter({(SITE, number): 1 for number in marked})
        if len(marked) >= 10:
            expected[TEN, marked[9]] = 1
        assert found == expected, (expected - found, found - expected, fired)
        seqs: dict[str, set[int]] = {}
        for row in landed(agent.landing):
            seqs.setdefault(row["alert_id"], set()).add(row["seq"])
        assert all(len(numbers) == 1 for numbers in seqs.values()), "committed twice"
        assert until("the set's alerts", lambda: agent.status()["identity_broken"] == [])
    finally:
        agent.kill()
