"""The real controller over a simulated fleet: the process ``vedette region steer``, and what it says and records.

What it says is its signed progress at the broker; what it records is the fleet's audit record, in which each step has
its time, written before the step is announced.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from bench.fleet.wire import Client, Traffic
from bench.fleet.world import Centre, World
from tests.e2e.agent import Process
from vedette.delivery.topics import steer_topic, tuf_topic
from vedette.region.sign import load_key
from vedette.region.steer.sealed import opened


class Controller(Process):
    def __init__(self, world: World, centre: Centre) -> None:
        self._world, self._repository = world, centre.repository
        folder = centre.repository.folder
        self._key = load_key(folder / "online" / "rollout.pem").public_key()
        super().__init__(folder.parent / "steer.log", "region", "steer", folder, "--broker", world.broker.url)
        self._client: Client | None = None
        self.shown: dict[str, Any] = {}
        """Its newest progress."""
        self.announced: list[float] = []
        """When a timestamp came: with it the documents of a step are in force."""

    async def begin(self) -> None:
        """Raises OSError."""
        _, self._client = await asyncio.get_running_loop().create_connection(
            lambda: Client("bench-progress", self, Traffic()), "127.0.0.1", self._world.broker.port
        )
        self.start()

    async def end(self) -> None:
        if self.running():
            await asyncio.to_thread(self.stop)
        if self._client is not None:
            self._client.close()

    # --- what it says

    def up(self) -> None:
        asyncio.get_running_loop().call_soon(self._subscribe)

    def _subscribe(self) -> None:
        assert self._client is not None
        fleet = self._world.fleet
        self._client.subscribe([steer_topic(fleet, "progress"), tuf_topic(fleet, "timestamp.json")])

    def came(self, topic: str, payload: bytes) -> None:
        if topic.endswith("/timestamp.json"):
            self.announced.append(time.time())
        elif (shown := opened("progress", payload, [self._key])) is not None:
            self.shown = shown

    def down(self) -> None:
        self._client = None

    def change(self, id: str) -> dict[str, Any]:
        """How a change stands; empty: it has said nothing about it."""
        return next((row for row in self.shown.get("changes", ()) if row["change"] == id), {})

    # --- what it records

    def steps(self, change: str) -> list[tuple[float, dict[str, Any]]]:
        """Its steps with a change so far, each with its time."""
        return [
            (datetime.fromisoformat(row["time"]).timestamp(), row)
            for row in self._repository.audit.lines()
            if row.get("change") == change
        ]

    def step(self, change: str, event: str) -> tuple[float, dict[str, Any]] | None:
        """The first such step with a change."""
        return next((step for step in self.steps(change) if step[1]["event"] == event), None)

    async def until(self, what: str, check: Callable[[], object], seconds: float) -> float:
        """When ``check`` held. Raises TimeoutError and AssertionError with what it said last."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not check():
                    self.alive()
                    await asyncio.sleep(0.1)
                return time.time()
        raise TimeoutError(f"not within {seconds:g} s: {what}\n{self.shown}\n{self.text()[-3000:]}")
