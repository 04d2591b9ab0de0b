"""A table to a lookup's file: columns are gathered in compact arrays, indexes built from them, the file written whole.

With the kernel ten million rows take minutes less than an hour and stay below 1.5 GB (``docs/lookups.md``); without it
a table may have ``PLAIN_ROWS`` rows. A bad row ends the build by ``BuildRefused``, which names source, line and column.
"""

from __future__ import annotations

import io
import ipaddress
import os
import re
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from vedette.engine import kernel
from vedette.lookup import pack
from vedette.lookup.earlier import NOTHING, Earlier, earlier
from vedette.lookup.keys import address, integer, ordered, real, spread
from vedette.lookup.layout import KINDS, NAME, TYPES, Column, Header, Index, Writer
from vedette.lookup.pack import Keys
from vedette.model.times import iso_time
from vedette.plan.ir import fold
from vedette.system.durable import sync_path

PLAIN_ROWS = 1_000_000
"""Rows of a table that is built without the kernel."""
_SLICE = 1 << 20
"""Rows written at a time: a multiple of ``rows.GROUP``."""
MAX_ROWS = (1 << 32) - 2
_WORDS = 65_536
"""Different texts up to which a column keeps a dictionary, and one of eight rows at most."""
_ARENA = (1 << 32) - 1
_HEX = re.compile(r"(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})")
_NULL = -(1 << 63)
_END = 1 << 63
"""Of a row that holds for ever."""
DUPLICATES = ("refuse", "keep", "first")


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


class Built(NamedTuple):
    version: str
    rows: int
    size: int
    indexes: tuple[str, ...]
    """Each with its layout, to show."""


