"""The connections of an input: bound, admitted, read while the raw log accepts, looked at, and closed.

A ``Listener`` owns the sockets of one input that others connect to; what it reads from them is for its owner to say,
who extends it and ``Connection``. All share one receive buffer: what a read brought is taken in before the loop goes
on, and it is so little (``Listener.share``) that others keep their turn, however many connections are ready. While the
raw log takes nothing no connection is read, and TCP slows the senders.

A connection that within ``message_timeout`` ends no message that it has begun, or reads nothing of what was written to
it, is closed, logged and counted (``connections_stalled``). One that is silent between messages may stay. Who may
connect, and the TLS handshake, is in ``accept.py``, with how an address becomes sockets.

When the raw log cannot be written the listener stops reading and ``run`` raises.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import structlog

from vedette.inputs.accept import IDLE_SECONDS, Acceptor, Admitted, Gate, bind
from vedette.inputs.base import Surroundings
from vedette.inputs.condition import WORKS, Condition, failing
from vedette.inputs.settings import ConnectedInput
from vedette.model.counters import Log
from vedette.model.event import CHUNK_BYTES, Chunk

if TYPE_CHECKING:
    from ssl import SSLContext

    from vedette.mqtt.tls import Renewed

log = structlog.get_logger()

TURN_STEPS = 50_000
"""Steps of Python over messages in a turn of the event loop, where all connections are ready: 0.05 to 0.2 s of CPU."""
BYTE_STEPS = 1 / 64
"""Steps that a byte counts, whatever it is part of."""
LEAST_BYTES = 256
"""Read of a connection at once however many steps that takes."""
DENSE = 0.98
"""Of how dense messages were, after another read."""
LOOK_SECONDS = 1.0
"""Between looks for stalled and idle connections, at most."""
LOOKS = 4
"""Such looks per ``message_timeout`` or IDLE_SECONDS, at least."""
WRITE_BYTES = 64 << 10
"""Written and not read, above which a connection is ``full``."""
GOODBYE_SECONDS = 1.0
"""At stop, for what was written last to reach the peers."""


class Connection(Admitted):
    """One TCP peer; the listener does the work."""

    def __init__(self, listener: Listener[Any], tls: bool, gate: Gate, peer: str) -> None:
        super().__init__(gate, peer)
        self.listener = listener
        self.tls = tls
        self.bytes = 0
        """Received."""
        self.whole = False
        """A message ended since the last look."""
        self.heard = 0.0
        """When a look last found that one had (of the loop's clock)."""
        self.began = 0.0
        """When a message was seen unfinished that still is (of the loop's clock); 0: none."""
        self.ended = False
        self.work: asyncio.Task[Any] | None = None
        """The handling of what it sent last, where that takes several turns: it is not read meanwhile."""
        self.full = False
        """The peer does not read what we have written to it."""
        self.counted = 0
        """Bytes that the listener has counted of it."""

    @property
    def within(self) -> bool:
        """Whether the stream is within a message."""
        return False

    @property
    def kept(self) -> int:
        """Bytes that are kept of what it sent."""
        return 0

    @property
    def unread(self) -> int:
        """Bytes of answers, where the peer does not read."""
        return self.transport.get_write_buffer_size() if self.full else 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(WRITE_BYTES)
        self.listener.connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.listener.view[: self.listener.share]

    def buffer_updated(self, nbytes: int) -> None:
        if not self.ended:
            self.bytes += nbytes
            self.listener.received(self, nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self.full = False
        super().connection_lost(exc)
        self.listener.lost(self)

    def pause_writing(self) -> None:
        self.full = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.full = False
        self.listener.count(self)
        self.listener.read_again(self)

    def close(self) -> None:
        """Close the transport once: in Python 3.11.2 one of TLS that was closed twice cannot be aborted."""
        if not self.transport.is_closing():
            self.transport.close()


C = TypeVar("C", bound=Connection)


class Listener(ABC, Generic[C]):
    """The sockets of one input; see the module's text. Belongs to one event loop."""

    def __init__(self, settings: ConnectedInput, agent: Surroundings, idle: float = IDLE_SECONDS) -> None:
        self._name = settings.name
        self._tcp = settings.tcp
        self._tls = settings.tls
        self._timeout = settings.message_timeout
        self._agent = agent
        self._intake = agent.intake
        self._counters = agent.counters
        self._idle = idle
        self.buffer = bytearray(CHUNK_BYTES)
        self.view = memoryview(self.buffer)
        self.gate = Gate(settings.name, settings.max_connections, settings.max_connections_per_peer, agent.counters)
        self._acceptors: list[Acceptor] = []
        self._connections: dict[C, None] = {}
        self._dense = BYTE_STEPS
        """Steps a byte."""
        self.buffered = 0
        """Bytes that are kept of all connections, and answers that they do not read."""
        self._look_timer: asyncio.TimerHandle | None = None
        self._resuming: asyncio.Task[None] | None = None
        self.stopping = False
        self._done = asyncio.Event()
        self._failure: OSError | None = None
        self.addresses: list[tuple[str, str, int]] = []
        """Bound: ``("tcp", "tls" or "udp", host, port)``."""

    @property
    def condition(self) -> Condition:
        """An open listener works while it can accept."""
        reasons = [acceptor.trouble.reason for acceptor in self._acceptors if acceptor.trouble.reason]
        return failing(reasons[0]) if reasons else WORKS

    @property
    def share(self) -> int:
        """Bytes to read of a connection at once."""
        most = TURN_STEPS / self._dense / max(1, len(self._connections))
        return max(LEAST_BYTES, min(CHUNK_BYTES, int(most)))

    def took(self, steps: int, size: int) -> None:
        """A read of ``size`` bytes took so many steps: what is as dense is read in small pieces from now on."""
        self._dense = max(steps / size + BYTE_STEPS, DENSE * self._dense)

    # --- what an owner says

    @abstractmethod
    def make(self, tls: bool, gate: Gate, peer: str) -> C:
        """The place of a new connection."""

    @abstractmethod
    def received(self, connection: C, size: int) -> None:
        """The first ``size`` bytes of the shared buffer are from ``connection``."""

    @abstractmethod
    async def hand_over(self) -> None:
        """``stop``, which may be cut off."""

    @abstractmethod
    def end(self, connection: C) -> None:
        """The peer's stream ends here, once: close, and take what is whole. Called once at least."""

    def stall(self, connection: C) -> None:
        """Give up the message that it has begun: ``end`` comes next."""

    def looked(self) -> None:
        """Another look was taken."""

    # --- sockets

    async def start(self) -> None:
        """Bind and listen. Raises OSError naming the input, the address and what to do; nothing stays open then."""
        try:
            await self.open()
        except BaseException:
            await self.stop()
            raise
        self.look()

    async def open(self) -> None:
        """Listen at all addresses, as ``listen``."""
        await self.listen("tcp", self._tcp)
        if self._tls is not None:
            await self.listen("tls", self._tls.address, tls=True)

    async def listen(self, kind: str, address: str, *, tls: bool = False) -> None:
        """Accept at ``address`` (empty: nowhere). Raises OSError naming the input, the address and what to do."""
        context = self._context() if tls else None
        for sock in await self._bind(kind, address):
            self._acceptors.append(Acceptor(sock, self.gate, partial(self.make, tls), context))

    def _context(self) -> Renewed[SSLContext]:
        """Certificate and key, read; raises OSError naming the input and the file."""
        from vedette.mqtt.tls import Renewed, server_context

        tls = self._tls
        assert tls is not None
        context = Renewed(partial(server_context, tls.cert, tls.key, tls.client_ca), (tls.cert, tls.key, tls.client_ca))
        try:
            context.get()
        except (OSError, ValueError) as error:
            raise OSError(f"input {self._name!r}: tls: {error}") from error
        return context

    async def _bind(self, kind: str, address: str) -> list[socket.socket]:
        """Sockets of an address (``bind``), logged and listed in ``addresses``. Raises OSError."""
        bound = await bind(self._name, kind, address)
        for sock in bound:
            more = self._prepare(sock, kind)
            where = sock.getsockname()
            self.addresses.append((kind, where[0], where[1]))
            log.info(Log.LISTENING, input=self._name, transport=kind, host=where[0], port=where[1], **more)
        return bound

    def _prepare(self, sock: socket.socket, kind: str) -> dict[str, int]:
        """A bound socket's options, to be logged."""
        return {}

    def bound(self, connections: int) -> None:
        """How many connections there may be at a time; those that are open stay."""
        self.gate.limit = connections

    async def run(self) -> None:
        await self._done.wait()
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Accept no more, hand over what has arrived, close; ``run`` ends. May be called again."""
        try:
            await self.hand_over()
        finally:
            self._done.set()

    def accept_no_more(self) -> None:
        """Accept no more, and look no more. May be called again."""
        self.stopping = True
        for acceptor in self._acceptors:
            acceptor.close()
        self.gate.close()
        if self._resuming is not None:
            self._resuming.cancel()
        if self._look_timer is not None:
            self._look_timer.cancel()

    async def closed(self) -> None:
        """All that was written has gone out, or GOODBYE_SECONDS have passed."""
        loop = asyncio.get_running_loop()
        until = loop.time() + GOODBYE_SECONDS
        while self._connections:  # each leaves when the loop calls its connection_lost
            if loop.time() >= until:
                for connection in self._connections:
                    connection.transport.abort()
            await asyncio.sleep(0)
        self._acceptors.clear()

    # --- connections

    def connected(self, connection: C) -> None:
        """From here on it is read."""
        if self.stopping:
            connection.ended = True
            connection.transport.abort()
            return
        self._connections[connection] = None
        if not self._intake.accepting():
            self.pause()

    def lost(self, connection: C) -> None:
        """It is closed, by whomever."""
        if connection in self._connections:
            del self._connections[connection]
            self.end(connection)
            self.count(connection)

    def count(self, connection: C) -> None:
        """Bring ``buffered`` up to what the connection keeps now."""
        size = connection.kept + connection.unread
        self.buffered += size - connection.counted
        connection.counted = size

    def look(self) -> None:
        """Close what has been within one message for ``message_timeout``, and see who is idle; while nothing is read
        nobody is to blame."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        timeout = self._timeout
        self._look_timer = loop.call_later(min(LOOK_SECONDS, timeout / LOOKS, self._idle / LOOKS), self.look)
        self.looked()
        for connection in list(self._connections):
            whole = connection.whole
            within = connection.within or connection.full or connection.ended
            connection.whole = False
            if whole or not connection.heard or self._resuming is not None:
                connection.heard = now
            elif now - connection.heard >= self._idle:
                connection.idles()
            if whole or not within or self._resuming is not None:
                connection.began = now if within else 0.0
            elif not connection.began:
                connection.began = now
            elif now - connection.began >= timeout:
                self._stalled(connection)

    def _stalled(self, connection: C) -> None:
        self._counters.totals["connections_stalled"] += 1
        reason = f"no message was ended, or no answer read, within message_timeout = {self._timeout:g} s"
        log.warning(Log.CONNECTION_STALLED, input=self._name, peer=connection.peer, reason=reason)
        self.stall(connection)
        self.end(connection)
        connection.transport.abort()

    def pause(self) -> None:
        """Read nothing until the raw log accepts again."""
        for connection in self._connections:
            connection.transport.pause_reading()
        if self._resuming is None and not self.stopping:
            self._resuming = asyncio.get_running_loop().create_task(self._resume())

    async def _resume(self) -> None:
        await self._intake.ready()
        self._resuming = None
        for connection in self._connections:
            self.read_again(connection)

    def read_again(self, connection: C) -> None:
        """Read it, unless something else forbids."""
        if self._resuming is None and not (connection.full or connection.ended or connection.work or self.stopping):
            connection.transport.resume_reading()

    # --- to the raw log

    def deliver(self, chunk: Chunk) -> int | None:
        """The raw offset after ``chunk``; None once the raw log cannot be written."""
        if self._failure:
            return None
        try:
            return self._agent.deliver(chunk)
        except OSError as error:
            log.error(Log.RAW_LOG_UNWRITABLE, input=self._name, reason=str(error))
            self._failure = error
            self._done.set()
            for connection in self._connections:
                connection.transport.abort()
            self.failed()
            return None

    def failed(self) -> None:
        """The raw log cannot be written: read nothing more."""
