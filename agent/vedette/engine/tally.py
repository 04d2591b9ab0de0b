"""The account of what evaluation by one plan took, and which of its rules took most of that, by a sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vedette.plan.ir import Rule


@dataclass(slots=True)
class Tally:
    """Costs of evaluation, in all, since the engine was built."""

    events: int = 0
    candidates: int = 0
    matches: int = 0
    undecided: dict[int, int] = field(default_factory=dict)
    """Per rule the events on which its pattern took too long; such an event is not "no match"."""
    reasons: dict[int, str] = field(default_factory=dict)
    skipped: dict[int, int] = field(default_factory=dict)
    """Per rule in quarantine the events it was not asked about."""
    asked: Counter[int] = field(default_factory=Counter)
    """Per rule how many it was a candidate of, among the candidates that were sampled."""
    seconds: float = 0.0
    """That evaluation took, as whoever drives it counts them."""

    @property
    def spent(self) -> float:
        """Microseconds that evaluation took, an event."""
        return self.seconds * 1e6 / (self.events or 1)

    def dearest(self, rules: Sequence[Rule], most: int) -> list[dict[str, Any]]:
        """The ``most`` of ``rules`` that cost most, each with its ``share`` of the whole, from 0 to 1, and of the
        microseconds of an event; JSON-able."""
        total = self.asked.total() or 1
        return [
            {
                "rule_id": rules[number].id,
                "title": rules[number].title,
                "share": times / total,
                "us_per_event": self.spent * times / total,
            }
            for number, times in self.asked.most_common(most)
        ]
