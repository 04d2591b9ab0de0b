"""The enroller against hosts and others that mean no good; the broker is a real one, without TLS."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.broker import running
from tests.mqtt.kit import connected
from tests.waits import eventually
from vedette.fleet.audit import Audit, verify
from vedette.fleet.certificates import fingerprint, issued, new_key, sign, signing_request
from vedette.fleet.enrolment import REQUEST, Answer, Request, Token, frame, read_answer, read_renewal, renewal_request
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Message
from vedette.mqtt.settings import MqttSettings
from vedette.region.enroll import Region
from vedette.region.enroller import Enroller, EnrollerSettings
from vedette.region.tokens import Tokens
from vedette.system.durable import write_whole

pytestmark = pytest.mark.peer
REQUESTS = "vedette/v1/enrolment/requests"


class Kit:
    """One client that sends requests, and what came back on any topic."""

    def __init__(
        self, folder: Path, client: MqttClient, answers: dict[str, bytes], token: Token, task: asyncio.Task[None]
    ) -> None:
        self.folder, self.client, self.answers, self.token, self.task = folder, client, answers, token, task

    def request(self, key: object, name: str = "web-1") -> tuple[str, bytes]:
        id = secrets.token_hex(16)
        asked = Request(id, self.token.id, self.token.fleet, name, signing_request(name, key))  # type: ignore[arg-type]
        return id, frame(REQUEST, asked, self.token.secret)

    async def ask(self, id: str, data: bytes) -> Answer:
        topic = f"vedette/v1/enrolment/answers/vedette-{id}"
        self.answers.pop(topic, None)
        await self.client.publish(REQUESTS, data)
        await eventually("an answer", lambda: topic in self.answers or self.task.done())
        assert not self.task.done(), self.task.exception()
        return read_answer(self.answers[topic], self.token.secret, id)

    def audit(self, event: str) -> int:
        path = self.folder / "audit.jsonl"
        assert verify(path)[1] is None
        return sum(line["event"] == event for line in Audit(path).lines())


@asynccontextmanager
async def enrolling(folder: Path, reload: str = "") -> AsyncIterator[Kit]:
    answers: dict[str, bytes] = {}

    def received(message: Message) -> None:
        answers[message.topic] = message.payload
        client.ack(message)

    with Region.open(folder / "region") as region:
        region.broker = "mqtt://region.example"
        region.enroll("land-1", role="landing")
        grant = Tokens(region.folder).create("plants", uses=10, seconds=3600, labels={}, now=time.time())
    with running(folder / "broker") as broker:
        enroller = Enroller(EnrollerSettings(MqttSettings(broker.url), folder / "region", reload=reload))
        task = asyncio.create_task(enroller.run())
        wide = ["vedette/v1/enrolment/answers/+", "vedette/v1/+/+/certificate"]
        async with connected(broker.url, "host", subscriptions=wide, on_message=received) as client:
            await eventually("the host", client.connected.is_set)
            await eventually("the enroller", enroller.client.connected.is_set)
            yield Kit(folder / "region", client, answers, grant.token(), task)
            assert not task.done(), task.exception()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_request_that_comes_again_is_answered_and_adds_no_line(tmp_path: Path) -> None:
    async with enrolling(tmp_path) as kit:
        id, data = kit.request(new_key())
        first = await kit.ask(id, data)
        for _ in range(3):
            assert await kit.ask(id, data) == first
        assert kit.audit("enrolled") == 1
        (kit.folder / "audit.jsonl").unlink()
        assert await kit.ask(id, data) == first
        assert not (kit.folder / "audit.jsonl").exists()  # nothing asks a record that grows


async def test_a_recorded_request_does_not_use_up_the_consent(tmp_path: Path) -> None:
    """The old key asks first when an operator has allowed another; it is refused, and the new one still enrols."""
    async with enrolling(tmp_path) as kit:
        recorded = kit.request(new_key())
        assert not (await kit.ask(*recorded)).refused
        with Region.open(kit.folder) as region:
            region.revoke("web-1")
            region.consent("web-1")
        assert "of this key were revoked" in (await kit.ask(*recorded)).refused
        assert not (await kit.ask(*kit.request(new_key()))).refused
        assert "another key" in (await kit.ask(*kit.request(new_key()))).refused


async def test_a_renewal_whose_answer_was_lost(tmp_path: Path) -> None:
    """The host signs again by the key that it still has; it gets the certificate that was made."""
    async with enrolling(tmp_path) as kit:
        key, next_key = new_key(), new_key()
        await kit.ask(*kit.request(key))
        topic = "vedette/v1/plants/web-1/certificate"
        csr = signing_request("web-1", next_key)
        given = []
        for _ in range(2):
            kit.answers.pop(topic, None)
            await kit.client.publish("vedette/v1/plants/web-1/csr", renewal_request(csr, sign(csr.encode(), key)))
            await eventually("an answer", lambda: topic in kit.answers)
            given.append(read_renewal(kit.answers[topic]).certificate)
        assert given[0] == given[1]
        assert kit.audit("renewed") == 1
        with Region.open(kit.folder) as region:
            assert region.member("web-1").key == fingerprint(next_key.public_key())
        stranger = signing_request("web-1", new_key())
        await kit.client.publish("vedette/v1/plants/web-1/csr", renewal_request(stranger, sign(b"other", key)))
        await eventually("the refusal", lambda: kit.audit("renewal_refused") == 1)


async def test_a_flood_stops_nobody_and_fills_nothing(tmp_path: Path) -> None:
    """Large messages, messages without acknowledgement, requests with a wrong token: an honest host is answered, and
    the record grows by a bounded number of lines."""
    async with enrolling(tmp_path) as kit:
        good = kit.request(new_key())
        wrong = good[1][:10] + b"0" + good[1][11:]
        for _ in range(600):
            await kit.client.publish(REQUESTS, b"x" * 300_000, qos=0)
        for _ in range(20):
            await kit.client.publish(REQUESTS, b"x" * 300_000)
        for _ in range(200):
            await kit.client.publish(REQUESTS, wrong)
        assert not (await kit.ask(*good)).refused
        assert kit.audit("enrolment_refused") <= 120


async def test_a_member_that_a_kill_kept_from_the_access_list(tmp_path: Path) -> None:
    """The next start writes what the broker reads, and reloads it."""
    done = tmp_path / "reloaded"
    with Region.open(tmp_path / "region") as region:  # as a kill leaves it, behind members.json
        region.broker = "mqtt://region.example"
        region.publish_access()
        region.admit("web-1", new_key().public_key(), fleet="plants", labels={}, now=datetime.now(UTC))
    assert "user web-1" not in (tmp_path / "region" / "mosquitto.acl").read_text()
    async with enrolling(tmp_path, f"touch {done}"):
        await eventually("the reload", done.exists)
        assert "user web-1" in (tmp_path / "region" / "mosquitto.acl").read_text()


@pytest.mark.parametrize("file", ["audit.jsonl", "members.json", "agent.pem"])
async def test_a_kill_before_a_certificate_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:  # fmt: skip
    """The host asks again, and gets a certificate for its key, which has its line in the record; so with a renewal."""
    key, next_key = new_key(), new_key()
    topic, csr = "vedette/v1/plants/web-1/certificate", signing_request("web-1", next_key)

    def killed(path: Path, data: bytes, mode: int) -> None:
        if path.name == file:
            raise KeyboardInterrupt
        write_whole(path, data, mode)

    def killed_in(act: Callable[[Region], object]) -> None:
        with monkeypatch.context() as patch, Region.open(tmp_path / "region") as region:
            region.broker = "mqtt://region.example"
            patch.setattr("vedette.region.enroll.write_whole", killed)
            if file == "audit.jsonl":
                patch.setattr(Audit, "append", lambda self, *_, **__: killed(self.path, b"", 0))
            with pytest.raises(KeyboardInterrupt):
                act(region)

    killed_in(lambda region: region.admit("web-1", key.public_key(), fleet="plants", labels={}))
    async with enrolling(tmp_path) as kit:
        asked = kit.request(key)
        first = (await kit.ask(*asked)).certificate
        assert (await kit.ask(*asked)).certificate == first
        issued(first.encode(), key, "web-1", (kit.folder / "ca.pem").read_bytes())
        killed_in(lambda region: region.renew("web-1", next_key.public_key(), days=90))
        for _ in range(2):
            kit.answers.pop(topic, None)
            await kit.client.publish("vedette/v1/plants/web-1/csr", renewal_request(csr, sign(csr.encode(), key)))
            await eventually("an answer", lambda: topic in kit.answers)
        certificate = read_renewal(kit.answers[topic]).certificate
        issued(certificate.encode(), next_key, "web-1", (kit.folder / "ca.pem").read_bytes())
        with Region.open(kit.folder) as region:
            serials = [row.get("serial") for row in Audit(kit.folder / "audit.jsonl").lines()]
            assert serials.count(region.member("web-1").serial) == 1


async def test_a_reload_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others work in the folder meanwhile; no host is answered before it has ended."""
    hangs, go = tmp_path / "hangs", tmp_path / "go"
    command = f"sh -c 'touch {hangs}; until [ -e {go} ]; do sleep 0.01; done'"
    async with enrolling(tmp_path, command) as kit:
        await eventually("the reload", hangs.exists)
        id, data = kit.request(new_key())
        await kit.client.publish(REQUESTS, data)
        with monkeypatch.context() as patch:
            patch.setattr("vedette.region.enroll.LOCK_SECONDS", 0.0)
            with Region.open(kit.folder) as region:
                assert "web-1" not in region.members
        assert not kit.answers
        go.touch()
        assert not (await kit.ask(id, data)).refused


