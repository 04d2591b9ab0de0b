"""Who may connect over TCP: accept, admit or refuse, shake hands.

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

One ``Gate`` per input, shared by its ``Acceptor`` for each listening socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
import ssl
import struct
from collections.abc import Callable
from functools import partial

import structlog

from vedette.inputs.datagrams import host
from vedette.model.counters import Counters, Log
from vedette.mqtt.tls import Renewed, reason
from vedette.system.descriptors import ADVICE

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


def network(peer: str) -> str:
    """What counts as one peer: an IPv4 address, the first 64 bits of an IPv6 address."""
    if ":" not in peer:
        return peer
    return str(ipaddress.ip_network((peer.partition("%")[0], 64), strict=False))


class Place:
    """One connection's place; ``leave`` gives it back, and may be called again."""

    __slots__ = ("_gate", "_waiting", "active", "close", "network", "peer")

    def __init__(self, gate: Gate, peer: str, network: str) -> None:
        self.peer = peer
        self.network = network
        self.close: Callable[[], object] = _nothing
        """Ends the connection at once; set by whoever has it."""
        self._gate: Gate | None = gate
        self._waiting: _Waiting | None = None
        self.active = False
        """Neither silent nor idle: it gives way to nobody."""
        self._wait(gate.silent)

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
        if self._gate is not None:
            gate, self._gate = self._gate, None
            self._wait(None)
            gate._leave(self)


class _Waiting:
    """Connections that may be closed for others, by network, the longest there first."""

    def __init__(self) -> None:
        self._places: dict[str, dict[Place, None]] = {}

    def add(self, place: Place) -> None:
        self._places.setdefault(place.network, {})[place] = None

    def discard(self, place: Place) -> None:
        of_network = self._places[place.network]
        del of_network[place]
        if not of_network:
            del self._places[place.network]

    def first(self, network: str, above: int = 0) -> Place | None:
        """Of ``network``, or (``""``) of that which has the most, and more than ``above``."""
        if not network:
            network = max(self._places, key=lambda one: len(self._places[one]), default="")
        of_network = self._places.get(network, {})
        return next(iter(of_network)) if len(of_network) > above else None


def _nothing() -> None:
    pass


class Gate:
    """How many connections of one input are open, in all and by peer."""

    def __init__(self, name: str, limit: int, per_peer: int, counters: Counters) -> None:
        self._name = name
        self.limit = self._configured = limit
        """``max_connections``, or what the limit of open files leaves of it."""
        self._per_peer = per_peer
        self._counters = counters
        self._open = 0
        self._peers: dict[str, int] = {}
        self.silent, self.idle = _Waiting(), _Waiting()
        self._reported: set[str] = set()
        """Networks (``""``: all) whose refusal or eviction was logged, since there was room last."""
        self._strangers: set[str] = set()
        """Networks whose failed handshake was logged."""

    @property
    def open(self) -> int:
        """Connections that are open."""
        return self._open

    @property
    def evicted(self) -> int:
        """Connections that were closed for others, of all inputs."""
        return self._counters.totals["connections_evicted"]

    def enter(self, peer: str) -> Place | None:
        """Count a connection in; None when there is no room for it."""
        key = network(peer)
        if self._peers.get(key, 0) >= self._per_peer:
            full, text = key, f"max_connections_per_peer = {self._per_peer} from {key} are open"
        elif self._open >= self.limit:
            full, text = "", f"max_connections = {self._configured} are open"
            if self.limit < self._configured:
                text = f"{self.limit} connections are open, as many as the limit of open files leaves"
        else:
            self._reported.discard("")
            self._reported.discard(key)
            return self._place(peer, key)
        if not self.make_room(full, text, self._peers.get(key, 0)):
            self._refuse(full, peer, f"{text}: raise it, or close some")
            return None
        return self._place(peer, key)

    def _place(self, peer: str, key: str) -> Place:
        place = Place(self, peer, key)
        self._open += 1
        self._peers[key] = self._peers.get(key, 0) + 1
        return place

    def make_room(self, network: str, why: str, above: int = 0) -> bool:
        """Close a connection of ``network`` that is silent, else one that is idle; of any network (``""``) one that has
        the most such, and more idle ones than ``above``. False when there is none."""
        place, fault = self.silent.first(network), "it has sent nothing"
        if place is None:
            place, fault = self.idle.first(network, 0 if network else above), "it has been idle longest"
        if place is None:
            return False
        place.leave()
        place.close()
        self._counters.totals["connections_evicted"] += 1
        reason = f"{why}; {fault}: closed to make room for another"
        self._report(place.network, Log.CONNECTION_EVICTED, place.peer, reason)
        return True

    def _leave(self, place: Place) -> None:
        key = place.network
        self._open -= 1
        self._peers[key] -= 1
        if not self._peers[key]:
            del self._peers[key]

    def trusted(self, peer: str) -> None:
        """A handshake was completed."""
        self._strangers.discard(network(peer))

    def stranger(self, peer: str, why: str) -> None:
        """A handshake failed."""
        self._counters.totals["handshakes_failed"] += 1
        if network(peer) not in self._strangers and len(self._strangers) < LOGGED_PEERS:
            self._strangers.add(network(peer))
            log.warning(Log.TLS_REFUSED, input=self._name, peer=peer, reason=why, action="further ones are counted")

    def _refuse(self, key: str, peer: str, why: str) -> None:
        self._counters.totals["connections_refused"] += 1
        self._report(key, Log.CONNECTION_REFUSED, peer, why)

    def _report(self, key: str, event: Log, peer: str, why: str) -> None:
        if key not in self._reported and len(self._reported) < LOGGED_PEERS:
            self._reported.add(key)
            log.warning(event, input=self._name, peer=peer, reason=why, action="further ones are counted")


