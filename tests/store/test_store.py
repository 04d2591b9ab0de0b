"""The store: one transaction per batch, whole or not at all, whatever happens to the process."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tests.waits import until
from vedette.model.event import Cursor, FilePosition
from vedette.store import store as module
from vedette.store.store import OfSet, Store, quarantined_of

LOG = "ab" * 16


def commit(store: Store, offset: int, *alerts: tuple[int, bytes], alerts_made: int = 0) -> None:
    """A batch without positions."""
    store.commit(Cursor(LOG, offset), {"inputs": {}, "totals": {"alerts_made": alerts_made}}, [], alerts)


@pytest.mark.alone
def test_a_new_store_that_the_disk_does_not_take(tmp_path: Path) -> None:
    """Nothing of it is there, so that the next start takes none for damaged, and makes it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for limit in (0, 8192, 16384, 28672, 32768):
        folder = tmp_path / str(limit)
        folder.mkdir()
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            with pytest.raises(OSError, match="the store cannot be used"):
                Store.open(folder)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert not (folder / "data.mdb").exists()
        with Store.open(folder) as store:
            assert store.account().next_seq == 1
        assert not (folder / "new").exists()
    signal.signal(signal.SIGXFSZ, previous)


def test_a_new_store_is_empty(tmp_path: Path) -> None:
    """A new store has no cursor, counters or positions, and its first seq is 1."""
    with Store.open(tmp_path / "a" / "store") as store:
        saved, account = store.load(), store.account()
    assert (saved, account.next_seq) == ((None, None, []), 1)
    assert len(account.log_id) == 32


def test_what_was_committed_is_loaded(tmp_path: Path) -> None:
    """Cursor, counters, positions, next seq and numbering survive a reopening."""
    counters = {"inputs": {"in": {"received": 3}}, "totals": {"alerts_made": 1}}
    position = FilePosition("/var/log/\udcff" + "x" * 4000, 7, "f" * 32, 1 << 40)
    with Store.open(tmp_path) as store:
        log_id = store.account().log_id
        store.commit(Cursor(LOG, 10), {}, [position._replace(position=5)], [(1, b"one")])
        store.commit(Cursor(LOG, 20), counters, [position], [(2, b"two"), (3, b"three")])
    with Store.open(tmp_path) as store:
        assert store.load() == (Cursor(LOG, 20), counters, [position])
        assert (store.account().next_seq, store.account().log_id) == (4, log_id)
        assert store.pending() == ([(1, b"one"), (2, b"two"), (3, b"three")], [])
        assert store.pending(1, 1) == ([(2, b"two")], [])
        assert [[seq for seq, _ in store.pending(size=size)[0]] for size in (1, 8, 100)] == [[1], [1, 2], [1, 2, 3]]


def test_values_by_name(tmp_path: Path) -> None:
    """``put`` keeps what msgpack carries, None forgets it, and an unknown name gives None."""
    with Store.open(tmp_path) as store:
        store.put("quarantined", ["rule-1", "rule-2"])
        assert store.get("quarantined") == ["rule-1", "rule-2"]
        store.put("quarantined", None)
        assert store.get("quarantined") is None
        assert store.get("cursor") is None


def test_seq_never_repeats(tmp_path: Path) -> None:
    """A seq that was used is refused, also after its receipt, and the refused batch changes nothing."""
    with Store.open(tmp_path) as store:
        commit(store, 10, (1, b"one"))
        store.receipt([(1, 1)])
        with pytest.raises(ValueError, match="seq 1 is below 2"):
            commit(store, 20, (1, b"again"))
        assert store.load().cursor == Cursor(LOG, 10)
        assert store.account().next_seq == 2


def test_a_copy_numbers_its_alerts_anew(tmp_path: Path) -> None:
    """Another numbering, with the seqs, alerts and figures of the store that it was; it is counted each time."""
    with Store.open(tmp_path) as store:
        commit(store, 10, (1, b"one"), (2, b"two"), alerts_made=2)
        store.receipt([(1, 1)])
        before = store.account()
        store.renumber()
        after = store.account()
        assert after.log_id != before.log_id
        assert replace(after, log_id=before.log_id) == before
        assert store.pending() == ([(2, b"two")], [])
        assert store.load().counters == {"inputs": {}, "totals": {"alerts_made": 2, "copies_noticed": 1}}
    with Store.open(tmp_path / "new") as store:
        for _ in range(2):
            store.renumber()
        assert store.load().counters == {"inputs": {}, "totals": {"copies_noticed": 2}}


