"""Rows of alerts that wait to be taken, in the order in which statements gave them.

A window's end may complete a row of every statement for every key: far more than can be alerts at once. So rows wait
until somebody asks for them, ``LOOSE`` of them as they came, more in compressed blocks. They are part of the network's
state: ``delta`` holds those that are new, and how many have been taken. Beyond ``limit`` bytes of blocks, rows are
dropped and counted by their statement.

Equal rows, of one statement and one newest event, are numbered in the order in which they came, until none waits any
more: so what tells their alerts apart does not depend on how many are taken at a time.

Bytes of a delta: ``[first, statements, blocks]``: rows before the number ``first`` are taken; the statements of these
blocks, as plans have them, compressed (rows may outlive their plan); each block ``[first, rows, statements, body]``,
with the statements by id and digest, the body compressed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any, NamedTuple

import msgpack
import zstandard

from vedette.plan import query, stored
from vedette.plan.query import Row, Statement
from vedette.stream.keyed import pack, unpack

LOOSE = 4_096
"""Rows that wait as they came: packing as many holds the event loop for 30 ms."""
BLOCK = 1000
"""Rows of a block."""

Name = tuple[str, str]
"""A statement's id and digest."""


Taken = tuple[Statement, Row, int | None]
"""A row, and its number among equal ones; None: to be asked for (``Waiting.number``), in the order in which rows were
taken."""


class _Block(NamedTuple):
    first: int
    rows: int
    names: tuple[Name, ...]
    body: bytes

    @property
    def end(self) -> int:
        return self.first + self.rows


class Waiting:
    """Rows in their order. ``statements``: those whose rows come in."""

    def __init__(self, statements: Iterable[Statement], limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        """Of blocks."""
        self.taken = 0
        """Rows, since the start."""
        self.dropped: Counter[str] = Counter()
        """By id of a statement."""
        self._named: dict[Name, Statement] = {(statement.id, statement.digest): statement for statement in statements}
        self._loose: deque[tuple[Statement, Row]] = deque()
        self._blocks: deque[_Block] = deque()
        self._open: list[Taken] = []
        """Those of the first block that are not taken, the next one last."""
        self._first = self._end = 0
        """Of the rows of blocks: the number of the next one, and of the one behind all."""
        self._said = 0, 0
        """Both as the deltas so far have them."""
        self._said_names: set[Name] = set()
        self._again = False
        """Whether the next delta holds everything."""
        self._seen: set[int] = set()
        self._repeated: Counter[int] = Counter()
        self._over = False
        """Whether the next row begins new numbers."""

    def __len__(self) -> int:
        return self._end - self._first + len(self._loose)

    # --- in

    def add(self, statement: Statement, rows: Sequence[Row]) -> None:
        if self._over:
            self._forget()
        self._loose.extend(zip(repeat(statement), rows))
        if len(self._loose) > LOOSE:
            self._pack()

    def _forget(self) -> None:
        self._over = False
        self._seen.clear()
        self._repeated.clear()
        self._said_names.clear()

    def number(self, statement: Statement, row: Row) -> int:
        """How many rows equal to this one came before it."""
        return 0 if statement.single else self._number(statement, row[0], pack(row[1:]))

    def _number(self, statement: Statement, offset: int, values: bytes) -> int:
        mark = hash((statement.id, offset, values))
        if mark not in self._seen:
            self._seen.add(mark)
            return 0
        self._repeated[mark] += 1
        return self._repeated[mark]

    def _pack(self) -> None:
        """Put what is loose into blocks."""
        compress = zstandard.ZstdCompressor(level=1).compress
        while self._loose:
            together = [self._loose.popleft() for _ in range(min(BLOCK, len(self._loose)))]
            if self.bytes >= self.limit:
                self.dropped.update(statement.id for statement, _ in together)
                continue
            names: dict[Name, int] = {}
            places, offsets, numbers, packed = list[int](), list[int](), list[int](), list[bytes]()
            for statement, row in together:
                try:
                    values = pack(row[1:])
                except (TypeError, ValueError, OverflowError):  # no type of a column has such a value
                    self.dropped[statement.id] += 1
                    continue
                places.append(names.setdefault((statement.id, statement.digest), len(names)))
                offsets.append(row[0])
                numbers.append(0 if statement.single else self._number(statement, row[0], values))
                packed.append(values)
            if packed:
                body = compress(pack((places, offsets, numbers, packed)))
                block = _Block(self._end, len(packed), tuple(names), body)
                self._blocks.append(block)
                self._end, self.bytes = block.end, self.bytes + len(block.body)

    # --- out

    def take(self) -> Iterator[Taken]:
        """The rows; what is not asked for waits on."""
        loose = self._loose
        while self._blocks or loose:
            while self._blocks:
                yield self._next()
            while loose:  # which a delta in between has packed
                statement, row = loose.popleft()
                self.taken += 1
                self._over = not loose
                yield statement, row, None

    def _next(self) -> Taken:
        if not self._open:
            self._unpack(self._blocks[0])
        result = self._open.pop()
        self.taken += 1
        self._first += 1
        if not self._open:
            self.bytes -= len(self._blocks.popleft().body)
            self._over = not self
        return result

    def _unpack(self, block: _Block) -> None:
        statements = [self._named[name] for name in block.names]
        places, offsets, numbers, rows = unpack(zstandard.ZstdDecompressor().decompress(block.body))
        every = zip(places, offsets, numbers, rows, strict=True)
        self._open = [
            (statements[place], (offset, *unpack(values)), number)
            for place, offset, number, values in islice(every, self._first - block.first, None)
        ]
        self._open.reverse()

    # --- state

    def delta(self) -> list[Any] | None:
        """Return what changed since the last call; None for nothing, and where none waits and none was said to."""
        self._pack()
        here, (said_first, said_end) = (self._first, self._end), self._said
        nothing = self._first == self._end and said_first == said_end
        if nothing or (here == self._said and not self._again):
            self._again = False
            return None
        blocks = [block for block in self._blocks if self._again or block.first >= said_end]
        if self._again:
            self._said_names.clear()
        names = {name for block in blocks for name in block.names} - self._said_names
        self._said_names |= names
        self._said, self._again = here, False
        statements = msgpack.packb(query.dump(tuple(self._named[name] for name in sorted(names))))
        return [self._first, zstandard.ZstdCompressor(level=1).compress(statements), blocks]

    def restore(self, data: Any) -> None:
        """Take over one ``delta``, in the order in which they were made. Raises ValueError or TypeError for anything
        else."""
        first, statements, blocks = data
        try:
            dumped = msgpack.unpackb(zstandard.ZstdDecompressor().decompress(statements))
        except zstandard.ZstdError as error:
            raise ValueError(f"statements of rows that wait: {error}") from error
        for statement in stored.statements(dumped):
            self._named.setdefault((statement.id, statement.digest), statement)
        for start, rows, names, body in blocks:
            block = _Block(start, rows, tuple(map(tuple, names)), body)
            if not self._named.keys() >= set(block.names):
                raise ValueError("a row that waits is of a statement that is not known")
            if start >= self._end:
                self._blocks.append(block)
                self._end, self.bytes = block.end, self.bytes + len(body)
        self._open = []
        while self._blocks and self._blocks[0].end <= first:
            self.bytes -= len(self._blocks.popleft().body)
        self._first, self._end = first, max(first, self._end)
        self._said = self._first, self._end

    def touch(self) -> None:
        """The next ``delta`` holds all of it."""
        self._again = True
