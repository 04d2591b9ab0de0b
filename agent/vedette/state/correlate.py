"""Correlations at work: matches in, firings out. Pure: events, their times and the clock are given.

A match goes into the window of its group in every correlation that looks at its rule; the window is kept sorted, so
that the order of arrival does not matter. ``decide.py`` says at which matches the condition holds (an **occurrence**)
and which of those is the first of a **run**: that one fires. So a correlation fires when its condition becomes true,
and again only after it was false, be it at a match or because the window was empty. Correlations above see every
occurrence.

* A **prompt** correlation (``plan/relation.py``) is decided when a match arrives. A match that comes late
  may add occurrences; a run of which one has fired does not fire again, also when it is parted.
* Any other is decided when the watermarks of all lanes (``clock.py``) that its group waits for have passed: a window
  that ends at a match after that match, one that begins at a match (``Correlation.forward``) after its end. With
  ``settle`` all are. A match that comes when later ones of its group have been decided is decided by its own lane's
  watermark, and changes nothing about those.
* A window that tumbles or is a session (``extent.py``) is looked at as a whole when it is over, where it is not prompt.

**Bounds.** Windows take ``max_bytes`` in all; beyond, the group least recently touched is evicted and counted. One
group holds ``MAX_ENTRIES``; its oldest go and are counted as ``cut``. Of a prompt correlation, a group with more than
``MAX_TAIL`` events that a watermark has not passed keeps only those that decide, of each ``THIN`` and of what lies
before the newest receipt's watermark; and a match that arrives out of order looks at ``MAX_AFTER`` later ones: in such
a flood the condition has held long since, or (values, chains) may be found late.

**Failures.** A correlation that raises loses the group it raised on, no other, and is reported by ``failures``; after
``MUTED_AFTER`` times it is muted: what its rules match means nothing to it any more.

**State** is keyed by the digest of the correlation with its rules, and by the group: it outlives a plan under which
that digest is the same. ``delta`` and ``restore`` carry it over a restart: what follows is as if there had been none.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from vedette.plan.aggregates import Keeps
from vedette.plan.relation import Correlation
from vedette.state import packed
from vedette.state.clock import CHECK_EVERY, FOREVER, MAX_LANES, Clock
from vedette.state.decide import Occurrence, arrived, ending, passed
from vedette.state.entries import HELD, Arrival
from vedette.state.firing import Firing, firing_of
from vedette.state.graph import Graph, Item, Node, seen_by
from vedette.state.groups import Groups
from vedette.state.packed import ENTRY_BYTES, FULL, MARK, appended, goes_on
from vedette.state.windows import ENTRY_BYTES as WINDOW_ENTRY_BYTES
from vedette.state.windows import LATE_BYTES, MAX_LATE, Window

if TYPE_CHECKING:
    from vedette.stream.operators.base import AtWork

MAX_ENTRIES = 100_000
CUT = 256
"""How many of the oldest entries of such a group go at once."""
MAX_TAIL = 4096
SWEEP = 1000
"""Groups looked at in one of them, about."""
MUTED_AFTER = 10
MAX_FAILURES = 1000
"""Reported at a time; beyond, they only count for their correlation."""


class Failure(NamedTuple):
    """A correlation raised for the ``times``-th time; ``muted``: that was once too often."""

    correlation: Correlation
    reason: str
    times: int
    muted: bool


class Correlator:
    """Correlations, their groups, and what waits to be decided."""

    def __init__(
        self, correlations: Iterable[Correlation], clock: Clock, *, max_bytes: int, settle: bool = False,
        at_work: AtWork | None = None,
    ) -> None:  # fmt: skip
        """``at_work`` is given the id of each correlation before it takes in a match or is decided."""
        self.clock = clock
        self._at_work = at_work
        self.max_bytes = max_bytes
        self.graph = Graph(correlations, settle=settle)
        self.nodes = self.graph.nodes
        self.groups = Groups(self.graph)
        self._due: dict[int, list[tuple[int, int, bytes]]] = {}
        """By lane a heap of (time to decide at, depth, group)."""
        self._scheduled: dict[bytes, int] = {}
        self._behind: dict[int, list[tuple[int, int, bytes, int]]] = {}
        """By lane a heap of (time to decide at, depth, group, time) of ``Window.late``."""
        self._alone: dict[int, tuple[int, ...]] = {}
        """One tuple a lane, shared by the windows that it alone is in."""
        self._fired: list[Firing] = []
        self._failures: list[Failure] = []
        self._torn = False
        """A group was left in the middle of a change: what is known of all is to be counted again."""
        self._checked = 0

    # --- matches in

    def add(self, items: Sequence[Item], source: int, time: int, offset: int, length: int) -> list[Firing]:
        """Take in an event of the lane ``source``, by all its ``items``; returns what fires."""
        if source in self._due or source in self._behind:
            self._settle(source)  # first: what it was waiting for may be of interest to what comes now
        at_work = self._at_work
        event = Arrival(source, time, offset, length)
        for number, item in enumerate(items, 1):
            node, _, values, _, _ = item
            if at_work is not None:
                at_work(node.c.id)
            key = node.tag + (values[0].encode() if node.single else node.text(values))
            try:
                if node.packs:
                    self._count(item, key, event)
                    continue
                # An event that matches several rules of a sequence is looked at when all its matches are in.
                last = node.plain or all(x.node is not node or x.values != values for x in items[number:])
                alone = self._alone.get(source) or self._only(source)
                self._add(item, key, event, alone, node.own, look=last)
            except Exception as error:  # the others take the event in
                self._fail(node, key, error)
        if self.groups.bytes > self.max_bytes:
            self._evict()
        fired = self._fired
        if fired:
            self._fired = []
            return fired
        return []

    def _only(self, source: int) -> tuple[int, ...]:
        """The windows that one lane alone is in share this tuple."""
        if len(self._alone) > MAX_LANES:
            self._alone.clear()
        alone = self._alone[source] = (source,)
        return alone

    def advance(self) -> list[Firing]:
        """The clock was advanced: decide what is due, forget what has expired. Does something once a second."""
        if self.clock.running - self._checked >= CHECK_EVERY:
            self._checked = self.clock.running
            for source in [*self._due, *self._behind]:
                self._settle(source)
            self._expire()
        return self._drain()

    def finish(self) -> list[Firing]:
        """No event comes any more: decide everything."""
        heap = [(due, self.groups.node(key).depth, key, -FOREVER) for key, due in self._scheduled.items()]
        heap += [entry for waiting in self._behind.values() for entry in waiting]
        heapq.heapify(heap)
        self._due.clear()
        while heap:
            due, _, key, late = heapq.heappop(heap)
            if late != -FOREVER:
                self._decide_late(key, late)
            elif self._scheduled.get(key) == due:
                del self._scheduled[key]
                self._decide(key, due + 1)
            for waiting in self._due.values():
                for entry in waiting:
                    heapq.heappush(heap, (*entry, -FOREVER))
            self._due.clear()
        self._behind.clear()
        return self._drain()

    def _drain(self) -> list[Firing]:
        if self._torn:
            self._torn, self.groups.bytes = False, sum(map(self.groups.size, self.groups.table))
            self.groups.recency.fill(self.groups.table)
        self._evict()
        fired, self._fired = self._fired, []
        return fired

    def _evict(self) -> None:
        while self.groups.bytes > self.max_bytes and len(self.groups) > 1:
            key = self.groups.recency.least()
            group = self.groups.table[key]
            newest = packed.newest(group) if isinstance(group, bytes) else group.time(len(group) - 1) if group else None
            if newest is not None:
                self.groups.node(key).lose(newest)
            self._forget(key)
            self.groups.evicted += 1

    # --- windows

    def _window(self, key: bytes) -> Window:
        window = self.groups.window(key)
        assert window is not None
        return window

    def _settled(self, window: Window) -> int:
        """No event before this time comes into the window any more, but for one of a lane that it does not wait for."""
        return self.clock.slowest(window.sources)[0]

    def _count(self, item: Item, key: bytes, event: Arrival) -> None:
        """``_add`` for a group that may be bytes, at whose end the match belongs; all else goes there."""
        node, slot, values, _, _ = item
        groups = self.groups
        group = groups.table.get(key)
        if group is None:
            begun = packed.begun(event, slot, node.least)
            if begun is not None:
                groups.put(node, key, begun, event.offset)
                node.dirty[key] = begun
                return
        elif isinstance(group, bytes):
            least, span = node.least, node.c.span
            now = appended(group, event, slot, least, span)
            if now is FULL:
                group = packed.compacted(group, least, span, self.clock.watermark(event.lane))
                groups.resize(key, group)
                now = appended(group, event, slot, least, span)
            if now:
                groups.table[key] = node.dirty[key] = now
                if now is not group:
                    groups.bytes += ENTRY_BYTES
                    if now[MARK] & HELD and (not (again := goes_on(now, span)) or node.parents):
                        window = packed.unpacked(now, 0)
                        self._occurs(node, window, values, [ending(node, window, len(window) - 1, not again)])
                return
        elif (
            0 < len(group.entries) < 3 * group.limit
            and event.time > group.entries[-3]
            and group.sources == self._alone.get(event.lane)
        ):
            _, time, offset, length = event
            at = group.insert(time, offset, length << 16 | slot << 8, None, None)
            groups.bytes += WINDOW_ENTRY_BYTES
            node.dirty[key] = group
            if occurrences := arrived(node, group, at):
                self._occurs(node, group, values, occurrences)
            return
        alone = self._alone.get(event.lane) or self._only(event.lane)
        self._add(item._replace(value=None, carried=None), key, event, alone, node.own)
        groups.repack(node, key)

    def _add(
        self, item: Item, key: bytes, event: Arrival, sources: Collection[int], same: tuple[int, ...], look: bool = True
    ) -> None:
        """Put a match into its group. ``sources``: the lanes that it is of. ``same``: the slots in which this event
        counts as one with itself. ``look``: False when another match of this event follows for the same group."""
        node, slot, values, value, carried = item
        lane, time, offset, length = event
        groups = self.groups
        window = groups.table.get(key)
        if type(window) is not Window:
            window = groups.window(key)
        if window is None:
            window = node.window(key)
            window.join(sources, self.clock.reached)
            groups.put(node, key, window, offset)
            before = window.size
        else:
            if node.plain and window.entries and time <= window.entries[-3] and window.has(time, offset, value, same):
                return
            before = window.size
            if window.sources is not sources:
                window.join(sources, self.clock.reached)
        node.dirty[key] = window
        if len(window.entries) >= 3 * window.limit:
            self._compact(node, window)
        late = window.decided is not None and time <= window.decided
        at = window.insert(time, offset, length << 16 | slot << 8, value, carried)
        if not node.slides:
            node.extent.placed(window, at)
        if node.prompt:
            if look and (3 * at + 3 < len(window.entries) or at + 1 >= node.needs):
                self._occurs(node, window, values, arrived(node, window, at))
        elif not late:
            self._schedule(node, key, window, time, lane)
        elif node.c.slots[slot].correlation:
            self._occurs(node, window, values, passed(node, window, time))
        else:
            node.late += 1
            if len(window.late) >= MAX_LATE:
                window.waited(first := window.late[0][0])
                self._occurs(node, window, values, passed(node, window, first))
            if window.wait(time, lane):
                self._schedule_late(node, key, window, time, lane)
        groups.bytes += window.size - before

    def _compact(self, node: Node, window: Window) -> None:
        window.part(self.clock.taking)
        settled = self._settled(window)
        if not node.prompt:
            settled = min(settled, window.decided if window.decided is not None else window.time(0))
            settled = min(settled, window.late[0][0] if window.late else settled)
        window.compact(node.c, settled, node.extent.needed(window, settled))
        if node.prompt and len(window) > MAX_TAIL and node.c.kind.row.keeps is not Keeps.ALL and window.carried is None:
            window.thin(node.c, settled)
            if len(window) > MAX_TAIL:
                newest = window.time(len(window) - MAX_TAIL // 2)
                settled = min(newest, self.clock.newest_mark())
                window.compact(node.c, settled, node.extent.needed(window, settled))
        if len(window) > MAX_ENTRIES:
            self.groups.cut += CUT
            node.lose(window.time(CUT - 1))
            window.drop(CUT)
            window.limit = len(window) + CUT

    def _forget(self, key: bytes) -> None:
        self.groups.forget(key)
        self._scheduled.pop(key, None)

    def _fail(self, node: Node, key: bytes, error: Exception) -> None:
        """A group of ``node`` is forgotten, since it would raise again."""
        if key in self.groups.table:
            self._forget(key)
        self._torn = True
        node.failed += 1
        muted = node.muted = node.failed >= MUTED_AFTER
        if len(self._failures) < MAX_FAILURES:
            reason = f"{type(error).__name__}: {error}"[:500]
            self._failures.append(Failure(node.c, reason, node.failed, muted))

    def failures(self) -> list[Failure]:
        """Return what has raised since the last call."""
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
        groups, looked, recency = self.groups, 0, self.groups.recency
        while looked < min(SWEEP, len(groups)) and (keys := recency.some()):
            for key in keys:
                if key not in self._scheduled and self._expired(key):
                    self._forget(key)
            looked += len(keys)
            recency.next()

    def _expired(self, key: bytes) -> bool:
        group, node = self.groups.table[key], self.groups.node(key)
        if isinstance(group, bytes):
            return packed.newest(group) < self.clock.watermark(packed.source_of(group)) - node.c.span
        n = len(group)
        return not n or (not group.late and group.time(n - 1) < node.extent.needed(group, self._settled(group)))

    # --- decisions

    def _schedule(self, node: Node, key: bytes, window: Window, time: int, source: int) -> None:
        due = node.extent.over(window, time)
        scheduled = self._scheduled.get(key)
        if scheduled is None or due < scheduled:
            self._scheduled[key] = due
            heapq.heappush(self._due.setdefault(source, []), (due, node.depth, key))

    def _schedule_late(self, node: Node, key: bytes, window: Window, time: int, source: int) -> None:
        due = node.extent.over(window, time)
        heapq.heappush(self._behind.setdefault(source, []), (due, node.depth, key, time))

    def _settle(self, source: int) -> None:
        """Decide what waits for the lane ``source`` and is due."""
        heap = self._due.get(source, [])
        while heap:
            due, depth, key = heap[0]
            if self._scheduled.get(key) != due:
                heapq.heappop(heap)  # evicted, or decided with another
                continue
            mark, slowest = self.clock.slowest(self._window(key).sources)
            if mark <= due and slowest == source:
                break
            heapq.heappop(heap)
            if mark <= due:
                heapq.heappush(self._due.setdefault(slowest, []), (due, depth, key))
                continue
            del self._scheduled[key]
            node = self.groups.node(key)
            if self._at_work is not None:
                self._at_work(node.c.id)
            try:
                self._decide(key, due + 1)
            except Exception as error:
                self._fail(node, key, error)
        if not heap:
            self._due.pop(source, None)
        behind = self._behind.get(source, [])
        while behind and behind[0][0] < self.clock.watermark(source):
            _, _, key, time = heapq.heappop(behind)
            node = self.groups.node(key)
            if self._at_work is not None:
                self._at_work(node.c.id)
            try:
                self._decide_late(key, time)
            except Exception as error:
                self._fail(node, key, error)
        if not behind:
            self._behind.pop(source, None)

    def _decide(self, key: bytes, until: int) -> None:
        """Decide the matches of a group that are due before ``until``; then wait for its next."""
        node, window = self.groups.node(key), self._window(key)
        values, extent = self.groups.values_of(key), node.extent
        i = 0 if window.decided is None else window.first(window.decided + 1)
        while i < len(window) and (due := extent.over(window, time := window.time(i))) < until:
            window.decided = time if node.slides else due
            self._occurs(node, window, values, passed(node, window, time))
            i = window.first(window.decided + 1)
        if node.slides:
            reach = until - node.c.span if node.c.forward else until
            window.decided = reach - 1 if window.decided is None else max(window.decided, reach - 1)
        if i < len(window):
            self._schedule(node, key, window, window.time(i), next(iter(window.sources)))
        node.dirty[key] = window

    def _decide_late(self, key: bytes, time: int) -> None:
        """Decide what came at ``time`` when later matches of the group had been decided; nothing if that is done."""
        node, window = self.groups.node(key), self.groups.table.get(key)
        if isinstance(window, Window) and window.waited(time):
            self.groups.bytes -= LATE_BYTES
            node.dirty[key] = window
            self._occurs(node, window, self.groups.values_of(key), passed(node, window, time))

    def _occurs(self, node: Node, window: Window, values: tuple[str, ...], occurrences: Iterable[Occurrence]) -> None:
        """Draw what follows from occurrences: firings, and matches of the correlations above."""
        for at, time, start, stop, fires in occurrences:
            if fires:
                node.fired += 1
                fired = firing_of(node.c, window, values, at, start, stop)
                if node.lost > min(window.time(start), time) - node.c.span:
                    fired = replace(fired, incomplete=True)
                self._fired.append(fired)
            for above, slot in node.parents:
                offset, length = window.offset(at), window.length(at)
                event = Arrival(next(iter(window.sources)), time, offset, length)
                for group, value, carried in seen_by(node, above, slot, window, values, start, stop):
                    key = above.tag + above.text(group)
                    if self._at_work is not None:
                        self._at_work(above.c.id)
                    try:
                        item = Item(above, slot, group, value, carried)
                        self._add(item, key, event, window.sources, (slot,))
                    except Exception as error:
                        self._fail(above, key, error)

    # --- state

    def delta(self) -> list[Any]:
        """The groups that changed since the last ``delta``, for msgpack; and the counts."""
        return [self._checked, *self.groups.delta()]

    def restore(self, data: list[Any]) -> set[str]:
        """Take over one ``delta``; in the order in which they were made, then ``resume``.

        Returns the ids of correlations that had another digest then, and so start empty.
        """
        self._checked, *groups = data
        return self.groups.restore(groups)

    def resume(self) -> None:
        """After the last ``restore``: wait again for what is undecided."""
        self.groups.resume()
        self._wait()

    def _wait(self) -> None:
        for key, group in self.groups.table.items():
            node = self.groups.node(key)
            if not node.prompt and isinstance(group, Window):
                i = 0 if group.decided is None else group.first(group.decided + 1)
                if i < len(group):
                    self._schedule(node, key, group, group.time(i), next(iter(group.sources)))
                for time, source in group.late:
                    self._schedule_late(node, key, group, time, source)

    def adopt(self, other: Correlator) -> list[str]:
        """Take over the groups of another plan's correlations that are the same here.

        Returns the ids of those that were there and have changed, and so start empty.
        """
        self._checked = other._checked
        changed = self.groups.adopt(other.groups)
        self._wait()
        return changed
