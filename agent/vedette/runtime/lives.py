"""How often this agent has started, and how often it ended without having been asked to: what a roll-out's gates read.

A life that ends in an orderly stop says so in ``DATA_DIR/lives``. One that is followed by a start and has not said it
was killed, hung or failed: a **crash**, unless the host itself was started again in between (its boot id differs), by a
power cut, say.

The file is one JSON object, padded to SIZE bytes and written in place, which a full disk allows, without a sync: it
outlives the process. A damaged one counts as none.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

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
