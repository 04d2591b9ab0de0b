"""A fleet of simulated agents at a real broker: one connection, which believes what ``fleet/trust.py`` believes, and
hosts that run what the documents want of them (``documents.wanted``) and send heartbeats."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import orjson
from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from tests.region.steer.kit import NEW, Host
from vedette.fleet.mailbox import Mailbox
from vedette.fleet.trust import Trust, TrustRefused
from vedette.system.wallclock import utc_now

BEAT_SECONDS = 0.5


class Town:
    """``worse`` changes a host's figures before each heartbeat; ``ran``: those that ever ran NEW."""

    def __init__(self, folder: Path, fleet: str, root: bytes, port: int, ids: list[str]) -> None:
        folder.mkdir()
        self.fleet, self.hosts = fleet, {id: Host(id) for id in ids}
        self.worse: Callable[[Host], None] = lambda host: None
        self.ran: set[str] = set()
        self.beats = self.bytes = 0
        self._trust, self._mailbox = Trust(folder, fleet, root), Mailbox()
        self._blobs: dict[str, bytes] = {}
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._client = Client(CallbackAPIVersion.VERSION2, "town", protocol=MQTTv5)
        self._client.on_connect = lambda client, *_: client.subscribe(
            [(f"vedette/v1/{fleet}/tuf/+", self._qos()), (f"vedette/v1/{fleet}/bundles/fleet/blobs/+", self._qos())]
        )
        self._client.on_message = self._came
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @staticmethod
    def _qos() -> object:
        from paho.mqtt.subscribeoptions import SubscribeOptions

        return SubscribeOptions(qos=1)

    def _came(self, client: Client, data: object, message: MQTTMessage) -> None:
        with self._lock:
            name = message.topic.rpartition("/")[2]
            if "/blobs/" in message.topic:
                self._blobs[name] = message.payload
            else:
                self._mailbox.put(name, message.payload)

    def _run(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            with self._lock:
                for sha256, blob in self._blobs.items():
                    self._mailbox.keep(sha256, blob)
                try:
                    trusted = self._trust.refresh(self._mailbox)
                except TrustRefused:  # half of a publication has come
                    trusted = self._trust.current()
            now = utc_now()
            for host in self.hosts.values():
                if not host.online:
                    continue
                if trusted.desired is not None:
                    host.follow(trusted.desired, trusted.rollout, now)
                if host.runs == NEW.sha256:
                    self.ran.add(host.id)
                self.worse(host)
                beat = orjson.dumps(host.beat(now))
                self.beats, self.bytes = self.beats + 1, self.bytes + len(beat)
                self._client.publish(f"vedette/v1/{self.fleet}/{host.id}/status", beat, qos=1, retain=True)

    def having(self) -> set[str]:
        return {host.id for host in self.hosts.values() if host.runs == NEW.sha256}

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._client.loop_stop()
        self._client.disconnect()
