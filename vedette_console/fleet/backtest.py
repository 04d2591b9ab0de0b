"""Backtests: rules over exported raw logs, by a child ``python -m spark_jobs backtest``; nothing of Spark runs here.

    WORK/backtests/ID/
      job.json       what it is, how far it is, how it ended; replaced whole
      rules/         the rule files
      logs/AGENT/…   links to the segments of the time asked for
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

from vedette.bundle.manifest import rfc3339
from vedette.rawlog.segment import Segment, SegmentFile, segments
from vedette.system.durable import write_whole
from vedette.system.wallclock import utc_now
from vedette_console.fleet.authoring import written
from vedette_console.fleet.hunts import moment
from vedette_console.fleet.live import Live
from vedette_console.fleet.means import Means
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
from vedette_console.security.principal import ALL, Principal
from vedette_console.web import Problem

MAX_AGENTS, MAX_SEGMENTS, MAX_DEPTH = 10_000, 200_000, 4
MEMORY = "1g"


class Chosen(NamedTuple):
    segments: int
    bytes: int


def logged_agents(source: Path) -> list[str]:
    """Raises OSError never: a folder that is not there has none."""
    try:
        with os.scandir(source) as entries:
            return sorted(one.name for one in entries if one.is_dir() and not one.name.startswith("."))[:MAX_AGENTS]
    except OSError:
        return []


def link(source: Path, target: Path, names: Iterable[str], since: int, until: int) -> Chosen:
    """Link what was received from ``since`` on and before ``until``, whole segments. Raises OSError, ValueError."""
    number = size = 0
    for name in names:
        for folder in _folders(source / name, MAX_DEPTH):
            for one in _within(segments(folder), since, until):
                number += 1
                if number > MAX_SEGMENTS:
                    raise ValueError(f"more than {MAX_SEGMENTS:,} segments: ask for a shorter time")
                place = target / folder.relative_to(source)
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                try:
                    os.link(one.path, place / one.path.name)
                except OSError:
                    (place / one.path.name).symlink_to(one.path.resolve())
                size += one.path.stat().st_size
    return Chosen(number, size)


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    yield folder
    if depth:
        with os.scandir(folder) as entries:
            below = sorted(Path(one.path) for one in entries if one.is_dir(follow_symlinks=False))
        for one in below:
            yield from _folders(one, depth - 1)


def _within(every: list[Segment], since: int, until: int) -> Iterator[Segment]:
    """A segment has what came between its own beginning and that of the next one; 0: nobody knows."""
    if not every:
        return
    begun = [*map(_begun, every)]
    after = [*zip(every[1:], begun[1:], strict=True), (None, 0)]
    for one, begin, (next_, end) in zip(every, begun, after, strict=True):
        known = end if next_ is not None and next_.log_id == one.log_id else 0
        if (not known or known >= since) and begin < until:
            yield one


def _begun(segment: Segment) -> int:
    try:
        with SegmentFile(segment) as file:
            return file.header().created_at
    except (OSError, ValueError):
        return 0


def command(place: Path, route: bool, means: Means) -> list[str]:
    """Gives way to all else on the host; its progress goes to standard error."""
    words = [sys.executable, "-m", "spark_jobs", "backtest", "--logs", str(place / "logs"), "--rules",
             str(place / "rules"), "--output", str(place / "matches"), "--master", "local[1]", "--conf",
             "spark.ui.showConsoleProgress=true", "--conf", f"spark.driver.memory={MEMORY}"]  # fmt: skip
    for option, paths in (("--pipeline", means.pipelines), ("--lookup", means.lookups)):
        words += [word for path in paths for word in (option, str(path.resolve()))]
    nice = shutil.which("nice")
    return ([nice, "-n", "10"] if nice else []) + words + (["--route"] if route else [])


FOUND = "kind IN ('match', 'correlation', 'statement')"
SHOWN = 200
MAX_HOURS = 24 * 400
MAX_NOTES = 50


@dataclass(slots=True)
class Found:
    events: int = 0
    rules: list[RuleCount] = field(default_factory=list)
    hosts: list[HostCount] = field(default_factory=list)
    by_hour: list[HourCount] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)
    matches_count: int = 0
    notes: list[str] = field(default_factory=list)


def read(folder: Path, since: int, until: int, sites: Mapping[str, str]) -> Found:
    """Of events received in that time, UTC microseconds. Raises OSError, ValueError."""
    parts = [str(path) for path in sorted(folder.glob("*.parquet"))]
    if not parts:
        return Found(notes=["it found nothing"])
    try:
        with duckdb.connect(
            config={"memory_limit": "256MB", "threads": 1, "autoinstall_known_extensions": False}
        ) as duck:
            duck.execute("SET TimeZone = 'UTC'")
            rows = duck.read_parquet(parts)
            rows.create_view("every")
            duck.execute(
                "CREATE TEMP VIEW found AS SELECT *, split_part(agent, '/', 1) AS host_agent FROM every WHERE "
                f"{FOUND} AND (received_at IS NULL OR (epoch_us(received_at) >= {int(since)}"
                f" AND epoch_us(received_at) < {int(until)}))"
            )
            return _read(duck, sites)
    except duckdb.Error as error:
        raise ValueError(str(error).partition("\n")[0]) from error


def _read(duck: Any, sites: Mapping[str, str]) -> Found:
    def ask(text: str) -> list[tuple[Any, ...]]:
        answer: list[tuple[Any, ...]] = duck.execute(text).fetchall()
        return answer

    found = Found()
    found.events = ask("SELECT coalesce(sum(events), 0) FROM every WHERE kind = 'read'")[0][0]
    found.matches_count = ask("SELECT count(*) FROM found")[0][0]
    found.rules = [
        RuleCount(rule_id=rule, title=title, level=level, kind=_kind(kind), matches=n, agents=m)
        for rule, title, level, kind, n, m in ask(
            "SELECT coalesce(rule_id, ''), coalesce(max(rule_title), ''), coalesce(max(level), ''), max(kind),"
            " count(*), count(DISTINCT host_agent) FROM found GROUP BY rule_id ORDER BY 5 DESC, 1 LIMIT 500")
    ]  # fmt: skip
    found.hosts = [
        HostCount(agent=agent, site=sites.get(agent, ""), matches=n)
        for agent, n in ask("SELECT host_agent, count(*) FROM found GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 500")
    ]
    found.by_hour = [
        HourCount(hour=_iso(hour) or "", matches=n)
        for hour, n in ask("SELECT date_trunc('hour', coalesce(event_time, received_at)) AS h, count(*) FROM found"
                           f" WHERE h IS NOT NULL GROUP BY 1 ORDER BY 1 DESC LIMIT {MAX_HOURS}")[::-1]
    ]  # fmt: skip
    found.matches = [_match(row, sites) for row in ask(
        "SELECT host_agent, kind, rule_id, rule_title, level, input, \"offset\", coalesce(event_time, received_at),"
        f" fields, raw FROM found ORDER BY received_at, agent, \"offset\" LIMIT {SHOWN}")]  # fmt: skip
    for kind, text in (
        ("gap", "events cannot be read"),
        ("undecided", "times a rule could not be decided on an event"),
    ):
        if n := ask(f"SELECT coalesce(sum(events), 0) FROM every WHERE kind = '{kind}'")[0][0]:
            found.notes.append(f"{n:,} {text}")
    found.notes += [f"{agent}: {reason}" for agent, reason in ask(
        f"SELECT agent, reason FROM every WHERE kind IN ('gap', 'not_correlated') LIMIT {MAX_NOTES}")]  # fmt: skip
    return found


def _match(row: tuple[Any, ...], sites: Mapping[str, str]) -> Match:
    agent, kind, rule, title, level, source, offset, time, fields, raw = row
    pairs = {str(key): str(value)[:1000] for key, value in [*(fields or {}).items()][:60] if value is not None}
    return Match(
        agent=agent, site=sites.get(agent, ""), rule_id=rule or "", title=title or "", level=level or "",
        kind=_kind(kind), input=source or "", offset=offset or 0, time=_iso(time),
        fields=pairs | ({"raw": raw[:2048]} if raw else {}),
    )  # fmt: skip


def _kind(kind: str) -> str:
    return "detection" if kind == "match" else kind


def _iso(time: object) -> str | None:
    if not isinstance(time, datetime):
        return None
    moment = time if time.tzinfo else time.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


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
    def __init__(self, means: Means, live: Live, news: Callable[[str], None]) -> None:
        self._means, self._live, self._news = means, live, news
        self._folder = means.work / "backtests"
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
        agents = await asyncio.to_thread(logged_agents, source)
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
        return await asyncio.to_thread(self.backtest, who, run.id)

    def _source(self, asked: str) -> tuple[Path, str]:
        if not self._means.sources:
            raise Problem(503, "no raw logs for backtests are configured",
                          what_to_do="start the console with --backtest-source FOLDER")  # fmt: skip
        name = asked or next(iter(self._means.sources))
        if name not in self._means.sources:
            raise Problem(
                422, f"no source {name!r}", where="source", what_to_do=f"one of {', '.join(self._means.sources)}"
            )
        return self._means.sources[name], name

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

    def listed(self, who: Principal, offset: int = 0, limit: int = 50) -> BacktestsList:
        runs = sorted((run for run in self._runs.values() if self._seen(who, run)), key=lambda run: -run.created)
        end = offset + limit
        return BacktestsList(items=[row(run, who) for run in runs[offset:end]], total=len(runs),
                             next=str(end) if end < len(runs) else None, sources=[*self._means.sources])  # fmt: skip

    def backtest(self, who: Principal, id: str) -> BacktestPage:
        """Blocking. Raises Problem 404."""
        run = self._find(who, id)
        found = Found()
        notes: list[str] = []
        if run.state == "done":
            try:
                found = read(self._folder / id / "matches", run.since, run.until, run.sites)
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
        return await asyncio.to_thread(self.backtest, who, id)

    # --- at work

    async def _conduct(self, run: Run, source: Path) -> None:
        place = self._folder / run.id
        async with self._turn:
            run = await self._write(replace(run, state="running", began=utc_now(), step="choosing segments"))
            try:
                chosen = await asyncio.to_thread(
                    link, source, place / "logs", [*run.sites], run.since, run.until
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
                *command(place, run.route, self._means), stdout=said, stderr=said,
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
                os.killpg(process.pid, signal.SIGKILL)  # the child and the Java that it has started
            await asyncio.shield(process.wait())


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
