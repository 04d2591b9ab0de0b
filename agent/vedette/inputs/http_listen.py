"""The HTTP input: what others push, answered when it is stored.

Promises:

* A request is answered with success only after the raw log holds all of its events on disk. A sender that got no answer
  sends it again: at least once, as there is no number by which a request could be known again.
* A request that is refused is answered in its protocol's own words (``push/``), counted (``requests_refused``) and
  logged once a peer and status. What is no HTTP is answered with 400 and ends the connection.
* While the raw log accepts nothing, requests are answered with 429 and ``Retry-After``; so is a peer that sends more
  than ``max_rate``. When the bodies under way are more than HELD_BYTES, so is the largest of the network that has most
  of them: bodies that do not end keep no other sender out. Answers that are not read count with them; who reads none
  is closed then, instead. Where all of those are at work it is asked to wait, others beyond twice as much.
* One sender's large body keeps others waiting for 5 ms of CPU time at once, whatever is in it.
* A request's events may have HELD_BYTES; those of all that are under way, twice as much, of which several requests of
  the network that has most leave the last quarter to others: the one that began last is refused, so that the one that
  is furthest on gets through.

Limits: connections, stalled requests and TLS as for syslog (``connections.py``); headers and bodies in
``http_reader.py``. Of a connection one request is handled at a time, and none while its answers are not read; it is not
read meanwhile.

Stop: requests that have arrived are stored and answered, as far as that gets on disk in time; others get no answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

import structlog

from vedette.decode.codecs import Kind, builtin
from vedette.inputs.accept import IDLE_SECONDS, Gate
from vedette.inputs.acknowledge import Acknowledgements
from vedette.inputs.base import Surroundings
from vedette.inputs.condition import Condition, failing
from vedette.inputs.connections import WRITE_BYTES, Connection, Listener
from vedette.inputs.framing import Run, run_of
from vedette.inputs.http_reader import PART_BYTES, Body, HttpReader, Received, unpacked
from vedette.inputs.push.base import Answer, Protocol, Refused, Request
from vedette.inputs.push.bulk import BULK
from vedette.inputs.push.cloud import CLOUD
from vedette.inputs.push.hec import HEC
from vedette.inputs.push.lines import LINES
from vedette.inputs.push.loki import LOKI
from vedette.inputs.push.otlp import OTLP
from vedette.inputs.settings import HttpInput
from vedette.inputs.tokens import Tokens
from vedette.model.counters import Log
from vedette.model.event import CHUNK_BYTES, MAX_EVENT, Chunk
from vedette.system.trouble import Firsts
from vedette.system.turns import in_steps

log = structlog.get_logger()

HELD_BYTES = 64 << 20
"""Bytes of the bodies under way, of all connections."""
READ_BYTES = 16 << 10
"""Read of a connection at once: small requests take many times their bytes, and all of a read wait together."""
KEPT_SECONDS = 5.0
"""For which HELD_BYTES are exceeded without being said in status."""
EVENT_COST = 8
"""Bytes that an event counts besides its own."""
RETRY_SECONDS = 5
"""For a sender to wait that is asked to."""
PEERS = 10_000
"""Peers whose rate is measured, and whose refusals are logged."""
_CHUNK_EVENTS = 4096
PROTOCOLS = (OTLP, HEC, BULK, LOKI, CLOUD, LINES)
"""The protocols that are taken; a new one is a file in ``push/`` and a name here.
``tests/inputs/push/test_protocols.py`` walks them: each needs tests, a line in docs/guide.md, its own words for no."""


def protocol_of(method: str, path: str) -> Protocol | None:
    """Return the protocol whose own a request is; None: there is none."""
    return next((protocol for protocol in PROTOCOLS if protocol.paths.fullmatch(f"{method} {path}")), None)


class HttpConnection(Connection):
    """One HTTP peer."""

    def __init__(self, listener: HttpListener, tls: bool, gate: Gate, peer: str) -> None:
        super().__init__(listener, tls, gate, peer)
        self.reader = HttpReader(listener.max_body, lambda request: listener.admit(self, request))
        self.handled = 0
        """Bytes of the body that is handled."""

    @property
    def within(self) -> bool:
        return self.reader.within

    @property
    def kept(self) -> int:
        return self.reader.buffered + self.handled

    def get_buffer(self, sizehint: int) -> memoryview:
        """Of a body more is read at once."""
        return self.listener.view[: max(min(READ_BYTES, self.listener.share), self.reader.awaited)]


class _Reply(NamedTuple):
    connection: HttpConnection
    received: Received
    answer: Answer


class HttpListener(Listener[HttpConnection]):
    """One ``http`` input; see the module's text."""

    def __init__(self, settings: HttpInput, agent: Surroundings, idle: float = IDLE_SECONDS) -> None:
        super().__init__(settings, agent, idle)
        self._settings = settings
        self.max_body = settings.max_body
        self._codec = settings.codec
        self._tokens: Tokens | None = None
        self._rates: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Per network bytes that it may send at once, and when that was."""
        self._full_since = 0.0
        """When HELD_BYTES were exceeded, and are still (of the loop's clock); 0: they are not."""
        self._reading: dict[HttpConnection, None] = {}
        """Whose request is being made events, in the order in which they began."""
        self._logged = Firsts(PEERS)
        self._acknowledgements = Acknowledgements(agent.intake, self._reply)

    def make(self, tls: bool, gate: Gate, peer: str) -> HttpConnection:
        return HttpConnection(self, tls, gate, peer)

    async def open(self) -> None:
        if self._settings.token_file is not None:
            try:
                self._tokens = Tokens(self._settings.token_file)
            except OSError as error:
                raise OSError(f"input {self._name!r}: token_file: {error}") from error
        await super().open()
        self._acknowledgements.start()

    async def hand_over(self) -> None:
        """Stop accepting and reading, answer what has arrived."""
        self.accept_no_more()
        for connection in self._connections:
            connection.transport.pause_reading()
        if working := [connection.work for connection in self._connections if connection.work is not None]:
            await asyncio.wait(working, timeout=RETRY_SECONDS)
        if not self._failure:
            await self._acknowledgements.drain()
        for connection in list(self._connections):
            self.end(connection)
        await self.closed()
        await self._acknowledgements.stop()

    # --- in

    def pause(self) -> None:
        """Go on reading: that there is no room is answered."""

    def read_again(self, connection: HttpConnection) -> None:
        self._next(connection)
        super().read_again(connection)

    def received(self, connection: HttpConnection, size: int) -> None:
        reader = connection.reader
        before = reader.steps
        reader.feed(self.view[:size])
        self.took(reader.steps - before, size)
        self.count(connection)
        if self.buffered > HELD_BYTES and (largest := self._largest(connection)) is not None:
            if largest.full:
                self.end(largest)
                largest.transport.abort()
            largest.reader.refuse(self._later("the bodies under way are too many"))
            self.count(largest)
        if reader.continues and reader.refused is None:
            reader.continues = False
            connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif reader.continues:  # its body does not come
            reader.give_up()
        self._next(connection)

    def _largest(self, sender: HttpConnection) -> HttpConnection | None:
        """The connection with the largest body under way, or unread answer, of the network that has most bytes; where
        all of that network's are at work: ``sender`` if it is of it, else None, or of another's when these are too
        many."""
        networks = self._networks()

        def order(peer: HttpConnection) -> tuple[int, int]:
            return networks[peer.network], peer.reader.buffered + peer.unread

        largest = max(self._connections, key=order)
        if order(largest)[1] or largest.network == sender.network:
            return largest if order(largest)[1] else sender
        if self.buffered <= 2 * HELD_BYTES:
            return None
        return max((peer for peer in self._connections if order(peer)[1]), key=order, default=sender)

    def _networks(self) -> Counter[str]:
        """Bytes that are counted, by network."""
        networks = Counter[str]()
        for connection in self._connections:
            networks[connection.network] += connection.counted
        return networks

    def _crowds(self, connection: HttpConnection) -> bool:
        """Whether it is not alone of the network that has most bytes, and began last of those that are read."""
        of_it = (peer for peer in reversed(self._reading) if peer.network == connection.network and peer.handled)
        networks = self._networks()
        own = networks[connection.network]
        return next(of_it) is connection and connection.counted < own == max(networks.values())

    def count(self, connection: HttpConnection) -> None:
        super().count(connection)
        if self.buffered <= HELD_BYTES:
            self._full_since = 0.0
        elif not self._full_since:
            self._full_since = asyncio.get_running_loop().time()

    @property
    def condition(self) -> Condition:
        if not self._full_since or asyncio.get_running_loop().time() - self._full_since < KEPT_SECONDS:
            return super().condition
        return failing(f"the bodies under way are more than {HELD_BYTES} bytes: senders are asked to wait")

    def end(self, connection: HttpConnection) -> None:
        """What is queued is kept no longer; what is at work counts until it is done."""
        if not connection.ended:
            connection.ended = True
            connection.close()
            connection.reader.end()
            self.count(connection)

    def admit(self, connection: HttpConnection, request: Request) -> Refused | None:
        """Why a request is refused whose headers are here."""
        protocol = protocol_of(request.method, request.path)
        if protocol is None:
            return Refused(404, f"nothing is taken at {request.method} {request.path[:200]}")
        if protocol.public.fullmatch(f"{request.method} {request.path}"):
            return None
        if self._tokens is not None and not self._tokens.fit(authorization := protocol.secret(request)):
            return Refused(403, "the token is not known") if authorization else Refused(401, "a token is required")
        if not self._intake.accepting():
            return self._later("the raw log takes nothing at the moment")
        length = request.headers.get("content-length", "").strip()
        return self._too_fast(connection, int(length) if length.isdigit() else 0)

    def _later(self, reason: str) -> Refused:
        return Refused(429, f"{reason}: try again later")

    def _too_fast(self, connection: HttpConnection, size: int) -> Refused | None:
        """Take ``size`` bytes of what the peer may send; a second's worth is there at first."""
        if not (rate := self._settings.max_rate):
            return None
        now = time.monotonic()
        left, then = self._rates.pop(connection.network, (float(rate), now))
        left = min(float(rate), left + (now - then) * rate)
        allowed = left > 0  # a body larger than the rate goes through alone, and others wait for it
        self._rates[connection.network] = (left - size if allowed else left), now
        if len(self._rates) > PEERS:
            self._rates.popitem(last=False)
        return None if allowed else self._later(f"more than max_rate = {rate} bytes a second")

    # --- a request

    def _next(self, connection: HttpConnection) -> None:
        """Handle the next request, one at a time."""
        if connection.reader.requests and not (connection.work or connection.full or connection.ended):
            received = connection.reader.requests.popleft()
            connection.handled = received.body.size
            connection.whole = True
            connection.transport.pause_reading()
            connection.work = asyncio.get_running_loop().create_task(self._handle(connection, received))

    async def _handle(self, connection: HttpConnection, received: Received) -> None:
        request = received.request
        reply: _Reply | None = None
        offset = None
        try:
            refused = received.refused
            if refused is None and "transfer-encoding" in request.headers:  # how much it is was not known before
                refused = self._too_fast(connection, received.body.size)
            if refused is not None:
                raise refused
            said, chunks = await self._read(connection, request, received.body)
            if not connection.active:
                connection.spoke()
            while chunks:
                chunk = chunks.popleft()
                if chunk.marks:
                    reason = f"longer than {MAX_EVENT} bytes"
                    log.warning(
                        Log.EVENT_CUT, input=self._name, peer=connection.peer, events=len(chunk.marks), reason=reason
                    )
                if (offset := self.deliver(chunk)) is None:
                    return
                await asyncio.sleep(0)
            reply = _Reply(connection, received, said)
        except Refused as refused:
            offset = None  # nothing is owed before it: one request at a time
            reply = _Reply(connection, received, self._refused(connection, request, refused))
        finally:
            if reply is None:
                self._let_go(connection)
                self.end(connection)
            elif offset is None:
                self._reply(reply)
            else:
                self._acknowledgements.owe([reply], offset)

    def _let_go(self, connection: HttpConnection) -> None:
        """The request that was handled is over."""
        connection.work = None
        connection.handled = 0
        self.count(connection)

    async def _read(self, connection: HttpConnection, request: Request, body: Body) -> tuple[Answer, deque[Chunk]]:
        """The answer and the events; raises Refused."""
        protocol = protocol_of(request.method, request.path)
        assert protocol is not None
        body = await in_steps(unpacked(request, body))
        whole = body.whole() if body.size < PART_BYTES else await asyncio.to_thread(body.whole)
        request = request._replace(body=whole, texts=Kind.SYSLOG in builtin(self._codec).kinds)
        chunks = deque[Chunk]()
        events = list[bytes]()
        size = 0

        def keep(some: list[bytes] | Run) -> None:
            """Join them to chunks at once: as objects they would be many for Python's garbage collection to look at."""
            nonlocal events, size
            if isinstance(some, Run):
                if events:
                    chunks.append(self._chunk(run_of(events), connection.peer))
                    events = []
                    size = 0
                count = len(some.ends or ())
                length = len(some.data)
                if count:
                    chunks.append(self._chunk(some, connection.peer))
            elif size + (length := sum(map(len, some))) <= CHUNK_BYTES and len(events) + len(some) <= _CHUNK_EVENTS:
                count = len(some)
                events += some
                size += length
            else:
                count = len(some)
                for event in some:
                    if events and (size + len(event) > CHUNK_BYTES or len(events) == _CHUNK_EVENTS):
                        chunks.append(self._chunk(run_of(events), connection.peer))
                        events = []
                        size = 0
                    events.append(event)
                    size += len(event)
            more = length + EVENT_COST * count
            connection.handled += more
            self.count(connection)
            if connection.handled - len(request.body) > HELD_BYTES:
                raise Refused(413, f"its events are more than {HELD_BYTES} bytes")
            most = 2 * HELD_BYTES
            if self.buffered > most or (self.buffered > most - most // 4 and self._crowds(connection)):
                raise self._later("the events under way are too many")

        connection.handled = len(request.body)
        self._reading[connection] = None
        try:
            said = await in_steps(protocol.read(request), keep)
        except Refused:
            connection.handled = 0  # what is being freed keeps no other out
            self.count(connection)
            while chunks:  # to free all at once takes long
                chunks.pop()
                await asyncio.sleep(0)
            raise
        except (TypeError, ValueError, RecursionError) as error:  # what JSON can say and cannot be written again
            raise Refused(400, f"a record cannot be read: {error}") from error
        finally:
            del self._reading[connection]
        if events:
            chunks.append(self._chunk(run_of(events), connection.peer))
        return said, chunks

    def _chunk(self, run: Run, peer: str) -> Chunk:
        return Chunk(self._name, self._codec, self._agent.clock(), run.data, run.ends, (peer,), marks=run.marks)

    # --- back

    def _refused(self, connection: HttpConnection, request: Request, refused: Refused) -> Answer:
        self._counters.totals["requests_refused"] += 1
        if self._logged.add((connection.network, refused.status)):
            log.warning(
                Log.PUSH_REFUSED, input=self._name, peer=connection.peer, status=refused.status, reason=refused.reason,
                action="further ones are counted",
            )  # fmt: skip
        protocol = protocol_of(request.method, request.path)
        said = (protocol or LINES).refuse(refused, request)
        more = {401: ("WWW-Authenticate", "Bearer"), 429: ("Retry-After", str(RETRY_SECONDS))}.get(refused.status)
        return said._replace(headers=(*said.headers, more)) if more else said

    def _reply(self, reply: _Reply) -> None:
        connection, received, said = reply
        self._let_go(connection)
        if connection.transport.is_closing():
            return
        keep = received.keep and not self.stopping
        data = _written(said, keep, head=received.request.method == "HEAD")
        for at in range(0, len(data), WRITE_BYTES):  # of TLS only what follows what is not read counts as unread
            connection.transport.write(data[at : at + WRITE_BYTES])
        self.count(connection)
        if not keep:
            self.end(connection)
        else:
            self.read_again(connection)


def _written(said: Answer, keep: bool, *, head: bool) -> bytes:
    lines = [f"HTTP/1.1 {said.status} {HTTPStatus(said.status).phrase}", f"Date: {formatdate(usegmt=True)}"]
    if said.status != HTTPStatus.NO_CONTENT:
        lines += [f"Content-Type: {said.content_type}", f"Content-Length: {len(said.body)}"]
    lines += [f"{name}: {value}" for name, value in said.headers]
    if not keep:
        lines.append("Connection: close")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if head else said.body)
