"""One UDP socket: a datagram is one event, without one trailing newline; an empty one is a newline.

The socket is drained in bursts (``bursts.py``), which become a chunk at CHUNK_BYTES or when the owner calls ``flush``.
No object is made for a datagram but its bytes.

Nothing can ask a UDP sender to wait. While the raw log takes nothing, datagrams are read, dropped and counted as
DISK_FULL; while such as may contain others are taken apart (``apart.py``), none are read. Those that the kernel dropped
because the socket's buffer was full are counted as KERNEL, from the ``drops`` column of ``/proc/net/udp`` and ``udp6``
(proc_net_udp(5)).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from array import array
from collections.abc import Callable
from itertools import accumulate, islice, repeat
from typing import TYPE_CHECKING, Protocol

import structlog

from vedette.inputs.accept import host
from vedette.inputs.bursts import OneByOne, Received, receiver
from vedette.inputs.framing import CHUNK_EVENTS, Run
from vedette.model.counters import Counters, Dropped, Log
from vedette.model.event import CHUNK_BYTES

log = structlog.get_logger()

if TYPE_CHECKING:
    from vedette.inputs.apart import Apart

READ_SECONDS = 0.004
"""Longest stretch of reading before the event loop gets its turn, but for the burst under way."""
DRAIN_DATAGRAMS = 65536
"""Read at stop."""
AT_ONCE = 32 << 10
"""Bytes of datagrams that are taken apart at once: in steps, evaluation comes between, and the kernel drops others."""
_SO_RCVBUFFORCE = 33
_NEWLINE = b"\n"

Give = Callable[[Run, tuple[str, ...], "array[int] | None"], object]
"""Takes a run, its table of origins, and per event the index there (None: all of the first)."""


def set_receive_buffer(sock: socket.socket, size: int) -> int:
    """Ask for ``size`` bytes, unless there are more (systemd opened the socket); returns what the kernel grants.

    Beyond rmem_max it grants only with CAP_NET_ADMIN.
    """
    granted = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # the kernel doubles it for its bookkeeping
    if granted >= size:
        return granted
    for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, option, size)
            break
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2


class Datagrams:
    """The reader of a bound, non-blocking UDP socket of the input ``name``; owns the socket."""

    def __init__(
        self, sock: socket.socket, name: str, counters: Counters, accepting: Callable[[], bool], give: Give
    ) -> None:
        self.sock = sock
        self._name = name
        self._counters = counters
        self._accepting = accepting
        self._give = give
        self._receiver = receiver(sock)
        self.slow = isinstance(self._receiver, OneByOne)
        """Datagrams are read one by one, because a sandbox refuses recvmmsg(2)."""
        self._parts: list[bytes] = []
        self._ends = array("I")
        self._origins: dict[str, int] = {}
        self._origin_of = array("H")
        self._inode = str(os.fstat(sock.fileno()).st_ino)
        self._drops = 0

    @property
    def behind(self) -> bool:
        """More may wait than the last ``read`` had time for."""
        return self._receiver.full

    def read(self) -> int:
        """Read what waits, for READ_SECONDS at most; returns how many datagrams there were: 0 when none waited."""
        until = time.perf_counter() + READ_SECONDS
        count = 0
        accepting = self._accepting()
        source = self._receiver
        while (received := source.receive()) is not None:
            count += len(received.lengths)
            if accepting:
                self._add(received)
            else:
                self._counters.drop(self._name, Dropped.DISK_FULL, len(received.lengths))
            if not source.full or time.perf_counter() >= until:
                break
        return count

    def _add(self, received: Received) -> None:
        data, lengths, peers = received
        if 0 in lengths or _NEWLINE in data or len(data) > CHUNK_BYTES:
            self._add_each(received)
            return
        if len(self._ends) + len(lengths) > CHUNK_EVENTS:
            self.flush()
        start = self._ends[-1] if self._ends else 0
        self._parts.append(data)
        self._ends.extend(islice(accumulate(lengths, initial=start), 1, None))
        origins = self._origins
        if len(peers) == 1:
            self._origin_of.extend(repeat(origins.setdefault(peers[0], len(origins)), len(lengths)))
        else:
            self._origin_of.extend([origins.setdefault(peer, len(origins)) for peer in peers])
        if self._ends[-1] >= CHUNK_BYTES:
            self.flush()

    def _add_each(self, received: Received) -> None:
        """The same where a datagram may end in a newline, be empty, or all of them be too long for one chunk."""
        data, lengths, peers = received
        start = 0
        for i, length in enumerate(lengths):
            event = data[start : start + length]
            start += length
            event = event.removesuffix(_NEWLINE) or _NEWLINE
            self._parts.append(event)
            self._ends.append((self._ends[-1] if self._ends else 0) + len(event))
            peer = peers[i if len(peers) > 1 else 0]
            self._origin_of.append(self._origins.setdefault(peer, len(self._origins)))
            if self._ends[-1] >= CHUNK_BYTES or len(self._ends) == CHUNK_EVENTS:
                self.flush()

    def flush(self) -> None:
        """Give what was read."""
        if not self._ends:
            return
        run = Run(b"".join(self._parts), self._ends, ())
        origins = tuple(map(host, self._origins))
        origin_of = self._origin_of
        self._parts = []
        self._ends = array("I")
        self._origins = {}
        self._origin_of = array("H")
        self._give(run, origins, origin_of if len(origins) > 1 else None)

    def count_kernel_drops(self) -> None:
        """Count what the kernel dropped since the last call."""
        table = "/proc/net/udp6" if self.sock.family == socket.AF_INET6 else "/proc/net/udp"
        with contextlib.suppress(OSError), open(table, encoding="ascii") as lines:
            for columns in map(str.split, lines):
                if columns[9] == self._inode:
                    drops = int(columns[-1])
                    if drops > self._drops:
                        self._counters.drop(self._name, Dropped.KERNEL, drops - self._drops)
                        self._drops = drops
                    return


class Owner(Protocol):
    """The listener whose socket it is."""

    def arm(self) -> None:
        """Flush soon."""

    def give(self, run: Run, origins: tuple[str, ...], origin_of: array[int] | None) -> object:
        """Store a run."""

    def others_in(self, run: Run, apart: Apart | None) -> Apart | None:
        """What takes it apart, ``apart`` if there is, where a datagram may contain others."""


class Watched(Datagrams):
    """The reader of a listener's socket, who reads when the event loop says that datagrams wait."""

    def __init__(
        self,
        sock: socket.socket,
        name: str,
        counters: Counters,
        accepting: Callable[[], bool],
        listener: Owner,
    ) -> None:
        super().__init__(sock, name, counters, accepting, self._given)
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._on = False
        self._apart: Apart | None = None
        """Its own: nobody's messages by a connection keep it from reading."""
        if self.slow:
            reason = "a sandbox refuses recvmmsg(2), so datagrams are read one by one, half as fast: allow it"
            log.warning(Log.LISTENING, input=name, transport="udp", reason=reason)

    def watch(self, on: bool = True) -> None:
        """Read from now on, or no more."""
        self._on = on
        self._loop.remove_reader(self.sock.fileno())
        if on and not self._busy:
            self._loop.add_reader(self.sock.fileno(), self._readable)

    @property
    def _busy(self) -> bool:
        return self._apart is not None and self._apart.size > 0

    async def drain(self) -> None:
        """Read what waits, and no more."""
        self.watch(False)
        read = 0
        while read < DRAIN_DATAGRAMS and (count := self.read()):
            read += count
            await asyncio.sleep(0)
        self.count_kernel_drops()

    def _readable(self) -> None:
        """Where more came than one turn of the loop reads, read twice in the next: nothing else can make a sender of
        datagrams wait, and evaluation can."""
        self._read()
        if self.behind:
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        if self._on and not self._busy:
            self.read()
            self._listener.arm()

    def _given(self, run: Run, origins: tuple[str, ...], origin_of: array[int] | None) -> None:
        apart = self._apart if self._busy else self._listener.others_in(run, self._apart)
        self._apart = apart or self._apart
        if apart is None:
            self._listener.give(run, origins, origin_of)
        elif len(run.data) <= AT_ONCE and not self._busy:
            run, origin_of = apart.at_once(run, origin_of)
            self._listener.give(run, origins, origin_of)
        else:
            apart.begin([run], origins, self._done, origin_of=origin_of)
            self.watch(self._on)

    def _done(self, work: asyncio.Task[int | None]) -> None:
        self.watch(self._on)
        work.result()
