"""The uplink over MQTT: a real outbox against a real mosquitto."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from structlog.testing import capture_logs
from zstandard import FRAME_HEADER

from tests.broker import Broker, running
from tests.delivery.kit import DOWN, STATUS, UP, Box, Up
from tests.mqtt.kit import QUICK
from tests.waits import eventually
from vedette.bundle.seal import key_text
from vedette.delivery import uplink
from vedette.delivery.batch import split_batch
from vedette.delivery.envelope import decode_row
from vedette.delivery.receipts import pack_receipt
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Message, Session
from vedette.mqtt.settings import MqttSettings


class Region:
    """Stands for the landing: collects batches; sends receipts when told to."""

    def __init__(self, url: str, key: Ed25519PrivateKey | None = None) -> None:
        self.key = key
        self.dictionaries: Sequence[int] = ()
        """That it says it knows."""
        self.resend_after = 0
        """That it asks for."""
        self.seqs: list[int] = []
        self.compressed: dict[int, list[bool]] = {}
        """Of each, in which form it came each time."""
        self.status: list[dict[str, Any]] = []
        self.log_id = ""
        self.landing = False
        self.client = MqttClient(
            MqttSettings(url=url),
            "region",
            subscriptions=["vedette/v1/+/+/alerts", "vedette/v1/+/+/status"],
            on_message=self._take,
            backoff=QUICK,
            session=Session(expiry=60),
        )
        self.tasks: set[asyncio.Task[Any]] = set()

    def _take(self, message: Message) -> None:
        if message.topic.endswith("/alerts"):
            self.log_id, alerts = split_batch(message.payload)
            seqs = [decode_row(data)["seq"] for data in alerts]
            self.seqs += seqs
            for seq in seqs:
                self.compressed.setdefault(seq, []).append(message.payload.startswith(FRAME_HEADER))
            if self.landing:
                self.receipt(seqs[0], seqs[-1])
        else:
            self.status.append(json.loads(message.payload))
        self.client.ack(message)

    def receipt(self, first: int, last: int, log_id: str | None = None) -> None:
        about = self.dictionaries, self.resend_after
        self.send(pack_receipt(log_id or self.log_id, [(first, last)], DOWN, self.key, *about))

    def send(self, payload: bytes) -> None:
        task = asyncio.create_task(self.client.publish(DOWN, payload))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


@asynccontextmanager
async def region(url: str, key: Ed25519PrivateKey | None = None) -> AsyncIterator[Region]:
    made = Region(url, key)
    async with made.client.running():
        await eventually("the connection", made.client.connected.is_set)
        yield made
        with suppress(ConnectionError):
            await asyncio.gather(*made.tasks)


@pytest.mark.peer
async def test_alerts_leave_the_outbox_on_receipts_only(broker: Broker, box: Box) -> None:
    """Alerts arrive in order; PUBACK leaves them in the outbox, receipts take them off, foreign ones do nothing."""
    async with region(broker.url) as centre:
        box.put(1000)
        up = await Up(broker.url, box).connected()
        await eventually("the alerts at the centre", lambda: len(centre.seqs) == 1000)
        assert centre.seqs == list(range(1, 1001))
        assert centre.log_id == box.outbox.log_id
        assert box.outbox.depth == 1000
        centre.receipt(1, 400)
        centre.receipt(501, 1000)
        await eventually("100 alerts in the outbox", lambda: box.outbox.depth == 100)
        with capture_logs() as logs:
            centre.receipt(401, 500, log_id="another")
            centre.send(b"\xc1 not msgpack")
            centre.send(msgpack.packb({"log_id": centre.log_id, "ranges": [[5, 1]]}))
            await eventually("refused receipts", lambda: len([e for e in logs if e["event"] == "receipt_invalid"]) == 3)
        assert [seq for seq, _ in box.outbox.pending()] == list(range(401, 501))
        assert box.counters.totals["alerts_receipted"] == 900
        assert box.counters.totals["alerts_sent"] == 1000
        assert box.counters.totals["bytes_sent"] > 1000 * 300
        box.put(1)
        await eventually("the alerts at the centre", lambda: centre.seqs[-1] == 1001)  # woken: not after a poll
        await up.stop()


@pytest.mark.peer
async def test_a_receipt_is_acknowledged_when_it_is_on_disk(
    broker: Broker, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the broker keeps it, and sends it again to an agent that was killed."""
    async with region(broker.url) as centre:
        box.put(5)
        up = await Up(broker.url, box).connected()
        await eventually("the alerts at the centre", lambda: len(centre.seqs) == 5)
        acknowledge, depths = up.uplink.client.ack, list[int]()

        def ack(message: Message) -> None:
            depths.append(box.outbox.depth)
            acknowledge(message)

        monkeypatch.setattr(up.uplink.client, "ack", ack)
        centre.receipt(1, 5)
        await eventually("the acknowledgement", lambda: depths)
        assert depths == [0]
        await up.stop()


