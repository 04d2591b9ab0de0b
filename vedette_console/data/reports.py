"""The HTML reports of a region: made in the background, by hand or once a day, kept in a folder, read in the console.

In the folder, ``NAME.html`` is a report, ``NAME.making`` says that one is asked for, ``NAME.failed`` why it was not
made; where the disk takes that no more, the console knows it until it ends. What was asked for when the console ended
is made when it starts again. A report is of all sites, so only who sees all of them gets it. A file's time is when its
report was begun: that of a day that had not ended is no report of that day, and the daily one is made over it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import structlog

from spark_jobs.common.period import Period, period
from spark_jobs.report import page
from spark_jobs.report.freshness import freshness
from spark_jobs.report.headline import Report
from spark_jobs.tables import storage
from vedette_console.data.models_fleet import ReportRow
from vedette_console.data.now import report_of
from vedette_console.data.reader import Pool, Reader
from vedette_console.data.rows import none
from vedette_console.security.principal import Grant, Principal, Role
from vedette_console.steady import Steady
from vedette_console.web import Problem

MAX_DAYS = 31
MAX_LISTED = 400
EARLIEST = date(2000, 1, 1)
MAX_ASKED, MAX_OWN = 8, 3
"""Reports that wait or are made: of all users, and of one."""
LOOK_SECONDS = 600.0
"""Between two looks whether it is time for the daily report."""
NAME = re.compile(r"report-([0-9]{4}-[0-9]{2}-[0-9]{2})-([0-9]{4}-[0-9]{2}-[0-9]{2})")
CONSOLE = Principal("console", "user", (Grant(Role.VIEWER),))
"""Who asks for what everybody may read who sees all sites."""

log = structlog.get_logger(__name__)


def _clock() -> datetime:
    return datetime.now(UTC)


class Reports:
    """Reports in ``folder`` (None: there are none); ``hour``: of UTC, when that of the day before is made."""

    def __init__(
        self, folder: Path | None, pool: Pool, hour: int | None = None, clock: Callable[[], datetime] = _clock
    ) -> None:
        self._folder, self._pool, self._hour, self._clock = folder, pool, hour, clock
        self._asked: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: dict[str, str] = {}
        """By report, until it is made, who asked."""
        self._failed: dict[str, str] = {}
        """Why reports were not made whose files could not say so."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Go on with what was asked for. Raises OSError for a folder that cannot be made."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        for marker in sorted(self._folder.glob("*.making")):
            if NAME.fullmatch(marker.stem):
                self._waiting[marker.stem] = CONSOLE.name
                self._asked.put_nowait(marker.stem)
        self._tasks = [asyncio.create_task(self._make_all())]
        if self._hour is not None:
            self._tasks.append(asyncio.create_task(self._daily()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def rows(self, who: Principal) -> list[ReportRow]:
        """Reports, the newest days first; none for who does not see all sites."""
        if self._folder is None or not who.sites("read").all or not self._folder.is_dir():
            return []
        names = {path.stem for path in self._folder.iterdir() if NAME.fullmatch(path.stem)}
        ordered = sorted(names, key=lambda name: (name[-10:], name), reverse=True)
        return [row for name in ordered[:MAX_LISTED] if (row := self._row(self._folder, name)) is not None]

    def read(self, who: Principal, name: str) -> str:
        """The page of a report. Raises Problem 404."""
        if self._folder is None or not NAME.fullmatch(name) or not who.sites("read").all:
            raise none("report")
        try:
            return (self._folder / f"{name}.html").read_text("utf-8")
        except FileNotFoundError:
            raise none("report") from None

    async def asked(self, who: Principal, days: int = 1, last: date | None = None) -> ReportRow:
        """Ask for the report of the ``days`` days up to ``last`` (None: today), also for one that is there. Raises
        Problem 403, 409, 422, 503."""
        if not who.sites("read").all:
            raise Problem(403, "a report is of all sites, and you do not see all", what_to_do="ask an admin for one")
        if self._folder is None:
            raise Problem(503, "reports have no folder", what_to_do="start the console with --reports DIR")
        if not 1 <= days <= MAX_DAYS:
            raise Problem(422, f"a report has 1 to {MAX_DAYS} days", where="days", what_to_do="write a number of days")
        today = self._clock().date()
        if last is not None and not EARLIEST <= last <= today:
            raise Problem(
                422, f"the last day is from {EARLIEST} to today", where="until", what_to_do="write 2026-11-22"
            )
        wanted = period(last or today, days)
        name = f"report-{wanted.since}-{wanted.until}"
        row = None
        while row is None:  # again, where another asked for it in vain meanwhile
            if name not in self._waiting:
                await self._ask(who, name, self._folder / f"{name}.making")
            row = await asyncio.to_thread(self._row, self._folder, name)
        return row

    async def _ask(self, who: Principal, name: str, marker: Path) -> None:
        """Raises Problem 409, 503."""
        own = [*self._waiting.values()].count(who.name) >= MAX_OWN
        if own or len(self._waiting) >= MAX_ASKED:
            whose = "of yours" if own else "of others"
            raise Problem(409, f"reports {whose} wait to be made", what_to_do="try again in a minute")
        self._waiting[name] = who.name
        try:
            await asyncio.to_thread(storage.replace, marker, "")
        except BaseException as error:
            del self._waiting[name]
            if not isinstance(error, OSError):
                raise
            raise Problem(503, f"a report cannot be asked for: {error}", what_to_do="look at the disk") from error
        self._failed.pop(name, None)
        self._asked.put_nowait(name)

    def _row(self, folder: Path, name: str) -> ReportRow | None:
        match = NAME.fullmatch(name)
        assert match is not None
        made_at, size, state, error = None, 0, "made", ""
        with suppress(FileNotFoundError):
            stat = (folder / f"{name}.html").stat()
            made_at, size = datetime.fromtimestamp(stat.st_mtime, UTC), stat.st_size
        with suppress(FileNotFoundError):
            error, state = (folder / f"{name}.failed").read_text("utf-8"), "failed"
        if name in self._waiting or (folder / f"{name}.making").exists():
            error, state = "", "making"
        if name in self._failed:
            error, state = self._failed[name], "failed"
        if state == "made" and made_at is None:
            return None
        return ReportRow(
            name=name, since=match[1], until=match[2], made_at=made_at, bytes=size, state=state, error=error,
            whole=made_at is not None and made_at.date() > date.fromisoformat(match[2]),
        )  # fmt: skip

    async def _make_all(self) -> None:
        """Make what is asked for, one after the other."""
        while True:
            name = await self._asked.get()
            match = NAME.fullmatch(name)
            assert match is not None
            assert self._folder is not None
            failed, making = self._folder / f"{name}.failed", self._folder / f"{name}.making"
            try:
                first, last, begun = date.fromisoformat(match[1]), date.fromisoformat(match[2]), self._clock()
                html = await self._pool.work(_html, CONSOLE, period(last, (last - first).days + 1, begun))
                await asyncio.to_thread(storage.replace, self._folder / f"{name}.html", html)
                os.utime(self._folder / f"{name}.html", (begun.timestamp(), begun.timestamp()))
                failed.unlink(missing_ok=True)
                making.unlink(missing_ok=True)
            except Exception as error:
                log.warning("report_failed", report=name, reason=str(error), exc_info=not isinstance(error, Problem))
                reason = str(error)[:500] or type(error).__name__
                try:
                    failed.write_text(reason, "utf-8")
                    making.unlink(missing_ok=True)
                except OSError:
                    self._failed[name] = reason
            finally:
                del self._waiting[name]

    async def _daily(self) -> None:
        """Ask for the report of the day before, once the hour has come, unless it was made since."""
        steady = Steady("the daily report")
        while True:
            now = self._clock()
            yesterday = now.date() - timedelta(days=1)
            assert self._folder is not None
            assert self._hour is not None
            due = now.replace(hour=self._hour, minute=0, second=0, microsecond=0)
            with steady:
                row = self._row(self._folder, f"report-{yesterday}-{yesterday}")
                if now >= due and (row is None or row.made_at is None or row.made_at < due):
                    await self.asked(CONSOLE, 1, yesterday)
            await asyncio.sleep(LOOK_SECONDS)


def _html(reader: Reader, wanted: Period) -> str:
    screen = report_of(reader, wanted)
    return page.html(Report(wanted, screen.counts, screen.findings, screen.accounts, freshness(reader, wanted)))
