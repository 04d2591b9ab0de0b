"""An installation: its folders, as ``PREFIX/installed`` records them, and what is derived from them."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from installer.host import Failed, Report, facts, link_target

LOCK_SECONDS = 60
"""Time that a watch or supervisor waits for another run to end."""
DEFAULTS = (Path("/etc/vedette"), Path("/var/lib/vedette"))
_DEFAULTS = re.compile(r"/opt/vedette|/etc/vedette|/var/lib/vedette|127\.0\.0\.1:514")


@dataclass(frozen=True, slots=True)
class Installation:
    prefix: Path
    config_dir: Path
    data_dir: Path
    listen: str
    systemd: bool
    start: bool
    """True where the agent is to be started."""
    report: Report

    @classmethod
    def recorded(cls, prefix: Path, *, start: bool = True, report: Report | None = None) -> Installation:
        """Read ``PREFIX/installed``. Raises Failed where there is none, or that of another folder."""
        rows = facts(prefix / "installed")
        if not rows:
            raise Failed(42, f"nothing is installed in {prefix}")
        own = Path(rows["prefix"])  # as it was named, whatever link leads there
        if own.resolve() != prefix.resolve():
            raise Failed(2, f"{prefix} was copied or moved from {own}: nothing is done with it")
        systemd = rows["systemd"] == "yes"
        if report is None:
            log = "/var/log/vedette-install.log" if systemd else f"{own}/install.log"
            report = Report(Path(os.environ.get("VEDETTE_LOG") or log))
        return cls(own, Path(rows["config_dir"]), Path(rows["data_dir"]), rows["listen"], systemd, start, report)

    @property
    def config(self) -> Path:
        return self.config_dir / "vedette.toml"

    @property
    def current(self) -> str:
        """The release in force, as ``releases/ID``; empty: none."""
        return link_target(self.prefix / "current")

    @property
    def answers(self) -> Path:
        """The folder of answers to the agent: root's where systemd is, as no link of the agent may lead elsewhere."""
        return Path("/run/vedette-upgrade") if self.systemd else self.data_dir / "upgrade"

    def render(self, text: str) -> str:
        """``text`` with this installation's paths and address in the place of the defaults."""
        own = {
            "/opt/vedette": str(self.prefix),
            "/etc/vedette": str(self.config_dir),
            "/var/lib/vedette": str(self.data_dir),
            "127.0.0.1:514": self.listen,
        }
        return _DEFAULTS.sub(lambda match: own[match[0]], text)

    def names_address(self) -> bool:
        """Say whether the configuration names the address, without which the agent does not find the sockets there."""
        try:
            lines = self.config.read_text("utf-8", "replace").splitlines()
        except OSError:
            return True
        in_force = [line for line in lines if not line.lstrip(" ").startswith("#")]
        return any(f"{quote}{self.listen}{quote}" in line for line in in_force for quote in "\"'")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock for this process alone. Raises OSError, Failed where another run does not end."""
        for _ in range(LOCK_SECONDS):
            if (held := self._lock()) is not None:
                break
            time.sleep(1)
        else:
            raise Failed(40, f"another run of install.sh is at work in {self.prefix}")
        try:
            yield
        finally:
            os.close(held)

    def _lock(self) -> int | None:
        """Lock as ``lock`` of install.sh does. None: another run has the lock, or has removed it just now."""
        lock = self.prefix / ".lock"
        lock.mkdir(0o700, exist_ok=True)
        held = os.open(lock, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(held), lock.stat()):
                return held
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(held)
        return None
