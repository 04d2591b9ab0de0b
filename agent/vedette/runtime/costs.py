"""What each rule set costs, of the sets that are evaluated as one plan: their shares of it, measured by a sample.

Evaluation takes one time for all of them; each set's share of it is its share of the rules that a sample of the
candidates had to be asked about (``Tally.asked``). What sets have alike counts for each in equal parts. All figures are
since the plan began to run. A set in strict isolation has figures of its own (``strict/sets.py``); its share is its
part of what evaluation took in all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from vedette.config.settings import DEFAULT_SET
from vedette.runtime.pipeline import Pipeline
from vedette.runtime.rules import Loaded

_FIRST = (DEFAULT_SET,)


def costs(
    pipeline: Pipeline, loaded: Loaded, state: Mapping[str, Any], statements: Mapping[str, Any],
    quarantined: Iterable[Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """JSON-able, by set; ``state``, ``statements``, ``quarantined``: as in the status."""
    sets: Mapping[str, tuple[str, ...]] = loaded.together.sets if loaded.together else {}
    plan, tally, context = loaded.engine.plan, loaded.engine.tally, pipeline.context

    def split(by_id: Iterable[tuple[str, float]]) -> defaultdict[str, float]:
        shares = defaultdict[str, float](float)
        for rule_id, amount in by_id:
            names = sets.get(rule_id, _FIRST)
            for name in names:
                shares[name] += amount / len(names)
        return shares

    asked = split((plan.rules[number].id, times) for number, times in tally.asked.items())
    total = sum(asked.values())
    if not total:
        asked = split((rule.id, 1.0) for rule in plan.rules)
        total = sum(asked.values()) or 1.0
    groups = state["bytes"] / (state["groups"] or 1)
    used = split(
        [
            *((entry["rule_id"], entry["groups"] * groups) for entry in state["correlations"]),
            *((entry["rule_id"], entry["bytes"]) for entry in statements["statements"]),
        ]
    )
    alerts = split(pipeline.checkpointer.made.items())
    aside = split((entry["rule_id"], 1.0) for entry in quarantined)
    strict = pipeline.strict.status()
    apart = {name: row["us_per_event"] for name, row in strict.items()}
    merged = loaded.engine.tally.spent
    whole = (merged + sum(apart.values())) or 1.0
    rows = {
        name: {
            "cpu_share": round(asked[name] / total * (merged / whole if any(apart.values()) else 1.0), 4),
            "us_per_event": round(merged * asked[name] / total, 4),
            "state_bytes": round(used[name]),
            "alerts": round(alerts[name]),
            "quarantined": round(aside[name]),
            "lag_events": sum(pipeline.backlog.values()),
            "lag_seconds": context.progress.lag(context.clock()),
        }
        for name in dict.fromkeys([DEFAULT_SET, *(name for names in sets.values() for name in names)])
    }
    return rows | {name: {"cpu_share": round(apart[name] / whole, 4), **row} for name, row in strict.items()}
