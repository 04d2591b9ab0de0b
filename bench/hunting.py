"""What a hunt costs live work: ``python -m bench.hunting``.

By turns without and with a hunt beside it, probes in a steady stream of lines are timed from the sender's socket to the
outbox (``latency.py``). The hunt has the starter rules and reads a log of ``STORED`` lines, again and again, with what
an agent gives it: half a core, the idle class. Agent and hunt share a core, as on a host that has one; sender and
watcher have the others.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import traffic
from bench.agent import syslog_input
from bench.drive import Bench, running
from bench.latency import _collected, _fork, _probe, _send, _spread, _started, _watch_outbox, by_turns
from tests import broker
from vedette.config.settings import RawLogSettings
from vedette.engine.artifact import Artifact
from vedette.fleet.hunt import Hunt, packed
from vedette.fleet.huntfolder import Input, Order
from vedette.fleet.huntjob import ADDRESS_BYTES, CHECKPOINT_SECONDS, MODULE
from vedette.fleet.kinds import KINDS
from vedette.model.counters import Counters
from vedette.model.event import Chunk, LogSource
from vedette.rawlog.log import RawLog
from vedette.rules import build
from vedette.system import child

STORED = 1_000_000
RULES = Path(__file__).parents[1] / "rules" / "sigma"
NORMAL = """
import os, runpy
def denied(*arguments):
    raise PermissionError
os.sched_setscheduler = denied
runpy.run_module("vedette.runtime.hunt", run_name="__main__", alter_sys=True)
"""
"""The process where the idle class is not allowed, as under the unit's system call filter."""


def stored(folder: Path) -> None:
    """A raw log of STORED lines."""
    log = RawLog.open(folder, RawLogSettings(), Counters())
    for block in traffic.blocks(1, STORED, attack_rate=0.001):
        log.append(Chunk("tcp", "syslog", time.time_ns() // 1000, block))
    log.sync()
    log.close()


class Hunts:
    """One after the other, until stopped."""

    def __init__(self, folder: Path, raw: Path, core: int, *, idle: bool) -> None:
        self._folder, self._raw, self._core, self._idle = folder, raw, core, idle
        self._plan = packed(Artifact.without_databases(build.from_rules(build.load([RULES]))).to_bytes())
        self._going, self._number = True, 0
        self._thread = threading.Thread(target=self._run)
        self._process: subprocess.Popen[bytes] | None = None

    def _run(self) -> None:
        while self._going:
            self._number += 1
            folder = self._folder / f"{self._number}"
            folder.mkdir(parents=True)
            (folder / "plan").write_bytes(self._plan)
            hunt, inputs = Hunt(f"h{self._number}", 0, 1 << 61, 20), (Input("tcp", "UTC", LogSource(), False),)
            limits = KINDS["hunt"].limits
            Order(
                hunt, str(self._raw), str(folder / "none"), limits.cpu, limits.seconds, CHECKPOINT_SECONDS, inputs
            ).save(folder)
            command = child.command(MODULE, str(folder), memory=ADDRESS_BYTES)
            if not self._idle:
                command = [sys.executable, "-c", NORMAL, str(folder)]
            self._process = subprocess.Popen(["taskset", "-c", str(self._core), *command])
            self._process.wait()

    @contextmanager
    def running(self) -> Iterator[None]:
        self._going, self._thread = True, threading.Thread(target=self._run)
        self._thread.start()
        time.sleep(4)  # its start is over
        try:
            yield
        finally:
            self._going = False
            if self._process is not None:
                self._process.kill()
            self._thread.join()


def one(bench: Bench, rate: int, hunts: Hunts | None) -> dict[str, float]:
    """The spread of one run, in milliseconds."""
    seconds = bench.size(20, 4)
    bundle = bench.bundle(bench.rules(bench.size(3000, 300), 0.01), _probe(bench))
    lines = bench.stream(20_000).read_bytes().splitlines(keepends=True) * max(1, rate // 20_000)
    port = broker.own_port()
    with running(bench, f"hunting-{rate}", syslog_input(port), bundle, port=port) as run:
        watcher = _started(_watch_outbox, run.folder / "data" / "store")
        time.sleep(0.5)

        def stream() -> None:
            sender = _fork.Process(target=_send, args=(port, lines, rate, seconds), daemon=True)
            sender.start()
            sender.join(seconds + 30)

        if hunts is None:
            stream()
        else:
            with hunts.running():
                stream()
        time.sleep(1)
        (outbox,) = _collected([watcher])
    return _spread(outbox)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hunting", description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--undisturbed", action="store_true", help="root: with priority over the machine's other work")
    parser.add_argument("--normal", action="store_true", help="the hunt is not of the idle class")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench = Bench(folder, core=0, quick=given.quick, undisturbed=given.undisturbed)
        stored(folder / "raw")
        hunts = Hunts(folder / "hunts", folder / "raw", 0, idle=not given.normal)
        by_turns("a hunt", lambda hunting: (one(bench, given.rate, hunts if hunting else None), ""), given)


if __name__ == "__main__":
    main()
