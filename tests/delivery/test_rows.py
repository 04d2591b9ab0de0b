"""Rows that wait for a sink, over a real store: numbers, bounds and the account, whatever happens in what order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.deep import examples
from tests.delivery.kit import NOW
from tests.waits import eventually
from vedette.delivery.rows import RowForwarder, RowQueues
from vedette.model.counters import Counters
from vedette.model.event import Cursor
from vedette.rawlog.checkpoint import Checkpoint, RestartPoint
from vedette.sinks.base import Answer, Outgoing, Verdict
from vedette.sinks.settings import WebhookSink
from vedette.store.rows import Rows
from vedette.store.store import Store

HEAD = {"agent_id": "edge-1", "fleet": "f", "site": "s", "host": None, "level": "informational", "kind": "row"}
BLOCK = 4096
"""What a block is counted as at least."""


class Life:
    """One life of an agent's store: a kill is another one over the same folder."""

    def __init__(self, folder: Path, **limits: int) -> None:
        self.store = Store.open(folder / "store")
        self.writer = ThreadPoolExecutor(1)
        self.rows = RowQueues(self.store.env, self.writer, "log", HEAD)
        asyncio.run(self.rows.adopt(limits))

    def commit(self, sink: str, lines: Sequence[bytes]) -> None:
        for line in lines:
            self.rows.add(sink, line)
        self.store.commit(Cursor("log", 1), {}, (), (), rows=self.rows.change().write)
        self.rows.committed()

    def end(self) -> None:
        self.writer.shutdown()
        self.store.close()


