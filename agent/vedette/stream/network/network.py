"""Statements as one network of operators: rows of tables in, alerts' rows out.

Equal nodes (``Node.fingerprint``) of all statements run as one operator, nodes whose operator can serve several
(``Operator.shared_by``) as one as well. A row goes in at a ``Scan`` by ``feed``, in the order of the log: first the
row, then the watermark that it moves (``lanes.py``). The outcome is the same as if every operator saw each row and
each watermark by itself, but rows wait and go on in runs as long as the watermark stays below what could make a
difference to any operator below (``Operator.boundary``).

One cycle of a caller::

    network.feed(rule, row)       # for each row of a batch
    network.drain()               # evaluates what was fed
    network.waiting.take()        # results, as many as are asked for, in order
    network.delta()               # what changed, to be written with the results that were taken in one transaction

After a crash: a new ``Network`` of the same or of other statements, ``restore`` with each delta in their order,
``resume``; then it goes on as if nothing had happened. State belongs to nodes: what statements no longer need is left
out, what is new begins empty.

A rule whose rows only go through filters (``filters``) needs none of this: ``filter`` gives at once what comes of some.

An **island** is a set of operators that are connected without passing through a ``Scan``: it has its own runs, so that
an operator that has to see each watermark (a join) costs no other island its runs. An island in which an operator
raises, which none should, or in which regular expressions take too long too often, is **muted**: it takes no rows any
more, and its statements are in ``failures``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from vedette.plan.query import MILLISECOND, Node, Row, Scan, Statement, nodes, scans_of
from vedette.stream.keyed import Budget
from vedette.stream.network.island import MAX_OVERRUNS, Entry, Sink, filters_of, islands_of, mark_of
from vedette.stream.network.lacking import Lacking
from vedette.stream.network.lanes import IDLE, MAX_LANES, MIN_LANES, Source
from vedette.stream.network.waiting import Waiting
from vedette.stream.operators.base import FOREVER, NEVER, AtWork, Operator
from vedette.stream.operators.table import OPERATORS
from vedette.stream.userfunctions import Functions

MAX_WAITING = 4096
"""Rows of one ``Scan`` that may wait."""
MAX_FORGOTTEN = 64 << 10
"""Bytes of keys that gave way, beyond as many as are there, which an operator's timers may still name."""

MAX_STEP = 60_000_000
"""Of receipts at once, which is more than ``state/clock.py`` lets go by: then it is another clock."""
RECEIPTS: Source = ("", "")
"""Whose the times of receipt are."""
_RECEIPTS = b""
"""In a delta in place of a fingerprint: how far the receipts are."""
_WAITING = b"waiting"
"""The same: results that nobody has taken yet."""
_LACKING = b"lacking"
"""The same: whose state gave way."""

Result = tuple[Statement, Row]


class Counts(NamedTuple):
    """Counts of a statement; operators that statements share count for each of them."""

    rows: int
    """Rows that it gave."""
    late: int
    """Rows that came behind the watermark and were dropped."""
    failed: int
    """Rows on which an expression failed, and which were dropped."""
    bytes: int
    """What its state takes."""
    evicted: int
    """Keys of its state that gave way to the budget."""
    dropped: int
    """Rows that it gave and that had no room to wait."""


