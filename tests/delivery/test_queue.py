"""The outbox: an alert stays until its receipt, and nothing else takes it away."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lmdb
import pytest
from structlog.testing import capture_logs

from vedette.delivery import queue
from vedette.delivery.queue import Outbox
from vedette.model.counters import Counters, Log
from vedette.model.event import Cursor
from vedette.store.store import Store
from vedette.system.diskhealth import DiskHealth


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with alerts 1 to 6."""
    with Store.open(tmp_path) as store:
        store.commit(Cursor("ab" * 16, 1), {}, {}, [(seq, b"alert %d" % seq) for seq in range(1, 7)])
        yield store


@pytest.fixture
def writer() -> Iterator[ThreadPoolExecutor]:
    """The agent's one writer thread."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield executor


def test_pending_pages(store: Store, writer: ThreadPoolExecutor) -> None:
    """``pending`` hands out alerts in order of seq, page by page, and takes none away."""
    outbox = Outbox(store, writer, Counters(), DiskHealth(lambda: 0))
    assert [seq for seq, _ in outbox.pending(limit=4)] == [1, 2, 3, 4]
    assert outbox.pending(4, 4) == [(5, b"alert 5"), (6, b"alert 6")]
    assert outbox.pending(6) == []
    assert outbox.depth == 6
    assert outbox.bytes == 6 * len(b"alert 1")


def test_receipt(store: Store, writer: ThreadPoolExecutor) -> None:
    """A receipt frees its ranges, counts them once, and leaves them in the tail."""
    counters = Counters()
    outbox = Outbox(store, writer, counters, DiskHealth(lambda: 0))

    async def main() -> list[int]:
        return [await outbox.receipt([(1, 2), (4, 4)], outbox.log_id), await outbox.receipt([(1, 4)])]

    assert asyncio.run(main()) == [3, 1]
    assert counters.totals["alerts_receipted"] == 4
    assert [seq for seq, _ in outbox.pending()] == [5, 6]
    assert [(alert.seq, alert.receipted) for alert in outbox.tail(3)] == [(4, True), (5, False), (6, False)]
    account = outbox.account()
    assert account.made == account.receipted + account.depth == 6


def test_a_receipt_of_another_numbering_does_nothing(store: Store, writer: ThreadPoolExecutor) -> None:
    """A receipt meant for a store that was deleted is logged and takes nothing away."""
    outbox = Outbox(store, writer, Counters(), DiskHealth(lambda: 0))
    with capture_logs() as logs:
        assert asyncio.run(outbox.receipt([(1, 6)], "0" * 32)) == 0
    assert outbox.depth == 6
    assert [entry["event"] for entry in logs] == [Log.RECEIPT_INVALID]


def test_a_receipt_waits_for_the_disk(
    store: Store, writer: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store cannot be written it is tried again, and says so; nobody hears of it before it is on disk."""
    health = DiskHealth(lambda: 0)
    outbox, receipt, degraded = Outbox(store, writer, Counters(), health), store.receipt, list[bool]()

    def full_at_first(ranges: Sequence[tuple[int, int]]) -> int:
        degraded.append(health.degraded)
        if len(degraded) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return receipt(ranges)

    monkeypatch.setattr(queue, "RETRY_SECONDS", 0)
    monkeypatch.setattr(store, "receipt", full_at_first)
    assert asyncio.run(outbox.receipt([(1, 2)])) == 2
    assert (degraded, health.degraded, outbox.depth) == ([False, True, True], False, 4)


def test_the_receipted_total_is_the_stores(store: Store, writer: ThreadPoolExecutor) -> None:
    """After a crash between a receipt and the next commit the total is still what the store counted."""
    store.receipt([(1, 3)])
    counters = Counters()
    outbox = Outbox(store, writer, counters, DiskHealth(lambda: 0))
    assert counters.totals["alerts_receipted"] == 3
    counters.restore({"inputs": {}, "totals": {"alerts_receipted": 0}})
    assert (outbox.depth, counters.totals["alerts_receipted"]) == (3, 3)


def test_wake(store: Store, writer: ThreadPoolExecutor) -> None:
    """``more`` ends at a wake, also one before it, and otherwise after its time."""

    async def main() -> list[bool]:
        outbox = Outbox(store, writer, Counters(), DiskHealth(lambda: 0))
        outbox.wake()
        first = await outbox.more(5)
        second = await outbox.more(0.01)
        asyncio.get_running_loop().call_later(0.01, outbox.wake)
        return [first, second, await outbox.more(5)]

    assert asyncio.run(main()) == [True, False, True]


def test_a_damaged_alert_does_not_hold_up_the_others(tmp_path: Path, writer: ThreadPoolExecutor) -> None:
    """Damaged alerts are said once, not handed out, and stay in the depth."""
    with Store.open(tmp_path) as store:
        store.commit(Cursor("ab" * 16, 1), {}, {}, [(seq, b"alert") for seq in range(1, 5)])
    with lmdb.open(str(tmp_path), max_dbs=8) as env, env.begin(write=True) as txn:
        for seq in (1, 2):
            txn.put(seq.to_bytes(8, "big"), b"\0\0\0\0alert", db=env.open_db(b"outbox", txn))
    with Store.open(tmp_path) as store:
        outbox = Outbox(store, writer, Counters(), DiskHealth(lambda: 0))
        with capture_logs() as logs:
            assert outbox.pending(limit=2) == [(3, b"alert"), (4, b"alert")]
            assert outbox.pending(limit=1) == [(3, b"alert")]
        assert [(entry["event"], entry["seq"]) for entry in logs] == [(Log.OUTBOX_DAMAGED, 1), (Log.OUTBOX_DAMAGED, 2)]
        assert (outbox.depth, outbox.damaged) == (4, 2)