async def test_a_reload_that_failed_is_tried_again(tmp_path: Path) -> None:
    answers, done = tmp_path / "broker-answers", tmp_path / "reloaded"
    async with enrolling(tmp_path, f"cp {answers} {done}") as kit:
        asked = kit.request(new_key())
        assert not (await kit.ask(*asked)).refused
        answers.touch()
        assert not (await kit.ask(*asked)).refused
        assert done.exists()


async def test_a_member_whose_files_are_gone_stops_nobody(tmp_path: Path) -> None:
    """Its renewal is refused; others are served, at the next start, too."""
    key, topic = new_key(), "vedette/v1/plants/web-2/certificate"
    async with enrolling(tmp_path) as kit:
        assert not (await kit.ask(*kit.request(key))).refused
        shutil.rmtree(kit.folder / "members" / "web-1")
        csr = signing_request("web-1", new_key())
        await kit.client.publish("vedette/v1/plants/web-1/csr", renewal_request(csr, sign(csr.encode(), key)))
        assert not (await kit.ask(*kit.request(new_key(), "web-2"))).refused
        assert kit.audit("renewal_refused") == 1
    async with enrolling(tmp_path) as kit:
        await eventually("the authorities", lambda: topic in kit.answers or kit.task.done())
        assert not (await kit.ask(*kit.request(new_key(), "web-3"))).refused
