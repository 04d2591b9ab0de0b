"""The store at start: checked by a child, set aside when damaged, made again from the raw log's checkpoints."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from structlog.testing import capture_logs

from tests.e2e.agent import KILLS
from tests.rawlog.samples import NOW, lines, noise
from tests.settings import SegmentedLog
from tests.waits import DEADLINE
from vedette.model.counters import Counters, Log
from vedette.model.event import Cursor, FilePosition
from vedette.rawlog import checkpoint
from vedette.rawlog.checkpoint import Checkpoint
from vedette.rawlog.log import RawLog
from vedette.rawlog.read import newest_checkpoint
from vedette.rawlog.segment import segments
from vedette.store import check as storecheck
from vedette.store.check import examine
from vedette.store.rebuild import KEPT, open_store
from vedette.store.store import Store

POSITION = FilePosition("/var/log/\udcff", 7, "ab" * 16, 100)
COUNTS = {"inputs": {}, "totals": {"alerts_made": 5}}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check has as long as any wait, on a machine that is busy."""
    monkeypatch.setattr(storecheck, "LEAST_SECONDS", DEADLINE)


def opened(folder: Path) -> Store:
    return open_store(folder / "store", folder / "raw", map_bytes=1 << 24, clock=lambda: NOW)


def filled(folder: Path) -> None:
    """A store with history: freed pages, overflow pages, every table in use."""
    with Store.open(folder, map_bytes=1 << 24) as store:
        for batch in range(40):
            seqs = range(1 + 5 * batch, 6 + 5 * batch)
            alerts = [(seq, b"%d" % seq * (5 if seq % 3 else 900)) for seq in seqs]
            store.commit(Cursor("ab" * 16, 100 * batch), COUNTS, [POSITION], alerts, b"state" * 50)
            if batch % 4 == 3:
                store.receipt([(1, seqs[0])])


def raw_log(folder: Path) -> tuple[str, list[Checkpoint]]:
    """Segments with a checkpoint each; returns the log_id and the checkpoints."""
    checkpoints: list[Checkpoint] = []
    opened: list[RawLog] = []

    def describe() -> bytes:
        if not opened:
            return b""
        checkpoints.append(
            Checkpoint(Cursor(opened[0].log_id, 10 * len(checkpoints)), COUNTS, (POSITION,), 1 + len(checkpoints))
        )
        return checkpoint.encode(checkpoints[-1])

    settings = SegmentedLog(segment_bytes=10_000)
    log = RawLog.open(folder, settings, Counters(), clock=lambda: NOW, describe=describe)
    opened.append(log)
    for i in range(30):
        log.append(lines(noise(i)))
    log.close()
    assert len(checkpoints) >= 4
    return log.log_id, checkpoints


def test_notes_come_back() -> None:
    """A checkpoint holds what it was given, also paths that are no UTF-8; other bytes are refused."""
    told = Checkpoint(Cursor("ab" * 16, 1 << 40), COUNTS, (POSITION, POSITION), 77)
    assert checkpoint.decode(checkpoint.encode(told)) == told
    assert checkpoint.decode(b"") == Checkpoint()
    for data in (b"x", checkpoint.encode(told)[:-3], checkpoint.encode(told)[5:]):
        with pytest.raises(ValueError, match="checkpoint"):
            checkpoint.decode(data)


def test_notes_are_bounded() -> None:
    """Of very many long paths a checkpoint keeps the last ones that fit."""
    many = tuple(FilePosition("/" + "x" * 4000 + str(i), i, "", i) for i in range(20_000))
    kept = checkpoint.decode(checkpoint.encode(Checkpoint(None, None, many))).positions
    assert 1000 < len(kept) <= checkpoint.MAX_POSITIONS
    assert kept == many[-len(kept) :]


def test_a_whole_store_is_opened(tmp_path: Path) -> None:
    """A store without damage, and none at all, are just opened; the check changes no byte of it."""
    filled(tmp_path / "store")
    before = (tmp_path / "store" / "data.mdb").read_bytes()
    assert examine(tmp_path / "store") == ("", 201, "")
    assert (tmp_path / "store" / "data.mdb").read_bytes() == before
    found = opened(tmp_path)
    assert not found.uncertain
    assert found.account().next_seq == 201
    with pytest.raises(BlockingIOError, match="another agent"):
        opened(tmp_path)
    found.close()
    assert not opened(tmp_path / "new").uncertain


