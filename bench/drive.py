"""What all scenarios share: rule sets and streams made once, one measured run of the real agent, and its account.

A run counts only when its account is right: received = stored = judged = sent, the agent finds no broken identity,
every alert is in the landing; and the alerts of the stream's first ``SAMPLE`` events equal what the engine says of
them offline, and those of ``NAIVE`` of them what the naive evaluator says. CPU time is user and system time of all
threads of the agent's process, from "ready" to "at rest with all evaluated and landed".
"""

from __future__ import annotations

import mmap
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

from bench import naive, rules, send, traffic
from bench.agent import Agent, Bundle, Usage, syslog_input
from bench.host import MemoryLimit
from tests.broker import own_port
from vedette import __version__
from vedette.bundle.trust import verify
from vedette.lookup.sets import bundled, engine_of
from vedette.model.event import LogSource
from vedette.plan.plan import Plan
from vedette.runtime.offline.evaluation import evaluate
from vedette.runtime.offline.scan import chunk_of

SAMPLE = 20_000
NAIVE = 60
SEED = 1
Hits = Counter[tuple[str, int]]
"""(rule id, event from 1) and how often."""


class Wrong(RuntimeError):
    """A run that is not right, with the reason: it gives no figure."""


@dataclass
class Bench:
    """How the scenarios are to run, and what they have made so far."""

    folder: Path
    core: int | None = None
    quick: bool = False
    runs: int = 1
    profile: Path | None = None
    limit: MemoryLimit | None = None
    undisturbed: bool = False
    _bundles: dict[Any, Bundle] = field(default_factory=dict)
    _plans: dict[Path, Plan] = field(default_factory=dict)
    _folders: int = 0

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def fresh(self, name: str) -> Path:
        """An empty folder."""
        self._folders += 1
        folder = self.folder / f"{self._folders:03}-{name}"
        folder.mkdir(parents=True)
        return folder

    def stream(self, count: int, *, repeated: float = 0.0, seed: int = SEED) -> Path:
        """A file of ``count`` syslog lines."""
        path = self.folder / f"lines-{seed}-{count}-{repeated:g}.log"
        if not path.exists():
            with path.open("wb") as file:
                for block in traffic.blocks(seed, count, repeated=repeated):
                    file.write(block)
        return path

    def typical(self) -> Path:
        """Another stream of the same kind: what is known before the traffic comes."""
        return self.stream(rules.SAMPLE, seed=SEED + 1)

    def rules(self, count: int, share: float, *, always: float = 0.0, alert_share: float = 0.001) -> Path:
        """A folder of ``count`` rules for the streams."""
        folder = self.folder / f"rules-{count}-{share:g}-{always:g}"
        if not folder.exists():
            sample = self.stream(rules.SAMPLE).read_bytes().splitlines()
            texts = rules.rules(SEED, count, sample, share=share, alert_share=alert_share, always=always)
            rules.write(folder, texts)
        return folder

    def bundle(self, *folders: Path, sample: Path | None = None) -> Bundle:
        """The rules of ``folders`` as one bundle."""
        if folders not in self._bundles:
            self._bundles[folders] = Bundle(self.fresh("bundle"), folders, sample or self.typical())
        return self._bundles[folders]

    def plan(self, bundle: Bundle) -> Plan:
        if bundle.file not in self._plans:
            self._plans[bundle.file] = Plan.from_bytes(bundle.plan())
        return self._plans[bundle.file]

    def agent(
        self, folder: Path, inputs: str, settings: str, *, uplink: str = "", python: tuple[str, ...] = ()
    ) -> Agent:
        """Pinned and limited; under the sampler when a profile is wanted."""
        if self.profile and not python:
            name = f"{self.profile.stem}-{folder.name}{self.profile.suffix or '.txt'}"
            python = ("-m", "bench.sampler", str(self.profile.with_name(name)))
        before = self.limit.command() if self.limit else []
        return Agent(folder, inputs, settings, uplink=uplink, core=self.core, python=python, before=before)

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def totals(status: Mapping[str, Any]) -> Counter[str]:
    """The counters of all inputs, and of the agent, in one table; ``dropped`` and ``lost`` for whatever reason."""
    table: Counter[str] = Counter()
    for counts in status["inputs"].values():
        for name in ("received", "stored", "judged", "bytes_in"):
            table[name] += counts[name]
        for name in ("dropped", "lost"):
            table[name] += sum(counts[name].values())
    table.update(status["totals"])
    return table


