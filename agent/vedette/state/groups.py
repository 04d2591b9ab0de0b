"""The groups of all correlations, by key, and what has changed among them since it was last written.

A key is its correlation's tag (of this process) and the group's values; what is written has the prefix (id and digest)
in place of the tag. A group is a ``Window``, or bytes where ``packed.py`` will do. ``bytes`` is what all take. Which
was touched least recently follows from the groups themselves (``recency.py``).

``delta`` gives what changed, ``restore`` takes it over: ``[evicted, cut, counts of each correlation, parts]``, a part
being ``[prefix, n, key of each group, row of each]``; the first ``n`` bytes of its keys say nothing. A row is None for
a group that is gone, its bytes, or what ``Window.row`` gives: of a large window only what is new. Either costs as much
as there is written, whatever else is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vedette.state.graph import NEVER, Graph, Node
from vedette.state.packed import MAX, packed, size, touched, unpacked
from vedette.state.recency import Recency
from vedette.state.windows import Window

Group = Window | bytes


class Groups:
    """Groups by key. ``evicted``: groups forgotten for want of room; ``cut``: entries of groups too large."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.table: dict[bytes, Group] = {}
        self.recency = Recency(self._stamp)
        self.bytes = self.evicted = self.cut = 0
        self._carried: dict[Node, tuple[str, ...]] = {}
        """What was kept of the events of groups that are being restored."""
        self._foreign: list[list[Any]] = []
        """Parts about groups of correlations that are not here any more."""

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[bytes]:
        """Prefix and values of each group, the least recently touched first."""
        for key in sorted(self.table, key=lambda key: (self._stamp(key), key)):
            yield self.node(key).prefix + key[self.graph.tag_size :]

    def values(self) -> Iterator[Window]:
        """The groups, in no order; those that are bytes as windows of that size."""
        for key, group in self.table.items():
            window = unpacked(group, len(key)) if isinstance(group, bytes) else group
            window.size = self.size(key)
            yield window

    def _stamp(self, key: bytes) -> int | None:
        group = self.table.get(key)
        return None if group is None else touched(group) if isinstance(group, bytes) else group.touched

    def node(self, key: bytes) -> Node:
        """The correlation whose group this is."""
        return self.graph.by_tag[key[: self.graph.tag_size]]

    def values_of(self, key: bytes) -> tuple[str, ...]:
        """Return what the group of ``key`` is grouped by."""
        return self.node(key).values_of(key[self.graph.tag_size :])

    def size(self, key: bytes) -> int:
        """Bytes of memory that a group takes, about."""
        group = self.table[key]
        return size(group, key) if isinstance(group, bytes) else group.size

    def window(self, key: bytes) -> Window | None:
        """A group as a window, from now on; None when it is not there."""
        group = self.table.get(key)
        if isinstance(group, bytes):
            self.bytes -= size(group, key)
            group = self.table[key] = unpacked(group, len(key))
            self.bytes += group.size
            dirty = self.node(key).dirty
            if key in dirty:
                dirty[key] = group
        return group

    def put(self, node: Node, key: bytes, group: Group, stamp: int) -> None:
        """A group that was not there; ``stamp`` is the offset of the event that makes it."""
        self.table[key] = group
        self.bytes += self.size(key)
        node.groups += 1
        self.recency.put(key, stamp)

    def resize(self, key: bytes, value: bytes) -> None:
        """Put ``value`` in place of a group of bytes that has another size."""
        before = self.table[key]
        assert isinstance(before, bytes)
        self.bytes += len(value) - len(before)
        self.table[key] = value

    def repack(self, node: Node, key: bytes) -> None:
        """Make bytes of a group that can be."""
        group = self.table[key]
        if type(group) is Window and len(group.entries) <= 3 * MAX and (small := packed(group)) is not None:
            self.table[key] = small
            if key in node.dirty:
                node.dirty[key] = small
            self.bytes += size(small, key) - group.size

    def forget(self, key: bytes) -> None:
        """Only what ``recency`` has just given: it knows the key no more."""
        self._take(key)
        self.node(key).dirty[key] = None

    def _take(self, key: bytes) -> None:
        self.bytes -= self.size(key)
        del self.table[key]
        self.node(key).groups -= 1

    @property
    def changed(self) -> bool:
        """True when a group has changed since the last ``delta``."""
        return bool(self._foreign) or any(node.dirty for node in self.graph.nodes)

    def delta(self) -> list[Any]:
        """Return what changed since the last ``delta``; for msgpack."""
        foreign, self._foreign = self._foreign, []
        return [*self._counts(), [*foreign, *(self._part(node) for node in self.graph.nodes if node.dirty)]]

    def touch(self, keys: list[bytes], most: int) -> int:
        """Take groups of about ``most`` bytes off ``keys``: the next ``delta`` holds all of them. Returns the bytes."""
        total = 0
        while keys and total < most:
            key = keys.pop()
            if (group := self.table.get(key)) is not None:
                total += self.size(key)
                self.node(key).dirty[key] = group
                if not isinstance(group, bytes):
                    group.clean = 0
        return total

    def _part(self, node: Node) -> list[Any]:
        dirty, node.dirty = node.dirty, {}
        rows = [group.row() if type(group) is Window else group for group in dirty.values()]
        return [node.prefix, self.graph.tag_size, list(dirty), rows]

    def _counts(self) -> list[Any]:
        rows = [
            [n.prefix, n.c.id, n.fired, n.late, n.ungrouped, n.carry, *([n.lost] if n.lost > NEVER else [])]
            for n in self.graph.nodes
        ]
        return [self.evicted, self.cut, rows]

    def restore(self, data: list[Any]) -> set[str]:
        """Take over one ``delta``, in the order in which they were made; then ``resume``.

        Returns the ids of correlations that had another digest then, and so start empty.
        """
        self.evicted, self.cut, counts, parts = data
        ids, started = {node.c.id for node in self.graph.nodes}, set()
        for node_prefix, rule_id, fired, late, ungrouped, carry, *lost in counts:
            if (node := self.graph.by_prefix.get(node_prefix)) is not None:
                node.fired, node.late, node.ungrouped = fired, late, ungrouped
                node.lost = int(lost[0]) if lost else NEVER
                self._carried[node] = tuple(carry)
            elif rule_id in ids:
                started.add(rule_id)
        for prefix, tag_size, keys, rows in parts:
            if (node := self.graph.by_prefix.get(prefix)) is not None:
                for key, row in zip(keys, rows, strict=True):
                    self._restore(node, node.tag + key[tag_size:], row)
        return started

    def _restore(self, node: Node, key: bytes, row: Any) -> None:
        """A group as it was written; ``resume`` puts it in the form that it has here."""
        group = self.table.pop(key, None)
        if group is not None:
            self.bytes -= size(group, key) if isinstance(group, bytes) else group.size
            node.groups -= 1
        if row is None or (group is None and not isinstance(row, bytes) and row[1]):
            return  # gone, or a change of what is written in full further on (``touch``)
        if isinstance(row, bytes):
            group = row
        else:
            group = unpacked(group, len(key)) if isinstance(group, bytes) else group or node.window(key)
            group.apply(row)
        self.table[key] = group
        self.bytes += self.size(key)
        node.groups += 1

    def resume(self) -> None:
        """After the last ``restore``."""
        for key in list(self.table):
            node = self.node(key)
            self._fit(node, key, self._carried.get(node, node.carry))
        self._carried = {}
        self.recency.fill(self.table)

    def _fit(self, node: Node, key: bytes, carried: tuple[str, ...]) -> None:
        """Give a group of elsewhere, of whose events ``carried`` was kept, the form that it has here. When something
        else is kept here, all of it is to be written: what is written next says so of all groups."""
        if node.packs and isinstance(self.table[key], bytes):
            return
        window = self.window(key)
        assert window is not None
        self.bytes -= window.size
        window.recarry(carried, node.carry)
        self.bytes += window.size
        if carried != node.carry:
            node.dirty[key] = window
        if node.packs:
            self.repack(node, key)

    def adopted(self, keys: list[bytes], other: Groups) -> list[bytes]:
        """Return what ``keys`` of another plan's groups are called here; without those that ``adopt`` left."""
        by_prefix, size = self.graph.by_prefix, other.graph.tag_size
        nodes = ((by_prefix.get(other.node(key).prefix), key[size:]) for key in keys)
        return [node.tag + text for node, text in nodes if node is not None]

    def adopt(self, other: Groups) -> list[str]:
        """Take over the groups of another plan's correlations that are the same here.

        Returns the ids of those that were there and have changed, and so start empty.
        """
        old, tag_size = {node.prefix: node for node in other.graph.nodes}, other.graph.tag_size
        self.evicted, self.cut, self._foreign = other.evicted, other.cut, other._foreign
        gone: dict[bytes, dict[bytes, None]] = {}
        for prefix, before in old.items():
            texts = {key[tag_size:]: None for key in before.dirty}
            if (node := self.graph.by_prefix.get(prefix)) is None:
                gone[prefix] = texts
            else:
                node.fired, node.late, node.ungrouped = before.fired, before.late, before.ungrouped
                node.lost = before.lost
                node.dirty = {node.tag + text: None for text in texts}  # what is there still: below
        for old_key, group in other.table.items():
            before, text = other.node(old_key), old_key[tag_size:]
            if (node := self.graph.by_prefix.get(before.prefix)) is None:
                gone[before.prefix][text] = None
                continue
            key = node.tag + text
            self.table[key] = group
            self.bytes += self.size(key)
            node.groups += 1
            if key in node.dirty:
                node.dirty[key] = group
            self._fit(node, key, before.carry)
        self._foreign += [[prefix, 0, list(texts), [None] * len(texts)] for prefix, texts in gone.items() if texts]
        self.recency.fill(self.table)
        ids = {node.c.id for node in other.graph.nodes}
        return sorted(n.c.id for n in self.graph.nodes if n.prefix not in old and n.c.id in ids)
