"""``make soak MINUTES=30``: one real agent under everything at once, for so long; the exit code says how it went.

TCP (a connection each second), UDP, a tailed file that is rotated and MQTT messages come at the same rate; a broker
goes away and comes back; the region pushes a bundle each minute; segments of the raw log are made, compacted and
deleted. Once a second memory, descriptors and the agent's own account are read; a row a minute is printed as it goes.
At the end the load stops, the agent settles, and ``verdict`` lists what is not as promised: nothing, then the exit code
is 0.

**Memory** is split by what the kernel reports of the process (``/proc/PID/status``) and what the agent reports itself:

========  ==================================================================================================
file      pages of files (``RssFile``): libraries, and the store, which is mapped. The kernel takes them back
cache     the result cache's table (``RssShmem``: the only such mapping), resident as entries are first used
state     what correlations and statements remember, each bounded by ``state.max_bytes``, which statements reach
          in minutes: one counts by message, of which most are new
own       the rest of ``RssAnon``: nothing accounts for it, so it must not rise. This is judged
========  ==================================================================================================
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from statistics import StatisticsError, fmean, linear_regression
from typing import Any, NamedTuple

from bench import traffic
from bench.send import mqtt, tcp, udp
from bench.usage import cpu_seconds, memory_mb
from tests.broker import Broker
from tests.e2e.agent import Agent, Process, vedette
from tests.waits import until

FLAT_MB = 2.0
"""What a straight line through the second half of the samples' ``own_mb`` (memory beside what is accounted for) may
rise within that half, in a run of FLAT_SECONDS or longer."""
FLAT_SECONDS = 3600.0
MAX_GROWTH = 0.05
"""Of the memory: what it may rise in a shorter run."""
MIN_GROWTH_MB = 8.0
"""A rise below this is no verdict in a short run."""
MAX_DESCRIPTORS = 8
"""More at the end than at the beginning: a segment, a rotated file, a connection may be open."""
FULL_SECONDS = 240.0
"""From then on the state of statements has to be at its bound."""
AWAY = (20.0, 2.0)
"""The broker goes away every so many seconds, for so many."""
ROTATE_SECONDS = 10.0
KEEP_ROTATED = 6
PATIENCE_SECONDS = 120.0
"""For an answer of the agent."""
LINUX = 'format = "syslog"\nlogsource = { product = "linux" }\n'
STATE_BYTES = 4 << 20
"""``state.max_bytes``."""
STATEMENTS = """
CREATE TABLE lines (
    message STRING, program STRING,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'received_at',
    WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'vedette', 'product' = 'linux');
-- title: A message again and again
INSERT INTO alerts SELECT message, window_end, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE lines, DESCRIPTOR(ts), INTERVAL '1' HOUR))
GROUP BY window_start, window_end, message HAVING COUNT(*) > 1000000;
-- title: Lines of sshd in ten seconds
INSERT INTO alerts SELECT program, window_end, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE lines, DESCRIPTOR(ts), INTERVAL '10' SECOND))
WHERE program = 'sshd' GROUP BY window_start, window_end, program;
-- title: A program without a break
INSERT INTO alerts SELECT program, window_end, COUNT(*) AS n
FROM TABLE(SESSION(TABLE lines PARTITION BY program, DESCRIPTOR(ts), INTERVAL '2' SECOND))
GROUP BY window_start, window_end, program HAVING COUNT(*) > 20;
"""
"""One whose keys are more than ``STATE_BYTES`` hold, and two that give alerts."""
RULES = ("sshd_failed_root_password", "sshd_unknown_user", "download_and_run", "sshd_password_guessing")


class Sample(NamedTuple):
    """One moment of the agent, in MiB; see the module's text."""

    when: float
    rss_mb: float
    file_mb: float
    cache_mb: float
    state_mb: float
    own_mb: float
    descriptors: int

    @classmethod
    def of(cls, when: float, pid: int, state: int) -> Sample:
        """``state``: bytes of what correlations and statements remember."""
        mb, state_mb = memory_mb(pid), state / (1 << 20)
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        own = mb["RssAnon"] - state_mb
        return cls(when, mb["VmRSS"], mb["RssFile"], mb["RssShmem"], state_mb, own, descriptors)


