"""The real processes that end-to-end tests start, stop and kill: agent and landing; and what they left behind.

An ``Agent`` is one ``vedette run`` with a TOML file of its own in a folder; killed and started again it goes on from
that folder. Nothing of the product runs inside the test but its readers: ``control.ask``, ``rawlog.read``.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from bench.send import Sent, tcp
from tests.broker import own_port
from tests.e2e.tuned import tuned
from tests.waits import DEADLINE, until
from tests.warm import Done, Warm
from vedette.model.event import Flag
from vedette.rawlog import read
from vedette.runtime.agent.control import ask
from vedette.runtime.pipeline.lives import STATE

ROOT = Path(__file__).parents[2]
RULES = ROOT / "rules" / "sigma"
FEW = ("linux/sshd_failed_root_password.yml", "linux/sshd_unknown_user.yml", "linux/download_and_run.yml")
VEDETTE = (sys.executable, "-m", "vedette")
WARM = Warm()
BUILT: dict[str, bytes] = {}
"""The starter rules as the first agent has built them, under the name in the cache that says of what: another agent
takes them only for the very same files."""
KILLS = int(os.environ.get("VEDETTE_CRASH_KILLS", "2"))
"""Kills in each crash test; ``make test-crash`` asks for more."""


def few(folder: Path) -> Path:
    """Three of the starter rules, in ``folder``: attacks of ``bench.traffic`` fire them, and an agent starts sooner."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FEW:
        shutil.copy(RULES / name, folder)
    return folder


def chance() -> random.Random:
    """Where kills fall; seeded by VEDETTE_CRASH_SEED, or anew, and printed, so that a failure can be repeated."""
    seed = os.environ.get("VEDETTE_CRASH_SEED") or str(random.randrange(1 << 32))
    sys.stdout.write(f"VEDETTE_CRASH_SEED={seed} VEDETTE_CRASH_KILLS={KILLS}\n")
    return random.Random(seed)


