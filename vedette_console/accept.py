"""Who may connect, and how long a request may take to arrive: those who connect and say nothing stop nobody.

* A network (an IPv4 address, the first 64 bits of an IPv6 address) has at most ``EACH`` connections at a time, those
  that still shake hands among them. A further one is reset at once, which is logged once until the network has none. A
  trusted proxy speaks for many: it has as many as there are.
* All have at most ``ALL``. From ``AT_ONCE`` on a new connection takes the place of the one that has waited longest for
  the head of a request; where none waits, requests are answered with 503.
* A TLS handshake ends within ``HEAD_SECONDS``, and so does the head of each request, from the connection or from its
  own first byte; a head has at most ``HEAD_BYTES``. A body ends within ``BODY_SECONDS`` of its head, not counting while
  the console does not read it. A peer acknowledges what is sent to it within ``UNREAD_SECONDS``, and takes ``LEAST``
  bytes of what waits for it in each. Else its connection is reset.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

import structlog
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from vedette.inputs.accept import host, network
from vedette_console.settings import EVERY_PROXY

AT_ONCE = 1_500
EACH = 256
ALL = 2_000
HEAD_SECONDS, BODY_SECONDS, UNREAD_SECONDS = 10.0, 60.0, 60.0
HEAD_BYTES = LEAST = 64 << 10
TURN = 64
"""Connections that one turn of the event loop resets."""

_RESET = struct.pack("ii", 1, 0)
log = structlog.get_logger(__name__)


class Listening(socket.socket):
    """A socket that counts whom it accepts. ``proxies``: addresses and networks, ``*`` for all."""

    def __init__(self, family: int, kind: int, protocol: int, proxies: Iterable[str] = ()) -> None:
        super().__init__(family, kind, protocol)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(UNREAD_SECONDS * 1000))
        self._all_proxies = EVERY_PROXY in proxies
        self._proxies = [ipaddress.ip_network(proxy, strict=False) for proxy in proxies if proxy != EVERY_PROXY]
        self._open = Counter[str]()
        self._reported: set[str] = set()

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises BlockingIOError when nobody waits who may come in."""
        for _ in range(TURN):
            accepted, address = super().accept()
            peer = host(address[0])
            place = "" if self._proxied(peer) else network(peer)
            if self._open.total() < ALL and (not place or self._open[place] < EACH):
                self._open[place] += 1
                return _Accepted(accepted, self, place), address
            self._report(place, peer)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            accepted.close()
        raise BlockingIOError

    def left(self, place: str) -> None:
        """A connection of this network is closed."""
        self._open[place] -= 1
        if not self._open[place]:
            del self._open[place]
            self._reported.discard(place)

    def _proxied(self, peer: str) -> bool:
        address = ipaddress.ip_address(peer.partition("%")[0])
        return self._all_proxies or any(address in proxies for proxies in self._proxies)

    def _report(self, place: str, peer: str) -> None:
        if self._open[place] and place not in self._reported:
            self._reported.add(place)
            log.warning(
                "connections_refused", peer=peer, open=self._open[place], of_all=self._open.total(),
                action="further ones are reset; a proxy is named by --trusted-proxy",
            )  # fmt: skip


class _Accepted(socket.socket):
    """A connection, which gives its place back when it is closed."""

    def __init__(self, accepted: socket.socket, listening: Listening, place: str) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())
        self._listening: Listening | None = listening
        self._place = place

    def close(self) -> None:
        super().close()
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.left(self._place)


class Timed(HttpToolsProtocol):
    """A connection whose requests arrive in time. ``waiting``: those without the head of a request, the oldest first;
    all of a server share it."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], waiting: dict[Timed, None]
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._waiting = waiting
        self._late: asyncio.TimerHandle | None = None
        """Of the request that is arriving; None while none is."""
        self._in_body = False
        self._head = 0
        """Bytes of the head."""
        self._unread: asyncio.TimerHandle | None = None
        """While answers wait for the peer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        if len(self.connections) >= AT_ONCE and self._waiting:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.transport.abort()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        self._taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._late is None:
            self._await_head()
        self._head += len(data)
        super().data_received(data)
        if self._late is not None and not self._in_body and self._head > HEAD_BYTES:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_taking()

    def resume_writing(self) -> None:
        self._taken()
        super().resume_writing()

    def _await_taking(self) -> None:
        most = self.transport.get_write_buffer_size() - LEAST
        self._unread = self.loop.call_later(UNREAD_SECONDS, self._is_unread, most)

    def _is_unread(self, most: int) -> None:
        if self.transport.get_write_buffer_size() > most:
            self.transport.abort()
        else:
            self._await_taking()

    def _taken(self) -> None:
        if self._unread is not None:
            self._unread.cancel()

    def on_headers_complete(self) -> None:
        self._arrived()
        self._in_body = True
        self._late = self.loop.call_later(BODY_SECONDS, self._is_late)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arrived()
        super().on_message_complete()

    def _await_head(self) -> None:
        self._late = self.loop.call_later(HEAD_SECONDS, self._is_late)
        self._waiting[self] = None

    def _arrived(self) -> None:
        """A head, or a whole request."""
        if self._late is not None:
            self._late.cancel()
        self._late, self._in_body, self._head = None, False, 0
        self._waiting.pop(self, None)

    def _is_late(self) -> None:
        if self._in_body and self.flow.read_paused:  # by the console
            self._late = self.loop.call_later(BODY_SECONDS, self._is_late)
        else:
            self.transport.abort()
