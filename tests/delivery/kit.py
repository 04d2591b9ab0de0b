"""What tests of uplinks and landings share: alerts, an outbox as the agent has it, a running MQTT uplink."""

from __future__ import annotations

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.mqtt.kit import QUICK
from vedette.config.settings import AgentSettings, UplinkSettings
from vedette.delivery.envelope import encode
from vedette.delivery.queue import Outbox, Source
from vedette.delivery.uplink import MqttUplink
from vedette.model.counters import Counters
from vedette.model.event import Alert, Cursor, RawRef
from vedette.mqtt.settings import MqttSettings
from vedette.store.store import Store
from vedette.system.diskhealth import DiskHealth

NOW = 1_795_228_874_000_000
AGENT = AgentSettings(id="a1", site="s1", fleet="f1")
UP, DOWN, STATUS = "vedette/v1/f1/a1/alerts", "vedette/v1/f1/a1/receipts", "vedette/v1/f1/a1/status"


def alert(seq: int, **changes: Any) -> Alert:
    values: dict[str, Any] = {
        "alert_id": f"{seq:032x}",
        "seq": seq,
        "rule_id": "r1",
        "rule_title": "A rule",
        "rule_digest": "d",
        "level": "high",
        "agent_id": "a1",
        "site": "s1",
        "fleet": "f1",
        "event_time": NOW,
        "detected_at": NOW,
        "received_date": "2026-11-21",
        "source": "syslog",
        "raw": "Failed password for root",
        "raw_ref": RawRef("ab" * 16, seq * 10, 10),
        "fields": {"user": "root"},
    }
    return Alert(**{**values, **changes})


class Box:
    """An outbox in a folder, with alerts put in as the pipeline's commits do."""

    def __init__(self, folder: Path) -> None:
        self.store = Store.open(folder)
        self.writer = ThreadPoolExecutor(1)
        self.counters = Counters()
        self.outbox = Outbox(self.store, self.writer, self.counters, DiskHealth(lambda: NOW))
        self.next = self.store.account().next_seq

    def put(self, count: int) -> None:
        entries = [(seq, encode(alert(seq))) for seq in range(self.next, self.next + count)]
        self.put_bytes(entries)

    def put_bytes(self, entries: list[tuple[int, bytes]]) -> None:
        self.store.commit(Cursor("ab" * 16, 0), {}, {}, entries)
        self.next = entries[-1][0] + 1
        self.outbox.wake()

    def source(self, **settings: Any) -> Source:
        uplink = UplinkSettings(**settings)
        return Source(uplink, AGENT, self.outbox, self.counters, heartbeat, lambda: NOW)

    def close(self) -> None:
        self.writer.shutdown()
        self.store.close()


def heartbeat() -> bytes:
    return json.dumps({"agent_id": "a1", "fleet": "f1", "site": "s1", "state": "running", "seq_high": 7}).encode()


class Up:
    """A running uplink; ``kill`` ends it as a crash would."""

    def __init__(self, url: str, box: Box, **settings: Any) -> None:
        constants = {name: settings.pop(name) for name in {"max_inflight"} & settings.keys()}
        about: dict[str, Any] = {"type": "mqtt", "broker": MqttSettings(url=url), **settings}
        self.uplink = MqttUplink(box.source(**about), backoff=QUICK, **constants)
        self.task = asyncio.create_task(self.uplink.run())

    async def connected(self) -> Up:
        await self.uplink.client.connected.wait()
        return self

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def stop(self) -> None:
        await self.uplink.stop(2.0)
        await self.task


def read(folder: Path, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in sorted((folder / table).rglob("*")):
        if path.is_file():
            assert path.suffix == ".parquet"
            assert path.parent.name.startswith("hh=")
            rows += pq.read_table(path, partitioning=None).to_pylist()
    return rows


def block(folder: Path) -> None:
    """Make ``folder`` unwritable, also for root: read-only, or a file where a folder must be."""
    if os.geteuid():
        folder.mkdir(parents=True)
        folder.chmod(0o500)
    else:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.write_bytes(b"")


def unblock(folder: Path) -> None:
    if folder.is_dir():
        folder.chmod(0o700)
    else:
        folder.unlink()
