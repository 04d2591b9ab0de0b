"""What a fleet of thousands costs one broker and one controller: ``python -m bench.fleet --agents 10000``.

Agents connect, say what they run, and are steered by the real controller, ``vedette region steer``: first to a bundle
that floods, which it must abort at the canary, then to one that does well, in four rings (5 agents, 10 %, 50 %, all).
A ring is applied when every agent in it has proved by a heartbeat that it runs the bundle, so that it takes up to the
time between two heartbeats; it ends after another heartbeat of all of them. Rings have no soak, and an agent is
watched for one heartbeat's interval before it is given anything: what is measured is the way there and back. The times
of a ring are those of the controller's audit record, in whole seconds. At most ``TLS_AGENTS`` speak TLS, the rest
plainly. Prints one JSON object; ``day`` and ``rollout`` are messages and bytes of an agent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson

from bench.fleet.controller import Controller
from bench.fleet.world import RINGS, Centre, World
from bench.usage import cpu_seconds, memory_mb
from vedette.fleet.documents import Target

DAY = 86_400.0
BUNDLE_BYTES = 64 << 10
TRAFFIC = ("in_messages", "in_bytes", "out_messages", "out_bytes")


async def measure(folder: Path, count: int, beat_seconds: float, idle: float) -> dict[str, Any]:
    """The figures of one fleet. Raises TimeoutError when something does not come about."""
    world = World(folder, beat_seconds=beat_seconds)
    world.broker.start()
    assert world.broker.process is not None
    broker = world.broker.process.pid
    gates = {"baseline": beat_seconds, "taken": 1.0, "silence": max(300.0, 5 * beat_seconds)}
    centre = Centre(folder / "centre", world.broker.url, RINGS, gates)
    first = (await centre.desire(os.urandom(BUNDLE_BYTES))).to
    assert first is not None
    world.populate(count)
    figures: dict[str, Any] = {"agents": count, "heartbeat_seconds": beat_seconds, "load": os.getloadavg()[0]}
    began = time.time()
    await world.connect()
    beating = asyncio.create_task(world.beating())
    controller = Controller(world, centre)
    try:
        while world.connected < count:
            await asyncio.sleep(0.02)
        figures["connected_s"] = time.time() - began
        limit = 120 + 6 * beat_seconds
        while lacking := sum(1 for agent in world.agents if agent.loaded is None):
            await asyncio.sleep(0.1)
            if time.time() - began > limit:
                raise TimeoutError(f"{lacking} agents have no bundle")
        figures["first_bundle_s"] = time.time() - began
        figures["heartbeat_bytes"] = len(orjson.dumps(world.heartbeat(world.agents[0])))
        await asyncio.sleep(beat_seconds + 1)

        began = time.time()
        await controller.begin()
        all_known = await controller.until("all known", lambda: controller.shown.get("agents") == count, limit)
        figures["known_s"] = all_known - began
        figures["known_cpu_s"], figures["known_mb"] = cpu_seconds(controller.pid), memory_mb(controller.pid)["VmRSS"]
        figures.update(await _at_rest(world, controller, broker, idle))
        figures["flood"] = await _flooded(world, centre, controller, first, limit)
        cpu, began = _cpu(controller, broker), time.time()
        figures.update(await _rolled_out(world, centre, controller, first, limit))
        figures["rollout_s"] = time.time() - began
        figures["rollout_cpu"] = {name: now - cpu[name] for name, now in _cpu(controller, broker).items()}
        figures["mb"] = {
            "broker": memory_mb(broker)["VmRSS"], "simulator": memory_mb(os.getpid())["VmRSS"],
            "controller": memory_mb(controller.pid)["VmRSS"],
        }  # fmt: skip
    finally:
        beating.cancel()
        await controller.end()
        world.broker.kill()
    return figures


async def _at_rest(world: World, controller: Controller, broker: int, idle: float) -> dict[str, Any]:
    before, cpu, began = world.traffic.figures(), _cpu(controller, broker), time.time()
    await asyncio.sleep(idle)
    seconds, count = time.time() - began, len(world.agents)
    spent = [now - then for now, then in zip(world.traffic.figures(), before, strict=True)]
    return {
        "day": dict(zip(TRAFFIC, [amount / count / seconds * DAY for amount in spent], strict=True)),
        "idle_cpu": {name: (now - cpu[name]) / seconds for name, now in _cpu(controller, broker).items()},
    }


def _cpu(controller: Controller, broker: int) -> dict[str, float]:
    """Seconds so far."""
    pids = {"broker": broker, "controller": controller.pid, "simulator": os.getpid()}
    return {name: cpu_seconds(pid) for name, pid in pids.items()}


async def _flooded(world: World, centre: Centre, controller: Controller, first: Target, limit: float) -> dict[str, Any]:
    """A change to a bundle that floods wherever it runs."""
    change = await centre.desire(os.urandom(BUNDLE_BYTES), first)
    assert change.to is not None
    world.harms[change.to.sha256] = "flood"
    await controller.until("an abort", lambda: controller.step(change.id, "rollout_aborted"), 2 * limit)

    def all_back() -> bool:
        agents = controller.change(change.id).get("agents", {})
        return bool(agents and agents["given"] and agents["back"] == agents["given"])

    back = await controller.until("all back", all_back, limit)
    (began, ring), (aborted, why) = (
        step for step in controller.steps(change.id) if step[1]["event"] != "rollout_soaks"
    )
    had = {agent.id for agent in world.agents if change.to.sha256 in agent.history}
    assert why["event"] == "rollout_aborted", why
    assert why["reasons"][0].startswith("alerts: "), why
    assert had, "nobody had it"
    assert had <= {*ring["named"]}, f"agents outside of the canary had it: {sorted(had - {*ring['named']})[:5]}"
    assert all(agent.loaded == first for agent in world.agents)
    return {
        "agents": len(had), "ring": ring["ring"], "aborted_s": aborted - began, "back_s": back - began,
        "reason": why["reasons"][0],
    }  # fmt: skip


async def _rolled_out(
    world: World, centre: Centre, controller: Controller, first: Target, limit: float
) -> dict[str, Any]:
    """A change that does well, to the end."""
    before, count = world.traffic.figures(), len(world.agents)
    flooded = {agent.id for agent in world.agents if len(agent.history) > 1}
    change = await centre.desire(os.urandom(BUNDLE_BYTES), first)
    assert change.to is not None
    await controller.until("the end", lambda: controller.step(change.id, "rollout_done"), (len(RINGS) + 1) * limit)
    spent = [now - then for now, then in zip(world.traffic.figures(), before, strict=True)]
    steps = controller.steps(change.id)
    rings = []
    for n, (began, step) in enumerate(steps):
        if step["event"] == "rollout_ring":
            announced = next(at for at in controller.announced if at >= began)
            rings.append({
                "ring": step["ring"], "agents": step["agents"], "published_s": announced - began,
                "applied_s": steps[n + 1][0] - began, "ended_s": steps[n + 2][0] - began,
            })  # fmt: skip
    assert [step["event"] for _, step in steps] == ["rollout_ring", "rollout_soaks"] * len(RINGS) + ["rollout_done"]
    wrong = [agent.id for agent in world.agents if agent.loaded != change.to]
    wrong += [agent.id for agent in world.agents if len(agent.history) != (4 if agent.id in flooded else 2)]
    assert not wrong, f"{len(wrong)} agents ran something else: {wrong[:5]}"
    return {"rings": rings, "rollout": dict(zip(TRAFFIC, [amount / count for amount in spent], strict=True))}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--heartbeat", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--idle", type=float, default=60.0, metavar="SECONDS", help="watched without any change")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(Path(folder), options.agents, options.heartbeat, options.idle))
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
