"""One UDP socket: a datagram is one event, without one trailing newline; an empty one is a newline.

The socket is drained in bursts into one buffer, which is copied out as a chunk's data at CHUNK_BYTES or when the
owner calls ``flush``. Per datagram there is one system call and no object but its end position.

Nothing can ask a UDP sender to wait. While the raw log takes nothing, datagrams are read, dropped and counted as
DISK_FULL; those that the kernel dropped because the socket's buffer was full are counted as KERNEL, from the ``drops``
column of ``/proc/net/udp`` and ``udp6`` (proc_net_udp(5)).
"""

from __future__ import annotations

import contextlib
import os
import socket
from array import array
from collections.abc import Callable

from vedette.event import CHUNK_BYTES
from vedette.inputs.framing import Run
from vedette.report import Counters, Dropped

BURST = 512
"""Datagrams read per turn of the event loop."""
CHUNK_EVENTS = 65535
"""Events, and so origins, of a chunk at most."""
_DATAGRAM = 65536
_SO_RCVBUFFORCE = 33
_NEWLINE = 10

Give = Callable[[Run, tuple[str, ...], "array[int] | None"], None]
"""Takes a run, its table of origins, and per event the index there (None: all of the first)."""


def host(name: str) -> str:
    """A peer's address as text; an IPv4 peer of a dual-stack socket as IPv4."""
    return name.removeprefix("::ffff:")


def set_receive_buffer(sock: socket.socket, size: int) -> int:
    """Ask for ``size`` bytes; returns what the kernel grants (beyond rmem_max only with CAP_NET_ADMIN)."""
    for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, option, size)
            break
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2  # the kernel doubles it for its bookkeeping


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
        self._buffer = bytearray(CHUNK_BYTES + _DATAGRAM)
        self._view = memoryview(self._buffer)
        self._ends = array("I")
        self._origins: dict[str, int] = {}
        self._origin_of = array("H")
        self._inode = str(os.fstat(sock.fileno()).st_ino)
        self._drops = 0

    @property
    def waiting(self) -> int:
        """Events that ``flush`` would give now."""
        return len(self._ends)

    def read(self) -> int:
        """Read up to BURST datagrams, without waiting; returns how many there were."""
        accepting = self._accepting()
        buffer, view, receive = self._buffer, self._view, self.sock.recvfrom_into
        ends, origins, origin_of = self._ends, self._origins, self._origin_of
        position = ends[-1] if ends else 0
        for count in range(BURST):
            try:
                size, address = receive(view[position:])
            except OSError:  # drained; an error of another kind concerns one datagram, and the next turn goes on
                return count
            if not accepting:
                self._counters.drop(self._name, Dropped.DISK_FULL)
                continue
            if not size:
                buffer[position], size = _NEWLINE, 1
            elif size > 1 and buffer[position + size - 1] == _NEWLINE:
                size -= 1
            position += size
            ends.append(position)
            origin_of.append(origins.setdefault(address[0], len(origins)))
            if position >= CHUNK_BYTES or len(ends) == CHUNK_EVENTS:
                self.flush()
                ends, origins, origin_of, position = self._ends, self._origins, self._origin_of, 0
        return BURST

    def flush(self) -> None:
        """Give what was read."""
        if not self._ends:
            return
        run = Run(bytes(self._view[: self._ends[-1]]), self._ends, ())
        origins, origin_of = tuple(map(host, self._origins)), self._origin_of
        self._ends, self._origins, self._origin_of = array("I"), {}, array("H")
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
