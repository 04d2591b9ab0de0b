"""The centre's side of a request: signed, sent, and its replies collected until they are whole.

    FOLDER/audit.jsonl             what was asked, by whom, why; what came; what was refused
    FOLDER/ID/request.json         the envelope
    FOLDER/ID/agents.json          whom it was sent to
    FOLDER/ID/alert                of evidence: the alert that it is for
    FOLDER/ID/carry                it waits to be carried by hand, until all have answered
    FOLDER/ID/cancel.json          it was cancelled: what agents are sent, in place of the request where it is carried
    FOLDER/ID/AGENT/NNNNNN.part    parts of that agent's reply, as they came

A part is believed only when the agent that the topic names has signed it, by a certificate of the region's authority
that is not revoked, for a request of this folder, which it was asked. What an agent may send is bounded by the kind:
bytes of a part, parts, bytes in all; beyond that nothing more of it is taken. Parts are on disk before they count, so a
collection that was ended anywhere goes on where it was (``converse`` again): agents are asked for what lacks.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import orjson
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vedette.delivery.receipts import ranges
from vedette.delivery.topics import ROOT, agent_topic, parse
from vedette.fleet.audit import Audit
from vedette.fleet.folded import Folded
from vedette.fleet.job import PART_FULL, Limits
from vedette.fleet.kinds import KINDS
from vedette.fleet.labels import labels_of
from vedette.fleet.replies import MAX_MESSAGE, Part, Reply, ReplyRefused, records, unpack
from vedette.fleet.requests import CANCEL, ID, RESUME, Request, cancelled, follow_up, read
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Message, Session
from vedette.mqtt.settings import MqttSettings
from vedette.system import documents, foreign
from vedette.system.documents import Name
from vedette.system.durable import write_whole
from vedette.system.wallclock import utc_now
from vedette.system.within import is_name

CONNECT_SECONDS = 15.0
SILENT_SECONDS = 3.0
"""After which an agent is asked for what lacks; twice as long each time that brings nothing, up to MAX_SILENT."""
MAX_SILENT = 60.0
LOOK_SECONDS = 5.0
"""Between two looks whether to give way."""
MAX_WAITING = 256
"""Messages that have come and are not looked at yet."""
BODY_SHOWN = 4 << 10
"""Bytes of a request's body in the record; of a longer one its size."""
SHOWN = 100
"""Agents named in the record."""
CARRY = "carry"
"""Marks a request that is carried by hand."""
CANCELLED = "cancel.json"
"""Of a request that was cancelled."""
_FILES = ("request.json", "agents.json", "alert", CARRY, CANCELLED, "console.json")


class Wire(Protocol):
    """Carries envelopes to agents and their replies back."""

    async def send(self, agent: str, envelope: bytes) -> None:
        """Raises OSError."""

    async def reply(self) -> tuple[str, bytes]:
        """The next message, and the agent that it came from."""


@dataclass(slots=True)
class Answer:
    """How far one agent's reply has come."""

    have: set[int] = field(default_factory=set)
    size: int = 0
    """Bytes of records."""
    last: int | None = None
    state: str = ""
    """Of the last part: see ``fleet.replies.STATES``; empty: it has not come."""
    reason: str = ""
    stopped: str = ""
    """Why nothing more of it is taken."""

    @property
    def whole(self) -> bool:
        return self.last is not None and len(self.have) == self.last + 1

    @property
    def over(self) -> bool:
        return self.whole or bool(self.stopped)


