"""The figures of a heartbeat that lists show; it may say anything, and what is no figure counts as none. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from vedette.system.foreign import count

MAX_TEXT = 200


class Figures(NamedTuple):
    """``started``: UTC microseconds; ``lag_seconds``: by which evaluation is behind; ``events``: evaluated in all."""

    state: str = ""
    version: str = ""
    bundle: str = ""
    started: int = 0
    events: int = 0
    lag_seconds: float = 0.0
    lag_events: int = 0
    in_outbox: int = 0
    alerts_lost: int = 0
    events_lost: int = 0
    quarantined: int = 0
    crashes: int = 0


def figures(row: Mapping[str, Any]) -> Figures:
    alerts, rules, process = table(row, "alerts"), table(row, "rules"), table(row, "process")
    inputs = [one for one in table(row, "inputs").values() if isinstance(one, dict)]
    lost = sum(number(n) for one in inputs for kind in ("dropped", "lost") for n in table(one, kind).values())
    lag = row.get("lag_seconds")
    return Figures(
        text(row.get("state")), text(row.get("version")), text(row.get("bundle")), number(row.get("started_at")),
        sum(number(one.get("judged")) for one in inputs),
        float(lag) if isinstance(lag, int | float) and 0 <= lag < 1e12 else 0.0, number(row.get("lag_events")),
        number(alerts.get("in_outbox")), number(alerts.get("lost")), lost, number(rules.get("quarantined_count")),
        number(process.get("crashes")),
    )  # fmt: skip


def table(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = row.get(name)
    return found if isinstance(found, dict) else {}


def number(value: object) -> int:
    return count(value)


def text(value: object) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""
