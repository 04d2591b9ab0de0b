"""MQTT 5 for thousands of clients in one process: one ``asyncio.Protocol`` each, packets made by hand.

What of the protocol (OASIS MQTT 5.0) an agent uses: CONNECT with a retained last will, SUBSCRIBE and UNSUBSCRIBE,
PUBLISH at QoS 1 in both directions, PINGREQ, DISCONNECT. A packet that is none of these ends the connection, loudly:
this is for a bench, where nothing else may come.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from typing import Protocol

from bench.fast import packet, text

KEEPALIVE = 60
RECEIVE_MAXIMUM = 100


class Owner(Protocol):
    """What a client reports to."""

    def up(self) -> None: ...

    def came(self, topic: str, payload: bytes) -> None: ...

    def down(self) -> None: ...


class Traffic:
    """Of all clients together."""

    __slots__ = ("in_bytes", "in_messages", "out_bytes", "out_messages")

    def __init__(self) -> None:
        self.in_bytes = self.in_messages = self.out_bytes = self.out_messages = 0

    def figures(self) -> tuple[int, int, int, int]:
        return self.in_messages, self.in_bytes, self.out_messages, self.out_bytes


def connect(client_id: str, will: tuple[str, bytes] | None, expiry: int) -> bytes:
    """CONNECT of a session that the broker keeps for ``expiry`` seconds; a will is retained, QoS 1."""
    flags = (0x02 if not expiry else 0) | (0x2C if will else 0)
    properties = b"\x11" + struct.pack(">I", expiry) + b"\x21" + struct.pack(">H", RECEIVE_MAXIMUM)
    body = (
        text("MQTT") + b"\x05" + bytes([flags]) + struct.pack(">H", KEEPALIVE) + bytes([len(properties)]) + properties
    )
    body += text(client_id)
    if will:
        body += b"\x00" + text(will[0]) + text(will[1])
    return packet(0x10, body)


class Client(asyncio.Protocol):
    """One connection. ``owner.up`` is called once it is accepted."""

    __slots__ = ("_buffer", "_expiry", "_id", "_next", "_owner", "_traffic", "_will", "transport")

    def __init__(
        self, client_id: str, owner: Owner, traffic: Traffic, *, will: tuple[str, bytes] | None = None, expiry: int = 0
    ) -> None:
        self._id, self._owner, self._traffic, self._will, self._expiry = client_id, owner, traffic, will, expiry
        self._buffer, self._next = b"", 0
        self.transport: asyncio.Transport | None = None

    # --- what it sends

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """QoS 1; the PUBACK is not waited for."""
        body = text(topic) + self._number() + b"\x00" + payload
        self._send(packet(0x32 | retain, body))
        self._traffic.out_messages += 1

    def subscribe(self, topics: Iterable[str]) -> None:
        """QoS 1."""
        self._send(packet(0x82, self._number() + b"\x00" + b"".join(text(topic) + b"\x01" for topic in topics)))

    def unsubscribe(self, topics: Iterable[str]) -> None:
        self._send(packet(0xA2, self._number() + b"\x00" + b"".join(map(text, topics))))

    def ping(self) -> None:
        self._send(b"\xc0\x00")

    def close(self) -> None:
        """In order: no will is sent."""
        self._send(b"\xe0\x00")
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """As a process that was killed: the broker sends the will."""
        if self.transport is not None:
            self.transport.abort()

    def _number(self) -> bytes:
        self._next = self._next % 0xFFFF + 1
        return struct.pack(">H", self._next)

    def _send(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)
            self._traffic.out_bytes += len(data)

    # --- what comes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._send(connect(self._id, self._will, self._expiry))

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._owner.down()

    def data_received(self, data: bytes) -> None:
        self._traffic.in_bytes += len(data)
        data = self._buffer + data if self._buffer else data
        at = 0
        while (end := _end(data, at)) is not None:
            begin, stop = end
            self._took(data[at], data[begin:stop])
            at = stop
        self._buffer = data[at:]

    def _took(self, first: int, body: bytes) -> None:
        kind = first & 0xF0
        if kind == 0x30:
            self._published(first, body)
        elif kind == 0x20:
            if body[1]:
                raise ConnectionError(f"{self._id}: the broker refused it with reason {body[1]:#x}")
            self._owner.up()
        elif kind not in (0x40, 0x90, 0xB0, 0xD0):
            raise ConnectionError(f"{self._id}: unexpected packet {first:#x}, {body[:20].hex()}")

    def _published(self, first: int, body: bytes) -> None:
        at = 2 + struct.unpack_from(">H", body)[0]
        topic = body[2:at].decode()
        if first & 0x06:
            self._send(b"\x40\x02" + body[at : at + 2])
            at += 2
        size, shift = 0, 0
        while True:
            byte = body[at]
            size, shift, at = size | (byte & 0x7F) << shift, shift + 7, at + 1
            if not byte & 0x80:
                break
        self._traffic.in_messages += 1
        self._owner.came(topic, body[at + size :])


def _end(data: bytes, at: int) -> tuple[int, int] | None:
    """Where the body of the packet at ``at`` begins and ends; None: not all of it is here."""
    size = shift = 0
    for i in range(at + 1, min(at + 5, len(data))):
        byte = data[i]
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (i + 1, i + 1 + size) if i + 1 + size <= len(data) else None
    return None
