"""Entries of a group's events, in the order of their times: what is read of a window to measure it.

An entry is three integers in one array: event time, raw offset, and its mark (bit 0: the condition held at it; bits 8
to 15: its slot; from bit 16: the event's length in bytes). Values of the correlation's field stand beside, index by
index, where needed. ``windows.py`` changes them.
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

HELD = 1
"""The bit of a mark: the condition held at the entry."""


class Arrival(NamedTuple):
    """An event on its way into groups: whose it is (``clock.py``), its time, and where it lies in the log."""

    lane: int
    time: int
    offset: int
    length: int


def meta(slot: int, length: int) -> int:
    """Return the mark of an entry at which the condition has not held yet."""
    return length << 16 | slot << 8


class Entries:
    """Read by index, from 0."""

    __slots__ = ("entries", "values")

    def __init__(self) -> None:
        self.entries = array("q")
        self.values: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.entries) // 3

    def time(self, i: int) -> int:
        return self.entries[3 * i]

    def offset(self, i: int) -> int:
        return self.entries[3 * i + 1]

    def slot(self, i: int) -> int:
        return self.entries[3 * i + 2] >> 8 & 0xFF

    def slots(self, start: int, stop: int) -> list[int]:
        """Return those of the entries ``start`` to ``stop`` (exclusive)."""
        return [mark >> 8 & 0xFF for mark in self.entries[3 * start + 2 : 3 * stop : 3]]

    def length(self, i: int) -> int:
        return self.entries[3 * i + 2] >> 16

    def held(self, i: int) -> bool:
        return bool(self.entries[3 * i + 2] & HELD)
