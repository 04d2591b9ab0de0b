"""Requests over HTTP/1.1 and TLS by urllib3, which the agent carries for The Update Framework.

Certificates and names are always checked. Connections can be shut down while a thread waits for one of them: a server
that sends a byte now and then holds nothing up.
"""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import urllib3

MAX_REASON = 500
"""Characters."""


class Connections:
    """Those that a manager has made."""

    def __init__(self) -> None:
        self._all: list[Any] = []

    def manager(
        self, proxy: str, ca_file: Path | None, cert_file: Path | None, key_file: Path | None, **about: Any
    ) -> urllib3.PoolManager:
        """A manager with a connection a host; ``about`` is urllib3's. Raises OSError where a file cannot be read."""
        context = ssl.create_default_context(cafile=ca_file)
        if cert_file is not None:
            context.load_cert_chain(cert_file, key_file)
        about |= {"maxsize": 1, "ssl_context": context}
        pool = urllib3.ProxyManager(proxy, **about) if proxy else urllib3.PoolManager(**about)
        pool.pool_classes_by_scheme = {
            "http": self._pool(urllib3.HTTPConnectionPool), "https": self._pool(urllib3.HTTPSConnectionPool),
        }  # fmt: skip
        return pool

    def shut_down(self) -> None:
        """Below TLS, without its close_notify; what waits for an answer fails. From any thread."""
        for connection in list(self._all):
            if (sock := connection.sock) is not None:
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def forget(self) -> None:
        self._all.clear()

    def _pool(self, base: Any) -> Any:
        every = self._all

        class Connection(base.ConnectionCls):  # type: ignore[misc]  # it is one of two classes
            def __init__(self, *args: Any, **attributes: Any) -> None:
                super().__init__(*args, **attributes)
                every.append(self)

        return type("Pool", (base,), {"ConnectionCls": Connection})


def retry_after(text: str | None) -> float | None:
    """Seconds of a header ``Retry-After`` (RFC 9110, 10.2.3), a number or a date; None where it is neither."""
    if not text:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def reason(error: BaseException) -> str:
    """What is at the bottom of an error of urllib3's; that of a request names no URL, which may hold a key."""
    while isinstance(error, urllib3.exceptions.HTTPError):
        below = getattr(error, "reason", None)
        below = below if isinstance(below, BaseException) else error.__cause__
        if below is None:
            break
        error = below
    text = str(error).rpartition("object at 0x")[2].partition(">: ")[2] or str(error)
    return " ".join(text.split())[:MAX_REASON] or type(error).__name__
