"""A column of a table that is being built, in compact arrays, and how the file stores it."""

from __future__ import annotations

import ipaddress
import re
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from vedette.lookup.batch import BuildRefused

_WORDS = 65_536
"""Different texts up to which a column keeps a dictionary, and one of eight rows at most."""
_ARENA = (1 << 32) - 1
_HEX = re.compile(r"(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})")
NULL = -(1 << 63)


class Texts:
    """A column of texts: by a dictionary while few are different, else one behind the other."""

    def __init__(self, form: str | None, words: Iterable[str] = ()) -> None:
        """``words``: of the dictionary, before any row has them."""
        self.form = form
        """``text``, ``nocase``, ``domain`` or ``ip`` of a key: made canonical, never a dictionary."""
        numbers = {word: number for number, word in enumerate((None, *words))}
        self.words: dict[str | None, int] | None = numbers if form is None else None
        self.ids = array("I")
        self.arena = bytearray()
        self.ends = array("I")
        self.there = bytearray()

    def add(self, values: Sequence[str | None]) -> None:
        if self.words is not None:
            words = self.words
            for value in dict.fromkeys(values):
                words.setdefault(value, len(words))
            self.ids.extend([words[value] for value in values])
            if len(words) > _WORDS and len(words) * 8 > len(self.ids):
                self._spread()
            return
        self._append(values)

    def _append(self, values: Sequence[str | None]) -> None:
        if None in values:
            self.there += bytes(value is not None for value in values)
        else:
            self.there += b"\1" * len(values)
        texts = [value or "" for value in values]
        joined = "".join(texts)
        if joined.isascii():
            self.arena += joined.encode()
            sizes: Iterable[int] = map(len, texts)
        else:
            encoded = [value.encode("utf-8", "surrogatepass") for value in texts]
            self.arena += b"".join(encoded)
            sizes = map(len, encoded)
        ends = accumulate(sizes, initial=self.ends[-1] if self.ends else 0)
        next(ends)
        if len(self.arena) > _ARENA:
            raise BuildRefused("a column has more than 4 GiB of texts: make several lookups of the table")
        self.ends.extend(ends)

    def add_packed(self, arena: bytes, ends: Sequence[int]) -> None:
        """Addresses, as their bytes."""
        before = len(self.arena)
        self.arena += arena
        self.ends.extend([before + end for end in ends] if before else ends)
        self.there += b"\1" * len(ends)

    def _spread(self) -> None:
        """From the dictionary to texts one behind the other."""
        assert self.words is not None
        names = list(self.words)
        self.words = None
        for start in range(0, len(self.ids), 8192):
            self._append([names[number] for number in self.ids[start : start + 8192]])
        self.ids = array("I")

    def settle(self) -> None:
        """A dictionary that is nearly as long as the column saves nothing."""
        if self.words is not None and len(self.words) > 256 and len(self.words) * 4 > len(self.ids):
            self._spread()

    def store(self) -> dict[str, Any]:
        if self.words is not None:
            width = max(1, ((len(self.words) - 1).bit_length() + 7) // 8)
            return {"code": "d", "width": width, "data": self.ids}
        size = len(self.there)
        if self.form == "ip" and len(self.arena) in (4 * size, 16 * size) and self.even():
            return {"code": "a", "width": len(self.arena) // size, "data": self.arena}
        if self.form == "ip":
            shown = Texts("text")
            start = 0
            for end in self.ends:
                shown._append([str(ipaddress.ip_address(bytes(self.arena[start:end])))])
                start = end
            return shown.store()
        if (digits := self.digits()) is not None:
            return {"code": "x", "width": digits, "data": self.from_hex()}
        return {"code": "t", "width": 0, "data": self.arena, "ends": self.ends, "there": self.there}

    def even(self) -> bool:
        width = len(self.arena) // max(1, len(self.there))
        return len(self.ends) > 0 and all(map(int.__eq__, self.ends, range(width, len(self.arena) + 1, width)))

    def digits(self) -> int | None:
        """The bytes of each text, where all are digests of one length in lower-case hex digits."""
        size = len(self.there)
        if not size or 0 in self.there or len(self.arena) % size or not self.even():
            return None
        width = len(self.arena) // size
        if not _HEX.fullmatch(bytes(self.arena[:width]).decode("utf-8", "replace")):
            return None
        fits = re.fullmatch(rb"[0-9a-f]*", self.arena)
        return width // 2 if fits else None

    def from_hex(self) -> bytearray:
        """The bytes of digests; their digits are let go of."""
        raw = bytearray()
        for start in range(0, len(self.arena), 1 << 24):
            raw += bytes.fromhex(self.arena[start : start + (1 << 24)].decode())
        self.arena = bytearray()
        return raw


class Numbers:
    """A column of integers, times, booleans (``NULL`` is null) or floats (NaN is)."""

    def __init__(self, kind: str) -> None:
        self.data: array[Any] = array("d" if kind == "float" else "q")
        self.kind = kind

    def add(self, values: Sequence[Any]) -> None:
        null = float("nan") if self.kind == "float" else NULL
        self.data.extend([null if value is None else value for value in values] if None in values else values)

    def store(self) -> dict[str, Any]:
        if self.kind == "float":
            return {"code": "f", "width": 8, "data": self.data}
        present = [number for number in self.data if number != NULL] if NULL in self.data else self.data
        base, most = (min(present), max(present)) if present else (0, 0)
        width = max(1, ((most - base + 1).bit_length() + 7) // 8)
        if width > 8:
            raise BuildRefused("a column of integers spans 64 bits: make it one of text")
        codes = array("Q", [0 if number == NULL else number - base + 1 for number in self.data])
        return {"code": "b", "width": width, "base": base, "data": codes}


def integers(data: bytes) -> array[int]:
    numbers = array("I")
    numbers.frombytes(data)
    return numbers
