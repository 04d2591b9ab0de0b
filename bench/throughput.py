"""Scenario ``throughput``: events per CPU-second over TCP, by the number of rules and the share of candidates.

Beside the matrix, in the same run: the share of repeated values with every event a candidate, what rules without a
literal cost, and the engine of the live path over the raw log that a run has left.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC
from pathlib import Path
from typing import Any

from bench.agent import Bundle
from bench.drive import Bench, middle, stream_run
from vedette.api import load_rules, read_log
from vedette.engine.match import Context

RULES = (10, 100, 1000, 3000)
SHARES = (0.001, 0.01, 0.05, 0.2, 1.0)
LINES = {0.001: 500_000, 0.01: 500_000, 0.05: 250_000, 0.2: 100_000, 1.0: 40_000}
ALWAYS = 0.01


def stored(folder: str, bundle: str, key: str) -> dict[str, Any]:
    """How fast the raw log in ``folder`` is evaluated: by the live path's engine, without sockets, state and outbox."""
    engine, context = load_rules(Path(bundle), [key]), Context(zone=UTC)
    began = time.process_time()
    events = matches = 0
    for frame in read_log(folder):
        events += len(frame.chunk)
        matches += sum(1 for _ in engine.evaluate(frame.chunk, context))
    rate = round(events / (time.process_time() - began))
    return {"events": events, "matches": matches, "events_per_cpu_second": rate}


def _stored(bundle: Bundle) -> Any:
    """``stored``, of what a run has left, in a process of its own."""

    def look(data: Path) -> Any:
        command = [sys.executable, "-m", "bench.throughput", str(data / "raw"), str(bundle.file), bundle.key]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    return look


def run(bench: Bench) -> dict[str, Any]:
    """``cells``: a row per (rules, share). The rows of the targets are medians of the runs."""
    counts, shares = (RULES, SHARES) if not bench.quick else ((10, 300), (0.01, 1.0))
    most = max(counts)
    cell: dict[tuple[int, float], dict[str, Any]] = {}
    for count in counts:
        for share in shares:
            lines = bench.size(LINES[share], LINES[share] // 10)
            bundle, stream = bench.bundle(bench.rules(count, share)), bench.stream(lines)
            looked = _stored(bundle) if (count, share) == (most, 0.01) else None
            times = bench.runs if (count, share) in ((counts[0], 0.01), (most, 0.01), (most, 1.0)) else 1
            name = f"{count}x{share:g}"
            row = middle([stream_run(bench, name, bundle, stream, lines, keep=looked) for _ in range(times)])
            bench.say(f"  {count} rules, {share:.1%}: {row['events_per_cpu_second']:,} events per CPU-second")
            cell[count, share] = {"rules": count, "share": share, **row}
    lines = bench.size(LINES[1.0], LINES[1.0] // 10)
    bundle, stream = bench.bundle(bench.rules(most, 1.0)), bench.stream(lines, repeated=0.9)
    repeated = middle([stream_run(bench, "repeated", bundle, stream, lines) for _ in range(bench.runs)])
    lines = bench.size(60_000, 8_000)
    bundle = bench.bundle(bench.rules(most, 0.01, always=ALWAYS))
    always = stream_run(bench, "always", bundle, bench.stream(lines), lines)
    base, few = cell[most, 0.01], cell[counts[0], 0.01]
    rows = [
        {
            "rules": f"{count:,}",
            **{f"{share * 100:g}% candidates": cell[count, share]["events_per_cpu_second"] for share in shares},
            "peak MB": max(cell[count, share]["peak_rss_mb"] for share in shares),
        }
        for count in counts
    ]
    return {
        "tables": [rows],
        "said": "In events per CPU-second, by the share of candidates. With every event a candidate and 90 % of the"
        f" messages repeated: {repeated['events_per_cpu_second']:,}. With {round(most * ALWAYS)} of the rules (1 %)"
        f" without any literal, so that every event is a candidate: {always['events_per_cpu_second']:,},"
        f" {always['us_per_event'] - base['us_per_event']:.2f} µs an event more. The stored log of a run evaluated"
        f" again: {base['kept']['events_per_cpu_second']:,}.",
        "cells": [*cell.values()],
        "repeated": repeated,
        "stored": base["kept"],
        "rules_ratio": round(base["us_per_event"] / few["us_per_event"], 3),
    }


if __name__ == "__main__":
    print(json.dumps(stored(*sys.argv[1:])))
