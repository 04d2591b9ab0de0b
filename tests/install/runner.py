"""Runs the installer of a release as its own Python does, with waits cut short, faults planted and kills drawn:

    python runner.py RELEASE/installer ACTION KEY=VALUE…

``/srv/fault`` of a host of stand-ins has "EVENT PATTERN SIGNAL": when an audit event of Python has arguments like
PATTERN, the installer gets that signal; FULL in its place: the call fails, as the disk is full. The folder
VEDETTE_TEST_KILLER counts what changes files, and at the call that was drawn all of the run dies (``test_killed.py``).
"""

from __future__ import annotations

import errno
import os
import runpy
import signal
import sys
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

FAULT = Path("/srv/fault")
CHANGES = {"os.chmod", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink"}


def plant(event: str, pattern: str, does: str) -> None:
    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        if name != event or not fnmatch(" ".join(map(str, arguments)), pattern):
            return
        if does == "FULL":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.kill(os.getpid(), getattr(signal, f"SIG{does}"))

    sys.addaudithook(hook)


def draw(folder: Path) -> None:
    at, counter = int((folder / "at").read_text()), folder / "count"

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        writes = name == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if (name not in CHANGES and not writes) or str(arguments[0]) == str(counter):
            return
        number = int(counter.read_text()) + 1
        descriptor = os.open(counter, os.O_WRONLY | os.O_TRUNC)
        os.write(descriptor, str(number).encode())
        os.close(descriptor)
        if number == at:
            os.kill(0, signal.SIGKILL)

    sys.addaudithook(hook)


def main() -> None:
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(min(seconds, 0.01))  # type: ignore[assignment]
    if FAULT.exists():
        plant(*FAULT.read_text().split())
    if "VEDETTE_TEST_KILLER" in os.environ:
        draw(Path(os.environ["VEDETTE_TEST_KILLER"]))
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


main()
