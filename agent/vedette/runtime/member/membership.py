"""The agent becomes a member of its region by a token, and renews its certificate before it ends.

Without a certificate it asks again and again, while it takes in and evaluates: alerts wait in the outbox until the
uplink may connect. Two thirds into the life of its certificate it asks for the next one, over the uplink's own
connection, until that has come; or the request is carried to the region by hand, and the answer back
(``fleet/carried.py``). What the region sends without being asked, such as another authority, is put in force when an
authority that is trusted here has signed it.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from vedette.config.settings import Config
from vedette.delivery.topics import ENROLMENT, agent_topic, enrolment_answer, enrolment_client, enrolment_requests
from vedette.fleet.carried import CERTIFICATES
from vedette.fleet.enrolment import (
    REQUEST,
    Answer,
    EnrolmentRefused,
    Request,
    Token,
    frame,
    parse_token,
    read_answer,
    read_renewal,
)
from vedette.fleet.identity import Identity
from vedette.model.counters import Log
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import Message, Session
from vedette.system.durable import write_whole
from vedette.system.trouble import Backoff
from vedette.system.wallclock import utc_now
from vedette.version import __version__

if TYPE_CHECKING:
    from vedette.delivery.uplink import MqttUplink

log = structlog.get_logger()

ANSWER_SECONDS = 60.0
"""For the answer to a request."""
RETRY_SECONDS = 5.0, 300.0
"""Between two requests."""
LOOK_SECONDS = 3600.0
"""Between two looks at the certificate, and between two requests for the next one."""
BY_HAND = "the certificate is to be renewed: carry `vedette fleet export --answers` to the region, and its answer here"
MAX_ANSWERS = 16
"""That wait to be read; further ones are dropped, and asked for again."""


class Membership:
    """Of one agent, for its whole run; ``attach`` it to each uplink."""

    def __init__(self, config: Config, joined: Callable[[], None]) -> None:
        """``joined`` is called when the agent has enrolled: its configuration says more from then on."""
        assert config.enrolment.token_file is not None
        self._config, self._token_file = config, config.enrolment.token_file
        self.identity = Identity(config.agent.identity_dir, config.agent.id)
        self._topics = [agent_topic(config.agent.fleet, config.agent.id, leaf) for leaf in ("csr", "certificate")]
        self._joined = joined
        self._uplink: MqttUplink | None = None
        self._answers: asyncio.Queue[bytes] = asyncio.Queue(MAX_ANSWERS)
        self._renewing = asyncio.Lock()
        self.problem = ""
        """Why the agent is no member yet, or its certificate could not be renewed; empty: nothing is wrong."""

    def attach(self, uplink: MqttUplink | None) -> None:
        """None: this host has no uplink, and renews by files."""
        self._uplink = uplink
        if uplink is not None:
            uplink.subscribe(self._topics[1], self._certificate)

    async def request(self) -> bytes | None:
        """For the next certificate, once that is due: to be carried by hand. Raises ValueError, OSError."""
        if not self.identity.enrolled or self.identity.renew_after() > datetime.now(UTC):
            return None
        async with self._renewing:
            return await asyncio.to_thread(self.identity.renewal_request)

    async def carried(self) -> str:
        """Put in force what was carried here, and remove it; what came of that, empty: nothing was there. Raises
        OSError."""
        path = self._config.agent.fleet_dir / CERTIFICATES / f"{self._config.agent.id}.json"
        try:
            answer = await asyncio.to_thread(path.read_bytes)
        except FileNotFoundError:
            return ""
        changed = await self._renew(answer)
        await asyncio.to_thread(path.unlink, missing_ok=True)
        if self.problem:
            return f"refused: {self.problem}"
        return f"renewed until {self.state()['certificate_expires']}" if changed else "as it was"

    def state(self) -> dict[str, Any]:
        ends = self.identity.expires()
        return {
            "enrolled": self.identity.enrolled,
            "certificate_expires": ends and ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "problem": self.problem or None,
        }

    async def run(self) -> None:
        """Enrol, then renew; until cancelled."""
        retry = Backoff(RETRY_SECONDS)
        try:
            await asyncio.to_thread(self.identity.settle)
            if self.identity.enrolled:
                await self.carried()
        except OSError as error:
            self._fail(Log.RENEWAL_FAILED, str(error))
        while not self.identity.enrolled:
            try:
                await self._enrol()
            except (OSError, ValueError, TimeoutError) as error:
                self._fail(Log.ENROLMENT_FAILED, str(error) or f"no answer within {ANSWER_SECONDS:g} s")
                await asyncio.sleep(retry.failed())
        while True:
            try:
                if self.identity.renew_after() <= datetime.now(UTC) and self._uplink is None:
                    self._fail(Log.RENEWAL_FAILED, BY_HAND)
                elif self.identity.renew_after() <= datetime.now(UTC) and self._uplink is not None:
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._uplink.client.connected.wait()
                    await self._uplink.client.publish(
                        self._topics[0], await asyncio.to_thread(self.identity.renewal_request)
                    )
            except (OSError, ValueError, TimeoutError) as error:
                self._fail(Log.RENEWAL_FAILED, str(error) or "the uplink is not connected")
            look = asyncio.get_running_loop().time() + (RETRY_SECONDS[1] if self.problem else LOOK_SECONDS)
            while (answer := await self._answer(look)) is not None and not await self._renew(answer):
                pass
            await asyncio.sleep(RETRY_SECONDS[0])

    async def _answer(self, until: float) -> bytes | None:
        """The next one; None when none has come by ``until``, of the loop's clock."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                return await self._answers.get()
        return None

    async def _renew(self, answer: bytes) -> bool:
        """Whether the answer changed anything; one that may not is logged."""
        try:
            async with self._renewing:
                changed = await asyncio.to_thread(self.identity.renew, read_renewal(answer))
        except (ValueError, OSError) as error:
            self._fail(Log.RENEWAL_FAILED, str(error))
            return False
        self.problem = ""
        if changed:
            log.info(Log.CERTIFICATE_RENEWED, name=self._config.agent.id, expires=self.state()["certificate_expires"])
        return changed

    async def _enrol(self) -> None:
        config = self._config
        token = _read_token(self._token_file)
        csr = await asyncio.to_thread(self.identity.request_csr)
        request = Request(
            secrets.token_hex(16), token.id, token.fleet, config.agent.id, csr, machine(), __version__, utc_now()
        )
        answer = await _ask(config, token, request)
        await asyncio.to_thread(self.identity.take, answer, token.fleet)
        self.problem = ""
        log.info(Log.ENROLLED, name=config.agent.id, fleet=token.fleet, action="remove the token's file")
        self._joined()
        if self._uplink is not None:
            self._uplink.client.reconnect()

    def _certificate(self, message: Message) -> None:
        if message.payload:
            with suppress(asyncio.QueueFull):
                self._answers.put_nowait(message.payload)

    def _fail(self, event: Log, reason: str) -> None:
        if reason != self.problem:
            log.error(event, name=self._config.agent.id, reason=reason, action="retrying")
        self.problem = reason


