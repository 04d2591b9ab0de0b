"""Records of Kafka to chunks: of one partition each, with the offset behind the last record. No broker and no clock.

A record is an event; of several JSON events (``batches.py``) it is as many, an empty one is a newline, one without a
value (a tombstone) is none. An event above MAX_EVENT is cut and flagged. Where the client cannot read the headers (a
name is not UTF-8), the record is taken without them, and counted.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from operator import methodcaller
from typing import Any

from vedette.decode import kafka
from vedette.inputs.batches import split
from vedette.inputs.settings import KafkaInput
from vedette.model.event import CHUNK_BYTES, MAX_EVENT, Chunk, Flag

Place = tuple[str, int]
"""Topic and partition."""
_headers = methodcaller("headers")
"""Called so, it always raises: of a name that is not UTF-8 the client returns a list with a hole, at which a process
dies, beside the error, which Python's specialized call of a method does not look for."""


class Part:
    """Records of one partition, in order."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.headless = 0
        """Records of which the headers cannot be read."""
        self._records: list[tuple[int, str, list[bytes], set[int]]] = []

    def add(self, message: Any, batches: bool, key: bool, headers: frozenset[str]) -> None:
        payload = message.value()
        events: list[bytes] = []
        cut: set[int] = set()
        if payload is not None:
            events = (split(payload) if batches else None) or [payload or b"\n"]
            if len(payload) > MAX_EVENT:
                cut = {i for i, event in enumerate(events) if len(event) > MAX_EVENT}
                events = [event[:MAX_EVENT] for event in events]
        chosen = self._chosen(message, headers) if headers else []
        origin = kafka.origin(*self.place, message.key() if key else None, chosen)
        self._records.append((message.offset(), origin, events, cut))

    def _chosen(self, message: Any, names: frozenset[str]) -> list[tuple[str, bytes]]:
        try:
            headers = _headers(message) or ()
        except Exception:  # SystemError, by which the client hides the UnicodeDecodeError of a name
            self.headless += 1
            return []
        return [(name, value or b"") for name, value in headers if name in names]

    def chunks(self, settings: KafkaInput, now: int) -> Iterator[tuple[Chunk | None, int]]:
        """Yield chunks of up to CHUNK_BYTES and a record, each with the offset behind it; None: the records had no
        event."""
        data = list[bytes]()
        ends = array("I")
        origin_of = array("H")
        marks = list[tuple[int, int]]()
        origins: dict[str, int] = {}
        size = 0
        last = len(self._records) - 1
        for i, (offset, origin, events, cut) in enumerate(self._records):
            at = origins.setdefault(origin, len(origins)) if events else 0
            for number, event in enumerate(events):
                if number in cut:
                    marks.append((size, int(Flag.CUT)))
                size += len(event)
                data.append(event)
                ends.append(size)
                origin_of.append(at)
            if size < CHUNK_BYTES and i < last:
                continue
            if data:
                several = origin_of if len(origins) > 1 else None
                yield (
                    Chunk(
                        settings.name, settings.codec, now, b"".join(data), ends, tuple(origins), several, tuple(marks)
                    ),
                    offset + 1,
                )
            else:
                yield None, offset + 1
            data = []
            ends = array("I")
            origin_of = array("H")
            marks = []
            origins = {}
            size = 0
