"""MQTT QoS 1 into the real agent by a real broker: what was acknowledged to the publisher is in the raw log."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench import traffic
from bench.send import mqtt
from tests.broker import running
from tests.e2e.agent import KILLS, Agent, assert_as_scanned, chance, few, reborn, say, split
from tests.waits import until
from vedette.model.event import Flag
from vedette.rawlog import read

LINES = int(os.environ.get("VEDETTE_MQTT_LINES", str(1_000 * KILLS)))


def test_killed_in_the_middle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed at random while messages come: each is in the raw log at least once, byte for byte; one that is there
    twice came as a redelivery and is marked so; the alerts equal ``scan`` over what the raw log holds."""
    # Over 3 s: three lives of an agent and more, and a stream that goes on for a second and a half.
    rng = chance()
    parts = split(b"".join(traffic.blocks(14, LINES, attack_rate=0.05)), KILLS + 1)
    with running(tmp_path / "broker") as broker, ThreadPoolExecutor(1) as publisher:
        agent = Agent(tmp_path / "a", rules=few(tmp_path / "rules"))
        agent.configure(
            f'[broker]\nurl = "{broker.url}"\n[[input]]\nname = "in"\ntype = "mqtt"\ntopics = ["plant/#"]\n'
            'format = "syslog"\nlogsource = { product = "linux" }\n'
        )
        agent.up()
        until("the subscription", lambda: agent.alive() and "plant/#" in broker.log())
        try:
            for i, part in enumerate(parts):
                before, lines = agent.input()["stored"], part.count(b"\n")
                work = publisher.submit(mqtt, ("127.0.0.1", broker.port), part, topic="plant/press/log", rate=2 * lines)
                if i < KILLS:
                    agent.midway(work, before + rng.randrange(lines))
                    agent.kill()
                    reborn(agent, rng)
                    agent.ready()
                sent = work.result()
                assert sent.complete
                assert sent.lines == lines
            agent.settled(LINES)
            published = Counter(line for part in parts for line in part.splitlines())
            until(
                "every message to be stored",
                lambda: agent.alive() and not published - Counter(event.raw for event in agent.stored()),
            )
            status = agent.settled()
        finally:
            agent.kill()
    again = Counter(event.raw for event in agent.stored()) - published
    assert again <= _marked(agent.data / "raw")
    found = assert_as_scanned(agent)
    dropped = status["inputs"]["in"]["dropped"]
    say(
        capsys,
        f"mqtt, {KILLS} kills: {LINES} messages acknowledged to the publisher, none missing,"
        f" {again.total()} stored again, told apart: {dropped}; {found} alerts as scan",
    )


def _marked(raw: Path) -> Counter[bytes]:
    """The events that are marked as redelivered."""
    found: Counter[bytes] = Counter()
    for frame in read.frames(raw):
        chunk = frame.chunk
        found.update(chunk.data[a:b] for a, b in chunk.spans() if chunk.flags(a) & Flag.DUP)
    return found
