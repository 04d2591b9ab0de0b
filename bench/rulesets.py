"""Scenario ``rulesets``: ten rule sets merged as an agent merges them, against ten plans apart, against one of them.

``ratio`` is of whole agents with ten ``[[ruleset]]`` tables and with one set, ``agent_same`` of one with their rules as
a single set, so that what merging costs shows; ``strict`` of agents with two sets,
merged and with the second in strict isolation: CPU time an event of agent and process, and the process's memory. Beside
that the engine alone: each way is a process of its own that evaluates the same lines, by turns; alerts, log and store
are no part of it. ``python -m bench.rulesets LINES RULESET…`` is such a process: it prints microseconds of CPU time an
event, how many matches there were, and its memory, of which a good part is the interpreter's.
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

from bench import rules, send
from bench.agent import Bundle, syslog_input
from bench.drive import SEED, Bench, Wrong, middle, running, stream_run
from tests.broker import own_port
from vedette.engine.artifact import Artifact
from vedette.engine.cache import Cache
from vedette.engine.match import Context
from vedette.model.event import Chunk, LogSource
from vedette.plan.merge import merge
from vedette.plan.plan import Plan
from vedette.system.memory import resident

SETS, SIZE = 10, 300
CHUNK_LINES = 2000
WAYS = ("one", "merged", "apart")


def run(bench: Bench) -> dict[str, Any]:
    size, lines = bench.size(SIZE, 30), bench.size(400_000, 20_000)
    sample = bench.stream(rules.SAMPLE).read_bytes().splitlines()
    plans, bundles, folders = list[Plan](), list[Bundle](), list[Path]()
    for number in range(SETS):
        folder = bench.folder / f"ruleset-{size}-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        rules.write(folder, rules.rules(SEED + 30 + number, size, sample, share=0.0 if number else 0.01))
        folders.append(folder)
        bundles.append(bench.bundle(folder))
        plans.append(Plan.from_bytes(bundles[-1].plan()))
    stream = str(bench.stream(lines))
    ways = {
        "one": plans[:1],
        "merged": [merge({f"set{number}": plan for number, plan in enumerate(plans)}).plan],
        "apart": plans,
    }
    files = {way: [str(compiled(bench, f"{way}{i}", plan)) for i, plan in enumerate(ways[way])] for way in WAYS}
    results: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(bench.runs):
        for way in WAYS:
            command = [sys.executable, "-m", "bench.rulesets", stream, *files[way]]
            results[way].append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    if {result["matches"] for result in results["merged"]} != {result["matches"] for result in results["apart"]}:
        raise Wrong("the merged sets do not find what they find apart")
    rows = list[dict[str, Any]]()
    for way in WAYS:
        us, memory = (median(result[name] for result in results[way]) for name in ("us_per_event", "memory_mb"))
        bench.say(f"  {way}: {us} µs an event, {memory} MB")
        rows.append(
            {"way": way, "rules": size * (1 if way == "one" else SETS), "us_per_event": us, "memory_mb": memory}
        )
    agents = dict[str, list[dict[str, Any]]]()
    for _ in range(bench.runs):
        for name, few in (("one", bundles[:1]), ("merged", bundles), ("same", [bench.bundle(*folders)])):
            row = stream_run(bench, f"rulesets-{name}", Several(few), Path(stream), lines, check=False)
            agents.setdefault(name, []).append(row)
    alone, together = middle(agents["one"]), middle(agents["merged"])
    first, merged = alone["us_per_event"], together["us_per_event"]
    same = middle(agents["same"])["us_per_event"]
    bench.say(f"  agents: one {first}, ten merged {merged}, the same rules as one set {same} µs an event")
    return {
        "rows": rows,
        "agent_one": first,
        "agent_merged": merged,
        "agent_same": same,
        "agent_one_mb": alone["rss_mb"],
        "agent_merged_mb": together["rss_mb"],
        "ratio": round(merged / first, 3),
        "strict": middle([strict(bench, bundles[:2], Path(stream), lines) for _ in range(bench.runs)], "us_per_event"),
        "lines": lines,
    }


def strict(bench: Bench, bundles: Sequence[Bundle], stream: Path, lines: int) -> dict[str, Any]:
    """Two sets, merged and with the second strict."""
    merged = stream_run(bench, "rulesets-two", Several(bundles), stream, lines, check=False)
    port = own_port()
    inputs = syslog_input(port, "tcp", 'format = "syslog"\nlogsource = { product = "linux" }')
    with running(bench, "rulesets-strict", inputs, Several(bundles, isolation="strict"), port=port) as run:
        run.agent.wait(lambda status: status["rulesets"][1]["process"]["running"], 60)
        before = run.agent.wait(lambda status: True, 30)["rulesets"][1]["process"]["cpu_seconds"]
        run.mark()
        sent = send.tcp(("127.0.0.1", port), stream.read_bytes())
        if not sent.complete or sent.lines != lines:
            raise Wrong(f"sent {sent.lines} of {lines} lines: {sent.cut}")

        def done(status: dict[str, Any]) -> bool:
            inputs = status["rulesets"][1]["process"]["inputs"].values()
            return sum(int(row["judged"]) for row in inputs) >= lines

        run.evaluated(lines, pause=0.1)
        process = run.agent.wait(done, 600)["rulesets"][1]["process"]
        after, _ = run.finished(lines)
        if code := run.agent.stop():
            raise Wrong(f"the agent ended with {code}:\n{run.agent.tail()}")
    agent, own = after.seconds - run.before.seconds, process["cpu_seconds"] - before
    row = {
        "merged_us_per_event": merged["us_per_event"],
        "agent_us_per_event": round(agent / lines * 1e6, 3),
        "process_us_per_event": round(own / lines * 1e6, 3),
        "us_per_event": round((agent + own) / lines * 1e6, 3),
        "private_mb": round(process["private_bytes"] / 1e6, 1),
        "resident_mb": round(process["resident_bytes"] / 1e6, 1),
    }
    bench.say(f"  strict: {row}")
    return row


def compiled(bench: Bench, name: str, plan: Plan) -> Path:
    path = bench.folder / f"rulesets-{name}.vplan"
    path.write_bytes(Artifact.of(plan).to_bytes())
    return path


class Several(Bundle):
    """Bundles as rule sets of one agent."""

    def __init__(self, bundles: Sequence[Bundle], isolation: str = "merged") -> None:
        self._bundles, self._isolation = tuple(bundles), isolation

    @property
    def settings(self) -> str:
        first, *others = self._bundles
        keys = ", ".join(f'"{bundle.key}"' for bundle in self._bundles)
        own = f'isolation = "{self._isolation}"\nmax_cpu = 1.0\n'
        sets = [f'[[ruleset]]\nname = "set{i}"\nfile = "{bundle.file}"\n{own}' for i, bundle in enumerate(others, 1)]
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
