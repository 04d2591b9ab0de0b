"""What operators ask of this agent: taken, worked on, answered, and recorded for its owner.

Loaded only with ``[fleet] root``. Requests come on the agent's ``commands`` topic, or as files that somebody has
carried here (``carried``), which are removed once they are decided on; who may ask is in the fleet's signed list of
operators, what may be asked in ``[fleet] allow`` of this host's own file.
``fleet/requests.py`` decides, ``fleet/kinds.py`` has the kinds, ``fleet/spool.py`` keeps requests and replies until the
operator has them: after a kill both go on where they were.

Replies go out a part at a time beside the alerts, so that they never hold up more than one message of the uplink. Where
nobody listens they wait for the operator's ``resume``, which says what has come. Whatever comes is bounded: the queue
of messages, requests under way, bytes that wait. Requests and refusals are in ``audit.jsonl``, refusals folded.
"""

from __future__ import annotations

import asyncio
import base64
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import orjson
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from vedette.delivery.topics import agent_topic
from vedette.fleet import actual, replies
from vedette.fleet.carried import REQUESTS
from vedette.fleet.job import Job, Kind, Services, Stopped
from vedette.fleet.kinds import KINDS
from vedette.fleet.operators import Operators
from vedette.fleet.replies import Part, Signer
from vedette.fleet.requests import (
    CANCEL,
    MAX_REQUEST,
    RESUME,
    UNANSWERED,
    Host,
    Refused,
    Request,
    about_request,
    admit,
    read,
    withdrawn,
)  # fmt: skip
from vedette.fleet.signedtime import SignedTime
from vedette.fleet.spool import Held, Spool
from vedette.model.counters import Log
from vedette.runtime.member.reports import Record
from vedette.runtime.pipeline.context import RunContext
from vedette.system.durable import stamp

if TYPE_CHECKING:
    from vedette.mqtt.connection import Message

log = structlog.get_logger()

MAX_WAITING = 32
"""Messages that have come and are not looked at yet."""
MAX_REFUSALS = 1000
"""Refused requests that are remembered, so that each is answered once."""
EXPIRY_SECONDS = 30.0
"""Between two looks for what has expired."""
ENTITLED_SECONDS = 1.0
"""Between two looks whether operators may still ask what is under way."""
RETRY_SECONDS = 5.0
UNRECORDED = "this host cannot write its audit record"
BODY_SHOWN = 4 << 10
"""Bytes of a request's body in the record; of a longer one its size."""


class Trusting(Protocol):
    """What the agent's side of its fleet knows: who may ask, and until when that is known to be true."""

    @property
    def operators(self) -> Operators | None: ...

    @property
    def trusted_until(self) -> int: ...

    @property
    def time(self) -> SignedTime: ...

    @property
    def record(self) -> Record: ...


class Outlet(Protocol):
    """Carries a part of a reply. False: nobody takes it now. Raises ConnectionError, PermissionError."""

    async def reply(self, data: bytes) -> bool: ...


