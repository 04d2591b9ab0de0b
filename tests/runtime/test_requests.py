"""The agent's side and the centre's side of requests in one process, over a wire that loses, doubles and mixes up."""

from __future__ import annotations

import asyncio
import base64
import os
import random
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec import structs

from tests.fleet.asking import AGENT, FLEET, KEYS, OPERATORS, Authority, signed
from tests.waits import DEADLINE, eventually, pauses
from vedette.config.settings import AgentSettings, Config, FleetSettings, MqttSettings, UplinkSettings
from vedette.fleet.audit import Audit, verify
from vedette.fleet.carried import REQUESTS
from vedette.fleet.job import Job, Kind, Limits, Services
from vedette.fleet.kinds import KINDS
from vedette.fleet.operators import Operators
from vedette.fleet.requests import Request
from vedette.fleet.signedtime import SignedTime
from vedette.mqtt.connection import Message
from vedette.region.requests import Collection, cancel, converse, moment
from vedette.runtime.member.reports import Record
from vedette.runtime.member.requests import MAX_WAITING, Requests
from vedette.system.wallclock import utc_now

AUTHORITY = Authority()
ASK = KINDS["ask"]
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
    record: Record
    operators: Operators | None = field(
        default_factory=lambda: replace(
            OPERATORS,
            by_name={name: structs.replace(operator, expires=LATER) for name, operator in OPERATORS.by_name.items()},
        )
    )
    trusted_until: int = LATER

    @property
    def time(self) -> SignedTime:
        return SignedTime(self.record.audit.path.with_name("time"), utc_now)


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
        self.fleet = Fleet(Record(Audit(folder / "fleet" / "audit.jsonl")))
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
        audit = self.fleet.record.audit
        assert verify(audit.path)[1] is None
        return [*audit.lines()]

    @property
    def events(self) -> list[str]:
        return [row["event"] for row in self.record]


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """``ask`` counts, ``evidence`` never ends; agents are asked again soon."""
    limits = Limits(1 << 20, 60.0, 0.5, 1)
    monkeypatch.setitem(cast(Any, KINDS), "ask", Kind("ask", "viewer", lambda body: None, count, limits))
    monkeypatch.setitem(cast(Any, KINDS), "evidence", Kind("evidence", "analyst", lambda body: None, never, limits))
    monkeypatch.setattr("vedette.region.requests.SILENT_SECONDS", 0.1)
    monkeypatch.setattr("vedette.region.requests.MAX_SILENT", 0.3)
    monkeypatch.setattr("vedette.runtime.member.requests.RETRY_SECONDS", 0.05)


def request(kind: str = "ask", operator: str = "vera", **fields: Any) -> Request:
    now = moment()
    return Request(FLEET, kind, operator, now, now + 3_600_000_000, agents=(AGENT,), **fields)


def states(agent: Requests) -> list[str]:
    return [row["state"] for row in agent.status()]


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
        for turn, pause in enumerate(pauses()):
            await converse(wire, collection, KEYS["vera"], 0.7, fresh=not turn)
            await asyncio.sleep(pause)  # for the agent to hear that all of it has come
            if collection.answers[AGENT].whole and not agent.status():
                return collection
            if turn < 3:
                await eventually(
                    "its record", lambda agent=agent: not agent.status() or "request_received" in lives.events
                )
                await lives.kill()
                agent = lives.start(wire)
            collection = Collection(collection.folder, AUTHORITY.pem)  # the centre, too, has only its folder
        raise AssertionError(f"not whole: {collection.answers}")

    collection = asyncio.run(main())
    assert [*collection.records(AGENT)] == [{"n": n} for n in range(ROWS)]
    events = lives.events
    assert events.count("request_received") == events.count("request_finished") == 1
    assert not [*(tmp_path / "fleet" / "requests").glob("*/*")]


@pytest.mark.parametrize("event", ["request_received", "request_finished"])
def test_killed_before_it_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: str) -> None:
    """What is on the disk and not in the record when the agent is killed is recorded in its next life, once."""
    lives, append, reached = Lives(tmp_path), Record.append, asyncio.Event()

    async def stuck(record: Record, name: str, /, **facts: Any) -> Any:
        if name == event:
            reached.set()
            await asyncio.Event().wait()
        return await append(record, name, **facts)

    async def main() -> Collection:
        wire = Wire(random.Random(1))
        with monkeypatch.context() as patch:
            patch.setattr(Record, "append", stuck)
            lives.start(wire)
            collection = begun(tmp_path, request())
            await wire.send(AGENT, collection.envelope)
            await asyncio.wait_for(reached.wait(), DEADLINE)
            await lives.kill()
        wire.up = asyncio.Queue()
        agent = lives.start(wire)
        await converse(wire, collection, KEYS["vera"], DEADLINE, fresh=False)
        await eventually("its end", lambda: not agent.status())
        return collection

    collection = asyncio.run(main())
    assert [*collection.records(AGENT)] == [{"n": n} for n in range(ROWS)]
    assert [lives.events.count(one) for one in ("request_received", "request_finished")] == [1, 1]


