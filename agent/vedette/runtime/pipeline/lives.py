"""What a life of the agent leaves to the next: how it ended, what it reported last, what it was at.

``Lives``: how often the agent has started, and how often it ended without having been asked to, which a roll-out's
gates read. A life that ends in an orderly stop says so in ``DATA_DIR/lives``. One that is followed by a start and has
not said it was killed, hung or failed: a **crash**, unless the host itself was started again in between (its boot id
differs), by a power cut, say. The file is one JSON object, padded to SIZE bytes and written in place, which a full disk
allows, without a sync: it outlives the process. A damaged one counts as none.

``Reported``: the counters that were reported last, so that none of them is lower after a kill. What comes in is counted
before the store commits it, and while a disk is full nothing is committed for hours. So every status is kept in
``DATA_DIR/shown`` before it leaves the agent. The file has its full size from the first on and is written in place, as
above; a power cut may take the newest of it. Two slots of SLOT bytes, used in turn, so that a write that a kill cuts
short leaves the one before. A slot is 4 bytes CRC-32 of the rest, 4 bytes length, 8 bytes number (big-endian), and a
msgpack map.

``UnderWay``: what this life is at, in ``DATA_DIR/under-way`` (``blackbox.py``), for the next one to read. What the life
before has left there says what it died of, if it did: ``agent/deaths.py``, which is imported only when it did, or when
something is still held against a part.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgpack
import orjson

from vedette.runtime.pipeline.blackbox import NOWHERE, BlackBox, Stage, cut
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.pipeline.failures import CASES, DEATHS_BESIDE

if TYPE_CHECKING:
    from vedette.runtime.agent.deaths import Deaths

LASTING = 60.0
"""Seconds after which a life has lasted."""
SIZE = 256
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Lives:
    """``starts`` and ``crashes``, of all lives in this data folder."""

    def __init__(self, path: Path, boot_id: Path = BOOT_ID) -> None:
        """A life begins. Raises OSError."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._boot = ""
        with suppress(OSError):  # without one every such end counts as a crash
            self._boot = boot_id.read_text().strip()
        before = self._read()
        self.crashed = bool(before) and not before["stopped"] and before["boot"] == self._boot
        """Whether the life before ended by itself, and not with the host."""
        self.starts = before.get("starts", 0) + 1
        self.crashes = before.get("crashes", 0) + self.crashed
        self._write(stopped=False)

    def status(self) -> dict[str, int]:
        return {"starts": self.starts, "crashes": self.crashes}

    def stopped(self) -> None:
        """This life ends as it was asked to."""
        self._write(stopped=True)
        os.close(self._fd)

    def _read(self) -> dict[str, Any]:
        with suppress(OSError, ValueError, KeyError, TypeError):
            row = orjson.loads(os.pread(self._fd, SIZE, 0))
            return {
                "starts": int(row["starts"]), "crashes": int(row["crashes"]), "boot": str(row["boot"]),
                "stopped": bool(row["stopped"]),
            }  # fmt: skip
        return {}

    def _write(self, *, stopped: bool) -> None:
        row = {**self.status(), "boot": self._boot, "stopped": stopped}
        with suppress(OSError):  # a disk that takes nothing does not prevent the start
            os.pwrite(self._fd, orjson.dumps(row).ljust(SIZE), 0)


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


class UnderWay:
    """Belongs to the event loop."""

    def __init__(self, context: RunContext, crashed: bool) -> None:
        """``crashed``: the life before ended by itself, and not with the host."""
        try:
            self.box = BlackBox.open(context.config.agent.data_dir / "under-way")
        except OSError:  # a full disk: what this life dies of is not known
            self.box = BlackBox.make()
        note, (beside, lasted) = self.box.read(), self.box.read_beside()
        self.box.note(Stage.OTHER, NOWHERE, NOWHERE)
        self.box.rest_beside()
        self.deaths: Deaths | None = None
        """What evaluation goes by, where something is held against parts of it."""
        if crashed or context.store.get(CASES) or context.store.get(DEATHS_BESIDE):
            from vedette.runtime.agent.deaths import Deaths

            deaths = Deaths(context, note, set() if lasted else beside, crashed)
            self.deaths = deaths if deaths.cases else None
        self.forbidden = context.failures.forbidden()
        """By part why a plugin is not loaded or run."""
        if context.config.plugins.allow:
            from vedette.system import plugins

            plugins.watch(lambda part: self.box.beside(part), lambda part: self.forbidden.get(cut(part), ""))

    @property
    def careful(self) -> bool:
        """Whether parts note that they are at work."""
        return self.deaths is not None

    def last(self) -> None:
        """This life has lasted."""
        with suppress(ValueError):  # it ends, and the box is closed
            self.box.outlived()
