"""Rows of statements on their way to sinks: a queue for each sink, between the commit that makes rows and the receiver.

Delivery: at least once. A row is in its queue from the commit that evaluated its event (``store/rows.py``) until the
sink is done with it. Its id, ``AGENT/LOG_ID:SINK:NUMBER``, is the same however often it comes; a rebuilt store has
another LOG_ID, and numbers from 1. Of each sink ``made = delivered + refused + dropped + waiting``.

* A queue keeps ``limit`` bytes of compressed rows. Beyond it the oldest block goes and its rows are counted as dropped:
  no receiver that is away keeps evaluation, alerts or another sink waiting.
* Rows of one commit are written together, small blocks again with what follows them, so that a queue of few rows a
  second has no more blocks than it has pages.
* After a kill a sink goes on at its place, which is on disk within a second.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

import orjson
import structlog

from vedette.delivery.forward import Forwarder
from vedette.model.counters import Log
from vedette.rawlog.checkpoint import Checkpoint, RestartPoint
from vedette.sinks.base import Outgoing
from vedette.store.environment import Environment
from vedette.store.rows import BLOCK_BYTES, Block, Change, Rows, Waiting, packed
from vedette.store.sinks import Place

log = structlog.get_logger()

OPEN_BYTES = 16 << 10
"""Of rows, up to which the newest block is written again with those that come."""
READ = 1000
"""Rows that are read in one step of the event loop."""
LIMIT = 256 << 20
"""Bytes of a queue whose sink is not open."""


class RowQueue:
    """The rows of one sink. Belongs to the event loop, but for ``add``, which evaluation calls."""

    def __init__(self, name: str, rows: Rows, waiting: Waiting, prefix: str, head: Mapping[str, Any]) -> None:
        """``prefix``: of the ids of its rows. ``head``: what receivers learn of the agent beside a row."""
        self.name, self.limit, self.prefix, self.head = name, LIMIT, prefix, head
        self._rows, self._blocks, self.next = rows, waiting.blocks, waiting.next
        self.bytes = sum(block.counted for block in self._blocks)
        """Of the blocks, as they are counted."""
        self.place = Place(waiting.after, waiting.delivered, waiting.refused)
        self.begin()
        self._cached: tuple[int, list[bytes]] = 0, []
        """First number and rows of the block that was read last."""
        self._new: list[bytes] = []
        """Rows since the last commit."""
        self._open: list[bytes] = []
        """Rows of the newest block, while it may be written again."""
        self._watching = set[asyncio.Event]()

    def begin(self) -> None:
        """Hand out from the place on: what was taken beyond it comes again, and counts once."""
        place = self.place
        place.after = self._read = passed = max(place.after, self._first - 1)
        """``_read``: up to here rows were handed out, or are gone."""
        place.refused = min(place.refused, passed)
        place.delivered = min(place.delivered, passed - place.refused)
        place.dropped = passed - place.refused - place.delivered

    @property
    def _first(self) -> int:
        """The number of the oldest row that is kept; the next one where there is none."""
        return self._blocks[0].first if self._blocks else self.next

    @property
    def newest_seq(self) -> int:
        """Of all rows that are committed; 0: there are none."""
        return self.next - 1

    @property
    def waiting(self) -> int:
        place = self.place
        return self.newest_seq - place.delivered - place.refused - place.dropped

    # --- in

    def add(self, line: bytes) -> None:
        """A row for the next commit."""
        self._new.append(line)

    @property
    def changed(self) -> bool:
        return bool(self._new)

    def change(self, into: Change) -> tuple[int, list[bytes], list[Block], list[Block]]:
        """What the next commit writes of it: the number behind, the rows of the open block, blocks that come, and those
        that go."""
        lines, self._new = self._new, []
        come, go = list[tuple[Block, bytes]](), list[Block]()
        number, size, last = self.next, 0, list[bytes]()
        if self._open and self._blocks:
            last, number = self._open, self._blocks[-1].first
            size = sum(map(len, last))
            go.append(self._blocks[-1])
        for line in lines:
            if last and size + len(line) > BLOCK_BYTES:
                come.append(packed(number, last))
                number, size, last = number + len(last), 0, []
            last = [*last] if last is self._open else last
            last.append(line)
            size += len(line)
        come.append(packed(number, last))
        stay = self._blocks[: len(self._blocks) - len(go)]
        beyond = sum(block.counted for block in (*stay, *(block for block, _ in come))) - self.limit
        while beyond > 0 and len(stay) + len(come) > 1:
            oldest = stay.pop(0) if stay else come.pop(0)[0]
            go.append(oldest)
            beyond -= oldest.counted
        into.drops += (block.key(self.name) for block in go)
        into.puts += ((block.key(self.name), data) for block, data in come)
        return self.next + len(lines), last if size <= OPEN_BYTES else [], [block for block, _ in come], go

    def committed(self, following: int, opened: list[bytes], come: list[Block], go: list[Block]) -> None:
        """A change of it is on disk."""
        gone = {block.first for block in go}
        self._blocks = [*(block for block in self._blocks if block.first not in gone), *come]
        self.bytes = sum(block.counted for block in self._blocks)
        self.next, self._open = following, opened
        self._drop()
        for event in self._watching:
            event.set()

    def _drop(self) -> None:
        """Count rows that are gone, and that nobody has read."""
        place, last = self.place, self._first - 1
        if last > self._read:
            dropped, self._read = last - self._read, last
            place.dropped += dropped
            place.gone = last

    # --- out

    def kept(self, after: int, limit: int) -> list[tuple[int, bytes]]:
        """The first ``limit`` rows above the number ``after``, or some of them. Raises OSError."""
        rows = list[tuple[int, bytes]]()
        after = max(after, self._first - 1)
        while len(rows) < limit and after < self.newest_seq:
            at = bisect_right(self._blocks, after + 1, key=lambda block: block.first) - 1
            try:
                first, lines = self._lines(at)
            except KeyError:  # a commit that is about to end has rewritten or dropped it
                break
            except ValueError as error:
                log.error(Log.OUTBOX_DAMAGED, sink=self.name, row=after + 1, reason=str(error), action="not sent")
                self.place.dropped += self._end(at) - after - 1
                after = self._end(at) - 1
                continue
            some = lines[after + 1 - first : after + 1 - first + limit - len(rows)]
            rows += enumerate(some, after + 1)
            after += len(some)
        self._read = max(self._read, after)
        return rows

    def _lines(self, at: int) -> tuple[int, list[bytes]]:
        block = self._blocks[at]
        if self._cached[0] != block.first or len(self._cached[1]) < self._end(at) - block.first:
            lines = self._rows.lines(self.name, block)
            if len(lines) != self._end(at) - block.first:
                raise ValueError(f"a block of {len(lines)} rows, not {self._end(at) - block.first}")
            self._cached = block.first, lines
        return self._cached

    def _end(self, at: int) -> int:
        """The number behind the rows of a block."""
        return self._blocks[at + 1].first if at + 1 < len(self._blocks) else self.next

    def watch(self, event: asyncio.Event) -> None:
        """Set ``event`` when rows come, until ``unwatch``."""
        self._watching.add(event)

    def unwatch(self, event: asyncio.Event) -> None:
        self._watching.discard(event)

    def passed(self, number: int) -> bool:
        """Whether nobody waits for rows below ``number`` any more."""
        return self.place.passed + 1 >= min(number, self.next)

    def done(self) -> list[Block]:
        """Blocks that the sink is done with; they leave the queue."""
        count = 0
        while count + 1 < len(self._blocks) and self._blocks[count + 1].first <= self.place.after + 1:
            count += 1
        if count + 1 == len(self._blocks) and self.next <= self.place.after + 1:
            count, self._open = count + 1, []
        gone, self._blocks = self._blocks[:count], self._blocks[count:]
        self.bytes -= sum(block.counted for block in gone)
        return gone

    def forget(self) -> int:
        """Its rows are gone with the sink; how many waited. Its numbers go on where the sink comes again."""
        waited, self._blocks, self._open, self._new, self.bytes = self.waiting, [], [], [], 0
        self._drop()
        self.begin()
        return waited

    @property
    def blocks(self) -> int:
        """How many there are."""
        return len(self._blocks)


class RowQueues:
    """All queues by the names of their sinks."""

    def __init__(self, env: Environment, writer: Executor, log_id: str, head: Mapping[str, Any]) -> None:
        """Of the store's ``env``, numbered as ``log_id``; ``head``: see ``RowQueue``. Raises OSError, ValueError."""
        self._rows, self._writer, self._head = Rows(env), writer, head
        self._prefix = f"{head['agent_id']}/{log_id}"
        self.queues = {name: self._queue(name, waiting) for name, waiting in self._rows.waiting().items()}
        self.bytes = 0
        """Of rows since the last commit."""
        self._mark = self.mark()
        """The rows made before ``RestartPoint.next_place``."""
        self._change: dict[str, tuple[int, list[bytes], list[Block], list[Block]]] = {}
        self._written: dict[str, tuple[int, int, int]] = {}
        self._gone = set[str]()
        """Sinks that were there; evaluation hears of it between two frames."""

    def _queue(self, name: str, waiting: Waiting) -> RowQueue:
        return RowQueue(name, self._rows, waiting, f"{self._prefix}:{name}:", self._head)

    def of(self, name: str) -> RowQueue:
        """The queue of a sink, which is empty when it is new."""
        if name not in self.queues:
            self.queues[name] = self._queue(name, Waiting())
        return self.queues[name]

    def add(self, name: str, line: bytes) -> None:
        """A row for the next commit; none for a sink that is gone."""
        if name not in self._gone:
            self.of(name).add(line)
            self.bytes += len(line)

    # --- commits

    def change(self) -> Change:
        """What the next commit writes; ``committed`` when it has."""
        change = Change()
        self._change = {name: queue.change(change) for name, queue in self.queues.items() if queue.changed}
        self.bytes = 0
        if self._change:
            following = {name: queue.next for name, queue in self.queues.items()}
            change.next = {**following, **{name: number for name, (number, *_) in self._change.items()}}
        return change

    def committed(self) -> None:
        change, self._change = self._change, {}
        for name, of_sink in change.items():
            self.queues[name].committed(*of_sink)
            if name in self._gone:
                self.queues[name].forget()

    def mark(self) -> dict[str, int]:
        """By sink the number of the next row."""
        return {name: queue.next for name, queue in self.queues.items()}

    def passed(self, mark: Mapping[str, int]) -> bool:
        """Whether nobody waits for rows before ``mark`` any more."""
        return all(queue.passed(mark.get(name, 1)) for name, queue in self.queues.items())

    def settle(self, restart: RestartPoint, place: Checkpoint, first_waiting: int | None) -> None:
        """``restart.committed``, but with nothing settled before rows that wait."""
        mark = self.mark()
        if not self.passed(mark):
            if not self.passed(self._mark):
                return
            first_waiting = restart.next_place.next_seq if first_waiting is None else first_waiting
        restart.committed(place, first_waiting)
        if restart.next_place is place:
            self._mark = mark

    # --- places

    async def keep(self) -> None:
        """Write down how far sinks are. Raises OSError."""
        gone = [block.key(name) for name, queue in self.queues.items() for block in queue.done()]
        places = {name: queue.place.row()[:3] for name, queue in self.queues.items()}
        if gone or places != self._written:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._rows.keep, places, gone)
            self._written = places

    async def adopt(self, limits: Mapping[str, int]) -> None:
        """From now on rows of these sinks, each with its bytes, and of no others. Raises OSError."""
        left = [name for name, queue in self.queues.items() if name not in limits and name not in self._gone]
        self._gone = (self._gone | {*left}) - limits.keys()
        if left:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._rows.forget, left)
        for name in left:
            if waiting := self.queues[name].forget():
                log.warning(Log.SINK_DROPPED, sink=name, rows=waiting, reason="the sink is gone", action="not sent")
        for name, limit in limits.items():
            self.of(name).limit = limit


