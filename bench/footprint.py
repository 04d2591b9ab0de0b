"""Scenario ``footprint``: an agent that does nothing: memory, start cold and warm, what it has on disk.

Cold: an empty data directory, so the bundle is verified, installed and tried; the files' pages are in the kernel's
cache all the same. Warm: the same agent started again. Its modules are compiled beforehand, as an installation's are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from compileall import compile_dir
from pathlib import Path
from typing import Any

import vedette
from bench.agent import Bundle, syslog_input
from bench.drive import Bench, ready
from bench.host import undisturbed
from tests.broker import free_port

REST = 3.0
"""Seconds at rest before memory is read."""


def _bytes(folder: Path) -> int:
    """Of the disk: blocks, as a sparse file takes less than its length."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def run(bench: Bench) -> dict[str, Any]:
    compile_dir(Path(vedette.__file__).parent, quiet=1)
    counts = (10, 3000) if not bench.quick else (10, 300)
    bundles = [bench.bundle(bench.rules(count, 0.01)) for count in counts]
    with undisturbed(bench.undisturbed) as alone:
        rows = _rows(bench, counts, bundles)
    return {"rows": rows, "undisturbed": alone}


def _rows(bench: Bench, counts: Sequence[int], bundles: Sequence[Bundle]) -> list[dict[str, Any]]:
    rows = []
    for count, bundle in zip(counts, bundles, strict=True):
        folder, inputs = bench.fresh(f"footprint{count}"), syslog_input(free_port())
        row: dict[str, Any] = {"rules": count, "bundle_bytes": bundle.file.stat().st_size}
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
        bench.say(f"  {count} rules: {row['idle_rss_mb']} MB idle, warm start {row['warm_start_seconds']} s")
        rows.append(row)
    return rows
