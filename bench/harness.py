"""``make bench``: what the real agent takes in, judges and sends on one core, in eleven scenarios, a module each.

``python -m bench.harness [SCENARIO…] [--quick] [--runs N] [--profile FILE]`` runs them one after the other, the agent
on one core and all else on the others, under a memory limit where a cgroup can be made (``host.py``). The result is
``bench/results/latest.json``, and with it the tables of ``docs/performance.md`` (``report.py``). Scenarios
that were not asked for keep the result they had, with the time it is of. ``--quick`` is a smoke of each on small
sizes; it writes ``bench/results/quick.json`` and no documentation, as its figures say little.

A scenario that finds a wrong account or a wrong alert gives no figure: it is named with the reason, the others run, and
the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import report
from bench.drive import Bench
from bench.host import MemoryLimit, cores, machine, versions

RESULTS = Path(__file__).parent / "results"
SCENARIOS = (
    "throughput", "sigmahq", "services", "cache", "rulesets", "latency", "inputs", "correlations", "burst", "peers",
    "footprint",
)  # fmt: skip
"""In the order of the documentation; each is a module with ``run(bench) -> dict``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.harness",
        description="Measure the agent.",
        epilog="example: python -m bench.harness throughput --runs 1 --profile profile.txt",
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"default: all of {', '.join(SCENARIOS)}")
    parser.add_argument("--quick", action="store_true", help="a smoke of each, in small sizes")
    parser.add_argument("--runs", type=int, default=3, help="of the figures that have a target; the median counts")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/performance.md as it is")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="sample the agents' stacks into FILE-RUN")
    parser.add_argument(
        "--undisturbed", action="store_true", help="latency, UDP and starts before the machine's other work, as root"
    )
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.scenarios) - set(SCENARIOS)):
        parser.error(f"no scenario {', '.join(unknown)}; known: {', '.join(SCENARIOS)}")
    core, others = cores()
    os.sched_setaffinity(0, others)
    file = RESULTS / ("quick.json" if options.quick else "latest.json")
    results: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {"scenarios": {}}
    results |= {"machine": machine(), "versions": versions(), "pinned_to_core": core}
    failed = False
    profile = options.profile.resolve() if options.profile else None
    with tempfile.TemporaryDirectory(prefix="vedette-bench-") as folder, MemoryLimit() as limit:
        results["memory_limit"] = limit.kind
        runs = 1 if options.quick else options.runs
        bench = Bench(Path(folder).resolve(), core, options.quick, runs, profile, limit, options.undisturbed)
        for name in options.scenarios or SCENARIOS:
            bench.say(f"{name} …")
            began = time.monotonic()
            results["scenarios"].pop(name, None)
            try:
                result = import_module(f"bench.{name}").run(bench)
            except (RuntimeError, OSError, ImportError, ValueError, AssertionError) as error:
                bench.say(f"{name}: {error}")
                failed = True
                continue
            bench.say(f"{name}: {time.monotonic() - began:.1f} s")
            about = {
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "load": round(os.getloadavg()[0], 2),
                "profiled": profile is not None,
            }
            results["scenarios"][name] = {**about, **result}
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    if not options.quick and not options.no_docs:
        report.document(results)
    print(report.table(report.targets(results["scenarios"])))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
