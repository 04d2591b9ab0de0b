"""Senders that cost less than what they measure: datagrams by sendmmsg(2), MQTT publications ready-made.

``send.py`` is exact about a broken connection; these two are fast, and raise OSError on one.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from collections.abc import Sequence

TURN = 0.001
"""Seconds between two bursts of datagrams."""
_BURST = 512
WINDOW = 500
"""Publications without PUBACK at most."""


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _MsgHdr(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint32),
        ("iov", ctypes.POINTER(_IoVec)),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _MMsgHdr(ctypes.Structure):
    _fields_ = (("header", _MsgHdr), ("sent", ctypes.c_uint32))


class Datagrams:
    """``lines`` (sent in turn, over and over), one datagram each, to ``peer``."""

    def __init__(self, peer: tuple[str, int], lines: Sequence[bytes]) -> None:
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.connect(peer)
        self.count = len(lines)
        self._data = ctypes.create_string_buffer(b"".join(lines))
        self._vectors = (_IoVec * self.count)()
        self._messages = (_MMsgHdr * self.count)()
        at = ctypes.addressof(self._data)
        for i, line in enumerate(lines):
            self._vectors[i] = _IoVec(at, len(line))
            self._messages[i].header.iov = ctypes.pointer(self._vectors[i])
            self._messages[i].header.iovlen = 1
            at += len(line)
        self._sendmmsg = ctypes.CDLL(None, use_errno=True).sendmmsg
        self._at = 0

    def send(self, rate: float, seconds: float) -> int:
        """Send at ``rate`` a second for ``seconds``; returns how many the kernel took."""
        began, sent = time.monotonic(), 0
        size = ctypes.sizeof(_MMsgHdr)
        start = ctypes.addressof(self._messages)
        while (now := time.monotonic() - began) < seconds:
            due = int(now * rate) - sent
            if due < 1:
                time.sleep(TURN)
                continue
            many = min(due, _BURST, self.count - self._at)
            taken = self._sendmmsg(self.sock.fileno(), ctypes.c_void_p(start + self._at * size), many, 0)
            if taken < 0:
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error))
            sent += taken
            self._at = (self._at + taken) % self.count
        return sent

    def close(self) -> None:
        self.sock.close()


def _packet(kind: int, body: bytes) -> bytes:
    """A control packet of MQTT 3.1.1 (section 2.2: fixed header, remaining length)."""
    length, size = bytearray(), len(body)
    while True:
        size, digit = size >> 7, size & 127
        length.append(digit | (128 if size else 0))
        if not size:
            return bytes([kind]) + bytes(length) + body


def _text(value: bytes) -> bytes:
    return struct.pack("!H", len(value)) + value


def publish(peer: tuple[str, int], messages: Sequence[tuple[bytes, bytes]]) -> float:
    """Publish (topic, payload) with QoS 1, at most WINDOW unacknowledged; returns the seconds until the last PUBACK."""
    with socket.create_connection(peer) as connection:
        connection.sendall(_packet(0x10, _text(b"MQTT") + b"\x04\x02\x00\x3c" + _text(b"bench-publisher")))
        if connection.recv(4)[:1] != b"\x20":
            raise OSError("the broker did not accept the connection")
        began, acknowledged, given = time.monotonic(), 0, 0
        while acknowledged < 4 * len(messages):  # a PUBACK has 4 bytes
            room = WINDOW - (given - acknowledged // 4)
            if room > WINDOW // 2 and given < len(messages):
                batch = messages[given : given + room]
                connection.sendall(
                    b"".join(
                        _packet(0x32, _text(topic) + struct.pack("!H", (given + i) % 65535 + 1) + payload)
                        for i, (topic, payload) in enumerate(batch)
                    )
                )
                given += len(batch)
                continue
            if not (data := connection.recv(1 << 16)):
                raise OSError("the broker closed the connection")
            acknowledged += len(data)
        return time.monotonic() - began
