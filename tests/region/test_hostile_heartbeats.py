"""Heartbeats that say anything, at a real mosquitto: the landing keeps each, and goes on for everybody else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.broker import Broker
from tests.delivery.kit import alert, read
from tests.mqtt.kit import connected
from tests.region.anything import spoiled
from tests.region.steer.kit import START, beat
from tests.region.test_land import Land, agent
from tests.waits import eventually
from vedette.delivery.envelope import encode, pack_batch

pytestmark = pytest.mark.peer
NAMES = [f"bad-{number}" for number in range(20)]


async def test_any_heartbeat_lands(broker: Broker, tmp_path: Path) -> None:
    """500 of 20 agents, two machines under each id: each is a row, of the heartbeats or of what cannot be read, and
    another agent's alert has its receipt."""
    rng, folder = random.Random(3), tmp_path / "landing"
    service = await Land(broker, folder).connected()
    async with connected(broker.url, "bad") as client, agent(broker) as (honest, receipts):
        for turn in range(500):
            name = NAMES[turn % len(NAMES)]
            life = {"raw_log": {"log_id": "ab"[turn // 20 % 2] * 32}, "site": "vienna", "seq_high": 5}
            row = {**beat(name, START + turn, started=START + turn // 20 % 2), **life}
            await client.publish(f"vedette/v1/f1/{name}/status", spoiled(rng, row))
        await honest.publish("vedette/v1/f1/a1/alerts", pack_batch("log", [encode(alert(1))]))
        await eventually("the receipt", lambda: service.task.done() or receipts)
        landed = service.service.landed
        await eventually("all of them", lambda: service.task.done() or landed["status"] + landed["bad"] == 500)
    assert not service.task.done()
    await service.stop()
    assert {row["agent_id"] for row in read(folder, "status")} == {*NAMES}
