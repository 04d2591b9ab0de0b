"""Aggregates by window and key: TUMBLE, HOP and CUMULATE by slices that statements share.

One operator runs all ``Windowed`` nodes of the same input, keys and GROUPING SETS. It keeps **layers** of slices, one
for each length: TUMBLE has slices of its size, HOP of the greatest length that its step and size are multiples of,
CUMULATE of its step, and of its size what is complete so far. A layer whose slices are unions of those of a finer one
is **fed** by it: a row goes to the finest layer only, and when a slice's end passes, the whole slice is merged into the
next coarser layer. So a row costs one update whatever the number of statements, and windows give what they would give
alone.

A window is complete, and a row late for it, when the watermark is at its end less a millisecond. A row that is late for
a slice but not for a wider window goes to that window's layer directly. Rows are counted as late for a node when no
window of it takes them. Aggregates that depend on the order of rows share only with nodes of the same grid.

At a hot update layers are found again by their length, accumulators by what they hold. A layer stays fed by what fed
it, or by what fed that if it is no longer there; slices of it that had not ended are merged into what it fed. A node
whose accumulators have not seen all rows of a window gives no row for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any, ClassVar

import msgpack

from vedette.plan import query
from vedette.plan.grid import Grid, aligned
from vedette.plan.query import MILLISECOND, Node, Row, dump
from vedette.plan.query import Windowed as WindowedNode
from vedette.stream.aggregates.accumulators import Accumulators
from vedette.stream.aggregates.slices import Layer, Slice
from vedette.stream.aggregates.table import row_of
from vedette.stream.keyed import Budget
from vedette.stream.operators.base import NEVER, Operator
from vedette.stream.operators.session import Session
from vedette.stream.userfunctions import Functions

Ident = tuple[int, int, int]
"""A layer's slice length, where its slices begin, and of CUMULATE's windows the step."""


@dataclass
class _Member:
    """One of the nodes."""

    node: WindowedNode
    outputs: list[tuple[Operator, int]]
    late: int = 0
    needs: frozenset[bytes] = frozenset()
    """Its parts."""
    give: Callable[[Slice, int, int], list[Row]] = field(init=False)
    layer: Layer = field(init=False)
    """Whose slices its windows are: of CUMULATE those of its whole size."""
    base: Layer = field(init=False)
    """The layer that its rows come by."""


def lengths(grid: Grid) -> tuple[Ident, ...]:
    """The layers of a grid's windows, the one that they are given from last."""
    size, step, offset = grid.size, grid.step, grid.offset
    if grid.kind == "TUMBLE":
        return ((size, offset % size, 0),)
    fine = gcd(size, step)
    slices = (fine, offset % fine, 0)
    return (slices,) if grid.kind == "HOP" else (slices, (size, offset % size, step))


def feeds(fine: Ident, coarse: Ident) -> bool:
    """Whether slices of one are unions of slices of the other, and known whenever they are given."""
    divided = coarse[2] or coarse[0]
    shifted = (coarse[1] - fine[1]) % fine[0]
    return not fine[2] and fine < coarse and divided % fine[0] == 0 and not shifted


