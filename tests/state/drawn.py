"""Correlations and matches drawn at random."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.state.naive import Hit
from vedette.compiler.relation import NUMERIC, Clause, Correlation, Kind, Slot

SECOND = 1_000_000
SLOTS = tuple(Slot(f"rule-{i}", False) for i in range(3))


def made(kind: Kind, **changes: object) -> Correlation:
    """A correlation of three rules with a short span."""
    given: dict[str, object] = {
        "id": "c", "title": "t", "level": "high", "tags": (), "slots": SLOTS, "group_by": ("g",),
        "span": 10 * SECOND, "bounds": (("gte", 3),), "digest": "d",
    }  # fmt: skip
    if kind is Kind.VALUE_COUNT or kind in NUMERIC:
        given["field"] = ("v",)
    return Correlation(kind=kind, **{**given, **changes})  # type: ignore[arg-type]


def bounds() -> st.SearchStrategy[tuple[tuple[str, int], ...]]:
    one = st.tuples(st.sampled_from(["gt", "gte", "lt", "lte", "eq", "neq"]), st.integers(1, 4))
    return st.lists(one, min_size=1, max_size=2, unique_by=lambda b: b[0]).map(tuple)


@st.composite
def clauses(draw: st.DrawFn) -> tuple[Clause, ...]:
    found = []
    for _ in range(draw(st.integers(1, 2))):
        wanted = draw(st.sets(st.integers(0, 2), min_size=1))
        forbidden = draw(st.sets(st.integers(0, 2), max_size=2)) - wanted
        found.append(Clause(tuple(sorted(wanted)), tuple(sorted(forbidden))))
    return tuple(found)


@st.composite
def correlations(draw: st.DrawFn) -> Correlation:
    kind = draw(st.sampled_from(list(Kind)))
    if kind in (Kind.TEMPORAL, Kind.TEMPORAL_ORDERED) and draw(st.booleans()):
        return made(kind, bounds=(), clauses=draw(clauses()))
    return made(kind, bounds=draw(bounds()), percentile=draw(st.sampled_from([0.0, 25.0, 50.0, 90.0, 100.0])))


@st.composite
def hits(draw: st.DrawFn, kind: Kind, size: int = 14, ties: bool = True) -> list[Hit]:
    """Matches in the order in which they lie in the log, which is not that of their times."""
    times = draw(st.lists(st.integers(0, 60), max_size=size, unique=not ties))
    found = []
    for order, time in enumerate(times):
        value = draw(st.none() | (st.integers(0, 4) if kind in NUMERIC else st.sampled_from("abcd")))
        for slot in draw(st.sets(st.integers(0, 2), min_size=1, max_size=2)):
            found.append(
                Hit(time * SECOND, order, slot, (draw(st.sampled_from("xy")),), value if kind not in (
                    Kind.EVENT_COUNT, Kind.TEMPORAL, Kind.TEMPORAL_ORDERED) else None)
            )  # fmt: skip
    return found