def test_made_again_from_the_newest_checkpoint(tmp_path: Path) -> None:
    """A damaged store is set aside whole and made again with the newest checkpoint's cursor, counters and positions,
    all its alerts receipted, another numbering, and seq above what was known."""
    _, checkpoints = raw_log(tmp_path / "raw")
    filled(tmp_path / "store")
    with Store.open(tmp_path / "store", readonly=True) as store:
        numbering = store.account().log_id
    data = tmp_path / "store" / "data.mdb"
    os.truncate(data, data.stat().st_size - 3 * 4096)
    damaged = data.read_bytes()
    found = opened(tmp_path)
    assert found.uncertain
    saved, account, told = found.load(), found.account(), found.get("rebuilt")
    assert (saved.cursor, saved.counters, saved.positions) == (checkpoints[-1].cursor, COUNTS, [POSITION])
    assert account.log_id != numbering
    assert account.next_seq >= checkpoints[-1].next_seq
    assert (account.made, account.receipted, account.depth) == (5, 5, 0)
    assert told["at"] == NOW
    assert told["reason"]
    assert Path(told["set_aside"]).joinpath("data.mdb").read_bytes() == damaged
    found.close()


def test_a_store_that_is_gone_is_made_again(tmp_path: Path) -> None:
    """Where the raw log is there, a store that is not is no first start; half of one, left by a kill, is in no way."""
    _, checkpoints = raw_log(tmp_path / "raw")
    filled(tmp_path / "store.new")
    for lost in ("never there", "emptied folder"):
        found = opened(tmp_path)
        assert found.uncertain, lost
        assert found.load().cursor == checkpoints[-1].cursor
        assert found.pending() == ([], [])
        found.close()
        assert not list(tmp_path.glob("store.*"))
        shutil.rmtree(tmp_path / "store")
        (tmp_path / "store").mkdir()


def test_how_far_the_log_was_used_stays_unknown_until_it_was_opened(tmp_path: Path) -> None:
    """A kill between making the store again and opening the raw log leaves it so for the next start."""
    raw_log(tmp_path / "raw")
    for _ in range(2):
        found = opened(tmp_path)
        assert found.uncertain
        found.close()
    found = opened(tmp_path)
    found.settle()
    found.close()
    found = opened(tmp_path)
    assert not found.uncertain
    found.close()


def test_an_old_copy_is_made_again(tmp_path: Path) -> None:
    """A store with fewer commits than were shown of it, or a cursor below a checkpoint's, would give numbers again that
    alerts have had; one that is newer, or another, is used as it is."""
    log_id, checkpoints = raw_log(tmp_path / "raw")
    newest = checkpoints[-1].cursor
    assert newest is not None
    filled(tmp_path / "copy")
    with Store.open(tmp_path / "copy") as store:
        store.commit(newest, COUNTS, [], [])
        commits, numbering = store.account().commits, store.account().log_id
        assert commits > 1
    with Store.open(tmp_path / "behind") as store:
        store.commit(Cursor(log_id, newest.offset - 1), COUNTS, [], [(70, b"alert")])
    shown = {"store": numbering, "commits": commits, "inputs": {}, "totals": {"alerts_made": 300}}
    for name, known, anew in (
        ("copy", None, False),
        ("copy", shown, False),
        ("copy", {**shown, "commits": commits + 1, "store": "another"}, False),
        ("copy", {**shown, "commits": commits + 1}, True),
        ("behind", None, True),
    ):
        for old in tmp_path.glob("store*"):
            shutil.rmtree(old)
        shutil.copytree(tmp_path / name, tmp_path / "store")
        found = open_store(tmp_path / "store", tmp_path / "raw", map_bytes=1 << 24, clock=lambda: NOW, reported=known)
        account = found.account()
        assert found.uncertain == anew, (name, known)
        if anew:
            assert "old copy" in found.get("rebuilt")["reason"]
            assert account.log_id != numbering
            assert account.next_seq >= (71 if name == "behind" else 201)
            assert (account.made, account.receipted, account.lost) == ((300, 5, 295) if known else (5, 5, 0))
            assert (found.load().counters or {})["totals"]["alerts_made"] == account.made
        found.close()


