"""Who may connect over TCP: bind, accept, admit or refuse, shake hands.

Promises:

* At most ``max_connections`` in all (fewer where the limit of open files does not leave as many: ``descriptors.py``),
  and ``max_connections_per_peer`` from one peer, are open at a time, those that still shake hands among them. A peer is
  an IPv4 address, or an IPv6 network of 64 bits: who has one address of it has all.
* A connection that has not sent one whole message is **silent**. When there is no room for a further connection, a
  silent one is closed for it and counted (``connections_evicted``): the oldest one of the same peer when that has as
  many as it may; else the oldest one of the peer that has the most silent ones. So those who connect and send nothing
  keep nobody out, and displace one another before they displace who has only just connected.
* Where none is silent, one that has been **idle** (without a whole message for ``IDLE_SECONDS``) is closed instead: the
  one idle longest of the same peer when that has as many as it may; else of the peer that has the most idle ones, if
  these are more than all that the newcomer's peer has open. So those who send two bytes and stay keep nobody out
  either, and a sender of a few lines a day loses its connection only where everybody has as few.
* Where nothing gives way, the further connection is reset at once, before anything is made for it, and counted
  (``connections_refused``). Either is logged once, and again only after there was room.
* A turn of the event loop accepts ``TURN`` connections at most, so that a flood of attempts leaves others their turn;
  and only as many as ``EVICTED`` in the place of others, whose descriptors are free in the next turn.
* When the process has no descriptor left a silent connection gives way, too; else it is tried again in a second.
* A TLS handshake ends within ``HANDSHAKE_SECONDS``. One that fails is counted (``handshakes_failed``) and logged with
  its reason, once per peer until that peer gets through. Certificates are checked as ``tls.py`` says.
* A peer that has vanished without a word is found by keep-alive probes: after ``KEEPALIVE`` of silence.

``bind``, also of UDP, gives each address that a host name resolves to a socket of its own; one of a family that the
host lacks is skipped as long as another is there. All or nothing: when one fails, those bound before it are closed. A
socket that systemd opened for the address is taken in place of a new one (sd_listen_fds(3): ``$LISTEN_FDS`` of them
from descriptor 3 on, for the process ``$LISTEN_PID``). So a port below 1024 needs no capability, and what arrives while
the agent restarts waits in the kernel. They stay systemd's: closing them here does not close the port.

One ``Gate`` per input, shared by its ``Acceptor`` for each listening socket; who reads a connection extends
``Admitted``, its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import structlog

from vedette.model.counters import Counters, Log
from vedette.model.settings import split_address
from vedette.system.descriptors import ADVICE
from vedette.system.trouble import Firsts, Trouble

if TYPE_CHECKING:
    from vedette.mqtt.tls import Renewed

log = structlog.get_logger()

TURN = 64
"""Connections accepted per turn of the event loop."""
EVICTED = 8
"""Connections closed for others in one."""
HANDSHAKE_SECONDS = 10.0
GOODBYE_SECONDS = 1.0
"""For a TLS peer to answer that we close."""
KEEPALIVE = (60, 15, 4)
"""Seconds of silence until the first probe, seconds between probes, probes without an answer: 2 minutes in all."""
LOGGED_PEERS = 1000
"""Peers of whom refusals and evictions are logged one by one; those of further ones are only counted."""
IDLE_SECONDS = 60.0
"""Without a whole message: the connection may be closed for another."""
FULL_SECONDS = 1.0
"""Pause when the process has no file descriptor left."""

_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RESET = struct.pack("ii", 1, 0)
_PROBES = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)


def network(peer: str) -> str:
    """Return what counts as one peer: an IPv4 address, the first 64 bits of an IPv6 address."""
    if ":" not in peer:
        return peer
    return str(ipaddress.ip_network((peer.partition("%")[0], 64), strict=False))


class Admitted(asyncio.BufferedProtocol):
    """A connection that a ``Gate`` counts, from before its handshake until ``connection_lost``."""

    transport: asyncio.Transport

    def __init__(self, gate: Gate, peer: str) -> None:
        self.peer = peer
        self.network = network(peer)
        self.active = False
        """Neither silent nor idle: it gives way to nobody."""
        self._gate: Gate | None = gate
        self._waiting: _Waiting | None = None
        self._opening: asyncio.Task[None] | None = None
        self._wait(gate.silent)

    def open(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Shake hands, where there is ``tls``; ``connection_made`` comes then. A failure gives the place back."""
        self._opening = asyncio.get_running_loop().create_task(self._open(sock, tls))
        self._opening.add_done_callback(partial(self._opened, sock))

    async def _open(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        gate = self._gate
        loop = asyncio.get_running_loop()
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in zip(_PROBES, KEEPALIVE, strict=True):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
            if tls is None:
                await loop.connect_accepted_socket(lambda: self, sock)
                return
            await loop.connect_accepted_socket(
                lambda: self,
                sock,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=GOODBYE_SECONDS,
            )
            if gate is not None:
                gate.trusted(self.peer)
        except (OSError, ValueError) as error:
            sock.close()
            self.leave()
            if tls is not None and gate is not None:
                from vedette.mqtt.tls import reason

                gate.stranger(self.peer, f"TLS handshake failed: {reason(error)}")

    def _opened(self, sock: socket.socket, task: asyncio.Task[None]) -> None:
        self._opening = None
        if task.cancelled():  # maybe before it had begun
            sock.close()
            self.leave()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._opening = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()

    def give_up(self) -> bool:
        """End the connection when it still shakes hands; False when it does not."""
        opening, self._opening = self._opening, None
        return opening is not None and opening.cancel()

    def evict(self) -> None:
        """End the connection at once; its place is free."""
        self.leave()
        if not self.give_up():
            self.transport.abort()

    def _wait(self, waiting: _Waiting | None) -> None:
        if self._waiting is not None:
            self._waiting.discard(self)
        self._waiting = waiting
        self.active = waiting is None
        if waiting is not None:
            waiting.add(self)

    def spoke(self) -> None:
        """A whole message came."""
        self._wait(None)

    def idles(self) -> None:
        """None has come for IDLE_SECONDS, after others had."""
        if self._gate is not None and self.active:
            self._wait(self._gate.idle)

    def leave(self) -> None:
        """Give the place back; may be called again."""
        if self._gate is not None:
            gate, self._gate = self._gate, None
            self._wait(None)
            gate.left(self)


class _Waiting:
    """Connections that may be closed for others, by network, the longest there first."""

    def __init__(self) -> None:
        self._places: dict[str, dict[Admitted, None]] = {}

    def add(self, place: Admitted) -> None:
        self._places.setdefault(place.network, {})[place] = None

    def discard(self, place: Admitted) -> None:
        of_network = self._places[place.network]
        del of_network[place]
        if not of_network:
            del self._places[place.network]

    def first(self, network: str, above: int = 0) -> Admitted | None:
        """Return the first of ``network``, or (``""``) of that which has the most, and more than ``above``."""
        if not network:
            network = max(self._places, key=lambda candidate: len(self._places[candidate]), default="")
        of_network = self._places.get(network, {})
        return next(iter(of_network)) if len(of_network) > above else None


class Gate:
    """How many connections of one input are open, in all and by peer."""

    def __init__(self, name: str, limit: int, per_peer: int, counters: Counters) -> None:
        self._name = name
        self.limit = self._configured = limit
        """``max_connections``, or what the limit of open files leaves of it."""
        self._per_peer = per_peer
        self._counters = counters
        self._places: set[Admitted] = set()
        self._peers = Counter[str]()
        self.silent = _Waiting()
        self.idle = _Waiting()
        self._reported = Firsts(LOGGED_PEERS)
        """Networks (``""``: all) whose refusal or eviction was logged, since there was room last."""
        self._strangers = Firsts(LOGGED_PEERS)
        """Networks whose failed handshake was logged."""

    @property
    def open(self) -> int:
        """Connections that are open."""
        return len(self._places)

    @property
    def evicted(self) -> int:
        """Connections that were closed for others, of all inputs."""
        return self._counters.totals["connections_evicted"]

    def enter(self, peer: str, make: Callable[[Gate, str], Admitted]) -> Admitted | None:
        """Count in a connection, made for it by ``make(gate, peer)``; None when there is no room for it."""
        key = network(peer)
        full = ""
        why = ""
        if self._peers[key] >= self._per_peer:
            full = key
            why = f"max_connections_per_peer = {self._per_peer} from {key} are open"
        elif self.open >= self.limit:
            why = f"max_connections = {self._configured} are open"
            if self.limit < self._configured:
                why = f"{self.limit} connections are open, as many as the limit of open files leaves"
        else:
            self._reported.forget("", key)
        if why and not self.make_room(full, why, self._peers[key]):
            self._counters.totals["connections_refused"] += 1
            self._report(self._reported, full, Log.CONNECTION_REFUSED, peer, f"{why}: raise it, or close some")
            return None
        place = make(self, peer)
        self._places.add(place)
        self._peers[key] += 1
        return place

    def make_room(self, network: str, why: str, above: int = 0) -> bool:
        """Close a connection of ``network`` that is silent, else one that is idle; of any network (``""``) one that has
        the most such, and more idle ones than ``above``. False when there is none."""
        place = self.silent.first(network)
        fault = "it has sent nothing"
        if place is None:
            place = self.idle.first(network, 0 if network else above)
            fault = "it has been idle longest"
        if place is None:
            return False
        place.evict()
        self._counters.totals["connections_evicted"] += 1
        reason = f"{why}; {fault}: closed to make room for another"
        self._report(self._reported, place.network, Log.CONNECTION_EVICTED, place.peer, reason)
        return True

    def left(self, place: Admitted) -> None:
        """A connection has ended."""
        self._places.discard(place)
        self._peers[place.network] -= 1
        if not self._peers[place.network]:
            del self._peers[place.network]

    def close(self) -> None:
        """Connections that still shake hands end."""
        for place in list(self._places):
            place.give_up()

    def trusted(self, peer: str) -> None:
        """A handshake was completed."""
        self._strangers.forget(network(peer))

    def stranger(self, peer: str, why: str) -> None:
        """A handshake failed."""
        self._counters.totals["handshakes_failed"] += 1
        self._report(self._strangers, network(peer), Log.TLS_REFUSED, peer, why)

    def _report(self, reported: Firsts, key: str, event: Log, peer: str, why: str) -> None:
        if reported.add(key):
            log.warning(event, input=self._name, peer=peer, reason=why, action="further ones are counted")


class Acceptor:
    """Accepts at one bound, listening, non-blocking socket, which it owns; with ``tls`` it shakes hands.

    ``make`` makes what is admitted (``Gate.enter``).
    """

    def __init__(
        self,
        sock: socket.socket,
        gate: Gate,
        make: Callable[[Gate, str], Admitted],
        tls: Renewed[ssl.SSLContext] | None = None,
    ) -> None:
        self._sock = sock
        self._gate = gate
        self._make = make
        self._tls = tls
        self._certificate = Trouble()
        self._loop = asyncio.get_running_loop()
        self.trouble = Trouble()
        """Why it cannot accept."""
        self._pause: asyncio.TimerHandle | None = None
        self._loop.add_reader(sock.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more."""
        if self._sock.fileno() < 0:
            return
        self._loop.remove_reader(self._sock.fileno())
        if self._pause is not None:
            self._pause.cancel()
        self._sock.close()

    def _accept(self) -> None:
        evicted = self._gate.evicted
        for number in range(TURN):
            if self._gate.evicted - evicted >= EVICTED:
                return
            try:
                sock, address = self._sock.accept()
            except OSError as error:
                if error.errno in _OUT_OF_FILES and not number:  # later it comes also when nobody waits
                    self._wait_for_descriptors(error)
                elif isinstance(error, BlockingIOError):
                    self.trouble.ends()
                return  # none waits; an error of another kind concerns one connection, and the next turn goes on
            self.trouble.ends()
            connection = self._gate.enter(host(address[0]), self._make)
            if connection is None:
                with contextlib.suppress(OSError):  # a reset leaves nothing behind, here and there
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                sock.close()
                continue
            sock.setblocking(False)
            connection.open(sock, self._context())

    def _wait_for_descriptors(self, error: OSError) -> None:
        why = f"cannot accept: {error.strerror}"
        if self._gate.make_room("", why):
            return
        if self.trouble.begins(why):
            action = f"tried again every {FULL_SECONDS:g} s; {ADVICE}"
            log.error(Log.CONNECTION_REFUSED, peer="", reason=why, action=action)
        self._loop.remove_reader(self._sock.fileno())
        self._pause = self._loop.call_later(FULL_SECONDS, self._accept_again)

    def _accept_again(self) -> None:
        self._loop.add_reader(self._sock.fileno(), self._accept)
        self._accept()  # who waited may be gone, and a reader would hear of nobody

    def _context(self) -> ssl.SSLContext | None:
        """The newest context; if reloading fails, logs it and keeps the last good one. None without TLS."""
        if self._tls is None:
            return None
        try:
            context = self._tls.get()
        except (OSError, ValueError) as error:
            if self._tls.last is None:
                raise
            if self._certificate.begins(str(error)):
                log.error(Log.CERTIFICATE_UNUSABLE, reason=str(error), action="the one before stays in use")
            return self._tls.last
        self._certificate.ends()
        return context


_ADVICE = {
    errno.EADDRINUSE: "another program is on this port: stop it, or choose another port",
    errno.EACCES: "ports below 1024 are opened by systemd: give vedette-udp.socket and vedette-tcp.socket this address"
    " (install.sh --listen does), or choose a higher port",
    errno.EADDRNOTAVAIL: "no interface of this host has this address",
}
_FAMILY_MISSING = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


async def bind(input: str, kind: str, address: str) -> list[socket.socket]:
    """Non-blocking sockets of ``address`` (``host:port``; empty: none). ``kind``: "udp", else one of a stream.

    Raises OSError naming the input, the address and what to do; nothing stays open then.
    """
    if not address:
        return []
    name, port = split_address(address)
    socktype = socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        resolved = await asyncio.get_running_loop().getaddrinfo(name, port, type=socktype)
        for family, where in dict.fromkeys((family, where) for family, _, _, _, where in resolved):
            try:
                bound.append(_passed(socktype, where[:2]) or _opened(family, socktype, where, v6only=name != "::"))
            except OSError as error:
                if error.errno not in _FAMILY_MISSING:
                    raise
                missing = error
        if missing and not bound:
            raise missing
    except (OSError, UnicodeError) as refused:  # UnicodeError: a name that IDNA does not take
        cause = refused if isinstance(refused, OSError) else OSError(f"no name of a host: {refused}")
        for sock in bound:
            sock.close()
        advice = f" ({_ADVICE[cause.errno]})" if cause.errno in _ADVICE else ""
        reason = cause.strerror or str(cause)
        raise OSError(cause.errno, f"input {input!r}: cannot listen on {kind} {address}: {reason}{advice}") from cause
    return bound


def _opened(
    family: socket.AddressFamily, kind: socket.SocketKind, address: tuple[Any, ...], *, v6only: bool
) -> socket.socket:
    """Raises OSError, and nothing stays open then."""
    # asyncio sends at once, without Nagle's delay, only on sockets that say that they are TCP's.
    sock = socket.socket(family, kind, socket.IPPROTO_TCP if kind == socket.SOCK_STREAM else 0)
    try:
        sock.setblocking(False)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6only)
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        if kind == socket.SOCK_STREAM:
            sock.listen(1024)
    except OSError:
        sock.close()
        raise
    return sock


def _passed(kind: socket.SocketKind, address: tuple[object, ...]) -> socket.socket | None:
    """The socket of ``address`` that systemd passed, if there is one; descriptors that are no sockets are left."""
    count = os.environ.get("LISTEN_FDS", "")
    if not count.isdecimal() or os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    passed = None
    for descriptor in range(3, 3 + int(count)):
        try:
            sock = socket.socket(fileno=os.dup(descriptor))
        except OSError:  # closed, or no socket
            continue
        os.set_inheritable(descriptor, False)
        inet = sock.family in (socket.AF_INET, socket.AF_INET6)
        if passed is None and inet and sock.type == kind and sock.getsockname()[:2] == address:
            sock.setblocking(False)
            passed = sock
        else:
            sock.close()
    return passed


def host(name: str) -> str:
    """A peer's address as text; an IPv4 peer of a dual-stack socket as IPv4."""
    return name.removeprefix("::ffff:")
