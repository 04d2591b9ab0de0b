"""Compaction of sealed segments: what a reader gets stays the same, in a fifth of the bytes."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import traffic
from tests.rawlog.samples import NOW, chunks_of, crash, line_chunks, lines, message_chunks, messages, open_log
from tests.rawlog.test_recover import flip
from tests.settings import SegmentedLog
from vedette.model.counters import Counters
from vedette.model.event import Chunk, Cursor, FilePosition, RawRef
from vedette.rawlog import read
from vedette.rawlog.compaction import TEMPORARY, compact
from vedette.rawlog.log import RawLog
from vedette.rawlog.segment import SegmentFile, segments

SMALL = SegmentedLog(max_bytes=64 << 20, segment_bytes=100_000)


def compacted(log: RawLog) -> int:
    """Compact all that can be; returns the bytes freed."""
    freed = idle = 0
    while idle < 3:
        step = log.maintain(0, NOW)
        freed, idle = freed + step, 0 if step or log._segments.compaction is not None else idle + 1
    return freed


def single(count: int, seed: int = 1) -> list[Chunk]:
    """Lines of syslog, a chunk each, from three inputs; some with a file's position, some MQTT."""
    found: list[Chunk] = []
    for i, line in enumerate(b"".join(traffic.blocks(seed, count)).splitlines()[:count]):
        at = NOW + i * 100_003
        if i % 10 == 9:
            found.append(messages(line, at=at, first_id=1 + i % 60_000))
        elif i % 10 == 8:
            found.append(lines(line, input="file", at=at, file=FilePosition("/var/log/a", 7, "ab" * 16, i * 100)))
        else:
            found.append(replace(lines(line, at=at), origins=(f"10.0.0.{i % 5}",)))
    return found


def test_four_to_one(tmp_path: Path) -> None:
    """A log of one-event frames takes at least as many bytes as its events; sealed and compacted, at most a quarter."""
    log = open_log(tmp_path, replace(SMALL, segment_bytes=1 << 20))
    events = [chunk for chunk in single(12_000) if chunk.input == "auth"]
    for chunk in events:
        log.append(chunk)
    log.sync()
    raw, before = segments(tmp_path)[1].base, segments(tmp_path)[0].path.stat().st_size
    assert raw < 1.3 * before
    assert compacted(log) > 0
    after = segments(tmp_path)[0].path.stat().st_size
    assert raw > 4 * after
    assert log.size() == sum(segment.path.stat().st_size for segment in segments(tmp_path))
    log.close()


def test_readers_see_the_same(tmp_path: Path) -> None:
    """Frames, headers, search, single events by reference, recent messages and the reopened log are as before."""
    log = open_log(tmp_path, SMALL)
    every = [(log.append(chunk).offset, chunk) for chunk in single(3000)]
    log.sync()

    def all_ways() -> list[object]:
        return [
            list(log.headers(0)),
            list(read.search(tmp_path, pattern=re.compile(b"sshd"))),
            read.recent_messages(tmp_path, "plant"),
            [read.event_at(tmp_path, RawRef(log.log_id, offset, len(chunk.data) - 1)) for offset, chunk in every[::97]],
            log.backlog(every[1234][0]),
            chunks_of(log, every[777][0] + 3)[:3],
        ]

    before = all_ways()
    assert compacted(log) > 0
    assert all_ways() == before
    assert chunks_of(log) == every
    end = log.end
    log.close()
    log = open_log(tmp_path, SMALL)
    assert (log.end, log.recovery.cut_bytes, log.recovery.new_log) == (end, 0, False)
    assert chunks_of(log) == every
    assert not list(tmp_path.glob(f"*{TEMPORARY}"))
    log.close()