def test_receipts_move_to_the_ring(tmp_path: Path) -> None:
    """A receipt takes its ranges out of the outbox into the ring, once; the account always adds up."""
    with Store.open(tmp_path) as store:
        commit(store, 10, *((seq, bytes([seq]) * seq) for seq in range(1, 11)))
        assert store.receipt([(0, 2), (5, 6), (9, 40)]) == 6
        assert store.receipt([(1, 2), (6, 6), (11, 1 << 62)]) == 0
        assert [seq for seq, _ in store.pending()[0]] == [3, 4, 7, 8]
        account = store.account()
        assert (account.made, account.receipted, account.depth) == (10, 6, 4)
        assert (account.bytes, account.ring_bytes) == (22, 33)
        assert [(alert.seq, alert.receipted) for alert in store.tail(4)] == [
            (7, False),
            (8, False),
            (9, True),
            (10, True),
        ]
        assert [alert.seq for alert in store.since(4, 3)] == [5, 6, 7]
        assert [alert.data for alert in store.tail(100)] == [bytes([seq]) * seq for seq in range(1, 11)]
        assert store.tail(0) == []


def test_the_ring_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring keeps the newest alerts within its number and its bytes."""
    monkeypatch.setattr(module, "RING_ALERTS", 5)
    monkeypatch.setattr(module, "RING_BYTES", 300)
    with Store.open(tmp_path) as store:
        commit(store, 10, *((seq, bytes(10)) for seq in range(1, 9)))
        store.receipt([(1, 8)])
        assert [alert.seq for alert in store.tail(100)] == [4, 5, 6, 7, 8]
        commit(store, 20, (9, bytes(200)), (10, bytes(90)))
        store.receipt([(9, 10)])
        assert [alert.seq for alert in store.tail(100)] == [8, 9, 10]
        assert store.account().ring_bytes == 300
        commit(store, 30, (11, bytes(301)))
        store.receipt([(11, 11)])
        assert store.tail(100) == []
        assert store.account().ring_bytes == 0


def put(store: Store, number: int, *positions: FilePosition) -> None:
    """Commit positions, and wait until it is looked up which files are gone."""
    store.commit(Cursor(LOG, number), {}, positions, [])
    until("the search for files", lambda: store._absent is None or store._absent.over)


def test_file_positions_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the positions that changed longest ago are forgotten."""
    monkeypatch.setattr(module, "MAX_FILES", 10)
    with Store.open(tmp_path) as store:
        for n in [*range(10), 0, 10, 10]:
            put(store, n, FilePosition(f"/{n}", n, "", n))
        assert sorted(position.path for position in store.load().positions) == sorted(
            ["/0", *(f"/{n}" for n in range(3, 11))]
        )


def test_a_dead_file_system_delays_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a look at a file does not come back, commits do, and positions are bounded."""
    monkeypatch.setattr(module, "MAX_FILES", 10)
    alive, real = threading.Event(), os.stat

    def stat(path: str | Path, **options: Any) -> os.stat_result:
        if str(path) == "/dead":
            alive.wait()
        return real(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    with Store.open(tmp_path) as store:
        for n in range(30):
            store.commit(Cursor(LOG, n), {}, [FilePosition("/dead", n, "", n)], [])
        assert len(store.load().positions) <= 12
        alive.set()
        until("the end of the search", lambda: store._absent is None or store._absent.over)


def test_a_quiet_file_keeps_its_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files come and go: what is still at its path stays, as do places in journals and at Kafka."""
    monkeypatch.setattr(module, "MAX_FILES", 10)
    quiet, rotated = tmp_path / "quiet.log", tmp_path / "rotated.log"
    quiet.touch()
    rotated.touch()
    others = [
        FilePosition("kafka:gw:g:t", 0, "id", 5000),
        FilePosition("journal:j:", 0, "cursor", 7),
        FilePosition("audit:a", 0, "boot", 7),
    ]
    lasting = [FilePosition(str(quiet), quiet.stat().st_ino, "", 1000), *others]
    with Store.open(tmp_path / "store") as store:
        put(store, 0, *lasting, FilePosition(str(rotated), 1, "", 9))
        for n in range(50):
            put(store, n, FilePosition(f"{tmp_path}/gone/{n}", n, "", n))
        positions = store.load().positions
        assert {*lasting} <= {*positions}
        assert (str(rotated), 1) not in {position.file for position in positions}
        assert sum(position.of_file for position in positions) <= 12
        for n in range(30):
            put(store, n, FilePosition("kafka:gw:g:many", n, "", n))
        positions = store.load().positions
        assert lasting[0] in positions
        assert sum(not position.of_file for position in positions) <= 12


