"""What the controller remembers over its own death, beside the signed documents: FOLDER/steer.

    state.json          notes on changes, nonces of requests that were carried out
    time                by which orders expire (``fleet/signedtime.py``)
    agents.msgpack.zst  how agents were before they were given a change (``Agents.rows``)

Each file is replaced whole and synced. Lost, a soak begins again, and agents are compared with nothing but absolute
limits: the documents, which decide what an agent runs, are elsewhere (``region/repository.py``).
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgpack
import orjson
import zstandard
from msgspec import Struct, structs

from vedette.fleet.signedtime import SignedTime
from vedette.region.steer.agents import Agents
from vedette.region.steer.rings import Note
from vedette.system import documents
from vedette.system.durable import write_whole
from vedette.system.folders import locked
from vedette.system.wallclock import utc_now

FORMAT = 1
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class _State(Struct):
    notes: dict[str, Note]
    seen: dict[str, int]


class Kept:
    """The folder, locked: one controller on a host."""

    def __init__(self, folder: Path, clock: Callable[[], int] = utc_now) -> None:
        """Raises BlockingIOError while another process steers with it, OSError."""
        self.folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        self._lock = locked(folder, "another `vedette region steer` is at work here")
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
            document = documents.of_format(orjson.loads(path.read_bytes()), FORMAT)
            state = documents.read(_State, document)
        except FileNotFoundError:
            return
        except ValueError as error:
            raise ValueError(f"{path} cannot be read ({error}): remove it, and soaks begin again") from error
        self.notes = state.notes
        self.seen = state.seen

    def write(self, notes: Mapping[str, Note]) -> None:
        """Raises OSError."""
        sure = self.time.sure()
        self.seen = {nonce: until for nonce, until in self.seen.items() if until > sure}
        rows = {id: structs.asdict(note) for id, note in notes.items()}
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
