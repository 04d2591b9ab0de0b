"""The real agent as a process under measurement: configured, started on its own core, watched and stopped.

Only what a user has is used: a TOML file, ``vedette run``, the control socket that ``vedette status`` asks; and
``/proc`` for what it costs.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vedette.runtime.agent.control import ask

IDLE = 0.05
"""Share of a core below which an agent counts as being at rest."""


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


class Bundle:
    """The same rules as an installed edge runs them: a signed bundle, built with a ``sample`` of traffic."""

    def __init__(self, folder: Path, rules: Sequence[Path], sample: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file, key = folder / "bench.vbundle", folder / "bench.pem"
        self.key = vedette("bundle", "keygen", key).split()[-1]
        vedette("bundle", "build", *rules, "-o", self.file, "--version", "1", "--sample", sample)
        vedette("bundle", "sign", self.file, "--key", key)

    @property
    def settings(self) -> str:
        return f'[bundles]\nfile = "{self.file}"\ntrusted_keys = ["{self.key}"]\n'

    def plan(self) -> bytes:
        """The compiled plan in it."""
        with zipfile.ZipFile(self.file) as parts:
            return parts.read("plan.msgpack")


def syslog_input(port: int, transport: str = "tcp", extra: str = "") -> str:
    """An ``[[input]]`` that listens on loopback."""
    return f"""[[input]]
type = "syslog"
name = "{transport}"
{transport} = "127.0.0.1:{port}"
timezone = "UTC"
{extra}
"""


def directory_uplink(folder: Path) -> str:
    """Alerts into ``folder``, as the region's landing would write them."""
    return f'[uplink]\ntype = "directory"\npath = "{folder}"\n'


def configuration(folder: Path, inputs: str, rules: str, uplink: str = "") -> str:
    """A bench agent: ``inputs``, ``rules`` and ``uplink`` are tables of TOML; alerts go into ``folder/landing``."""
    return f"""[agent]
id = "bench"
site = "bench"
data_dir = "{folder}/data"

{inputs}
{rules}
{uplink or directory_uplink(folder / "landing")}
"""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used. ``seconds`` are those of user and system time of all its threads."""

    seconds: float
    rss_mb: float
    peak_rss_mb: float


class Agent:
    """``vedette run`` in ``folder``; ``core`` None: not pinned; ``before``: a command that starts the command."""

    def __init__(
        self, folder: Path, inputs: str, rules: str, *, uplink: str = "", core: int | None = None,
        python: Sequence[str] = (), before: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.folder = folder
        self.config = folder / "vedette.toml"
        folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(configuration(folder, inputs, rules, uplink), "utf-8")
        self.log = folder / "agent.log"
        pin = ["taskset", "-c", str(core)] if core is not None and shutil.which("taskset") else []
        command = [*before, *pin, sys.executable, *(python or ("-m", "vedette")), "run", "-c", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def usage(self) -> Usage:
        """From the threads' ``schedstat`` (the agent ends none before it ends itself) and ``status`` (VmRSS, VmHWM)."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        seconds = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
        memory = dict(line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        rss, peak = (int(memory[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))
        return Usage(seconds, round(rss, 1), round(peak, 1))

    def sample(self) -> None:
        """Begin the sampling of an agent that runs under ``bench.sampler``."""
        self.process.send_signal(signal.SIGUSR1)

    def status(self) -> dict[str, Any] | None:
        """What ``vedette status --json`` shows; None while the agent does not answer."""
        try:
            status: dict[str, Any] = ask(self.folder / "data" / "control.sock", "status")
        except (ConnectionError, ValueError):
            return None
        return status

    def settle(self, seconds: float, still: float = 0.5) -> Usage:
        """The usage when the agent has come to rest: hardly any CPU time (``IDLE``) within ``still`` seconds."""
        deadline = time.monotonic() + seconds
        before = self.usage()
        while time.monotonic() < deadline:
            time.sleep(still)
            after = self.usage()
            if after.seconds - before.seconds <= IDLE * still:
                return before
            before = after
        return before

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
