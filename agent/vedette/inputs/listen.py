"""Streams of messages over TCP and TLS, and syslog over UDP, TCP and TLS (RFC 5425): a ``syslog`` input.

Delivery: what was read from a socket is in the raw log within CHUNK_SECONDS. Neither transport has an
acknowledgement, so what lies in socket buffers when the process dies is lost in transport.

A read is framed at once, so a connection (``connections.py``) keeps only its unfinished message. All together keep
HELD_BYTES at most: beyond that the longest unfinished message is cut where it is and flagged, as one beyond MAX_EVENT
would be; so is what came of one that is not ended within ``message_timeout``.

A connection's events become a chunk at HAND_OVER bytes or after CHUNK_SECONDS; small rests of several connections
become one chunk together. What may contain others (``batches.py``) is taken apart before: beyond MERGE_BYTES in steps,
of one sender after the other, and who sent it is not read meanwhile, nor while there is more than 64 MiB of it;
beyond twice that nobody is. How messages are delimited is in ``framing.py``; UDP is in ``datagrams.py``, which is
imported with the first address for it.

Stop: no new connections; what the kernel already holds is read, within a bound, and handed over with unfinished
messages, after a second as it is; then the sockets close.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from vedette.decode.codecs import Kind, builtin
from vedette.inputs.accept import IDLE_SECONDS, Gate
from vedette.inputs.base import Surroundings
from vedette.inputs.connections import BYTE_STEPS, TURN_STEPS, Connection, Listener
from vedette.inputs.framing import CHUNK_EVENTS, LONG, Run, StreamFramer, merge
from vedette.inputs.settings import ConnectedInput, SyslogInput
from vedette.model.counters import Dropped, Log
from vedette.model.event import CHUNK_BYTES, CHUNK_SECONDS, Chunk, Flag

if TYPE_CHECKING:
    from vedette.inputs.apart import Apart
    from vedette.inputs.datagrams import Watched
    from vedette.inputs.relp_frames import RelpFramer

log = structlog.get_logger()

HAND_OVER = CHUNK_BYTES // 2
"""Bytes at which a connection's events become a chunk at once: another full read could exceed CHUNK_BYTES."""
MERGE_BYTES = 4096
MERGE_EVENTS = 64
"""Rests of connections below both are stored together."""
_JSON = frozenset(b"{[\xef")
"""First bytes of JSON, and of a byte order mark."""
RUN_STEPS = 100
"""Steps of Python that the rest of a connection takes besides its messages."""
HELD_BYTES = 64 << 20
"""Kept of all TCP connections of an input: unfinished messages, and events of the last CHUNK_SECONDS."""
DRAIN_BYTES = 8 << 20
"""Read of one connection at stop, lest a busy sender keeps the agent from it."""
DRAIN_SECONDS = 0.05
"""Without a byte, after which a connection has nothing more at stop: its peer's host may not be done sending."""
DRAIN_LONGEST = 1.0
"""Seconds after which one moment without a byte is enough: a peer that goes on sending is never quiet."""


class Stream(Connection):
    """One TCP peer and how its messages are delimited."""

    def __init__(
        self, listener: StreamListener[Any], framer: StreamFramer | RelpFramer, tls: bool, gate: Gate, peer: str
    ) -> None:
        super().__init__(listener, tls, gate, peer)
        self.framer = framer

    @property
    def within(self) -> bool:
        return self.framer.within and self.work is None

    @property
    def kept(self) -> int:
        return self.framer.buffered


S = TypeVar("S", bound=Stream)


