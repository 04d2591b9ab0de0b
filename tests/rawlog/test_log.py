"""The raw log's writer: append, sync, rotation, failures."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rawlog.samples import NOW, chunks_of, line_chunks, lines, message_chunks, messages, noise, open_log
from tests.readers import reader_of
from tests.settings import SegmentedLog
from tests.system.test_durable import synced
from tests.waits import pauses
from vedette.model.counters import Counters
from vedette.model.event import Chunk, FilePosition
from vedette.rawlog import read
from vedette.rawlog.segment import SegmentFile, segments

SMALL = SegmentedLog(max_bytes=80_000, segment_bytes=10_000, max_age=86400)


@settings(max_examples=25)
@given(st.lists(line_chunks() | message_chunks(), max_size=8), st.integers(0, 8))
def test_what_is_appended_is_read(tmp_path_factory: pytest.TempPathFactory, chunks: list[Chunk], reopen: int) -> None:
    """Any chunks come back in order at rising offsets, with a restart anywhere between."""
    folder = tmp_path_factory.mktemp("raw")
    log, counters, offset, expected = open_log(folder), Counters(), 0, []
    for i, chunk in enumerate(chunks):
        if i == reopen:
            log.close()
            log = open_log(folder)
        frame = log.append(chunk)
        assert (frame.offset, frame.chunk) == (offset, chunk)
        expected.append((offset, chunk))
        offset += len(chunk.data)
    assert log.end == offset
    assert chunks_of(log) == expected
    for start, chunk in expected:
        for inside in (start, start + len(chunk.data) - 1):
            assert chunks_of(log, inside) == [pair for pair in expected if pair[0] >= start]
    assert chunks_of(log, offset) == []
    log.close()
    assert not any(counters.lost.values())


def test_append_counts_stored(tmp_path: Path) -> None:
    """Events are counted as stored under their input."""
    counters = Counters()
    log = open_log(tmp_path, counters=counters)
    log.append(lines(b"a", b"b"))
    log.append(messages(b"c", b"-", b"d"))
    assert counters.stored == {"auth": 2, "plant": 3}
    assert log.backlog(0) == {"auth": 2, "plant": 3}
    assert log.backlog(4) == {"plant": 3}
    assert log.backlog(log.end) == {}
    log.close()


def test_every_event_has_an_offset(tmp_path: Path) -> None:
    """An event without bytes between explicit ends is refused: it would share its offset with the next one."""
    counters = Counters()
    log = open_log(tmp_path, counters=counters)
    with pytest.raises(ValueError, match="must not be empty"):
        log.append(messages(b"a", b"", b"b"))
    assert log.append(Chunk("auth", "text", NOW, b"")).offset == 0
    assert log.append(lines(b"", b"x")).offset == 0
    assert counters.stored == {"auth": 2}
    log.close()


def test_refused_chunk_leaves_the_log_whole(tmp_path: Path) -> None:
    """A chunk over 16 MiB raises ValueError and nothing of it is stored."""
    counters = Counters()
    log = open_log(tmp_path, counters=counters)
    log.append(lines(b"before"))
    with pytest.raises(ValueError, match="16777216"):
        log.append(Chunk("auth", "text", NOW, bytes(16 << 20) + b"\n"))
    log.append(lines(b"after"))
    assert [chunk.data for _, chunk in chunks_of(log)] == [b"before\n", b"after\n"]
    assert counters.stored == {"auth": 2}
    log.close()


def test_durable_follows_sync(tmp_path: Path) -> None:
    """``durable`` is what the last sync covered, also across sealed segments."""
    log = open_log(tmp_path, SMALL)
    assert (log.start, log.durable, log.end) == (0, 0, 0)
    log.append(lines(b"one"))
    assert log.durable == 0
    assert log.sync() == log.durable == log.end == 4
    for i in range(20):
        log.append(lines(noise(i)))
    assert len(segments(tmp_path)) > 2
    assert log.durable == 4
    assert log.sync() == log.durable == log.end
    assert log.sync() == log.end
    log.close()
    log.close()


def test_append_and_sync_from_two_threads(tmp_path: Path) -> None:
    """The writer thread syncs and retains while the loop appends and rotates; nothing is missing."""
    log = open_log(tmp_path, SegmentedLog(max_bytes=8 << 20, segment_bytes=20_000))
    stop, seen, failures = threading.Event(), [0], []

    def sync() -> None:
        try:
            while not stop.is_set():
                durable = log.sync()
                assert seen[-1] <= durable <= log.end
                seen.append(durable)
                log.retain(durable // 2, NOW)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    data = [lines(noise(i)) for i in range(50)]
    for i in range(2000):
        log.append(data[i % 50])
    stop.set()
    thread.join()
    assert not failures
    assert log.sync() == log.end
    assert sum(len(frame.chunk) for frame in log.frames(0)) == 2000
    log.close()


def test_rotation_and_size(tmp_path: Path) -> None:
    """Segments are sealed at segment_bytes, sizes are those on disk, and a restart goes on in the last one."""
    log = open_log(tmp_path, SMALL)
    for i in range(30):
        log.append(lines(noise(i)))
    files = segments(tmp_path)
    assert 4 <= len(files) <= 7
    assert log.size() == sum(file.path.stat().st_size for file in files)
    assert all(file.path.stat().st_size < 13_000 for file in files)
    expected = chunks_of(log)
    log.close()
    log = open_log(tmp_path, SMALL)
    assert log.recovery == (0, log.end, False, "", 0)
    assert log.size() == sum(file.path.stat().st_size for file in files)
    assert log.durable == log.end
    assert chunks_of(log) == expected
    for start in range(0, log.end, 7919):
        assert chunks_of(log, start) == [pair for pair in expected if pair[0] + len(pair[1].data) > start]
    log.close()


def test_second_writer_is_refused(tmp_path: Path) -> None:
    """A folder has one writer, whatever is deleted beside its segments; the message says what to do, and the first one
    is not disturbed."""
    log = open_log(tmp_path)
    for path in {*tmp_path.rglob("*")} - {*tmp_path.glob("*.seg")}:
        if path.is_file():
            path.unlink()
    with pytest.raises(OSError, match="another vedette process"):
        open_log(tmp_path)
    log.append(lines(b"still here"))
    log.close()
    with pytest.raises(OSError, match="it is closed"):
        log.append(lines(b"late"))
    open_log(tmp_path).close()


def test_who_reads_the_folder_does_not_hold_it(tmp_path: Path) -> None:
    """Its group may read it, and so open it: the log is opened all the same, the first time and later."""
    folder = tmp_path / "raw"
    folder.mkdir(mode=0o750)
    for _ in range(2):
        with reader_of(folder):
            log = open_log(folder)
        log.close()


def test_unwritable_folder(tmp_path: Path) -> None:
    """A folder that cannot be made raises OSError that names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        open_log(tmp_path / "file" / "raw")


