"""What evaluation takes, and which rules of one plan it takes most for, by the sample of ``Tally.asked``."""

from __future__ import annotations

from typing import Any

from vedette.engine.match import Engine


def spent(engine: Engine) -> float:
    """Microseconds that evaluation took, an event."""
    return engine.tally.seconds * 1e6 / (engine.tally.events or 1)


def dearest(engine: Engine, most: int) -> list[dict[str, Any]]:
    """The rules of one plan that cost most, by the sample: each with its ``share`` of it, and of the microseconds of an
    event; JSON-able."""
    asked, rules, whole = engine.tally.asked, engine.plan.rules, spent(engine)
    total = asked.total() or 1
    return [
        {
            "rule_id": rules[number].id,
            "title": rules[number].title,
            "share": times / total,
            "us_per_event": whole * times / total,
        }
        for number, times in asked.most_common(most)
    ]
