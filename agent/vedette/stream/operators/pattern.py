"""MATCH_RECOGNIZE, as Flink 2.3 answers it, by the pattern's ``automaton.py``.

**Rows** wait until the watermark reaches their time; then those of all keys go on by time, ties as they came. A row
that comes when the watermark is already there is late. NULL is a key as any other.

**Partial matches.** A match's rows lie next to each other, so a partial match is a state, the number of its first row,
and how many rows each variable has. It ends with the first row that no edge takes, when its time is ``within`` or more
after its first row's, and when a match is given whose skip covers its first row.

**Matches** are given in the order of their first rows: one waits while a partial match that began earlier is open. Then
AFTER MATCH SKIP ends all that begin at its first row (``NEXT``), up to its last row (``PAST``), before the first or
last row of a variable. When that variable has no row, or it is the first, the match is not given and counted in
``failed`` (Flink's job dies). MATCH_ROWTIME() is the time at which a match was given: its last row's, or when what it
waited for ended.

A row for which a condition fails is left out and counted. Of a key at most ``MAX_PARTIALS`` partial matches and
``MAX_ROWS`` rows are kept: the partial match that began first gives way, counted as ``evicted``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar

from vedette.plan import query
from vedette.plan.pattern import ANY
from vedette.plan.query import SECOND, Row
from vedette.stream.expression import FAILURES, several
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import Function
from vedette.stream.keyed import EVER, Budget, Key, Table
from vedette.stream.operators import heap
from vedette.stream.operators.automaton import FINAL, Automaton, Counts
from vedette.stream.operators.base import FOREVER, NEVER, Operator
from vedette.stream.operators.rows import Rows, newest_by
from vedette.stream.operators.seen import Condition, Seen, View

MAX_PARTIALS = 1_000
MAX_ROWS = 10_000

Partial = tuple[int, int, Counts]
"""Number of the first row, state, counts. Of a key they are a heap; one of them is ``BEGIN``, in ``start``, from which
the next row begins a match."""
BEGIN = FOREVER
Complete = tuple[int, Counts]
"""A complete match: number of the first row, counts."""


class _Run:
    """The rows of a key from ``first`` on, as numbered."""

    __slots__ = ("first", "rows")

    def __init__(self, first: int) -> None:
        self.first = first
        self.rows: list[Row] = []


class Match(Operator):
    """State: of each key the number of its next row, its partial matches and its complete ones that wait; its rows; and
    the rows of all keys that wait for the watermark, in groups of a second, until the last of these has gone on."""

    node: query.Match
    exact = True
    renews: ClassVar[bool] = True
    library: ClassVar[Mapping[str, Function]] = LIBRARY

    def __init__(self, node: query.Match, budget: Budget) -> None:
        super().__init__(node, budget)
        self._names = {variable.name: place for place, variable in enumerate(node.pattern)} | {ANY: -1}
        self._automaton = Automaton(node.pattern)
        self._begin: Partial = (BEGIN, self._automaton.start, (0,) * len(node.pattern))
        width = 1 + len(node.input.columns)
        defines = dict(node.defines)
        self._conditions = [
            Condition(defines[variable.name], place, width, self._names) if variable.name in defines else None
            for place, variable in enumerate(node.pattern)
        ]
        self._plain = all(condition is None or condition.plain for condition in self._conditions)
        seen = Seen(1, self._names)
        self._measures = several([seen.rewritten(measure) for measure in node.measures])
        self._references = seen.references()
        newest = newest_by(node.input.time)
        self._waiting, self._rows = Rows(budget, newest), Rows(budget, newest)
        self._keys: Table[Any] = Table(
            budget, lambda value: 80 + 96 * (len(value[1]) + len(value[2])), newest=lambda key, value: self._done
        )
        self.retains = node.within or EVER
        self.tables += [self._waiting.table, self._rows.table, self._keys]
        for table in self.tables:
            table.lost = []
        self._order: list[tuple[int, int, Row]] = []
        """A heap of the rows that wait: time, number, row."""
        self._gone: set[int] = set()
        """The numbers of those in ``_order`` that the budget has evicted."""
        self._slots: list[int] = []
        """A heap of their seconds."""
        self._runs: dict[Key, _Run] = {}
        self._ends: list[tuple[int, int, Key]] = []
        """A heap: when the first partial match of a key is too old, a number, the key."""
        self._ending: dict[Key, int] = {}
        """What of ``_ends`` is not void."""
        self._number = self._pushed = 0
        self._done = NEVER
        """The rows up to this time have gone on."""

    def push(self, port: int, rows: Sequence[Row]) -> None:
        time, mark = self.node.input.time, self.mark
        for row in rows:
            at = row[time]
            if at <= mark:
                self.late += 1
                continue
            slot = at // SECOND
            if (slot,) not in self._waiting:
                heappush(self._slots, slot)
            self._waiting.add((slot,), row, self._number)
            heappush(self._order, (at, self._number, row))
            self._number += 1

    def due(self, mark: int) -> None:
        if any(table.lost for table in self.tables):
            self._lose()
        self._done = mark
        order, ends, gone = self._order, self._ends, self._gone
        output = list[Row]()
        while True:
            at = order[0][0] if order and order[0][0] <= mark else FOREVER + 1
            if ends and ends[0][0] <= min(at, mark):
                end, _, key = heappop(ends)
                if self._ending.get(key) == end:
                    del self._ending[key]
                    self._expire(key, end, output)
            elif at <= mark:
                _, number, row = heappop(order)
                if number in gone:
                    gone.remove(number)
                else:
                    self._row(row, at, output)
            else:
                break
            output = self.so_far(output)
        while self._slots and (self._slots[0] + 1) * SECOND <= mark:
            self._waiting.drop((heappop(self._slots),))
        self.emit(output)

    def _row(self, row: Row, at: int, output: list[Row]) -> None:
        key = tuple([row[index] for index in self.node.keys])
        state = self._keys.values.get(key)
        number, partials, pending = state or (0, (self._begin,), ())
        run = self._runs.get(key) or _Run(number)
        try:
            left, complete = self._step(row, run, number, partials)
        except FAILURES:
            self.failed += 1
            return
        if len(left) == 1 and not complete and not pending:
            if state is not None:
                self._forget(key)
            return
        self._runs[key] = run
        run.rows.append(row)
        self._rows.add(key, row, number)
        waiting = list(pending)
        for match in complete:
            heap.add(waiting, match)
        self._settle(key, number + 1, left, waiting, at, output)

    def _step(self, row: Row, run: _Run, number: int, partials: Sequence[Partial]) -> tuple[heap.Heap, heap.Heap]:
        """Heaps of the partial matches and of the complete ones after a row."""
        alone: dict[int, bool] = {}
        left: heap.Heap = []
        complete: heap.Heap = []
        met = self._met(row)
        for first, state, counts in partials:
            self.budget.give_way()
            if first == BEGIN:
                first = number
            if met is None:
                meets = self._meets(row, run.rows, first - run.first, counts, alone)
                after = list(self._automaton.step(state, counts, meets))
            else:
                after = [
                    (target, (*counts[:variable], counts[variable] + 1, *counts[variable + 1 :]))
                    for target, variable in self._automaton.moves(state, met)
                ]
            for target, more in after:
                if target == FINAL:
                    heap.add(complete, (first, more))
                else:
                    heap.add(left, (first, target, more))
            if first == number:
                heap.add(left, self._begin)
        return left, complete

    def _met(self, row: Row) -> int | None:
        """Bits of the conditions that a row meets, where they are about the row alone. None where they are not, or one
        of them fails: then only those are evaluated that a partial match needs."""
        if not self._plain:
            return None
        met = 0
        try:
            for place, condition in enumerate(self._conditions):
                if condition is None or condition.alone(row):
                    met |= 1 << place
        except FAILURES:
            return None
        return met

    def _meets(
        self, row: Row, rows: list[Row], start: int, counts: Counts, alone: dict[int, bool]
    ) -> Callable[[int], bool]:
        """Whether a row meets a variable's condition behind a partial match. ``alone``: what is known of the row for
        all partial matches."""
        conditions = self._conditions
        within: dict[int, bool] = {}

        def meets(variable: int) -> bool:
            condition = conditions[variable]
            if condition is None:
                return True
            truths = alone if condition.plain else within
            truth: bool | None = truths.get(variable)
            if truth is None:
                truth = condition.alone(row) if condition.plain else condition.holds(row, rows, start, counts)
                truths[variable] = truth
            return truth

        return meets

    def _settle(
        self, key: Key, number: int, partials: heap.Heap, pending: heap.Heap, at: int, output: list[Row]
    ) -> None:
        """Give what need not wait any longer, and keep the rest."""
        while pending and pending[0][0] <= partials[0][0]:
            match = heap.take(pending)
            until = self._skip(match)
            if until is None:
                self.failed += 1
                until = match[0]
            else:
                self._give(key, match, at, output)
            partials = heap.keep(partials, lambda partial: partial[0] > until)  # noqa: B023  # called at once
            pending = heap.keep(pending, lambda complete: complete[0] > until)  # noqa: B023  # called at once
        if len(partials) > MAX_PARTIALS + 1 or number - partials[0][0] > MAX_ROWS:
            firsts = sorted(partial[0] for partial in partials)
            least = max(firsts[-MAX_PARTIALS - 1] if len(firsts) > MAX_PARTIALS else 0, number - MAX_ROWS)
            partials = heap.keep(partials, lambda partial: partial[0] >= least)
            self._keys.tear(self._done, len(firsts) - len(partials))
        if len(partials) == 1 and not pending:
            self._forget(key)
            return
        self._keys.put(key, (number, tuple(partials), tuple(pending)))
        self._hold(key, self._runs[key], partials, pending)

    def _hold(self, key: Key, run: _Run, partials: Sequence[Partial], pending: Sequence[Complete]) -> None:
        """Keep no more rows than are needed, and see that the first partial match ends in time."""
        first = partials[0][0]
        if self.node.within and first < BEGIN:
            self._end_at(key, run.rows[first - run.first][self.node.input.time] + self.node.within)
        if pending:
            first = min(first, pending[0][0])
        if first > run.first:
            self._trim(key, run, first)

    def _skip(self, match: Complete) -> int | None:
        """Up to which first row all ends when ``match`` is given; None when it cannot."""
        first, counts = match
        skip = self.node.skip
        if skip == "NEXT":
            return first
        if skip == "PAST":
            return first + sum(counts) - 1
        variable = self._names[self.node.skip_to]
        to = first + sum(counts[: variable + (skip == "LAST")]) - (skip == "LAST")
        return to - 1 if counts[variable] and to > first else None

    def _give(self, key: Key, match: Complete, at: int, output: list[Row]) -> None:
        run, (first, counts) = self._runs[key], match
        start = first - run.first
        view = View(run.rows, start, counts, None, -2, at)
        try:
            measures = self._measures((0, *[refer(view) for refer in self._references]))
        except FAILURES:
            self.failed += 1
            return
        output.append((max(row[0] for row in view.of(-1)), *key, *measures))

    def _expire(self, key: Key, end: int, output: list[Row]) -> None:
        """End what is too old at ``end``."""
        state, run = self._keys.values.get(key), self._runs.get(key)
        if state is None or run is None:
            return
        number, partials, pending = state
        time, before = self.node.input.time, end - self.node.within
        left = [
            partial for partial in partials if partial[0] == BEGIN or run.rows[partial[0] - run.first][time] > before
        ]
        self._settle(key, number, heap.filled(left), list(pending), end, output)

    def _end_at(self, key: Key, end: int) -> None:
        if self._ending.get(key) != end:
            self._ending[key] = end
            heappush(self._ends, (end, self._pushed, key))
            self._pushed += 1

    def _trim(self, key: Key, run: _Run, first: int) -> None:
        """Let the rows before ``first`` go."""
        del run.rows[: first - run.first]
        run.first = first
        gone = []
        for place, chunk in self._rows.chunks(key):
            if chunk[-1][2] >= first:
                break
            gone.append(place)
        for place in gone:
            self._rows.keep(place, [])

    def _forget(self, key: Key) -> None:
        self._keys.remove(key)
        self._rows.drop(key)
        self._runs.pop(key, None)
        self._ending.pop(key, None)

    def resume(self) -> None:
        self._done = self.mark
        self._find()

    def _find(self) -> None:
        """Find again what follows from the tables."""
        self._number = self._pushed = 0
        for part in (self._order, self._gone, self._slots, self._runs, self._ends, self._ending):
            part.clear()
        for table in self.tables:
            table.lost = []
        self._waiting.resume()
        self._rows.resume()
        for group in self._waiting.groups():
            self._slots.append(group[0])
            for row, _, number in self._waiting.entries(group):
                self._number = max(self._number, number + 1)
                if row[self.node.input.time] > self._done:
                    self._order.append((row[self.node.input.time], number, row))
        heapify(self._slots)
        heapify(self._order)
        for key in {*self._rows.groups(), *self._keys.values}:
            self._resume(key)

    def _lose(self) -> None:
        """Stop evaluating what the budget has evicted since the last call."""
        waiting, chunks, keys = (table.lost or [] for table in self.tables)
        for table in self.tables:
            table.lost = []
        time = self.node.input.time
        self._gone.update(number for _, chunk in waiting for row, _, number in chunk if row[time] > self._done)
        for key, _ in keys:
            self._forget(key)
        for key in dict.fromkeys(chunk_key[:-1] for chunk_key, _ in chunks):
            self._rows.prune(key)
            self._resume(key)

    def _resume(self, key: Key) -> None:
        """A key that the budget has evicted in part loses what refers to rows that are gone."""
        self._ending.pop(key, None)
        state = self._keys.values.get(key)
        entries = self._rows.entries(key)
        if state is None or not entries or entries[-1][2] != state[0] - 1:
            self._forget(key)
            return
        number, partials, pending = state
        while len(entries) > 1 and entries[-1][2] - entries[0][2] != len(entries) - 1:
            entries = entries[1:]  # a chunk in between is gone
        first = entries[0][2]
        if min(match[0] for match in (*partials, *pending)) < first:
            partials, pending = (
                tuple(heap.keep(list(matches), lambda match: match[0] >= first)) for matches in (partials, pending)
            )
            if len(partials) == 1 and not pending:
                self._forget(key)
                return
            self._keys.put(key, (number, partials, pending))
        run = self._runs[key] = _Run(first)
        run.rows = [entry[0] for entry in entries]
        self._hold(key, run, partials, pending)
