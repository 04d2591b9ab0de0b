"""The raw log after a crash or on a damaged disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rawlog.samples import NOW, chunks_of, crash, lines, messages, noise, open_log
from tests.settings import SegmentedLog
from tests.system.test_durable import synced
from vedette.config.settings import RawLogSettings
from vedette.model.counters import Counters
from vedette.model.event import Chunk, Cursor
from vedette.rawlog import format, read
from vedette.rawlog import segment as segment_module
from vedette.rawlog.log import RawLog
from vedette.rawlog.recover import APART
from vedette.rawlog.segment import Segment, SegmentFile, Unit, segments

SMALL = SegmentedLog(max_bytes=1 << 20, segment_bytes=10_000)


def located(segment: Segment) -> list[Unit]:
    """The frames of a segment."""
    with SegmentFile(segment) as file:
        return [item for item in file.units(format.SEGMENT_HEADER, segment.base) if isinstance(item, Unit)]


def flip(path: Path, position: int) -> None:
    """Changes one byte of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


def fill(folder: Path, chunks: list[Chunk], config: RawLogSettings = SMALL, sync_each: bool = False) -> list[int]:
    """Writes a log as a process that is then killed: nothing is synced unless ``sync_each``. Returns the offsets."""
    log = open_log(folder, config)
    offsets = []
    for chunk in chunks:
        offsets.append(log.append(chunk).offset)
        if sync_each:
            log.sync()
    offsets.append(log.end)
    crash(log)
    return offsets


def test_torn_at_every_byte(tmp_path: Path) -> None:
    """Wherever the last frame is torn, the log ends before it, keeps the cut bytes, and goes on."""
    offsets = fill(tmp_path / "raw", [lines(b"one", b"two"), messages(b"three", b"four"), lines(b"five")])
    whole = segments(tmp_path / "raw")[0]
    frames = located(whole)
    data = whole.path.read_bytes()
    for size in range(frames[1].after, len(data)):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / whole.path.name).write_bytes(data[:size])
        log = open_log(folder, SMALL)
        cut = size - frames[1].after
        assert log.log_id == whole.log_id
        assert (log.recovery.cut_bytes, log.recovery.cut_at) == (cut, offsets[2])
        assert bool(log.recovery.reason) == bool(cut)
        assert log.end == log.durable == offsets[2]
        log.append(lines(b"again"))
        assert [chunk.data for _, chunk in chunks_of(log)] == [b"one\ntwo\n", b"threefour", b"again\n"]
        kept = list((folder / "damaged").iterdir()) if cut else []
        assert [file.read_bytes() for file in kept] == ([data[size - cut : size]] if cut else [])
        log.close()
        shutil.rmtree(folder)


@pytest.mark.parametrize("size", [0, 1, 40, 67])
def test_segment_header_torn_at_rotation(tmp_path: Path, size: int) -> None:
    """A newest segment that has not even its header is cut off; the one before is gone on with."""
    offsets = fill(tmp_path, [lines(noise(i)) for i in range(6)])
    last = segments(tmp_path)[-1]
    os.truncate(last.path, size)
    log = open_log(tmp_path, SMALL)
    assert log.log_id == last.log_id
    assert log.end == last.base == offsets[5]
    assert log.recovery.cut_bytes == size
    log.append(lines(b"again"))
    assert len(chunks_of(log)) == 6
    log.close()


def test_first_segment_torn(tmp_path: Path) -> None:
    """A log whose first header never reached the disk is a new log."""
    fill(tmp_path, [])
    first = segments(tmp_path)[0]
    os.truncate(first.path, 10)
    log = open_log(tmp_path, SMALL)
    assert log.recovery.new_log
    assert log.log_id != first.log_id
    assert [segment.log_id for segment in segments(tmp_path)] == [log.log_id]
    log.close()


