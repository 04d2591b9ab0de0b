"""File descriptors: how many this process may have, and what to do when there are none left.

``raise_limit``, at the start, makes the soft limit the hard one; ``runtime/options/inputs.py`` divides it. When none is
left nevertheless (EMFILE: a limit lowered from outside, ENFILE: the host's own) nothing ends and nothing is taken for
gone: whoever needs one waits and tries again. Only what cannot wait is read by ``SPARE``: an event that an alert is
about, and the module that reads the first event of a format.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

OPEN_FILES = 256
"""That an input of files holds open at most."""
RETRY_SECONDS = 1.0
ADVICE = "raise the hard limit (LimitNOFILE of the unit, ulimit -Hn, docker run --ulimit nofile)"

SPENT = frozenset({errno.EMFILE, errno.ENFILE})
"""Error numbers for it."""


class _Spare:
    """A descriptor kept for reading a file for a moment when there is no other; shared by all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fd = -1

    def open(self, path: Path) -> int:
        """A descriptor of the file ``path``, to be given to ``close`` soon. Raises OSError."""
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in SPENT:
                raise
            with self._lock:
                if self._fd < 0:
                    raise
                os.close(self._fd)
                self._fd = -1
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)
        self.keep()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """What is opened within may have it."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
        try:
            yield
        finally:
            self.keep()

    def keep(self) -> None:
        """Have one again, as soon as there is one."""
        if self._fd < 0:
            with self._lock, suppress(OSError):
                if self._fd < 0:
                    self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


SPARE = _Spare()


def importing(name: str) -> ModuleType:
    """Import a module, by ``SPARE`` when there is no other descriptor."""
    try:
        return import_module(name)
    except OSError as error:
        if error.errno not in SPENT:
            raise
    with SPARE.lent():
        return import_module(name)


def limit() -> int:
    """That there may be once ``raise_limit`` was called."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft, _kernel() if hard == resource.RLIM_INFINITY else hard)


def raise_limit() -> int:
    """Make the soft limit the hard one; returns what then holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < (most := limit()):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def _kernel() -> int:
    with open("/proc/sys/fs/nr_open", encoding="ascii") as file:
        return int(file.read())


def used() -> int:
    """That are open now; 0 when that is unknown."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return 0
