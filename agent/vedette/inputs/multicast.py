"""Audit records from the kernel: one ``audit`` input, by the multicast group of audit's netlink socket.

Promise: every record that the kernel gives is handed over once, in its order, as auditd writes it to its log:

    type=TYPE msg=audit(SECONDS.MILLIS:SERIAL): NAME=VALUE …

The group AUDIT_NLGRP_READLOG (linux/audit.h, since Linux 3.16) is read beside auditd and needs no right but
CAP_AUDIT_READ. A message is a header of 16 bytes (length, type, flags, sequence, port: linux/netlink.h) and the text
from ``audit(`` on; what comes from anybody but the kernel is left out. Which events there are say the host's rules
(auditctl), which this input neither reads nor sets.

The kernel waits for nobody, so records can be lost, and are then counted and logged:

* **Overflow**: the socket's buffer was full, while the raw log took nothing or the agent was busy. The kernel counts
  such records for each socket (``/proc/net/netlink``): KERNEL.
* **Absence**: nobody listened. Audit numbers its events since boot; a chunk carries the number of its last one,
  committed with its events, so the first one after a start shows how many were missed: MISSED. Numbers that were given
  before the input's first start are no loss.

What the kernel could not keep before that (``lost`` of ``auditctl -s``) is seen only with CAP_AUDIT_CONTROL.

Events that a system call of this very process made are left out: with a rule that watches the agent's files each
chunk would be the next event.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import struct
from contextlib import suppress
from pathlib import Path

import structlog

from vedette.decode.formats.auditd import TYPES
from vedette.inputs.base import Surroundings
from vedette.inputs.condition import OPENING, WORKS, failing
from vedette.inputs.datagrams import set_receive_buffer
from vedette.inputs.settings import AuditInput
from vedette.inputs.stoppable import Stoppable
from vedette.model.counters import Dropped, Log
from vedette.model.event import CHUNK_BYTES, Chunk, FilePosition
from vedette.system.trouble import BACKOFF, Backoff, Trouble

log = structlog.get_logger()

NETLINK_AUDIT = 9
READLOG = 1
"""AUDIT_NLGRP_READLOG, as the mask of groups that bind(2) takes."""
MAX_RECORD = 64 << 10
"""Bytes of a message; the kernel's own are below 9,000 (MAX_AUDIT_MESSAGE_LENGTH)."""
READ_RECORDS = 4096
"""Messages read before the event loop gets its turn, also of such as are left out."""
SYSCALL = 1300
OWN = 2
"""Numbers that the kernel gives to this input's own end and start (EVENT_LISTENER, since Linux 5.8)."""
_HEADER = struct.Struct("=IHHII")
_SERIAL = re.compile(rb"audit\(\d{1,12}\.\d{1,6}:(\d{1,20})\)")
_NAMES = {int(number): name.encode() for number, name in TYPES.items()}
_UNAVAILABLE = {
    errno.EPERM: "it needs the capability CAP_AUDIT_READ (in a container of another user namespace there is no audit): "
    "see docs/guide.md, audit",
    errno.EAFNOSUPPORT: "the service may not open netlink sockets: RestrictAddressFamilies= needs AF_NETLINK",
    errno.EPROTONOSUPPORT: "this kernel has no audit (CONFIG_AUDIT)",
}


