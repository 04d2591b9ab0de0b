"""Which correlations look at a rule, or at each other, and what an event or an occurrence means to each.

A match of a rule becomes an ``Item`` for every correlation with a slot for that rule: its group, its value, and what
correlations above want to know of it. An occurrence becomes the same for the correlations above.

Values are compared as the detection operators see them, without regard to case; the numbers ``5`` and ``5.0`` and the
text ``5`` are one value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from vedette.decode.decoder import Record
from vedette.plan.aggregates import Keeps, Reads
from vedette.plan.ir import as_shown, fold, scalar
from vedette.plan.numbers import number_of
from vedette.plan.relation import Correlation, ordered
from vedette.state.chains import Links
from vedette.state.extent import extent_of
from vedette.state.windows import WAIT_BYTES, Window

MAX_TEXT = 256
"""Characters of a value that is grouped by or counted; of a longer one the rest goes by its hash."""


NEVER = -(1 << 62)
"""A time before all others."""


class Item(NamedTuple):
    """The meaning of one match to one correlation."""

    node: Node
    slot: int
    values: tuple[str, ...]
    value: Any
    carried: tuple[Any, ...] | None


class Node:
    """A correlation with its place among the others, and its counts."""

    tag = b""
    """What the keys of its groups begin with in this process."""
    number = 0
    """Its place among all, which the plan determines."""

    def __init__(self, correlation: Correlation, depth: int, settle: bool) -> None:
        self.c = correlation
        self.depth = depth
        self.prompt = correlation.prompt and not settle
        self.extent = extent_of(correlation)
        self.slides = correlation.grid is None
        row = correlation.kind.row
        self.plain = row.reads is not Reads.RULE
        """One match of an event is as good as several."""
        self.counts = not correlation.kind.row.numeric
        self.newest = row.keeps is Keeps.NEWEST
        self.least = correlation.least if correlation.prompt and correlation.bounds else 0
        self.prefix = prefix(correlation)
        self.parents: list[tuple[Node, int]] = []
        self.carry: tuple[str, ...] = ()
        """Fields that correlations above want to know of its events."""
        self.own = tuple(i for i, slot in enumerate(correlation.slots) if not slot.correlation)
        """The slots that are detections."""
        self.needs = max(self.least, 0) if self.counts else 0
        """Fewer entries can never make it true; of a prompt one."""
        self.tracks: list[Sequence[int]] = []
        """Of a prompt ``temporal_ordered`` that asks for whole chains: their slots."""
        if correlation.prompt and correlation.kind.row.ordered:
            if correlation.clauses:
                self.tracks = [clause.wanted for clause in correlation.clauses]
            elif self.least == len(correlation.slots):
                self.tracks = [range(self.least)]
        self.links: Links | None = None
        """For stretches that are looked at as a whole."""
        self._share = row.entry_bytes
        self.single = len(correlation.group_by) == 1
        self.packs = False
        """Its groups are bytes (``packed.py``)."""
        self.dirty: dict[bytes, Window | bytes | None] = {}
        """Its groups that have changed since they were last written; None: that one is gone."""
        self.fired = self.late = self.ungrouped = self.groups = 0
        self.lost = NEVER
        """The newest time of matches of it, or of those below, that gave way to a bound."""
        self.failed = 0
        """Times that it raised."""
        self.muted = False
        """In quarantine: matches mean nothing to it."""

    def window(self, key: bytes) -> Window:
        """The window of a group without matches."""
        return Window(len(key) + (0 if self.prompt else WAIT_BYTES), self._share)

    def lose(self, time: int) -> None:
        """Matches up to ``time`` gave way to a bound."""
        if time > self.lost:
            self.lost = time
            for above, _ in self.parents:
                above.lose(time)

    def text(self, values: tuple[str, ...]) -> bytes:
        """A group's values as one text; ``values_of`` is the inverse."""
        if self.single:
            return values[0].encode()
        text = "\0".join(values)
        n = len(self.c.group_by)
        return (text if text.count("\0") == max(n - 1, 0) else "\0" * n + json.dumps(values)).encode()

    def values_of(self, packed: bytes) -> tuple[str, ...]:
        text, n = packed.decode(), len(self.c.group_by)
        if n <= 1:
            return (text,)[:n]
        return tuple(text.split("\0")) if text.count("\0") == n - 1 else tuple(json.loads(text[n:]))


