"""Two thousand simulated agents at a real broker: they follow signed documents ring by ring, and some do badly."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench.fleet.observer import Observer
from bench.fleet.simulated import Simulated
from bench.fleet.wire import Client
from bench.fleet.world import RINGS, Centre, World
from vedette.fleet.documents import State, place
from vedette.region.steer.gates import limits

pytestmark = [pytest.mark.peer, pytest.mark.slow]
AGENTS = 2_000
BEAT = 5.0


async def until(what: str, check: Callable[[], object], seconds: float = 240.0) -> None:
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.05)
    assert check(), what


async def observing(world: World) -> Observer:
    """One that sees each heartbeat and last will of the fleet."""
    observer = Observer(world.fleet)
    _, observer.client = await asyncio.get_running_loop().create_connection(
        lambda: Client("observer", observer, observer.traffic), "127.0.0.1", world.broker.port
    )
    return observer


@asynccontextmanager
async def running(folder: Path, behaviours: dict[str, str]) -> AsyncIterator[tuple[World, Centre, Observer]]:
    """A fleet that has its first bundle, and is watched."""
    world = World(folder, beat_seconds=BEAT)
    world.broker.start()
    beating: asyncio.Task[None] | None = None
    try:
        centre = Centre(folder / "centre", world.broker.url, RINGS)
        first = centre.desire(b"first" * 1000)
        await centre.roll(State.DONE)
        world.populate(AGENTS, behaviours)
        world.believe(centre.root)
        await world.connect()
        beating = asyncio.create_task(world.beating())
        observer = await observing(world)
        await until("a first bundle", lambda: observer.running[first.sha256] == AGENTS)
        yield world, centre, observer
    finally:
        if beating is not None:
            beating.cancel()
        world.broker.kill()


async def test_ring_by_ring(tmp_path: Path) -> None:
    """A ring's agents load a change, those that verify signatures among them, and no others do; one that was away
    finds its ring when it is back; put back, all run what they ran before."""
    async with running(tmp_path, {}) as (world, centre, observer):
        before = world.agents[0].loaded
        target = centre.desire(b"second" * 1000)
        assert before is not None
        assert centre.change is not None
        change, ids = centre.change.id, [agent.id for agent in world.agents]
        canary = centre.lowest(ids, 5)
        away = next(agent for agent in world.agents if place(change, agent.id) < 0.5 and agent.id not in canary)
        assert away.client is not None
        away.client.abort()
        await until("its last will", lambda: observer.agents.by_id[away.id].lost)
        for number, ring in enumerate(RINGS[:3]):
            share = (ring.percent or 0) / 100
            inside = {id for id in ids if place(change, id) < share} | set(canary)
            await centre.roll(State.ROLLING, number, canary)
            here = len(inside - {away.id})
            await until(ring.name, lambda n=here: observer.running[target.sha256] >= n)
            having = {agent.id for agent in world.agents if agent.loaded == target}
            assert having == inside - {away.id}
        assert away.loaded == before
        await away.connect()
        await until("what was away", lambda: away.loaded == target)
        verifying = [agent for agent in world.agents if agent.trust is not None]
        assert len(verifying) == 10
        assert {agent.desired.serial for agent in verifying if agent.desired} == {2}
        await centre.roll(State.ABORTED)
        await until("all back", lambda: observer.running[before.sha256] == AGENTS)
        assert Counter(len(agent.history) for agent in world.agents).keys() == {1, 3}


async def test_bad_agents(tmp_path: Path) -> None:
    """What goes wrong with an agent after a change is in what a controller reads of it: a gate finds each kind at the
    agents that have it, and nothing at the others."""
    behaviours = {f"a{i:05d}": kind for i, kind in enumerate(["crash", "flood", "silent", "refuse"] * 5)}
    async with running(tmp_path, behaviours) as (world, centre, observer):
        await asyncio.sleep(BEAT)
        for agent in observer.agents.by_id.values():
            agent.watch()
        observer.agents.limits = limits({"silence": 4 * BEAT, "alerts_floor": 10})
        target = centre.desire(b"second" * 1000)
        await centre.roll(State.DONE)
        good = [agent for agent in world.agents if not agent.behaviour]
        await until("the change", lambda: all(agent.loaded == target for agent in good))
        now = observer.agents.by_id

        def found(agent: Simulated, gate: str) -> bool:
            seen = now[agent.id]
            return any(one.gate == gate for one in seen.findings) or bool(
                gate == "refused" and seen.refused
            )  # fmt: skip

        by_kind: dict[str, list[Simulated]] = {}
        for agent in world.agents:
            by_kind.setdefault(agent.behaviour, []).append(agent)
        await until("crashes", lambda: all(found(one, "crashes") for one in by_kind["crash"]))
        await until("floods", lambda: all(found(one, "alerts") for one in by_kind["flood"]))
        await until("refusals", lambda: all(found(one, "refused") for one in by_kind["refuse"]))
        quiet = {one.id for one in by_kind["silent"]}
        await until("silence", lambda: all(world.now() - now[id].heard > 3 * BEAT * 1_000_000 for id in quiet))
        assert all(one.loaded != target for one in by_kind["refuse"])
        wrong = [agent.id for agent in good if now[agent.id].findings or now[agent.id].refused]
        assert not wrong
