"""The agent's side and the centre's side of requests in one process, over a wire that loses, doubles and mixes up."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.fleet.asking import AGENT, FLEET, KEYS, OPERATORS, Authority, signed
from vedette.config.settings import AgentSettings, Config, FleetSettings, MqttSettings, UplinkSettings
from vedette.fleet.audit import Audit, verify
from vedette.fleet.carried import REQUESTS
from vedette.fleet.job import Job, Kind, Limits, Services
from vedette.fleet.kinds import KINDS
from vedette.fleet.operators import Operators
from vedette.fleet.requests import Request
from vedette.mqtt.connection import Message
from vedette.region.requests import Collection, cancel, converse, moment
from vedette.runtime.requests import MAX_WAITING, Requests
from vedette.system.wallclock import utc_now

AUTHORITY = Authority()
ROWS = 60
LATER = moment() + 24 * 3_600_000_000


async def count(job: Job) -> None:
    """ROWS records, a part every four."""
    for n in range(job.cursor or 0, ROWS):
        job.emit({"n": n})
        job.checkpoint(n + 1, now=n % 4 == 3)
        if n % 20 == 19:
            await asyncio.sleep(0)


async def never(job: Job) -> None:
    """Until it is cancelled."""
    await job.aside(lambda: [job.pace() for _ in iter(int, 1)])


@dataclass
class Fleet:
    audit: Audit
    operators: Operators | None = field(
        default_factory=lambda: replace(
            OPERATORS, by_name={name: replace(one, expires=LATER) for name, one in OPERATORS.by_name.items()}
        )
    )
    trusted_until: int = LATER


class Wire:
    """Between one agent and the centre; each message is lost or doubled by chance."""

    def __init__(self, rng: random.Random, loss: float = 0.0) -> None:
        self._rng, self.loss = rng, loss
        self.up: asyncio.Queue[bytes] = asyncio.Queue()
        self.handler: Callable[[Message], None] | None = None
        self.listening = True

    def subscribe(self, topic: str, handler: Callable[[Message], None]) -> None:
        self.handler = handler

    def _times(self) -> int:
        return 0 if self._rng.random() < self.loss else 1 + (self._rng.random() < self.loss)

    async def send(self, agent: str, envelope: bytes) -> None:
        for _ in range(self._times()):
            if self.handler is not None:
                self.handler(Message(f"vedette/v1/{FLEET}/{agent}/commands", envelope, 1, False, False, 1))

    async def reply(self, data: bytes | None = None) -> Any:
        if data is None:
            return AGENT, await self.up.get()
        for _ in range(self._times()):
            self.up.put_nowait(data)
        return self.listening


class Lives:
    """An agent in a folder, started and killed."""

    def __init__(self, folder: Path) -> None:
        signer = AUTHORITY.agent()
        (folder / "agent.pem").write_bytes(signer.certificate)
        (folder / "agent.key").write_bytes(signer.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        broker = MqttSettings("mqtts://x", cert_file=folder / "agent.pem", key_file=folder / "agent.key")
        (folder / "fleet").mkdir()
        self.config = Config(
            agent=AgentSettings(id=AGENT, fleet=FLEET, data_dir=folder),
            uplink=UplinkSettings("mqtt", broker=broker),
            fleet=FleetSettings(),
        )
        self.fleet = Fleet(Audit(folder / "fleet" / "audit.jsonl"))
        self._task: asyncio.Task[None] | None = None

    def start(self, wire: Wire) -> Requests:
        async def command(name: str, **words: object) -> object:
            return {"said": name}

        context = cast(Any, SimpleNamespace(config=self.config, clock=utc_now))
        requests = Requests(context, self.fleet, Services(lambda: self.config, command))
        requests.attach(wire)
        self._task = asyncio.create_task(requests.run())
        return requests

    async def kill(self) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    @property
    def record(self) -> list[dict[str, Any]]:
        assert verify(self.fleet.audit.path)[1] is None
        return [*self.fleet.audit.lines()]


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """``ask`` counts, ``evidence`` never ends; agents are asked again soon."""
    limits = Limits(1 << 20, 60.0, 0.5, 1)
    monkeypatch.setitem(cast(Any, KINDS), "ask", Kind("ask", "viewer", lambda body: None, count, limits))
    monkeypatch.setitem(cast(Any, KINDS), "evidence", Kind("evidence", "analyst", lambda body: None, never, limits))
    monkeypatch.setattr("vedette.region.requests.SILENT_SECONDS", 0.1)
    monkeypatch.setattr("vedette.region.requests.MAX_SILENT", 0.3)
    monkeypatch.setattr("vedette.runtime.requests.RETRY_SECONDS", 0.05)


def request(kind: str = "ask", operator: str = "vera", **fields: Any) -> Request:
    now = moment()
    return Request(FLEET, kind, operator, now, now + 3_600_000_000, {}, (AGENT,), **fields)


def begun(folder: Path, asked: Request) -> Collection:
    return Collection.begin(folder / "centre", asked, KEYS[asked.operator], [AGENT], AUTHORITY.pem)


@pytest.mark.parametrize("seed", range(4))
def test_whole_over_a_bad_wire(tmp_path: Path, seed: int) -> None:
    """A third of all messages lost, many doubled, agent and centre ended again and again in the middle: every record
    comes once, in order; the work is done once, and the agent keeps nothing of it."""
    rng, lives = random.Random(seed), Lives(tmp_path)

    async def main() -> Collection:
        wire = Wire(rng, 0.33)
        agent = lives.start(wire)
        collection = begun(tmp_path, request())
        for turn in range(100):
            await converse(wire, collection, KEYS["vera"], 0.7, fresh=not turn)
            await asyncio.sleep(0.05)  # for the agent to hear that all of it has come
            if collection.answers[AGENT].whole and not agent.status():
                return collection
            if turn < 3:
                await lives.kill()
                agent = lives.start(wire)
            collection = Collection(collection.folder, AUTHORITY.pem)  # the centre, too, has only its folder
        raise AssertionError(f"not whole: {collection.answers}")

    collection = asyncio.run(main())
    assert [*collection.records(AGENT)] == [{"n": n} for n in range(ROWS)]
    events = [row["event"] for row in lives.record]
    assert events.count("request_received") == events.count("request_finished") == 1
    assert not [*(tmp_path / "fleet" / "requests").glob("*/*")]


def test_nobody_listens(tmp_path: Path) -> None:
    """An agent whose parts nobody takes stops sending them, until it is asked for them."""
    lives = Lives(tmp_path)

    async def main() -> tuple[int, Collection]:
        wire = Wire(random.Random(1))
        wire.listening = False
        lives.start(wire)
        collection = begun(tmp_path, request())
        await wire.send(AGENT, collection.envelope)
        await asyncio.sleep(1.0)
        sent, wire.up = wire.up.qsize(), asyncio.Queue()
        wire.listening = True
        await converse(wire, collection, KEYS["vera"], 20.0, fresh=False)
        return sent, collection

    sent, collection = asyncio.run(main())
    assert sent <= 2
    assert len([*collection.records(AGENT)]) == ROWS


def test_cancelled(tmp_path: Path) -> None:
    """By an operator of the same role; the reply says by whom, and the next one of the kind may run."""
    lives = Lives(tmp_path)

    async def main() -> Collection:
        wire = Wire(random.Random(1))
        agent = lives.start(wire)
        collection = begun(tmp_path, request("evidence", "ann"))
        await converse(wire, collection, KEYS["ann"], 0.5)
        await cancel(wire, collection, KEYS["ann"])
        await converse(wire, collection, KEYS["ann"], 10.0, fresh=False)
        while agent.status():
            await asyncio.sleep(0.01)
        return collection

    collection = asyncio.run(main())
    answer = collection.answers[AGENT]
    assert (answer.state, answer.reason) == ("cancelled", "cancelled by ann")
    assert [row["event"] for row in lives.record][-2:] == ["request_finished", "request_fetched"]


def test_flood(tmp_path: Path) -> None:
    """Ten thousand messages that are no requests: a handful of lines in the record, and a question among them is
    answered."""
    lives = Lives(tmp_path)

    async def main() -> Collection:
        wire = Wire(random.Random(1))
        lives.start(wire)
        handler = cast(Callable[[Message], None], wire.handler)
        for i in range(10_000):
            handler(Message("vedette/v1/plants/vienna-1/commands", b"%d" % i, 1, False, False, 1))
            if i % (4 * MAX_WAITING) == 0:
                await asyncio.sleep(0.001)
        collection = begun(tmp_path, request())
        await converse(wire, collection, KEYS["vera"], 20.0)
        await lives.kill()
        return collection

    collection = asyncio.run(main())
    assert collection.answers[AGENT].whole
    refused = [row for row in lives.record if row["event"] == "request_refused"]
    assert len(refused) <= 6
    assert sum(row.get("repeats", 0) for row in refused) + 2 >= 10_000


def test_owner_changes_his_mind(tmp_path: Path) -> None:
    """What is not allowed any more when its turn comes is refused; without a certificate nothing is taken at all."""
    lives = Lives(tmp_path)

    async def main() -> tuple[Collection, str]:
        wire = Wire(random.Random(1))
        agent = lives.start(wire)
        collection = begun(tmp_path, request())
        lives.config = replace(lives.config, fleet=FleetSettings(allow=()))
        await lives.kill()
        agent = lives.start(wire)
        await converse(wire, collection, KEYS["vera"], 5.0)
        lives.config = replace(lives.config, uplink=UplinkSettings())
        await lives.kill()
        agent = lives.start(wire)
        return collection, await carried(lives, agent, signed(request()))

    collection, reason = asyncio.run(main())
    assert collection.answers[AGENT].state == "refused"
    assert "has no certificate" in reason


async def carried(lives: Lives, agent: Requests, envelope: bytes) -> str:
    """Why a request that is carried there is refused; empty: it is not."""
    folder = lives.config.agent.fleet_dir / REQUESTS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{'0' * 32}.json").write_bytes(envelope)
    [one] = await agent.carried()
    assert not [*folder.iterdir()]
    return one["why"]


def test_as_files(tmp_path: Path) -> None:
    """The same request and the same parts, carried in another way than by a broker."""
    lives = Lives(tmp_path)

    async def main() -> Collection:
        agent = lives.start(Wire(random.Random(1), loss=1.0))
        collection = begun(tmp_path, request())
        assert await carried(lives, agent, collection.envelope) == ""
        assert "seen before" in await carried(lives, agent, collection.envelope)
        while [one["state"] for one in agent.status()] != ["whole"]:
            await asyncio.sleep(0.01)
        [(id, parts)] = agent.waiting()["parts"].items()
        assert id == collection.request.id
        for number in (*range(3, parts), *range(parts)):
            assert not collection.answers[AGENT].whole
            collection.take(AGENT, base64.b64decode(await agent.part(id, number)))
            if collection.answers[AGENT].whole:
                break
        for unknown in ((id, parts), (id, -1), ("0" * 32, 0)):
            with pytest.raises(ValueError, match="no such part"):
                await agent.part(*unknown)
        return collection

    collection = asyncio.run(main())
    assert [*collection.records(AGENT)] == [{"n": n} for n in range(ROWS)]


def test_a_reply_that_was_damaged(tmp_path: Path) -> None:
    """On the agent's disk: that request is lost, and recorded; others are answered."""
    lives = Lives(tmp_path)

    async def main() -> Collection:
        wire = Wire(random.Random(1))
        wire.listening = False
        agent = lives.start(wire)
        lost = begun(tmp_path, request())
        await carried(lives, agent, lost.envelope)
        while [one["state"] for one in agent.status()] != ["whole"]:
            await asyncio.sleep(0.01)
        (tmp_path / "fleet" / "requests" / lost.request.id / "000003.part").write_bytes(b"\x01")
        wire.listening = True
        await converse(wire, lost, KEYS["vera"], 1.0, fresh=False)
        assert not lost.answers[AGENT].whole
        collection = begun(tmp_path, request())
        await converse(wire, collection, KEYS["vera"], 10.0)
        return collection

    collection = asyncio.run(main())
    assert collection.answers[AGENT].whole
    assert "reply_lost" in [row["event"] for row in lives.record]
