"""The judge of the judge: what the naive evaluator of the tests (``tests/reference.py``) says of a few events.

It shares with the agent the compiled plan and the decoders, and nothing else: no prefilter, no groups, no cache. As it
takes milliseconds an event with thousands of rules, it is asked about the events that alerted and as many that did not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC

from tests import reference
from vedette.decode.decoder import record
from vedette.model.event import LogSource
from vedette.plan.plan import Plan


def choose(alerted: Mapping[int, object], events: int, limit: int) -> list[int]:
    """Numbers (from 1) of up to ``limit`` events: half of those that alerted, half spread over the rest."""
    numbers = sorted(number for number in alerted if number <= events)
    half = numbers[:: max(1, -(-len(numbers) // max(1, limit // 2)))]
    step = max(1, events // max(1, limit - len(half)))
    return sorted({*half, *range(1, events + 1, step)})


def differences(
    plan: Plan,
    events: Mapping[int, bytes],
    alerted: Mapping[int, Sequence[str]],
    *,
    codec: str = "syslog",
    logsource: LogSource = LogSource(product="linux"),
) -> list[str]:
    """For each of ``events`` on which ``alerted`` (rule ids by event) is not what the naive evaluator finds, a line."""
    reasons = []
    for number, raw in events.items():
        event = record(raw, codec, zone=UTC, logsource=logsource)
        expected = sorted(plan.rules[i].id for i in reference.matches(plan, event, route=True))
        if expected != sorted(alerted.get(number, ())):
            reasons.append(f"event {number}: expected {expected}, got {sorted(alerted.get(number, ()))}")
    return reasons
