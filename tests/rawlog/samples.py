"""Chunks for the raw log's tests."""

from __future__ import annotations

from array import array
from itertools import accumulate
from pathlib import Path

from hypothesis import strategies as st

from vedette.config.settings import RawLogSettings
from vedette.model.counters import Counters
from vedette.model.event import Chunk, Cursor, FilePosition
from vedette.rawlog.log import RawLog

SETTINGS = RawLogSettings()
NOW = 1_700_000_000_000_000


def lines(*events: bytes, input: str = "auth", at: int = NOW, file: FilePosition | None = None) -> Chunk:
    """A chunk of lines."""
    return Chunk(input, "syslog", at, b"".join(event + b"\n" for event in events), file=file)


def messages(*events: bytes, input: str = "plant", at: int = NOW, first_id: int = 1) -> Chunk:
    """A chunk of MQTT messages, each from a topic of its own."""
    return Chunk(
        input,
        "mqtt",
        at,
        b"".join(events),
        ends=array("I", accumulate(map(len, events))),
        origins=tuple(f"plant/{i}" for i in range(len(events))),
        origin_of=array("H", range(len(events))),
        message_ids=array("H", range(first_id, first_id + len(events))),
    )


def noise(i: int, size: int = 2000) -> bytes:
    """A line that does not compress, for segments of a known size."""
    out = bytearray()
    state = i + 1
    while len(out) < size:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        out += (state >> 24).to_bytes(5, "little").replace(b"\n", b"x")
    return bytes(out[:size])


def open_log(
    folder: Path,
    settings: RawLogSettings = SETTINGS,
    counters: Counters | None = None,
    committed: Cursor | None = None,
    now: int = NOW,
) -> RawLog:
    """A log at a fixed time."""
    return RawLog.open(folder, settings, counters or Counters(), committed=committed, clock=lambda: now)


def crash(log: RawLog) -> None:
    """End as a killed process does: nothing more is written or synced."""
    log._release()


def chunks_of(log: RawLog, start: int = 0) -> list[tuple[int, Chunk]]:
    """What the log gives back, as plain pairs."""
    return [(frame.offset, frame.chunk) for frame in log.frames(start)]


_words = st.text(max_size=20)
_times = st.integers(-(1 << 62), 1 << 62)
_files = st.builds(FilePosition, _words, st.integers(0, (1 << 64) - 1), _words, st.integers(0, 1 << 60))


@st.composite
def line_chunks(draw: st.DrawFn) -> Chunk:
    """Any chunk of lines."""
    events = draw(st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"\r")), min_size=1, max_size=30))
    data = b"".join(event + b"\n" for event in events)
    marks = tuple(
        (pos, draw(st.integers(1, 7))) for pos in sorted(draw(st.sets(st.integers(0, len(data)), max_size=3)))
    )
    file = draw(st.none() | _files)
    return Chunk(draw(_words), draw(_words), draw(_times), data, origins=(draw(_words),), marks=marks, file=file)


@st.composite
def message_chunks(draw: st.DrawFn) -> Chunk:
    """Any chunk with ends; at least one event has a byte."""
    events = draw(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=300))
    origins = tuple(draw(st.lists(_words, min_size=1, max_size=5)))
    some = st.lists(st.integers(0, len(origins) - 1), min_size=len(events), max_size=len(events))
    ids = st.lists(st.integers(0, 65535), min_size=len(events), max_size=len(events))
    return Chunk(
        draw(_words),
        draw(_words),
        draw(_times),
        b"".join(events),
        ends=array("I", accumulate(map(len, events))),
        origins=origins,
        origin_of=draw(st.none() | some.map(lambda items: array("H", items))),
        message_ids=draw(st.none() | ids.map(lambda items: array("H", items))),
    )
