"""Islands of a network: operators that are connected without passing through a ``Scan``.

Rows of a ``Scan`` come in at an ``Entry``; a ``Tap`` is what an island has of one: the operators that its rows and its
watermark reach there, and how far it has let them go on. ``flush`` lets rows that wait go on, in their order among
those of all entries, then the watermarks. An island in which an operator raises is muted, and no other is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import merge
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any

from vedette.plan.query import MILLISECOND, Call, Column, Literal, Row, Scan, Statement
from vedette.stream.expression import FAILURES, evaluator
from vedette.stream.functions.javaregex import Patience
from vedette.stream.keyed import Budget
from vedette.stream.network.lanes import Lanes
from vedette.stream.network.waiting import Waiting
from vedette.stream.operators.base import FOREVER, NEVER, AtWork, Operator, runs
from vedette.stream.operators.stateless import Calc
from vedette.stream.reader import by_receipt

MAX_OVERRUNS = 10
"""Regular expressions of an island that take too long: with the last it is muted, as a rule would be."""


class Entry:
    """Where rows of one ``Scan`` come in, and how far its watermark is."""

    def __init__(self, scan: Scan, mark_of: Callable[[Row], int | None]) -> None:
        self.scan, self.time_at, self.mark_of = scan, scan.time, mark_of
        self.received = by_receipt(scan)
        self.timed = False
        """Whether a watermark makes a difference to anything below."""
        self.merged = False
        """Whether an island takes its rows in their order among those of other entries."""
        self.mark = self.written = NEVER
        self.lanes = Lanes()
        self.boundary = FOREVER
        """The least watermark that some island has to see."""
        self.rows: list[Row] = []
        self.order: list[int] = []
        """Of each of ``rows`` its number among those of all entries."""
        self.islands: list[Island] = []
        self.outputs: list[tuple[Any, int]] = []

    def in_time(self, row: Row) -> Row:
        """The row, which is behind the watermark, at the next time that is not; a clock was set back."""
        return (*row[: self.time_at], self.mark + MILLISECOND, *row[self.time_at + 1 :])

    def look(self) -> None:
        self.boundary = min((island.taps[self].boundary for island in self.islands), default=FOREVER)


class Tap:
    """The place where an island takes an entry's rows."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.outputs: list[tuple[Any, int]] = []
        self.ports: dict[Operator, set[int]] = {}
        """Of all operators that the entry's watermark reaches those ports."""
        self.exact = False
        """Whether a row behind the watermark must find it there (``Operator.exact``)."""
        self.forked = False
        """Whether an operator below takes its rows at several ports: then each row goes everywhere before the next."""
        self.taken = 0
        """So many of the entry's rows went on."""
        self.mark = NEVER
        self.boundary = FOREVER

    def push(self, rows: Sequence[Row]) -> None:
        for run in ([row] for row in rows) if self.forked else runs(rows):
            for operator, port in self.outputs:
                operator.push(port, run)
            self._budget.give_way()


class Sink:
    """The end of a statement."""

    def __init__(self, statement: Statement, waiting: Waiting) -> None:
        self.statement, self.waiting, self.rows = statement, waiting, 0

    def push(self, port: int, rows: Sequence[Row]) -> None:
        self.rows += len(rows)
        self.waiting.add(self.statement, rows)

    def advance(self, port: int, mark: int) -> None:
        pass


Filter = tuple[Calc, list[Sink]]
"""WHERE and SELECT right above a table, and the statements that give its rows."""


