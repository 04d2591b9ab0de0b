"""The real agent under measurement: that of the end-to-end tests on its own core, with what it costs.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.usage import cpu_seconds, memory_mb
from tests.e2e import agent

IDLE = 0.05
"""Share of a core below which an agent counts as being at rest."""


def directory(rules: Path) -> str:
    """Settings for rule files as they are: literals are chosen without knowing the traffic."""
    return f'[rules]\npaths = ["{rules}"]\n'


def vedette(*arguments: object) -> str:
    """Output of a ``vedette`` command, however long it takes. Raises RuntimeError with its complaint."""
    done = subprocess.run([*agent.VEDETTE, *map(str, arguments)], capture_output=True, check=False, text=True)
    if done.returncode:
        raise RuntimeError(f"vedette {' '.join(map(str, arguments))}: code {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


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


def syslog_input(port: int, transport: str = "tcp", extra: str = "") -> str:
    """An ``[[input]]`` that listens on loopback."""
    return f"""[[input]]
type = "syslog"
name = "{transport}"
{transport} = "127.0.0.1:{port}"
timezone = "UTC"
{extra}
"""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used. ``seconds`` are those of user and system time of all its threads."""

    seconds: float
    rss_mb: float
    peak_rss_mb: float


class Agent(agent.Agent):
    """``vedette run`` in ``folder``, started; alerts go into ``landing`` unless ``settings`` have another uplink.

    ``core`` None: not pinned; ``before``: a command that starts the command; ``python``: what is run by Python.
    """

    def __init__(
        self, folder: Path, *settings: str, core: int | None = None, before: Sequence[str] = (),
        python: Sequence[str] = ("-m", "vedette"),
    ) -> None:  # fmt: skip
        super().__init__(folder, "\n".join(settings), rules=None)
        pin = ("taskset", "-c", str(core)) if core is not None and shutil.which("taskset") else ()
        self.program = (*before, *pin, sys.executable, *python)
        self.start()

    def usage(self) -> Usage:
        memory = memory_mb(self.pid)
        return Usage(cpu_seconds(self.pid), round(memory["VmRSS"], 1), round(memory["VmHWM"], 1))

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

    def wait(
        self, done: Callable[[dict[str, Any]], object] = bool, seconds: float = 30.0, pause: float = 0.5
    ) -> dict[str, Any]:
        """The first status that is ``done``. Raises RuntimeError when the agent ends, TimeoutError when it is late."""
        deadline = time.monotonic() + seconds
        status: dict[str, Any] = {}
        while time.monotonic() < deadline:
            if not self.running():
                raise RuntimeError(f"the agent has ended:\n{self.tail()}")
            try:
                status = self.status()
                if done(status):
                    return status
            except (ConnectionError, ValueError):  # it starts
                pass
            time.sleep(pause)
        raise TimeoutError(f"not reached in {seconds:g} s: {json.dumps(status)}\n{self.tail()}")

    def tail(self, size: int = 4000) -> str:
        """The end of the agent's log."""
        return self.text()[-size:]

    def stop(self) -> int:
        """SIGTERM, unless it has ended; the exit code."""
        if self.running():
            self.signal(signal.SIGTERM)
        return self.ended()