def build(
    target: Path,
    columns: Sequence[Column],
    keys: Sequence[Key],
    batches: Iterable[Batch],
    *,
    created: int,
    name: str = "",
    source: str = "",
    valid: tuple[str, str] | None = None,
    duplicates: str = "refuse",
    previous: Path | None = None,
    native: bool = True,
) -> Built:
    """Write the lookup ``target``; what was there is replaced by rename once the new one is whole.

    ``previous``: the lookup's earlier version (None: what is at ``target``, if that is one), whose arrangement is kept,
    so that rows which did not change are the same bytes (``earlier.py``).

    ``name``: what rules call it; else that of the file. ``valid``: the columns of the times from which and until which
    a row holds. ``duplicates``: of a key that several rows have: ``refuse`` it, ``keep`` all rows (``Lookup.all`` gives
    them), or keep the ``first``. Raises BuildRefused and OSError.
    """
    name = name or target.name.partition(".")[0]
    library = kernel.LOADED if native else None
    before = earlier(previous or target, columns, keys, library)
    table = _gathered(name, columns, keys, batches, source or str(target), valid, duplicates, library, before)
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with temporary.open("wb") as file:
            writer = Writer(file)
            header = _Assembly(table, writer, library, created, duplicates, valid).header(name)
            version = writer.finish(header)
            file.flush()
            os.fsync(file.fileno())
        size = temporary.stat().st_size
        temporary.rename(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_path(target.parent)
    shown = tuple(f"{i.name} {i.kind} ({x['layout']})" for i, x in zip(header.indexes, header.layouts, strict=True))
    return Built(version, header.rows, size, shown)


def of_keys(name: str, kind: str, keys: Sequence[str]) -> bytes:
    """A lookup of nothing but the texts ``keys``, once each, in its column ``value``: the same bytes for the same keys.

    Raises BuildRefused.
    """
    library, duplicates = kernel.LOADED, "keep" if kind == "cidr" else "first"
    batches = [Batch([keys], range(1, len(keys) + 1))]
    table = _gathered(
        name, [Column("value", "text")], [Key(("value",), kind)], batches, name, None, duplicates, library
    )
    file = io.BytesIO()
    writer = Writer(file)
    writer.finish(_Assembly(table, writer, library, 0, duplicates, None).header(name))
    return file.getvalue()


def _gathered(
    name: str, columns: Sequence[Column], keys: Sequence[Key], batches: Iterable[Batch], source: str,
    valid: tuple[str, str] | None, duplicates: str, library: Any, before: Earlier = NOTHING,
) -> _Table:  # fmt: skip
    _check(name, columns, keys, valid, duplicates)
    table = _Table(columns, keys, source, library, before)
    for batch in batches:
        table.add(batch)
    return table


def _check(
    name: str, columns: Sequence[Column], keys: Sequence[Key], valid: tuple[str, str] | None, duplicates: str
) -> None:
    types = {column.name: column.type for column in columns}
    if not NAME.fullmatch(name):
        raise BuildRefused(f"{name!r} cannot be the name of a lookup: letters, digits, '_', '.', '-'")
    if duplicates not in DUPLICATES:
        raise BuildRefused(f"duplicates: expects one of {', '.join(DUPLICATES)}, not {duplicates!r}")
    if len(types) != len(columns):
        raise BuildRefused("two columns have the same name")
    for column in columns:
        if column.type not in TYPES:
            raise BuildRefused(f"column {column.name}: {column.type!r} is no type: expects one of {', '.join(TYPES)}")
    if not keys:
        raise BuildRefused("a lookup needs a key: --key COLUMN:KIND")
    if len({*keys}) != len(keys):
        raise BuildRefused("a key is there twice")
    for one in (*(c for key in keys for c in key.columns), *(valid or ())):
        if one not in types:
            raise BuildRefused(f"there is no column {one}; there are {', '.join(types)}")
    folded: dict[str, str] = {}
    for key in keys:
        wanted = {"number": ("int", "time"), "range": ("int", "float", "time")}.get(key.kind, ("text",))
        for one in key.columns:
            if types[one] not in wanted:
                raise BuildRefused(f"key {key}: column {one} is of type {types[one]}, expects {' or '.join(wanted)}")
            form = key.kind if key.kind in ("nocase", "domain", "ip", "cidr") else "text"
            if types[one] == "text" and folded.setdefault(one, form) != form and {form, folded[one]} != {"ip", "cidr"}:
                raise BuildRefused(
                    f"column {one} cannot be a key of kind {folded[one]} and of kind {form}: write it as two columns"
                )
    if valid is not None and any(types[one] != "time" for one in valid):
        raise BuildRefused("the columns of validity have to be of type time: --type COLUMN:time")
    if duplicates == "first" and valid is not None:
        raise BuildRefused("duplicates: 'first' would drop the rows of other times of validity: 'refuse' or 'keep'")
    if duplicates == "first" and (len(keys) > 1 or keys[0].kind in ("cidr", "range")):
        raise BuildRefused("duplicates: 'first' goes with one key that is neither cidr nor range: remove them before")


class _Texts:
    """A column of texts: by a dictionary while few are different, else one behind the other."""

    def __init__(self, form: str | None, words: Iterable[str] = ()) -> None:
        """``words``: of the dictionary, before any row has them."""
        self.form = form
        """``text``, ``nocase``, ``domain`` or ``ip`` of a key: made canonical, never a dictionary."""
        known = {word: number for number, word in enumerate((None, *words))}
        self.words: dict[str | None, int] | None = known if form is None else None
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
        if self.form == "ip" and len(self.arena) in (4 * size, 16 * size) and self._even():
            return {"code": "a", "width": len(self.arena) // size, "data": self.arena}
        if self.form == "ip":
            shown = _Texts("text")
            start = 0
            for end in self.ends:
                shown._append([str(ipaddress.ip_address(bytes(self.arena[start:end])))])
                start = end
            return shown.store()
        if (digits := self.digits()) is not None:
            return {"code": "x", "width": digits, "data": self.from_hex()}
        return {"code": "t", "width": 0, "data": self.arena, "ends": self.ends, "there": self.there}

    def _even(self) -> bool:
        width = len(self.arena) // max(1, len(self.there))
        return len(self.ends) > 0 and all(map(int.__eq__, self.ends, range(width, len(self.arena) + 1, width)))

    def digits(self) -> int | None:
        """The bytes of each text, where all are digests of one length in lower-case hex digits."""
        size = len(self.there)
        if not size or 0 in self.there or len(self.arena) % size or not self._even():
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


class _Numbers:
    """A column of integers, times, booleans (``_NULL`` is null) or floats (NaN is)."""

    def __init__(self, kind: str) -> None:
        self.data: array[Any] = array("d" if kind == "float" else "q")
        self.kind = kind

    def add(self, values: Sequence[Any]) -> None:
        null = float("nan") if self.kind == "float" else _NULL
        self.data.extend([null if value is None else value for value in values] if None in values else values)

    def store(self) -> dict[str, Any]:
        if self.kind == "float":
            return {"code": "f", "width": 8, "data": self.data}
        known = [number for number in self.data if number != _NULL] if _NULL in self.data else self.data
        base, most = (min(known), max(known)) if known else (0, 0)
        width = max(1, ((most - base + 1).bit_length() + 7) // 8)
        if width > 8:
            raise BuildRefused("a column of integers spans 64 bits: make it one of text")
        codes = array("Q", [0 if number == _NULL else number - base + 1 for number in self.data])
        return {"code": "b", "width": width, "base": base, "data": codes}


class _Table:
    """The columns of a table as its rows come in."""

    def __init__(
        self, columns: Sequence[Column], keys: Sequence[Key], source: str, library: Any, before: Earlier = NOTHING
    ) -> None:
        self.names, self.keys, self.source, self.before = columns, keys, source, before
        self._library = library
        forms = {one: "ip" if k.kind in ("ip", "cidr") else k.kind for k in keys for one in k.columns}
        cidr = {one for k in keys if k.kind == "cidr" for one in k.columns}
        self.columns: list[_Texts | _Numbers] = [
            _Texts(None if column.name in cidr else forms.get(column.name), before.words.get(column.name, ()))
            if column.type == "text"
            else _Numbers(column.type)
            for column in columns
        ]
        self.networks: dict[str, list[tuple[int, int, int]]] = {one: [] for one in cidr}
        """Of columns of networks: width, first and last address."""
        self.lines = array("I")

    def __len__(self) -> int:
        return len(self.lines)

    def add(self, batch: Batch) -> None:
        for column, gathered, values in zip(self.names, self.columns, batch.columns, strict=True):
            try:
                typed = _typed(values, column.type)
                if column.name in self.networks:
                    typed = self._networks(column.name, typed)
                elif isinstance(gathered, _Texts) and gathered.form == "ip":
                    gathered.add_packed(*_addresses(typed, self._library))
                    continue
                elif isinstance(gathered, _Texts) and gathered.form is not None:
                    typed = _canonical(typed, gathered.form)
                elif any(column.name in key.columns for key in self.keys) and None in typed:
                    raise _Wrong(typed.index(None), None, "a key")
            except _Wrong as wrong:
                line = batch.lines[wrong.at]
                raise BuildRefused(f"{self.source}:{line}: column {column.name}: {wrong.text}") from None
            gathered.add(typed)
        self.lines.extend(batch.lines)
        if len(self.lines) > MAX_ROWS:
            raise BuildRefused(f"more than {MAX_ROWS} rows: make several lookups of the table")
        if self._library is None and len(self.lines) > PLAIN_ROWS:
            raise BuildRefused(
                f"more than {PLAIN_ROWS} rows need the native kernel, which is not built here ({kernel.why_not})"
            )

    def _networks(self, name: str, values: Sequence[Any]) -> list[str]:
        shown = []
        for at, value in enumerate(values):
            try:
                if value is None:
                    raise ValueError("is empty")
                network = ipaddress.ip_network(value.strip())
            except ValueError as error:
                raise _Wrong(at, value, f"a network ({error})") from None
            width = network.max_prefixlen // 8
            first = int(network.network_address)
            self.networks[name].append((width, first, first + network.num_addresses - 1))
            shown.append(str(network))
        return shown

    def where(self, row: int) -> str:
        return f"{self.source}:{self.lines[row]}"


class _Wrong(Exception):
    """Value number ``at`` of a batch is not what it has to be."""

    def __init__(self, at: int, value: object, expected: str) -> None:
        self.at = at
        self.text = f"{'is empty' if value is None else repr(value)[:80]}; expects {expected}"


_TRUE = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def _typed(values: Sequence[Any], kind: str) -> Sequence[Any]:
    """The values of a batch in the column's type; empty texts of other types are null. Raises _Wrong."""
    if kind == "text":
        if all(type(value) is str or value is None for value in values):
            return values
        return [_text(value, at) for at, value in enumerate(values)]
    make: Callable[[object], Any] = {"int": _integer, "float": _real, "bool": _boolean, "time": _time}[kind]
    for at, value in enumerate(values):
        if isinstance(value, list | dict):
            raise _Wrong(at, value, "a single value")
    known = {(type(value), value): None if value is None or value == "" else make(value) for value in values}
    found = [known[type(value), value] for value in values]
    if None in found:
        for at, value in enumerate(values):
            if found[at] is None and value is not None and value != "":
                raise _Wrong(at, value, {"int": "an integer of 64 bits", "float": "a number", "bool": "true or false",
                                         "time": "a time, as 2026-05-06T07:08:09Z"}[kind])  # fmt: skip
    return found


def _text(value: object, at: int) -> str | None:
    if value is None or type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise _Wrong(at, value, "a text")


def _integer(value: object) -> int | None:
    if type(value) is str:
        value = value.strip()
    found = integer(value)
    return None if found == _NULL else found


def _real(value: object) -> float | None:
    if isinstance(value, int | float) and type(value) is not bool:
        return float(value)
    try:
        return float(value.strip()) if type(value) is str else None
    except ValueError:
        return None


def _boolean(value: object) -> bool | None:
    return value if type(value) is bool else _TRUE.get(str(value).strip().lower())


def _time(value: object) -> int | None:
    if type(value) is int:
        return value
    return iso_time(value.strip()) if type(value) is str else None


def _canonical(values: Sequence[Any], form: str) -> Sequence[Any]:
    """The values of a key's column as they are compared. Raises _Wrong for what is no key."""
    if None in values or "" in values:
        at = next(at for at, value in enumerate(values) if not value)
        raise _Wrong(at, None, "a key")
    if form == "text":
        return values
    folded = [fold(value) for value in values]
    if form == "domain":
        folded = [value.removesuffix(".") for value in folded]
        if "" in folded:
            raise _Wrong(folded.index(""), ".", "a domain")
    return folded


def _addresses(values: Sequence[Any], library: Any) -> tuple[bytes, Sequence[int]]:
    """Addresses as their bytes, and where each ends. Raises _Wrong for what is none."""
    if None in values:
        raise _Wrong(values.index(None), None, "an address")
    if library is not None:
        arena, ends, wrong = library.lookup_addresses(list(values))
        if wrong is not None:
            raise _Wrong(wrong, values[wrong] or None, "an address")
        return arena, _numbers(ends)
    found = []
    for at, value in enumerate(values):
        packed = address(value.strip())
        if packed is None:
            raise _Wrong(at, value or None, "an address")
        found.append(packed)
    return b"".join(found), list(accumulate(map(len, found)))


class _Assembly:
    """From the gathered table to sections and header."""

    def __init__(
        self, table: _Table, writer: Writer, library: Any, created: int, duplicates: str, valid: tuple[str, str] | None
    ) -> None:
        self._table, self._writer, self._library = table, writer, library
        self._created, self._duplicates = created, duplicates
        known = table.before.seed
        self._seed = created * 0x9E3779B97F4A7C15 & ((1 << 64) - 1) if known is None else known
        self._valid = valid
        self._layouts: list[dict[str, Any]] = []

    def header(self, name: str) -> Header:
        table = self._table
        several = self._valid is not None or self._duplicates == "keep"
        self._check_times()
        names = [column.name for column in table.names]
        count: dict[tuple[str, ...], int] = {}
        for key in table.keys:
            count[key.columns] = count.get(key.columns, 0) + 1
        indexes = tuple(
            Index("..".join(k.columns) if count[k.columns] == 1 else str(k), k.kind, k.columns, not several)
            for k in table.keys
        )
        stores: list[dict[str, Any]] = [{} for _ in names]
        width, rows = 0, len(table)
        symbols: list[bytes] = []
        if (alone := self._alone()) is not None:
            layout, rows = alone
            self._layouts.append(layout)
        else:
            order = self._order()
            rows = len(order)
            stores, width, symbols = self._records(order)
        valid = None if self._valid is None else (names.index(self._valid[0]), names.index(self._valid[1]))
        return Header(
            name, rows, self._created, tuple(table.names), indexes, valid, stores, self._layouts, width, symbols
        )

    def _column(self, name: str) -> _Texts | _Numbers:
        return self._table.columns[[column.name for column in self._table.names].index(name)]

    def _keys(self, key: Key) -> Keys:
        column = self._column(key.columns[0])
        if isinstance(column, _Numbers):
            return Keys(memoryview(column.data).cast("B"), None, 8, len(column.data))
        return Keys(column.arena, column.ends, 0, len(column.ends))

    def _times(self) -> tuple[array[Any], array[Any]] | None:
        """By row, from when and until when it holds; None for a table without times of validity."""
        if self._valid is None:
            return None
        since, until = (self._column(name) for name in self._valid)
        assert isinstance(since, _Numbers)
        assert isinstance(until, _Numbers)
        return since.data, until.data

    def _check_times(self) -> None:
        """Raises BuildRefused for a row that ends before it begins."""
        if (times := self._times()) is not None:
            for row, (since, until) in enumerate(zip(*times, strict=True)):
                if until != _NULL and since > until:
                    raise BuildRefused(f"{self._table.where(row)}: the row holds until a time before it begins")

    def _refuse_overlaps(self, key: Key, groups: Iterable[Sequence[int]]) -> None:
        """``groups``: rows of one key each. Raises BuildRefused where two of them hold at the same time."""
        times = self._times()
        if times is None or self._duplicates == "keep":
            return
        since, until = times
        for rows in groups:
            spans = sorted((since[row], _END if until[row] == _NULL else until[row], row) for row in rows)
            for (_, end, row), (start, _, other) in pairwise(spans):
                if start < end:
                    first, second = sorted((row, other))
                    raise BuildRefused(
                        f"{self._table.where(second)}: key {key}: holds at the same time as line"
                        f" {self._table.lines[first]} of the same key; let one end before the other begins, or build"
                        " with --duplicates keep (then the first of the table counts)"
                    )

    def _equal(self, keys: Keys, order: Sequence[int]) -> Iterator[list[int]]:
        """The rows of each key that several have; in ``order`` they are neighbours."""
        ends, width, arena = keys.ends, keys.width, memoryview(keys.arena)
        group: list[int] = []
        before: bytes | None = None
        for row in order:
            start = row * width if ends is None else ends[row - 1] if row else 0
            end = start + width if ends is None else ends[row]
            key = bytes(arena[start:end])
            if key == before:
                group.append(row)
                continue
            if len(group) > 1:
                yield group
            group, before = [row], key
        if len(group) > 1:
            yield group

    def _refuse(self, key: Key, twins: pack.Twins) -> None:
        if twins and self._valid is None and self._duplicates == "refuse":
            first, second = min(twins, key=lambda pair: pair[1])
            raise BuildRefused(
                f"{self._table.where(second)}: key {key}: the same key as on line {self._table.lines[first]}; remove"
                " one, or build with --duplicates keep (all rows of a key) or first"
            )

    def _alone(self) -> tuple[dict[str, Any], int] | None:
        """The layout, and the number of keys, of a table that has nothing but one key; None for others."""
        table = self._table
        if len(table.names) > 1 or len(table.keys) > 1 or not len(table) or self._duplicates == "keep":
            return None
        key = table.keys[0]
        column = self._column(key.columns[0])
        if key.kind == "number" and isinstance(column, _Numbers):
            spread_out = self._spread(column.data)
            part, rows = self._points(key, "i0.8", Keys(spread_out, None, 8, len(column.data)))
            return {"layout": "sorted", "parts": [part]}, rows
        if not isinstance(column, _Texts):
            return None
        if key.kind == "ip":
            return self._addresses(key, column)
        if key.kind in ("text", "nocase") and (width := column.digits()) is not None:
            raw = Keys(column.from_hex(), None, width, len(table))
            part, rows = self._points(key, f"i0.{width}", raw)
            return {"layout": "sorted", "parts": [part]}, rows
        if key.kind in ("text", "nocase", "domain") and self._library is not None:
            return self._automaton(key, column)
        return None

    def _spread(self, numbers: array[int]) -> bytes:
        if self._library is not None:
            return bytes(self._library.lookup_spread(memoryview(numbers).cast("B")))
        mask = (1 << 64) - 1
        return b"".join(struct.pack(">Q", spread(number & mask)) for number in numbers)

    def _addresses(self, key: Key, column: _Texts) -> tuple[dict[str, Any], int]:
        parts, rows = [], 0
        if column._even():
            width = len(column.arena) // len(column.ends)
            part, rows = self._points(key, f"i0.{width}", Keys(column.arena, None, width, len(column.ends)))
            return {"layout": "sorted", "parts": [part]}, rows
        listed = list(self._keys(key))
        for width in (4, 16):
            some = [one for one in listed if len(one) == width]
            numbers = [number for number, one in enumerate(listed) if len(one) == width]
            if some:
                part, count = self._points(key, f"i0.{width}", Keys(b"".join(some), None, width, len(some)), numbers)
                parts.append(part)
                rows += count
        return {"layout": "sorted", "parts": parts}, rows

    def _points(self, key: Key, name: str, keys: Keys, numbers: list[int] | None = None) -> tuple[dict[str, Any], int]:
        bits = _bits(keys.count, 18 if keys.width == 4 else 20)
        if self._library is not None:
            order, starts, lows, twins = self._library.lookup_points(keys.arena, keys.width, bits, True)
            rows = len(order) // 4
        else:
            ranked, starts, lows, twins = pack.points(keys, bits, True)
            rows = len(ranked)
        self._refuse(key, twins if numbers is None else [(numbers[a], numbers[b]) for a, b in twins])
        self._writer.section(f"{name}.dir", starts)
        self._writer.section(f"{name}.low", lows)
        return {"width": keys.width, "bits": bits, "dir": f"{name}.dir", "lows": f"{name}.low"}, rows

    def _automaton(self, key: Key, column: _Texts) -> tuple[dict[str, Any], int]:
        bits = _bits(len(column.ends), 24)
        automaton, starts, marks, twins, rows = self._library.lookup_automaton(
            column.arena, memoryview(column.ends).cast("B"), self._seed, bits
        )
        self._refuse(key, twins)
        self._writer.section("i0.fst", automaton)
        self._writer.section("i0.dir", starts)
        self._writer.section("i0.fps", marks)
        names = {"fst": "i0.fst", "dir": "i0.dir", "fps": "i0.fps"}
        return {"layout": "fst", "bits": bits, "seed": self._seed, **names}, rows

    def _order(self) -> array[int]:
        """Build every index; returns the table's row of each row of the file: the order of the first exact key."""
        table = self._table
        hashed: dict[int, tuple[array[int], bytes, bytes]] = {}
        for number, key in enumerate(table.keys):
            if key.kind not in ("cidr", "range"):
                keys = self._keys(key)
                bits = _bits(keys.count, 24)
                order, starts, marks, twins = self._hash(keys, bits)
                self._refuse(key, twins)
                if twins and self._valid is not None:
                    self._refuse_overlaps(key, self._equal(keys, order))
                hashed[number] = (order, starts, marks)
        first = min(hashed, default=None)
        rows = array("I", range(len(table))) if first is None else hashed[first][0]
        places = array("I", [0]) * len(table)
        if len(table.keys) > 1 or first is None:
            for place, row in enumerate(rows):
                places[row] = place
        for number, key in enumerate(table.keys):
            if number in hashed:
                order, starts, marks = hashed[number]
                name = f"i{number}"
                self._writer.section(f"{name}.dir", starts)
                self._writer.section(f"{name}.fps", marks)
                refs = None
                if number != first:
                    refs = f"{name}.refs"
                    self._writer.section(refs, memoryview(array("I", [places[row] for row in order])))
                self._layouts.append(
                    {"layout": "hash", "bits": _bits(len(table), 24),
                     "seed": self._seed, "dir": f"{name}.dir", "fps": f"{name}.fps", "refs": refs}
                )  # fmt: skip
            else:
                self._layouts.append(self._ranges(number, key, places))
        return rows

    def _hash(self, keys: Keys, bits: int) -> tuple[array[int], bytes, bytes, pack.Twins]:
        unique = self._duplicates == "first"
        if self._library is None:
            return pack.hash_entries(keys, self._seed, bits, unique)
        ends = None if keys.ends is None else memoryview(keys.ends).cast("B")
        found, starts, marks, twins = self._library.lookup_hash(keys.arena, ends, keys.width, self._seed, bits, unique)
        return _numbers(found), starts, marks, twins

    def _ranges(self, number: int, key: Key, places: array[int]) -> dict[str, Any]:
        table = self._table
        if key.kind == "cidr":
            spans = table.networks[key.columns[0]]
        else:
            low, high = (self._column(one) for one in key.columns)
            assert isinstance(low, _Numbers)
            assert isinstance(high, _Numbers)
            spans = list(_spans(table, key, low.data, high.data))
        parts, parents, refs = [], array("I"), array("I")
        for width in (4, 8, 16):
            some = sorted((first, -last, -row) for row, (wide, first, last) in enumerate(spans) if wide == width)
            if not some:
                continue
            if self._valid is not None:
                alike = ([-row for _, _, row in group] for _, group in groupby(some, key=itemgetter(0, 1)))
                self._refuse_overlaps(key, alike)
            at, nodes = self._sweep(key, some, width, parents, refs, places)
            bits = min(16, _bits(len(at), 16))
            data = Keys(b"".join(point.to_bytes(width, "big") for point in at), None, width, len(at))
            _, starts, lows, _ = pack.points(data, bits, False)
            name = f"i{number}.{width}"
            self._writer.section(f"{name}.dir", starts)
            self._writer.section(f"{name}.low", lows)
            self._writer.section(f"{name}.node", memoryview(nodes))
            parts.append({"width": width, "bits": bits, "dir": f"{name}.dir", "lows": f"{name}.low",
                          "nodes": f"{name}.node"})  # fmt: skip
        self._writer.section(f"i{number}.parents", memoryview(parents))
        self._writer.section(f"i{number}.refs", memoryview(refs))
        return {"layout": "ranges", "parts": parts, "parents": f"i{number}.parents", "refs": f"i{number}.refs"}

    def _sweep(
        self,
        key: Key,
        spans: list[tuple[int, int, int]],
        width: int,
        parents: array[int],
        refs: array[int],
        places: array[int],
    ) -> tuple[list[int], array[int]]:
        """Where another range becomes the narrowest, and which; appends each range to ``parents`` and ``refs``."""
        at: list[int] = []
        nodes = array("I")
        open_: list[tuple[int, int, int]] = []  # last, node, row
        end = 1 << width * 8

        def point(place: int, node: int) -> None:
            if at and at[-1] == place:
                nodes[-1] = node
            elif place < end:
                at.append(place)
                nodes.append(node)

        def close(before: int) -> None:
            while open_ and open_[-1][0] < before:
                last, _, _ = open_.pop()
                point(last + 1, open_[-1][1] if open_ else 0)

        previous: tuple[int, int, int] | None = None
        for first, negative, negative_row in spans:
            last, row = -negative, -negative_row
            close(first)
            if open_ and last > open_[-1][0]:
                raise BuildRefused(
                    f"{self._table.where(row)}: key {key}: overlaps the range of line"
                    f" {self._table.lines[open_[-1][2]]} without lying inside: split one of them"
                )
            if previous is not None and previous[:2] == (first, last):
                self._refuse(key, [(row, previous[2])])
            previous = (first, last, row)
            parents.append(open_[-1][1] if open_ else 0)
            refs.append(places[row])
            open_.append((last, len(refs), row))
            point(first, len(refs))
        close(end)
        return at, nodes

    def _records(self, order: array[int]) -> tuple[list[dict[str, Any]], int, list[bytes]]:
        stores, described, at = [], [], 0
        for number, column in enumerate(self._table.columns):
            if isinstance(column, _Texts):
                column.settle()
            store = column.store()
            shown: dict[str, Any] = {name: store[name] for name in ("code", "width", "base") if name in store}
            if store["code"] != "t":
                shown["at"] = at
                at += store["width"]
            if isinstance(column, _Texts) and column.words is not None:
                words = [one.encode("utf-8", "surrogatepass") for one in column.words if one is not None]
                shown |= {"ends": f"c{number}.ends", "texts": f"c{number}.texts"}
                self._writer.section(f"c{number}.ends", memoryview(array("I", accumulate(map(len, words)))))
                self._writer.section(f"c{number}.texts", b"".join(words))
            stores.append(shown)
            described.append(store)
        symbols, write = self._written(described)
        groups: list[bytes] = []

        def parts() -> Iterator[bytes]:
            base = 0
            for start in range(0, len(order), _SLICE):
                found, places = write(order[start : start + _SLICE], base)
                base += len(found)
                groups.append(places)
                yield found

        self._writer.stream("records", parts())
        self._writer.section("groups", *groups)
        return stores, at, symbols

    def _written(
        self, columns: list[dict[str, Any]]
    ) -> tuple[list[bytes], Callable[[array[int], int], tuple[bytes, bytes]]]:
        """The symbols of texts, and what makes rows of an order and a place."""
        library = self._library
        if library is None:
            return [], lambda order, base: pack.records(columns, order, base)
        passed = [
            (
                one["code"],
                one["width"],
                memoryview(one["data"]).cast("B"),
                memoryview(one["ends"]).cast("B") if "ends" in one else None,
                one.get("there"),
            )
            for one in columns
        ]
        symbols: list[bytes] = list(self._table.before.symbols) or library.lookup_symbols(passed)
        return symbols, lambda order, base: library.lookup_records(passed, memoryview(order).cast("B"), base, symbols)


def _bits(count: int, most: int) -> int:
    """Upper bits that name a place: eight entries or more in each."""
    return min(most, max(0, (count // 8).bit_length() - 1))


def _numbers(data: bytes) -> array[int]:
    found = array("I")
    found.frombytes(data)
    return found


def _spans(table: _Table, key: Key, low: array[Any], high: array[Any]) -> Iterator[tuple[int, int, int]]:
    for row, (first, last) in enumerate(zip(low, high, strict=True)):
        one, other = real(first), real(last)
        if one is None or other is None or one > other:
            raise BuildRefused(
                f"{table.where(row)}: key {key}: {first} to {last} is no range of numbers below 2^53 in rising order"
            )
        yield 8, int.from_bytes(ordered(one), "big"), int.from_bytes(ordered(other), "big")
