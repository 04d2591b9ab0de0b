"""Scenario ``merge``: what it costs to run ten rule sets on one source in one pass, against one of them.

The sets are of one size, with the same few tuned rules in the first, so the share of candidates stays and only the
number of sets changes. The slope is what a further 1,000 rules cost an event.
"""

from __future__ import annotations

import shutil
from typing import Any

from bench import rules
from bench.drive import SEED, Bench, middle, stream_run

SETS = (1, 2, 5, 10)
SIZE = 300


def run(bench: Bench) -> dict[str, Any]:
    size = bench.size(SIZE, 30)
    lines = bench.size(400_000, 40_000)
    sample = bench.stream(rules.SAMPLE).read_bytes().splitlines()
    folders = []
    for number in range(max(SETS)):
        folder = bench.folder / f"set-{size}-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        rules.write(folder, rules.rules(SEED + 10 + number, size, sample, share=0.0 if number else 0.01))
        folders.append(folder)
    rows = []
    for sets in SETS if not bench.quick else (1, 10):
        bundle = bench.bundle(*folders[:sets])
        times = bench.runs if sets in (1, max(SETS)) else 1
        row = middle([stream_run(bench, f"merge{sets}", bundle, bench.stream(lines), lines) for _ in range(times)])
        bench.say(f"  {sets} sets of {size}: {row['us_per_event']} µs an event")
        rows.append({"sets": sets, "rules": sets * size, **row})
    first, last = rows[0], rows[-1]
    more = last["us_per_event"] - first["us_per_event"]
    return {
        "rows": rows,
        "ratio": round(last["us_per_event"] / first["us_per_event"], 3),
        "us_per_event_and_1000_rules": round(more / (last["rules"] - first["rules"]) * 1000, 4),
    }
