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
from collections.abc import Callable
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
RSIGMA = {
    "scan_routed": ("--logsource-routing", "--event-logsource", "product=windows"),
    "scan_unrouted": (),
}
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
    result: dict[str, Any] = {
        "rules": len(bench.plan(bundle).rules),
        "kernel": why_not or "in use",
        "rsigma": _version(),
    }
    lines = _lines(REAL)
    kinds = {"real": [lines[i % len(lines)] for i in range(count)], "made": [*windows.events(1, count)]}
    for path in map(Path, filter(None, os.environ.get("VEDETTE_EVENTS", "").split(":"))):
        kinds[path.name.partition(".")[0]] = _lines(path)
    for kind, lines in kinds.items():
        stream = bench.folder / f"windows-{kind}-{len(lines)}.log"
        stream.write_bytes(b"".join(line + b"\n" for line in lines))
        result[kind] = _measured(bench, bundle, few, stream, len(lines))
        result[kind]["bytes_per_event"] = round(stream.stat().st_size / len(lines))
    return result


def _lines(path: Path) -> list[bytes]:
    """The events of a file, of a .zst unpacked; raises OSError."""
    with path.open("rb") as file:
        return (zstandard.ZstdDecompressor().stream_reader(file) if path.suffix == ".zst" else file).read().splitlines()


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
        if (program := _rsigma()) is not None:
            seconds = {way: _rsigma_eval(program, stream, *options) for way, options in RSIGMA.items()}
            for way, used in seconds.items():
                times.setdefault((way, "rsigma"), []).append(used / count * 1e6)
            bench.say(f"  {stream.stem}, rsigma: {_text(seconds, count)}")
    medians: dict[str, Any] = {way: {} for way in WAYS}
    for (way, of), runs in times.items():
        medians[way][of] = round(statistics.median(runs), 1)
    return medians


def _rsigma() -> str | None:
    return shutil.which(os.environ.get("RSIGMA", "rsigma"))


def _version() -> str | None:
    """What rsigma says of itself; None where it is not installed."""
    program = _rsigma()
    if program is None:
        return None
    output = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    return output.splitlines()[0]


def _rsigma_eval(program: str, stream: Path, *options: str) -> float:
    """CPU seconds of rsigma on ``stream`` beyond its start."""
    command = [program, "engine", "eval", "--quiet", "--output-format", "ndjson", "--input-format", "json", *options]
    return _beyond_start(stream, lambda file: _matched([*command, "--rules", str(RULES), "--event", f"@{file}"]))


def _matched(command: list[str]) -> None:
    """Run ``command``; raises OSError when it fails. What it prints goes where the scans' matches go: a pipe."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        _, complaint = process.communicate()
    if process.returncode:
        raise OSError(f"{command[0]}: code {process.returncode}: {complaint[-200:].decode('utf-8', 'replace')}")


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
    return _beyond_start(stream, lambda file: vedette("scan", *with_rules, file))


def _beyond_start(stream: Path, run: Callable[[Path], object]) -> float:
    """CPU seconds of child processes for ``stream``, beyond those for an empty file."""
    empty = stream.with_name("empty.log")
    empty.touch()
    used = []
    for file in (stream, empty):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(file)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return used[0] - used[1]
