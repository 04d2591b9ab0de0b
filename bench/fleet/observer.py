"""What a controller that begins now must read: every agent's heartbeat, kept as ``region/steer`` keeps it.

A process by itself, so that its time and memory are not the simulator's: ``python -m bench.fleet.observer HOST PORT
FLEET`` prints a line of JSON every ``TELL`` seconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter

import orjson

from bench.fleet.wire import Client, Traffic
from vedette.delivery.topics import ROOT
from vedette.region.steer.agents import Agents
from vedette.region.steer.gates import limits
from vedette.system.resident import resident

TELL = 0.1


class Observer:
    def __init__(self, fleet: str) -> None:
        self.fleet, self.traffic = fleet, Traffic()
        self.agents = Agents()
        self.agents.limits = limits({})
        self.client: Client | None = None
        self.away = False
        """The broker has ended its connection."""
        self._runs: dict[str, str] = {}
        self.running: Counter[str] = Counter()
        """By SHA-256 of the bundle."""

    def up(self) -> None:
        asyncio.get_running_loop().call_soon(self._subscribe)

    def _subscribe(self) -> None:
        assert self.client is not None
        self.client.subscribe([f"{ROOT}/{self.fleet}/+/status"])

    def came(self, topic: str, payload: bytes) -> None:
        id, beat = topic.split("/")[-2], orjson.loads(payload)
        self.agents.take(id, beat, time.time_ns() // 1000)
        loaded = self.agents.by_id[id].loaded.get(("bundles", "default"), "")
        self.running[self._runs.get(id, "")] -= 1
        self.running[loaded] += 1
        self._runs[id] = loaded

    def down(self) -> None:
        self.away = True

    def told(self) -> dict[str, object]:
        known = sum(1 for agent in self.agents.by_id.values() if agent.now is not None)
        lost = sum(1 for agent in self.agents.by_id.values() if agent.lost)
        return {
            "known": known, "lost": lost, "running": {sha: n for sha, n in self.running.items() if n and sha},
            "cpu": time.process_time(), "rss": resident(), "messages": self.traffic.in_messages,
            "bytes": self.traffic.in_bytes, "at": time.time(),
        }  # fmt: skip


async def main() -> None:
    host, port, fleet = sys.argv[1:]
    observer = Observer(fleet)
    loop = asyncio.get_running_loop()
    _, observer.client = await loop.create_connection(
        lambda: Client("bench-observer", observer, observer.traffic), host, int(port)
    )
    while True:
        sys.stdout.buffer.write(orjson.dumps(observer.told()) + b"\n")
        sys.stdout.flush()
        await asyncio.sleep(TELL)
        if observer.away:
            return


if __name__ == "__main__":
    asyncio.run(main())
