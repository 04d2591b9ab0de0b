"""Notifies systemd over ``$NOTIFY_SOCKET``: sd_notify(3), one datagram of ``KEY=value`` lines each.

``READY=1`` when inputs are open, ``RELOADING=1`` (with ``MONOTONIC_USEC``) and ``READY=1`` around a reload,
``STOPPING=1`` at the stop, ``STATUS=`` for ``systemctl status``, and ``WATCHDOG=1`` as often as ``interval`` says.
An address that begins with ``@`` is in the abstract namespace. Without the variable nothing is sent.

Nothing here blocks or raises: the agent does not depend on being heard. A ping that is not heard is one that systemd
misses, which is what the watchdog is for.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress


class Notifier:
    """The supervisor, as far as there is one."""

    def __init__(self, address: str = "", watchdog: float = 0.0) -> None:
        """``watchdog``: seconds without a ping after which the supervisor acts (``WatchdogSec``); 0: it does not."""
        self.interval = watchdog / 3
        """Seconds between two pings: two may be late."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if address else None
        if self._socket is not None:
            self._socket.setblocking(False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Notifier:
        """By ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID``; values that are none are as if not set."""
        environ = os.environ if environ is None else environ
        usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
        ours = usec.isdecimal() and (not pid or pid == str(os.getpid()))
        address = environ.get("NOTIFY_SOCKET", "")
        return cls(address if address[:1] in ("/", "@") else "", int(usec) / 1e6 if ours else 0.0)

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=reloading")

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=stopping")

    def status(self, text: str) -> None:
        self._send(f"STATUS={text}")

    def ping(self) -> None:
        """The agent is alive: evaluation and the disk both make progress."""
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if self._socket is not None:
            with suppress(OSError):  # see the module's text
                self._socket.sendto("\n".join(line.replace("\n", " ") for line in lines).encode(), self._address)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