class Windowed(Operator):
    def __init__(self, node: WindowedNode, budget: Budget) -> None:
        super().__init__(node, budget)
        self.members: list[_Member] = []
        self.layers: dict[Ident, Layer] = {}
        """From fine to coarse; made when all nodes are known."""
        self._fed_by: dict[Ident, Ident] = {}
        self._feeds: dict[Ident, list[Layer]] = {}
        self._keep: dict[Ident, int] = {}
        """How long after its end a slice is still needed."""
        self._done = NEVER
        """All windows that end up to there have been given."""
        self._saved: dict[Ident, Ident | None] = {}
        """Of each layer that was restored what fed it then."""

    @classmethod
    def kind_for(cls, node: Any) -> type[Operator]:
        return Session if node.grid.kind == "SESSION" else cls

    @classmethod
    def shared_by(cls, node: Any) -> bytes:
        alone = (
            (node.grid, node.legacy) if any(row_of(aggregate.name).ordered for aggregate in node.aggregates) else None
        )
        same = dump((node.input.fingerprint, node.time, node.keys, node.sets, alone))
        return hashlib.blake2b(msgpack.packb(["Windowed", same]), digest_size=16).digest()

    def serve(self, node: Node, outputs: list[tuple[Operator, int]]) -> None:
        assert isinstance(node, WindowedNode)
        self.members.append(_Member(node, outputs))

    def takers(self) -> list[tuple[Operator, int]]:
        return [taker for member in self.members for taker in member.outputs]

    def forward(self, mark: int) -> None:
        for operator, port in self.takers():
            operator.advance(port, mark)

    def late_of(self, node: Node) -> int:
        return sum(member.late for member in self.members if member.node.fingerprint == node.fingerprint)

    def call_by(self, functions: Functions | None) -> None:
        self.accumulators.users.calls.functions = functions

    # --- layers

    def ready(self) -> None:
        every = [aggregate for member in self.members for aggregate in member.node.aggregates]
        self.accumulators = Accumulators(every)
        idents = sorted({ident for member in self.members for ident in lengths(member.node.grid)})
        for ident in idents:
            self.layers[ident] = self._layer(ident)
            finer = [other for other in idents if feeds(other, ident)]
            if finer:
                self._fed_by[ident] = finer[-1]
        for member in self.members:
            member.layer = self.layers[lengths(member.node.grid)[-1]]
            behind = f"start, end, end - {MILLISECOND}" + (", k[-1]" if member.node.sets else "")
            member.give = member.layer.giver(member.node.aggregates, behind)
            only = Accumulators(member.node.aggregates)
            member.needs = frozenset(name for name, part in member.layer.parts.items() if part in only.parts)
        self.retains = max(member.node.grid.size for member in self.members)
        self._connect()

    def _layer(self, ident: Ident) -> Layer:
        node: Any = self.members[0].node
        size, offset, _ = ident
        time = f"row[{node.input.time}]"
        slice_of = (f"{time} - ({time} - {offset}) % {size}", f"at + {size} > done")
        return Layer(self.budget, ident, self.accumulators, node.keys, slice_of, node.sets)

    def _connect(self) -> None:
        """Work out what follows from which layers there are, and which feeds which."""
        self.layers = dict(sorted(self.layers.items()))
        self.tables = list(self.layers.values())
        self._feeds = {ident: [] for ident in self.layers}
        for ident, fed_by in self._fed_by.items():
            self._feeds[fed_by].append(self.layers[ident])
        self._keep = dict.fromkeys(self.layers, 0)
        for member in self.members:
            own = member.layer.ident
            if member.node.grid.kind == "HOP":
                self._keep[own] = max(self._keep[own], member.node.grid.size - own[0])
            while own in self._fed_by:
                own = self._fed_by[own]
            member.base = self.layers[own]

    # --- rows

    def push(self, port: int, rows: Sequence[Row]) -> None:
        for ident, layer in self.layers.items():
            if ident not in self._fed_by:
                failed, late = layer.update(rows, self._done)
                self.failed += failed
                for row in late:
                    self._late(layer, row)
                    for member in self.members:
                        time = row[member.node.input.time]
                        if member.base is layer and time < member.node.grid.last_end(time) <= self._done:
                            member.late += 1
        self.failed += self.accumulators.users.failed()

    def _late(self, layer: Layer, row: Row) -> None:
        """A row whose slice has closed: HOP may still need it here, coarser layers may take it themselves."""
        size, offset, _ = layer.ident
        time: int = row[self.members[0].node.input.time]
        start = aligned(time, size, offset)
        for member in self.members:
            if (
                member.layer is layer
                and member.node.grid.kind == "HOP"
                and member.node.grid.last_end(time) > self._done
            ):
                if start not in layer.slices:
                    layer.new_slice(start).closed = True
                layer.update((row,), NEVER)
                break
        for wider in self._feeds[layer.ident]:
            size, offset, _ = wider.ident
            if aligned(time, size, offset) + size > self._done:
                wider.update((row,), NEVER)
            else:
                self._late(wider, row)

    # --- windows

    def due(self, mark: int) -> None:
        limit = mark + MILLISECOND
        while (end := self._next()) is not None and end <= limit:
            self._close(end)
            self._done = end
        self._done = limit
        self.failed += self.accumulators.users.failed()

    def _next(self) -> int | None:
        """The end of the first slice or window that has not been given."""
        ends: list[int] = []
        done = self._done
        for (size, _, _), layer in self.layers.items():
            ends += [start + size for start, piece in layer.slices.items() if not piece.closed]
        for member in self.members:
            size, step, offset = member.node.grid.size, member.node.grid.step, member.node.grid.offset
            kind, slices = member.node.grid.kind, member.layer.slices
            if kind == "TUMBLE":
                continue
            for start in slices:
                after = max(done + 1, start + member.layer.ident[0] if kind == "HOP" else start + 1)
                base = offset + size if kind == "HOP" else start
                end = after + (base - after) % step
                if end <= (aligned(start, step, offset) + size if kind == "HOP" else start + size):
                    ends.append(end)
        return min(ends, default=None)

    def _close(self, end: int) -> None:
        for ident, layer in self.layers.items():
            start = end - ident[0]
            piece = layer.slices.get(start)
            if piece is not None and not piece.closed:
                piece.closed = True
                layer.changed[()] = None
                for wider in self._feeds[ident]:
                    self._feed(layer, piece, start, wider)
        for member in self.members:
            self._give(member, end)
        for ident, layer in self.layers.items():
            gone = end - ident[0] - self._keep[ident]
            for start in [start for start in layer.slices if start <= gone]:
                layer.remove_slice(start)

    def _feed(self, layer: Layer, piece: Slice, start: int, wider: Layer) -> None:
        size, offset, _ = wider.ident
        at = aligned(start, size, offset)
        wider.merge(wider.slices.get(at) or wider.new_slice(at), piece, layer)

    def _give(self, member: _Member, end: int) -> None:
        grid, layer = member.node.grid, member.layer
        start = end - grid.size
        piece: Slice | None
        if grid.kind == "HOP":
            if (start - grid.offset) % grid.step:
                return
            parts = [layer.slices[at] for at in range(start, end, layer.ident[0]) if at in layer.slices]
            piece = self._merged(layer, parts, before=not member.node.legacy)
        else:
            if grid.kind == "CUMULATE":
                start = aligned(end - 1, grid.size, grid.offset)
                if (end - start) % grid.step:
                    return
            piece = layer.slices.get(start)
        if piece is None or piece.lacks & member.needs:
            return
        self.emit(member.give(piece, start, end), member.outputs)

    def _merged(self, layer: Layer, parts: Sequence[Slice], before: bool) -> Slice | None:
        if len(parts) < 2:
            return parts[0] if parts else None
        whole = Slice(layer.accumulators.fields)
        for part in parts:
            layer.merge(whole, part, layer, before)
            self.budget.give_way()
        return whole

    def boundary(self, mark: int) -> int:
        done = mark + MILLISECOND
        return min(aligned(done, size, offset) + size for size, offset, _ in self.layers) - MILLISECOND

    # --- state

    def delta(self) -> list[Any] | None:
        layers = [[ident, self._fed_by.get(ident), layer.delta()] for ident, layer in self.layers.items()]
        late = [[member.node.fingerprint, member.late] for member in self.members]
        counted = [*self.marks, self.failed, *(member.late for member in self.members)]
        if counted == self._written and not any(part for _, _, part in layers):
            return None
        self._written = counted
        return [self.marks, late, self.failed, layers]

    def restore(self, data: Any) -> None:
        marks, late, self.failed, layers = data
        self.marks, self.mark = list(marks), min(marks)
        counts = dict(late)
        for member in self.members:
            member.late = counts.get(member.node.fingerprint, member.late)
        self._saved = {}
        for ident, fed_by, part in layers:
            self._saved[ident] = fed_by
            if ident not in self.layers:  # no statement needs it any more; see resume
                self.layers[ident] = self._layer(ident)
            if part is not None:
                self.layers[ident].restore(part)
        for ident in self._wanted_no_more():
            if ident not in self._saved:
                self._remove(ident)
        self._written = []

    def _wanted_no_more(self) -> list[Ident]:
        wanted = {ident for member in self.members for ident in lengths(member.node.grid)}
        return [ident for ident in self.layers if ident not in wanted]

    def _remove(self, ident: Ident) -> None:
        self.budget.tables.remove(self.layers.pop(ident))

    def resume(self) -> None:
        self._done = self.mark + MILLISECOND if self.mark > NEVER else NEVER
        gone = self._wanted_no_more()
        for ident in sorted(self._saved.keys() - set(gone)):
            fed_by = self._saved[ident]
            while fed_by in gone:
                for start, piece in self.layers[fed_by].slices.items():
                    if not piece.closed:
                        self._feed(self.layers[fed_by], piece, start, self.layers[ident])
                fed_by = self._saved.get(fed_by)
            self._fed_by.pop(ident, None)
            if fed_by is not None:
                self._fed_by[ident] = fed_by
        for ident in gone:
            self._remove(ident)
        self._saved = {}
        self._connect()

    def touch(self) -> None:
        self._written = []
        for layer in self.layers.values():
            layer.touch()


