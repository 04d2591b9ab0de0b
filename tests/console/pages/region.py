"""A small region's tables, written as the jobs write them: with ordinary texts, or with those of an attacker."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from spark_jobs.tables import schema
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.tables import open_tables
from tests.console.pages import rows
from tests.console.pages.rows import HOSTILE, RULES, SITES, Words


def write(root: Path, now: datetime, hostile: bool = False, count: int = 60) -> None:
    """All tables that pages read, ``count`` alerts within the last two days."""
    words, tables = Words(HOSTILE if hostile else ()), open_tables(str(root))

    def put(table: schema.Table, values: Iterable[dict[str, Any]]) -> None:
        tables.append(table, pa.Table.from_pylist(list(values), arrow_schema(table.columns)))

    rules = [
        (
            f"rule-{n}-{hashlib.md5(title.encode()).hexdigest()[:6]}",
            words(title),
            level,
            [words(tag) if hostile and n > 3 else tag for tag in tags],
        )
        for n, (title, level, tags) in enumerate(RULES)
    ]
    alerts = [rows.alert(n, rules, words, now) for n in range(count)]
    put(schema.ALERTS, alerts)
    put(schema.WIN_5M, rows.sums(alerts, ("window_start", "fleet", "site", "rule_id", "level", "rule_title")))
    put(schema.HOST_1H, rows.sums(alerts, ("hour", "fleet", "site", "host", "rule_id", "level")))
    put(
        schema.ENTITY_SITE_5M,
        rows.sums(
            [
                {**alert, **entity}
                for alert in alerts
                for entity in alert["entities"]
                if entity["kind"] in schema.ENTITY_KINDS
            ],
            ("window_start", "kind", "value", "fleet", "site", "rule_id", "level"),
        ),
    )
    put(
        schema.RULES,
        [
            {
                "rule_id": id,
                "rule_title": title,
                "level": level,
                "tags": tags,
                "alerts": 12,
                "matches": 30,
                "tactics": [
                    tag[7:].replace("_", "-")
                    for tag in tags
                    if tag.startswith("attack.") and not tag.startswith("attack.t1")
                ],
                "techniques": [tag[7:].upper() for tag in tags if tag.startswith("attack.t1")],
                "first_time": now - timedelta(days=9),
                "last_time": now,
            }
            for id, title, level, tags in rules
        ],
    )
    put(
        schema.COVERAGE,
        [
            {
                "as_of": f"{now:%Y-%m-%d}",
                "technique": technique,
                "rule_id": id,
                "rule_title": words(title),
                "level": "medium",
                "tactics": [tactic],
                "deployed": True,
                "alerts": n * 7,
                "matches": n * 9,
                "sites": 1,
                "first_seen": now if n else None,
                "last_seen": now if n else None,
            }
            for n, (technique, tactic, id, title) in enumerate(
                (
                    ("T1003", "credential-access", "rule-x", "Memory of LSASS Read"),
                    ("T1059.004", "execution", rules[0][0], "Shell"),
                    ("T1110.001", "credential-access", rules[1][0], "Guessing"),
                )
            )
        ],
    )
    put(
        schema.NOISE,
        [
            {
                "as_of": f"{now:%Y-%m-%d}",
                "rule_id": rules[2][0],
                "rule_title": rules[2][1],
                "level": "low",
                "alerts": 400,
                "matches": 900,
                "share": 0.39,
                "share_suppressed": 0.55,
                "sites": 4,
                "hosts": 9,
                "top_kind": "user",
                "top_value": words("deploy"),
                "top_share": 0.8,
                "score": 88.0,
                "reason": words("39% of all matches, 80% of one user"),
                "proposal": words(
                    "title: Not by deploy\nfilter:\n  rules: [x]\n  selection: {user: deploy}\n  condition: selection"
                ),
            }
        ],
    )
    put(schema.CAMPAIGNS, [rows.campaign(n, alerts, rules, words, now) for n in range(3)])
    put(schema.RISK, [rows.risk(n, rules, words, now) for n in range(4)])
    put(
        schema.ANOMALIES,
        [
            {
                "date": f"{now:%Y-%m-%d}",
                "anomaly_id": "a1" * 8,
                "kind": "burst",
                "fleet": "plants",
                "site": words("vienna"),
                "rule_id": rules[1][0],
                "started_at": now - timedelta(hours=3),
                "ended_at": now,
                "observed": 172.0,
                "median": 1.0,
                "mad": 0.5,
                "score": 40.0,
                "level": "high",
                "reason": words("172, usually 1"),
                "updated_at": now,
                "entity_kind": "",
                "entity_value": "",
            }
        ],
    )
    put(
        schema.AGENTS,
        [
            {
                "fleet": "plants",
                "agent_id": f"edge-{site}-1",
                "site": site,
                "state": ("running", "degraded", "lost")[n % 3],
                "version": words("0.1.0"),
                "bundle": words("linux-8"),
                "plan_digest": "7c2c8157775c",
                "seq_high": 90,
                "received": 60_002,
                "stored": 60_002,
                "judged": 60_002,
                "backlog": 0,
                "dropped": 0,
                "lost": n * 3,
                "alerts_made": 90,
                "alerts_receipted": 90,
                "in_outbox": n,
                "lag_seconds": 0.2,
                "dead_rules": 0,
                "identity_broken": [],
                "first_seen": now - timedelta(days=30),
                "last_seen": now - timedelta(minutes=n),
            }
            for n, (_, site, _, _) in enumerate(SITES)
        ],
    )
    put(
        schema.HEARTBEATS,
        [
            {
                "agent_id": f"edge-{site}-1",
                "fleet": "plants",
                "site": site,
                "state": "running",
                "version": "0.1.0",
                "bundle": words("linux-8"),
                "plan_digest": "7c",
                "seq_high": 90,
                "date": f"{now:%Y-%m-%d}",
                "received_at": now,
                "payload": orjson.dumps(
                    {
                        "inputs": {
                            words("auth"): {
                                "received": 60_002,
                                "stored": 60_002,
                                "judged": 60_002,
                                "evaluated": 60_002,
                                "backlog": 0,
                                "dropped": {},
                                "lost": {},
                            }
                        },
                        "problems": [words("disk is slow")],
                    }
                ).decode(),
            }
            for _, site, _, _ in SITES
        ],
    )
    put(
        schema.TRIAGE,
        [
            {
                "finding_id": "c0" * 8,
                "kind": "campaign",
                "state": "assigned",
                "assignee": words("mia"),
                "author": words("lee"),
                "reason": words("looks at the web servers"),
                "expires_at": None,
                "updated_at": now,
            }
        ],
    )


def now() -> datetime:
    """The time of the tables: today's, as pages count their days from the clock."""
    return datetime.now(UTC).replace(microsecond=0)