def noise(number: int, size: int = 0) -> bytes:
    """A row that hardly compresses."""
    return json.dumps(
        {"n": number, "x": bytes((number * 7919 + i * i * 104729) % 251 for i in range(size)).hex()}
    ).encode()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 60), st.sampled_from([0, 40, 700])),
        st.tuples(st.just("take"), st.integers(1, 80), st.just(0)),
        st.tuples(st.just("keep"), st.just(0), st.just(0)),
        st.tuples(st.just("kill"), st.just(0), st.just(0)),
        st.tuples(st.just("open"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@examples(60)
@given(STEPS, st.sampled_from([1 << 30, 3 * BLOCK, 1]))
def test_whatever_happens(steps: list[tuple[str, int, int]], limit: int) -> None:
    """Rows come out in order, each at least once or counted as dropped; the account adds up at every step, also after a
    kill; and within the bound nothing is dropped."""
    with TemporaryDirectory() as folder:
        life, made, looked, taken = Life(Path(folder), lake=limit), 0, 0, set[int]()
        for step, count, size in steps:
            queue = life.rows.of("lake")
            match step:
                case "add":
                    life.commit("lake", [noise(made + i + 1, size) for i in range(count)])
                    made += count
                case "take":
                    for number, line in queue.kept(looked, count):
                        assert looked < number <= made
                        assert json.loads(line)["n"] == number
                        looked, queue.place.after = number, number
                        queue.place.delivered += 1
                        taken.add(number)
                case "keep":
                    asyncio.run(life.rows.keep())
                case "kill":
                    life.end()
                    life = Life(Path(folder), lake=limit)
                    looked = life.rows.of("lake").place.after
                case "open":
                    queue.begin()
                    looked = queue.place.after
            queue, place = life.rows.of("lake"), life.rows.of("lake").place
            assert queue.newest_seq == made == place.delivered + place.refused + place.dropped + queue.waiting
            assert queue.waiting >= 0
            assert queue.bytes <= limit or queue.blocks == 1
        queue = life.rows.of("lake")
        while rest := queue.kept(looked, 50):
            for number, _ in rest:
                looked, queue.place.after = number, number
                queue.place.delivered += 1
                taken.add(number)
        assert queue.waiting == 0
        assert len(taken) + queue.place.dropped >= made
        assert limit < 1 << 30 or taken == {*range(1, made + 1)}
        asyncio.run(life.rows.keep())
        assert queue.bytes == 0
        life.end()


def test_a_trickle_fills_blocks(tmp_path: Path) -> None:
    """A row at each commit makes no block of its own."""
    life = Life(tmp_path, lake=1 << 20)
    for number in range(1, 301):
        life.commit("lake", [noise(number, 40)])
    assert life.rows.of("lake").blocks < 5
    assert [number for number, _ in life.rows.of("lake").kept(0, 300)] == [*range(1, 301)]
    life.end()


def test_a_sink_that_is_gone(tmp_path: Path) -> None:
    """Its rows are forgotten, and those of the others stay; one that comes again gives no number twice."""
    life = Life(tmp_path, lake=1 << 20, pond=1 << 20)
    for sink in ("lake", "pond"):
        life.commit(sink, [b"{}"] * 3)
    with capture_logs() as logged:
        asyncio.run(life.rows.adopt({"pond": 1 << 20}))
    assert [(entry["sink"], entry["rows"]) for entry in logged] == [("lake", 3)]
    life.end()
    life = Life(tmp_path, lake=1 << 20, pond=1 << 20)
    life.commit("lake", [b"{}"])
    lake, pond = (life.rows.of(sink) for sink in ("lake", "pond"))
    assert (lake.newest_seq, lake.waiting, lake.place.dropped, pond.waiting) == (4, 1, 3, 3)
    assert lake.kept(0, 9) == [(4, b"{}")]
    life.end()


def test_what_is_done_with_takes_no_rows_along_that_came_since(tmp_path: Path) -> None:
    """Rows alike compress to as many bytes: the block that is written again is not the one that is deleted."""
    life = Life(tmp_path, lake=1 << 20)
    row = b'{"kind":"same"}'
    life.commit("lake", [row] * 6)
    queue = life.rows.of("lake")
    queue.place.after = queue.place.delivered = 6
    for _ in range(3):
        life.rows.add("lake", row)
    change, done = life.rows.change(), queue.done()
    life.store.commit(Cursor("log", 2), {}, (), (), rows=change.write)
    Rows(life.store.env).keep({"lake": (6, 6, 0)}, [block.key("lake") for block in done])
    life.rows.committed()
    life.end()
    life = Life(tmp_path, lake=1 << 20)
    assert life.rows.of("lake").kept(6, 9) == [(7, row), (8, row), (9, row)]
    life.end()


def test_a_place_is_settled_behind_no_row_that_waits(tmp_path: Path) -> None:
    """A rebuilt store would begin before the first row that a sink has not got, and follows as it gets them."""
    life, restart = Life(tmp_path, lake=1 << 20), RestartPoint(Counters())
    restart.begin(Checkpoint(Cursor("log", 0)), Checkpoint(Cursor("log", 0)))
    settled = list[int]()
    for step in range(1, 6):
        if step < 4:
            life.commit("lake", [b"{}"])
        if step in (3, 5):
            life.rows.of("lake").place.after = step
        life.rows.settle(restart, Checkpoint(Cursor("log", step)), None)
        assert restart._settled is not None
        assert restart._settled.cursor is not None
        settled.append(restart._settled.cursor.offset)
    assert settled == [0, 0, 3, 4, 5]
    life.end()


class Scripted:
    batch, row_batch = 5, 40

    def __init__(self, *verdicts: Verdict) -> None:
        self.verdicts, self.asked = [*verdicts], list[list[Outgoing]]()

    async def deliver(self, rows: Sequence[Outgoing]) -> list[Answer]:
        self.asked.append([*rows])
        verdict = self.verdicts.pop(0) if self.verdicts else Verdict.TAKEN
        return [Answer(verdict, "said")] * len(rows)

    async def close(self) -> None:
        pass


async def test_forwarded(tmp_path: Path) -> None:
    """Many at a time, without a filter; a batch that is not taken comes again as it was, before others; one that is
    refused lies in a file of dead letters, with the ids of its rows."""
    life = await asyncio.to_thread(Life, tmp_path, w=1 << 20)
    life.commit("w", [noise(number) for number in range(1, 101)])
    settings = WebhookSink("w", url="http://127.0.0.1:1", level="critical", takes="rows")
    receiver, queue = Scripted(Verdict.LATER, Verdict.TAKEN, Verdict.REFUSED), life.rows.of("w")
    forwarder = RowForwarder(
        settings, receiver, queue.place, queue, tmp_path / "sinks", lambda: NOW, backoff=(0.001, 0.004)
    )
    task = asyncio.create_task(forwarder.run())
    await eventually("all rows", lambda: queue.waiting == 0)
    await forwarder.stop(0.0, task)
    assert [(rows[0].seq, rows[-1].seq) for rows in receiver.asked] == [(1, 40), (1, 40), (41, 80), (81, 100)]
    first = receiver.asked[0][0]
    assert (first.id, first.line, first.row) == ("edge-1/log:w:1", noise(1), HEAD)
    state: dict[str, Any] = forwarder.state()
    assert [state[key] for key in ("made", "delivered", "refused", "dropped", "waiting")] == [100, 60, 40, 0, 0]
    dead = [json.loads(line) for line in (tmp_path / "sinks" / "w.rows.ndjson").read_bytes().splitlines()]
    assert [letter["row_id"] for letter in dead] == [f"edge-1/log:w:{number}" for number in range(41, 81)]
    assert (dead[0]["row"]["n"], dead[0]["refused"]) == (41, {"reason": "said", "at": NOW})
    life.end()
