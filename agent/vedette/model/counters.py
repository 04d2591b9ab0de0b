"""Every counter, drop reason and log-event name of the agent, in one place.

The identity that must always hold, per input (``Counters.identity`` checks it):

    received = stored + dropped(reason…)        stored = judged + backlog + lost(reason…)

and for the agent: alerts made = receipted + in outbox + lost. Damage may take the name of the input with it: such
events are counted under ``UNKNOWN``, and while there are any, the second equation holds for the sum over all inputs.

Each counter is counted at its own stage, never by subtraction: ``received`` at the input, ``stored`` by the raw
log, ``judged`` by the pipeline. After a kill ``settle`` brings them up to what the log holds.

No counter that was shown goes back, over a kill either: what is evaluated is shown when it is committed (``visible``),
what the inputs count is kept on disk when it is reported (``pipeline/lives.py``). Only what an input reads again, since
the raw log does not hold it, is taken back (``settle``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from enum import StrEnum
from typing import Any

UNKNOWN = "?"
"""The input of events whose frame is so damaged that it does not name it; no input's name, see
``model.settings.Name``."""


class Dropped(StrEnum):
    """Why an event that was received is not in the raw log."""

    FRAMING = "framing"  # octet count malformed: the stream cannot be read on
    DUPLICATE = "duplicate"  # an MQTT redelivery of a message the log already holds
    DISK_FULL = "disk_full"  # a datagram while the raw log takes nothing
    KERNEL = "kernel"  # the socket buffer overflowed (read from the kernel)
    VACUUMED = "vacuumed"  # deleted from systemd's journal or from Kafka before it was read
    MISSED = "missed"  # an audit event while the agent did not listen (its numbers show it)
    UNWANTED = "unwanted"  # an MQTT message under way when its filter left `topics`
    UNFRAMED = "unframed"  # the raw log has no frame for it, however little is in it
    UNWRITTEN = "unwritten"  # held in memory for a raw log that took nothing when the process ended


class Lost(StrEnum):
    """Why an event that was stored cannot be evaluated."""

    DAMAGED = "damaged"  # its frame fails its checksum
    OVERRUN = "overrun"  # of a rule set in strict isolation: further behind than the raw log could wait for
    MISSING = "missing"  # its bytes are not in the raw log any more: cut off, or in a segment that is gone


class Log(StrEnum):
    """Names of structured log events: the first argument of every logging call."""

    STARTED = "agent_started"
    RELOADED = "agent_reloaded"
    STOPPING = "agent_stopping"
    STOPPED = "agent_stopped"
    STOP_UNFINISHED = "stop_unfinished"
    STOP_FORCED = "stop_forced"
    CONFIG_REFUSED = "config_refused"
    CONFIG_NEEDS_RESTART = "config_needs_restart"
    CLOCK_STEPPED = "clock_stepped"
    HOST_RESUMED = "host_resumed"
    LOG_SUPPRESSED = "log_suppressed"
    METRICS_SERVED = "metrics_served"
    LISTENING = "listening"
    CONNECTION_REFUSED = "connection_refused"
    CONNECTION_EVICTED = "connection_evicted"
    CONNECTION_STALLED = "connection_stalled"
    INPUT_FAILED = "input_failed"
    DESCRIPTORS_FEW = "descriptors_few"
    DESCRIPTORS_SPENT = "descriptors_spent"
    TLS_REFUSED = "tls_refused"
    CERTIFICATE_UNUSABLE = "certificate_unusable"
    FRAMING_ERROR = "framing_error"
    PUSH_REFUSED = "push_refused"
    EVENT_CUT = "event_cut"
    EVENT_DROPPED = "event_dropped"
    FILE_ENCODED = "file_encoded"
    FILE_OPENED = "file_opened"
    FILE_ROTATED = "file_rotated"
    FILE_TRUNCATED = "file_truncated"
    FILE_UNREADABLE = "file_unreadable"
    KAFKA_GAP = "kafka_gap"
    JOURNAL_COMPLAINT = "journal_complaint"
    AUDIT_OPENED = "audit_opened"
    AUDIT_UNAVAILABLE = "audit_unavailable"
    AUDIT_GAP = "audit_gap"
    JOURNAL_GAP = "journal_gap"
    JOURNAL_UNAVAILABLE = "journal_unavailable"
    BROKER_CONNECTED = "broker_connected"
    BROKER_AWAY = "broker_away"
    BROKER_REFUSED = "broker_refused"
    BROKER_TAKEN_OVER = "broker_taken_over"
    COPY_NOTICED = "copy_noticed"
    RAW_LOG_CUT = "raw_log_cut"
    RAW_LOG_DAMAGED = "raw_log_damaged"
    RAW_LOG_UNREADABLE = "raw_log_unreadable"
    RAW_LOG_UNWRITABLE = "raw_log_unwritable"
    RAW_LOG_SYNC_FAILED = "raw_log_sync_failed"
    RAW_LOG_REWRITTEN = "raw_log_rewritten"
    SEGMENT_COMPACTED = "segment_compacted"
    DISK_FAILING = "disk_failing"
    DISK_RECOVERED = "disk_recovered"
    STORE_DAMAGED = "store_damaged"
    STORE_REBUILT = "store_rebuilt"
    STORE_UNCHECKED = "store_unchecked"
    MEMORY_PRESSURE = "memory_pressure"
    BACKLOG_OVERRUN = "backlog_overrun"
    AGENT_DIED = "agent_died"
    RULESET_DIED = "ruleset_died"
    RULESET_STARTED = "ruleset_started"
    RULESET_ISOLATED = "ruleset_isolated"
    RULESET_MERGED = "ruleset_merged"
    SEGMENT_DELETED = "segment_deleted"
    SEGMENT_ARCHIVED = "segment_archived"
    ARCHIVE_FAILED = "archive_failed"
    ARCHIVE_RECOVERED = "archive_recovered"
    ARCHIVE_ROW_REFUSED = "archive_row_refused"
    ARCHIVE_INDEX_DAMAGED = "archive_index_damaged"
    LITERALS_KEPT = "literals_kept"
    RULES_LOADED = "rules_loaded"
    RULES_REFUSED = "rules_refused"
    RULE_UNSUPPORTED = "rule_unsupported"
    RULE_QUARANTINED = "rule_quarantined"
    DEAD_LETTER_LOST = "dead_letter_lost"
    QUARANTINE_RELEASED = "quarantine_released"
    FORMAT_QUARANTINED = "format_quarantined"
    EVALUATION_FAILED = "evaluation_failed"
    CACHE_WRONG = "cache_wrong"
    KERNEL_PANICKED = "kernel_panicked"
    KERNEL_WRONG = "kernel_wrong"
    EVENT_POISONED = "event_poisoned"
    BUNDLE_INSTALLED = "bundle_installed"
    BUNDLE_REFUSED = "bundle_refused"
    BUNDLE_EXPIRED = "bundle_expired"
    BUNDLE_ROLLED_BACK = "bundle_rolled_back"
    LOOKUP_INSTALLED = "lookup_installed"
    LOOKUP_REFUSED = "lookup_refused"
    LOOKUP_DELAYED = "lookup_delayed"
    LOOKUP_ROLLED_BACK = "lookup_rolled_back"
    LOOKUP_REMOVED = "lookup_removed"
    FLEET_DOCUMENTS = "fleet_documents"
    FLEET_REFUSED = "fleet_refused"
    OVERLAY_APPLIED = "overlay_applied"
    OVERLAY_CONFIRMED = "overlay_confirmed"
    RELEASE_ASKED = "release_asked"
    RELEASE_CONFIRMED = "release_confirmed"
    RELEASE_UNDONE = "release_undone"
    OVERLAY_UNDONE = "overlay_undone"
    AUDIT_FAILED = "audit_failed"
    REQUEST_REFUSED = "request_refused"
    REQUEST_ENDED = "request_ended"
    REQUEST_FAILED = "request_failed"
    STEERING = "steering"
    STEERING_WAITS = "steering_waits"
    STEERING_FAILED = "steering_failed"
    ROLLOUT_MOVED = "rollout_moved"
    ROLLOUT_ABORTED = "rollout_aborted"
    ROLLOUT_REQUEST = "rollout_request"
    ROLLOUT_REQUEST_REFUSED = "rollout_request_refused"
    STATE_LOST = "state_lost"
    STATEMENT_ROWS_DROPPED = "statement_rows_dropped"
    OUTBOX_DAMAGED = "outbox_damaged"
    UPLINK_FAILED = "uplink_failed"
    SINK_FAILING = "sink_failing"
    SINK_RECOVERED = "sink_recovered"
    SINK_REFUSED = "sink_refused"
    SINK_DROPPED = "sink_dropped"
    SINK_MISSING = "sink_missing"
    PLUGIN_FAILED = "plugin_failed"
    PLUGIN_QUARANTINED = "plugin_quarantined"
    RESPONSE = "response"
    RESPONSE_FAILING = "response_failing"
    RESPONSE_RESTORED = "response_restored"
    RECEIPT_INVALID = "receipt_invalid"
    RECEIPTS_UNAUTHENTICATED = "receipts_unauthenticated"
    LANDED = "landed"
    SENDER_IGNORED = "sender_ignored"
    AGENT_TWICE = "agent_twice"
    SITE_DIFFERS = "site_differs"
    MEMBERS_UNREADABLE = "members_unreadable"
    LANDING_FAILED = "landing_failed"
    ENROLLED = "enrolled"
    ENROLMENT_FAILED = "enrolment_failed"
    ENROLMENT_REFUSED = "enrolment_refused"
    CERTIFICATE_RENEWED = "certificate_renewed"
    RENEWAL_FAILED = "renewal_failed"
    ACCESS_CHANGED = "access_changed"
    KAFKA_CUT = "kafka_cut"
    PAYLOAD_UNDECODABLE = "payload_undecodable"
    REDACTION_KEY = "redaction_key"
    IDENTITY_BROKEN = "identity_broken"
    IDENTITY_RESTORED = "identity_restored"


TOTALS: Mapping[str, str] = {
    "candidates": "Events that the prefilter passed on to be decoded and evaluated",
    "matches": "Pairs of an event and a rule that it matched",
    "undecided": "Pairs of an event and a rule that could not be decided on it",
    "poisoned": "Events that made a decoder, a rule or a correlation fail",
    "alerts_made": "Alerts made",
    "alerts_receipted": "Alerts with a receipt",
    "receipts_refused": "Receipts that were not believed",
    "alerts_incomplete": "Alerts whose window may lack events, since state gave way to `state.max_bytes`",
    "alerts_enriched": "Alerts that got columns of a lookup",
    "alerts_redacted": "Alerts from which something was taken out before they left",
    "redactions_failed": "Texts that were left out as a whole, since what to take out of them was not found in time",
    "enrichments_missing": "Enrichments of alerts left out because their lookup was unavailable",
    "lookups_installed": "New versions of lookups that were installed",
    "lookups_refused": "New versions of lookups that were refused",
    "lookup_blocks": "Blocks of lookups that arrived from the region",
    "lookup_bytes": "Bytes of lookups that arrived from the region",
    "alerts_sent": "Alerts handed to the uplink, repeats included",
    "bytes_sent": "Bytes of alerts handed to the uplink",
    "bytes_saved": "Bytes that compression took off alerts before they were handed to the uplink",
    "decode_failed": "MQTT events that are no JSON and should be, 1000 a message; Kafka records of unreadable headers",
    "commits": "Transactions of the store",
    "replans": "Switches to another rule set while running",
    "connections_refused": "Connections that were not accepted",
    "connections_evicted": "Connections, silent or idle, that were closed to make room for others",
    "connections_stalled": "Connections closed by message_timeout",
    "handshakes_failed": "TLS handshakes that failed",
    "requests_refused": "HTTP requests that were refused",
    "journal_gaps": "Times that entries had been deleted from systemd's journal before they were read",
    "audit_gaps": "Times that audit records were lost before they were read",
    "addresses_blocked": "Times that local response blocked an address, or would have in a dry run",
    "responses_refused": "Blocks that an alert asked for and that were refused",
    "kafka_gaps": "Times that a partition of Kafka could not be read on from where it was left",
    "copies_noticed": "Times that the data folder was a copy at start, so that a new raw log began",
    "sync_failed": "Syncs of the raw log that failed",
    "rewritten_bytes": "Bytes written again because a sync had failed",
    "identity_alarms": "Checks of the account at which an equation was newly found not to hold",
}
"""What the whole agent counts, besides what each input does."""

COMMITTED = (
    "candidates", "matches", "undecided", "poisoned", "alerts_made", "alerts_receipted", "alerts_incomplete",
    "alerts_enriched", "alerts_redacted", "redactions_failed", "enrichments_missing",
)  # fmt: skip
"""Totals that evaluating an event again counts again, or that the store holds: shown as of the last commit."""


class Counters:
    """Monotone totals since the log began, by input.

    ``bytes_in`` are event bytes received; ``bytes_sent`` (input ``""``) are alert bytes handed to the uplink.
    """

    __slots__ = ("bytes_in", "cut", "dropped", "judged", "lost", "received", "stored", "totals")

    def __init__(self) -> None:
        self.received: defaultdict[str, int] = defaultdict(int)
        self.stored: defaultdict[str, int] = defaultdict(int)
        self.judged: defaultdict[str, int] = defaultdict(int)
        self.bytes_in: defaultdict[str, int] = defaultdict(int)
        self.cut: defaultdict[str, int] = defaultdict(int)
        self.dropped: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.lost: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.totals: defaultdict[str, int] = defaultdict(int)
        """Of the whole agent: see ``TOTALS``."""

    def drop(self, input: str, reason: Dropped, events: int = 1) -> None:
        """Count events that were received (they count as received here too) and will not be stored."""
        self.received[input] += events
        self.dropped[input, reason] += events

    def snapshot(self, held: Mapping[str, int] | None = None) -> dict[str, Any]:
        """JSON-able totals, keys sorted: per input its counters, and ``totals``; ``held`` is added to its input."""
        single = (self.received, self.stored, self.judged, self.bytes_in, self.cut)
        names = sorted(
            {name for counts in single for name in counts} | {name for name, _ in (*self.dropped, *self.lost)}
        )
        return {
            "inputs": {
                name: {
                    "received": self.received[name],
                    "stored": self.stored[name],
                    "judged": self.judged[name],
                    "bytes_in": self.bytes_in[name],
                    "cut": self.cut[name],
                    "dropped": {str(r): n for (i, r), n in sorted(self.dropped.items()) if i == name},
                    "lost": {str(r): n for (i, r), n in sorted(self.lost.items()) if i == name},
                    **({"held": held[name]} if held and held.get(name) else {}),
                }
                for name in names
            },
            "totals": dict(sorted(self.totals.items())),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take over the totals of a ``snapshot``; what is counted now is replaced."""
        for name, counts in snapshot["inputs"].items():
            for counter in ("received", "stored", "judged", "bytes_in", "cut"):
                getattr(self, counter)[name] = counts[counter]
            for reason, n in counts["dropped"].items():
                self.dropped[name, reason] = n
            for reason, n in counts["lost"].items():
                self.lost[name, reason] = n
        self.totals.update(snapshot["totals"])

    def raise_to(self, shown: Mapping[str, Any]) -> None:
        """Bring restored totals up to a later ``snapshot`` that was shown: what evaluating again does not count."""
        for name, counts in shown["inputs"].items():
            for counter in ("received", "stored", "bytes_in", "cut"):
                own = getattr(self, counter)
                own[name] = max(own[name], counts[counter])
            for reason, n in counts["dropped"].items():
                self.dropped[name, reason] = max(self.dropped[name, reason], n)
        for total, n in shown["totals"].items():
            if total not in COMMITTED:
                self.totals[total] = max(self.totals[total], n)

    @staticmethod
    def inherited(saved: Mapping[str, Any]) -> list[str]:
        """What does not add up in a ``snapshot`` that was saved with a commit.

        It is of one moment, so received = stored + dropped + held held then; what was not evaluated yet is only in
        the log, so of stored only this is known: it was not below judged + lost.
        """
        broken, inputs = [], saved["inputs"]
        unknown = sum(inputs.get(UNKNOWN, {"lost": {}})["lost"].values())
        for name, counts in inputs.items():
            stored, dropped = counts["stored"], sum(counts["dropped"].values()) + counts.get("held", 0)
            done = counts["judged"] + sum(counts["lost"].values())
            if counts["received"] != stored + dropped:
                broken.append(
                    f"{name}: received {counts['received']} != stored {stored} + dropped {dropped} at the end"
                )
            if stored < done and not unknown:
                broken.append(f"{name}: stored {stored} < judged and lost {done} at the end")
        return broken

    def settle(
        self, behind: Iterable[tuple[str, int, int, int]], *, stored: int = 0, again: Container[str] = ()
    ) -> None:
        """Bring restored totals up to what the raw log holds; none of them goes back, but for inputs that read what it
        does not hold ``again``: this comes, and counts, once more.

        ``behind``: input, events, bytes and cut events of every frame behind the cursor, in order; the input is UNKNOWN
        where damage took it. Such events stay with the inputs that are known to have stored them, as far as there
        are any. What is known to have been stored and is neither judged nor in the log is lost as MISSING, under
        UNKNOWN as far as only their number is known (``stored``: at least so many were, of all inputs); what was
        received and is neither stored nor dropped died with the process and is dropped as UNWRITTEN. Afterwards
        ``identity`` holds with the sums of ``behind`` as backlog.
        """
        inputs = self.snapshot()["inputs"]
        held = {name: counts["judged"] + sum(counts["lost"].values()) for name, counts in inputs.items()}
        counted = {name: counts["stored"] - held[name] for name, counts in inputs.items()}
        for name, events, size, cut in behind:
            held[name] = held.get(name, 0) + events
            if counted.get(name, 0) > 0:  # the frame was stored before the totals were saved
                counted[name] -= events
            else:
                self.bytes_in[name] += size
                self.cut[name] += cut
        unknown = held.pop(UNKNOWN, 0)
        for name in held:
            of_input = min(unknown, max(0, self.stored[name] - held[name]))
            held[name] += of_input
            unknown -= of_input
        if unknown or UNKNOWN in inputs:
            held[UNKNOWN] = unknown
        for name, events in held.items():
            if name in again:
                self.stored[name] = events
                self.received[name] = events + sum(inputs.get(name, {"dropped": {}})["dropped"].values())
                continue
            if (missing := self.stored[name] - events) > 0:
                self.lost[name, Lost.MISSING] += missing
            self.stored[name] = max(events, self.stored[name])
            accounted = self.stored[name] + sum(inputs.get(name, {"dropped": {}})["dropped"].values())
            if (unwritten := self.received[name] - accounted) > 0:
                self.dropped[name, Dropped.UNWRITTEN] += unwritten
            self.received[name] = max(accounted, self.received[name])
        if (missing := stored - sum(self.stored.values())) > 0:
            for counter in (self.received, self.stored):
                counter[UNKNOWN] += missing
            self.lost[UNKNOWN, Lost.MISSING] += missing

    def identity(self, backlog: Mapping[str, int], held: Mapping[str, int] | None = None) -> list[str]:
        """The inputs (with the broken equation) for which the identity does not hold; empty when all is well.

        ``held`` is the number of events received that wait in memory for a disk that does not take them, per input.
        ``backlog`` is the number of events stored and not yet evaluated, per input, counted from the raw log. Where it
        or the losses have events of an UNKNOWN input, stored = judged + backlog + lost is checked for all inputs
        together.
        """
        broken = []
        accounts: dict[str, tuple[int, int, int, int]] = {}  # stored, judged, backlog, lost
        for name, counts in self.snapshot()["inputs"].items():
            stored, dropped = counts["stored"], sum(counts["dropped"].values())
            waiting = (held or {}).get(name, 0)
            if counts["received"] != stored + dropped + waiting:
                broken.append(
                    f"{name}: received {counts['received']} != stored {stored} + dropped {dropped} + held {waiting}"
                )
            accounts[name] = stored, counts["judged"], backlog.get(name, 0), sum(counts["lost"].values())
        if backlog.get(UNKNOWN) or accounts.get(UNKNOWN, (0, 0, 0, 0))[3]:
            stored, judged, _, lost = map(sum, zip(*accounts.values(), strict=True))
            accounts = {"all inputs": (stored, judged, sum(backlog.values()), lost)}
        for name, (stored, judged, waiting, lost) in accounts.items():
            if stored != judged + waiting + lost:
                broken.append(f"{name}: stored {stored} != judged {judged} + backlog {waiting} + lost {lost}")
        return broken


def visible(counters: Counters, committed: Mapping[str, Any], backlog: Mapping[str, int]) -> dict[str, Any]:
    """A ``snapshot`` to be shown, with ``backlog``: what is evaluated and not committed is still in the backlog, as it
    is after a kill. ``committed``: the snapshot of the last commit."""
    now, waiting = counters.snapshot(), defaultdict(int, backlog)
    none: Mapping[str, Any] = {"judged": 0, "lost": {}}
    for name, counts in now["inputs"].items():
        done = committed["inputs"].get(name, none)
        waiting[name] += counts["judged"] - done["judged"]
        waiting[name] += sum(counts["lost"].values()) - sum(done["lost"].values())
        counts["judged"], counts["lost"] = done["judged"], done["lost"]
    for total in COMMITTED:
        if total in now["totals"]:
            now["totals"][total] = committed["totals"].get(total, 0)
    return {**now, "backlog": {name: events for name, events in waiting.items() if events}}
