"""What the controller remembers over its own death, beside the signed documents: FOLDER/steer.

    lock                held while a controller runs here
    state.json          notes on changes, nonces of requests that were carried out
    time                by which orders expire (``fleet/signedtime.py``)
    agents.msgpack.zst  how agents were before they were given a change (``Agents.rows``)

Each file is replaced whole and synced. Lost, a soak begins again, and agents are compared with nothing but absolute
limits: the documents, which decide what an agent runs, are elsewhere (``region/repository.py``).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgpack
import orjson
import zstandard

from vedette.fleet.signedtime import SignedTime
from vedette.region.steer.agents import Agents
from vedette.region.steer.rings import Note
from vedette.system.durable import write_whole
from vedette.system.wallclock import utc_now

FORMAT = 1
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Kept:
    """The folder, locked: one controller on a host."""

    def __init__(self, folder: Path, clock: Callable[[], int] = utc_now) -> None:
        """Raises BlockingIOError while another process steers with it, OSError."""
        self.folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise BlockingIOError(f"{folder}: another `vedette region steer` is at work here") from error
        self.time = SignedTime(folder / "time", clock)
        self.notes: dict[str, Note] = {}
        self.seen: dict[str, int] = {}
        """Nonces of requests, and until when they must be known; UTC microseconds."""
        self._read()

    @property
    def holder(self) -> str:
        """Names this controller among those of other hosts, and is the same after it was killed."""
        try:
            boot = BOOT_ID.read_text().strip()
        except OSError:
            boot = ""
        stat = os.fstat(self._lock)
        about = hashlib.sha256(f"{boot} {stat.st_dev} {stat.st_ino}".encode()).hexdigest()[:12]
        return f"{socket.gethostname()[:40]}-{about}"

    def _read(self) -> None:
        path = self.folder / "state.json"
        try:
            row = orjson.loads(path.read_bytes())
            if row.get("format") != FORMAT:
                raise ValueError(f"format {row.get('format')!r}: this program knows {FORMAT}")
            self.notes = {
                id: Note(**{**one, "reasons": tuple(one["reasons"])}) for id, one in row["notes"].items()
            }  # fmt: skip
            self.seen = {str(nonce): int(until) for nonce, until in row["seen"].items()}
        except FileNotFoundError:
            return
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} cannot be read ({error}): remove it, and soaks begin again") from error

    def write(self, notes: Mapping[str, Note]) -> None:
        """Raises OSError."""
        sure = self.time.sure()
        self.seen = {nonce: until for nonce, until in self.seen.items() if until > sure}
        rows = {id: {**asdict(note), "reasons": [*note.reasons]} for id, note in notes.items()}
        data = orjson.dumps({"format": FORMAT, "notes": rows, "seen": self.seen})
        write_whole(self.folder / "state.json", data)
        self.notes = dict(notes)

    def write_agents(self, agents: Agents) -> None:
        """Raises OSError."""
        write_whole(self.folder / "agents.msgpack.zst", zstandard.compress(msgpack.packb([*agents.rows()]), 1))

    def read_agents(self, agents: Agents) -> None:
        """Raises OSError and ValueError."""
        path = self.folder / "agents.msgpack.zst"
        try:
            rows: Any = msgpack.unpackb(zstandard.decompress(path.read_bytes()))
        except FileNotFoundError:
            return
        except (ValueError, msgpack.UnpackException, zstandard.ZstdError) as error:
            raise ValueError(f"{path}: {error}") from error
        agents.restore(rows)

    def close(self) -> None:
        os.close(self._lock)
