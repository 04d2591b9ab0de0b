"""The input of a build: rows by column with their lines, and the keys of the indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from vedette.lookup.layout import KINDS


class BuildRefused(ValueError):
    """The table cannot be a lookup; the text names source, line and column, and says what to do."""


class Key(NamedTuple):
    """Of an index: one column, or the lowest and highest of a range."""

    columns: tuple[str, ...]
    kind: str

    @classmethod
    def parse(cls, text: str) -> Key:
        """``COLUMN``, ``COLUMN:KIND`` or ``LOW..HIGH:range``. Raises ValueError."""
        column, colon, kind = text.rpartition(":")
        if not colon or kind not in KINDS:
            if colon and kind.isalpha():
                raise ValueError(f"{kind!r} is no kind of key: expects one of {', '.join(KINDS)}")
            column, kind = text, "text"
        low, dots, high = column.partition("..")
        columns = (low, high) if dots else (column,)
        if not all(columns) or (len(columns) == 2) != (kind == "range"):
            raise ValueError(f"{text!r} is no key: expects COLUMN:KIND, or LOW..HIGH:range for two columns of numbers")
        return cls(columns, kind)

    def __str__(self) -> str:
        return f"{'..'.join(self.columns)}:{self.kind}"


class Batch(NamedTuple):
    """Some rows: by column their values (texts where the source has no types), and the line of each row."""

    columns: Sequence[Sequence[Any]]
    lines: Sequence[int]
