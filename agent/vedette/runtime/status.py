"""The agent's account of itself: what ``vedette status`` shows and heartbeats carry."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import orjson

from vedette import __version__
from vedette.config.settings import UNAUTHENTICATED, Config
from vedette.decode.decoder import possible_source
from vedette.delivery.queue import Outbox
from vedette.engine.match import Engine
from vedette.model.counters import Counters
from vedette.model.event import LogSource
from vedette.plan.plan import Plan
from vedette.plan.relation import starved
from vedette.rawlog.log import RawLog
from vedette.rules.authoring import reach
from vedette.runtime import account, budgets
from vedette.runtime.pipeline import Pipeline
from vedette.runtime.rules import Loaded, Rules

HEARTBEAT_BYTES = 1 << 20
"""Of a heartbeat, at most (``outbox.envelope.MAX_MESSAGE``): a longer one names no rules and correlations."""
MAX_LISTED = 200
"""Dead rules named in a status."""
SHOWN = 10
"""Rows of a list, for people."""
DEAD_SHOWN = 3
"""Inputs that rules wait for. Such rules are many, and no trouble."""


class Dead(NamedTuple):
    """Rules and correlations that make no alert on this agent: reasons, those who only wait for an input last."""

    reasons: list[str]
    waiting: dict[str, int]
    """How many of them, by the input that they wait for; the most first."""


_DEAD: WeakKeyDictionary[Engine, tuple[list[reach.Input], Dead]] = WeakKeyDictionary()
"""It depends on the rules and the inputs alone, and takes long to find out for thousands of rules."""


def collect(
    config: Config, started_at: int, now: int, counters: Counters, pipeline: Pipeline, log: RawLog, outbox: Outbox,
    rules: Rules, loaded: Loaded, uplink: dict[str, Any], settings: dict[str, Any],
    clock: dict[str, Any], rebuilt: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """JSON-able; times are UTC microseconds, sizes bytes. ``settings``: see ``reload.Reloads.status``; ``rebuilt``: see
    ``rebuild.py``."""
    agent, plan = config.agent, loaded.engine.plan
    broken = account.broken(counters, pipeline, outbox)
    kept, visible = outbox.account(), pipeline.visible()
    visible["totals"].update(alerts_made=kept.made, alerts_receipted=kept.receipted)
    tally, quarantine = loaded.engine.tally, pipeline.quarantine
    dead, cache, memory = dead_rules(config, loaded), loaded.engine.cache.account(), pipeline.alerting.memory.status()
    return {
        "agent_id": agent.id,
        "fleet": agent.fleet,
        "site": agent.site,
        "state": "degraded" if pipeline.trouble else "running",
        "version": __version__,
        "started_at": started_at,
        "time": now,
        "bundle": loaded.bundle,
        "plan_digest": plan.digest,
        "seq_high": kept.next_seq - 1,
        "identity_broken": broken,
        **visible,
        "lag_events": sum(visible["backlog"].values()),
        "lag_seconds": pipeline.lag(),
        "alerts": {
            "made": kept.made,
            "receipted": kept.receipted,
            "in_outbox": kept.entries,
            "lost": kept.lost,
            "outbox_bytes": kept.bytes,
            "outbox_max_bytes": config.uplink.max_bytes,
            "damaged": outbox.damaged,
        },
        "rules": {
            "origin": loaded.origin,
            "running": len(plan.rules),
            "correlations": len(plan.correlations),
            "always_candidates": len(plan.always),
            "error": rules.error or rules.bundles.refused,
            "dead": dead.reasons[:MAX_LISTED],
            "dead_count": len(dead.reasons),
            "waiting": dict([*dead.waiting.items()][:MAX_LISTED]),
            "undecided": {plan.rules[i].id: n for i, n in tally.undecided.items()},
            "quarantined": quarantined(pipeline, loaded.engine)[:MAX_LISTED],
            "quarantined_count": len(pipeline.failures.quarantined),
            "set_aside": quarantine
            and {
                "folder": str(quarantine.folder),
                "events": quarantine.events,
                "lost": quarantine.lost,
                "bytes": quarantine.bytes(),
                "max_bytes": quarantine.max_bytes,
            },
        },
        "memory": memory,
        "cache": cache,
        "raw_log": {
            "log_id": log.log_id,
            "start": log.start,
            "end": log.end,
            "durable": log.durable,
            "bytes": log.size(),
            "max_bytes": config.raw_log.max_bytes,
            "full": log.full(),
            "damaged": log.verifier.damaged(),
            "verified": log.verifier.rounds,
            "recovery": log.recovery._asdict(),
        },
        "disk": {
            "trouble": pipeline.trouble.status(),
            "failures": pipeline.trouble.failures,
            "held_events": sum(pipeline.storing.held.values()),
            "held_bytes": pipeline.storing.held_bytes,
            "store_rebuilt": rebuilt,
        },
        "budgets": budgets.status(budgets.collect(config, now, log, kept, memory, cache, pipeline.lean)),
        "uplink": uplink,
        "config": settings,
        "clock": clock,
    }


def heartbeat(status: dict[str, Any]) -> bytes:
    """A status as it goes to the region."""
    data = orjson.dumps(status)
    if len(data) > HEARTBEAT_BYTES:
        rules = {**status["rules"], "dead": [], "undecided": {}, "quarantined": []}
        data = orjson.dumps({**status, "rules": rules, "memory": {**status["memory"], "correlations": []}})
    return data


def quarantined(pipeline: Pipeline, engine: Engine) -> list[dict[str, Any]]:
    """The rules and correlations that are asked no more. Those whose like is not in the plan are not listed."""
    numbers = {engine.plan.rules[i].digest: i for i in engine.quarantined}
    muted = {node.c.id for node in pipeline.alerting.memory.correlator.nodes if node.muted}
    found = []
    for row in pipeline.failures.quarantined.values():
        number = numbers.get(row["digest"], -1) if row["kind"] == "rule" else -1
        if number >= 0 or row["rule_id"] in muted:
            found.append({**row, "undecided": row["events"], "skipped": engine.tally.skipped.get(number, 0)})
    return found


def dead_rules(config: Config, loaded: Loaded) -> Dead:
    """The rules and correlations that make no alert on this agent."""
    inputs = [(item.codec, item.logsource) for item in config.input]
    known = _DEAD.get(loaded.engine)
    if known is None or known[0] != inputs:
        plan = loaded.engine.plan
        reasons, waiting = unreached(config, plan)
        known = _DEAD[loaded.engine] = inputs, Dead([*map(str, plan.refused), *reasons], waiting)
    return known[1]


def unreached(config: Config, plan: Plan) -> Dead:
    """Those that no input can make true, and the correlations that need such rules."""
    inputs = [(item.codec, item.logsource) for item in config.input]
    reasons, late, wanting, idle = list[str](), list[str](), dict[str, str](), list[str]()
    for rule in plan.rules:
        if (reason := reach.dead(plan, rule, inputs)) is None:
            continue
        idle.append(rule.id)
        if not reach.reaching(rule, inputs):
            wanting[rule.id] = _wanted(rule.logsource)
        (late if rule.id in wanting else reasons).append(f"{rule.path}:{rule.line}: {reason} ({rule.title})")
    lost = {one.id for one in starved(plan.correlations, (one for one in idle if one not in wanting))}
    for one in starved(plan.correlations, idle):
        if one.id not in lost:
            wanting[one.id] = next(wanting[slot.rule_id] for slot in one.slots if slot.rule_id in wanting)
        told = f"{one.path}:{one.line}: rules that it needs cannot fire ({one.title})"
        (late if one.id in wanting else reasons).append(told)
    return Dead([*reasons, *late], dict(Counter(wanting.values()).most_common()))


def _wanted(logsource: LogSource) -> str:
    """The input that rules of this log source wait for."""
    mqtt, other = (logsource.fits(possible_source(codec, LogSource())) for codec in ("mqtt", "auto"))
    if mqtt and not other:
        return "an MQTT input"
    return f"an input with log source {'/'.join(logsource)}"


def cache_line(cache: dict[str, Any]) -> str:
    """The account of the result cache, for people."""
    if cache["failure"]:
        return f"cache    OFF: {cache['failure']}"
    uses = ", ".join(
        f"{name} {row['hits']} hits, {row['misses']} misses, {row['off']} off"
        for name, row in cache.items()
        if isinstance(row, dict) and row["uses"]
    )
    return f"cache    {cache['bytes']:,} bytes; {uses}; {cache['verified']} verified" if cache["on"] else "cache    off"


def render(status: dict[str, Any]) -> list[str]:
    """A status for people: its lines. Titles and reasons are in them as they are: see ``console.safe``."""
    alerts, rules, log, memory = status["alerts"], status["rules"], status["raw_log"], status["memory"]
    waiting = rules.get("waiting", {})
    dead = rules["dead_count"] - sum(waiting.values())
    lines = [
        f"vedette {status['version']}  agent {status['agent_id']}  site {status['site']}  fleet {status['fleet']}",
        f"rules    {rules['running']} and {rules['correlations']} correlations from {rules['origin']},"
        f" {rules['always_candidates']} always candidates,"
        f" {dead} dead; plan {status['plan_digest'][:12]}",
    ]
    if rules["error"]:
        lines.append(f"         last change refused: {rules['error']}")
    settings = status["config"]
    if settings["error"]:
        lines.append(f"config   the last reload was refused, the old one goes on: {settings['error']}")
    if settings["needs_restart"]:
        lines.append(f"config   changed, in force after a restart: {', '.join(settings['needs_restart'])}")
    lines += [f"         dead: {reason}" for reason in rules["dead"][: min(dead, SHOWN)]]
    if dead > SHOWN:
        lines.append(f"         … and {dead - SHOWN} more dead: vedette status --json")
    lines += [f"         {count} rules wait for {wanted}" for wanted, count in [*waiting.items()][:DEAD_SHOWN]]
    if more := sum([*waiting.values()][DEAD_SHOWN:]):
        lines.append(f"         {more} rules wait for other inputs: vedette status --json")
    lines += [
        f"         quarantined: {rule['title']} ({rule['rule_id']}): undecided on {rule['undecided']} events,"
        f" not asked on {rule['skipped']}: {rule['reason']}"
        for rule in rules.get("quarantined", [])[:SHOWN]
    ]
    if rules.get("undecided") and rules.get("set_aside"):
        lines.append(
            f"         {sum(rules['undecided'].values())} undecided, set aside in {rules['set_aside']['folder']}"
        )
    lines.append(f"{'input':<16}{'received':>12}{'stored':>12}{'judged':>12}{'backlog':>9}  dropped, lost")
    for name, counts in status["inputs"].items():
        reasons = {**counts["dropped"], **counts["lost"]}
        told = ", ".join(f"{reason} {n}" for reason, n in reasons.items()) or "0"
        lines.append(
            f"{name:<16}{counts['received']:>12}{counts['stored']:>12}{counts['judged']:>12}"
            f"{status['backlog'].get(name, 0):>9}  {told}"
        )
    ungrouped = sum(one["ungrouped"] for one in memory["correlations"])
    total_in = sum(counts["bytes_in"] for counts in status["inputs"].values())
    lost = f" + lost {alerts['lost']}" if alerts.get("lost") else ""
    lines += [
        f"alerts   made {alerts['made']} = receipted {alerts['receipted']} + in outbox {alerts['in_outbox']}{lost}",
        f"bytes    in {total_in:,}, sent {status['totals'].get('bytes_sent', 0):,};"
        f" raw log {log['bytes']:,} of {log['max_bytes']:,} on disk" + (" (FULL: inputs pause)" if log["full"] else ""),
        f"memory   {memory['groups']} groups, {memory['bytes']:,} of {memory['max_bytes']:,} bytes,"
        f" {memory['evicted']} evicted; {memory['jumps']} time jumps, {ungrouped} matches in no group;"
        f" {memory['folded']} alerts folded",
    ]
    if any((audit := memory["audit"]).values()):
        lines.append(
            f"         {audit['open']} audit events open, {audit['bytes']:,} bytes;"
            f" {audit['evicted']} judged before their time"
        )
    if cache := status.get("cache"):
        lines.append(cache_line(cache))
    lines += budgets.render(status.get("budgets", {}))
    lines += [f"DISK     {part}: {one['reason']}" for part, one in status.get("disk", {}).get("trouble", {}).items()]
    if rebuilt := status.get("disk", {}).get("store_rebuilt"):
        kept = f"; kept in {rebuilt['set_aside']}" if rebuilt["set_aside"] else ""
        lines.append(f"store    made again from the raw log, so judged went back: {rebuilt['reason']}{kept}")
    if log.get("damaged"):
        lines.append(
            f"DAMAGED  {log['damaged']} places in the raw log cannot be read: raw_log_damaged in the agent's log"
        )
    if memory["started_empty"]:
        lines.append(f"         changed, so started empty: {', '.join(memory['started_empty'][:SHOWN])}")
    lines += [
        f"lag      {status['lag_events']} events, {status['lag_seconds']:.1f} s",
        f"uplink   {', '.join(f'{key} {value}' for key, value in status['uplink'].items())}",
    ]
    if status["uplink"].get("receipts") == UNAUTHENTICATED:
        lines.append("WARNING  receipts are not authenticated: set uplink.receipt_keys, or use mqtts://")
    alarms = status["totals"].get("identity_alarms", 0)
    past = f"; it did not {alarms} times before, see identity_broken in the log" if alarms else ""
    lines += [f"BROKEN   {reason}" for reason in status["identity_broken"]] or [f"account  adds up{past}"]
    return lines
