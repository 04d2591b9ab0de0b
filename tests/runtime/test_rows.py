"""Alerts of rows by batches: the same as all at once, over kills, changes of rules, a stop, a full outbox."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.life import NOW, Life
from tests.waits import eventually, pauses
from vedette.engine.match import Engine
from vedette.model.counters import Log
from vedette.model.event import Alert, Chunk
from vedette.rules import build
from vedette.runtime.pipeline import evaluator, uncommitted
from vedette.state.clock import MAX_GAP
from vedette.stream.network import waiting

WINDOW = "GROUP BY a, HOP(event_time, INTERVAL '30' SECOND, INTERVAL '1' MINUTE)"
SQL = f"""
-- title: Count
INSERT INTO alerts SELECT a, COUNT(*) AS n, MAX(b) AS m FROM events WHERE a IS NOT NULL {WINDOW};
-- title: Equal rows
INSERT INTO alerts SELECT a FROM (SELECT a, COUNT(*) AS n FROM events WHERE a IS NOT NULL
        GROUP BY a, TUMBLE(event_time, INTERVAL '30' SECOND)) AS w
    CROSS JOIN UNNEST(ARRAY['u', 'v', 'w']) AS t(x);
CREATE VIEW counted AS SELECT a, COUNT(*) AS n FROM events WHERE a IS NOT NULL {WINDOW};
-- title: Of a view
INSERT INTO alerts SELECT a, n FROM counted WHERE n > 1 UNION ALL SELECT a, n FROM counted;
-- title: Each event
INSERT INTO alerts SELECT a, b FROM events WHERE a = '3';
"""
FOLDED = """
-- title: Once
-- suppress: by a for 10s
INSERT INTO alerts SELECT a, b FROM events WHERE a IN ('1', '2');
""" + SQL.replace("-- title: Count", "-- title: Count\n-- suppress: by a for 45s")


def frames_of_windows() -> list[Chunk]:
    """Windows of nine keys: some end in the middle of a frame, the last ones with the last frame."""
    times = [*range(40), *range(100, 130), *range(400, 403)]
    lines = [
        json.dumps({"a": str(n % 9), "b": f"{n:02}", "ts": f"2026-11-21T02:{at // 60:02}:{at % 60:02}Z"}).encode()
        for n, at in enumerate(times)
    ]
    return [Chunk("in", "json", NOW, b"".join(one + b"\n" for one in lines[at : at + 25])) for at in range(0, 73, 25)]


def engine(sql: str = SQL) -> Engine:
    rules = build.empty()
    rules.front_ends[".sql"].add(sql, "rule.sql")
    plan = build.from_rules(rules)
    assert not plan.refused
    return Engine(plan, route=False)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Life]]:
    """Starts a life in a folder; the one before is over then. All have logs of the same name."""
    monkeypatch.setattr("secrets.token_hex", lambda size: "ab" * size)
    lives: list[Life] = []

    def begin(name: str, judge: Engine, **settings: Any) -> Life:
        if lives:
            lives.pop().end()
        (tmp_path / name).mkdir(exist_ok=True)
        lives.append(Life(tmp_path / name, judge, **settings))
        return lives[0]

    yield begin
    for life in lives:
        life.end()


def by_rows(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(evaluator, "ROWS", rows)
    monkeypatch.setattr(waiting, "LOOSE", min(5, rows))
    monkeypatch.setattr(waiting, "BLOCK", 4)


def each_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluation gives way at each event, and each batch is a transaction."""
    by_rows(monkeypatch, 7)
    monkeypatch.setattr(evaluator, "STEP_SECONDS", 0.0)
    monkeypatch.setattr(uncommitted, "COMMIT_BYTES", 1)


def undisturbed(start: Callable[..., Life], judge: Engine, name: str = "undisturbed") -> list[Alert]:
    """All rows at once."""
    life = start(name, judge)
    life.give(*frames_of_windows())
    found = life.live().alerts()
    assert len({one.alert_id for one in found}) == len(found) > 100
    return found


def by_id(alerts: Sequence[Alert], *but: str) -> dict[str, dict[str, Any]]:
    """All fields but these; the number is in the order in which alerts were made."""
    assert len({one.alert_id for one in alerts}) == len(alerts)
    return {one.alert_id: {name: value for name, value in asdict(one).items() if name not in but} for one in alerts}