def test_old_parts_of_the_state_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once there is more of the state than when it was last written as a whole, it is long; what is older than the
    commit with which it begins to be written again goes with the one that ends it, in its transaction."""
    monkeypatch.setattr("vedette.store.deltas.STATE_BYTES", 10)
    with Store.open(tmp_path) as store:

        def put(state: bytes, *, whole: bool = False) -> bool:
            store.commit(Cursor(LOG, 10), {}, [], [], state, whole)
            return store.state.is_long()

        assert [put(b"a" * 5), put(b"b" * 5), put(b"c")] == [False, False, True]
        store.state.begins()
        assert put(b"d" * 20)
        assert not put(b"e" * 20, whole=True)
        assert list(store.state.parts()) == [b"d" * 20, b"e" * 20]
    with Store.open(tmp_path) as store:
        assert list(store.state.parts()) == [b"d" * 20, b"e" * 20]
        store.state.begins()
        assert not put(b"f" * 20, whole=True)
        assert list(store.state.parts()) == [b"f" * 20]
    with Store.open(tmp_path) as store:
        store.commit(Cursor(LOG, 10), {}, [], [], b"g")
        assert list(store.state.parts()) == [b"f" * 20, b"g"]


def test_a_full_map_changes_nothing(tmp_path: Path) -> None:
    """A commit that does not fit raises OSError, says so, and leaves the last one."""
    with Store.open(tmp_path, map_bytes=1 << 20) as store:
        commit(store, 10, (1, b"one"))
        with pytest.raises(OSError, match="size limit"):
            commit(store, 20, (2, bytes(2 << 20)))
        assert store.load().cursor == Cursor(LOG, 10)
        assert store.account().depth == 1
        commit(store, 20, (2, b"two"))


def test_a_damaged_value_is_named(tmp_path: Path) -> None:
    """A value that fails its checksum raises ValueError naming table and key; a damaged alert leaves the others."""
    with Store.open(tmp_path) as store:
        commit(store, 10, (1, b"one"), (2, b"two"), (3, b"three"))
    with lmdb.open(str(tmp_path), max_dbs=8) as env, env.begin(write=True) as txn:
        outbox, meta = env.open_db(b"outbox", txn), env.open_db(b"meta", txn)
        key = (2).to_bytes(8, "big")
        txn.put(key, bytes(txn.get(key, db=outbox))[:-1] + b"!", db=outbox)
        txn.put(b"cursor", bytes(txn.get(b"counters", db=meta)), db=meta)
    with Store.open(tmp_path) as store:
        assert store.pending() == ([(1, b"one"), (3, b"three")], [2])
        assert [alert.seq for alert in store.tail(10)] == [1, 3]
        with pytest.raises(ValueError, match=r"meta b'cursor' fails its checksum"):
            store.load()


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    """Foreign bytes in place of the store raise ValueError saying what to do, and the lock is let go."""
    (tmp_path / "data.mdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(ValueError, match="move it away"):
        Store.open(tmp_path)
    (tmp_path / "data.mdb").unlink()
    Store.open(tmp_path).close()


def test_one_writer_many_readers(tmp_path: Path) -> None:
    """A second writer is refused with a reason, whatever is deleted beside the data; another process reads what the
    writer committed meanwhile."""
    with pytest.raises(FileNotFoundError, match="has the agent run"):
        Store.open(tmp_path / "none", readonly=True)
    with Store.open(tmp_path) as store:
        for path in {*tmp_path.iterdir()} - {*tmp_path.glob("*.mdb")}:
            path.unlink()
        with pytest.raises(BlockingIOError, match="another agent"):
            Store.open(tmp_path)
        commit(store, 10, (1, b"one"))
        read = (
            "import sys; from pathlib import Path; from vedette.store.store import Store;"
            "s = Store.open(Path(sys.argv[1]), readonly=True); print(s.load().cursor.offset, s.tail(9), flush=True);"
            "sys.stdin.readline(); print(s.load().cursor.offset)"
        )
        reader = subprocess.Popen(
            [sys.executable, "-c", read, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "10 [StoredAlert(seq=1, data=b'one', receipted=False)]\n"
            commit(store, 20)
            assert reader.communicate("\n", 10)[0] == "20\n"


RING = 30
"""Receipted alerts that are kept: few, so that this bound is reached on every machine."""
WRITER = f"""
import sys
from pathlib import Path
from typing import Any
import vedette.store.store
from tests.waits import until
from vedette.model.event import Cursor, FilePosition
from vedette.store.store import Store
vedette.store.store.RING_ALERTS = {RING}
store = Store.open(Path(sys.argv[1]))
seq = store.account().next_seq
while True:
    alerts = [(seq + i, b"%d" % (seq + i) * 400) for i in range(7)]
    counters, position = {{"totals": {{"alerts_made": seq + 6}}}}, FilePosition("/f", 1, "", seq)
    store.commit(Cursor("ab" * 16, seq), counters, [position], alerts)
    seq += 7
    print("commit", seq, flush=True)
    if seq % 3 == 0:
        store.receipt([(seq - 10, seq - 5)])
        print("receipt", seq - 5, flush=True)
