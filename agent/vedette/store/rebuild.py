"""The agent's store at start: checked, and where it is damaged set aside and made again from the raw log.

So is one that is older than what is known of it, by the counters last reported (``pipeline/lives.py``) or by a
checkpoint: an old copy would give numbers again that alerts have had.

What a rebuilt store holds comes from the checkpoint of the newest raw log segment that has a good one
(``rawlog/checkpoint.py``), and where there is none, evaluation begins at the oldest frame that is kept:

* restored: the cursor, as far as every alert before it has its receipt; counters as of it; positions of tailed files.
* made again by evaluating from there: every alert without a receipt, under the id it had, as long as the raw log still
  holds its event; alerts that had one are made again, too, and the region drops them.
* lost: the state of correlations and suppression at the cursor, so a correlation whose events lie on both sides of
  it may fire otherwise; the local ring of receipted alerts; the numbering of the outbox, which begins a new ``log_id``
  with ``seq`` above all that is known to have been used.
* counted: ``judged`` goes back to the cursor's; what was stored after it and cannot be read any more is lost, as
  MISSING or DAMAGED. Alerts that were made and are not known to have a receipt are lost, too, until they are made
  again; those that had one come first, as receipts do, and count again.

Where the check itself could not run, the store is opened unchecked and the log says so; checksums still hold at work.
The damaged store is renamed to ``store.damaged-TIME``; the newest KEPT of these stay.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from vedette.model.counters import Log
from vedette.rawlog.checkpoint import Checkpoint
from vedette.rawlog.read import newest_checkpoint
from vedette.rawlog.recover import APART
from vedette.rawlog.segment import segments
from vedette.store.check import Finding, examine
from vedette.store.store import Store, own
from vedette.system.durable import sync_path

log = structlog.get_logger()

KEPT = 2
DAMAGED = ".damaged-"
NEW = ".new"


def open_store(
    folder: Path, raw: Path, *, map_bytes: int, clock: Callable[[], int], reported: Mapping[str, Any] | None = None
) -> Store:
    """The store in ``folder``, whose agent's raw log is in ``raw``; see the module's text. ``reported``: what was last.

    Raises BlockingIOError when another agent has it, OSError when the disk cannot be used.
    """
    owner = own(folder)
    gone = not (folder / "data.mdb").exists() and raw.is_dir() and bool(segments(raw))
    finding = Finding("it is gone, and the raw log is there", 0) if gone else examine(folder)
    if finding.unchecked:
        log.error(
            Log.STORE_UNCHECKED,
            folder=str(folder),
            reason=finding.unchecked,
            action="the store is used unchecked but for its checksums: remove the cause, free memory or repair the"
            " installation, and restart the agent",
        )
    if not finding.reason:
        try:
            with ExitStack() as undo:
                store = undo.enter_context(Store.open(folder, map_bytes=map_bytes, owner=owner))
                if not (older := _older(store, newest_checkpoint(raw), reported)):
                    undo.pop_all()
                    return store
                finding = finding._replace(reason=older, next_seq=store.account().next_seq)
        except ValueError as error:
            finding = finding._replace(reason=str(error))
        owner = own(folder)
    aside = None
    if gone:
        shutil.rmtree(folder)
    else:
        aside = str(_set_aside(folder, clock()))
    os.close(owner)
    log.error(
        Log.STORE_DAMAGED,
        folder=str(folder),
        reason=finding.reason,
        set_aside=aside,
        action="the store is rebuilt from the raw log",
    )
    return _rebuild(folder, raw, finding, aside, map_bytes, clock(), reported)


def _older(store: Store, noted: Checkpoint, reported: Mapping[str, Any] | None) -> str:
    """Why ``store`` is not the one that was last in use but an older copy; empty when nothing says so."""
    saved, account = store.load(), store.account()
    if reported is not None and reported["store"] == account.log_id and reported["commits"] > account.commits:
        return f"it is an old copy: it had {reported['commits']} commits, and has {account.commits}"
    if saved.cursor is None or noted.cursor is None or noted.cursor.log_id != saved.cursor.log_id:
        return ""
    cursor, least = saved.cursor.offset, noted.cursor.offset
    return f"it is an old copy: its cursor is {cursor}, below {least} of the raw log" if cursor < least else ""


def _set_aside(folder: Path, now: int) -> Path:
    """Renames ``folder`` and deletes the oldest that were renamed before."""
    stamp = datetime.fromtimestamp(now / 1e6, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = folder.with_name(f"{folder.name}{DAMAGED}{stamp}")
    folder.rename(aside)
    sync_path(folder.parent)
    for old in sorted(folder.parent.glob(f"{folder.name}{DAMAGED}*"))[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return aside


def _rebuild(
    folder: Path, raw: Path, finding: Finding, aside: str | None, map_bytes: int, now: int,
    reported: Mapping[str, Any] | None,
) -> Store:  # fmt: skip
    """Under another name, so that a kill leaves all of it or nothing."""
    noted, new = newest_checkpoint(raw), folder.with_name(folder.name + NEW)
    shutil.rmtree(new, ignore_errors=True)
    begin = None if noted.cursor is None else noted.cursor.offset
    shown = {} if reported is None else reported["totals"]
    counted = 0 if noted.counters is None else int(noted.counters["totals"].get("alerts_made", 0))
    made_alerts = max(noted.made, counted, shown.get("alerts_made", 0))
    receipted = counted if noted.receipted is None else noted.receipted
    repeats = max(0, min(made_alerts, shown.get("alerts_receipted", 0)) - receipted)
    next_seq, receipted = max(noted.next_seq, finding.next_seq), receipted + repeats
    noted = noted._replace(next_seq=next_seq, made=made_alerts, receipted=receipted)
    parts = segments(raw) if raw.is_dir() else []
    how = {"at": now, "reason": finding.reason, "set_aside": aside, "judged_from": begin}
    with Store.open(new, map_bytes=map_bytes) as store:
        store.restart(noted, repeats, how, (parts[-1].log_id, parts[-1].base + APART // 2) if parts else None)
    new.rename(folder)
    sync_path(folder.parent)
    log.warning(
        Log.STORE_REBUILT,
        folder=str(folder),
        judged_from="the oldest frame kept" if begin is None else begin,
        next_seq=next_seq,
        files=len(noted.positions),
        lost="the state of correlations and suppression; the list of receipted alerts",
    )
    return Store.open(folder, map_bytes=map_bytes)
