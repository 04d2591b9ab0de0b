"""After a failed sync: what was not on disk is written again, and nothing acknowledged hangs on the old file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.rawlog.samples import NOW, chunks_of, crash, lines, noise, open_log
from tests.settings import SegmentedLog
from vedette.model.counters import Counters
from vedette.model.event import Cursor
from vedette.rawlog import log as module
from vedette.rawlog import read
from vedette.rawlog.log import RawLog
from vedette.rawlog.segment import segments

SMALL = SegmentedLog(max_bytes=1 << 20, segment_bytes=10_000)


class Disk:
    """fsync as a failing disk does it: ``fails`` so many times; what it was to write is then gone, as after a crash.

    ``gone``: how the kernel forgets: the file's bytes since its last good sync become zeros."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails = 0
        self.forgets = False
        self._good: dict[int, int] = {}
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, fd: int) -> None:
        found = os.fstat(fd)
        if self.fails:
            self.fails -= 1
            if self.forgets:
                path = os.readlink(f"/proc/self/fd/{fd}")
                good = self._good.get(found.st_ino, 0)
                with open(path, "r+b") as file:
                    file.seek(good)
                    file.write(bytes(found.st_size - good))
            raise OSError(errno.EIO, "Input/output error")
        self._fsync(fd)
        self._good[found.st_ino] = found.st_size


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    return Disk(monkeypatch)


def reopened(log: RawLog, counters: Counters | None = None) -> RawLog:
    """After a power cut: what was durable is committed."""
    durable, folder = Cursor(log.log_id, log.durable), log._folder
    crash(log)
    return open_log(folder, SMALL, counters, committed=durable)


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("before", [0, 1, 9])
def test_one_failed_sync(tmp_path: Path, disk: Disk, forgets: bool, before: int) -> None:
    """Frames above ``durable``, over several segments, are whole and durable after a sync that failed, at the offsets
    they had, also where the kernel has forgotten them; the failure is counted and the log goes on."""
    counters = Counters()
    log = open_log(tmp_path, SMALL, counters)
    every = []
    for i in range(before):
        every.append((log.append(lines(noise(i))).offset, lines(noise(i))))
    log.sync()
    for i in range(12):
        every.append((log.append(lines(noise(100 + i))).offset, lines(noise(100 + i))))
    disk.fails, disk.forgets = 1, forgets
    assert log.sync() == log.durable == log.end
    assert counters.totals["sync_failed"] == 1
    assert counters.totals["rewritten_bytes"] > 20_000
    assert chunks_of(log) == every
    every.append((log.append(lines(b"after")).offset, lines(b"after")))
    log.sync()
    assert [(frame.offset, frame.chunk) for frame in read.frames(tmp_path)] == every
    assert log.size() == sum(segment.path.stat().st_size for segment in segments(tmp_path))
    log = reopened(log)
    assert (log.recovery.cut_bytes, log.recovery.new_log) == (0, False)
    assert chunks_of(log) == every
    assert not list(tmp_path.glob("*.new"))
    log.close()


def test_while_it_keeps_failing(tmp_path: Path, disk: Disk) -> None:
    """While nothing can be written anew either, sync raises, ``durable`` stays and appending goes on; then all is
    there. A sync of the old file alone is not tried: it would say that all is well."""
    log = open_log(tmp_path, SMALL)
    every = [(log.append(lines(noise(i))).offset, lines(noise(i))) for i in range(3)]
    disk.fails, disk.forgets = 7, True
    for i in range(3, 6):
        with pytest.raises(OSError, match="cannot be synced"):
            log.sync()
        assert log.durable == 0
        every.append((log.append(lines(noise(i))).offset, lines(noise(i))))
    disk.fails = 0
    assert log.sync() == log.end
    assert chunks_of(log) == every
    log = reopened(log)
    assert chunks_of(log) == every
    log.close()


