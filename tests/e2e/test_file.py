"""A tailed file into the real agent: what was written is in the raw log, once, whatever happens."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench import traffic
from tests.e2e.agent import KILLS, Agent, assert_as_scanned, chance, reborn, say, split

LINES = 200_000 if KILLS > 4 else 50_000
SLICES = 50
"""Writes of each stretch; the pieces are cut without regard to lines."""


@pytest.mark.long
def test_killed_in_the_middle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed at random, the file rotated in between, also while the agent is dead: every line is stored exactly once,
    byte for byte, in order, and the alerts equal ``scan`` over the lines."""
    rng = chance()
    data = b"".join(traffic.blocks(13, LINES, attack_rate=0.004))
    log = tmp_path / "logs" / "app.log"
    log.parent.mkdir()
    agent = Agent(tmp_path / "a")
    agent.configure(
        f'[[input]]\nname = "in"\ntype = "file"\npaths = ["{log}"]\n'
        'format = "syslog"\nlogsource = { product = "linux" }\n'
    )
    agent.up()
    rotations = 0
    try:
        with ThreadPoolExecutor(1) as writer:
            for i, part in enumerate(split(data, KILLS + 1)):
                work = writer.submit(_write, log, part)
                if i < KILLS:
                    time.sleep(rng.uniform(0.0, 1.2))
                    agent.kill()
                    work.result()
                    if rotated := rng.random() < 0.5:
                        rotations += 1
                        log.rename(log.with_name(f"app.log-202611{rotations:02}"))
                    reborn(agent, rng)
                    agent.ready()
                    if not rotated and rng.random() < 0.5:
                        rotations += 1
                        log.rename(log.with_name(f"app.log-202611{rotations:02}"))
                work.result()
        counts = agent.settled(LINES)["inputs"]["in"]
        assert (counts["received"], counts["stored"], counts["judged"]) == (LINES, LINES, LINES)
    finally:
        agent.kill()
    assert [event.raw for event in agent.stored()] == data[:-1].split(b"\n")
    found = assert_as_scanned(agent)
    say(capsys, f"file, {KILLS} kills, {rotations} rotations: {LINES} lines stored once; {found} alerts as scan")


def _write(log: Path, data: bytes) -> None:
    """Append ``data`` in pieces within a second."""
    size = -(-len(data) // SLICES)
    with log.open("ab", buffering=0) as file:
        for start in range(0, len(data), size):
            file.write(data[start : start + size])
            time.sleep(0.9 / SLICES)