"""


@pytest.mark.long
def test_kill_in_the_middle_of_commits(tmp_path: Path) -> None:
    """Killed with -9 at any moment: every commit and receipt that returned is there, and none is half there."""
    for delay in (0.03, 0.06, 0.1, 0.17):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert child.stdout is not None
        said = [child.stdout.readline()]
        killer = threading.Timer(delay, os.kill, (child.pid, signal.SIGKILL))
        killer.start()
        with child:
            said += child.stdout.readlines()
        killer.join()
        words = [line.split() for line in said if line.endswith("\n")]
        committed = max(int(n) for what, n in words if what == "commit")
        receipted = max((int(n) for what, n in words if what == "receipt"), default=0)
        with Store.open(tmp_path) as store:
            saved, account = store.load(), store.account()
            assert account.next_seq >= committed
            assert (account.next_seq - 1) % 7 == 0
            assert saved.cursor == Cursor(LOG, account.next_seq - 7)
            assert saved.counters == {"totals": {"alerts_made": account.next_seq - 1}}
            assert saved.positions[0].position == account.next_seq - 7
            alerts = store.tail(account.next_seq)
            ring = [alert.seq for alert in alerts if alert.receipted]
            gone = set(range(1, account.next_seq)) - {alert.seq for alert in alerts}
            if gone:  # of those receipted, and only when the ring is full of newer ones
                assert len(ring) == RING
                assert max(gone) < ring[0]
                receipts = [seq for seq in range(8, account.next_seq + 1, 7) if seq % 3 == 0]
                assert gone <= {seq - back for seq in receipts for back in range(5, 11)}
            assert [alert.seq for alert in alerts] == [n for n in range(1, account.next_seq) if n not in gone]
            assert all(alert.data == b"%d" % alert.seq * 400 for alert in alerts)
            assert account.made == account.next_seq - 1
            assert account.depth == sum(not alert.receipted for alert in alerts)
            assert all(alert.receipted for alert in alerts if receipted - 5 <= alert.seq <= receipted)


def test_states_of_sets(tmp_path: Path) -> None:
    """Each set has its state and its list of quarantined rules, in the transaction of its alerts; none touches another
    one's or the agent's, and one that is forgotten leaves nothing."""
    with Store.open(tmp_path) as store:
        for number, name in enumerate(("a", "b", "a")):
            one = OfSet(name, b"%d" % number, begins=False, whole=False, quarantined={"rule": number})
            store.commit(Cursor(LOG, number), {}, [], [], b"agent's %d" % number, sets=[one])
    with Store.open(tmp_path) as store:
        assert [*store.state.parts()] == [b"agent's 0", b"agent's 1", b"agent's 2"]
        assert [*store.of_set("a").parts()] == [b"0", b"2"]
        assert [*store.of_set("b").parts()] == [b"1"]
        assert store.get(quarantined_of("a")) == {"rule": 2}
        again = OfSet("a", b"all", begins=True, whole=True)
        store.commit(Cursor(LOG, 9), {}, [], [], sets=[again])
        assert [*store.of_set("a").parts()] == [b"all"]
        store.forget_set("a")
        assert [*store.of_set("a").parts()] == []
        assert store.get(quarantined_of("a")) is None
        assert [*store.of_set("b").parts()] == [b"1"]
        assert len([*store.state.parts()]) == 3
