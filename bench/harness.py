"""``make bench``: what one event costs the agent on one core, from TCP to alert; and proof that none was left out.

A run: a fresh agent with synthetic rules, pinned to one core, gets a whole stream over loopback TCP from the other
core. From "ready" to "all judged, all alerts in the landing" the CPU time of the agent's process (user and system, all
threads) is taken from ``/proc``; the peak memory is that of the process's whole life, compiling the rules included.

A run counts only when its account is right: received = stored = judged = lines sent, and on the first ``sample`` lines
the alerts equal what ``vedette scan`` says of the same lines. The result is the median of the runs, as JSON on
standard output and in ``bench/results/latest.json``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import mmap
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import rules, send, traffic
from bench.agent import Agent, bundle, directory, free_port, vedette

RESULTS = Path(__file__).parent / "results"
Hits = Counter[tuple[str, int]]
"""(rule id, line from 1) and how often."""


def totals(status: dict[str, Any]) -> Counter[str]:
    """The counters of all inputs, and of the agent, in one table."""
    table: Counter[str] = Counter()
    for counts in status["inputs"].values():
        for name in ("received", "stored", "judged", "bytes_in"):
            table[name] += counts[name]
    table.update(status["totals"])
    return table


def alerts(landing: Path, stream: bytes | mmap.mmap, lines: int) -> Hits:
    """What the landing holds of the stream's first ``lines`` lines; a raw offset is a position in the stream."""
    from pyarrow import parquet

    starts = {0: 1}
    position = 0
    for line in range(2, lines + 2):
        position = stream.find(b"\n", position) + 1
        starts[position] = line
    hits: Hits = Counter()
    for file in sorted((landing / "alerts").rglob("*.parquet")):
        table = parquet.ParquetFile(file).read(columns=["rule_id", "raw_ref"])
        for rule_id, raw_ref in zip(table["rule_id"].to_pylist(), table["raw_ref"].to_pylist(), strict=True):
            if raw_ref["offset"] < position:
                hits[rule_id, starts[raw_ref["offset"]]] += 1
    return hits


def scanned(rule_folder: Path, sample: Path) -> Hits:
    """What ``vedette scan`` says of the file ``sample``. Raises RuntimeError when it fails."""
    found = vedette("scan", "--rules", rule_folder, "--format", "syslog", sample)
    return Counter((match["rule_id"], match["line"]) for match in map(json.loads, found.splitlines()))


def run(
    folder: Path,
    stream: Path,
    lines: int,
    rule_folder: Path,
    settings: str,
    *,
    core: int | None,
    sample: int,
    profile: Path | None,
) -> dict[str, Any]:
    """One run in the fresh ``folder``. Raises RuntimeError when the account is not right."""
    python = ("-m", "bench.sampler", str(profile)) if profile else ()
    agent = Agent(folder, free_port(), settings, core=core, python=python)
    try:
        begun = time.monotonic()
        agent.wait(lambda status: True, 180, pause=0.2)
        send.wait_for(("127.0.0.1", agent.port), 30)
        ready = time.monotonic() - begun
        time.sleep(1)
        if profile:
            agent.sample()
        before = agent.usage()
        base = totals(agent.status() or {"inputs": {}, "totals": {}})
        began = time.monotonic()
        with stream.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            sent = send.tcp(("127.0.0.1", agent.port), data)
            if not sent.complete or sent.lines != lines:
                raise RuntimeError(f"sent {sent.lines} of {lines} lines: {sent.cut}")

            def finished(status: dict[str, Any]) -> bool:
                now = totals(status)
                return now["judged"] >= lines and status["alerts"]["receipted"] == status["alerts"]["made"]

            status = agent.wait(finished, 600, pause=0.3)
            seconds = time.monotonic() - began
            after = agent.usage()
            threads = agent.threads()
            now = totals(status)
            now.subtract(base)
            if status["identity_broken"]:
                raise RuntimeError(f"the agent's own account does not add up: {status['identity_broken']}")
            if not now["received"] == now["stored"] == now["judged"] == lines:
                raise RuntimeError(
                    f"sent {lines}, received {now['received']}, stored {now['stored']}, judged {now['judged']}"
                )
            found = alerts(folder / "landing", data, sample)
            head = folder / "sample.log"
            head.write_bytes(data[: _position(data, sample)])
        code = agent.stop()
        if code:
            raise RuntimeError(f"the agent ended with {code}:\n{agent.tail()}")
    finally:
        agent.stop(5)
    expected = scanned(rule_folder, head)
    if found != expected:
        missing, extra = expected - found, found - expected
        raise RuntimeError(
            f"alerts differ from scan on {sample} lines: {missing.total()} missing, {extra.total()} too many,"
            f" e.g. {list(missing)[:3]} / {list(extra)[:3]}"
        )
    cpu = after.seconds - before.seconds
    return {
        "events": lines,
        "bytes": stream.stat().st_size,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "events_per_cpu_second": round(lines / cpu),
        "cpu_us_per_event": round(cpu / lines * 1e6, 3),
        "start_seconds": round(ready, 2),
        "start_cpu_seconds": round(before.seconds, 2),
        "rss_mb": after.rss_mb,
        "peak_rss_mb": after.peak_rss_mb,
        "candidates_share": round(now["candidates"] / lines, 5),
        "alerts": now["alerts_made"],
        "alerts_equal_scan": {"lines": sample, "alerts": found.total()},
        "stored_bytes": sum(file.stat().st_size for file in (folder / "data" / "raw").rglob("*") if file.is_file()),
        "cpu_by_thread": threads,
    }


