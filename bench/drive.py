"""What all scenarios share: rule sets and streams made once, one measured run of the real agent, and its account.

A run counts only when its account is right: received = stored = judged = sent, the agent finds no broken identity,
every alert is in the landing, and those of the stream's first ``SAMPLE`` events equal what the engine says of them
offline. CPU time is user and system time of all threads of the agent's process, from "ready" to "at rest with all
evaluated and landed".
"""

from __future__ import annotations

import mmap
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from signal import SIGUSR1
from typing import Any

from pyarrow.dataset import dataset

from bench import rules, send, traffic
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
SEED = 1
LINUX = LogSource(product="linux")


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
                file.writelines(traffic.blocks(seed, count, repeated=repeated))
        return path

    def typical(self) -> Path:
        """Another stream of the same kind: what is known before the traffic comes."""
        return self.stream(rules.SAMPLE, seed=SEED + 1)

    def rules(
        self, count: int, share: float, *, seed: int = SEED, always: float = 0.0, alert_share: float = 0.001
    ) -> Path:
        """A folder of ``count`` rules for the streams."""
        folder = self.folder / f"rules-{seed}-{count}-{share:g}-{always:g}"
        if not folder.exists():
            sample = self.stream(rules.SAMPLE).read_bytes().splitlines()
            texts = rules.rules(seed, count, sample, share=share, alert_share=alert_share, always=always)
            rules.write(folder, texts)
        return folder

    def bundle(self, *folders: Path, sample: Path | None = None) -> Bundle:
        """The rules of ``folders`` as one bundle."""
        if folders not in self._bundles:
            self._bundles[folders] = Bundle(self.fresh("bundle"), folders, sample or self.typical())
        return self._bundles[folders]

    def agent(self, folder: Path, *settings: str, python: Sequence[str] = ()) -> Agent:
        """Pinned and limited; under the sampler when a profile is wanted."""
        if self.profile and not python:
            name = f"{self.profile.stem}-{folder.name}{self.profile.suffix or '.txt'}"
            python = ("-m", "bench.sampler", str(self.profile.with_name(name)))
        before = self.limit.command() if self.limit else ()
        return Agent(folder, *settings, core=self.core, before=before, python=python or ("-m", "vedette"))

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def plan_of(bundle: Bundle) -> Plan:
    """The compiled plan in it."""
    return Plan.from_bytes(verify(bundle.file.read_bytes(), [bundle.key], __version__).plan)


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


