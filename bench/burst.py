"""Scenario ``burst``: for some seconds five times what judging can take; nothing may be lost.

Every event is a candidate of many rules, so that judging is slow and receiving is not. What judging can take is
measured in the same run, by the same agent; then the burst comes at five times that rate, and the time until the last
event is judged is taken.
"""

from __future__ import annotations

import mmap
import time
from typing import Any

from bench import send
from bench.agent import syslog_input
from bench.drive import Bench, Wrong, account, finished, ready, totals
from tests.broker import free_port

TIMES = 5
SECONDS = 10.0


def run(bench: Bench) -> dict[str, Any]:
    seconds = bench.size(int(SECONDS), 1)
    bundle = bench.bundle(bench.rules(bench.size(3000, 1000), 1.0))
    stream = bench.stream(2_000_000 if not bench.quick else 400_000)
    folder, port = bench.fresh("burst"), free_port()
    agent = bench.agent(folder, syslog_input(port), bundle.settings)
    peer = ("127.0.0.1", port)
    try:
        ready(agent)
        send.wait_for(peer, 30)
        agent.settle(10)
        if bench.profile:
            agent.sample()
        base = totals(agent.status() or {"inputs": {}, "totals": {}})
        with stream.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            first = bench.size(40_000, 8_000)
            end = 0
            for _ in range(first):
                end = data.find(b"\n", end) + 1
            began = time.monotonic()
            send.tcp(peer, data[:end])
            while totals(agent.wait(lambda status: True, 30))["judged"] - base["judged"] < first:
                time.sleep(0.05)
            can = first / (time.monotonic() - began)
            rate = TIMES * can
            lines = int(rate * seconds)
            stop = end
            for number in range(lines):
                if not (found := data.find(b"\n", stop) + 1):
                    lines = number
                    break
                stop = found
            began = time.monotonic()
            sent = send.tcp(peer, data[end:stop], rate=rate)
            took = time.monotonic() - began
            if not sent.complete:
                raise Wrong(f"sent {sent.lines} of {lines} lines: {sent.cut}")
            backlog = agent.wait(lambda status: True, 30)["lag_events"]
            while totals(agent.wait(lambda status: True, 30))["judged"] - base["judged"] < first + lines:
                time.sleep(0.1)
                if time.monotonic() - began > 900:
                    raise Wrong("the burst was not judged within 15 minutes")
            caught_up = time.monotonic() - began - took
            usage, status = finished(agent, first + lines, base)
            account(status, base, first + lines)
    finally:
        agent.stop()
    bench.say(f"  {lines:,} events in {took:.1f} s; caught up {caught_up:.1f} s later")
    return {
        "judging_can_take_per_second": round(can),
        "burst_events": lines,
        "burst_seconds": round(took, 1),
        "burst_rate": round(lines / took),
        "backlog_at_its_end": backlog,
        "caught_up_seconds": round(caught_up, 1),
        "lost": 0,
        "peak_rss_mb": usage.peak_rss_mb,
    }
