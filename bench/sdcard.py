"""``python -m bench.sdcard``: what the agent writes to its disk for an event, at rates at which SD cards are worn out.

For each rate and each ``raw_log.fsync`` an agent of its own, without rules, gets syslog lines over TCP, one at a time,
for ``--seconds``; all run side by side. Written is what the kernel says of the process (``write_bytes`` of
``/proc/PID/io``): whole pages, each time they are made dirty after they were written out; the file system's own journal
comes on top. The folder must not be on a tmpfs, where nothing is written. Then the same lines, a frame each, go into a
raw log in this process, which is sealed and compacted: bytes of events for each byte of segments, before and after.

``--document`` puts the table into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

import structlog

from bench import report, traffic
from bench.agent import Agent, syslog_input
from tests.broker import own_port
from tests.settings import SegmentedLog
from vedette.model.counters import Counters
from vedette.model.event import Chunk
from vedette.rawlog.log import RawLog
from vedette.rawlog.segment import segments

DOCUMENT = Path(__file__).parents[1] / "docs" / "reliability.md"
RATES = (0, 1, 10, 100)
POLICIES = ("interval:200ms", "interval:5s", "batch", "never")
REST = 8.0
"""Seconds after the start before measuring: the first commit is over."""


class Written(NamedTuple):
    """Events sent in so many seconds, and the bytes that the agent had written to disks meanwhile."""

    events: int
    seconds: float
    bytes: int

    def __str__(self) -> str:
        a_second = self.bytes / self.seconds
        if not self.events:
            return f"{a_second * 3600 / 1024:,.0f} KiB an hour"
        return f"{self.bytes / self.events / 1024:,.1f} KiB ({a_second * 86400 / 2**20:,.0f} MiB a day)"


def written(pid: int) -> int:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def measure(folder: Path, policy: str, rate: int, seconds: float) -> Written:
    """One agent; raises RuntimeError when its account is wrong."""
    port = own_port()
    agent = Agent(folder, syslog_input(port), f'[raw_log]\nfsync = "{policy}"\n')
    lines = b"".join(traffic.blocks(4, max(1, int(rate * seconds * 2)))).splitlines(keepends=True)
    try:
        agent.wait(seconds=180)
        time.sleep(REST)
        before, began, sent = written(agent.pid), time.monotonic(), 0
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while (now := time.monotonic() - began) < seconds:
                if sent < now * rate:
                    connection.sendall(lines[sent])
                    sent += 1
                time.sleep(min(0.5, max(0.0, (sent / rate if rate else 1e9) - now)))
            status = agent.wait(lambda status: status["raw_log"]["durable"] == status["raw_log"]["end"])
            total = written(agent.pid) - before
        if sum(counts["stored"] for counts in status["inputs"].values()) != sent:
            raise RuntimeError(f"{policy}, {rate}: sent {sent}, stored {status['inputs']}")
    finally:
        agent.stop()
    return Written(sent, seconds, total)


def compaction(folder: Path, count: int = 40_000) -> tuple[float, float]:
    """Bytes of events for each byte of a sealed segment of one-event frames: as written, and compacted."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    log = RawLog.open(folder, SegmentedLog(segment_bytes=4 << 20), Counters(), clock=lambda: 0)
    for number, line in enumerate(b"".join(traffic.blocks(4, count)).splitlines(keepends=True)[:count]):
        log.append(Chunk("tcp", "syslog", number * 100_003, line, origins=("203.0.113.7",)))
    log.sync()
    raw, sealed = segments(folder)[1].base, segments(folder)[0].path
    before = sealed.stat().st_size
    for _ in range(10_000):
        log.maintain(0, 0)
    after = sealed.stat().st_size
    log.close()
    return raw / before, raw / after


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.sdcard", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="of each measurement")
    parser.add_argument("--folder", type=Path, help="where to write; default: the folder for temporary files")
    parser.add_argument("--document", action="store_true", help="put the table into docs/reliability.md")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="vedette-sdcard-", dir=options.folder) as name:
        folder, cells = Path(name), [*product(POLICIES, RATES)]
        with ThreadPoolExecutor(len(cells)) as pool:
            ran = [pool.submit(measure, folder / f"{i}", *cell, options.seconds) for i, cell in enumerate(cells)]
        results = {cell: done.result() for cell, done in zip(cells, ran, strict=True)}
        if not any(result.bytes for result in results.values()):
            sys.stderr.write(f"{folder}: nothing is written there: is it a tmpfs? Name another one with --folder\n")
            return 2
        sealed, compacted = compaction(folder / "compaction")
    header = ("`raw_log.fsync`", *(f"{rate} events/s" for rate in RATES))
    rows = [(f"`{policy}`", *(str(results[policy, rate]) for rate in RATES)) for policy in POLICIES]
    ratio = f"{sealed:.2f} : 1 sealed, {compacted:.1f} : 1 compacted"
    text = f"{report.markdown(header, rows)}\nBytes of events to bytes of a segment of one-event frames: {ratio}.\n"
    print(text)
    if options.document:
        DOCUMENT.write_text(report.filled(DOCUMENT.read_text("utf-8"), {"sdcard": text}), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