# --- of rows that have their window already


def _end(window: tuple[int, int]) -> int:
    return window[0]


class Grouped(Operator):
    """Aggregates by a window's start and end, which are columns, and other keys. A slice for each window; a row whose
    window is complete is late."""

    exact: ClassVar[bool] = True  # a row in time is of no window that a watermark before it completes

    def __init__(self, node: query.Grouped, budget: Budget) -> None:
        super().__init__(node, budget)
        start, end = node.window
        slice_of = (f"(row[{end}], row[{start}])", "at[0] > done")
        self.groups = Layer(budget, "windows", Accumulators(node.aggregates), node.keys, slice_of, newest=_end)
        self.tables.append(self.groups)
        self._give = self.groups.giver(node.aggregates, "")

    def call_by(self, functions: Functions | None) -> None:
        self.groups.accumulators.users.calls.functions = functions

    def _done(self) -> int:
        return self.mark + MILLISECOND if self.mark > NEVER else NEVER

    def push(self, port: int, rows: Sequence[Row]) -> None:
        failed, late = self.groups.update(rows, self._done())
        self.failed += failed + self.groups.accumulators.users.failed()
        self.late += len(late)

    def due(self, mark: int) -> None:
        done = self._done()
        for window in sorted(window for window in self.groups.slices if window[0] <= done):
            self.emit(self._give(self.groups.slices[window], window[1], window[0]))
            self.groups.remove_slice(window)
        self.failed += self.groups.accumulators.users.failed()
