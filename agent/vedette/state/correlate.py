"""Correlations at work: matches in, firings out. Pure: events, their times and the clock are given.

A match goes into the window of its group in every correlation that looks at its rule; the window is kept sorted, so
that the order of arrival does not matter. A match at which the condition holds is an **occurrence**. Occurrences of a
group that follow each other within the span, with no match between at which it does not hold, are one **run**; a run
fires once, at its first occurrence. So a correlation fires when its condition becomes true, and again only after it
was false, be it at a match or because the window was empty. Correlations above see every occurrence.

* A **prompt** correlation (``compiler/relation.py``) is decided when a match arrives. A match that comes late, but
  within the lateness, may add occurrences; a run of which one has fired does not fire again, also when it is parted.
* Any other is decided when the watermark of all sources of its group has passed: a window that ends at a match after
  that match, one that begins at a match (``Correlation.forward``) after its end. With ``settle`` all are.

**Bounds.** Windows take ``max_bytes`` in all; beyond, the group least recently touched is evicted and counted. One
group holds ``MAX_ENTRIES``; its oldest go and are counted as ``cut``. Of a prompt correlation, a group with more than
``MAX_TAIL`` events within the lateness is compacted regardless, and a match that arrives out of order looks at
``MAX_AFTER`` later ones: in such a flood the condition has held long since, or (values, chains) may be found late.

**State** is keyed by the digest of the correlation with its rules, and by the group: it outlives a plan under which
that digest is the same. ``delta`` and ``restore`` carry it over a restart: what follows is as if there had been none.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

from vedette.compiler.ir import as_shown, fold, leaves
from vedette.compiler.relation import NUMERIC, Correlation, Kind, ordered
from vedette.inputs.decode import ABSENT, Record
from vedette.state.clock import MAX_SOURCES, Clock
from vedette.state.windows import Window, clause_holds, meta, metric, number_of

MAX_CONTRIBUTING = 20
MAX_ENTRIES = 100_000
MAX_TAIL = 4096
MAX_AFTER = 256
MAX_TEXT = 256
"""Characters of a value that is grouped by or counted; of a longer one the rest goes by its hash."""
CHECK_EVERY = 1_000_000
"""Microseconds of receipts between two looks at silent sources and groups that have expired."""
SWEEP = 1000
"""Groups looked at in one of them."""

_FOREVER = 1 << 62


class Contributor(NamedTuple):
    """An event behind a firing; ``rule_id`` is that of the slot it came in by."""

    rule_id: str
    time: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Firing:
    """A correlation's condition became true for the group ``values`` (of its ``group_by``, folded texts).

    ``count``: the metric of a kind that counts, else the number of events in the window. ``event`` completed it.
    """

    correlation: Correlation
    values: tuple[str, ...]
    event: Contributor
    slot: int
    metric: int | float | None
    count: int
    first_time: int
    last_time: int
    contributing: tuple[Contributor, ...]


class Item(NamedTuple):
    """What one match means to one correlation."""

    node: _Node
    slot: int
    values: tuple[str, ...]
    value: Any
    carried: tuple[Any, ...] | None


class _Node:
    """A correlation with its place among the others, and its counts."""

    def __init__(self, correlation: Correlation, depth: int, settle: bool) -> None:
        self.c = correlation
        self.depth = depth
        self.prompt = correlation.prompt and not settle
        self.plain = correlation.kind not in (Kind.TEMPORAL, Kind.TEMPORAL_ORDERED)
        self.least = correlation.least if correlation.prompt and correlation.bounds else 0
        self.prefix = prefix(correlation)
        self.parents: list[tuple[_Node, int]] = []
        self.carry: tuple[str, ...] = ()
        """Fields that correlations above want to know of its events."""
        self.own = tuple(i for i, slot in enumerate(correlation.slots) if not slot.correlation)
        """The slots that are detections."""
        self.fired = self.late = self.ungrouped = self.groups = 0


def prefix(correlation: Correlation) -> bytes:
    """What the keys of a correlation's groups begin with: the same for the same id and digest."""
    return hashlib.blake2b(f"{correlation.id}\0{correlation.digest}".encode(), digest_size=8).digest()


