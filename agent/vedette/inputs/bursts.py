"""Many datagrams by one system call: recvmmsg(2), through ctypes; one by one where a sandbox refuses the call.

Python's own ``recvfrom`` costs 1.5 µs a datagram, of which the kernel needs 0.6; by recvmmsg it is 0.8 µs in all.
Structures are laid out as on Linux with 64 bits, little-endian: that is what the agent is built for, as the pattern
matcher is.

Each datagram lands in a slot that holds the longest there can be, so none is ever cut. The slots are memory of which
only the pages that datagrams have reached exist: SLOTS pages with ordinary traffic, SLOTS times 64 KiB at most.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import socket
import sys
from typing import NamedTuple

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


def receiver(sock: socket.socket) -> Burst | OneByOne:
    """The fastest way to read a bound, non-blocking datagram socket that this process may use."""
    try:
        return Burst(sock)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EACCES):
            raise
        return OneByOne(sock)


class OneByOne:
    """recvfrom on such a socket: as ``Burst``, in twice the time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.full = False
        """The last call reached its limit, so that more may wait."""

    def receive(self) -> Received | None:
        """Return the datagrams that wait, up to a limit; None when none does, or one had an error. Never waits."""
        datagrams = list[bytes]()
        hosts = list[str]()
        size = 0
        try:
            while len(datagrams) < SLOTS and size < BIG:
                data, (host, *_) = self._sock.recvfrom(LONGEST)
                datagrams.append(data)
                hosts.append(host)
                size += len(data)
            self.full = True
        except OSError:  # nothing waits any more, mostly
            self.full = False
        if not datagrams:
            return None
        peers = hosts[:1] if hosts.count(hosts[0]) == len(hosts) else hosts
        return Received(b"".join(datagrams), list(map(len, datagrams)), peers)


class Burst:
    """recvmmsg on one bound, non-blocking datagram socket. Raises OSError where a sandbox refuses the call."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._memory = mmap.mmap(-1, SLOTS * _STRIDE)
        self._vectors = (_IoVec * SLOTS)()
        self._headers = (_MMsgHdr * SLOTS)()
        self._names = bytearray(SLOTS * _NAME)
        names = (ctypes.c_char * len(self._names)).from_buffer(self._names)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        # An address has one length per family, which the kernel leaves as it is, and so the slots stay packed.
        self._name = {socket.AF_INET: 16, socket.AF_INET6: _NAME}.get(sock.family, 0)
        for i in range(SLOTS):
            self._vectors[i] = _IoVec(base + i * _STRIDE, LONGEST)
            header = self._headers[i].header
            header.iov = ctypes.addressof(self._vectors[i])
            header.iovlen = 1
            header.name = ctypes.addressof(names) + i * self._name
            header.namelen = self._name
        self._lengths = memoryview(self._headers).cast("B").cast("I")[_MMsgHdr.length.offset // 4 :: _WORDS]
        self._starts = [i * _STRIDE for i in range(SLOTS)]
        # Not CDLL, which lets another thread run meanwhile: a call takes 40 µs, and getting back may take far longer.
        self._call = ctypes.PyDLL(None, use_errno=True).recvmmsg
        self._call.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
        self._address = ctypes.addressof(self._headers)
        if self._call(sock.fileno(), self._address, 0, socket.MSG_DONTWAIT, None) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), "recvmmsg")
        self._limit = SLOTS
        self._texts: dict[bytes, str] = {}
        self.full = False
        """The last call reached its limit, so that more may wait."""

    def receive(self) -> Received | None:
        """Return the datagrams that wait, up to a limit; None when none does, or one had an error. Never waits."""
        limit = self._limit
        count = self._call(self._sock.fileno(), self._address, limit, socket.MSG_DONTWAIT, None)
        self.full = count == limit
        if count <= 0:
            return None
        lengths = self._lengths[:count].tolist()
        memory = self._memory
        data = b"".join([memory[start : start + length] for start, length in zip(self._starts, lengths, strict=False)])
        self._limit = SLOTS if len(data) < BIG else FEW
        return Received(data, lengths, self._peers(count))

    def _peers(self, count: int) -> list[str]:
        size = self._name
        names = self._names
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
    text = socket.inet_ntop(socket.AF_INET6, key[:16])
    scope = int.from_bytes(key[16:], sys.byteorder)
    if scope:
        try:
            return f"{text}%{socket.if_indextoname(scope)}"
        except OSError:  # the interface went
            return f"{text}%{scope}"
    return text