class Acceptor:
    """Accepts at one bound, listening, non-blocking socket, which it owns; with ``tls`` it shakes hands.

    ``make(place)`` gives the protocol of a connection that is admitted, which leaves its place when ``connection_lost``
    comes; for a connection that does not get as far this is done here.
    """

    def __init__(
        self,
        sock: socket.socket,
        gate: Gate,
        make: Callable[[Place], asyncio.BufferedProtocol],
        tls: Renewed[ssl.SSLContext] | None = None,
    ) -> None:
        self._sock = sock
        self._gate = gate
        self._make = make
        self._tls = tls
        self._tls_fault = ""
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._spent = False
        """There was no descriptor left, and that was logged."""
        self._pause: asyncio.TimerHandle | None = None
        self._loop.add_reader(sock.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more; connections that still shake hands end."""
        if self._sock.fileno() < 0:
            return
        self._loop.remove_reader(self._sock.fileno())
        if self._pause is not None:
            self._pause.cancel()
        self._sock.close()
        for task in self._opening:
            task.cancel()

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
                return  # none waits; an error of another kind concerns one connection, and the next turn goes on
            self._spent = False
            place = self._gate.enter(host(address[0]))
            if place is None:
                with contextlib.suppress(OSError):  # a reset leaves nothing behind, here and there
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                sock.close()
                continue
            sock.setblocking(False)
            task = self._loop.create_task(self._open(sock, place))
            place.close = task.cancel
            self._opening.add(task)
            task.add_done_callback(partial(self._opened, sock, place))

    def _wait_for_descriptors(self, error: OSError) -> None:
        why = f"cannot accept: {error.strerror}"
        if self._gate.make_room("", why):
            return
        if not self._spent:
            self._spent = True
            action = f"tried again every {FULL_SECONDS:g} s; {ADVICE}"
            log.error(Log.CONNECTION_REFUSED, peer="", reason=why, action=action)
        self._loop.remove_reader(self._sock.fileno())
        self._pause = self._loop.call_later(FULL_SECONDS, self._loop.add_reader, self._sock.fileno(), self._accept)

    async def _open(self, sock: socket.socket, place: Place) -> None:
        idle, interval, probes = KEEPALIVE
        try:
            for level, option, value in (
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
                (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle),
                (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval),
                (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, probes),
            ):
                sock.setsockopt(level, option, value)
            if self._tls is None:
                await self._loop.connect_accepted_socket(lambda: self._make(place), sock)
                return
            await self._loop.connect_accepted_socket(
                lambda: self._make(place),
                sock,
                ssl=self._context(self._tls),
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=GOODBYE_SECONDS,
            )
            self._gate.trusted(place.peer)
        except (OSError, ValueError) as error:
            sock.close()
            place.leave()
            if self._tls is not None:
                self._gate.stranger(place.peer, f"TLS handshake failed: {reason(error)}")

    def _opened(self, sock: socket.socket, place: Place, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        if task.cancelled():  # maybe before it had begun
            sock.close()
            place.leave()

    def _context(self, tls: Renewed[ssl.SSLContext]) -> ssl.SSLContext:
        """The newest context; if reloading fails, logs it and keeps the last good one."""
        try:
            context = tls.get()
        except (OSError, ValueError) as error:
            if tls.last is None:
                raise
            if str(error) != self._tls_fault:
                self._tls_fault = str(error)
                log.error(Log.CERTIFICATE_UNUSABLE, reason=str(error), action="the one before stays in use")
            return tls.last
        self._tls_fault = ""
        return context
