"""Scenario ``rulesets``: ten rule sets merged as an agent merges them, against ten plans apart, against one of them.

``ratio`` is of whole agents with ten ``[[ruleset]]`` tables and with one set. Beside it the engine alone: each way is a
process of its own that evaluates the same lines, by turns; alerts, log and store are no part of it. ``python -m
bench.rulesets LINES RULESET…`` is such a process: it prints microseconds of CPU time an event, how many
matches there were, and its memory, of which a good part is the interpreter's.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench import rules
from bench.agent import Bundle
from bench.drive import SEED, Bench, Wrong, middle, stream_run
from vedette.engine.artifact import Artifact
from vedette.engine.cache import Cache
from vedette.engine.match import Context
from vedette.model.event import Chunk, LogSource
from vedette.plan.merge import merge
from vedette.plan.plan import Plan
from vedette.system.resident import resident

SETS, SIZE = 10, 300
CHUNK_LINES = 2000
WAYS = ("one", "merged", "apart")


def run(bench: Bench) -> dict[str, Any]:
    size, lines = bench.size(SIZE, 30), bench.size(400_000, 20_000)
    sample = bench.stream(rules.SAMPLE).read_bytes().splitlines()
    plans, bundles = list[Plan](), list[Bundle]()
    for number in range(SETS):
        folder = bench.folder / f"ruleset-{size}-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        rules.write(folder, rules.rules(SEED + 30 + number, size, sample, share=0.0 if number else 0.01))
        bundles.append(bench.bundle(folder))
        plans.append(Plan.from_bytes(bundles[-1].plan()))
    stream = str(bench.stream(lines))
    ways = {
        "one": plans[:1],
        "merged": [merge({f"set{number}": plan for number, plan in enumerate(plans)}).plan],
        "apart": plans,
    }
    files = {way: [str(compiled(bench, f"{way}{i}", plan)) for i, plan in enumerate(ways[way])] for way in WAYS}
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(bench.runs):
        for way in WAYS:
            command = [sys.executable, "-m", "bench.rulesets", stream, *files[way]]
            found[way].append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    if {one["matches"] for one in found["merged"]} != {one["matches"] for one in found["apart"]}:
        raise Wrong("the merged sets do not find what they find apart")
    rows = list[dict[str, Any]]()
    for way in WAYS:
        us, memory = (median(one[name] for one in found[way]) for name in ("us_per_event", "memory_mb"))
        bench.say(f"  {way}: {us} µs an event, {memory} MB")
        rows.append(
            {"way": way, "rules": size * (1 if way == "one" else SETS), "us_per_event": us, "memory_mb": memory}
        )
    agents = dict[str, list[dict[str, Any]]]()
    for _ in range(bench.runs):
        for name, few in (("one", bundles[:1]), ("merged", bundles)):
            row = stream_run(bench, f"rulesets-{name}", Several(few), Path(stream), lines, check=False)
            agents.setdefault(name, []).append(row)
    alone, together = middle(agents["one"]), middle(agents["merged"])
    first, merged = alone["us_per_event"], together["us_per_event"]
    bench.say(f"  agents: one {first}, ten merged {merged} µs an event")
    return {
        "rows": rows,
        "agent_one": first,
        "agent_merged": merged,
        "agent_one_mb": alone["rss_mb"],
        "agent_merged_mb": together["rss_mb"],
        "ratio": round(merged / first, 3),
        "lines": lines,
    }


def compiled(bench: Bench, name: str, plan: Plan) -> Path:
    path = bench.folder / f"rulesets-{name}.vplan"
    path.write_bytes(Artifact.of(plan).to_bytes())
    return path


class Several(Bundle):
    """Bundles as rule sets of one agent."""

    def __init__(self, bundles: Sequence[Bundle]) -> None:
        self._bundles = tuple(bundles)

    @property
    def settings(self) -> str:
        first, *others = self._bundles
        keys = ", ".join(f'"{one.key}"' for one in self._bundles)
        sets = [f'[[ruleset]]\nname = "set{i}"\nfile = "{one.file}"\n' for i, one in enumerate(others, 1)]
        return f'[bundles]\nfile = "{first.file}"\ntrusted_keys = [{keys}]\n' + "".join(sets)


def main(stream: str, *files: str) -> None:
    engines = [Artifact.from_bytes(Path(file).read_bytes()).engine() for file in files]
    for engine in engines:
        engine.remember(Cache(0))
        engine.evaluator.load()
    context, chunks, events, matches = Context(logsource=LogSource("linux")), list[Chunk](), 0, 0
    lines = Path(stream).read_bytes().splitlines(keepends=True)
    for at in range(0, len(lines), CHUNK_LINES):
        some = lines[at : at + CHUNK_LINES]
        chunks.append(Chunk("in", "syslog", 1_700_000_000_000_000 + at, b"".join(some)))
        events += len(some)
    loaded = resident() - sum(len(chunk.data) for chunk in chunks) - sum(map(sys.getsizeof, lines))
    del lines
    began = time.process_time()
    for chunk in chunks:
        for engine in engines:
            matches += sum(1 for _ in engine.evaluate(chunk, context))
    spent = time.process_time() - began
    row = {"us_per_event": round(spent / events * 1e6, 3), "matches": matches, "memory_mb": round(loaded / 1e6, 1)}
    print(json.dumps(row))


if __name__ == "__main__":
    main(*sys.argv[1:])
