"""Scenario ``cache``: what the result cache saves and costs, against fresh evaluation and against a Python dict.

* ``events``: the engine (prefilter, decoding, evaluation) over syslog lines that are all candidates and that the native
  kernel does not decide, of which a share repeats but for time and process id. With the cache off, on, and with the
  same answers under the same keys in a dict of ``bytes``. The three take turns in one run, each on a fresh cache;
  medians of CPU time.
* ``store``: bytes and nanoseconds an entry, at one and at ten million; a look-up is the MD5 of 64 bytes and the search.

``python -m bench.cache [--quick]`` prints the result as JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench import rules, traffic
from vedette.engine.cache import CACHE_BYTES, SLOT, Cache, Store
from vedette.engine.match import Engine
from vedette.model.event import CHUNK_BYTES, Chunk
from vedette.plan.plan import Plan
from vedette.rules.build import build

SHARES = (0.0, 0.5, 0.9, 0.99)
_Digest = bytes
"""By another name: in the class below ``bytes`` is a number."""


class _Table(dict[_Digest, Any]):
    """A dict in place of the store: an object for each key."""

    bytes = answer_bytes = answers = 0

    def put(self, digest: _Digest, answer: Hashable, room: int) -> bool:
        self[digest] = answer
        return True


class DictCache(Cache):
    """The same cache over a dict."""

    def forget(self) -> None:
        self._store = _Table()  # type: ignore[assignment]
        self.get = self._store.get


CACHES: dict[str, Callable[[], Cache]] = {"off": lambda: Cache(0), "on": Cache, "dict": DictCache}


def chunked(blocks: Iterable[bytes], codec: str) -> list[Chunk]:
    """The lines of ``blocks`` in chunks of at most ``CHUNK_BYTES``, each of which ends with a line."""
    data = b"".join(blocks)
    chunks = []
    begin = 0
    while begin < len(data):
        end = data.rfind(b"\n", begin, begin + CHUNK_BYTES) + 1
        chunks.append(Chunk("bench", codec, 0, data[begin:end]))
        begin = end
    return chunks


def compare(
    plan: Plan, batches: dict[float, list[Chunk]], before: Callable[[float], list[Chunk]], runs: int
) -> list[dict[str, Any]]:
    """One row for each share of repeated values; ``before``: gives other events of the kind, to begin with.

    Raises RuntimeError when the matches are not the same.
    """
    rows = []
    databases = Engine(plan).databases()
    for share, chunks in batches.items():
        events = sum(map(len, chunks))
        seconds: dict[str, list[float]] = {name: [] for name in CACHES}
        matches: set[int] = set()
        last: dict[str, Engine] = {}
        for _ in range(runs):
            for name, make in CACHES.items():
                engine = last[name] = Engine(plan, databases, cache=make())
                for chunk in before(share):  # what is prepared once
                    for _ in engine.evaluate(chunk):
                        pass
                began = time.process_time()
                matches.add(sum(1 for chunk in chunks for _ in engine.evaluate(chunk)))
                seconds[name].append(time.process_time() - began)
        if len(matches) != 1:
            raise RuntimeError(f"the cache changes the matches: {matches}")
        account, candidates = last["on"].cache.account(), last["on"].tally.candidates
        us = {name: round(median(times) / events * 1e6, 2) for name, times in seconds.items()}
        rows.append(
            {
                "repeated": share,
                "events": events,
                "candidates_share": round(candidates / last["on"].tally.events, 3),
                "us_per_event": us,
                "on_to_off": round(us["on"] / us["off"], 3),
                "on_to_dict": round(us["on"] / us["dict"], 3),
                "cache": {name: account.get(name) for name in ("events", "failure", "verified")},
            }
        )
    return rows


def syslog_plan(folder: Path, count: int) -> Plan:
    """``count`` rules under which every line of ``traffic`` is a candidate of one or a few, also by the native kernel:
    they ask for the program by a name that it does not know."""
    sample = b"".join(traffic.blocks(1, rules.SAMPLE))
    texts = rules.rules(1, count, sample.splitlines(), share=1.0)
    rules.write(folder, [text.replace('"program":', '"log.syslog.appname":') for text in texts])
    return build([folder], sample=b"".join(traffic.blocks(2, rules.SAMPLE)))


def fill(entries: int, table: str) -> dict[str, Any]:
    """A store of ``entries`` slots, after twice as many were put in; or a dict of ``entries``."""
    rng = Random(3)
    if table == "dict":
        store: Any = _Table()
        puts = entries
    else:
        store, puts = Store(entries * SLOT), 2 * entries
    answers = [(i,) for i in range(1000)]
    sampled: list[bytes] = []
    spent = 0.0
    block = entries // 20
    for first in range(0, puts, block):
        random = os.urandom(16 * block)
        keys = [random[i : i + 16] for i in range(0, len(random), 16)]
        began = time.process_time()
        for i, key in enumerate(keys):
            store.put(key, answers[i % 1000], 1 << 20)
        spent += time.process_time() - began
        if first >= puts - entries // 2:
            sampled += rng.sample(keys, min(len(keys), 40_000))
    live = len(store) if table == "dict" else store.entries()
    bytes_held = (
        sys.getsizeof(store) + live * sys.getsizeof(bytes(16)) if table == "dict" else store.bytes + store.answer_bytes
    )
    rng.shuffle(sampled)
    began = time.process_time()
    hits = sum(store.get(key) is not None for key in sampled)
    hit = time.process_time() - began
    absent = os.urandom(16 * len(sampled))
    began = time.process_time()
    for i in range(0, len(absent), 16):
        store.get(absent[i : i + 16])
    miss = time.process_time() - began
    digested = hashlib.md5(bytes(16), usedforsecurity=False).copy
    value = bytes(64)
    began = time.process_time()
    for _ in range(200_000):
        state = digested()
        state.update(value)
        state.digest()
    digest = (time.process_time() - began) / 200_000
    return {
        "table": table,
        "entries": live,
        "bytes_per_entry": round(bytes_held / live, 2),
        "put_ns": round(spent / puts * 1e9),
        "hit_ns": round((hit / len(sampled) + digest) * 1e9),
        "miss_ns": round((miss / len(sampled) + digest) * 1e9),
        "of_it_md5_ns": round(digest * 1e9),
        "found_share": round(hits / len(sampled), 3),
    }


def measure(folder: Path, *, quick: bool = False, runs: int = 3) -> dict[str, Any]:
    """The result; ``folder`` is for the rules."""
    count = 5_000 if quick else 60_000
    plan = syslog_plan(folder, 300 if quick else 3000)
    batches = {s: chunked(traffic.blocks(1, count, repeated=s), "syslog") for s in SHARES}
    result: dict[str, Any] = {"rules": len(plan.rules), "cache_bytes": CACHE_BYTES}
    result["events"] = compare(plan, batches, lambda s: chunked(traffic.blocks(5, 4000, repeated=s), "syslog"), runs)
    sizes = (20_000,) if quick else (1_000_000, 10_000_000)
    result["store"] = [fill(size, table) for size in sizes for table in ("cache", "dict")]
    return result


def run(bench: Any) -> dict[str, Any]:
    """For the harness: see ``bench/drive.py``."""
    return measure(bench.fresh("cache-rules"), quick=bench.quick, runs=bench.runs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cache", description="Measure the result cache.")
    parser.add_argument("--quick", action="store_true", help="a smoke, in small sizes")
    parser.add_argument("--runs", type=int, default=3, help="of which the median counts")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="vedette-cache-") as folder:
        print(json.dumps(measure(Path(folder), quick=options.quick, runs=options.runs), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