def test_damaged_notes_are_passed_over(tmp_path: Path) -> None:
    """Where the newest checkpoint is damaged the one before it counts; without any, judging begins at the oldest
    frame."""
    _, checkpoints = raw_log(tmp_path)
    for number in range(1, len(checkpoints) + 1):
        path = segments(tmp_path)[-number].path
        with path.open("r+b") as file:
            file.seek(90)
            file.write(b"damage")
        assert newest_checkpoint(tmp_path).cursor == (
            checkpoints[-number - 1].cursor if number < len(checkpoints) else None
        )
    assert newest_checkpoint(tmp_path / "none") == Checkpoint()


def test_seq_goes_on_above_what_the_store_told(tmp_path: Path) -> None:
    """What could still be read of the damaged store's numbering counts."""
    raw_log(tmp_path / "raw")
    filled(tmp_path / "store")
    with Store.open(tmp_path / "store") as store, store.env.write() as txn:
        txn._txn.put((150).to_bytes(8, "big"), b"no checksum", db=txn._tables[b"outbox"])
    found = opened(tmp_path)
    assert found.uncertain
    assert found.account().next_seq == 201
    found.close()


def test_few_damaged_stores_are_kept(tmp_path: Path) -> None:
    """The newest KEPT of the stores set aside stay."""
    for number in range(KEPT + 2):
        (tmp_path / "store").mkdir(exist_ok=True)
        (tmp_path / "store" / "data.mdb").write_bytes(b"%d" % number * 9000)
        found = open_store(tmp_path / "store", tmp_path / "raw", map_bytes=1 << 24, clock=lambda n=number: NOW + n)
        found.close()
    kept = sorted(tmp_path.glob("store.damaged-*"))
    assert [path.joinpath("data.mdb").read_bytes()[:1] for path in kept] == [b"2", b"3"]


NO_START = {
    "cannot import": ("raise ImportError('libcrypt.so.1: cannot open shared object file')", "libcrypt.so.1"),
    "killed while it starts": ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    "too slow to start": ("import time; time.sleep(3600)", "within 0 s"),
}
WHILE_READING = """
import os, sys
sys.path.remove({here!r})
del sys.modules["lmdb"]
import lmdb
lmdb.open = lambda *_, **__: os.kill(os.getpid(), {number})
"""
"""An ``lmdb`` of its own for the child, which dies of a signal when it opens the store."""


def unchecked(folder: Path, reason: str) -> None:
    """The store in ``folder`` is opened as it is, and the log says why it was not checked and what to do."""
    with capture_logs() as said:
        found = opened(folder)
    assert not found.uncertain
    assert found.account().next_seq == 201
    found.close()
    assert not list(folder.glob("store.damaged-*"))
    (told,) = said
    assert (told["event"], told["log_level"]) == (Log.STORE_UNCHECKED, "error")
    assert told["folder"] == str(folder / "store")
    assert reason in told["reason"]
    assert "restart the agent" in told["action"]


