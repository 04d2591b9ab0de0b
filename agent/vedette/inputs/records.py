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
from vedette.decode.codecs import Kind
from vedette.inputs.batches import joined, split
from vedette.inputs.framing import Run, run_of
from vedette.inputs.settings import KafkaInput
from vedette.model.event import CHUNK_BYTES, Chunk

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
        self._records: list[tuple[int, str, Run | None]] = []

    def add(self, message: Any, kinds: frozenset[Kind], key: bool, headers: frozenset[str]) -> None:
        payload = message.value()
        run = None
        if payload is not None:
            run = (split(payload, Kind.SYSLOG in kinds) if Kind.JSON in kinds else None) or run_of([payload or b"\n"])
        chosen = self._chosen(message, headers) if headers else []
        origin = kafka.origin(*self.place, message.key() if key else None, chosen)
        self._records.append((message.offset(), origin, run))

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
        runs = list[Run]()
        origin_of = array("H")
        origins: dict[str, int] = {}
        size = 0
        last = len(self._records) - 1
        for i, (offset, origin, run) in enumerate(self._records):
            if run is not None:
                runs.append(run)
                size += len(run.data)
                origin_of.extend(array("H", [origins.setdefault(origin, len(origins))]) * len(run.ends or ()))
            if size < CHUNK_BYTES and i < last:
                continue
            chunk = None
            if (whole := joined(runs)) is not None:
                several = origin_of if len(origins) > 1 else None
                chunk = Chunk(
                    settings.name, settings.codec, now, whole.data, whole.ends, tuple(origins), several, whole.marks
                )
            yield chunk, offset + 1
            runs = []
            origin_of = array("H")
            origins = {}
            size = 0