@settings(max_examples=25)
@given(st.lists(line_chunks() | message_chunks(), min_size=1, max_size=12))
def test_any_chunks(tmp_path_factory: pytest.TempPathFactory, chunks: list[Chunk]) -> None:
    """Whatever chunks a segment holds come back from its compacted frames as they were."""
    folder = tmp_path_factory.mktemp("raw")
    log = open_log(folder)
    every = [(log.append(chunk).offset, chunk) for chunk in chunks]
    log.close()
    for _ in compact(segments(folder)[0]):
        pass
    assert [(frame.offset, frame.chunk) for frame in read.frames(folder)] == every


def test_not_what_is_large_unsynced_or_young(tmp_path: Path) -> None:
    """Segments that compress well already, that are written to, or that are not on disk yet are left alone."""
    log = open_log(tmp_path, SMALL)
    for i in range(40):
        log.append(lines(*(b"the same line again and again %d" % (i % 7) for _ in range(3000))))
    log.sync()
    assert compacted(log) == 0
    for chunk in single(2000):
        log.append(chunk)
    names = {segment.path.name: segment.path.stat().st_ino for segment in segments(tmp_path)}
    compacted(log)
    durable = log.durable
    for segment, follower in zip(segments(tmp_path), segments(tmp_path)[1:], strict=False):
        if follower.base > durable:
            assert segment.path.stat().st_ino == names[segment.path.name]
    log.close()


class Claims:
    """A keeper that lets nothing go, and needs the bytes of some segments as they are."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def lets_go(self, segment: str) -> bool:
        return False

    def claims(self, segment: str) -> bool:
        return segment in self.names


def test_what_is_claimed_stays_as_it_is(tmp_path: Path) -> None:
    """A segment that is being archived is not compacted; another one is, though it must not be deleted."""
    keeper = Claims()
    log = RawLog.open(tmp_path, SMALL, Counters(), clock=lambda: NOW, keeper=keeper)
    for chunk in single(3000):
        log.append(chunk)
    log.sync()
    first, second = segments(tmp_path)[:2]
    keeper.names.add(first.path.name)
    inodes = first.path.stat().st_ino, second.path.stat().st_ino
    assert compacted(log) > 0
    assert first.path.stat().st_ino == inodes[0]
    assert second.path.stat().st_ino != inodes[1]
    log.close()


def test_damage_is_left_as_it_is(tmp_path: Path) -> None:
    """A segment with a damaged frame is not compacted; the rest are."""
    log = open_log(tmp_path, SMALL)
    for chunk in single(3000):
        log.append(chunk)
    log.sync()
    first, second = segments(tmp_path)[:2]
    flip(first.path, 5000)
    inodes = first.path.stat().st_ino, second.path.stat().st_ino
    assert compacted(log) > 0
    assert first.path.stat().st_ino == inodes[0]
    assert second.path.stat().st_ino != inodes[1]
    log.close()


def test_stopped_anywhere(tmp_path: Path) -> None:
    """Killed at any step, one of the two files is there, whole; what was begun is removed at the next start."""
    log = open_log(tmp_path, SMALL)
    every = [(log.append(chunk).offset, chunk) for chunk in single(2500)]
    log.sync()
    rng = Random(5)
    for _ in range(6):
        for _ in range(rng.randrange(4)):
            log.maintain(0, NOW)
        log._segments.compaction = None  # what a kill leaves: the file, and nobody who knows of it
        crash(log)
        log = open_log(tmp_path, SMALL, committed=Cursor(log.log_id, log.end))
        assert not list(tmp_path.glob(f"*{TEMPORARY}"))
        assert chunks_of(log) == every
    log.close()


def test_a_reader_in_the_middle(tmp_path: Path) -> None:
    """A reader that has begun, here or in another process, goes on over a segment that is compacted under it."""
    log = open_log(tmp_path, SMALL)
    every = [(log.append(chunk).offset, chunk) for chunk in single(3000)]
    log.sync()
    gaps: list[read.Gap] = []
    inside, beside = log.frames(every[1500][0]), read.frames(tmp_path, on_gap=gaps.append)
    found, other = [next(inside).offset], [next(beside).offset]
    assert compacted(log) > 0
    found += [frame.offset for frame in inside]
    other += [frame.offset for frame in beside]
    assert found == [offset for offset, _ in every[1500:]]
    assert other == [offset for offset, _ in every]
    assert not gaps
    log.close()


def test_one_flipped_bit(tmp_path: Path) -> None:
    """A compacted frame whose body or metadata is damaged is lost as a whole, and counted by its events; the rest is
    read."""
    log = open_log(tmp_path, SMALL)
    every = [(log.append(chunk).offset, chunk) for chunk in single(3000)]
    log.sync()
    compacted(log)
    log.close()
    first = segments(tmp_path)[0]
    with SegmentFile(first) as file:
        units = [unit for unit in file.units(file.begin(), 0) if hasattr(unit, "header")]
    assert all(unit.header.compacted for unit in units)
    flip(first.path, units[0].after - 10)
    counters = Counters()
    log = open_log(tmp_path, SMALL, counters, committed=Cursor(first.log_id, every[-1][0]))
    lost = units[0].header.events
    assert chunks_of(log) == every[lost:]
    assert sum(counters.lost.values()) == lost
    log.maintain(0, NOW)
    (kept,) = (tmp_path / "damaged").iterdir()
    assert kept.read_bytes() == first.path.read_bytes()[units[0].position :][: kept.stat().st_size]
    log.close()


def test_on_disk_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compacted file is synced whole before it is renamed, and the folder after that."""
    log = open_log(tmp_path, SMALL)
    for chunk in single(2000):
        log.append(chunk)
    log.sync()
    fsync, synced = os.fsync, list[tuple[int, int]]()

    def seen(descriptor: int) -> None:
        status = os.fstat(descriptor)
        synced.append((status.st_ino, status.st_size))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    assert compacted(log) > 0
    status = segments(tmp_path)[0].path.stat()
    assert synced[0] == (status.st_ino, status.st_size)
    assert synced[1][0] == tmp_path.stat().st_ino
    log.close()