class Run:
    """An agent at rest, and what it had counted and used when the load began (``mark``)."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.mark()

    def mark(self) -> None:
        """The load begins now."""
        self.base = totals(self.agent.wait())
        self.before = self.agent.usage()
        self.began = time.monotonic()

    def now(self) -> Counter[str]:
        """What it has counted since."""
        counts = totals(self.agent.wait())
        counts.subtract(self.base)
        return counts

    def sent(self, peer: tuple[str, int], data: bytes | mmap.mmap, lines: int, rate: float = 0.0) -> None:
        """Send ``data``, so many lines, over TCP; raises Wrong when not all was taken."""
        sent = send.tcp(peer, data, rate=rate)
        if not sent.complete or sent.lines != lines:
            raise Wrong(f"sent {sent.lines} of {lines} lines: {sent.cut}")

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
            status, now = self.agent.wait(), self.now()
            if now["judged"] + now["dropped"] >= events and status["alerts"]["receipted"] == status["alerts"]["made"]:
                return usage, account(status, self.base, events)
            if time.monotonic() > deadline:
                raise Wrong(f"not done in {seconds:g} s: {dict(now)}\n{self.agent.tail()}")

    def ended(self) -> None:
        """Stop the agent; raises Wrong when it fails."""
        if code := self.agent.stop():
            raise Wrong(f"the agent ended with {code}:\n{self.agent.tail()}")

    def figures(self, events: int, seconds: float, usage: Usage) -> dict[str, Any]:
        cpu = usage.seconds - self.before.seconds
        return {
            "events": events,
            "events_per_second": round(events / seconds),
            "events_per_cpu_second": round(events / cpu),
            "us_per_event": round(cpu / events * 1e6, 3),
        }


@contextmanager
def running(bench: Bench, name: str, *settings: str, port: int = 0, slow: Sequence[str] = ()) -> Iterator[Run]:
    """A fresh agent with these settings, at rest; ``port``: a TCP port that it opens; ``slow``: see ``Bench.agent``."""
    agent = bench.agent(bench.fresh(name), *settings, python=slow)
    try:
        agent.wait(seconds=180)
        if port:
            send.wait_for(("127.0.0.1", port), 30)
        if 'type = "mqtt"' in "".join(settings):
            agent.wait(lambda _: "broker_connected" in agent.text())
        time.sleep(0.5)  # the subscription follows
        agent.settle(10)
        if bench.profile and not slow:
            agent.signal(SIGUSR1)
        yield Run(agent)
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


def compare(bundle: Bundle, landing: Path, data: mmap.mmap | bytes, codec: str, logsource: LogSource) -> int:
    """How many alerts the landing has of the first ``SAMPLE`` lines of the stream ``data``, in which a raw offset is a
    position; raises Wrong unless they are what the engine says of these lines offline, as ``vedette scan --route``."""
    starts = [0]
    while len(starts) <= SAMPLE and starts[-1] < len(data):
        starts.append(data.find(b"\n", starts[-1]) + 1)
    end, folder = starts.pop(), landing / "alerts"
    table = dataset(folder, format="parquet").to_table(columns=["rule_id", "raw_ref"]) if folder.exists() else None
    rows = table.to_pylist() if table is not None else []
    landed = Counter((row["rule_id"], row["raw_ref"]["offset"]) for row in rows if row["raw_ref"]["offset"] < end)
    verified = verify(bundle.file.read_bytes(), [bundle.key], __version__)
    chunks = chunk_of(data[:end].split(b"\n")[:-1], codec)
    detections = evaluate(engine_of(bundled(verified), route=True), chunks, zone=UTC, logsource=logsource)
    expected = Counter((detection.rule.id, starts[detection.line - 1]) for detection in detections)
    if landed != expected:
        missing, extra = expected - landed, landed - expected
        raise Wrong(
            f"alerts differ from scan on {len(starts)} lines: {missing.total()} missing, {extra.total()} too many,"
            f" e.g. {list(missing)[:3]} / {list(extra)[:3]}"
        )
    return landed.total()


def stream_run(
    bench: Bench, name: str, bundle: Bundle, stream: Path, lines: int, *, codec: str = "syslog",
    logsource: LogSource = LINUX, check: bool = True, keep: Callable[[Path], Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A fresh agent gets the whole ``stream`` over loopback TCP. ``keep`` looks at the folder when the agent has ended.
    Raises Wrong, OSError, TimeoutError."""
    port = own_port()
    extra = f'format = "{codec}"\nlogsource = {{ product = "{logsource.product}" }}'
    with (
        running(bench, name, syslog_input(port, "tcp", extra), bundle.settings, port=port) as run,
        stream.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        run.sent(("127.0.0.1", port), data, lines)
        seconds = run.evaluated(lines, pause=0.1)
        after, counted = run.finished(lines)
        run.ended()
        same = compare(bundle, run.agent.landing, data, codec, logsource) if check else None
    return {
        **run.figures(lines, seconds, after),
        "rss_mb": after.rss_mb,
        "peak_rss_mb": after.peak_rss_mb,
        "candidates_share": round(counted["candidates"] / lines, 5),
        "alerts": counted["alerts_made"],
        "alerts_equal": same,
        **({"kept": keep(run.agent.data)} if keep else {}),
    }


def middle(runs: list[dict[str, Any]], key: str = "events_per_cpu_second") -> dict[str, Any]:
    """The run with the median of ``key``, with all values of it as ``runs``."""
    ordered = sorted(runs, key=lambda run: run[key])
    return {**ordered[(len(ordered) - 1) // 2], "runs": [run[key] for run in runs]}
