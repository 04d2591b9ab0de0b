"""``python -m bench.prefilter --rules DIR --sample FILE STREAM``: what the prefilter leaves of a stream, and its cost.

Compiles the rules, chooses literals by the sample (``--guess``: without it), judges the lines of STREAM as the agent
does, in chunks of 256 KiB, and prints one JSON object. ``scan_us`` and ``judge_us`` are CPU time per event: finding the
candidates, and decoding and evaluating them. The share of candidates and ``rules_per_candidate`` do not depend on the
machine. ``matches`` must equal those of ``--check``, which judges the first 2,000 lines without the prefilter, too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vedette.engine.join import Joined, Joiner
from vedette.engine.match import Context, Engine
from vedette.model.event import CHUNK_BYTES, Chunk, Frame, LogSource
from vedette.rules import build

CHECKED = 2000


def chunks(data: bytes, codec: str) -> list[Chunk]:
    """``data`` in chunks that end with a line."""
    made, at = [], 0
    while at < len(data):
        end = data.rfind(b"\n", at, at + CHUNK_BYTES) + 1 or data.index(b"\n", at) + 1
        made.append(Chunk("bench", codec, 0, data[at:end]))
        at = end
    return made


def candidates(engine: Engine, chunk: Chunk, context: Context) -> Iterator[Joined]:
    """The events of ``chunk`` by itself that are to be evaluated."""
    return engine.candidates(Frame(0, chunk), Joiner(), context)


def measure(engine: Engine, stream: list[Chunk], context: Context) -> dict[str, Any]:
    """Candidates and CPU time of one engine over a stream: the median of three passes after one that warms up."""
    inputs = [(stream[0].codec, context.logsource)]
    engine.prepare(inputs)
    events = sum(map(len, stream))
    scans, alls = [], []
    for _ in range(4):
        began = time.process_time()
        found = [sum(1 for _ in candidates(engine, chunk, context)) for chunk in stream]
        scanned = time.process_time()
        matches = sum(1 for chunk in stream for _ in engine.evaluate(chunk, context))
        scans.append(scanned - began)
        alls.append(time.process_time() - scanned)
    looked = [len(c.rules) for chunk in stream for c in candidates(engine, chunk, context)]
    scan, whole = (statistics.median(seconds[1:]) / events * 1e6 for seconds in (scans, alls))
    return {
        "events": events,
        "candidates": round(sum(found) / events, 4),
        "rules_per_candidate": round(sum(looked) / max(1, len(looked)), 2),
        "matches": matches,
        "scan_us": round(scan, 2),
        "judge_us": round(max(0.0, whole - scan), 2),
        "event_us": round(whole, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What the prefilter leaves of a stream, and what that costs.")
    parser.add_argument("--rules", type=Path, required=True)
    parser.add_argument("--sample", type=Path, required=True)
    parser.add_argument("--guess", action="store_true", help="choose literals without the sample")
    parser.add_argument("--format", default="auto")
    parser.add_argument("--product", default="")
    parser.add_argument("--check", action="store_true", help="judge the first 2,000 lines without the prefilter, too")
    parser.add_argument("stream", type=Path)
    given = parser.parse_args()
    rules = build.load([given.rules])
    plan = build.from_rules(rules, sample=b"" if given.guess else given.sample.read_bytes())
    context = Context(None, LogSource(given.product))
    data = given.stream.read_bytes()
    engine = Engine(plan, quarantine_after=1 << 40)
    result = measure(engine, chunks(data, given.format), context)
    result |= {
        "rules": len(plan.rules),
        "reaching": len(engine.reaching(given.format, context.logsource)),
        "without_literals": len(plan.always),
        "with_two": sum(1 for clause in plan.further if clause is not None),
        "database_bytes": sum(map(len, engine.prefilter.databases().values())),
    }
    if given.check:
        first = chunks(b"".join(data.splitlines(keepends=True)[:CHECKED]), given.format)
        off = Engine(plan, engine.databases(), prefilter=False, quarantine_after=1 << 40)
        sides = [[(m.start, m.rule) for chunk in first for m in one.evaluate(chunk, context)] for one in (engine, off)]
        result["equal_without_prefilter"] = sides[0] == sides[1]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
