"""A set of byte strings as an automaton, read in plain Python: version 3 of the format of the Rust crate ``fst``.

Nodes lie before those that lead to them; the address of a node is its last byte, its state. A place counts back from
there: the input where it is no common one, the sizes of addresses and outputs, inputs, addresses. An address is stored
as the difference to the node's first byte. The last 20 bytes are the number of keys, the root's address, a checksum.
"""

from __future__ import annotations

_COMMON = b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHGW"
"""Inputs that stand in the state itself, from 1 to 63."""
_INDEXED = 32
"""A node of more transitions has a table of 256 bytes of them."""


class Set:
    def __init__(self, data: memoryview) -> None:
        if len(data) < 36 or int.from_bytes(data[:8], "little") != 3:
            raise ValueError("no automaton of version 3")
        self._data = data
        self._root = int.from_bytes(data[-12:-4], "little")

    def holds(self, key: bytes) -> bool:
        node: int | None = self._root
        for byte in key:
            node = self._next(node, byte) if node else None
            if node is None:
                return False
        return node is not None and self._final(node)

    def _final(self, node: int) -> bool:
        return node == 0 or (self._data[node] >> 6 == 0b01)

    def _next(self, node: int, byte: int) -> int | None:
        """The node behind ``byte``; 0 is the one that ends a key and leads nowhere."""
        data, state = self._data, self._data[node]
        if state & 0x80:  # one transition
            common = state & 63
            at = node - (0 if common else 1)
            if (_COMMON[common - 1] if common else data[at]) != byte:
                return None
            if state & 0x40:  # to the node just before
                return at - 1
            sizes = data[at - 1]
            wide = sizes >> 4
            first = at - 1 - wide - (sizes & 15)
            return self._target(at - 1 - wide, wide, first)
        count = state & 63
        at = node
        if not count:
            at -= 1
            count = 256 if data[at] == 1 else data[at]
        at -= 1
        wide, output = data[at] >> 4, data[at] & 15
        index = 256 if count > _INDEXED else 0
        inputs = at - index - count
        if index:
            number = data[at - 256 + byte]
            if number >= count:
                return None
        else:
            place = bytes(data[inputs:at]).find(byte)
            if place < 0:
                return None
            number = count - place - 1
        first = inputs - count * wide - count * output - (output if state & 0x40 else 0)
        return self._target(inputs - (number + 1) * wide, wide, first)

    def _target(self, at: int, wide: int, first: int) -> int:
        """``first``: the first byte of the node that the address is stored in."""
        delta = int.from_bytes(self._data[at : at + wide], "little")
        return first - delta if delta else 0
