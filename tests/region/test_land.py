"""The landing service between a real mosquitto and a folder, with real uplinks on the other side."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
from structlog.testing import capture_logs

from tests.broker import Broker
from tests.delivery.kit import Box, Up, alert, block, read, unblock
from tests.differences import walk
from tests.faults import proxied
from tests.mqtt.kit import connected
from tests.waits import DEADLINE, eventually, pauses
from vedette.delivery.envelope import MAX_DEAD_LETTER, dead_letter, encode, pack_batch
from vedette.delivery.receipts import unpack_receipt
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Message
from vedette.mqtt.settings import MqttSettings
from vedette.region.land import Landing, LandingSettings, land
from vedette.system.wallclock import WallClock

pytestmark = pytest.mark.peer


class Land:
    """A running landing; ``kill`` ends it as a crash would."""

    def __init__(self, broker: Broker, folder: Path, **settings: Any) -> None:
        reached = settings.pop("url", broker.url)
        made = LandingSettings(
            MqttSettings(url=reached), folder, **{"max_seconds": 0.05, "backoff": (0.02, 0.1), **settings}
        )
        self.attempts = 0
        """At writing a file."""
        self._clock = WallClock()
        self.service = Landing(made, clock=self._now)
        self.task = asyncio.create_task(self.service.run())

    def _now(self) -> int:
        self.attempts += 1
        return self._clock()

    async def connected(self) -> Land:
        await asyncio.wait_for(self.service.client.connected.wait(), DEADLINE)
        return self

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def stop(self) -> None:
        await asyncio.wait_for(self.service.stop(), DEADLINE)
        await asyncio.wait_for(self.task, DEADLINE)


def delivered(broker: Broker) -> int:
    """Messages that the broker has handed to the landing."""
    return broker.log().count("Sending PUBLISH to vedette-landing")


@asynccontextmanager
async def agent(broker: Broker, name: str = "a1") -> AsyncIterator[tuple[MqttClient, list[tuple[str, Any]]]]:
    """An agent's bare client and the receipts that it gets."""
    receipts: list[tuple[str, Any]] = []

    def take(message: Message) -> None:
        receipt = unpack_receipt(message.payload)
        receipts.append((receipt.log_id, [*receipt.ranges]))

    down = f"vedette/v1/f1/{name}/receipts"
    async with connected(broker.url, name, subscriptions=[down], on_message=take) as client:
        yield client, receipts


@walk(("settings", "seconds"), [({}, 0), ({"max_seconds": 30}, 0), ({"max_seconds": 90.2}, 181),
                                  ({"max_seconds": 90, "resend_after": 100}, 100)])  # fmt: skip
def test_what_agents_are_asked_for(settings: dict[str, Any], seconds: int, broker: Broker, tmp_path: Path) -> None:
    """A landing that may take over a minute to write says in its receipts how long agents should wait."""

    async def asked() -> int:
        receipts: list[int] = []

        def take(message: Message) -> None:
            receipts.append(unpack_receipt(message.payload).resend_after)

        landing = await Land(broker, tmp_path / "landing", max_rows=1, **settings).connected()
        async with connected(broker.url, "a1", subscriptions=["vedette/v1/f1/a1/receipts"], on_message=take) as client:
            await client.publish("vedette/v1/f1/a1/alerts", pack_batch("ab" * 16, [encode(alert(1))]))
            await eventually("the receipt", lambda: receipts)
        await landing.stop()
        return receipts[0]

    assert asyncio.run(asked()) == seconds


