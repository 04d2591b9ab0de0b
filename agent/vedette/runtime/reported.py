"""The counters that were reported last, on disk: so that none of them is lower after a kill.

What comes in is counted before the store commits it, and while a disk is full nothing is committed for hours. So every
status is kept here before it leaves the agent. The file has its full size from the first on and is written in place,
which a full disk allows, without a sync: it outlives the process, and a power cut may take the newest of it.

Two slots of SLOT bytes, used in turn, so that a write that a kill cuts short leaves the one before. A slot is 4 bytes
CRC-32 of the rest, 4 bytes length, 8 bytes number (big-endian), and a msgpack map.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import msgpack

SLOT = 128 << 10
"""Bytes: some 1,000 inputs. A larger status is not kept."""
STATE = ("evicted", "cut", "jumps", "folded", "closed_early")
"""Counts of the correlation state: evaluating again brings them back to where they were; until then they are reported
as then."""
_HEAD = 16


def record(store: str, commits: int, status: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a status. ``store``: the numbering of its alerts, which names it; ``commits`` it had: one with
    fewer is older."""
    return {
        "store": store,
        "commits": commits,
        "inputs": status["inputs"],
        "totals": status["totals"],
        "memory": {name: status["correlation_state"][name] for name in STATE},
    }


class Reported:
    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self.last: dict[str, Any] | None = None
        """The last record, of this life or the one before; None: nothing is known."""
        self._number = 0
        with suppress(OSError):  # on a full disk it is tried again at the next start
            os.posix_fallocate(self._fd, 0, 2 * SLOT)
        for slot in range(2):
            with suppress(OSError, ValueError, msgpack.UnpackException):
                self._read(os.pread(self._fd, SLOT, slot * SLOT))

    def _read(self, data: bytes) -> None:
        size, number = int.from_bytes(data[4:8], "big"), int.from_bytes(data[8:_HEAD], "big")
        whole = data[4 : _HEAD + size]
        if number > self._number and int.from_bytes(data[:4], "big") == crc32(whole):
            self.last, self._number = msgpack.unpackb(whole[_HEAD - 4 :]), number

    def keep(self, record: dict[str, Any]) -> None:
        """To be called before ``record`` is reported. A disk that takes nothing does not prevent the report."""
        body = msgpack.packb(record)
        if len(body) > SLOT - _HEAD:
            return
        number = self._number + 1
        whole = len(body).to_bytes(4, "big") + number.to_bytes(8, "big") + body
        with suppress(OSError):
            os.pwrite(self._fd, crc32(whole).to_bytes(4, "big") + whole, number % 2 * SLOT)
            self.last, self._number = record, number

    def close(self) -> None:
        os.close(self._fd)