def prefix(correlation: Correlation) -> bytes:
    """Return what the keys of a correlation's groups begin with: the same for the same id and digest."""
    return hashlib.blake2b(f"{correlation.id}\0{correlation.digest}".encode(), digest_size=8).digest()


class Graph:
    """The correlations that run, by what they look at."""

    def __init__(self, correlations: Iterable[Correlation], *, settle: bool) -> None:
        self.nodes: list[Node] = []
        by_id: dict[str, Node] = {}
        for c in ordered(correlations):
            below = [by_id[slot.rule_id].depth for slot in c.slots if slot.correlation]
            node = by_id[c.id] = Node(c, 1 + max(below, default=0), settle)
            self.nodes.append(node)
        self._feeds: dict[str, list[tuple[Node, int]]] = {}
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
        self.by_prefix = {node.prefix: node for node in self.nodes}
        self.tag_size = 1 if len(self.nodes) <= 256 else 4
        self.by_tag: dict[bytes, Node] = {}
        for number, node in enumerate(self.nodes):
            node.number, node.tag = number, number.to_bytes(self.tag_size, "big")
            node.packs = node.prompt and node.slides and node.least > 1 and node.newest
            node.packs = node.packs and not node.carry and len(node.own) == len(node.c.slots)
            self.by_tag[node.tag] = node

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
        """Return what a match of ``rule_id`` means; one that lacks a value to group by is counted and means nothing."""
        items = []
        for node, i in self._feeds.get(rule_id, ()):
            if node.muted:
                continue
            c, slot = node.c, node.c.slots[i]
            values = tuple(key_of(scalar(event.get(slot.field(name)))) for name in c.group_by)
            if None in values:
                node.ungrouped += 1
                continue
            value = _value(c, [scalar(event.get(slot.field(name))) for name in c.field]) if c.field else None
            carried = tuple(scalar(event.get(name)) for name in node.carry) if node.carry else None
            items.append(Item(node, i, values, value, carried))  # type: ignore[arg-type]
        return items


def seen_by(
    node: Node, above: Node, slot: int, window: Window, values: tuple[str, ...], start: int, stop: int
) -> list[tuple[tuple[str, ...], Any, tuple[Any, ...] | None]]:
    """An occurrence as the correlation above takes it: for each group that its events belong to there."""
    c, grouped = above.c, dict(zip(node.c.group_by, values, strict=True))
    rows = {()} if window.carried is None else {window.carried[i] for i in range(start, stop)}
    seen: dict[tuple[tuple[str, ...], Any], tuple[Any, ...] | None] = {}
    for row in sorted(rows, key=repr):
        fields = {**dict(zip(node.carry, row, strict=False)), **grouped}
        key = tuple(key_of(fields.get(c.slots[slot].field(name))) for name in c.group_by)
        if None in key:
            continue
        value = _value(c, [fields.get(c.slots[slot].field(name)) for name in c.field]) if c.field else None
        seen.setdefault((key, value), tuple(fields.get(name) for name in above.carry) if above.carry else None)  # type: ignore[arg-type]
    if not seen:
        above.ungrouped += 1
    return [(key, value, carried) for (key, value), carried in seen.items()]


def _names(c: Correlation) -> tuple[str, ...]:
    return (*c.group_by, *c.field)


def key_of(value: Any) -> str | None:
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
    """Return what a correlation measures of one event."""
    if c.kind.row.numeric:
        return number_of(values[0])
    keys = [key_of(value) for value in values]
    if None in keys:
        return None
    return keys[0] if len(keys) == 1 else tuple(keys)
