"""The group of a simple ``event_count`` as bytes: one object of 63 bytes for a first event, 16 more for each further.

Simple is a correlation that is prompt, looks at detections only, and of whose events none above wants to know
anything; nearly all groups there are belong to one. The bytes hold what a ``Window`` would (``packed``, ``unpacked``).
What they cannot hold is one: events of several sources, more than ``MAX`` events, one of 64 KiB.

``source`` u32, ``limit`` u16 (entries at which to compact), ``base`` i64 (an offset); then by time, at least one entry
of 16 bytes: event time i64, and from the highest bit down 41 bits offset - base, 16 length, 6 slot, 1 whether the
condition held. Little-endian, times in UTC microseconds.

An entry at the end costs one copy of the bytes and looks at the one that is as far back as the condition counts:
nothing that grows but the copy. An entry elsewhere goes by way of a ``Window``.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left

from vedette.plan.relation import MAX_SLOTS
from vedette.state.entries import HELD, Arrival, meta
from vedette.state.windows import Window

HEAD_BYTES, ENTRY_BYTES = 14, 16
_head = struct.Struct("<IHq").unpack_from
_entry = struct.Struct("<qq").unpack_from
_time = struct.Struct("<q").unpack_from
_pack_head, _pack_entry, _pack_new = struct.Struct("<IHq").pack, struct.Struct("<qq").pack, struct.Struct("<IHqqq").pack

MAX = 32
"""Entries; more are a window: of those only what is new is written at a commit, of these all."""
MAX_LENGTH = 1 << 16
MAX_REACH = 1 << 40
"""Between offset and base."""
SPARE = 4
"""Entries beyond those that the condition asks for, after which to compact first."""
PACKED_BYTES = 160
"""What a group takes besides the bytes of its key and of its value: two objects, their places in the tables (which are
up to three times as large as need be while groups come and go)."""
MARK = -8
"""Index of the byte with ``HELD`` of the last entry."""
FULL = b""
"""In place of a group that is to be compacted first."""
assert MAX_SLOTS <= 1 << 6


def room(least: int, entries: int) -> int:
    """At how many entries to compact when there are ``entries``; with so many, there is no room for one more."""
    return min(max(least + SPARE, entries + entries // 2 + 1), MAX)


def begun(event: Arrival, slot: int, least: int) -> bytes | None:
    """A group with its first entry; None when bytes cannot hold it."""
    source, time, offset, length = event
    return _pack_new(source, room(least, 0), offset, time, length << 7 | slot << 1) if length < MAX_LENGTH else None


def appended(value: bytes, event: Arrival, slot: int, least: int, span: int) -> bytes | None:
    """The group with an entry more at its end, which holds when it is the ``least``-th within ``span``.

    The same again when this event is there already; ``FULL`` when it is time to compact; None when the entry belongs
    elsewhere or bytes cannot hold it.
    """
    source, time, offset, length = event
    size = len(value)
    group_source, limit, base = _head(value)
    last, word = _entry(value, size - 16)
    reach = offset - base
    if time <= last and (time < last or word >> 23 == reach):
        return None if time < last else value
    n = size - 14 >> 4
    if n >= limit:
        return FULL
    if group_source != source or length >= MAX_LENGTH or not -MAX_REACH <= reach < MAX_REACH:
        return None
    back = size - 16 * (least - 1)
    if back < 14 or _time(value, back)[0] < time - span:
        return value + _pack_entry(time, reach << 23 | length << 7 | slot << 1)
    return value + _pack_entry(time, reach << 23 | length << 7 | slot << 1 | HELD)


def goes_on(value: bytes, span: int) -> bool:
    """True when it held at the entry before the last, too, and that is near enough to be of the same run."""
    size = len(value)
    if size < HEAD_BYTES + 2 * ENTRY_BYTES or not value[MARK - ENTRY_BYTES] & HELD:
        return False
    return int(_time(value, size - 16)[0]) - int(_time(value, size - 32)[0]) <= span


def compacted(value: bytes, least: int, span: int, settled: int) -> bytes:
    """``value`` without what can no longer matter (``Window.compact``); the last entry stays."""
    source, _, base = _head(value)
    times = _words(value)[::2]
    begin = max(bisect_left(times, settled - span), bisect_left(times, settled) - least)
    begin = min(begin, len(times) - 1)
    return _pack_head(source, room(least, len(times) - begin), base) + value[HEAD_BYTES + ENTRY_BYTES * begin :]


def source_of(value: bytes) -> int:
    return int(_head(value)[0])


def newest(value: bytes) -> int:
    """The time of the last entry."""
    return int(_time(value, len(value) - ENTRY_BYTES)[0])


def touched(value: bytes) -> int:
    """The greatest offset in it."""
    return int(_head(value)[2]) + (max(_words(value)[1::2]) >> 23)


def size(value: bytes, key: bytes) -> int:
    """Bytes of memory, about."""
    return PACKED_BYTES + len(key) + len(value)


def unpacked(value: bytes, key_bytes: int) -> Window:
    source, limit, base = _head(value)
    window = Window(key_bytes)
    window.sources, window.limit = (source,), limit
    words = _words(value)
    for time, word in zip(words[::2], words[1::2], strict=True):
        mark = meta(word >> 1 & 0x3F, word >> 7 & 0xFFFF) | (word & HELD)
        window.insert(time, base + (word >> 23), mark, None, None)
    return window


def packed(window: Window) -> bytes | None:
    """None: it cannot be."""
    if not 0 < len(window) <= MAX or len(window.sources) != 1 or window.limit >= 1 << 16:
        return None
    entries = window.entries
    base = entries[1]
    words = array("q")
    for time, offset, mark in zip(entries[::3], entries[1::3], entries[2::3], strict=True):
        length, slot = mark >> 16, mark >> 8 & 0xFF
        if length >= MAX_LENGTH or not -MAX_REACH <= offset - base < MAX_REACH:
            return None
        words.extend((time, (offset - base) << 23 | length << 7 | slot << 1 | mark & HELD))
    return _pack_head(next(iter(window.sources)), window.limit, base) + words.tobytes()


def _words(value: bytes) -> array[int]:
    """The entries, as pairs of integers."""
    words = array("q")
    words.frombytes(value[HEAD_BYTES:])
    return words
