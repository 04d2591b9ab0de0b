"""A simulated fleet with its broker, its signed documents, and its account.

The centre is real: a repository of The Update Framework (2 of 3 operators), published by ``region/announce.py``. Labels
and settings come from the agent's own code (``fleet/actual.py``), the other figures of a heartbeat from a real agent
that ran for a moment (``template``).
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bench.agent import Agent, directory, syslog_input
from bench.fleet.simulated import RULE, Simulated
from bench.fleet.wire import Traffic
from tests.broker import Broker, own_port
from tests.e2e.agent import vedette
from vedette import __version__
from vedette.config.settings import Config
from vedette.fleet import actual
from vedette.fleet.documents import Change, Desired, Group, Ring, Rollout, Target, read_desired, read_rollout
from vedette.fleet.overlay import AppliedState, load
from vedette.mqtt.settings import MqttSettings
from vedette.region.announce import announce
from vedette.region.repository import Repository
from vedette.region.roles import Signatory
from vedette.runtime.agent.heartbeat import heartbeat
from vedette.system import descriptors

FLEET = "bench"
RULES = Path(__file__).parents[2] / "rules" / "sigma"
SITES = 100
RINGS = (
    Ring("canary", 0.0, agents=5),
    Ring("tenth", 0.0, percent=10.0),
    Ring("half", 0.0, percent=50.0),
    Ring("all", 0.0, percent=100.0),
)
AT_ONCE = 200
"""Connections that are being opened."""
TLS_AGENTS = 200


class Site(NamedTuple):
    """A broker beside which the simulated agents join others: its plain listener, and its TLS listener with the
    authority of its certificate."""

    broker: Broker
    port: int
    tls_port: int
    ca: Path


def template(folder: Path) -> tuple[dict[str, Any], Config]:
    """The heartbeat of a real agent with the starter rules, and its settings."""
    agent = Agent(folder, syslog_input(own_port()), directory(RULES))
    try:
        status = agent.wait(lambda state: state["rules"]["running"] > 0, 120)
    finally:
        agent.stop()
    return orjson.loads(heartbeat(status)), load(agent.config)


class Centre:
    """The operators' side: one group of all agents, whose bundle they change. The controller moves the change."""

    def __init__(
        self, folder: Path, broker: str, rings: Sequence[Ring], gates: Mapping[str, float | bool] | None = None
    ) -> None:  # fmt: skip
        self._keys = [Ed25519PrivateKey.generate() for _ in range(3)]
        named = [Signatory(f"operator-{i}", key.public_key()) for i, key in enumerate(self._keys)]
        self.repository = Repository(folder)
        self.repository.create(FLEET, named, 2, named, 2)
        self._broker, self._rings, self._gates = MqttSettings(url=broker), tuple(rings), gates or {}
        self._serial = 0
        self._sign()

    def _sign(self) -> None:
        for key in self._keys[:2]:
            self.repository.sign(key)
        self.repository.commit()

    async def desire(
        self, bundle: bytes, before: Target | None = None, gates: Mapping[str, float | bool] | None = None
    ) -> Change:
        """Operators sign and publish a change from ``before`` to this bundle; without ``before``, all have it at once.
        ``gates``: others for this change. As ``vedette fleet plan|sign|apply`` do."""
        self._serial += 1
        target = Target(f"bundles/{self._serial}.vbundle", hashlib.sha256(bundle).hexdigest(), self._serial)
        change = Change(f"c{self._serial}", target, before or target)
        group = Group("everyone", "all", {"default": change})
        limits = {**self._gates, **(gates or {})}
        document = Desired(FLEET, self._serial, "2026-11-22T00:00:00Z", (group,), self._rings, limits)

        def put_in_force() -> None:
            self.repository.stage_desired(document, {target.target: bundle})
            self._sign()

        await asyncio.to_thread(put_in_force)
        await announce(self._broker, self.repository)
        return change


