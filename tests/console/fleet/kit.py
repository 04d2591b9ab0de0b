"""A fleet for the console: real mosquitto, real documents, agents in memory that heartbeat, answer and sign."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.broker import Broker
from tests.fleet.asking import Authority
from tests.fleet.kit import DAY, FLEET
from tests.fleet.kit import Centre as Documents
from tests.waits import DEADLINE, eventually
from vedette.delivery.topics import agent_topic
from vedette.fleet.certificates import key_pem
from vedette.fleet.documents import Desired
from vedette.fleet.operators import Operator, Operators
from vedette.fleet.replies import Part, pack, packed
from vedette.fleet.requests import CANCEL, RESUME, Request, read
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Message, Session
from vedette.mqtt.settings import MqttSettings
from vedette.system.wallclock import utc_now
from vedette_console.fleet.service import Fleet
from vedette_console.security.principal import Grant, Principal, Role
from vedette_console.settings import Settings

ADMIN = Principal("ada", "user", (Grant(Role.ADMIN),))
VIENNA = Principal("vic", "user", (Grant(Role.OPERATOR, FLEET, "vienna"),))
VIEWER = Principal("vera", "user", (Grant(Role.VIEWER),))
STARTED = utc_now() - 60_000_000
NOBODY = Principal("nell", "user", ())


def beat(agent: str, site: str, **more: Any) -> dict[str, Any]:
    """A heartbeat as an agent sends it, in brief."""
    actual: dict[str, Any] = {
        "desired_serial": 1, "rollout_serial": None, "labels": {"id": agent, "site": site}, "bundles": {},
        "config": {"overlay": ""}, "problems": [],
    }  # fmt: skip
    return {
        "agent_id": agent, "fleet": FLEET, "site": site, "state": "running", "version": "0.1.0", "time": utc_now(),
        "started_at": STARTED, "bundle": "rules-1", "lag_seconds": 0.5, "lag_events": 3,
        "inputs": {"in": {"received": 9, "stored": 9, "judged": 9, "dropped": {"full": 2}, "lost": {}}},
        "totals": {"undecided": 0, "poisoned": 0}, "alerts": {"in_outbox": 1, "lost": 0},
        "rules": {"alerts": {"r1": 4}, "quarantined": [], "quarantined_count": 0},
        "process": {"cpu_seconds": 1.0, "crashes": 0, "starts": 1}, "budgets": {"memory": {"used": 1}},
        "raw_log": {"bytes": 10, "max_bytes": 100}, "actual": {**actual, **more.pop("actual", {})}, **more,
    }  # fmt: skip


Answer = Callable[[Request], list[dict[str, Any]] | None]
"""What an agent says to a request; None: nothing."""


class Agents:
    """Agents in memory, over one connection. ``answers``: what each says; without: it is silent."""

    def __init__(self, broker: MqttSettings, authority: Authority, sites: Mapping[str, str]) -> None:
        self.sites, self.authority = dict(sites), authority
        self.answers: dict[str, Answer] = {}
        self.keys = {name: authority.agent(name) for name in sites}
        self.came: list[tuple[str, Request]] = []
        """Everything that was asked."""
        self._requests: dict[tuple[str, str], Request] = {}
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.client = MqttClient(
            broker, "vedette-agents", subscriptions=[agent_topic(FLEET, "+", "commands")],
            on_message=self._inbox.put_nowait, session=Session(clean_start=True),
        )  # fmt: skip

    async def heartbeat(self, agent: str, **more: Any) -> None:
        row = beat(agent, self.sites[agent], **more)
        await self.client.publish(agent_topic(FLEET, agent, "status"), orjson.dumps(row), retain=True)

    async def say(self, agent: str, leaf: str, data: bytes) -> None:
        await self.client.publish(agent_topic(FLEET, agent, leaf), data)

    async def lost(self, agent: str) -> None:
        row = {"agent_id": agent, "fleet": FLEET, "site": self.sites[agent], "state": "lost"}
        await self.client.publish(agent_topic(FLEET, agent, "status"), orjson.dumps(row), retain=True)

    async def work(self) -> None:
        while True:
            message = await self._inbox.get()
            self.client.ack(message)
            agent, (request, _) = message.topic.split("/")[3], read(message.payload)
            self.came.append((agent, request))
            if request.kind in (RESUME, CANCEL):
                await self._again(agent, request)
            else:
                self._requests[agent, request.id] = request
                await self._reply(agent, request)

    async def _again(self, agent: str, request: Request) -> None:
        request_before = self._requests.get((agent, request.body["request"]))
        if request_before is None:
            await self._part(agent, request.body["request"], [], "unknown")
        elif request.kind == CANCEL:
            await self._part(agent, request_before.id, [], "cancelled")
        elif not request.body["done"]:
            await self._reply(agent, request_before)

    async def _reply(self, agent: str, request: Request) -> None:
        answer = self.answers.get(agent)
        if answer is not None and (rows := answer(request)) is not None:
            await self._part(agent, request.id, rows, "done")

    async def _part(self, agent: str, id: str, rows: list[dict[str, Any]], state: str) -> None:
        data = packed(b"".join(orjson.dumps(row) + b"\n" for row in rows))
        size = sum(len(orjson.dumps(row)) + 1 for row in rows)
        await self.say(agent, "replies", pack(id, Part(0, data, size, True, state), self.keys[agent]))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Agents]:
        async with self.client.running():
            await asyncio.wait_for(self.client.connected.wait(), DEADLINE)
            task = asyncio.create_task(self.work())
            try:
                yield self
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


class Region:
    """The region's folder: documents, operator's key, authority, broker."""

    def __init__(
        self, folder: Path, document: Desired | None = None, *, roles: tuple[str, ...] = (), until: int = 0
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.documents = Documents(folder / "trust")
        self.key = Ed25519PrivateKey.generate()
        self.write_key(self.key)
        self.roles, self.until = roles or ("viewer", "analyst", "operator"), until or utc_now() + DAY
        if document is not None:
            self.desire(document)
        self.authority = Authority()
        (folder / "ca.pem").write_bytes(self.authority.pem)
        self.broker = Broker(folder / "broker")

    def write_key(self, key: Ed25519PrivateKey) -> None:
        path = self.folder / "otto.pem"
        path.write_bytes(key_pem(key))
        path.chmod(0o600)

    def desire(self, document: Desired, blobs: Mapping[str, bytes] | None = None) -> None:
        operators = self.documents.repository.operators()
        serial = operators.serial + 1 if operators is not None else 1
        otto = Operator("otto", self.key.public_key(), frozenset(self.roles), self.until)
        self.documents.repository.stage_desired(document, blobs or {}, Operators(FLEET, serial, {"otto": otto}))
        for key in self.documents.operators[:2]:
            self.documents.repository.sign(key)
        self.documents.repository.commit()

    @property
    def settings(self) -> MqttSettings:
        return MqttSettings(self.broker.url)

    def console_settings(self, **more: Any) -> Settings:
        usual = {
            "work": self.folder / "work", "tables": str(self.folder / "tables"), "broker": self.settings,
            "trust": self.folder / "trust", "requests": self.folder / "requests", "evidence": self.folder / "evidence",
            "operator": "otto", "operator_key": self.folder / "otto.pem", "authorities": self.folder / "ca.pem",
        }  # fmt: skip
        return Settings("", **{**usual, **more})

    @contextlib.asynccontextmanager
    async def console(self, *, heard: int = 0, **more: Any) -> AsyncIterator[Fleet]:
        """A console's fleet at work, once it has heard ``heard`` agents."""
        fleet = Fleet(self.console_settings(**more), FLEET, lambda topic, data: None)
        await fleet.start()
        try:
            await eventually(f"{heard} agents", lambda: len([*fleet.live.beats()]) >= heard)
            yield fleet
        finally:
            await fleet.stop()
