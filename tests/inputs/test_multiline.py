"""Events of several lines: whole whatever the pieces, in order, and begun again from any place that was committed."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from vedette.decode.bounded import Guard
from vedette.inputs.framing import Lines
from vedette.inputs.multiline import HELD_BYTES, WAIT_SECONDS, Events, Line
from vedette.inputs.settings import Multiline
from vedette.model.event import MAX_EVENT, Flag

TRACE = b"""2026-11-23 INFO up
2026-11-23 ERROR java.lang.IllegalStateException: no
\tat a.B.c(B.java:7)
\tat a.D.e(D.java:9)
Caused by: java.io.IOException
\t... 2 more

2026-11-23 INFO on
"""
DATED = Multiline(start="^[0-9]{4}-").asked(Guard())


def wrapped(line: bytes) -> Line:
    """Lines ``STREAM TAG TEXT``."""
    stream, tag, text = line.split(b" ", 2)
    return Line(stream, text, tag == b"P", b"<" + stream + b">")


class Reader:
    """A file read in pieces from a place in it, as the tail does."""

    def __init__(self, begins: object = DATED, unwrap: object = None, timeout: float = 1.0) -> None:
        self.events = Events(begins, unwrap, timeout)  # type: ignore[arg-type]
        self.lines = Lines()
        self.handed_on: list[bytes] = []
        self.places: list[tuple[int, int]] = [(0, 0)]
        """Place in the file, and how many events were given by then."""
        self.cut: list[int] = []

    def feed(self, data: bytes, now: float = 0.0) -> None:
        self.lines.feed(data)
        self._pass(now)

    def _pass(self, now: float) -> None:
        if (run := self.lines.take()) is not None:
            self.events.feed(run, self.lines.consumed, now)
        self._take()

    def _take(self) -> None:
        if (run := self.events.take()) is None:
            return
        assert run.ends is not None
        start, marks = 0, dict(run.marks)
        for end in run.ends:
            if marks.get(start, 0) & Flag.CUT:
                self.cut.append(len(self.handed_on))
            self.handed_on.append(run.data[start:end])
            start = end
        self.places.append((self.events.consumed, len(self.handed_on)))

    def expire(self, now: float) -> None:
        self.events.expire(now)
        self._take()

    def end(self) -> None:
        self.lines.end()
        self._pass(0.0)
        self.events.end()
        self._take()


def test_a_trace_is_one_event() -> None:
    """Lines that begin no event belong to the one before, newlines stay, and the last waits."""
    reader = Reader()
    reader.feed(TRACE)
    whole = [one.rstrip(b"\n") for one in re.split(rb"\n(?=2026)", TRACE)]
    assert [one.rstrip(b"\n") for one in reader.handed_on] == whole[:2]
    assert reader.handed_on[1].count(b"\n") == 5  # the empty line is of the trace
    assert reader.events.consumed == TRACE.rindex(b"2026")
    reader.end()
    assert [one.rstrip(b"\n") for one in reader.handed_on] == whole
    assert reader.events.consumed == len(TRACE)


def test_continued_by_indentation() -> None:
    """``continue`` names the lines that begin none; what comes before the first event is one."""
    reader = Reader(Multiline(continue_=r"^\s|^Caused by").asked(Guard()))
    reader.feed(b"  lost\nError\n\tat x\nCaused by: y\nnext\n")
    reader.end()
    assert reader.handed_on == [b"  lost", b"Error\n\tat x\nCaused by: y", b"next"]


def test_timeout() -> None:
    """An event is whole when no line has come for so long; a line more then is an event of its own."""
    reader = Reader()
    reader.feed(b"2026-a\n b\n", 10.0)
    reader.expire(10.9)
    assert not reader.handed_on
    reader.feed(b" c\n", 10.9)
    reader.expire(11.5)
    assert not reader.handed_on
    reader.expire(11.9)
    assert reader.handed_on == [b"2026-a\n b\n c"]
    reader.feed(b" d\n", 12.0)
    reader.expire(13.0)
    assert reader.handed_on[1:] == [b" d"]


def test_cut() -> None:
    """An event longer than max_event is cut and flagged; the place is behind all of it."""
    reader = Reader()
    data = b"2026-a\n" + b" %b\n" % (b"x" * 1000) * 1200 + b"2026-b\n"
    reader.feed(data)
    reader.end()
    assert [len(one) for one in reader.handed_on] == [MAX_EVENT, 6]
    assert reader.cut == [0]
    assert reader.events.consumed == len(data)


def test_a_line_that_was_cut() -> None:
    """One line beyond max_event within an event: the places of what follows are still those in the file."""
    reader = Reader()
    data = b"2026-a\n" + b"y" * (MAX_EVENT + 5000) + b"\n2026-b\n2026-c\n"
    for at in range(0, len(data), 100_000):
        reader.feed(data[at : at + 100_000])
    assert [len(one) for one in reader.handed_on] == [MAX_EVENT, 6]
    assert (reader.cut, reader.events.consumed) == ([0], data.index(b"2026-c"))


def test_memory_is_bounded() -> None:
    """Streams that never begin another event end theirs at HELD_BYTES; an event that goes on for ever ends, too."""
    reader = Reader(lambda text: False, wrapped)
    for i in range(HELD_BYTES // 1000 + 20):
        reader.feed(b"s%d F " % (i % 8) + b"z" * 1000 + b"\n")
    assert len(reader.handed_on) >= 8
    endless = Reader()
    for i in range(100):
        endless.feed(b" line\n", i * 0.9)
        endless.expire(i * 0.9)
    assert 1 <= len(endless.handed_on) <= 100 * 0.9 / WAIT_SECONDS + 1


def naive(data: bytes, begins: object) -> list[bytes]:
    """Events of wrapped lines, stream by stream, in the order of their first lines."""
    events: list[list[bytes]] = []
    last: dict[bytes, tuple[list[bytes], bool]] = {}
    for line in data.splitlines():
        stream, text, part, head = wrapped(line)
        event, open_part = last.get(stream, ([], False))
        if event and open_part:
            event.append(text)
        elif event and begins is not None and not begins(text):  # type: ignore[operator]
            event.append(b"\n" + text)
        else:
            event = [head + text]
            events.append(event)
        last[stream] = event, part
    return [b"".join(event) for event in events]


LINES = st.lists(
    st.tuples(
        st.sampled_from([b"o", b"e"]), st.sampled_from(b"PF"), st.sampled_from([b"2026-x", b" y", b"", b"2026-z"])
    ),
    max_size=24,
)


@given(LINES, st.lists(st.integers(1, 30), max_size=30), st.booleans())
def test_pieces_and_beginning_again(lines: list[tuple[bytes, int, bytes]], sizes: list[int], many: bool) -> None:
    """Whatever the pieces, events are those of the naive reader; from every place that was committed the rest comes."""
    begins = DATED if many else None
    data = b"".join(b"%b %c %b\n" % line for line in lines)
    reader, at = Reader(begins, wrapped), 0
    for size in [*sizes, len(data) + 1]:
        reader.feed(data[at : at + size])
        at += size
    reader.end()
    assert reader.handed_on == naive(data, begins)
    assert reader.events.consumed == len(data)
    for place, given_by_then in reader.places:
        again = Reader(begins, wrapped)
        again.feed(data[place:])
        again.end()
        assert reader.handed_on[:given_by_then] + again.handed_on == reader.handed_on