class Network:
    """Statements that run, and their state.

    ``operators``: of each class of node what runs it. Rows that wait take as much as ``budget`` allows for state.
    ``at_work`` is given the id of a statement of an island before its operators run, and an empty one afterwards.
    """

    def __init__(
        self, statements: Sequence[Statement], budget: Budget,
        operators: Mapping[type[Node], type[Operator]] = OPERATORS, at_work: AtWork | None = None,
    ) -> None:  # fmt: skip
        self._at_work = at_work
        self.statements, self.budget = tuple(statements), budget
        self.waiting = Waiting(self.statements, budget.limit)
        """Results that nobody has taken yet."""
        self.timeless: dict[str, int] = {}
        """By table: rows dropped because they had no time."""
        self.operators: dict[bytes, Operator] = {}
        """By the fingerprint that its state has, each after its inputs."""
        self._entries: dict[bytes, Entry] = {}
        self._runs: dict[bytes, Operator] = {}
        """By node."""
        self._number = 0
        self._drained = False
        """Whether nothing was fed and no watermark has moved since the last ``drain``."""
        self._receipts = self._running = self._receipts_written = 0
        """Microseconds of receipts gone by, as ``advance`` was given them, and without those of another clock."""
        self._sinks: dict[str, Sink] = {}
        self._build(operators)
        self.lacking = Lacking(self.statements, self.operators, self._runs)
        """Statements whose rows may lack something."""
        self.scans = scans_of(self.statements)
        """By the rule that selects their events, in the order by which ``feed`` numbers them."""

    def _build(self, operators: Mapping[type[Node], type[Operator]]) -> None:
        every = {node.fingerprint: node for statement in self.statements for node in nodes(statement.root)}
        takers: dict[bytes, list[tuple[Any, int]]] = {fingerprint: [] for fingerprint in every}
        for fingerprint, node in every.items():
            if isinstance(node, Scan):
                entry = self._entries[fingerprint] = Entry(node, mark_of(node))
                entry.outputs = takers[fingerprint]
                continue
            kind = operators[type(node)].kind_for(node)
            identity = kind.shared_by(node)
            running = self.operators.get(identity)
            if running is None:
                running = self.operators[identity] = kind(node, self.budget)
                for port, below in enumerate(node.inputs):
                    takers[below.fingerprint].append((running, port))
            self._runs[fingerprint] = running
            running.serve(node, takers[fingerprint])
        for running in self.operators.values():
            running.ready()
        for statement in self.statements:
            sink = self._sinks[statement.id] = Sink(statement, self.waiting)
            takers[statement.root.fingerprint].append((sink, 0))
        self._by_rule = {
            rule: [self._entries[scan.fingerprint] for scan in scans]
            for rule, scans in scans_of(self.statements).items()
        }
        self._renewed = {
            table: running for running in self.operators.values() if running.renews for table in running.tables
        }
        self._make_islands()

    def _make_islands(self) -> None:
        operators, sinks, entries = self.operators.values(), self._sinks.values(), self._entries.values()
        islands = islands_of(operators, sinks, entries, self.budget, self._at_work)
        filters = {rule: [filters_of(entry) for entry in entries] for rule, entries in self._by_rule.items()}
        self._filters = {
            rule: [by_island for by_island in by_scan if by_island] for rule, by_scan in filters.items() if all(by_scan)
        }
        for entry in self._entries.values():
            entry.merged = any(len(island.taps) > 1 for island in entry.islands)
        timed = [entry for entry in self._entries.values() if entry.timed]
        for entry in timed:
            entry.lanes.limit = max(MIN_LANES, MAX_LANES // len(timed))
        self._timed = timed
        self._islands = islands
        for island in self._islands:
            island.look()

    def call_by(self, functions: Functions | None) -> None:
        """Set what runs user functions, before the first row."""
        for operator in self.operators.values():
            operator.call_by(functions)

    def use(self, lookups: Mapping[str, Any]) -> None:
        """The lookups by name, before the first row, and again when one is replaced: rows that wait see the one that
        was there before. Raises KeyError when one lacks what a statement asks for."""
        self.drain()
        for operator in self.operators.values():
            operator.use(lookups)

    # --- rows

    def feed(self, rule: str, row: Row, at: int = 0, source: Source = ("", ""), received_at: int = 0) -> None:
        """A row of ``scans[rule][at]``: the origin, then its columns; ``source``: whose it is, ``received_at``: when it
        came (0: not known). Without a time it is dropped and counted."""
        entry = self._by_rule[rule][at]
        time_at, rows = entry.time_at, entry.rows
        time = row[time_at] if time_at else 0
        if time is None:
            self._no_time(entry, 1)
            return
        self._drained = False
        if not entry.timed:
            rows.append(row)
            if entry.merged:
                entry.order.append(self._number)
                self._number += 1
        else:
            if time_at and time <= entry.mark:
                if entry.received:
                    row = entry.in_time(row)
                    time = row[time_at]
                self._catch_up(entry)
            rows.append(row)
            entry.order.append(self._number)
            self._number += 1
            mark = entry.mark_of(row)
            if mark is None:
                entry.lanes.at = self._running
            else:
                ahead = time - received_at if 0 < received_at < time else 0
                source = RECEIPTS if entry.received else source
                self._raise(entry, entry.lanes.take(source, mark - ahead, self._running))
        if len(rows) >= MAX_WAITING:
            self.drain()

    def filters(self, rule: str) -> bool:
        """Whether all that becomes of the rule's rows is what ``filter`` gives."""
        return rule in self._filters

    def filter(self, rule: str, rows: Sequence[Row], at: int = 0) -> list[tuple[Statement, list[Row]]]:
        """Return what comes of rows of ``scans[rule][at]``, as ``feed`` and ``flush`` give it, by statement."""
        entry = self._by_rule[rule][at]
        if time_at := entry.time_at:
            timed = [row for row in rows if row[time_at] is not None]
            self._no_time(entry, len(rows) - len(timed))
            rows = timed
        return [selected for island, filters in self._filters[rule][at] for selected in island.filtered(filters, rows)]

    def _no_time(self, entry: Entry, rows: int) -> None:
        if rows:
            table = entry.scan.table
            self.timeless[table] = self.timeless.get(table, 0) + rows

    def feed_all(
        self, rule: str, rows: Sequence[Row], hosts: Sequence[str | None], input: str = "", received_at: int = 0
    ) -> None:
        """``feed`` of rows of ``scans[rule][0]``, one after the other; ``hosts``: whose each is."""
        entry = self._by_rule[rule][0]
        time_at, lanes, running = entry.scan.time, entry.lanes, self._running
        if not entry.timed or not time_at or entry.received:
            for row, host in zip(rows, hosts, strict=True):
                self.feed(rule, row, 0, (input, host or ""), received_at)
            return
        waiting, order, mark_of, take = entry.rows, entry.order, entry.mark_of, lanes.take
        for row, host in zip(rows, hosts, strict=True):
            time = row[time_at]
            if time is None or time <= entry.mark:
                self.feed(rule, row, 0, (input, host or ""), received_at)
                continue
            self._drained = False
            waiting.append(row)
            order.append(self._number)
            self._number += 1
            mark = mark_of(row)
            if mark is None:
                lanes.at = running
            else:
                if 0 < received_at < time:
                    mark -= time - received_at
                mark = take((input, host or ""), mark, running)
                if mark > entry.mark:
                    entry.mark = mark
                    if mark >= entry.boundary:
                        self._pass(entry)
            if len(waiting) >= MAX_WAITING:
                self.drain()

    def wants_source(self, rule: str) -> bool:
        """Whether ``feed`` asks whose a row is."""
        return any(entry.timed for entry in self._by_rule[rule])

    def advance(self, running: int) -> None:
        """So many microseconds of receipts have gone by since the agent began (``state/clock.py``): lanes go on, and
        the watermark of a table to which no row has come for ``IDLE`` of them goes on with the rest."""
        gone, self._receipts = running - self._receipts, running
        if not 0 < gone < MAX_STEP:
            return
        self._running += gone
        for entry in self._timed:
            if entry.mark == NEVER:
                continue
            if entry.received:
                gone_since = self._running - entry.lanes.at
                self._raise(entry, entry.lanes.newest + gone_since // MILLISECOND * MILLISECOND)
                continue
            mark = entry.lanes.least(self._running)
            if (beyond := min(gone, self._running - entry.lanes.at - IDLE)) > 0:
                mark = max(mark, entry.mark + beyond // MILLISECOND * MILLISECOND)
            self._raise(entry, mark)

    def _raise(self, entry: Entry, mark: int) -> None:
        if mark > entry.mark:
            entry.mark = mark
            self._drained = False
            if mark >= entry.boundary:
                self._pass(entry)

    def _catch_up(self, entry: Entry) -> None:
        """A row comes that is behind the watermark: let who asks see the watermark first."""
        for island in entry.islands:
            tap = island.taps[entry]
            if tap.exact and tap.mark < entry.mark:
                island.flush()

    def _pass(self, entry: Entry) -> None:
        for island in entry.islands:
            if entry.mark >= island.taps[entry].boundary:
                island.flush()
        self._settle()

    def _settle(self) -> None:
        """Keep to the budget, also with what operators keep besides their tables."""
        if not (evicted := self.budget.settle()):
            return
        self.lacking.lose(evicted)
        for operator in {self._renewed[table] for table in evicted if table in self._renewed}:
            forgotten = sum(table.forgotten for table in operator.tables)
            if forgotten > sum(table.bytes for table in operator.tables) + MAX_FORGOTTEN:
                operator.resume()
                for table in operator.tables:
                    table.forgotten = 0

    def drain(self) -> None:
        """Evaluate what was fed."""
        if self._drained:
            return
        for island in self._islands:
            island.flush()
        for entry in self._entries.values():
            entry.rows.clear()
            entry.order.clear()
            for island in entry.islands:
                island.taps[entry].taken = 0
        self._settle()
        self._drained = True

    def flush(self) -> list[Result]:
        """Evaluate what was fed, and take all results; those of one statement in their order."""
        self.drain()
        return [(statement, row) for statement, row, _ in self.waiting.take()]

    def end(self) -> None:
        """The input is over: every watermark goes to the end of time, and whatever is open is given."""
        for entry in self._entries.values():
            entry.mark = FOREVER
        self._drained = False
        self.drain()

    def finish(self) -> list[Result]:
        """``end``, and all results."""
        self.end()
        return self.flush()

    # --- state

    def delta(self) -> dict[bytes, Any]:
        """Return what changed since the last call, by fingerprint, for ``keyed.pack``; empty for nothing."""
        self.drain()
        changed: dict[bytes, Any] = {}
        for fingerprint, entry in self._entries.items():
            if entry.timed and (entry.lanes.changed or entry.mark != entry.written):
                entry.written = entry.mark
                changed[fingerprint] = [entry.mark, *entry.lanes.delta()]
        for fingerprint, operator in self.operators.items():
            part = operator.delta()
            if part is not None:
                changed[fingerprint] = part
        begun = self._receipts != self._receipts_written and any(entry.mark != NEVER for entry in self._timed)
        if (waiting := self.waiting.delta()) is not None:
            changed[_WAITING] = waiting
        if (lacking := self.lacking.delta()) is not None:
            changed[_LACKING] = lacking
        if changed or begun:
            self._receipts_written = self._receipts
            changed[_RECEIPTS] = [self._receipts, self._running]
        return changed

    def restore(self, data: Mapping[bytes, Any]) -> None:
        """Take over one ``delta``, in the order in which they were made, then ``resume``. Fingerprints of no operator
        here are left out. Raises ValueError or TypeError for anything else."""
        self._drained = False
        for fingerprint, part in data.items():
            if fingerprint == _RECEIPTS:
                self._receipts, self._running = map(int, part)
                self._receipts_written = self._receipts
            elif fingerprint == _WAITING:
                self.waiting.restore(part)
            elif fingerprint == _LACKING:
                self.lacking.restore(part)
            elif fingerprint in self._entries:
                entry = self._entries[fingerprint]
                entry.mark, *lanes = part
                entry.lanes.restore(lanes)
                entry.written = entry.mark
            elif fingerprint in self.operators:
                self.operators[fingerprint].restore(part)

    def resume(self) -> None:
        """After the last ``restore``. Operators that are new begin at the watermark of what is before them."""
        self._drained = False
        for entry in self._entries.values():
            for operator, port in entry.outputs:
                _begin(operator, port, entry.mark)
            for island in entry.islands:
                island.taps[entry].mark = entry.mark
        for operator in self.operators.values():
            operator.resume()
            for below, port in operator.takers():
                _begin(below, port, operator.passed(operator.mark))
        self.lacking.resume()
        for island in self._islands:
            island.look()

    def touch(self) -> None:
        """The next ``delta`` holds everything."""
        for entry in self._entries.values():
            entry.written = NEVER
            entry.lanes.touch()
        for operator in self.operators.values():
            operator.touch()
        self.waiting.touch()
        self.lacking.touch()

    def adopt(self, other: Network) -> None:
        """Take over the state of ``other``, whose statements these replace, as far as nodes are the same. Of ``other``
        and of this the next ``delta`` holds everything."""
        other.touch()
        self.restore(other.delta())
        self.resume()
        self.timeless = dict(other.timeless)
        self.waiting.dropped = other.waiting.dropped.copy()
        other.touch()
        self.touch()

    # --- what fails

    def failures(self) -> list[tuple[Statement, Exception]]:
        """The statements of islands muted since the last call, and why."""
        failed = []
        for island in self._islands:
            if island.failure is not None:
                failed += [(statement, island.failure) for statement in island.statements]
                island.failure = None
        return failed

    def muted(self) -> set[str]:
        """The ids of the statements of muted islands."""
        return {statement.id for island in self._islands if island.muted for statement in island.statements}

    def mute(self, ids: Collection[str]) -> None:
        """Mute the islands of these statements, and no others; one that is no longer muted begins empty."""
        self._drained = False
        for island in self._islands:
            muted = any(statement.id in ids for statement in island.statements)
            if island.muted and not muted:
                for tap in island.taps.values():
                    for operator in tap.ports:
                        for table in operator.tables:
                            table.clear()
                        operator.resume()
            island.muted, island.patience = muted, MAX_OVERRUNS
            island.look()

    # --- what it costs

    def counts(self) -> dict[str, Counts]:
        """By id of a statement."""
        return {statement.id: self._counts(statement) for statement in self.statements}

    def _counts(self, statement: Statement) -> Counts:
        late = failed = size = evicted = 0
        seen: set[int] = set()
        for node in nodes(statement.root):
            operator = self._runs.get(node.fingerprint)
            if operator is None:
                continue
            late += operator.late_of(node)
            if id(operator) not in seen:
                seen.add(id(operator))
                failed += operator.failed
                size += sum(table.bytes for table in operator.tables)
                evicted += sum(table.evicted for table in operator.tables)
        dropped = self.waiting.dropped[statement.id]
        return Counts(self._sinks[statement.id].rows, late, failed, size, evicted, dropped)


def _begin(operator: Any, port: int, mark: int) -> None:
    """An operator without state learns how far its input is."""
    if isinstance(operator, Operator) and mark > operator.marks[port]:
        operator.marks[port] = mark
        operator.mark = min(operator.marks)