async def test_alerts_land_and_are_receipted(broker: Broker, box: Box, tmp_path: Path) -> None:
    """Every alert of an agent is on disk once, with its topic, and then leaves the agent's outbox."""
    folder = tmp_path / "landing"
    service = await Land(broker, folder).connected()
    up = await Up(broker.url, box).connected()
    box.put(2500)
    await eventually("an empty outbox", lambda: box.outbox.depth == 0)
    await up.stop()
    await service.stop()
    assert service.service.landed["alerts"] == 2500
    rows = read(folder, "alerts")
    assert sorted(row["seq"] for row in rows) == list(range(1, 2501))
    assert rows[0]["ingest"] == {"collector_id": "vedette-landing", "topic": "vedette/v1/f1/a1/alerts"}
    assert rows[0]["received_at"].timestamp() > 1_700_000_000
    assert [row["state"] for row in read(folder, "status")] == ["running", "running"]
    assert not (folder / "bad").exists()


async def test_one_id_of_two_machines(broker: Broker, tmp_path: Path) -> None:
    """Heartbeats of two machines under one id land with a note, and the log says it once; those of one that restarts
    land as they are."""
    folder = tmp_path / "landing"
    service = await Land(broker, folder).connected()
    start = 1_795_228_874_000_000

    async def heartbeat(client: MqttClient, name: str, log_id: str, started: int, time: int) -> None:
        row = {"raw_log": {"log_id": log_id * 32}, "started_at": start + started, "time": start + time}
        await client.publish(f"vedette/v1/f1/{name}/status", json.dumps(row).encode())

    with capture_logs() as logs:
        async with connected(broker.url, "any") as client:
            for time in range(10, 14):
                await heartbeat(client, "a1", "ab"[time % 2], time % 2, time)
                await heartbeat(client, "a2", "c", time, time)
            await eventually("the heartbeats", lambda: service.service.landed["status"] == 8)
    await service.stop()
    rows = sorted(read(folder, "status"), key=lambda row: json.loads(row["payload"])["time"])
    notes = [json.loads(row["payload"]).get("notes") for row in rows if row["agent_id"] == "a1"]
    note = (
        "two machines or processes have this agent's id: raw log aaaaaaaa, started 2026-11-21T02:41:14Z"
        " and raw log bbbbbbbb, started 2026-11-21T02:41:14Z"
    )
    assert notes == [None, None, [note], [note]]
    assert {"notes" in row["payload"] for row in rows if row["agent_id"] == "a2"} == {False}
    said = [entry for entry in logs if entry["event"] == "agent_twice"]
    assert [(entry["fleet"], entry["agent"], entry["reason"]) for entry in said] == [("f1", "a1", note)]


async def test_a_deep_heartbeat_of_an_agent_that_is_noted(broker: Broker, tmp_path: Path) -> None:
    """One that nests deeper than JSON is written here lands as it came."""
    folder = tmp_path / "landing"
    service = await Land(broker, folder).connected()
    deep = "[" * 300 + "]" * 300
    async with connected(broker.url, "any") as client:
        for time in range(10, 14):
            life = f'"raw_log": {{"log_id": "{"ab"[time % 2] * 32}"}}, "started_at": {time % 2}, "time": {time}'
            await client.publish("vedette/v1/f1/a1/status", f'{{{life}, "deep": {deep}}}'.encode())
        await eventually("the heartbeats", lambda: service.service.landed["status"] == 4)
    await service.stop()
    assert [deep in row["payload"] for row in read(folder, "status")] == [True] * 4


