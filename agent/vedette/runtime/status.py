"""The agent's status: what ``vedette status`` shows, ``/metrics`` serves and heartbeats carry in brief."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vedette import __version__
from vedette.bundle.manifest import rfc3339
from vedette.config.settings import UNAUTHENTICATED, Config
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
from vedette.runtime.budgets import budget_lines, budgets
from vedette.runtime.costs import costs
from vedette.runtime.deadrules import dead_rules
from vedette.runtime.health import headline
from vedette.runtime.pipeline import Pipeline
from vedette.runtime.reload import Reloads
from vedette.runtime.ruleset_lines import ruleset_lines
from vedette.store.store import Store
from vedette.system.installation import running

MAX_LISTED = 200
"""Dead rules named in a status."""
SHOWN = 10
"""Rows of a list, for people."""
MAX_ALERTING = 20
"""Rules whose alerts are counted in a status, those with the most: some 50 bytes each, in every heartbeat, too."""
DEAD_SHOWN = 3
"""Inputs that rules wait for. Such rules are many, and no fault."""


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
            dead_rules(context.config, loaded.engine).reasons,
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
    found: list[dict[str, Any]] = [
        {"name": one.name, "missing": False, "overruns": one.guard.overruns, "quarantined": one.guard.quarantined}
        for one in plan.formats[:MAX_LISTED]
    ]
    named = dict.fromkeys(one.codec for one in config.input if one.codec not in plan.codecs)
    return found + [
        {"name": one.removeprefix(DECLARED), "missing": True, "overruns": 0, "quarantined": False} for one in named
    ]


def _lookups(lookups: Mapping[str, Lookup], folder: Path, now: int) -> list[dict[str, Any]]:
    """Those that the active ruleset may ask."""
    return [
        {
            "name": name,
            "version": one.version,
            "created": one.header.created,
            "age_seconds": max(0, now - one.header.created) / 1e6,
            "rows": len(one),
            "bytes": one.size,
            "origin": "bundle" if one.path is None else "installed" if one.path.is_relative_to(folder) else "rules",
        }
        for name, one in sorted(lookups.items())[:MAX_LISTED]
    ]  # fmt: skip


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
    found = []
    for row in pipeline.context.failures.quarantined.values():
        number = numbers.get(row["digest"], -1) if row["kind"] == "rule" else -1
        if number >= 0 or row["rule_id"] in muted:
            found.append({**row, "undecided": row["events"], "skipped": engine.tally.skipped.get(number, 0)})
    return found


def archive_lines(found: Mapping[str, Any]) -> list[str]:
    lines = [
        f"archive  {found['url']}: {found['segments']} segments, {found['bytes']:,} bytes;"
        f" {found['waiting']} waiting, {found['waiting_bytes']:,} bytes"
    ]
    return lines + ([f"         FAILING: {found['error']}"] if found["failing"] else [])


def cache_line(cache: dict[str, Any]) -> str:
    if cache["failure"]:
        return f"cache    OFF: {cache['failure']}"
    uses = ", ".join(
        f"{name} {row['hits']} hits, {row['misses']} misses, {row['off']} off"
        for name, row in cache.items()
        if isinstance(row, dict) and row["uses"]
    )
    return f"cache    {cache['bytes']:,} bytes; {uses}; {cache['verified']} verified" if cache["on"] else "cache    off"


def lookups_of(folder: Path, now: int) -> list[dict[str, Any]]:
    """The installed lookups, of an agent that is not running."""
    return _lookups(delivered(folder)[0], folder, now)


def lookup_lines(lookups: Mapping[str, Any], most: int | None = SHOWN) -> list[str]:
    """For people: what is in use, what is on its way, what was refused; ``most`` of each."""
    lines = [
        f"lookup   {one['name']} version {one['version'][:12]}, built {one['age_seconds'] / 3600:.1f} h ago,"
        f" {one['rows']:,} rows, {one['bytes']:,} bytes, from {_ORIGINS[one['origin']]}"
        for one in lookups["in_use"][:most]
    ]
    if most is not None and (more := len(lookups["in_use"]) - most) > 0:
        lines.append(f"         … and {more} more lookups: vedette lookup list")
    lines += [
        f"         {one['name']} version {one['version'][:12]} is arriving: {one['have']} of {one['blocks']} blocks"
        for one in lookups["incoming"][:most]
    ]
    return lines + [f"         {one['name']} refused: {one['reason']}" for one in lookups["refused"][:most]]


_ORIGINS = {"installed": "the region or the host's folder", "bundle": "the bundle", "rules": "[rules] lookups"}

INPUTS_HEAD = f"{'input':<16}{'received':>12}{'stored':>12}{'evaluated':>12}{'backlog':>9}  dropped, lost"

_NO_EVENTS = {"received": 0, "stored": 0, "judged": 0, "dropped": {}, "lost": {}}


def render(status: dict[str, Any]) -> list[str]:
    """A status for people: its lines. Titles and reasons are in them as they are: see ``console.safe``."""
    alerts, rules, log, state = status["alerts"], status["rules"], status["raw_log"], status["correlation_state"]
    waiting = rules["waiting"]
    dead = rules["dead_count"] - sum(waiting.values())
    event, alert = status["last_event"], status["last_alert"]
    lines = [
        headline(status["problems"]),
        f"up       since {rfc3339(status['started_at'])}; last event {rfc3339(event) if event else 'none since then'},"
        f" last alert {rfc3339(alert) if alert else 'none'}",
        f"vedette {status['version']}  agent {status['agent_id']}  site {status['site']}  fleet {status['fleet']}"
        + (f"  with {', '.join(addons)}" if (addons := status.get("addons")) else ""),
        f"rules    {rules['running']} and {rules['correlations']} correlations"
        + (f" and {rules['statements']} statements" if rules["statements"] else "")
        + f" from {rules['origin']},"
        f" {rules['always_candidates']} always candidates,"
        f" {dead} dead; plan {status['plan_digest'][:12]}",
    ]
    if rules["error"]:
        lines.append(f"         last change refused: {rules['error']}")
    settings = status["config"]
    if settings["error"]:
        lines.append(f"config   last reload refused, the running configuration stays in force: {settings['error']}")
    if actual := status.get("actual"):
        group = f"group {actual['group']}" if actual["group"] else "in no group"
        serials = f"desired {actual['desired_serial']}, roll-out {actual['rollout_serial']}"
        lines.append(f"fleet    {group}; {serials}; overlay {actual['config']['overlay'][:12] or 'none'}")
        lines += [f"         {problem}" for problem in actual["problems"]]
    if settings["needs_restart"]:
        lines.append(f"config   changed, needs a restart: {', '.join(settings['needs_restart'])}")
    lines += [f"         dead: {reason}" for reason in rules["dead"][: min(dead, SHOWN)]]
    if dead > SHOWN:
        lines.append(f"         … and {dead - SHOWN} more dead: vedette status --json")
    lines += [f"         {count} rules wait for {wanted}" for wanted, count in [*waiting.items()][:DEAD_SHOWN]]
    if more := sum([*waiting.values()][DEAD_SHOWN:]):
        lines.append(f"         {more} rules wait for other inputs: vedette status --json")
    lines += [
        f"         quarantined: {rule['title']} ({rule['rule_id']}): undecided on {rule['undecided']} events,"
        f" skipped {rule['skipped']}: {rule['reason']}"
        for rule in rules["quarantined"][:SHOWN]
    ]
    for one in rules["formats"]:
        if one["missing"]:
            lines.append(f"         no rule set has the format {one['name']}: its inputs' events are read as auto")
        elif one["overruns"]:
            state = "QUARANTINED" if one["quarantined"] else "slow"
            lines.append(f"         format {one['name']} {state}: {one['overruns']} messages took too long")
    if rules["undecided"]:
        lines.append(
            f"         {sum(rules['undecided'].values())} undecided, kept in {rules['dead_letters']['folder']}"
        )
    lines += ruleset_lines(status["rulesets"])
    lines += lookup_lines(status["lookups"])
    lines.append(INPUTS_HEAD)
    states = {row["name"]: row for row in status["input_states"]}
    for name in {**states, **status["inputs"]}:
        counts = status["inputs"].get(name, _NO_EVENTS)
        reasons = {**counts["dropped"], **counts["lost"]}
        why = ", ".join(f"{reason} {n}" for reason, n in reasons.items()) or "0"
        lines.append(
            f"{name:<16}{counts['received']:>12}{counts['stored']:>12}{counts['judged']:>12}"
            f"{status['backlog'].get(name, 0):>9}  {why}"
        )
        if name in states and states[name]["state"] != "works":
            word = states[name]["state"].replace("failing", "FAILING")
            lines.append(f"         {word}: {states[name]['reason']}")
    ungrouped = sum(one["ungrouped"] for one in state["correlations"])
    total_in = sum(counts["bytes_in"] for counts in status["inputs"].values())
    lost = f" + lost {alerts['lost']}" if alerts["lost"] else ""
    lines += [
        f"alerts   made {alerts['made']} = receipted {alerts['receipted']} + in outbox {alerts['in_outbox']}{lost}",
        f"bytes    in {total_in:,}, sent {status['totals'].get('bytes_sent', 0):,};"
        f" raw log {log['bytes']:,} of {log['max_bytes']:,} on disk" + (" (FULL: inputs pause)" if log["full"] else ""),
        f"state    {state['groups']} groups, {state['bytes']:,} of {state['max_bytes']:,} bytes,"
        f" {state['evicted']} evicted; {state['jumps']} time jumps, {ungrouped} matches in no group;"
        f" {state['folded']} alerts folded",
    ]
    if rules["statements"]:
        sql = status["statement_state"]
        late, failed = (sum(one[name] for one in sql["statements"]) for name in ("late", "failed"))
        lines.append(
            f"         statements: {sql['bytes']:,} of {sql['max_bytes']:,} bytes, {sql['evicted']} keys evicted;"
            f" {late} rows late, {failed} failed, {sql['timeless']} without a time, {sql['unfit']} values unfit"
        )
        if sql["waiting"] or sql["dropped"]:
            lines.append(
                f"         {sql['waiting']:,} rows wait to be alerts, {sql['waiting_bytes']:,} bytes;"
                f" {sql['dropped']:,} dropped for want of room"
            )
        if sql["without_functions"]:
            titles = [one["title"] for one in sql["without_functions"]]
            lines.append(
                f"         {len(titles)} do not run: they call functions in Python, which [functions] does not allow:"
                f" {', '.join(titles[:SHOWN])}"
            )
        if own := sql["functions"]:
            lines.append(
                f"         functions: {own['calls']} calls, {own['processes']} processes, {own['died']} died;"
                f" isolated by {', '.join(own['isolation']) or 'nothing yet'}"
            )
    if any((audit := state["audit"]).values()):
        lines.append(
            f"         {audit['open']} audit events open, {audit['bytes']:,} bytes; {audit['evicted']} evaluated early"
        )
    lines += [cache_line(status["cache"]), f"kernel   {status['kernel']['why_not'] or 'in use'}"]
    lines += budget_lines(status["budgets"])
    lines += [f"DISK     {part}: {one['reason']}" for part, one in status["disk"]["failing"].items()]
    if rebuilt := status["disk"]["store_rebuilt"]:
        kept = f"; kept in {rebuilt['set_aside']}" if rebuilt["set_aside"] else ""
        lines.append(f"store    rebuilt from the raw log, and evaluated again from there: {rebuilt['reason']}{kept}")
    if "archive" in status:
        lines += archive_lines(status["archive"])
    if log["damaged"]:
        lines.append(
            f"DAMAGED  {log['damaged']} places in the raw log cannot be read: raw_log_damaged in the agent's log"
        )
    if state["started_empty"]:
        lines.append(f"         changed, started empty: {', '.join(state['started_empty'][:SHOWN])}")
    lines += [
        f"lag      {status['lag_events']} events, {status['lag_seconds']:.1f} s",
        f"uplink   {', '.join(f'{key} {value}' for key, value in status['uplink'].items())}",
    ]
    if response := status.get("response"):
        lines.append(
            f"response {response['blocked']} of at most {response['max_blocked']} addresses blocked"
            f"{' (dry run: none is)' if response['dry_run'] else ''}"
        )
        if response["problem"]:
            lines.append(f"         FAILING: {response['problem']}")
    for sink in status["sinks"]:
        lines.append(
            f"sink     {sink['name']} ({sink['type']}) to {sink['to']}: {sink['delivered']} delivered,"
            f" {sink['waiting']} waiting, {sink['refused']} refused, {sink['dropped']} dropped"
        )
        if sink["failing"]:
            lines.append(f"         FAILING: {sink['error']}")
    lines += [
        f"plugin   {one['plugin']} of {one['used']}: {one['faults']} faults"
        + (", QUARANTINED" if one["quarantined"] else "")
        + (f": {one['error']}" if one["error"] else "")
        for one in status["plugins"]
    ]
    if problem := status.get("membership", {}).get("problem"):
        lines.append(f"MEMBER   {problem}")
    if status["uplink"].get("receipts") == UNAUTHENTICATED:
        lines.append("WARNING  receipts are not authenticated: set uplink.receipt_keys, or use mqtts://")
    alarms = status["totals"].get("identity_alarms", 0)
    past = f"; it did not {alarms} times before, see identity_broken in the log" if alarms else ""
    lines += [f"BROKEN   {reason}" for reason in status["identity_broken"]] or [f"account  adds up{past}"]
    return lines
