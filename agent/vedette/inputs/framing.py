"""Byte streams into whole events: lines, and syslog over TCP (RFC 6587). No sockets and no clock.

Promise: the events do not depend on how the stream was cut into pieces, every byte belongs to an event or is counted
as dropped, and what is held back is bounded by ``max_event`` plus one piece.

``Lines`` cuts at ``\\n`` only (a ``\\r`` before it stays in the event). It works per piece, never per line: one
``rfind`` and one copy. Of a line longer than ``max_event`` the first ``max_event`` bytes are the event, flagged CUT;
the rest up to its newline is discarded as it arrives. An owner that is short of memory has the unfinished message
cut so before that: ``cut``.

``StreamFramer`` recognises the framing of a TCP connection:

* octet counting (RFC 6587 §3.4.1) when a message begins with ``1`` to ``99999999``, a space and a priority, as each
  SYSLOG-MSG does; a byte order mark before the first is passed over. From then on each
  message is looked at by itself: a count, or ``<`` for a message that ends at its newline. Newlines, carriage returns
  and NULs between messages are trailers that some senders add, and are skipped; so is one newline that ends a counted
  message. An empty one is a newline.
* lines otherwise (§3.4.2). NUL ends a message too on a connection whose first terminator is a NUL followed by ``<``, or
  by ``{`` (GELF); anywhere else a NUL is a byte like any other. A later line that begins like a counted message with a
  priority (``57 <13>``) starts octet counting; ``404 <html>`` is text.

A first line that begins with digits is text (an address, a date) unless a priority follows a count that cannot be
one, such as ``0 <13>`` or ``12x <13>``. A malformed count raises ValueError: where the next message begins is unknown,
so the rest of the stream cannot be read; whole messages before it stay available.
"""

from __future__ import annotations

import re
from array import array
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple, NoReturn

from vedette.model.event import MAX_EVENT, Flag

Marks = tuple[tuple[int, int], ...]

_COUNT = re.compile(rb"([1-9][0-9]{0,7}) ")
_COUNT_BEGUN = re.compile(rb"[1-9][0-9]{0,7} ?")
_COUNT_PRI = re.compile(rb"[1-9][0-9]{0,7} <[0-9]{1,3}>")
_COUNT_PRI_BEGUN = re.compile(rb"[1-9][0-9]{0,7}(?: (?:<[0-9]{0,3})?)?")
_LINE_COUNT_PRI = re.compile(rb"\n[1-9][0-9]{0,7} <[0-9]{1,3}>")
_NOT_A_COUNT = re.compile(rb"[0-9][^ \n<]{0,20} ?<[0-9]{1,3}>")
_HEAD = 32
"""Bytes that are enough to tell a malformed count from text: more than ``_NOT_A_COUNT`` can match."""
_TRAILERS = b"\n\r\0"
_LESS_THAN = ord("<")
_AFTER_NUL = frozenset(b"<{")
_DIGITS = frozenset(b"0123456789")
LONG = f"longer than {MAX_EVENT} bytes, or its connection ended within it"
"""Why an event is cut, mostly."""
CHUNK_EVENTS = 65535
"""Events, and so origins, of a chunk at most."""


class Run(NamedTuple):
    """Whole events in a row, delimited as in a ``Chunk``: by ``ends``, or by newlines where that is None."""

    data: bytes
    ends: array[int] | None
    marks: Marks


