"""An opened lookup: what SQL, Sigma rules, enrichment and Spark ask.

    with Lookup.open(path) as assets:
        assets.get("ip", "10.1.2.3")          the row, or None
        assets.all("ip", "10.1.2.3")          every row: all networks around an address, all domains above one
        assets.contains("ip", "10.1.2.3")

Rows are tuples in the order of ``columns``; values are str, int, float, bool or None, times are UTC microseconds as
int. A key that cannot be one of its index (``keys.py``) is in no table: None, never an error. ``at`` (UTC microseconds)
takes only rows that hold then, in tables with times of validity.

The file is mapped: processes share its pages, and one that is replaced (written beside, renamed) stays readable for who
has it open; one that is cut off ends who reads it, so the agent maps what nobody else writes (``copies.py``). A lookup
is immutable; ``version`` names its contents. Safe to use from several threads, until ``close``.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from vedette.engine import kernel
from vedette.lookup import probe
from vedette.lookup.keys import canonical
from vedette.lookup.layout import Column, Header, Index, LookupRefused, damaged, parse
from vedette.lookup.rows import Rows
from vedette.plan.ir import fold, text
from vedette.system.folders import at_once

Row = tuple[Any, ...]


class _Probe(Protocol):
    def find(self, key: bytes) -> Iterator[Row]: ...


class Lookup:
    """Made by ``open``."""

    def __init__(self, path: Path | None, data: mmap.mmap, file: int | None) -> None:
        self._data = data
        self.path = path
        """None: it is in memory only."""
        header, self._base, self.version = parse(data)
        self.header: Header = header
        self.name = header.name
        self.columns: tuple[Column, ...] = header.columns
        self.indexes: tuple[Index, ...] = header.indexes
        self._numbers = _numbers(header.indexes)
        self._view = memoryview(data)
        self._python: list[_Probe] | None = None
        self._rows: Rows | None = None
        self._native: Any = None if file is None else _native(file, header, self._base)
        if self._native is None:
            self._open_python()

    @classmethod
    def open(cls, path: Path, *, native: bool = True) -> Lookup:
        """Map ``path``. Raises OSError, and LookupRefused, which says what is wrong with the file."""
        with open(path, "rb", opener=at_once) as file:
            return cls._mapped(path, file.fileno(), native)

    @classmethod
    def of(cls, data: bytes, name: str) -> Lookup:
        """A lookup in memory, as a bundle carries it. Raises as ``open``."""
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            return cls._mapped(None, descriptor, True)
        finally:
            os.close(descriptor)

    @classmethod
    def _mapped(cls, path: Path | None, file: int, native: bool) -> Lookup:
        try:
            data = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise LookupRefused("it is empty: copy it again") from None
        try:
            with suppress(OSError):
                data.madvise(mmap.MADV_WILLNEED)
            return cls(path, data, file if native else None)
        except ValueError:
            with suppress(BufferError):
                data.close()
            raise

    def __enter__(self) -> Lookup:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self.header.rows

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self._data)

    def close(self) -> None:
        """Let go of the file. The lookup answers nothing any more."""
        self._python = self._rows = self._native = None
        with suppress(BufferError):  # a row that is being read; its end lets go
            self._view.release()
            self._data.close()

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return self._data[:]

    @property
    def native(self) -> bool:
        """Whether the kernel answers."""
        return self._native is not None

    def index(self, name: str) -> Index:
        """Raises KeyError when there is none of that name."""
        return self.indexes[self._numbers[name]]

    @property
    def timed(self) -> bool:
        """Whether its rows have times of validity."""
        return self.header.valid is not None

    def get(self, index: str, key: object, at: int | None = None) -> Row | None:
        """The row of ``key``: the longest prefix, the narrowest range, the longest domain. Raises KeyError for an
        index that is none."""
        number = self._numbers[index]
        if at is not None and self.header.valid is not None:
            return next(self._holding(self.all(index, key), at), None)
        if self._native is not None:
            row: Row | None = self._native.get(number, self._asked(number, key))
            return row
        return next(self._find(number, key), None)

    def all(self, index: str, key: object, at: int | None = None) -> list[Row]:
        """Every row of ``key``, in the order in which ``get`` would prefer them."""
        number = self._numbers[index]
        if self._native is not None:
            rows: list[Row] = self._native.all(number, self._asked(number, key))
        else:
            rows = list(self._find(number, key))
        return rows if at is None or self.header.valid is None else list(self._holding(rows, at))

    def contains(self, index: str, key: object, at: int | None = None) -> bool:
        number = self._numbers[index]
        if at is not None and self.header.valid is not None:
            return self.get(index, key, at) is not None
        if self._native is not None:
            return bool(self._native.contains(number, self._asked(number, key)))
        return next(self._find(number, key), None) is not None

    def tester(self, index: str) -> Callable[[object], bool]:
        """``contains`` of one index, for who asks often."""
        number, native = self._numbers[index], self._native
        if native is None:
            return lambda key: next(self._find(number, key), None) is not None
        return lambda key: bool(native.contains(number, self._asked(number, key)))

    def mapped(self, index: str) -> tuple[Any, int] | None:
        """The kernel's view and the index's number in it, for who asks natively; None where there is no kernel."""
        return None if self._native is None else (self._native, self._numbers[index])

    def rows(self) -> Iterator[Row]:
        """All rows, in the file's order. Raises ValueError for a table that keeps keys alone."""
        if "records" not in self.header.sections:
            raise ValueError(f"lookup {self.name} keeps its keys only, in a form that cannot be listed")
        self._open_python()
        assert self._rows is not None
        return iter(self._rows)

    def words(self) -> dict[str, list[str]]:
        """By column the words of its dictionary, in their order; columns without one are left out."""
        self._open_python()
        if self._rows is None:
            return {}
        return {
            column.name: self._rows.words(store)
            for column, store in zip(self.columns, self.header.stores, strict=True)
            if store["code"] == "d"
        }

    def damaged(self) -> str | None:
        """What does not have the bytes it was built with, or None. Reads the whole file."""
        return damaged(self._data, self.header, self._base)

    def _asked(self, number: int, key: object) -> object:
        """``key`` as the kernel takes it: it folds ASCII, knows no Unicode, and prints no numbers."""
        kind = self.indexes[number].kind
        if kind in ("text", "nocase", "domain"):
            if type(key) is not str:
                key = text(key)
            if key is not None and kind != "text" and not key.isascii():
                return fold(key).encode("utf-8", "surrogatepass")
        return key if type(key) is not str or key.isascii() else key.encode("utf-8", "surrogatepass")

    def _find(self, number: int, key: object) -> Iterator[Row]:
        if self._python is None:
            raise ValueError(f"lookup {self.name} is closed")
        asked = canonical(self.indexes[number].kind, key)
        return iter(()) if asked is None else self._python[number].find(asked)

    def _holding(self, rows: list[Row], at: int) -> Iterator[Row]:
        assert self.header.valid is not None
        since, until = self.header.valid
        for row in rows:
            if (row[since] is None or row[since] <= at) and (row[until] is None or at < row[until]):
                yield row

    def _part(self, name: str) -> memoryview:
        at, size, _ = self.header.sections[name]
        return self._view[self._base + at : self._base + at + size]

    def _open_python(self) -> None:
        if self._python is not None:
            return
        try:
            rows = Rows(self.header, self._part) if "records" in self.header.sections else None
            self._rows = rows
            self._python = [
                _probe(index, layout, self._part, rows, self.columns)
                for index, layout in zip(self.indexes, self.header.layouts, strict=True)
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise LookupRefused(f"its parts do not fit together ({error}): build it again") from error


def _numbers(indexes: tuple[Index, ...]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for number, index in enumerate(indexes):
        numbers.setdefault(index.name, number)
        numbers.setdefault(f"{'..'.join(index.columns)}:{index.kind}", number)
        numbers.setdefault("..".join(index.columns), number)
    return numbers


def _probe(
    index: Index, layout: dict[str, Any], part: probe.Part, rows: Rows | None, columns: tuple[Column, ...]
) -> _Probe:
    match layout["layout"]:
        case "hash" if rows is not None:
            number = [column.name for column in columns].index(index.columns[0])
            return probe.Hashed(layout, part, index.kind, number, rows)
        case "ranges" if rows is not None:
            return probe.Ranges(layout, part, rows)
        case "sorted":
            return probe.Sorted(layout, part, index.kind)
        case "fst":
            return probe.Automaton(layout, part, index.kind)
    raise ValueError(f"an index of the unknown layout {layout['layout']}")


def _native(file: int, header: Header, base: int) -> Any:
    """The kernel's view of the open file, or None where there is no kernel."""
    if kernel.LOADED is None:
        return None
    none = (0, 0)

    def section(name: str | None) -> tuple[int, int]:
        if name is None:
            return none
        at, size, _ = header.sections[name]
        return base + at, size

    try:
        stores = [
            {
                "code": store["code"],
                "width": store["width"],
                "at": store.get("at", 0),
                "base": store.get("base", 0),
                "kind": column.type,
                "ends": section(store.get("ends")),
                "texts": section(store.get("texts")),
            }
            for store, column in zip(header.stores, header.columns, strict=True)
            if store
        ]
        names = [column.name for column in header.columns]
        indexes = [
            {
                "kind": index.kind,
                "layout": layout["layout"],
                "column": names.index(index.columns[0]),
                "bits": layout.get("bits", 0),
                "seed": layout.get("seed", 0),
                "filter": (layout["filter"], section(layout["filter"]["part"])) if "filter" in layout else None,
                "dots": tuple(layout.get("dots", none)),
                "dir": section(layout.get("dir")),
                "fps": section(layout.get("fps")),
                "refs": section(layout["refs"]) if layout.get("refs") else None,
                "parents": section(layout.get("parents")),
                "fst": section(layout.get("fst")),
                "parts": [
                    (p["width"], p["bits"], section(p["dir"]), section(p["lows"]), section(p.get("nodes")))
                    for p in layout.get("parts", ())
                ],
            }
            for index, layout in zip(header.indexes, header.layouts, strict=True)
        ]
        records, groups = (section(name if name in header.sections else None) for name in ("records", "groups"))
        return kernel.LOADED.Table(file, stores, indexes, records, groups, header.width, header.symbols)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise LookupRefused(f"its parts do not fit together ({error}): build it again") from error
