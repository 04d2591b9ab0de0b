"""The routes of this host, as the kernel has them: of every table and family, with every next hop.

One dump by rtnetlink(7) names the host's own addresses (routes of type local) and gateways, those of a route with
several next hops or of the other family too; a second one gateways of next hops that are objects of their own
(since Linux 5.3), of which a route may say no more than a number. Nothing is left out in silence: what cannot be read
whole is an error.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from ipaddress import ip_address

from vedette.response.decide import Address
from vedette.response.nft import HINTS

MOST = 8 << 20
"""Bytes of a dump, some 100,000 routes: more is a router with all routes of the Internet."""
SECONDS = 5.0
"""For one answer of the kernel."""
TRIES = 5
"""Of a dump, each of which may be spoilt by a change meanwhile."""
_MESSAGE = struct.Struct("=IHHII")  # linux/netlink.h: length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_GET_ROUTE, _GET_NEXT_HOP = 26, 106  # linux/rtnetlink.h; below the bytes of rtmsg and nhmsg behind the header
_ROUTE_BYTES, _NEXT_HOP_BYTES = 12, 8
_REQUEST_DUMP, _INTERRUPTED = 0x301, 0x10
_ERROR, _DONE = 2, 3
_DESTINATION, _GATEWAY, _MULTIPATH, _VIA = 1, 5, 9, 18
_OBJECT_GATEWAY = 6  # linux/nexthop.h
_LOCAL = 2


def routes() -> tuple[set[Address], set[Address]]:
    """The host's own addresses, and its gateways. Blocks; raises OSError when they cannot be read whole."""
    own, gateways = set[bytes](), set[bytes]()
    try:
        for message in _dump(_GET_ROUTE, _ROUTE_BYTES):
            bits, kind = message[1], message[7]
            gateways.update(_next_hops(message[_ROUTE_BYTES:]))
            if kind == _LOCAL:
                destinations = (value for name, value in _attributes(message[_ROUTE_BYTES:]) if name == _DESTINATION)
                own.update(value for value in destinations if bits == 8 * len(value))
        for message in _dump(_GET_NEXT_HOP, _NEXT_HOP_BYTES):
            objects = _attributes(message[_NEXT_HOP_BYTES:])
            gateways.update(value for name, value in objects if name == _OBJECT_GATEWAY)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = next((hint for text, hint in HINTS.items() if text in reason), "")
        raise OSError(f"the routes of this host cannot be read: {reason}{hint}") from error
    return _addresses(own), _addresses(gateways)


def _dump(request: int, size: int) -> list[bytes]:
    """The messages that answer ``request``, whose own part has ``size`` bytes, each without its header. OSError."""
    for _ in range(TRIES):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as sock:
            sock.settimeout(SECONDS)
            sock.send(_MESSAGE.pack(_MESSAGE.size + size, request, _REQUEST_DUMP, 1, 0) + bytes(size))
            if (messages := _answer(sock, request)) is not None:
                return messages
    raise OSError("they change all the time")


def _answer(sock: socket.socket, request: int) -> list[bytes] | None:
    """None: it was interrupted by a change. OSError."""
    messages, whole, left = list[bytes](), True, MOST
    while True:
        data = sock.recv(64 << 10)  # the kernel sends 32 KiB at most
        left -= len(data)
        if left < 0:
            raise OSError(f"they are more than {MOST:,} bytes")
        at = 0
        while at < len(data):
            length, kind, flags, _, _ = _MESSAGE.unpack_from(data, at)
            body = data[at + _MESSAGE.size : at + length]
            at += max(_MESSAGE.size, length + 3 & ~3)
            whole = whole and not flags & _INTERRUPTED
            if kind in (_ERROR, _DONE):
                code = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
                if code and not (request == _GET_NEXT_HOP and code == errno.EOPNOTSUPP):  # an older kernel has none
                    raise OSError(code, os.strerror(code))
                return messages if whole else None
            messages.append(body)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, name = _ATTRIBUTE.unpack_from(data, at)
        yield name & 0x3FFF, data[at + _ATTRIBUTE.size : at + length]
        at += max(_ATTRIBUTE.size, length + 3 & ~3)


def _next_hops(data: bytes) -> Iterator[bytes]:
    """The gateways among the attributes ``data`` of a route."""
    for name, value in _attributes(data):
        if name == _GATEWAY:
            yield value
        elif name == _VIA:
            yield value[2:]  # behind its family
        elif name == _MULTIPATH:
            while len(value) >= 8:  # struct rtnexthop: its length, then flags, hops, interface
                length = max(8, _ATTRIBUTE.unpack_from(value)[0])
                yield from _next_hops(value[8:length])
                value = value[length + 3 & ~3 :]


def _addresses(values: set[bytes]) -> set[Address]:
    """Those of IP: the next hop of a label (MPLS) may be one of Ethernet."""
    return {ip_address(value) for value in values if len(value) in (4, 16) and any(value)}
