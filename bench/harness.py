"""``make bench``: what the real agent takes in, judges and sends on one core, in twelve scenarios, a module each.

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
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import report
from bench.drive import Bench
from bench.host import MemoryLimit, cores, machine, versions

RESULTS = Path(__file__).parent / "results"
SCENARIOS = {
    "throughput": "bench.throughput",
    "sigmahq": "bench.sigmahq",
    "services": "bench.services",
    "cache": "bench.cache",
    "merge": "bench.merge",
    "rulesets": "bench.rulesets",
    "latency": "bench.latency",
    "inputs": "bench.inputs",
    "correlation": "bench.correlations",
    "burst": "bench.burst",
    "peers": "bench.peers",
    "footprint": "bench.footprint",
}
"""In the order of the documentation; each module has ``run(bench) -> dict``."""


def _one(name: str, bench: Bench) -> dict[str, Any]:
    began = time.monotonic()
    run: Callable[[Bench], dict[str, Any]] = import_module(SCENARIOS[name]).run
    result = run(bench)
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began, 1),
        "load": round(os.getloadavg()[0], 2),
        "profiled": bench.profile is not None,
        **result,
    }


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
    parser.add_argument("--no-pin", action="store_true", help="leave the agent on all cores")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/performance.md as it is")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="sample the agents' stacks into FILE-RUN")
    parser.add_argument(
        "--undisturbed", action="store_true", help="latency, UDP and starts before the machine's other work, as root"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave everything in DIR")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.scenarios) - set(SCENARIOS)):
        parser.error(f"no scenario {', '.join(unknown)}; known: {', '.join(SCENARIOS)}")
    core, others = cores(not options.no_pin)
    os.sched_setaffinity(0, others)
    file = RESULTS / ("quick.json" if options.quick else "latest.json")
    earlier = json.loads(file.read_text("utf-8")) if file.exists() else {}
    results: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "pinned_to_core": core,
        "scenarios": earlier.get("scenarios", {}),
    }
    failed = False
    profile = options.profile.resolve() if options.profile else None
    with tempfile.TemporaryDirectory(prefix="vedette-bench-") as temporary, MemoryLimit() as limit:
        results["memory_limit"] = limit.kind
        folder = (options.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        runs = 1 if options.quick else options.runs
        bench = Bench(folder, core, options.quick, runs, profile, limit, options.undisturbed)
        for name in options.scenarios or SCENARIOS:
            bench.say(f"{name} …")
            try:
                results["scenarios"][name] = _one(name, bench)
            except (RuntimeError, TimeoutError, OSError, ImportError, ValueError) as error:
                bench.say(f"{name}: {error}")
                failed = True
                results["scenarios"].pop(name, None)
                continue
            bench.say(f"{name}: {results['scenarios'][name]['seconds']} s")
            _write(file, results)
    results["targets"] = report.targets(results["scenarios"])
    _write(file, results)
    if not options.quick and not options.no_docs:
        report.document(results)
    print(report.table(results["targets"]))
    return int(failed)


def _write(file: Path, results: dict[str, Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    results["scenarios"] = {name: results["scenarios"][name] for name in SCENARIOS if name in results["scenarios"]}
    file.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
