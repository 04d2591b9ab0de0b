"""The filter before an index: most keys that are asked for are in no table, and such a key costs one read from memory.

Lines of 64 bytes; a key sets ``tests`` bits of one of them, so that a key of which a bit is not set is in no table (a
Bloom filter in blocks: Putze, Sanders, Singler, WEA 2007). A key's hash of 64 bits, multiplied by the number of lines,
gives the line in the upper 64 bits; of the lower ones each 9, from the highest on, name a bit of the line: bit ``b`` is
bit ``b % 8`` of byte ``b // 8``. Python and the kernel agree to the bit (``agent/kernel/src/lookup_filter.rs``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

LINE = 64
_NAME = 9
_MAX_TESTS = 64 // _NAME


class Shape(NamedTuple):
    lines: int
    tests: int

    @property
    def size(self) -> int:
        return self.lines * LINE

    def bits(self, hash_: int) -> tuple[int, Iterator[int]]:
        """The line of a hash, and its bits there."""
        line, names = divmod(hash_ * self.lines, 1 << 64)
        return line, (names >> (64 - _NAME * (1 + n)) & (1 << _NAME) - 1 for n in range(self.tests))


def shape(count: int, bits: float, earlier: Shape | None = None) -> Shape:
    """For ``count`` keys, of ``bits`` each. ``earlier`` where it does nearly as well: then the bits of keys that stay
    keep their places, and the delta of the two versions is small."""
    fresh = Shape(max(1, round(count * bits / (LINE * 8))), min(_MAX_TESTS, max(1, round(bits * 0.6))))
    if earlier is not None and earlier.tests == fresh.tests and 0.97 <= earlier.lines / fresh.lines <= 1.03:
        return earlier
    return fresh


def made(shape: Shape, hashes: Iterable[int]) -> bytes:
    """The filter of keys with these hashes."""
    lines = [0] * shape.lines
    for hash_ in hashes:
        line, bits = shape.bits(hash_)
        for bit in bits:
            lines[line] |= 1 << bit
    return b"".join(line.to_bytes(LINE, "little") for line in lines)


class Filter:
    """As it lies in ``data``. Raises ValueError for one that cannot be."""

    def __init__(self, layout: Mapping[str, Any], data: memoryview) -> None:
        self._shape, self._data = Shape(layout["lines"], layout["tests"]), data
        if len(data) != self._shape.size or not data or not 1 <= self._shape.tests <= _MAX_TESTS:
            raise ValueError("a filter of another size")

    def may_hold(self, hash_: int) -> bool:
        """Whether a key with this hash may be there; never False for one that is."""
        line, bits = self._shape.bits(hash_)
        return all(self._data[line * LINE + bit // 8] >> bit % 8 & 1 for bit in bits)