def say(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Print a result that is to be seen also when the test passes."""
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


def run_to_its_end(*arguments: object, stdin: bytes = b"", code: int | None = 0) -> Done:
    """A ``vedette`` command; ``code`` is the exit code that it must have."""
    command = [*VEDETTE, *map(str, arguments)]
    done = None if stdin else WARM.run(command[len(VEDETTE) :])
    if done is None:
        cold = subprocess.run(command, input=stdin, capture_output=True, timeout=DEADLINE, check=False)
        done = Done(cold.returncode, cold.stdout, cold.stderr)
    if code is not None and done.code != code:
        said = (done.out + done.err).decode("utf-8", "replace")
        raise AssertionError(f"{command} ended with {done.code}:\n{said}")
    return done


def vedette(*arguments: object, stdin: bytes = b"", code: int | None = 0) -> subprocess.CompletedProcess[str]:
    """The same, with what it wrote as text."""
    done = run_to_its_end(*arguments, stdin=stdin, code=code)
    return subprocess.CompletedProcess(arguments, done.code, done.out.decode(), done.err.decode())


class Process:
    """A ``vedette`` process that logs JSON lines into ``log``."""

    program: Sequence[str] = VEDETTE
    """What is started; a test may put a program of its own that ends in ``vedette.cli.main.main()``."""

    def __init__(self, log: Path, *arguments: object) -> None:
        self.log = log
        self.environment: dict[str, str] = {}
        """Beside the test's own."""
        self._arguments = [*map(str, arguments)]
        self._from = 0
        self.stderr: int | None = None
        """A descriptor in place of the log."""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, without waiting for anything."""
        self._from = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            command, environment = [*self.program, *self._arguments], {**os.environ, **self.environment}
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=self.stderr or log, env=environment
            )

    def text(self, *, all: bool = False) -> str:
        """What it has logged since its last start, or in all its lives."""
        return self.log.read_bytes()[0 if all else self._from :].decode("utf-8", "replace")

    def said(self, event: str, *, all: bool = False) -> list[dict[str, Any]]:
        """The log lines with the name ``event``."""
        records = []
        for line in self.text(all=all).splitlines():
            if line.startswith("{") and line.endswith("}") and (entry := json.loads(line)).get("event") == event:
                records.append(entry)
        return records

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def alive(self) -> bool:
        """True, unless it ended by itself: then the test fails with what it said."""
        assert self.running(), f"ended by itself:\n{self.text()[-4000:]}"
        return True

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: nothing is written any more."""
        if self.running():
            self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end; the exit code."""
        assert self.process is not None
        return self.process.wait(DEADLINE)


@contextmanager
def up(*agents: Agent) -> Iterator[None]:
    """All started, then each ready; killed at the end."""
    try:
        for agent in agents:
            agent.start()
        for agent in agents:
            agent.ready()
        yield
    finally:
        for agent in agents:
            agent.kill()


class Agent(Process):
    """``vedette run`` in ``folder``; its id is ``edge-1``, its fleet ``f1``, its site ``s1``.

    ``settings`` are tables of TOML besides ``[agent]`` and ``[log]``. With ``rules`` (folders) or without bundles of
    its own it runs the starter rules. ``port`` is its own, for an input; ``constants``: see ``tuned.py``.
    """

    def __init__(
        self,
        folder: Path,
        settings: str = "",
        *,
        rules: Path | None = RULES,
        port: int = 0,
        lookup: Path | None = None,
        **constants: object,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.data = folder / "data"
        self.landing = self.data / "alerts-landing"
        self.port = port or own_port()
        self.config = folder / "vedette.toml"
        self.rules, self._lookup = rules, lookup
        self.configure(settings)
        super().__init__(folder / "agent.log", "run", "-c", self.config)
        if constants:
            self.program = tuned(**constants)

    def start(self) -> None:
        """Start it; the starter rules as an agent before it has built them, where this one has not run yet."""
        if not self.data.exists() and self._starter():
            for name, built in BUILT.items():
                path = self.data / "cache" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(built)
        super().start()

    def _starter(self) -> bool:
        return f'\npaths = ["{RULES}"]\n' in self.config.read_text()

    def configure(self, settings: str) -> None:
        """Write the configuration anew; in force at the next start."""
        rules = f'[rules]\npaths = ["{self.rules}"]\n' if self.rules else ""
        rules += f'lookups = ["{self._lookup}"]\n' if self._lookup else ""
        self.config.write_text(
            f'[agent]\nid = "edge-1"\nsite = "s1"\nfleet = "f1"\ndata_dir = "{self.data}"\n'
            f'{rules}{settings}\n[log]\nformat = "json"\n'
        )

    def ready(self) -> Agent:
        """Wait until its inputs are open."""
        until("the agent to start", lambda: self.alive() and self.said("agent_started"))
        if not BUILT and self._starter():
            BUILT.update({path.name: path.read_bytes() for path in (self.data / "cache").glob("rules-*-guessed.vplan")})
        return self

    def up(self) -> Agent:
        """Start and wait until its inputs are open."""
        self.start()
        return self.ready()

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = ask(self.data / "control.sock", "status", seconds=DEADLINE)
        return answer

    def input(self, name: str = "in") -> dict[str, Any]:
        """The counters of an input; zeros when it has none yet."""
        none = {"received": 0, "stored": 0, "judged": 0, "bytes_in": 0, "cut": 0, "dropped": {}, "lost": {}}
        counts: dict[str, Any] = self.status()["inputs"].get(name, none)
        return counts

    def midway(self, work: Future[Any], stored: int, name: str = "in") -> None:
        """Wait until so many events of the input are stored, or ``work``, which sends them, is over: a moment for a
        kill."""
        until("events that are stored", lambda: work.done() or self.input(name)["stored"] >= stored)

    def settled(self, stored: int | None = None, name: str = "in") -> dict[str, Any]:
        """The status once all that is stored is judged and every alert is receipted.

        ``stored``: also wait until so many events of the input are stored, in all its lives.
        """

        def check() -> dict[str, Any] | None:
            self.alive()
            status = self.status()
            assert status["identity_broken"] == []  # at every moment, not only at the end
            counts = status["inputs"].get(name, {"stored": 0})
            done = not status["backlog"] and not status["alerts"]["in_outbox"]
            return status if done and (stored is None or counts["stored"] >= stored) else None

        try:
            settled_status: dict[str, Any] = until("the agent to settle", check)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.status())}\n{self.text()[-4000:]}") from None
        return settled_status

    # --- what it left on disk

    def stored(self, name: str = "in", since: int = 0) -> list[Stored]:
        """Every event of an input in the raw log from offset ``since`` on, in order."""
        return self.stored_all(since).get(name, [])

    def stored_all(self, since: int = 0) -> dict[str, list[Stored]]:
        """The same of all inputs, in one reading."""
        by_input: dict[str, list[Stored]] = {}
        for frame in read.frames(self.data / "raw", since, on_gap=_no_gap):
            data, events = frame.chunk.data, by_input.setdefault(frame.chunk.input, [])
            for start, end in frame.chunk.spans():
                if frame.offset + start >= since:
                    events.append(Stored(frame.offset + start, data[start:end]))
        return by_input

    def alerts(self, landing: Path | None = None) -> list[dict[str, Any]]:
        """The alerts in a landing, each once: deduped as the region does, by agent and alert id."""
        return deduped(landed(landing or self.landing))


class Stored(NamedTuple):
    """An event in the raw log."""

    offset: int
    raw: bytes

    @property
    def end(self) -> int:
        """No event behind it begins before this."""
        return self.offset + len(self.raw)


def _no_gap(gap: object) -> None:
    raise AssertionError(f"the raw log has a hole: {gap}")


def landed(landing: Path, table: str = "alerts") -> list[dict[str, Any]]:
    """All rows of a landing's table."""
    rows: list[dict[str, Any]] = []
    for path in sorted((landing / table).glob("dt=*/hh=*/*.parquet")):
        rows += pq.read_table(path, partitioning=None).to_pylist()
    return rows


def deduped(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Alerts once each; two of one id must be the same alert."""
    by_id: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        first = by_id.setdefault((row["agent_id"], row["alert_id"]), row)
        assert (first["rule_id"], first["raw_ref"], first["raw"]) == (row["rule_id"], row["raw_ref"], row["raw"])
    return list(by_id.values())


def by_line(alerts: Iterable[dict[str, Any]], stored: Iterable[Stored]) -> Counter[tuple[str, int]]:
    """Alerts as (rule, number of the line from 1), the lines counted in the raw log; a correlation's is the line that
    completed it."""
    number = {event.offset: i for i, event in enumerate(stored, 1)}
    return Counter((alert["rule_id"], number[alert["raw_ref"]["offset"]]) for alert in alerts)


def scan(file: Path, codec: str = "syslog", product: str = "linux", rules: Path = RULES) -> Counter[tuple[str, int]]:
    """What ``vedette scan`` finds in a file, as (rule, line)."""
    arguments = ("--rules", rules, "--route", "--product", product, "--format", codec)
    rows = map(json.loads, vedette("scan", *arguments, file).stdout.splitlines())
    return Counter((row["rule_id"], row["line"]) for row in rows)


def assert_as_scanned(agent: Agent, *, name: str = "in", landing: Path | None = None, codec: str = "syslog") -> int:
    """The input's alerts in the landing are those of ``scan`` over what the raw log holds: none missing, none doubled.

    Returns how many there are.
    """
    stored = agent.stored(name)
    file = agent.folder / "stored.log"
    file.write_bytes(b"".join(event.raw + b"\n" for event in stored))
    alerts = by_line((alert for alert in agent.alerts(landing) if alert["source"] == name), stored)
    expected = scan(file, codec, rules=agent.rules or RULES)
    assert alerts == expected, f"missing {expected - alerts}, too many {alerts - expected}"
    return alerts.total()


def not_back(before: dict[str, Any], after: dict[str, Any], *but: str) -> None:
    """No counter of a status (what metrics call counters) is lower than it was, but those named."""
    for name, counts in before["inputs"].items():
        for counter in {*counts} - {*but}:
            now = after["inputs"][name][counter]
            if isinstance(now, dict):
                assert all(now.get(reason, 0) >= n for reason, n in counts[counter].items()), (name, counter)
            else:
                assert now >= counts[counter], (name, counter, counts, after["inputs"][name])
    state = before["correlation_state"] if "correlation_state" in before else before["memory"]  # a record's
    for name in STATE if "memory" not in but else ():
        assert after["correlation_state"][name] >= state[name], name
    lower = {one: n for one, n in before["totals"].items() if one not in but and after["totals"].get(one, 0) < n}
    assert not lower, (lower, after["totals"])


def marked(raw: Path) -> Counter[bytes]:
    """The events in a raw log that are marked as come again."""
    events: Counter[bytes] = Counter()
    for frame in read.frames(raw):
        chunk = frame.chunk
        events.update(chunk.data[a:b] for a, b in chunk.spans() if chunk.flags(a) & Flag.DUP)
    return events


def hand_over(port: int, lines: bytes, rate: float) -> Sent:
    """Lines over TCP, ``rate`` a second, to an agent that may die meanwhile; how far they came."""
    try:
        return tcp(("127.0.0.1", port), lines, rate=rate)
    except OSError as error:
        return Sent(complete=False, cut=str(error))


def split(data: bytes, parts: int) -> list[bytes]:
    """``data`` (lines) in ``parts`` runs of whole lines, of about the same number."""
    lines = data.splitlines(keepends=True)
    size = -(-len(lines) // parts)
    return [b"".join(lines[i : i + size]) for i in range(0, len(lines), size)]


def reborn(agent: Process, rng: random.Random) -> None:
    """Start after a kill; sometimes die once more while starting."""
    agent.start()
    if rng.random() < 0.25:
        time.sleep(rng.uniform(0.0, 1.5))
        agent.kill()
        agent.start()