async def test_what_cannot_be_read_goes_to_bad(broker: Broker, tmp_path: Path) -> None:
    """Each bad payload is a row of ``bad`` with its bytes and reason; good neighbours land; all is receipted."""
    folder = tmp_path / "landing"
    good, spoofed, stray = encode(alert(1)), encode(alert(2, agent_id="other")), encode(alert(3, fleet="f2"))
    newer = msgpack.packb({"schema_version": 9, "seq": 4})
    up = "vedette/v1/f1/a1/alerts"
    sent = [
        (up, pack_batch("log", [good, spoofed, stray, newer, b"\xc1"])),
        (up, b"\x00 not msgpack"),
        (up, b""),
        ("vedette/v1/f1/a b/alerts", pack_batch("log", [good])),
        ("vedette/v1/f1/a1/status", b"not json"),
        ("vedette/v1/f1/a1/status", json.dumps({"agent_id": "other"}).encode()),
        ("vedette/v1/f1/a1/status", json.dumps({"agent_id": "a1", "state": "lost"}).encode()),
    ]

    with capture_logs() as logs:
        service = await Land(broker, folder).connected()
        async with agent(broker) as (client, receipts):
            for topic, payload in sent:
                await client.publish(topic, payload)
            await eventually("receipts and dead letters", lambda: receipts and service.service.landed["bad"] == 9)
            await service.stop()
        # All was acknowledged: nothing comes again.
        service = await Land(broker, folder).connected()
        async with agent(broker) as (client, _):
            await client.publish(*sent[-1])
        await eventually("the heartbeat", lambda: service.service.landed["status"] == 1)
        assert sum(service.service.landed.values()) == 1
        await service.stop()
    assert [row["seq"] for row in read(folder, "alerts")] == [1]
    assert [row["state"] for row in read(folder, "status")] == ["lost", "lost"]
    bad = read(folder, "bad")
    reasons = {row["payload"]: row["reason"] for row in bad if row["topic"] == up}
    assert set(reasons) == {spoofed, stray, newer, b"\xc1", b"\x00 not msgpack", b""}
    assert "agent_id: 'other' is not the topic's 'a1'" in reasons[spoofed]
    assert "fleet: 'f2' is not the topic's 'f1'" in reasons[stray]
    assert "schema_version" in reasons[newer]
    assert {row["topic"] for row in bad} == {up, "vedette/v1/f1/a b/alerts", "vedette/v1/f1/a1/status"}
    assert receipts == [("log", [(1, 4)])]
    assert sum(entry["rows"] for entry in logs if entry["event"] == "payload_undecodable") == 9


