"""Correlations and matches drawn at random."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.deep import DEEP
from tests.state.naive import Hit
from vedette.plan.aggregates import Kind
from vedette.plan.grid import Grid
from vedette.plan.relation import Clause, Correlation, Slot
from vedette.state.clock import Clock
from vedette.state.correlate import Correlator
from vedette.state.windows import Window

SECOND = 1_000_000
SLOTS = tuple(Slot(f"rule-{i}", False) for i in range(3))


def correlation_of(kind: Kind, **changes: Any) -> Correlation:
    """A correlation of three rules with a short span."""
    fields: dict[str, Any] = {
        "id": "c", "title": "t", "level": "high", "tags": (), "slots": SLOTS, "group_by": ("g",),
        "span": 10 * SECOND, "bounds": (("gte", 3),), "digest": "d",
    }  # fmt: skip
    if kind is Kind.VALUE_COUNT or kind.row.numeric:
        fields["field"] = ("v",)
    return Correlation(kind=kind, **{**fields, **changes})


def bounds() -> st.SearchStrategy[tuple[tuple[str, int], ...]]:
    one = st.tuples(st.sampled_from(["gt", "gte", "lt", "lte", "eq", "neq"]), st.integers(1, 4))
    return st.lists(one, min_size=1, max_size=2, unique_by=lambda b: b[0]).map(tuple)


@st.composite
def clauses(draw: st.DrawFn) -> tuple[Clause, ...]:
    drawn_clauses = []
    for _ in range(draw(st.integers(1, 2))):
        wanted = draw(st.sets(st.integers(0, 2), min_size=1))
        forbidden = draw(st.sets(st.integers(0, 2), max_size=2)) - wanted
        drawn_clauses.append(Clause(tuple(sorted(wanted)), tuple(sorted(forbidden))))
    return tuple(drawn_clauses)


MIXED = {
    "counts": ["event_count", "value_count", "temporal"],
    "numbers": ["value_sum", "value_avg", "value_percentile", "value_median"],
    "chains": ["temporal_ordered", "clauses", "ordered_clauses"],
    "absences": ["absence", "ordered_absence"],
}
EXAMPLES = settings(max_examples=DEEP or 8, suppress_health_check=list(HealthCheck))
"""Of each shape in each test; ``VEDETTE_DEEP=N`` draws N."""
THREE_WAYS = settings(EXAMPLES, max_examples=3 * DEEP or 12)
"""Where each example is one of three ways of keeping windows."""
SHAPES = [*map(str, Kind), "clauses", "ordered_clauses", "absence", "ordered_absence"]
"""What is drawn each by itself, so that none is rare."""
SHAPES += [f"{window} {mixed}" for window in ("tumbling", "session") for mixed in MIXED]


@st.composite
def correlations(draw: st.DrawFn, shape: str) -> Correlation:
    if " " in shape:
        window, mixed = shape.split()
        one = draw(correlations(draw(st.sampled_from(MIXED[mixed]))))
        gap = draw(st.integers(1, 6)) * SECOND
        return replace(one, grid=Grid("TUMBLE", one.span) if window == "tumbling" else Grid("SESSION", gap))
    if shape in list(Kind):
        return correlation_of(
            Kind(shape), bounds=draw(bounds()), percentile=draw(st.sampled_from([0.0, 25.0, 90.0, 100.0]))
        )
    kind = Kind.TEMPORAL_ORDERED if shape.startswith("ordered") else Kind.TEMPORAL
    wanted = draw(clauses())
    if shape.endswith("clauses"):
        wanted = tuple(Clause(clause.wanted) for clause in wanted)
    elif not any(clause.forbidden for clause in wanted):
        wanted = (Clause((0,), (1,)), *wanted)
    return correlation_of(kind, bounds=(), clauses=wanted)


@st.composite
def hits(draw: st.DrawFn, kind: Kind, size: int = 18) -> list[Hit]:
    """Matches in the order in which they lie in the log, which is not that of their times; most of one group."""
    times = draw(st.lists(st.integers(0, 30), max_size=size))
    drawn_hits = []
    for order, time in enumerate(times):
        value = draw(st.none() | (st.integers(0, 4) if kind.row.numeric else st.sampled_from("abcd")))
        if kind in (Kind.EVENT_COUNT, Kind.TEMPORAL, Kind.TEMPORAL_ORDERED):
            value = None
        group = (draw(st.sampled_from("xxxy")),)
        for slot in draw(st.sampled_from([{0}, {1}, {2}, {0}, {1}, {2}, {0, 1}, {1, 2}])):
            drawn_hits.append(Hit(time * SECOND, order, slot, group, value))
    return drawn_hits


def row_of(window: Window) -> list[Any]:
    """All of a window."""
    one = copy.copy(window)
    one.clean = 0
    return one.row()


def all_of(one: Clock | Correlator) -> list[Any]:
    """All of it, as one delta."""
    if isinstance(one, Clock):
        one.touch()
    else:
        one.groups.touch(list(one.groups.table), one.groups.bytes + 1)
    return one.delta()
