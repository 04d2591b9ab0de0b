"""A mosquitto of the benchmark's own on loopback, without a log of every message; queues without bound, as the rate of
the agent is what is asked, not the broker's."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.agent import free_port


@contextmanager
def running(folder: Path) -> Iterator[int]:
    """Its port. Raises FileNotFoundError when mosquitto is not installed, TimeoutError when it does not start."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise FileNotFoundError("mosquitto is not installed: apt-get install mosquitto")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    (folder / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\nuser {getpass.getuser()}\nallow_anonymous true\npersistence false\n"
        "max_queued_messages 0\nmax_queued_bytes 0\nmax_inflight_messages 1000\nset_tcp_nodelay true\n"
    )
    with (folder / "mosquitto.log").open("ab") as log:
        process = subprocess.Popen([program, "-c", str(folder / "mosquitto.conf")], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"mosquitto did not start: {log.name}") from None
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(10)
