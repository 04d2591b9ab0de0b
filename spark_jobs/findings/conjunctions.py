"""Which one or two fields tell a rule's false positives from its other alerts.

A field is of use when all false positives have it, with ``MAX_VALUES`` different values at most. A **conjunction** of
one or two such fields stands for the alerts in which each has one of its values; it must hold for no alert that is to
be kept. Of several the one of fewer fields is chosen, then the one that takes fewer other alerts along, then the one of
fewer values. One field at least must **name** somebody: all its values are entities of the false positives (an address,
a user, a host). What holds for whatever the rule matches, such as the program's name, would silence the rule.

Values are compared as Sigma does it, without regard to case.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

MAX_VALUES = 5
MAX_TEXT = 200
"""Characters of a value: one that is longer may have been cut."""
MAX_FIELDS = 32

FALSE, TRUE, OPEN, OTHER = "false", "true", "open", "other"
"""An alert's label: of a finding closed as a false positive, or as a true one; of neither, with a high level, or with
another one."""
SPARED = (TRUE, OPEN)


def best(
    values: Mapping[str, Sequence[str]], naming: Collection[str], counts: Mapping[tuple[str, int], int]
) -> tuple[str, ...]:
    """The fields of the conjunction to propose; empty when there is none.

    ``values`` are those of the fields of use, ``naming`` the fields that name somebody, ``counts`` the rule's alerts by
    label and by the fields of which they have a value: a bit each, in the order of ``values``.
    """
    fields = list(values)

    def removed(chosen: Sequence[int], label: str) -> int:
        bits = sum(1 << place for place in chosen)
        return sum(alerts for (of, mask), alerts in counts.items() if of == label and mask & bits == bits)

    def cost(chosen: Sequence[int]) -> tuple[int, int, int, Sequence[int]]:
        return len(chosen), removed(chosen, OTHER), sum(len(values[fields[place]]) for place in chosen), chosen

    places = range(len(fields))
    fit = [
        chosen
        for chosen in (*combinations(places, 1), *combinations(places, 2))
        if any(fields[place] in naming for place in chosen) and not any(removed(chosen, label) for label in SPARED)
    ]
    return tuple(fields[place] for place in min(fit, key=cost)) if fit else ()
