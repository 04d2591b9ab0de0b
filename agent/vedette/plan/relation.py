"""The meaning of a correlation, free of Sigma's syntax: a condition over the events of a window, per group.

A correlation looks at the matches of its ``slots`` (rules, or other correlations). A match of a slot belongs to the
group that its ``group_by`` values name; one without such a value belongs to none. A **window** ends at a match and
begins ``span`` before it, both included; with a ``grid`` it is one of TUMBLE, ``span`` long, or a session, of which no
two matches that follow each other lie more than the gap apart, nor the first and the last more than ``span``. Its
**metric** is what its ``kind`` (``aggregates.py``) measures of the window: how many events, how many different values
of ``field`` or of how many slots, the longest chain of slots in their order, or a figure of the numbers in ``field``
(without one there is no metric, and the condition is false).

The condition holds when the metric satisfies every comparison in ``bounds``; or, with ``clauses``, when for one clause
there is a match of each of its slots (in their order, for ``TEMPORAL_ORDERED``) and none of its forbidden slots.

A correlation is **prompt** when a further event can only make its condition true, never false: then it can be decided
at once. Any other is decided when no event of its window can come any more: of a ``grid`` once a window.

Sigma specification 2.1, "Sigma Correlation Rules"; what it leaves open is decided in
``docs/decisions/0007-correlation-semantics.md``.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import msgpack

from vedette.plan.aggregates import Kind, Reads
from vedette.plan.grid import Grid
from vedette.plan.ir import MAX_SPAN, Suppress, suppress_of

MAX_CHAIN = 16
"""Correlations of correlations, how deep."""
MAX_SLOTS = 64


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "eq": operator.eq,
    "neq": operator.ne,
}


class Slot(NamedTuple):
    """One rule that a correlation looks at. ``names``: pairs of an alias and its field in this rule."""

    rule_id: str
    correlation: bool
    names: tuple[tuple[str, str], ...] = ()

    def field(self, name: str) -> str:
        """Return what the correlation's ``name`` is called in this rule's events."""
        return next((field for alias, field in self.names if alias == name), name)


class Clause(NamedTuple):
    """Slots with a match, and slots without one; ascending indexes."""

    wanted: tuple[int, ...]
    forbidden: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Correlation:
    """A condition over the matches of a group. ``digest`` covers its meaning and its rules', not its texts."""

    id: str
    title: str
    level: str
    tags: tuple[str, ...]
    kind: Kind
    slots: tuple[Slot, ...]
    group_by: tuple[str, ...]
    span: int
    """Microseconds."""
    bounds: tuple[tuple[str, int | float], ...]
    """Pairs of a key of ``COMPARE`` and a number; empty with ``clauses``."""
    field: tuple[str, ...] = ()
    percentile: float = 50.0
    clauses: tuple[Clause, ...] = ()
    generate: bool = False
    """True: its rules make alerts of their own, too."""
    digest: str = ""
    path: str = ""
    line: int = 0
    suppress: Suppress | None = None
    grid: Grid | None = None
    """``TUMBLE`` of ``span``, or ``SESSION``; None: windows slide."""

    noun: ClassVar[str] = "correlation"

    @property
    def prompt(self) -> bool:
        """True when it can be decided at once (see the module's text)."""
        if self.clauses:
            return not self.forward
        return self.kind.row.grows and all(name in ("gt", "gte") for name, _ in self.bounds)

    @property
    def forward(self) -> bool:
        """True when a slot's absence can only be known from what follows: windows that slide then begin at a match."""
        return any(clause.forbidden for clause in self.clauses)

    @property
    def least(self) -> int:
        """The smallest whole metric, of a prompt correlation with ``bounds``, that satisfies them."""
        return max(int(n // 1) + 1 if name == "gt" else -int(-n // 1) for name, n in self.bounds)

    @property
    def needs(self) -> int:
        """How many of its slots must be able to match for it ever to be true."""
        if self.clauses:
            return min(len(clause.wanted) for clause in self.clauses)
        counts_slots = self.kind.row.reads is Reads.RULE
        return next((n for n in range(1, len(self.slots) + 1) if not counts_slots or self.holds(n)), 1)

    def holds(self, metric: int | float | None) -> bool:
        """The truth of ``bounds``."""
        return metric is not None and all(COMPARE[name](metric, number) for name, number in self.bounds)

    def to_row(self) -> list[Any]:
        """Return what msgpack can carry; ``from_row`` is its inverse."""
        suppress = None if self.suppress is None else self.suppress.to_row()
        return [
            self.id, self.title, self.level, self.tags, self.kind.value, self.slots, self.group_by, self.span,
            self.bounds, self.field, self.percentile, self.clauses, self.generate, self.digest, self.path, self.line,
            suppress, *([] if self.grid is None else [self.grid]),
        ]  # fmt: skip


def meaning_digest(correlation: Correlation, digests: Sequence[str]) -> str:
    """Hex digest of what ``correlation`` means; ``digests``: those of its slots' rules, in order."""
    c = correlation
    slots = [[digest, sorted(slot.names)] for digest, slot in zip(digests, c.slots, strict=True)]
    described = [c.kind.value, slots, c.group_by, c.span, sorted(c.bounds), c.field, float(c.percentile), c.clauses]
    if c.grid is not None:  # the digests of others are those of versions that knew no grids
        described.append(c.grid)
    return hashlib.blake2b(msgpack.packb(described), digest_size=16).hexdigest()


def from_row(row: list[Any]) -> Correlation:
    """Raises ValueError or TypeError when ``row`` is not what ``Correlation.to_row`` gives."""
    (id_, title, level, tags, kind, slots, group_by, span, bounds, field, percentile, clauses, generate, digest, path,
     line, suppress, grid) = row if len(row) > 17 else (*row, None)  # fmt: skip
    correlation = Correlation(
        id=id_, title=title, level=level, tags=tuple(tags), kind=Kind(kind),
        slots=tuple(Slot(rule, bool(nested), tuple((a, f) for a, f in names)) for rule, nested, names in slots),
        group_by=tuple(group_by), span=span, bounds=tuple((name, number) for name, number in bounds),
        field=tuple(field), percentile=percentile,
        clauses=tuple(Clause(tuple(wanted), tuple(forbidden)) for wanted, forbidden in clauses),
        generate=bool(generate), digest=digest, path=path, line=line, suppress=suppress_of(suppress),
        grid=None if grid is None else Grid(*grid),
    )  # fmt: skip
    texts = [id_, title, level, digest, path, *tags, *group_by, *field]
    texts += [
        text for slot in correlation.slots for text in (slot.rule_id, *(part for pair in slot.names for part in pair))
    ]
    numbers = [percentile, *(number for _, number in correlation.bounds)]
    in_slots = all(0 <= i < len(slots) for clause in correlation.clauses for part in clause for i in part)
    if (
        not all(type(text) is str for text in texts)
        or not all(type(number) in (int, float) for number in numbers)
        or not all(name in COMPARE for name, _ in correlation.bounds)
        or type(span) is not int
        or not 0 < span <= MAX_SPAN
        or not 0 < len(slots) <= MAX_SLOTS
        or not in_slots
        or bool(correlation.bounds) == bool(correlation.clauses)
        or not (correlation.grid is None or _grid_of(correlation.grid, span))
    ):
        raise ValueError(f"not a correlation: {id_!r:.60}")
    return correlation


def _grid_of(grid: Grid, span: int) -> bool:
    """Whether a correlation of this span may have it."""
    if type(grid.size) is not int or (grid.step, grid.offset) != (0, 0):
        return False
    return grid.size == span if grid.kind == "TUMBLE" else grid.kind == "SESSION" and 0 < grid.size <= span


def ordered(correlations: Iterable[Correlation]) -> list[Correlation]:
    """``correlations`` with each after those that it refers to; raises ValueError for a cycle, a lack, or a chain of
    more than ``MAX_CHAIN``."""
    by_id = {c.id: c for c in correlations}
    depths: dict[str, int] = {}

    def visit(correlation: Correlation, above: tuple[str, ...]) -> int:
        if correlation.id in above:
            raise ValueError(f"correlation {correlation.id} refers to itself by way of others")
        if correlation.id not in depths:
            nested = [by_id[slot.rule_id] for slot in correlation.slots if slot.correlation and slot.rule_id in by_id]
            if len(nested) != sum(slot.correlation for slot in correlation.slots):
                raise ValueError(f"correlation {correlation.id} refers to one that is not there")
            depth = len(above) + 1  # of a walk that is too long already, nothing more is visited
            if depth <= MAX_CHAIN:
                depth = 1 + max((visit(child, (*above, correlation.id)) for child in nested), default=0)
            if depth > MAX_CHAIN:
                raise ValueError(f"correlations are chained deeper than {MAX_CHAIN}")
            depths[correlation.id] = depth
        return depths[correlation.id]

    for correlation in by_id.values():
        visit(correlation, ())
    return [by_id[key] for key in depths]


def starved(correlations: Iterable[Correlation], idle: Iterable[str]) -> list[Correlation]:
    """Those that can never fire when the rules ``idle`` (ids) cannot: too few of their slots can match."""
    idle_ids = set(idle)
    never = []
    for correlation in ordered(correlations):
        if sum(slot.rule_id not in idle_ids for slot in correlation.slots) < correlation.needs:
            idle_ids.add(correlation.id)
            never.append(correlation)
    return never
