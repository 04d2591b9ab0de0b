"""Reports that cannot be made say why, and are made when they are asked for again; the daily one outlives any disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.looptime import forward
from tests.waits import DEADLINE, eventually
from vedette_console.data import reports
from vedette_console.data.models_fleet import ReportRow
from vedette_console.data.reader import Pool
from vedette_console.data.reports import CONSOLE, Reports
from vedette_console.web import Problem

DAY, NOON = date(2026, 11, 19), datetime(2026, 11, 20, 12, tzinfo=UTC)
NAME = f"report-{DAY}-{DAY}"


class Disk:
    """Takes what is written and removed while it is not ``full``: by ``storage.replace`` and ``Path``."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.full: Callable[[Path], bool] = lambda path: False
        for place, name in ((reports.storage, "replace"), (Path, "write_text"), (Path, "unlink")):
            patch.setattr(place, name, self._guarded(getattr(place, name)))

    def _guarded(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(path: Path, *args: Any, **options: Any) -> Any:
            if self.full(path):
                raise OSError(28, "No space left on device")
            return write(path, *args, **options)

        return guarded


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@asynccontextmanager
async def at_work(
    folder: Path, hour: int | None = None, clock: Callable[[], datetime] = lambda: NOON
) -> AsyncIterator[Reports]:
    """Reports over tables without rows."""
    pool = Pool(str(folder / "tables"))
    made = Reports(folder / "reports", pool, hour, clock)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()
        await pool.close()


async def row_of(made: Reports, state: str) -> ReportRow:
    await eventually(f"a report that is {state}", lambda: [row.state for row in made.rows(CONSOLE)] == [state])
    return made.rows(CONSOLE)[0]


@pytest.mark.parametrize("lost", [(".html",), (".html", ".failed"), (".html", ".failed", ".making")])
async def test_a_full_disk(tmp_path: Path, disk: Disk, lost: tuple[str, ...]) -> None:
    """Whatever of a failed report cannot be written or removed, it says why, and can be asked for again."""
    async with at_work(tmp_path) as made:
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(reports, "_html", lambda reader, wanted: _fail(disk, lost))
            await made.asked(CONSOLE, 1, DAY)
            assert "No space left" in (await row_of(made, "failed")).error
        disk.full = lambda path: True
        with pytest.raises(Problem, match="cannot be asked for") as refused:
            await made.asked(CONSOLE, 1, DAY)
        assert refused.value.status == 503
        disk.full = lambda path: False
        assert (await made.asked(CONSOLE, 1, DAY)).state == "making"
        assert (await row_of(made, "made")).error == ""
        assert {path.name for path in (tmp_path / "reports").iterdir()} == {f"{NAME}.html"}


def _fail(disk: Disk, lost: tuple[str, ...]) -> str:
    """A report that is made while the disk fills up."""
    disk.full = lambda path: path.suffix in lost
    return "<html>"


async def test_one_user_leaves_others_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one who asks for many reports at once; for one that waits already they may ask again."""
    monkeypatch.setattr(reports, "MAX_OWN", 2)
    monkeypatch.setattr(Pool, "work", lambda *_: asyncio.Event().wait())
    async with at_work(tmp_path) as made:
        days = [DAY - timedelta(number) for number in range(3)]
        answers = await asyncio.gather(*(made.asked(CONSOLE, 1, day) for day in days), return_exceptions=True)
        (refused,) = [answer for answer in answers if isinstance(answer, Problem)]
        assert (refused.status, "yours" in str(refused)) == (409, True)
        assert (await made.asked(CONSOLE, 1, days[0])).state == "making"
        assert (await made.asked(replace(CONSOLE, name="ann"), 1, days[2])).state == "making"


async def test_two_ask_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for a report while its file is being written gets its row."""
    writing, go_on, write = threading.Event(), threading.Event(), reports.storage.replace

    def slowly(path: Path, text: str) -> None:
        writing.set()
        assert go_on.wait(DEADLINE)
        write(path, text)

    monkeypatch.setattr(reports.storage, "replace", slowly)
    async with at_work(tmp_path) as made:
        first = asyncio.create_task(made.asked(CONSOLE, 1, DAY))
        try:
            await eventually("the file", writing.is_set)
            assert (await made.asked(CONSOLE, 1, DAY)).state == "making"
        finally:
            go_on.set()
        assert (await first).name == NAME


async def test_the_daily_report_outlives_a_full_disk(tmp_path: Path, disk: Disk) -> None:
    """A day's report that could not even be asked for comes with a later look."""
    looks, loop = list[datetime](), asyncio.get_running_loop()

    def clock() -> datetime:
        looks.append(NOON)
        return NOON

    disk.full = lambda path: True
    async with at_work(tmp_path, 4, clock) as made:
        await eventually("a second look", lambda: len(looks) > 1 or forward(loop, reports.LOOK_SECONDS))
        disk.full = lambda path: False
        await eventually("it to be asked for", lambda: made.rows(CONSOLE) or forward(loop, reports.LOOK_SECONDS))
        assert (await row_of(made, "made")).name == NAME


async def test_a_report_of_a_day_that_lasts_is_none_of_that_day(tmp_path: Path) -> None:
    """Asked for in the morning, it says that it is not of the whole day; the daily one is made over it, once."""
    times, looks, loop = [NOON - timedelta(days=1, hours=9)], list[datetime](), asyncio.get_running_loop()

    def clock() -> datetime:
        looks.append(times[-1])
        return times[-1]

    async with at_work(tmp_path, 4, clock) as made:
        await made.asked(CONSOLE)
        row = await row_of(made, "made")
        assert (row.name, row.made_at, row.whole) == (NAME, times[0], False)
        times.append(NOON.replace(hour=4, minute=10))
        await eventually("the day's", lambda: made.rows(CONSOLE)[0].whole or forward(loop, reports.LOOK_SECONDS))
        row = await row_of(made, "made")
        assert (row.name, row.made_at, row.whole) == (NAME, times[1], True)
        times.append(NOON)
        await eventually("looks", lambda: looks.count(NOON) > 1 or forward(loop, reports.LOOK_SECONDS))
        assert [row.made_at for row in made.rows(CONSOLE)] == [times[1]]


async def test_a_day_by_name(tmp_path: Path) -> None:
    async with at_work(tmp_path) as made:
        assert (await made.asked(CONSOLE, 2, DAY)).until == str(DAY)
        for last in (NOON.date() + timedelta(days=1), date.min):
            with pytest.raises(Problem) as refused:
                await made.asked(CONSOLE, 31, last)
            assert (refused.value.status, refused.value.body.where) == (422, "until")
