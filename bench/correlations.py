"""Scenario ``correlations``: how fast correlations take in matches, and what a live group costs.

Matches come in the order of time, ``STEP`` apart, from one source; each group gets ``matches`` first, so that all are
alive, then they come to groups at random; the window is longer than all of it, so that a single group ends with
everything in it. Bytes a live group are what the process's resident state grew by while the groups were made over
their number, beside what the state itself accounts for. What is decided late (averages, medians, percentiles) is
decided ``DECIDED`` after its event, within the time measured. With ``commits`` what changed is committed to a store on
disk every COMMIT_EVERY updates, as the agent does every 100 ms; the median of several runs is reported. Each figure is
of a process of its own: ``python -m bench.correlations KIND GROUPS UPDATES MATCHES [commits]`` prints it as JSON.
"""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vedette.model.event import Cursor
from vedette.plan.aggregates import Kind
from vedette.plan.plan import Plan
from vedette.plan.relation import Correlation, Slot
from vedette.state.correlate import Correlator
from vedette.state.graph import Item
from vedette.state.state import State
from vedette.store.store import Store
from vedette.system.memory import resident

if TYPE_CHECKING:
    from bench.drive import Bench

STEP = 10
"""Microseconds between two matches."""
COMMIT_EVERY = 30_000
DECIDED = 100_000
"""Microseconds; of other kinds the lateness is the agent's."""
KINDS = (Kind.EVENT_COUNT, Kind.VALUE_COUNT, Kind.TEMPORAL_ORDERED)
LARGE = (Kind.EVENT_COUNT, *KINDS[1:], Kind.TEMPORAL, *sorted(kind for kind in Kind if kind.row.numeric))
GROUPS = (1000, 100_000, 1_000_000)
FULL = 10
"""Matches in each group, when it is to be as full as a threshold of ten leaves it."""


def correlation(kind: Kind, **changes: Any) -> Correlation:
    settings: dict[str, Any] = {
        "id": "c", "title": "t", "level": "high", "tags": (), "slots": (Slot("r", False),), "group_by": ("src",),
        "span": 60_000_000, "bounds": (("gte", 5),), "digest": "d",
    }  # fmt: skip
    return Correlation(kind=kind, **{**settings, **changes})


def usual(kind: Kind) -> Correlation:
    """One of the kind, as rules have it."""
    if kind is Kind.VALUE_COUNT or kind.row.numeric:
        return correlation(kind, field=("v",))
    if kind in (Kind.TEMPORAL, Kind.TEMPORAL_ORDERED):
        return correlation(kind, slots=(Slot("r", False), Slot("s", False)), bounds=(("gte", 2),))
    return correlation(kind)


def group(number: int) -> tuple[str, ...]:
    return (f"203.{number >> 16}.{number >> 8 & 255}.{number & 255}",)


def measure(kind: Kind, groups: int, updates: int, matches: int, commits: bool) -> dict[str, Any]:
    """See the module's text."""
    c = usual(kind) if matches == 1 else correlation(kind, bounds=(("gte", matches),))
    lateness = 30_000_000 if c.prompt else DECIDED
    state = State(Plan((), (), (), correlations=(c,)), log_id="b", lateness=lateness, max_bytes=1 << 40)
    correlator, clock = state.correlator, state.clock
    assert isinstance(correlator, Correlator)
    node, rng = correlator.nodes[0], random.Random(1)
    values: list[Any] = [None]
    if c.field:
        values = list(range(50)) if kind.row.numeric else [str(i) for i in range(50)]
    slots = len(node.c.slots)
    gc.collect()
    before, at = resident(), 0
    for number in range(groups * matches):
        at += STEP
        source, _ = clock.observe("in", "h", at)
        correlator.add((Item(node, 0, group(number % groups), values[0], None),), source, at, at * 10, 100)
        if number % COMMIT_EVERY == 0:
            state.delta()
    state.delta()
    live = len(correlator.groups)
    grown, accounted = resident() - before, correlator.groups.bytes
    if live != groups:
        raise RuntimeError(f"{live} of {groups} groups are alive")
    items = [Item(node, i % slots, group(rng.randrange(groups)), values[i % len(values)], None) for i in range(updates)]
    counters: dict[str, dict[str, int]] = {"inputs": {}, "totals": {}}
    fired = written = 0
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        began = time.process_time()
        for i, item in enumerate(items):
            at += STEP
            source, _ = clock.observe("in", "h", at)
            fired += len(correlator.add((item,), source, at, at * 10, 100))
            if commits and i % COMMIT_EVERY == COMMIT_EVERY - 1:
                delta = state.delta()
                written += len(delta)
                store.commit(Cursor("b" * 32, at * 10), counters, (), (), delta, state.rewritten)
                if not state.rewriting and store.state.is_long():
                    state.rewrite()
                    store.state.begins()
        seconds = time.process_time() - began
    return {
        "kind": str(kind),
        "groups": groups,
        "matches": matches,
        "commits": commits,
        "updates_per_cpu_second": round(updates / seconds),
        "firings": fired,
        "bytes_per_group": round(grown / groups) if groups > 1 else None,
        "bytes_per_group_accounted": round(accounted / groups) if groups > 1 else None,
        "committed_bytes_per_update": round(written / updates, 1),
    }


def run(bench: Bench) -> dict[str, Any]:
    """``rows``: each kind at each number of groups, all in one group, with commits, and groups that are full."""
    sizes = GROUPS if not bench.quick else GROUPS[:1]
    wanted = [(kind, groups, 1, False) for kind in KINDS for groups in sizes]
    wanted += [(kind, 1, 1, False) for kind in LARGE]
    wanted += [(Kind.EVENT_COUNT, groups, 1, True) for groups in sizes[:2]]
    wanted += [(Kind.EVENT_COUNT, groups, FULL, False) for groups in sizes[-2:-1]]
    rows = []
    for kind, groups, matches, commits in wanted:
        updates = bench.size(200_000 if groups > 1 else 50_000, 10_000)
        options = [str(kind), str(groups), str(updates), str(matches), *(["commits"] if commits else [])]
        runs = [_in_a_process(options) for _ in range(bench.runs if commits else 1)]
        rows.append(sorted(runs, key=lambda row: row["updates_per_cpu_second"])[len(runs) // 2])
        bench.say(f"  {rows[-1]}")
    return {"tables": [rows]}


def _in_a_process(options: list[str]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "bench.correlations", *options], capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace")[-2000:])
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    given_groups, given_updates, given_matches = map(int, sys.argv[2:5])
    print(json.dumps(measure(Kind(sys.argv[1]), given_groups, given_updates, given_matches, "commits" in sys.argv)))
