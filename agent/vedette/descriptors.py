"""File descriptors: how many this process may have, and who gets them.

``raise_limit``, at the start, makes the soft limit the hard one. ``share`` divides what there is: the agent itself
comes first (``OWN`` and ``EACH``), then the files that inputs hold open (at most half of the rest; a file that is
closed is opened again when it grows), then connections. So however many connect, files, raw log, store, uplink and
control socket have what they need. Where the limit leaves fewer connections than are configured, each input gets its
part of them.

When there are none left all the same (EMFILE: a limit lowered from outside, ENFILE: the host's own) nothing ends and
nothing is taken for gone: whoever needs one waits and tries again. Only what cannot wait, an event that an alert is
about, is read by ``SPARE``.
"""

from __future__ import annotations

import errno
import glob
import os
import resource
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from vedette.config import FileInput, Input, SyslogInput

OWN = 64
"""Of the agent: standard streams, store, raw log, uplink, control socket, metrics, and what child processes need."""
EACH = 8
"""Of an input: its listening sockets, or its connection to a broker."""
OPEN_FILES = 256
"""That an input of files holds open at most."""
PER_PATH = 4
"""Of a path without a pattern: its file, and former ones that are read to their end."""
LEAST = 128
"""Below this the agent may lack descriptors whatever it does."""
RETRY_SECONDS = 1.0

SPENT = frozenset({errno.EMFILE, errno.ENFILE})
"""Error numbers that say so."""


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

    def keep(self) -> None:
        """Have one again, as soon as there is one."""
        if self._fd < 0:
            with self._lock, suppress(OSError):
                if self._fd < 0:
                    self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


SPARE = _Spare()


class Shares(NamedTuple):
    """``files`` and ``connections`` by input: how many it may hold open."""

    limit: int
    files: dict[str, int]
    connections: dict[str, int]


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
    """The most that the kernel lets a process have."""
    with open("/proc/sys/fs/nr_open", encoding="ascii") as file:
        return int(file.read())


def used() -> int:
    """That are open now; 0 when that cannot be told."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return 0


def share(limit: int, inputs: Sequence[Input]) -> Shares:
    """Who gets what of ``limit``."""
    left = limit - OWN - EACH * len(inputs)
    files = {one.name: _files(one) for one in inputs if isinstance(one, FileInput)}
    files = _within(files, left // 2)
    left -= sum(files.values())
    connections = {one.name: one.max_connections for one in inputs if isinstance(one, SyslogInput) and _listens(one)}
    return Shares(limit, files, _within(connections, left))


def _files(one: FileInput) -> int:
    wanted = sum(OPEN_FILES if glob.has_magic(path) else PER_PATH for path in one.paths)
    return min(wanted, OPEN_FILES)


def _listens(one: SyslogInput) -> bool:
    return bool(one.tcp) or one.tls is not None


def _within(wanted: dict[str, int], most: int) -> dict[str, int]:
    """The same, or where it is more than ``most`` its part of it, one at least."""
    total = sum(wanted.values())
    return wanted if total <= most else {name: max(1, n * most // total) for name, n in wanted.items()}


def remarks(shares: Shares, inputs: Sequence[Input]) -> list[str]:
    """What an operator should know of them."""
    told = []
    if shares.limit < LEAST:
        told.append(f"the limit of open files is {shares.limit}, and the agent needs {LEAST}: {ADVICE}")
    for one in inputs:
        if isinstance(one, SyslogInput) and shares.connections.get(one.name, one.max_connections) < one.max_connections:
            told.append(
                f"input {one.name!r}: max_connections = {one.max_connections}, of which"
                f" {shares.connections[one.name]} fit the limit of open files, {shares.limit}: {ADVICE}"
            )
    return told


ADVICE = "raise the hard limit (LimitNOFILE of the unit, ulimit -Hn, docker run --ulimit nofile)"
