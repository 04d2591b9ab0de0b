"""A TCP proxy before a real broker that can be told to misbehave as networks and brokers do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

PUBACK = 4
"""Packet type (MQTT 5, 2.1.2)."""


class Proxy:
    """``mode``: "pass"; "no puback": the broker's acknowledgements do not come through, all else does; "silent":
    connections are taken and nothing passes; "reset": every connection is cut. It holds for open connections, too."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.mode: Literal["pass", "no puback", "silent", "reset"] = "pass"
        self.port = 0
        self.connections = 0
        self.swallowed = 0
        """Acknowledgements."""
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Reset every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            if self.mode == "reset":
                return
            with suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
                try:
                    tasks = [
                        asyncio.create_task(self._up(reader, far_writer)),
                        asyncio.create_task(self._down(far_reader, writer)),
                    ]
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
                finally:
                    far_writer.transport.abort()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if self.mode != "silent":
                writer.write(data)
                await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readexactly(1)
            size, shift = 0, 0
            while True:  # a variable byte integer (MQTT 5, 1.5.5)
                byte = await reader.readexactly(1)
                head += byte
                size |= (byte[0] & 127) << shift
                shift += 7
                if byte[0] < 128:
                    break
            packet = head + await reader.readexactly(size)
            if self.mode == "no puback" and head[0] >> 4 == PUBACK:
                self.swallowed += 1
            elif self.mode != "silent":
                writer.write(packet)
                await writer.drain()


@asynccontextmanager
async def proxied(target: int) -> AsyncIterator[Proxy]:
    """A started proxy before the broker at port ``target``."""
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
