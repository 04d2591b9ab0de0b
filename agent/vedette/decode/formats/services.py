"""JSON that services write under names of their own: their log source, and of applications who came from where."""

from __future__ import annotations

import re

from vedette.decode import peers
from vedette.decode.computed import compute
from vedette.decode.formats.base import Fields, Seen
from vedette.decode.formats.table import CLIENTS, SAMBA, SURICATA_NAMES, USERS
from vedette.decode.values import text_of


def nothing(event: Seen) -> Fields:
    return {}


def is_kubernetes(event: Seen) -> bool:
    if "auditID" not in event or "verb" not in event:
        return False
    version = event.get("apiVersion")  # of an item of a list the list has it
    return "stage" in event if version is None else text_of(version).startswith("audit.k8s.io/")


def is_opencanary(event: Seen) -> bool:
    return "logtype" in event and "node_id" in event and "logdata" in event


def is_okta(event: Seen) -> bool:
    return "eventType" in event and "displayMessage" in event and "actor" in event


def is_suricata(event: Seen) -> bool:
    return "event_type" in event and "flow_id" in event and "timestamp" in event


def suricata(event: Seen) -> Fields:
    return {name: event[own] for own, name in SURICATA_NAMES.items() if own in event}


def is_samba(event: Seen) -> bool:
    return "type" in event and any(isinstance(event.get(name), dict) for name in SAMBA)


def samba(event: Seen) -> Fields:
    audited = next(event[name] for name in SAMBA if isinstance(event.get(name), dict))
    fields: Fields = {}
    compute(fields, audited.get("remoteAddress") or "", _samba_peer, peers.ENDPOINT)
    user = audited.get("clientAccount", audited.get("account"))
    return fields if user is None else {**fields, "user": user}


_SAMBA_PEER = re.compile(r"ipv[46]:([0-9A-Fa-f.:]{2,45}):(\d{1,5})")


def _samba_peer(value: object) -> Fields:
    match = _SAMBA_PEER.fullmatch(text_of(value))
    return {} if match is None else {"src_ip": peers.plain(match[1]), "src_port": match[2]}


def is_postgresql(event: Seen) -> bool:
    return "error_severity" in event and "backend_type" in event


def postgresql(event: Seen) -> Fields:
    fields: Fields = {name: event[own] for own, name in _POSTGRESQL_NAMES.items() if own in event}
    compute(fields, event.get("remote_host") or "", _endpoint, peers.PLAIN)
    return fields


_POSTGRESQL_NAMES = {"remote_port": "src_port", "dbname": "database"}


def names_a_client(event: Seen) -> bool:
    return not _CLIENT_SET.isdisjoint(event) or ("attr" in event and "ctx" in event)


def client(event: Seen) -> Fields:
    fields: Fields = {}
    if isinstance(attributes := event.get("attr"), dict) and "ctx" in event:  # MongoDB's log
        compute(fields, attributes.get("remote") or attributes.get("client") or "", _endpoint, peers.ENDPOINT)
        event = attributes
    else:
        for name in CLIENTS:
            if name in event and compute(fields, event[name], _endpoint, peers.ENDPOINT):
                break
    user = next((event[name] for name in USERS if isinstance(event.get(name), str)), None)
    if user:
        fields["user"] = user
    return fields


def _endpoint(value: object) -> Fields:
    return dict(peers.endpoint(text_of(value)))


_CLIENT_SET = frozenset(CLIENTS)
