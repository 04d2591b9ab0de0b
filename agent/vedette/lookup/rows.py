"""The rows of a table: one record each, its columns of fixed width first, then its texts.

A store says how a column lies in a record:

    b    an integer, a time or a boolean: ``width`` bytes, ``base`` less, plus one; zero is null
    f    8 bytes; NaN is null
    d    ``width`` bytes: which text of the column's dictionary, from one; zero is null
    a    an address: 4 or 16 bytes, highest first; none is null
    x    a text of lower-case hex digits: ``width`` bytes; none is null
    t    a text: its size plus one in LEB128 (zero is null), then that many bytes of codes

A code is the number of a symbol of the header; 255 stands before a byte that is itself (FSST: Boncz, Neumann,
Leis, VLDB 2020). Without symbols the bytes are the text. Records without texts are of one width and found by their
number; else ``groups`` holds the place of every 16th.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Iterator
from typing import Any

from vedette.lookup.layout import Header

GROUP = 16
"""Rows between two places in ``groups``."""


class Rows:
    """Plain Python over the mapped bytes. ``part`` gives a section by name."""

    def __init__(self, header: Header, part: Callable[[str], memoryview]) -> None:
        self._stores, self._width, self._count = header.stores, header.width, header.rows
        self._types = [column.type for column in header.columns]
        self._symbols = header.symbols
        self._records = part("records")
        self._texts = any(store["code"] == "t" for store in self._stores)
        self._groups = part("groups").cast("Q") if self._texts else None
        self._ends = {s["ends"]: part(s["ends"]).cast("I") for s in self._stores if s["code"] == "d"}
        self._words = {s["texts"]: part(s["texts"]) for s in self._stores if s["code"] == "d"}

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return map(self.row, range(self._count))

    def row(self, number: int) -> tuple[Any, ...]:
        at = self._place(number)
        texts = at + self._width
        values = []
        for store, kind in zip(self._stores, self._types, strict=True):
            if store["code"] == "t":
                value, texts = self._text(texts)
                values.append(value)
            else:
                values.append(self._fixed(store, kind, at + store["at"]))
        return tuple(values)

    def words(self, store: dict[str, Any]) -> list[str]:
        """The dictionary of a column."""
        texts, ends = self._words[store["texts"]], self._ends[store["ends"]]
        starts = [0, *ends]
        return [bytes(texts[at:end]).decode("utf-8", "surrogatepass") for at, end in zip(starts, ends, strict=False)]

    def _place(self, number: int) -> int:
        if self._groups is None:
            return number * self._width
        at = self._groups[number // GROUP]
        for _ in range(number % GROUP):
            at += self._width
            for store in self._stores:
                if store["code"] == "t":
                    size, at = self._size(at)
                    at += max(size, 0)
        return at

    def _size(self, at: int) -> tuple[int, int]:
        """The size of the text at ``at`` (-1: null) and where its codes begin."""
        number = shift = 0
        while True:
            byte = self._records[at]
            at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number - 1, at
            shift += 7

    def _text(self, at: int) -> tuple[str | None, int]:
        size, at = self._size(at)
        if size < 0:
            return None, at
        codes = bytes(self._records[at : at + size])
        if self._symbols:
            codes = self._plain(codes)
        return codes.decode("utf-8", "surrogatepass"), at + size

    def _plain(self, codes: bytes) -> bytes:
        out, literal = [], False
        for code in codes:
            if literal:
                out.append(bytes([code]))
                literal = False
            elif code == 255:
                literal = True
            else:
                out.append(self._symbols[code])
        return b"".join(out)

    def _fixed(self, store: dict[str, Any], kind: str, at: int) -> Any:
        code = store["code"]
        if code == "f":
            (number,) = struct.unpack_from("<d", self._records, at)
            return None if number != number else number
        raw = bytes(self._records[at : at + store["width"]])
        if code == "a":
            return ".".join(map(str, raw)) if len(raw) == 4 else str(ipaddress.IPv6Address(raw))
        if code == "x":
            return raw.hex()
        value = int.from_bytes(raw, "little")
        if not value:
            return None
        if code == "d":
            ends = self._ends[store["ends"]]
            start = ends[value - 2] if value > 1 else 0
            return bytes(self._words[store["texts"]][start : ends[value - 1]]).decode("utf-8", "surrogatepass")
        number = value - 1 + store["base"]
        return bool(number) if kind == "bool" else number
