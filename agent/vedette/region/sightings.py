"""Which agents' ids two machines have, by heartbeats alone. Pure.

A heartbeat names the life it is of: the raw log, and when the agent started. A restart ends a life for good, and so
does the move of a data folder. A life that was followed by another, and of which a heartbeat comes that is newer than
all that came of it and than the start of that other, runs beside it: two machines, or two processes, have one id. What
a broker sends again, or late, is no newer, and changes nothing.

That is noted for NOTED after the last time. Of an agent the LIVES newest are known, of all agents the AGENTS heard
last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

NOTED = 3600 * 1_000_000
"""Microseconds."""
LIVES = 8
AGENTS = 100_000

Life = tuple[str, int]
"""The raw log's id, and when the agent started, UTC microseconds."""


class Sighting(NamedTuple):
    """``note``: that two machines have the id, and how they differ; empty: nothing says so. ``begins``: for the first
    time, or again after NOTED."""

    note: str = ""
    begins: bool = False


@dataclass(slots=True)
class _Agent:
    lives: dict[Life, int] = field(default_factory=dict)
    """The time of the newest heartbeat of each, by its own clock; in the order in which they were last running."""
    until: int = 0
    """Until when it is noted."""
    note: str = ""


class Sightings:
    def __init__(self) -> None:
        self._agents: OrderedDict[tuple[str, str], _Agent] = OrderedDict()

    def heard(self, agent: tuple[str, str], heartbeat: Mapping[str, Any], now: int) -> Sighting:
        """A heartbeat of ``agent`` (fleet and id) came at ``now``, UTC microseconds."""
        raw_log, started, time = heartbeat.get("raw_log"), heartbeat.get("started_at"), heartbeat.get("time")
        log_id = raw_log.get("log_id") if isinstance(raw_log, dict) else None
        seen = self._agents.setdefault(agent, _Agent())
        self._agents.move_to_end(agent)
        if len(self._agents) > AGENTS:
            self._agents.popitem(last=False)
        seen.until = min(seen.until, now + NOTED)  # the clock may have been ahead
        begins = False
        if isinstance(log_id, str) and isinstance(started, int) and isinstance(time, int):
            life = log_id[:32], started
            newest = next(reversed(seen.lives), life)
            if life == newest or time > max(newest[1], seen.lives.get(life, 0)):
                returned = life != newest and life in seen.lives
                seen.lives.pop(life, None)
                seen.lives[life] = time
                if returned:
                    begins, seen.until, seen.note = now > seen.until, now + NOTED, _note(newest, life)
            while len(seen.lives) > LIVES:
                del seen.lives[next(iter(seen.lives))]
        return Sighting(seen.note if now <= seen.until else "", begins)


def _note(*lives: Life) -> str:
    shown = " and ".join(f"raw log {log_id[:8]}, started {_time(started)}" for log_id, started in sorted(lives))
    return f"two machines or processes have this agent's id: {shown}"


def _time(started: int) -> str:
    try:
        return f"{datetime.fromtimestamp(started / 1e6, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, ValueError, OSError):
        return "?"
