"""The service by which hosts become members and renew their certificates: ``vedette region enroller``.

It answers requests (``fleet/enrolment.py``) and certificate signing requests of members, both over the region's broker.
Each decision is on disk and in the audit record before it is answered; the broker's access list is written and reloaded
once for all requests that came together, before their answers go out, so that a new member can connect when it reads
its answer. Killed anywhere: the broker keeps unacknowledged requests, hosts ask again with the same key and get the
same certificate. The list is written and reloaded at each start, and until the reload has succeeded.

A request with a wrong or unknown token is not answered: who sent it cannot tell a true answer from a forged one. Of
refusals REFUSALS a minute are audited, and a request that comes again adds no line. What is too large, or comes without
an acknowledgement (QoS 0), is dropped unread: nobody without a certificate fills memory or disk.

A member's latest answer is retained on its ``certificate`` topic: a change of the region's authorities reaches agents
that were away. They believe nothing there that an authority they trust has not signed.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import subprocess
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from vedette.delivery.topics import ROOT, agent_topic, enrolment_answer, enrolment_requests, parse
from vedette.fleet.certificates import requested_key
from vedette.fleet.enrolment import (
    ANSWER,
    MAX_MESSAGE,
    Answer,
    EnrolmentRefused,
    Renewal,
    Request,
    frame,
    read_request,
    token_of,
)
from vedette.model.counters import Log
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import REGION_PACKET, Message, Session
from vedette.mqtt.settings import MqttSettings
from vedette.region import renewals
from vedette.region.enroll import Region
from vedette.region.guard import Guard
from vedette.region.tokens import Grant, Tokens

log = structlog.get_logger()

BATCH = 500
"""Requests that are decided together."""
GATHER_SECONDS = 0.2
"""For which further requests are waited for."""
RELOAD_SECONDS = 30.0
AUTHORITIES_SECONDS = 60.0
"""Between two looks whether the authorities have changed."""
REFUSALS = 60
"""Of requests, that are audited and logged in a minute."""


@dataclass(frozen=True, slots=True)
class EnrollerSettings:
    """What ``vedette region enroller`` is given. ``days``: of a certificate; ``reload``: a command, run without a
    shell, after which the broker knows the new access list; ``say``: ``Answer.settings`` for every host."""

    broker: MqttSettings
    folder: Path
    client_id: str = "vedette-enroller"
    _: KW_ONLY
    days: int = 90
    reload: str = ""
    say: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


class _Out(NamedTuple):
    topic: str
    payload: bytes
    retain: bool


class Enroller:
    def __init__(self, settings: EnrollerSettings) -> None:
        self._settings = settings
        self._received: asyncio.Queue[Message] = asyncio.Queue()  # of QoS 1: bounded by the receive maximum
        self._guard = Guard()
        self._minute, self._refusals = 0, 0
        self._due = True
        """Whether the broker may not know the access list: of the life before nobody can say."""
        self._turn = asyncio.Lock()
        self._sent = b""
        """The authorities that were sent last."""
        self.client = MqttClient(
            settings.broker,
            settings.client_id,
            subscriptions=[enrolment_requests(), f"{ROOT}/+/+/csr"],
            on_message=self._receive,
            session=Session(expiry=86400, receive_maximum=BATCH, max_packet=REGION_PACKET),
        )

    def _receive(self, message: Message) -> None:
        if message.qos and len(message.payload) <= MAX_MESSAGE:
            self._received.put_nowait(message)
        else:
            self.client.ack(message)

    async def run(self) -> None:
        """Serve until cancelled. Raises ValueError and OSError of the region's folder."""
        await self.client.run_with(self._serve(), self._spread())

    async def _serve(self) -> None:
        while True:
            batch = [await self._received.get()]
            await asyncio.sleep(GATHER_SECONDS)
            while not self._received.empty() and len(batch) < BATCH:
                batch.append(self._received.get_nowait())
            async with self._turn:
                answers = await asyncio.to_thread(self._decide, batch)
            for answer in answers:
                with contextlib.suppress(OSError):  # not connected, or refused: the host asks again
                    await self.client.publish(answer.topic, answer.payload, retain=answer.retain)
            for message in batch:
                self.client.ack(message)

    async def _spread(self) -> None:
        """Send changed authorities to every member that keeps its own key."""
        while True:
            await self.client.connected.wait()
            async with self._turn:
                lines = await asyncio.to_thread(self._changed)
            for line in lines:
                with contextlib.suppress(OSError):
                    await self.client.publish(line.topic, line.payload, retain=True)
            await asyncio.sleep(AUTHORITIES_SECONDS)

    # --- in a thread, one at a time

    def _decide(self, batch: list[Message]) -> list[_Out]:
        answers: list[_Out] = []
        with Region.open(self._settings.folder) as region:
            tokens, before = Tokens(region.folder), _access(region)
            for message in batch:
                with self._guard.over(message.topic):
                    if message.topic == enrolment_requests():
                        answers += self._enrol(region, tokens, message.payload)
                    else:
                        answers += self._renew(region, message)
            self._due = self._due or _access(region) != before
            if self._due:
                region.publish_access()
        self._reload()
        return answers

    def _enrol(self, region: Region, tokens: Tokens, payload: bytes) -> list[_Out]:
        try:
            grant = tokens.find(token_of(payload))
            request = read_request(payload, grant.token().secret)
        except EnrolmentRefused as error:
            self._refused(region, "enrolment_refused", str(error))
            return []
        try:
            answer = self._admit(region, tokens, grant, request)
        except ValueError as error:
            about = {"name": request.name, "token": grant.id, "machine": request.machine}
            self._refused(region, "enrolment_refused", str(error), **about)
            answer = Answer(request.id, refused=str(error)[:1000])
        return [_Out(enrolment_answer(request.id), frame(ANSWER, answer, grant.token().secret), False)]

    def _admit(self, region: Region, tokens: Tokens, grant: Grant, request: Request) -> Answer:
        now = datetime.now(UTC)
        tokens.count(grant.id, [member.name for member in region.members.values() if member.token == grant.id])
        if request.fleet != grant.fleet:
            raise EnrolmentRefused(f"the token is for fleet {grant.fleet}")
        grant.check(request.name, now.timestamp())
        before = region.members[request.name].serial if request.name in region.members else ""
        certificate = region.admit(
            request.name, requested_key(request.csr), fleet=grant.fleet, labels=grant.labels,
            machine=request.machine, token=grant.id, version=request.version, days=self._settings.days, now=now,
        )  # fmt: skip
        tokens.spend(grant.id, request.name)
        if region.members[request.name].serial != before:
            about = {"name": request.name, "fleet": grant.fleet, "token": grant.id, "machine": request.machine}
            log.info(Log.ENROLLED, **about)
        say = {**self._settings.say, "labels": grant.labels}
        return Answer(
            request.id, certificate.decode(), region.authorities.pem().decode(), say, dict(self._settings.files)
        )

    def _renew(self, region: Region, message: Message) -> list[_Out]:
        try:
            fleet, name, leaf = parse(message.topic)
            if leaf != "csr":
                raise ValueError(f"{leaf} is no request")
            renewal, fresh = renewals.renew(region, fleet, name, message.payload, self._settings.days)
        except ValueError as error:
            self._refused(region, "renewal_refused", str(error), topic=message.topic[:300])
            return []
        if fresh:
            log.info(Log.CERTIFICATE_RENEWED, name=name, fleet=fleet)
        return [_out(fleet, name, renewal)]

    def _changed(self) -> list[_Out]:
        answers: list[_Out] = []
        with Region.open(self._settings.folder) as region:
            if self._due:
                region.publish_access()
            if (now := region.authorities.pem()) != self._sent:
                self._sent = now
                for member in region.members.values():
                    if member.active and member.key:
                        try:
                            renewal = renewals.answer(region, region.certificate(member.name))
                        except ValueError as error:
                            log.error(Log.ENROLMENT_REFUSED, name=member.name, reason=str(error))
                        else:
                            answers.append(_out(member.fleet, member.name, renewal))
        self._reload()
        return answers

    def _refused(self, region: Region, event: str, reason: str, **about: str) -> None:
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._refusals = minute, 0
        self._refusals += 1
        if self._refusals <= REFUSALS:
            region.audit(event, **about, reason=reason[:1000])
            log.warning(Log.ENROLMENT_REFUSED, **about, reason=reason)

    def _reload(self) -> None:
        """Have the broker read the access list, when it must, with the folder unlocked: the command may hang."""
        if not self._due:
            return
        try:
            if not self._settings.reload:
                log.warning(Log.ACCESS_CHANGED, action="give the broker the new access list, and reload it (SIGHUP)")
            else:
                command = shlex.split(self._settings.reload)
                subprocess.run(command, check=True, timeout=RELOAD_SECONDS, capture_output=True)
            self._due = False
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            log.error(Log.ACCESS_CHANGED, command=self._settings.reload, reason=str(error), action="reload the broker")


def _out(fleet: str, name: str, renewal: Renewal) -> _Out:
    return _Out(agent_topic(fleet, name, "certificate"), renewal.to_bytes(), True)


def _access(region: Region) -> list[tuple[str, bool, int]]:
    return sorted((member.name, member.active, len(member.revoked)) for member in region.members.values())
