"""The agent's store: what must change together changes in one transaction.

Six tables of one LMDB environment (``environment.py``: checksums, errors, one writer):

=========  ============================  ==================================================================
table      key                           content
=========  ============================  ==================================================================
``meta``   name                          msgpack: ``cursor``, ``counters``, ``outbox`` (its account),
                                         ``sinks`` (``sinks.py``), and ``value:NAME`` for what ``put`` keeps
``files``  BLAKE2b-128 of path and inode msgpack: [path bytes, inode, fingerprint, position, commit number]
``outbox`` seq, 8 bytes big-endian       an alert, encoded by ``delivery.envelope``
``ring``   seq, 8 bytes big-endian       an alert that the region has receipted
``state``  number, 8 bytes big-endian    the state, in the order to be read (``state/state.py``)
``sets``   BLAKE2b-128 of name, number   the state of each rule set in strict isolation; rows for sinks (``rows.py``)
=========  ============================  ==================================================================

* ``commit`` and ``receipt`` are one write transaction each, on disk when they return; a process killed at any moment
  leaves the store as after the last transaction that ended. There is nothing to recover.
* ``seq`` rises over the store's whole life, also when the raw log gets a new ``log_id``. ``Account.log_id`` names this
  numbering: random, made with the store; a receipt for the numbering of a deleted store is thus recognized.
* ``made`` and ``receipted`` are counted in the transaction that changes the outbox, so
  ``made = receipted + entries + lost`` holds in each; ``account.py`` sees to it.
* Bounds: the ring keeps ``RING_ALERTS`` and ``RING_BYTES`` (the newest), and beyond these what a sink has not got yet,
  up to ``sink_bytes``; ``files`` keeps MAX_FILES positions of files, and as many others (of Kafka's partitions,
  journals), and a tenth more while it is looked up (``absent.py``) which files are gone from their path: these go
  first, then those that changed longest ago; the environment keeps
  ``map_bytes``: beyond that a commit raises OSError and changes nothing.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgpack

from vedette.model.event import Cursor, FilePosition
from vedette.rawlog.checkpoint import Checkpoint
from vedette.store.absent import Absent
from vedette.store.deltas import Deltas
from vedette.store.environment import Environment, Transaction
from vedette.store.sinks import Place, Places
from vedette.system.durable import make_folders, sync_path
from vedette.system.folders import locked

RING_ALERTS = 10_000
RING_BYTES = 64 << 20
TRIMMED = 5000
"""Alerts that leave the ring in one transaction, besides as many as came in."""
MAX_FILES = 100_000
MAX_SEQ = (1 << 64) - 1
_BEFORE, _REBUILT, _UNCERTAIN = "before", "rebuilt", "uncertain"
"""Values of a rebuilt store."""
_META, _FILES, _OUTBOX, _RING, _STATE, _SETS = b"meta", b"files", b"outbox", b"ring", b"state", b"sets"
TABLES = (_META, _FILES, _OUTBOX, _RING, _STATE, _SETS)


@dataclass(frozen=True, slots=True)
class Account:
    """The outbox in figures. ``made`` counts alerts ever committed; sizes are bytes of encoded alerts."""

    log_id: str
    next_seq: int = 1
    made: int = 0
    receipted: int = 0
    bytes: int = 0
    ring_bytes: int = 0
    commits: int = 0
    lost: int = 0
    """Alerts made that were in an outbox before this store, as far as is known, and were not made again since."""
    repeats: int = 0
    """Alerts that had their receipt before this store and are expected to be made again."""
    entries: int = 0
    """Alerts that the outbox's table holds: counted when the account is asked for, and not kept with it."""

    @property
    def depth(self) -> int:
        """Alerts without a receipt, by the counts: as many as ``entries``, or the account is broken."""
        return self.made - self.receipted - self.lost


class Saved(NamedTuple):
    """What a starting agent goes on from."""

    cursor: Cursor | None
    counters: dict[str, Any] | None
    positions: list[FilePosition]


class OfSet(NamedTuple):
    """What a commit holds of a rule set in strict isolation beside its alerts."""

    name: str
    state: bytes
    begins: bool
    whole: bool
    quarantined: Any = None
    """The rules in quarantine; None: as before."""


class StoredAlert(NamedTuple):
    """An encoded alert and whether the region has receipted it."""

    seq: int
    data: bytes
    receipted: bool


def own(folder: Path) -> int:
    """The lock of the one writer of the store in ``folder``. Raises BlockingIOError when another process has it."""
    make_folders(folder, 0o700)
    return locked(folder, "another agent runs with this data_dir: stop it, or give this one its own")


