"""Which one or two fields tell a rule's false positives from its other alerts.

A field is of use when all false positives have it, with ``MAX_VALUES`` different values at most. A **conjunction** of
one or two such fields stands for the alerts in which each has one of its values; it must hold for no alert that is to
be kept. Of several the one of fewer fields is chosen, then the one that takes fewer other alerts along, then the one of
fewer values. One field at least must **name** somebody: all its values are entities of the false positives (an address,
a user, a host). What holds for whatever the rule matches, such as the program's name, would silence the rule.

Values are compared as Sigma does it, without regard to case.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations

from spark_jobs.common.entities import PRIVATE

MAX_VALUES = 5
MAX_TEXT = 200
"""Characters of a value: one that is longer may have been cut."""
MAX_FIELDS = 32

FALSE, TRUE, OPEN, OTHER = "false", "true", "open", "other"
"""An alert's label: of a finding closed as a false positive, or as a true one; of neither, with a high level, or with
another one."""
KEPT = (TRUE, OPEN)

Fields = Mapping[str, str]


@dataclass
class FalseOnes:
    """What a rule's false positives have in common: one after the other to ``add``, then ``fields``."""

    alerts: int = 0
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    """By field, by folded value, how it was first written."""
    entities: set[str] = field(default_factory=set)
    findings: set[str] = field(default_factory=set)
    agents: set[str] = field(default_factory=set)
    sources: Counter[tuple[tuple[str, str | None], ...]] = field(default_factory=Counter)
    title: str = ""

    def add(self, fields: Fields) -> None:
        """One alert's."""
        if not self.alerts:
            self.values = {name: {} for name in fields}
        self.alerts += 1
        for name in list(self.values):
            value = fields.get(name)
            if value and len(value) <= MAX_TEXT:
                self.values[name].setdefault(value.casefold(), value)
            if not value or len(value) > MAX_TEXT or len(self.values[name]) > MAX_VALUES:
                del self.values[name]

    @property
    def fields(self) -> list[str]:
        """Those of use."""
        return sorted(self.values)[:MAX_FIELDS]


class Counts:
    """A rule's alerts, all of them, by label and by the fields of which they have a false positive's value."""

    def __init__(self, false: FalseOnes) -> None:
        self._false, self._fields = false, false.fields
        self._counts: Counter[tuple[str, int]] = Counter()
        self.sites: set[str] = set()

    def add(self, label: str, fields: Fields, site: str) -> None:
        held = (fields.get(name, "").casefold() in self._false.values[name] for name in self._fields)
        self._counts[label, sum(1 << place for place, holds in enumerate(held) if holds)] += 1
        self.sites.add(site)

    def best(self) -> tuple[str, ...]:
        """The fields of the conjunction to propose; empty when there is none."""
        places = range(len(self._fields))
        every: Iterator[tuple[int, ...]] = chain(combinations(places, 1), combinations(places, 2))
        fit = [some for some in every if self._names(some) and not any(self._removed(some, one) for one in KEPT)]
        if not fit:
            return ()

        def weight(some: tuple[int, ...]) -> tuple[int, int, int, tuple[int, ...]]:
            values = sum(len(self._false.values[self._fields[place]]) for place in some)
            return len(some), self._removed(some, OTHER), values, some

        return tuple(self._fields[place] for place in min(fit, key=weight))

    def _removed(self, some: tuple[int, ...], label: str) -> int:
        bits = sum(1 << place for place in some)
        return sum(n for (of, mask), n in self._counts.items() if of == label and mask & bits == bits)

    def _names(self, some: tuple[int, ...]) -> bool:
        """Whether a field of ``some`` names somebody; a private address does so within one site only."""
        for place in some:
            values = self._false.values[self._fields[place]]
            far = len(self.sites) > 1 and any(re.search(PRIVATE, value) for value in values)
            if not far and values.keys() <= self._false.entities:
                return True
        return False
