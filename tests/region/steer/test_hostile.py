"""Heartbeats that say anything end no controller, and hide no other agent from it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.console.fleet.kit import Agents as Members
from tests.console.fleet.kit import Region
from tests.fleet.kit import FLEET, desired, group
from tests.region.anything import nested, objects, spoiled
from tests.region.steer.kit import BEAT, SECOND, START, beat, bundle
from tests.waits import eventually
from vedette.region.repository import Repository
from vedette.region.steer import controller as controllers
from vedette.region.steer.agents import Agents
from vedette.region.steer.controller import Controller
from vedette.region.steer.kept import Kept
from vedette.region.steer.steering import Steering
from vedette.system.foreign import COUNT, read

ACTUAL = {
    "desired_serial": 1, "labels": {"id": "a", "role": "web"}, "bundles": {"default": {"sha256": "0"}},
    "lookups": {"staff": {"sha256": "1"}}, "refused": {"a": "b"}, "problems": ["x"],
    "config": {"overlay": "", "confirmed": True, "undone": {"a": "b"}}, "release": {"sha256": "2", "state": "x"},
}  # fmt: skip
GOOD = {**beat("a", START, alerts={"r1": 4}, actual=ACTUAL), "rulesets": [{"isolation": "strict", "quarantined": 1}]}


def test_any_heartbeat_is_read_decided_on_and_kept(tmp_path: Path) -> None:
    """Whatever 500 heartbeats say: the agents lie in their groups, gates compare, and the file of agents is written."""
    rng, agents, kept = random.Random(11), Agents(), Kept(tmp_path)
    steering = Steering(agents, {})
    steering.follow(bundle(), None, START)
    for turn in range(500):
        now = START + turn * BEAT
        agents.take("good", {**GOOD, "time": now}, now)
        try:
            row = read(spoiled(rng, {**GOOD, "time": now}))
        except ValueError:
            continue
        if isinstance(row, dict):
            agents.take(f"bad-{rng.randrange(20)}", row, now, retained=rng.random() < 0.2)
        if turn % 20 == 0:
            moves = [*steering.moves(now, now / SECOND)]
            steering.watch(moves)
            steering.take(moves)
            assert steering.shown(now)
            kept.write_agents(agents)
    kept.write_agents(agents)
    good = agents.by_id["good"]
    assert good.group == "everyone"
    assert good.now is not None
    again = Agents()
    kept.read_agents(again)
    assert again.by_id["good"].now == good.now
    kept.close()


def test_numbers_that_are_no_counts() -> None:
    """Figures beyond what sums and tables hold are none; the agent's labels count all the same."""
    agents = Agents()
    for number in (2**64 - 1, COUNT + 1, -1, 1e308, "NaN", True):
        for spoilt in (
            {"time": number},
            {"inputs": {name: {**GOOD["inputs"]["in"], "judged": number} for name in "ab"}},
        ):
            agents.take("a", {**GOOD, **spoilt}, START)
            assert agents.by_id["a"].now is None
    assert agents.by_id["a"].labels == {"id": "a", "role": "web"}


@pytest.mark.peer
async def test_a_controller_outlives_its_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retained heartbeats that nest and overflow, at a real mosquitto: it goes on, stops in order and starts again."""
    monkeypatch.setattr(controllers, "SETTLE_SECONDS", 0.0)
    region = Region(tmp_path, desired(1, group("rest")))
    region.broker.start()
    try:
        names = ("a-nest", "b-object", "c-number", "d-good")
        async with Members(region.settings, region.authority, dict.fromkeys(names, "x")).running() as members:
            hostile = {
                "a-nest": b'{"state":"running","actual":{"labels":{"role":' + nested(1000) + b"}}}",
                "b-object": b'{"state":"running","actual":{"labels":{"role":"a"},"z":' + objects(900) + b"}}",
            }
            for name, data in hostile.items():
                await members.client.publish(f"vedette/v1/{FLEET}/{name}/status", data, retain=True)
            await members.heartbeat("c-number", time=2**64 - 1)
            await members.heartbeat("d-good")
            for _ in range(2):
                controller = Controller(region.settings, Repository(tmp_path / "trust"))
                task = asyncio.create_task(controller.run())
                heard = controller._agents.by_id
                await eventually("the good agent", lambda: task.done() or "d-good" in heard)  # noqa: B023
                await eventually("a report", lambda: task.done() or controller._shown)  # noqa: B023
                assert not task.done()
                await controller.stop()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
    finally:
        region.broker.kill()
