"""The group of a simple ``event_count`` as bytes: one object of 63 bytes for a first event, 16 more for each further.

Of correlations that are prompt, look at detections only, and of whose events none above wants to know anything: nearly
all groups there are. What these bytes hold is what a ``Window`` would (``unpacked``, ``packed``); a group that they
cannot hold is one: of several sources, of more than ``MAX`` entries, with an event of 64 KiB.

``source`` u32, ``limit`` u16 (entries at which to compact), ``base`` i64 (an offset); then by time, 16 bytes each:
event time i64, and from the highest bit down 41 bits offset - base, 16 length, 6 slot, 1 whether the condition held.
Little-endian, times in UTC microseconds.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left

from vedette.state.windows import HELD, Window, meta

HEAD = struct.Struct("<IHq")
ENTRY = struct.Struct("<qq")
NEW = struct.Struct("<IHqqq")
TIME = struct.Struct("<q")

MAX = 128
"""Entries; more are a window."""
MAX_LENGTH = 1 << 16
MAX_MARK = MAX_LENGTH << 16
MAX_REACH = 1 << 40
"""Between offset and base."""
MAX_LEAST = 64
"""What the condition asks for, of a correlation whose groups are packed."""
SPARE = 4
"""Entries beyond those that the condition asks for, after which to compact first."""
PACKED_BYTES = 136
"""What a group takes besides the bytes of its key and of its value."""


def room(least: int, entries: int) -> int:
    """At how many entries to compact when there are ``entries``."""
    return max(least + SPARE, entries + entries // 2 + 1)


AGAIN, FIRST, FULL = 1, 2, 3
"""Of an entry at the end: the condition holds as it did just before; holds and did not; it is time to compact first."""


def begun(source: int, time: int, offset: int, mark: int, least: int) -> bytes:
    """A group with its first entry; ``mark`` as ``meta`` gives it."""
    return NEW.pack(source, room(least, 0), offset, time, mark >> 16 << 7 | mark >> 7 & 0x7E)


def appended(
    value: bytes, source: int, time: int, offset: int, mark: int, least: int, span: int
) -> tuple[bytes, int] | None:
    """A group with one entry more, and what follows: 0 for nothing, or one of the above. None: it goes elsewhere than
    to the end, or these bytes cannot hold it. An event that is there already is not put in again."""
    known, limit, base = HEAD.unpack_from(value)
    size, reach = len(value), offset - base
    n = size - HEAD.size >> 4
    if known != source or not 0 < n < MAX or mark >= MAX_MARK or not -MAX_REACH <= reach < MAX_REACH:
        return None
    if n >= limit:
        return value, FULL
    last, word = ENTRY.unpack_from(value, size - ENTRY.size)
    if time <= last and (time < last or word >> 23 == reach):
        return None if time < last else (value, 0)
    made = reach << 23 | mark >> 16 << 7 | mark >> 7 & 0x7E
    back = size - ENTRY.size * (least - 1)
    if back < HEAD.size or TIME.unpack_from(value, back)[0] < time - span:
        return value + ENTRY.pack(time, made), 0
    near = word & HELD and time - last <= span
    return value + ENTRY.pack(time, made | HELD), AGAIN if near else FIRST


def words(value: bytes) -> array[int]:
    """The entries, as pairs of integers."""
    found = array("q")
    found.frombytes(value[HEAD.size :])
    return found


def compacted(value: bytes, least: int, span: int, settled: int) -> bytes:
    """``value`` without what can no longer matter (``Window.compact``)."""
    source, _, base = HEAD.unpack_from(value)
    times = words(value)[::2]
    begin = max(bisect_left(times, settled - span), bisect_left(times, settled) - least)
    return HEAD.pack(source, room(least, len(times) - begin), base) + value[HEAD.size + ENTRY.size * begin :]


def source_of(value: bytes) -> int:
    return int(HEAD.unpack_from(value)[0])


def newest(value: bytes) -> int | None:
    """The time of the last entry; None when there is none."""
    return None if len(value) == HEAD.size else int(ENTRY.unpack_from(value, len(value) - ENTRY.size)[0])


def touched(value: bytes) -> int:
    """The greatest offset in it; that of ``base`` when it is empty."""
    _, _, base = HEAD.unpack_from(value)
    return int(base) + (max(words(value)[1::2], default=0) >> 23)


def size(value: bytes, key: bytes) -> int:
    """Bytes of memory, about."""
    return PACKED_BYTES + len(key) + len(value)


def unpacked(value: bytes, key_bytes: int) -> Window:
    source, limit, base = HEAD.unpack_from(value)
    window = Window(key_bytes)
    window.sources, window.limit = (source,), limit
    found = words(value)
    for time, word in zip(found[::2], found[1::2], strict=True):
        mark = meta(word >> 1 & 0x3F, word >> 7 & 0xFFFF) | (word & HELD)
        window.insert(time, base + (word >> 23), mark, None, None)
    return window


def packed(window: Window) -> bytes | None:
    """None: it cannot be."""
    if len(window) > MAX or len(window.sources) != 1 or window.limit >= 1 << 16:
        return None
    entries = window.entries
    base = entries[1] if entries else 0
    made = array("q")
    for time, offset, mark in zip(entries[::3], entries[1::3], entries[2::3], strict=True):
        length, slot = mark >> 16, mark >> 8 & 0xFF
        if length >= MAX_LENGTH or not -MAX_REACH <= offset - base < MAX_REACH:
            return None
        made.extend((time, (offset - base) << 23 | length << 7 | slot << 1 | mark & HELD))
    return HEAD.pack(window.sources[0], window.limit, base) + made.tobytes()
