"""Scenario ``burst``: for some seconds five times what judging can take; nothing may be lost.

Every event is a candidate of many rules, so that judging is slow and receiving is not. What judging can take is
measured in the same run, by the same agent; then the burst comes at five times that rate, and the time until the last
event is judged is taken.
"""

from __future__ import annotations

import mmap
import time
from typing import Any

from bench.agent import syslog_input
from bench.drive import Bench, running
from tests.broker import own_port

TIMES = 5
SECONDS = 10


def run(bench: Bench) -> dict[str, Any]:
    bundle = bench.bundle(bench.rules(bench.size(3000, 1000), 1.0))
    stream, port = bench.stream(2_000_000 if not bench.quick else 400_000), own_port()
    peer, first = ("127.0.0.1", port), bench.size(40_000, 8_000)
    with (
        running(bench, "burst", syslog_input(port), bundle.settings, port=port) as run,
        stream.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        end, _ = _behind(data, 0, first)
        run.sent(peer, data[:end], first)
        can = first / run.evaluated(first)
        stop, lines = _behind(data, end, int(TIMES * can * bench.size(SECONDS, 1)))
        began = time.monotonic()
        run.sent(peer, data[end:stop], lines, TIMES * can)
        took = time.monotonic() - began
        backlog = run.agent.wait()["lag_events"]
        run.evaluated(first + lines, within=900, pause=0.1)
        caught_up = time.monotonic() - began - took
        usage, _ = run.finished(first + lines)
    row = {
        "evaluated per second": can,
        "events of the burst": lines,
        "in seconds": took,
        "per second": lines / took,
        "backlog at its end": backlog,
        "caught up, seconds later": caught_up,
        "lost": 0,
        "peak MB": usage.peak_rss_mb,
    }
    bench.say(f"  {row}")
    return {"tables": [[row]]}


def _behind(data: mmap.mmap, at: int, lines: int) -> tuple[int, int]:
    """Where the next ``lines`` lines end, and how many of them there are."""
    for number in range(lines):
        if not (behind := data.find(b"\n", at) + 1):
            return at, number
        at = behind
    return at, lines
