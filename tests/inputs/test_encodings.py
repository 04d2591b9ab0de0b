"""Files that are no plain UTF-8: byte order marks, UTF-16, and the hole that a truncation leaves."""

from __future__ import annotations

import io
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.deep import examples
from tests.differences import walk
from tests.inputs.intake import Bin
from tests.inputs.test_tail import by_path, tailing
from tests.waits import eventually
from vedette.decode.decoder import record
from vedette.inputs.framing import Run
from vedette.inputs.multiline import Events
from vedette.inputs.tailed import Tailed
from vedette.inputs.wide import wide
from vedette.model.counters import Log
from vedette.model.event import MAX_EVENT, Chunk
from vedette.runtime.offline.scan import as_utf8, events

LINE = "<38>Nov 28 03:29:00 web1 sshd[7]: Failed für kim"
ENCODED = [
    ("UTF-16, little", ("\ufeff" + LINE + "\r\nzwei\r\n").encode("utf-16-le"), "utf-16-le"),
    ("UTF-16, big", ("\ufeff" + LINE + "\r\nzwei\r\n").encode("utf-16-be"), "utf-16-be"),
    ("UTF-16, no mark", (LINE + "\r\nzwei\r\n").encode("utf-16-le"), "utf-16-le"),
    ("UTF-16, no mark, big", (LINE + "\r\nzwei\r\n").encode("utf-16-be"), "utf-16-be"),
    ("a line of U+0A0A", "\ufeffab\u0a0a\u0a00\u000ac\n".encode("utf-16-be"), "utf-16-be"),
    ("UTF-8 with its mark", b"\xef\xbb\xbf" + LINE.encode() + b"\r\nzwei\r\n", ""),
    ("a hole", b"\0" * 100 + LINE.encode() + b"\r\nzwei\r\n", ""),
    ("text", LINE.encode() + b"\r\nzwei\r\n", ""),
    ("pairs", b"a\0b\0c\n", ""),
]


def lines_of(run: Run | None) -> list[bytes]:
    if run is None:
        return []
    chunk = Chunk("a", "text", 0, run.data, run.ends)
    return [b"" if run.data[start:end] == b"\n" else run.data[start:end] for start, end in chunk.spans()]


def read(event: bytes) -> tuple[object, object]:
    shown = record(event, "auto")
    return shown.get("program"), shown.get("message")


@walk(("name", "data", "encoding"), ENCODED)
def test_encodings(name: str, data: bytes, encoding: str) -> None:
    """A followed file and a scanned one give the same events, however it comes in pieces, and its positions are those
    of its own bytes."""
    whole = data.decode(encoding or "utf-8").lstrip("\0").removeprefix("\ufeff")
    expected = [read(line.encode()) for line in whole[:-1].split("\n")]
    scanned = [chunk.data[start:end] for chunk in events(as_utf8(io.BytesIO(data)))[1] for start, end in chunk.spans()]
    assert [read(event) for event in scanned] == expected
    gathered = []
    file = Tailed("a", (0, 0), "a")
    for piece in (data[:66], data[66:70], data[70:77], data[77:]):
        file.feed(piece, 0.0)
        gathered += lines_of(file.take())
        assert file.position <= file.read <= len(data)
    file.end()
    gathered += lines_of(file.take())
    assert [read(event) for event in gathered] == expected
    assert (file.position, file.read, wide(data)) == (len(data), len(data), encoding)