class Lines:
    """Newline framing. ``feed`` pieces, ``take`` whole lines, ``end`` when nothing more comes."""

    __slots__ = ("_cut", "_excess", "_marks", "_partial", "_pieces", "consumed", "most", "size")

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self.most = max_event
        self._partial = bytearray()
        self._excess = 0
        self._cut = False
        """The unfinished line is an event already: what comes up to its newline is discarded."""
        self._pieces: list[bytes] = []
        self._marks: list[tuple[int, int]] = []
        self.size = 0
        """Bytes that ``take`` would give now."""
        self.consumed = 0
        """Bytes of the stream up to the end of its last whole line."""

    @property
    def pending(self) -> int:
        """Bytes of the stream after its last whole line."""
        return len(self._partial) + self._excess

    @property
    def within(self) -> bool:
        """Whether the stream is within a line."""
        return self._cut or bool(self._partial)

    @property
    def begin(self) -> bytes:
        """The first bytes of an unfinished line."""
        return bytes(self._partial[:8])

    @property
    def buffered(self) -> int:
        """Bytes that are kept: whole lines, and of the unfinished one what will be its event."""
        return self.size + len(self._partial)

    def feed(self, data: bytes | bytearray, start: int = 0, end: int | None = None) -> None:
        """Take in ``data[start:end]``; the buffer may be reused afterwards."""
        stop = len(data) if end is None else end
        while stop - start > self.most:  # within a piece of max_event only the first line can be too long
            self._feed(data, start, start + self.most)
            start += self.most
        self._feed(data, start, stop)

    def _feed(self, data: bytes | bytearray, start: int, stop: int) -> None:
        last = data.rfind(b"\n", start, stop)
        view = memoryview(data)
        if last >= 0:
            if self.within:
                first = data.index(b"\n", start, stop)
                self._grow(view, start, first)
                self._complete(1)
                start = first + 1
            if start <= last:
                self._pieces.append(bytes(view[start : last + 1]))
                self.size += last + 1 - start
                self.consumed += last + 1 - start
            start = last + 1
        self._grow(view, start, stop)

    def _grow(self, view: memoryview, start: int, stop: int) -> None:
        length = 0 if self._cut else min(stop - start, self.most - len(self._partial))
        self._partial += view[start : start + length]
        self._excess += stop - start - length

    def _complete(self, newline: int) -> None:
        """The pending bytes are an event, followed in the stream by ``newline`` bytes."""
        if not self._cut:
            self._emit(cut=self._excess > 0)
        self.consumed += self._excess + newline
        self._excess = 0
        self._cut = False

    def _emit(self, *, cut: bool) -> None:
        if cut:
            self._marks.append((self.size, Flag.CUT))
        self.consumed += len(self._partial)
        self._partial += b"\n"
        self._pieces.append(bytes(self._partial))
        self.size += len(self._partial)
        self._partial.clear()

    def skip(self, size: int) -> None:
        """Pass over bytes between two lines."""
        self.consumed += size

    def cut(self) -> None:
        """Make what there is of an unfinished line an event, flagged CUT; discard the rest as it arrives."""
        if self._partial:
            self._emit(cut=True)
            self._cut = True

    def end(self) -> None:
        """An unterminated last line is an event."""
        if self.within:
            self._complete(0)

    def take(self) -> Run | None:
        """The whole lines so far, or None."""
        if not self._pieces:
            return None
        run = Run(self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces), None, tuple(self._marks))
        self._pieces = []
        self._marks = []
        self.size = 0
        return run


