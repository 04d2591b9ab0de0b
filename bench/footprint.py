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
from compileall import compile_dir
from pathlib import Path
from typing import Any

import vedette
from bench.agent import Bundle, syslog_input
from bench.drive import Bench
from bench.host import undisturbed
from tests.broker import own_port

REST = 3.0
"""Seconds at rest before memory is read."""


def _bytes(folder: Path) -> int:
    """Of the disk: blocks, as a sparse file takes less than its length."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def run(bench: Bench) -> dict[str, Any]:
    counts = (10, 3000) if not bench.quick else (10, 300)
    bundles = {count: bench.bundle(bench.rules(count, 0.01)) for count in counts}
    with undisturbed(bench.undisturbed) as alone:
        return {"tables": [[row(bench, count, bundle) for count, bundle in bundles.items()]], "undisturbed": alone}


def row(bench: Bench, rules: int | str, bundle: Bundle) -> dict[str, Any]:
    """What an agent with these rules takes: started once cold and ``bench.runs`` times warm."""
    compile_dir(Path(vedette.__file__).parent, quiet=1)
    folder, inputs = bench.fresh("footprint"), syslog_input(own_port())
    figures: dict[str, Any] = {"rules": rules, "bundle_bytes": bundle.file.stat().st_size}
    starts: list[tuple[float, float]] = []
    for _ in range(1 + bench.runs):
        began = time.monotonic()
        agent = bench.agent(folder, inputs, bundle.settings)
        try:
            agent.wait(seconds=180, pause=0.02)
            starts.append((time.monotonic() - began, agent.usage().seconds))
            time.sleep(REST)
            used = agent.usage()
            time.sleep(REST)
            share = (agent.usage().seconds - used.seconds) / REST
        finally:
            agent.stop()
    for name, (seconds, cpu) in (("cold", starts[0]), ("warm", sorted(starts[1:])[len(starts[1:]) // 2])):
        figures |= {f"{name}_start_seconds": round(seconds, 2), f"{name}_start_cpu": round(cpu, 2)}
    figures |= {"idle_rss_mb": used.rss_mb, "peak_rss_mb": used.peak_rss_mb, "idle_cpu_share": round(share, 4)}
    figures["disk_bytes"] = _bytes(agent.data)
    bench.say(f"  {figures}")
    return figures


def main(rules: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), runs=5)
        print(json.dumps(row(bench, rules, bench.bundle(Path(rules)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