class Correlator:
    """See the module's text."""

    def __init__(
        self, correlations: Iterable[Correlation], clock: Clock, *, max_bytes: int, settle: bool = False
    ) -> None:
        self.clock = clock
        self.max_bytes = max_bytes
        self.bytes = self.evicted = self.cut = 0
        self.groups: OrderedDict[bytes, Window] = OrderedDict()
        """The least recently touched first."""
        self.nodes: list[_Node] = []
        by_id: dict[str, _Node] = {}
        for c in ordered(correlations):
            below = [by_id[slot.rule_id].depth for slot in c.slots if slot.correlation]
            node = by_id[c.id] = _Node(c, 1 + max(below, default=0), settle)
            self.nodes.append(node)
        self._feeds: dict[str, list[tuple[_Node, int]]] = {}
        for node in self.nodes:
            for i, slot in enumerate(node.c.slots):
                if slot.correlation:
                    by_id[slot.rule_id].parents.append((node, i))
                else:
                    self._feeds.setdefault(slot.rule_id, []).append((node, i))
        for node in reversed(self.nodes):  # those above first
            wanted = [above.c.slots[i].field(name) for above, i in node.parents for name in _names(above.c)]
            wanted += [name for above, _ in node.parents for name in above.carry]
            node.carry = tuple(sorted(set(wanted) - set(node.c.group_by)))
        self._by_prefix = {node.prefix: node for node in self.nodes}
        self._due: dict[int, list[tuple[int, int, bytes]]] = {}
        """By source a heap of (time to decide at, depth, group)."""
        self._scheduled: dict[bytes, int] = {}
        self._alone: dict[int, tuple[int, ...]] = {}
        """One tuple a source, shared by the windows that it alone is in."""
        self._dirty: dict[bytes, bool | None] = {}
        """Groups changed since the last delta, the last touched last: True touched, False only decided, None gone."""
        self._fired: list[Firing] = []
        self._checked = 0
        self._sweep: list[bytes] = []

    # --- matches in

    def wants(self, rule_id: str) -> bool:
        """True when a correlation looks at this rule."""
        return rule_id in self._feeds

    def grouped(self, rule_id: str) -> frozenset[str]:
        """The fields of this rule's events by which it, or a correlation above, may be grouped."""
        names: set[str] = set()
        waiting = list(self._feeds.get(rule_id, ()))
        while waiting:
            node, slot = waiting.pop()
            names.update(node.c.slots[slot].field(name) for name in node.c.group_by)
            waiting += node.parents
        return frozenset(names)

    def prepare(self, rule_id: str, event: Record) -> list[Item]:
        """What a match of ``rule_id`` means; one that lacks a value to group by is counted and means nothing."""
        items = []
        for node, i in self._feeds.get(rule_id, ()):
            c, slot = node.c, node.c.slots[i]
            values = tuple(_key(scalar(event.get(slot.field(name)))) for name in c.group_by)
            if None in values:
                node.ungrouped += 1
                continue
            value = _value(c, [scalar(event.get(slot.field(name))) for name in c.field]) if c.field else None
            carried = tuple(scalar(event.get(name)) for name in node.carry) if node.carry else None
            items.append(Item(node, i, values, value, carried))  # type: ignore[arg-type]
        return items

    def late(self, rule_id: str) -> None:
        """A match of ``rule_id`` came too late to be used."""
        for node, _ in self._feeds.get(rule_id, ()):
            node.late += 1

    def add(self, items: Sequence[Item], source: int, time: int, offset: int, length: int) -> list[Firing]:
        """Take in an event of ``source`` that the clock has taken; returns what fires."""
        if source in self._due:
            self._settle(source)  # first: what it was waiting for may be of interest to what comes now
        alone = self._alone.get(source)
        if alone is None:
            if len(self._alone) > MAX_SOURCES:
                self._alone.clear()
            alone = self._alone[source] = (source,)
        for node, slot, values, value, carried in items:
            self._add(node, slot, values, value, carried, alone, time, offset, length, node.own)
        return self._drain()

    def advance(self) -> list[Firing]:
        """The clock was advanced: decide what is due, forget what has expired. Does something once a second."""
        if self.clock.running - self._checked >= CHECK_EVERY:
            self._checked = self.clock.running
            for source in list(self._due):
                self._settle(source)
            self._expire()
        return self._drain()

    def finish(self) -> list[Firing]:
        """No event comes any more: decide everything."""
        heap = [(due, self._node(key).depth, key) for key, due in self._scheduled.items()]
        heapq.heapify(heap)
        self._due.clear()
        while heap:
            due, _, key = heapq.heappop(heap)
            if self._scheduled.get(key) == due:
                del self._scheduled[key]
                self._decide(key, due + 1)
                for waiting in self._due.values():
                    for entry in waiting:
                        heapq.heappush(heap, entry)
                self._due.clear()
        return self._drain()

    def _drain(self) -> list[Firing]:
        while self.bytes > self.max_bytes and len(self.groups) > 1:
            self._forget(next(iter(self.groups)))
            self.evicted += 1
        fired, self._fired = self._fired, []
        return fired

    # --- windows

    def _node(self, key: bytes) -> _Node:
        return self._by_prefix[key[:8]]

    def _settled(self, window: Window) -> int:
        """No event before this time can come into the window any more."""
        marks = [mark for source in window.sources if (mark := self.clock.watermark(source)) is not None]
        return min(marks, default=_FOREVER)

    def _add(
        self, node: _Node, slot: int, values: tuple[str, ...], value: Any, carried: tuple[Any, ...] | None,
        sources: tuple[int, ...], time: int, offset: int, length: int, same: tuple[int, ...],
    ) -> None:  # fmt: skip
        """``same``: the slots in which this event counts as one with itself."""
        c, key = node.c, node.prefix + msgpack.packb(values)
        window = self.groups.get(key)
        if window is None:
            window = self.groups[key] = Window(len(key))
            node.groups += 1
            before = 0
        else:
            self.groups.move_to_end(key)
            before = window.size
            if node.plain and window.has(time, offset, value, same):
                return
        if window.sources != sources:
            window.sources = tuple(sorted({*window.sources, *sources}))
        if len(window) >= window.limit:
            self._compact(node, window)
        late = window.decided is not None and time <= window.decided
        if late and not c.slots[slot].correlation:
            node.late += 1
        else:
            at = window.insert(time, offset, meta(slot, length), value, carried)
            if node.prompt:
                self._look(node, window, values, at)
            elif late:
                self._judge(node, window, values, time)
            else:
                self._schedule(node, key, window, time, sources[0])
        self._dirty.pop(key, None)
        self._dirty[key] = True
        self.bytes += window.size - before

    def _compact(self, node: _Node, window: Window) -> None:
        settled = self._settled(window)
        if not node.prompt:
            settled = min(settled, window.decided if window.decided is not None else window.time(0))
        window.compact(node.c, settled)
        if node.prompt and len(window) > MAX_TAIL and node.c.kind is not Kind.VALUE_SUM and window.carried is None:
            window.compact(node.c, window.time(len(window) - MAX_TAIL // 2))
        if len(window) > MAX_ENTRIES:
            self.cut += len(window) // 4
            window.drop(len(window) // 4)
            window.limit = len(window) + MAX_ENTRIES // 4

    def _forget(self, key: bytes) -> None:
        window = self.groups.pop(key)
        self.bytes -= window.size
        self._node(key).groups -= 1
        self._scheduled.pop(key, None)
        self._dirty.pop(key, None)
        self._dirty[key] = None

    def _expire(self) -> None:
        """Forget groups in which no window can hold anything any more; a few at a time."""
        if not self._sweep:
            self._sweep = list(self.groups)
        for key in self._sweep[-SWEEP:]:
            window = self.groups.get(key)
            if window is not None and key not in self._scheduled:
                n, reach = len(window), self._settled(window) - self._node(key).c.span
                if not n or window.time(n - 1) < reach:
                    self._forget(key)
        del self._sweep[-SWEEP:]

    # --- decisions

    def _look(self, node: _Node, window: Window, values: tuple[str, ...], at: int) -> None:
        """Decide a prompt correlation at the event of the new entry ``at``, and at those after it that this may have
        made true. The entries of one event are decided as one."""
        end, n = window.time(at) + node.c.span, len(window)
        new: list[tuple[int, int]] = []
        first, i = window.begins(at), at
        for _ in range(MAX_AFTER):
            if i >= n or window.time(i) > end:
                break
            last = window.ends(i)
            if first < at <= last and window.held(first):
                window.hold(at)  # another match of an event at which it held already
            elif not window.held(first) and self._holds(node, window, last):
                window.hold(first, last)
                new.append((first, last))
            first = i = last + 1
        done = 0
        while done < len(new):
            begin = done
            while done + 1 < len(new) and self._follows(node.c, window, new[done][1], new[done + 1][0]):
                done += 1
            first, last = new[begin][0], new[done][1]
            known = (first > 0 and window.held(first - 1) and self._near(node.c, window, first - 1, first)) or (
                last + 1 < n and window.held(last + 1) and self._near(node.c, window, last, last + 1)
            )
            for number in range(begin, done + 1):
                fires = not known and number == begin
                if fires or node.parents:
                    self._occurs(node, window, values, new[number][1], window.time(new[number][1]), fires)
            done += 1

    def _follows(self, c: Correlation, window: Window, i: int, j: int) -> bool:
        return j == i + 1 and self._near(c, window, i, j)

    @staticmethod
    def _near(c: Correlation, window: Window, i: int, j: int) -> bool:
        return window.time(j) - window.time(i) <= c.span

    @staticmethod
    def _holds(node: _Node, window: Window, i: int) -> bool:
        """The truth of a prompt condition at entry ``i``."""
        c = node.c
        if c.kind is Kind.EVENT_COUNT:
            back = i + 1 - node.least
            return node.least <= 0 or (back >= 0 and window.time(back) >= window.time(i) - c.span)
        start = window.first(window.time(i) - c.span)
        if c.clauses:
            return any(clause_holds(c, clause, window, start, i + 1) is not None for clause in c.clauses)
        return c.holds(metric(c, window, start, i + 1))

    def _schedule(self, node: _Node, key: bytes, window: Window, time: int, source: int) -> None:
        due = time + node.c.span if node.c.forward else time
        known = self._scheduled.get(key)
        if known is None or due < known:
            self._scheduled[key] = due
            heapq.heappush(self._due.setdefault(source, []), (due, node.depth, key))

    def _settle(self, source: int) -> None:
        """Decide what waits for ``source`` and is due."""
        heap = self._due.get(source, [])
        while heap:
            due, depth, key = heap[0]
            if self._scheduled.get(key) != due:
                heapq.heappop(heap)  # evicted, or decided with another
                continue
            mark = self.clock.watermark(source)
            if mark is not None and due >= mark:
                break
            heapq.heappop(heap)
            window = self.groups[key]
            slowest = min(window.sources, key=lambda one: _or(self.clock.watermark(one), _FOREVER))
            if _or(self.clock.watermark(slowest), _FOREVER) <= due:
                heapq.heappush(self._due.setdefault(slowest, []), (due, depth, key))
                continue
            del self._scheduled[key]
            self._decide(key, due + 1)
        if not heap:
            self._due.pop(source, None)

    def _decide(self, key: bytes, until: int) -> None:
        """Decide the matches of a group that are due before ``until``; then wait for its next."""
        node, window = self._node(key), self.groups[key]
        values = tuple(msgpack.unpackb(key[8:]))
        reach = until - node.c.span if node.c.forward else until
        i = 0 if window.decided is None else window.first(window.decided + 1)
        while i < len(window) and (time := window.time(i)) < reach:
            window.decided = time
            self._judge(node, window, values, time)
            i = window.first(time + 1)
        window.decided = reach - 1 if window.decided is None else max(window.decided, reach - 1)
        if i < len(window):
            self._schedule(node, key, window, window.time(i), window.sources[0])
        self._dirty.setdefault(key, False)

    def _judge(self, node: _Node, window: Window, values: tuple[str, ...], time: int) -> None:
        """Decide at all entries of one ``time``."""
        c, first, after = node.c, window.first(time), window.first(time + 1)
        if c.forward:
            self._judge_forward(node, window, values, first, after)
            return
        if c.prompt:  # as if decided at once: event by event
            i = first
            while i < after:
                last = window.ends(i)
                if not window.held(i) and self._holds(node, window, last):
                    window.hold(i, last)
                    known = i > 0 and window.held(i - 1) and self._near(c, window, i - 1, i)
                    self._occurs(node, window, values, last, time, fires=not known)
                i = last + 1
            return
        start = window.first(time - c.span)
        if c.holds(metric(c, window, start, after)):
            window.hold(first, after - 1)
            known = first > 0 and window.held(first - 1) and self._near(c, window, first - 1, first)
            self._occurs(node, window, values, after - 1, time, fires=not known)

    def _judge_forward(self, node: _Node, window: Window, values: tuple[str, ...], first: int, after: int) -> None:
        """The window that begins at the entries ``first`` to ``after``."""
        c = node.c
        stop = window.first(window.time(first) + c.span + 1)
        here = {window.slot(i) for i in range(first, after)}
        found = [
            done
            for clause in c.clauses
            if here.intersection(clause.wanted) and (done := clause_holds(c, clause, window, first, stop)) is not None
        ]
        if not found:
            return
        wanted = {slot for clause in c.clauses for slot in clause.wanted}
        window.hold(first, after - 1)
        before = first - 1
        while before >= 0 and window.slot(before) not in wanted:
            before -= 1
        known = before >= 0 and window.held(before) and self._near(c, window, before, first)
        self._occurs(node, window, values, min(found), window.time(first) + c.span, not known, (first, stop))

    # --- what follows from an occurrence

    def _occurs(
        self, node: _Node, window: Window, values: tuple[str, ...], i: int, time: int, fires: bool,
        stretch: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """The condition holds at entry ``i``, for correlations above at ``time``."""
        c = node.c
        start, stop = stretch or (window.first(window.time(i) - c.span), i + 1)
        if fires:
            node.fired += 1
            self._fired.append(self._firing(c, window, values, i, start, stop))
        for above, slot in node.parents:
            for key, value, carried in self._seen_by(node, above, slot, window, values, start, stop):
                self._add(
                    above, slot, key, value, carried, window.sources, time, window.offset(i), window.length(i), (slot,)
                )

    @staticmethod
    def _firing(c: Correlation, window: Window, values: tuple[str, ...], i: int, start: int, stop: int) -> Firing:
        measured = None if c.clauses else metric(c, window, start, stop)
        events = [index for index in range(start, stop) if not _forbidden(c, window.slot(index))]
        slots = len({window.slot(index) for index in events})
        counts = slots if c.clauses else measured
        picked: dict[int, int] = {}
        for index in reversed(events):  # the newest of each slot, then the newest
            picked.setdefault(window.slot(index), index)
        chosen = set(sorted(picked.values())[-MAX_CONTRIBUTING:])
        for index in reversed(events):
            if len(chosen) >= MAX_CONTRIBUTING:
                break
            chosen.add(index)

        def contributor(index: int) -> Contributor:
            rule_id = c.slots[window.slot(index)].rule_id
            return Contributor(rule_id, window.time(index), window.offset(index), window.length(index))

        return Firing(
            correlation=c,
            values=values,
            event=contributor(i),
            slot=window.slot(i),
            metric=measured,
            count=len(events) if c.kind in NUMERIC or counts is None else int(counts),
            first_time=window.time(events[0]),
            last_time=window.time(events[-1]),
            contributing=tuple(contributor(index) for index in sorted(chosen)),
        )

    @staticmethod
    def _seen_by(
        node: _Node, above: _Node, slot: int, window: Window, values: tuple[str, ...], start: int, stop: int
    ) -> list[tuple[tuple[str, ...], Any, tuple[Any, ...] | None]]:
        """An occurrence as the correlation above takes it: for each group that its events belong to there."""
        c, known = above.c, dict(zip(node.c.group_by, values, strict=True))
        rows = {()} if window.carried is None else {window.carried[i] for i in range(start, stop)}
        seen: dict[tuple[tuple[str, ...], Any], tuple[Any, ...] | None] = {}
        for row in sorted(rows, key=repr):
            fields = {**dict(zip(node.carry, row, strict=False)), **known}
            key = tuple(_key(fields.get(c.slots[slot].field(name))) for name in c.group_by)
            if None in key:
                continue
            value = _value(c, [fields.get(c.slots[slot].field(name)) for name in c.field]) if c.field else None
            seen.setdefault((key, value), tuple(fields.get(name) for name in above.carry) if above.carry else None)  # type: ignore[arg-type]
        if not seen:
            above.ungrouped += 1
        return [(key, value, carried) for (key, value), carried in seen.items()]

    # --- state

    @property
    def changed(self) -> bool:
        """True when a group has changed since the last ``delta`` or ``dump``."""
        return bool(self._dirty)

    def delta(self) -> list[Any]:
        """The groups that changed since the last ``delta`` or ``dump``, for msgpack; and the counts."""
        dirty, self._dirty = self._dirty, {}
        rows = [[key, touched, None if touched is None else self.groups[key].pack()] for key, touched in dirty.items()]
        return [self._checked, self._counts(), rows]

    def dump(self) -> list[Any]:
        """All of it, as one delta."""
        self._dirty = {}
        return [self._checked, self._counts(), [[key, True, window.pack()] for key, window in self.groups.items()]]

    def _counts(self) -> list[Any]:
        return [self.evicted, self.cut, [[n.prefix, n.c.id, n.fired, n.late, n.ungrouped] for n in self.nodes]]

    def restore(self, data: list[Any]) -> set[str]:
        """Take over one ``delta`` or ``dump``; in the order in which they were made, then ``resume``.

        Returns the ids of correlations that had another digest then, and so start empty.
        """
        self._checked, (self.evicted, self.cut, counts), rows = data
        ids, changed = {node.c.id for node in self.nodes}, set()
        for found, rule_id, fired, late, ungrouped in counts:
            if (node := self._by_prefix.get(found)) is not None:
                node.fired, node.late, node.ungrouped = fired, late, ungrouped
            elif rule_id in ids:
                changed.add(rule_id)
        for key, touched, row in rows:
            if key[:8] not in self._by_prefix:
                continue
            if row is None:
                if key in self.groups:
                    self._forget(key)
                continue
            if (known := self.groups.get(key)) is not None:
                self.bytes -= known.size
                self._node(key).groups -= 1
            self._take(key, Window.unpack(row, len(key)))
            if touched:
                self.groups.move_to_end(key)
        self._dirty = {}
        return changed

    def _take(self, key: bytes, window: Window) -> None:
        self.groups[key] = window
        self.bytes += window.size
        self._node(key).groups += 1

    def resume(self) -> None:
        """After the last ``restore``: wait again for what is undecided."""
        for key, window in self.groups.items():
            node = self._node(key)
            i = 0 if window.decided is None else window.first(window.decided + 1)
            if not node.prompt and i < len(window):
                self._schedule(node, key, window, window.time(i), window.sources[0])

    def adopt(self, other: Correlator) -> list[str]:
        """Take over the groups of another plan's correlations that are the same here.

        Returns the ids of those that were there and have changed, and so start empty.
        """
        old = {node.prefix: node for node in other.nodes}
        self.evicted, self.cut, self._checked = other.evicted, other.cut, other._checked
        self._dirty = other._dirty
        for node in self.nodes:
            if (same := old.get(node.prefix)) is not None:
                node.fired, node.late, node.ungrouped = same.fired, same.late, same.ungrouped
        for key, window in other.groups.items():
            if key[:8] in self._by_prefix:
                self._take(key, window)
            else:
                self._dirty[key] = None
        self.resume()
        before = {node.c.id for node in other.nodes}
        return sorted(node.c.id for node in self.nodes if node.prefix not in old and node.c.id in before)


def _names(c: Correlation) -> tuple[str, ...]:
    return (*c.group_by, *c.field)


def _or(value: int | None, other: int) -> int:
    return other if value is None else value


def _forbidden(c: Correlation, slot: int) -> bool:
    return bool(c.clauses) and not any(slot in clause.wanted for clause in c.clauses)


def scalar(value: Any) -> Any:
    """A field's value as one text or number; a list's texts joined; None for none."""
    if value is ABSENT or value is None or isinstance(value, dict):
        return None
    if isinstance(value, list):
        found = [item for item in leaves(value) if item is not None and not isinstance(item, dict)]
        return found[0] if len(found) == 1 else as_shown(found)
    return value


def shown_group(firing: Firing, get: Callable[[str], Any]) -> dict[str, str]:
    """The firing's group by field, its values spelled as in the event that completed it where they are the same.

    ``get`` gives a field of that event.
    """
    slot = firing.correlation.slots[firing.slot]
    shown = {}
    for name, value in zip(firing.correlation.group_by, firing.values, strict=True):
        written = scalar(get(slot.field(name)))
        shown[name] = as_shown(written) or value if _key(written) == value else value
    return shown


def _key(value: Any) -> str | None:
    """The text by which events are grouped, without regard to case; None when there is no value."""
    if value is None:
        return None
    if isinstance(value, str):
        text = fold(value)
    elif isinstance(value, float) and value.is_integer() and abs(value) < 1 << 63:
        text = str(int(value))
    else:
        text = as_shown(value) or ""
    if len(text) > MAX_TEXT or not text.isascii():
        data = text.encode("utf-8", "replace")
        text = data.decode()
        if len(text) > MAX_TEXT:
            text = text[: MAX_TEXT - 32] + hashlib.blake2b(data, digest_size=16).hexdigest()
    return text


def _value(c: Correlation, values: list[Any]) -> Any:
    """What a correlation measures of one event."""
    if c.kind in NUMERIC:
        return number_of(values[0])
    keys = [_key(value) for value in values]
    if None in keys:
        return None
    return keys[0] if len(keys) == 1 else tuple(keys)
