"""Groups of rows by slice of time and key, in columns: what windows are made of.

A ``Layer`` holds slices of one length. A slice has an index of its keys, and for each field of each accumulator
(``accumulators.py``) a column: a group takes one place in each, so that its state is a few numbers instead of objects.
Code for a run of rows is generated once for each layer: one look-up and one addition a row, whatever reads the slice.

Its bytes (``delta``): the names and fields of its parts, then for each slice that changed ``[start, closed, lacks,
gone, keys, columns]`` with the groups that changed and the keys that gave way to the budget, ``[start, nil]`` for a
slice that is gone.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgpack

from vedette.plan.query import Aggregate, Row, dump
from vedette.stream.aggregates import parts
from vedette.stream.aggregates.accumulators import Accumulated, Accumulators, run
from vedette.stream.expression import FAILURES
from vedette.stream.keyed import Budget, Table

GROUP_BYTES = 136
"""What a group takes besides its fields and its key's text, about: places in the index and the list of keys, its key's
object, its number."""

MAX_GONE = 4096
"""Groups that gave way, beyond as many as are there, whose places a slice keeps."""

Start = Any
"""Of a slice: a time, or the window's (start, end)."""


class Slice:
    __slots__ = (
        "bytes",
        "closed",
        "columns",
        "counted",
        "dirty",
        "first",
        "gone",
        "index",
        "keys",
        "lacks",
        "weights",
        "written",
    )

    def __init__(self, fields: str) -> None:
        self.index: dict[Any, int] = {}
        self.keys: list[Any] = []
        """By number; those that gave way are still in it, but no more in the index."""
        self.dirty = bytearray()
        """Of each group: 3 when it changed since the last ``settle``, 1 since the last ``delta``."""
        self.columns: list[Any] = [array(kind) if kind in "qd" else [] for kind in "q" + fields]
        """The origin, then the fields."""
        self.closed = False
        """Whether its end has passed, and it has been given to the layers that it feeds."""
        self.lacks: frozenset[bytes] = frozenset()
        """Parts that did not see all of its rows: statements that need them are new."""
        self.written: Any = None
        """``closed`` and ``lacks`` as the last delta has them."""
        self.gone: list[Any] = []
        self.weights: list[int] = []
        self.counted = 0
        self.first = 0
        """No group before this one is in the index."""
        self.bytes = 0

    def compact(self) -> None:
        """Without the places of groups that gave way."""
        live = list(self.index.values())
        self.keys = [self.keys[i] for i in live]
        self.dirty = bytearray([self.dirty[i] for i in live])
        for number, column in enumerate(self.columns):
            left = [column[i] for i in live]
            self.columns[number] = array(column.typecode, left) if isinstance(column, array) else left
        self.weights = [self.weights[i] for i in live] if self.weights else []
        self.index = {key: i for i, key in enumerate(self.keys)}
        self.counted, self.first = len(live), 0


def part_id(part: Accumulated) -> bytes:
    text = msgpack.packb(dump((part.kind, part.arg, part.when, part.nulls)))
    return hashlib.blake2b(text, digest_size=8).digest()


