"""Topic filters of MQTT (4.7 of its specification), and which of several a message came by.

Of filters of one client that overlap, a broker may send a message once, or once for each (MQTT 5, 3.3.4). Then each
subscription has an identifier, and a message those of the subscriptions that it came by.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

IDENTIFIER, MAX_IDENTIFIER = 0x0B, 268_435_455
_SIZES = {0x01: 1, 0x02: 4, 0x23: 2}
_TEXTS = {0x03: 1, 0x08: 1, 0x09: 1, 0x26: 2}
"""Properties of PUBLISH (3.3.2.3): bytes, or how many texts, of each."""
REMEMBERED = 10_000
"""Messages that copies may be of."""


class Filters:
    """Filters as one tree of their levels; also those of shared subscriptions."""

    def __init__(self, wanted: Iterable[str]) -> None:
        self._root: dict[str | None, Any] = {}
        for each in wanted:
            levels = each.split("/")
            node = self._root
            for level in levels[2:] if levels[0] == "$share" else levels:
                node = node.setdefault(level, {})
            node[None] = None

    def cover(self, topic: str) -> bool:
        """Whether any matches ``topic``."""
        nodes = [self._root]
        for level in topic.split("/"):
            if not nodes or any("#" in node for node in nodes):
                break
            nodes = [node[key] for node in nodes for key in (level, "+") if key in node]
        return any("#" in node or None in node for node in nodes)


def overlapping(wanted: Sequence[str]) -> bool:
    """Whether a topic may match two of these filters."""
    return any(_overlap(first.split("/"), second.split("/")) for first, second in combinations(set(wanted), 2))


def _overlap(first: list[str], second: list[str]) -> bool:
    for level, other in zip(first, second, strict=False):
        if "#" in (level, other):
            return True
        if level != other and "+" not in (level, other):
            return False
    rest = first[len(second) :] or second[len(first) :]
    return not rest or rest == ["#"]


def identifier(wanted: str) -> int:
    """Return the identifier of a subscription, the same in each life: the session keeps it."""
    return zlib.crc32(wanted.encode()) % MAX_IDENTIFIER + 1


def identifiers(properties: bytes) -> list[int]:
    """Return the identifiers among the properties of a PUBLISH; those before what is none of its properties."""
    numbers = list[int]()
    at = 0
    while at < len(properties):
        kind = properties[at]
        at += 1
        if kind == IDENTIFIER:
            number = shift = 0
            for digit in properties[at : at + 4]:
                at += 1
                number |= (digit & 127) << shift
                shift += 7
                if digit < 128:
                    break
            numbers.append(number)
        elif kind in _SIZES or kind in _TEXTS:
            at += _SIZES.get(kind, 0)
            for _ in range(_TEXTS.get(kind, 0)):
                at += 2 + int.from_bytes(properties[at : at + 2], "big")
        else:
            break
    return numbers


class Copies:
    """Tells a further copy of a message, which came by another subscription, from one that was published again.

    The n-th copy by one subscription is the n-th message. What came by several at once, or by none that is named, is
    no copy. None of it outlives the process: of what was under way at a kill further copies are stored as well.
    """

    def __init__(self) -> None:
        self._by_message: OrderedDict[tuple[int, bytes], dict[int, int]] = OrderedDict()

    def is_copy(self, topic: str, digest: bytes, properties: bytes) -> bool:
        """Whether a message came before, by another subscription; it has come by this now."""
        by = identifiers(properties)
        if len(by) != 1:
            return False
        message = hash(topic), digest  # a topic may have 64 KiB
        counts = self._by_message.setdefault(message, {})
        self._by_message.move_to_end(message)
        if len(self._by_message) > REMEMBERED:
            self._by_message.popitem(last=False)
        most = max(counts.values(), default=0)
        counts[by[0]] = counts.get(by[0], 0) + 1
        return counts[by[0]] <= most