class RowForwarder(Forwarder):
    """A Forwarder of rows: none is filtered, a batch that is not taken comes again as it was, and a dead letter has the
    row's id and the row."""

    step, noun = READ, "rows"
    dead = (".rows.ndjson", (b'{"row_id":"',))
    _queue: RowQueue

    def state(self) -> dict[str, Any]:
        queue = self._queue
        waiting = {"waiting": queue.waiting, "waiting_bytes": queue.bytes, "max_waiting": queue.limit}
        return {**super().state(), "made": queue.newest_seq, **waiting}

    @property
    def _batch(self) -> int:
        return getattr(self._receiver, "row_batch", self._receiver.batch)

    def _room(self) -> int:
        return 0 if self._left else self._batch

    def _outgoing(self, seq: int, data: bytes) -> Outgoing | None:
        queue = self._queue
        return Outgoing(seq, f"{queue.prefix}{seq}", queue.head, data)

    def _say_dead(self, dead: list[tuple[Outgoing, str]]) -> None:
        row, reason = dead[0]
        action = f"kept in {self._dead.path}, not sent again"
        log.error(Log.SINK_REFUSED, sink=self.settings.name, row=row.id, rows=len(dead), reason=reason, action=action)

    def _dead_line(self, row: Outgoing, refused: Mapping[str, Any]) -> bytes:
        return b'{"row_id":%b,"row":%b,"refused":%b}' % (orjson.dumps(row.id), row.line, orjson.dumps(refused))