def in_order(alerts: Sequence[Alert]) -> dict[str, list[str]]:
    """The ids of each statement's alerts."""
    return {one.rule_id: [each.alert_id for each in alerts if each.rule_id == one.rule_id] for one in alerts}


class Killed(Exception):
    pass


def killed(life: Life, commits: int) -> bool:
    """The life ends after so many commits, if it does not come to its end before; whether it did not. What it has
    done since is lost."""
    commit, left = life.store.commit, [commits]

    def counted(*arguments: Any) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        commit(*arguments)

    life.store.commit = counted  # type: ignore[method-assign]  # the kill

    async def main() -> bool:
        task = asyncio.create_task(life.pipeline.run())
        while not (task.done() or life.pipeline.evaluator.idle):
            await asyncio.sleep(0.001)
        if not task.done():
            with suppress(Killed, OSError):
                await life.pipeline.checkpointer.commit()
                return False
        task.cancel()
        await asyncio.wait({task})
        task.cancelled() or task.exception()
        return True

    return asyncio.run(main())


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_batches_of_any_size_are_one(rows: int, start: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids, all fields, and of each statement the order."""
    expected = undisturbed(start, engine())
    by_rows(monkeypatch, rows)
    monkeypatch.setattr(uncommitted, "COMMIT_BYTES", 2000)
    found = undisturbed(start, engine(), str(rows))
    assert by_id(found, "seq") == by_id(expected, "seq")
    assert in_order(found) == in_order(expected)
    assert [one.seq for one in found] == [one.seq for one in expected]


@pytest.mark.parametrize("sql", [SQL, FOLDED])
@pytest.mark.parametrize("commits", [pytest.param(3, marks=pytest.mark.long), 15])
def test_a_kill_between_batches(
    sql: str, commits: int, start: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again and again after so many commits: no alert is lost or doubled, and none differs, nor do folds."""
    # Over 3 s: a life for every few commits.
    expected = undisturbed(start, engine(sql))
    each_committed(monkeypatch)
    life = start("killed", engine(sql))
    life.give(*frames_of_windows())
    kills = waited = 0
    while killed(life, commits):
        kills += 1
        life = start("killed", engine(sql))
        waited += bool(life.pipeline.state.statements.waiting)
        assert kills < 2000
    assert kills > 2
    assert waited > 1
    assert by_id(life.alerts(), "seq") == by_id(expected, "seq")


def at_the_last_rows(life: Life) -> Callable[[], Awaitable[None]]:
    """Until rows wait that the last frame completes."""

    async def work() -> None:
        *before, last = frames_of_windows()
        life.give(*before)
        while not life.pipeline.evaluator.idle:
            await asyncio.sleep(0)
        life.give(last)
        while not life.pipeline.state.statements.waiting:
            await asyncio.sleep(0)

    return work


@pytest.mark.parametrize("other", [SQL.replace("Count", "Other"), SQL.replace("n > 1", "n > 2"), FOLDED[:130]])
def test_rows_that_wait_outlive_a_change_of_rules(
    other: str, start: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the agent runs, the rules that gave them make their alerts first; over a kill they do, too."""
    expected = by_id(undisturbed(start, engine()), "seq")
    each_committed(monkeypatch)
    life = start("switched", engine())
    until = at_the_last_rows(life)

    async def switched() -> None:
        await until()
        life.pipeline.evaluator.switch(engine(other), "b-2")

    life.live(switched)
    assert by_id(life.alerts(), "seq") == expected
    assert life.pipeline.evaluator.engine.plan.statements == engine(other).plan.statements
    life = start("killed", engine())
    life.give(*frames_of_windows())
    assert killed(life, 60)
    life = start("killed", engine(other))
    before, waited = len(life.alerts()), life.pipeline.state.statements.waiting
    assert waited > 5
    assert len(life.live().alerts()) >= before + waited
    again = by_id(life.alerts(), "seq")
    assert list(again)[: before + waited] == [one for one in again if one in expected][: before + waited]
    assert all(again[one] == expected[one] for one in list(again)[: before + waited])


def test_a_stop_while_rows_wait(start: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for them; the next start goes on with them, before anything else."""
    expected = undisturbed(start, engine())
    each_committed(monkeypatch)
    life = start("stopped", engine())
    until = at_the_last_rows(life)

    async def main() -> None:
        task = asyncio.create_task(life.pipeline.run())
        await until()
        await life.pipeline.drain(0.0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())
    life = start("stopped", engine())
    assert life.pipeline.state.statements.waiting > 5
    assert by_id(life.live().alerts(), "seq") == by_id(expected, "seq")


def test_a_full_outbox_lets_rows_wait(start: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made that has no room; receipts let the rest go on."""
    expected = undisturbed(start, engine())
    by_rows(monkeypatch, 7)
    most, found = 0, list[Alert]()
    life = start("full", engine(), outbox_bytes=20_000)
    life.give(*frames_of_windows())

    async def work() -> None:
        nonlocal most
        for pause in pauses():
            if len(found) >= len(expected):
                break
            await asyncio.sleep(pause)
            most = max(most, life.outbox.bytes)
            these = life.alerts()
            found.extend(these)
            await life.outbox.receipt([(one.seq, one.seq) for one in these])

    life.live(work)
    assert by_id(found, "seq") == by_id(expected, "seq")
    assert 15_000 < most < 45_000  # a commit may be on its way


def test_the_loop_comes_round_while_rows_become_alerts(start: Callable[..., Life]) -> None:
    """However many a window's end gives: by the CPU time of the loop's thread between two turns, which other work on
    the machine changes less than the clock's. A thousand rows take three times as much as is allowed here."""
    counted = (
        "SELECT a, COUNT(*) AS n FROM events WHERE a IS NOT NULL GROUP BY a, TUMBLE(event_time, INTERVAL '1' MINUTE)"
    )
    life = start("turns", engine(f"INSERT INTO alerts {counted};"))
    events = [{"a": str(n), "ts": f"2026-11-21T02:{n // 1500:02}:00Z"} for n in range(3000)]
    lines = [json.dumps(one).encode() + b"\n" for one in [*events, {"a": "end", "ts": "2026-11-21T02:30:00Z"}]]
    for at in range(0, len(lines), 500):
        life.give(Chunk("in", "json", NOW, b"".join(lines[at : at + 500])))
    turns: list[float] = []

    async def look() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            turns.append(time.thread_time() - before)

    async def begin() -> None:
        background.add(asyncio.create_task(look()))

    background = set[asyncio.Task[None]]()
    gc.collect()
    gc.freeze()  # as the agent does: else a turn is as long as the tests have left objects
    try:
        assert len(life.live(begin).alerts()) == 3000
    finally:
        gc.unfreeze()
    assert max(turns) < 0.015


def looks_at_the_time(life: Life, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """An entry for each that the evaluator has had."""
    looks: list[None] = []
    tick = life.pipeline.evaluator.tick

    async def look() -> None:
        await tick()
        looks.append(None)

    monkeypatch.setattr(life.pipeline.evaluator, "tick", look)
    return looks


async def two_more(looks: list[None]) -> None:
    enough = len(looks) + 2
    await eventually("two looks at the time", lambda: len(looks) >= enough)


@pytest.mark.parametrize("rows", [1, 1000])
def test_time_alone_lets_windows_end(rows: int, start: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """No event comes any more: all the same, by batches or at once, and each committed."""
    monkeypatch.setattr(evaluator, "TICK_SECONDS", 0.01)
    found = []
    for size in (10_000, rows):
        by_rows(monkeypatch, size)
        life = start(str(size), engine())
        life.give(*frames_of_windows())
        looks = looks_at_the_time(life, monkeypatch)

        async def work(life: Life = life, looks: list[None] = looks) -> None:
            await eventually("evaluation", lambda: life.pipeline.evaluator.idle)
            for _ in range(240_000_000 // MAX_GAP):
                life.clock.later += MAX_GAP
                await two_more(looks)
            life.pipeline.checkpointer.due.set()

        found.append(by_id(life.live(work).alerts(), "seq", "detected_at"))
    assert found[0] == found[1]
    assert len(found[0]) > len(undisturbed(start, engine()))


def test_what_has_no_room_to_wait_is_logged(start: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    by_rows(monkeypatch, 7)
    life = start("small", engine())
    life.pipeline.state.statements.network.waiting.limit = 1
    life.give(*frames_of_windows())
    with capture_logs() as logged:
        made = len(life.live().alerts())
    dropped = sum(one["rows"] for one in logged if one["event"] == Log.STATEMENT_ROWS_DROPPED)
    status = life.pipeline.state.statements.status()
    assert dropped == status["dropped"] == sum(one["dropped"] for one in status["statements"]) > 100
    assert made + dropped == len(undisturbed(start, engine()))
