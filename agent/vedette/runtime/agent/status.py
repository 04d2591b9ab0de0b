"""The agent's status: what ``vedette status`` shows, ``/metrics`` serves and heartbeats carry in brief."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vedette.config.settings import DEFAULT_SET, Config
from vedette.decode.codecs import DECLARED
from vedette.delivery.envelope import decode_row
from vedette.engine import kernel
from vedette.engine.cache import CACHE_BYTES
from vedette.engine.match import Engine
from vedette.lookup.sets import delivered
from vedette.model.counters import visible
from vedette.plan.plan import Plan
from vedette.rawlog.log import RawLog
from vedette.runtime.agent.reload import Reloads
from vedette.runtime.pipeline.account import broken
from vedette.runtime.pipeline.pipeline import Pipeline
from vedette.runtime.rulesets.active import ActiveRules
from vedette.runtime.rulesets.deadrules import dead_rules
from vedette.runtime.rulesets.rules import Loaded
from vedette.store.store import Account, Store
from vedette.system import descriptors
from vedette.system.installation import running
from vedette.system.memory import resident
from vedette.version import __version__

if TYPE_CHECKING:
    from vedette.lookup.table import Lookup

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
        "lag_seconds": context.progress.lag,
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
            _costs(pipeline, loaded, state, statements, _quarantined(pipeline, loaded.engine)),
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
        "budgets": _budgets(pipeline, account, state, statements, cache),
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
        "alerts": dict(pipeline.checkpointer.by_rule.most_common(MAX_ALERTING)),
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
        {"name": form.name, "missing": False, "overruns": form.guard.overruns, "quarantined": form.guard.quarantined}
        for form in plan.formats[:MAX_LISTED]
    ]
    named = dict.fromkeys(settings.codec for settings in config.input if settings.codec not in plan.codecs)
    return declared + [
        {"name": name.removeprefix(DECLARED), "missing": True, "overruns": 0, "quarantined": False} for name in named
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


def _costs(
    pipeline: Pipeline, loaded: Loaded, state: Mapping[str, Any], statements: Mapping[str, Any],
    quarantined: Iterable[Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """What each rule set costs: JSON-able, by set; ``state``, ``statements``, ``quarantined``: as in the status.

    Of sets that are evaluated as one plan, evaluation takes one time; the share of each is its share of the rules that
    a sample of the candidates had to be asked about (``Tally.asked``). What sets have alike counts for each in equal
    parts. All figures are since the plan began to run. A set in strict isolation has figures of its own
    (``strict/sets.py``); its share is its part of what evaluation took in all of them."""
    sets: Mapping[str, tuple[str, ...]] = loaded.together.sets if loaded.together else {}
    plan, tally, context = loaded.engine.plan, loaded.engine.tally, pipeline.context

    def split(by_id: Iterable[tuple[str, float]]) -> defaultdict[str, float]:
        shares = defaultdict[str, float](float)
        for rule_id, amount in by_id:
            names = sets.get(rule_id, (DEFAULT_SET,))
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
    alerts = split(pipeline.checkpointer.by_rule.items())
    aside = split((entry["rule_id"], 1.0) for entry in quarantined)
    strict = {} if pipeline.strict is None else pipeline.strict.status()
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
            "lag_seconds": context.progress.lag,
        }
        for name in dict.fromkeys([DEFAULT_SET, *(name for names in sets.values() for name in names)])
    }
    return rows | {name: {"cpu_share": round(apart[name] / whole, 4), **row} for name, row in strict.items()}


class Budget(NamedTuple):
    """``used`` of ``max`` in ``unit``; ``reached``: its ``action`` is under way."""

    name: str
    unit: str
    used: float
    max: float
    reached: bool
    action: str


def _budgets(
    pipeline: Pipeline, account: Account, state: Mapping[str, Any], statements: Mapping[str, Any],
    cache: Mapping[str, Any],
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """What the agent may take at most, what of it is taken, and what happens beyond: JSON-able, by name; ``state``,
    ``statements``, ``cache``: as in the status."""
    config, log, now = pipeline.context.config, pipeline.context.raw_log, pipeline.context.clock()
    raw, outbox_max, most = config.raw_log, config.uplink.max_bytes, state["max_bytes"]
    most_files = descriptors.limit()
    files = descriptors.used() or most_files
    days = round(max(0, now - log.oldest()) / 86400e6, 2)
    rows = [
        Budget("raw_log", "bytes", log.size(), raw.max_bytes, log.full(),
               "the oldest evaluated segments are deleted; while none may be, inputs wait"),
        Budget("raw_log_age", "days", days, round(raw.max_age / 86400, 2), days * 86400 >= raw.max_age,
               "older evaluated segments are deleted"),
        Budget("outbox", "bytes", account.bytes, outbox_max, account.bytes >= outbox_max,
               "evaluation waits, events are still stored"),
        Budget("state", "bytes", state["bytes"], most, state["bytes"] >= 0.99 * most,
               "the least recently used group is evicted"),
        Budget("statements", "bytes", statements["bytes"], statements["max_bytes"],
               statements["bytes"] >= 0.99 * statements["max_bytes"], "the key unchanged longest is evicted"),
        Budget("cache", "bytes", cache["bytes"], CACHE_BYTES, cache["bytes"] >= CACHE_BYTES,
               "the oldest results are evicted"),
        Budget("memory", "bytes", resident(), config.agent.max_memory, pipeline.memory_pressure,
               "the result cache is off, frames are read back from disk"),
        Budget("descriptors", "files", files, most_files, files >= most_files,
               "what needs one waits; connections that have sent nothing are closed"),
    ]  # fmt: skip
    return {row.name: {key: value for key, value in row._asdict().items() if key != "name"} for row in rows}


def lookups_of(folder: Path, now: int) -> list[dict[str, Any]]:
    """The installed lookups, of an agent that is not running."""
    return _lookups(delivered(folder)[0], folder, now)
