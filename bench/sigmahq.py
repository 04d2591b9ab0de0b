"""Scenario ``sigmahq``: all of SigmaHQ's rules (``RULES``) on Windows events as JSON lines, CPU µs an event.

Events: real ones (``REAL``: 10,000 of them, over and over) and those of ``bench/windows.py``. Each way with the native
kernel and without it (``VEDETTE_KERNEL=off``), by turns. Routed, the agent asks a rule only about its log source: live
over TCP, with raw log and commits, and as ``vedette scan --route``; unrouted is ``vedette scan``. A scan's start is
measured on an empty file and taken off. ``few`` is the routed scan with ten of the rules.
"""

from __future__ import annotations

import os
import resource
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

from bench import windows
from bench.agent import Bundle, vedette
from bench.drive import Bench, stream_run
from vedette.engine.kernel import SWITCH, why_not
from vedette.model.event import LogSource

DATA = Path(__file__).parents[2] / "shared" / "data"
RULES = DATA / "sigma-all" / "rules"
REAL = DATA / "windows" / "otrf-10k.ndjson.zst"
FEW = 10
WAYS = ("live", "scan_routed", "scan_unrouted", "few")


def run(bench: Bench) -> dict[str, Any]:
    """Raises FileNotFoundError where the rules are not."""
    if not RULES.is_dir():
        raise FileNotFoundError(f"{RULES}: SigmaHQ's rules are not there")
    count = bench.size(40_000, 2_000)
    sample = bench.folder / "windows-typical.log"
    sample.write_bytes(b"".join(line + b"\n" for line in windows.events(2, 3000)))
    files = sorted((RULES / "windows" / "process_creation").glob("*.yml"))[:FEW]
    bundle, few = bench.bundle(RULES, sample=sample), bench.bundle(*files, sample=sample)
    found: dict[str, Any] = {"rules": len(bench.plan(bundle).rules), "kernel": why_not or "in use"}
    for kind, lines in (("real", _real(count)), ("made", windows.events(1, count))):
        stream = bench.folder / f"windows-{kind}-{count}.log"
        with stream.open("wb") as file:
            file.writelines(line + b"\n" for line in lines)
        found[kind] = _measured(bench, bundle, few, stream, count)
        found[kind]["bytes_per_event"] = round(stream.stat().st_size / count)
    return found


def _real(count: int) -> Iterator[bytes]:
    """``count`` events of ``REAL``; raises FileNotFoundError."""
    with REAL.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
    return (lines[i % len(lines)] for i in range(count))


def _measured(bench: Bench, bundle: Bundle, few: Bundle, stream: Path, count: int) -> dict[str, Any]:
    """µs an event by way, kernel on and off: medians of the bench's runs."""
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(bench.runs):
        for kernel in ("on", "off"):
            os.environ[SWITCH] = kernel
            live = stream_run(
                bench, "sigmahq", bundle, stream, count, codec="windows", logsource=LogSource(product="windows"),
                check=kernel == "on",
            )  # fmt: skip
            seconds = {
                "live": count / live["events_per_cpu_second"],
                "scan_routed": _scan(bundle, stream, "--route", "--product", "windows"),
                "scan_unrouted": _scan(bundle, stream),
                "few": _scan(few, stream, "--route", "--product", "windows"),
            }
            for way, used in seconds.items():
                times.setdefault((way, kernel), []).append(used / count * 1e6)
            os.environ.pop(SWITCH)
            bench.say(f"  {stream.stem}, kernel {kernel}: {_text(seconds, count)}")
    return {way: {kernel: round(statistics.median(times[way, kernel]), 1) for kernel in ("on", "off")} for way in WAYS}


def _text(seconds: dict[str, float], count: int) -> str:
    return ", ".join(f"{way} {used / count * 1e6:.1f} µs" for way, used in seconds.items())


def _scan(bundle: Bundle, stream: Path, *options: str) -> float:
    """CPU seconds of a ``vedette scan`` of ``stream`` beyond its start."""
    with_rules: list[str | Path] = [
        "--rules",
        bundle.file,
        "--trusted-key",
        bundle.key,
        "--format",
        "windows",
        *options,
    ]
    empty = stream.with_name("empty.log")
    empty.touch()
    used = []
    for file in (stream, empty):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        vedette("scan", *with_rules, file)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return used[0] - used[1]