def ready(agent: Agent, seconds: float = 180.0) -> tuple[float, dict[str, Any]]:
    """Seconds from now to the first status, and that."""
    begun = time.monotonic()
    status = agent.wait(lambda status: True, seconds, pause=0.02)
    return time.monotonic() - begun, status


class Run:
    """An agent at rest, and what it had counted and used when the load began (``mark``)."""

    def __init__(self, agent: Agent, folder: Path) -> None:
        self.agent, self.folder = agent, folder
        self.mark()

    def mark(self) -> None:
        """The load begins now."""
        self.base = totals(self.agent.status() or {"inputs": {}, "totals": {}})
        self.before = self.agent.usage()
        self.began = time.monotonic()

    def now(self) -> Counter[str]:
        """What it has counted since."""
        counts = totals(self.agent.wait(lambda status: True, 30))
        counts.subtract(self.base)
        return counts

    def evaluated(self, events: int, within: float = 600.0, pause: float = 0.05) -> float:
        """Seconds until ``events`` were evaluated."""
        while (now := self.now())["judged"] < events:
            time.sleep(pause)
            if time.monotonic() - self.began > within:
                raise Wrong(f"evaluated {now['judged']} of {events} in {within:g} s")
        return time.monotonic() - self.began

    def finished(self, events: int, seconds: float = 600.0) -> tuple[Usage, Counter[str]]:
        """The usage when ``events`` were evaluated and all alerts landed, and the account of them."""
        deadline = time.monotonic() + seconds
        while True:
            usage = self.agent.settle(deadline - time.monotonic())
            status, now = self.agent.wait(lambda status: True, 30), self.now()
            if now["judged"] + now["dropped"] >= events and status["alerts"]["receipted"] == status["alerts"]["made"]:
                return usage, account(status, self.base, events)
            if time.monotonic() > deadline:
                raise Wrong(f"not done in {seconds:g} s: {dict(now)}\n{self.agent.tail()}")

    def figures(self, events: int, seconds: float, usage: Usage) -> dict[str, Any]:
        cpu = usage.seconds - self.before.seconds
        return {
            "events": events,
            "events_per_second": round(events / seconds),
            "events_per_cpu_second": round(events / cpu),
            "us_per_event": round(cpu / events * 1e6, 3),
        }


@contextmanager
def running(
    bench: Bench, name: str, inputs: str, bundle: Bundle, *, port: int = 0, uplink: str = "", slow: Sequence[str] = ()
) -> Iterator[Run]:
    """A fresh agent with these inputs, at rest; ``port``: a TCP port that it opens; ``slow``: see ``Bench.agent``."""
    folder = bench.fresh(name)
    agent = bench.agent(folder, inputs, bundle.settings, uplink=uplink, python=tuple(slow))
    try:
        ready(agent)
        if port:
            send.wait_for(("127.0.0.1", port), 30)
        deadline = time.monotonic() + 30
        while 'type = "mqtt"' in inputs + uplink and b"broker_connected" not in agent.log.read_bytes():
            time.sleep(0.1)
            if time.monotonic() > deadline:
                raise Wrong(f"the agent does not reach the broker:\n{agent.tail()}")
        time.sleep(0.5)  # the subscription follows
        agent.settle(10)
        if bench.profile and not slow:
            agent.sample()
        yield Run(agent, folder)
    finally:
        agent.stop()


def account(status: Mapping[str, Any], base: Counter[str], events: int) -> Counter[str]:
    """The totals since ``base``; raises Wrong unless ``events`` were received, stored and evaluated."""
    now = totals(status)
    now.subtract(base)
    if status["identity_broken"]:
        raise Wrong(f"the agent's own account does not add up: {status['identity_broken']}")
    if not now["received"] == now["stored"] == now["judged"] == events:
        raise Wrong(f"sent {events}, received {now['received']}, stored {now['stored']}, judged {now['judged']}")
    return now


