"""What the agent answers about itself besides its status: its rules, one rule, its disk, its versions. JSON-able.

The control socket offers them to the host's owner, and requests of the fleet's operators come to the same functions.
"""

from __future__ import annotations

import os
import platform
from typing import Any

from vedette import __version__
from vedette.engine import kernel
from vedette.plan.ir import Rule
from vedette.plan.query import Statement
from vedette.rules.authoring import explain
from vedette.runtime.active import ActiveRules
from vedette.runtime.context import RunContext
from vedette.runtime.deadrules import dead_rules

MAX_LINES = 500
"""Of an explanation."""


def rules(context: RunContext, active: ActiveRules) -> list[dict[str, Any]]:
    """Every rule, correlation and statement that is loaded, by title, and whether it is evaluated."""
    plan = active.loaded.engine.plan
    quarantined = {row["rule_id"]: row["reason"] for row in context.failures.quarantined.values()}
    found = [
        {
            "rule_id": one.id,
            "title": one.title,
            "level": one.level,
            "kind": "rule" if isinstance(one, Rule) else "statement" if isinstance(one, Statement) else "correlation",
            "digest": one.digest,
            "state": "quarantined" if one.id in quarantined else "active",
            "reason": quarantined.get(one.id, ""),
        }
        for one in plan.written
    ]
    refused = [
        {"rule_id": one.rule_id, "title": one.title, "level": "", "kind": "", "digest": "", "state": "refused",
         "reason": one.reason}
        for one in plan.refused
    ]  # fmt: skip
    return sorted([*found, *refused], key=lambda row: (row["title"], row["rule_id"]))


def explained(context: RunContext, active: ActiveRules, rule: str) -> list[dict[str, Any]]:
    """What a rule is made of, a line each, as ``vedette rules explain`` prints it. Raises ValueError when none has this
    id."""
    engine = active.loaded.engine
    plan = engine.plan
    made = [
        *(explain.rule(engine, number) for number, one in enumerate(plan.rules) if one.id == rule),
        *(explain.correlation(plan, one) for one in plan.correlations if one.id == rule),
        *(explain.statement(one) for one in plan.statements if one.id == rule),
    ]
    if not made:
        raise ValueError(f"no rule of the id {rule} is loaded here")
    lines = [line for part in made for line in part][:MAX_LINES]
    lines += [
        f"  quarantined: {row['reason']}" for row in context.failures.quarantined.values() if row["rule_id"] == rule
    ]
    lines += [f"  makes no alert here: {one}" for one in dead_rules(context.config, engine).reasons if rule in one]
    return [{"text": line} for line in lines]


def disk(context: RunContext) -> dict[str, Any]:
    """The disk of the data folder, and what of it the agent takes. Raises OSError."""
    found = os.statvfs(context.config.agent.data_dir)
    log = context.raw_log
    return {
        "data_dir": str(context.config.agent.data_dir),
        "disk_bytes": found.f_frsize * found.f_blocks,
        "disk_free_bytes": found.f_frsize * found.f_bavail,
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
