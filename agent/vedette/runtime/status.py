"""The agent's status: what ``vedette status`` shows, ``/metrics`` serves and heartbeats carry in brief."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vedette import __version__
from vedette.config.settings import Config
from vedette.decode.codecs import DECLARED
from vedette.delivery.envelope import decode_row
from vedette.engine import kernel
from vedette.engine.match import Engine
from vedette.lookup.installed import delivered
from vedette.lookup.table import Lookup
from vedette.model.counters import visible
from vedette.plan.plan import Plan
from vedette.rawlog.log import RawLog
from vedette.runtime.account import broken
from vedette.runtime.active import ActiveRules
from vedette.runtime.budgets import budgets
from vedette.runtime.costs import costs
from vedette.runtime.deadrules import dead_rules
from vedette.runtime.pipeline import Pipeline
from vedette.runtime.reload import Reloads
from vedette.store.store import Store
from vedette.system.installation import running

MAX_LISTED = 200
"""Dead rules named in a status."""
MAX_ALERTING = 20
"""Rules whose alerts are counted in a status, those with the most: some 50 bytes each, in every heartbeat, too."""


def collect(
    pipeline: Pipeline, active: ActiveRules, uplink: Mapping[str, Any], reloads: Reloads, lookups: Mapping[str, Any]
) -> dict[str, Any]:
    """JSON-able; times are UTC microseconds, sizes bytes. ``lookups``: those on their way, and what was refused."""
    context, loaded = pipeline.context, active.loaded
    agent, account = context.config.agent, context.outbox.account()
    statements = pipeline.state.statements.status()
    counts, state = visible(context.counters, pipeline.checkpointer.counted, pipeline.backlog), pipeline.state.status()
    counts["totals"].update(alerts_made=account.made, alerts_receipted=account.receipted)
    now, cache, installed = context.clock(), loaded.engine.cache.account(), running()
    return {
        "agent_id": agent.id,
        "fleet": agent.fleet,
        "site": agent.site,
        "state": "degraded" if context.health.degraded else "running",
        "version": __version__,
        "addons": [*installed.addons] if installed is not None else [],
        "started_at": context.started_at,
        "time": now,
        "last_event": pipeline.ingest.last_event,
        "last_alert": _last_alert(context.store),
        "bundle": loaded.bundle,
        "plan_digest": loaded.engine.plan.digest,
        "seq_high": account.next_seq - 1,
        "identity_broken": broken(pipeline),
        **counts,
        "lag_events": sum(counts["backlog"].values()),
        "lag_seconds": context.progress.lag(now),
        "alerts": {
            "made": account.made,
            "receipted": account.receipted,
            "in_outbox": account.entries,
            "lost": account.lost,
            "outbox_bytes": account.bytes,
            "outbox_max_bytes": context.config.uplink.max_bytes,
            "damaged": context.outbox.damaged,
        },
        "rules": _rules(pipeline, active),
        "rulesets": active.sets.status(
            loaded,
            costs(pipeline, loaded, state, statements, _quarantined(pipeline, loaded.engine)),
            dead_rules(context.config, loaded.engine),
        ),
        "lookups": {"in_use": _lookups(loaded.engine.plan.lookups, context.config.agent.lookup_dir, now), **lookups},
        "correlation_state": state,
        "statement_state": statements,
        "cache": cache,
        "kernel": {"in_use": kernel.LOADED is not None, "why_not": kernel.why_not, **loaded.engine.kernel()},
        "raw_log": _raw_log(context.raw_log, context.config.raw_log.max_bytes),
        "disk": {
            "failing": context.health.status(),
            "failures": context.health.failures,
            "held_events": sum(pipeline.ingest.held.values()),
            "held_bytes": pipeline.ingest.held_bytes,
            "store_rebuilt": context.rebuilt,
        },
        "budgets": budgets(pipeline, account, state, statements, cache),
        "uplink": uplink,
        "config": asdict(reloads),
        "clock": {"steps": context.clock.steps, "ahead_seconds": context.clock.ahead},
    }


def _last_alert(store: Store) -> int | None:
    """When the newest alert was made, of those in outbox and ring; None: there is none that can be read."""
    for alert in store.tail(1):
        with suppress(ValueError):
            return int(decode_row(alert.data)["detected_at"])
    return None


def _rules(pipeline: Pipeline, active: ActiveRules) -> dict[str, Any]:
    context, loaded = pipeline.context, active.loaded
    plan, letters, dead = loaded.engine.plan, context.dead_letters, dead_rules(context.config, loaded.engine)
    quarantined = _quarantined(pipeline, loaded.engine)
    return {
        "origin": loaded.origin,
        "formats": _formats(plan, context.config),
        "running": len(plan.detections),
        "correlations": len(plan.correlations),
        "statements": len(plan.statements),
        "always_candidates": len(plan.always),
        "error": active.sets.error,
        "dead": dead.reasons[:MAX_LISTED],
        "dead_count": len(dead.reasons),
        "waiting": dict([*dead.waiting.items()][:MAX_LISTED]),
        "undecided": {plan.rules[i].id: n for i, n in loaded.engine.tally.undecided.items()},
        "quarantined": quarantined[:MAX_LISTED],
        "quarantined_count": len(quarantined),
        "alerts": dict(pipeline.checkpointer.made.most_common(MAX_ALERTING)),
        "dead_letters": {
            "folder": str(letters.folder),
            "events": letters.events,
            "lost": letters.lost,
            "bytes": letters.bytes(),
            "max_bytes": letters.max_bytes,
        },
    }


def _formats(plan: Plan, config: Config) -> list[dict[str, Any]]:
    """Those that the active rules declare, and those that inputs name and nobody does."""
    declared: list[dict[str, Any]] = [
        {"name": one.name, "missing": False, "overruns": one.guard.overruns, "quarantined": one.guard.quarantined}
        for one in plan.formats[:MAX_LISTED]
    ]
    named = dict.fromkeys(one.codec for one in config.input if one.codec not in plan.codecs)
    return declared + [
        {"name": one.removeprefix(DECLARED), "missing": True, "overruns": 0, "quarantined": False} for one in named
    ]


def _lookups(lookups: Mapping[str, Lookup], folder: Path, now: int) -> list[dict[str, Any]]:
    """Those that the active ruleset may ask."""
    return [
        {
            "name": name,
            "version": lookup.version,
            "created": lookup.header.created,
            "age_seconds": max(0, now - lookup.header.created) / 1e6,
            "rows": len(lookup),
            "bytes": lookup.size,
            "origin": _origin(lookup, folder),
        }
        for name, lookup in sorted(lookups.items())[:MAX_LISTED]
    ]


def _origin(lookup: Lookup, folder: Path) -> str:
    if lookup.path is None:
        return "bundle"
    return "installed" if lookup.path.is_relative_to(folder) else "rules"


def _raw_log(log: RawLog, max_bytes: int) -> dict[str, Any]:
    return {
        "log_id": log.log_id,
        "start": log.start,
        "end": log.end,
        "durable": log.durable,
        "bytes": log.size(),
        "max_bytes": max_bytes,
        "full": log.full(),
        "damaged": log.verifier.damaged(),
        "verified": log.verifier.rounds,
        "recovery": log.recovery._asdict(),
    }


def _quarantined(pipeline: Pipeline, engine: Engine) -> list[dict[str, Any]]:
    """Rules and correlations of this plan that are not evaluated any more."""
    numbers = {engine.plan.rules[i].digest: i for i in engine.quarantined}
    muted = pipeline.state.muted()
    listed = []
    for row in pipeline.context.failures.quarantined.values():
        number = numbers.get(row["digest"], -1) if row["kind"] == "rule" else -1
        if number >= 0 or row["rule_id"] in muted:
            listed.append({**row, "undecided": row["events"], "skipped": engine.tally.skipped.get(number, 0)})
    return listed


def lookups_of(folder: Path, now: int) -> list[dict[str, Any]]:
    """The installed lookups, of an agent that is not running."""
    return _lookups(delivered(folder)[0], folder, now)
