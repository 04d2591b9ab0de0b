"""Checksummed tables: what is read is what was written, or it is said; a transaction is whole or nothing."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from types import SimpleNamespace

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.store import environment
from vedette.store.environment import CHECKSUM, DAMAGED, Damaged, Environment

A, B = b"a", b"b"


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    return Environment(tmp_path, (A, B), 1 << 20)


def contents(env: Environment, table: bytes = A) -> dict[bytes, bytes]:
    with env.read() as txn:
        return {key: txn.content(table, key, value) for key, value in txn.values(table)}


def test_a_transaction_that_raises_leaves_nothing(env: Environment) -> None:
    """What was put before the error is not there, and the next transaction is as if it had not been."""
    with env.write() as txn:
        txn.put(A, b"1", b"one")

    def fail() -> None:
        with env.write() as txn:
            txn.put(A, b"2", b"two")
            txn.delete(A, b"1")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert contents(env) == {b"1": b"one"}
    with env.write() as txn:
        assert txn.delete(A, b"1")
        assert not txn.delete(A, b"1")
    assert contents(env) == {}


@settings(max_examples=60)
@given(content=st.binary(max_size=40), at=st.integers(0), bit=st.integers(0, 7))
def test_no_bit_of_a_value_can_be_flipped(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, at: int, bit: int
) -> None:
    """Neither of its content nor of its checksum: it is told with table and key, and in a file for the next start. The
    other values can be read."""
    folder = tmp_path_factory.mktemp("env")
    env = Environment(folder, (A, B), 1 << 20)
    with env.write() as txn:
        txn.put(A, b"1", content)
        txn.put(A, b"2", b"whole")
        value = bytearray(txn._txn.get(b"1", db=txn._tables[A]))
        value[at % (CHECKSUM + len(content))] ^= 1 << bit
        txn._txn.put(b"1", bytes(value), db=txn._tables[A])
    with pytest.raises(Damaged, match=r"a b'1' fails its checksum"), env.read() as txn:
        txn.get(A, b"1")
    assert "a b'1'" in (folder / DAMAGED).read_text()
    with env.read() as txn:
        assert txn.get(A, b"2") == b"whole"
    env.close()


def test_a_value_under_another_key_is_damage(env: Environment) -> None:
    """The checksum covers the key: a page that was put in another's place is noticed."""
    with env.write() as txn:
        txn.put(A, b"1", b"one")
        txn._txn.put(b"2", bytes(txn._txn.get(b"1", db=txn._tables[A])), db=txn._tables[A])
    with pytest.raises(Damaged, match=r"a b'2'"):
        contents(env)


@settings(max_examples=60)
@given(
    keys=st.sets(st.integers(0, 30), max_size=20), first=st.integers(0, 30), last=st.integers(0, 30), move=st.booleans()
)
def test_taking_a_range(
    tmp_path_factory: pytest.TempPathFactory, keys: set[int], first: int, last: int, move: bool
) -> None:
    """``take`` removes or moves the keys of the range, both ends included, and tells how many and how large."""
    env = Environment(tmp_path_factory.mktemp("env"), (A, B), 1 << 20)
    with env.write() as txn:
        for key in keys:
            txn.put(A, bytes([key]), bytes(key))
        taken = txn.take(A, bytes([first]), bytes([last]), B if move else b"")
    gone = {key for key in keys if first <= key <= last}
    assert taken == (len(gone), sum(gone))
    assert contents(env) == {bytes([key]): bytes(key) for key in keys - gone}
    assert contents(env, B) == ({bytes([key]): bytes(key) for key in gone} if move else {})
    env.close()


def test_from_either_end(env: Environment) -> None:
    """``values`` from a key on, ``newest`` from the end, ``last``, ``drop_first``, ``count``, ``take``."""
    with env.write() as txn:
        assert txn.last(A) is None
        assert txn.drop_first(A) == 0
        for key in range(5):
            txn.put(A, bytes([key]), bytes(key))
        assert [key for key, _ in txn.values(A, b"\x03")] == [b"\x03", b"\x04"]
        assert [key for key, _ in txn.newest(A, 2)] == [b"\x04", b"\x03"]
        assert txn.last(A) == b"\x04"
        assert [txn.drop_first(A) for _ in range(3)] == [0, 1, 2]
        assert txn.count(A) == 2
        for key in (b"5", b"6", b"8"):
            txn.put(A, key, b"")
        txn.take(A, b"", b"7")
        assert [key for key, _ in txn.values(A)] == [b"8"]
        txn.take(A, b"", b"8")
        txn.take(A, b"", b"9")
        assert txn.count(A) == 0


def test_a_map_that_is_full(env: Environment) -> None:
    """It is an OSError that says what to do; what was there stays, and there is room again after a delete."""
    with env.write() as txn:
        txn.put(A, b"1", bytes(400_000))
    with pytest.raises(OSError, match="size limit"), env.write() as txn:
        txn.put(A, b"2", bytes(900_000))
    with env.write() as txn:
        txn.delete(A, b"1")
    with env.write() as txn:
        txn.put(A, b"2", b"two")
    assert contents(env) == {b"2": b"two"}


def test_rehearsing_changes_nothing(env: Environment, tmp_path: Path) -> None:
    """The pages that a rehearsal writes are given up."""
    with env.write() as txn:
        for key in range(50):
            txn.put(A, bytes([key]), bytes(3000))
    before = contents(env)
    env.close()
    environment.rehearse(tmp_path, (A, B))
    assert contents(Environment(tmp_path, (A, B), 1 << 20)) == before


def test_a_commit_waits_for_the_disk(env: Environment) -> None:
    """LMDB syncs data and its first page at each commit."""
    flags = env._env.flags()
    assert (flags["sync"], flags["metasync"]) == (True, True)


def test_after_a_first_page_that_could_not_be_written(env: Environment, tmp_path: Path) -> None:
    """LMDB gives nothing more from then on, so the environment is opened again, by who reads as by who writes: with
    what was on disk before."""
    with env.write() as txn:
        txn.put(A, b"1", b"one")
    data = str(tmp_path / "data.mdb")
    descriptors = [int(path.name) for path in Path("/proc/self/fd").iterdir() if os.path.realpath(path) == data]
    (pages,) = (fd for fd in descriptors if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DSYNC)  # by which it writes that page
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, pages, inheritable=False)
    os.close(full)
    with pytest.raises(OSError, match="the store cannot be used"), env.write() as txn:
        txn.put(A, b"2", b"two")
    assert contents(env) == {b"1": b"one"}
    with env.write() as txn:
        txn.put(A, b"3", b"three")
    assert contents(env) == {b"1": b"one", b"3": b"three"}


@pytest.mark.parametrize(
    ("free", "flag", "number"),
    [
        (environment.LEAST_ROOM - 1, 0, errno.ENOSPC),
        (environment.LEAST_ROOM, 0, errno.EIO),
        (environment.LEAST_ROOM, os.ST_RDONLY, errno.EROFS),
    ],
)
def test_what_lmdb_calls_an_input_output_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, flag: int, number: int
) -> None:
    """On a full disk it is a full disk, and where nothing may be written that."""
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=1, f_flag=flag))
    with pytest.raises(OSError, match="the store cannot be used") as caught, environment._translated(tmp_path):
        raise lmdb.DiskError("mdb_txn_commit: Input/output error")
    assert caught.value.errno == number
