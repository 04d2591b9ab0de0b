"""The archive beside the agent's work: a thread that brings sealed segments to the store, oldest first.

A segment's turn comes when it has been sealed for ``archive.after``, or when half of the raw log's budget is used. A
failure, whatever it is, is logged once and tried again, with pauses that grow; nothing else waits for it, until the raw
log is full. Rows in the store that are none are logged, counted as failures, and passed over.
The store is opened again after each failure, so that new keys in the options file count without a restart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import structlog

from vedette.archive.archiver import Archiver, Pace, Stopped
from vedette.archive.index import VERIFIED, Index
from vedette.archive.stores import Store, open_own
from vedette.config.settings import Config
from vedette.model.counters import Log
from vedette.rawlog.log import RawLog
from vedette.rawlog.segment_set import Kept
from vedette.system import foreign

log = structlog.get_logger()

POLL_SECONDS = 0.5
FIRST_PAUSE, MAX_PAUSE = 0.5, 60.0
STOP_SECONDS = 2.0
"""For the piece that is on its way when the agent ends; the next life goes on with it."""


class Archiving:
    """``start``, then ``stop``. ``status`` may be called from the event loop."""

    def __init__(self, config: Config, raw_log: RawLog, index: Index, clock: Callable[[], int]) -> None:
        settings, self._agent = config.archive, config.agent.id
        self._settings, self._raw_log, self._index, self._clock = settings, raw_log, index, clock
        self._half = config.raw_log.max_bytes // 2
        self._ends = threading.Event()
        pace = Pace(settings.max_rate, self._ends.wait)
        self._archiver = Archiver(index, config.agent.id, settings.recipient, pace)
        self._thread = threading.Thread(target=self._run, name="archive", daemon=True)
        self._failure, self._failures = "", 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Waits for what is on its way, at most ``STOP_SECONDS``."""
        self._ends.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        store: Store | None = None
        begun, pause = False, FIRST_PAUSE
        while not self._ends.is_set():
            try:
                store = store or open_own(self._settings, self._agent, self._index.folder, bool(self._index.rows()))
                if not begun:
                    self._archiver.find(store)
                    self._failures += self._archiver.refused
                    self._archiver.discard()
                    begun = True
                segment = next(iter(self._due()), None)
                if segment is not None:
                    self._archive(segment, store)
            except Stopped:
                return
            except Exception as error:  # whatever a store makes fail, the next segments go when it works again
                store, pause = None, self._failed(error, pause)
            else:
                if self._failure:
                    log.info(Log.ARCHIVE_RECOVERED, url=self._settings.url, after=self._failure)
                    self._failure = ""
                pause = FIRST_PAUSE
                if segment is None:
                    self._ends.wait(POLL_SECONDS)

    def _archive(self, segment: Kept, store: Store) -> None:
        row = self._archiver.archive(segment.segment, store)
        log.info(Log.SEGMENT_ARCHIVED, segment=row.segment, bytes=row.stored_size, url=self._settings.url)

    def _failed(self, error: Exception, pause: float) -> float:
        """Returns the next pause."""
        self._failures += 1
        foreseen = isinstance(error, OSError)
        reason = str(error) if foreseen else f"{type(error).__name__}: {error}"
        if not self._failure:
            action = "the segments stay on this host and are tried again"
            log.error(Log.ARCHIVE_FAILED, url=self._settings.url, reason=reason, action=action, exc_info=not foreseen)
        self._failure = reason
        self._ends.wait(pause)
        return min(2 * pause, MAX_PAUSE)

    def _waiting(self) -> list[Kept]:
        return [segment for segment in self._raw_log.final() if not self._verified(segment)]

    def _verified(self, segment: Kept) -> bool:
        row = self._index.get(segment.segment.path.name)
        return row is not None and row.state == VERIFIED

    def _due(self) -> list[Kept]:
        waiting = self._waiting()
        if self._raw_log.size() > self._half:
            return waiting
        now, age = self._clock(), round(self._settings.after * 1e6)
        return [segment for segment in waiting if segment.older(now, age)]

    def status(self) -> dict[str, Any]:
        """JSON-able; sizes in bytes."""
        waiting = self._waiting()
        names = {segment.segment.path.name for segment in waiting}
        rows = [row for row in self._index.rows() if row.segment not in names]
        return {
            "url": self._settings.url,
            "segments": len(rows),
            "bytes": min(sum(row.stored_size for row in rows), foreign.COUNT),
            "waiting": len(waiting),
            "waiting_bytes": sum(segment.size for segment in waiting),
            "failing": bool(self._failure),
            "failures": self._failures,
            "error": self._failure,
        }