class Collection:
    """The replies to one request, in its folder."""

    def __init__(self, folder: Path, authorities: bytes, revoked: Iterable[int] = (), operator: str = "") -> None:
        """``folder``: FOLDER/ID; ``operator``: who goes on with it, when that is another one than has asked. Raises
        OSError, ValueError when it holds no request."""
        self.folder, self._authorities, self._revoked = folder, authorities, frozenset(revoked)
        self.request, _, self.envelope, agents = made(folder)
        self.operator = operator or self.request.operator
        self.limits: Limits = KINDS[self.request.kind].limits
        self.answers: dict[str, Answer] = {agent: Answer() for agent in agents}
        self.audit = Audit(folder.parent / "audit.jsonl")
        self._folded = Folded(self.audit)
        self.refusals: list[str] = []
        """Why parts were refused since it was opened; the first of them."""
        for agent, answer in self.answers.items():
            for path in sorted(self._parts(agent).glob("*.part")):
                with suppress(ReplyRefused):  # damaged: it comes again
                    self._count(answer, unpack(path.read_bytes(), self.request.fleet, None).part)

    @classmethod
    def begin(
        cls, folder: Path, request: Request, key: Ed25519PrivateKey, agents: Sequence[str], authorities: bytes,
        revoked: Iterable[int] = (), *, alert: str = "", beside: Callable[[Path], None] = lambda place: None,
    ) -> Collection:  # fmt: skip
        """A new one in FOLDER; ``beside`` writes what its maker keeps with it. Nothing stays of one that cannot be
        written. Raises ValueError for names that are none, OSError, and what ``beside`` raises."""
        if unfit := [agent for agent in agents if not is_name(agent)]:
            raise ValueError(f"{unfit[0]!r} is no agent id")
        envelope = request.signed(key)
        read(envelope)
        place = folder / request.id
        place.mkdir(mode=0o700, parents=True)
        folder.chmod(0o700)
        try:
            write_whole(place / "request.json", envelope, 0o600)
            write_whole(place / "agents.json", orjson.dumps([*agents]), 0o600)
            if alert:
                write_whole(place / "alert", alert.encode(), 0o600)
            beside(place)
            new = cls(place, authorities, revoked)
            body = orjson.dumps(dict(request.body))
            shown = {"body": dict(request.body)} if len(body) <= BODY_SHOWN else {"body_bytes": len(body)}
            new.audit.append(
                "request_made", request=request.id, operator=request.operator, kind=request.kind, **shown,
                agents=[*agents][:SHOWN], asked=len(agents), group=request.group or "", reason=request.reason,
            )  # fmt: skip
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return new

    @property
    def alert(self) -> str:
        """The alert that evidence was asked for; empty: none. Raises OSError."""
        path = self.folder / "alert"
        return path.read_text() if path.exists() else ""

    @property
    def cancelled(self) -> bool:
        return (self.folder / CANCELLED).exists()

    def cancel(self, key: Ed25519PrivateKey) -> None:
        """It is sent to nobody any more. Raises OSError."""
        envelope = cancelled(self.request, moment(), self.operator).signed(key)
        self.audit.append("request_cancelled", request=self.request.id, operator=self.operator)
        write_whole(self.folder / CANCELLED, envelope, 0o600)

    def carry(self) -> None:
        """Have it carried by hand. Raises OSError."""
        write_whole(self.folder / CARRY, b"", 0o600)

    def take(self, agent: str, message: bytes) -> Reply | None:
        """Keep a part that ``agent`` sent; None: it was refused, which is recorded, or is here already. Raises
        OSError."""
        try:
            reply = unpack(message, self.request.fleet, self._authorities, self._revoked)
            if reply.agent != agent:
                raise ReplyRefused("agent", f"signed by {reply.agent}")
            if reply.request != self.request.id:
                return None  # of another operator's request, or an earlier one
            if agent not in self.answers:
                raise ReplyRefused("agent", "it was not asked")
            answer, part = self.answers[agent], reply.part
            if answer.stopped or part.number in answer.have:
                return None
            if part.state == "unknown":
                return reply
            self._bounded(answer, part)
            records(part)
        except ReplyRefused as error:
            self._refuse(agent, error)
            return None
        place = self._parts(agent)
        place.mkdir(mode=0o700, exist_ok=True)
        write_whole(place / f"{part.number:06}.part", message, 0o600)
        self._count(answer, part)
        if answer.whole:
            self.audit.append(
                "reply_whole", request=self.request.id, agent=agent, state=answer.state, why=answer.reason,
                parts=len(answer.have), bytes=answer.size,
            )  # fmt: skip
        return reply

    def parts(self, agent: str) -> Iterator[Part]:
        """The parts of a reply in order, up to the first that lacks. Raises OSError."""
        have = self.answers[agent].have
        for number in range(len(have)):
            if number not in have:
                return
            yield unpack((self._parts(agent) / f"{number:06}.part").read_bytes(), self.request.fleet, None).part

    def records(self, agent: str) -> Iterator[dict[str, Any]]:
        """What an agent said, in order. Raises OSError."""
        for part in self.parts(agent):
            yield from records(part)

    def close(self) -> None:
        """Write what the record still counts, and who answered. Raises OSError."""
        self._folded.settle(all=True)
        if all(answer.over for answer in self.answers.values()):
            (self.folder / CARRY).unlink(missing_ok=True)
        whole = sum(answer.whole for answer in self.answers.values())
        self.audit.append(
            "request_collected", request=self.request.id, asked=len(self.answers), whole=whole,
            lacking=[agent for agent, answer in self.answers.items() if not answer.whole][:SHOWN],
        )  # fmt: skip

    def _parts(self, agent: str) -> Path:
        """The folder of an agent's parts; with a dot, with which no name begins, where a file has the agent's name."""
        return self.folder / (f".{agent}" if agent in _FILES else agent)

    def _count(self, answer: Answer, part: Part) -> None:
        answer.have.add(part.number)
        answer.size += part.size
        if part.last:
            answer.last, answer.state, answer.reason = part.number, part.state, part.reason

    def _bounded(self, answer: Answer, part: Part) -> None:
        """Raises ReplyRefused for a part beyond what the kind may have; nothing more of that agent is taken then."""
        most = int(self.limits.seconds) + self.limits.bytes // PART_FULL + 10
        if part.number > most or answer.size + part.size > self.limits.bytes:
            answer.stopped = f"its reply has more than {self.limits.bytes:,} bytes or {most:,} parts"
        elif (answer.last is not None and part.number > answer.last) or (
            part.last and answer.have and max(answer.have) > part.number
        ):
            answer.stopped = "its reply has parts behind the last one"
        if answer.stopped:
            raise ReplyRefused("bomb", answer.stopped)

    def _refuse(self, agent: str, error: ReplyRefused) -> None:
        named = agent if agent in self.answers else "others"
        if len(self.refusals) < SHOWN:
            self.refusals.append(f"{error.kind}: {error}")
        if error.kind == "bomb" and agent in self.answers and not self.answers[agent].stopped:
            self.answers[agent].stopped = str(error)
        self._folded.append(
            "reply_refused", (named, error.kind), request=self.request.id, agent=agent, refused=error.kind,
            why=str(error),
        )  # fmt: skip


