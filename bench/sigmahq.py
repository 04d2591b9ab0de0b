"""Scenario ``sigmahq``: real rules, where they are (``RULES``), on Windows events as JSON lines.

Routed (the agent asks a rule only about its log source) is the live agent over TCP; unrouted, and routed for the ratio,
is ``vedette scan`` on the same events, whose start is measured on an empty file and taken off.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from bench import windows
from bench.agent import vedette
from bench.drive import Bench, middle, stream_run
from vedette.model.event import LogSource

RULES = Path(__file__).parents[2] / "shared" / "data" / "sigma" / "rules"


def _scan(*arguments: str | Path) -> float:
    """CPU seconds of a ``vedette scan``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    vedette("scan", *arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(bench: Bench) -> dict[str, Any]:
    """Raises FileNotFoundError where the rules are not."""
    if not RULES.is_dir():
        raise FileNotFoundError(f"{RULES}: SigmaHQ's rules are not there")
    folder = RULES / "windows" if not bench.quick else RULES / "linux"
    count = bench.size(40_000, 2_000)
    stream, sample = bench.folder / f"windows-{count}.log", bench.folder / "windows-typical.log"
    stream.write_bytes(b"".join(line + b"\n" for line in windows.events(1, count)))
    sample.write_bytes(b"".join(line + b"\n" for line in windows.events(2, 3000)))
    bundle = bench.bundle(RULES if not bench.quick else folder, sample=sample)
    logsource = LogSource(product="windows")
    found = middle(
        [
            stream_run(bench, "sigmahq", bundle, stream, count, codec="windows", logsource=logsource)
            for _ in range(bench.runs)
        ]
    )
    bench.say(f"  routed: {found['events_per_cpu_second']:,} events per CPU-second, {found['mb_per_cpu_second']} MB/s")
    with_rules: list[str | Path] = ["--rules", bundle.file, "--trusted-key", bundle.key, "--format", "windows"]
    empty = bench.folder / "empty.log"
    empty.touch()
    scans = {}
    for name, options in (("scan_routed", ["--route", "--product", "windows"]), ("scan_unrouted", [])):
        seconds = _scan(*with_rules, *options, stream) - _scan(*with_rules, *options, empty)
        scans[name] = {
            "events_per_cpu_second": round(count / seconds),
            "mb_per_cpu_second": round(stream.stat().st_size / seconds / 1e6, 1),
        }
        bench.say(f"  {name}: {scans[name]['events_per_cpu_second']:,}")
    return {
        "rules": len(bench.plan(bundle).rules),
        "always_candidates": len(bench.plan(bundle).always),
        "bytes_per_event": round(stream.stat().st_size / count),
        "routed": found,
        **scans,
        "routed_to_unrouted": round(
            scans["scan_routed"]["events_per_cpu_second"] / scans["scan_unrouted"]["events_per_cpu_second"], 2
        ),
    }
