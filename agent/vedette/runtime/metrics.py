"""Every metric of the agent, in one table: its name, type, unit and meaning, and where in the status its number is.

``/metrics`` (``exporter.py``) and ``docs/metrics.md`` (``make docs``) are made from ``METRICS``; a test holds that no
number of a status lacks a row. ``samples`` is a function of a status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from vedette.model.counters import TOTALS

AGENT = ("agent_id", "fleet", "site", "version", "bundle", "plan_digest")
"""Labels of ``vedette_agent``, which is always 1; keys of the status."""
UNITS = {
    "events": "events",
    "alerts": "alerts",
    "matches": "matches",
    "groups": "groups",
    "entities": "entities",
    "rules": "rules, correlations and statements",
    "rows": "rows of statements",
    "count": "a number",
    "bytes": "bytes",
    "offset": "an offset in the raw log, bytes",
    "seconds": "seconds",
    "us": "UTC microseconds",
    "bool": "0 or 1",
    "texts": "how many texts there are",
    "state": "1 while it is failing, else 0",
}


class Metric(NamedTuple):
    """``path``: where its numbers are in a status; ``*`` is any key, and ``[name]`` for a list whose items have
    that key, both of which become a label."""

    name: str
    path: str
    type: Literal["counter", "gauge"]
    unit: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        return f"vedette_{self.name}" + "_total" * (self.type == "counter")


def _rows(
    prefix: str, *rows: tuple[str, ...], labels: tuple[str, ...] = (), type: Literal["counter", "gauge"] = "gauge"
) -> Iterator[Metric]:
    """Metrics below ``prefix``, from key, name, unit, meaning and further labels. Counters survive restarts."""
    for key, name, unit, help, *more in rows:
        yield Metric(name, f"{prefix}.{key}" if prefix else key, type, unit, help, (*labels, *more))


METRICS: tuple[Metric, ...] = (
    *_rows(
        "",
        ("started_at", "started_timestamp_us", "us", "When the agent started, UTC microseconds"),
        ("time", "status_timestamp_us", "us", "When the status was made, UTC microseconds"),
        ("last_event", "last_event_timestamp_us", "us", "When the last event came in, since the start"),
        ("last_alert", "last_alert_timestamp_us", "us", "When the newest alert was made that is kept here"),
        ("problems", "problems", "texts", "What keeps the agent from its work: the reasons of NOT OK in its status"),
        ("seq_high", "seq_high", "count", "Highest seq of an alert"),
        ("lag_events", "lag_events", "events", "Events stored and not evaluated yet"),
        ("lag_seconds", "lag_seconds", "seconds", "Age of the oldest event that is not evaluated"),
        ("backlog.*", "input_backlog_events", "events", "Events stored and not evaluated yet", "input"),
    ),
    *_rows(
        "process",
        ("starts", "process_starts", "count", "Starts of the agent with this data folder"),
        ("crashes", "process_crashes", "count", "Of these, after a life that ended without a stop"),
        ("cpu_seconds", "process_cpu_seconds", "seconds", "CPU time since the start"),
    ),
    *_rows(
        "inputs.*",
        ("received", "input_received_events", "events", "Events that came in"),
        ("stored", "input_stored_events", "events", "Events written to the raw log"),
        ("judged", "input_judged_events", "events", "Events evaluated"),
        ("bytes_in", "input_received_bytes", "bytes", "Bytes of the events received"),
        ("cut", "input_cut_events", "events", "Events that were too long and were cut"),
        ("dropped.*", "input_dropped_events", "events", "Events received and not stored", "reason"),
        ("lost.*", "input_lost_events", "events", "Events stored that cannot be evaluated", "reason"),
        labels=("input",), type="counter",
    ),
    *_rows(
        "input_states.[name]",
        ("state", "input_failing", "state", "1 while an input does not take in what it should"),
        labels=("input",),
    ),
    *_rows("totals", *((name, name, "bytes" if "bytes" in name else "count", text) for name, text in TOTALS.items()),
           type="counter"),
    *_rows(
        "alerts",
        ("in_outbox", "outbox_alerts", "alerts", "Alerts without a receipt"),
        ("lost", "alerts_lost", "alerts", "Alerts without a receipt that a lost store held, not made again"),
        ("outbox_bytes", "outbox_bytes", "bytes", "Bytes of alerts without a receipt"),
        ("outbox_max_bytes", "outbox_max_bytes", "bytes", "Bound of outbox_bytes"),
        ("damaged", "outbox_damaged_alerts", "alerts", "Alerts in the outbox that fail their checksum"),
    ),
    *_rows(
        "rules",
        ("running", "rules_running", "rules", "Rules that run"),
        ("correlations", "rules_correlations", "rules", "Correlations that run"),
        ("statements", "rules_statements", "rules", "Statements in SQL that run"),
        ("always_candidates", "rules_always_candidates", "rules", "Rules for which no event can be left out"),
        ("dead_count", "rules_dead", "rules", "Rules that cannot run or that no input can reach"),
        ("waiting.*", "rules_waiting", "rules", "Rules that wait for an input that is not configured", "input"),
        ("undecided.*", "rule_undecided_events", "events", "Events on which a rule came to no answer", "rule_id"),
        ("alerts.*", "rule_alerts", "alerts", "Alerts since the start, of the rules that made the most", "rule_id"),
        ("quarantined_count", "rules_quarantined", "rules", "Rules and correlations in quarantine"),
    ),
    *_rows(
        "rules.quarantined.[rule_id]",
        ("events", "rule_quarantined_after_events", "events", "Events on which a quarantined rule failed"),
        ("skipped", "rule_skipped_events", "events", "Events that a quarantined rule was not evaluated on"),
        ("since", "rule_quarantined_timestamp_us", "us", "When the rule was quarantined"),
        labels=("rule_id",),
    ),
    *_rows(
        "rulesets.[name]",
        ("version", "ruleset_version", "count", "Version of the bundle that a rule set runs"),
        ("rules", "ruleset_rules", "rules", "Rules of a rule set"),
        ("correlations", "ruleset_correlations", "rules", "Correlations of a rule set"),
        ("statements", "ruleset_statements", "rules", "Statements in SQL of a rule set"),
        ("dead_count", "ruleset_dead_rules", "rules", "Rules of a rule set that cannot run or that no input can reach"),
        ("refused", "ruleset_refused_rules", "rules", "Rules of a rule set that do not compile"),
        ("renamed_count", "ruleset_renamed_rules", "rules", "Rules whose id another set has for another rule"),
        ("error", "ruleset_error_present", "texts", "1 when the last change of a rule set was refused"),
        ("cpu_share", "ruleset_cpu_share", "count", "Part of the evaluation's time that a rule set takes, by a sample"),
        ("us_per_event", "ruleset_us_per_event", "count", "Microseconds an event that a rule set takes, by a sample"),
        ("state_bytes", "ruleset_state_bytes", "bytes", "Memory of the state of a rule set"),
        ("alerts", "ruleset_alerts", "alerts", "Alerts of a rule set since the start"),
        ("quarantined", "ruleset_quarantined_rules", "rules", "Rules, of a strict set also formats, in quarantine"),
        ("lag_events", "ruleset_lag_events", "events", "Events that a rule set has not evaluated yet"),
        ("lag_seconds", "ruleset_lag_seconds", "seconds", "Age of the oldest event that a rule set has not evaluated"),
        labels=("ruleset",),
    ),
    *_rows(
        "rulesets.[name].process",
        ("running", "ruleset_process_running", "count", "1 while the process of a strict rule set evaluates"),
        ("starts", "ruleset_process_starts", "count", "Processes of a strict rule set since the agent's start"),
        ("deaths", "ruleset_process_deaths", "count", "Processes of a strict rule set that died or had to be ended"),
        ("private_bytes", "ruleset_process_private_bytes", "bytes", "Private memory of a strict rule set's process"),
        ("max_memory", "ruleset_process_max_bytes", "bytes", "Bound of ruleset_process_private_bytes"),
        ("cpu_seconds", "ruleset_process_cpu_seconds", "seconds", "CPU time of a strict rule set's processes"),
        labels=("ruleset",),
    ),
    *_rows(
        "rulesets.[name].process.inputs.*",
        ("stored", "ruleset_stored_events", "events", "Events of an input that a strict rule set is to evaluate"),
        ("judged", "ruleset_evaluated_events", "events", "Of these, evaluated and committed"),
        ("backlog", "ruleset_backlog_events", "events", "Of these, not evaluated yet"),
        ("lost.*", "ruleset_lost_events", "events", "Of these, lost to the rule set", "reason"),
        labels=("ruleset", "input"),
    ),
    *_rows(
        "rules.dead_letters",
        ("events", "dead_letter_events", "events", "Dead letters since the start"),
        ("lost", "dead_letter_lost_events", "events", "Dead letters that could not be written"),
        ("bytes", "dead_letter_bytes", "bytes", "Bytes of dead letters on disk"),
        ("max_bytes", "dead_letter_max_bytes", "bytes", "Bound of dead_letter_bytes"),
    ),
    *_rows(
        "lookups.in_use.[name]",
        ("rows", "lookup_rows", "count", "Rows of a lookup that rules may ask"),
        ("bytes", "lookup_size_bytes", "bytes", "Size of a lookup that rules may ask"),
        ("created", "lookup_created_timestamp_us", "us", "When a lookup that rules may ask was built"),
        ("age_seconds", "lookup_age_seconds", "seconds", "Time since a lookup that rules may ask was built"),
        labels=("name",),
    ),
    *_rows(
        "lookups.incoming.[name]",
        ("created", "lookup_incoming_created_timestamp_us", "us", "When a lookup that is arriving was built"),
        ("blocks", "lookup_incoming_blocks", "count", "Blocks of a lookup that is arriving"),
        ("have", "lookup_incoming_have_blocks", "count", "Blocks of it that are here"),
        ("resumed", "lookup_incoming_resumed_blocks", "count", "Blocks of it that an earlier attempt left"),
        ("copied", "lookup_incoming_copied_blocks", "count", "Blocks of it that the version before had"),
        ("fetched", "lookup_incoming_fetched_bytes", "bytes", "Bytes that came for it in this attempt"),
        labels=("name",),
    ),
    *_rows(
        "correlation_state",
        ("groups", "state_groups", "groups", "Groups in the state of correlations"),
        ("bytes", "state_bytes", "bytes", "Memory of the state of correlations"),
        ("max_bytes", "state_max_bytes", "bytes", "Bound of state_bytes"),
        ("evicted", "state_evicted_groups", "groups", "Groups evicted because state.max_bytes was reached"),
        ("cut", "state_cut_matches", "matches", "Oldest matches of groups that were too large"),
        ("jumps", "state_time_jumps", "count", "Event times far from what their host has sent before"),
        ("sources", "state_sources", "count", "Inputs and hosts whose time is followed"),
        ("suppressing", "suppressing_entities", "entities", "Entities whose alerts are being folded"),
        ("folded", "folded_alerts", "alerts", "Alerts that were folded into others"),
        ("closed_early", "suppression_closed_early", "count", "Suppressions that ended early for want of room"),
    ),
    *_rows(
        "correlation_state.audit",
        ("open", "audit_open_events", "events", "Audit events that wait for further records"),
        ("bytes", "audit_open_bytes", "bytes", "Bytes of audit events that wait for further records"),
        ("evicted", "audit_evicted_events", "events", "Audit events evaluated before their last record"),
    ),
    *_rows(
        "correlation_state.correlations.[rule_id]",
        ("groups", "correlation_groups", "groups", "Groups of a correlation"),
        ("fired", "correlation_fired", "count", "Times that a correlation fired"),
        ("late", "correlation_late_matches", "matches", "Matches after a decision"),
        ("ungrouped", "correlation_ungrouped_matches", "matches", "Matches without a value to group by"),
        labels=("rule_id",),
    ),
    *_rows(
        "statement_state",
        ("bytes", "statement_state_bytes", "bytes", "Memory of the state of statements"),
        ("max_bytes", "statement_state_max_bytes", "bytes", "Bound of statement_state_bytes"),
        ("evicted", "statement_state_evicted_keys", "groups", "Keys evicted for want of room"),
        ("waiting", "statement_waiting_rows", "rows", "Rows of statements whose alerts are not made yet"),
        ("waiting_bytes", "statement_waiting_bytes", "bytes", "Memory of rows that wait"),
        ("dropped", "statement_state_dropped_rows", "rows", "Rows of all statements that had no room to wait"),
        ("timeless", "statement_timeless_rows", "events", "Events without the time that their table asks for"),
        ("unfit", "statement_unfit_values", "count", "Values that were NULL because they did not fit their column"),
    ),
    *_rows(
        "statement_state.statements.[rule_id]",
        ("rows", "statement_rows", "rows", "Rows that a statement gave"),
        ("late", "statement_late_rows", "rows", "Rows that came behind a statement's watermark"),
        ("failed", "statement_failed_rows", "rows", "Rows on which an expression of a statement failed"),
        ("dropped", "statement_dropped_rows", "rows", "Rows of a statement that had no room to wait: alerts not made"),
        ("bytes", "statement_bytes", "bytes", "Memory of a statement's state; shared state counts for each"),
        labels=("rule_id",),
    ),
    *_rows(
        "cache",
        ("bytes", "cache_bytes", "bytes", "Bytes of the result cache"),
        ("answers", "cache_answers", "count", "Distinct results in the cache"),
        ("forgotten", "cache_forgotten", "count", "Times that the cache was emptied"),
        ("verified", "cache_verified", "count", "Hits that were verified by evaluating again"),
    ),
    *_rows(
        "cache.*",
        ("hits", "cache_hits", "count", "Cache look-ups that found a result, by use of the cache"),
        ("misses", "cache_misses", "count", "Cache look-ups that found none, by use of the cache"),
        ("off", "cache_off", "count", "Questions for which nothing was looked up, by use of the cache"),
        ("uses", "cache_uses", "count", "Cache uses of this kind"),
        ("resting", "cache_resting", "count", "Cache uses of this kind that are resting"),
        labels=("use",),
    ),
    *_rows(
        "kernel",
        ("events", "kernel_events", "count", "JSON objects that the native kernel read, of this rule set"),
        ("undecided", "kernel_undecided", "count", "Of them left to the prefilter: not readable, or not learned"),
        ("learned", "kernel_learned", "count", "Structures of events that were learned"),
        ("refused", "kernel_refused", "count", "Structures of events that cannot be learned"),
        ("panics", "kernel_panics", "count", "Panics of the native kernel; what it was about was evaluated without it"),
        ("wrong", "kernel_wrong", "count", "Events about which the native kernel was wrong; their like go without it"),
    ),
    *_rows(
        "raw_log",
        ("start", "raw_log_start_offset", "offset", "Offset of the oldest byte kept"),
        ("end", "raw_log_end_offset", "offset", "Offset of the next byte"),
        ("durable", "raw_log_durable_offset", "offset", "Offset up to which all is on disk"),
        ("bytes", "raw_log_bytes", "bytes", "Bytes of the raw log on disk"),
        ("max_bytes", "raw_log_max_bytes", "bytes", "Bound of raw_log_bytes"),
        ("full", "raw_log_full", "bool", "1 while inputs pause because the budget is used up"),
        ("damaged", "raw_log_damaged_places", "count", "Places in sealed segments that cannot be read any more"),
        ("verified", "raw_log_verified_rounds", "count", "Times since the start that all sealed segments were read"),
    ),
    *_rows(
        "archive",
        ("segments", "archive_segments", "count", "Segments in the archive, verified"),
        ("bytes", "archive_bytes", "bytes", "Bytes of their objects"),
        ("waiting", "archive_waiting_segments", "count", "Sealed segments that the archive does not have yet"),
        ("waiting_bytes", "archive_waiting_bytes", "bytes", "Bytes of these"),
        ("failing", "archive_failing", "bool", "1 while the archive's store takes nothing"),
        ("failures", "archive_failures", "count", "Failed attempts to archive a segment since the start"),
    ),
    *_rows(
        "raw_log.recovery",
        ("cut_bytes", "raw_log_recovery_cut_bytes", "bytes", "Bytes that the last start cut off"),
        ("cut_at", "raw_log_recovery_cut_offset", "offset", "Offset at which the last start cut the log off"),
        ("new_log", "raw_log_recovery_new_log", "bool", "1 when the last start began a new log"),
        ("resumed_at", "raw_log_recovery_resumed_offset", "offset", "Offset at which the log then continued, or 0"),
    ),
    *_rows(
        "disk",
        ("failures", "disk_failures", "count", "Failed attempts to write or read since the start"),
        ("held_events", "held_events", "events", "Events in memory because the raw log takes nothing"),
        ("held_bytes", "held_bytes", "bytes", "Bytes of events in memory because the raw log takes nothing"),
        ("store_rebuilt.at", "store_rebuilt_timestamp_us", "us", "When the store was last rebuilt"),
        ("store_rebuilt.judged_from", "store_rebuilt_offset", "offset", "Offset from which evaluation went on then"),
    ),
    *_rows(
        "budgets.*",
        ("used", "budget_used", "count", "Used of a budget, in its own unit"),
        ("max", "budget_max", "count", "The budget, in its own unit"),
        ("reached", "budget_reached", "bool", "1 while the budget is used up and its action is under way"),
        labels=("name",),
    ),
    *_rows(
        "sinks.[name]",
        ("waiting", "sink_waiting_alerts", "alerts", "Alerts that a sink is not done with, whatever its filter"),
        ("delivered", "sink_delivered_alerts", "alerts", "Alerts that a sink's receiver has taken"),
        ("refused", "sink_refused_alerts", "alerts", "Dead letters of a sink"),
        ("dropped", "sink_dropped_alerts", "alerts", "Alerts that were not kept any more when a sink came to them"),
        ("retries", "sink_retries", "count", "Alerts that a sink was to try again, since the start"),
        ("failing", "sink_failing", "bool", "1 while a sink's receiver takes nothing"),
        ("since", "sink_failing_timestamp_us", "us", "Since when it takes nothing"),
        labels=("sink",),
    ),
    *_rows(
        "rules.formats.[name]",
        ("overruns", "format_overruns", "count", "Messages on which a declared format's patterns took too long"),
        ("quarantined", "format_quarantined", "bool", "1 while a declared format is in quarantine"),
        ("missing", "format_missing", "bool", "1 while an input names a format that no rule set has"),
        labels=("name",),
    ),
    *_rows(
        "plugins.[used]",
        ("faults", "plugin_faults", "count", "Faults of a plugin, since the start"),
        ("quarantined", "plugin_quarantined", "bool", "1 while a plugin is in quarantine"),
        labels=("used",),
    ),
    *_rows(
        "response",
        ("blocked", "response_blocked_addresses", "count", "Addresses that local response blocks now"),
        ("max_blocked", "response_max_addresses", "count", "Bound of response_blocked_addresses"),
        ("dry_run", "response_dry_run", "bool", "1 where local response only reports what it would block"),
        ("problem", "response_problem_present", "texts", "1 while local response cannot change the firewall"),
    ),
    *_rows(
        "",
        ("disk.failing.*.since", "disk_failing_timestamp_us", "us", "Since when a part cannot write or read", "part"),
        ("cache.on", "cache_on", "bool", "1 while the result cache is in use"),
        ("kernel.in_use", "kernel_in_use", "bool", "1 where the native kernel is in use"),
        ("uplink.connected", "uplink_connected", "bool", "1 while the broker is reached"),
        ("config.reloads", "config_reloads", "count", "Reloads of the configuration since the start"),
        ("clock.steps", "clock_steps", "count", "Times that the host's clock was set by 1 s or more"),
        ("clock.ahead_seconds", "clock_ahead_seconds", "seconds", "Lead of receipts over a clock that was set back"),
        ("identity_broken", "identity_broken_present", "texts", "Equations of the account that do not hold"),
        ("config.needs_restart", "config_needs_restart_present", "texts", "Settings that need a restart"),
        ("lookups.refused", "lookups_refused_present", "texts", "Lookups whose last new version was refused or waits"),
        ("rules.error", "rules_error_present", "texts", "1 when the last change of rules was refused"),
        ("config.error", "config_error_present", "texts", "1 when the last reload was refused"),
    ),
)  # fmt: skip


def walk(value: Any, path: tuple[str, ...], labels: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What is at ``path``, with the keys that its stars stand for."""
    if not path:
        yield labels, value
        return
    head, *rest = path
    below = tuple(rest)
    if head == "*" and isinstance(value, Mapping):
        for key, item in value.items():
            yield from walk(item, below, (*labels, str(key)))
    elif head.startswith("[") and isinstance(value, list):
        for item in value:
            yield from walk(item, below, (*labels, str(item[head[1:-1]])))
    elif isinstance(value, Mapping) and head in value:
        yield from walk(value[head], below, labels)


def samples(metric: Metric, status: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], float]]:
    sampled = False
    for labels, value in walk(status, tuple(metric.path.split("."))):
        if metric.unit == "state":
            value = value == "failing"
        elif metric.unit == "texts":
            value = len(value) if isinstance(value, list) else int(value is not None)
        if isinstance(value, bool | int | float):
            sampled = True
            yield labels, float(value)
    if not sampled and metric.type == "counter" and not metric.labels:
        yield (), 0.0  # it has not counted yet