async def converse(
    wire: Wire, collection: Collection, key: Ed25519PrivateKey, wait: float, *, fresh: bool = True,
    news: Callable[[str, Part], None] = lambda agent, part: None, gives_way: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
    """Send the request (``fresh``) or ask for what lacks, and take replies, until all are whole or ``wait`` seconds are
    over, or ``gives_way``, which is asked every few seconds. ``news`` is given each part as it is kept. Raises OSError
    when the wire fails."""
    now = time.monotonic()
    until = now + wait
    due = dict.fromkeys(collection.answers, (now + (SILENT_SECONDS if fresh else 0.0), SILENT_SECONDS))
    if fresh:
        for agent in collection.answers:
            await wire.send(agent, collection.envelope)
    for agent, answer in collection.answers.items():
        if not fresh and answer.whole:
            await _resume(wire, collection, key, agent)
    while any(not answer.over for answer in collection.answers.values()) and now < until and not gives_way():
        next_due = min(at for agent, (at, _) in due.items() if not collection.answers[agent].over)
        came: tuple[str, bytes] | None = None
        reply: Reply | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.01, min(next_due, until, now + LOOK_SECONDS) - now)):
                came = await wire.reply()
        if came is not None:
            reply = await asyncio.to_thread(collection.take, *came)
        now = time.monotonic()
        if reply is not None and reply.part.state == "unknown" and collection.cancelled:
            collection.answers[reply.agent].stopped = "cancelled before it came there"
        elif reply is not None and reply.part.state == "unknown":
            await wire.send(reply.agent, collection.envelope)  # it was lost on the way; its nonce counts once
            due[reply.agent] = (now + SILENT_SECONDS, SILENT_SECONDS)
        elif reply is not None:
            due[reply.agent] = (now + SILENT_SECONDS, SILENT_SECONDS)
            news(reply.agent, reply.part)
            if collection.answers[reply.agent].whole:
                await _resume(wire, collection, key, reply.agent)
        for agent, (at, pause) in due.items():
            if at <= now and not collection.answers[agent].over:
                await _resume(wire, collection, key, agent)
                due[agent] = (now + pause, min(2 * pause, MAX_SILENT))


async def cancel(wire: Wire, collection: Collection, key: Ed25519PrivateKey) -> None:
    """Stop a request on every agent whose reply is not whole. Raises OSError."""
    collection.cancel(key)
    await call_off(wire, collection, key)


async def call_off(wire: Wire, collection: Collection, key: Ed25519PrivateKey) -> None:
    """Tell agents that a request was cancelled, once more. Raises OSError."""
    for agent, answer in collection.answers.items():
        if not answer.over:
            request = follow_up(collection.request, CANCEL, [agent], moment(), operator=collection.operator)
            await wire.send(agent, request.signed(key))


