"""A connection by itself, to a broker that a test plays."""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

from structlog.testing import capture_logs

from tests.broker import own_port
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


async def test_an_attempt_that_fails_when_nobody_waits_for_it() -> None:
    """As of a command whose time to connect is over: asyncio has no traceback to show."""
    loop, gate, shown = asyncio.get_running_loop(), threading.Event(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: shown.append(context))
    loop.set_default_executor(ThreadPoolExecutor(1))
    loop.run_in_executor(None, gate.wait)

    async def given_up() -> None:
        client = MqttClient(MqttSettings(url=f"mqtt://127.0.0.1:{own_port()}"), "a")
        running = asyncio.create_task(client.run())
        await eventually("an attempt", lambda: client.attempts)
        running.cancel()
        await asyncio.wait({running})

    await given_up()
    gate.set()
    await loop.shutdown_default_executor()
    await asyncio.sleep(0)
    gc.collect()
    assert not shown


async def test_a_session_that_is_taken_over() -> None:
    """A broker that says so (MQTT 5, 3.14.2.1) is understood: it is logged once for what it is, counted each time."""

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionResetError):
            await reader.read(1000)
            writer.write(b"\x20\x03\0\0\0")  # CONNACK
            writer.write(b"\xe0\x02\x8e\0")  # DISCONNECT
            await writer.drain()

    with capture_logs() as logs:
        async with await asyncio.start_server(broker, "127.0.0.1", 0) as server:
            url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            client = MqttClient(MqttSettings(url=url), "edge-1", backoff=(0.01, 0.01))
            async with client.running():
                await eventually("four connections", lambda: client.taken_over >= 4)
                said = "another machine or process took the session over: it connected under the same client id"
                assert client.outage == client.trouble == said
    (entry,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert (entry["event"], entry["client_id"], entry["reason"]) == ("broker_taken_over", "edge-1", said)
    assert entry["action"].startswith("give each an id of its own")