@pytest.mark.peer
async def test_resend_after_the_receipt_timeout(broker: Broker, box: Box) -> None:
    """What has no receipt after ``resend_after`` goes again, and only that, until the receipt comes."""
    async with region(broker.url) as centre:
        box.put(500)
        up = await Up(broker.url, box, resend_after=0.4).connected()
        await eventually("the alerts at the centre", lambda: len(centre.seqs) == 500)
        centre.receipt(1, 450)
        await eventually("the alerts at the centre", lambda: len(centre.seqs) >= 550)
        assert centre.seqs[500:550] == list(range(451, 501))
        centre.receipt(451, 500)
        await eventually("an empty outbox", lambda: box.outbox.depth == 0)

        async def again() -> None:
            while True:
                centre.receipt(1, 450)  # it says nothing of what is in the outbox
                await asyncio.sleep(0.05)  # the pace of the replay: nothing is concluded from it

        replaying = asyncio.create_task(again())
        box.put(1)  # this one has no receipt, and goes again and again
        await eventually("the alerts at the centre", lambda: centre.seqs.count(501) == 3)
        since = centre.seqs.index(501, centre.seqs.index(501) + 1)
        assert set(centre.seqs[since:]) == {501}
        await eventually("the wait in its state", lambda: "unanswered" in up.uplink.state())
        replaying.cancel()
        centre.receipt(501, 501)
        await eventually("an empty outbox", lambda: box.outbox.depth == 0)
        assert "unanswered" not in up.uplink.state()
        await up.stop()


