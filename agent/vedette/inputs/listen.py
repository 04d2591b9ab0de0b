"""Syslog over UDP, TCP and TLS (RFC 5425): the sockets of one ``syslog`` input.

Delivery: what was read from a socket is in the raw log within CHUNK_SECONDS. Neither transport has an
acknowledgement, so what lies in socket buffers when the process dies is lost in transport.

All TCP connections share one receive buffer, as a read is framed before the loop goes on; each keeps only its
unfinished message. All together keep HELD_BYTES at most: beyond that the longest unfinished message is cut where it is
and flagged, as one beyond MAX_EVENT would be.

A connection's events become a chunk at HAND_OVER bytes or after CHUNK_SECONDS; small rests of several connections
become one chunk together. How messages are delimited is in ``framing.py``; UDP is in ``datagrams.py``; how an address
becomes sockets in ``bind.py``; who may connect, and the TLS handshake, in ``accept.py``. While the raw log takes
nothing no connection is read, and TCP slows the senders.

A connection that within ``message_timeout`` ends no message that it has begun is closed, logged and counted
(``connections_stalled``); what came of the message is an event, flagged as cut. One that is silent between messages may
stay.

Stop: no new connections; what the kernel already holds is read, within a bound, and handed over with unfinished
messages; then the sockets close. When the raw log cannot be written the listener stops reading and ``run`` raises.
"""

from __future__ import annotations

import asyncio
import os
import socket
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from ssl import SSLContext

import structlog

from vedette.inputs.accept import IDLE_SECONDS, Acceptor, Admitted, Gate
from vedette.inputs.bind import bind
from vedette.inputs.datagrams import CHUNK_EVENTS, Datagrams, set_receive_buffer
from vedette.inputs.deliver import deliver
from vedette.inputs.framing import Run, StreamFramer, merge
from vedette.inputs.syslog import SyslogInput
from vedette.model.counters import Counters, Dropped, Log
from vedette.model.event import CHUNK_BYTES, CHUNK_SECONDS, MAX_EVENT, Chunk, Intake
from vedette.mqtt.tls import Renewed, server_context
from vedette.system.wallclock import utc_now

log = structlog.get_logger()

HAND_OVER = CHUNK_BYTES // 2
"""Bytes at which a connection's events become a chunk at once: another full read could exceed CHUNK_BYTES."""
MERGE_BYTES = 4096
"""Rests of connections below this are stored together."""
HELD_BYTES = 64 << 20
"""Kept of all TCP connections of an input: unfinished messages, and events of the last CHUNK_SECONDS."""
DRAIN_BYTES = 8 << 20
"""Read of one connection at stop, lest a busy sender keeps the agent from it."""
DRAIN_SECONDS = 0.05
"""Without a byte, after which a connection has nothing more at stop: its peer's host may not be done sending."""
DRAIN_LONGEST = 1.0
"""Seconds after which one moment without a byte is enough: a peer that goes on sending is never quiet."""
DRAIN_DATAGRAMS = 65536
"""Read of one UDP socket at stop."""
LOOK_SECONDS = 1.0
"""Between looks for drops of the kernel and for stalled and idle connections, at most."""
LOOKS = 4
"""Such looks per ``message_timeout`` or IDLE_SECONDS, at least."""
LONG = f"longer than {MAX_EVENT} bytes, or its connection ended within it"
"""Why an event is cut, mostly."""