async def test_a_sender_of_what_cannot_be_read(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many rows of ``bad`` for one agent its messages are acknowledged unread, good ones as well; those of
    another agent land."""
    monkeypatch.setattr("vedette.region.land.DEAD_LETTERS", 3)
    service = await Land(broker, tmp_path / "landing").connected()
    async with agent(broker) as (flooder, none), agent(broker, "a2") as (honest, receipts):
        for payload in [b"\x00 no batch"] * 5 + [pack_batch("log", [encode(alert(1))])]:
            await flooder.publish("vedette/v1/f1/a1/alerts", payload)
        await honest.publish("vedette/v1/f1/a2/alerts", pack_batch("log", [encode(alert(1, agent_id="a2"))]))
        await eventually("a receipt", lambda: receipts)
    await service.stop()
    assert (service.service.landed["bad"], service.service.landed["alerts"], none) == (3, 1, [])


async def test_a_landing_directory_that_cannot_be_written(broker: Broker, box: Box, tmp_path: Path) -> None:
    """A read-only landing directory is said once with its path; nothing is acknowledged; it lands when writable."""
    folder = tmp_path / "landing"
    block(folder)

    with capture_logs() as logs:
        service = await Land(broker, folder).connected()
        up = await Up(broker.url, box).connected()
        box.put(800)
        await eventually("alerts to be sent", lambda: box.counters.totals["alerts_sent"] == 800)
        await eventually("attempts", lambda: service.attempts > 5)
        assert box.outbox.depth == 800
        assert "Received PUBACK from vedette-landing" not in broker.log()
        unblock(folder)
        await eventually("an empty outbox", lambda: box.outbox.depth == 0)
        await up.stop()
        await service.stop()
    failed = [entry for entry in logs if entry["event"] == "landing_failed"]
    assert [entry["folder"] for entry in failed] == [str(folder)]
    assert sorted(row["seq"] for row in read(folder, "alerts")) == list(range(1, 801))


async def test_a_receipt_whose_connection_ends_is_sent_again(broker: Broker, tmp_path: Path) -> None:
    """Without the broker's acknowledgement a receipt is owed, over the next connection, too."""
    folder = tmp_path / "landing"
    up = "vedette/v1/f1/a1/alerts"
    async with proxied(broker.port) as proxy, agent(broker) as (client, receipts):
        service = await Land(broker, folder, url=proxy.url).connected()
        proxy.mode = "no puback"
        await client.publish(up, pack_batch("log", [encode(alert(1))]))
        await eventually("a receipt that nobody acknowledged", lambda: receipts and proxy.swallowed)
        proxy.mode = "pass"
        proxy.cut()
        await client.publish(up, pack_batch("log", [encode(alert(2))]))
        await eventually("the next receipt", lambda: [runs[-1][1] for _, runs in receipts].count(2))
        await service.stop()
    assert [first <= 1 for _, runs in receipts for first, _ in runs].count(True) == 2


async def test_memory_is_bounded_while_the_directory_fails(
    broker: Broker, box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond HELD_BYTES messages stay with the broker and are fetched when the folder works again."""
    folder = tmp_path / "landing"
    block(folder)
    monkeypatch.setattr("vedette.region.land.HELD_BYTES", 300_000)
    service = await Land(broker, folder).connected()
    up = await Up(broker.url, box).connected()
    for _ in range(10):
        box.put(500)
    await eventually("alerts to be sent", lambda: box.counters.totals["alerts_sent"] == 5000)
    await eventually("attempts", lambda: service.attempts > 5)
    assert service.service.held < 600_000
    unblock(folder)
    await eventually("an empty outbox", lambda: box.outbox.depth == 0)
    await up.stop()
    await service.stop()
    assert {row["seq"] for row in read(folder, "alerts")} == set(range(1, 5001))


async def test_a_large_message_is_cut_down_beside_the_event_loop(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the digest of an agent's oversized message is taken, another agent's messages are taken in."""
    folder, entered, release, given_up = tmp_path / "landing", threading.Event(), threading.Event(), threading.Event()

    def slow(payload: bytes, **about: Any) -> dict[str, Any]:
        entered.set()
        if not release.wait(DEADLINE):
            given_up.set()
        row: dict[str, Any] = dead_letter(payload, **about)
        return row

    monkeypatch.setattr("vedette.region.land.dead_letter", slow)
    service = await Land(broker, folder).connected()
    async with agent(broker) as (client, receipts), agent(broker, "a2") as (other, _):
        await other.publish("vedette/v1/f1/a2/alerts", bytes(2 << 20))
        await eventually("the slow write", entered.is_set)
        before = delivered(broker)
        await client.publish("vedette/v1/f1/a1/alerts", pack_batch("log", [encode(alert(1))]))
        await eventually("a delivery", lambda: delivered(broker) > before)
        assert not given_up.is_set()
        release.set()
        await eventually("a receipt", lambda: receipts == [("log", [(1, 1)])])
    await service.stop()
    assert [len(row["payload"]) for row in read(folder, "bad")] == [MAX_DEAD_LETTER]


async def test_land_ends_in_order(broker: Broker, tmp_path: Path) -> None:
    """``land`` writes what it holds when told to stop, though its batch was not due yet."""
    folder = tmp_path / "landing"
    stop = asyncio.Event()
    settings = LandingSettings(MqttSettings(url=broker.url), folder, max_seconds=60)
    task = asyncio.create_task(land(settings, stop))
    async with agent(broker) as (client, receipts):
        for pause in pauses():
            if await client.publish("vedette/v1/f1/a1/alerts", pack_batch("log", [encode(alert(1))])):
                break
            await asyncio.sleep(pause)
        await eventually("a delivery", lambda: delivered(broker))
        stop.set()
        await asyncio.wait_for(task, DEADLINE)
        await eventually("receipts", lambda: receipts)
    assert [row["seq"] for row in read(folder, "alerts")] == [1]
