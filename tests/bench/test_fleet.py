"""Simulated agents at a real broker, and the real controller over them: what does well goes ring by ring,
what does badly in any way is stopped at the canary."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench.fleet.controller import Controller
from bench.fleet.simulated import Simulated
from bench.fleet.world import RINGS, Centre, World
from tests.waits import DEADLINE, eventually
from vedette.fleet.documents import Target, place

pytestmark = [pytest.mark.peer, pytest.mark.long]
AGENTS = int(os.environ.get("VEDETTE_SIMULATED", "200"))
BEAT = 5.0


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[World, Centre, Controller, Target]]:
    """A fleet that runs its first bundle, and is steered."""
    world = World(folder, beat_seconds=BEAT)
    world.broker.start()
    beating: asyncio.Task[None] | None = None
    controller: Controller | None = None
    try:
        centre = Centre(folder / "centre", world.broker.url, RINGS, {"baseline": BEAT})
        first = (await centre.desire(b"first" * 1000)).to
        assert first is not None
        world.populate(AGENTS)
        await world.connect()
        beating = asyncio.create_task(world.beating())
        controller = Controller(world, centre)
        await eventually("a first bundle", lambda: all(agent.loaded == first for agent in world.agents))
        await controller.begin()
        yield world, centre, controller, first
    finally:
        if beating is not None:
            beating.cancel()
        if controller is not None:
            await controller.end()
        world.broker.kill()


def reached(controller: Controller, change: str, agents: list[Simulated]) -> list[set[str]]:
    """The agents of each ring that has begun, by the controller's record."""
    rings: list[set[str]] = []
    named: set[str] = set()
    for _, row in controller.steps(change):
        if row["event"] == "rollout_ring":
            named = named or {*row["named"]}
            share = (RINGS[len(rings)].percent or 0) / 100
            rings.append(named | {agent.id for agent in agents if place(change, agent.id) < share})
            assert len(rings[-1]) == row["agents"]
    return rings


async def test_ring_by_ring(tmp_path: Path) -> None:
    """A ring's agents load a change, and no others do; one that was away finds its ring when it is back."""
    async with running(tmp_path) as (world, centre, controller, first):
        await controller.until("all known", lambda: controller.shown.get("agents") == AGENTS, DEADLINE)
        away = max(world.agents, key=lambda agent: place("c2", agent.id))
        assert away.client is not None
        away.client.abort()
        change = await centre.desire(b"second" * 1000, first)
        assert change.id == "c2"

        def done() -> bool:
            having = {agent.id for agent in world.agents if agent.loaded == change.to}  # before the record is read
            begun = reached(controller, change.id, world.agents)
            assert having <= (begun[-1] if begun else set())
            return controller.step(change.id, "rollout_done") is not None

        await controller.until("the end", done, DEADLINE)
        assert [len(one) for one in reached(controller, change.id, world.agents)][::3] == [5, AGENTS]
        assert away.loaded == first
        await eventually("all others", lambda: all(one.loaded == change.to for one in world.agents if one is not away))
        await away.connect()
        await eventually("what was away", lambda: away.loaded == change.to)
        assert all(len(agent.history) == 2 for agent in world.agents)


async def test_bad_agents(tmp_path: Path) -> None:
    """Whatever goes wrong with agents after a change, the controller stops it at the canary, names the gate, and has
    the canary back; no other agent ever had it."""
    kinds = {
        "flood": "alerts", "crash": "crashes", "quarantine": "quarantined", "refuse": "refused", "silent": "silence",
    }  # fmt: skip
    async with running(tmp_path) as (world, centre, controller, first):
        had: set[str] = set()
        for kind, gate in kinds.items():
            for agent in world.agents:
                agent.behaviour = kind
            gates = {"silence": 6 * BEAT} if kind == "silent" else {}
            change = await centre.desire(kind.encode() * 1000, first, gates)
            await controller.until(kind, lambda id=change.id: controller.step(id, "rollout_aborted"), DEADLINE)
            begun, aborted = (row for _, row in controller.steps(change.id) if row["event"] != "rollout_soaks")
            assert any(reason.startswith(f"{gate}: ") for reason in aborted["reasons"]), aborted
            assert begun["agents"] == 5
            await eventually("all back", lambda: all(agent.loaded == first for agent in world.agents))
            assert change.to is not None
            ran = {agent.id for agent in world.agents if change.to.sha256 in agent.history}
            assert ran <= {*begun["named"]}
            assert bool(ran) == (kind != "refuse")
            had |= ran
            await eventually("all there", lambda: world.connected == AGENTS)
        assert all(agent.history == [first.sha256] for agent in world.agents if agent.id not in had)
