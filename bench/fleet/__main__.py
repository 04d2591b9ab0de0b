"""What a fleet of thousands costs one broker and one controller: ``python -m bench.fleet --agents 10000``.

Agents connect, say what they run, and get a bundle in four rings (5 agents, 10 %, 50 %, all). A ring counts as applied
when every agent in it has proved by a heartbeat that it runs the bundle, so that it takes as long as the time between
two heartbeats at least. There is no soak: what is measured is the way there and back. At most ``TLS_AGENTS`` speak TLS,
the rest plainly; ``--verifying`` check signatures as agents do, the rest believe.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from bench.fleet.world import RINGS, TLS_AGENTS, Centre, World
from vedette.fleet.documents import State, place
from vedette.system import descriptors

DAY = 86_400.0
BUNDLE_BYTES = 64 << 10


class Watching:
    """An observer process, and its newest line."""

    def __init__(self, world: World) -> None:
        self._command = [sys.executable, "-m", "bench.fleet.observer", "127.0.0.1", str(world.broker.port), world.fleet]
        self.newest: dict[str, Any] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=subprocess.PIPE, limit=1 << 20)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.newest = orjson.loads(line)

    async def until(self, check: Callable[[dict[str, Any]], bool], seconds: float) -> float:
        """When ``check`` of its line held (by its own clock). Raises TimeoutError with the line."""
        try:
            async with asyncio.timeout(seconds):
                while not (self.newest and check(self.newest)):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise TimeoutError(f"not seen within {seconds:g} s: {self.newest}") from None
        return float(self.newest["at"])

    async def stop(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading


def _running(sha256: str, count: int, line: dict[str, Any]) -> bool:
    return bool(line["running"].get(sha256, 0) >= count)


def resident_mb(pid: int) -> float:
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(rows["VmRSS"].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(folder: Path, count: int, beat_seconds: float, verifying: int, idle: float) -> dict[str, Any]:
    """The figures of one fleet. Raises TimeoutError when something does not come about."""
    world = World(folder, verifying=verifying, beat_seconds=beat_seconds)
    world.broker.start()
    assert world.broker.process is not None
    broker = world.broker.process.pid
    centre = Centre(folder / "centre", world.broker.url, RINGS)
    first = centre.desire(os.urandom(BUNDLE_BYTES))
    await centre.roll(State.DONE)
    world.populate(count)
    world.believe(centre.root)
    found: dict[str, Any] = {"agents": count, "heartbeat_seconds": beat_seconds, "heartbeat_bytes": 0}
    began = time.time()
    await world.connect()
    beating = asyncio.create_task(world.beating())
    watching = Watching(world)
    try:
        while world.connected < count:
            await asyncio.sleep(0.02)
        found["connected_s"] = time.time() - began
        limit = 60 + 4 * beat_seconds
        while sum(1 for agent in world.agents if agent.loaded is not None) < count:
            await asyncio.sleep(0.1)
            if time.time() - began > limit:
                raise TimeoutError(f"{sum(1 for a in world.agents if a.loaded is None)} agents have no bundle")
        found["first_bundle_s"] = time.time() - began
        found["heartbeat_bytes"] = len(orjson.dumps(world.heartbeat(world.agents[0])))
        await asyncio.sleep(beat_seconds + 1)

        began = time.time()
        await watching.start()
        found["known_s"] = await watching.until(lambda line: line["known"] == count, limit) - began
        found["known_cpu_s"], found["known_mb"] = watching.newest["cpu"], watching.newest["rss"] / (1 << 20)
        await watching.until(lambda line: line["running"].get(first.sha256) == count, limit)

        before, cpu, began = world.traffic.figures(), (time.process_time(), cpu_seconds(broker)), time.time()
        observed = watching.newest["cpu"]
        await asyncio.sleep(idle)
        seconds = time.time() - began
        spent = [now - then for now, then in zip(world.traffic.figures(), before, strict=True)]
        per_day = [one / count / seconds * DAY for one in spent]
        found["day"] = dict(zip(("in_messages", "in_bytes", "out_messages", "out_bytes"), per_day, strict=True))
        found["idle_cpu"] = {
            "simulator": (time.process_time() - cpu[0]) / seconds,
            "broker": (cpu_seconds(broker) - cpu[1]) / seconds,
            "observer": (watching.newest["cpu"] - observed) / seconds,
        }

        second = centre.desire(os.urandom(BUNDLE_BYTES))
        assert centre.change is not None
        canary = centre.lowest([agent.id for agent in world.agents], 5)
        found["rings"] = []
        before = world.traffic.figures()
        for number, ring in enumerate(RINGS):
            share = (ring.percent or 0) / 100
            inside = {agent.id for agent in world.agents if place(centre.change.id, agent.id) < share} | set(canary)
            began = time.time()
            await centre.roll(State.ROLLING, number, canary)
            announced = time.time()
            wanted = len(inside)
            at = await watching.until(partial(_running, second.sha256, wanted), limit)
            assert watching.newest["running"][second.sha256] == wanted, "an agent outside of its ring has the change"
            found["rings"].append(
                {"ring": ring.name, "agents": wanted, "published_s": announced - began, "applied_s": at - began}
            )
        spent = [now - then for now, then in zip(world.traffic.figures(), before, strict=True)]
        found["rollout"] = dict(
            zip(("in_messages", "in_bytes", "out_messages", "out_bytes"), [one / count for one in spent], strict=True)
        )
        wrong = [agent.id for agent in world.agents if agent.history != [first.sha256, second.sha256]]
        assert not wrong, f"{len(wrong)} agents ran something else: {wrong[:5]}"
        found["mb"] = {
            "broker": resident_mb(broker), "simulator": resident_mb(os.getpid()),
            "observer": watching.newest["rss"] / (1 << 20),
        }  # fmt: skip
    finally:
        beating.cancel()
        await watching.stop()
        world.broker.kill()
    return found


def shown(found: dict[str, Any]) -> str:
    """For people."""
    day, idle, mb, roll = found["day"], found["idle_cpu"], found["mb"], found["rollout"]
    lines = [
        f"{found['agents']:,} agents, a heartbeat of {found['heartbeat_bytes']:,} bytes every"
        f" {found['heartbeat_seconds']:g} s, {min(TLS_AGENTS, found['agents'])} of them over TLS",
        f"connected and subscribed        {found['connected_s']:.1f} s",
        f"first bundle loaded by all      {found['first_bundle_s']:.1f} s",
        f"all states known                {found['known_s']:.1f} s, {found['known_cpu_s']:.1f} s of CPU,"
        f" {found['known_mb']:.0f} MB",
        *(
            f"ring {ring['ring']:<7}{ring['agents']:>7} agents     published {ring['published_s']:.2f} s,"
            f" proved by all {ring['applied_s']:.1f} s"
            for ring in found["rings"]
        ),
        f"an agent a day, without alerts  {day['out_messages']:,.0f} messages up ({day['out_bytes'] / 1e6:.1f} MB),"
        f" {day['in_messages']:,.0f} down ({day['in_bytes'] / 1e3:.0f} kB)",
        f"an agent a roll-out             {roll['in_messages']:.0f} messages down ({roll['in_bytes'] / 1e3:.0f} kB)",
        f"share of a core, at rest        broker {idle['broker']:.2f}, controller {idle['observer']:.2f},"
        f" simulator {idle['simulator']:.2f}",
        f"memory                          broker {mb['broker']:.0f} MB, controller {mb['observer']:.0f} MB,"
        f" simulator {mb['simulator']:.0f} MB",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--heartbeat", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--verifying", type=int, default=10, help="agents that check signatures")
    parser.add_argument("--idle", type=float, default=60.0, metavar="SECONDS", help="watched without any change")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    descriptors.raise_limit()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(Path(folder), given.agents, given.heartbeat, given.verifying, given.idle))
    if given.json is not None:
        given.json.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    sys.stdout.write(shown(found) + "\n")


if __name__ == "__main__":
    main()
