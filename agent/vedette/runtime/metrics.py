"""The agent's counters for Prometheus: the numbers of the status under names of their own, and nothing besides.

``ROWS`` names every number of ``status.collect`` by its path, ``*`` standing for a key that becomes a label; a test
holds that no number of a status is without a row. ``families`` is a function of a status. ``Exporter`` serves it as
text at ``/metrics`` of one address, of the loopback unless the operator says otherwise: it tells the names of inputs
and rules to whoever can connect. It answers in the event loop, where all figures are of one moment, one request per
connection, ``MAX_CONNECTIONS`` at a time, each for ``SECONDS`` at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from vedette.model.counters import TOTALS, Log
from vedette.model.settings import split_address

log = structlog.get_logger()

MAX_REQUEST = 8 << 10
MAX_CONNECTIONS = 16
SECONDS = 5.0


class Row(NamedTuple):
    """Numbers at ``path`` of a status, as one metric. ``labels`` name what the stars of the path stand for; a key
    ``[name]`` in it says which member of a list's items is the label."""

    path: str
    name: str
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    help: str
    labels: tuple[str, ...] = ()


_C, _G = CounterMetricFamily, GaugeMetricFamily

ROWS: tuple[Row, ...] = (
    Row("started_at", "started_timestamp_us", _G, "When the agent started, UTC microseconds"),
    Row("time", "status_timestamp_us", _G, "When the status was made, UTC microseconds"),
    Row("seq_high", "seq_high", _G, "Highest seq of an alert"),
    Row("lag_events", "lag_events", _G, "Events stored and not judged yet"),
    Row("lag_seconds", "lag_seconds", _G, "Age of the oldest of them"),
    Row("backlog.*", "input_backlog_events", _G, "Events stored and not judged yet", ("input",)),
    Row("inputs.*.received", "input_received_events", _C, "Events that came in", ("input",)),
    Row("inputs.*.stored", "input_stored_events", _C, "Events written to the raw log", ("input",)),
    Row("inputs.*.judged", "input_judged_events", _C, "Events that rules were asked about", ("input",)),
    Row("inputs.*.bytes_in", "input_received_bytes", _C, "Bytes of the events received", ("input",)),
    Row("inputs.*.cut", "input_cut_events", _C, "Events that were too long and were cut", ("input",)),
    Row("inputs.*.dropped.*", "input_dropped_events", _C, "Events received and not stored", ("input", "reason")),
    Row("inputs.*.lost.*", "input_lost_events", _C, "Events stored and impossible to judge", ("input", "reason")),
    *(Row(f"totals.{name}", name, _C, told) for name, told in TOTALS.items()),
    Row("alerts.in_outbox", "outbox_alerts", _G, "Alerts without a receipt"),
    Row("alerts.lost", "alerts_lost", _G, "Alerts without a receipt that a lost store held, not made again"),
    Row("alerts.outbox_bytes", "outbox_bytes", _G, "Their bytes"),
    Row("alerts.outbox_max_bytes", "outbox_max_bytes", _G, "Bound of outbox_bytes"),
    Row("alerts.damaged", "outbox_damaged_alerts", _G, "Alerts in the outbox that fail their checksum"),
    Row("rules.running", "rules_running", _G, "Rules that run"),
    Row("rules.correlations", "rules_correlations", _G, "Correlations that run"),
    Row("rules.always_candidates", "rules_always_candidates", _G, "Rules for which no event can be left out"),
    Row("rules.dead_count", "rules_dead", _G, "Rules that cannot run or that no input can reach"),
    Row("rules.waiting.*", "rules_waiting", _G, "Rules that wait for an input that the agent lacks", ("input",)),
    Row("rules.undecided.*", "rule_undecided_events", _G, "Events that a rule could not be decided on", ("rule_id",)),
    Row("rules.quarantined_count", "rules_quarantined", _G, "Rules and correlations in quarantine"),
    Row("rules.quarantined.[rule_id].events", "rule_quarantined_after_events", _G, "Events on which a rule in quarantine failed", ("rule_id",)),  # noqa: E501
    Row("rules.quarantined.[rule_id].skipped", "rule_skipped_events", _G, "Events that a rule in quarantine was not asked about", ("rule_id",)),  # noqa: E501
    Row("rules.quarantined.[rule_id].since", "rule_quarantined_timestamp_us", _G, "Since when", ("rule_id",)),
    Row("rules.dead_letters.events", "dead_letter_events", _G, "Dead letters since the start"),
    Row("rules.dead_letters.lost", "dead_letter_lost_events", _G, "Dead letters that could not be written"),
    Row("rules.dead_letters.bytes", "dead_letter_bytes", _G, "Bytes of dead letters on disk"),
    Row("rules.dead_letters.max_bytes", "dead_letter_max_bytes", _G, "Bound of dead_letter_bytes"),
    Row("correlation_state.groups", "state_groups", _G, "Groups that correlations remember"),
    Row("correlation_state.bytes", "state_bytes", _G, "Their memory"),
    Row("correlation_state.max_bytes", "state_max_bytes", _G, "Bound of state_bytes"),
    Row("correlation_state.evicted", "state_evicted_groups", _G, "Groups evicted because state.max_bytes was reached"),
    Row("correlation_state.cut", "state_cut_matches", _G, "Oldest matches of groups that were too large"),
    Row("correlation_state.jumps", "state_time_jumps", _G, "Event times far from what their host has sent before"),
    Row("correlation_state.sources", "state_sources", _G, "Inputs and hosts whose time is followed"),
    Row("correlation_state.suppressing", "suppressing_entities", _G, "Entities whose alerts are being folded"),
    Row("correlation_state.folded", "folded_alerts", _G, "Alerts that were folded into others"),
    Row("correlation_state.closed_early", "suppression_closed_early", _G, "Entities let go because there were too many"),  # noqa: E501
    Row("correlation_state.audit.open", "audit_open_events", _G, "Audit events that wait for further records"),
    Row("correlation_state.audit.bytes", "audit_open_bytes", _G, "Their bytes"),
    Row("correlation_state.audit.evicted", "audit_evicted_events", _G, "Audit events judged before their time"),
    Row("correlation_state.correlations.[rule_id].groups", "correlation_groups", _G, "Groups of a correlation", ("rule_id",)),  # noqa: E501
    Row("correlation_state.correlations.[rule_id].fired", "correlation_fired", _G, "Times that it fired", ("rule_id",)),
    Row("correlation_state.correlations.[rule_id].late", "correlation_late_matches", _G, "Matches after a decision", ("rule_id",)),  # noqa: E501
    Row("correlation_state.correlations.[rule_id].ungrouped", "correlation_ungrouped_matches", _G, "Matches without a value to group by", ("rule_id",)),  # noqa: E501
    Row("cache.bytes", "cache_bytes", _G, "Bytes of the result cache"),
    Row("cache.answers", "cache_answers", _G, "Distinct answers in it"),
    Row("cache.forgotten", "cache_forgotten", _G, "Times it was emptied"),
    Row("cache.verified", "cache_verified", _G, "Hits that were judged afresh"),
    *(
        Row(f"cache.*.{name}", f"cache_{name}", _G, f"{told}, per use of the cache", ("use",))
        for name, told in {
            "hits": "Look-ups that found an answer",
            "misses": "Look-ups that found none",
            "off": "Questions for which nothing was looked up",
            "uses": "Uses of this kind",
            "resting": "Of them, those that are resting",
        }.items()
    ),
    Row("raw_log.start", "raw_log_start_offset", _G, "Offset of the oldest byte kept"),
    Row("raw_log.end", "raw_log_end_offset", _G, "Offset of the next byte"),
    Row("raw_log.durable", "raw_log_durable_offset", _G, "Offset up to which all is on disk"),
    Row("raw_log.bytes", "raw_log_bytes", _G, "Bytes of the raw log on disk"),
    Row("raw_log.max_bytes", "raw_log_max_bytes", _G, "Bound of raw_log_bytes"),
    Row("raw_log.full", "raw_log_full", _G, "1 while inputs pause because the budget is used up"),
    Row("raw_log.damaged", "raw_log_damaged_places", _G, "Places in sealed segments that cannot be read any more"),
    Row("raw_log.verified", "raw_log_verified_rounds", _G, "Times since the start that all sealed segments were read"),
    Row("raw_log.recovery.cut_bytes", "raw_log_recovery_cut_bytes", _G, "Bytes that the last start cut off"),
    Row("raw_log.recovery.cut_at", "raw_log_recovery_cut_offset", _G, "Where"),
    Row("raw_log.recovery.new_log", "raw_log_recovery_new_log", _G, "1 when it began a new log"),
    Row("raw_log.recovery.resumed_at", "raw_log_recovery_resumed_offset", _G, "Offset further on where the log then continued, 0 for none"),  # noqa: E501
    Row("disk.failing.*.since", "disk_failing_timestamp_us", _G, "Since when a part cannot write or read", ("part",)),
    Row("disk.failures", "disk_failures", _G, "Tries to write that failed since the start"),
    Row("disk.held_events", "held_events", _G, "Events in memory because the raw log takes nothing"),
    Row("disk.held_bytes", "held_bytes", _G, "Their bytes"),
    Row("disk.store_rebuilt.at", "store_rebuilt_timestamp_us", _G, "When the store was last made again"),
    Row("disk.store_rebuilt.judged_from", "store_rebuilt_offset", _G, "From which offset on was then judged again"),
    Row("budgets.*.used", "budget_used", _G, "Used of a budget, bytes or days", ("name",)),
    Row("budgets.*.max", "budget_max", _G, "The budget", ("name",)),
    Row("budgets.*.reached", "budget_reached", _G, "1 while what happens at its end is under way", ("name",)),
    Row("cache.on", "cache_on", _G, "1 while the result cache is in use"),
    Row("uplink.connected", "uplink_connected", _G, "1 while the broker is reached"),
    Row("config.reloads", "config_reloads", _G, "Reloads of the configuration since the start"),
    Row("clock.steps", "clock_steps", _G, "Times that the host's clock was set by a second or more since the start"),
    Row("clock.ahead_seconds", "clock_ahead_seconds", _G, "Lead of receipts over the host's clock after a step back"),
)  # fmt: skip