class Island:
    def __init__(self, at_work: AtWork | None) -> None:
        self._at_work = at_work
        self.taps: dict[Entry, Tap] = {}
        self.statements: list[Statement] = []
        self.muted = False
        self.failure: Exception | None = None
        """Why it was muted, until somebody has asked."""
        self.patience = MAX_OVERRUNS
        """So many searches may still take too long."""

    def flush(self) -> None:
        """Let the rows that wait go on, then the watermarks."""
        at_work = self._at_work if self.statements and not self.muted else None
        Patience.left = self.patience
        try:
            if not self.muted:
                if at_work is not None:
                    at_work(self.statements[0].id)
                self._flush()
        except Exception as error:  # the statements of other islands go on
            self.muted, self.failure = True, error
        finally:
            self.patience, Patience.left = max(1, Patience.left), 1 << 62
            if at_work is not None:
                at_work("")
        for entry, tap in self.taps.items():
            tap.taken, tap.mark = len(entry.rows), max(tap.mark, entry.mark)
        self.look()

    def _flush(self) -> None:
        taps = self.taps
        if len(taps) == 1:
            for entry, tap in taps.items():
                if run := entry.rows[tap.taken :]:
                    tap.push(run)
        else:
            waiting = [
                zip(entry.order[tap.taken :], repeat(tap), entry.rows[tap.taken :], strict=False)
                for entry, tap in taps.items()
            ]
            for tap, numbered in groupby(merge(*waiting, key=itemgetter(0)), key=itemgetter(1)):
                tap.push([row for _, _, row in numbered])
        for entry, tap in taps.items():
            if entry.mark > tap.mark:
                for operator, port in tap.outputs:
                    operator.advance(port, entry.mark)

    def filtered(self, filters: Sequence[Filter], rows: Sequence[Row]) -> list[tuple[Statement, list[Row]]]:
        """Return what the statements of ``filters``, which are the island's, give for ``rows``."""
        selected: list[tuple[Statement, list[Row]]] = []
        if self.muted:
            return selected
        Patience.left, at_work = self.patience, self._at_work
        try:
            if at_work is not None:
                at_work(self.statements[0].id)
            for calc, sinks in filters:
                calculated = calc.calculated(rows)
                for sink in sinks:
                    sink.rows += len(calculated)
                    selected.append((sink.statement, calculated))
        except Exception as error:  # the statements of other islands go on
            self.muted, self.failure = True, error
        finally:
            self.patience, Patience.left = max(1, Patience.left), 1 << 62
            if at_work is not None:
                at_work("")
        return selected

    def look(self) -> None:
        """Ask the operators again how far watermarks may go unseen."""
        for entry, tap in self.taps.items():
            tap.boundary = (
                FOREVER
                if self.muted
                else min(
                    (
                        operator.boundary(operator.mark)
                        for operator, ports in tap.ports.items()
                        if any(operator.marks[port] <= operator.mark for port in ports)
                    ),
                    default=FOREVER,
                )
            )
            entry.look()


def islands_of(
    operators: Collection[Operator],
    sinks: Iterable[Sink],
    entries: Iterable[Entry],
    budget: Budget,
    at_work: AtWork | None,
) -> list[Island]:
    """The islands of ``operators`` and ``sinks``, with what the rows of each of ``entries`` reach in them."""
    root: dict[int, int] = {}

    def find(member: Any) -> int:
        at = id(member)
        while root.setdefault(at, at) != at:
            at = root[at]
        return at

    every: list[Any] = [*operators, *sinks]
    for operator in operators:
        for below, _ in operator.takers():
            root[find(below)] = find(operator)
    islands: dict[int, Island] = {}
    for member in every:
        island = islands.setdefault(find(member), Island(at_work))
        if isinstance(member, Sink):
            island.statements.append(member.statement)
    for entry in entries:
        for operator, port in entry.outputs:
            island = islands[find(operator)]
            tap = island.taps.setdefault(entry, Tap(budget))
            tap.outputs.append((operator, port))
        entry.islands = [island for island in islands.values() if entry in island.taps]
        for island in entry.islands:
            tap = island.taps[entry]
            ahead = list(tap.outputs)
            while ahead:
                operator, port = ahead.pop()
                if isinstance(operator, Operator):
                    if operator not in tap.ports:
                        ahead += operator.takers()
                    tap.ports.setdefault(operator, set()).add(port)
                    tap.exact = tap.exact or operator.exact
                    tap.forked = tap.forked or len(tap.ports[operator]) > 1
        entry.timed = any(operator.tables for island in entry.islands for operator in island.taps[entry].ports)
    return list(islands.values())


def filters_of(entry: Entry) -> list[tuple[Island, list[Filter]]] | None:
    """By island what takes the entry's rows, where each gives the rows of statements and nothing else does."""
    by_island: list[tuple[Island, list[Filter]]] = []
    for island in entry.islands:
        filters = list[Filter]()
        for calc, _ in island.taps[entry].outputs:
            if not isinstance(calc, Calc):
                return None
            ends: list[Any] = [taker for taker, _ in calc.takers()]
            if not all(isinstance(end, Sink) for end in ends):
                return None
            filters.append((calc, ends))
        by_island.append((island, filters))
    return by_island


def mark_of(scan: Scan) -> Callable[[Row], int | None]:
    match scan.mark:
        case None:
            return lambda row: None
        case Column(index):
            return itemgetter(index)
        case Call("-", (Column(index), Literal(int() as delay)), type) if type.name.startswith("TIMESTAMP"):
            return lambda row: row[index] - delay if row[index] is not None else None
    compiled = evaluator(scan.mark)

    def mark(row: Row) -> int | None:
        try:
            time: int | None = compiled(row)
        except FAILURES:
            return None
        return time

    return mark