def test_nobody_listens(tmp_path: Path) -> None:
    """An agent whose parts nobody takes stops sending them, until it is asked for them."""
    lives = Lives(tmp_path)

    async def main() -> tuple[int, Collection]:
        wire = Wire(random.Random(1))
        wire.listening = False
        agent = lives.start(wire)
        collection = begun(tmp_path, request())
        await wire.send(AGENT, collection.envelope)
        await eventually("the whole reply", lambda: states(agent) == ["whole"])
        for _ in range(2):  # looks at what is to be sent
            agent._parts.set()
            await eventually("a further look", lambda: not agent._parts.is_set())
        sent, wire.up = wire.up.qsize(), asyncio.Queue()
        wire.listening = True
        await converse(wire, collection, KEYS["vera"], DEADLINE, fresh=False)
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
        await wire.send(AGENT, collection.envelope)
        await eventually("its work", lambda: states(agent) == ["running"])
        await cancel(wire, collection, KEYS["ann"])
        await converse(wire, collection, KEYS["ann"], DEADLINE, fresh=False)
        await eventually("its end", lambda: not agent.status())
        return collection

    collection = asyncio.run(main())
    answer = collection.answers[AGENT]
    assert (answer.state, answer.reason) == ("cancelled", "cancelled by ann")
    assert lives.events[-2:] == ["request_finished", "request_fetched"]


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
        await converse(wire, collection, KEYS["vera"], DEADLINE)
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
        await converse(wire, collection, KEYS["vera"], DEADLINE)
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
        await eventually("the whole reply", lambda: states(agent) == ["whole"])
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
        await eventually("the whole reply", lambda: states(agent) == ["whole"])
        (tmp_path / "fleet" / "requests" / lost.request.id / "000003.part").write_bytes(b"\x01")
        wire.listening = True
        asking = asyncio.create_task(converse(wire, lost, KEYS["vera"], DEADLINE, fresh=False))
        await eventually("its loss", lambda: "reply_lost" in lives.events)
        asking.cancel()
        await asyncio.wait([asking])
        assert not lost.answers[AGENT].whole
        collection = begun(tmp_path, request())
        await converse(wire, collection, KEYS["vera"], DEADLINE)
        return collection

    collection = asyncio.run(main())
    assert collection.answers[AGENT].whole
    assert "reply_lost" in lives.events


def test_cancelled_before_it_came(tmp_path: Path) -> None:
    """Where the request is still on its way, or was lost: it is not sent again, and not begun when it comes late, also
    after a restart of the agent."""
    lives = Lives(tmp_path)

    async def main() -> tuple[Collection, str]:
        wire = Wire(random.Random(1))
        lives.start(wire)
        collection = begun(tmp_path, request("evidence", "ann"))
        await cancel(wire, collection, KEYS["ann"])
        await converse(wire, collection, KEYS["ann"], DEADLINE, fresh=False)
        await lives.kill()
        return collection, await carried(lives, lives.start(wire), collection.envelope)

    collection, late = asyncio.run(main())
    answer = collection.answers[AGENT]
    assert (answer.whole, answer.state, answer.reason) == (True, "cancelled", "cancelled by ann")
    assert "cancelled before it came" in late
    assert "request_received" not in lives.events


def test_another_operator_cancels(tmp_path: Path) -> None:
    """Who has the role, in his own name."""
    lives = Lives(tmp_path)
    ann = structs.replace(OPERATORS.by_name["ann"], expires=LATER)
    bob = structs.replace(ann, name="bob", key=KEYS["vera"].public_key())
    lives.fleet.operators = replace(OPERATORS, by_name={"ann": ann, "bob": bob})

    async def main() -> Collection:
        wire = Wire(random.Random(1))
        agent = lives.start(wire)
        first = begun(tmp_path, request("evidence", "ann"))
        await wire.send(AGENT, first.envelope)
        await eventually("its work", lambda: states(agent) == ["running"])
        collection = Collection(first.folder, AUTHORITY.pem, operator="bob")
        await cancel(wire, collection, KEYS["vera"])
        await converse(wire, collection, KEYS["vera"], DEADLINE, fresh=False)
        return collection

    assert asyncio.run(main()).answers[AGENT].reason == "cancelled by bob"


