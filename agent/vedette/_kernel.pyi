"""What the native kernel gives: built from ``agent/kernel/``, whose documentation comments say more."""

from array import array
from collections.abc import Callable, Sequence
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
        texts: dict[str, Any],
        rules: list[tuple[Any, list[Any]]],
        shown: tuple[list[str], list[list[int]]],
    ) -> Events: ...
    def view(self, reads: int, rules: list[int], always: list[int]) -> int: ...
    def decide(
        self, data: bytes, ends: array[int] | None, runs: bytes | None, view: int, again: bool, common: object
    ) -> tuple[
        bytes, bytes, list[tuple[int, int]], tuple[list[tuple[int, int]], list[Any], list[str | None]] | None
    ]: ...
    def sift(
        self, data: bytes, ends: array[int] | None, runs: bytes | None, found: bytes, view: int, apart: bool
    ) -> tuple[bytes, list[tuple[int, int]]]: ...
    def learn(self, event: bytes, view: int, inspected: list[int], lesson: Lesson | None) -> None: ...
    def distrust(self, event: bytes) -> bool: ...
    def columns(self, event: bytes, view: int) -> tuple[Any, ...] | None: ...
    def shown(self, event: bytes, view: int, rules: Sequence[int]) -> dict[str, Any] | None: ...
    def hits(self, group: int, cased: bool, data: bytes) -> list[tuple[int, int]]: ...
    def counts(self) -> tuple[int, int, int, int, int]: ...

Lesson = tuple[
    list[tuple[int, list[int]]],
    list[tuple[int, int, list[tuple[int, bool, bool]]]],
    list[tuple[int, int, bytes]],
    list[int],
    list[int],
    bytes,
    int,
    list[int],
    list[tuple[int, int]],
]

@final
class Lines:
    EVERY: Final[int]
    def __new__(
        cls, library: str, literals: bytes, rules: int, says: list[list[int]], escapes: list[int], single: bytes
    ) -> Lines: ...
    def within(self, rules: bytes) -> int: ...
    def candidates(
        self, data: bytes, ends: array[int] | None, within: int, apart: bool, runs: bytes | None = None
    ) -> bytes: ...
    @property
    def panics(self) -> int: ...

@final
class Otlp:
    def __new__(
        cls, ecs: dict[str, str], levels: list[str], severities: dict[str, int], of_text: Callable[[str], bytes]
    ) -> Otlp: ...
    def records(self, body: bytes, json: bool) -> Records: ...

@final
class Records:
    def take(self) -> tuple[bytes, bytes] | None: ...
    @property
    def whole(self) -> bool: ...

def holds(data: bytes, text: bytes) -> bool: ...

_Bytes = bytes | bytearray | memoryview
_Column = tuple[str, int, _Bytes, _Bytes | None, _Bytes | None]
_Section = tuple[int, int]

def lookup_hash(
    arena: _Bytes, ends: _Bytes | None, width: int, seed: int, bits: int, unique: bool
) -> tuple[bytes, bytes, bytes, list[tuple[int, int]]]: ...
def lookup_points(
    arena: _Bytes, width: int, bits: int, unique: bool
) -> tuple[bytes, bytes, bytes, list[tuple[int, int]]]: ...
def lookup_automaton(arena: _Bytes, ends: _Bytes) -> tuple[bytes, list[tuple[int, int]], int]: ...
def lookup_filter(
    arena: _Bytes, ends: _Bytes | None, width: int, seed: int, shape: dict[str, int], size: int
) -> tuple[bytes, tuple[int, int]]: ...
def lookup_addresses(given: list[str]) -> tuple[bytes, bytes, int | None]: ...
def lookup_spread(given: _Bytes) -> bytes: ...
def lookup_symbols(columns: list[_Column]) -> list[bytes]: ...
def lookup_records(columns: list[_Column], order: _Bytes, base: int, symbols: list[bytes]) -> tuple[bytes, bytes]: ...

@final
class Table:
    def __new__(
        cls,
        file: int,
        stores: list[dict[str, Any]],
        indexes: list[dict[str, Any]],
        records: _Section,
        groups: _Section,
        width: int,
        symbols: list[bytes],
    ) -> Table: ...
    def get(self, index: int, key: object) -> tuple[Any, ...] | None: ...
    def all(self, index: int, key: object) -> list[tuple[Any, ...]]: ...
    def contains(self, index: int, key: object) -> bool: ...
    def holds(self, index: int, keys: _Bytes, ends: _Bytes) -> bytes: ...
