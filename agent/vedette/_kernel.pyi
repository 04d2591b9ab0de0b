"""What the native kernel gives: built from ``agent/kernel/``, whose documentation comments say more."""

from array import array
from typing import Any, Final, final

@final
class Events:
    def __new__(
        cls,
        module: str,
        folding: list[tuple[str, str]],
        predicates: list[tuple[int, int, int]],
        guesses: list[float],
        groups: list[dict[str, Any]],
        keywords: int | None,
        rules: list[Any],
    ) -> Events: ...
    def decide(
        self, data: bytes, ends: bytes | None, view: int, again: bool
    ) -> tuple[bytes, bytes, list[tuple[int, int]]]: ...
    def learn(self, event: bytes, view: int, lesson: Lesson | None) -> bool | None: ...
    def hits(self, group: int, cased: bool, data: bytes) -> list[tuple[int, int]]: ...
    def counts(self) -> tuple[int, int, int, int, int]: ...

Lesson = tuple[list[list[int]], list[int], list[int], list[int], list[tuple[int, bytes]], int]

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

def holds(data: bytes, text: bytes) -> bool: ...
