"""``python -m bench.sdcard``: what the agent writes to its disk for an event, at rates at which SD cards are worn out.

For each rate and each ``raw_log.fsync`` an agent of its own gets syslog lines over TCP, one at a time, for
``--seconds``; all run side by side. Written is what the kernel says of the process (``write_bytes`` of
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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import structlog

from bench import report, traffic
from bench.agent import Agent, directory, syslog_input
from bench.drive import ready
from tests.broker import own_port
from vedette.config.settings import RawLogSettings
from vedette.model.counters import Counters
from vedette.model.event import Chunk
from vedette.rawlog.log import RawLog
from vedette.rawlog.segment import segments

DOCUMENT = Path(__file__).parents[1] / "docs" / "reliability.md"
RATES = (0, 1, 10, 100)
POLICIES = ("interval:200ms", "interval:5s", "batch", "never")
REST = 8.0
"""Seconds after the start before measuring: the first commit is over."""
_RULE = """title: Nothing
id: 6f1c6f0e-6b0e-4f5a-9b44-0d2f2f0c9a12
status: test
description: Made by bench/sdcard.py
author: Vedette
logsource: {product: linux}
detection:
    keywords: ["no line of the traffic says this"]
    condition: keywords
level: low
"""


class Cell(NamedTuple):
    policy: str
    rate: int


def written(pid: int) -> int:
    """Bytes that the process had written to disks."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def measure(folder: Path, cell: Cell, seconds: float) -> dict[str, Any]:
    """One agent; raises RuntimeError when its account is wrong."""
    rules, port = folder / "rules", own_port()
    rules.mkdir(parents=True)
    (rules / "nothing.yml").write_text(_RULE, "utf-8")
    inputs = syslog_input(port) + f'[raw_log]\nfsync = "{cell.policy}"\n'
    agent = Agent(folder, inputs, directory(rules))
    lines = b"".join(traffic.blocks(4, max(1, int(cell.rate * seconds * 2)))).splitlines(keepends=True)
    try:
        ready(agent)
        time.sleep(REST)
        before, began, sent = written(agent.process.pid), time.monotonic(), 0
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while (now := time.monotonic() - began) < seconds:
                if sent < now * cell.rate:
                    connection.sendall(lines[sent])
                    sent += 1
                time.sleep(min(0.5, max(0.0, (sent / cell.rate if cell.rate else 1e9) - now)))
            agent.wait(lambda status: status["raw_log"]["durable"] == status["raw_log"]["end"], 30)
            total = written(agent.process.pid) - before
        status = agent.status()
        if status is None or sum(counts["stored"] for counts in status["inputs"].values()) != sent:
            raise RuntimeError(f"{cell}: sent {sent}, stored {status and status['inputs']}")
    finally:
        agent.stop()
    raw = sum(map(len, lines[:sent]))
    return {"cell": cell, "sent": sent, "raw": raw, "written": total, "seconds": seconds}


class Segmented(RawLogSettings):
    """Of segments that a run fills."""

    segment_bytes: ClassVar[int] = 4 << 20


def compaction(folder: Path, count: int = 40_000) -> tuple[float, float]:
    """Bytes of events for each byte of a sealed segment of one-event frames: as written, and compacted."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    log = RawLog.open(folder, Segmented(), Counters(), clock=lambda: 0)
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


def table(rows: Sequence[dict[str, Any]], ratios: tuple[float, float]) -> str:
    """Markdown."""
    texts = {row["cell"]: _shown(row) for row in rows}
    cells = report.markdown(
        ("`raw_log.fsync`", *(f"{rate} events/s" for rate in RATES)),
        ((f"`{policy}`", *(texts[Cell(policy, rate)] for rate in RATES)) for policy in POLICIES),
    )
    ratio = f"{ratios[0]:.2f} : 1 sealed, {ratios[1]:.1f} : 1 compacted"
    return f"{cells}\nBytes of events to bytes of a segment of one-event frames: {ratio}.\n"


def _shown(row: Mapping[str, Any]) -> str:
    a_second = row["written"] / row["seconds"]
    if not row["sent"]:
        return f"{a_second * 3600 / 1024:,.0f} KiB an hour"
    return f"{row['written'] / row['sent'] / 1024:,.1f} KiB ({a_second * 86400 / 2**20:,.0f} MiB a day)"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.sdcard", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="of each measurement")
    parser.add_argument("--folder", type=Path, help="where to write; default: the folder for temporary files")
    parser.add_argument("--document", action="store_true", help="put the table into docs/reliability.md")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="vedette-sdcard-", dir=options.folder) as name:
        folder = Path(name)
        cells = [Cell(policy, rate) for policy in POLICIES for rate in RATES]
        with ThreadPoolExecutor(len(cells)) as pool:
            rows = list(
                pool.map(lambda item: measure(folder / str(item[0]), item[1], options.seconds), enumerate(cells))
            )
        if not any(row["written"] for row in rows):
            sys.stderr.write(f"{folder}: nothing is written there: is it a tmpfs? Name another one with --folder\n")
            return 2
        text = table(rows, compaction(folder / "compaction"))
    print(text)
    if options.document:
        DOCUMENT.write_text(report.filled(DOCUMENT.read_text("utf-8"), {"sdcard": text}), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
