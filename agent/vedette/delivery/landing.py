"""The landing: Parquet files that appear whole or not at all.

::

    {folder}/{alerts,status,bad,seqs}/dt=YYYY-MM-DD/hh=HH/{ulid}.parquet      UTC of received_at
    {folder}/.tmp/{writer}-{ulid}                                        being written

A file is written under ``.tmp``, synced, renamed into place, and the folder synced: after ``write`` returns it survives
a power cut, and a reader never sees half of one. What a killed writer left under ``.tmp`` is removed when it starts
again; it was never acknowledged to anybody. File names are ULIDs (github.com/ulid/spec): they sort by time.

``received_at`` of all rows is the moment of writing, so it never goes back within a table: Spark's watermark on it
drops nothing, however late an alert is.

Rows hold raw events: folders that are made here are 0750, files 0640, whatever the umask.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vedette.delivery.columns import Schema
from vedette.delivery.envelope import DEAD_LETTER, LANDED_ALERT, SEQS, STATUS
from vedette.delivery.parquet import write
from vedette.system.durable import make_folders, sync_path

TABLES: dict[str, Schema] = {"alerts": LANDED_ALERT, "status": STATUS, "bad": DEAD_LETTER, "seqs": SEQS}

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def ulid(now: int) -> str:
    """A new ULID of the moment ``now`` (UTC microseconds): 48 bits of milliseconds, 80 random ones."""
    value = (now // 1000 & (1 << 48) - 1) << 80 | secrets.randbits(80)
    return "".join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))


def partition(now: int) -> str:
    """``dt=YYYY-MM-DD/hh=HH`` of ``now`` (UTC microseconds)."""
    return datetime.fromtimestamp(now // 1_000_000, UTC).strftime("dt=%Y-%m-%d/hh=%H")


class Unwritable(OSError):
    """The landing failed, and nothing else on this host."""


class LandingFolder:
    """One writer into a landing; several, each with its own name, may share the folder."""

    def __init__(self, folder: Path, writer: str) -> None:
        """``writer``: letters, digits, ``. _ -`` or ``:``; no other running writer of this folder has the same."""
        self.folder, self.name = folder, str(folder)
        self._temporary = folder / ".tmp"
        self._prefix = writer + "-"
        with suppress(OSError):  # ``write`` raises what is wrong with the folder
            for left in self._temporary.iterdir():
                if left.name.startswith(self._prefix) and len(left.name) == len(self._prefix) + 26:
                    left.unlink()

    def write(self, table: str, rows: Sequence[Mapping[str, Any]], now: int) -> Path:
        """Write ``rows`` as one file of ``table`` with ``received_at`` = ``now``; on disk when it returns.

        Raises Unwritable when the folder cannot be written (nothing has then appeared), ValueError when a row does not
        fit the table.
        """
        data = write(TABLES[table], [{**row, "received_at": now} for row in rows])
        name = ulid(now)
        target = self.folder / table / partition(now)
        temporary = self._temporary / (self._prefix + name)
        path = target / f"{name}.parquet"
        try:
            make_folders(target, 0o750)
            make_folders(self._temporary, 0o750)
            with open(temporary, "xb", opener=_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
            sync_path(target)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise Unwritable(error.errno, error.strerror, error.filename) from error
        return path


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o640)