@settings(max_examples=60)
@given(st.data())
def test_one_flipped_byte_anywhere(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """One damaged byte costs one frame at most when all was synced; events kept and lost add up, per open and read."""
    folder = tmp_path_factory.mktemp("raw")
    chunks = [lines(*(noise(i * 9 + j, 500) for j in range(3)), input=f"i{i % 3}") for i in range(12)]
    offsets = fill(folder, chunks, sync_each=True)
    parts = segments(folder)
    segment = data.draw(st.sampled_from(parts))
    flip(segment.path, data.draw(st.integers(0, segment.path.stat().st_size - 1)))
    counters = Counters()
    log = open_log(folder, SMALL, counters, committed=Cursor(parts[0].log_id, offsets[6]))
    kept = chunks_of(log)
    assert all(chunk == chunks[offsets.index(offset)] for offset, chunk in kept)
    if log.recovery.cut_bytes:  # the newest frame of all: nothing after it proves that it was durable
        assert log.end == offsets[11]
        assert len(kept) == 11
    else:
        assert log.end == offsets[12]
        assert sum(counters.lost.values()) == 3 * (12 - len(kept)) <= 3
        chunks_of(log)
        assert sum(counters.lost.values()) == 3 * (12 - len(kept))
    assert log.log_id == parts[0].log_id
    log.close()


def damaged(folder: Path, at: Callable[[Unit], int]) -> tuple[RawLog, Counters]:
    """A synced log of five frames, the third damaged at the given place."""
    fill(folder, [lines(b"a", b"b"), lines(b"c"), messages(b"d", b"e", b"f"), lines(b"g"), lines(b"h")], sync_each=True)
    frame = located(segments(folder)[0])[2]
    flip(segments(folder)[0].path, frame.position + at(frame))
    counters = Counters()
    return open_log(folder, SMALL, counters), counters


def test_damaged_body_names_its_input(tmp_path: Path) -> None:
    """A frame whose body is damaged is passed over and counted as lost, once, for its input."""
    log, counters = damaged(tmp_path, lambda frame: frame.header.size - 1)
    assert [chunk.data for _, chunk in chunks_of(log)] == [b"a\nb\n", b"c\n", b"g\n", b"h\n"]
    assert counters.lost == {("plant", "damaged"): 3}
    assert len(chunks_of(log)) == 4
    assert counters.lost == {("plant", "damaged"): 3}
    assert log.backlog(0) == {"auth": 5, "plant": 3}
    log.close()


@pytest.mark.parametrize("byte", [0, 20, 66, format.FRAME_HEADER + 2])
def test_damaged_header_still_tells_how_many(tmp_path: Path, byte: int) -> None:
    """A frame whose header or metadata is damaged is counted as lost by the numbers of the events around it."""
    log, counters = damaged(tmp_path, lambda frame: byte)
    assert [chunk.data for _, chunk in log.frames(6, count_lost=False)] == [b"g\n", b"h\n"]
    assert not counters.lost
    assert log.backlog(0) == {"auth": 5, "?": 3}
    assert len(chunks_of(log)) == 4
    assert counters.lost == {("?", "damaged"): 3}
    assert log.backlog(9) == {"auth": 2}
    log.close()


def test_hole_in_what_was_never_synced_cuts(tmp_path: Path) -> None:
    """A hole after the last sync is an unfinished write: what follows it goes as well, over segments."""
    offsets = fill(tmp_path, [lines(noise(i)) for i in range(20)])
    parts = segments(tmp_path)
    assert len(parts) >= 3
    flip(parts[1].path, located(parts[1])[1].position + 3)
    log = open_log(tmp_path, SMALL)
    assert log.end == located(parts[1])[0].header.end
    assert log.end in offsets
    assert not log.recovery.new_log
    assert len(segments(tmp_path)) == 2
    assert len(list((tmp_path / "damaged").iterdir())) == len(parts) - 1
    log.append(lines(b"again"))
    assert chunks_of(log)[-1][1].data == b"again\n"
    log.close()


def test_hole_below_the_committed_offset_stays(tmp_path: Path) -> None:
    """The committed cursor proves what was durable even when no frame says so."""
    offsets = fill(tmp_path, [lines(b"%d" % i) for i in range(5)])
    segment = segments(tmp_path)[0]
    flip(segment.path, located(segment)[1].position)
    log = open_log(tmp_path, SMALL, committed=Cursor(segment.log_id, offsets[3]))
    assert (log.end, log.recovery.cut_bytes) == (offsets[5], 0)
    assert [offset for offset, _ in chunks_of(log)] == [offsets[i] for i in (0, 2, 3, 4)]
    log.close()


def test_missing_segment(tmp_path: Path) -> None:
    """A segment that somebody deleted from the middle is a gap, reported with its events."""
    fill(tmp_path, [lines(noise(i)) for i in range(20)], sync_each=True)
    parts = segments(tmp_path)
    gone = len(located(parts[1]))
    parts[1].path.unlink()
    counters = Counters()
    log = open_log(tmp_path, SMALL, counters)
    assert len(chunks_of(log)) == 20 - gone
    assert counters.lost == {("?", "damaged"): gone}
    log.close()


def test_truncated_zstd_frame_with_right_checksums(tmp_path: Path) -> None:
    """A frame that zstd cannot read is passed over and counted, and the rest is read."""
    log = open_log(tmp_path, SMALL)
    log.append(lines(b"one"))
    coder = log._coder

    class Short:
        def compress(self, data: bytes) -> bytes:
            return format.zstandard.ZstdCompressor().compress(data)[:-3]

    whole, coder._compress = coder._compress, Short()  # type: ignore[assignment]
    log.append(lines(b"two" * 30))
    coder._compress = whole
    log.append(lines(b"three"))
    log.close()
    counters = Counters()
    log = open_log(tmp_path, SMALL, counters)
    assert [chunk.data for _, chunk in chunks_of(log)] == [b"one\n", b"three\n"]
    assert counters.lost == {("auth", "damaged"): 1}
    log.close()


@pytest.mark.parametrize("committed", [None, 0, 3, 4, 5])
def test_goes_on_above_the_committed_offset(tmp_path: Path, committed: int | None) -> None:
    """A log cut below an offset once committed goes on there: no offset names two events, and none is a gap."""
    offsets = fill(tmp_path, [lines(b"%d" % i) for i in range(5)])
    old = segments(tmp_path)[0]
    os.truncate(old.path, located(old)[3].position + 5)
    cursor = None if committed is None else Cursor(old.log_id, offsets[committed])
    log = open_log(tmp_path, SMALL, committed=cursor)
    end = max(offsets[3], offsets[committed or 0])
    resumed = end if end > offsets[3] else 0
    assert (log.log_id, log.end, log.recovery.cut_bytes) == (old.log_id, end, 5)
    assert (log.recovery.new_log, log.recovery.cut_at, log.recovery.resumed_at) == (False, offsets[3], resumed)
    for _ in range(2):  # also after a start at which the newest segment is empty
        log.close()
        log = open_log(tmp_path, SMALL, committed=Cursor(log.log_id, end))
        assert (log.end, log.recovery) == (end, (0, end, False, "", 0))
    log.append(lines(b"next"))
    gaps: list[read.Gap] = []
    found = [(frame.offset, frame.chunk) for frame in read.frames(tmp_path, on_gap=gaps.append)]
    assert found == [*((offsets[i], lines(b"%d" % i)) for i in range(3)), (end, lines(b"next"))] == chunks_of(log)
    assert not gaps
    assert log.backlog(0) == {"auth": 4}
    assert [hit.raw for hit in read.search(tmp_path)][-1] == b"next"
    log.close()


@pytest.mark.parametrize("damage", ["none", "garbage", "torn", "frame cut out", "header", "flip"])
def test_not_certain_how_far_it_was_used(tmp_path: Path, damage: str) -> None:
    """With the store lost every frame that can be read stays, though none after it says that it was durable; what is
    appended lies far above everything that may have been used, and only what is missing counts as lost."""
    chunks = [lines(b"%d" % i, noise(i)) for i in range(9)]
    offsets = fill(tmp_path, chunks)
    last = segments(tmp_path)[-1]
    frames, whole = located(last), last.path.read_bytes()
    assert len(frames) >= 3
    gone: list[int] = []
    match damage:
        case "garbage":
            last.path.write_bytes(whole + bytes(range(1, 101)))
        case "torn":
            gone = [8]
            os.truncate(last.path, len(whole) - 7)
        case "frame cut out":
            gone = [7]
            last.path.write_bytes(whole[: frames[-2].position] + whole[frames[-1].position :])
        case "header":
            flip(last.path, 3)
        case "flip":
            gone = [7]
            flip(last.path, frames[-1].position - 1)
    counters = Counters()
    log = RawLog.open(tmp_path, SMALL, counters, certain=False, clock=lambda: NOW)
    assert log.log_id == last.log_id
    assert log.recovery.resumed_at == log.end >= offsets[-1] + APART - 4000
    log.append(lines(b"next"))
    kept = chunks_of(log)
    assert [chunk for _, chunk in kept] == [*(one for i, one in enumerate(chunks) if i not in gone), lines(b"next")]
    assert [offset for offset, _ in kept] == [*(offsets[i] for i in range(9) if i not in gone), log.recovery.resumed_at]
    assert sum(counters.lost.values()) == (0 if damage == "torn" else 2 * len(gone))  # a lost end tells no numbers
    log.close()
    again = open_log(tmp_path, SMALL)
    assert (again.end, again.recovery[:3]) == (log.end, (0, log.end, False))
    assert chunks_of(again) == kept
    again.close()


def test_foreign_cursor_does_not_cut(tmp_path: Path) -> None:
    """A cursor of another log says nothing about this one; a new folder is a new log."""
    log = open_log(tmp_path, SMALL, committed=Cursor("ab" * 16, 10**9))
    assert log.recovery.new_log
    assert "no log" in log.recovery.reason
    log_id = log.log_id
    log.append(lines(b"x"))
    log.close()
    log = open_log(tmp_path, SMALL, committed=Cursor("ab" * 16, 10**9))
    assert (log.log_id, log.end) == (log_id, 2)
    log.close()


def test_what_is_kept_of_damage_is_bounded(tmp_path: Path) -> None:
    """Cut bytes are kept up to an eighth of the budget, the newest first."""
    config = RawLogSettings(max_bytes=40_000)
    for i in range(6):
        log = open_log(tmp_path, config, now=i)
        log.append(lines(noise(i)))
        crash(log)
        path = segments(tmp_path)[-1].path
        os.truncate(path, path.stat().st_size - 1)
    open_log(tmp_path, config, now=6).close()
    kept = sorted((tmp_path / "damaged").iterdir())
    assert [int(file.name.split(".")[-2]) for file in kept] == [5, 6]
    assert sum(file.stat().st_size for file in kept) <= 5000


def test_damage_that_cannot_be_kept(tmp_path: Path) -> None:
    """When the cut bytes cannot be kept the log opens all the same and says so."""
    fill(tmp_path, [lines(b"one"), lines(b"two")])
    (tmp_path / "damaged").write_text("in the way")
    path = segments(tmp_path)[0].path
    os.truncate(path, path.stat().st_size - 1)
    log = open_log(tmp_path, SMALL)
    assert "could not be kept" in log.recovery.reason
    assert log.end == 4
    log.close()


def test_frame_inside_an_event_is_not_taken_for_one(tmp_path: Path) -> None:
    """Bytes of a foreign frame that a sender put into an event are not read as a frame after damage."""
    fake = b"".join(format.Coder("00" * 16).encode(lines(b"forged"), events=1, offset=500, first_event=0, durable=500))
    fill(tmp_path, [lines(b"a"), messages(noise(3) + fake + noise(4)), lines(b"b")], sync_each=True)
    segment = segments(tmp_path)[0]
    assert fake in segment.path.read_bytes()
    flip(segment.path, located(segment)[1].position)
    log = open_log(tmp_path, SMALL)
    assert [chunk.data for _, chunk in chunks_of(log)] == [b"a\n", b"b\n"]
    log.close()


def test_what_remains_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not known to be on disk and is gone on with is synced, segment by segment, and so is the folder."""
    fill(tmp_path, [lines(noise(i)) for i in range(12)])
    parts = [segment.path for segment in segments(tmp_path)]
    assert len(parts) == 3
    paths = synced(monkeypatch)
    log = open_log(tmp_path, SMALL)
    assert log.durable == log.end
    assert paths == [*parts, tmp_path]
    log.close()


def test_a_frame_is_found_wherever_a_block_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search after damage reads in blocks; a frame that begins at the end of one is found."""
    fill(tmp_path, [lines(noise(i, 100)) for i in range(3)])
    segment = segments(tmp_path)[0]
    units = located(segment)
    with SegmentFile(segment) as file:
        for size in range(4, 40):
            monkeypatch.setattr(segment_module, "_SCAN", size)
            assert file.find(units[0].position + 1, units[1].header.offset) == units[1]