class StreamListener(Listener[S]):
    """Connections whose messages become chunks; how they are delimited, and what follows, is for its owner to say."""

    def __init__(self, settings: ConnectedInput, agent: Surroundings, idle: float = IDLE_SECONDS) -> None:
        super().__init__(settings, agent, idle)
        self._codec = settings.codec
        codec = builtin(settings.codec)
        self._kinds = codec.kinds & {Kind.JSON, Kind.SYSLOG} if codec.only is None else frozenset()
        """Of messages that may be JSON."""
        self._waiting: dict[S, None] = {}
        self._apart: Apart | None = None
        """Of all connections; ``_aparts`` has those for datagrams, too."""
        self._aparts: list[Apart] = []
        self._flush_timer: asyncio.TimerHandle | None = None

    # --- what an owner says

    def take(self, stream: S) -> list[Run]:
        """The whole messages of a connection."""
        return stream.framer.take()

    def stored(self, streams: Sequence[S], offset: int) -> None:
        """Note that what was taken of ``streams`` last is in the raw log before ``offset``."""

    def unstored(self, stream: S, runs: Sequence[Run]) -> None:
        """Not all of ``runs`` is stored; it is closed for that."""

    def malformed(self, stream: S, error: ValueError) -> None:
        """Its stream cannot be read on: close it."""
        stream.ended = True
        stream.close()
        self.drop(stream, f"{error}; the connection is closed: let the sender use newlines or octet counts (RFC 6587)")

    def drop(self, stream: S, reason: str) -> None:
        """Count and log a message that cannot be read."""
        self._counters.drop(self._name, Dropped.FRAMING)
        log.warning(Log.FRAMING_ERROR, input=self._name, peer=stream.peer, reason=reason)

    def cut(self, stream: S) -> None:
        """Make what there is of an unfinished message an event, and discard its rest."""
        try:
            stream.framer.cut()
        except ValueError as error:
            self.malformed(stream, error)

    # --- in

    def received(self, connection: S, size: int) -> None:
        framer = connection.framer
        before = framer.steps
        try:
            framer.feed(self.buffer, size)
        except ValueError as error:
            self.malformed(connection, error)
        self.took(framer.steps - before, size)
        if framer.size and not connection.active:
            connection.spoke()
        if framer.size >= HAND_OVER:
            connection.whole = True
            self._waiting.pop(connection, None)
            self.give_runs(connection)
        elif framer.size:
            connection.whole = True
            self.wait_for_flush(connection)
        self.count(connection)
        self.relieve()
        if not self._intake.accepting():
            self.pause()

    async def _resume(self) -> None:
        if self._apart is not None:
            await self._apart.crowds()
        await super()._resume()

    def relieve(self) -> None:
        """Get below HELD_BYTES: by handing over what is whole, else by cutting the longest unfinished message.

        One is enough: it holds no less than what was read last.
        """
        if self.buffered > HELD_BYTES:
            self.flush()
        if self.buffered <= HELD_BYTES:
            return
        connection = max(self._connections, key=lambda each: (each.full, each.framer.unfinished + each.unread))
        self.cut(connection)
        reason = f"the unfinished messages of all connections are more than {HELD_BYTES} bytes: this is the longest"
        self.give_runs(connection, reason)

    def stall(self, connection: S) -> None:
        self.cut(connection)

    def end(self, connection: S) -> None:
        """Its unfinished message is an event, where the framing says so."""
        if not connection.ended:
            connection.ended = True
            connection.close()
            try:
                connection.framer.end()
            except ValueError as error:
                self.malformed(connection, error)
            self.count(connection)
            if connection.framer.size:
                self.wait_for_flush(connection)

    # --- to the raw log

    def wait_for_flush(self, connection: S) -> None:
        """Its events are a chunk within CHUNK_SECONDS."""
        self._waiting[connection] = None
        self.arm()

    def arm(self, seconds: float = CHUNK_SECONDS) -> None:
        """``flush`` within ``seconds``."""
        if self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(seconds, self.flush, TURN_STEPS)

    async def flushed(self) -> None:
        """``flush``, and what is taken apart is handed over, too."""
        self.flush()
        while waiting := next((apart for apart in self._aparts if apart.size), None):
            await waiting.below(0)
            self.flush()

    def flush(self, steps: float = math.inf) -> None:
        """Hand over what waits; what takes more ``steps`` of Python, in the next turn of the event loop."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        small: list[tuple[Run, S]] = []
        gathered = 0
        for connection in list(self._waiting):
            if steps <= 0:
                self.arm(0)
                break
            if connection.work is not None:
                continue
            del self._waiting[connection]
            size = connection.framer.size
            runs = self.take(connection)
            self.count(connection)
            events = sum(run.data.count(b"\n") if run.ends is None else len(run.ends) for run in runs)
            steps -= RUN_STEPS + BYTE_STEPS * size + sum(len(run.ends or ()) for run in runs)
            if len(runs) == 1 and not runs[0].marks and size < MERGE_BYTES and events <= MERGE_EVENTS:
                if (apart := self.others_in(runs[0], self._apart)) is not None:
                    self._apart = apart
                    runs = apart.small(connection, runs)
                    steps -= size
                small += ((run, connection) for run in runs)
                gathered += sum(len(run.data) for run in runs)
                if gathered >= CHUNK_BYTES or len(small) == CHUNK_EVENTS:
                    self._give_small(small)
                    small = []
                    gathered = 0
            else:
                self._give_all(connection, runs)
        self._give_small(small)

    def _give_small(self, small: list[tuple[Run, S]]) -> None:
        if not small:
            return
        if len(small) == 1:
            offset = self.give(small[0][0], (small[0][1].peer,))
        else:
            offset = self.give(*merge([(run, connection.peer) for run, connection in small]))
        if offset is not None:
            self.stored([connection for _, connection in small], offset)

    def give_runs(self, connection: S, reason: str = LONG) -> None:
        """Hand over its whole messages."""
        if connection.work is not None:
            self.wait_for_flush(connection)
            return
        runs = self.take(connection)
        self.count(connection)
        self._give_all(connection, runs, reason)

    def _give_all(self, connection: S, runs: list[Run], reason: str = LONG) -> None:
        apart = next(filter(None, (self.others_in(run, self._apart) for run in runs)), None)
        if apart is not None:
            self._apart = apart
            apart.take(connection, runs, reason)
            return
        offset: int | None = None
        for run in runs:
            if (offset := self.give(run, (connection.peer,), reason=reason)) is None:
                return
        if offset is not None:
            self.stored([connection], offset)

    def give(
        self, run: Run, origins: tuple[str, ...], origin_of: array[int] | None = None, *, reason: str = LONG
    ) -> int | None:
        """Store a run; the raw offset after it, None once the raw log cannot be written."""
        if not self._failure and (cut := sum(1 for _, bits in run.marks if bits & Flag.CUT)):
            log.warning(Log.EVENT_CUT, input=self._name, peer=origins[0], events=cut, reason=reason)
        return self.deliver(self.chunk(run, origins, origin_of))

    def others_in(self, run: Run, apart: Apart | None) -> Apart | None:
        """What takes it apart, ``apart`` if there is, where a message may contain others."""
        if self._kinds and b"{" in run.data and _begins_json(run):
            from vedette.inputs.apart import Apart
            from vedette.inputs.batches import may

            if may(run):
                if apart is None:
                    self._aparts.append(apart := Apart(self, Kind.SYSLOG in self._kinds))
                return apart
        return None

    def chunk(self, run: Run, origins: tuple[str, ...], origin_of: array[int] | None) -> Chunk:
        """As it is stored."""
        return Chunk(self._name, self._codec, self._agent.clock(), run.data, run.ends, origins, origin_of, run.marks)


def _begins_json(run: Run) -> bool:
    """Whether any message begins as JSON does."""
    data, ends = run.data, run.ends
    if ends is not None:
        return data[0] in _JSON or not _JSON.isdisjoint(map(data.__getitem__, ends[:-1]))
    return data[0] in _JSON or b"\n{" in data or b"\n[" in data


class SyslogListener(StreamListener[Stream]):
    """One ``syslog`` input; see the module's text."""

    def __init__(self, settings: SyslogInput, agent: Surroundings, idle: float = IDLE_SECONDS) -> None:
        super().__init__(settings, agent, idle)
        self._settings = settings
        self._datagrams: list[Watched] = []

    def make(self, tls: bool, gate: Gate, peer: str) -> Stream:
        return Stream(self, StreamFramer(), tls, gate, peer)

    async def open(self) -> None:
        await super().open()
        if not self._settings.udp:
            return
        from vedette.inputs.datagrams import Watched

        for sock in await self._bind("udp", self._settings.udp):
            datagrams = Watched(sock, self._name, self._counters, self._intake.accepting, self)
            self._datagrams.append(datagrams)
            datagrams.watch()

    def _prepare(self, sock: socket.socket, kind: str) -> dict[str, int]:
        if kind != "udp":
            return {}
        from vedette.inputs.datagrams import set_receive_buffer

        return {"receive_buffer": set_receive_buffer(sock, self._settings.receive_buffer)}

    async def hand_over(self) -> None:
        self.accept_no_more()
        for datagrams in self._datagrams:
            await datagrams.drain()
        await asyncio.gather(*map(self._close, list(self._connections)))
        await self.flushed()
        for datagrams in self._datagrams:
            datagrams.sock.close()
        self._datagrams.clear()
        await self.closed()

    async def _close(self, connection: Stream) -> None:
        """Read what the kernel holds for a connection, of the peer's side too, then end it."""
        if not connection.tls:
            connection.transport.pause_reading()
        loop = asyncio.get_running_loop()
        first = before = connection.bytes
        quiet = False
        until = loop.time() + DRAIN_LONGEST
        while not connection.ended and not self._failure and self._intake.accepting():
            if connection.work is not None:
                await asyncio.wait({connection.work})
            if connection.tls:  # the loop reads and decrypts
                connection.transport.resume_reading()
                await asyncio.sleep(0)
            else:
                self._read(connection)
            was_quiet, quiet = quiet or loop.time() >= until, connection.bytes == before
            before = connection.bytes
            if connection.bytes - first >= DRAIN_BYTES or (quiet and was_quiet):
                break
            await asyncio.sleep(DRAIN_SECONDS if quiet else 0)
        self.end(connection)
        if connection.tls:
            connection.transport.abort()  # all is read; the peer need not say goodbye

    def _read(self, connection: Stream) -> None:
        """Read what there is at once, as much as the buffer takes."""
        with suppress(OSError):
            if size := os.readv(connection.transport.get_extra_info("socket").fileno(), [connection.get_buffer(-1)]):
                connection.buffer_updated(size)

    def looked(self) -> None:
        for datagrams in self._datagrams:
            datagrams.count_kernel_drops()

    def flush(self, steps: float = math.inf) -> None:
        super().flush(steps)
        for datagrams in self._datagrams:
            datagrams.flush()

    def failed(self) -> None:
        for datagrams in self._datagrams:
            datagrams.watch(False)