async def _ask(config: Config, token: Token, request: Request) -> Answer:
    """Raises EnrolmentRefused, TimeoutError, ConnectionError."""
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def received(message: Message) -> None:
        client.ack(message)
        try:
            answer = read_answer(message.payload, token.secret, request.id)
        except EnrolmentRefused as error:  # of anybody: the true one may still come
            log.warning(Log.ENROLMENT_REFUSED, reason=str(error), action="waiting for another answer")
            return
        if not answered.done():
            answered.set_result(answer)

    password = config.agent.identity_dir / "enrolment.password"  # no secret: tokens prove who asks
    await asyncio.to_thread(write_whole, password, ENROLMENT.encode())
    url = config.enrolment.url or enrolment_url(config.uplink.broker.url)
    ca = config.uplink.broker.ca_file
    broker = replace(
        config.uplink.broker, url=url, username=ENROLMENT, password_file=password, cert_file=None, key_file=None,
        ca_file=ca if ca is not None and ca.exists() else None,
    )  # fmt: skip
    client = MqttClient(
        broker, enrolment_client(request.id), subscriptions=[enrolment_answer(request.id)], on_message=received,
        session=Session(clean_start=True, unverified=True),
    )  # fmt: skip
    async with client.running(), asyncio.timeout(ANSWER_SECONDS):
        await client.connected.wait()
        await client.publish(enrolment_requests(), frame(REQUEST, request, token.secret))
        return await answered


def enrolment_url(broker: str) -> str:
    """Where hosts that are not members yet connect: the port above the broker's."""
    scheme, _, rest = broker.partition("://")
    host, _, port = rest.rpartition(":") if not rest.endswith("]") and ":" in rest else (rest, "", "")
    return f"{scheme}://{host}:{int(port or (8883 if scheme == 'mqtts' else 1883)) + 1}"


def machine(paths: tuple[str, ...] = ("/etc/machine-id", "/var/lib/dbus/machine-id")) -> str:
    """A digest of the host's machine-id, which machine-id(5) asks to keep confidential; empty without one."""
    for path in paths:
        try:
            text = Path(path).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text:
            return hashlib.sha256(b"vedette enrolment\n" + text.encode()).hexdigest()
    return ""


def _read_token(path: Path) -> Token:
    try:
        return parse_token(path.read_text("ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise EnrolmentRefused(f"{path}: the token cannot be read: {error}") from error
