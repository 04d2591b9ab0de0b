"""The agent's store at start: checked, and where it is damaged set aside and made again from the raw log.

What a rebuilt store holds comes from the note of the newest raw log segment that has a good one (``rawlog/note.py``),
and where there is none, judging begins at the oldest frame that is kept:

* restored: the cursor, as far as every alert before it has its receipt; counters as of it; positions of tailed files.
* made again by judging from there: every alert without a receipt, under the id it had, as long as the raw log still
  holds its event; alerts that had one are made again, too, and the region drops them.
* lost: what correlations and suppression remembered at the cursor, so a correlation whose events lie on both sides of
  it may fire otherwise; the local ring of receipted alerts; the numbering of the outbox, which begins a new ``log_id``
  with ``seq`` above all that is known to have been used.

Where the check itself could not run, the store is opened unchecked and the log says so; checksums still hold at work.
The damaged store is renamed to ``store.damaged-TIME``; the newest KEPT of these stay.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import structlog

from vedette.durable import sync_path
from vedette.environment import own
from vedette.rawlog.note import Note, decode
from vedette.rawlog.read import of_log
from vedette.rawlog.segment import SegmentFile
from vedette.report import Log
from vedette.store import Store
from vedette.storecheck import Finding, examine

log = structlog.get_logger()

KEPT = 2
DAMAGED = ".damaged-"


class Opened(NamedTuple):
    """``anew``: the store was made again, so how far the raw log was judged is not known for certain."""

    store: Store
    anew: bool


def open_store(folder: Path, raw: Path, *, map_bytes: int, clock: Callable[[], int]) -> Opened:
    """The store in ``folder``, whose agent's raw log is in ``raw``; see the module's text.

    Raises BlockingIOError when another agent has it, OSError when the disk cannot be used.
    """
    owner = own(folder)
    found = examine(folder)
    if found.unchecked:
        log.error(
            Log.STORE_UNCHECKED,
            folder=str(folder),
            reason=found.unchecked,
            action="it is used unchecked but for its checksums: remove the cause, free memory or repair the"
            " installation, and restart the agent",
        )
    if not found.reason:
        try:
            return Opened(Store.open(folder, map_bytes=map_bytes, owner=owner), False)
        except ValueError as error:
            found, owner = found._replace(reason=str(error)), own(folder)
    aside = _set_aside(folder, clock())
    os.close(owner)
    log.error(
        Log.STORE_DAMAGED,
        folder=str(folder),
        reason=found.reason,
        set_aside=str(aside),
        action="it is made again from the raw log",
    )
    return Opened(_rebuild(folder, raw, found, aside, map_bytes, clock()), True)


def _set_aside(folder: Path, now: int) -> Path:
    """Renames ``folder`` and deletes the oldest that were renamed before."""
    stamp = datetime.fromtimestamp(now / 1e6, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = folder.with_name(f"{folder.name}{DAMAGED}{stamp}")
    folder.rename(aside)
    sync_path(folder.parent)
    for old in sorted(folder.parent.glob(f"{folder.name}{DAMAGED}*"))[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return aside


def newest_note(raw: Path) -> Note:
    """The newest note in the newest log of ``raw`` that says how far it was judged; an empty one when none does.

    File positions are those of the newest note that has any. Raises OSError.
    """
    if not raw.is_dir():
        return Note()
    newest = Note()
    for segment in reversed(of_log(raw)):
        try:
            with SegmentFile(segment) as file:
                found = decode(file.note())
        except (FileNotFoundError, ValueError):
            continue
        if not newest.positions:
            newest = newest._replace(positions=found.positions, next_seq=max(newest.next_seq, found.next_seq))
        if found.cursor is not None and found.cursor.log_id == segment.log_id:
            return found._replace(positions=newest.positions, next_seq=max(newest.next_seq, found.next_seq))
    return newest


def _rebuild(folder: Path, raw: Path, found: Finding, aside: Path, map_bytes: int, now: int) -> Store:
    told = newest_note(raw)
    store = Store.open(folder, map_bytes=map_bytes)
    try:
        next_seq = max(told.next_seq, found.next_seq)
        store.restart(told.cursor, told.counters, told.positions, next_seq)
        begin = None if told.cursor is None else told.cursor.offset
        store.put("rebuilt", {"at": now, "reason": found.reason, "set_aside": str(aside), "judged_from": begin})
    except BaseException:
        store.close()
        raise
    log.warning(
        Log.STORE_REBUILT,
        folder=str(folder),
        judged_from="the oldest frame kept" if begin is None else begin,
        next_seq=next_seq,
        files=len(told.positions),
        lost="what correlations and suppression remembered; the list of receipted alerts",
    )
    return store