def alerts(landing: Path, stream: bytes | mmap.mmap, lines: int) -> Hits:
    """What the landing holds of the stream's first ``lines`` lines; a raw offset is a position in the stream."""
    from pyarrow import parquet

    starts = {0: 1}
    position = 0
    for line in range(2, lines + 2):
        position = stream.find(b"\n", position) + 1
        starts[position] = line
    hits: Hits = Counter()
    for file in sorted((landing / "alerts").rglob("*.parquet")):
        table = parquet.ParquetFile(file).read(columns=["rule_id", "raw_ref"])
        for rule_id, raw_ref in zip(table["rule_id"].to_pylist(), table["raw_ref"].to_pylist(), strict=True):
            if raw_ref["offset"] < position:
                hits[rule_id, starts[raw_ref["offset"]]] += 1
    return hits


def scanned(bundle: Bundle, lines: list[bytes], codec: str, logsource: LogSource) -> Hits:
    """What the engine says of ``lines`` offline, as ``vedette scan --route`` would."""
    verified = verify(bundle.file.read_bytes(), [bundle.key], __version__)
    engine = engine_of(bundled(verified), route=True)
    detections = evaluate(engine, chunk_of(lines, codec), zone=UTC, logsource=logsource)
    return Counter((detection.rule.id, detection.line) for detection in detections)


def compare(
    bench: Bench, bundle: Bundle, folder: Path, data: mmap.mmap | bytes, lines: int, codec: str, logsource: LogSource
) -> dict[str, int]:
    """Raises Wrong unless the alerts of the first lines are those of scan and of the naive evaluator."""
    sample = min(SAMPLE, lines)
    landed = alerts(folder / "landing", data, sample)
    position = 0
    for _ in range(sample):
        position = data.find(b"\n", position) + 1
    events = data[:position].split(b"\n")[:-1]
    expected = scanned(bundle, events, codec, logsource)
    if landed != expected:
        missing, extra = expected - landed, landed - expected
        raise Wrong(
            f"alerts differ from scan on {sample} lines: {missing.total()} missing, {extra.total()} too many,"
            f" e.g. {list(missing)[:3]} / {list(extra)[:3]}"
        )
    by_line: defaultdict[int, list[str]] = defaultdict(list)
    for rule_id, line in landed.elements():
        by_line[line].append(rule_id)
    chosen = {number: events[number - 1] for number in naive.choose(by_line, sample, NAIVE)}
    if reasons := naive.differences(bench.plan(bundle), chosen, by_line, codec=codec, logsource=logsource):
        raise Wrong(f"alerts differ from the naive evaluator: {'; '.join(reasons[:3])}")
    return {"lines": sample, "alerts": landed.total(), "naive": len(chosen)}


def stream_run(
    bench: Bench,
    name: str,
    bundle: Bundle,
    stream: Path,
    lines: int,
    *,
    codec: str = "syslog",
    logsource: LogSource = LogSource(product="linux"),
    check: bool = True,
    keep: Callable[[Path], Any] | None = None,
) -> dict[str, Any]:
    """A fresh agent gets the whole ``stream`` over loopback TCP. ``keep`` looks at the folder when the agent has ended.
    Raises Wrong, OSError, TimeoutError."""
    port = own_port()
    extra = f'format = "{codec}"\nlogsource = {{ product = "{logsource.product}" }}'
    with (
        running(bench, name, syslog_input(port, "tcp", extra), bundle, port=port) as run,
        stream.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        sent = send.tcp(("127.0.0.1", port), data)
        if not sent.complete or sent.lines != lines:
            raise Wrong(f"sent {sent.lines} of {lines} lines: {sent.cut}")
        seconds = run.evaluated(lines, pause=0.1)
        after, counted = run.finished(lines)
        if code := run.agent.stop():
            raise Wrong(f"the agent ended with {code}:\n{run.agent.tail()}")
        same = compare(bench, bundle, run.folder, data, lines, codec, logsource) if check else None
    return {
        **run.figures(lines, seconds, after),
        "rss_mb": after.rss_mb,
        "peak_rss_mb": after.peak_rss_mb,
        "candidates_share": round(counted["candidates"] / lines, 5),
        "alerts": counted["alerts_made"],
        "alerts_equal": same,
        **({"kept": keep(run.folder)} if keep else {}),
    }


def middle(runs: list[dict[str, Any]], key: str = "events_per_cpu_second") -> dict[str, Any]:
    """The run with the median of ``key``, with all values of it as ``runs``."""
    ordered = sorted(runs, key=lambda run: run[key])
    return {**ordered[(len(ordered) - 1) // 2], "runs": [run[key] for run in runs]}
