"""A real mosquitto on a loopback port of its own, for every test that needs a broker.

``Broker`` writes its configuration into a folder, starts the server and can stop it, kill it with SIGKILL and start it
again on the same port and the same persistence file. Unless ``durable``, what the broker holds is written only by an
orderly ``stop``: a ``kill`` then loses every message that it has acknowledged, as a broker on a real host may.
"""

from __future__ import annotations

import getpass
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waits import DEADLINE, pauses

_PORTS: list[socket.socket] = []
"""Bound and not listening, each on one port, until this process ends."""


def own_port() -> int:
    """A TCP port of loopback that is this process's own until it ends, also while no server is on it.

    A socket that does not listen stays bound to it. It was bound alone, so that no other process has the port; then
    SO_REUSEADDR was set, so that a server that sets it too (mosquitto, asyncio, Vedette) listens beside it.
    The port is below the range that the kernel gives to outgoing connections: UDP at the same number is free as well.
    """
    while True:
        place = socket.socket()
        try:
            place.bind(("127.0.0.1", random.randint(12_000, 30_000)))
        except OSError:
            place.close()
            continue
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _PORTS.append(place)
        return int(place.getsockname()[1])


def mosquitto() -> str:
    """The server's path; raises FileNotFoundError with what to install."""
    path = shutil.which("mosquitto", path=None) or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if path is None:
        raise FileNotFoundError("mosquitto is not installed: apt-get install mosquitto")
    return path


class Broker:
    """One mosquitto process; ``url`` stays the same over restarts."""

    def __init__(
        self,
        folder: Path,
        *,
        durable: bool = False,
        inflight: int = 1000,
        tls: tuple[Path, Path, Path] | None = None,
        extra: Sequence[str] = (),
        verbose: bool = True,
    ) -> None:
        """``tls``: (ca, certificate, key) for an ``mqtts://`` listener; ``extra``: further lines of configuration;
        ``verbose``: the log has each message, which a benchmark does without."""
        self.folder, self._verbose = folder, ("-v",) if verbose else ()
        self.port = own_port()
        self.url = f"{'mqtts' if tls else 'mqtt'}://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        lines = [
            f"listener {self.port} 127.0.0.1",
            f"user {getpass.getuser()}",
            f"persistence_location {folder}/",
            "persistence true",
            "persistent_client_expiration 30d",
            "max_queued_messages 0",
            "max_queued_bytes 0",
            f"max_inflight_messages {inflight}",
            "set_tcp_nodelay true",
            "autosave_interval " + ("1" if durable else "0"),
            "autosave_on_changes " + ("true" if durable else "false"),
            *extra,
        ]
        if not any(line.startswith("allow_anonymous") for line in lines):
            lines.append("allow_anonymous true")
        if tls:
            lines += [f"cafile {tls[0]}", f"certfile {tls[1]}", f"keyfile {tls[2]}"]
        self.config = folder / "mosquitto.conf"
        self.config.write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        """Start and wait until it accepts connections; raises RuntimeError with the broker's own words."""
        with (self.folder / "mosquitto.log").open("ab") as log:
            self.process = subprocess.Popen(
                [mosquitto(), *self._verbose, "-c", str(self.config)], stdout=log, stderr=log
            )
        for pause in pauses():
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), DEADLINE).close()
                return
            except OSError:
                time.sleep(pause)
        raise RuntimeError(f"mosquitto did not start:\n{self.log()}")

    def log(self) -> str:
        """What the broker has written so far."""
        return (self.folder / "mosquitto.log").read_text(errors="replace")

    def stop(self) -> None:
        """Orderly: what it holds is written to its persistence file."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a power cut: nothing is written."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill and start again on the same port."""
        self.kill()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(DEADLINE)
            self.process = None


@contextmanager
def running(folder: Path, **options: Any) -> Iterator[Broker]:
    """A started ``Broker`` that is stopped at the end; ``options`` as for ``Broker``."""
    broker = Broker(folder, **options)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