class _Connection(Admitted):
    """One TCP peer; the listener does the work."""

    def __init__(self, listener: SyslogListener, tls: bool, gate: Gate, peer: str) -> None:
        super().__init__(gate, peer)
        self.listener = listener
        self.tls = tls
        self.framer = StreamFramer()
        self.held = 0
        """What the listener has counted of the framer's ``held``."""
        self.bytes = 0
        """Received."""
        self.whole = False
        """A message ended since the last look."""
        self.heard = 0.0
        """When a look last found that one had (of the loop's clock)."""
        self.began = 0.0
        """When a message was seen unfinished that still is (of the loop's clock); 0: none."""
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.listener._connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.listener._view

    def buffer_updated(self, nbytes: int) -> None:
        self.listener._received(self, nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.listener._lost(self)

    def close(self) -> None:
        """Close the transport once: in Python 3.11.2 one of TLS that was closed twice cannot be aborted."""
        if not self.transport.is_closing():
            self.transport.close()


class SyslogListener:
    """One ``syslog`` input; see the module's text. Belongs to one event loop."""

    def __init__(
        self,
        settings: SyslogInput,
        intake: Intake,
        counters: Counters,
        clock: Callable[[], int] = utc_now,
        idle: float = IDLE_SECONDS,
    ) -> None:
        self._settings = settings
        self._name = settings.name
        self._intake = intake
        self._counters = counters
        self._clock = clock
        self._idle = idle
        self._buffer = bytearray(CHUNK_BYTES)
        self._view = memoryview(self._buffer)
        self.gate = Gate(settings.name, settings.max_connections, settings.max_connections_per_peer, counters)
        self._acceptors: list[Acceptor] = []
        self._datagrams: list[Datagrams] = []
        self._connections: dict[_Connection, None] = {}
        self._waiting: dict[_Connection, None] = {}
        self.held = 0
        """Bytes that are kept of all connections."""
        self._flush_timer: asyncio.TimerHandle | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._resuming: asyncio.Task[None] | None = None
        self._stopping = False
        self._done = asyncio.Event()
        self._failure: OSError | None = None
        self.addresses: list[tuple[str, str, int]] = []
        """Bound: ``("tcp", "tls" or "udp", host, port)``."""

    async def start(self) -> None:
        """Bind and listen. Raises OSError naming the input, the address and what to do; nothing stays open then."""
        loop = asyncio.get_running_loop()
        try:
            for sock in await self._bind("tcp", self._settings.tcp):
                self._acceptors.append(Acceptor(sock, self.gate, partial(_Connection, self, False)))
            if (tls := self._settings.tls) is not None:
                context = self._context()
                for sock in await self._bind("tls", tls.address):
                    self._acceptors.append(Acceptor(sock, self.gate, partial(_Connection, self, True), context))
            for sock in await self._bind("udp", self._settings.udp):
                datagrams = Datagrams(sock, self._name, self._counters, self._intake.accepting, self._give)
                if datagrams.slow:
                    reason = "a sandbox refuses recvmmsg(2), so datagrams are read one by one, half as fast: allow it"
                    log.warning(Log.LISTENING, input=self._name, transport="udp", reason=reason)
                self._datagrams.append(datagrams)
                loop.add_reader(sock.fileno(), self._readable, datagrams)
        except BaseException:
            await self.stop()
            raise
        self._look()

    def _context(self) -> Renewed[SSLContext]:
        """Certificate and key, read; raises OSError naming the input and the file."""
        tls = self._settings.tls
        assert tls is not None
        context = Renewed(partial(server_context, tls.cert, tls.key, tls.client_ca), (tls.cert, tls.key, tls.client_ca))
        try:
            context.get()
        except (OSError, ValueError) as error:
            raise OSError(f"input {self._name!r}: tls: {error}") from error
        return context

    def bound(self, connections: int) -> None:
        """How many connections there may be at a time; those that are open stay."""
        self.gate.limit = connections

    async def run(self) -> None:
        await self._done.wait()
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Stop accepting, hand over what has arrived, close. May be called again."""
        self._stopping = True
        for acceptor in self._acceptors:
            acceptor.close()
        self.gate.close()
        if self._resuming is not None:
            self._resuming.cancel()
        if self._look_timer is not None:
            self._look_timer.cancel()
        for datagrams in self._datagrams:
            asyncio.get_running_loop().remove_reader(datagrams.sock.fileno())
            read = 0
            while read < DRAIN_DATAGRAMS and not self._failure and (found := datagrams.read()):
                read += found
                await asyncio.sleep(0)
            datagrams.count_kernel_drops()
        await asyncio.gather(*map(self._close, list(self._connections)))
        self._flush()
        for datagrams in self._datagrams:
            datagrams.sock.close()
        while self._connections:  # each leaves when the loop calls its connection_lost
            await asyncio.sleep(0)
        self._acceptors.clear()
        self._datagrams.clear()
        self._done.set()

    async def _bind(self, kind: str, address: str) -> list[socket.socket]:
        """Sockets of an address (``bind.py``), logged and listed in ``addresses``. Raises OSError."""
        bound = await bind(self._name, kind, address)
        for sock in bound:
            more = {"receive_buffer": set_receive_buffer(sock, self._settings.receive_buffer)} if kind == "udp" else {}
            where = sock.getsockname()
            self.addresses.append((kind, where[0], where[1]))
            log.info(Log.LISTENING, input=self._name, transport=kind, host=where[0], port=where[1], **more)
        return bound

    def _connected(self, connection: _Connection) -> None:
        if self._stopping:
            connection.ended = True
            connection.transport.abort()
            return
        self._connections[connection] = None
        if not self._intake.accepting():
            self._pause()

    def _received(self, connection: _Connection, size: int) -> None:
        """The first ``size`` bytes of the shared buffer are from ``connection``."""
        if connection.ended:
            return
        framer = connection.framer
        connection.bytes += size
        try:
            framer.feed(self._buffer, size)
        except ValueError as error:
            self._malformed(connection, error)
        if framer.size and not connection.active:
            connection.spoke()
        if framer.size >= HAND_OVER:
            connection.whole = True
            self._waiting.pop(connection, None)
            self._give_runs(connection)
        elif framer.size:
            connection.whole = True
            self._wait_for_flush(connection)
        self._count_held(connection)
        if self.held > HELD_BYTES:
            self._relieve()
        if not self._intake.accepting():
            self._pause()

    def _count_held(self, connection: _Connection) -> None:
        held = connection.framer.held
        self.held += held - connection.held
        connection.held = held

    def _relieve(self) -> None:
        """Get below HELD_BYTES: by handing over what is whole, else by cutting the longest unfinished message.

        One is enough: it holds no less than what was read last.
        """
        self._flush()
        if self.held <= HELD_BYTES:
            return
        connection = max(self._connections, key=lambda each: each.framer.unfinished)
        try:
            connection.framer.cut()
        except ValueError as error:
            self._malformed(connection, error)
        reason = f"the unfinished messages of all connections are more than {HELD_BYTES} bytes: this is the longest"
        self._give_runs(connection, reason)

    def _malformed(self, connection: _Connection, error: ValueError) -> None:
        connection.ended = True
        connection.close()
        self._counters.drop(self._name, Dropped.FRAMING)
        reason = f"{error}; the connection is closed: let the sender use newlines or octet counts (RFC 6587)"
        log.warning(Log.FRAMING_ERROR, input=self._name, peer=connection.peer, reason=reason)

    def _look(self) -> None:
        """Count what the kernel dropped, close what has been within one message for ``message_timeout``, and see who is
        idle; while nothing is read nobody is to blame."""
        loop = asyncio.get_running_loop()
        now, timeout = loop.time(), self._settings.message_timeout
        self._look_timer = loop.call_later(min(LOOK_SECONDS, timeout / LOOKS, self._idle / LOOKS), self._look)
        for datagrams in self._datagrams:
            datagrams.count_kernel_drops()
        for connection in list(self._connections):
            whole, within = connection.whole, connection.framer.within
            connection.whole = False
            if whole or not connection.heard or self._resuming is not None:
                connection.heard = now
            elif now - connection.heard >= self._idle:
                connection.idles()
            if whole or not within or self._resuming is not None or connection.ended:
                connection.began = now if within else 0.0
            elif not connection.began:
                connection.began = now
            elif now - connection.began >= timeout:
                self._stalled(connection)

    def _stalled(self, connection: _Connection) -> None:
        self._counters.totals["connections_stalled"] += 1
        reason = f"a message was begun and not ended within message_timeout = {self._settings.message_timeout:g} s"
        log.warning(Log.CONNECTION_STALLED, input=self._name, peer=connection.peer, reason=reason)
        try:
            connection.framer.cut()
        except ValueError as error:
            self._malformed(connection, error)
        self._end(connection)
        connection.transport.abort()

    def _lost(self, connection: _Connection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            self._end(connection)

    def _end(self, connection: _Connection) -> None:
        """The peer's stream ends here: its unfinished message is an event."""
        if not connection.ended:
            connection.ended = True
            connection.close()
            try:
                connection.framer.end()
            except ValueError as error:
                self._malformed(connection, error)
            self._count_held(connection)
            if connection.framer.size:
                self._wait_for_flush(connection)

    async def _close(self, connection: _Connection) -> None:
        """Read what the kernel holds for a connection, of the peer's side too, then end it."""
        if connection.tls:
            connection.transport.resume_reading()
        else:
            connection.transport.pause_reading()
        loop = asyncio.get_running_loop()
        first = before = connection.bytes
        quiet, until = False, loop.time() + DRAIN_LONGEST
        while not connection.ended and not self._failure and self._intake.accepting():
            if connection.tls:  # the loop reads and decrypts
                await asyncio.sleep(0)
            else:
                self._read(connection)
            was_quiet, quiet = quiet or loop.time() >= until, connection.bytes == before
            before = connection.bytes
            if connection.bytes - first >= DRAIN_BYTES or (quiet and was_quiet):
                break
            await asyncio.sleep(DRAIN_SECONDS if quiet else 0)
        self._end(connection)
        if connection.tls:
            connection.transport.abort()  # all is read; the peer need not say goodbye

    def _read(self, connection: _Connection) -> None:
        """What there is at once, as much as the buffer takes."""
        with suppress(OSError):
            if size := os.readv(connection.transport.get_extra_info("socket").fileno(), [self._view]):
                self._received(connection, size)

    def _pause(self) -> None:
        for connection in self._connections:
            connection.transport.pause_reading()
        if self._resuming is None and not self._stopping:
            self._resuming = asyncio.get_running_loop().create_task(self._resume())

    async def _resume(self) -> None:
        await self._intake.ready()
        self._resuming = None
        for connection in self._connections:
            connection.transport.resume_reading()

    def _readable(self, datagrams: Datagrams) -> None:
        """Where more came than one turn of the loop reads, read twice in the next: nothing else can make a sender of
        datagrams wait, and evaluation can."""
        self._read_datagrams(datagrams)
        if datagrams.behind:
            asyncio.get_running_loop().call_soon(self._read_datagrams, datagrams)

    def _read_datagrams(self, datagrams: Datagrams) -> None:
        if not self._stopping and not self._failure:
            datagrams.read()
            self._arm()

    def _wait_for_flush(self, connection: _Connection) -> None:
        self._waiting[connection] = None
        self._arm()

    def _arm(self) -> None:
        if self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(CHUNK_SECONDS, self._flush)

    def _flush(self) -> None:
        """Hand over whatever waits."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        waiting, self._waiting = self._waiting, {}
        small: list[tuple[Run, str]] = []
        gathered = 0
        for connection in waiting:
            large = connection.framer.size >= MERGE_BYTES
            runs = connection.framer.take()
            self._count_held(connection)
            if len(runs) == 1 and not runs[0].marks and not large:
                small.append((runs[0], connection.peer))
                gathered += len(runs[0].data)
                if gathered >= CHUNK_BYTES or len(small) == CHUNK_EVENTS:
                    self._give_small(small)
                    small, gathered = [], 0
            else:
                for run in runs:
                    self._give(run, (connection.peer,))
        self._give_small(small)
        for datagrams in self._datagrams:
            datagrams.flush()

    def _give_small(self, small: list[tuple[Run, str]]) -> None:
        if len(small) == 1:
            self._give(small[0][0], (small[0][1],))
        elif small:
            self._give(*merge(small))

    def _give_runs(self, connection: _Connection, reason: str = LONG) -> None:
        runs = connection.framer.take()
        self._count_held(connection)
        for run in runs:
            self._give(run, (connection.peer,), reason=reason)

    def _give(
        self, run: Run, origins: tuple[str, ...], origin_of: array[int] | None = None, *, reason: str = LONG
    ) -> None:
        if self._failure:
            return
        if run.marks:
            log.warning(Log.EVENT_CUT, input=self._name, peer=origins[0], events=len(run.marks), reason=reason)
        codec = self._settings.format
        chunk = Chunk(self._name, codec, self._clock(), run.data, run.ends, origins, origin_of, run.marks)
        try:
            deliver(chunk, self._intake, self._counters)
        except OSError as error:
            log.error(Log.RAW_LOG_UNWRITABLE, input=self._name, reason=str(error))
            self._failure = error
            self._done.set()
            for connection in self._connections:
                connection.transport.abort()
            for datagrams in self._datagrams:
                asyncio.get_running_loop().remove_reader(datagrams.sock.fileno())
