"""A gathered table to the sections and the header of a lookup's file: indexes, then records in their order."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import Any

from vedette.lookup import pack
from vedette.lookup.batch import BuildRefused, Key
from vedette.lookup.columns import NULL, Numbers, Texts, integers
from vedette.lookup.filter import shape
from vedette.lookup.gather import Table
from vedette.lookup.keys import ordered, real, spread
from vedette.lookup.layout import Header, Index, Writer
from vedette.lookup.pack import Keys

_SLICE = 1 << 20
"""Rows written at a time: a multiple of ``rows.GROUP``."""
_FILTER_BITS = {"hash": 8.0, "digits": 8.0, "number": 8.0, "ip": 3.0, "fst": 8.4}
"""Of the filter, for each key: names are to take eight bytes in all, addresses two and a half."""
_END = 1 << 63
"""Of a row that holds for ever."""


class Assembly:
    """From the gathered table to sections and header."""

    def __init__(
        self, table: Table, writer: Writer, library: Any, created: int, duplicates: str, valid: tuple[str, str] | None
    ) -> None:
        self._table, self._writer, self._library = table, writer, library
        self._created, self._duplicates = created, duplicates
        seed = table.before.seed
        self._seed = created * 0x9E3779B97F4A7C15 & ((1 << 64) - 1) if seed is None else seed
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

    def _column(self, name: str) -> Texts | Numbers:
        return self._table.columns[[column.name for column in self._table.names].index(name)]

    def _keys(self, key: Key) -> Keys:
        column = self._column(key.columns[0])
        if isinstance(column, Numbers):
            return Keys(memoryview(column.data).cast("B"), None, 8, len(column.data))
        return Keys(column.arena, column.ends, 0, len(column.ends))

    def _times(self) -> tuple[array[Any], array[Any]] | None:
        """By row, from when and until when it holds; None for a table without times of validity."""
        if self._valid is None:
            return None
        since, until = (self._column(name) for name in self._valid)
        assert isinstance(since, Numbers)
        assert isinstance(until, Numbers)
        return since.data, until.data

    def _check_times(self) -> None:
        """Raises BuildRefused for a row that ends before it begins."""
        if (times := self._times()) is not None:
            for row, (since, until) in enumerate(zip(*times, strict=True)):
                if until != NULL and since > until:
                    raise BuildRefused(f"{self._table.where(row)}: the row holds until a time before it begins")

    def _refuse_overlaps(self, key: Key, groups: Iterable[Sequence[int]]) -> None:
        """``groups``: rows of one key each. Raises BuildRefused where two of them hold at the same time."""
        times = self._times()
        if times is None or self._duplicates == "keep":
            return
        since, until = times
        for rows in groups:
            spans = sorted((since[row], _END if until[row] == NULL else until[row], row) for row in rows)
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
        if key.kind == "number" and isinstance(column, Numbers):
            filtered = self._filter(0, key, "number")
            spread_out = self._spread(column.data)
            part, rows = self._points(key, "i0.8", Keys(spread_out, None, 8, len(column.data)))
            return {"layout": "sorted", "parts": [part], **filtered}, rows
        if not isinstance(column, Texts):
            return None
        if key.kind == "ip":
            return self._addresses(key, column)
        if key.kind in ("text", "nocase") and (width := column.digits()) is not None:
            filtered = self._filter(0, key, "digits")
            raw = Keys(column.from_hex(), None, width, len(table))
            part, rows = self._points(key, f"i0.{width}", raw)
            return {"layout": "sorted", "parts": [part], **filtered}, rows
        if key.kind in ("text", "nocase", "domain") and self._library is not None:
            return self._automaton(key, column)
        return None

    def _filter(self, number: int, key: Key, layout: str) -> dict[str, Any]:
        """What an index has before it: seed, filter, and of domains the fewest and most dots."""
        keys, name = self._keys(key), f"i{number}.filter"
        filter_shape = shape(keys.count, _FILTER_BITS[layout], self._table.before.filters.get(number))
        if self._library is None:
            filtered, dots = pack.filtered(keys, self._seed, filter_shape)
        else:
            ends = None if keys.ends is None else memoryview(keys.ends).cast("B")
            measures = filter_shape._asdict()
            filtered, dots = self._library.lookup_filter(
                keys.arena, ends, keys.width, self._seed, measures, filter_shape.size
            )
        self._writer.section(name, filtered)
        return {"seed": self._seed, "filter": {"part": name, **filter_shape._asdict()}, "dots": list(dots)}

    def _spread(self, numbers: array[int]) -> bytes:
        if self._library is not None:
            return bytes(self._library.lookup_spread(memoryview(numbers).cast("B")))
        mask = (1 << 64) - 1
        return b"".join(struct.pack(">Q", spread(number & mask)) for number in numbers)

    def _addresses(self, key: Key, column: Texts) -> tuple[dict[str, Any], int]:
        parts, rows = [], 0
        filtered = self._filter(0, key, "ip")
        if column.even():
            width = len(column.arena) // len(column.ends)
            part, rows = self._points(key, f"i0.{width}", Keys(column.arena, None, width, len(column.ends)))
            return {"layout": "sorted", "parts": [part], **filtered}, rows
        listed = list(self._keys(key))
        for width in (4, 16):
            some = [address for address in listed if len(address) == width]
            numbers = [number for number, address in enumerate(listed) if len(address) == width]
            if some:
                part, count = self._points(key, f"i0.{width}", Keys(b"".join(some), None, width, len(some)), numbers)
                parts.append(part)
                rows += count
        return {"layout": "sorted", "parts": parts, **filtered}, rows

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

    def _automaton(self, key: Key, column: Texts) -> tuple[dict[str, Any], int]:
        automaton, twins, rows = self._library.lookup_automaton(column.arena, memoryview(column.ends).cast("B"))
        self._refuse(key, twins)
        self._writer.section("i0.fst", automaton)
        return {"layout": "fst", "fst": "i0.fst", **self._filter(0, key, "fst")}, rows

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
                    {"layout": "hash", "bits": _bits(len(table), 24), "dir": f"{name}.dir", "fps": f"{name}.fps",
                     "refs": refs, **self._filter(number, key, "hash")}
                )  # fmt: skip
            else:
                self._layouts.append(self._ranges(number, key, places))
        return rows

    def _hash(self, keys: Keys, bits: int) -> tuple[array[int], bytes, bytes, pack.Twins]:
        unique = self._duplicates == "first"
        if self._library is None:
            return pack.hash_entries(keys, self._seed, bits, unique)
        ends = None if keys.ends is None else memoryview(keys.ends).cast("B")
        entries, starts, marks, twins = self._library.lookup_hash(
            keys.arena, ends, keys.width, self._seed, bits, unique
        )
        return integers(entries), starts, marks, twins

    def _ranges(self, number: int, key: Key, places: array[int]) -> dict[str, Any]:
        table = self._table
        if key.kind == "cidr":
            spans = table.networks[key.columns[0]]
        else:
            low, high = (self._column(bound) for bound in key.columns)
            assert isinstance(low, Numbers)
            assert isinstance(high, Numbers)
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
            if isinstance(column, Texts):
                column.settle()
            store = column.store()
            shown: dict[str, Any] = {name: store[name] for name in ("code", "width", "base") if name in store}
            if store["code"] != "t":
                shown["at"] = at
                at += store["width"]
            if isinstance(column, Texts) and column.words is not None:
                words = [word.encode("utf-8", "surrogatepass") for word in column.words if word is not None]
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
                section, places = write(order[start : start + _SLICE], base)
                base += len(section)
                groups.append(places)
                yield section

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
                column["code"],
                column["width"],
                memoryview(column["data"]).cast("B"),
                memoryview(column["ends"]).cast("B") if "ends" in column else None,
                column.get("there"),
            )
            for column in columns
        ]
        symbols: list[bytes] = list(self._table.before.symbols) or library.lookup_symbols(passed)
        return symbols, lambda order, base: library.lookup_records(passed, memoryview(order).cast("B"), base, symbols)


def _bits(count: int, most: int) -> int:
    """Upper bits that name a place: eight entries or more in each."""
    return min(most, max(0, (count // 8).bit_length() - 1))


def _spans(table: Table, key: Key, low: array[Any], high: array[Any]) -> Iterator[tuple[int, int, int]]:
    for row, (first, last) in enumerate(zip(low, high, strict=True)):
        least = real(first)
        most = real(last)
        if least is None or most is None or least > most:
            raise BuildRefused(
                f"{table.where(row)}: key {key}: {first} to {last} is no range of numbers below 2^53 in rising order"
            )
        yield 8, int.from_bytes(ordered(least), "big"), int.from_bytes(ordered(most), "big")