@pytest.mark.alone
def test_full_disk_takes_the_write_back(tmp_path: Path) -> None:
    """A write that fails midway raises, stores nothing, and the log goes on once there is room."""
    counters = Counters()
    log = open_log(tmp_path, counters=counters)
    log.append(lines(noise(1, 20_000)))
    size, end = log.size(), log.end
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5000, hard))
        with pytest.raises(OSError, match="cannot be written") as caught:
            log.append(lines(noise(2, 20_000)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert caught.value.errno == errno.EFBIG
    assert (log.end, log.size(), counters.stored["auth"]) == (end, size, 1)
    assert segments(tmp_path)[0].path.stat().st_size == size
    log.append(lines(b"room again"))
    assert [chunk.data[-11:] for _, chunk in chunks_of(log)][1] == b"room again\n"
    log.close()


WRITER = """
import sys, time
from pathlib import Path
from tests.rawlog.samples import lines, noise, open_log
from tests.settings import SegmentedLog
log = open_log(Path(sys.argv[1]), SegmentedLog(segment_bytes=200_000))
print(log.log_id, flush=True)
for i in range(100_000):
    log.append(lines(b"%d" % i, noise(i % 7, 300)))
    if i % 100 == 0:
        log.sync()
"""


def test_reader_beside_a_writer_and_kill_9(tmp_path: Path) -> None:
    """A reader beside the writing process sees whole frames, ever more, no damage; kill -9 loses nothing it saw."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    gaps: list[read.Gap] = []

    def numbers() -> list[int]:
        return [int(frame.chunk.data.split(b"\n", 1)[0]) for frame in read.frames(tmp_path, on_gap=gaps.append)]

    try:
        assert writer.stdout is not None
        log_id = writer.stdout.readline().strip()
        seen: list[int] = []
        for pause in pauses():
            now = numbers()
            assert now == list(range(len(now)))
            assert len(now) >= len(seen)
            assert list(read.frames(tmp_path, 10**12)) == []
            seen = now
            if len(seen) > 3000:
                break
            time.sleep(pause)
        assert len(seen) > 3000
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()
    assert not gaps
    log = open_log(tmp_path)
    assert log.log_id == log_id
    kept = [int(chunk.data.split(b"\n", 1)[0]) for _, chunk in chunks_of(log)]
    assert kept == list(range(len(kept)))
    assert len(kept) >= len(seen)
    log.close()


def test_file_position_comes_back(tmp_path: Path) -> None:
    """The position after a file's chunk is in the frame's header walk, also for a name that is no UTF-8."""
    log = open_log(tmp_path)
    path = os.fsdecode(b"/var/log/caf\xe9.log")
    log.append(lines(b"x", file=FilePosition(path, 12, "ab" * 16, 2)))
    log.append(replace(lines(b"y"), file=FilePosition(path, 12, "ab" * 16, 4)))
    assert [h.file.position for h in log.headers(0) if h.file and h.file.path == path] == [2, 4]
    log.close()


def test_a_log_is_on_disk_with_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new log's first segment is synced, then its folder and the one above, whoever made them; a segment that is
    begun later is in its folder for good before what lies in it counts as durable."""
    folder = tmp_path / "raw"
    folder.mkdir()
    paths = synced(monkeypatch)
    log = open_log(folder, SMALL)
    assert paths[:3] == [segments(folder)[0].path, folder, tmp_path]
    for i in range(6):
        log.append(lines(noise(i)))
    parts = [segment.path for segment in segments(folder)]
    assert len(parts) == 2
    paths.clear()
    log.sync()
    assert paths == [*parts, folder]
    log.close()


def test_the_newest_receipt(tmp_path: Path) -> None:
    """No frame was received after it, in whatever order they come; the next segment is begun no earlier."""
    log = open_log(tmp_path, SMALL)
    for at in (NOW + 10, NOW - 5):
        log.append(lines(noise(1, 6000), at=at))
        assert log.newest == NOW + 10
    log.append(lines(b"of the next segment"))
    with SegmentFile(segments(tmp_path)[1]) as file:
        assert file.header().created_at == NOW + 10
    log.close()
