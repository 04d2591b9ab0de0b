"""The words of the data's way: chunk, frame, event, record's source, alert. Facts only; nothing here does I/O.

A **chunk** is a run of events as raw bytes from one input, the unit that flows. Its events are delimited in one of
two ways, and never both:

* ``ends is None``: every event is followed by one ``\\n``, which is in ``data`` but not in the event; ``data`` ends
  with ``\\n`` and no event contains one. (Lines of a file, newline-framed TCP syslog.)
* ``ends`` given: event *i* is ``data[ends[i-1]:ends[i]]`` (``ends[-1]`` taken as 0); events may contain newlines and
  nothing lies between them. None is empty, so that each has an offset of its own: an input gives one ``\\n`` in place
  of an empty message. (Datagrams, octet-counted syslog, MQTT messages.)

All times are UTC microseconds since 1970. Offsets are byte positions in the uncompressed raw stream of one log.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, Protocol

MAX_EVENT = 1 << 20
"""Bytes. A longer event is cut to this, flagged and counted, and evaluated cut, everywhere alike."""
MAX_HOST = 255
"""Characters of a host's name that count, as many as RFC 5424 lets one have: a sender may write longer ones."""

CHUNK_BYTES = 256 << 10
"""Bytes at which an input hands over a chunk; it does so after CHUNK_SECONDS at the latest."""

CHUNK_SECONDS = 0.005


class Flag(IntFlag):
    """What is unusual about one event; the names, in lower case, are the values of an alert's ``flags``."""

    CUT = 1
    CLAMPED_TIME = 2
    DUP = 4
    TIME_JUMP = 8


NO_FLAGS = Flag(0)
FULL = 1 << 8
"""Above the bits of all flags."""


class FilePosition(NamedTuple):
    """Where in a tailed file the events of a chunk end, or in systemd's journal.

    Of a file ``fingerprint`` is the hex digest of its first bytes (see ``inputs/tail.py``): it distinguishes the file
    from another one that got the same inode. Of the journal ``path`` is ``journal:INPUT:PLACE``, ``fingerprint`` the
    cursor of the last entry and ``position`` its sequence number.
    """

    path: str
    inode: int
    fingerprint: str
    position: int

    @property
    def file(self) -> tuple[str, int]:
        """Which file: its path and inode; at one path several may follow each other."""
        return self.path, self.inode

    @property
    def of_file(self) -> bool:
        """Whether it is of a file, and not of a journal, Kafka's partition or the kernel's audit log."""
        return not self.path.startswith(("journal:", "kafka:", "audit:"))


