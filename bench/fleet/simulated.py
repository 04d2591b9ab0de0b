"""One simulated agent: it follows the fleet's documents by the agent's own code, and says what it runs.

What is real: topics, last will, retained heartbeats, whose form is that of a real agent (``World.template``), labels,
which group and ring it lies in (``documents.wanted``), which files it fetches when. What is not: it evaluates nothing,
and of the metadata it believes what it reads.

A behaviour is what goes wrong with it once it runs another bundle than the one it began with, or one that does so to
every agent (``World.harms``): crash, flood, silent, refuse, quarantine.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from bench.fleet.wire import Client
from vedette.delivery.topics import agent_topic, blob_topic, tuf_topic
from vedette.fleet.documents import Desired, Rollout, Target, wanted

if TYPE_CHECKING:
    from bench.fleet.world import World

BLOBS = "fleet"
SETTLE = 0.2
"""As the agent: for further files of one publication to come."""
SESSION_SECONDS = 7 * 86400
FLOOD = 100_000
"""Alerts of one rule that a flood adds to each heartbeat."""
BACK_SECONDS = 2.0
"""After which one that crashed is back."""
RULE = "929a690e-bef0-4204-a928-ef5e620d6fcc"


class Simulated:
    """See the module's text. ``behaviour``: what goes wrong; empty: it does well."""

    __slots__ = (
        "_fetching", "_settling", "_sha256", "alerts", "behaviour", "client", "crashes", "desired", "history", "id",
        "judged", "labels", "loaded", "mute", "refused", "rollout", "started", "starts", "world",
    )  # fmt: skip

    def __init__(self, world: World, id: str, labels: Mapping[str, str], behaviour: str = "") -> None:
        self.world, self.id, self.labels, self.behaviour = world, id, labels, behaviour
        self.client: Client | None = None
        self.desired: Desired | None = None
        self.rollout: Rollout | None = None
        self.loaded: Target | None = None
        self.history: list[str] = []
        """SHA-256 of all bundles that it ever ran."""
        self.refused: dict[str, str] = {}
        self.starts, self.crashes, self.alerts, self.judged, self.started = 1, 0, 0, 0, world.now()
        self.mute = False
        self._sha256: dict[str, tuple[int, str]] = {}
        """Of the two documents, by name: the version of the metadata that name it, and its digest."""
        self._fetching = ""
        self._settling = False

    # --- its connection

    async def connect(self, *, tls: bool = False) -> None:
        """Raises OSError."""
        world = self.world
        will = orjson.dumps({"agent_id": self.id, "fleet": world.fleet, "site": self.labels["site"], "state": "lost"})
        topic = agent_topic(world.fleet, self.id, "status")
        client = Client(
            f"vedette-{world.fleet}-{self.id}", self, world.traffic, will=(topic, will), expiry=SESSION_SECONDS
        )
        context = world.tls if tls else None
        host = "127.0.0.1" if context is not None else None
        port = world.tls_port if tls else world.port
        await asyncio.get_running_loop().create_connection(
            lambda: client, "127.0.0.1", port, ssl=context, server_hostname=host
        )
        self.client = client

    def up(self) -> None:
        world = self.world
        world.connected += 1
        if self.client is None:  # the answer came before ``create_connection`` returned
            asyncio.get_running_loop().call_soon(self._greet)
        else:
            self._greet()

    def _greet(self) -> None:
        if self.client is not None:
            fleet = self.world.fleet
            self.client.subscribe([
                agent_topic(fleet, self.id, "receipts"), agent_topic(fleet, self.id, "commands"), tuf_topic(fleet, "+"),
            ])  # fmt: skip
            self.beat()

    def down(self) -> None:
        self.world.connected -= 1
        self.client = None
        self._fetching = ""

    # --- what it reports

    def beat(self) -> None:
        """A heartbeat, retained."""
        if self.client is None or self.mute:
            return
        self.judged += 1000
        self.alerts += FLOOD if self._harm() == "flood" else 0
        topic = agent_topic(self.world.fleet, self.id, "status")
        self.client.publish(topic, orjson.dumps(self.world.heartbeat(self)), retain=True)

    @property
    def quarantined(self) -> int:
        return int(self._harm() == "quarantine")

    def _harm(self) -> str:
        """The behaviour that it has under what it runs now; empty: it does well."""
        if self.loaded is None:
            return ""
        own = self.behaviour if self.loaded.sha256 in self.history[1:2] else ""
        return self.world.harms.get(self.loaded.sha256, own)

    def actual(self) -> dict[str, Any]:
        """As ``runtime/member/fleet.py`` has it."""
        loaded = self.loaded
        bundle = {} if loaded is None else {
            "default": {"version": loaded.version, "sha256": loaded.sha256, "digest": loaded.sha256[:32]}
        }  # fmt: skip
        return {
            "desired_serial": self.desired.serial if self.desired else 0,
            "rollout_serial": self.rollout.serial if self.rollout else 0,
            "labels": self.labels,
            "bundles": bundle,
            "refused": self.refused,
            "problems": [f"bundle default: {reason}" for reason in self.refused.values()],
        }

    # --- what it follows

    def came(self, topic: str, payload: bytes) -> None:
        world = self.world
        name = topic.rpartition("/")[2]
        if topic == blob_topic(world.fleet, BLOBS, name):
            self._blob(name, payload)
        elif "/tuf/" in topic and payload:
            for document, version, sha256 in world.named(name, payload):
                if version >= self._sha256.get(document, (0, ""))[0]:
                    self._sha256[document] = version, sha256
            if not self._settling:
                self._settling = True
                asyncio.get_running_loop().call_later(SETTLE, self._settled)

    def _settled(self) -> None:
        self._settling = False
        self._follow()

    def _follow(self) -> None:
        """Fetch what lacks of the two documents, then what they want."""
        for document in ("desired.json", "rollout.json"):
            sha256 = self._sha256.get(document, (0, ""))[1]
            if not sha256:
                continue
            content = self.world.read(sha256)
            have = self.desired if document == "desired.json" else self.rollout
            if have is None or have is not content:
                self._fetch(sha256)
                return
        self._bundle()

    def _bundle(self) -> None:
        if self.desired is None:
            return
        asked = wanted(self.desired, self.rollout, self.id, self.labels)
        target = asked.bundles.get("default") if asked is not None else None
        if target is None or target == self.loaded or target.sha256 in self.refused:
            return
        if self.behaviour == "refuse" and self.loaded is not None:
            self.refused[target.sha256] = "its self-tests fail"
            return
        self._fetch(target.sha256)

    def _fetch(self, sha256: str) -> None:
        if self.client is not None and self._fetching != sha256:
            self._fetching = sha256
            self.client.subscribe([blob_topic(self.world.fleet, BLOBS, sha256)])

    def _blob(self, sha256: str, data: bytes) -> None:
        if self.client is None or sha256 != self._fetching or hashlib.sha256(data).hexdigest() != sha256:
            return
        self._fetching = ""
        self.client.unsubscribe([blob_topic(self.world.fleet, BLOBS, sha256)])
        read = self.world.read(sha256, data)
        if isinstance(read, Desired):
            self.desired = read
        elif isinstance(read, Rollout):
            self.rollout = read
        else:
            self._take(sha256)
            return
        self._follow()

    def _take(self, sha256: str) -> None:
        """The bundle is there, and is loaded."""
        assert self.desired is not None
        asked = wanted(self.desired, self.rollout, self.id, self.labels)
        target = asked.bundles.get("default") if asked is not None else None
        if target is None or target.sha256 != sha256:
            self._bundle()
            return
        self.loaded = target
        self.history.append(sha256)
        if self.history.count(sha256) == 1 and (behave := BEHAVIOURS.get(self._harm())) is not None:
            behave(self)


def _crash(agent: Simulated) -> None:
    agent.crashes += 1
    agent.starts += 1
    if agent.client is not None:
        agent.client.abort()
    agent.world.later(agent.world.back(agent, BACK_SECONDS))


def _silent(agent: Simulated) -> None:
    agent.mute = True


BEHAVIOURS: Mapping[str, Callable[[Simulated], None]] = {"crash": _crash, "silent": _silent}
"""What it does when it loads the bundle. ``flood`` and ``quarantine`` are in its heartbeats; who would ``refuse`` a
bundle never loads it."""