TWICE = {
    "alerts.made": "totals.alerts_made",
    "alerts.receipted": "totals.alerts_receipted",
    "rules.quarantined.[rule_id].undecided": "rules.quarantined.[rule_id].events",
}
"""Numbers that a status gives a second time, and the row that has them."""

TEXTS = ("identity_broken", "config.needs_restart", "rules.error", "config.error")
"""Texts and lists of texts of which the metrics tell how many there are, as ``vedette_PATH_present``."""


def walk(value: Any, path: tuple[str, ...], labels: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """The numbers at ``path`` with the keys that its stars stand for."""
    if not path:
        if isinstance(value, bool | int | float):
            yield labels, float(value)
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


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    """The metrics of a status."""
    info = GaugeMetricFamily("vedette_agent", "Which agent this is; always 1", labels=_WHO)
    info.add_metric([str(status[name] or "") for name in _WHO], 1)
    yield info
    for row in ROWS:
        family = row.kind(f"vedette_{row.name}", row.help, labels=row.labels)
        found = False
        for labels, number in walk(status, tuple(row.path.split("."))):
            family.add_metric(labels, number)
            found = True
        if found or (row.kind is CounterMetricFamily and not row.labels):
            if not found:
                family.add_metric((), 0)  # a counter that has not counted yet
            yield family
    for path in TEXTS:
        value: Any = status
        for key in path.split("."):
            value = value[key]
        name = f"vedette_{path.replace('.', '_')}_present"
        number = len(value) if isinstance(value, list) else int(value is not None)
        yield GaugeMetricFamily(name, f"How many texts {path} of the status holds; 0 when all is well", value=number)


_WHO = ("agent_id", "fleet", "site", "version", "bundle", "plan_digest")


class _Status(Collector):
    """For one request."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        return families(self._status)


def text(status: Mapping[str, Any]) -> bytes:
    """A status in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Status(status))
    return generate_latest(registry)


class Exporter:
    """See the module's text."""

    def __init__(self, listen: str, status: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        self._host, self._port = split_address(listen)
        self._status = status
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self) -> None:
        """Raises OSError naming the setting and the address."""
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=MAX_REQUEST)
        except OSError as error:
            reason = f"metrics.listen: cannot listen on {self._host}:{self._port}: {error.strerror or error}"
            raise OSError(error.errno, reason) from error
        log.info(Log.METRICS_SERVED, url=f"http://{self._host}:{self.port}/metrics")

    @property
    def port(self) -> int:
        """The bound one."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MAX_CONNECTIONS:
                async with asyncio.timeout(SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._answer(head))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # no request, or nobody who waits for the answer
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        target = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response(b"405 Method Not Allowed", "text/plain", b"GET /metrics\n")
        if target != b"/metrics":
            return _response(b"404 Not Found", "text/plain", b"the metrics are at /metrics\n")
        body = text(await self._status())
        return _response(b"200 OK", CONTENT_TYPE_LATEST, body, send=method == b"GET")


def _response(state: bytes, kind: str, body: bytes, *, send: bool = True) -> bytes:
    head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (state, kind.encode(), len(body)) + (body if send else b"")
