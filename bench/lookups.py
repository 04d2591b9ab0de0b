"""Lookups of millions of rows: bytes a row, building, opening, probing in the kernel and from Python, shared pages.

``python -m bench.lookups [--rows N] [KIND …]`` makes a table of each kind as CSV, builds it in a process of its own
(whose time and peak memory are those of the build alone), and prints a row for each. In the kernel: batches of half a
million keys as texts, at random, parsing included, hits and misses by turns, the median of seven; from Python: the mean
of single calls of ``contains`` and ``get``.

``--changed SHARE``: instead, what a new version costs to send, of which that share of the rows has another value (of a
table of keys alone: another key), as ``region publish --previous`` makes its blobs; each delta is undone and compared.
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

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vedette.lookup.delta import unpacked
from vedette.lookup.keys import spread
from vedette.lookup.sign import sign, signed_in
from vedette.lookup.table import Lookup
from vedette.region.lookups import Blocks

PROBES = 500_000
ROUNDS = 7
_SYLLABLES = (
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
)
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

_BUILD = """
import json, sys, time
from pathlib import Path
from vedette.lookup.batch import Key
from vedette.lookup.build import build
from vedette.lookup.source import read
source, target, key = sys.argv[1:4]
previous = Path(sys.argv[4]) if sys.argv[4:] else None
one = Key.parse(key)
kept = "first" if one.kind not in ("cidr", "range") else "keep"
names = open(source).readline()
types = {name: kind for name, kind in (("risk", "int"), ("seen", "time")) if name in names}
with read(Path(source), types, {"k": one.kind}) as table:
    done = build(Path(target), table.columns, [one], table.batches, created=1 + bool(previous), name="table",
                 previous=previous, duplicates=kept)
peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
print(json.dumps({"seconds": time.process_time(), "rows": done.rows, "bytes": done.size,
                  "peak_mb": int(peak) / 1024, "layout": done.indexes[0]}))
"""

_PSS = """
import sys
from pathlib import Path
from vedette.lookup.table import Lookup
found = Lookup.open(Path(sys.argv[1]))
for name in found.header.sections:
    at, size, _ = found.header.sections[name]
    sum(memoryview(found._view)[at : at + size : 4096])
print("ready", flush=True)
sys.stdin.read()
"""


def _table(path: Path, kind: str, rows: int, changed: float = 0.0) -> None:
    header, _, make, more = KINDS[kind]
    draw = random.Random(7)
    with path.open("w") as file:
        file.write(header + "\n")
        for start in range(0, rows, 10_000):
            for n in range(start, min(rows, start + 10_000)):
                other = n + 2 * rows if changed and draw.random() < changed else n
                file.write(f"{make(n)}{_about(other)}\n" if more else f"{make(other)}\n")


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


def measure_changed(folder: Path, kind: str, rows: int, share: float) -> str:
    """A row of a table: what a new version with ``share`` changed rows takes to send."""
    source, first, second = folder / "table.csv", folder / "first.vlookup", folder / "second.vlookup"
    for target, changed, previous in ((first, 0.0, ()), (second, share, (str(first),))):
        _table(source, kind, rows, changed)
        subprocess.run(
            [sys.executable, "-c", _BUILD, str(source), str(target), KINDS[kind][1], *previous],
            check=True, capture_output=True,
        )  # fmt: skip
    sign(second, second, Ed25519PrivateKey.generate(), "plants", "stable")
    with second.open("rb") as file:
        signed = signed_in(file, None)
    before, whole, sent, undone = time.process_time(), 0, 0, 0.0
    blocks = Blocks(second, signed, first)
    with first.open("rb") as file:
        for number in range(len(signed)):
            patch = blocks.made(number)
            whole += len(patch.whole)
            sent += 0 if patch.same else len(patch.delta or patch.whole)
            if patch.delta:
                file.seek(patch.reference[0])
                reference, since = file.read(patch.reference[1]), time.process_time()
                block = unpacked(patch.delta, signed.span(number)[1], reference)
                undone += time.process_time() - since
                if not signed.fits(number, block):
                    raise ValueError(f"block {number} of {kind} does not come back from its delta")
    seconds = time.process_time() - before - undone
    size, csv = signed.size, source.stat().st_size
    first.unlink()
    second.unlink()
    return (
        f"| {kind} | {share:.1%} | {size / 1e6:.1f} | {csv / 1e6:.0f} | {whole / 1e6:.1f} | {sent / 1e6:.2f} |"
        f" {sent / size:.2%} | {seconds:.0f} | {undone:.1f} |"
    )


def measure(folder: Path, kind: str, rows: int) -> dict[str, Any]:
    source, target = folder / "table.csv", folder / "table.vlookup"
    _table(source, kind, rows)
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, str(source), str(target), KINDS[kind][1]],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout)
    result |= {"bytes_a_row": result["bytes"] / result["rows"], "of_the_csv": result["bytes"] / source.stat().st_size}
    source.unlink()
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


def _lines(results: Iterator[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    yield (
        "| key | layout | B a row | of the CSV | build CPU s | peak MB | open ms | kernel hit, miss ns |"
        " Python get (hit), contains (miss) µs | plain Python µs | three processes |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for kind, row in results:
        probes = f"{row['kernel_hit_ns']:.0f}, {row['kernel_miss_ns']:.0f}" if "kernel_hit_ns" in row else "no kernel"
        layout = row["layout"].partition("(")[2].rstrip(")")
        yield (
            f"| {kind} | {layout} | {row['bytes_a_row']:.2f} | {row['of_the_csv']:.2f} | {row['seconds']:.1f} |"
            f" {row['peak_mb']:.0f} | {row['open_ms']:.1f} | {probes} |"
            f" {row['get_hit_us']:.2f}, {row['contains_miss_us']:.2f} | {row['python_hit_us']:.1f} |"
            f" {row['three_processes']:.2f} × |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.lookups", description="Measure lookups.")
    parser.add_argument("--rows", type=int, default=10_000_000, help="of each table; networks a tenth of it")
    parser.add_argument("--changed", type=float, metavar="SHARE", help="what a new version costs to send")
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="which tables; all without one")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="vedette-lookups-") as folder:
        kinds = options.kinds or [*KINDS]
        if options.changed is not None:
            print(
                "| key | changed | MB | CSV MB | whole MB sent | delta MB sent | of the file | publish CPU s |"
                " undo CPU s |"
            )
            print("|---|---|---|---|---|---|---|---|---|")
            for kind in kinds:
                print(measure_changed(Path(folder), kind, options.rows, options.changed), flush=True)
            return 0
        results = ((k, measure(Path(folder), k, options.rows // (10 if k == "cidr" else 1))) for k in kinds)
        for line in _lines(results):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
