"""Functions in Python beside all else: whatever one does, the loop goes on, and what is evaluated is exact."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.life import RULE, Life, lines
from tests.waits import eventually
from vedette.engine.match import Engine
from vedette.rules import build
from vedette.udf.host import Host

MODULE = """
import os, time
from pyflink.table import DataTypes
from pyflink.table.udf import udf

@udf(result_type=DataTypes.STRING())
def hostile(raw):
    if " evil" in raw:
        {harm}
    return raw[-1]

@udf(result_type=DataTypes.STRING())
def slow(raw):
    until = time.process_time() + 0.02 * raw.endswith("7")
    while time.process_time() < until:
        pass
    return raw[-2:]
"""
SQL = """
CREATE TEMPORARY FUNCTION {name} AS 'own.{name}' LANGUAGE PYTHON;
-- title: Own
INSERT INTO alerts SELECT `raw`, {name}(`raw`) AS last FROM events WHERE `raw` LIKE '%evil%' OR `raw` LIKE '%slow%';
"""


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[list[Life]]:
    made: list[Life] = []
    yield made
    for life in made:
        life.pipeline.close()
        life.end()


def engine(folder: Path, name: str, harm: str = "pass") -> Engine:
    """A rule that finds "marker", and a statement that calls a function on what has "evil" or "slow"."""
    rules = folder / "rules"
    (rules / "functions").mkdir(parents=True, exist_ok=True)
    (rules / "functions" / "own.py").write_text(MODULE.format(harm=harm))
    (rules / "own.sql").write_text(SQL.format(name=name))
    (rules / "marker.yml").write_text(RULE.format(word="marker", number=1))
    with closing(Host()) as host:
        return Engine(build.build([rules], functions=host))


def begun(folder: Path, engine: Engine) -> Life:
    return Life(folder, engine, functions=True)


def event(*words: str) -> bytes:
    return b"<13>Nov 21 02:40:00 web1 app: " + " ".join(words).encode()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ("while True: pass", "took more than 0.1 s of CPU"),
        pytest.param("time.sleep(60)", "it sleeps", marks=pytest.mark.long),
        pytest.param("sum(range(10 ** 12))", "of CPU for an answer", marks=pytest.mark.long),
        ("os._exit(1)", "it ended with code 1"),
    ],
)
def test_the_loop_goes_on(tmp_path: Path, lives: list[Life], harm: str, reason: str) -> None:
    """While a function does harm, what comes is stored and the loop comes round; then its statement is in quarantine,
    and every alert of the other rule is there, once."""
    life = begun(tmp_path, engine(tmp_path, "hostile", harm))
    lives.append(life)
    progress, stored = life.context.progress, 0

    async def work() -> None:
        nonlocal stored
        number, stuck = 0, 0
        while not life.context.failures.quarantined:
            life.give(lines(event("marker", "evil", str(number))))
            number += 1
            evaluated = progress.evaluated
            await asyncio.sleep(0.002)
            stuck = stuck + 1 if progress.evaluated == evaluated else 0
            stored = max(stored, stuck)
        life.give(*(lines(event("marker", "evil", f"after{i}")) for i in range(10)))

    life.live(work)
    (quarantined,) = life.context.failures.quarantined.values()
    assert quarantined["title"] == "Own"
    assert reason in quarantined["reason"]
    assert stored > 5  # events, one at a turn of the loop, while evaluation waited for one answer
    found = Counter(raw for title, raw in life.titled() if title == "Marker marker")
    assert found
    assert set(found.values()) == {1}
    assert sum(found.values()) == life.counters.received["in"]


def turned() -> float:
    """CPU seconds of the loop's thread and of the one that takes turns with it."""
    threads = [one for one in threading.enumerate() if one is threading.main_thread() or one.name == "statements"]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(one.ident)) for one in threads if one.ident)


def test_a_turn_of_the_loop_is_short(tmp_path: Path, lives: list[Life]) -> None:
    """By the CPU time of the threads that hold it, with a function on each of 3,000 events that came at once."""
    life = begun(tmp_path, engine(tmp_path, "hostile"))
    lives.append(life)
    life.give(*(lines(*(event("evil", f"{n:04}") for n in range(at, at + 600))) for at in range(0, 3000, 600)))
    turns: list[float] = []

    async def look() -> None:
        while True:
            before = turned()
            await asyncio.sleep(0)
            turns.append(turned() - before)

    async def begin() -> None:
        background.add(asyncio.create_task(look()))

    background = set[asyncio.Task[None]]()
    gc.collect()
    gc.freeze()  # as the agent does: else a turn is as long as the tests have left objects
    try:
        life.live(begin)
    finally:
        gc.unfreeze()
    assert life.counters.totals["alerts_made"] == 3000
    assert max(turns) < 0.015


def test_alerts_are_those_of_an_undisturbed_run_over_crashes(tmp_path: Path, lives: list[Life]) -> None:
    """Commits are asked for all the time while functions work, and the life ends at any of them: alerts, their numbers
    and the account are the same as without a crash."""
    made = engine(tmp_path, "slow")
    chunks = [lines(*(event("marker", "slow", f"{i:02}") for i in range(at, at + 20))) for at in range(0, 200, 20)]
    ends = []
    for crashes in (0, 6):
        folder = tmp_path / str(crashes)
        life = begun(folder, made)
        life.give(*chunks)

        async def crash(life: Life) -> None:
            life.log.sync()
            task = asyncio.create_task(life.pipeline.run())
            before = life.context.progress.committed
            while life.context.progress.committed == before:
                life.pipeline.checkpointer.due.set()
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.wait([task])

        for _ in range(crashes):
            asyncio.run(crash(life))
            life.pipeline.close()
            life.end()
            life = begun(folder, made)
        life.live()
        lives.append(life)
        assert [one.seq for one in life.alerts()] == list(range(1, 401))
        ends.append(sorted((one.rule_title, one.raw, one.fields.get("last", "")) for one in life.alerts()))
    assert ends[0] == ends[1]


def test_what_is_asked_for_meanwhile(tmp_path: Path, lives: list[Life]) -> None:
    """A switch to other rules, the end of quarantine and a tick wait until the function has answered."""
    made, other = engine(tmp_path, "slow"), engine(tmp_path, "hostile")
    life = begun(tmp_path, made)
    lives.append(life)
    evaluator = life.pipeline.evaluator

    async def work() -> None:
        life.give(lines(*(event("slow", f"{i}7") for i in range(20))))
        await eventually("the functions", life.pipeline.functions.pids)
        evaluator.switch(other, "b-2")
        life.pipeline.release()
        evaluator.release()
        assert evaluator.engine is made

    life.live(work)
    assert evaluator.engine is other
    assert {alert.bundle for alert in life.alerts()} == {None}
    assert len(life.alerts()) == 20
