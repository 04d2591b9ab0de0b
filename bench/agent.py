"""The real agent as a process under measurement: configured, started on its own core, watched and stopped.

Only what a user has is used: a TOML file, ``vedette run``, ``vedette status --json``; and ``/proc`` for what it costs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")


def vedette(*arguments: str | Path) -> str:
    """Standard output of a ``vedette`` command that must succeed; raises RuntimeError with its complaint."""
    done = subprocess.run([sys.executable, "-m", "vedette", *map(str, arguments)], capture_output=True, check=False)
    if done.returncode:
        complaint = done.stderr.decode(errors="replace")[-2000:]
        raise RuntimeError(f"vedette {' '.join(map(str, arguments))}: exit code {done.returncode}: {complaint}")
    return done.stdout.decode()


def directory(rules: Path) -> str:
    """Settings for rule files as they are: literals are chosen without knowing the traffic."""
    return f'[rules]\npaths = ["{rules}"]\n'


def bundle(folder: Path, rules: Path, sample: Path) -> str:
    """Settings for the same rules as an installed edge runs them: a signed bundle, built with a sample of traffic."""
    file, key = folder / "bench.vbundle", folder / "bench.pem"
    public = vedette("bundle", "keygen", key).split()[-1]
    vedette("bundle", "build", rules, "-o", file, "--version", "1", "--sample", sample)
    vedette("bundle", "sign", file, "--key", key)
    return f'[bundles]\nfile = "{file}"\ntrusted_keys = ["{public}"]\n'


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def configuration(folder: Path, port: int, rules: str) -> str:
    """A bench agent: syslog over TCP in, ``rules`` (tables of TOML), alerts into ``folder/landing``."""
    return f"""[agent]
id = "bench"
site = "bench"
data_dir = "{folder}/data"

[[input]]
type = "syslog"
name = "tcp"
tcp = "127.0.0.1:{port}"
timezone = "UTC"

{rules}
[uplink]
type = "directory"
path = "{folder}/landing"
"""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used. ``seconds`` are those of user and system time of all its threads."""

    seconds: float
    rss_mb: float
    peak_rss_mb: float


class Agent:
    """``vedette run`` in ``folder`` with the settings ``rules``; ``core`` None: not pinned."""

    def __init__(
        self, folder: Path, port: int, rules: str, *, core: int | None = None, python: Sequence[str] = ()
    ) -> None:
        self.folder, self.port = folder, port
        self.config = folder / "vedette.toml"
        folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(configuration(folder, port, rules), "utf-8")
        self.log = folder / "agent.log"
        pin = ["taskset", "-c", str(core)] if core is not None and shutil.which("taskset") else []
        command = [*pin, sys.executable, *(python or ("-m", "vedette")), "run", "-c", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def usage(self) -> Usage:
        """From ``/proc/PID/stat`` (utime, stime) and ``/proc/PID/status`` (VmRSS, VmHWM)."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        memory = dict(line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        rss, peak = (int(memory[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))
        return Usage((int(user) + int(system)) / TICKS, round(rss, 1), round(peak, 1))

    def threads(self) -> dict[str, float]:
        """Seconds of CPU by thread: its name with its number, for those that used any."""
        used: dict[str, float] = {}
        for task in sorted(Path(f"/proc/{self.process.pid}/task").iterdir()):
            name, _, rest = (task / "stat").read_text().partition(" ")[2].rpartition(")")
            user, system = rest.split()[11:13]
            if seconds := (int(user) + int(system)) / TICKS:
                used[f"{name.strip('(')} {len(used)}"] = seconds
        return used

    def sample(self) -> None:
        """Begin the sampling of an agent that runs under ``bench.sampler``."""
        self.process.send_signal(signal.SIGUSR1)

    def status(self) -> dict[str, Any] | None:
        """What ``vedette status --json`` prints; None while the agent does not answer."""
        done = subprocess.run(
            [sys.executable, "-m", "vedette", "status", "--json", "-c", str(self.config)],
            capture_output=True,
            check=False,
        )
        try:
            status: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            return None
        return status

    def wait(self, done: Callable[[dict[str, Any]], bool], seconds: float, pause: float = 0.5) -> dict[str, Any]:
        """The first status that is ``done``. Raises RuntimeError when the agent ends, TimeoutError when it is late."""
        deadline = time.monotonic() + seconds
        status = None
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the agent ended with {self.process.returncode}:\n{self.tail()}")
            status = self.status()
            if status is not None and done(status):
                return status
            time.sleep(pause)
        raise TimeoutError(f"not reached in {seconds:g} s: {json.dumps(status)}\n{self.tail()}")

    def tail(self, size: int = 4000) -> str:
        """The end of the agent's log."""
        return self.log.read_bytes()[-size:].decode("utf-8", "replace")

    def stop(self, seconds: float = 30.0) -> int:
        """SIGTERM, and SIGKILL when that is not enough; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()
