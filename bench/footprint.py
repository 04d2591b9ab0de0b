"""Scenario ``footprint``: an agent that does nothing: memory, start cold and warm, what it has on disk.

Cold: an empty data directory, so the bundle is verified, installed and tried; the files' pages are in the kernel's
cache all the same. Warm: the same agent started again. Its modules are compiled beforehand, as an installation's are.

``python -m bench.footprint RULES``: one row for a folder of rules, as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from compileall import compile_dir
from pathlib import Path
from typing import Any

import vedette
from bench.agent import Bundle, syslog_input
from bench.drive import Bench, ready
from bench.host import undisturbed
from tests.broker import own_port

REST = 3.0
"""Seconds at rest before memory is read."""


def _bytes(folder: Path) -> int:
    """Of the disk: blocks, as a sparse file takes less than its length."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def run(bench: Bench) -> dict[str, Any]:
    compile_dir(Path(vedette.__file__).parent, quiet=1)
    counts = (10, 3000) if not bench.quick else (10, 300)
    bundles = {str(count): bench.bundle(bench.rules(count, 0.01)) for count in counts}
    with undisturbed(bench.undisturbed) as alone:
        rows = [{**row, "rules": int(row["rules"])} for row in _rows(bench, bundles)]
    return {"rows": rows, "undisturbed": alone}


def _rows(bench: Bench, bundles: Mapping[str, Bundle]) -> list[dict[str, Any]]:
    rows = []
    for name, bundle in bundles.items():
        folder, inputs = bench.fresh("footprint"), syslog_input(own_port())
        row: dict[str, Any] = {"rules": name, "bundle_bytes": bundle.file.stat().st_size}
        warm: list[tuple[float, float]] = []
        for start in range(1 + bench.runs):
            agent = bench.agent(folder, inputs, bundle.settings)
            try:
                seconds, _ = ready(agent)
                used = agent.usage()
                if start:
                    warm.append((seconds, used.seconds))
                else:
                    row |= {"cold_start_seconds": round(seconds, 2), "cold_start_cpu": round(used.seconds, 2)}
                time.sleep(REST)
                row |= {"idle_rss_mb": agent.usage().rss_mb, "peak_rss_mb": agent.usage().peak_rss_mb}
                idle = agent.usage().seconds
                time.sleep(REST)
                row["idle_cpu_share"] = round((agent.usage().seconds - idle) / REST, 4)
            finally:
                agent.stop()
        seconds, cpu = sorted(warm)[len(warm) // 2]
        row |= {"warm_start_seconds": round(seconds, 2), "warm_start_cpu": round(cpu, 2)}
        row["disk_bytes"] = _bytes(folder / "data")
        bench.say(f"  {name} rules: {row['idle_rss_mb']} MB idle, warm start {row['warm_start_seconds']} s")
        rows.append(row)
    return rows


def main(rules: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), runs=5)
        compile_dir(Path(vedette.__file__).parent, quiet=1)
        (row,) = _rows(bench, {rules: bench.bundle(Path(rules))})
    print(json.dumps(row))


if __name__ == "__main__":
    main(*sys.argv[1:])
