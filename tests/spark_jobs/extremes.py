"""Tables that hold what hostile agents say: every number and time at its extremes, beyond what ingest takes in too."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from typing import Any

from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import AGENTS, SEQS
from tests.console.made import agent, beat, row, rows_of, write_agents, write_alerts
from tests.spark_jobs.found import AT
from tests.spark_jobs.landed import DAY

LAST = (1 << 63) - 1
LONGS = (0, 1, 1 << 31, (1 << 53) - 1, 1 << 53, LAST, -1, -LAST - 1, None)
DOUBLES = (0.0, 1.5, -1.0, 1e308, -1e308, float("nan"), float("inf"), float("-inf"), None)
TIMES = (
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    None,
)
EVERY = len(LONGS) * len(TIMES)
"""Pairs of a number and a time; these lengths have no common divisor."""
SAID = (*LONGS, *DOUBLES[:5], 1 << 64, 10**30, "NaN", "Infinity", [], {})
"""What a heartbeat may have under any key."""
NUMBERS = [field.name for field in AGENTS.columns.fields if field.dataType.simpleString() == "bigint"]


def payload(said: Any) -> str:
    """A heartbeat that says this wherever a number is looked for."""
    counters = {
        **dict.fromkeys(("received", "stored", "judged", "backlog"), said),
        **{key: {"a": said, "b": said} for key in ("dropped", "lost")},
    }
    return json.dumps(
        {
            **dict.fromkeys(("seq_high", "time", "lag_seconds", "notes", "identity_broken"), said),
            "inputs": {"a": counters, "b": counters, "c": said},
            "backlog": {"a": said, "b": said},
            "alerts": dict.fromkeys(("made", "receipted", "in_outbox"), said),
            "rules": {"dead_count": said},
            "actual": {"labels": {"role": said}, "group": said, "problems": said},
        }
    )


def fill(tables: DeltaTables, *, runs: bool, alerts: int = EVERY) -> None:
    """Alerts, agents, heartbeats, and ``runs`` of numbers. ``EVERY`` alerts hold each number with each time; twelve
    hold each number and each time."""
    agents = [agent(f"agent-{n}", AT, **dict.fromkeys(NUMBERS, number)) for n, number in enumerate(LONGS)]
    for said, lag in zip(agents, DOUBLES, strict=True):
        said["lag_seconds"] = lag
    beats = [beat(f"agent-{n % len(agents)}", AT, payload(said)) for n, said in enumerate(SAID)]
    write_agents(tables, agents, beats)
    pairs = enumerate(itertools.product(LONGS, LONGS))
    ranges = [
        {"agent_id": f"agent-{n % 2}", "fleet": "north", "log_id": str(n % 3), "first": first, "last": last,
         "received_at": AT, "date": DAY}
        for n, (first, last) in pairs
    ]  # fmt: skip
    if runs:
        tables.append(SEQS, rows_of(SEQS, ranges))
    write_alerts(tables, [_alert(n, LONGS[n % len(LONGS)], TIMES[n % len(TIMES)]) for n in range(alerts)])


def _alert(place: int, number: int | None, time: datetime | None) -> dict[str, Any]:
    ref = {"log_id": "0" * 32, "offset": number, "length": (0, -1, (1 << 31) - 1, None)[place % 4]}
    times = dict.fromkeys(("detected_at", "first_time", "last_time"), time)
    return {
        **row(place, counted_at=AT),
        **times,
        "event_time": time or AT,
        "received_at": AT,
        "received_date": (DAY, "0001-01-01", "9999-12-31", "1970-01-01")[place % 4],
        "seq": number,
        "count": number,
        "kind": ("detection", "fold", "correlation")[place % 3],
        "agent_id": f"agent-{place % 3}",
        "raw_ref": ref,
        "contributing": [{"rule_id": "rule-a", "event_time": time, "raw_ref": ref}],
    }