def _position(data: mmap.mmap, lines: int) -> int:
    """Where line number ``lines`` ends."""
    position = 0
    for _ in range(lines):
        position = data.find(b"\n", position) + 1
    return position


def _middle(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The run with the median throughput."""
    return sorted(runs, key=lambda run: run["events_per_cpu_second"])[(len(runs) - 1) // 2]


def machine() -> dict[str, Any]:
    """What it ran on."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return {"cpu": model, "cores": os.cpu_count(), "memory_mb": memory, "load": round(os.getloadavg()[0], 2)}


def versions() -> dict[str, str]:
    """Of what decides the figures."""
    packages = ("vedette", "hyperscan", "pysigma", "zstandard", "lmdb", "orjson")
    found = {package: importlib.metadata.version(package) for package in packages}
    return {"python": platform.python_version(), "kernel": platform.release(), **found}


def _cores(pin: bool) -> tuple[int | None, set[int]]:
    """The agent's core and the others; (None, all) when there is one core only or no pinning is wanted."""
    cores = sorted(os.sched_getaffinity(0))
    return (cores[0], set(cores[1:])) if pin and len(cores) > 1 else (None, set(cores))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.harness", description="Measure the agent, from TCP to alert."
    )
    parser.add_argument("--count", type=int, default=1_000_000, help="lines")
    parser.add_argument("--rules", type=int, default=1000)
    parser.add_argument("--share", type=float, default=0.01, help="share of events that are to be candidates")
    parser.add_argument("--alert-share", type=float, default=0.001, help="share of events that are to match")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sample", type=int, default=200_000, help="lines on which the alerts are compared with scan")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", action="store_true", help="run the rule files as they are, not as a bundle")
    parser.add_argument("--no-pin", action="store_true", help="leave the agent on all cores")
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="sample the agent's stacks into FILE (costs a little)"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave everything in DIR")
    given = parser.parse_args(arguments)
    core, others = _cores(not given.no_pin)
    os.sched_setaffinity(0, others)
    with tempfile.TemporaryDirectory(prefix="vedette-bench-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        stream, rule_folder = folder / "lines.log", folder / "rules"
        sample: list[bytes] = []
        with stream.open("wb") as file:
            for block in traffic.blocks(given.seed, given.count):
                file.write(block)
                if len(sample) < rules.SAMPLE:
                    sample += block[:-1].split(b"\n")
        rules.write(
            rule_folder, rules.rules(given.seed, given.rules, sample, share=given.share, alert_share=given.alert_share)
        )
        typical = folder / "typical.log"  # another stream of the same kind: what is known before the traffic comes
        typical.write_bytes(b"".join(traffic.blocks(given.seed + 1, rules.SAMPLE)))
        settings = directory(rule_folder) if given.directory else bundle(folder, rule_folder, typical)
        runs = []
        for number in range(1, given.runs + 1):
            try:
                result = run(
                    folder / f"run{number}",
                    stream,
                    given.count,
                    rule_folder,
                    settings,
                    core=core,
                    sample=min(given.sample, given.count),
                    profile=given.profile,
                )
            except (RuntimeError, TimeoutError, OSError) as error:
                print(f"run {number}: {error}", file=sys.stderr)
                return 1
            print(f"run {number}: {result['events_per_cpu_second']:,} events per CPU-second", file=sys.stderr)
            runs.append(result)
    report = {
        **_middle(runs),
        "rules": given.rules,
        "rules_from": "directory" if given.directory else "bundle",
        "runs": [run["events_per_cpu_second"] for run in runs],
        "pinned_to_core": core,
        "machine": machine(),
        "versions": versions(),
    }
    text = json.dumps(report, indent=2)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.json").write_text(text + "\n", "utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
