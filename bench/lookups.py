"""Lookups of millions of rows: bytes a row, building, opening, probing in the kernel and from Python, shared pages.

``python -m bench.lookups [--rows N] [KIND …]`` makes a table of each kind as CSV, builds it in a process of its own
(whose time and peak memory are those of the build alone), and prints a JSON object for each. In the kernel: batches of
half a million keys as texts, at random, parsing included, hits and misses by turns, the median of seven; from Python:
the mean of single calls of ``contains`` and ``get``. ``rules``: a Sigma rule with ``expand`` and the JOIN of a
statement in SQL, with their alerts' fields.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench.usage import memory_mb
from vedette.lookup.batch import Key
from vedette.lookup.build import build
from vedette.lookup.keys import spread
from vedette.lookup.source import read
from vedette.lookup.table import Lookup

PROBES = 500_000
EVENTS = 50_000
RULES = {
    "sigma.yml": """
title: t
id: 00000000-0000-4000-8000-000000000001
logsource: {category: test}
level: high
detection: {s: {src_ip|expand: '%table%'}, condition: s}
""",
    "join.sql": """
CREATE TABLE assets (k STRING, owner STRING, site STRING) WITH ('connector' = 'vedette', 'lookup' = 'table');
INSERT INTO alerts SELECT e.src_ip, a.owner, a.site
FROM events AS e JOIN assets FOR SYSTEM_TIME AS OF e.event_time AS a ON a.k = e.src_ip;
""",
}
ROUNDS = 7
_SYLLABLES = [
    "al",
    "ber",
    "con",
    "dor",
    "est",
    "fin",
    "gar",
    "hol",
    "in",
    "jun",
    "kas",
    "lor",
    "mit",
    "nor",
    "ost",
    "pra",
]
_ENDS = ("com", "net", "org", "de", "co.uk", "io", "ru", "info")


def _address(number: int) -> str:
    value = spread(number) >> 32
    return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}"


def _user(number: int) -> str:
    return f"corp\\user{number * 7 % 100_000_000:011d}"


def _domain(number: int) -> str:
    value = spread(number)
    name = "".join(_SYLLABLES[value >> at & 15] for at in range(0, 16, 4)) + f"{value >> 16 & 0xFFF:x}"
    return f"{name}{number % 97}.{_ENDS[value >> 40 & 7]}"


def _digest(number: int) -> str:
    return hashlib.sha256(number.to_bytes(8, "little")).hexdigest()


def _network(number: int) -> str:
    value = spread(number) >> 32
    bits = 12 + (spread(number + 1) >> 20) % 21
    value &= ~((1 << 32 - bits) - 1)
    return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}/{bits}"


def _about(number: int) -> str:
    value = spread(number * 3)
    seen = f"2026-{value % 12 + 1:02d}-{value % 28 + 1:02d}T07:00:00Z"
    return f",team-{value % 500},site{value >> 20 & 63},{value >> 30 & 1023},{seen}"


KINDS: dict[str, tuple[str, str, Callable[[int], str], bool]] = {
    "ip": ("k", "k:ip", _address, False),
    "user": ("k", "k:text", _user, False),
    "domain": ("k", "k:domain", _domain, False),
    "sha256": ("k", "k:text", _digest, False),
    "number": ("k", "k:number", lambda number: str(spread(number) >> 2), False),
    "cidr": ("k", "k:cidr", _network, False),
    "ip+4": ("k,owner,site,risk,seen", "k:ip", _address, True),
    "domain+4": ("k,owner,site,risk,seen", "k:domain", _domain, True),
}
"""Header, key, the key of a number, whether further columns follow."""

_PSS = """
import sys
from pathlib import Path
from vedette.lookup.table import Lookup
lookup = Lookup.open(Path(sys.argv[1]))
for name in lookup.header.sections:
    at, size, _ = lookup.header.sections[name]
    sum(memoryview(lookup._view)[at : at + size : 4096])
