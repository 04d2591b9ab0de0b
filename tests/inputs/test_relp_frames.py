"""RELP's frames: bytes in, messages and what is owed out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.inputs.framing import Run
from vedette.inputs.relp_frames import OPEN_BYTES, SERVER_CLOSE, UNKNOWN, RelpFramer, answer
from vedette.model.event import Flag

OFFERS = b"relp_version=0\nrelp_software=librelp,1.11.0,http://librelp.adiscon.com\ncommands=syslog"


def frame(number: int, command: bytes, data: bytes = b"") -> bytes:
    return b"%d %b %d%b\n" % (number, command, len(data), b" " + data if data else b"")


OPEN = frame(1, b"open", OFFERS)


def messages(runs: list[Run]) -> list[bytes]:
    found, start = [], 0
    for run in runs:
        start = 0
        for end in run.ends or ():
            found.append(run.data[start:end])
            start = end
    return found


def fed(*pieces: bytes, max_event: int = 1 << 20) -> RelpFramer:
    framer = RelpFramer(max_event)
    for piece in pieces:
        framer.feed(piece)
    return framer


def test_a_session() -> None:
    """Open is answered with offers; each message is owed its number, in order; close ends the session."""
    framer = fed(OPEN, frame(2, b"syslog", b"<13>one"), frame(3, b"syslog", b"<13>two\n"), frame(4, b"close"))
    assert messages(framer.take()) == [b"<13>one", b"<13>two"]
    opened, *rest = framer.owed
    assert isinstance(opened, bytes)
    assert opened.startswith(b"1 rsp ")
    assert b" 200 OK\nrelp_version=0\nrelp_software=vedette," in opened
    assert opened.endswith(b"\ncommands=syslog\n")
    assert rest == [2, 3, b"4 rsp 0\n" + SERVER_CLOSE]
    assert framer.closing
    framer.feed(b"anything")
    assert framer.take() == []


def test_an_empty_message() -> None:
    """One is a newline, so that it has an offset of its own."""
    framer = fed(OPEN, b"2 syslog 0\n", frame(3, b"syslog", b"\n"))
    assert messages(framer.take()) == [b"\n", b"\n"]
    assert list(framer.owed)[1:] == [2, 3]


def test_a_command_that_is_not_known() -> None:
    """It is answered with 500, its data are not kept, and the session goes on."""
    framer = fed(OPEN, b"2 starttls 1000000 ", b"x" * 1_000_000)
    assert framer.buffered == 0
    framer.feed(b"\n" + frame(3, b"syslog", b"<13>a"))
    assert messages(framer.take()) == [b"<13>a"]
    assert list(framer.owed)[1:] == [answer(2, b"500 command not supported"), 3]


def test_too_many_commands_that_are_not_known() -> None:
    """So many are answered; with one more the session is over."""
    framer = fed(OPEN, b"2 a 0\n" * UNKNOWN)
    with pytest.raises(ValueError, match="commands that are not known"):
        framer.feed(b"2 a 0\n" * 10_000)
    assert list(framer.owed)[1:-2] == [answer(2, b"500 command not supported")] * UNKNOWN
    assert (framer.owed[-1], framer.closing) == (SERVER_CLOSE, True)


@pytest.mark.parametrize(
    ("stream", "says", "answered"),
    [
        (b"GET / HTTP/1.1\r\n", "no RELP frame", b""),
        (frame(1, b"syslog", b"<13>a"), "syslog before open", b"1 rsp 22 500 syslog before open\n"),
        (OPEN + frame(2, b"open", OFFERS), "a second open", b"2 rsp 17 500 a second open\n"),
        (frame(1, b"open", b"relp_version=9"), "offers without relp_version=0", b"1 rsp 33 500 "),
        (frame(1, b"open", b"relp_version=0\ncommands=eventlog"), "the command syslog", b"1 rsp 37 500 "),
        (b"1 open %d " % (OPEN_BYTES + 1), "offers of 8193 bytes", b"1 rsp 24 500 "),
        (OPEN + b"2 syslog 5\n<13>a", "without its 5 bytes", b"2 rsp 39 500 "),
        (OPEN + b"2 syslog 5 <13>abc", "does not end after its data", b""),
        (OPEN + frame(2, b"syslog", b"<13>a") + b"\x16\x03\x01\x02\x00", "no RELP frame", b""),
        (OPEN + b"1234567890 syslog 1 a\n", "no RELP frame", b""),
    ],
)
def test_a_bad_frame(stream: bytes, says: str, answered: bytes) -> None:
    """It is answered by its number, where that is known, and ``serverclose``; what came before it stays available."""
    framer = RelpFramer()
    with pytest.raises(ValueError, match=says):
        framer.feed(stream)
    *before, last = framer.owed
    assert last == SERVER_CLOSE
    assert framer.closing
    if answered:
        assert isinstance(before[-1], bytes)
        assert before[-1].startswith(answered)
    assert messages(framer.take()) == [b"<13>a"] * before.count(2)
    framer.feed(frame(9, b"syslog", b"<13>later"))
    assert framer.take() == []


def test_a_long_message() -> None:
    """What is longer than ``max_event`` is cut and flagged; it is one message, and the frame after it is found."""
    for length, size in itertools.product((11, 100), (1, 7, 1 << 16)):
        stream = OPEN + frame(2, b"syslog", b"x" * length) + frame(3, b"syslog", b"<13>a")
        framer = fed(*(stream[at : at + size] for at in range(0, len(stream), size)), max_event=10)
        (run,) = framer.take()
        assert messages([run]) == [b"x" * 10, b"<13>a"]
        assert run.marks == ((0, Flag.CUT),)
        assert list(framer.owed)[1:] == [2, 3]


def test_an_unfinished_message() -> None:
    """It is no event at the end of a stream: its sender sends it again."""
    framer = fed(OPEN, frame(2, b"syslog", b"<13>a")[:-1], b"")
    assert framer.within
    assert messages(framer.take()) == [b"<13>a"]  # its data were whole
    framer = fed(OPEN, b"2 syslog 9 <13>a")
    assert framer.unfinished
    framer.end()
    assert (framer.take(), framer.buffered) == ([], 0)


@given(st.lists(st.binary(max_size=30), max_size=12), st.lists(st.integers(1, 25), min_size=1, max_size=40))
def test_any_cut_of_the_stream(texts: list[bytes], sizes: list[int]) -> None:
    """Messages and answers do not depend on how the stream was cut into pieces, nor on what messages hold."""
    stream = OPEN + b"".join(frame(i, b"syslog", text) for i, text in enumerate(texts, 2)) + frame(99, b"close")
    whole, pieces, at = fed(stream), RelpFramer(), 0
    for size in sizes * len(stream):
        pieces.feed(stream[at : at + size])
        at += size
        if at >= len(stream):
            break
    found = messages(pieces.take())
    assert found == messages(whole.take()) == [text.removesuffix(b"\n") or b"\n" for text in texts]
    assert pieces.owed == whole.owed
    assert [one for one in pieces.owed if isinstance(one, int)] == list(range(2, len(texts) + 2))


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """What is no RELP is an error, never anything else, and nothing is kept of it."""
    framer = fed(OPEN)
    try:
        framer.feed(data)
    except ValueError:
        assert framer.buffered == framer.size
