"""The windows of all groups, by key, and what has changed among them since it was last written.

A key is its correlation's prefix (id and digest) and the group's values. The group least recently touched stands
first; ``bytes`` is what all take. ``delta`` gives the rows that changed, ``restore`` takes them over; a row is key,
whether the group was touched (False: only decided), and the window, None for one that is gone.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgpack

from vedette.state.graph import Graph, Node
from vedette.state.windows import Window


class Groups(OrderedDict[bytes, Window]):
    """See the module's text. ``evicted``: groups forgotten for want of room; ``cut``: entries of groups too large."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.bytes = self.evicted = self.cut = 0
        self._changed: dict[bytes, bool | None] = {}
        """The last touched last: True touched, False only decided, None gone."""

    @staticmethod
    def key(node: Node, values: tuple[str, ...]) -> bytes:
        return node.prefix + bytes(msgpack.packb(values))

    @staticmethod
    def values_of(key: bytes) -> tuple[str, ...]:
        """What the group of ``key`` is grouped by."""
        return tuple(msgpack.unpackb(key[8:]))

    def node(self, key: bytes) -> Node:
        """The correlation whose group this is."""
        return self.graph.by_prefix[key[:8]]

    def put(self, key: bytes, window: Window) -> Window:
        """A group that was not there."""
        self[key] = window
        self.bytes += window.size
        self.node(key).groups += 1
        return window

    def drop(self, key: bytes) -> None:
        """Take a group out, and its bytes."""
        self.bytes -= self.pop(key).size
        self.node(key).groups -= 1

    def touch(self, key: bytes, grown: int) -> None:
        """An event came in, by which its window takes ``grown`` more bytes."""
        self.bytes += grown
        self._note(key, True)

    def decided(self, key: bytes) -> None:
        """Events that were there were decided."""
        self._changed.setdefault(key, False)

    def forget(self, key: bytes) -> None:
        self.drop(key)
        self._note(key, None)

    def _note(self, key: bytes, what: bool | None) -> None:
        self._changed.pop(key, None)
        self._changed[key] = what

    @property
    def changed(self) -> bool:
        """True when a group has changed since the last ``delta`` or ``dump``."""
        return bool(self._changed)

    def delta(self) -> list[Any]:
        """Counts, and the groups that changed since the last ``delta`` or ``dump``; for msgpack."""
        changed, self._changed = self._changed, {}
        rows = [[key, touched, None if touched is None else self[key].pack()] for key, touched in changed.items()]
        return [self._counts(), rows]

    def dump(self) -> list[Any]:
        """All of it, as one delta."""
        self._changed = {}
        return [self._counts(), [[key, True, window.pack()] for key, window in self.items()]]

    def _counts(self) -> list[Any]:
        rows = [[n.prefix, n.c.id, n.fired, n.late, n.ungrouped, n.carry] for n in self.graph.nodes]
        return [self.evicted, self.cut, rows]

    def restore(self, data: list[Any]) -> set[str]:
        """Take over one ``delta`` or ``dump``, in the order in which they were made.

        Returns the ids of correlations that had another digest then, and so start empty.
        """
        (self.evicted, self.cut, counts), rows = data
        ids, changed, carried = {node.c.id for node in self.graph.nodes}, set(), {}
        for found, rule_id, fired, late, ungrouped, carry in counts:
            carried[found] = tuple(carry)
            if (node := self.graph.by_prefix.get(found)) is not None:
                node.fired, node.late, node.ungrouped = fired, late, ungrouped
            elif rule_id in ids:
                changed.add(rule_id)
        for key, touched, row in rows:
            if key[:8] not in self.graph.by_prefix:
                continue
            place = key in self and not touched
            if key in self and (row is None or not place):
                self.drop(key)
            if row is None:
                continue
            window = Window.unpack(row, len(key))
            window.recarry(carried.get(key[:8], ()), self.node(key).carry)
            if place:
                self.bytes += window.size - self[key].size
                self[key] = window
            else:
                self.put(key, window)
        self._changed = {}
        return changed

    def adopt(self, other: Groups) -> list[str]:
        """Take over the groups of another plan's correlations that are the same here.

        Returns the ids of those that were there and have changed, and so start empty.
        """
        old = {node.prefix: node for node in other.graph.nodes}
        self.evicted, self.cut, self._changed = other.evicted, other.cut, other._changed
        for node in self.graph.nodes:
            if (same := old.get(node.prefix)) is not None:
                node.fired, node.late, node.ungrouped = same.fired, same.late, same.ungrouped
        for key, window in other.items():
            if key[:8] not in self.graph.by_prefix:
                self._note(key, None)
                continue
            was, node = old[key[:8]].carry, self.node(key)
            if was != node.carry:
                window.recarry(was, node.carry)
                self._changed.setdefault(key, False)
            self.put(key, window)
        before = {node.c.id for node in other.graph.nodes}
        return sorted(n.c.id for n in self.graph.nodes if n.prefix not in old and n.c.id in before)