def test_the_folder_of_what_is_written_anew(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new segment whose folder could not be synced counts as durable only once that could."""
    log = open_log(tmp_path, SMALL)
    log.append(lines(noise(1)))
    failing, fsync = [".seg", str(tmp_path)], os.fsync
    ends: list[str] = []

    def fails(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        ends.append(path)
        if failing and path.endswith(failing[0]):
            del failing[0]
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="cannot be synced"):
        log.sync()
    assert (failing, log.durable) == ([], 0)
    ends.clear()
    assert log.sync() == log.end
    assert ends[-1] == str(tmp_path)
    log.close()


def test_more_than_memory_keeps(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that are no more in memory are read back; those that the kernel has forgotten are a hole, counted."""
    monkeypatch.setattr(module, "UNSYNCED_BYTES", 7000)
    for forgets in (False, True):
        counters = Counters()
        folder = tmp_path / str(forgets)
        log = open_log(folder, SMALL, counters)
        every = [(log.append(lines(noise(i))).offset, lines(noise(i))) for i in range(12)]
        disk.fails, disk.forgets = 1, forgets
        log.sync()
        kept = chunks_of(log)
        assert kept == [one for one in every if one in kept]
        assert len(every) - len(kept) == sum(counters.lost.values())
        assert len(kept) == 12 if not forgets else 3 <= len(kept) < 12
        log.close()


def test_appending_meanwhile(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is appended while the new segment is being written is in it, too, and waits for the next sync."""
    log = open_log(tmp_path, SMALL)
    every = [(log.append(lines(noise(i))).offset, lines(noise(i))) for i in range(3)]
    whole = disk.fsync

    def during(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".new") and len(every) < 9:
            for i in range(3, 9):
                every.append((log.append(lines(noise(i))).offset, lines(noise(i))))
        whole(fd)

    monkeypatch.setattr(os, "fsync", during)
    disk.fails = 1
    assert log.sync() == every[3][0]
    assert log.end > log.durable
    assert chunks_of(log) == every
    assert log.sync() == log.end
    log = reopened(log)
    assert chunks_of(log) == every
    log.close()


def test_the_old_file_cannot_be_cut(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the old segment cannot be cut, readers and recovery take it up to where the new one begins."""
    config = replace(SMALL, segment_bytes=1 << 16)
    log = open_log(tmp_path, config)
    every = [(log.append(lines(noise(i))).offset, lines(noise(i))) for i in range(3)]
    log.sync()
    every += [(log.append(lines(noise(i))).offset, lines(noise(i))) for i in range(3, 6)]

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    disk.fails, disk.forgets = 1, True
    with monkeypatch.context() as patch:
        patch.setattr(os, "truncate", fail)
        log.sync()
    counters = Counters()
    gaps: list[read.Gap] = []
    assert [(f.offset, f.chunk) for f in read.frames(tmp_path, on_gap=gaps.append)] == every
    assert not gaps
    log = reopened(log, counters)
    assert chunks_of(log) == every
    assert not counters.lost
    log.close()


def test_a_write_that_cannot_be_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When half a frame can be neither finished nor removed, the next one begins a new segment: nothing is missing, for
    readers and after a restart."""
    log = open_log(tmp_path, SMALL)
    every = [(log.append(lines(noise(i))).offset, lines(noise(i))) for i in range(2)]
    writev, ftruncate = os.writev, os.ftruncate

    def half(fd: int, parts: Any) -> int:
        os.write(fd, b"".join(parts)[:700])
        raise OSError(errno.EIO, "Input/output error")

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "writev", half)
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(OSError, match="cannot be written"):
        log.append(lines(noise(2)))
    monkeypatch.setattr(os, "writev", writev)
    for i in range(2, 5):
        every.append((log.append(lines(noise(i))).offset, lines(noise(i))))
    monkeypatch.setattr(os, "ftruncate", ftruncate)
    assert len(segments(tmp_path)) == 2
    gaps: list[read.Gap] = []
    assert [(f.offset, f.chunk) for f in read.frames(tmp_path, on_gap=gaps.append)] == every
    assert not gaps
    crash(log)
    log = open_log(tmp_path, SMALL)
    assert (log.recovery.cut_bytes, log.end) == (0, every[-1][0] + 2001)
    assert chunks_of(log) == every
    log.close()


@pytest.mark.parametrize("seed", range(6))
def test_any_order(tmp_path: Path, disk: Disk, seed: int) -> None:
    """Random appends, syncs, failures, retention and restarts: what was durable is always there, whole, once."""
    rng, log = Random(seed), open_log(tmp_path, SMALL)
    every: list[tuple[int, Any]] = []

    def sync() -> None:
        disk.fails, disk.forgets = rng.choice((0, 0, 1, 2)), rng.random() < 0.5
        with suppress(OSError):
            log.sync()
        disk.fails = 0

    def restart() -> None:
        nonlocal log, every
        durable = log.durable
        log = reopened(log)
        assert log.end >= durable
        every = [one for one in every if one[0] < log.end]

    def append() -> None:
        chunk = lines(noise(rng.randrange(1000), rng.randrange(10, 4000)))
        every.append((log.append(chunk).offset, chunk))

    steps: list[Callable[[], object]] = [append, append, append, sync, restart, lambda: log.maintain(0, NOW)]
    for _ in range(120):
        rng.choice(steps)()
        if log._suspect:  # in between, the file may lack what only memory has
            every_durable = [one for one in every if one[0] < log.durable]
            assert chunks_of(log)[: len(every_durable)] == every_durable
        else:
            assert chunks_of(log) == every
    log.close()
