"""JSON that services write under names of their own: their log source, and of applications who came from where."""

from __future__ import annotations

from vedette.decode import peers
from vedette.decode.computed import compute
from vedette.decode.formats.base import Fields, Seen, Shape, source
from vedette.decode.provenance import Gives, renamed


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
    return {name: event[own] for own, name in _SURICATA.items() if own in event}


_SURICATA = {"dest_ip": "dst_ip", "dest_port": "dst_port", "proto": "protocol"}


CLIENTS = (
    *(
        "remote_ip",
        "remoteIp",
        "remoteIP",
        "remote_addr",
        "remoteAddr",
        "remote_address",
        "remoteAddress",
        "remote_host",
    ),
    *("client_ip", "clientIp", "clientIP", "ClientIP", "client_addr", "clientAddr", "client_address", "clientAddress"),
    *("source_ip", "sourceIp", "sourceIP", "sourceIPAddress", "srcip", "rhost"),
)
"""Names of the peer's address in what applications log, best first."""
_USERS = ("username", "userName", "user_name", "login", "principalName")


def _names_a_client(event: Seen) -> bool:
    return not _CLIENT_SET.isdisjoint(event) or ("attr" in event and "ctx" in event)


def _client(event: Seen) -> Fields:
    fields: Fields = {}
    if isinstance(attributes := event.get("attr"), dict) and "ctx" in event:  # MongoDB's log
        compute(fields, attributes.get("remote") or attributes.get("client") or "", _endpoint, peers.ENDPOINT)
        event = attributes
    else:
        for name in CLIENTS:
            if name in event and compute(fields, event[name], _endpoint, peers.ENDPOINT):
                break
    user = next((event[name] for name in _USERS if isinstance(event.get(name), str)), None)
    if user:
        fields["user"] = user
    return fields


def _endpoint(value: object) -> Fields:
    return dict(peers.endpoint(str(value)))


_CLIENT_SET = frozenset(CLIENTS)

_PLACES = (*CLIENTS, "remote", "client")

SHAPES = (
    Shape("kubernetes_audit", _is_kubernetes, _nothing, Gives("`auditID`, `verb` and `apiVersion`"), ("auditID",),
          source("kubernetes", "application", "audit"), times=("requestReceivedTimestamp", "stageTimestamp")),
    Shape("opencanary", _is_opencanary, _nothing, Gives("`logtype`, `node_id` and `logdata`"), ("node_id",),
          source("opencanary", "application"), times=("utc_time",)),
    Shape("okta", _is_okta, _nothing, Gives("`eventType`, `displayMessage` and `actor`"), ("displayMessage",),
          source("okta", "", "okta"), times=("published",)),
    Shape("suricata", _is_suricata, _suricata, Gives("`event_type`, `flow_id` and `timestamp`", renamed(_SURICATA)),
          ("flow_id",), source("suricata"), times=("timestamp",)),
    Shape("client", _names_a_client, _client,
          Gives("no other, and `remote_ip`, `remoteAddr`, `client_ip`, `sourceIPAddress` …, or MongoDB's `attr`",
                renamed(dict.fromkeys(_PLACES, ("src_ip", "src_port")), dict.fromkeys(_USERS, "user"))),
          ("attr", *CLIENTS)),
)  # fmt: skip