print("ready", flush=True)
sys.stdin.read()
"""


def make_table(folder: Path, kind: str, rows: int) -> tuple[Path, dict[str, Any]]:
    """A table of that kind as a file in ``folder``, built in a process of its own; what that took."""
    source, target = folder / "table.csv", folder / "table.vlookup"
    header, _, make, more = KINDS[kind]
    with source.open("w") as file:
        file.write(header + "\n")
        file.writelines(f"{make(number)}{_about(number) if more else ''}\n" for number in range(rows))
    command = [sys.executable, "-m", "bench.lookups", "--build", str(source), str(target), kind]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    took: dict[str, Any] = json.loads(done.stdout)
    took |= {"bytes_a_row": took["bytes"] / took["rows"], "of_the_csv": took["bytes"] / source.stat().st_size}
    source.unlink()
    return target, took


def build_table(source: Path, target: Path, kind: str) -> None:
    """That process: prints CPU seconds, rows, bytes, the peak of its memory and the layout."""
    header, spec, _, _ = KINDS[kind]
    key = Key.parse(spec)
    types = {name: type for name, type in (("risk", "int"), ("seen", "time")) if name in header}
    again = "first" if key.kind not in ("cidr", "range") else "keep"
    with read(source, types, {"k": key.kind}) as table:
        done = build(target, table.columns, [key], table.batches, created=1, name="table", duplicates=again)
    peak = memory_mb("self")["VmHWM"]
    figures = {"rows": done.rows, "bytes": done.size, "peak_mb": peak, "layout": done.indexes[0]}
    print(json.dumps({"seconds": time.process_time(), **figures}))


def _nanoseconds(lookup: Lookup, *batches: list[str]) -> list[float]:
    """Of a probe in the kernel, by batch; the median of rounds, in each of which every batch has a turn."""
    packed = [
        ("".join(keys).encode(), memoryview(array("I", accumulate(map(len, keys)))).cast("B")) for keys in batches
    ]
    rounds: list[list[float]] = [[] for _ in batches]
    for _ in range(ROUNDS):
        for keys, (arena, ends), seconds in zip(batches, packed, rounds, strict=True):
            before = time.process_time_ns()
            lookup._native.holds(0, arena, ends)
            seconds.append((time.process_time_ns() - before) / len(keys))
    return [*map(median, rounds)]


def _calls(ask: Callable[[str], object], keys: list[str]) -> float:
    before = time.process_time_ns()
    for key in keys:
        ask(key)
    return (time.process_time_ns() - before) / len(keys)


def _shared(path: Path) -> float:
    """Memory of the file's pages in three processes together, as a multiple of one's."""

    def pss(processes: list[subprocess.Popen[str]]) -> int:
        total = 0
        for process in processes:
            name = None
            for line in Path(f"/proc/{process.pid}/smaps").read_text().splitlines():
                if "-" in line.split(" ")[0] and not line.endswith("kB"):
                    name = line
                elif line.startswith("Pss:") and name and str(path) in name:
                    total += int(line.split()[1])
        return total

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _PSS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        return process

    running = [start()]
    try:
        alone = pss(running)
        running += [start(), start()]
        return pss(running) / alone
    finally:
        for process in running:
            process.communicate("")


def measure(folder: Path, kind: str, rows: int) -> dict[str, Any]:
    target, result = make_table(folder, kind, rows)
    before = time.perf_counter()
    lookup = Lookup.open(target)
    result["open_ms"] = (time.perf_counter() - before) * 1000
    make = KINDS[kind][2]
    draw = random.Random(1)
    inside = [make(draw.randrange(rows)).split("/")[0] for _ in range(PROBES)]
    outside = [make(rows * 2 + draw.randrange(rows)).split("/")[0] for _ in range(PROBES)]
    if lookup.native:
        result["kernel_hit_ns"], result["kernel_miss_ns"] = _nanoseconds(lookup, inside, outside)
    result["hits_of_outside"] = sum(map(lookup.tester("k"), outside[:10_000])) / 10_000
    few = PROBES // 5
    result["get_hit_us"] = _calls(lambda key: lookup.get("k", key), inside[:few]) / 1000
    result["contains_miss_us"] = _calls(lambda key: lookup.contains("k", key), outside[:few]) / 1000
    lookup.close()
    with Lookup.open(target, native=False) as plain:
        result["python_hit_us"] = _calls(lambda key: plain.get("k", key), inside[: few // 10]) / 1000
    result["three_processes"] = _shared(target)
    target.unlink()
    return result


def rules(folder: Path, rows: int) -> Iterator[dict[str, Any]]:
    """What rules take that ask a table of addresses with further columns about JSON events of 150 bytes, of whose
    addresses a hundredth is in it, with the kernel and without."""
    from bench.statements import evaluate  # not for the process that builds, whose memory is measured
    from vedette.api import compile_rules
    from vedette.runtime.offline.scan import chunk_of

    target, _ = make_table(folder, "ip+4", rows)
    make, draw = KINDS["ip+4"][2], random.Random(1)
    addresses = [make(draw.randrange(rows) + (2 * rows if n % 100 else 0)) for n in range(EVENTS)]
    lines = [
        f'{{"time":"2026-11-22T10:{n // 60 % 60:02}:{n % 60:02}Z","host":"web{n % 50}","src_ip":"{address}",'
        f'"user":"user{n % 997}","url":"/shop/item/{n}","status":200,"bytes":{n % 9000}}}'
        for n, address in enumerate(addresses)
    ]
    chunks = list(chunk_of(lines, "json", 1_763_632_800_000_000))
    for name, text in RULES.items():
        path = folder / name
        path.write_text(text)
        plan = compile_rules(path, lookups=[target])
        if plan.refused:
            raise ValueError(plan.refused)
        for kernel in (True, False):
            seconds, matches = evaluate(plan, chunks, kernel=kernel)
            yield {"rule": name, "kernel": kernel, "events_a_cpu_second": EVENTS / seconds, "matches": matches,
                   "us_an_event": seconds / EVENTS * 1e6}  # fmt: skip


def say(figures: dict[str, Any]) -> None:
    print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.lookups", description="Measure lookups.")
    parser.add_argument("--rows", type=int, default=10_000_000, help="of each table; networks a tenth of it")
    parser.add_argument("--build", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, "rules", []], help="tables, or rules; default: all")
    options = parser.parse_args()
    if options.build:
        build_table(*options.build, *options.kinds)
        return
    with TemporaryDirectory(prefix="vedette-lookups-") as folder:
        for kind in options.kinds or [*KINDS, "rules"]:
            if kind == "rules":
                for row in rules(Path(folder), options.rows):
                    say(row)
                continue
            rows = options.rows // (10 if kind == "cidr" else 1)
            say({"kind": kind, **measure(Path(folder), kind, rows)})


if __name__ == "__main__":
    main()
