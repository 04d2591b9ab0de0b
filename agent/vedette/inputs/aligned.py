"""Records of several partitions in the order of their times, so that none makes another's late. Pure; time is given.

A partition is **behind** from its beginning until its end was reached. While one that is behind has no record here,
what the others have waits, PATIENCE and HELD_BYTES at most; then the oldest go, of all partitions those within SLICE.
Within a partition the order stays. A record without a time (-1) goes at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Partition = TypeVar("Partition", bound=Hashable)
Record = TypeVar("Record")

SLICE = 1000
"""Milliseconds of the records' times that go together: smaller ones make smaller frames of the raw log."""
HELD_BYTES = 8 << 20
RECORD_BYTES = 256
"""What a record takes besides its value."""
PATIENCE = 5.0
"""Seconds that a partition without a record is waited for."""


class Aligned(Generic[Partition, Record]):
    """Records that wait, by partition."""

    def __init__(self) -> None:
        self._records: dict[Partition, deque[tuple[int, int, Record]]] = {}
        """Time, bytes and record; never empty."""
        self._behind: set[Partition] = set()
        self._bytes = 0
        self._waits_since: float | None = None

    def __bool__(self) -> bool:
        return bool(self._records)

    def begin(self, partition: Partition) -> None:
        """It may be behind."""
        self._behind.add(partition)

    def reached_end(self, partition: Partition) -> None:
        self._behind.discard(partition)

    def drop(self, partition: Partition) -> None:
        """It is another's now, and what waits of it too."""
        self._behind.discard(partition)
        self._bytes -= sum(size for _, size, _ in self._records.pop(partition, ()))

    def add(self, partition: Partition, time: int, size: int, record: Record) -> None:
        """``time``: milliseconds, none that is still to come; ``size``: bytes of its value."""
        size += RECORD_BYTES
        self._records.setdefault(partition, deque()).append((time, size, record))
        self._bytes += size

    def take(self, now: float) -> dict[Partition, list[Record]]:
        """Return the records that go next; ``now``: seconds of a steady clock."""
        missing = self._behind - self._records.keys()
        if not self._records:
            return {}
        if missing and self._bytes < HELD_BYTES:
            if self._waits_since is None:
                self._waits_since = now
            if now < self._waits_since + PATIENCE:
                return {}
            self._behind -= missing
        self._waits_since = None
        until = min(records[0][0] for records in self._records.values()) + SLICE
        alone = len(self._records) == 1 and not missing
        taken: dict[Partition, list[Record]] = {}
        for partition, records in [*self._records.items()]:
            while records and (alone or records[0][0] <= until):
                _, size, record = records.popleft()
                self._bytes -= size
                taken.setdefault(partition, []).append(record)
            if not records:
                del self._records[partition]
        return taken