def test_a_hole_stays_one(tmp_path: Path) -> None:
    """Frames before and behind offsets that are missing become two compacted frames: every offset stays."""
    log, every = open_log(tmp_path), []
    for number, chunk in enumerate(single(200)):
        every.append((log.append(chunk).offset, chunk))
        if number == 100:
            log.end += 500  # as where a frame could not be rewritten
            log._events += 1
    log.close()
    assert [*compact(segments(tmp_path)[0])]
    assert [(frame.offset, frame.chunk) for frame in read.frames(tmp_path)] == every


def test_no_place_of_before_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places to begin reading at, noted of a segment as it was, are forgotten when it is compacted; others are not."""
    monkeypatch.setattr("vedette.rawlog.log.MARK_BYTES", 5000)
    counters = Counters()
    log = open_log(tmp_path, SMALL, counters)
    every = [(log.append(chunk).offset, chunk) for chunk in single(3000)]
    log.sync()
    active = [mark for mark in log._segments.marks if mark[2] == segments(tmp_path)[-1].base]
    assert compacted(log) > 0
    assert log._segments.marks == active
    for number in range(0, 3000, 97):
        assert chunks_of(log, every[number][0])[0] == every[number]
    assert not counters.lost
    log.close()


def test_a_full_disk_while_compacting(tmp_path: Path) -> None:
    """A compacted file that cannot be written leaves the old one in place and nothing behind."""
    log = open_log(tmp_path, SMALL)
    for chunk in single(2000):
        log.append(chunk)
    log.sync()
    before = [segment.path.stat().st_ino for segment in segments(tmp_path)]
    temporary = segments(tmp_path)[0].path.with_suffix(TEMPORARY)
    os.symlink("/dev/full", temporary)
    with pytest.raises(OSError, match="No space left"):
        list(compact(segments(tmp_path)[0]))
    assert not os.path.lexists(temporary)
    assert [segment.path.stat().st_ino for segment in segments(tmp_path)] == before
    log.close()
