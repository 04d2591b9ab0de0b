"""An alert as a document of the Elastic Common Schema, 9.4.

One document an alert, a fold too (``event.action`` says ``fold``, ``labels.parent_id`` which it adds to). Times are
UTC, ISO 8601 with milliseconds; ``event.severity`` is 1 (informational) to 5 (critical). What ECS has no field for is
in ``labels``, as texts. ``tests/spark_jobs/jobs/test_export.py`` checks the names.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from spark_jobs.common import attack
from spark_jobs.export.ocsf import SEVERITIES, filled, is_ip, pairs
from spark_jobs.tables.ask import Row

VERSION = "9.4.0"

HASHES = {32: "md5", 40: "sha1", 64: "sha256", 96: "sha384", 128: "sha512"}
"""``file.hash`` field of a hash by its digits."""


def document(alert: Row) -> dict[str, Any]:
    """``alert``, a row of the table ``alerts``, as a document; without what has no value."""
    by_kind: dict[str, list[str]] = {}
    for entity in alert["entities"] or ():
        if entity["value"]:
            by_kind.setdefault(entity["kind"], []).append(entity["value"])
    addresses = [address for address in by_kind.get("ip", []) if is_ip(address)]
    fields = {
        "@timestamp": iso(alert["event_time"]),
        "ecs": {"version": VERSION},
        "message": alert["rule_title"],
        "tags": alert["tags"],
        "labels": _labels(alert),
        "agent": {"id": alert["agent_id"], "type": "vedette"},
        "event": _event(alert),
        "rule": {
            "id": alert["rule_id"],
            "name": alert["rule_title"],
            "version": alert["rule_digest"],
            "ruleset": alert["bundle"],
        },
        "threat": _threat(alert),
        "host": {"name": alert["host"], "hostname": alert["host"]},
        "organization": {"name": alert["fleet"]},
        "observer": {"vendor": "Vedette", "product": "Vedette", "type": "ids", "geo": _geo(alert)},
        "source": {"ip": addresses[0], "address": addresses[0]} if addresses else None,
        "user": {"name": _first(by_kind, "user")},
        "url": {"original": _first(by_kind, "url")},
        "user_agent": {"original": _first(by_kind, "user_agent")},
        "file": {"hash": _hash(_first(by_kind, "hash"))},
        "related": {
            "ip": _unique(addresses),
            "user": _unique(by_kind.get("user", [])),
            "hash": _unique(by_kind.get("hash", [])),
            "hosts": _unique(filter(None, [alert["host"], *by_kind.get("host", []), *by_kind.get("domain", [])])),
        },
    }
    whole: dict[str, Any] = filled(fields)
    return whole


def iso(time: datetime | None) -> str | None:
    """``2026-11-20T12:00:00.000Z``."""
    return None if time is None else time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _event(alert: Row) -> dict[str, Any]:
    return {
        "kind": "alert",
        "category": ["intrusion_detection"],
        "type": ["info"],
        "action": alert["kind"],
        "module": "vedette",
        "dataset": "vedette.alert",
        "provider": alert["source"],
        "id": alert["alert_id"],
        "code": alert["rule_id"],
        "sequence": alert["seq"],
        "severity": SEVERITIES.get(alert["level"] or ""),
        "created": iso(alert["detected_at"]),
        "ingested": iso(alert["received_at"]),
        "start": iso(alert["first_time"]),
        "end": iso(alert["last_time"]),
        "original": alert["raw"],
    }


def _labels(alert: Row) -> dict[str, str]:
    """Keywords; ``field_…`` are the fields that the rule matched, dots in their names as underscores."""
    ref, logsource, asset = alert["raw_ref"] or {}, alert["logsource"] or {}, alert["asset"] or {}
    said = {
        "level": alert["level"],
        "site": alert["site"],
        "count": alert["count"],
        "parent_id": alert["parent_id"],
        "flags": ",".join(alert["flags"] or ()),
        "raw_log_id": ref.get("log_id"),
        "raw_offset": ref.get("offset"),
        "raw_length": ref.get("length"),
        **{f"logsource_{name}": logsource.get(name) for name in ("product", "category", "service")},
        **{f"asset_{name}": asset.get(name) for name in ("owner", "role", "environment", "criticality")},
        **{f"field_{name.replace('.', '_')}": value for name, value in pairs(alert["fields"]).items()},
        **{f"group_{name.replace('.', '_')}": value for name, value in pairs(alert["group_by"]).items()},
    }
    return {name: str(value) for name, value in said.items() if value is not None}


def _threat(alert: Row) -> dict[str, Any]:
    tactics, techniques = attack.of_tags(alert["tags"])
    hits = [
        {
            "indicator": {"type": hit["kind"], "provider": hit["source"], "description": hit["threat"]},
            "matched": {"atomic": hit["value"]},
        }
        for hit in alert["intel"] or ()
    ]
    return {
        "framework": "MITRE ATT&CK" if tactics or techniques else None,
        "tactic": {
            "id": [attack.TACTIC_IDS[tactic] for tactic in tactics],
            "name": [attack.caption(tactic) for tactic in tactics],
        },
        "technique": {
            "id": _unique(technique.partition(".")[0] for technique in techniques),
            "subtechnique": {"id": [technique for technique in techniques if "." in technique]},
        },
        "enrichments": hits,
    }


def _geo(alert: Row) -> dict[str, Any]:
    place = alert["place"] or {}
    geo = {"name": place.get("name") or alert["site"], "timezone": place.get("timezone")}
    country = place.get("country") or ""
    geo["country_iso_code" if len(country) == 2 else "country_name"] = country
    if place.get("latitude") is not None and place.get("longitude") is not None:
        return {**geo, "location": {"lat": place["latitude"], "lon": place["longitude"]}}
    return geo


def _hash(text: str | None) -> dict[str, str]:
    name = HASHES.get(len(text or ""))
    return {name: text} if name and text else {}


def _first(by_kind: dict[str, list[str]], kind: str) -> str | None:
    return next(iter(by_kind.get(kind, [])), None)


def _unique(values: Any) -> list[str]:
    return list(dict.fromkeys(values))
