"""The pool: bounded, cancellable, and undisturbed by tables that are missing, written, compacted or vacuumed."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import AGENTS, ALERTS, TABLES
from spark_jobs.tables.tables import Where
from tests.console.made import row, write_alerts
from tests.waits import DEADLINE, eventually, until
from vedette_console.data import alerts
from vedette_console.data import reader as module
from vedette_console.data.reader import EXPORTS, Pool, Reader, unless_gone
from vedette_console.data.scope import SCOPED
from vedette_console.pages.render import together
from vedette_console.security.principal import Grant, Principal, Role
from vedette_console.web import Problem

ALL = Principal("ann", "user", (Grant(Role.ADMIN),))
PLANT = Principal("ben", "user", (Grant(Role.VIEWER, "north", "plant"),))
BOB = Principal("bob", "user", (Grant(Role.VIEWER),))
NOBODY = Principal("eve", "user", ())
SLOW = "SELECT count(*) FROM range(100000000000) a, range(1000) b"
NEVER = 3600.0
"""Seconds of a question that only an interrupt is to end."""


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[Pool]:
    pool = Pool(str(folder), **settings)
    try:
        yield pool
    finally:
        await pool.close()


def counted(reader: Reader) -> int:
    reader.view("alerts", ALERTS)
    count: int = reader.only("SELECT count(*) AS n FROM alerts")["n"]
    return count


def slow(reader: Reader) -> object:
    return reader.rows(SLOW)


async def test_missing_tables_are_empty(tmp_path: Path) -> None:
    """Every table that is not there has all its columns and no rows, for who sees all and who sees one site."""

    def columns(reader: Reader, name: str) -> object:
        table = TABLES[name]
        reader.view("it", table)
        names = ", ".join(table.names)
        return reader.rows(f"SELECT {names} FROM it")

    async with opened(tmp_path) as pool:
        for name in TABLES:
            assert await pool.ask(columns, ALL, name) == []
            assert await pool.ask(columns, PLANT, name) == []


def test_every_table_has_a_scope() -> None:
    """A new table is withheld or shown by decision, not by chance."""
    assert set(SCOPED) == set(TABLES)


async def test_a_table_is_written_and_compacted_under_way(tmp_path: Path) -> None:
    """What is written is seen a second later; a question whose files a vacuum took is asked again."""
    tables = DeltaTables(str(tmp_path))
    async with opened(tmp_path) as pool:
        for number in range(3):
            write_alerts(tables, [row(number)])
        assert await pool.ask(counted, ALL) == 3
        tables.compact(ALERTS)
        tables.vacuum(ALERTS, 0)
        # Within the second in which its log is not looked at again.
        assert await pool.ask(counted, ALL) == 3


async def test_files_that_stay_gone_are_an_answer(tmp_path: Path) -> None:
    """A table whose files are lost is reported as such, not as a crash."""
    write_alerts(DeltaTables(str(tmp_path)), [row(1)])
    for file in (tmp_path / "alerts").rglob("*.parquet"):
        file.unlink()
    async with opened(tmp_path) as pool:
        with pytest.raises(Problem, match="the tables cannot be read now"):
            await pool.ask(counted, ALL)


class Begins:
    """A slow question that DuckDB begins only after its first interrupt, which DuckDB then knows nothing of."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def __call__(self, reader: Reader) -> object:
        self.asked.set()
        until("the interrupt", lambda: reader.stopped)
        return reader._duck.sql(SLOW).fetchall()

    def pieces(self, reader: Reader) -> Iterator[bytes]:
        yield b"the first"
        yield str(self(reader)).encode()


async def test_who_goes_away_frees_the_reader(tmp_path: Path) -> None:
    """A cancelled question, and one whose browser is gone, are interrupted: the next one gets the reader."""
    async with opened(tmp_path, readers=1, seconds=NEVER) as pool:
        task = asyncio.create_task(pool.ask(slow, ALL))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async def gone() -> bool:
            return True

        with pytest.raises(Problem, match="the browser went away"):
            await unless_gone(gone, pool.ask(slow, ALL))
        assert await pool.ask(counted, ALL) == 0


@pytest.mark.parametrize("way", ["ask", "work"])
async def test_a_question_that_begins_late_is_interrupted(tmp_path: Path, way: str) -> None:
    """One that was cancelled before DuckDB had begun is interrupted again until it ends, and the reader is free."""
    async with opened(tmp_path, readers=1, seconds=NEVER) as pool:
        for _ in range(EXPORTS):
            question = Begins()
            task = asyncio.create_task(getattr(pool, way)(question, ALL))
            await eventually("the question", question.asked.is_set)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await getattr(pool, way)(counted, ALL) == 0