@pytest.mark.parametrize("change", ["removed", "role", "key", "expired"])
@pytest.mark.parametrize("killed", [False, True])
def test_operator_is_taken_out(tmp_path: Path, change: str, killed: bool) -> None:
    """What an operator asked ends when he may not ask it any more, and what was found is sent to nobody; it is
    recorded why. Those of others go on."""
    lives = Lives(tmp_path)

    async def main() -> tuple[Wire, Collection]:
        wire = Wire(random.Random(1))
        agent = lives.start(wire)
        ended, other = begun(tmp_path, request("evidence", "ann")), begun(tmp_path, request())
        await wire.send(AGENT, ended.envelope)
        wire.listening = False
        await wire.send(AGENT, other.envelope)
        await eventually("its work", lambda: sorted(states(agent)) == ["running", "whole"])
        if killed:
            await lives.kill()
        ann = structs.replace(OPERATORS.by_name["ann"], expires=LATER)
        new = {
            "removed": {},
            "role": {"ann": structs.replace(ann, roles=frozenset({"viewer"}))},
            "key": {"ann": structs.replace(ann, key=KEYS["otto"].public_key())},
            "expired": {"ann": structs.replace(ann, expires=utc_now() - 1)},
        }[change]
        vera = structs.replace(OPERATORS.by_name["vera"], expires=LATER)
        lives.fleet.operators = replace(OPERATORS, serial=2, by_name={"vera": vera, **new})
        if killed:
            agent = lives.start(wire)
        await eventually("its end", lambda: ended.request.id not in [row["id"] for row in agent.status()])
        wire.up, wire.listening = asyncio.Queue(), True
        await converse(wire, ended, KEYS["ann"], 0.5, fresh=False)
        await converse(wire, other, KEYS["vera"], DEADLINE, fresh=False)
        assert not ended.answers[AGENT].have
        return wire, other

    _, other = asyncio.run(main())
    assert other.answers[AGENT].whole
    why = {"removed": "no operator", "role": "the role analyst", "key": "another key", "expired": "until"}[change]
    [row] = [row for row in lives.record if row["event"] == "request_ended"]
    assert (row["operator"], row["kind"]) == ("ann", "evidence")
    assert why in row["why"]
    assert len([*(tmp_path / "fleet" / "requests").glob("*/request.json")]) <= 1


def test_no_record_no_act(tmp_path: Path) -> None:
    """A host that cannot write its record answers nothing, and says so; once it can, it answers."""
    lives = Lives(tmp_path)
    path = lives.fleet.record.audit.path

    async def main() -> tuple[Collection, Collection]:
        wire = Wire(random.Random(1))
        agent = lives.start(wire)
        path.write_bytes(b"not a record\n")
        refused = begun(tmp_path, request())
        await converse(wire, refused, KEYS["vera"], DEADLINE)
        assert not agent.status()
        path.unlink()
        answered = begun(tmp_path, request())
        await converse(wire, answered, KEYS["vera"], DEADLINE)
        return refused, answered

    refused, answered = asyncio.run(main())
    answer = refused.answers[AGENT]
    assert (answer.state, answer.reason) == ("refused", "not recorded: this host cannot write its audit record")
    assert answered.answers[AGENT].state == "done"


def test_records_are_not_written_by_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk holds up no event of the agent: nothing of a request's life is synced by its event loop, and the
    record has its lines in order, each before what it records."""
    lives, loop, real = Lives(tmp_path), threading.get_ident(), os.fsync
    monkeypatch.setitem(cast(Any, KINDS), "ask", ASK)
    by_loop: list[str] = []

    def fsync(descriptor: int) -> None:
        if threading.get_ident() == loop and armed:
            by_loop.append("".join(traceback.format_stack(limit=6)))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    armed: list[bool] = []

    async def main() -> None:
        wire = Wire(random.Random(1))
        agent = lives.start(wire)
        collection = begun(tmp_path, request(body={"question": "status"}))
        armed.append(True)
        wire.listening = False
        for envelope in (collection.envelope, collection.envelope, b"x"):
            await wire.send(AGENT, envelope)
        await eventually("the record", lambda: states(agent) == ["whole"] and len(lives.record) >= 5)
        await lives.kill()
        armed.clear()

    asyncio.run(main())
    assert not by_loop, by_loop[0]
    events = lives.events
    assert [one for one in events if one != "request_refused"] == [
        "request_received", "request_started", "request_finished"
    ]  # fmt: skip
    assert events.count("request_refused") == 2
