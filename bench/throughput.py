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

    def look(folder: Path) -> Any:
        command = [sys.executable, "-m", "bench.throughput", str(folder / "data" / "raw"), str(bundle.file), bundle.key]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    return look


def run(bench: Bench) -> dict[str, Any]:
    """``cells``: one row per (rules, share); ``extra``: by name. The rows of the targets are medians of the runs."""
    counts, shares = (RULES, SHARES) if not bench.quick else ((10, 300), (0.01, 1.0))
    most = max(counts)
    cells = []
    for count in counts:
        for share in shares:
            lines = bench.size(LINES[share], LINES[share] // 10)
            bundle, stream = bench.bundle(bench.rules(count, share)), bench.stream(lines)
            looked = _stored(bundle) if (count, share) == (most, 0.01) else None
            times = bench.runs if (count, share) in ((counts[0], 0.01), (most, 0.01), (most, 1.0)) else 1
            row = middle(
                [stream_run(bench, f"{count}x{share:g}", bundle, stream, lines, keep=looked) for _ in range(times)]
            )
            bench.say(f"  {count} rules, {share:.1%}: {row['events_per_cpu_second']:,} events per CPU-second")
            cells.append({"rules": count, "share": share, **row})
    lines = bench.size(LINES[1.0], LINES[1.0] // 10)
    bundle = bench.bundle(bench.rules(most, 1.0))
    repeated = middle(
        [
            stream_run(bench, "repeated", bundle, bench.stream(lines, repeated=0.9), lines)
            for _ in range(max(1, bench.runs))
        ]
    )
    bench.say(f"  90 % repeated: {repeated['events_per_cpu_second']:,}")
    always_lines = bench.size(60_000, 8_000)
    with_always = stream_run(
        bench, "always", bench.bundle(bench.rules(most, 0.01, always=ALWAYS)), bench.stream(always_lines), always_lines
    )
    cell = {(row["rules"], row["share"]): row for row in cells}
    base, few = cell[most, 0.01], cell[counts[0], 0.01]
    rules_without = round(most * ALWAYS)
    bench.say(f"  {rules_without} always-candidate rules: {with_always['events_per_cpu_second']:,}")
    return {
        "cells": cells,
        "extra": {
            "repeated": repeated,
            "always": {
                **with_always,
                "rules_without_literal": rules_without,
                "us_per_event_more": round(with_always["us_per_event"] - base["us_per_event"], 2),
            },
            "stored": base["kept"],
        },
        "rules_ratio": round(base["us_per_event"] / few["us_per_event"], 3),
    }


if __name__ == "__main__":
    print(json.dumps(stored(*sys.argv[1:])))
