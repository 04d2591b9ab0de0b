"""What a fleet of thousands costs one broker and one controller: ``python -m bench.fleet --agents 10000``.

Agents connect, say what they run, and are steered by the real controller, ``vedette region steer``: first to a bundle
that floods, which it must abort at the canary, then to one that does well, in four rings (5 agents, 10 %, 50 %, all).
A ring is applied when every agent in it has proved by a heartbeat that it runs the bundle, so that it takes up to the
time between two heartbeats; it ends after another heartbeat of all of them. Rings have no soak, and an agent is
watched for one heartbeat's interval before it is given anything: what is measured is the way there and back. The times
of a ring are those of the controller's audit record, in whole seconds. At most ``TLS_AGENTS`` speak TLS, the rest
plainly; ``--verifying`` check signatures as agents do, the rest believe.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson

from bench.fleet.controller import Controller, resident_mb
from bench.fleet.world import RINGS, TLS_AGENTS, Centre, World
from bench.usage import cpu_seconds
from vedette.fleet.documents import Target

DAY = 86_400.0
BUNDLE_BYTES = 64 << 10
TRAFFIC = ("in_messages", "in_bytes", "out_messages", "out_bytes")


async def measure(folder: Path, count: int, beat_seconds: float, verifying: int, idle: float) -> dict[str, Any]:
    """The figures of one fleet. Raises TimeoutError when something does not come about."""
    world = World(folder, verifying=verifying, beat_seconds=beat_seconds)
    world.broker.start()
    assert world.broker.process is not None
    broker = world.broker.process.pid
    gates = {"baseline": beat_seconds, "taken": 1.0, "silence": max(300.0, 5 * beat_seconds)}
    centre = Centre(folder / "centre", world.broker.url, RINGS, gates)
    first = (await centre.desire(os.urandom(BUNDLE_BYTES))).to
    assert first is not None
    world.populate(count)
    world.believe(centre.root)
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
        await controller.start()
        all_known = await controller.until("all known", lambda: controller.shown.get("agents") == count, limit)
        figures["known_s"] = all_known - began
        figures["known_cpu_s"], figures["known_mb"] = cpu_seconds(controller.pid), resident_mb(controller.pid)
        figures.update(await _at_rest(world, controller, broker, idle))
        figures["flood"] = await _flooded(world, centre, controller, first, limit)
        cpu, began = _cpu(controller, broker), time.time()
        figures.update(await _rolled_out(world, centre, controller, first, limit))
        figures["rollout_s"] = time.time() - began
        figures["rollout_cpu"] = {name: now - cpu[name] for name, now in _cpu(controller, broker).items()}
        figures["mb"] = {
            "broker": resident_mb(broker), "simulator": resident_mb(os.getpid()),
            "controller": resident_mb(controller.pid),
        }  # fmt: skip
    finally:
        beating.cancel()
        await controller.stop()
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


def shown(figures: dict[str, Any]) -> str:
    """For people."""
    day, idle, mb, roll, flood = (figures[name] for name in ("day", "idle_cpu", "mb", "rollout", "flood"))
    cpu = figures["rollout_cpu"]
    lines = [
        f"{figures['agents']:,} agents, a heartbeat of {figures['heartbeat_bytes']:,} bytes every"
        f" {figures['heartbeat_seconds']:g} s, {min(TLS_AGENTS, figures['agents'])} of them over TLS;"
        f" load average before {figures['load']:.1f}",
        f"connected and subscribed        {figures['connected_s']:.1f} s",
        f"first bundle loaded by all      {figures['first_bundle_s']:.1f} s",
        f"all states known                {figures['known_s']:.1f} s, {figures['known_cpu_s']:.1f} s of CPU,"
        f" {figures['known_mb']:.0f} MB",
        f"flood, {flood['agents']} agents of {flood['ring']:<13}aborted {flood['aborted_s']:.0f} s after the ring"
        f" began, all back {flood['back_s']:.0f} s; {flood['reason'][:70]}",
        *(
            f"ring {ring['ring']:<7}{ring['agents']:>7} agents     published {ring['published_s']:.0f} s,"
            f" proved by all {ring['applied_s']:.0f} s, ended {ring['ended_s']:.0f} s"
            for ring in figures["rings"]
        ),
        f"an agent a day, without alerts  {day['out_messages']:,.0f} messages up ({day['out_bytes'] / 1e6:.1f} MB),"
        f" {day['in_messages']:,.0f} down ({day['in_bytes'] / 1e3:.0f} kB)",
        f"an agent a roll-out             {roll['in_messages']:.0f} messages down ({roll['in_bytes'] / 1e3:.0f} kB)",
        f"all of that roll-out            {figures['rollout_s']:.0f} s, CPU: broker {cpu['broker']:.1f} s,"
        f" controller {cpu['controller']:.1f} s",
        f"share of a core, at rest        broker {idle['broker']:.2f}, controller {idle['controller']:.2f},"
        f" simulator {idle['simulator']:.2f}",
        f"memory                          broker {mb['broker']:.0f} MB, controller {mb['controller']:.0f} MB,"
        f" simulator {mb['simulator']:.0f} MB",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--heartbeat", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--verifying", type=int, default=10, help="agents that check signatures")
    parser.add_argument("--idle", type=float, default=60.0, metavar="SECONDS", help="watched without any change")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(Path(folder), options.agents, options.heartbeat, options.verifying, options.idle))
    sys.stdout.write(shown(figures) + "\n")


if __name__ == "__main__":
    main()
