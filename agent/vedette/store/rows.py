"""Rows of statements that wait for sinks: blocks of compressed NDJSON in the store, by sink and number.

The rows of a sink are numbered from 1 on, without a gap, over the store's whole life. A block is written in the
transaction of the cursor behind it, and deleted when the sink is done with all of it or it must give way; so those of a
sink follow each other, and a block ends where the next begins, the last one before the sink's next number. They lie in
the table ``sets`` under ``rows``, the sink's name, the first number and the bytes of the block, of which the key alone
tells what there is. The values ``rows`` and ``row_places`` hold the next number of each sink, and how far it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgpack
import zstandard

from vedette.store.environment import Environment, Transaction

BLOCK_BYTES = 256 << 10
"""Of the rows of a block before compression, but for a single row that is longer."""
LEAST_BYTES = 4096
"""What a block is counted as at least: a page of LMDB's."""
_TABLE, _META, _NEXT, _PLACES = b"sets", b"meta", b"value:rows", b"value:row_places"
_PREFIX, _BEHIND = b"rows\0", b"rows\1"
"""How the keys begin, and what no key of them reaches."""


class Block(NamedTuple):
    """``first``: the number of its first row; ``size``: its bytes in the store; ``rows``: how many. One that is written
    again has more, and so another key: what deletes the former does not meet it."""

    first: int
    size: int
    rows: int

    def key(self, sink: str) -> bytes:
        numbers = ((self.first, 8), (self.size, 4), (self.rows, 4))
        return _PREFIX + sink.encode() + b"\0" + b"".join(number.to_bytes(size, "big") for number, size in numbers)

    @property
    def counted(self) -> int:
        return max(self.size, LEAST_BYTES)


@dataclass
class Waiting:
    """What the store holds of one sink: its next number, how far it is, and its blocks, ascending."""

    next: int = 1
    after: int = 0
    delivered: int = 0
    refused: int = 0
    blocks: list[Block] = field(default_factory=list)


@dataclass
class Change:
    """What a commit does: blocks that come, keys that go, the next number of each sink."""

    puts: list[tuple[bytes, bytes]] = field(default_factory=list)
    drops: list[bytes] = field(default_factory=list)
    next: Mapping[str, int] = field(default_factory=dict)

    def write(self, txn: Transaction) -> None:
        for key in self.drops:
            txn.delete(_TABLE, key)
        for key, data in self.puts:
            txn.put(_TABLE, key, data)
        if self.next:
            txn.put(_META, _NEXT, msgpack.packb(dict(self.next)))


def packed(first: int, lines: Sequence[bytes]) -> tuple[Block, bytes]:
    """Return a block of these rows and its bytes."""
    data = zstandard.ZstdCompressor(level=1).compress(b"\n".join(lines))
    return Block(first, len(data), len(lines)), data


class Rows:
    """The rows of all sinks in one store. Methods raise OSError, and ValueError for what is damaged."""

    def __init__(self, env: Environment) -> None:
        self._env = env

    def waiting(self) -> dict[str, Waiting]:
        """By sink all that the store holds."""
        with self._env.read() as txn:
            following = msgpack.unpackb(txn.get(_META, _NEXT) or b"\x80")
            places = msgpack.unpackb(txn.get(_META, _PLACES) or b"\x80")
            sinks = {name: Waiting(number, *places.get(name, ())) for name, number in following.items()}
            key = txn.last(_TABLE, _BEHIND)
            while key is not None and key.startswith(_PREFIX):
                sink, numbers = key[len(_PREFIX) : -17].decode(), key[-16:]
                block = Block(*(int.from_bytes(part, "big") for part in (numbers[:8], numbers[8:12], numbers[12:])))
                if sink in sinks:
                    sinks[sink].blocks.append(block)
                key = txn.last(_TABLE, key)
        for waiting in sinks.values():
            waiting.blocks.reverse()
        return sinks

    def lines(self, sink: str, block: Block) -> list[bytes]:
        """The rows of a block. Raises ValueError when it is damaged, KeyError when it is gone."""
        with self._env.read() as txn:
            data = txn.get(_TABLE, block.key(sink))
        if data is None:
            raise KeyError(block)
        return zstandard.ZstdDecompressor().decompress(data).split(b"\n")

    def keep(self, places: Mapping[str, tuple[int, int, int]], gone: Sequence[bytes]) -> None:
        """Write down how far sinks are (the last number they are done with, delivered, refused), and delete what they
        are done with."""
        with self._env.write() as txn:
            for key in gone:
                txn.delete(_TABLE, key)
            txn.put(_META, _PLACES, msgpack.packb(dict(places)))

    def forget(self, sinks: Collection[str]) -> None:
        """No row of ``sinks`` is kept; their numbers are, so that none is given twice."""
        with self._env.write() as txn:
            for name in sinks:
                first = _PREFIX + name.encode() + b"\0"
                txn.take(_TABLE, first, first + b"\xff" * 16)
