"""Rotated files and events of several lines into the real agent, killed while it reads them: each once, in order."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.agent import KILLS, RULES, Agent, chance, reborn, say

EVENTS = 24_000
FILES = 4


@pytest.mark.long
def test_killed_in_the_middle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pod's log with its rotated files, gzip, Zstandard and plain; some are packed while the agent is dead."""
    rng = chance()
    log = tmp_path / "shop_cart-1_0b1c" / "app" / "0.log"
    log.parent.mkdir(parents=True)
    names = [f"0.log.20261120-00000{i}" for i in range(FILES - 1)] + ["0.log"]
    for i, name in enumerate(names):
        with log.with_name(name).open("w") as file:
            for n in range(EVENTS // FILES * i, EVENTS // FILES * (i + 1)):
                head = f"2026-11-23T10:00:00.{n:06d}Z std{'err' if n % 2 else 'out'}"
                file.write(f"{head} F 2026 event {n}\n{head} P \tat {rng.random()}\n{head} F and on\n")
    subprocess.run(["gzip", "-q", log.with_name(names[0])], check=True)
    subprocess.run(["zstd", "-q", "--rm", log.with_name(names[1])], check=True)
    rules = tmp_path / "rules"
    rules.mkdir()
    shutil.copy(RULES / "linux" / "logging_stopped.yml", rules)
    agent = Agent(tmp_path / "a", rules=rules)
    agent.configure(
        f'[[input]]\nname = "in"\ntype = "file"\npaths = ["{log}"]\ncontainers = true\n'
        'multiline = { start = "^2026 ", timeout = "5s" }\n'
    )
    agent.up()
    try:
        for i in range(KILLS):
            time.sleep(rng.uniform(0.0, 0.4))
            agent.kill()
            if i == KILLS // 2:
                subprocess.run(["gzip", "-q", log.with_name(names[2])], check=True)
            reborn(agent, rng)
            agent.ready()
        agent.settled(EVENTS)
    finally:
        agent.kill()
    stored = [event.raw.partition(b"] ")[2].split(b"\n") for event in agent.stored()]
    assert [int(lines[0].split()[-1]) for lines in stored] == list(range(EVENTS))
    assert all(len(lines) == 2 and lines[1].endswith(b"and on") for lines in stored)
    say(capsys, f"rotated files, {KILLS} kills: {EVENTS} events of several lines stored once, in order")
