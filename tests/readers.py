"""Another user of this host, who may read a folder and holds the lock of all in it that he can open."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
HOLD = """
import fcntl, os, sys
held = []
for name in [".", *os.listdir(".")]:
    try:
        held.append(os.open(name, os.O_RDONLY | os.O_NONBLOCK))
        fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except PermissionError:
        pass
print("held", flush=True)
sys.stdin.read()
"""

_PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
"""The host's, which others may run: that of the tests may lie in a folder that is nobody else's."""


@contextmanager
def reader_of(folder: Path) -> Iterator[None]:
    """One who is in the group of what is not everybody's to read, until the end of the ``with``; skips the test where
    nobody can become him."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    for path in (folder, *folder.iterdir()):
        if path.lstat().st_mode & 0o044 == 0o040:
            os.chown(path, -1, NOBODY)
    command = [_PYTHON, "-I", "-S", "-c", HOLD]
    # The folder is entered before the user changes: that of the tests is nobody else's.
    with subprocess.Popen(
        command, cwd=folder, user=NOBODY, group=NOBODY, extra_groups=[], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            process.stdin.close()
