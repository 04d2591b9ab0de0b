"""Landings of this release, and of the one before, which reads no compressed batches; all of it killed at work."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from zstandard import FRAME_HEADER

from bench import traffic
from tests.broker import Broker, running
from tests.e2e.agent import KILLS, Agent, assert_as_scanned, chance, few, hand_over, landed, reborn, say, split
from tests.e2e.test_landing import AGENT, Landing
from tests.waits import until

FORMER = """
from vedette.delivery import batch
from vedette.region import land

land.DICTIONARIES, land.split_batch = {}, batch._split
from vedette.cli.main import main
main(prog_name="vedette")
"""
"""A landing as it was: its receipts say nothing of dictionaries, and a compressed batch is no msgpack to it."""


def landing_of(folder: Path, broker: Broker, name: str = "vedette-landing", *, former: bool = False) -> Landing:
    landing = Landing(folder, broker, name)
    if former:
        landing.program = (sys.executable, "-P", "-c", FORMER)
    return landing


def sent_again(agent: Agent) -> dict[str, Any] | None:
    """The status, once every alert is made and some wait that the broker has taken."""
    status = agent.status()
    waiting = status["alerts"]["in_outbox"]
    return (
        status
        if waiting and not status["backlog"] and status["totals"]["alerts_sent"] > status["alerts"]["made"]
        else None
    )


def test_a_former_landing_comes_and_goes(tmp_path: Path) -> None:
    """Compressed batches that wait at the broker for a landing, which comes back as the former one: dead letters, and
    then the same alerts as they were; an agent that is killed between the sending and the receipt; then the landing of
    this release again."""
    # Over 3 s: five lives of a landing, two of an agent, and resend_after is 1 s.
    parts = split(b"".join(traffic.blocks(23, 2_000, attack_rate=0.1)), 4)
    folder = tmp_path / "landing"
    with running(tmp_path / "broker") as broker:
        agent = Agent(tmp_path / "a", rules=few(tmp_path / "rules"))
        agent.configure(AGENT.format(port=agent.port, url=broker.url))
        landing = landing_of(folder, broker)
        former = landing_of(folder, broker, former=True)
        try:
            landing.start()
            agent.up()
            hand_over(agent.port, parts[0], 0)
            agent.settled(500)
            assert agent.status()["uplink"]["compressed"]

            landing.kill()
            hand_over(agent.port, parts[1], 0)
            until("alerts at the broker", lambda: sent_again(agent))
            assert agent.status()["totals"]["bytes_saved"] > 0
            former.start()
            agent.settled(1000)
            assert not agent.status()["uplink"]["compressed"]
            bad = landed(folder, "bad")
            assert bad
            assert {row["payload"][:4] for row in bad} == {FRAME_HEADER}
            assert {row["reason"].partition(":")[0] for row in bad} == {"is not a batch in msgpack"}

            former.kill()
            hand_over(agent.port, parts[2], 0)
            until("alerts at the broker", lambda: sent_again(agent))
            agent.kill()
            landing.start()
            agent.up()
            agent.settled(1500)
            hand_over(agent.port, parts[3], 0)
            status = agent.settled(2000)
            assert status["uplink"]["compressed"]
        finally:
            agent.kill()
            landing.kill()
            former.kill()
    alerts = assert_as_scanned(agent, landing=folder)
    assert (alerts, alerts) == (status["alerts"]["made"], status["alerts"]["receipted"])
    assert len(landed(folder, "bad")) == len(bad)


def test_landings_of_two_releases_share_a_subscription(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While they, the agent and the broker are killed at random: the landing, deduped, holds the alerts of ``scan``
    over the raw log, each once."""
    # Over 3 s: agent, landings and broker have eight lives or more between them.
    rng = chance()
    parts = split(b"".join(traffic.blocks(29, 1_000 + 1_000 * KILLS, attack_rate=0.1)), 1 + KILLS)
    folder = tmp_path / "landing"
    with running(tmp_path / "broker") as broker, ThreadPoolExecutor(1) as sender:
        landings = [landing_of(folder, broker, f"landing-{i}", former=bool(i)) for i in range(2)]
        agent = Agent(tmp_path / "a", rules=few(tmp_path / "rules"))
        agent.configure(AGENT.format(port=agent.port, url=broker.url))
        try:
            for landing in landings:
                landing.start()
            until("the landings", lambda: all("broker_connected" in landing.text() for landing in landings))
            agent.up()
            for number, part in enumerate(parts):
                before = agent.input()["stored"]
                work = sender.submit(hand_over, agent.port, part, part.count(b"\n"))
                agent.midway(work, before + rng.randrange(part.count(b"\n")))
                victim = rng.choice((*landings, agent, broker)) if number else None
                if victim is not None:
                    victim.kill()
                work.result()
                if isinstance(victim, Broker):
                    victim.start()
                elif victim is not None:
                    reborn(victim, rng)
                agent.ready()
            status = agent.settled()
        finally:
            agent.kill()
            for landing in landings:
                landing.kill()
    alerts = assert_as_scanned(agent, landing=folder)
    assert (alerts, alerts) == (status["alerts"]["made"], status["alerts"]["receipted"])
    bad, rows = landed(folder, "bad"), landed(folder)
    assert {row["payload"][:4] for row in bad} <= {FRAME_HEADER}
    by = [sum(row["ingest"]["collector_id"] == f"landing-{i}" for row in rows) for i in range(2)]
    assert all(by), by
    say(
        capsys,
        f"two releases of landings, {KILLS} kills: {alerts} alerts as scan; {by} rows landed, {len(bad)} dead letters",
    )
