"""An alert as an OCSF 1.5.0 Detection Finding (class 2004).

A detection or a correlation creates a finding (activity 1) whose ``uid`` is its ``alert_id``; a fold updates that of
its ``parent_id`` (activity 2) by its ``count``. Times are UTC milliseconds. What the class has no place for is
``unmapped``. Names, types and enumerations are those of schema.ocsf.io/1.5.0; ``tests/spark_jobs/jobs/test_export.py``
checks them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from spark_jobs.common import attack
from spark_jobs.tables.ask import Row

VERSION = "1.5.0"

SEVERITIES = {"informational": 1, "low": 2, "medium": 3, "high": 4, "critical": 5}
"""``severity_id`` of a level; 0, unknown, of another."""

OBSERVABLES = {
    "host": (1, "Hostname"),
    "domain": (1, "Hostname"),
    "ip": (2, "IP Address"),
    "user": (4, "User Name"),
    "url": (6, "URL String"),
    "hash": (8, "Hash"),
    "user_agent": (16, "HTTP User-Agent"),
}
"""``type_id`` and ``type`` of a kind of entity; 99, other, of another."""

_ACTIVITIES = {1: "Create", 2: "Update"}


def finding(alert: Row) -> dict[str, Any]:
    """``alert``, a row of the table ``alerts``, as a finding; without what has no value."""
    fold = alert["kind"] == "fold"
    activity = 2 if fold else 1
    level = alert["level"] or ""
    fields = {
        "activity_id": activity,
        "activity_name": _ACTIVITIES[activity],
        "category_uid": 2,
        "category_name": "Findings",
        "class_uid": 2004,
        "class_name": "Detection Finding",
        "type_uid": 200400 + activity,
        "type_name": f"Detection Finding: {_ACTIVITIES[activity]}",
        "severity_id": SEVERITIES.get(level, 0),
        "severity": level.capitalize() if level in SEVERITIES else "Unknown",
        "status_id": 1,
        "status": "New",
        "is_alert": True,
        "time": milliseconds(alert["detected_at"] or alert["received_at"]),
        "start_time": milliseconds(alert["first_time"] or alert["event_time"]),
        "end_time": milliseconds(alert["last_time"] or alert["event_time"]),
        "count": alert["count"],
        "message": alert["rule_title"],
        "raw_data": alert["raw"],
        "metadata": _metadata(alert),
        "finding_info": _info(alert, alert["parent_id"] if fold else alert["alert_id"]),
        "device": _device(alert),
        "resources": _resources(alert),
        "evidences": _evidences(alert),
        "observables": [_observable(entity) for entity in alert["entities"] or () if entity["value"]],
        "enrichments": [
            {
                "name": f"observables.{hit['kind']}",
                "value": hit["value"] or "",
                "type": hit["threat"],
                "provider": hit["source"],
                "data": {"indicator": hit["indicator"], "score": hit["score"]},
            }
            for hit in alert["intel"] or ()
        ],
        "unmapped": {
            "kind": alert["kind"],
            "agent_id": alert["agent_id"],
            "site": alert["site"],
            "seq": alert["seq"],
            "bundle": alert["bundle"],
            "raw_ref": alert["raw_ref"],
            "group_by": pairs(alert["group_by"]),
            "flags": alert["flags"],
        },
    }
    whole: dict[str, Any] = filled(fields)
    return whole


def milliseconds(time: datetime | None) -> int | None:
    """UTC milliseconds since 1970."""
    return None if time is None else round(time.timestamp() * 1000)


def pairs(value: Mapping[str, str] | Sequence[tuple[str, str]] | None) -> dict[str, str]:
    """A map, as whichever reader gave it."""
    return dict(value or {})


def filled(value: Any) -> Any:
    """``value`` without nulls, empty texts, lists and maps, at any depth."""
    if isinstance(value, dict):
        parts = {key: filled(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part is not None and part not in ("", [], {})}
    if isinstance(value, list | tuple):
        return [part for part in map(filled, value) if part is not None and part not in ("", [], {})]
    return value


def is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _metadata(alert: Row) -> dict[str, Any]:
    return {
        "version": VERSION,
        "uid": alert["alert_id"],
        "product": {"name": "Vedette", "vendor_name": "Vedette"},
        "tenant_uid": alert["fleet"],
        "log_name": alert["source"],
        "log_provider": alert["agent_id"],
        "event_code": alert["rule_id"],
        "logged_time": milliseconds(alert["received_at"]),
        "labels": alert["tags"],
    }


def _info(alert: Row, uid: str | None) -> dict[str, Any]:
    logsource = alert["logsource"] or {}
    rule = {"uid": alert["rule_id"], "name": alert["rule_title"]}
    return {
        "uid": uid or alert["alert_id"],
        "title": alert["rule_title"],
        "analytic": {**rule, "type_id": 1, "type": "Rule", "version": alert["rule_digest"]} if filled(rule) else None,
        "attacks": attacks(alert["tags"]),
        "created_time": milliseconds(alert["detected_at"]),
        "first_seen_time": milliseconds(alert["first_time"] or alert["event_time"]),
        "last_seen_time": milliseconds(alert["last_time"] or alert["event_time"]),
        "data_sources": [logsource[name] for name in ("product", "category", "service") if logsource.get(name)],
        "related_events": [
            {
                "uid": f"{part['raw_ref']['log_id']}:{part['raw_ref']['offset']}",
                "type": "log event",
                "first_seen_time": milliseconds(part["event_time"]),
            }
            for part in alert["contributing"] or ()
            if part["raw_ref"]
        ],
    }


def attacks(tags: Sequence[str] | None) -> list[dict[str, Any]]:
    """ATT&CK objects of ``tags``: one a technique, with the tactic where there is only one; else one a tactic."""
    tactics, techniques = attack.of_tags(tags)
    named = [{"uid": attack.TACTIC_IDS[tactic], "name": attack.caption(tactic)} for tactic in tactics]
    objects: list[dict[str, Any]] = []
    for technique in techniques:
        entry: dict[str, Any] = {"technique": {"uid": technique.partition(".")[0]}}
        if "." in technique:
            entry["sub_technique"] = {"uid": technique}
        if len(named) == 1:
            entry["tactic"] = named[0]
        objects.append(entry)
    if not objects or len(named) > 1:
        objects += [{"tactic": tactic} for tactic in named]
    return objects


def _device(alert: Row) -> dict[str, Any]:
    place = alert["place"] or {}
    where = {"country": place.get("country"), "lat": place.get("latitude"), "long": place.get("longitude")}
    return {
        "type_id": 0,
        "hostname": alert["host"],
        "uid": alert["agent_id"],
        "zone": alert["site"],
        "location": {**where, "desc": place.get("name")} if where["country"] else None,
    }


def _resources(alert: Row) -> list[dict[str, Any]]:
    asset = alert["asset"]
    if not asset or not alert["host"]:
        return []
    criticality = asset.get("criticality")
    return [
        {
            "name": alert["host"],
            "type": asset.get("role"),
            "namespace": asset.get("environment"),
            "owner": {"name": asset["owner"]} if asset.get("owner") else None,
            "criticality": None if criticality is None else str(criticality),
        }
    ]


def _evidences(alert: Row) -> list[dict[str, Any]]:
    """The matched fields, and who it is about as objects of their own."""
    first: dict[str, str] = {}
    for entity in alert["entities"] or ():
        first.setdefault(entity["kind"], entity["value"])
    evidence: dict[str, Any] = {"data": pairs(alert["fields"])}
    if is_ip(first.get("ip", "")):
        evidence["src_endpoint"] = {"ip": first["ip"]}
    if "user" in first:
        evidence["user"] = {"name": first["user"]}
    if "url" in first:
        evidence["url"] = {"url_string": first["url"]}
    if "user_agent" in first:
        evidence["http_request"] = {"user_agent": first["user_agent"]}
    objects = any(name in evidence for name in ("src_endpoint", "user", "url"))
    return [evidence] if evidence["data"] or objects else []


def _observable(entity: Mapping[str, str]) -> dict[str, Any]:
    number, name = OBSERVABLES.get(entity["kind"], (99, entity["kind"]))
    return {"name": entity["kind"], "type_id": number, "type": name, "value": entity["value"]}