async def _resume(wire: Wire, collection: Collection, key: Ed25519PrivateKey, agent: str) -> None:
    """Say what has come of an agent's reply, and when that is all; of a refused request it keeps nothing."""
    answer = collection.answers[agent]
    if answer.state == "refused":
        return
    body = {"have": [[first, last] for first, last in ranges(answer.have)][:1000], "done": answer.whole}
    request = follow_up(collection.request, RESUME, [agent], moment(), body, operator=collection.operator)
    await wire.send(agent, request.signed(key))


def moment() -> int:
    """Whole seconds in UTC microseconds, as requests have them."""
    return utc_now() // 1_000_000 * 1_000_000


class Made(NamedTuple):
    """A request of a folder, as it was signed, and whom it asks."""

    request: Request
    signature: bytes
    envelope: bytes
    agents: list[str]


def made(folder: Path) -> Made:
    """``folder``: FOLDER/ID. Raises ValueError for a file that was damaged, OSError."""
    path = folder / "request.json"
    try:
        envelope = path.read_bytes()
        request, signature = read(envelope)
        path = folder / "agents.json"
        agents = documents.read(list[Name], foreign.read(path.read_bytes()))
    except FileNotFoundError as error:
        raise ValueError(f"{path} is missing: the request was not made to its end; make another") from error
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): remove {folder}, and make the request again") from error
    return Made(request, signature, envelope, agents)


def find(folder: Path, id: str) -> Path:
    """The folder of a request by the first digits of its id. Raises ValueError."""
    every = (path.parent for path in folder.glob("*/request.json"))
    folders = [path for path in every if path.name.startswith(id) and ID.fullmatch(path.name)]
    if len(folders) != 1:
        raise ValueError(f"{folder}: {len(folders) or 'no'} requests have an id that begins with {id!r}")
    return folders[0]


def revoked_serials(path: Path) -> frozenset[int]:
    """Of the region's ``crl.pem``, one list or several. Raises ValueError and OSError."""
    pem, serials = path.read_bytes(), set[int]()
    for part in re.findall(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----\n?", pem, re.DOTALL):
        serials |= {entry.serial_number for entry in x509.load_pem_x509_crl(part)}
    if b"BEGIN X509 CRL" not in pem:
        raise ValueError(f"{path}: not a list of revoked certificates")
    return frozenset(serials)


class MqttWire:
    """By a broker: ``commands`` down, ``replies`` up."""

    def __init__(self, client: MqttClient, fleet: str, inbox: asyncio.Queue[Message]) -> None:
        self._client, self._fleet, self._inbox = client, fleet, inbox

    async def send(self, agent: str, envelope: bytes) -> None:
        await self._client.publish(agent_topic(self._fleet, agent, "commands"), envelope)

    async def reply(self) -> tuple[str, bytes]:
        while True:
            message = await self._inbox.get()
            self._client.ack(message)
            with suppress(ValueError):
                return parse(message.topic).agent_id, message.payload


@asynccontextmanager
async def by_broker(broker: MqttSettings, fleet: str, name: str) -> AsyncIterator[MqttWire]:
    """A wire over a broker, connected; ``name``: part of the client id. Raises ConnectionError."""
    inbox: asyncio.Queue[Message] = asyncio.Queue(2 * MAX_WAITING)

    def came(message: Message) -> None:
        with suppress(asyncio.QueueFull):  # QoS 1 stays below it, since it is acknowledged as the queue is emptied
            inbox.put_nowait(message)

    client = MqttClient(
        broker, f"vedette-fleet-{name}", subscriptions=[f"{ROOT}/{fleet}/+/replies"], on_message=came,
        session=Session(clean_start=True, max_packet=2 * MAX_MESSAGE, receive_maximum=MAX_WAITING),
    )  # fmt: skip
    async with client.running():
        async with client.within(CONNECT_SECONDS, "ask by"):
            await client.connected.wait()
        yield MqttWire(client, fleet, inbox)


def chosen(beats: Mapping[str, Mapping[str, Any]], matches: Callable[[Mapping[str, str]], bool]) -> list[str]:
    """The agents whose labels, as their heartbeats have them, match."""
    agents = []
    for agent, beat in beats.items():
        if (own := labels_of(beat)) and matches(own):
            agents.append(agent)
    return sorted(agents)
