"""Who gets how many of the file descriptors that this process may have (``system/descriptors.py``).

The agent itself comes first (``OWN`` and ``EACH``), then the files that inputs hold open (at most half of the rest; a
file that is closed is opened again when it grows), then connections. So however many connect, files, raw log, store,
uplink and control socket have what they need. Where the limit leaves fewer connections than are configured, each input
gets its part of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vedette.inputs.settings import InputSettings
from vedette.system.descriptors import ADVICE

OWN = 64
"""Of the agent: standard streams, store, raw log, uplink, control socket, metrics, and what child processes need."""
EACH = 8
"""Of an input: its listening sockets, or its connection to a broker."""
LEAST = 128
"""Below this the agent may lack descriptors whatever it does."""


class Shares(NamedTuple):
    """``files`` and ``connections`` by input: how many it may hold open."""

    limit: int
    files: dict[str, int]
    connections: dict[str, int]

    def of(self, name: str) -> int:
        return self.files.get(name, 0) or self.connections.get(name, 0)


def share(limit: int, inputs: Sequence[InputSettings]) -> Shares:
    left = limit - OWN - EACH * len(inputs)
    files = _within({one.name: one.open_files for one in inputs if one.open_files}, left // 2)
    left -= sum(files.values())
    connections = {one.name: one.connections for one in inputs if one.connections}
    return Shares(limit, files, _within(connections, left))


def _within(wanted: dict[str, int], most: int) -> dict[str, int]:
    """The same, or where it is more than ``most`` its part of it, one at least."""
    total = sum(wanted.values())
    return wanted if total <= most else {name: max(1, n * most // total) for name, n in wanted.items()}


def remarks(shares: Shares, inputs: Sequence[InputSettings]) -> list[str]:
    """What an operator should know of them."""
    found = []
    if shares.limit < LEAST:
        found.append(f"the limit of open files is {shares.limit}, and the agent needs {LEAST}: {ADVICE}")
    for one in inputs:
        if shares.connections.get(one.name, one.connections) < one.connections:
            found.append(
                f"input {one.name!r}: max_connections = {one.connections}, of which"
                f" {shares.connections[one.name]} fit the limit of open files, {shares.limit}: {ADVICE}"
            )
    return found
