"""Where the values of an alert's fields stand in its text, for a page to mark them."""

from __future__ import annotations

from collections.abc import Mapping

from vedette_console.data.models import Span

MOST = 64
SHORTEST = 2
"""Characters of a value that is looked for: a single digit stands everywhere."""


def highlights(raw: str, fields: Mapping[str, str]) -> list[Span]:
    """Where each value stands first in ``raw``, in order, none within another: of those that overlap the longest."""
    found: list[Span] = []
    for field, value in sorted(fields.items(), key=lambda item: (-len(item[1]), item[0]))[:MOST]:
        if len(value) < SHORTEST or value == raw:
            continue
        start = raw.find(value)
        while start >= 0 and any(one.start < start + len(value) and start < one.end for one in found):
            start = raw.find(value, start + 1)
        if start >= 0:
            found.append(Span(start=start, end=start + len(value), field=field))
    return sorted(found, key=lambda one: one.start)