class AuditListener(Stoppable):
    """One ``audit`` input; see the module's text."""

    def __init__(self, settings: AuditInput, agent: Surroundings, backoff: tuple[float, float] = BACKOFF) -> None:
        self._settings = settings
        self._agent = agent
        self._backoff = Backoff(backoff)
        self.condition = OPENING
        self._path = f"audit:{settings.name}"
        self._last = next((position for position in agent.positions() if position.path == self._path), None)
        """The boot and the number of the last event that was handed over."""
        self._boot = ""
        self._heard = False
        """An event has come since the start."""
        self._drops = 0
        """Records that the kernel has dropped for this socket."""
        self._own = b" pid=%d " % os.getpid()
        self._leave_out = b""
        """The number of an event of this process."""

    async def _run(self) -> None:
        trouble = Trouble()
        while True:
            try:
                sock = self._open()
            except OSError as error:
                reason = _UNAVAILABLE.get(error.errno or 0, error.strerror or str(error))
                if trouble.begins(reason):
                    log.warning(Log.AUDIT_UNAVAILABLE, input=self._settings.name, reason=reason, action="retrying")
                self.condition = failing(reason)
                await asyncio.sleep(self._backoff.failed())
                continue
            trouble.ends()
            self.condition = WORKS
            with sock:
                await self._listen(sock)

    def bound(self, descriptors: int) -> None:
        """One socket is all it has."""

    def _open(self) -> socket.socket:
        """Raises OSError."""
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        sock = socket.socket(socket.AF_NETLINK, kind, NETLINK_AUDIT)
        try:
            set_receive_buffer(sock, self._settings.receive_buffer)
            sock.bind((0, READLOG))
            self._boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        except OSError:
            sock.close()
            raise
        self._drops = 0
        log.info(Log.AUDIT_OPENED, input=self._settings.name)
        return sock

    async def _listen(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._agent.intake.ready()
            readable = loop.create_future()
            loop.add_reader(sock, _done, readable)
            try:
                await readable
            finally:
                loop.remove_reader(sock)
            self._drain(sock)

    def _drain(self, sock: socket.socket) -> None:
        """Hand over what waits, a chunk of it at most. Raises OSError."""
        records: list[bytes] = []
        size = 0
        serial = b""
        overflowed = False
        for _ in range(READ_RECORDS):
            if size >= CHUNK_BYTES:
                break
            try:
                data, sender = sock.recvfrom(MAX_RECORD)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                overflowed = True
                continue
            if sender[0] or len(data) < _HEADER.size:  # not the kernel
                continue
            kind = _HEADER.unpack_from(data)[1]
            text = data[_HEADER.size :].rstrip(b"\n\0")
            if (match := _SERIAL.match(text)) is None:
                continue
            serial = match[1]
            if not self._heard:
                self._heard = True
                self._count_missed(int(serial))
            if kind == SYSCALL and self._own in text:
                self._leave_out = serial
            if serial == self._leave_out:
                continue
            name = _NAMES.get(kind) or b"%d" % kind
            record = b"type=%b msg=%b\n" % (name, text.replace(b"\n", b" "))  # user space may send several lines
            records.append(record)
            size += len(record)
        if overflowed:
            self._count_overflow(sock)
        if records:
            position = FilePosition(self._path, 0, self._boot, int(serial))
            chunk = Chunk(
                self._settings.name, self._settings.format, self._agent.clock(), b"".join(records), file=position
            )
            self._agent.deliver(chunk)

    def _count_overflow(self, sock: socket.socket) -> None:
        drops = _drops(sock)
        if drops > self._drops:
            self._gap(Dropped.KERNEL, drops - self._drops, "the socket's buffer was full: raise receive_buffer")
            self._drops = drops

    def _count_missed(self, first: int) -> None:
        """Events numbered before ``first``, the first that came, and after the last that was handed over."""
        if self._last is None:
            return
        before = self._last.position if self._last.fingerprint == self._boot else 0
        if first - before - 1 > OWN:
            self._gap(Dropped.MISSED, first - before - 1 - OWN, "there were events while the agent did not listen")

    def _gap(self, dropped: Dropped, number: int, reason: str) -> None:
        name = self._settings.name
        self._agent.counters.totals["audit_gaps"] += 1
        self._agent.counters.drop(name, dropped, number)
        log.warning(Log.AUDIT_GAP, input=name, reason=reason, lost=number)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _drops(sock: socket.socket) -> int:
    """Messages that the kernel dropped because this socket's buffer was full."""
    inode = str(os.fstat(sock.fileno()).st_ino)
    with suppress(OSError, IndexError, ValueError), open("/proc/net/netlink", encoding="ascii") as lines:
        for columns in map(str.split, lines):
            if columns[9] == inode:
                return int(columns[8])
    return 0
