"""POST over HTTP/1.1 and TLS for sinks: a few lines to one server, each one connection that is kept, in a thread.

The library is urllib3, which the agent carries for The Update Framework; it is imported when the first sink needs it.
Certificates and names are always checked. Redirects are not followed: an alert goes where the configuration says.

* One request takes at most ``timeout`` seconds, also from a server that sends a byte now and then: then its connection
  is shut down, which ends the thread's wait.
* Of an answer ``MAX_ANSWER`` bytes are read; a connection with a longer one is not used again.
* After any failure certificates and keys are read again from their files.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple

import urllib3

from vedette.sinks.base import MAX_TEXT, Answer, Verdict

MAX_ANSWER = 4096
MAX_WAIT = 3600.0
"""Seconds of ``Retry-After`` that are believed."""
LATER = frozenset({401, 402, 403, 404, 405, 407, 408, 409, 410, 421, 423, 425, 426, 429})
"""Of 4xx those that say nothing of the alert: the key, the address or the moment is wrong, which somebody can
change."""


@dataclass(frozen=True, slots=True)
class Server:
    """Whom to reach, and how."""

    url: str
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    proxy: str = ""
    timeout: float = 10.0


class Reply(NamedTuple):
    """``status`` 0: there was no answer, and ``text`` says why."""

    status: int
    text: str
    wait: float = 0.0

    def answer(self) -> Answer:
        shown = (f"HTTP {self.status} {self.text}".strip() if self.status else self.text)[:MAX_TEXT]
        if 200 <= self.status < 300:
            return Answer(Verdict.TAKEN, shown)
        if 400 <= self.status < 500 and self.status not in LATER:
            return Answer(Verdict.REFUSED, shown)
        return Answer(Verdict.LATER, shown, self.wait)


class Line:
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="sink")
        self._manager: urllib3.PoolManager | None = None
        self._connections: list[Any] = []

    async def post(self, server: Server, body: bytes, headers: Mapping[str, str]) -> Reply:
        """The server's answer."""
        loop = asyncio.get_running_loop()
        asked = loop.run_in_executor(self._executor, self._post, server, body, dict(headers))
        try:
            async with asyncio.timeout(server.timeout):
                return await asyncio.shield(asked)
        except TimeoutError:
            return Reply(0, f"no answer within {server.timeout:g} s")
        finally:
            if not asked.done():
                asked.add_done_callback(lambda future: future.cancelled() or future.exception())
                self._abort()

    def _abort(self) -> None:
        for connection in self._connections:
            if (sock := connection.sock) is not None:
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)  # below TLS, without its close_notify

    def _post(self, server: Server, body: bytes, headers: dict[str, str]) -> Reply:
        try:
            if self._manager is None:
                self._manager = self._made(server)
            response = self._manager.request(
                "POST", server.url, body=body, headers=headers, redirect=False, retries=False, preload_content=False,
            )  # fmt: skip
            data = response.read(MAX_ANSWER + 1)
            if len(data) > MAX_ANSWER:
                response.close()
            response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            self._forget()
            return Reply(0, _reason(error))
        if response.status >= 300:
            self._forget()
        text = " ".join(data[:MAX_ANSWER].decode("utf-8", "replace").split())
        return Reply(response.status, text, _wait(response.headers.get("Retry-After")))

    def _made(self, server: Server) -> urllib3.PoolManager:
        context = ssl.create_default_context(cafile=server.ca_file)
        if server.cert_file is not None:
            context.load_cert_chain(server.cert_file, server.key_file)
        about: dict[str, Any] = {
            "num_pools": 1, "maxsize": 1, "ssl_context": context, "timeout": urllib3.Timeout(server.timeout),
        }  # fmt: skip
        proxied = urllib3.ProxyManager(server.proxy, **about) if server.proxy else None
        manager = proxied or urllib3.PoolManager(**about)
        manager.pool_classes_by_scheme = {"http": self._pool(http=True), "https": self._pool(http=False)}
        return manager

    def _pool(self, *, http: bool) -> Any:
        """A class of pools whose connections ``_abort`` can shut down."""
        base: Any = urllib3.HTTPConnectionPool if http else urllib3.HTTPSConnectionPool
        connections = self._connections

        class Connection(base.ConnectionCls):  # type: ignore[misc]  # it is one of two classes
            def __init__(self, *args: Any, **attributes: Any) -> None:
                super().__init__(*args, **attributes)
                connections.append(self)

        return type("Pool", (base,), {"ConnectionCls": Connection})

    def _forget(self) -> None:
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.clear()
        self._connections.clear()

    def close(self) -> None:
        self._abort()
        self._executor.submit(self._forget)
        self._executor.shutdown(wait=False)


class Lines:
    """As many requests at a time as there are lines."""

    def __init__(self, lines: int) -> None:
        self._all = [Line() for _ in range(lines)]
        self._free = asyncio.Queue[Line]()
        for line in self._all:
            self._free.put_nowait(line)

    async def post(self, server: Server, body: bytes, headers: Mapping[str, str]) -> Reply:
        line = await self._free.get()
        try:
            return await line.post(server, body, headers)
        finally:
            self._free.put_nowait(line)

    def close(self) -> None:
        for line in self._all:
            line.close()


def _reason(error: BaseException) -> str:
    """What is at the bottom of an error of urllib3's, without the URL, which may hold a key."""
    while True:
        below = getattr(error, "reason", None)
        below = below if isinstance(below, BaseException) else error.__cause__
        if not isinstance(error, urllib3.exceptions.HTTPError) or below is None:
            return str(error).rpartition("object at 0x")[2].partition(">: ")[2] or str(error) or type(error).__name__
        error = below


def _wait(value: str | None) -> float:
    """Seconds of a header ``Retry-After`` (RFC 9110, 10.2.3): a number, or a date."""
    if not value:
        return 0.0
    if value.isascii() and value.isdigit():
        return min(float(value), MAX_WAIT)
    try:
        seconds = parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(0.0, seconds), MAX_WAIT)
