"""Rows as the other jobs write them, for tests of what reads their tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import ANOMALIES, CAMPAIGNS, COVERAGE, NOISE, Table
from spark_jobs.tables.tables import Tables
from tests.spark_jobs.landed import DAY, NOON

AT = datetime.fromtimestamp(NOON / 1e6, UTC)

HOSTILE = (
    "<script>document.title='owned'</script></script>\"'><img src=x onerror=alert(1)>"
    "\x1b[31m\r\n\u202egnp.exe\x00 {{7*7}}"
)
"""What an attacker would write into a log to reach whoever reads the report."""


def campaign(number: int, **changes: Any) -> dict[str, Any]:
    """Campaign ``number`` of an address at two sites, at noon."""
    step = {"time": AT, "fleet": "north", "site": "plant", "rule_id": "rule-a", "tactic": "initial-access", "alerts": 2}
    named = {"kind": changes.get("kind", "ip"), "value": changes.get("value", "203.0.113.9")}
    later = {"time": AT + timedelta(minutes=30), "site": "office", "rule_id": "rule-b", "tactic": "execution"}
    return {
        "date": DAY,
        "campaign_id": f"campaign-{number}",
        **named,
        "first_seen": AT - timedelta(hours=2),
        "last_seen": AT + timedelta(hours=1),
        "state": "open",
        "stage": "execution",
        "score": 80.0 - number,
        "level": "high",
        "alerts": 3,
        "matches": 5,
        "sites": ["north/office", "north/plant"],
        "rules": ["rule-a", "rule-b"],
        "tactics": ["initial-access", "execution"],
        "techniques": ["T1110"],
        "steps": [step, {**step, **later}],
        "reason": "2 sites within an hour",
        "updated_at": AT,
        "entities": [{**named, "alerts": 3, "tactics": []}],
        **changes,
    }  # fmt: skip


def anomaly(number: int, **changes: Any) -> dict[str, Any]:
    """A site gone quiet."""
    return {
        "date": DAY,
        "anomaly_id": f"anomaly-{number}",
        "kind": "silence",
        "fleet": "north",
        "site": "office",
        "rule_id": "",
        "started_at": AT,
        "ended_at": AT + timedelta(hours=3),
        "observed": 0.0,
        "median": 40.0,
        "mad": 3.0,
        "score": 13.3,
        "level": "high",
        "reason": "no alert in 3 hours",
        "updated_at": AT,
        **changes,
    }


def noise(rule: str, **changes: Any) -> dict[str, Any]:
    """A rule that one address makes loud."""
    return {
        "as_of": DAY,
        "rule_id": rule,
        "rule_title": "Failed logins",
        "level": "high",
        "alerts": 5,
        "matches": 105,
        "share": 0.99,
        "share_suppressed": 0.95,
        "sites": 1,
        "hosts": 2,
        "top_kind": "ip",
        "top_value": "203.0.113.0",
        "top_share": 0.6,
        "score": 9.5,
        "reason": "one address",
        "proposal": "filter:\n  src_ip: 203.0.113.0\n",
        **changes,
    }


def covered(rule: str, technique: str, **changes: Any) -> dict[str, Any]:
    """A rule deployed for a technique, which has not fired."""
    return {
        "as_of": DAY,
        "technique": technique,
        "rule_id": rule,
        "rule_title": f"Rule {rule}",
        "level": "high",
        "tactics": ["credential-access"],
        "deployed": True,
        "alerts": 0,
        "matches": 0,
        "sites": 0,
        "first_seen": None,
        "last_seen": None,
        **changes,
    }


def write(tables: Tables, table: Table, *rows: dict[str, Any]) -> None:
    tables.upsert(table, pa.Table.from_pylist(list(rows), arrow_schema(table.columns)))


def write_all(tables: Tables) -> None:
    """A little of everything, hostile texts among it."""
    write(
        tables,
        CAMPAIGNS,
        campaign(1),
        campaign(2, kind="user", value=HOSTILE, reason=HOSTILE, level=HOSTILE, stage=HOSTILE, sites=[HOSTILE]),
        campaign(3, score=0.0, state="closed", value="198.51.100.1"),
        campaign(4, value="198.51.100.2", last_seen=AT - timedelta(days=2), first_seen=AT - timedelta(days=3)),
    )
    write(
        tables,
        ANOMALIES,
        anomaly(1),
        anomaly(2, kind="burst", site="plant", rule_id="rule-a", observed=105.0, score=8.0, reason=HOSTILE),
    )
    write(tables, NOISE, noise("rule-a"), noise("rule-b", rule_title=HOSTILE, proposal=HOSTILE, top_value=HOSTILE))
    write(tables, COVERAGE, covered("rule-a", "T1110", alerts=6), covered("rule-z", "T1003", rule_title=HOSTILE))
