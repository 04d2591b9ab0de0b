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

**Failures.** A correlation that raises loses the group it raised on, no other, and is told in ``failures``; after
``MUTED_AFTER`` times it is muted: what its rules match means nothing to it any more.

**State** is keyed by the digest of the correlation with its rules, and by the group: it outlives a plan under which
that digest is the same. ``delta`` and ``restore`` carry it over a restart: what follows is as if there had been none.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from vedette.compiler.relation import Correlation, Kind
from vedette.state.clock import MAX_SOURCES, Clock
from vedette.state.firing import Firing, firing_of
from vedette.state.graph import Graph, Item, Node, seen_by
from vedette.state.groups import Groups
from vedette.state.windows import Window, clause_holds, meta, metric

MAX_ENTRIES = 100_000
MAX_TAIL = 4096
MAX_AFTER = 256
CHECK_EVERY = 1_000_000
"""Microseconds of receipts between two looks at silent sources and groups that have expired."""
SWEEP = 1000
"""Groups looked at in one of them."""
MUTED_AFTER = 10
MAX_FAILURES = 1000
"""Told at a time; beyond, they only count for their correlation."""

_FOREVER = 1 << 62


class Failure(NamedTuple):
    """A correlation raised for the ``times``-th time; ``muted``: that was once too often."""

    correlation: Correlation
    reason: str
    times: int
    muted: bool


