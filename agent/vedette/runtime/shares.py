"""Who gets how many of the file descriptors that this process may have (``system/descriptors.py``).

The agent itself comes first (``OWN`` and ``EACH``), then the files that inputs hold open (at most half of the rest; a
file that is closed is opened again when it grows), then connections. So however many connect, files, raw log, store,
uplink and control socket have what they need. Where the limit leaves fewer connections than are configured, each input
gets its part of them.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from typing import NamedTuple

from vedette.config.settings import FileInput, Input, SyslogInput
from vedette.system.descriptors import ADVICE, OPEN_FILES

OWN = 64
"""Of the agent: standard streams, store, raw log, uplink, control socket, metrics, and what child processes need."""
EACH = 8
"""Of an input: its listening sockets, or its connection to a broker."""
PER_PATH = 4
"""Of a path without a pattern: its file, and former ones that are read to their end."""
LEAST = 128
"""Below this the agent may lack descriptors whatever it does."""


class Shares(NamedTuple):
    """``files`` and ``connections`` by input: how many it may hold open."""

    limit: int
    files: dict[str, int]
    connections: dict[str, int]


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