class World:
    """See the module's text."""

    def __init__(
        self, folder: Path, *, beat_seconds: float = 60.0, fleet: str = FLEET, site: Site | None = None
    ) -> None:
        """Without ``site`` a broker is made. Raises OSError."""
        self.folder, self.fleet, self.beat_seconds = folder, fleet, beat_seconds
        self.traffic, self.connected = Traffic(), 0
        self.agents: list[Simulated] = []
        self.harms: dict[str, str] = {}
        """What a bundle does to every agent that runs it: the name of a behaviour by SHA-256."""
        self._template, self._config = template(folder / "agent")
        self._of_config = actual.of_config(self._config, AppliedState())
        home = site or self._site()
        self.broker, self.port, self.tls_port = home.broker, home.port, home.tls_port
        self.tls = ssl.create_default_context(cafile=str(home.ca))
        self._documents: dict[str, Desired | Rollout] = {}
        self._named: dict[bytes, list[tuple[str, int, str]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def _site(self) -> Site:
        """A broker with a certificate of a new region."""
        descriptors.raise_limit()  # a connection an agent, here and in the broker
        members, tls_port = self.folder / "region", own_port()
        vedette("member", "enroll", "broker", "--folder", members, "--role", "broker", "--host", "127.0.0.1")
        member = members / "members" / "broker"
        ca = member / "region-ca.pem"
        extra = [
            f"listener {tls_port} 127.0.0.1", f"cafile {ca}",
            f"certfile {member}/agent.pem", f"keyfile {member}/agent.key",
        ]  # fmt: skip
        broker = Broker(self.folder / "broker", extra=extra, verbose=False)
        return Site(broker, broker.port, tls_port, ca)

    # --- agents

    def populate(self, count: int, behaviours: Mapping[str, str] | None = None) -> None:
        """``behaviours``: by agent id."""
        config = self._config
        for i in range(len(self.agents), count):
            id, site = f"a{i:05d}", f"site-{i % SITES}"
            labels = actual.labels(replace(config, agent=replace(config.agent, id=id, site=site)))
            self.agents.append(Simulated(self, id, labels, (behaviours or {}).get(id, "")))

    async def connect(self) -> None:
        """All of them."""
        waiting = asyncio.Semaphore(AT_ONCE)

        async def one(number: int, agent: Simulated) -> None:
            async with waiting:
                await agent.connect(tls=number < TLS_AGENTS)

        await asyncio.gather(*(one(i, agent) for i, agent in enumerate(self.agents) if agent.client is None))

    async def beating(self) -> None:
        """Until cancelled: each agent's heartbeats, spread over the interval, and a ping where none go out."""
        turn = 0
        while True:
            step = max(1, round(len(self.agents) / self.beat_seconds / 10))
            began = time.monotonic()
            for agent in self.agents[turn : turn + step]:
                agent.beat()
                if agent.client is not None:
                    agent.client.ping()
            turn = turn + step if turn + step < len(self.agents) else 0
            await asyncio.sleep(max(0.001, step * self.beat_seconds / len(self.agents) - (time.monotonic() - began)))

    async def back(self, agent: Simulated, seconds: float) -> None:
        """It comes again, as a new life."""
        await asyncio.sleep(seconds)
        agent.started, agent.alerts = self.now(), 0
        await agent.connect()

    def later(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def now(self) -> int:
        return time.time_ns() // 1000

    def heartbeat(self, agent: Simulated) -> dict[str, Any]:
        """As a real agent's, with what this one has of its own."""
        beat, rules = self._template, self._template["rules"]
        return {
            **beat,
            "agent_id": agent.id,
            "fleet": self.fleet,
            "site": agent.labels["site"],
            "time": self.now(),
            "started_at": agent.started,
            "inputs": {name: {**counts, "judged": agent.judged} for name, counts in beat["inputs"].items()},
            "rules": {
                **rules,
                "alerts": {RULE: agent.alerts} if agent.alerts else {},
                "quarantined_count": agent.quarantined,
            },
            "process": {**beat["process"], "starts": agent.starts, "crashes": agent.crashes},
            "actual": {**self._actual, **agent.actual()},
        }

    @property
    def _actual(self) -> dict[str, Any]:
        return {
            "metadata": {"root": 1, "timestamp": 1, "snapshot": 1, "targets": 1, "rollout": 1},
            "trusted_until": self.now(), "group": "everyone", "config": self._of_config, "lookups": {},
            "release": {"version": __version__, "id": None, "sha256": None, "state": ""}, "waits": [],
            "audit": {"seq": 1, "digest": "0" * 64},
        }  # fmt: skip

    # --- documents, read once for all agents

    def named(self, name: str, payload: bytes) -> list[tuple[str, int, str]]:
        """Of a file of metadata: the documents that it names, its version, their SHA-256."""
        key = hashlib.sha256(payload).digest()
        if key not in self._named:
            self._named[key] = [*_named(name, payload)]
        return self._named[key]

    def read(self, sha256: str, data: bytes = b"") -> Desired | Rollout | None:
        """None: it is no document, or ``data`` has never been read."""
        if sha256 not in self._documents and data[:1] == b"{":
            is_desired = b'"groups"' in data
            self._documents[sha256] = (read_desired if is_desired else read_rollout)(data, self.fleet)
        return self._documents.get(sha256)


def _named(name: str, payload: bytes) -> Iterator[tuple[str, int, str]]:
    number, _, role = name.removesuffix(".json").rpartition(".")
    document = {"targets": "desired.json", "rollout": "rollout.json"}.get(role)
    if document is not None:
        target = orjson.loads(payload)["signed"]["targets"].get(document)
        if target is not None:
            yield document, int(number), target["hashes"]["sha256"]
