"""The agent's status for people: ``vedette status``, and parts of it that other commands print.

Each function returns lines from the status as ``runtime/agent/status.py`` collects it. Titles and reasons are in them
as they are: see ``console.safe``. Raises KeyError for the status of an agent of another release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vedette.bundle.manifest import rfc3339
from vedette.config.settings import UNAUTHENTICATED
from vedette.runtime.agent.health import headline

SHOWN = 10
"""Rows of a list."""
DEAD_SHOWN = 3
"""Inputs that rules wait for. Such rules are many, and no fault."""
RENAMED_SHOWN = 3
"""Rules that are called otherwise than written."""
INPUTS_HEAD = f"{'input':<16}{'received':>12}{'stored':>12}{'evaluated':>12}{'backlog':>9}  dropped, lost"
RULESETS_HEAD = (
    f"{'rule set':<20}{'version':>8}{'rules':>7}{'share':>8}{'µs/event':>10}{'state':>11}{'alerts':>9}{'lag':>9}"
    "  dead, quarantined"
)
_ORIGINS = {"installed": "the region or the host's folder", "bundle": "the bundle", "rules": "[rules] lookups"}
_NO_EVENTS = {"received": 0, "stored": 0, "judged": 0, "dropped": {}, "lost": {}}


def status_lines(status: Mapping[str, Any]) -> list[str]:
    """The whole status, its verdict first and its account last."""
    return [
        *_agent(status),
        *_rules(status["rules"]),
        *ruleset_lines(status["rulesets"]),
        *lookup_lines(status["lookups"]),
        *_inputs(status),
        *_flow(status),
        *_statements(status["rules"], status["statement_state"]),
        *_audit(status["correlation_state"]["audit"]),
        cache_line(status["cache"]),
        f"kernel   {status['kernel']['why_not'] or 'in use'}",
        *_budgets(status["budgets"]),
        *_disk(status),
        *_outside(status),
        *_account(status),
    ]


def _agent(status: Mapping[str, Any]) -> list[str]:
    rules = status["rules"]
    settings = status["config"]
    event = status["last_event"]
    alert = status["last_alert"]
    addons = status.get("addons")
    lines = [
        headline(status["problems"]),
        f"up       since {rfc3339(status['started_at'])}; last event {rfc3339(event) if event else 'none since then'},"
        f" last alert {rfc3339(alert) if alert else 'none'}",
        f"vedette {status['version']}  agent {status['agent_id']}  site {status['site']}  fleet {status['fleet']}"
        + (f"  with {', '.join(addons)}" if addons else ""),
        f"rules    {rules['running']} and {rules['correlations']} correlations"
        + (f" and {rules['statements']} statements" if rules["statements"] else "")
        + f" from {rules['origin']},"
        f" {rules['always_candidates']} always candidates,"
        f" {rules['dead_count'] - sum(rules['waiting'].values())} dead; plan {status['plan_digest'][:12]}",
    ]
    if rules["error"]:
        lines.append(f"         last change refused: {rules['error']}")
    if settings["error"]:
        lines.append(f"config   last reload refused, the running configuration stays in force: {settings['error']}")
    if actual := status.get("actual"):
        group = f"group {actual['group']}" if actual["group"] else "in no group"
        serials = f"desired {actual['desired_serial']}, roll-out {actual['rollout_serial']}"
        lines.append(f"fleet    {group}; {serials}; overlay {actual['config']['overlay'][:12] or 'none'}")
        lines += [f"         {problem}" for problem in actual["problems"]]
    if settings["needs_restart"]:
        lines.append(f"config   changed, needs a restart: {', '.join(settings['needs_restart'])}")
    return lines


def _rules(rules: Mapping[str, Any]) -> list[str]:
    waiting = rules["waiting"]
    dead = rules["dead_count"] - sum(waiting.values())
    lines = [f"         dead: {reason}" for reason in rules["dead"][: min(dead, SHOWN)]]
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
    for declared in rules["formats"]:
        name = declared["name"]
        if declared["missing"]:
            lines.append(f"         no rule set has the format {name}: its inputs' events are read as auto")
        elif declared["overruns"]:
            state = "QUARANTINED" if declared["quarantined"] else "slow"
            lines.append(f"         format {name} {state}: {declared['overruns']} messages took too long")
    if rules["undecided"]:
        undecided = sum(rules["undecided"].values())
        lines.append(f"         {undecided} undecided, kept in {rules['dead_letters']['folder']}")
    return lines


def ruleset_lines(rows: list[dict[str, Any]]) -> list[str]:
    """A table of rule sets; nothing for one set: the lines about rules say it all."""
    if len(rows) < 2:
        return []
    lines = [RULESETS_HEAD]
    for row in rows:
        count = row["rules"] + row["correlations"] + row["statements"]
        version = "-" if row["version"] is None else row["version"]
        lines.append(
            f"{row['name']:<20}{version:>8}{count:>7}{row.get('cpu_share', 0):>8.1%}{row.get('us_per_event', 0):>10.3f}"
            f"{amount(row.get('state_bytes', 0), 'bytes'):>11}{row.get('alerts', 0):>9}"
            f"{row.get('lag_events', 0):>9}  {row['dead_count']}, {row.get('quarantined', 0)}"
        )
        if row["error"]:
            lines.append(f"         {row['name']}: last change refused: {row['error']}")
        if (process := row.get("process")) is not None:
            lines.append(_process_line(row["name"], process))
        renamed = [*row["renamed"].items()][:RENAMED_SHOWN]
        lines += [f"         {row['name']}: {old} runs as {new}" for old, new in renamed]
    return lines


def _process_line(name: str, process: Mapping[str, Any]) -> str:
    """The process of a set in strict isolation."""
    if process["running"]:
        doing = f"process {process['pid']}, {amount(process['private_bytes'], 'bytes')}"
    elif wait := process["starts_again_in"]:
        doing = f"NOT RUNNING, starts again in {wait:g} s"
    else:
        doing = "starting"
    line = (
        f"         {name}: strict: {doing} of {amount(process['max_memory'], 'bytes')}; died {process['deaths']} times"
    )
    if process["last_death"]:
        line += f", last: {process['last_death']}"
    counts = process["inputs"].values()
    stored, judged, backlog = (sum(row[stage] for row in counts) for stage in ("stored", "judged", "backlog"))
    lost = sum(sum(row["lost"].values()) for row in counts)
    return f"{line}; stored {stored} = evaluated {judged} + backlog {backlog} + lost {lost}"


def lookup_lines(lookups: Mapping[str, Any], most: int | None = SHOWN) -> list[str]:
    """Lookups in use, on their way and refused; ``most`` of each, None: all."""
    lines = [
        f"lookup   {lookup['name']} version {lookup['version'][:12]}, built {lookup['age_seconds'] / 3600:.1f} h ago,"
        f" {lookup['rows']:,} rows, {lookup['bytes']:,} bytes, from {_ORIGINS[lookup['origin']]}"
        for lookup in lookups["in_use"][:most]
    ]
    if most is not None and (more := len(lookups["in_use"]) - most) > 0:
        lines.append(f"         … and {more} more lookups: vedette lookup list")
    lines += [
        f"         {lookup['name']} version {lookup['version'][:12]} is arriving:"
        f" {lookup['have']} of {lookup['blocks']} blocks"
        for lookup in lookups["incoming"][:most]
    ]
    return lines + [f"         {lookup['name']} refused: {lookup['reason']}" for lookup in lookups["refused"][:most]]


def _inputs(status: Mapping[str, Any]) -> list[str]:
    lines = [INPUTS_HEAD]
    states = {row["name"]: row for row in status["input_states"]}
    for name in {**states, **status["inputs"]}:
        counts = status["inputs"].get(name, _NO_EVENTS)
        reasons = {**counts["dropped"], **counts["lost"]}
        why = ", ".join(f"{reason} {events}" for reason, events in reasons.items()) or "0"
        lines.append(
            f"{name:<16}{counts['received']:>12}{counts['stored']:>12}{counts['judged']:>12}"
            f"{status['backlog'].get(name, 0):>9}  {why}"
        )
        if name in states and (states[name]["state"] != "works" or states[name]["reason"]):
            word = states[name]["state"].replace("failing", "FAILING")
            lines.append(f"         {word}: {states[name]['reason']}")
    return lines


def _flow(status: Mapping[str, Any]) -> list[str]:
    alerts = status["alerts"]
    log = status["raw_log"]
    state = status["correlation_state"]
    ungrouped = sum(row["ungrouped"] for row in state["correlations"])
    total_in = sum(counts["bytes_in"] for counts in status["inputs"].values())
    lost = f" + lost {alerts['lost']}" if alerts["lost"] else ""
    sent, saved = (status["totals"].get(name, 0) for name in ("bytes_sent", "bytes_saved"))
    before = f" ({sent + saved:,} before compression)" if saved else ""
    return [
        f"alerts   made {alerts['made']} = receipted {alerts['receipted']} + in outbox {alerts['in_outbox']}{lost}",
        f"bytes    in {total_in:,}, sent {sent:,}{before};"
        f" raw log {log['bytes']:,} of {log['max_bytes']:,} on disk" + (" (FULL: inputs pause)" if log["full"] else ""),
        f"state    {state['groups']} groups, {state['bytes']:,} of {state['max_bytes']:,} bytes,"
        f" {state['evicted']} evicted; {state['jumps']} time jumps, {ungrouped} matches in no group;"
        f" {state['folded']} alerts folded",
    ]


def _statements(rules: Mapping[str, Any], sql: Mapping[str, Any]) -> list[str]:
    if not rules["statements"]:
        return []
    late, failed = (sum(row[name] for row in sql["statements"]) for name in ("late", "failed"))
    lines = [
        f"         statements: {sql['bytes']:,} of {sql['max_bytes']:,} bytes, {sql['evicted']} keys evicted;"
        f" {late} rows late, {failed} failed, {sql['timeless']} without a time, {sql['unfit']} values unfit"
    ]
    if sql["waiting"] or sql["dropped"]:
        lines.append(
            f"         {sql['waiting']:,} rows wait to be alerts, {sql['waiting_bytes']:,} bytes;"
            f" {sql['dropped']:,} dropped for want of room"
        )
    if titles := [row["title"] for row in sql["without_functions"]]:
        lines.append(
            f"         {len(titles)} do not run: they call functions in Python, which [functions] does not allow:"
            f" {', '.join(titles[:SHOWN])}"
        )
    if functions := sql["functions"]:
        lines.append(
            f"         functions: {functions['calls']} calls, {functions['processes']} processes,"
            f" {functions['died']} died; isolated by {', '.join(functions['isolation']) or 'nothing yet'}"
        )
    return lines


def _audit(audit: Mapping[str, Any]) -> list[str]:
    if not any(audit.values()):
        return []
    return [f"         {audit['open']} audit events open, {audit['bytes']:,} bytes; {audit['evicted']} evaluated early"]


def cache_line(cache: Mapping[str, Any]) -> str:
    """The result cache."""
    if cache["failure"]:
        return f"cache    OFF: {cache['failure']}"
    uses = ", ".join(
        f"{name} {row['hits']} hits, {row['misses']} misses, {row['off']} off"
        for name, row in cache.items()
        if isinstance(row, dict) and row["uses"]
    )
    return f"cache    {cache['bytes']:,} bytes; {uses}; {cache['verified']} verified" if cache["on"] else "cache    off"


def amount(value: float, unit: str) -> str:
    """``value`` as it is, bytes in the largest unit that gives at least 1."""
    if unit != "bytes":
        return f"{value:g}"
    for name, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:.1f} {name}"
    return f"{value:g} B"


def _budgets(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"budget   {name.replace('_', ' ')}: {amount(row['used'], row['unit'])} of {amount(row['max'], row['unit'])}"
        + (" days" if row["unit"] == "days" else "")
        + (f"  REACHED: {row['action']}" if row["reached"] else "")
        for name, row in rows.items()
    ]


def _disk(status: Mapping[str, Any]) -> list[str]:
    disk = status["disk"]
    damaged = status["raw_log"]["damaged"]
    started_empty = status["correlation_state"]["started_empty"]
    lines = [f"DISK     {part}: {row['reason']}" for part, row in disk["failing"].items()]
    if rebuilt := disk["store_rebuilt"]:
        aside = f"; kept in {rebuilt['set_aside']}" if rebuilt["set_aside"] else ""
        lines.append(f"store    rebuilt from the raw log, and evaluated again from there: {rebuilt['reason']}{aside}")
    if "archive" in status:
        lines += archive_lines(status["archive"])
    if damaged:
        lines.append(f"DAMAGED  {damaged} places in the raw log cannot be read: raw_log_damaged in the agent's log")
    if started_empty:
        lines.append(f"         changed, started empty: {', '.join(started_empty[:SHOWN])}")
    return lines


def archive_lines(archive: Mapping[str, Any]) -> list[str]:
    """The archive of the raw log."""
    lines = [
        f"archive  {archive['url']}: {archive['segments']} segments, {archive['bytes']:,} bytes;"
        f" {archive['waiting']} waiting, {archive['waiting_bytes']:,} bytes"
    ]
    return lines + ([f"         FAILING: {archive['error']}"] if archive["failing"] else [])


def _outside(status: Mapping[str, Any]) -> list[str]:
    """Uplink, local response, sinks, plugins and membership."""
    uplink = status["uplink"]
    lines = [
        f"lag      {status['lag_events']} events, {status['lag_seconds']:.1f} s",
        f"uplink   {', '.join(f'{key} {value}' for key, value in uplink.items())}",
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
    for sink in status["row_sinks"]:
        lines.append(
            f"sink     {sink['name']} ({sink['type']}) to {sink['to']}: {sink['made']} rows made, {sink['delivered']}"
            f" delivered, {sink['waiting']} waiting ({sink['waiting_bytes']:,} of {sink['max_waiting']:,} bytes),"
            f" {sink['refused']} refused, {sink['dropped']} dropped"
        )
        if sink["failing"]:
            lines.append(f"         FAILING: {sink['error']}")
    lines += [
        f"plugin   {plugin['plugin']} of {plugin['used']}: {plugin['faults']} faults"
        + (", QUARANTINED" if plugin["quarantined"] else "")
        + (f": {plugin['error']}" if plugin["error"] else "")
        for plugin in status["plugins"]
    ]
    if problem := status.get("membership", {}).get("problem"):
        lines.append(f"MEMBER   {problem}")
    if uplink.get("receipts") == UNAUTHENTICATED:
        lines.append("WARNING  receipts are not authenticated: set uplink.receipt_keys, or use mqtts://")
    return lines


def _account(status: Mapping[str, Any]) -> list[str]:
    alarms = status["totals"].get("identity_alarms", 0)
    past = f"; it did not {alarms} times before, see identity_broken in the log" if alarms else ""
    return [f"BROKEN   {reason}" for reason in status["identity_broken"]] or [f"account  adds up{past}"]
