"""Framing: what each kind of stream becomes, and that the way it was cut into pieces never matters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vedette.inputs.framing import Lines, Run, StreamFramer, merge
from vedette.model.event import MAX_EVENT, Chunk, Flag

Events = list[tuple[bytes, bool]]


def unpack(runs: Iterable[Run]) -> Events:
    """Events of runs, each with whether it is flagged as cut."""
    events = []
    for run in runs:
        chunk = Chunk("t", "text", 0, run.data, run.ends, marks=run.marks)
        cut_at = [position for position, bits in run.marks if bits & Flag.CUT]
        for start, end in chunk.spans():
            cut = bool(cut_at) and cut_at[0] == start
            if cut:
                cut_at.pop(0)
            events.append((run.data[start:end], cut))
        assert not cut_at
        assert len(chunk) == len(list(chunk.spans()))
    return events


def frame(pieces: Sequence[bytes], max_event: int = MAX_EVENT) -> tuple[Events, bool]:
    """Events of a whole stream given in pieces, and whether it was refused."""
    framer, runs = StreamFramer(max_event), []
    try:
        for piece in pieces:
            framer.feed(piece)
            if framer.size > 20:
                runs += framer.take()
        framer.end()
    except ValueError:
        return unpack(runs + framer.take()), True
    return unpack(runs + framer.take()), False


def naive(stream: bytes, max_event: int) -> tuple[Events, bool]:
    """The same rules on the whole stream at once, message by message."""
    events: Events = []

    def add(event: bytes) -> None:
        events.append((event[:max_event], len(event) > max_event))

    counted, nul = False, False
    if stream[:1].isdigit():
        counted = bool(re.match(rb"[1-9]\d{0,7} <\d{1,3}>", stream))
        if not counted and re.match(rb"\d[^ \n<]{0,20} ?<\d{1,3}>", stream[:32]):
            return events, True
    if not counted:
        first = re.search(rb"[\n\0]", stream[:max_event])
        nul = bool(first and first[0] == b"\0" and stream[first.end() : first.end() + 1] in (b"<", b"{", b""))
    pos = 0
    while pos < len(stream):
        if nul:
            end = re.compile(rb"[\n\0]|\Z").search(stream, pos)
            assert end
            add(stream[pos : end.start()])
            pos = end.end()
            continue
        if counted and stream[pos] in b"\r\n\0":
            pos += 1
            continue
        head = re.compile(rb"([1-9]\d{0,7}) ").match(stream, pos)
        if head and (counted or re.compile(rb"<\d{1,3}>").match(stream, head.end())):
            counted = True
            count, rest = int(head[1]), stream[head.end() :]
            if not rest:
                return events, True
            event = rest[:count]
            cut = count > max_event or len(rest) < count
            event = event[:max_event]
            events.append((event, True) if cut else (event.removesuffix(b"\n") or b"\n", False))
            pos = head.end() + count
            continue
        if counted and stream[pos : pos + 1] != b"<":
            return events, True
        end_of_line = stream.find(b"\n", pos)
        end_of_line = len(stream) if end_of_line < 0 else end_of_line
        add(stream[pos:end_of_line])
        pos = end_of_line + 1
    return events, False


def test_lines_among_counted_messages() -> None:
    """They are messages like the others, not a chunk each."""
    framer = StreamFramer()
    framer.feed(b"4 <1>a<2>b\n<3>c\n4 <4>d\n<5>e\n")
    (run,) = framer.take()
    assert unpack([run]) == [(b"<%d>%c" % (i, 96 + i), False) for i in range(1, 6)]


TOKENS = st.sampled_from(
    [
        b"<13>",
        b"5 ",
        b"5 <1",
        b"12 ",
        b"0 ",
        b"99999999999 ",
        b"\n",
        b"\r\n",
        b"\0",
        b"\0<",
        b"\0{",
        b"ab",
        b"<",
        b"7",
        b" ",
        b"x",
    ]
)


@settings(max_examples=100)
@given(
    st.lists(TOKENS, max_size=30).map(b"".join) | st.binary(max_size=60),
    st.lists(st.integers(0, 90), max_size=8),
    st.sampled_from([4, 9, 40, MAX_EVENT]),
)
@example(b"5 <1\n5 <13>a\n<13>ab\n\n7", [1, 2, 3, 6, 7], 40)
@example(b"ab\n12 <13>abcdefghx", [4, 5, 6, 9], 4)
@example(b"abcde\n", [], 4)
@example(b"5 abcde", [], 4)
@example(b"ab\n7 <13\n7 <13>abcdefg<", [4, 5, 6, 9], 40)
def test_cuts_do_not_matter(stream: bytes, cuts: list[int], max_event: int) -> None:
    """Any split of the stream gives the events of the naive framer."""
    points = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    pieces = [stream[a:b] for a, b in pairwise(points)]
    expected = naive(stream, max_event)
    assert frame(pieces, max_event) == expected
    assert frame([stream[i : i + 1] for i in range(len(stream))], max_event) == expected


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"", []),
        (b"<13>a\n<13>b\n", [b"<13>a", b"<13>b"]),
        (b"<13>a\r\n\n<13>b", [b"<13>a\r", b"", b"<13>b"]),
        (b"<13>a\0<13>b\0<13>c\0", [b"<13>a", b"<13>b", b"<13>c"]),
        (b'{"a":1}\0{"b":2}\0', [b'{"a":1}', b'{"b":2}']),
        (b"<13>a\0b\n<13>c\0<13>\n", [b"<13>a\0b", b"<13>c\0<13>"]),
        (b"5 <1>ab6 <2>c\nd\n6 <3>ef\n", [b"<1>ab"[:5], b"<2>c\nd", b"<3>ef"]),
        (b"5 <1>ab<2>x\n5 <3>yz", [b"<1>ab", b"<2>x", b"<3>yz"]),
        (b"<1>a\n5 <3>yz<4>b\n", [b"<1>a", b"<3>yz", b"<4>b"]),
        (b"<1>a\n5 errors\n", [b"<1>a", b"5 errors"]),
        (b"hello\n404 <html> not found\n<1>a\n", [b"hello", b"404 <html> not found", b"<1>a"]),
        (b"hello\n12 <\n12 <1\n12 <1234>\n12", [b"hello", b"12 <", b"12 <1", b"12 <1234>", b"12"]),
        (b"203.0.113.9 - - [x]\n2024-11-20 ok\n", [b"203.0.113.9 - - [x]", b"2024-11-20 ok"]),
        (b"54 <1 minute\n54 <1 minute\n", [b"54 <1 minute", b"54 <1 minute"]),
        (b"2026 Nov 28 03:29:33 sw1 x\n", [b"2026 Nov 28 03:29:33 sw1 x"]),
        (b"\xef\xbb\xbf5 <1>ab6 <2>c\nd", [b"<1>ab", b"<2>c\nd"]),
        (b"1700000000 squid\n", [b"1700000000 squid"]),
        (b"\xff\xfe\x00 bad utf-8\n", [b"\xff\xfe\x00 bad utf-8"]),
    ],
)
def test_framings(stream: bytes, events: list[bytes]) -> None:
    """Each framing of RFC 6587, and mixtures, give these events."""
    assert frame([stream]) == ([(event, False) for event in events], False)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"0 <13>a\n", []),
        (b"007 <13>a\n", []),
        (b"12x <13>a\n", []),
        (b"99999999999 <13>a\n", []),
        (b"5 <1>abx5 <1>ab", [b"<1>ab"]),
        (b"5 <1>ab999999999 <1>ab", [b"<1>ab"]),
        (b"5 <1>ab17", [b"<1>ab"]),
    ],
)
def test_malformed_count(stream: bytes, events: list[bytes]) -> None:
    """A malformed octet count is refused, and the messages before it are kept."""
    assert frame([stream]) == ([(event, False) for event in events], True)


def test_malformed_count_names_bytes() -> None:
    """The error shows the bytes that are no count, and the framer then ignores the stream."""
    framer = StreamFramer()
    with pytest.raises(ValueError, match=r"malformed octet count: b'5x <13>a'"):
        framer.feed(b"5 <1>ab5x <13>a")
    framer.feed(b"<13>later\n")
    framer.end()
    assert unpack(framer.take()) == [(b"<1>ab", False)]


def test_count_unfulfilled() -> None:
    """A counted message that the end of the stream cuts short is an event, flagged."""
    assert frame([b"50 <13>short"]) == ([(b"<13>short", True)], False)


@pytest.mark.parametrize("prefix", [b"", b"10000004 "], ids=["line", "counted"])
def test_ten_megabytes(prefix: bytes) -> None:
    """A 10 MB message is cut to MAX_EVENT, in bounded memory, and the next one is whole."""
    framer, held = StreamFramer(), 0
    framer.feed(prefix + b"<13>")
    for _ in range(1000):
        framer.feed(b"x" * 10_000)
        held = max(held, framer.buffered)
    framer.feed(b"\n<13>next\n")
    framer.end()
    (first, cut), second = unpack(framer.take())
    assert (len(first), cut, second) == (MAX_EVENT, True, (b"<13>next", False))
    assert held <= MAX_EVENT + 10_010


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        ([b"a\n<13>lon", b"ger", b" still\n<13>next\n"], [(b"a", False), (b"<13>lon", True), (b"<13>next", False)]),
        ([b"<13>a\nxx", b"57 <13>rest\n9 <13>text!"], [(b"<13>a", False), (b"xx", True), (b"<13>text!", False)]),
        ([b"<13>a\n57 <1", b"3>rest\n<13>b\n"], [(b"<13>a", False), (b"57 <1", True), (b"<13>b", False)]),
        ([b"<13>a\0<13>b", b"c\0<13>d\0"], [(b"<13>a", False), (b"<13>b", True), (b"<13>d", False)]),
        (
            [b"10 <13>ab", b"cd", b"ef<13>line", b"s\n5 <1>xy"],
            [*[(b"<13>ab", True), (b"<13>line", True)], (b"<1>xy", False)],
        ),
        ([b"5 <1>ab7 ", b"<13>abc"], [(b"<1>ab", False), (b"<13>abc", False)]),
        ([b"<13>", b""], [(b"<13>", True)]),
        ([b"<13>a\n", b"<13>b\n"], [(b"<13>a", False), (b"<13>b", False)]),
    ],
)
def test_cut(stream: list[bytes], events: Events) -> None:
    """``cut`` after each piece but the last: what is unfinished is an event, flagged, and its rest is discarded."""
    framer, runs = StreamFramer(), []
    for piece in stream[:-1]:
        framer.feed(piece)
        framer.cut()
        runs += framer.take()
        assert framer.buffered <= 2  # of a count, without a message
    framer.feed(stream[-1])
    framer.end()
    assert unpack(runs + framer.take()) == events


@settings(max_examples=50)
@given(st.lists(TOKENS, max_size=30).map(b"".join), st.lists(st.integers(0, 90), max_size=8))
def test_cut_keeps_the_count_of_events(stream: bytes, cuts: list[int]) -> None:
    """Wherever lines are cut there are as many events as without, each the same or a flagged beginning."""
    stream = b"<1>\n" + stream.replace(b"<13>", b"<x>").replace(b"<1", b"<x")  # lines: no count has a priority
    points = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    framer = StreamFramer()
    for a, b in pairwise(points):
        framer.feed(stream[a:b])
        framer.cut()
    framer.end()
    whole, _ = frame([stream])
    for (event, _), (cut_event, cut) in zip(whole, unpack(framer.take()), strict=True):
        assert event.startswith(cut_event) if cut else event == cut_event


def test_held_is_what_is_kept() -> None:
    """``held`` counts whole messages not yet taken and the kept part of an unfinished one, in every framing."""
    framer = StreamFramer(max_event=10)
    for piece, held in ((b"<13>", 4), (b"\nab", 7), (b"x" * 20, 15), (b"\n9 <13>abc", 16 + 9)):
        framer.feed(piece)
        assert framer.buffered == held
    framer.take()
    assert framer.buffered == 9
    framer.feed(b"de3 abc<13>l")
    assert framer.buffered == 9 + 3 + 5


def test_lines_consumed() -> None:
    """``consumed`` is the stream position after the last whole line, whatever was cut."""
    lines = Lines(max_event=4)
    lines.feed(b"ab\n123456")
    assert (lines.consumed, lines.pending) == (3, 6)
    lines.feed(b"78\nrest")
    assert (lines.consumed, lines.pending) == (12, 4)
    lines.end()
    assert lines.consumed == 16
    run = lines.take()
    assert run is not None
    assert unpack([run]) == [(b"ab", False), (b"1234", True), (b"rest", False)]
    assert lines.take() is None


def test_merge() -> None:
    """Runs of several origins become one run whose events still know theirs."""
    framer = StreamFramer()
    framer.feed(b"5 <1>ab6 <1>c\nd")
    (counted,) = framer.take()
    run, origins, origin_of = merge([(Run(b"a\n\nb\n", None, ()), "x"), (counted, "y"), (Run(b"z\n", None, ()), "x")])
    chunk = Chunk("t", "text", 0, run.data, run.ends, origins, origin_of)
    assert [run.data[s:e] for s, e in chunk.spans()] == [b"a", b"\n", b"b", b"<1>ab", b"<1>c\nd", b"z"]
    assert [origins[i] for i in origin_of] == ["x", "x", "x", "y", "y", "x"]
    assert chunk.origin(3) == "y"
