"""POST for sinks (``system.https``): a few lines to one server, each one connection that is kept, in a thread.

The library is imported when the first sink needs it. Redirects are not followed: an alert goes where the configuration
says.

* One request takes at most ``timeout`` seconds, also from a server that sends a byte now and then: then its connection
  is shut down, which ends the thread's wait.
* Of an answer ``longest`` bytes are read, MAX_ANSWER where a sink says no other; the connection of a longer one is not
  used again.
* After any failure certificates and keys are read again from their files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import urllib3

from vedette.sinks.base import MAX_TEXT, Answer, Outgoing, Verdict
from vedette.system.https import Connections, reason, retry_after

MAX_ANSWER = 4096
MAX_WAIT = 3600.0
"""Seconds of ``Retry-After`` that are believed."""
LATER = frozenset({401, 402, 403, 404, 405, 407, 408, 409, 410, 421, 423, 425, 426, 429})
"""Those of 4xx that say nothing of the alert: the key, the address or the moment is wrong, which somebody can
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
    """``status`` 0: there was no answer, and ``text`` says why. ``cut``: the answer goes on behind ``text``."""

    status: int
    text: str
    wait: float = 0.0
    cut: bool = False

    def answer(self) -> Answer:
        shown = (f"HTTP {self.status} {self.text}".strip() if self.status else self.text)[:MAX_TEXT]
        if 200 <= self.status < 300:
            return Answer(Verdict.TAKEN, shown)
        if 400 <= self.status < 500 and self.status not in LATER:
            return Answer(Verdict.REFUSED, shown)
        return Answer(Verdict.LATER, shown, self.wait)


class Line:
    """One connection, one request at a time."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="sink")
        self._manager: urllib3.PoolManager | None = None
        self._connections = Connections()

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
                self._connections.shut_down()

    def _post(self, server: Server, body: bytes, headers: dict[str, str]) -> Reply:
        try:
            if self._manager is None:
                self._manager = self._connections.manager(
                    server.proxy, server.ca_file, server.cert_file, server.key_file,
                    num_pools=1, timeout=urllib3.Timeout(server.timeout),
                )  # fmt: skip
            response = self._manager.request(
                "POST", server.url, body=body, headers=headers, redirect=False, retries=False, preload_content=False,
            )  # fmt: skip
            data = response.read(self._longest + 1)
            cut = len(data) > self._longest
            if cut:
                response.close()
            response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            self._forget()
            return Reply(0, reason(error))
        if response.status >= 300:
            self._forget()
        text = " ".join(data[: self._longest].decode("utf-8", "replace").split())
        wait = min(retry_after(response.headers.get("Retry-After")) or 0.0, MAX_WAIT)
        return Reply(response.status, text, wait, cut)

    def _forget(self) -> None:
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.clear()
        self._connections.forget()

    def close(self) -> None:
        self._connections.shut_down()
        self._executor.submit(self._forget)
        self._executor.shutdown(wait=False)


class Lines:
    """As many requests at a time as there are lines."""

    def __init__(self, lines: int, longest: int = MAX_ANSWER) -> None:
        self._all = [Line(longest) for _ in range(lines)]
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


async def together(alerts: Sequence[Outgoing], send: Callable[[Sequence[Outgoing]], Awaitable[Answer]]) -> list[Answer]:
    """Send alerts in one piece; what is refused so, in halves, that a bad one takes no other with it."""
    answer = await send(alerts)
    half = len(alerts) // 2
    if answer.verdict is not Verdict.REFUSED or not half:
        return [answer] * len(alerts)
    answers = await together(alerts[:half], send)
    if answers[-1].verdict in (Verdict.LATER, Verdict.UNTRIED):
        return answers + [Answer(Verdict.UNTRIED)] * (len(alerts) - half)
    return answers + await together(alerts[half:], send)
