"""A broker of MQTT 3.1.1 alone: a real mosquitto behind a door that refuses other versions as such brokers do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

from tests.broker import Broker

UNACCEPTABLE = b"\x20\x02\x00\x01"
"""CONNACK: unacceptable protocol version (MQTT 3.1.1, 3.2.2.3)."""


@asynccontextmanager
async def only_311(broker: Broker, refusal: bytes = UNACCEPTABLE) -> AsyncIterator[tuple[str, list[int]]]:
    """Yield its URL, and the protocol levels that it was asked for; ``refusal``: what it answers to any but 4."""
    levels: list[int] = []
    tasks = set[asyncio.Task[None]]()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):
            begin = await reader.readexactly(2)
            while begin[-1] & 128:
                begin += await reader.readexactly(1)
            begin += await reader.readexactly(7)  # the length and the name of the protocol, and its level
            levels.append(begin[-1])
            if begin[-1] != 4:
                writer.write(refusal)
                return
            further, onward = await asyncio.open_connection("127.0.0.1", broker.port)
            onward.write(begin)
            await asyncio.gather(pump(reader, onward), pump(further, writer))

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async with await asyncio.start_server(accepted, "127.0.0.1", 0) as server:
        yield f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}", levels
        for task in [*tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