async def test_an_export_that_begins_late_is_interrupted(tmp_path: Path) -> None:
    """The same of an export whose browser goes away."""
    async with opened(tmp_path) as pool:
        for who in (ALL, PLANT):
            question = Begins()
            pieces = await pool.stream(question.pieces, who)
            assert await anext(pieces) == b"the first"
            task = asyncio.ensure_future(anext(pieces))
            await eventually("the question", question.asked.is_set)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await eventually("their readers", lambda: not pool._exports.has_all(ALL.name))
        pieces = await pool.stream(lambda reader: iter([b"%d" % counted(reader)]), ALL)
        assert [piece async for piece in pieces] == [b"0"]


async def test_a_question_that_does_not_begin_frees_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong before its work: the next one is answered."""

    def fails(*args: Any) -> Any:
        raise ValueError("no beginning")

    def pieces(reader: Reader) -> Iterator[bytes]:
        yield b"%d" % counted(reader)

    async with opened(tmp_path, readers=1) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(Reader, "question", fails)
            for ask in (pool.ask, pool.work, pool.stream):
                with pytest.raises(ValueError, match="no beginning"):
                    await ask(counted, ALL)
        for _ in range(EXPORTS):
            with pytest.raises(ValueError, match="no beginning"):
                await pool.stream(fails, ALL)
        with monkeypatch.context() as patch:
            patch.setattr(pool._threads, "submit", fails)
            for ask in (pool.ask, pool.work, pool.stream):
                with pytest.raises(ValueError, match="no beginning"):
                    await ask(counted, ALL)
        async with asyncio.timeout(DEADLINE):
            assert [await pool.ask(counted, ALL), await pool.work(counted, ALL)] == [0, 0]
            assert [piece async for piece in await pool.stream(pieces, ALL)] == [b"0"]


@pytest.mark.parametrize("way", ["ask", "work", "stream"])
async def test_a_question_that_fails_amid_its_rows_leaves_nothing_open(tmp_path: Path, way: str) -> None:
    """Though its error, which somebody holds, refers to them."""

    def fails(reader: Reader) -> Any:
        rows = reader.stream("SELECT range FROM range(10000000)")
        raise ValueError(f"amid {next(rows)}")

    def pieces(reader: Reader) -> Iterator[bytes]:
        yield fails(reader)

    async with opened(tmp_path, readers=1) as pool:
        errors = []
        for _ in range(EXPORTS + 1):
            with pytest.raises(ValueError, match="amid") as raised:
                await getattr(pool, way)(pieces if way == "stream" else fails, ALL)
            errors.append(raised.value)


async def test_a_question_ends_in_time(tmp_path: Path) -> None:
    """One that takes too long is interrupted, also where DuckDB has not begun it yet, with what to do."""
    async with opened(tmp_path, seconds=0.05) as pool:
        for question in (slow, Begins()):
            with pytest.raises(Problem, match="no answer in time") as raised:
                await pool.ask(question, ALL)
            assert raised.value.status == 503


@pytest.mark.parametrize("late", [False, True])
async def test_a_console_that_ends_waits_for_no_question(tmp_path: Path, late: bool) -> None:
    """What runs when the pool is closed is interrupted, and whoever asked is answered so."""
    asked = threading.Event()

    def at_work(reader: Reader) -> object:
        asked.set()
        return slow(reader)

    question = Begins() if late else at_work
    async with opened(tmp_path, seconds=NEVER) as pool:
        tasks = [asyncio.create_task(way(question, ALL)) for way in (pool.ask, pool.work)]
        await eventually("the questions", (question.asked if isinstance(question, Begins) else asked).is_set)
    assert [type(answer) for answer in await asyncio.gather(*tasks, return_exceptions=True)] == [Problem, Problem]


async def test_memory_is_bounded(tmp_path: Path) -> None:
    """A question that needs more than there is is refused, with what to do."""

    def large(reader: Reader) -> object:
        return reader.rows("SELECT list(a.range) FROM range(40000000) a")

    pool = Pool(str(tmp_path), memory="32MB")
    try:
        with pytest.raises(Problem, match="more memory than the console has"):
            await pool.ask(large, ALL)
    finally:
        await pool.close()


async def test_as_many_at_a_time_as_readers(tmp_path: Path) -> None:
    """Further questions wait for a reader."""
    running, most, lock = 0, 0, threading.Lock()

    def watched(reader: Reader) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        counted(reader)
        with lock:
            running -= 1

    async with opened(tmp_path, readers=2) as pool:
        await asyncio.gather(*(pool.ask(watched, ALL) for _ in range(12)))
    assert 1 <= most <= 2


async def test_what_two_ask_for_is_made_once_and_holds_one_reader(tmp_path: Path) -> None:
    """Who waits for what another question makes leaves its reader to others."""
    go_on, asked, makings = threading.Event(), list[Principal](), list[Principal]()

    def dear(reader: Reader) -> int:
        def make() -> int:
            makings.append(reader.who)
            assert go_on.wait(DEADLINE)
            return 7

        asked.append(reader.who)
        return reader.cached("dear", (ALERTS,), make)

    async with opened(tmp_path, readers=2, seconds=NEVER) as pool:
        first = asyncio.create_task(pool.ask(dear, ALL))
        await eventually("the making", lambda: makings)
        others = [asyncio.create_task(pool.ask(dear, who)) for who in (BOB, BOB, ALL)]
        try:
            await eventually("another that asks", lambda: len(asked) > 1)
            async with asyncio.timeout(DEADLINE / 2):
                assert await pool.ask(counted, PLANT) == 0
            assert not any(task.done() for task in (first, *others))
        finally:
            go_on.set()
        assert await asyncio.gather(first, *others) == [7] * 4
    assert makings == [ALL]


async def test_who_waits_for_what_is_made_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among the questions that wait, while it is made and after; who no longer waits is not."""
    go_on, making = threading.Event(), threading.Event()

    def dear(reader: Reader) -> int:
        def make() -> int:
            making.set()
            assert go_on.wait(DEADLINE)
            return 7

        return reader.cached("dear", (ALERTS,), make)

    monkeypatch.setattr(module, "WAITING_EACH", 4)
    async with opened(tmp_path, readers=2, seconds=NEVER) as pool:
        first = asyncio.create_task(pool.ask(dear, ALL))
        await eventually("the making", making.is_set)
        others = [asyncio.create_task(pool.ask(dear, BOB)) for _ in range(5)]
        try:
            await eventually("all that wait", lambda: pool._questions.waiting["bob"] == 5)
            with pytest.raises(Problem, match="too many of your questions") as refused:
                await pool.ask(dear, BOB)
            assert refused.value.status == 429
            others.pop().cancel()
            await eventually("that it is gone", lambda: pool._questions.waiting["bob"] == 4)
        finally:
            go_on.set()
        assert await asyncio.gather(first, *others) == [7] * 5
        assert not pool._questions.waiting.total()


