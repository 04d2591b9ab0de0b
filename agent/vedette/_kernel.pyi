"""What the native kernel gives: built from ``agent/kernel/``, whose documentation comments say more."""

from array import array
from typing import Final, final

@final
class Lines:
    EVERY: Final[int]
    def __new__(
        cls, library: str, literals: bytes, rules: int, says: list[list[int]], escapes: list[int], single: bytes
    ) -> Lines: ...
    def within(self, rules: bytes) -> int: ...
    def candidates(
        self, data: bytes, ends: array[int] | None, within: int, apart: bool, runs: array[int] | None = None
    ) -> bytes: ...
    @property
    def panics(self) -> int: ...
