"""Scenario ``sigmahq``: all of SigmaHQ's rules (``RULES``) on Windows events as JSON lines, CPU µs an event.

Events: real ones (``REAL``: 10,000 of them, over and over), those of ``bench/windows.py``, and of each file that
``VEDETTE_EVENTS`` names (``:`` between them; NDJSON, plain or .zst) all, once. Each way with the native
kernel and without it (``VEDETTE_KERNEL=off``), by turns. Routed, the agent asks a rule only about its log source: live
over TCP, with raw log and commits, and as ``vedette scan --route``; unrouted is ``vedette scan``. A scan's start is
measured on an empty file and taken off. ``few`` is the routed scan with ten of the rules.

Beside the scans, by turns with them, rsigma (Rust; ``cargo install rsigma``, or its path in ``RSIGMA``) on the same
rules and file: ``rsigma engine eval``, routed by log source and not, its matches as JSON lines like ours. Where it is
not installed the result says so.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zstandard

from bench import windows
from bench.agent import Bundle
from bench.drive import Bench, plan_of, stream_run
from vedette.engine.kernel import SWITCH, why_not
from vedette.model.event import LogSource

DATA = Path(__file__).parents[2] / "shared" / "data"
RULES = DATA / "sigma-all" / "rules"
REAL = DATA / "windows" / "otrf-10k.ndjson.zst"
FEW = 10
WAYS = {
    "live": "live, TCP, routed",
    "scan_routed": "scan, routed",
    "scan_unrouted": "scan, all rules asked",
    "few": "scan, routed, ten rules",
}
ROUTED = ("--route", "--product", "windows")
RSIGMA = {"scan_routed": ("--logsource-routing", "--event-logsource", "product=windows"), "scan_unrouted": ()}
"""Its options by way."""


def run(bench: Bench) -> dict[str, Any]:
    """Raises FileNotFoundError where the rules are not."""
    if not RULES.is_dir():
        raise FileNotFoundError(f"{RULES}: SigmaHQ's rules are not there")
    count = bench.size(40_000, 2_000)
    sample = bench.folder / "windows-typical.log"
    sample.write_bytes(b"".join(line + b"\n" for line in windows.events(2, 3000)))
    files = sorted((RULES / "windows" / "process_creation").glob("*.yml"))[:FEW]
    bundle, few = bench.bundle(RULES, sample=sample), bench.bundle(*files, sample=sample)
    lines = _lines(REAL)
    kinds = {"real": [lines[i % len(lines)] for i in range(count)], "made": [*windows.events(1, count)]}
    for path in map(Path, filter(None, os.environ.get("VEDETTE_EVENTS", "").split(":"))):
        kinds[path.name.partition(".")[0]] = _lines(path)
    program = shutil.which(os.environ.get("RSIGMA", "rsigma"))
    result, sizes = dict[str, Any](), []
    for kind, lines in kinds.items():
        stream = bench.folder / f"windows-{kind}-{len(lines)}.log"
        stream.write_bytes(b"".join(line + b"\n" for line in lines))
        result[kind] = _measured(bench, bundle, few, stream, len(lines), program)
        sizes.append(f"{kind} {stream.stat().st_size / len(lines):,.0f}")
    columns = {"on": "{} events", "off": "{}, no kernel", **({"rsigma": "{}, rsigma"} if program else {})}
    beside = "rsigma is not installed here (`cargo install rsigma`), and so not measured"
    if program:
        version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
        beside = f"{version.splitlines()[0]}, by turns"
    rows = [
        {
            "CPU µs an event": text,
            **{name.format(kind): result[kind][way].get(of) for kind in kinds for of, name in columns.items()},
        }
        for way, text in WAYS.items()
    ]
    said = f"{len(plan_of(bundle).rules):,} rules; bytes an event: {', '.join(sizes)}."
    return {"tables": [rows], "said": f"{said} Native kernel: {why_not or 'in use'}. {beside}.", **result}


def _lines(path: Path) -> list[bytes]:
    """The events of a file, of a .zst unpacked; raises OSError."""
    with path.open("rb") as file:
        return (zstandard.ZstdDecompressor().stream_reader(file) if path.suffix == ".zst" else file).read().splitlines()


def _measured(
    bench: Bench, bundle: Bundle, few: Bundle, stream: Path, count: int, rsigma: str | None
) -> dict[str, Any]:
    """µs an event by way, kernel on and off: medians of the bench's runs."""
    times: dict[str, dict[str, list[float]]] = {way: {} for way in WAYS}

    def note(of: str, seconds: dict[str, float]) -> None:
        for way, used in seconds.items():
            times[way].setdefault(of, []).append(used / count * 1e6)
        said = ", ".join(f"{way} {runs[of][-1]:.1f} µs" for way, runs in times.items() if of in runs)
        bench.say(f"  {stream.stem}, {of}: {said}")

    for _ in range(bench.runs):
        for kernel in ("on", "off"):
            os.environ[SWITCH] = kernel
            live = stream_run(
                bench, "sigmahq", bundle, stream, count, codec="windows", logsource=LogSource(product="windows"),
                check=kernel == "on",
            )  # fmt: skip
            scans = {
                "scan_routed": _scan(bundle, stream, *ROUTED),
                "scan_unrouted": _scan(bundle, stream),
                "few": _scan(few, stream, *ROUTED),
            }
            os.environ.pop(SWITCH)
            note(kernel, {"live": count / live["events_per_cpu_second"], **scans})
        if rsigma is not None:
            note("rsigma", {way: _rsigma(rsigma, stream, *options) for way, options in RSIGMA.items()})
    return {way: {of: round(statistics.median(runs), 1) for of, runs in by.items()} for way, by in times.items()}


def _rsigma(program: str, stream: Path, *options: str) -> float:
    """CPU seconds of rsigma on ``stream`` beyond its start."""
    command = [program, "engine", "eval", "--quiet", "--output-format", "ndjson", "--input-format", "json", *options]
    return _beyond_start(stream, lambda file: [*command, "--rules", str(RULES), "--event", f"@{file}"])


def _scan(bundle: Bundle, stream: Path, *options: str) -> float:
    """CPU seconds of a ``vedette scan`` of ``stream`` beyond its start."""
    command = [sys.executable, "-m", "vedette", "scan", "--rules", str(bundle.file), "--trusted-key", bundle.key,
               "--format", "windows", *options]  # fmt: skip
    return _beyond_start(stream, lambda file: [*command, str(file)])


def _beyond_start(stream: Path, command: Callable[[Path], list[str]]) -> float:
    """CPU seconds of a command for ``stream``, beyond those for an empty file. Its matches go into a pipe. Raises
    OSError when it fails."""
    empty = stream.with_name("empty.log")
    empty.touch()
    used = []
    for file in (stream, empty):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command(file), capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise OSError(f"{done.args[0]}: code {done.returncode}: {done.stderr[-200:].decode('utf-8', 'replace')}")
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return used[0] - used[1]