class Store:
    """See the module's text. Methods raise OSError when the disk or the map is full or cannot be read, and
    ValueError, naming table and key, when a value fails its checksum."""

    def __init__(self, env: Environment, folder: Path, owner: int | None) -> None:
        self.env, self._folder, self._owner = env, folder, owner
        self._state = Deltas(env, _STATE)
        self._of_sets: dict[str, Deltas] = {}
        self.outbox_bytes = 0
        """Of the alerts without a receipt, as of the last commit; 0 while readonly."""
        self._trimmed = 0
        """Positions that the last trimming has left."""
        self._absent: Absent | None = None
        """Of the next trimming."""
        self.sink_bytes = RING_BYTES
        """Bytes of receipted alerts that are kept at most while a sink has not got them."""
        self.places = Places()

    @classmethod
    def open(cls, folder: Path, *, readonly: bool = False, map_bytes: int = 1 << 30, owner: int | None = None) -> Store:
        """The store in ``folder``, made when it is not there. ``owner``: what ``own`` gave; the store's from here on.

        Raises FileNotFoundError for a readonly store that is not there, BlockingIOError when another agent has it
        open, OSError or ValueError when it cannot be used.
        """
        if readonly and not (folder / "data.mdb").exists():
            raise FileNotFoundError(errno.ENOENT, "no store here: has the agent run with this data_dir?", str(folder))
        with ExitStack() as undo:
            if not readonly:
                owner = own(folder) if owner is None else owner
                undo.callback(os.close, owner)
                if not (folder / "data.mdb").exists():
                    cls._create(folder, map_bytes)
                shutil.rmtree(folder / "new", ignore_errors=True)
            env = Environment(folder, TABLES, map_bytes, readonly=readonly)
            undo.callback(env.close)
            store = cls(env, folder, owner)
            if not readonly:
                store.places = store._saved_places()
                store.outbox_bytes = store.account().bytes
            undo.pop_all()
        return store

    @classmethod
    def _create(cls, folder: Path, map_bytes: int) -> None:
        """Make an empty store under another name, so that a kill or a full disk leaves all of it or nothing."""
        new = folder / "new"
        shutil.rmtree(new, ignore_errors=True)
        make_folders(new, 0o700)
        env = Environment(new, TABLES, map_bytes)
        try:
            with env.write() as txn:
                cls._put_account(txn, Account(secrets.token_hex(16)))
        finally:
            env.close()
        (new / "data.mdb").rename(folder / "data.mdb")
        sync_path(folder)

    def verify(self) -> None:
        """Looks at every value, and at every page by a copy into nothing. Raises ValueError, or what LMDB raises; a
        damaged store may as well kill the process, or keep it for ever."""
        with self.env.read() as txn:
            for name in TABLES:
                entries, count = txn.count(name), 0
                for key, value in txn.values(name):
                    txn.content(name, key, value)
                    count += 1
                if count != entries:
                    raise ValueError(f"{self._folder}: {name.decode()} has {count} entries, not {entries}")
        self.account()
        self.env.copy_to_nowhere()

    @property
    def rebuilt(self) -> dict[str, Any] | None:
        """When, why and from where this store was made again (``rebuild.py``); None: it never was."""
        how: dict[str, Any] | None = self.get(_REBUILT)
        return how

    @property
    def rebuilt_before(self) -> tuple[str, int]:
        """Of a rebuilt store: log_id, and an offset between what the raw log held then and what came after it."""
        log_id, offset = self.get(_BEFORE) or ("", 0)
        return log_id, offset

    @property
    def uncertain(self) -> bool:
        """Whether the store was made again and the raw log was not opened since, so that how far it was used is not
        known for certain."""
        return self.get(_UNCERTAIN) is not None

    def settle(self) -> None:
        """The raw log is opened and continues above all that may have been used of it."""
        with suppress(OSError):  # it leaves out some more at the next start
            self.put(_UNCERTAIN, None)

    def renumber(self) -> None:
        """The store is a copy of another's: number alerts from here on by a numbering of its own, and count it."""
        with self.env.write() as txn:
            self._put_account(txn, replace(self._account(txn), log_id=secrets.token_hex(16)))
            saved = txn.get(_META, b"counters")
            counters = {"inputs": {}, "totals": {}} if saved is None else msgpack.unpackb(saved)
            totals = counters["totals"]
            totals["copies_noticed"] = totals.get("copies_noticed", 0) + 1
            txn.put(_META, b"counters", msgpack.packb(counters))

    def restart(self, noted: Checkpoint, repeats: int, how: Mapping[str, Any], before: tuple[str, int] | None) -> None:
        """Make a new store go on where a lost one is known to have been, all at once. Of the alerts ``made`` those that
        were not ``receipted`` are lost until they are made again. ``how``, ``before``: see ``rebuilt``,
        ``rebuilt_before``."""
        counters = noted.counters or {"inputs": {}, "totals": {}}
        counters = {**counters, "totals": {**counters["totals"], "alerts_made": noted.made}}
        receipted = noted.receipted or 0
        with self.env.write() as txn:
            txn.put(_META, b"counters", msgpack.packb(counters))
            if noted.cursor is not None:
                txn.put(_META, b"cursor", msgpack.packb(tuple(noted.cursor)))
            for position in noted.positions:
                self._put_position(txn, position, 0)
            account = replace(self._account(txn), next_seq=noted.next_seq, made=noted.made, receipted=receipted)
            self._put_account(txn, replace(account, lost=noted.made - receipted, repeats=repeats))
            for name, value in ((_BEFORE, before), (_UNCERTAIN, True), (_REBUILT, how)):
                txn.put(_META, b"value:" + name.encode(), msgpack.packb(value))

    def load(self) -> Saved:
        with self.env.read() as txn:
            cursor = txn.get(_META, b"cursor")
            counters = txn.get(_META, b"counters")
            positions = [position for _, _, position in sorted(self._positions(txn))]
        return Saved(
            Cursor(*msgpack.unpackb(cursor)) if cursor is not None else None,
            msgpack.unpackb(counters) if counters is not None else None,
            positions,
        )

    def commit(
        self,
        cursor: Cursor,
        counters: Mapping[str, Any],
        positions: Iterable[FilePosition],
        alerts: Sequence[tuple[int, bytes]],
        state: bytes = b"",
        whole: bool = False,
        again: tuple[int, int] = (0, 0),
        sets: Sequence[OfSet] = (),
        rows: Callable[[Transaction], None] | None = None,
    ) -> None:
        """One batch: evaluated up to ``cursor``, with the ``positions`` that changed and the ``(seq, alert)`` it made;
        ``state``: what changed of the state; ``whole``: since ``Deltas.begins`` all of it is written, so what is older
        goes; ``again``: how many of the alerts are ``repeats``, and how many were ``lost``; ``sets``: of rule sets in
        strict isolation; ``rows`` writes those for sinks.

        All of it is on disk when this returns, and none of it when it raises. Seqs must ascend from ``next_seq`` on
        (ValueError).
        """
        for ruleset in sets:
            if ruleset.begins:
                self.of_set(ruleset.name).begins()
        with self.env.write() as txn:
            account = self._account(txn)
            next_seq, size, waiting = account.next_seq, 0, account.bytes
            for seq, data in alerts:
                if seq < next_seq:
                    raise ValueError(f"{self._folder}: alert seq {seq} is below {next_seq}, the next free one")
                txn.put(_OUTBOX, _seq_key(seq), data)
                next_seq, size = seq + 1, size + len(data)
            txn.put(_META, b"cursor", msgpack.packb(tuple(cursor)))
            txn.put(_META, b"counters", msgpack.packb(dict(counters)))
            for position in positions:
                self._put_position(txn, position, account.commits)
            self._trim_files(txn)
            if rows is not None:
                rows(txn)
            self._state.write(txn, state, whole=whole)
            for ruleset in sets:
                self.of_set(ruleset.name).write(txn, ruleset.state, whole=ruleset.whole)
                if ruleset.quarantined is not None:
                    txn.put(
                        _META, b"value:" + quarantined_of(ruleset.name).encode(), msgpack.packb(ruleset.quarantined)
                    )
            self._put_account(
                txn,
                replace(
                    account,
                    next_seq=next_seq,
                    made=account.made + len(alerts) - again[1],
                    repeats=account.repeats - again[0],
                    lost=account.lost - again[1],
                    bytes=waiting + size,
                    commits=account.commits + 1,
                ),
            )
        self.outbox_bytes = waiting + size
        self._state.written(state, whole=whole)
        for ruleset in sets:
            self.of_set(ruleset.name).written(ruleset.state, whole=ruleset.whole)

    @property
    def state(self) -> Deltas:
        """That of what is evaluated as one plan."""
        return self._state

    def of_set(self, name: str) -> Deltas:
        """The state of a rule set in strict isolation."""
        if name not in self._of_sets:
            self._of_sets[name] = Deltas(self.env, _SETS, blake2b(name.encode(), digest_size=16).digest())
        return self._of_sets[name]

    def forget_state(self, name: str = "") -> None:
        """The state starts empty: of a rule set in strict isolation, or, without a name, of all others."""
        with self.env.write() as txn:
            (self.of_set(name) if name else self._state).drop(txn)

    def forget_set(self, name: str) -> None:
        """Nothing of a rule set in strict isolation is kept."""
        with self.env.write() as txn:
            self.of_set(name).drop(txn)
            txn.delete(_META, b"value:" + quarantined_of(name).encode())

    def pending(
        self, after_seq: int = 0, limit: int = 1000, size: int = 1 << 62
    ) -> tuple[list[tuple[int, bytes]], list[int]]:
        """The first ``limit`` alerts above ``after_seq`` without a receipt, up to the one by which they have ``size``
        bytes; then the seqs of damaged ones there."""
        whole: list[tuple[int, bytes]] = []
        damaged: list[int] = []
        with self.env.read() as txn:
            for key, value in islice(txn.values(_OUTBOX, _seq_key(after_seq + 1)), limit):
                try:
                    whole.append((_seq(key), txn.content(_OUTBOX, key, value)))
                except ValueError:
                    damaged.append(_seq(key))
                size -= len(value)
                if size <= 0:
                    break
        return whole, damaged

    def receipt(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Moves the alerts of ``ranges`` (first and last seq) from the outbox to the ring; returns how many."""
        trimmed: list[int] = []
        with self.env.write() as txn:
            account = self._account(txn)
            moved = size = 0
            for first, last in ranges:
                if last >= max(first, 0):
                    upto = _seq_key(min(last, MAX_SEQ))
                    count, taken = txn.take(_OUTBOX, _seq_key(max(first, 0)), upto, _RING)
                    moved, size = moved + count, size + taken
            if moved:
                account = replace(
                    account,
                    receipted=account.receipted + moved,
                    bytes=account.bytes - size,
                    ring_bytes=account.ring_bytes + size,
                )
                account, trimmed = self._trim_ring(txn, account, moved + TRIMMED)
                self._put_account(txn, account)
        self.outbox_bytes = account.bytes
        self.places.gone(trimmed)
        return moved

    def open_sinks(self, names: Sequence[str]) -> Mapping[str, Place]:
        """The places of these sinks, and of no others from here on: one that is new begins behind the newest alert."""
        with self.env.write() as txn:
            newest = self._account(txn).next_seq - 1
            places = {name: self.places.get(name) or Place(newest) for name in names}
            self._put_places(txn, places)
        self.places = Places(places)
        return places

    def keep_sinks(self) -> None:
        """The places as they are now are on disk when this returns; what no sink needs any more leaves the ring."""
        with self.env.write() as txn:
            self._put_places(txn, self.places)
            before = self._account(txn)
            account, trimmed = self._trim_ring(txn, before, TRIMMED)
            if account != before:
                self._put_account(txn, account)
        self.places.gone(trimmed)

    def account(self) -> Account:
        with self.env.read() as txn:
            return replace(self._account(txn), entries=txn.count(_OUTBOX))

    def tail(self, n: int) -> list[StoredAlert]:
        """The newest ``n`` alerts of outbox and ring, ascending by seq; damaged ones are left out."""
        with self.env.read() as txn:
            alerts = [alert for table in (_OUTBOX, _RING) for alert in _stored(txn, table, txn.newest(table, n))]
        return sorted(alerts)[-n:] if n else []

    def kept(self, after_seq: int, limit: int) -> tuple[list[tuple[int, bytes]], list[int]]:
        """The first ``limit`` alerts of outbox and ring above ``after_seq``, ascending; then the seqs of damaged ones
        there, of which none is above the last whole one unless there are no more."""
        above: list[tuple[int, bytes, bytes]] = []
        with self.env.read() as txn:
            for table in (_OUTBOX, _RING):
                entries = islice(txn.values(table, _seq_key(after_seq + 1)), limit)
                above += [(_seq(key), table, value) for key, value in entries]
            whole: list[tuple[int, bytes]] = []
            damaged: list[int] = []
            for seq, table, value in sorted(above)[:limit]:
                try:
                    whole.append((seq, txn.content(table, _seq_key(seq), value)))
                except ValueError:
                    damaged.append(seq)
        return whole, damaged

    def since(self, after_seq: int, limit: int = 1000) -> list[StoredAlert]:
        """The first ``limit`` alerts of outbox and ring above ``after_seq``, ascending; damaged ones are left out."""
        alerts: list[StoredAlert] = []
        with self.env.read() as txn:
            for table in (_OUTBOX, _RING):
                alerts += _stored(txn, table, islice(txn.values(table, _seq_key(after_seq + 1)), limit))
        return sorted(alerts)[:limit]

    def get(self, name: str) -> Any:
        """The value ``put`` under ``name``, or None."""
        with self.env.read() as txn:
            data = txn.get(_META, b"value:" + name.encode())
        return None if data is None else msgpack.unpackb(data)

    def put(self, name: str, value: Any) -> None:
        """Keeps a small value that msgpack can carry; None forgets it. A write transaction of its own."""
        key = b"value:" + name.encode()
        with self.env.write() as txn:
            if value is None:
                txn.delete(_META, key)
            else:
                txn.put(_META, key, msgpack.packb(value))

    def close(self) -> None:
        self.env.close()
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _account(self, txn: Transaction) -> Account:
        data = txn.get(_META, b"outbox")
        if data is None:
            raise ValueError(f"{self._folder}: meta b'outbox' is missing: this is not an agent's store")
        return Account(**msgpack.unpackb(data))

    @staticmethod
    def _put_account(txn: Transaction, account: Account) -> None:
        figures = {name: getattr(account, name) for name in Account.__slots__ if name != "entries"}
        txn.put(_META, b"outbox", msgpack.packb(figures))

    def _positions(self, txn: Transaction) -> Iterator[tuple[int, bytes, FilePosition]]:
        """Commit number, key and position of every file."""
        for key, value in txn.values(_FILES):
            path, inode, fingerprint, position, commit = msgpack.unpackb(txn.content(_FILES, key, value))
            yield commit, key, FilePosition(os.fsdecode(path), inode, fingerprint, position)

    def _put_position(self, txn: Transaction, position: FilePosition, commit: int) -> None:
        path = os.fsencode(position.path)
        record = (path, position.inode, position.fingerprint, position.position, commit)
        txn.put(_FILES, _file_key(path, position.inode), msgpack.packb(record))

    def _trim_files(self, txn: Transaction) -> None:
        beyond = txn.count(_FILES) - max(MAX_FILES, self._trimmed + MAX_FILES // 10)  # not all of them at each commit
        if beyond <= 0:
            return
        if self._absent is None:
            try:
                self._absent = Absent(position for _, _, position in self._positions(txn) if position.of_file)
            except RuntimeError:  # the host has no thread to spare: at the next commit
                return
        absent = self._absent
        if not absent.over and beyond <= MAX_FILES // 10:
            return
        positions = sorted(self._positions(txn))
        for of_file in (True, False):
            part = [entry for entry in positions if entry[2].of_file is of_file]
            excess = len(part) - MAX_FILES
            if excess > 0:
                if of_file:
                    part.sort(key=lambda entry: entry[2] not in absent)
                for _, key, _ in part[: excess + MAX_FILES // 10]:
                    txn.delete(_FILES, key)
        self._trimmed = txn.count(_FILES)
        if absent.over:
            self._absent = None

    def _trim_ring(self, txn: Transaction, account: Account, most: int) -> tuple[Account, list[int]]:
        """Takes out the oldest beyond the bounds, at most so many; the account then, and the seqs that some sink has
        not got."""
        entries, size, missed = txn.count(_RING), account.ring_bytes, list[int]()
        floor = self.places.floor()
        while entries and most and (entries > RING_ALERTS or size > RING_BYTES):
            if floor is not None and (first := txn.first(_RING)) is not None and (seq := _seq(first)) > floor:
                if size <= self.sink_bytes:
                    break
                missed.append(seq)
            entries, size, most = entries - 1, size - txn.drop_first(_RING), most - 1
        return replace(account, ring_bytes=size), missed

    def _saved_places(self) -> Places:
        with self.env.read() as txn:
            data = txn.get(_META, b"sinks")
        return Places({name: Place(*row) for name, row in (msgpack.unpackb(data) if data else {}).items()})

    def _put_places(self, txn: Transaction, places: Mapping[str, Place]) -> None:
        txn.put(_META, b"sinks", msgpack.packb({name: place.row() for name, place in places.items()}))


def quarantined_of(name: str) -> str:
    """The name of the value that lists the rules of such a set that are in quarantine."""
    return f"quarantined:{name}"


def _stored(txn: Transaction, table: bytes, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[StoredAlert]:
    for key, value in entries:
        with suppress(ValueError):
            yield StoredAlert(_seq(key), txn.content(table, key, value), table == _RING)


def _seq(key: bytes) -> int:
    return int.from_bytes(key, "big")


def _seq_key(seq: int) -> bytes:
    return seq.to_bytes(8, "big")


def _file_key(path: bytes, inode: int) -> bytes:
    return blake2b(path + b"\0%d" % inode, digest_size=16).digest()
