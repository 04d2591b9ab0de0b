"""The agent's account of itself: what ``vedette status`` shows and heartbeats carry."""

from __future__ import annotations

from typing import Any

from vedette import __version__
from vedette.config import Config, codec_of
from vedette.engine.match import Engine
from vedette.outbox.queue import Outbox
from vedette.pipeline import Pipeline
from vedette.rawlog.log import RawLog
from vedette.report import Counters
from vedette.rules import Loaded, Rules

MAX_LISTED = 200
"""Dead rules named in a status."""
SHOWN = 10
"""Of them, for people."""


def collect(
    config: Config, started_at: int, now: int, counters: Counters, pipeline: Pipeline, log: RawLog, outbox: Outbox,
    rules: Rules, loaded: Loaded, uplink: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """JSON-able; times are UTC microseconds, sizes bytes."""
    agent, plan, account = config.agent, loaded.engine.plan, outbox.account()
    backlog = {name: events for name, events in pipeline.backlog.items() if events}
    made = counters.totals["alerts_made"]
    broken = counters.identity(pipeline.backlog)
    waiting = account.depth + pipeline.uncommitted(account.next_seq)
    if made != account.receipted + waiting:
        broken.append(f"alerts: made {made} != receipted {account.receipted} + in outbox {waiting}")
    tally = loaded.engine.tally
    dead = [*map(str, plan.refused), *unreached(config, loaded.engine)]
    return {
        "agent_id": agent.id,
        "fleet": agent.fleet,
        "site": agent.site,
        "state": "running",
        "version": __version__,
        "started_at": started_at,
        "time": now,
        "bundle": loaded.bundle,
        "plan_digest": plan.digest,
        "seq_high": account.next_seq - 1,
        "identity_broken": broken,
        **counters.snapshot(),
        "backlog": backlog,
        "lag_events": sum(backlog.values()),
        "lag_seconds": max(0.0, (now - pipeline.judged_at) / 1e6) if backlog and pipeline.judged_at else 0.0,
        "alerts": {
            "made": made,
            "receipted": account.receipted,
            "in_outbox": waiting,
            "outbox_bytes": account.bytes,
            "outbox_max_bytes": config.uplink.max_bytes,
            "damaged": outbox.damaged,
        },
        "rules": {
            "origin": loaded.origin,
            "running": len(plan.rules),
            "always_candidates": len(plan.always),
            "error": rules.error or rules.bundles.refused,
            "dead": dead[:MAX_LISTED],
            "dead_count": len(dead),
            "undecided": {plan.rules[i].id: n for i, n in tally.undecided.items()},
        },
        "raw_log": {
            "log_id": log.log_id,
            "start": log.start,
            "end": log.end,
            "durable": log.durable,
            "bytes": log.size(),
            "max_bytes": config.raw_log.max_bytes,
            "full": log.full(),
            "recovery": log.recovery._asdict(),
        },
        "uplink": uplink,
    }


def unreached(config: Config, engine: Engine) -> list[str]:
    """The rules whose log source no input of the agent has."""
    inputs = {(codec_of(item), item.logsource) for item in config.input}
    return [
        f"{rule.path}:{rule.line}: no input has its log source {'/'.join(rule.logsource)} ({rule.title})"
        for i, rule in enumerate(engine.plan.rules)
        if not any(engine.reaches(i, codec, logsource) for codec, logsource in inputs)
    ]


def render(status: dict[str, Any]) -> list[str]:
    """A status for people: its lines. Titles and reasons are in them as they are: see ``console.safe``."""
    alerts, rules, log = status["alerts"], status["rules"], status["raw_log"]
    lines = [
        f"vedette {status['version']}  agent {status['agent_id']}  site {status['site']}  fleet {status['fleet']}",
        f"rules    {rules['running']} from {rules['origin']}, {rules['always_candidates']} always candidates,"
        f" {rules['dead_count']} dead; plan {status['plan_digest'][:12]}",
    ]
    if rules["error"]:
        lines.append(f"         last change refused: {rules['error']}")
    lines += [f"         dead: {reason}" for reason in rules["dead"][:SHOWN]]
    if rules["dead_count"] > SHOWN:
        lines.append(f"         … and {rules['dead_count'] - SHOWN} more dead: vedette status --json")
    lines.append(f"{'input':<16}{'received':>12}{'stored':>12}{'judged':>12}{'backlog':>9}  dropped, lost")
    for name, counts in status["inputs"].items():
        reasons = {**counts["dropped"], **counts["lost"]}
        told = ", ".join(f"{reason} {n}" for reason, n in reasons.items()) or "0"
        lines.append(
            f"{name:<16}{counts['received']:>12}{counts['stored']:>12}{counts['judged']:>12}"
            f"{status['backlog'].get(name, 0):>9}  {told}"
        )
    total_in = sum(counts["bytes_in"] for counts in status["inputs"].values())
    lines += [
        f"alerts   made {alerts['made']} = receipted {alerts['receipted']} + in outbox {alerts['in_outbox']}",
        f"bytes    in {total_in:,}, sent {status['totals'].get('bytes_sent', 0):,};"
        f" raw log {log['bytes']:,} of {log['max_bytes']:,} on disk" + (" (FULL: inputs pause)" if log["full"] else ""),
        f"lag      {status['lag_events']} events, {status['lag_seconds']:.1f} s",
        f"uplink   {', '.join(f'{key} {value}' for key, value in status['uplink'].items())}",
    ]
    lines += [f"BROKEN   {reason}" for reason in status["identity_broken"]] or ["account  adds up"]
    return lines
