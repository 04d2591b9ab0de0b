"""The metrics of the agent, in one table: what someone draws or has an alarm on, and where in the status it stands.

``/metrics`` (``exporter.py``) and ``docs/metrics.md`` (``make docs``) are made of ``METRICS``. The status has further
numbers; one of them becomes a metric when somebody watches it: by a row here, with its ``Use``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from vedette.model.counters import TOTALS

AGENT = ("agent_id", "fleet", "site", "version", "bundle", "plan_digest")
"""Labels of ``vedette_agent``, which is always 1; keys of the status."""


class Use(StrEnum):
    """Who watches a metric, and for what, as the documentation says it."""

    RATE = "the operator's graph, per second: what comes in, is evaluated and goes out"
    LAG = "the operator's graph, and alarm when it stays high: what waits, and for how long"
    LOSS = "the operator's alarm when it rises: events or alerts are gone, cut or incomplete"
    SPACE = "the operator's graph, and alarm near a bound: disk, memory, processor"
    LINK = "the operator's alarm: a broker, receiver, archive, certificate or sender is refused or cannot be reached"
    HEALTH = "the operator's alarm: the agent, its configuration or its disk is at fault"
    RULES = "the rule author's graph: what rules and lookups run, give and cost"
    FAULT = "the rule author's alarm above 0 or when it rises: refused, failed, in quarantine"


Read = Callable[[Any], float | None]
"""Makes a value of the status a sample; None: there is none."""


def number(value: Any) -> float | None:
    return float(value) if isinstance(value, bool | int | float) else None


def present(value: Any) -> float:
    """Count a list's texts; of a text, whether it is there."""
    return float(len(value)) if isinstance(value, list) else float(value is not None)


def failing(value: Any) -> float:
    return float(value == "failing")


def microseconds(value: Any) -> float | None:
    """Read an ISO date with its zone as UTC microseconds."""
    return None if value is None else datetime.fromisoformat(value).timestamp() * 1e6


class Metric(NamedTuple):
    """A row of the table.

    ``name``: without ``vedette_``; it ends in ``_total`` if it is a counter, else it is a gauge. ``path``: where its
    numbers are in a status; ``*`` is any key, and ``[name]`` stands for a list whose items have that key. Each of them
    becomes a label.
    """

    name: str
    path: str
    use: Use
    help: str
    labels: tuple[str, ...] = ()
    read: Read = number

    @property
    def counter(self) -> bool:
        return self.name.endswith("_total")


def _rows(
    prefix: str, *rows: tuple[str, str, Use, str], labels: tuple[str, ...] = (), read: Read = number
) -> Iterator[Metric]:
    """Metrics below ``prefix``, of key, name, use and meaning."""
    for key, name, use, help in rows:
        yield Metric(name, f"{prefix}.{key}" if prefix else key, use, help, labels, read)