@pytest.mark.peer
async def test_a_landing_asks_for_more_time(broker: Broker, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its wish holds where it is longer than the agent's own, for an hour after it was heard last, and up to an hour;
    a longer own one stays. What is no wish is no receipt."""
    async with region(broker.url) as centre:
        centre.landing = True
        up = await Up(broker.url, box, resend_after=60.0).connected()

        async def wait_after(wish: int) -> float:
            centre.resend_after = wish
            box.put(1)
            await eventually("an empty outbox", lambda: box.outbox.depth == 0)
            state: float = up.uplink.state()["resend_after"]
            return state

        assert [await wait_after(wish) for wish in (0, 59, 120, 61, 0)] == [60, 60, 120, 120, 120]
        assert await wait_after(86_400) == 3600
        for ahead, expected in ((3599, 3600), (3601, 61)):
            now = time.monotonic() + ahead
            monkeypatch.setattr(uplink, "time", SimpleNamespace(monotonic=lambda now=now: now))
            assert await wait_after(61) == expected
        monkeypatch.undo()
        centre.send(msgpack.packb({"log_id": centre.log_id, "ranges": [], "resend_after": "1h"}))
        await eventually("a refusal", lambda: box.counters.totals["receipts_refused"] == 1)
        await up.stop()
        own = await Up(broker.url, box, resend_after=7200.0).connected()
        centre.resend_after = 1000
        box.put(1)
        await eventually("an empty outbox", lambda: box.outbox.depth == 0)
        assert own.uplink.state()["resend_after"] == 7200
        await own.stop()


async def test_a_broker_that_acknowledges_nothing(box: Box) -> None:
    """What it takes and never acknowledges has waited, as has what it acknowledges and no receipt comes for."""

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionResetError):
            await reader.read(1000)
            writer.write(b"\x20\x03\0\0\0")  # CONNACK
            await reader.read(1000)
            writer.write(b"\x90\x04\0\x01\0\x01")  # SUBACK
            while await reader.read(1 << 16):
                pass

    box.put(5)
    async with await asyncio.start_server(broker, "127.0.0.1", 0) as server:
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        up = await Up(url, box, resend_after=0.2).connected()
        await eventually("the wait in its state", lambda: "unanswered" in up.uplink.state())
        await up.kill()


@pytest.mark.peer
async def test_everything_without_a_receipt_goes_again_after_a_restart(broker: Broker, tmp_path: Path) -> None:
    """A killed agent sends again what lacks a receipt; a signed receipt that came while it was away is waiting."""
    key = Ed25519PrivateKey.generate()
    signed = {"receipt_keys": (key_text(key.public_key()),)}
    async with region(broker.url, key) as centre:
        box = Box(tmp_path / "s")
        box.put(300)
        up = await Up(broker.url, box, **signed).connected()
        await eventually("the alerts at the centre", lambda: len(centre.seqs) == 300)
        await up.kill()
        box.close()
        centre.receipt(1, 100)
        await asyncio.gather(*centre.tasks)
        centre.seqs.clear()
        box = Box(tmp_path / "s")
        up = await Up(broker.url, box, **signed).connected()
        await eventually("200 alerts in the outbox", lambda: box.outbox.depth == 200)
        await eventually("the alerts at the centre", lambda: set(centre.seqs) >= set(range(101, 301)))
        centre.receipt(101, 300)
        await eventually("an empty outbox", lambda: box.outbox.depth == 0)
        await up.stop()
        box.close()


@pytest.mark.peer
async def test_a_receipt_is_believed_as_far_as_alerts_were_sent(broker: Broker, box: Box) -> None:
    """A forged receipt for everything takes nothing that was not sent: neither what is made later, nor what waits while
    the agent starts; what is wrong is counted and logged."""

    with capture_logs() as logs:
        async with region(broker.url) as centre:
            box.put(300)
            centre.log_id = box.outbox.log_id
            up = await Up(broker.url, box, max_inflight=1).connected()
            await eventually("the alerts at the centre", lambda: len(centre.seqs) == 300)
            await up.kill()
            centre.receipt(0, 1 << 62)  # waits in the agent's session
            await asyncio.gather(*centre.tasks)
            up = Up(broker.url, box, max_inflight=0)  # sends nothing
            await eventually("refused receipts", lambda: box.counters.totals["receipts_refused"] == 1)
            await eventually(
                "PUBACK at the broker", lambda: "Received PUBACK from vedette-f1-a1" in broker.log()
            )  # it does not come again
            assert box.outbox.depth == 300
            await up.kill()
            up = await Up(broker.url, box).connected()
            await eventually("the alerts at the centre", lambda: len(centre.seqs) == 600)
            centre.receipt(1, 100)
            await eventually("200 alerts in the outbox", lambda: box.outbox.depth == 200)
            assert box.counters.totals["receipts_refused"] == 1
            await up.stop()
    (refused,) = [entry for entry in logs if entry["event"] == "receipt_invalid"]
    assert refused["reason"].startswith(f"it names alerts up to seq {1 << 62}, not all of which were acknowledged")


@pytest.mark.peer
def test_a_forged_receipt_for_a_refused_batch_is_not_believed(tmp_path: Path, box: Box) -> None:
    """What the broker refused or has acknowledged to nobody stays in the outbox, whatever an unauthenticated receipt
    says; once it is acknowledged, receipts count."""
    access = tmp_path / "acl"
    access.write_text(f"topic read {UP}\ntopic readwrite {DOWN}\ntopic readwrite {STATUS}\n")

    async def main(broker: Broker) -> None:
        box.put(300)
        async with region(broker.url) as forger:
            up = await Up(broker.url, box).connected()
            await eventually("the log event", lambda: any(entry["event"] == "uplink_failed" for entry in logs))
            assert [*up.uplink.state()["refused"]] == [UP]
            forger.receipt(0, 1 << 62, log_id=box.outbox.log_id)
            await eventually("refused receipts", lambda: box.counters.totals["receipts_refused"] == 1)
            box.put(1)  # the next receipt is settled after the forged one
            assert box.outbox.depth == 301
            access.write_text("topic readwrite #\n")
            assert broker.process is not None
            broker.process.send_signal(signal.SIGHUP)
            await eventually("the alerts at the centre", lambda: len(set(forger.seqs)) == 301)
            assert "refused" not in up.uplink.state()
            forger.receipt(1, 301)
            await eventually("an empty outbox", lambda: box.outbox.depth == 0)
            await up.stop()

    with capture_logs() as logs, running(tmp_path / "broker", extra=[f"acl_file {access}"]) as broker:
        asyncio.run(main(broker))


@pytest.mark.peer
async def test_only_the_regions_receipts_are_believed(broker: Broker, box: Box) -> None:
    """With ``receipt_keys`` a receipt without signature, by another key, for another agent, changed after signing or
    replayed takes nothing off the outbox; the region's do, by each of its landings' keys."""
    vienna, graz, forger = (Ed25519PrivateKey.generate() for _ in range(3))
    keys = tuple(key_text(key.public_key()) for key in (vienna, graz))

    with capture_logs() as logs:
        async with region(broker.url) as centre:
            box.put(400)
            up = await Up(broker.url, box, receipt_keys=keys).connected()
            await eventually("the alerts at the centre", lambda: len(centre.seqs) == 400)
            everything, number = [(0, 400)], box.outbox.log_id
            changed = msgpack.unpackb(pack_receipt(number, [(1, 1)], DOWN, vienna))
            for payload in (
                pack_receipt(number, everything),
                pack_receipt(number, everything, DOWN, forger),
                pack_receipt(number, everything, DOWN.replace("a1", "a2"), vienna),
                pack_receipt("another", everything, DOWN, vienna),
                msgpack.packb({**changed, "ranges": everything}),
                msgpack.packb({**changed, "signature": "x" * 64}),
                bytes(100_000),
            ):
                centre.send(payload)
            await eventually("refused receipts", lambda: len([e for e in logs if e["event"] == "receipt_invalid"]) == 7)
            assert box.outbox.depth == 400
            first = pack_receipt(number, [(1, 100)], DOWN, vienna)
            centre.send(first)
            await eventually("300 alerts in the outbox", lambda: box.outbox.depth == 300)
            centre.send(pack_receipt(number, [(101, 150), (201, 250)], DOWN, graz))
            await eventually("200 alerts in the outbox", lambda: box.outbox.depth == 200)
            centre.send(first)  # replayed
            box.put(1)
            await eventually("the alerts at the centre", lambda: len(centre.seqs) == 401)
            centre.send(pack_receipt(number, [(401, 401)], DOWN, graz))
            await eventually("200 alerts in the outbox", lambda: box.outbox.depth == 200)
            assert [seq for seq, _ in box.outbox.pending()] == [*range(151, 201), *range(251, 401)]
            await up.stop()
    reasons = [e["reason"] for e in logs if e["event"] == "receipt_invalid"]
    assert len([reason for reason in reasons if "not signed" in reason]) == 2
    assert len([reason for reason in reasons if "none of uplink.receipt_keys" in reason]) == 3
    assert box.counters.totals["receipts_refused"] == 6


@pytest.mark.peer
async def test_broker_away_at_start_and_killed_between_puback_and_landing(tmp_path: Path, box: Box) -> None:
    """A broker killed with all it had acknowledged loses no alert: all are sent again and receipted in the end."""
    broker = Broker(tmp_path / "broker")

    def outages() -> int:
        return len([e for e in logs if e["event"] == "broker_away" and e["client_id"] == "vedette-f1-a1"])

    try:
        with capture_logs() as logs:
            box.put(200)
            up = Up(broker.url, box, resend_after=1.0)
            await eventually("outages", lambda: outages() == 1)
            broker.start()
            async with region(broker.url) as centre:
                await eventually("the alerts at the centre", lambda: len(centre.seqs) == 200)
            # The region is away with a session; the broker acknowledges for it, and dies.
            box.put(300)
            await eventually("alerts that were sent", lambda: box.counters.totals["alerts_sent"] >= 500)
            broker.kill()
            box.put(100)
            await eventually("outages", lambda: outages() == 2)
            broker.start()
            await up.connected()
            async with region(broker.url) as centre:
                centre.landing = True
                await eventually("an empty outbox", lambda: box.outbox.depth == 0)
                seqs = centre.seqs
            await up.stop()
    finally:
        broker.kill()
    assert set(seqs) == set(range(1, 601))
    assert box.counters.totals["alerts_receipted"] == 600
    assert outages() == 2


@pytest.mark.peer
async def test_without_a_subscriber_alerts_wait(broker: Broker, box: Box) -> None:
    """While no landing has ever subscribed, the uplink says so once, keeps trying, and delivers when one comes."""
    box.put(700)
    with capture_logs() as logs:
        up = await Up(broker.url, box).connected()
        await eventually(
            "PUBLISH at the broker", lambda: broker.log().count("Received PUBLISH from vedette-f1-a1") >= 4
        )
        failed = [e for e in logs if e["event"] == "uplink_failed"]
        assert len(failed) == 1
        assert "region land" in failed[0]["reason"]
        async with region(broker.url) as centre:
            centre.landing = True
            await eventually("an empty outbox", lambda: box.outbox.depth == 0)
            assert set(centre.seqs) == set(range(1, 701))
            await up.stop()


@pytest.mark.peer
async def test_heartbeat_and_last_will(broker: Broker, box: Box) -> None:
    """The status topic holds a heartbeat at connect and every interval; after a crash it holds the last will."""
    async with region(broker.url) as centre:
        up = await Up(broker.url, box, heartbeat=0.1).connected()
        await eventually("heartbeats at the centre", lambda: len(centre.status) >= 3)
        assert centre.status[0]["state"] == "running"
        await up.kill()
        await eventually("the state lost at the centre", lambda: centre.status[-1]["state"] == "lost")
        assert centre.status[-1] == {"agent_id": "a1", "fleet": "f1", "site": "s1", "state": "lost"}
        up = await Up(broker.url, box, heartbeat=60).connected()
        await eventually("the state running at the centre", lambda: centre.status[-1]["state"] == "running")
        count = len(centre.status)
        await up.stop()
        await eventually("heartbeats at the centre", lambda: len(centre.status) == count + 1)
        assert centre.status[-1]["state"] == "running"


@pytest.mark.peer
async def test_further_subscriptions(broker: Broker, box: Box) -> None:
    """Further subscriptions share the connection, get retained messages, and can be added and withdrawn."""
    got: list[tuple[str, bytes]] = []

    def take(message: Message) -> None:
        got.append((message.topic, message.payload))

    async with region(broker.url) as centre:
        await centre.client.publish("vedette/v1/f1/bundles/stable/manifest", b"m", retain=True)
        await centre.client.publish("vedette/v1/f1/bundles/stable/blobs/aa", b"blob", retain=True)
        up = Up(broker.url, box)
        up.uplink.subscribe("vedette/v1/f1/bundles/stable/manifest", take)
        await up.connected()
        await eventually("a message", lambda: len(got) == 1)
        up.uplink.subscribe("vedette/v1/f1/bundles/stable/blobs/aa", take)
        await eventually("2 messages", lambda: len(got) == 2)
        up.uplink.unsubscribe("vedette/v1/f1/bundles/stable/blobs/aa")
        await eventually("UNSUBSCRIBE at the broker", lambda: "Received UNSUBSCRIBE from vedette-f1-a1" in broker.log())
        await centre.client.publish("vedette/v1/f1/bundles/stable/blobs/aa", b"")
        await centre.client.publish("vedette/v1/f1/bundles/stable/manifest", b"m2")
        await eventually("3 messages", lambda: len(got) == 3)
        await up.stop()
    assert [payload for _, payload in got] == [b"m", b"blob", b"m2"]


@pytest.mark.peer
async def test_batches_refused_together_are_one_failure(broker: Broker, box: Box) -> None:
    """Twenty batches that are on their way when the broker begins to refuse are followed by the first wait, not by one
    for each, the last of which would be hours."""
    made = uplink.MqttUplink(box.source(type="mqtt", broker=MqttSettings(url=broker.url)), backoff=(0.01, 1e6))
    task = asyncio.create_task(made.run())
    await eventually(
        "PUBLISH at the broker", lambda: "Received PUBLISH from vedette-f1-a1" in broker.log()
    )  # a heartbeat
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    box.put(20 * uplink.BATCH_ALERTS)
    for _ in range(100):
        await asyncio.sleep(0)
    broker.process.send_signal(signal.SIGCONT)  # nobody subscribes to alerts
    await eventually(
        "PUBLISH at the broker", lambda: broker.log().count("Received PUBLISH from vedette-f1-a1") >= 1 + 20 + 3
    )
    await made.stop(1)
    await task
