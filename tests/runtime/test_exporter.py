"""``/metrics``: who connects and waits, or does not read, keeps nobody else out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.looptime import forward
from tests.waits import DEADLINE, eventually
from vedette.runtime.agent import exporter
from vedette.runtime.agent.exporter import EACH, MAX_CONNECTIONS, Exporter

STATUS = {"agent_id": "a", "fleet": "f", "site": "s", "version": "1"}


def serving(work: Callable[[Exporter], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch, page: bytes = b"x 1\n") -> Any:
    """What ``work`` gives while ``page`` is served."""
    monkeypatch.setattr(exporter, "text", lambda status: page)

    async def main() -> Any:
        async def status() -> dict[str, Any]:
            return STATUS

        served = Exporter("0.0.0.0:0", status)
        await served.start()
        try:
            async with asyncio.timeout(DEADLINE):
                return await work(served)
        finally:
            await served.stop()

    return asyncio.run(main())


SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


async def scrape(port: int, here: str, request: bytes = SCRAPE) -> bytes:
    """Return the answer to a peer at the address ``here``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(here, 0))
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_", "first"),
    [
        (SCRAPE, b"HTTP/1.1 200 OK\r\n"),
        (b"HEAD /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 404 Not Found\r\n"),
        (b"DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed\r\n"),
        (
            b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
            b"HTTP/1.1 413 ",
        ),
        (b"metrics, please\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000, b"HTTP/1.1 431 Request Header Fields Too Large\r\n"),
    ],
)
def test_an_answer(request_: bytes, first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only GET and HEAD of /metrics have the page; what else is sent is refused."""
    answer = serving(lambda served: scrape(served.port, "127.0.0.1", request_), monkeypatch)
    assert answer.startswith(first)
    assert answer.endswith(b"x 1\n") == request_.startswith(SCRAPE)


def test_one_who_opens_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is refused further ones; others are answered, and so is this one once some are closed."""

    async def work(served: Exporter) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(EACH)]
        await eventually("all", lambda: len(vars(served)["_open"]) == EACH)
        assert await scrape(served.port, "127.0.0.1") == b""
        assert (await scrape(served.port, "127.0.0.2")).endswith(b"x 1\n")
        for _, writer in silent:
            writer.close()
        await eventually("room", lambda: not vars(served)["_open"])
        assert (await scrape(served.port, "127.0.0.1")).endswith(b"x 1\n")

    serving(work, monkeypatch)


def test_many_who_open_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """And say nothing: whoever waits longest is disconnected for the next."""

    async def work(served: Exporter) -> None:
        silent = []
        for number in range(MAX_CONNECTIONS):
            here = f"127.0.1.{1 + number // EACH}"
            silent.append(await asyncio.open_connection("127.0.0.1", served.port, local_addr=(here, 0)))
        await eventually("all", lambda: len(vars(served)["_open"]) == MAX_CONNECTIONS)
        assert (await scrape(served.port, "127.0.0.2")).endswith(b"x 1\n")
        reader, _ = silent[0]
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        for _, writer in silent:
            writer.close()
        await eventually("none", lambda: not vars(served)["_open"])

    serving(work, monkeypatch)


def test_one_who_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is disconnected after a while, and what was for it is gone."""

    async def work(served: Exporter) -> bool:
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            await eventually("a connection", lambda: vars(served)["_open"])
            forward(asyncio.get_running_loop(), exporter.SECONDS)
            await eventually("its end", lambda: not vars(served)["_open"])

            def read() -> bool:
                try:
                    return sum(len(part) for part in iter(lambda: connection.recv(1 << 20), b"")) < 64 << 20
                except ConnectionResetError:
                    return True

            return await asyncio.to_thread(read)

    assert serving(work, monkeypatch, b"x" * (64 << 20))
