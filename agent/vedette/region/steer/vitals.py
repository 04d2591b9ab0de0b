"""How an agent is doing, in the few figures of a heartbeat that gates compare; and rates between two of them. Pure.

Totals of the agent (events, undecided, poisoned, lost) go on over its restarts; CPU time and alerts by rule are those
of one life and begin again with it. Times are the agent's own clock, so that a delay on the way changes no rate.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from vedette.system.foreign import COUNT, count

MAX_RULES = 64
"""Of a heartbeat's alerts by rule; agents send 20."""


class Vitals(NamedTuple):
    """``time`` and ``started`` in UTC microseconds, ``cpu`` and ``lag`` in seconds, ``memory`` in bytes."""

    time: int
    started: int
    events: int
    cpu: float
    memory: float
    lag: float
    crashes: int
    quarantined: int
    """Rules and statements, those of strict sets too, formats and plugins."""
    undecided: int
    poisoned: int
    lost: int
    """Events and alerts that were received or made and are gone."""
    alerts: Mapping[str, int]
    """By rule, in this life: the rules with the most."""
    rest: int
    """The alerts of this life that the last of these rules has: no other rule has more. 0: all rules are named."""
    starts: int = -1
    """-1: it does not say, or was kept by a controller that did not ask."""


class Rates(NamedTuple):
    """Between two heartbeats, ``seconds`` apart."""

    seconds: float
    events: int
    cpu: float
    """Seconds of CPU time per second."""
    cpu_per_event: float
    """Microseconds; 0 when there were no events."""
    undecided: float
    poisoned: float
    lost: float
    """A second."""
    alerts: Mapping[str, float]
    """A minute, by rule."""
    rest: float
    """A minute, at most, of a rule that is not named."""


def read(beat: Mapping[str, Any], like: Vitals | None = None) -> Vitals | None:
    """Of a heartbeat; None when it lacks them. ``like``: the one before, with which it shares what is equal."""
    try:
        inputs, totals, rules, process = beat["inputs"].values(), beat["totals"], beat["rules"], beat["process"]
        named = {sys.intern(str(rule)): _count(n) for rule, n in [*rules["alerts"].items()][:MAX_RULES]}
        alerts: Mapping[str, int] = like.alerts if like is not None and like.alerts == named else named
        gone = sum(_count(n) for counts in inputs for part in ("dropped", "lost") for n in counts[part].values())
        judged = sum(_count(counts["judged"]) for counts in inputs)
        return Vitals(
            _count(beat["time"]), _count(beat["started_at"]), _count(judged),
            _amount(process["cpu_seconds"]), _amount(beat["budgets"]["memory"]["used"]), _amount(beat["lag_seconds"]),
            _count(process["crashes"]), _count(_quarantined(beat)), _count(totals.get("undecided", 0)),
            _count(totals.get("poisoned", 0)), _count(gone + _count(beat["alerts"]["lost"])), alerts,
            min(alerts.values()) if len(alerts) >= 20 else 0, count(process.get("starts"), -1),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # it does not say all of it, or is no agent's


def _quarantined(beat: Mapping[str, Any]) -> int:
    """Strict sets have rules of their own, which are not among those of the agent."""
    strict = (
        _count(ruleset["quarantined"]) for ruleset in beat.get("rulesets", ()) if ruleset.get("isolation") == "strict"
    )
    named = (*beat["rules"].get("formats", ()), *beat.get("plugins", ()))
    return (
        _count(beat["rules"]["quarantined_count"])
        + sum(strict)
        + sum(bool(extension["quarantined"]) for extension in named)
    )


def _count(value: object) -> int:
    """Raises ValueError."""
    if (whole := count(value, -1)) < 0:
        raise ValueError("expects a count")
    return whole


def _amount(value: object) -> float:
    """Raises ValueError."""
    if type(value) not in (int, float) or not abs(value) <= COUNT:  # type: ignore[arg-type]  # a number; no NaN either
        raise ValueError("expects an amount")
    return float(value)  # type: ignore[arg-type]  # see above


def rates(before: Vitals, now: Vitals) -> Rates | None:
    """None when no time is between them."""
    seconds = (now.time - before.time) / 1e6
    if seconds <= 0:
        return None
    same = before.started == now.started
    earlier: Mapping[str, int] = before.alerts if same else {}
    least = before.rest if same else 0
    cpu = now.cpu - (before.cpu if same else 0.0)
    events = max(0, now.events - before.events)
    alerts = {rule: max(0, n - earlier.get(rule, least)) * 60 / seconds for rule, n in now.alerts.items()}
    return Rates(
        seconds, events, max(0.0, cpu) / seconds, max(0.0, cpu) * 1e6 / events if events else 0.0,
        max(0, now.undecided - before.undecided) / seconds, max(0, now.poisoned - before.poisoned) / seconds,
        max(0, now.lost - before.lost) / seconds, alerts, now.rest * 60 / seconds,
    )  # fmt: skip
