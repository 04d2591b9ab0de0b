"""Senders that cost less than what they measure: datagrams many at a time, MQTT publications ready-made.

``send.py`` is exact about a broken connection; these two are fast, and raise OSError on one.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Sequence

TURN = 0.001
"""Seconds between two bursts of datagrams."""
_BURST = 48
"""Datagrams cut from one call: 64 and 64 KiB are the kernel's limits."""
_UDP_SEGMENT = 103
WINDOW = 500
"""Publications without PUBACK at most."""


class Datagrams:
    """``lines``, one datagram each, over and over, to ``peer``.

    The kernel cuts them from what one call hands it (UDP_SEGMENT, udp(7)), which takes lines of one length: they are
    sent in groups of those. That is 0.6 µs a datagram on loopback, with all the kernel does to deliver it; sendmmsg is
    2.6.
    """

    def __init__(self, peer: tuple[str, int], lines: Sequence[bytes]) -> None:
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.connect(peer)
        by_length: dict[int, list[bytes]] = {}
        for line in lines:
            by_length.setdefault(len(line), []).append(line)
        self._groups = [
            (b"".join(some[at : at + _BURST]), length, len(some[at : at + _BURST]))
            for length, some in by_length.items()
            for at in range(0, len(some), _BURST)
        ]
        random.Random(1).shuffle(self._groups)
        self._at = 0

    def send(self, rate: float, seconds: float) -> int:
        """Send at ``rate`` a second for ``seconds``; returns how many the kernel took."""
        began, sent = time.monotonic(), 0
        groups, send = self._groups, self.sock.sendmsg
        while (now := time.monotonic() - began) < seconds:
            due = int(now * rate)
            if sent >= due:
                time.sleep(TURN)
            while sent < due:
                data, length, count = groups[self._at]
                send([data], [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("=H", length))])
                sent += count
                self._at = (self._at + 1) % len(groups)
        return sent

    def close(self) -> None:
        self.sock.close()


def packet(kind: int, body: bytes) -> bytes:
    """A control packet of MQTT (fixed header, remaining length)."""
    length, size = bytearray(), len(body)
    while True:
        size, digit = size >> 7, size & 127
        length.append(digit | (128 if size else 0))
        if not size:
            return bytes([kind]) + bytes(length) + body


def text(value: str | bytes) -> bytes:
    """A text or a name with its length."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("!H", len(data)) + data


def connect(name: bytes) -> bytes:
    """CONNECT of a client of that name with a clean session."""
    return packet(0x10, text(b"MQTT") + b"\x04\x02\x00\x3c" + text(name))


def publish(peer: tuple[str, int], messages: Sequence[tuple[bytes, bytes]]) -> float:
    """Publish (topic, payload) with QoS 1, at most WINDOW unacknowledged; returns the seconds until the last PUBACK."""
    with socket.create_connection(peer) as connection:
        connection.sendall(connect(b"bench-publisher"))
        if connection.recv(4)[:1] != b"\x20":
            raise OSError("the broker did not accept the connection")
        began, acknowledged, sent = time.monotonic(), 0, 0
        while acknowledged < 4 * len(messages):  # a PUBACK has 4 bytes
            room = WINDOW - (sent - acknowledged // 4)
            if room > WINDOW // 2 and sent < len(messages):
                batch = messages[sent : sent + room]
                connection.sendall(
                    b"".join(
                        packet(0x32, text(topic) + struct.pack("!H", (sent + i) % 65535 + 1) + payload)
                        for i, (topic, payload) in enumerate(batch)
                    )
                )
                sent += len(batch)
                continue
            if not (data := connection.recv(1 << 16)):
                raise OSError("the broker closed the connection")
            acknowledged += len(data)
        return time.monotonic() - began
