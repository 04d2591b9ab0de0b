"""Scenario ``rulesets``: ten rule sets merged as an agent merges them, against ten plans apart, against one of them.

Whole agents (CPU time an event, and memory): with one set; with ten ``[[ruleset]]`` tables (``ratio`` to one); with
their rules as a single set (``ratio_same``), so that what merging costs shows; with two sets, merged and with the
second in strict isolation. The sets are of one size, with the same few tuned rules in the first, so the share of
candidates stays and only the number of sets changes.

The engine alone: each way is a process of its own that evaluates the same lines, by turns; alerts, log and store are no
part of it. ``python -m bench.rulesets LINES RULESET…`` is such a process: it prints microseconds of CPU time an event,
how many matches there were, and by how much its memory grew when the rule sets were loaded.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.agent import Bundle, syslog_input
from bench.drive import SEED, Bench, Wrong, middle, plan_of, running, stream_run
from tests.broker import own_port
from vedette.engine.artifact import Artifact
from vedette.engine.cache import Cache
from vedette.engine.match import Context
from vedette.model.event import LogSource
from vedette.plan.merge import merge
from vedette.plan.plan import Plan
from vedette.runtime.offline import scan
from vedette.system.memory import resident

SETS, SIZE = 10, 300
WAYS = {"one": "one of them", "merged": "ten, merged", "apart": "ten, a plan each"}


def run(bench: Bench) -> dict[str, Any]:
    size, lines = bench.size(SIZE, 30), bench.size(400_000, 20_000)
    stream = bench.stream(lines)
    folders = [bench.rules(size, 0.0 if n else 0.01, seed=SEED + 30 + n) for n in range(SETS)]
    bundles = [bench.bundle(folder) for folder in folders]
    plans = [plan_of(bundle) for bundle in bundles]
    merged = merge({f"set{number}": plan for number, plan in enumerate(plans)}).plan
    ways: dict[str, list[Plan]] = {"one": plans[:1], "merged": [merged], "apart": plans}
    files: dict[str, list[str]] = {way: [] for way in WAYS}
    for way, parts in ways.items():
        for i, plan in enumerate(parts):
            file = bench.folder / f"rulesets-{way}{i}.vplan"
            file.write_bytes(Artifact.of(plan).to_bytes())
            files[way].append(str(file))
    results: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(bench.runs):
        for way in WAYS:
            command = [sys.executable, "-m", "bench.rulesets", str(stream), *files[way]]
            results[way].append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    if {result["matches"] for result in results["merged"]} != {result["matches"] for result in results["apart"]}:
        raise Wrong("the merged sets do not find what they find apart")
    engine = [
        {
            "engine alone": text,
            "rules": size * (1 if way == "one" else SETS),
            "µs an event": median(result["us_per_event"] for result in results[way]),
            "MB of memory for it": median(result["memory_mb"] for result in results[way]),
        }
        for way, text in WAYS.items()
    ]
    whole = {
        "one": bundles[0],
        "ten, merged": Several(bundles),
        "the same rules as one set": bench.bundle(*folders),
        "two, merged": Several(bundles[:2]),
    }
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in whole}
    for _ in range(bench.runs):
        for name, bundle in whole.items():
            runs[name].append(stream_run(bench, "rulesets", bundle, stream, lines, check=False))
    middles = {name: middle(rows) for name, rows in runs.items()}
    agents = [{"whole agents": k, "µs an event": v["us_per_event"], "MB": v["rss_mb"]} for k, v in middles.items()]
    isolated = middle([strict(bench, bundles[:2], stream, lines) for _ in range(bench.runs)], "us_per_event")
    for who, us, mb in (("the agent", "agent_us", "agent_mb"), ("the set's process", "process_us", "resident_mb")):
        agents.append({"whole agents": f"two, one strict: {who}", "µs an event": isolated[us], "MB": isolated[mb]})
    alone, together, same = (middles[name]["us_per_event"] for name in (*whole,)[:3])
    more = (same - alone) / (SETS - 1) / size * 1000
    return {
        "tables": [engine, agents],
        "said": f"A further 1,000 rules cost {more:.3f} µs an event. Of the set's process {isolated['private_mb']:g} MB"
        " are private.",
        "ratio": round(together / alone, 3),
        "ratio_same": round(same / alone, 3),
    }


def strict(bench: Bench, bundles: Sequence[Bundle], stream: Path, lines: int) -> dict[str, Any]:
    """Two sets, the second strict: CPU time an event of agent and process, and memory."""
    port = own_port()
    inputs = syslog_input(port, "tcp", 'format = "syslog"\nlogsource = { product = "linux" }')
    settings = Several(bundles, isolation="strict").settings
    with running(bench, "rulesets-strict", inputs, settings, port=port) as run:
        run.agent.wait(lambda status: status["rulesets"][1]["process"]["running"], 60)
        before = run.agent.wait()["rulesets"][1]["process"]["cpu_seconds"]
        run.mark()
        run.sent(("127.0.0.1", port), stream.read_bytes(), lines)

        def done(status: dict[str, Any]) -> bool:
            inputs = status["rulesets"][1]["process"]["inputs"].values()
            return sum(int(row["judged"]) for row in inputs) >= lines

        run.evaluated(lines, pause=0.1)
        process = run.agent.wait(done, 600)["rulesets"][1]["process"]
        after, _ = run.finished(lines)
        run.ended()
    agent, own = after.seconds - run.before.seconds, process["cpu_seconds"] - before
    row = {
        "agent_us": round(agent / lines * 1e6, 3),
        "process_us": round(own / lines * 1e6, 3),
        "us_per_event": round((agent + own) / lines * 1e6, 3),
        "agent_mb": after.rss_mb,
        "private_mb": round(process["private_bytes"] / 1e6, 1),
        "resident_mb": round(process["resident_bytes"] / 1e6, 1),
    }
    bench.say(f"  strict: {row}")
    return row


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
    before = resident()
    engines = [Artifact.from_bytes(Path(file).read_bytes()).engine() for file in files]
    for engine in engines:
        engine.remember(Cache(0))
        engine.evaluator.load()
    loaded, context, events, matches = resident() - before, Context(logsource=LogSource("linux")), 0, 0
    chunks = list(scan.lines(io.BytesIO(Path(stream).read_bytes()), "syslog", 1_700_000_000_000_000))
    began = time.process_time()
    for chunk in chunks:
        events += len(chunk)
        for engine in engines:
            matches += sum(1 for _ in engine.evaluate(chunk, context))
    spent = time.process_time() - began
    row = {"us_per_event": round(spent / events * 1e6, 3), "matches": matches, "memory_mb": round(loaded / 1e6, 1)}
    print(json.dumps(row))


if __name__ == "__main__":
    main(*sys.argv[1:])