def lines(data: bytes) -> int:
    """How many newlines ``data`` holds: what ``count`` says, in less than half of its time."""
    return len(data) - len(data.replace(b"\n", b""))


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of events from one input; see the module's text for how events are delimited."""

    input: str
    codec: str
    """The decoder's name, a key of ``decode.codecs.CODECS``."""
    received_at: int
    data: bytes
    ends: array[int] | None = None
    """``array('I')`` of end positions, or None when events are lines."""
    origins: tuple[str, ...] = ("",)
    """Table of peers (host addresses) or topics."""
    origin_of: array[int] | None = None
    """``array('H')``: per event an index into ``origins``; None when all events come from ``origins[0]``."""
    marks: tuple[tuple[int, int], ...] = ()
    """Sparse ``(start position of the event in data, Flag bits)``, ascending. DUP of an event with a packet identifier
    (0 is none) is that of all behind it with the same: of a message's events."""
    message_ids: array[int] | None = None
    """``array('H')``: per event its MQTT packet identifier; None for other inputs."""
    file: FilePosition | None = None
    _events: int = field(default=-1, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        if self.ends is not None:
            return len(self.ends)
        if self._events < 0:  # counted once: every stage asks
            self.know(lines(self.data))
        return self._events

    def know(self, events: int) -> None:
        """The number of lines, for whoever knows it without counting."""
        object.__setattr__(self, "_events", events)

    def bounds(self, pos: int) -> tuple[int, int]:
        """Start and end (exclusive) of the event that holds byte ``pos``; a line's own ``\\n`` belongs to it."""
        if self.ends is None:
            return self.data.rfind(b"\n", 0, pos) + 1, self.data.index(b"\n", pos)
        i = bisect_right(self.ends, pos)
        return (self.ends[i - 1] if i else 0), self.ends[i]

    def spans(self) -> Iterator[tuple[int, int]]:
        """Start and end (exclusive) of every event, in order."""
        start = 0
        if self.ends is None:
            find = self.data.find
            while (end := find(b"\n", start)) >= 0:
                yield start, end
                start = end + 1
        else:
            for end in self.ends:
                yield start, end
                start = end

    def index(self, start: int) -> int:
        """The number, from 0, of the event that starts at ``start``."""
        return self.data.count(b"\n", 0, start) if self.ends is None else bisect_right(self.ends, start)

    def origin(self, start: int) -> str:
        """The peer or topic of the event that starts at ``start``."""
        return self.origins[0 if self.origin_of is None else self.origin_of[self.index(start)]]

    def flags(self, start: int) -> Flag:
        """The flags of the event that starts at ``start``."""
        at = bisect_right(self.marks, (start, FULL)) - 1
        if at < 0:
            return NO_FLAGS
        position, bits = self.marks[at]
        ids = self.message_ids
        if position < start and (ids is None or not 0 < ids[self.index(position)] == ids[self.index(start)]):
            return NO_FLAGS
        return Flag(bits if position == start else bits & Flag.DUP)


class Frame(NamedTuple):
    """A chunk in its place in the raw log: event bytes at ``start`` lie at raw offset ``offset + start``."""

    offset: int
    chunk: Chunk

    @property
    def end(self) -> int:
        """Offset of the first byte after this frame."""
        return self.offset + len(self.chunk.data)


class RawRef(NamedTuple):
    """Where an event lies in the raw log of its host."""

    log_id: str
    offset: int
    length: int


class Cursor(NamedTuple):
    """How far a log is evaluated: everything before ``offset``."""

    log_id: str
    offset: int


class Source(NamedTuple):
    """What log sources one event belongs to; a rule's logsource fits when each attribute it names is in the set."""

    products: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()


class LogSource(NamedTuple):
    """A rule's Sigma ``logsource``; an empty attribute asks for nothing."""

    product: str = ""
    category: str = ""
    service: str = ""

    def fits(self, source: Source) -> bool:
        return (
            (not self.product or self.product in source.products)
            and (not self.category or self.category in source.categories)
            and (not self.service or self.service in source.services)
        )


_ADDRESS = re.compile(r"[0-9A-Fa-f:.]{2,45}")


def address(text: str) -> IPv4Address | IPv6Address | None:
    """The address that a text is, in brackets or with a zone (``fe80::1%eth0``) or without, one of IPv4 within IPv6
    (``::ffff:192.0.2.1``) as that of IPv4; None for any other text. All that compares addresses goes by this."""
    bare = text.strip(" \t\n\f\r").partition("%")[0].strip("[]")
    if not _ADDRESS.fullmatch(bare):
        return None  # an exception would cost ten times as much
    try:
        parsed = ip_address(bare)
    except ValueError:
        return None
    return (parsed.ipv4_mapped or parsed) if isinstance(parsed, IPv6Address) else parsed


def network(text: str, strict: bool = False) -> IPv4Network | IPv6Network:
    """The network that a text is, one within ``::ffff:0:0/96`` as that of IPv4; raises ValueError, when ``strict`` also
    for bits behind the prefix."""
    parsed = ip_network(text.strip(), strict=strict)
    if isinstance(parsed, IPv6Network) and parsed.prefixlen >= 96 and (mapped := parsed.network_address.ipv4_mapped):
        return IPv4Network((mapped, parsed.prefixlen - 96))
    return parsed


class Entity(NamedTuple):
    """Somebody or something an alert is about; kinds: ip, user, host, hash, domain, url, user_agent, device."""

    kind: str
    value: str


class Contribution(NamedTuple):
    """One event behind a correlation's alert."""

    rule_id: str
    event_time: int
    raw_ref: RawRef


@dataclass(slots=True)
class Alert:
    """What leaves the host. The schema, its wire form and its columns are in ``delivery/envelope.py``.

    Nobody changes one; ``frozen`` would make it 3 µs dearer to make.
    """

    alert_id: str
    seq: int
    rule_id: str
    rule_title: str
    rule_digest: str
    level: str
    agent_id: str
    site: str
    fleet: str
    event_time: int
    detected_at: int
    received_date: str
    """UTC date, ``YYYY-MM-DD``, of the receipt on the edge: the same when a replay makes the alert again."""
    source: str
    raw: str
    raw_ref: RawRef
    kind: str = "detection"
    parent_id: str | None = None
    host: str | None = None
    tags: tuple[str, ...] = ()
    logsource: LogSource = LogSource()
    fields: Mapping[str, str] = field(default_factory=dict)
    entities: tuple[Entity, ...] = ()
    contributing: tuple[Contribution, ...] = ()
    group_by: Mapping[str, str] = field(default_factory=dict)
    count: int = 1
    first_time: int | None = None
    last_time: int | None = None
    bundle: str | None = None
    flags: tuple[str, ...] = ()


class Intake(Protocol):
    """Where inputs hand over chunks. The agent's pipeline is one; tests bring a list.

    Delivery: ``store`` returns after the chunk is in the raw log (written, not yet synced). An input that can
    acknowledge does so after ``durable`` of the returned offset. An input that can wait calls ``ready`` before it
    reads more: it returns at once unless the disk budget is reached.
    """

    def store(self, chunk: Chunk) -> int:
        """Append ``chunk``; returns the raw offset after it. Raises OSError when the log cannot be written."""

    def durable(self, offset: int) -> Awaitable[None]:
        """Resolves when every byte before ``offset`` is on disk."""

    def accepting(self) -> bool:
        """False while inputs should pause."""

    def ready(self) -> Awaitable[None]:
        """Resolves when ``accepting``."""