class Correlator:
    """See the module's text."""

    def __init__(
        self, correlations: Iterable[Correlation], clock: Clock, *, max_bytes: int, settle: bool = False
    ) -> None:
        self.clock = clock
        self.max_bytes = max_bytes
        self.graph = Graph(correlations, settle=settle)
        self.nodes = self.graph.nodes
        self.groups = Groups(self.graph)
        self._due: dict[int, list[tuple[int, int, bytes]]] = {}
        """By source a heap of (time to decide at, depth, group)."""
        self._scheduled: dict[bytes, int] = {}
        self._alone: dict[int, tuple[int, ...]] = {}
        """One tuple a source, shared by the windows that it alone is in."""
        self._fired: list[Firing] = []
        self._failures: list[Failure] = []
        self._miscounted = False
        """A group was left in the middle of a change, so the bytes of all are to be counted again."""
        self._checked = 0
        self._sweep: list[bytes] = []

    # --- matches in

    def add(self, items: Sequence[Item], source: int, time: int, offset: int, length: int) -> list[Firing]:
        """Take in an event of ``source`` that the clock has taken, by all its ``items``; returns what fires."""
        if source in self._due:
            self._settle(source)  # first: what it was waiting for may be of interest to what comes now
        alone = self._alone.get(source)
        if alone is None:
            if len(self._alone) > MAX_SOURCES:
                self._alone.clear()
            alone = self._alone[source] = (source,)
        for number, (node, slot, values, value, carried) in enumerate(items):
            # An event that matches several rules of a sequence is looked at when all its matches are in.
            last = node.plain or all(x.node is not node or x.values != values for x in items[number + 1 :])
            try:
                self._add(node, slot, values, value, carried, alone, time, offset, length, node.own, look=last)
            except Exception as error:  # this correlation or one above it; the others take the event in
                self._fail(node, self.groups.key(node, values), error)
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
        heap = [(due, self.groups.node(key).depth, key) for key, due in self._scheduled.items()]
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
        if self._miscounted:
            self._miscounted, self.groups.bytes = False, sum(window.size for window in self.groups.values())
        while self.groups.bytes > self.max_bytes and len(self.groups) > 1:
            self._forget(next(iter(self.groups)))
            self.groups.evicted += 1
        fired, self._fired = self._fired, []
        return fired

    # --- windows

    def _settled(self, window: Window) -> int:
        """No event before this time can come into the window any more."""
        marks = [mark for source in window.sources if (mark := self.clock.watermark(source)) is not None]
        return min(marks, default=_FOREVER)

    def _add(
        self, node: Node, slot: int, values: tuple[str, ...], value: Any, carried: tuple[Any, ...] | None,
        sources: tuple[int, ...], time: int, offset: int, length: int, same: tuple[int, ...], look: bool = True,
    ) -> None:  # fmt: skip
        """``same``: the slots in which this event counts as one with itself. ``look``: False when another match of
        this event follows for the same group."""
        c, key = node.c, self.groups.key(node, values)
        window = self.groups.get(key)
        if window is None:
            window = self.groups.put(key, Window(len(key)))
        else:
            self.groups.move_to_end(key)
            if node.plain and window.has(time, offset, value, same):
                return
        before = window.size
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
                if look:
                    self._look(node, window, values, at)
            elif late:
                self._judge(node, window, values, time)
            else:
                self._schedule(node, key, window, time, sources[0])
        self.groups.touch(key, window.size - before)

    def _compact(self, node: Node, window: Window) -> None:
        settled = self._settled(window)
        if not node.prompt:
            settled = min(settled, window.decided if window.decided is not None else window.time(0))
        window.compact(node.c, settled)
        if node.prompt and len(window) > MAX_TAIL and node.c.kind is not Kind.VALUE_SUM and window.carried is None:
            window.compact(node.c, window.time(len(window) - MAX_TAIL // 2))
        if len(window) > MAX_ENTRIES:
            self.groups.cut += len(window) // 4
            window.drop(len(window) // 4)
            window.limit = len(window) + MAX_ENTRIES // 4

    def _forget(self, key: bytes) -> None:
        self.groups.forget(key)
        self._scheduled.pop(key, None)

    def _fail(self, node: Node, key: bytes, error: Exception) -> None:
        """A group of ``node`` is forgotten, since it would raise again."""
        if key in self.groups:
            self._forget(key)
        self._miscounted = True
        node.failed += 1
        muted = node.muted = node.failed >= MUTED_AFTER
        if len(self._failures) < MAX_FAILURES:
            reason = f"{type(error).__name__}: {error}"[:500]
            self._failures.append(Failure(node.c, reason, node.failed, muted))

    def failures(self) -> list[Failure]:
        """What has raised since the last call."""
        failures, self._failures = self._failures, []
        return failures

    def mute(self, ids: Collection[str]) -> None:
        """Mute these correlations, and no others."""
        for node in self.nodes:
            node.muted = node.c.id in ids
            if not node.muted:
                node.failed = 0

    def _expire(self) -> None:
        """Forget groups in which no window can hold anything any more; a few at a time."""
        if not self._sweep:
            self._sweep = list(self.groups)
        for key in self._sweep[-SWEEP:]:
            window = self.groups.get(key)
            if window is not None and key not in self._scheduled:
                n, reach = len(window), self._settled(window) - self.groups.node(key).c.span
                if not n or window.time(n - 1) < reach:
                    self._forget(key)
        del self._sweep[-SWEEP:]

    # --- decisions

    def _look(self, node: Node, window: Window, values: tuple[str, ...], at: int) -> None:
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
    def _holds(node: Node, window: Window, i: int) -> bool:
        """The truth of a prompt condition at entry ``i``."""
        c = node.c
        if c.kind is Kind.EVENT_COUNT:
            back = i + 1 - node.least
            return node.least <= 0 or (back >= 0 and window.time(back) >= window.time(i) - c.span)
        start = window.first(window.time(i) - c.span)
        if c.clauses:
            return any(clause_holds(c, clause, window, start, i + 1) is not None for clause in c.clauses)
        return c.holds(metric(c, window, start, i + 1))

    def _schedule(self, node: Node, key: bytes, window: Window, time: int, source: int) -> None:
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
            try:
                self._decide(key, due + 1)
            except Exception as error:
                self._fail(self.groups.node(key), key, error)
        if not heap:
            self._due.pop(source, None)

    def _decide(self, key: bytes, until: int) -> None:
        """Decide the matches of a group that are due before ``until``; then wait for its next."""
        node, window = self.groups.node(key), self.groups[key]
        values = self.groups.values_of(key)
        reach = until - node.c.span if node.c.forward else until
        i = 0 if window.decided is None else window.first(window.decided + 1)
        while i < len(window) and (time := window.time(i)) < reach:
            window.decided = time
            self._judge(node, window, values, time)
            i = window.first(time + 1)
        window.decided = reach - 1 if window.decided is None else max(window.decided, reach - 1)
        if i < len(window):
            self._schedule(node, key, window, window.time(i), window.sources[0])
        self.groups.decided(key)

    def _judge(self, node: Node, window: Window, values: tuple[str, ...], time: int) -> None:
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

    def _judge_forward(self, node: Node, window: Window, values: tuple[str, ...], first: int, after: int) -> None:
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
        self, node: Node, window: Window, values: tuple[str, ...], i: int, time: int, fires: bool,
        stretch: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """The condition holds at entry ``i``, for correlations above at ``time``."""
        c = node.c
        start, stop = stretch or (window.first(window.time(i) - c.span), i + 1)
        if fires:
            node.fired += 1
            self._fired.append(firing_of(c, window, values, i, start, stop))
        for above, slot in node.parents:
            for key, value, carried in seen_by(node, above, slot, window, values, start, stop):
                place = time, window.offset(i), window.length(i), (slot,)
                try:
                    self._add(above, slot, key, value, carried, window.sources, *place)
                except Exception as error:
                    self._fail(above, self.groups.key(above, key), error)

    # --- state

    def delta(self) -> list[Any]:
        """The groups that changed since the last ``delta`` or ``dump``, for msgpack; and the counts."""
        return [self._checked, *self.groups.delta()]

    def dump(self) -> list[Any]:
        """All of it, as one delta."""
        return [self._checked, *self.groups.dump()]

    def restore(self, data: list[Any]) -> set[str]:
        """Take over one ``delta`` or ``dump``; in the order in which they were made, then ``resume``.

        Returns the ids of correlations that had another digest then, and so start empty.
        """
        self._checked, *groups = data
        return self.groups.restore(groups)

    def resume(self) -> None:
        """After the last ``restore``: wait again for what is undecided."""
        for key, window in self.groups.items():
            node = self.groups.node(key)
            i = 0 if window.decided is None else window.first(window.decided + 1)
            if not node.prompt and i < len(window):
                self._schedule(node, key, window, window.time(i), window.sources[0])

    def adopt(self, other: Correlator) -> list[str]:
        """Take over the groups of another plan's correlations that are the same here.

        Returns the ids of those that were there and have changed, and so start empty.
        """
        self._checked = other._checked
        changed = self.groups.adopt(other.groups)
        self.resume()
        return changed


def _or(value: int | None, other: int) -> int:
    return other if value is None else value
