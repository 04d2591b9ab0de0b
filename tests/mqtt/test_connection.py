"""A connection by itself, to a broker that a test plays."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from contextlib import closing, suppress

from tests.waits import eventually
from vedette.mqtt.client import MqttClient
from vedette.mqtt.connection import REGION_PACKET, Session
from vedette.mqtt.settings import MqttSettings

HALF = 16 << 20


async def test_a_connection_that_ends_lets_go_of_its_half_received_packet() -> None:
    """What has come of a packet of many megabytes when the broker goes is not kept, though nothing is collected."""
    connections = 0

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with closing(writer), suppress(ConnectionResetError):  # by the client, at the end
            await reader.read(1000)
            writer.write(b"\x20\x03\0\0\0")  # CONNACK
            await reader.read(1000)
            writer.write(b"\x90\x04\0\x01\0\x01")  # SUBACK
            writer.write(b"\x30\x80\x80\x80\x10" + b"\0\1t\0" + bytes(HALF))  # PUBLISH of 32 MiB
            await writer.drain()

    gc.disable()
    tracemalloc.start()
    try:
        async with await asyncio.start_server(broker, "127.0.0.1", 0) as server:
            url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            session = Session(max_packet=REGION_PACKET)
            client = MqttClient(MqttSettings(url=url), "a", subscriptions=["t"], session=session, backoff=(0.01, 0.01))
            async with client.running():
                await eventually("five connections", lambda: connections >= 5)
                assert "connection lost" in client.outage
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert most > HALF
    assert kept < 2 * HALF, "no more than the connection under way"