@pytest.mark.parametrize("case", NO_START)
def test_a_check_that_cannot_start_is_no_damage(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that ends before its imports are done says nothing of the store, which is opened unchecked."""
    filled(tmp_path / "store")
    code, reason = NO_START[case]
    (tmp_path / "lmdb.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    if case == "too slow to start":
        monkeypatch.setattr(storecheck, "LEAST_SECONDS", 0.05)
    unchecked(tmp_path, reason)


def test_no_process_for_the_check_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no child can be started at all the store is opened unchecked."""
    filled(tmp_path / "store")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    unchecked(tmp_path, "no-python")


@pytest.mark.parametrize(("number", "whole"), [(signal.SIGKILL, True), (signal.SIGTERM, True), (signal.SIGBUS, False)])
def test_what_kills_a_check_at_work(
    number: signal.Signals, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that only others send (the kernel for want of memory, a stop) is no damage; SIGBUS is."""
    filled(tmp_path / "store")
    (tmp_path / "lmdb.py").write_text(WHILE_READING.format(here=str(tmp_path), number=int(number)))
    monkeypatch.syspath_prepend(tmp_path)
    found = examine(tmp_path / "store")
    assert number.name in (found.unchecked if whole else found.reason)
    assert not (found.reason if whole else found.unchecked)
    if whole:
        unchecked(tmp_path, number.name)


WANTING = """
import mmap, os, resource, sys
sys.path.remove({here!r})
del sys.modules["lmdb"]
import lmdb
real = lmdb.open
def opened(*words, **named):
    used = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
    env = real(*words, **named) if {late} else None
    resource.setrlimit({limit})
    return env or real(*words, **named)
lmdb.open = opened
"""
"""An ``lmdb`` of its own for the child, which then gets less than the check needs."""


@pytest.mark.parametrize(
    ("limit", "late", "reason"),
    [
        ("resource.RLIMIT_AS, (used + (100 << 20),) * 2", False, "Cannot allocate memory"),
        ("resource.RLIMIT_AS, (used,) * 2", True, "MemoryError"),
        ("resource.RLIMIT_NOFILE, (3, 3)", False, "Too many open files"),
    ],
)
def test_a_check_without_means_is_no_damage(
    limit: str, late: bool, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sound store whose check gets too little memory or too few descriptors is used as it is, and that is told."""
    filled(tmp_path / "store")
    with Store.open(tmp_path / "store", map_bytes=1 << 27) as store:
        store.put("large", "x" * (32 << 20))
    (tmp_path / "lmdb.py").write_text(WANTING.format(here=str(tmp_path), limit=limit, late=late))
    monkeypatch.syspath_prepend(tmp_path)
    unchecked(tmp_path, reason)


def test_a_store_that_asks_for_absurd_memory_is_damaged(tmp_path: Path) -> None:
    """Where memory is not what lacks, a store that cannot be mapped is damaged: its pages cannot be that many."""
    filled(tmp_path / "store")
    with (tmp_path / "store" / "data.mdb").open("r+b") as file:
        for page in (0, 1):
            file.seek(page * 4096 + 136)  # mm_last_pg of both meta pages
            file.write((1 << 40).to_bytes(8, "little"))
    found = examine(tmp_path / "store")
    assert (bool(found.reason), found.unchecked) == (True, "")


def test_word_of_damage_counts_without_a_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of which the agent has said that it is damaged is made again, also where no child can be started."""
    filled(tmp_path / "store")
    (tmp_path / "store" / "damaged").write_text("a page that is not there")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    found = opened(tmp_path)
    assert found.uncertain
    found.close()


USE = """
import sys, time
from pathlib import Path
from vedette.model.event import Cursor
from vedette.store.rebuild import open_store
folder = Path(sys.argv[1])
found = open_store(folder / "store", folder / "raw", map_bytes=1 << 24, clock=lambda: time.time_ns() // 1000)
store = found
saved = store.load()
seq = store.account().next_seq
for batch in range(30):
    alerts = [(seq + i, bytes(900 * (i % 3))) for i in range(4)]
    store.commit(Cursor("cd" * 16, batch), {"totals": {}}, [], alerts, b"s" * 300)
    store.receipt([(seq, seq + 1)])
    seq += 4
store.verify()
print("anew" if found.uncertain else "as it was", sum(map(len, store.state.parts())))
"""


def used(folder: Path) -> tuple[int, str]:
    """A process that opens the store and works with it for a while."""
    done = subprocess.run([sys.executable, "-c", USE, str(folder)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip().rpartition("\n")[2] or done.stderr[-500:]


@pytest.mark.long
def test_any_page_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bit flipped or a page lost anywhere in the file, or its end cut off: what is opened can be worked with.

    What the check does not see shows at work, as an error and not as the death of the process, and the next start makes
    the store again.
    """
    filled(tmp_path / "store")
    data = tmp_path / "store" / "data.mdb"
    shutil.copy(data, tmp_path / "whole")
    size, rng = data.stat().st_size, Random(3)
    anew = late = 0
    count = max(6, min(KILLS, 200))
    for case in range(count):
        shutil.rmtree(tmp_path / "store")
        (tmp_path / "store").mkdir()
        shutil.copy(tmp_path / "whole", data)
        page = case % (size // 4096) if case % 4 else rng.randrange(size // 4096)
        with data.open("r+b") as file:
            if case % 6 == 5:
                file.truncate(4096 * page + rng.choice((0, 0, 17)))
            elif case % 6 == 4:
                file.seek(4096 * page)
                file.write(bytes(4096))
            else:
                position = 4096 * page + rng.choice((rng.randrange(48), rng.randrange(4096)))
                file.seek(position)
                byte = file.read(1)[0]
                file.seek(position)
                file.write(bytes([byte ^ (1 << rng.randrange(8))]))
        code, said = used(tmp_path)
        if code:  # found at work: loudly, and the next start knows
            assert code == 1, (case, page, code)
            late += 1
            code, said = used(tmp_path)
        assert code == 0, (case, page, said)
        anew += said.startswith("anew")
    with capsys.disabled():
        sys.stdout.write(f"\ndamaged store: {count} cases, {anew} made again, {late} found only at work\n")
