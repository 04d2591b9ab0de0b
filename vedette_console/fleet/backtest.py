"""Backtests: rules over exported raw logs, by a child ``python -m spark_jobs backtest``; nothing of Spark runs here.

    WORK/backtests/ID/
      job.json       what it is, how far it is, how it ended; replaced whole
      rules/         the rule files
      logs/AGENT/…   links to the segments of the time asked for, until it is over
      matches/       Parquet: what the child found, counted by DuckDB with little memory
      said           the child's output

A source is a folder of folders: the first level names the agent (``SOURCE/AGENT/…/*.seg``), as `vedette-spark backtest
--logs` takes it. Links are hard where they can be, so that what retention deletes meanwhile is still read.

One at a time; others wait. One that the console's end interrupted is not gone on with: it says so. The newest KEPT
stay. Only the logs of agents at sites where the one who asks may are read.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import orjson
import structlog

from vedette.bundle.manifest import rfc3339
from vedette.rawlog.segment import Segment, SegmentFile, segments
from vedette.system.durable import write_whole
from vedette.system.ending import to_its_end
from vedette.system.wallclock import utc_now
from vedette_console.fleet.authoring import is_rule, rules_in, write_rules
from vedette_console.fleet.hunts import moment
from vedette_console.fleet.live import Live
from vedette_console.fleet.means import rule_options
from vedette_console.fleet.models import RuleFile
from vedette_console.fleet.models_asked import (
    BacktestOrder,
    BacktestPage,
    BacktestRow,
    BacktestsList,
    HostCount,
    HourCount,
    Match,
    RuleCount,
)
from vedette_console.security.principal import ALL, Principal, user_of
from vedette_console.settings import Settings
from vedette_console.web import Problem, part_of, written

log = structlog.get_logger()

MAX_AGENTS, MAX_SEGMENTS, MAX_DEPTH = 10_000, 200_000, 4
MEMORY = "1g"


class Chosen(NamedTuple):
    segments: int
    bytes: int


def logged_agents(source: Path) -> list[str]:
    """Names of the agents whose logs are in ``source``; none for a folder that is not there."""
    try:
        with os.scandir(source) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
            return names[:MAX_AGENTS]
    except OSError:
        return []


def link(source: Path, target: Path, names: Iterable[str], since: int, until: int) -> Chosen:
    """Link what was received from ``since`` on and before ``until``, whole segments. Raises OSError, ValueError."""
    number = size = 0
    for name in names:
        for folder in _folders(source / name, MAX_DEPTH):
            for segment in _within(segments(folder), since, until):
                number += 1
                if number > MAX_SEGMENTS:
                    raise ValueError(f"more than {MAX_SEGMENTS:,} segments: ask for a shorter time")
                place = target / folder.relative_to(source)
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                try:
                    os.link(segment.path, place / segment.path.name)
                except OSError:
                    (place / segment.path.name).symlink_to(segment.path.resolve())
                size += segment.path.stat().st_size
    return Chosen(number, size)


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    yield folder
    if depth:
        with os.scandir(folder) as entries:
            below = sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
        for inner in below:
            yield from _folders(inner, depth - 1)


def _within(every: list[Segment], since: int, until: int) -> Iterator[Segment]:
    """A segment has what came between its own beginning and that of the next one; 0: nobody knows."""
    begun = [*map(_begun, every)]
    for number, segment in enumerate(every):
        following = every[number + 1 : number + 2]
        end = begun[number + 1] if following and following[0].log_id == segment.log_id else 0
        if (not end or end >= since) and begun[number] < until:
            yield segment


def _begun(segment: Segment) -> int:
    try:
        with SegmentFile(segment) as file:
            return file.header().created_at
    except (OSError, ValueError):
        return 0


def command(place: Path, route: bool, settings: Settings) -> list[str]:
    """The words of the child, which gives way to all else on the host; its progress goes to standard error."""
    words = [sys.executable, "-m", "spark_jobs", "backtest", "--logs", str(place / "logs"), "--rules",
             str(place / "rules"), "--output", str(place / "matches"), "--master", "local[1]", "--conf",
             "spark.ui.showConsoleProgress=true", "--conf", f"spark.driver.memory={MEMORY}"]  # fmt: skip
    words += rule_options(settings)
    nice = shutil.which("nice")
    return ([nice, "-n", "10"] if nice else []) + words + (["--route"] if route else [])


MATCHES = "kind IN ('match', 'correlation', 'statement')"
SHOWN = 200
MAX_HOURS = 24 * 400
MAX_NOTES = 50


@dataclass(slots=True)
class Counts:
    events: int = 0
    rules: list[RuleCount] = field(default_factory=list)
    hosts: list[HostCount] = field(default_factory=list)
    by_hour: list[HourCount] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)
    matches_count: int = 0
    notes: list[str] = field(default_factory=list)


def read(folder: Path, since: int, until: int, sites: Mapping[str, str]) -> Counts:
    """Counts of events received in that time, UTC microseconds. Raises OSError, ValueError."""
    parts = [str(path) for path in sorted(folder.glob("*.parquet"))]
    if not parts:
        return Counts(notes=["it found nothing"])
    try:
        with duckdb.connect(
            config={"memory_limit": "256MB", "threads": 1, "autoinstall_known_extensions": False}
        ) as duck:
            duck.execute("SET TimeZone = 'UTC'")
            rows = duck.read_parquet(parts)
            rows.create_view("every")
            duck.execute(
                "CREATE TEMP VIEW found AS SELECT *, split_part(agent, '/', 1) AS host_agent FROM every WHERE "
                f"{MATCHES} AND (received_at IS NULL OR (epoch_us(received_at) >= {int(since)}"
                f" AND epoch_us(received_at) < {int(until)}))"
            )
            return _read(duck, sites)
    except duckdb.Error as error:
        raise ValueError(str(error).partition("\n")[0]) from error


def _read(duck: Any, sites: Mapping[str, str]) -> Counts:
    def ask(text: str) -> list[tuple[Any, ...]]:
        answer: list[tuple[Any, ...]] = duck.execute(text).fetchall()
        return answer

    counts = Counts()
    counts.events = ask("SELECT coalesce(sum(events), 0) FROM every WHERE kind = 'read'")[0][0]
    counts.matches_count = ask("SELECT count(*) FROM found")[0][0]
    counts.rules = [
        RuleCount(rule_id=rule, title=title, level=level, kind=_kind(kind), matches=n, agents=m)
        for rule, title, level, kind, n, m in ask(
            "SELECT coalesce(rule_id, ''), coalesce(max(rule_title), ''), coalesce(max(level), ''), max(kind),"
            " count(*), count(DISTINCT host_agent) FROM found GROUP BY rule_id ORDER BY 5 DESC, 1 LIMIT 500")
    ]  # fmt: skip
    counts.hosts = [
        HostCount(agent=agent, site=sites.get(agent, ""), matches=n)
        for agent, n in ask("SELECT host_agent, count(*) FROM found GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 500")
    ]
    counts.by_hour = [
        HourCount(hour=_time(hour) or "", matches=n)
        for hour, n in ask("SELECT date_trunc('hour', coalesce(event_time, received_at)) AS h, count(*) FROM found"
                           f" WHERE h IS NOT NULL GROUP BY 1 ORDER BY 1 DESC LIMIT {MAX_HOURS}")[::-1]
    ]  # fmt: skip
    counts.matches = [_match(row, sites) for row in ask(
        "SELECT host_agent, kind, rule_id, rule_title, level, input, \"offset\", coalesce(event_time, received_at),"
        f" fields, raw FROM found ORDER BY received_at, agent, \"offset\" LIMIT {SHOWN}")]  # fmt: skip
    for kind, text in (
        ("gap", "events cannot be read"),
        ("undecided", "times a rule could not be decided on an event"),
    ):
        if n := ask(f"SELECT coalesce(sum(events), 0) FROM every WHERE kind = '{kind}'")[0][0]:
            counts.notes.append(f"{n:,} {text}")
    counts.notes += [f"{agent}: {reason}" for agent, reason in ask(
        f"SELECT agent, reason FROM every WHERE kind IN ('gap', 'not_correlated') LIMIT {MAX_NOTES}")]  # fmt: skip
    return counts


def _match(row: tuple[Any, ...], sites: Mapping[str, str]) -> Match:
    agent, kind, rule, title, level, source, offset, time, fields, raw = row
    pairs = {str(key): str(value)[:1000] for key, value in [*(fields or {}).items()][:60] if value is not None}
    return Match(
        agent=agent, site=sites.get(agent, ""), rule_id=rule or "", title=title or "", level=level or "",
        kind=_kind(kind), input=source or "", offset=offset or 0, time=_time(time),
        fields=pairs | ({"raw": raw[:2048]} if raw else {}),
    )  # fmt: skip


def _kind(kind: str) -> str:
    return "detection" if kind == "match" else kind


def _time(time: datetime | None) -> str | None:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z") if time else None


KEPT, WAITING, OWN = 100, 20, 5
SECONDS = 6 * 3600.0
"""For which one may run."""
LOOK_SECONDS = 0.5
MAX_SAID = 64 << 10
_ID = re.compile(r"[0-9a-f]{16}")
_STAGE = re.compile(rb"\[Stage (\d+):[=> ]*\((\d+) \+ \d+\) / (\d+)\]")
_STEPS = ("reading segments", "evaluating", "in order of time", "counting")
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
    def __init__(self, settings: Settings, live: Live, news: Callable[[str], None]) -> None:
        self._settings, self._live, self._news = settings, live, news
        self._folder = settings.work_folder / "backtests"
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
        runs = []
        for path in self._folder.glob("*/job.json"):
            with suppress(OSError, ValueError, TypeError):
                row = orjson.loads(path.read_bytes())
                row.pop("texts", None)  # which stood here before
                runs.append(Run(**row))
        return sorted(runs, key=lambda run: run.created)

    async def _write(self, run: Run) -> Run:
        self._runs[run.id] = run
        if run.state in OVER:  # its links keep on disk what retention deletes
            await asyncio.to_thread(shutil.rmtree, self._folder / run.id / "logs", ignore_errors=True)
        with suppress(OSError):  # a full disk: it is seen as interrupted by the next start
            await asyncio.to_thread(write_whole, self._folder / run.id / "job.json", orjson.dumps(asdict(run)), 0o600)
        self._news(run.id)
        return run

    # --- for people

    async def begin(self, who: Principal, order: BacktestOrder) -> BacktestPage:
        """Raises Problem."""
        source, name = self._source(order.source)
        now = utc_now()
        since = moment(order.since, now, "since") if order.since else 0
        until = moment(order.until, now, "until") if order.until else now
        agents = await asyncio.to_thread(logged_agents, source)
        sites = self._allowed(who, agents)
        if not sites:
            raise Problem(403 if agents else 409, f"{name} has no raw logs that {who.name} may try rules on",
                          where="source", what_to_do="copy raw logs of agents there, a folder an agent")  # fmt: skip
        title = ", ".join(file.path for file in order.rules if is_rule(file.path))[:200]
        run = Run(secrets.token_hex(8), who.who, title, order.reason, name, since, until, now, order.route, sites)
        waiting = [user_of(run.by) for run in self._runs.values() if run.state not in OVER]
        if len(waiting) >= WAITING or waiting.count(who.name) >= OWN:
            raise Problem(429, "too many backtests wait", what_to_do="wait for one to end, or cancel one")
        self._runs[run.id] = run  # it counts from here on
        place = self._folder / run.id
        try:
            await asyncio.to_thread(self._prepare, place, order.rules)
        except BaseException:
            del self._runs[run.id]
            raise
        await self._write(run)
        task = asyncio.create_task(self._conduct(run, source))
        self._tasks[run.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(run.id, None))
        return await asyncio.to_thread(self.backtest, who, run.id)

    def _source(self, asked: str) -> tuple[Path, str]:
        if not self._settings.log_folders:
            raise Problem(503, "no raw logs for backtests are configured",
                          what_to_do="start the console with --backtest-source FOLDER")  # fmt: skip
        name = asked or next(iter(self._settings.log_folders))
        if name not in self._settings.log_folders:
            raise Problem(
                422, f"no source {name!r}", where="source", what_to_do=f"one of {', '.join(self._settings.log_folders)}"
            )
        return self._settings.log_folders[name], name

    def _allowed(self, who: Principal, agents: Iterable[str]) -> dict[str, str]:
        """Those at sites where ``who`` may try rules; of an agent that nobody has heard the site is not known."""
        heard = {beat.agent: beat for beat in self._live.beats()}
        sites = {}
        for agent in agents:
            beat = heard.get(agent)
            if who.may("rules.try", beat.fleet, beat.site) if beat else who.may("rules.try", ALL, ALL):
                sites[agent] = beat.site if beat else ""
        return sites

    def _prepare(self, place: Path, rules: Iterable[RuleFile]) -> None:
        """Raises Problem 503."""
        try:
            (place / "rules").mkdir(mode=0o700, parents=True)
            write_rules({file.path: file.text or "" for file in rules}, place / "rules")
            old = sorted((run for run in self._runs.values() if run.state in OVER), key=lambda run: -run.created)
            for run in old[KEPT:]:
                shutil.rmtree(self._folder / run.id, ignore_errors=True)
                del self._runs[run.id]
        except OSError as error:
            raise Problem(503, f"the backtest cannot be kept: {error}", what_to_do=f"look at {self._folder}") from error

    def _seen(self, who: Principal, run: Run) -> bool:
        fleets = {beat.agent: beat.fleet for beat in self._live.beats()}
        scope = who.sites("rules.try")
        return all(scope.all or scope.sees(fleets.get(agent, ALL), site) for agent, site in run.sites.items())

    def sees(self, id: str, who: Principal) -> bool:
        return id in self._runs and self._seen(who, self._runs[id])

    def listed(self, who: Principal, offset: int = 0, limit: int = 50) -> BacktestsList:
        runs = sorted((run for run in self._runs.values() if self._seen(who, run)), key=lambda run: -run.created)
        part = part_of(runs, offset, limit, lambda run: row(run, who))
        return BacktestsList(**dict(part), sources=[*self._settings.log_folders])

    def backtest(self, who: Principal, id: str) -> BacktestPage:
        """Blocking. Raises Problem 404."""
        run = self._find(who, id)
        counts = Counts()
        notes, texts = list[str](), list[RuleFile]()
        try:
            texts = rules_in(self._folder / id / "rules")
        except OSError as error:
            notes = [f"its rules cannot be read: {error}"]
        if run.state == "done":
            try:
                counts = read(self._folder / id / "matches", run.since, run.until, run.sites)
            except (OSError, ValueError) as error:
                notes.append(f"its matches cannot be read: {error}")
        return BacktestPage(
            backtest=row(run, who), events=counts.events, agents=len(run.sites), rules=counts.rules, hosts=counts.hosts,
            by_hour=counts.by_hour, matches=counts.matches, matches_count=counts.matches_count,
            notes=[*notes, *counts.notes], not_run=run.not_run, texts=texts,
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
        return await asyncio.to_thread(self.backtest, who, id)

    # --- at work

    async def _conduct(self, run: Run, source: Path) -> None:
        place = self._folder / run.id
        async with self._turn:
            run = await self._write(replace(run, state="running", began=utc_now(), step="choosing segments"))
            try:
                linking = asyncio.create_task(
                    asyncio.to_thread(link, source, place / "logs", [*run.sites], run.since, run.until)
                )
                chosen = await to_its_end(linking)  # what a thread still links goes with the rest
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
            except Exception as error:  # also what nobody foresaw: it would be running until the next start
                if not isinstance(error, OSError | ValueError):
                    log.exception("console_backtest_failed", backtest=run.id)
                why = str(error) or type(error).__name__
                await self._write(replace(run, state="failed", why=_plain(why, place), ended=utc_now(), step=""))

    async def _child(self, run: Run, place: Path) -> tuple[Run, int]:
        """Raises OSError, TimeoutError."""
        with (place / "said").open("wb") as said:
            process = await asyncio.create_subprocess_exec(
                *command(place, run.route, self._settings), stdout=said, stderr=said,
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
                    raise TimeoutError(f"it took longer than {SECONDS / 3600:.0f} hours")
            return run, process.returncode
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the child and the Java that it has started
            await asyncio.shield(process.wait())


def _progress(path: Path) -> tuple[str, float | None]:
    """Step and share by Spark's own bar, whose last state is at the end of the output."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 4096))
        stages = _STAGE.findall(file.read())
        if stages:
            stage, done, all = map(int, stages[-1])
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
        since=written(run.since), until=rfc3339(run.until), created=rfc3339(run.created),
        seconds=round(seconds, 1), step=run.step, share=run.share, segments=run.segments, bytes=run.bytes,
        may_cancel=run.state not in OVER and who.may("rules.try"),
    )  # fmt: skip
