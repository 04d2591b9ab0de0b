"""From the agent to the region through a broker that dies, with a landing that dies, into Spark's table."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bench import traffic
from bench.send import tcp
from spark_jobs.tables.schema import ALERTS
from spark_jobs.tables.tables import open_tables
from tests.broker import Broker, running
from tests.e2e.agent import (
    KILLS,
    ROOT,
    Agent,
    Process,
    assert_as_scanned,
    by_line,
    chance,
    few,
    hand_over,
    landed,
    reborn,
    say,
    scan,
    split,
)
from tests.waits import DEADLINE, until

FIRST, LINES = 1_000, 500 * KILLS
AGENT = """\
[[input]]
name = "in"
type = "syslog"
tcp = "127.0.0.1:{port}"

[broker]
url = "{url}"
[uplink]
type = "mqtt"
heartbeat = "1s"
resend_after = "1s"
"""


class Landing(Process):
    """``vedette region land`` into ``folder``, under the client id ``name``."""

    def __init__(self, folder: Path, broker: Broker, name: str = "vedette-landing") -> None:
        self.folder = folder
        super().__init__(
            folder.with_name(f"{name}.log"),
            *("region", "land", "--broker", broker.url, "--landing", folder, "--seconds", "0.2", "--client-id", name),
        )


def session(broker: Broker) -> None:
    """Wait until a landing has subscribed, so that the broker keeps alerts for it."""
    until("the landing's subscription", lambda: "$share/landing/vedette/v1/+/+/alerts" in broker.log())


def test_nothing_is_lost_between_puback_and_landing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The broker dies with all alerts that it has acknowledged and no landing has; then landing, agent and broker die
    at random: the landing, deduped, holds the alerts of ``scan`` over the raw log, each once."""
    # Over 3 s: agent, landing and broker have eight lives or more between them.
    rng = chance()
    # One stream, so that its times go on: an event from long before is late, and no correlation uses it.
    whole = b"".join(traffic.blocks(15, FIRST + LINES, attack_rate=0.1)).splitlines(keepends=True)
    first, parts = b"".join(whole[:FIRST]), split(b"".join(whole[FIRST:]), KILLS)
    with running(tmp_path / "broker") as broker, ThreadPoolExecutor(1) as sender:
        landing = Landing(tmp_path / "landing", broker)
        agent = Agent(tmp_path / "a", rules=few(tmp_path / "rules"))
        agent.configure(AGENT.format(port=agent.port, url=broker.url))
        try:
            landing.start()
            agent.start()
            session(broker)
            landing.kill()
            agent.ready()
            tcp(("127.0.0.1", agent.port), first)
            held = until("every alert to be acknowledged by the broker", lambda: agent.alive() and _held(agent))
            broker.restart()
            assert not landed(landing.folder)
            landing.start()
            agent.settled(FIRST)
            assert len(agent.alerts(landing.folder)) == held

            for part in parts:
                before = agent.input()["stored"]
                work = sender.submit(hand_over, agent.port, part, part.count(b"\n"))
                agent.midway(work, before + rng.randrange(part.count(b"\n")))
                victim = rng.choice((landing, agent, broker))
                victim.kill()
                work.result()
                if victim is broker:
                    broker.start()
                else:
                    reborn(victim, rng)
                agent.ready()
            status = agent.settled()
        finally:
            agent.kill()
            landing.kill()
    made = status["alerts"]
    found = assert_as_scanned(agent, landing=landing.folder)
    assert (found, found) == (made["made"], made["receipted"])
    rows = landed(landing.folder)
    assert {row["ingest"]["topic"] for row in rows} == {"vedette/v1/f1/edge-1/alerts"}
    assert not landed(landing.folder, "bad")
    say(capsys, f"landing, {KILLS + 2} kills: {found} alerts as scan; {len(rows)} landed rows before dedupe")


@pytest.mark.long
@pytest.mark.spark
def test_three_landings_and_a_broker_that_forgets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three landings share an agent's alerts; one is killed for good with what it held, another again and again, and
    the broker is killed and its whole store removed: the landing, deduped, and Spark's table hold the alerts of
    ``scan`` over the raw log, each once."""
    rng = chance()
    rounds = max(3, KILLS // 2)
    parts = split(b"".join(traffic.blocks(17, 4_000 * (rounds + 1), attack_rate=0.02)), rounds + 1)
    folder = tmp_path / "landing"
    with running(tmp_path / "broker") as broker, ThreadPoolExecutor(1) as sender:
        landings = [Landing(folder, broker, f"landing-{i}") for i in range(3)]
        agent = Agent(tmp_path / "a")
        agent.configure(AGENT.format(port=agent.port, url=broker.url))
        try:
            for landing in landings:
                landing.start()
            until("the landings", lambda: all("broker_connected" in one.text() for one in landings))
            agent.start()
            agent.ready()
            for turn, part in enumerate(parts):
                work = sender.submit(hand_over, agent.port, part, part.count(b"\n"))
                time.sleep(rng.uniform(0.2, 0.8))
                if turn == 0:
                    landings[0].kill()  # for good: its session at the broker goes on being given its share
                elif turn == 1:
                    broker.kill()
                    for left in (tmp_path / "broker").glob("mosquitto.db*"):
                        left.unlink()
                    time.sleep(0.3)
                    broker.start()
                else:
                    landings[1 + turn % 2].kill()
                    landings[1 + turn % 2].start()
                work.result()
            status = agent.settled()
        finally:
            agent.kill()
            for landing in landings:
                landing.kill()
    made = status["alerts"]
    found = assert_as_scanned(agent, landing=folder)
    assert (found, found) == (made["made"], made["receipted"])
    rows = landed(folder)
    by = {name: sum(row["ingest"]["collector_id"] == name for row in rows) for name in ("landing-1", "landing-2")}
    assert all(by.values()), by
    say(capsys, f"three landings, one lost, the broker's store lost: {found} alerts as scan; {len(rows)} landed rows")
    table = _counted(folder, tmp_path / "tables")
    assert len({(row["agent_id"], row["alert_id"]) for row in table}) == len(table) == found
    assert by_line(table, agent.stored()) == scan(agent.folder / "stored.log")


def _held(agent: Agent) -> int:
    """How many alerts wait for their receipt, once all are made and sent; else 0."""
    status = agent.status()
    made, sent = status["alerts"]["made"], status["totals"].get("alerts_sent", 0)
    done = not status["backlog"] and made > 20 and sent >= made == status["alerts"]["in_outbox"]
    return int(made) if done else 0


def _counted(landing: Path, tables: Path) -> list[dict[str, Any]]:
    """The alerts table that the real ingest job makes of a landing."""
    command = [sys.executable, "-m", "spark_jobs", "ingest", "--landing", str(landing), "--tables", str(tables)]
    settings = ("spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1", "spark.sql.shuffle.partitions=2")
    command += ["--master", "local[2]", *(word for setting in settings for word in ("--conf", setting))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    rows: list[dict[str, Any]] = open_tables(str(tables)).arrow(ALERTS).to_pylist()
    return rows
