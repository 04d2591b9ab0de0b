"""Many datagrams by one system call: recvmmsg(2), through ctypes.

Python's own ``recvfrom_into`` costs 1.5 µs a datagram, of which the kernel needs 0.6; by recvmmsg it is 0.8 µs in all.
``receiver`` gives a ``Burst`` where the C library has the call, structures are laid out as here (Linux with 64 bits,
little-endian) and a trial on a pair of sockets brings back what was sent; anywhere else ``OneByOne``, which gives the
same, slower.

Each datagram lands in a slot that holds the longest there can be, so none is ever cut. The slots are memory of which
only the pages that datagrams have reached exist: SLOTS pages with ordinary traffic, SLOTS times 64 KiB at most.
"""

from __future__ import annotations

import ctypes
import mmap
import socket
import sys
from contextlib import suppress
from typing import NamedTuple, Protocol

LONGEST = 65535
"""Bytes of a datagram: more than UDP can carry over IPv4 and, jumbograms apart, IPv6."""
SLOTS = 64
"""Datagrams of one call. More gain no time."""
FEW = 4
"""Datagrams of one call after one that brought more than BIG: no step of the loop shall take long."""
BIG = 256 << 10
PEERS = 4096
"""Addresses whose text is remembered."""
_STRIDE = 65600
"""Not a power of two, lest all slots share one set of the processor's cache."""
_NAME = 28
"""Bytes of a sockaddr_in6, the longest that an address here has."""


class Received(NamedTuple):
    """Datagrams in the order in which they came: ``data`` one behind the other, and how long each is.

    ``peers``: whose they are, one host address for all or one each, as ``recvfrom`` gives it.
    """

    data: bytes
    lengths: list[int]
    peers: list[str]


class Receiver(Protocol):
    def receive(self) -> Received | None:
        """What waits, up to a limit; None when nothing does, or one datagram had an error. Never waits."""

    full: bool
    """Whether the last call reached its limit, so that more may wait."""


class OneByOne:
    """The same by ``recvfrom_into``, one call a datagram."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = memoryview(bytearray(LONGEST + 1))
        self.full = False

    def receive(self) -> Received | None:
        parts, peers, size = list[bytes](), list[str](), 0
        with suppress(OSError):
            while len(parts) < SLOTS and size < BIG:
                length, address = self._sock.recvfrom_into(self._buffer)
                parts.append(bytes(self._buffer[:length]))
                peers.append(address[0])
                size += length
        self.full = len(parts) == SLOTS or size >= BIG
        return Received(b"".join(parts), list(map(len, parts)), peers) if parts else None


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _MsgHdr(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint32),
        ("iov", ctypes.c_void_p),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _MMsgHdr(ctypes.Structure):
    _fields_ = (("header", _MsgHdr), ("length", ctypes.c_uint32))


class Burst:
    """recvmmsg on one non-blocking datagram socket. Raises AttributeError or OSError where that cannot be."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._memory = mmap.mmap(-1, SLOTS * _STRIDE)
        self._vectors, self._headers = (_IoVec * SLOTS)(), (_MMsgHdr * SLOTS)()
        self._names = bytearray(SLOTS * _NAME)
        names = (ctypes.c_char * len(self._names)).from_buffer(self._names)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        # An address has one length per family, which the kernel leaves as it is, and so the slots stay packed.
        self._name = {socket.AF_INET: 16, socket.AF_INET6: _NAME}.get(sock.family, 0)
        for i in range(SLOTS):
            self._vectors[i] = _IoVec(base + i * _STRIDE, LONGEST)
            header = self._headers[i].header
            header.iov, header.iovlen = ctypes.addressof(self._vectors[i]), 1
            header.name, header.namelen = ctypes.addressof(names) + i * self._name, self._name
        self._lengths = memoryview(self._headers).cast("B").cast("I")[_MMsgHdr.length.offset // 4 :: _WORDS]
        self._starts = [i * _STRIDE for i in range(SLOTS)]
        # Not CDLL, which lets another thread run meanwhile: a call takes 40 µs, and getting back may take far longer.
        self._call = ctypes.PyDLL(None, use_errno=True).recvmmsg
        self._call.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
        self._address = ctypes.addressof(self._headers)
        self._limit = SLOTS
        self._texts: dict[bytes, str] = {}
        self.full = False

    def receive(self) -> Received | None:
        limit = self._limit
        count = self._call(self._sock.fileno(), self._address, limit, socket.MSG_DONTWAIT, None)
        self.full = count == limit
        if count <= 0:
            return None
        lengths, memory = self._lengths[:count].tolist(), self._memory
        data = b"".join([memory[start : start + length] for start, length in zip(self._starts, lengths, strict=False)])
        self._limit = SLOTS if len(data) < BIG else FEW
        return Received(data, lengths, self._peers(count))

    def _peers(self, count: int) -> list[str]:
        size, names = self._name, self._names
        first = bytes(names[:size])
        if names.startswith(first * count):  # one sender's burst
            return [self._text(first)]
        return [self._text(bytes(names[at : at + size])) for at in range(0, count * size, size)]

    def _text(self, name: bytes) -> str:
        """The host of a sockaddr_in (family, port, address) or sockaddr_in6 (family, port, flow, address, scope)."""
        key = name[4:8] if len(name) < _NAME else name[8:]
        if (text := self._texts.get(key)) is None:
            if len(self._texts) >= PEERS:
                self._texts.clear()
            text = self._texts[key] = _host(key)
        return text


_WORDS = ctypes.sizeof(_MMsgHdr) // 4


def _host(key: bytes) -> str:
    if len(key) == 4:
        return socket.inet_ntop(socket.AF_INET, key)
    text, scope = socket.inet_ntop(socket.AF_INET6, key[:16]), int.from_bytes(key[16:], sys.byteorder)
    if scope:
        try:
            return f"{text}%{socket.if_indextoname(scope)}"
        except OSError:  # the interface went
            return f"{text}%{scope}"
    return text


def receiver(sock: socket.socket) -> Receiver:
    """The faster of the two that works here, for a bound and non-blocking socket."""
    return Burst(sock) if _works() else OneByOne(sock)


_proved: list[bool] = []


def _works() -> bool:
    """Whether a trial brings back what was sent; made once in a process."""
    if not _proved:
        _proved.append(_trial())
    return _proved[0]


def _trial() -> bool:
    if sys.platform != "linux" or sys.byteorder != "little" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    sent = [b"vedette", b"", b"x" * 9000]
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours, socket.socket(ours.family, ours.type) as theirs:
            ours.setblocking(False)
            ours.bind(("127.0.0.1", 0))
            for data in sent:
                theirs.sendto(data, ours.getsockname())
            return Burst(ours).receive() == Received(b"".join(sent), list(map(len, sent)), ["127.0.0.1"])
    except (AttributeError, OSError):
        return False
