"""A relay between MQTT clients and a broker that sees whole packets, and can act in the place of an acknowledgement."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

PUBACK = 0x40
TO_CLIENT, TO_BROKER = "to the client", "to the broker"


class Relay:
    """Listens on ``port`` and relays to the broker at ``upstream`` until ``close``.

    ``arm(way, nth, act)``: at the ``nth`` PUBACK that goes that way from now on ``act`` is called once, instead of
    passing it on.
    """

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        self._armed: tuple[str, int, Callable[[], None]] | None = None
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def arm(self, way: str, nth: int, act: Callable[[], None]) -> None:
        with self._lock:
            self._armed = way, nth, act

    def disarm(self) -> None:
        with self._lock:
            self._armed = None

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End every connection, without a word of MQTT."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection(("127.0.0.1", self._upstream))
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._sockets += [client, broker]
                for source, sink, way in ((client, broker, TO_BROKER), (broker, client, TO_CLIENT)):
                    threading.Thread(target=self._pump, args=(source, sink, way), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        with suppress(OSError):
            for packet in packets(source):
                if packet[0] & 0xF0 != PUBACK or not self._acts(way):
                    sink.sendall(packet)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _acts(self, way: str) -> bool:
        with self._lock:
            if self._armed is None or self._armed[0] != way:
                return False
            _, left, act = self._armed
            self._armed = (way, left - 1, act) if left > 1 else None
            if left > 1:
                return False
        act()
        return True


def packets(source: socket.socket) -> Iterator[bytes]:
    """The control packets that come from a socket (MQTT 5, 2.1: type, remaining length of 1 to 4 bytes, the rest)."""
    buffer = bytearray()
    while data := source.recv(1 << 16):
        buffer += data
        while (size := _size(buffer)) and len(buffer) >= size:
            yield bytes(buffer[:size])
            del buffer[:size]


def _size(data: bytearray) -> int:
    """Of the packet that begins ``data``; 0 when its length is not all there."""
    length = 0
    for i, byte in enumerate(data[1:5]):
        length |= (byte & 127) << 7 * i
        if byte < 128:
            return 2 + i + length
    return 0
