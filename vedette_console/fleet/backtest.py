"""Backtests: rules over exported raw logs, by a child ``python -m spark_jobs backtest``; nothing of Spark runs here.

    WORK/backtests/ID/
      job.json       what it is, how far it is, how it ended; replaced whole
      rules/         the rule files
      logs/AGENT/…   links to the segments of the time asked for
      matches/       Parquet: what the child found
      said           the child's output

One at a time; others wait. One that the console's end interrupted is not gone on with: it says so. The newest KEPT
stay. Only the logs of agents at sites where the one who asks may are read.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from vedette.bundle.manifest import rfc3339
from vedette.system.durable import write_whole
from vedette.system.wallclock import utc_now
from vedette_console.fleet import backfound, backlogs
from vedette_console.fleet.authoring import written
from vedette_console.fleet.given import Given
from vedette_console.fleet.hunts import moment
from vedette_console.fleet.live import Live
from vedette_console.fleet.models import BacktestOrder, BacktestPage, BacktestRow, BacktestsList, RuleFile
from vedette_console.security.principal import ALL, Principal
from vedette_console.web import Problem

KEPT, WAITING = 100, 20
SECONDS = 6 * 3600.0
"""For which one may run."""
LOOK_SECONDS = 0.5
MAX_SAID = 64 << 10
_ID = re.compile(r"[0-9a-f]{16}")
_STAGE = re.compile(rb"\[Stage (\d+):[=> ]*\((\d+) \+ \d+\) / (\d+)\]")
_STEPS = ("reading segments", "evaluating", "in order of time", "counting")
TESTS = (".test.yml", ".test.yaml")
OVER = ("done", "failed", "cancelled", "interrupted")


@dataclass(frozen=True, slots=True)
class Run:
    """Times are UTC microseconds. ``sites``: site by agent, of the logs it reads; ``whole``: those of all agents."""

    id: str
    by: str
    title: str
    reason: str
    source: str
    since: int
    until: int
    created: int
    route: bool
    sites: dict[str, str]
    texts: list[dict[str, Any]]
    state: str = "queued"
    why: str = ""
    began: int = 0
    ended: int = 0
    step: str = ""
    share: float | None = None
    segments: int = 0
    bytes: int = 0
    agents: int = 0
    not_run: list[str] = field(default_factory=list)


class Backtests:
    def __init__(self, given: Given, live: Live, news: Callable[[str], None]) -> None:
        self._given, self._live, self._news = given, live, news
        self._folder = given.work / "backtests"
        self._runs: dict[str, Run] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Semaphore(1)

    async def start(self) -> None:
        for run in await asyncio.to_thread(self._read):
            self._runs[run.id] = run
        for run in [*self._runs.values()]:
            if run.state not in OVER:
                await self._write(replace(run, state="interrupted", why="the console ended meanwhile", ended=utc_now()))

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _read(self) -> list[Run]:
        found = []
        for path in self._folder.glob("*/job.json"):
            with suppress(OSError, ValueError, TypeError):
                found.append(Run(**orjson.loads(path.read_bytes())))
        return sorted(found, key=lambda run: run.created)

    async def _write(self, run: Run) -> Run:
        self._runs[run.id] = run
        with suppress(OSError):  # a full disk: it is seen as interrupted by the next start
            await asyncio.to_thread(write_whole, self._folder / run.id / "job.json", orjson.dumps(asdict(run)), 0o600)
        self._news(run.id)
        return run

    # --- for people

    async def begin(self, who: Principal, order: BacktestOrder) -> BacktestPage:
        """Raises Problem."""
        source, name = self._source(order.source)
        if sum(run.state not in OVER for run in self._runs.values()) >= WAITING:
            raise Problem(429, "too many backtests wait", what_to_do="wait for one to end, or cancel one")
        now = utc_now()
        since = moment(order.since, now, "since") if order.since else 0
        until = moment(order.until, now, "until") if order.until else now
        agents = await asyncio.to_thread(backlogs.agents, source)
        sites = self._allowed(who, agents)
        if not sites:
            raise Problem(403 if agents else 409, f"{name} has no raw logs that {who.name} may try rules on",
                          where="source", what_to_do="copy raw logs of agents there, a folder an agent")  # fmt: skip
        title = ", ".join(one.path for one in order.rules if not one.path.endswith(TESTS))[:200]
        run = Run(secrets.token_hex(8), who.who, title, order.reason, name, since, until, now, order.route, sites,
                  [one.model_dump() for one in order.rules])  # fmt: skip
        place = self._folder / run.id
        await asyncio.to_thread(self._prepare, place, order.rules)
        await self._write(run)
        task = asyncio.create_task(self._conduct(run, source))
        self._tasks[run.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(run.id, None))
        return await asyncio.to_thread(self.one, who, run.id)

    def _source(self, asked: str) -> tuple[Path, str]:
        if not self._given.sources:
            raise Problem(503, "no raw logs for backtests are configured",
                          what_to_do="start the console with --backtest-source FOLDER")  # fmt: skip
        name = asked or next(iter(self._given.sources))
        if name not in self._given.sources:
            raise Problem(
                422, f"no source {name!r}", where="source", what_to_do=f"one of {', '.join(self._given.sources)}"
            )
        return self._given.sources[name], name

    def _allowed(self, who: Principal, agents: Iterable[str]) -> dict[str, str]:
        """Those at sites where ``who`` may try rules; of an agent that nobody has heard the site is not known."""
        known = {beat.agent: beat for beat in self._live.beats()}
        found = {}
        for agent in agents:
            beat = known.get(agent)
            if who.may("rules.try", beat.fleet, beat.site) if beat else who.may("rules.try", ALL, ALL):
                found[agent] = beat.site if beat else ""
        return found

    def _prepare(self, place: Path, rules: Iterable[RuleFile]) -> None:
        """Raises Problem 503."""
        try:
            (place / "rules").mkdir(mode=0o700, parents=True)
            written({one.path: one.text or "" for one in rules}, place / "rules")
            old = sorted((run for run in self._runs.values() if run.state in OVER), key=lambda run: -run.created)
            for run in old[KEPT:]:
                shutil.rmtree(self._folder / run.id, ignore_errors=True)
                del self._runs[run.id]
        except OSError as error:
            raise Problem(503, f"the backtest cannot be kept: {error}", what_to_do=f"look at {self._folder}") from error

    def _seen(self, who: Principal, run: Run) -> bool:
        known = {beat.agent: beat.fleet for beat in self._live.beats()}
        scope = who.sites("rules.try")
        return all(scope.all or scope.sees(known.get(agent, ALL), site) for agent, site in run.sites.items())

    def sees(self, id: str, who: Principal) -> bool:
        return id in self._runs and self._seen(who, self._runs[id])

    def listed(self, who: Principal, offset: int, limit: int) -> BacktestsList:
        runs = sorted((run for run in self._runs.values() if self._seen(who, run)), key=lambda run: -run.created)
        end = offset + limit
        return BacktestsList(items=[row(run, who) for run in runs[offset:end]], total=len(runs),
                             next=str(end) if end < len(runs) else None, sources=[*self._given.sources])  # fmt: skip

    def one(self, who: Principal, id: str) -> BacktestPage:
        """Blocking. Raises Problem 404."""
        run = self._find(who, id)
        found = backfound.Found()
        notes: list[str] = []
        if run.state == "done":
            try:
                found = backfound.read(self._folder / id / "matches", run.since, run.until, run.sites)
            except (OSError, ValueError) as error:
                notes = [f"its matches cannot be read: {error}"]
        return BacktestPage(
            backtest=row(run, who), events=found.events, agents=len(run.sites), rules=found.rules, hosts=found.hosts,
            by_hour=found.by_hour, matches=found.matches, matches_count=found.matches_count,
            notes=[*notes, *found.notes], not_run=run.not_run, texts=[RuleFile(**one) for one in run.texts],
        )  # fmt: skip

    def _find(self, who: Principal, id: str) -> Run:
        run = self._runs.get(id) if _ID.fullmatch(id) else None
        if run is None or not self._seen(who, run):
            raise Problem(404, f"no backtest {id[:64]}", where="id", what_to_do="see /backtests")
        return run

    async def cancel(self, who: Principal, id: str) -> BacktestPage:
        """Raises Problem."""
        run = self._find(who, id)
        if run.state in OVER or (task := self._tasks.get(id)) is None:
            raise Problem(409, "this backtest is over already")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._write(replace(self._runs[id], state="cancelled", why=f"by {who.who}", ended=utc_now()))
        return await asyncio.to_thread(self.one, who, id)

    # --- at work

    async def _conduct(self, run: Run, source: Path) -> None:
        place = self._folder / run.id
        async with self._turn:
            run = await self._write(replace(run, state="running", began=utc_now(), step="choosing segments"))
            try:
                chosen = await asyncio.to_thread(
                    backlogs.link, source, place / "logs", [*run.sites], run.since, run.until
                )  # fmt: skip
                if not chosen.segments:
                    raise ValueError("no raw log of that time is there")
                run = await self._write(replace(run, segments=chosen.segments, bytes=chosen.bytes, step="compiling"))
                run, code = await self._child(run, place)
                run = replace(run, ended=utc_now(), step="", share=1.0)
                said = await asyncio.to_thread(_said, place)
                not_run = [line.partition("not run: ")[2].replace(f"{place / 'rules'}/", "") for line in said
                           if "not run: " in line][:100]  # fmt: skip
                if code == 0:
                    await self._write(replace(run, state="done", not_run=not_run))
                else:
                    why = next((line for line in reversed(said) if line.strip()), f"it ended with code {code}")
                    await self._write(replace(run, state="failed", not_run=not_run, why=_plain(why, place)))
            except (OSError, ValueError, TimeoutError) as error:
                why = str(error) or f"it took longer than {SECONDS / 3600:.0f} hours"
                await self._write(replace(run, state="failed", why=_plain(why, place), ended=utc_now(), step=""))

    async def _child(self, run: Run, place: Path) -> tuple[Run, int]:
        """Raises OSError, TimeoutError."""
        with (place / "said").open("wb") as said:
            process = await asyncio.create_subprocess_exec(
                *backlogs.command(place, run.route, self._given), stdout=said, stderr=said,
                stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        until = time.monotonic() + SECONDS
        try:
            while process.returncode is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await process.wait()
                step, share = await asyncio.to_thread(_progress, place / "said")
                if step and (step, share) != (run.step, run.share):
                    run = await self._write(replace(run, step=step, share=share))
                if time.monotonic() > until:
                    raise TimeoutError
            return run, process.returncode
        finally:
            with suppress(ProcessLookupError):
                _end(process.pid)
            await asyncio.shield(process.wait())


def _end(group: int) -> None:
    """The child and the Java that it has started, a process group of its own."""
    import os

    os.killpg(group, signal.SIGKILL)


def _progress(path: Path) -> tuple[str, float | None]:
    """From Spark's own bar, whose last state is at the end of the output."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 4096))
        found = _STAGE.findall(file.read())
        if found:
            stage, done, all = map(int, found[-1])
            step = _STEPS[min(stage, len(_STEPS) - 1)]
            return f"{step}, {done} of {all}", done / all if all else None
    return "", None


def _said(place: Path) -> list[str]:
    with suppress(OSError), (place / "said").open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - MAX_SAID))
        text = file.read().decode("utf-8", "replace")
        return [line for line in re.split(r"[\r\n]+", text) if not line.startswith("[Stage ")]
    return []


def _plain(text: str, place: Path) -> str:
    return text.replace(f"{place}/", "").strip()[:500]


def row(run: Run, who: Principal) -> BacktestRow:
    seconds = ((run.ended or utc_now()) - run.began) / 1e6 if run.began else 0.0
    return BacktestRow(
        id=run.id, state=run.state, why=run.why, by=run.by, title=run.title, reason=run.reason, source=run.source,  # type: ignore[arg-type]
        since=rfc3339(run.since) if run.since else None, until=rfc3339(run.until), created=rfc3339(run.created),
        seconds=round(seconds, 1), step=run.step, share=run.share, segments=run.segments, bytes=run.bytes,
        may_cancel=run.state not in OVER and who.may("rules.try"),
    )  # fmt: skip