class StreamFramer:
    """The messages of one TCP connection; see the module's text. ``relp_frames.RelpFramer`` has the same methods."""

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max = max_event
        self._lines = Lines(max_event)
        self._runs: list[Run] = []
        self._queued = 0
        self._messages: list[bytes] = []
        self._ends = array("I")
        self._marks: list[tuple[int, int]] = []
        self._held = bytearray()
        self._searched = 0
        self._need = 0
        self._skip = 0
        self._in_line = False
        self.steps = 0
        """How often Python has looked at a message by itself."""
        self._state: Callable[[bytes | bytearray, int, int], None] = self._undecided

    @property
    def size(self) -> int:
        """Bytes that ``take`` would give now."""
        return self._queued + self._lines.size + (self._ends[-1] if self._ends else 0)

    @property
    def unfinished(self) -> int:
        """Bytes that are kept of an unfinished message."""
        return len(self._held) + self._lines.buffered - self._lines.size

    @property
    def buffered(self) -> int:
        """Bytes that are kept in all."""
        return self.size + self.unfinished

    @property
    def within(self) -> bool:
        """Whether the stream is within a message, also one whose rest is discarded."""
        return bool(self._held or self._skip or self._in_line or self._lines.within)

    def feed(self, data: bytes | bytearray, size: int | None = None) -> None:
        """Take in the first ``size`` bytes of ``data``; the buffer may be reused afterwards.

        Raises ValueError, naming the bytes, at a malformed octet count; what comes later is ignored.
        """
        self._state(data, 0, len(data) if size is None else size)

    def cut(self) -> None:
        """Make what there is of an unfinished message an event, flagged CUT; discard its rest as it arrives.

        Raises ValueError as ``feed`` does.
        """
        if self._state == self._undecided:
            self._decide(final=True)
        if self._state != self._octets:
            self._lines.feed(self._held)
            self._held.clear()
            self._lines.cut()
        elif self._in_line:
            self._lines.cut()
        elif (match := _COUNT.match(self._held)) and match.end() < len(self._held):
            self._skip = match.end() + int(match[1]) - len(self._held)
            self._add(bytes(self._held[match.end() :]), cut=True)
            self._held.clear()
            self._need = 0

    def end(self) -> None:
        """The stream ends: what is unterminated is an event, flagged CUT where a count asked for more.

        Raises ValueError when it ends within an octet count.
        """
        if self._state == self._undecided and self._held:
            self._decide(final=True)
        if self._state == self._octets:
            if self._in_line:
                self._lines.end()
            elif self._held:
                match = _COUNT.match(self._held)
                if match is None or match.end() == len(self._held):
                    self._refuse(bytes(self._held), "the connection ended within a message's octet count")
                self._add(bytes(self._held[match.end() :]), cut=True)
        elif self._state != self._ignored:
            self._lines.feed(self._held)
            self._lines.end()
        self._held.clear()
        self._state = self._ignored

    def take(self) -> list[Run]:
        """The whole messages so far, in order; mostly one run."""
        self._close_messages()
        self._close_lines()
        runs = self._runs
        self._runs = []
        self._queued = 0
        return runs

    def _undecided(self, data: bytes | bytearray, start: int, end: int) -> None:
        self._held += memoryview(data)[start:end]
        if self._held.startswith(BOM_UTF8):
            del self._held[:3]
        self._decide(final=False)

    def _decide(self, *, final: bool) -> None:
        state = self._detect(final)
        if state is not None:
            pending, self._held = self._held, bytearray()
            self._state = state
            state(pending, 0, len(pending))

    def _detect(self, final: bool) -> Callable[[bytes | bytearray, int, int], None] | None:
        """Tell the framing by the stream's first bytes; None when more are needed."""
        pending = self._held
        if pending and pending[0] in _DIGITS:
            if _COUNT_PRI.match(pending):
                return self._octets
            if _COUNT_PRI_BEGUN.fullmatch(pending) and not final:
                return None
            head = bytes(pending[:_HEAD])
            if len(head) < _HEAD and b"\n" not in head and not final:
                return None
            if _NOT_A_COUNT.match(head):
                self._refuse(head, "malformed octet count")
        newline = pending.find(b"\n", self._searched, self._max)
        nul = pending.find(b"\0", self._searched, self._max)
        if nul >= 0 and (newline < 0 or nul < newline):
            if nul + 1 < len(pending):
                return self._nul_text if pending[nul + 1] in _AFTER_NUL else self._text
            return self._nul_text if final else None
        if newline >= 0 or len(pending) >= self._max or final:
            return self._text
        self._searched = len(pending)
        return None

    def _text(self, data: bytes | bytearray, start: int, end: int) -> None:
        """Lines, watching for one that begins as an octet-counted message does."""
        if self._held:
            data = bytes(self._held) + data[start:end]
            start = 0
            end = len(data)
            self._held.clear()
        fresh = not self._lines.within
        if fresh and _COUNT_PRI.match(data, start, end):
            switch = start
        else:
            match = _LINE_COUNT_PRI.search(data, start, end)
            switch = match.start() + 1 if match else -1
        if switch >= 0:
            self._lines.feed(data, start, switch)
            self._close_lines()
            self._state = self._octets
            self._octets(data, switch, end)
            return
        last = data.rfind(b"\n", start, end)
        tail = last + 1 if last >= 0 else start if fresh else end
        if tail < end and _COUNT_PRI_BEGUN.fullmatch(data, tail, end):
            self._held += data[tail:end]
            end = tail
        self._lines.feed(data, start, end)

    def _nul_text(self, data: bytes | bytearray, start: int, end: int) -> None:
        self._lines.feed(bytes(memoryview(data)[start:end]).replace(b"\0", b"\n"))

    def _octets(self, data: bytes | bytearray, start: int, end: int) -> None:
        """Message by message. Holds an unfinished one and copies it only when it can be finished."""
        skipped = min(self._skip, end - start)
        self._skip -= skipped
        self._held += memoryview(data)[start + skipped : end]
        if len(self._held) < self._need:
            return
        pending = bytes(self._held)
        pos = 0
        self._held.clear()
        self._need = 0
        while pos < len(pending):
            self.steps += 1
            if self._in_line:
                newline = pending.find(b"\n", pos)
                stop = newline + 1 if newline >= 0 else len(pending)
                self._lines.feed(pending, pos, stop)
                pos = stop
                if newline >= 0:
                    self._in_line = False
                    self._close_lines()
            elif match := _COUNT.match(pending, pos):
                begin = match.end()
                count = int(match[1])
                length = min(count, self._max)
                if begin + length > len(pending):
                    self._hold(pending, pos, begin + length - pos)
                    return
                self._add(pending[begin : begin + length], cut=count > length)
                pos = begin + count
                self._skip = max(0, pos - len(pending))
            elif pending[pos] == _LESS_THAN:
                if (newline := pending.find(b"\n", pos, pos + self._max + 1)) >= 0:
                    self._add(pending[pos:newline], cut=False)
                    pos = newline + 1
                    continue
                self._in_line = True
                self._close_messages()
            elif pending[pos] in _TRAILERS:
                pos += 1
            elif _COUNT_BEGUN.fullmatch(pending, pos):
                self._hold(pending, pos, len(pending) - pos + 1)
                return
            else:
                self._refuse(pending[pos:], "malformed octet count")

    def _hold(self, pending: bytes, pos: int, need: int) -> None:
        self._held += memoryview(pending)[pos:]
        self._need = need

    def _refuse(self, data: bytes, reason: str) -> NoReturn:
        self._state = self._ignored
        self._held.clear()
        raise ValueError(f"{reason}: {data[:_HEAD]!r}")

    def _ignored(self, data: bytes | bytearray, start: int, end: int) -> None:
        pass

    def _add(self, message: bytes, *, cut: bool) -> None:
        start = self._ends[-1] if self._ends else 0
        if cut:
            self._marks.append((start, Flag.CUT))
        elif message.endswith(b"\n"):
            message = message[:-1] or b"\n"
        self._messages.append(message)
        self._ends.append(start + len(message))

    def _close_messages(self) -> None:
        if self._messages:
            self._queue(Run(b"".join(self._messages), self._ends, tuple(self._marks)))
            self._messages = []
            self._ends = array("I")
            self._marks = []

    def _close_lines(self) -> None:
        run = self._lines.take()
        if run is not None:
            self._queue(run)

    def _queue(self, run: Run) -> None:
        self._runs.append(run)
        self._queued += len(run.data)