async def test_rows_of_other_sites_are_not_seen(tmp_path: Path) -> None:
    """A grant for a site, for a fleet, for none; after another's question the next one has its own scope again."""
    tables = DeltaTables(str(tmp_path))
    write_alerts(tables, [row(1), row(2, site="office"), row(3, fleet="south"), row(4, site=None, fleet=None)])
    fleet = Principal("cyd", "user", (Grant(Role.VIEWER, "north", "*"),))
    async with opened(tmp_path, readers=1) as pool:
        for who, number in ((ALL, 4), (PLANT, 1), (fleet, 2), (NOBODY, 0), (ALL, 4)):
            assert await pool.ask(counted, who) == number
            assert len((await pool.ask(alerts.search, who)).items) == number


async def test_a_made_up_scope_is_no_sql(tmp_path: Path) -> None:
    """Names of a grant are texts, whatever is in them."""
    write_alerts(DeltaTables(str(tmp_path)), [row(1, site="x' OR 'a'='a"), row(2)])
    odd = Principal("odd", "user", (Grant(Role.VIEWER, "north", "x' OR 'a'='a"),))
    async with opened(tmp_path) as pool:
        assert await pool.ask(counted, odd) == 1


async def test_the_log_names_the_files_of_a_day(tmp_path: Path) -> None:
    """Files are chosen by day and by the times in them."""
    write_alerts(DeltaTables(str(tmp_path)), [row(1), row(2, received_date="2026-11-22")])
    async with opened(tmp_path) as pool:
        assert len(pool.catalog.files(ALERTS)) == 2
        assert [file.partition for file in pool.catalog.files(ALERTS, Where(only=["2026-11-22"]))] == ["2026-11-22"]
        assert pool.catalog.days(ALERTS) == ["2026-11-20", "2026-11-22"]
        assert pool.catalog.version(AGENTS) == -1


async def test_a_page_that_a_browser_leaves_logs_nothing() -> None:
    """What its questions still say is nobody's, and no error."""
    said, ended = list[object](), threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: said.append(context["message"]))

    async def gone() -> bool:
        return True

    async def question() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            loop.call_soon(ended.set)

    request = Request({"type": "http"})
    request.is_disconnected = gone  # type: ignore[method-assign]
    with pytest.raises(Problem, match="the browser went away"):
        await together(request, question(), question())
    await eventually("the questions", ended.is_set)
    gc.collect()
    assert said == []
