"""Audit records of one event, brought together: several events of the raw log evaluated as one.

``auditd`` writes an event as several records with one id (``decode/formats/auditd.py``); a rule may ask for the
argument in one and the file in another. Records of one input, origin, host and id are one event: its text is the
records', each on its line, its place that of the first. A hit in any record is a hit of the event, with the rules of
all hits; it is evaluated once, when it is complete. Events are evaluated in the order in which they are complete.

An event is **open** from its first record on; it is complete

* with a record that is the last of an event or stands alone (``auditd.ends``), or its ``MAX_RECORDS``-th, or when it
  has come to ``MAX_BYTES``; a record that would make it longer is the first of another;
* when more than ``HOLD`` has gone by since its first record (``advance``), by the receipts of frames of all inputs, and
  by the agent's clock while none comes. A gap between two of them counts for ``GAP`` at most: while the agent was down,
  no record could come;
* as the oldest of more than ``MAX_OPEN`` open ones, or of ``HELD_BYTES``. It is evaluated as it is: none is dropped.

Which records belong together is thus a function of the records and their receipts: of no hit, and not of how the log
is cut into frames. What is open at a frame's end is remembered (``delta`` and ``load``, by ``state/state.py`` with
the cursor), text and all, so the cursor goes on and a segment may be deleted.

**Where the cursor may stand.** ``events`` gives an event before it forgets it, and before it has taken the record that
completes it, which begins at ``Joined.at``. So until the next one is asked for, what is remembered is as of ``at``.

A ``Joiner`` that meets no record costs a search for ``audit(`` in each frame.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import contains
from typing import Any, NamedTuple

from vedette.decode import syslog
from vedette.decode.formats import auditd
from vedette.engine import kernel
from vedette.engine.prefilter import Candidate
from vedette.model.event import Chunk, Frame

MAX_BYTES = 64 << 10
MAX_RECORDS = 64
HOLD = 2_000_000
"""Microseconds for which an event waits for further records."""
GAP = 1_200_000
MAX_OPEN = 1024
HELD_BYTES = 1 << 20
"""Of all open events."""
REST = 1 << 62
"""Beyond all offsets: ``due`` gives every open event."""
GATHER_BYTES = 1 << 20
"""Of the log, in which ``gather`` looks for the records of an event."""

CODECS = frozenset({"auto", "syslog", "auditd"})
"""Codecs whose events may be audit records."""


def may_hold_records(chunk: Chunk) -> bool:
    """False when no event of ``chunk`` is an audit record."""
    return chunk.codec in CODECS and _holds(chunk.data, b"audit(")


_holds: Callable[[bytes, bytes], bool] = getattr(kernel.LOADED, "holds", contains)
"""Whether the first has the second in it: for a chunk by ``in`` it would take as long as the scan of its literals."""


RulesOf = Callable[[Chunk], frozenset[int]]
"""The rules that some event of a chunk may match."""

_NONE: frozenset[int] = frozenset()


class Joined(NamedTuple):
    """An event of one or several records: ``frame.chunk.data[start:end]`` is the first, ``raw`` all of them.

    ``at``: the cursor's place in the current frame until the event is evaluated. ``frame`` is that frame, or when
    the first record lies before it, one made of the event alone, of which only the first record is in its place.
    """

    frame: Frame
    start: int
    end: int
    rules: frozenset[int]
    raw: bytes
    at: int


class _Part(NamedTuple):
    """An audit record, ``data[start:end]`` of a chunk; ``last``: it completes its event."""

    start: int
    end: int
    key: tuple[str, str, str, bytes]
    """Input, origin, host, id."""
    last: bool


@dataclass(slots=True)
class _Open:
    """An event that may get further records."""

    key: tuple[str, str, str, bytes]
    offset: int
    codec: str
    received_at: int
    flags: int
    """Place, receipt and flags of the first record."""
    opened: int
    """``Joiner.running`` at it."""
    records: list[bytes]
    size: int
    rules: frozenset[int]
    """Of the hits; only known while all records are in one frame, the one at ``within``."""
    within: int


class Joiner:
    """Audit records of one event brought together. One for each stream of frames, whose offsets must ascend."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[str, str, str, bytes], _Open] = OrderedDict()
        """By the offset of the first record."""
        self.bytes = 0
        self.evicted = 0
        """Evaluated before their time, for lack of room."""
        self.now = 0
        """Receipt of the last frame."""
        self.running = 0
        """Microseconds gone by, without what gaps have beyond ``GAP``."""
        self._moved = False
        self._changed: dict[int, _Open | None] = {}
        self._written: set[int] = set()
        """Offsets of open events that a delta holds."""

    def __len__(self) -> int:
        """Open events."""
        return len(self._open)

    def offsets(self) -> list[int]:
        """Where the open events begin, ascending."""
        return [event.offset for event in self._open.values()]

    # --- evaluation

    def advance(self, now: int) -> None:
        """Time has come to ``now``, by a frame or by nothing; a clock that was set back goes on from there."""
        gap = now - self.now
        if gap > 0 or gap < -HOLD:
            self.running += max(0, min(gap, GAP))
            self.now, self._moved = now, True

    def events(
        self, frame: Frame, candidates: Iterable[Candidate], rules_of: RulesOf, first: int, records: bool
    ) -> Iterator[Joined]:
        """The events to evaluate: of ``candidates`` those that begin at ``first`` or later, audit records joined.

        ``records``: what ``may_hold_records`` says of the chunk, as the prefilter has it. Must be asked to its end, or
        not at all: what is open afterwards is as of the frame's end.
        """
        chunk = frame.chunk
        data = chunk.data
        if not records:
            for start, end, rules in candidates:
                if start >= first:
                    yield Joined(frame, start, end, rules, data[start:end], start)
            return
        hits = iter(candidates)
        hit = next(hits, None)
        opened = self._open
        for start, end, key, last in _parts(chunk, first):
            while hit is not None and hit.start < start:
                if hit.start >= first:
                    yield Joined(frame, *hit, data[hit.start : hit.end], hit.start)
                hit = next(hits, None)
            rules = _NONE
            if hit is not None and hit.start == start:
                rules, hit = hit.rules, next(hits, None)
            group, size = opened.get(key), end - start
            if group is not None and group.size + size > MAX_BYTES:
                if (event := self._event(group, rules_of, frame, start)) is not None:
                    yield event
                self._close(group)
                group = None
            if group is None and (last or size >= MAX_BYTES):
                if rules:
                    yield Joined(frame, start, end, rules, data[start:end], start)
                continue
            if group is not None and (last or len(group.records) + 1 >= MAX_RECORDS):
                if (event := self._event(group, rules_of, frame, start, data[start:end], rules)) is not None:
                    yield event
                self._close(group)
                continue
            while opened and (self.bytes + size > HELD_BYTES or (group is None and len(opened) >= MAX_OPEN)):
                oldest = next(iter(opened.values()))
                if (event := self._event(oldest, rules_of, frame, start)) is not None:
                    yield event
                self._close(oldest)
                self.evicted += 1
                if oldest is group:
                    group = None
            if group is None:
                group = self._begin(key, frame, start)
            self._append(group, data[start:end], rules)
        while hit is not None:
            if hit.start >= first:
                yield Joined(frame, *hit, data[hit.start : hit.end], hit.start)
            hit = next(hits, None)

    def _begin(self, key: tuple[str, str, str, bytes], frame: Frame, start: int) -> _Open:
        """Open an event whose first record begins at ``start`` in ``frame``."""
        chunk = frame.chunk
        place = frame.offset + start, chunk.codec, chunk.received_at, int(chunk.flags(start)), self.running
        group = self._open[key] = _Open(key, *place, [], 0, _NONE, frame.offset)
        return group

    def _append(self, group: _Open, record: bytes, rules: frozenset[int]) -> None:
        group.records.append(record)
        group.size += len(record)
        group.rules |= rules
        self.bytes += len(record)
        self._changed[group.offset] = group

    def due(self, rules_of: RulesOf, *, before: int = 0) -> Joined | None:
        """The oldest event when its time is over, or when it begins before the offset ``before``; else None.

        The same is given again until ``evaluated`` is called.
        """
        while self._open:
            group = next(iter(self._open.values()))
            if self.running - group.opened <= HOLD and group.offset >= before:
                return None
            if (event := self._event(group, rules_of)) is not None:
                return event
            self._close(group)
        return None

    def evaluated(self) -> None:
        """Forget what ``due`` has given: it is evaluated."""
        self._close(next(iter(self._open.values())))

    def _event(
        self, group: _Open, rules_of: RulesOf, frame: Frame | None = None, at: int = 0, record: bytes | None = None,
        rules: frozenset[int] = _NONE,
    ) -> Joined | None:  # fmt: skip
        """``group`` and ``record``, which has hits of ``rules``, as one event; None when no rule can match it."""
        records = group.records if record is None else [*group.records, record]
        start, size = 0, len(records[0])
        if frame is not None and group.within == frame.offset:
            start, rules = group.offset - frame.offset, group.rules | rules
        else:
            input, origin, _, _ = group.key
            ends = array("I", accumulate(map(len, records)))
            marks = ((0, group.flags),) if group.flags else ()
            data = b"".join(records)
            chunk = Chunk(input, group.codec, group.received_at, data, ends, (origin,), marks=marks)
            frame, rules = Frame(group.offset, chunk), rules_of(chunk)
        return Joined(frame, start, start + size, rules, b"\n".join(records), at) if rules else None

    def _close(self, group: _Open) -> None:
        del self._open[group.key]
        self.bytes -= group.size
        if group.offset in self._written:
            self._changed[group.offset] = None
        else:
            self._changed.pop(group.offset, None)

    # --- state

    @property
    def changed(self) -> bool:
        """Whether ``delta`` is not empty."""
        return bool(self._changed) or (self._moved and bool(self._open))

    def touch(self) -> None:
        """The next ``delta`` holds all of it."""
        gone = {offset: group for offset, group in self._changed.items() if group is None}
        self._changed = gone | {group.offset: group for group in self._open.values()}

    def delta(self) -> list[Any]:
        """For msgpack, what changed since the last call: ``[[now, running, evicted], [[offset, event or None], …]]``;
        None: evaluated. An event: ``[input, origin, host, id, codec, received_at, flags, opened, records]``."""
        rows: list[Any] = []
        for offset, group in self._changed.items():
            if group is None:
                self._written.discard(offset)
                rows.append([offset, None])
            else:
                self._written.add(offset)
                place = group.codec, group.received_at, group.flags, group.opened
                rows.append([offset, [*group.key, *place, group.records]])
        self._changed, self._moved = {}, False
        return [[self.now, self.running, self.evicted], rows]

    def load(self, data: list[Any]) -> None:
        """Take over what ``delta`` gave, in its order."""
        (self.now, self.running, self.evicted), rows = data
        by_offset = {group.offset: group for group in self._open.values()}
        for offset, row in rows:
            if (old := by_offset.pop(offset, None)) is not None and row is None:
                del self._open[old.key]
                self._written.discard(offset)
            elif row is not None:
                input, origin, host, record_id, codec, received_at, flags, opened, records = row
                key, size = (input, origin, host, record_id), sum(map(len, records))
                group = _Open(key, offset, codec, received_at, flags, opened, records, size, _NONE, -1)
                self._open[group.key] = by_offset[offset] = group
                self._written.add(offset)
        self.bytes = sum(group.size for group in self._open.values())