@examples(60)
@given(
    st.text("ab\n\u0a0a\u010aü\U0001f600", max_size=60),
    st.lists(st.integers(0, 200), max_size=6),
    st.sampled_from(["utf-16-le", "utf-16-be"]),
    st.booleans(),
)
def test_wide_pieces(text: str, cuts: list[int], encoding: str, many: bool) -> None:
    """Whatever the pieces, and whether lines are events by themselves: the lines of the text, and after each event
    where the next begins."""
    data = ("\ufeff" + text).encode(encoding)
    file = Tailed("a", (0, 0), "a", Events(lambda line: True, None, 1.0) if many else None)
    points = sorted({2, len(data), *(min(max(cut, 2), len(data)) for cut in cuts)})
    taken: list[bytes] = []
    for begin, end in zip([0, *points], points, strict=False):
        file.feed(data[begin:end], 0.0)
        taken += lines_of(file.take())
        at = file.position
        rest = Tailed("a", (0, 0), "a", base=at, head=data[:at][:1024])
        rest.feed(data[at:], 0.0) if at else None
        rest.end()
        assert not at or b"\n".join([*taken, *lines_of(rest.take())]) == ("\ufeff" + text).encode().removesuffix(b"\n")
    file.end()
    taken += lines_of(file.take())
    assert b"\n".join(taken) == ("\ufeff" + text).encode().removesuffix(b"\n")
    assert file.read == file.position == len(data)


def test_a_long_wide_line() -> None:
    """It is cut as any line, bounded, and the next is whole."""
    data = ("\ufeff" + "x" * (2 * MAX_EVENT) + "\nzwei\n").encode("utf-16-le")
    file = Tailed("a", (0, 0), "a")
    for at in range(0, len(data), 100_000):
        file.feed(data[at : at + 100_000], 0.0)
        assert file.unfinished < 2 * MAX_EVENT
    first, second = lines_of(file.take())
    assert (len(first), second, file.position) == (MAX_EVENT, b"zwei", len(data))


async def test_followed_in_utf_16(tmp_path: Path) -> None:
    """A file in UTF-16 goes on where it was left, over a restart, too; that it's read so is said once."""
    bin, path = Bin(), tmp_path / "a.log"
    path.write_bytes("\ufeffone\ntwo\nthr".encode("utf-16-le"))
    with capture_logs() as logs:
        async with tailing(bin, path):
            await eventually("2 events", lambda: len(bin.events) == 2)
        with path.open("ab") as file:
            file.write("ee\nfour\n".encode("utf-16-le"))
        async with tailing(bin, path, positions=by_path(bin)):
            await eventually("4 events", lambda: len(bin.events) == 4)
            with path.open("ab") as file:
                file.write("five\n".encode("utf-16-le"))
            await eventually("5 events", lambda: len(bin.events) == 5)
    assert bin.events == [b"\xef\xbb\xbfone", b"two", b"three", b"four", b"five"]
    said = [entry for entry in logs if entry["event"] == Log.FILE_ENCODED]
    assert [(entry["path"], entry["encoding"]) for entry in said] == [(str(path), "utf-16-le")] * 2


async def test_a_hole_after_truncation(tmp_path: Path) -> None:
    """A writer that goes on at its old place after copytruncate leaves a hole before its next line, which is whole."""
    bin, path = Bin(), tmp_path / "a.log"
    with path.open("wb", buffering=0) as writer:
        writer.write(b"x" * 3_000_000 + b"\n")
        async with tailing(bin, path):
            await eventually("an event", lambda: len(bin.events) == 1)
            os.truncate(path, 0)
            writer.write(b"two\nthree\n")
            await eventually("3 events", lambda: len(bin.events) == 3)
            os.truncate(path, 0)
            writer.write(b"four\n")
            await eventually("4 events", lambda: len(bin.events) == 4)
    assert bin.events[1:] == [b"two", b"three", b"four"]


@walk(
    ("name", "lead", "codec"),
    [(f"{lead!r} {codec}", lead, codec) for lead in (b"\xef\xbb\xbf", b"\0\0\0") for codec in ("syslog", "auto")],
)
def test_leads(name: str, lead: bytes, codec: str) -> None:
    """A byte order mark or zeros before a line or a datagram are no part of it."""
    for line in (LINE.encode(), b"<38>1 2026-11-28T03:29:00Z web1 sshd 7 - - Failed x"):
        assert dict(record(lead + line, codec).fields()) == dict(record(line, codec).fields())
    assert record(lead + b"plain", "text").get("message") == "plain"
    assert record(lead + b"\xef\xbd\x86", "text").get("message") == "\uff46"
    assert record(lead + b'{"a": 1}', "json").get("a") == 1