def run_of(events: Sequence[bytes]) -> Run:
    """Join events, at least one and none empty; one longer than MAX_EVENT is cut and flagged."""
    marks: list[tuple[int, int]] = []
    if max(map(len, events)) > MAX_EVENT:
        starts = accumulate((min(len(event), MAX_EVENT) for event in events), initial=0)
        marks = [(at, int(Flag.CUT)) for at, event in zip(starts, events, strict=False) if len(event) > MAX_EVENT]
        events = [event[:MAX_EVENT] for event in events]
    return Run(b"".join(events), array("I", accumulate(map(len, events))), tuple(marks))


def merge(runs: Sequence[tuple[Run, str]]) -> tuple[Run, tuple[str, ...], array[int]]:
    """Small runs of several origins as one: the run, the table of origins, and per event its index there.

    At most 65,535 origins; the runs have no marks. Works per event: it is for runs of a few events, which would each
    cost a frame of their own.
    """
    events: list[bytes] = []
    table: dict[str, int] = {}
    origin_of = array("H")
    for run, origin in runs:
        before = len(events)
        if run.ends is None:
            events += [line or b"\n" for line in run.data[:-1].split(b"\n")]
        else:
            start = 0
            for end in run.ends:
                events.append(run.data[start:end])
                start = end
        index = table.setdefault(origin, len(table))
        origin_of.extend([index] * (len(events) - before))
    return run_of(events), tuple(table), origin_of