class Requests:
    """The agent's side of what operators ask; see the module's text."""

    def __init__(self, context: RunContext, fleet: Trusting, services: Services) -> None:
        """Blocks on the disk. Raises OSError."""
        self._context, self._fleet, self._services = context, fleet, services
        self._spool = Spool(context.config.agent.fleet_dir / "requests", fleet.time)
        self._incoming: asyncio.Queue[bytes] = asyncio.Queue(MAX_WAITING)
        self._dropped = 0
        """Messages that found it full, since that was recorded."""
        self._carrying = asyncio.Lock()
        self._came_before = any((context.config.agent.fleet_dir / REQUESTS).glob("*.json"))
        """Requests were carried here while no agent ran."""
        self._outlet: Outlet | None = None
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = {name: asyncio.Semaphore(kind.limits.at_once) for name, kind in KINDS.items()}
        self._outgoing: dict[str, set[int]] = {}
        """Requests whose parts are sent, and those of their parts that have been."""
        self._ending: set[str] = set()
        """Requests whose operators may not ask them any more, until they have ended."""
        self._checked: Operators | None = None
        """Who were operators when what is under way was last held against them; None: look again."""
        self._refused: OrderedDict[str, None] = OrderedDict()
        self._answers: list[tuple[str, bytes]] = []
        """Refusals to be sent: request, message."""
        self._parts = asyncio.Event()
        self._signer: tuple[object, Signer] | None = None

    def attach(self, uplink: Any) -> None:
        """Take requests from, and reply by, ``uplink`` (``MqttUplink``), in place of the one before."""
        self._outlet = uplink
        uplink.subscribe(self._topic, self._came)
        self._parts.set()

    async def carried(self) -> list[dict[str, str]]:
        """Decide on the requests that were carried here, but for those that ask others; of each its file, and why it is
        refused. Raises OSError."""
        folder, refusals = self._context.config.agent.fleet_dir / REQUESTS, []
        async with self._carrying:
            for path in await asyncio.to_thread(lambda: sorted(folder.glob("*.json"))):
                envelope = await asyncio.to_thread(_start_of, path)
                if self._asked(envelope):
                    refused = await self._decide(envelope)
                    kind, why = ("", "") if refused is None else (refused.kind, str(refused))
                    refusals.append({"request": path.stem, "refused": kind, "why": why})
                await asyncio.to_thread(path.unlink, missing_ok=True)
        return refusals

    def waiting(self) -> dict[str, Any]:
        """What can be carried back: the parts there are of each reply, and the refusals of this life."""
        parts = {id: task.parts for id, task in self._spool.held.items()}
        return {"parts": parts, "refusals": {id: base64.b64encode(answer).decode() for id, answer in self._answers}}

    async def part(self, request: str, number: int) -> str:
        """A part of a reply as it travels, in Base64. Raises ValueError for one that this agent does not hold,
        OSError."""
        asked = self._spool.held.get(request)
        if asked is None or type(number) is not int or not 0 <= number < asked.parts:
            raise ValueError(f"no such part: {request} {number}")
        stored = await asyncio.to_thread(asked.kept, number)
        return base64.b64encode(replies.pack(request, stored.part, self._sign())).decode()

    def status(self) -> list[dict[str, Any]]:
        """The requests that this agent works on, or whose replies wait."""
        return [
            {"id": id, "operator": asked.request.operator, "kind": asked.request.kind, "parts": asked.parts,
             "bytes": asked.size, "state": "whole" if asked.whole else "running" if id in self._jobs else "waiting"}
            for id, asked in self._spool.held.items()
        ]  # fmt: skip

    async def run(self) -> None:
        """Until cancelled."""
        recorded = await self._complete_record()
        await self._withdraw()
        for asked in [*self._spool.held.values()]:
            if recorded or asked.whole:
                self._begin(asked)
        if self._came_before:
            try:
                await self.carried()
            except OSError as error:
                self._failed(error)
        senders = [asyncio.create_task(work) for work in (self._send(), self._expire(), self._entitle())]
        try:
            while True:
                envelope = await self._incoming.get()
                if dropped := self._dropped:
                    self._dropped = 0
                    await self._refusal(Refused("busy", f"more than {MAX_WAITING} messages wait"), dropped)
                try:
                    await self._decide(envelope)
                except OSError as error:
                    self._failed(error)
        finally:
            for task in (*senders, *self._tasks.values()):
                task.cancel()
            for job in self._jobs.values():
                job.stop()
            with suppress(OSError, ValueError):
                await self._fleet.record.settle(all=True)

    # --- deciding

    @property
    def _topic(self) -> str:
        agent = self._context.config.agent
        return agent_topic(agent.fleet, agent.id, "commands")

    def _came(self, message: Message) -> None:
        try:
            self._incoming.put_nowait(message.payload)
        except asyncio.QueueFull:
            self._dropped += 1

    def _asked(self, envelope: bytes) -> bool:
        """Whether this agent has to say something to it: a zip is for all hosts of a site."""
        try:
            config = self._context.config
            return read(envelope)[0].asks(config.agent.id, actual.labels(config))
        except ValueError:
            return True  # and refuse it

    async def _decide(self, envelope: bytes) -> Refused | None:
        """Act on a request; returns why not. Raises OSError."""
        try:
            self._sign()
            request = await asyncio.to_thread(admit, envelope, self._host(), KINDS, self._spool.seen, self._kind_of)
            if request.kind in (RESUME, CANCEL):
                id = about_request(request)[0]
                await asyncio.to_thread(self._spool.note, request, "" if self._kind_of(id) else id)
                await self._follow(request)
                return None
            asked = await asyncio.to_thread(self._spool.take, request, envelope)
        except Refused as error:
            await self._refusal(error)
            return error
        except ValueError as error:
            refused = Refused("certificate", str(error))
            await self._refusal(refused)
            return refused
        if not await self._received(request):
            self._spool.drop(request.id)
            refused = Refused("not recorded", UNRECORDED, request)
            await self._refusal(refused)
            return refused
        self._checked = None
        self._begin(asked)
        return None

    def _host(self) -> Host:
        config, trusted = self._context.config, self._fleet
        return Host(
            config.agent.fleet, config.agent.id, actual.labels(config), config.fleet.allow, trusted.operators,
            trusted.trusted_until, trusted.time.now,
        )  # fmt: skip

    def _kind_of(self, id: str) -> str:
        asked = self._spool.held.get(id)
        return "" if asked is None else asked.request.kind

    async def _follow(self, request: Request) -> None:
        """A ``resume`` or ``cancel``."""
        id, have, done = about_request(request)
        if request.kind == CANCEL:
            await self._record("request_cancelled", request=id, operator=request.operator)
            if (job := self._jobs.get(id)) is not None:
                job.cancel(f"cancelled by {request.operator}")
            elif id not in self._spool.held:
                part = Part(0, replies.packed(b""), 0, True, "cancelled", f"cancelled by {request.operator}")
                self._answer(id, part)
            return
        asked = self._spool.held.get(id)
        if asked is None:  # it has expired meanwhile
            return
        if done:
            if asked.whole:
                self._outgoing.pop(id, None)
                await self._record("request_fetched", request=id, operator=request.operator, parts=asked.parts)
                self._spool.drop(id)
            return
        self._outgoing[id] = {number for first, last in have for number in range(first, min(last + 1, asked.parts))}
        self._parts.set()

    async def _refusal(self, error: Refused, times: int = 1) -> None:
        """Record it, and answer it when an operator of this fleet has asked, once."""
        request = error.request
        facts = _about(request) if request is not None else {}
        try:
            await self._fleet.record.fold(
                "request_refused",
                (error.kind, facts.get("operator", "")),
                times,
                refused=error.kind,
                why=str(error),
                **facts,
            )
        except (OSError, ValueError) as failure:
            self._failed(failure)
        log.warning(Log.REQUEST_REFUSED, kind=error.kind, reason=str(error), operator=facts.get("operator", ""))
        if request is None or error.kind in UNANSWERED or request.nonce in self._refused:
            return
        self._refused[request.nonce] = None
        while len(self._refused) > MAX_REFUSALS:
            self._refused.popitem(last=False)
        id = request.body["request"] if error.kind == "unknown" else request.id
        state = "unknown" if error.kind == "unknown" else "refused"
        part = Part(0, replies.packed(b""), 0, True, state, f"{error.kind}: {error}")
        self._answer(id, part)

    def _answer(self, id: str, part: Part) -> None:
        """Send the whole reply to a request of which nothing is kept here."""
        with suppress(ValueError, OSError):
            if self._outlet is None:  # they wait to be carried: the newest count
                del self._answers[: -MAX_WAITING + 1]
            if len(self._answers) < MAX_WAITING:
                self._answers.append((id, replies.pack(id, part, self._sign())))
                self._parts.set()

    # --- working

    def _begin(self, asked: Held) -> None:
        id = asked.request.id
        self._outgoing.setdefault(id, set())
        self._parts.set()
        if not asked.whole:
            task = self._tasks[id] = asyncio.create_task(self._work(asked))
            task.add_done_callback(lambda _: (self._tasks.pop(id, None), self._jobs.pop(id, None)))

    async def _work(self, asked: Held) -> None:
        request = asked.request
        kind = KINDS.get(request.kind)
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._parts.set)

        try:
            job = Job(asked, kind.limits if kind else KINDS["ask"].limits, self._services, wake)
            self._jobs[request.id] = job
            if kind is None or kind.name not in self._context.config.fleet.allow:
                why = f"not allowed: the owner of this host does not allow {request.kind}"
                state, reason = await asyncio.to_thread(job.end, "refused", why)
            else:
                state, reason = await self._run(job, kind)
        except Stopped:
            return
        except (OSError, ValueError) as error:
            self._failed(error)
            return
        await self._finished(asked, state, reason, job.size)

    async def _run(self, job: Job, kind: Kind) -> tuple[str, str]:
        async with self._slots[kind.name]:
            await self._record("request_started", **_about(job.request))
            return await job.run(kind)

    # --- sending

    async def _send(self) -> None:
        """Parts of replies, one at a time, in turn; those of a request wait while nobody takes them."""
        while True:
            await self._parts.wait()
            self._parts.clear()
            try:
                while await self._send_one():
                    pass
            except (ConnectionError, PermissionError, TimeoutError) as error:
                if isinstance(error, PermissionError):
                    log.error(Log.REQUEST_FAILED, reason=str(error), action="allow it in the broker's access list")
                await asyncio.sleep(RETRY_SECONDS)
                self._parts.set()
            except (OSError, ValueError) as error:
                self._failed(error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _send_one(self) -> bool:
        """Whether there may be more."""
        outlet = self._outlet
        if outlet is None:
            return False
        if self._answers:
            await outlet.reply(self._answers[0][1])
            self._answers.pop(0)
            return True
        for id, sent in [*self._outgoing.items()]:
            if id in self._ending:
                self._outgoing.pop(id, None)
                continue
            asked = self._spool.held.get(id)
            number = next((n for n in range(asked.parts) if n not in sent), None) if asked is not None else None
            if asked is None or number is None:
                if asked is None or asked.whole:
                    self._outgoing.pop(id, None)
                continue
            try:
                stored = await asyncio.to_thread(asked.kept, number)
            except (OSError, ValueError) as error:  # of this request alone; others go on
                self._failed(error)
                await self._record("reply_lost", **_about(asked.request), why=str(error))
                self._outgoing.pop(id, None)
                self._spool.drop(id)
                continue
            if await outlet.reply(replies.pack(id, stored.part, self._sign())):
                sent.add(number)
            else:
                self._outgoing.pop(id, None)
            return True
        return False

    def _sign(self) -> Signer:
        """Key and certificate as they are now: they are renewed while the agent runs. Raises ValueError without any."""
        config = self._context.config
        cert, key = config.uplink.broker.cert_file, config.uplink.broker.key_file
        if cert is None or key is None:
            raise ValueError("this agent has no certificate to sign replies with: enrol it")
        try:
            changed = stamp(cert), stamp(key)
            if self._signer is None or self._signer[0] != changed:
                self._signer = changed, _signer(config.agent.fleet, config.agent.id, key, cert)
        except OSError as error:
            raise ValueError(f"the certificate to sign replies with cannot be read: {error}") from error
        return self._signer[1]

    # --- accounts

    async def _entitle(self) -> None:
        while True:
            await asyncio.sleep(ENTITLED_SECONDS)
            await self._withdraw()

    async def _withdraw(self) -> None:
        """End what an operator may not ask any more, and drop what it has found."""
        operators, now = self._fleet.operators, self._fleet.time.now()
        if operators is not None:
            for id, asked in [*self._spool.held.items()]:
                who = operators.by_name.get(asked.request.operator)
                if operators is self._checked and id not in self._ending and who is not None and now < who.expires:
                    continue
                if why := withdrawn(asked.request, asked.signature, operators, KINDS, now):
                    await self._end(id, asked, why)
        self._checked = operators

    async def _end(self, id: str, asked: Held, why: str) -> None:
        if id not in self._ending:
            await self._record("request_ended", **_about(asked.request), why=why, parts=asked.parts)
            log.warning(Log.REQUEST_ENDED, request=id, kind=asked.request.kind, reason=why)
            self._ending.add(id)
            if (job := self._jobs.get(id)) is not None:
                job.cancel(why)
        if id not in self._tasks:
            self._ending.discard(id)
            self._outgoing.pop(id, None)
            self._spool.drop(id)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            for id in self._spool.expired():
                if (job := self._jobs.get(id)) is not None:
                    job.cancel("it has expired")
                    continue
                if (asked := self._spool.held.get(id)) is None:
                    continue
                await self._record("request_expired", **_about(asked.request), parts=asked.parts)
                self._outgoing.pop(id, None)
                self._spool.drop(id)
            with suppress(OSError, ValueError):
                await self._fleet.record.settle()

    async def _complete_record(self) -> bool:
        """Record what an agent that was killed had on its disk and not in its record yet. False: it cannot be read."""
        if not self._spool.held:
            return True
        audit = self._fleet.record.audit
        try:
            recorded = await asyncio.to_thread(
                lambda: {(row["event"], row.get("request")) for row in (audit.lines() if audit.head().seq else ())}
            )
            for id, asked in [*self._spool.held.items()]:
                finished = ("request_finished", id) in recorded
                if ("request_received", id) not in recorded and not await self._received(asked.request):
                    self._spool.drop(id)
                    await self._refusal(Refused("not recorded", UNRECORDED, asked.request))
                elif asked.whole and not finished and (newest := asked.newest()) is not None:
                    await self._finished(asked, newest.part.state, newest.part.reason, newest.size)
        except (OSError, ValueError) as error:
            log.error(Log.AUDIT_FAILED, path=str(audit.path), reason=str(error))
            return False
        return True

    async def _received(self, request: Request) -> bool:
        """Whether it is recorded: nothing is worked on that is not."""
        body = orjson.dumps(dict(request.body))
        shown = {"body": dict(request.body)} if len(body) <= BODY_SHOWN else {"body_bytes": len(body)}
        return await self._record("request_received", **_about(request), reason=request.reason, **shown)

    async def _finished(self, asked: Held, state: str, why: str, size: int) -> None:
        facts = {"state": state, "why": why, "parts": asked.parts, "bytes": size}
        await self._record("request_finished", **_about(asked.request), **facts)

    async def _record(self, event: str, **facts: Any) -> bool:
        """Whether it is on the disk."""
        try:
            await self._fleet.record.append(event, **facts)
        except (OSError, ValueError) as error:
            log.error(Log.AUDIT_FAILED, path=str(self._fleet.record.audit.path), reason=str(error))
            return False
        return True

    def _failed(self, error: Exception) -> None:
        log.error(Log.REQUEST_FAILED, reason=str(error), action="it is tried again at the next start")


def _start_of(path: Path) -> bytes:
    """As much of a file as a request may have, and a byte more. Raises OSError."""
    with path.open("rb") as file:
        return file.read(MAX_REQUEST + 1)


def _about(request: Request) -> Mapping[str, Any]:
    return {"request": request.id, "operator": request.operator, "kind": request.kind}


def _signer(fleet: str, agent: str, key: Path, certificate: Path) -> Signer:
    """Raises ValueError and OSError."""
    loaded = load_pem_private_key(key.read_bytes(), password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{key}: expects a key on P-256")
    return Signer(fleet, agent, loaded, certificate.read_bytes())
