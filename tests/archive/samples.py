"""A raw log of several sealed segments, and what is needed to archive it."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.rawlog.samples import NOW, lines, noise
from tests.settings import SegmentedLog
from vedette.archive.archiver import Archiver, Pace
from vedette.archive.index import Index
from vedette.archive.reach import Reach
from vedette.archive.stores import Store, open_store
from vedette.config.settings import ArchiveSettings, RawLogSettings
from vedette.model.counters import Counters
from vedette.rawlog.log import RawLog
from vedette.rawlog.read import search

SMALL = SegmentedLog(max_bytes=80_000, segment_bytes=10_000)
AGENT = "edge-1"
EVENTS = 40


def filled(folder: Path, opened: Index | None = None, settings: RawLogSettings = SMALL) -> RawLog:
    """A log of ``EVENTS`` events, a second after each other, in some ten segments, synced."""
    log = RawLog.open(folder / "raw", settings, Counters(), clock=lambda: NOW, keeper=opened)
    for i in range(EVENTS):
        log.append(lines(b"event %d " % i + noise(i), at=NOW + i * 1_000_000))
    log.sync()
    return log


def index(folder: Path, settings: ArchiveSettings) -> Index:
    return Index(folder / "archive", settings, AGENT)


class Life:
    """One life of an agent's archiver."""

    def __init__(self, folder: Path, settings: ArchiveSettings, opened: Index | None = None) -> None:
        self.index = opened or index(folder, settings)
        self.archiver = Archiver(self.index, AGENT, settings.recipient, Pace(0, threading.Event().wait))
        self.store: Store = open_store(settings)

    def run(self, log: RawLog) -> None:
        """Archive what is sealed. Raises OSError."""
        self.archiver.find(self.store)
        for one in log.final():
            self.archiver.archive(one.segment, self.store)


def reach(folder: Path, settings: ArchiveSettings, identity: Path | None = None) -> Reach:
    return Reach(folder / "raw", index(folder, settings), lambda: open_store(settings), AGENT, identity)


def events(where: Path | Reach) -> list[tuple[int, bytes]]:
    """Offset and bytes of all."""

    def no_gap(gap: object) -> None:
        raise AssertionError(gap)

    return [(hit.offset, hit.raw) for hit in search(where, on_gap=no_gap)]
