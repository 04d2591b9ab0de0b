"""JSON that services write under names of their own: only their log source is told here, the fields are theirs."""

from __future__ import annotations

from vedette.inputs.formats.base import Fields, Seen, Shape, source


def _nothing(event: Seen) -> Fields:
    return {}


def _is_kubernetes(event: Seen) -> bool:
    return "auditID" in event and "verb" in event and str(event.get("apiVersion", "")).startswith("audit.k8s.io/")


def _is_opencanary(event: Seen) -> bool:
    return "logtype" in event and "node_id" in event and "logdata" in event


def _is_okta(event: Seen) -> bool:
    return "eventType" in event and "displayMessage" in event and "actor" in event


def _is_suricata(event: Seen) -> bool:
    return "event_type" in event and "flow_id" in event and "timestamp" in event


def _suricata(event: Seen) -> Fields:
    names = {"dest_ip": "dst_ip", "dest_port": "dst_port", "proto": "protocol"}
    return {name: event[own] for own, name in names.items() if own in event}


SHAPES = (
    Shape("kubernetes_audit", _is_kubernetes, _nothing, source("kubernetes", "application", "audit"),
          times=("requestReceivedTimestamp", "stageTimestamp")),
    Shape("opencanary", _is_opencanary, _nothing, source("opencanary", "application"), times=("utc_time",)),
    Shape("okta", _is_okta, _nothing, source("okta", "", "okta"), times=("published",)),
    Shape("suricata", _is_suricata, _suricata, source("suricata"), times=("timestamp",)),
)  # fmt: skip