class Layer(Table[Any]):
    """``ident``: what names it among the layers of an operator. ``keys``: columns of the key, ``sets`` those of each of
    the GROUPING SETS.

    ``newest``: a time of each slice, before which its rows may be; by default it begins there.

    ``slice_of``: code for the slice of ``row``, and for whether slice ``at`` can still take rows when all windows up to
    ``done`` have been given.
    """

    def __init__(
        self,
        budget: Budget,
        ident: Any,
        accumulators: Accumulators,
        keys: tuple[int, ...],
        slice_of: tuple[str, str],
        sets: tuple[tuple[int, ...], ...] = (),
        newest: Callable[[Start], int] = lambda start: start,
    ) -> None:
        super().__init__(budget, lambda value: 0)
        self._newest_of = newest
        self.ident, self.accumulators, self.keys, self.sets = ident, accumulators, keys, sets
        self.slices: dict[Start, Slice] = {}
        self.parts = {part_id(part): part for part in accumulators.parts}
        self._growing = [i for i, kind in enumerate("q" + accumulators.fields) if kind in "vlmxu"]
        self._fixed = GROUP_BYTES + 8 * len(accumulators.fields)
        self._removed: dict[Start, None] = {}
        self._update = self._compiled_update(slice_of)
        self._merges: dict[tuple[int, bool], Callable[..., None]] = {}
        self.touch()

    # --- rows

    def update(self, rows: Sequence[Row], done: Any) -> tuple[int, list[Row]]:
        """Add rows to their slices; how many failed, and those whose slice ends at or before ``done``."""
        self.changed[()] = None
        late: list[Row] = []
        failed: int = self._update(rows, self.slices, self.new_slice, done, late)
        if self.accumulators.users:
            for piece in self.slices.values():
                self._fold(piece)
        return failed, late

    def _fold(self, piece: Slice) -> None:
        """Let aggregates of users take in what came since the last ``settle``."""
        places, at = [], piece.dirty.find(3)
        while at >= 0:
            places.append(at)
            at = piece.dirty.find(3, at + 1)
        if places:
            self.accumulators.users.fold(piece.columns, places)

    def new_slice(self, start: Start) -> Slice:
        piece = self.slices[start] = Slice(self.accumulators.fields)
        self._removed.pop(start, None)
        return piece

    def merge(self, into: Slice, source: Slice, other: Layer, before: bool = False) -> None:
        """Add what ``source``, a slice of ``other``, holds."""
        self.changed[()] = None
        key = id(other), before
        if key not in self._merges:
            self._merges[key] = self._compiled_merge(other, before)
        if source.lacks:
            into.lacks |= source.lacks & self.parts.keys()
        self._merges[key](into, source)
        if self.accumulators.users:
            self._fold(into)

    def remove_slice(self, start: Start) -> None:
        self.bytes -= self.slices.pop(start).bytes
        self._removed[start] = None
        self._dirty[()] = None

    def _columns(self, name: str) -> str:
        return ", ".join(f"{name}{i}" for i in range(len(self.accumulators.fields) + 1)) + ","

    def _new_group(self) -> list[str]:
        values = ["0", *("0" if kind == "q" else "0.0" if kind == "d" else "None" for kind in self.accumulators.fields)]
        return [
            "i = index[k] = len(keys)",
            "keys.append(k)",
            "dirty.append(3)",
            *(f"c{i}.append({value})" for i, value in enumerate(values)),
        ]

    def _key(self) -> str:
        if self.sets:
            return ""
        if len(self.keys) == 1:
            return f"row[{self.keys[0]}]"
        return "(" + "".join(f"row[{key}], " for key in self.keys) + ")"

    def _key_of_sets(self) -> str:
        every = []
        for grouping in self.sets:
            texts = [f"row[{key}]" if at in grouping else "None" for at, key in enumerate(self.keys)]
            every.append("(" + ", ".join([*texts, str(grouping_id(len(self.keys), grouping))]) + ")")
        return "(" + ", ".join(every) + ",)"

    def _compiled_update(self, slice_of: tuple[str, str]) -> Callable[..., int]:
        names: dict[str, Any] = {"FAILURES": FAILURES}
        before, lines = self.accumulators.add(lambda i: f"c{i + 1}[i]", names)
        at, open_ = slice_of
        body = [
            f"at = {at}",
            "if at != last:",
            f"    if not ({open_}):",
            "        late.append(row)",
            "        continue",
            "    piece = slices.get(at)",
            "    if piece is None: piece = new(at)",
            "    index, keys, dirty = piece.index, piece.keys, piece.dirty",
            f"    {self._columns('c')} = piece.columns",
            "    last = at",
        ]
        if before:
            body += [
                "try:",
                *("    " + line for line in before),
                "except FAILURES:",
                "    failed += 1",
                "    continue",
            ]
        group = [
            "i = index.get(k)",
            "if i is None:",
            *("    " + line for line in self._new_group()),
            "else: dirty[i] = 3",
            "if row[0] > c0[i]: c0[i] = row[0]",
            *lines,
        ]
        if self.sets:
            body += [f"for k in {self._key_of_sets()}:", *("    " + line for line in group)]
        else:
            body += [f"k = {self._key()}", *group]
        text = "\n".join(
            [
                "def update(rows, slices, new, done, late):",
                "    last, failed = None, 0",
                "    for row in rows:",
                *("        " + line for line in body),
                "    return failed",
            ]
        )
        compiled: Callable[..., int] = run(text, names)["update"]
        return compiled

    def _compiled_merge(self, other: Layer, before: bool) -> Callable[..., None]:
        names: dict[str, Any] = {}
        lines = self.accumulators.merge(
            lambda i: f"c{i + 1}[i]", other.accumulators, lambda i: f"o{i + 1}[j]", names, before
        )
        body = [
            "i = index.get(k)",
            "if i is None:",
            *("    " + line for line in self._new_group()),
            "else: dirty[i] = 3",
            "if o0[j] > c0[i]: c0[i] = o0[j]",
            *lines,
        ]
        text = "\n".join(
            [
                "def merge(into, piece):",
                "    index, keys, dirty = into.index, into.keys, into.dirty",
                f"    {self._columns('c')} = into.columns",
                f"    {other._columns('o')} = piece.columns",
                "    for k, j in piece.index.items():",
                *("        " + line for line in body),
            ]
        )
        compiled: Callable[..., None] = run(text, names)["merge"]
        return compiled

    def giver(self, wanted: Sequence[Aggregate], behind: str) -> Callable[..., list[Row]]:
        """``give(slice, start, end)``: the rows of all groups: origin, key, aggregates, then what ``behind`` says."""
        names: dict[str, Any] = {}
        users = self.accumulators.users
        values, lines, there = "", list[str](), list[str]()
        for number, aggregate in enumerate(wanted):
            if aggregate in users.fields:  # of all groups together
                names[f"u{number}"] = partial(users.values, aggregate)
                lines.append(f"    w{number} = u{number}(c{users.fields[aggregate] + 1}, piece.index.values())")
                there.append(f"i in w{number}")
                values += f"w{number}[i], "
            else:
                values += f"{self.accumulators.result(aggregate, lambda i: f'c{i + 1}[i]', names)}, "
        where = f" if {' and '.join(there)}" if there else ""
        key = "k, " if len(self.keys) == 1 and not self.sets else "*k[:-1], " if self.sets else "*k, "
        text = "\n".join(
            [
                "def give(piece, start, end):",
                f"    {self._columns('c')} = piece.columns",
                *lines,
                f"    return [(c0[i], {key}{values}{behind}) for k, i in piece.index.items(){where}]",
            ]
        )
        compiled: Callable[..., list[Row]] = run(text, names)["give"]
        return compiled

    # --- accounting

    def __len__(self) -> int:
        return sum(len(piece.index) for piece in self.slices.values())

    def settle(self) -> None:
        for piece in self.slices.values():
            before = piece.bytes
            new = piece.keys[piece.counted :]
            if new:
                piece.counted = len(piece.keys)
                piece.bytes += self._fixed * len(new) + sum(map(_text, new))
            if self._growing:
                self._weigh(piece)
            self.bytes += piece.bytes - before
        self._dirty[()] = None
        self.changed.clear()

    def _weigh(self, piece: Slice) -> None:
        dirty, weights, fields = piece.dirty, piece.weights, "q" + self.accumulators.fields
        weights.extend([0] * (len(piece.keys) - len(weights)))
        at = dirty.find(3)
        while at >= 0:
            dirty[at] = 1
            weight = sum(parts.size(fields[i], piece.columns[i][at]) for i in self._growing)
            piece.bytes += weight - weights[at]
            weights[at] = weight
            at = dirty.find(3, at + 1)

    def evict(self) -> int:
        """Let the group go that is in the oldest slice for longest."""
        for start, piece in self.slices.items():
            if piece.index:
                self.torn = max(self.torn, self._newest_of(start))
                while piece.index.get(piece.keys[piece.first]) != piece.first:
                    piece.first += 1
                i, key = piece.first, piece.keys[piece.first]
                del piece.index[key]
                piece.gone.append(key)
                piece.keys[i], piece.dirty[i] = None, 0
                for at in self._growing:
                    piece.columns[at][i] = None
                size = self._fixed + _text(key) + (piece.weights[i] if i < len(piece.weights) else 0)
                piece.bytes -= size
                self.bytes -= size
                self.evicted += 1
                self._dirty[()] = None
                if len(piece.keys) > 2 * len(piece.index) + MAX_GONE:
                    piece.compact()
                return size
        return 1 << 62

    # --- state

    def delta(self) -> list[Any] | None:
        if self.changed:
            self.settle()
        if not self._dirty:
            return None
        self._dirty.clear()
        deltas: list[Any] = [[start, None] for start in self._removed]
        self._removed.clear()
        fields = "q" + self.accumulators.fields
        for start, piece in self.slices.items():
            dirty = piece.dirty
            live = piece.index
            keys = piece.keys
            changed = [i for i, flag in enumerate(dirty) if flag and live.get(keys[i]) == i]
            if not changed and not piece.gone and piece.written == (piece.closed, piece.lacks):
                continue
            piece.written = (piece.closed, piece.lacks)
            if changed or piece.gone:
                columns = [
                    [parts.dump(kind, column[i]) for i in changed]
                    for kind, column in zip(fields, piece.columns, strict=True)
                ]
                deltas.append([start, piece.closed, list(piece.lacks), piece.gone, [keys[i] for i in changed], columns])
                piece.dirty = bytearray(len(dirty))
                piece.gone = []
            else:
                deltas.append([start, piece.closed, list(piece.lacks)])
        named = [[name, parts.part_of(part.kind).fields] for name, part in self.parts.items()]
        return [named, deltas]

    def restore(self, data: Iterable[Any]) -> None:
        """Take over one ``delta``, of a layer that may have had other parts."""
        saved_parts, changed = data
        starts: dict[bytes, int] = {}
        at = 1
        for name, held_fields in saved_parts:
            starts[name] = at
            at += len(held_fields)
        missing = frozenset(name for name in self.parts if name not in starts)
        for start, closed, *more in changed:
            if closed is None:
                if start in self.slices:
                    self.remove_slice(start)
                continue
            piece = self.slices.get(start) or self.new_slice(start)
            piece.closed = closed
            piece.lacks = frozenset(more[0]) & self.parts.keys() | missing
            piece.written = (piece.closed, piece.lacks)
            if len(more) > 1:
                self._restore_groups(piece, starts, *more[1:])
        self.settle()
        self._dirty.clear()
        self._removed.clear()
        for piece in self.slices.values():
            piece.dirty = bytearray(len(piece.dirty))

    def _restore_groups(
        self, piece: Slice, starts: dict[bytes, int], gone: Sequence[Any], keys: Sequence[Any], columns: Sequence[Any]
    ) -> None:
        for key in gone:
            piece.index.pop(key, None)
        new = self.accumulators.new()
        sources: list[Any] = [columns[0]]
        for name, part in self.parts.items():
            first = starts.get(name)
            fields = parts.part_of(part.kind).fields
            sources += [None if first is None else columns[first + i] for i in range(len(fields))]
        for place, key in enumerate(keys):
            i = piece.index.get(key)
            if i is None:
                i = piece.index[key] = len(piece.keys)
                piece.keys.append(key)
                piece.dirty.append(3)
                for column, value in zip(piece.columns, (0, *new), strict=True):
                    column.append(value)
            else:
                piece.dirty[i] = 3
            piece.columns[0][i] = sources[0][place]
            for number, (kind, source) in enumerate(zip(self.accumulators.fields, sources[1:], strict=True), 1):
                if source is not None:
                    piece.columns[number][i] = parts.load(kind, source[place])

    def touch(self) -> None:
        for piece in self.slices.values():
            piece.dirty = bytearray(b"\x03" * len(piece.dirty))
            piece.written = None
        self._dirty[()] = None


def grouping_id(keys: int, grouping: Iterable[int]) -> int:
    """GROUPING_ID: a bit for each key, the first the highest, set where the set has not kept it."""
    bits = 0
    for at in range(keys):
        bits = bits << 1 | (at not in tuple(grouping))
    return bits


def _text(key: Any) -> int:
    if isinstance(key, str | bytes):
        return len(key)
    return 40 + sum(len(part) for part in key if isinstance(part, str | bytes)) if isinstance(key, tuple) else 0
