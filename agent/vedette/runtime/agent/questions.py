"""What the agent answers about itself besides its status: its rules, one rule, its disk, its versions. JSON-able.

The control socket offers them to the host's owner, and requests of the fleet's operators come to the same functions.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vedette.config.settings import DEFAULT_SET
from vedette.engine import kernel
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.plan.plan import Plan
from vedette.rules.authoring import explain
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.pipeline.pipeline import Pipeline
from vedette.runtime.rulesets.active import ActiveRules
from vedette.runtime.rulesets.deadrules import dead_rules
from vedette.runtime.strict.supervisor import StrictSet
from vedette.version import __version__

MAX_LINES = 500
"""Of an explanation."""
QUARANTINED_LINE = "  quarantined: "
"""Before the reason, in an explanation."""


class Strict(NamedTuple):
    """A rule set in strict isolation, as its process has it. ``quarantined``: rows of the status."""

    name: str
    plan: Plan | None
    """None when its file cannot be read: ``error`` says why."""
    quarantined: Sequence[Mapping[str, Any]]
    error: str = ""


async def strict(running: Mapping[str, StrictSet]) -> list[Strict]:
    """Reads their plans."""

    def read(name: str, path: Path, quarantined: Sequence[Mapping[str, Any]]) -> Strict:
        try:
            return Strict(name, Plan.from_bytes(Artifact.from_bytes(path.read_bytes()).plan), quarantined)
        except (OSError, ValueError) as error:
            return Strict(name, None, quarantined, f"the plan of rule set {name} cannot be read: {error}")

    sets = [(name, ruleset.isolated.plan, ruleset.figures.get("quarantined", ())) for name, ruleset in running.items()]
    return await asyncio.to_thread(lambda: [read(*ruleset) for ruleset in sets])


def rules(context: RunContext, active: ActiveRules, strict: Iterable[Strict]) -> list[dict[str, Any]]:
    """Every rule, correlation and statement that is loaded, by title, with its rule sets, and whether it is evaluated;
    those of the ``strict`` sets, too. Of a set whose plan cannot be read there is a row of the kind ``rule set``."""
    loaded = active.loaded
    together = loaded.together.sets if loaded.together else {}
    quarantined = {row["rule_id"]: row["reason"] for row in context.failures.quarantined.values()}
    rows = _listed(loaded.engine.plan, together, DEFAULT_SET, quarantined)
    for ruleset in strict:
        if ruleset.plan is None:
            unread = {"rule_id": "", "level": "", "kind": "rule set", "digest": "", "state": "unknown"}
            rows.append(unread | {"title": ruleset.name, "reason": ruleset.error, "ruleset": ruleset.name})
        else:
            aside = {row["rule_id"]: row["reason"] for row in ruleset.quarantined}
            rows += _listed(ruleset.plan, {}, ruleset.name, aside)
    return sorted(rows, key=lambda row: (row["title"], row["rule_id"], row["ruleset"]))


def _listed(
    plan: Plan, sets: Mapping[str, Iterable[str]], ruleset: str, quarantined: Mapping[str, str]
) -> list[dict[str, Any]]:
    """``sets``: those that a rule is in by its id, otherwise ``ruleset``; ``quarantined``: reasons by id."""
    rows = [
        {
            "rule_id": rule.id,
            "title": rule.title,
            "level": rule.level,
            "kind": rule.noun,
            "digest": rule.digest,
            "state": "quarantined" if rule.id in quarantined else "active",
            "reason": quarantined.get(rule.id, ""),
        }
        for rule in plan.written
    ]
    rows += [
        {"rule_id": rule.rule_id, "title": rule.title, "level": "", "kind": "", "digest": "", "state": "refused",
         "reason": rule.reason}
        for rule in plan.refused
    ]  # fmt: skip
    return [row | {"ruleset": ", ".join(sets.get(row["rule_id"], (ruleset,)))} for row in rows]


def busiest(pipeline: Pipeline, active: ActiveRules, most: int) -> dict[str, list[dict[str, Any]]]:
    """The rules that cost and that alert most, ``most`` of each, with their rule sets, strict ones among them.

    ``cost``: rules, with their share of the evaluation in all sets (by what a sample of the candidates asked), and of
    the microseconds of an event; ``alerts``: rules, correlations and statements, with their alerts since the start."""
    loaded, alerting, strict_sets = active.loaded, pipeline.checkpointer.by_rule, pipeline.strict
    apart = {} if strict_sets is None else strict_sets.running
    sets: Mapping[str, Iterable[str]] = loaded.together.sets if loaded.together else {}
    cost: list[dict[str, Any]] = [
        row | {"ruleset": ", ".join(sets.get(row["rule_id"], (DEFAULT_SET,))), "alerts": alerting[row["rule_id"]]}
        for row in loaded.engine.tally.dearest(loaded.engine.plan.rules, most)
    ]
    for name, process in apart.items():
        dearest = process.figures.get("dearest", ())
        cost += [row | {"ruleset": name, "alerts": process.by_rule[row["rule_id"]]} for row in dearest]
    strict = [row["us_per_event"] for row in ({} if strict_sets is None else strict_sets.status()).values()]
    whole = loaded.engine.tally.spent + sum(strict)
    if any(strict):
        cost = [row | {"share": row["us_per_event"] / whole} for row in cost]
    cost.sort(key=lambda row: -row["share"])
    titles = {rule.id: rule.title for rule in loaded.engine.plan.written}
    alerts: list[dict[str, Any]] = [
        {
            "rule_id": id,
            "title": titles.get(id, ""),
            "ruleset": ", ".join(sets.get(id, (DEFAULT_SET,))),
            "alerts": count,
        }
        for id, count in alerting.most_common(most)
    ]
    for name, process in apart.items():
        for id, count in process.by_rule.most_common(most):
            alerts.append({"rule_id": id, "title": process.titles.get(id, ""), "ruleset": name, "alerts": count})
    alerts.sort(key=lambda row: row["alerts"], reverse=True)
    return {
        "cost": [
            row | {"share": round(row["share"], 4), "us_per_event": round(row["us_per_event"], 4)}
            for row in cost[:most]
        ],
        "alerts": alerts[:most],
    }


def explained(context: RunContext, active: ActiveRules, strict: Iterable[Strict], rule: str) -> list[dict[str, Any]]:
    """What a rule is made of, a line each, as ``vedette rules explain`` prints it. Raises ValueError when none has this
    id."""
    engine, unread = active.loaded.engine, list[str]()
    lines = _explained(engine.plan, engine, rule)
    if lines:
        quarantined: Iterable[Mapping[str, Any]] = context.failures.quarantined.values()
        dead = dead_rules(context.config, engine).of(rule)
    for ruleset in strict:
        if lines:
            break
        if ruleset.plan is None:
            unread.append(f"; {ruleset.error}")
        elif lines := _explained(ruleset.plan, None, rule):
            lines.insert(1, f"  rule set {ruleset.name}, in strict isolation")
            written = {new: old for old, new in active.sets.renamed(ruleset.name).items()}
            quarantined, dead = ruleset.quarantined, active.sets.parts[ruleset.name].dead.of(written.get(rule, rule))
    if not lines:
        raise ValueError(f"no rule of the id {rule} is loaded here{''.join(unread)}")
    lines = lines[:MAX_LINES]
    lines += [f"{QUARANTINED_LINE}{row['reason']}" for row in quarantined if row["rule_id"] == rule]
    lines += [f"  makes no alert here: {reason}" for reason in dead]
    return [{"text": line} for line in lines]


def _explained(plan: Plan, engine: Engine | None, rule: str) -> list[str]:
    evaluator = engine.evaluator if engine else None
    parts = [
        *(explain.rule(plan, evaluator, number) for number, entry in enumerate(plan.rules) if entry.id == rule),
        *(explain.correlation(plan, entry) for entry in plan.correlations if entry.id == rule),
        *(explain.statement(entry) for entry in plan.statements if entry.id == rule),
    ]
    return [line for part in parts for line in part]


def disk(context: RunContext) -> dict[str, Any]:
    """The disk of the data folder, and what of it the agent takes. Raises OSError."""
    volume = os.statvfs(context.config.agent.data_dir)
    log = context.raw_log
    return {
        "data_dir": str(context.config.agent.data_dir),
        "disk_bytes": volume.f_frsize * volume.f_blocks,
        "disk_free_bytes": volume.f_frsize * volume.f_bavail,
        "raw_log_bytes": log.size(),
        "raw_log_max_bytes": context.config.raw_log.max_bytes,
        "raw_log_oldest": log.oldest(),
        "outbox_bytes": context.outbox.account().bytes,
        "dead_letter_bytes": context.dead_letters.bytes(),
        "failing": context.health.status(),
    }


def versions(context: RunContext, active: ActiveRules) -> dict[str, Any]:
    """What runs here."""
    return {
        "vedette": __version__,
        "python": platform.python_version(),
        "kernel": kernel.LOADED is not None,
        "system": platform.platform(),
        "bundles": {name: active.bundle(name) for name in active.sets.members},
        "plan_digest": active.loaded.engine.plan.digest,
        "started_at": context.started_at,
    }
