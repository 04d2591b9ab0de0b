"""Scenario ``cache``: what the result cache saves and costs, against fresh evaluation and against a Python dict.

First the engine (prefilter, decoding, evaluation) over syslog lines that are all candidates and that the native kernel
does not decide, of which a share repeats but for time and process id. With the cache off, on, and with the same answers
under the same keys in a dict of ``bytes``. The three take turns in one run, each on a fresh cache; medians of CPU time.
Then the store alone: bytes and nanoseconds an entry, at one and at ten million; a look-up is the MD5 of 64 bytes and
the search.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import time
from collections.abc import Callable, Hashable
from random import Random
from statistics import median
from typing import Any

from bench import rules, traffic
from bench.drive import Bench
from vedette.engine.cache import SLOT, Cache, Store
from vedette.engine.match import Engine
from vedette.model.event import Chunk
from vedette.plan.plan import Plan
from vedette.rules.build import build
from vedette.runtime.offline import scan

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


def chunks(seed: int, count: int, repeated: float) -> list[Chunk]:
    blocks = traffic.blocks(seed, count, repeated=repeated)
    return list(scan.lines(io.BytesIO(b"".join(blocks)), "syslog", name="bench"))


def compare(plan: Plan, count: int, share: float, runs: int) -> dict[str, Any]:
    """The row of one share of repeated values. Raises RuntimeError when the matches are not the same."""
    stream, before, databases = chunks(1, count, share), chunks(5, 4000, share), Engine(plan).databases()
    seconds: dict[str, list[float]] = {name: [] for name in CACHES}
    matches: set[int] = set()
    for _ in range(runs):
        for name, make in CACHES.items():
            engine = Engine(plan, databases, cache=make())
            for chunk in before:  # what is prepared once
                for _ in engine.evaluate(chunk):
                    pass
            began = time.process_time()
            matches.add(sum(1 for chunk in stream for _ in engine.evaluate(chunk)))
            seconds[name].append(time.process_time() - began)
    if len(matches) != 1:
        raise RuntimeError(f"the cache changes the matches: {matches}")
    us = {name: median(times) / count * 1e6 for name, times in seconds.items()}
    return {
        "repeated": share,
        "events": count,
        "candidates_share": engine.tally.candidates / engine.tally.events,
        "on_to_off": us["on"] / us["off"],
        "on_to_dict": us["on"] / us["dict"],
    }


def nanoseconds(act: Callable[[bytes], object], keys: list[bytes]) -> float:
    """CPU time of ``act`` for a key."""
    began = time.process_time()
    for key in keys:
        act(key)
    return (time.process_time() - began) / len(keys) * 1e9


PREFIX = hashlib.md5(bytes(16), usedforsecurity=False)


def digest(value: bytes) -> bytes:
    """As ``Cache`` makes one."""
    state = PREFIX.copy()
    state.update(value)
    return state.digest()


def fill(entries: int, table: str) -> dict[str, Any]:
    """A store of ``entries`` slots, after twice as many were put in; or a dict of ``entries``."""
    store: Any = _Table() if table == "dict" else Store(entries * SLOT)
    puts = entries if table == "dict" else 2 * entries
    rng, answers = Random(3), [(i,) for i in range(1000)]
    sampled, spent = list[bytes](), list[float]()
    for first in range(0, puts, entries // 20):
        keys = [os.urandom(16) for _ in range(entries // 20)]
        spent.append(nanoseconds(lambda key: store.put(key, answers[key[0]], 1 << 20), keys))
        if first >= puts - entries // 2:
            sampled += rng.sample(keys, min(len(keys), 40_000))
    live = len(store) if table == "dict" else store.entries()
    size = sys.getsizeof(store) + live * sys.getsizeof(bytes(16)) if table == "dict" else store.bytes
    rng.shuffle(sampled)
    md5 = nanoseconds(digest, [bytes(64)] * 200_000)
    return {
        "table": table,
        "entries": live,
        "bytes_per_entry": (size + store.answer_bytes) / live,
        "put_ns": sum(spent) / len(spent),
        "hit_ns": nanoseconds(store.get, sampled) + md5,
        "miss_ns": nanoseconds(store.get, [os.urandom(16) for _ in sampled]) + md5,
        "of_it_md5_ns": md5,
        "found_share": sum(store.get(key) is not None for key in sampled) / len(sampled),
    }


def run(bench: Bench) -> dict[str, Any]:
    folder, count = bench.fresh("cache-rules"), bench.size(60_000, 5_000)
    # Every line is a candidate of a few, also by the native kernel: it does not know the program by this name.
    lines = b"".join(traffic.blocks(1, rules.SAMPLE)).splitlines()
    texts = rules.rules(1, bench.size(3000, 300), lines, share=1.0)
    rules.write(folder, [text.replace('"program":', '"log.syslog.appname":') for text in texts])
    plan = build([folder], sample=b"".join(traffic.blocks(2, rules.SAMPLE)))
    events = [compare(plan, count, share, bench.runs) for share in SHARES]
    sizes = (20_000,) if bench.quick else (1_000_000, 10_000_000)
    return {"tables": [events, [fill(size, table) for size in sizes for table in ("cache", "dict")]]}
