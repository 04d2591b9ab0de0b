"""``python -m vedette.rules.retune PLAN OUT``: choose other literals for a plan, by the traffic.

The agent runs this in a subprocess when many of its events are candidates. Standard input is a sample of what it
receives. Where the literals chosen by that sample leave fewer than half as many rules to look at, OUT is the compiled
rule set with them.
The meaning is the same: nothing but ``literals`` and ``further`` differs (``same_meaning``).

Prints one JSON line ``{"before", "after"}``, rules to look at per event. Exit code 0: OUT is written; 3: it would not
gain enough; 2 and a message: it failed. It needs no rule front-end, so bundles are served as well.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from vedette.engine.artifact import Artifact
from vedette.engine.prefilter import measured
from vedette.plan.literals import Literals, Measured, candidates
from vedette.plan.plan import Plan
from vedette.plan.witness import witness
from vedette.system.durable import write_whole

GAIN = 2.0
"""So many times fewer rules to look at the new choice must leave."""
NO_GAIN = 3
MAX_SAMPLE = 16 << 20


def looks(plan: Plan, cost: Measured) -> float:
    """Rules that an event is a candidate of, on average; those that only their log source tells are left out."""
    further: Sequence[Literals | None] = plan.further or (None,) * len(plan.rules)
    total = 0.0
    for rule, *both in zip(plan.rules, plan.literals, further, strict=True):
        chosen = [clause for clause in both if clause is not None]
        total += cost.share(chosen) if chosen else float(witness(rule.logsource) is None)
    return total


def retuned(plan: Plan, sample: bytes) -> tuple[Plan, float, float]:
    """``plan`` with literals by ``sample``; the looks per event before and after."""
    literals: set[bytes] = set()
    for rule in plan.rules:
        literals |= candidates(rule.expr, plan.predicates)
    for chosen in (*plan.literals, *plan.further):
        literals |= chosen or frozenset()
    cost = measured(literals, sample[:MAX_SAMPLE])
    new = plan.chosen(cost)
    return new, looks(plan, cost), looks(new, cost)


def same_meaning(plan: Plan, other: Plan) -> bool:
    """True when the two plans differ in the choice of literals at most."""
    return plan == replace(other, literals=plan.literals, further=plan.further, names=plan.names)


def main(arguments: Sequence[str]) -> int:
    plan_path, out = map(Path, arguments)
    try:
        artifact = Artifact.from_bytes(plan_path.read_bytes())
        plan = Plan.from_bytes(artifact.plan)
        new, before, after = retuned(plan, sys.stdin.buffer.read())
        gains = before > GAIN * after
        if gains:
            write_whole(out, Artifact.of(new)._replace(lookups=artifact.lookups).to_bytes())
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.buffer.write(orjson.dumps({"before": round(before, 4), "after": round(after, 4)}) + b"\n")
    return 0 if gains else NO_GAIN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
