"""What one key makes statements do holds neither the loop nor any input, and alerts are those of an undisturbed run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.life import NOW, Life
from tests.runtime.test_rows import engine
from vedette.model.event import Chunk
from vedette.runtime.pipeline.pipeline import Pipeline
from vedette.stream.operators import join
from vedette.system import turns

SQL = """
CREATE TABLE lines (host STRING, kind STRING, n STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'vedette', 'watermark' = 'selected');
CREATE VIEW a AS SELECT * FROM lines WHERE kind = 'a';
CREATE VIEW b AS SELECT * FROM lines WHERE kind = 'b';
-- title: Pairs
INSERT INTO alerts SELECT a.host, a.n, b.n AS m FROM a JOIN b
    ON a.host = b.host AND a.n <= b.n AND a.n >= b.n AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '10' MINUTE;
"""


def chunk(kind: str, host: str, first: int, count: int) -> Chunk:
    lines = [f'{{"host": "{host}", "kind": "{kind}", "n": "{n}", "ts": "2026-11-21T02:40:00Z"}}\n'
             for n in range(first, first + count)]  # fmt: skip
    return Chunk("in", "json", NOW, "".join(lines).encode())


FLOOD = [chunk("a", "hot", 0, 400), chunk("a", "cold", 0, 2), chunk("b", "hot", 390, 300), chunk("b", "cold", 0, 2)]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Steps give way wherever they can; an entry for each time."""
    ways: list[int] = []
    give_way = turns.give_way

    def counted() -> None:
        ways.append(1)
        give_way()

    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(turns, "give_way", counted)
    return ways


def test_the_loop_goes_on_within_a_push(tmp_path: Path, always: list[int]) -> None:
    """While rows of one key meet each other, what comes is stored, however long it takes."""
    life = Life(tmp_path, engine(SQL))
    stored = 0

    async def work() -> None:
        nonlocal stored
        life.give(*FLOOD)
        progress = life.context.progress
        while len(always) < 300:
            evaluated, ways = progress.evaluated, len(always)
            await asyncio.sleep(0)
            if progress.evaluated == evaluated and len(always) > ways:
                life.give(chunk("b", "late", stored, 1))
                stored += 1

    life.live(work)
    assert stored > 100
    assert [alert.fields["host"] for alert in life.alerts()] == ["hot"] * 10 + ["cold"] * 2
    life.pipeline.close()
    life.end()


def test_alerts_are_those_of_an_undisturbed_run_over_crashes(tmp_path: Path, always: list[int]) -> None:
    """Ended in the middle of what one event does, again and again: alerts, their order and numbers are the same."""
    ends = []
    for crashes in (0, 5):
        folder = tmp_path / str(crashes)
        folder.mkdir()
        life = Life(folder, engine(SQL))
        life.give(*FLOOD)
        life.log.sync()

        async def crash(pipeline: Pipeline, ways: int) -> None:
            task = asyncio.create_task(pipeline.run())
            while len(always) < ways:
                pipeline.checkpointer.due.set()
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        for number in range(crashes):
            asyncio.run(crash(life.pipeline, len(always) + 40 * (number + 1)))
            life.pipeline.close()
            life.end()
            life = Life(folder, engine(SQL))
        life.live()
        ends.append([(alert.seq, alert.raw, dict(alert.fields)) for alert in life.alerts()])
        life.pipeline.close()
        life.end()
    assert ends[0] == ends[1]
    assert len(ends[0]) == 12


def test_what_gave_way_is_in_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted for its statement, whose alerts say that they may lack something; those of another key are all there."""
    monkeypatch.setattr(join, "MAX_CHUNKS", 2)
    life = Life(tmp_path, engine(SQL))
    life.give(*FLOOD)
    life.live()
    (counts,) = life.pipeline.state.statements.status()["statements"]
    assert counts["evicted"] > 0
    alerts = [(alert.fields["host"], alert.fields["n"]) for alert in life.alerts()]
    assert alerts == [*(("hot", str(n)) for n in range(390, 400)), ("cold", "0"), ("cold", "1")]
    assert life.counters.totals["alerts_incomplete"] == len(alerts)
    life.pipeline.close()
    life.end()