def minute(samples: Sequence[Sample]) -> dict[str, float]:
    """The means of the newest minute of ``samples``."""
    number = int(samples[-1].when // 60)
    part = [sample for sample in samples if sample.when // 60 == number]
    names = ("rss_mb", "file_mb", "cache_mb", "state_mb", "own_mb")
    return {"minute": number, **{name: round(fmean(getattr(row, name) for row in part), 2) for name in names}}


@dataclass(slots=True)
class Figures:
    """What a run measured."""

    seconds: float = 0.0
    sent: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    alerts: dict[str, int] = field(default_factory=dict)
    landed: int = 0
    """Alerts in the region's landing, each once."""
    pushes: int = 0
    bundle: str = ""
    outages: int = 0
    rotations: int = 0
    rss_mb: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """After the first tenth, at the end, peak."""
    rss_rise_mb: float = 0.0
    """Of ``own_mb``, by a straight line through the second half, over that half."""
    statements: dict[str, int] = field(default_factory=dict)
    """At the end: bytes of their state, its bound, and since the last push keys that gave way and rows that failed."""
    statements_peak: int = 0
    """The most bytes of their state."""
    statements_rows: int = 0
    """The most rows that they gave between two pushes."""
    descriptors: tuple[int, int, int] = (0, 0, 0)
    """After the first tenth, at the end and at rest, peak."""
    cpu_share: float = 0.0
    broken: list[str] = field(default_factory=list)
    """Every moment at which the agent's account did not add up."""


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """The rise per second of the straight line through (second, value): least squares."""
    try:
        return linear_regression(*zip(*samples, strict=True)).slope
    except (StatisticsError, TypeError):  # all at one second, or none
        return 0.0


def verdict(figures: Figures) -> list[str]:
    """What is not as promised."""
    wrong = [f"the account does not add up: {reason}" for reason in figures.broken[:3]]
    for name in ("tcp", "file"):
        if figures.stored[name] != figures.sent[name]:
            wrong.append(f"{name}: {figures.sent[name]} lines sent, {figures.stored[name]} stored")
    if figures.stored["mqtt"] < figures.sent["mqtt"]:
        wrong.append(f"mqtt: {figures.sent['mqtt']} messages acknowledged, {figures.stored['mqtt']} stored")
    alerts, receipted = figures.alerts["made"], figures.alerts["receipted"]
    if not alerts == receipted == figures.landed:
        wrong.append(f"{alerts} alerts made, {receipted} receipted, {figures.landed} in the landing")
    if not alerts:
        wrong.append("no alert was made: nothing is proven")
    of = figures.statements
    if figures.statements_peak > of["max_bytes"]:
        wrong.append(f"{figures.statements_peak} bytes of statements' state, {of['max_bytes']} are the bound")
    if not figures.statements_rows:
        wrong.append("statements gave no row: nothing is proven")
    if figures.seconds >= FULL_SECONDS and not of["evicted"]:
        wrong.append("the state of statements did not reach its bound")
    if of["failed"]:
        wrong.append(f"statements failed on {of['failed']} rows")
    flat = FLAT_MB if figures.seconds >= FLAT_SECONDS else max(MIN_GROWTH_MB, MAX_GROWTH * figures.rss_mb[1])
    if figures.rss_rise_mb > flat:
        wrong.append(f"memory rises by {figures.rss_rise_mb:.1f} MiB")
    if figures.descriptors[1] > figures.descriptors[0] + MAX_DESCRIPTORS:
        wrong.append(f"{figures.descriptors[0]} descriptors in the beginning, {figures.descriptors[1]} in the end")
    if figures.bundle != f"rules-{figures.pushes + 1}":
        wrong.append(f"{figures.pushes} bundles pushed, {figures.bundle} runs")
    return wrong


class Region:
    """A key, and bundles of the same rules under rising versions."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.broker, self.version, self.file, self._key = broker, 0, folder / "rules.vbundle", folder / "region.pem"
        self.public = vedette("bundle", "keygen", self._key).stdout.strip()
        statements, sigma = folder / "lines.sql", Path(__file__).parents[1] / "rules" / "sigma" / "linux"
        statements.write_text(STATEMENTS)
        self._rules = [*(sigma / f"{name}.yml" for name in RULES), statements]
        self.build()
        self.first = self.file.rename(folder / "first.vbundle")

    def build(self) -> None:
        """The next version."""
        self.version += 1
        vedette("bundle", "build", *self._rules, "-o", self.file, "--name", "rules", "--version", self.version)
        vedette("bundle", "sign", self.file, "--key", self._key, "--fleet", "f1")

    def push(self) -> bool:
        """Publish the newest version; False while the broker is away."""
        return vedette("region", "publish", self.file, "--broker", self.broker.url, code=None).returncode == 0


class Soak:
    """One run in ``folder``."""

    def __init__(self, folder: Path, *, rate: int, push_every: float, away: tuple[float, float] = AWAY) -> None:
        self.rate, self.push_every, self.away = rate, push_every, away
        self.figures = Figures(sent=dict.fromkeys(("tcp", "udp", "file", "mqtt"), 0))
        self.log = folder / "logs" / "app.log"
        self.log.parent.mkdir(parents=True)
        self.broker = Broker(folder / "broker")
        self.broker.start()
        self.region = Region(folder, self.broker)
        self.agent = Agent(folder / "a", rules=None, segment_bytes=1 << 20)
        port = self.agent.port
        self.agent.configure(
            f'[[input]]\nname = "tcp"\ntype = "syslog"\ntcp = "127.0.0.1:{port}"\n'
            f'[[input]]\nname = "udp"\ntype = "syslog"\nudp = "127.0.0.1:{port}"\n'
            f'[[input]]\nname = "file"\ntype = "file"\npaths = ["{self.log}"]\n{LINUX}'
            f'[broker]\nurl = "{self.broker.url}"\n'
            f'[[input]]\nname = "mqtt"\ntype = "mqtt"\ntopics = ["plant/#"]\n{LINUX}'
            f'[raw_log]\nmax_bytes = "16MiB"\n'
            f"[state]\nmax_bytes = {STATE_BYTES}\n"
            f'[bundles]\nfile = "{self.region.first}"\ntrusted_keys = ["{self.region.public}"]\n'
            f'[uplink]\ntype = "mqtt"\nresend_after = "2s"\n'
        )
        landing = ("--broker", self.broker.url, "--landing", folder / "landing", "--seconds", "1")
        self.landing = Process(folder / "landing.log", "region", "land", *landing)
        self.landed = folder / "landing"
        self._stop = threading.Event()
        self._failed: list[BaseException] = []

    def run(self, seconds: float) -> Figures:
        """Load, settle, measure. Raises AssertionError or OSError when a part does not come so far."""
        figures, samples = self.figures, list[Sample]()
        try:
            self.landing.start()
            self.agent.up()
            until("the landing", lambda: "$share/landing/vedette/v1/+/+/alerts" in self.broker.log())
            until("the subscription", lambda: "plant/#" in self.broker.log())
            works = (self._tcp, self._udp, self._file, self._mqtt, self._push, self._flap)
            threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]
            for thread in threads:
                thread.start()
            began = time.monotonic()
            while (now := time.monotonic() - began) < seconds and not self._failed:
                self.agent.alive()
                status = self._status()
                figures.broken += status["identity_broken"]
                samples.append(self._sample(now, status))
                if len(samples) > 1 and now // 60 > samples[-2].when // 60:
                    print(json.dumps(minute(samples[:-1])), flush=True)
                time.sleep(1)
            figures.seconds = round(now, 1)
            figures.cpu_share = round(cpu_seconds(self.agent.pid) / now, 3)
            self._stop.set()
            for thread in threads:
                thread.join()
            if self._failed:
                raise self._failed[0]
            self._settle()
            self._measure(samples)
            if (code := self.agent.stop()) != 0:
                figures.broken.append(f"it ended with {code}")
        finally:
            self._stop.set()
            self.agent.kill()
            self.landing.kill()
            self.broker.kill()
        return figures

    def _status(self) -> dict[str, Any]:
        """Also on a machine so busy that an answer takes longer than who asks waits. Raises ConnectionError after
        PATIENCE_SECONDS, AssertionError when the agent has ended."""
        began = time.monotonic()
        while True:
            try:
                return self.agent.status()
            except ConnectionError:
                self.agent.alive()
                if time.monotonic() - began > PATIENCE_SECONDS:
                    raise

    def _settle(self) -> None:
        """Until all that was sent is stored and judged, and every alert is receipted."""
        figures = self.figures

        def stored() -> bool:
            counts = self.agent.status()["inputs"] if self.agent.alive() else {}
            return all(
                counts.get(name, {"stored": 0})["stored"] >= figures.sent[name] for name in ("tcp", "file", "mqtt")
            )

        until("the inputs", stored)
        until("the last bundle", lambda: self.agent.status()["bundle"] == f"rules-{self.region.version}")
        status = self.agent.settled()
        figures.broken += status["identity_broken"]
        if alarms := status["totals"].get("identity_alarms", 0):
            figures.broken.append(f"{alarms} alarms of the agent itself")
        figures.stored = {name: counts["stored"] for name, counts in status["inputs"].items()}
        figures.alerts = {name: status["alerts"][name] for name in ("made", "receipted")}
        figures.pushes, figures.bundle = self.region.version - 1, status["bundle"]
        figures.landed = len(self.agent.alerts(self.landed))
        state = status["statement_state"]
        figures.statements = {name: state[name] for name in ("bytes", "max_bytes", "evicted")}
        figures.statements["failed"] = sum(statement["failed"] for statement in state["statements"])

    def _measure(self, samples: Sequence[Sample]) -> None:
        figures, first, last = self.figures, samples[len(samples) // 10], self._sample(samples[-1].when, self._status())
        half = [(sample.when, sample.own_mb) for sample in samples[len(samples) // 2 :]]
        peak = max(sample.rss_mb for sample in samples)
        figures.rss_mb = round(first.rss_mb, 1), round(last.rss_mb, 1), round(peak, 1)
        figures.rss_rise_mb = round(slope(half) * (half[-1][0] - half[0][0]), 2)
        figures.descriptors = first.descriptors, last.descriptors, max(sample.descriptors for sample in samples)

    def _sample(self, when: float, status: Mapping[str, Any]) -> Sample:
        statements = status["statement_state"]["bytes"]
        rows = sum(statement["rows"] for statement in status["statement_state"]["statements"])
        self.figures.statements_peak = max(self.figures.statements_peak, statements)
        self.figures.statements_rows = max(self.figures.statements_rows, rows)
        return Sample.of(when, self.agent.pid, status["correlation_state"]["bytes"] + statements)

    # --- the load, each in a thread of its own

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failed.append(error)

    def _seconds(self, seed: int) -> Any:
        """A second's lines, again and again until the end."""
        for number in count():
            if self._stop.is_set():
                return
            yield b"".join(traffic.blocks(seed + 100 * number, self.rate, attack_rate=0.01))

    def _tcp(self) -> None:
        for data in self._seconds(1):
            sent = tcp(("127.0.0.1", self.agent.port), data, rate=self.rate)
            self.figures.sent["tcp"] += sent.lines
            if not sent.complete:
                raise AssertionError(f"tcp: {sent.cut}")

    def _udp(self) -> None:
        for data in self._seconds(2):
            self.figures.sent["udp"] += udp(("127.0.0.1", self.agent.port), data, rate=self.rate).lines

    def _file(self) -> None:
        rotated, begun = [], time.monotonic()
        for data in self._seconds(3):
            with self.log.open("ab", buffering=0) as file:
                for line in data.splitlines(keepends=True):
                    file.write(line)
                    self.figures.sent["file"] += 1
            if time.monotonic() - begun > ROTATE_SECONDS:
                self.figures.rotations += 1
                rotated.append(self.log.with_name(f"app.log.{self.figures.rotations}"))
                self.log.rename(rotated[-1])
                if len(rotated) > KEEP_ROTATED:
                    rotated.pop(0).unlink()
                begun = time.monotonic()
            self._stop.wait(1)

    def _mqtt(self) -> None:
        for data in self._seconds(4):
            with suppress(ConnectionError):  # the broker is away: nothing of this second was given to it
                sent = mqtt(("127.0.0.1", self.broker.port), data, topic="plant/press/log", rate=self.rate)
                self.figures.sent["mqtt"] += sent.lines
                if not sent.complete:
                    raise AssertionError(f"mqtt: {sent.cut}")
                continue
            self._stop.wait(0.5)

    def _push(self) -> None:
        while not self._stop.wait(self.push_every):
            self.region.build()
            until("a push", self.region.push)

    def _flap(self) -> None:
        """Orderly, so that what the broker has acknowledged is not lost by the broker itself."""
        every, away = self.away
        while not self._stop.wait(every):
            self.broker.stop()
            self._stop.wait(away)
            self.broker.start()
            self.figures.outages += 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=250, help="events per second of each of the four inputs")
    parser.add_argument("--push-every", type=float, default=60.0, metavar="S", help="seconds between two bundles")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="vedette-soak-") as folder:
        print(f"soak: {options.minutes:g} minutes, 4 × {options.rate} events/s", flush=True)
        figures = Soak(Path(folder), rate=options.rate, push_every=options.push_every).run(options.minutes * 60)
    print(json.dumps(asdict(figures), indent=1))
    for reason in (wrong := verdict(figures)):
        print(f"WRONG  {reason}", file=sys.stderr)
    print("soak failed" if wrong else "soak: all as promised")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
