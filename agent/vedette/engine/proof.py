"""A sample proves what the native kernel leaves out: one event in ``LEFT_OUT_SAMPLE`` is evaluated under all rules.

The sample goes by a count of events, whatever the kernel says of them, so that it costs nothing in the kernel and a
subtraction a chunk here. An event of it is a candidate with the rules that the kernel has left of it (``Sampled``), in
its place among the others; ``Engine.matches`` evaluates the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from vedette.engine.prefilter import Candidate
from vedette.engine.rows import Batch
from vedette.model.event import Chunk

LEFT_OUT_SAMPLE = 10_000


class Sampled(frozenset[int]):
    """The rules that are left of an event of the sample, perhaps none."""


class Sample:
    """Counts events."""

    def __init__(self) -> None:
        self._until = LEFT_OUT_SAMPLE
        """Events up to the next of the sample, with it."""

    def span(self, chunk: Chunk) -> tuple[int, int] | None:
        """Start and end of the event of ``chunk`` that is of the sample; None: none is. An empty line proves
        nothing."""
        count = len(chunk)
        self._until -= count
        if self._until > 0:
            return None
        number = max(0, count + self._until - 1)
        self._until += LEFT_OUT_SAMPLE
        start, end = next(islice(chunk.spans(), number, None), (0, 0))
        return (start, end) if start < end else None


def sampled(candidates: Iterable[Any], start: int, end: int) -> Iterator[Any]:
    """``candidates`` (``Candidate`` or ``Batch``), among them the event from ``start`` to ``end`` as ``Sampled``."""
    others = iter(candidates)
    for each in others:
        if each.end <= start:
            yield each
            continue
        rules: frozenset[int] = frozenset()
        rest: Any = None
        if isinstance(each, Batch):
            before, rest = each.split(start)
            if before.spans:
                yield before
            if rest.spans and rest.spans[0][0] == start:
                rules, rest = rest.rules, rest.split(end)[1]
            rest = rest if rest.spans else None
        elif each.start == start:
            rules = each.rules
        else:
            rest = each
        yield Candidate(start, end, Sampled(rules))
        if rest is not None:
            yield rest
        yield from others
        return
    yield Candidate(start, end, Sampled())