def gather(frames: Iterable[Frame], offset: int) -> bytes | None:
    """The text of the audit event whose first record lies at ``offset``; None when no record does.

    ``frames``: the log from there on. Records that lie ``GATHER_BYTES`` behind the first are not looked for.
    """
    records: list[bytes] = []
    key: tuple[str, str, str, bytes] | None = None
    size, time = 0, Joiner()
    for frame in frames:
        chunk = frame.chunk
        if key is None:
            time.now = chunk.received_at
        time.advance(chunk.received_at)
        if time.running > HOLD or frame.offset - offset > GATHER_BYTES:
            break
        if chunk.codec in CODECS and (key is None or chunk.input == key[0]):
            for start, end, of, last in _parts(chunk, max(0, offset - frame.offset)):
                if key is None and frame.offset + start == offset:
                    key = of
                elif key is None or of != key:
                    if key is None:
                        break
                    continue
                elif size + end - start > MAX_BYTES:
                    return b"\n".join(records)
                records.append(chunk.data[start:end])
                size += end - start
                if last or size >= MAX_BYTES or len(records) >= MAX_RECORDS:
                    return b"\n".join(records)
        if key is None:
            return None
    return b"\n".join(records) if records else None


def _parts(chunk: Chunk, first: int = 0) -> Iterator[_Part]:
    """The audit records of ``chunk`` from byte ``first`` on, where an event begins, in order."""
    data, ends, origins, origin_of = chunk.data, chunk.ends, chunk.origins, chunk.origin_of
    find, rfind, input, origin = data.find, data.rfind, chunk.input, origins[0]
    number = done = 0
    at = first
    while (at := find(b"audit(", at)) >= 0:
        if ends is None:
            start, end = rfind(b"\n", 0, at) + 1, find(b"\n", at)
        else:
            i = bisect_right(ends, at)
            start, end = (ends[i - 1] if i else 0), ends[i]
        at = max(end, at + 1)
        host = ""
        if data.startswith((b"type=", b"node="), start):
            head = auditd.HEAD.match(data, start, end)
            if head is None:
                continue
            if (node := head[1]) is not None:
                host = node.decode("utf-8", "replace")
        else:
            line = data[start:end]
            header = syslog.parse(line)
            head = auditd.HEAD.match(line, 0 if header is None else header.message_start)
            if head is None:
                continue
            if header is not None and header.host:
                host = header.host
        last = auditd.ends(head[2])
        if ends is not None and not last and (further := auditd.LATER.findall(data, start, end)):
            last = auditd.ends(further[-1])
        if origin_of is not None:
            if ends is None:
                number, done = number + data.count(b"\n", done, start), start
                origin = origins[origin_of[number]]
            else:
                origin = origins[origin_of[bisect_right(ends, start)]]
        yield _Part(start, end, (input, origin, host, head[3]), last)