_TOTALS = {
    "candidates": Use.RATE,
    "alerts_made": Use.RATE,
    "alerts_receipted": Use.RATE,
    "bytes_sent": Use.RATE,
    "bytes_saved": Use.RATE,
    "alerts_incomplete": Use.LOSS,
    "undecided": Use.FAULT,
    "poisoned": Use.FAULT,
    "enrichments_missing": Use.FAULT,
    "redactions_failed": Use.FAULT,
    "decode_failed": Use.LINK,
    "connections_refused": Use.LINK,
    "handshakes_failed": Use.LINK,
    "requests_refused": Use.LINK,
    "receipts_refused": Use.LINK,
    "sync_failed": Use.HEALTH,
}
METRICS: tuple[Metric, ...] = (
    *_rows(
        "inputs.*",
        ("received", "input_received_events_total", Use.RATE, "Events that came in"),
        ("bytes_in", "input_received_bytes_total", Use.RATE, "Bytes of the events received"),
        ("judged", "input_judged_events_total", Use.RATE, "Events evaluated"),
        ("cut", "input_cut_events_total", Use.LOSS, "Events that were too long and were cut"),
        labels=("input",),
    ),
    *_rows(
        "inputs.*",
        ("dropped.*", "input_dropped_events_total", Use.LOSS, "Events received and not stored"),
        ("lost.*", "input_lost_events_total", Use.LOSS, "Events stored that cannot be evaluated"),
        labels=("input", "reason"),
    ),
    *_rows(
        "input_states.[name]",
        ("state", "input_failing", Use.LINK, "1 while an input does not take in what it should"),
        labels=("input",),
        read=failing,
    ),
    *_rows(
        "",
        ("backlog.*", "input_backlog_events", Use.LAG, "Events stored and not evaluated yet"),
        labels=("input",),
    ),
    *_rows(
        "",
        ("lag_events", "lag_events", Use.LAG, "Events of all inputs stored and not evaluated yet"),
        ("lag_seconds", "lag_seconds", Use.LAG, "Age of the oldest event that is not evaluated"),
        ("last_event", "last_event_timestamp_us", Use.LAG, "When the last event came in, since the start"),
        ("started_at", "started_timestamp_us", Use.HEALTH, "When the agent started, UTC microseconds"),
        ("kernel.in_use", "kernel_in_use", Use.SPACE, "1 where the native kernel is in use"),
        ("uplink.connected", "uplink_connected", Use.LINK, "1 while the broker is reached"),
    ),
    *_rows(
        "",
        ("problems", "problems", Use.HEALTH, "What keeps the agent from its work: the reasons of NOT OK in its status"),
        ("identity_broken", "identity_broken_present", Use.HEALTH, "Equations of the account that do not hold"),
        ("config.error", "config_error_present", Use.HEALTH, "1 when the last reload was refused"),
        ("lookups.refused", "lookups_refused_present", Use.FAULT, "Lookups whose new version was refused or waits"),
        ("membership.problem", "membership_problem_present", Use.LINK, "1 while enrolment or renewal does not succeed"),
        ("response.problem", "response_problem_present", Use.HEALTH, "1 while the firewall cannot be changed"),
        read=present,
    ),
    *_rows(
        "membership",
        ("certificate_expires", "certificate_expires_timestamp_us", Use.LINK, "When the host's own certificate ends"),
        read=microseconds,
    ),
    *_rows(
        "process",
        ("crashes", "process_crashes", Use.HEALTH, "Starts of the agent after a life that ended without a stop"),
        ("cpu_seconds", "process_cpu_seconds", Use.SPACE, "CPU time since the start"),
    ),
    *_rows(
        "budgets.*",
        ("used", "budget_used", Use.SPACE, "Used of a budget, in its own unit"),
        ("max", "budget_max", Use.SPACE, "The budget, in its own unit"),
        ("reached", "budget_reached", Use.SPACE, "1 while the budget is used up and its action is under way"),
        labels=("name",),
    ),
    *_rows("totals", *((name, f"{name}_total", use, TOTALS[name]) for name, use in _TOTALS.items())),
    *_rows(
        "alerts",
        ("in_outbox", "outbox_alerts", Use.LAG, "Alerts without a receipt"),
        ("lost", "alerts_lost", Use.LOSS, "Alerts without a receipt that a lost store held, not made again"),
        ("damaged", "outbox_damaged_alerts", Use.LOSS, "Alerts in the outbox that fail their checksum"),
    ),
    *_rows(
        "rules",
        ("running", "rules_running", Use.RULES, "Rules that run"),
        ("dead_count", "rules_dead", Use.FAULT, "Rules that cannot run or that no input can reach"),
        ("quarantined_count", "rules_quarantined", Use.FAULT, "Rules and correlations in quarantine"),
    ),
    *_rows(
        "",
        ("rules.alerts.*", "rule_alerts", Use.RULES, "Alerts since the start, of the rules that made the most"),
        labels=("rule_id",),
    ),
    *_rows(
        "rules.formats.[name]",
        ("missing", "format_missing", Use.FAULT, "1 while an input names a format that no rule set has"),
        labels=("name",),
    ),
    *_rows(
        "rulesets.[name]",
        ("version", "ruleset_version", Use.RULES, "Version of the bundle that a rule set runs"),
        ("cpu_share", "ruleset_cpu_share", Use.RULES, "Part of the evaluation's time that a rule set takes"),
        ("lag_seconds", "ruleset_lag_seconds", Use.LAG, "Age of the oldest event that a rule set has not evaluated"),
        ("quarantined", "ruleset_quarantined_rules", Use.FAULT, "Rules, of a strict set also formats, in quarantine"),
        ("process.deaths", "ruleset_process_deaths", Use.FAULT, "Processes of a strict rule set that died"),
        ("process.private_bytes", "ruleset_process_private_bytes", Use.SPACE, "Memory of a strict set's process"),
        labels=("ruleset",),
    ),
    *_rows(
        "rulesets.[name]",
        ("error", "ruleset_error_present", Use.FAULT, "1 when the last change of a rule set was refused"),
        labels=("ruleset",),
        read=present,
    ),
    *_rows(
        "rulesets.[name].process.inputs.*",
        ("lost.*", "ruleset_lost_events", Use.LOSS, "Events of an input that are lost to a strict rule set"),
        labels=("ruleset", "input", "reason"),
    ),
    *_rows(
        "plugins.[used]",
        ("faults", "plugin_faults", Use.FAULT, "Faults of a plugin, since the start"),
        labels=("used",),
    ),
    *_rows(
        "lookups.in_use.[name]",
        ("age_seconds", "lookup_age_seconds", Use.RULES, "Time since a lookup that rules may ask was built"),
        labels=("name",),
    ),
    *_rows(
        "correlation_state",
        ("folded", "folded_alerts", Use.RULES, "Alerts that were folded into others"),
        ("evicted", "state_evicted_groups", Use.LOSS, "Groups evicted because state.max_bytes was reached"),
        ("jumps", "state_time_jumps", Use.FAULT, "Event times far from what their host has sent before"),
    ),
    *_rows(
        "correlation_state.correlations.[rule_id]",
        ("late", "correlation_late_matches", Use.LOSS, "Matches that came after what they belong to was decided"),
        labels=("rule_id",),
    ),
    *_rows(
        "statement_state",
        ("evicted", "statement_state_evicted_keys", Use.LOSS, "Keys and rows that gave way to a bound"),
        ("dropped", "statement_state_dropped_rows", Use.LOSS, "Rows of all statements that had no room to wait"),
    ),
    *_rows(
        "statement_state.statements.[rule_id]",
        ("late", "statement_late_rows", Use.LOSS, "Rows that came behind a statement's watermark"),
        ("failed", "statement_failed_rows", Use.FAULT, "Rows on which an expression of a statement failed"),
        labels=("rule_id",),
    ),
    *_rows(
        "kernel",
        ("panics", "kernel_panics", Use.HEALTH, "Panics of the native kernel; evaluation went on without it"),
        ("wrong", "kernel_wrong", Use.HEALTH, "Events about which the native kernel was wrong"),
    ),
    *_rows(
        "raw_log",
        ("full", "raw_log_full", Use.HEALTH, "1 while inputs pause because the budget is used up"),
        ("damaged", "raw_log_damaged_places", Use.LOSS, "Places in sealed segments that cannot be read any more"),
    ),
    *_rows(
        "disk",
        ("failing.*.since", "disk_failing_timestamp_us", Use.HEALTH, "Since when a part cannot write or read"),
        labels=("part",),
    ),
    *_rows(
        "archive",
        ("waiting_bytes", "archive_waiting_bytes", Use.LAG, "Bytes of sealed segments that the archive does not have"),
        ("failing", "archive_failing", Use.LINK, "1 while the archive's store takes nothing"),
    ),
    *_rows(
        "sinks.[name]",
        ("waiting", "sink_waiting_alerts", Use.LAG, "Alerts that a sink is not done with, whatever its filter"),
        ("delivered", "sink_delivered_alerts", Use.RATE, "Alerts that a sink's receiver has taken"),
        ("refused", "sink_refused_alerts", Use.LOSS, "Dead letters of a sink"),
        ("dropped", "sink_dropped_alerts", Use.LOSS, "Alerts that were not kept any more when a sink came to them"),
        ("failing", "sink_failing", Use.LINK, "1 while a sink's receiver takes nothing"),
        labels=("sink",),
    ),
    *_rows(
        "row_sinks.[name]",
        ("made", "sink_made_rows", Use.RATE, "Rows that statements have made for a sink"),
        ("waiting", "sink_waiting_rows", Use.LAG, "Rows that a sink is not done with"),
        ("waiting_bytes", "sink_waiting_row_bytes", Use.LAG, "Bytes of the rows that wait for a sink, compressed"),
        ("delivered", "sink_delivered_rows", Use.RATE, "Rows that a sink's receiver has taken"),
        ("refused", "sink_refused_rows", Use.LOSS, "Dead letters of a sink among rows"),
        ("dropped", "sink_dropped_rows", Use.LOSS, "Rows that gave way to newer ones before a sink came to them"),
        ("failing", "row_sink_failing", Use.LINK, "1 while a sink's receiver takes no rows"),
        labels=("sink",),
    ),
    *_rows(
        "response",
        ("blocked", "response_blocked_addresses", Use.RULES, "Addresses that local response blocks now"),
    ),
)


def walk(value: Any, path: tuple[str, ...], labels: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Give what is at ``path``, with the keys that its stars stand for."""
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
    """Give the label values and the number of each sample that ``status`` has for ``metric``."""
    sampled = False
    for labels, value in walk(status, tuple(metric.path.split("."))):
        sample = metric.read(value)
        if sample is not None:
            sampled = True
            yield labels, sample
    if not sampled and metric.counter and not metric.labels:
        yield (), 0.0  # it has not counted yet
