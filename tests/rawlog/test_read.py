"""Reading a raw log from beside its writer."""

from __future__ import annotations

import re
from hashlib import md5
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rawlog.samples import NOW, lines, messages, noise, open_log
from tests.settings import SegmentedLog
from vedette.model.event import RawRef
from vedette.rawlog import read
from vedette.rawlog.segment import segments

SMALL = SegmentedLog(max_bytes=1 << 20, segment_bytes=10_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of two inputs over three segments, a frame a second."""
    log = open_log(tmp_path, SMALL)
    for i in range(20):
        log.append(lines(b"user%d login" % i, noise(i, 1500), at=NOW + i * 10**6))
        log.append(messages(b'{"n":%d}' % i, b"two\nlines", at=NOW + i * 10**6, first_id=1 + 2 * i))
    log.close()
    assert len(segments(tmp_path)) >= 3
    return tmp_path


def test_frames_between_offsets(folder: Path) -> None:
    """``frames`` gives those that overlap the range asked for."""
    every = list(read.frames(folder))
    assert len(every) == 40
    for start, stop in ((0, 1), (every[3].offset, every[7].offset), (every[5].offset + 1, every[6].end), (0, 10**9)):
        assert list(read.frames(folder, start, stop)) == [f for f in every if f.end > start and f.offset < stop]


def test_recent_messages(folder: Path) -> None:
    """The last messages of an input, oldest first, over segments, bounded."""
    everything = [
        (1 + 2 * i + j, f"plant/{j}", md5(payload).digest())
        for i in range(20)
        for j, payload in enumerate((b'{"n":%d}' % i, b"two\nlines"))
    ]
    assert read.recent_messages(folder, "plant") == everything
    assert read.recent_messages(folder, "plant", 7) == everything[-7:]
    assert read.recent_messages(folder, "auth") == []


def test_search(folder: Path) -> None:
    """Pattern, time, input and limit narrow a search; each hit can be fetched by its reference."""
    hits = list(read.search(folder, pattern=re.compile(rb"^user1\d login$")))
    assert [hit.raw for hit in hits] == [b"user%d login" % i for i in range(10, 20)]
    for hit in hits:
        assert read.event_at(folder, RawRef(hit.log_id, hit.offset, hit.length)) == hit.raw
    between = read.search(folder, since=NOW + 5 * 10**6, until=NOW + 7 * 10**6, input="plant")
    assert [hit.raw for hit in between] == [b'{"n":5}', b"two\nlines", b'{"n":6}', b"two\nlines"]
    assert [hit.raw for hit in read.search(folder, pattern=re.compile(b"login"), limit=2)] == [
        b"user0 login",
        b"user1 login",
    ]
    assert list(read.search(folder, limit=0)) == []
    assert len(list(read.search(folder, since=NOW + 19 * 10**6))) == 4
    assert list(read.search(folder, since=NOW + 20 * 10**6)) == []


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.text("ab. ", max_size=6), min_size=1, max_size=4), min_size=1, max_size=5),
    st.sampled_from(["a", "ab", "b a", "a.b", "(?i)A", "^a", "b$", r"a\.", "", "(?<!a)b", "."]),
)
def test_search_equals_naive(tmp_path_factory: pytest.TempPathFactory, events: list[list[str]], pattern: str) -> None:
    """A search finds what the pattern finds in each event by itself."""
    folder = tmp_path_factory.mktemp("raw")
    log = open_log(folder)
    for run in events:
        log.append(lines(*(event.encode() for event in run)))
    log.close()
    compiled = re.compile(pattern.encode())
    naive = [event.encode() for run in events for event in run if compiled.search(event.encode())]
    assert [hit.raw for hit in read.search(folder, pattern=compiled)] == naive


def test_event_that_is_not_there(folder: Path) -> None:
    """A reference to nothing raises LookupError that says why."""
    log_id = segments(folder)[0].log_id
    with pytest.raises(LookupError, match="retention"):
        read.event_at(folder, RawRef("ab" * 16, 0, 1))
    with pytest.raises(LookupError, match="retention"):
        read.event_at(folder, RawRef(log_id, 10**9, 1))
    with pytest.raises(LookupError, match="only"):
        read.event_at(folder, RawRef(log_id, 0, 10**6))
    segments(folder)[0].path.unlink()
    with pytest.raises(LookupError, match="retention"):
        read.event_at(folder, RawRef(log_id, 0, 1))


def test_event_in_damage(folder: Path) -> None:
    """An event in a damaged frame raises LookupError that names the segment; a search says so and goes on."""
    segment = segments(folder)[0]
    data = bytearray(segment.path.read_bytes())
    data[1000] ^= 1
    segment.path.write_bytes(data)
    with pytest.raises(LookupError, match=rf"damaged part of .*{segment.path.name}"):
        read.event_at(folder, RawRef(segment.log_id, 0, 5))
    gaps: list[read.Gap] = []
    assert len(list(read.search(folder, on_gap=gaps.append))) == 78
    assert [(gap.offset, gap.events, gap.input, gap.path) for gap in gaps] == [(0, 2, "auth", segment.path)]


def test_segment_deleted_while_reading(folder: Path) -> None:
    """A reader passes over segments that retention deletes under it, without calling them damaged."""
    gaps: list[read.Gap] = []
    reading = read.frames(folder, on_gap=gaps.append)
    next(reading)
    parts = segments(folder)
    for segment in parts[:2]:
        segment.path.unlink()
    offsets = [frame.offset for frame in reading]
    assert offsets[-1] > parts[-1].base
    assert not [offset for offset in offsets if parts[1].base <= offset < parts[2].base]
    assert not gaps


def test_no_log(tmp_path: Path) -> None:
    """An empty folder holds no frames; a missing one raises."""
    assert list(read.frames(tmp_path)) == []
    assert list(read.search(tmp_path)) == []
    with pytest.raises(FileNotFoundError):
        list(read.frames(tmp_path / "absent"))
