"""Correlations against an independent judge: pySigma's SQLite backend, in retrospect over the whole table.

It gives every window in which a condition holds; a run of them fires once here (``docs/decisions/0004``). Drawn times
differ, because it takes no order among events of one time; its table is looked at long after the last event, so that
windows that begin at an event are complete.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.deep import examples
from tests.differential.material import oracle
from vedette.api import compile_rules
from vedette.engine.match import Engine
from vedette.runtime.offline.evaluation import evaluate
from vedette.runtime.offline.scan import chunk_of
from vedette.runtime.offline.timeline import Correlated, Timeline

BASE = 1_790_000_000
NAMES = ("aa", "bb", "cc")
EXAMPLES = examples(40)

Event = dict[str, Any]


def rules(*correlations: dict[str, Any]) -> str:
    """YAML of a detection per name, and the correlations; the last one alerts."""
    found: list[dict[str, Any]] = [
        {
            "title": name,
            "name": name,
            "logsource": {"product": "x"},
            "detection": {"selection": {f"is_{name}": "yes"}, "condition": "selection"},
        }
        for name in NAMES
    ]
    for i, correlation in enumerate(correlations):
        found.append({"title": f"c{i}", "name": f"c{i}", "correlation": correlation})
    return yaml.safe_dump_all(found, sort_keys=False)


def events_of(drawn: Sequence[tuple[int, set[str], str | None, Any]]) -> list[Event]:
    found = []
    for time, names, group, value in drawn:
        event: Event = {
            "time": datetime.fromtimestamp(BASE + time, UTC).isoformat(),
            **{f"is_{n}": "yes" for n in names},
        }
        if group is not None:
            event["g"] = group
        if value is not None:
            event["v"] = value
        found.append(event)
    return found


def judged_by_sqlite(text: str, events: Sequence[Event]) -> list[tuple[str, int, int]]:
    """Group, start and end (seconds from ``BASE``) of every window in which the last correlation holds."""
    module = oracle()
    from sigma.backends.sqlite import sqliteBackend
    from sigma.collection import SigmaCollection

    backend = sqliteBackend(timestamp_field="time", observation_end=BASE + 10_000)
    query = backend.convert(SigmaCollection.from_yaml(text))[-1].replace("<TABLE_NAME>", "logs")
    connection = module.load([*events, {"time": None, "g": None, "v": None, **{f"is_{n}": None for n in NAMES}}])
    rows = connection.execute(query).fetchall()
    return sorted({(json.loads(row[1]).get("g", ""), round(row[3]) - BASE, round(row[2]) - BASE) for row in rows})


def judged_here(text: str, events: Sequence[Event]) -> list[Correlated]:
    plan = compile_rules(text=text)
    assert not plan.refused
    timeline = Timeline(plan, "time")
    for found in evaluate(Engine(plan, route=False), chunk_of(events), silent=True):
        timeline.add(found, "")
    return list(timeline.correlate())


def fired(correlated: Sequence[Correlated], *, forward: bool) -> list[tuple[str, int]]:
    """Group and second at which the window ends, or begins for one that looks forward."""
    return sorted(
        (one.group.get("g", ""), (one.firing.first_time if forward else one.firing.event.time) // 1_000_000 - BASE)
        for one in correlated
    )


def heads(windows: Sequence[tuple[str, int, int]], anchors: Sequence[tuple[str, int]], span: int, forward: bool) -> Any:
    """The windows that begin a run: those whose match before, if it is near, has no window in which it holds."""
    true = {(group, start if forward else end) for group, start, end in windows}
    found = []
    for group, time in true:
        before = max((t for g, t in anchors if g == group and t < time), default=None)
        if before is None or time - before > span or (group, before) not in true:
            found.append((group, time))
    return sorted(found)


def drawn(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[int, set[str], str | None, Any]]]:
    row = st.tuples(
        st.integers(0, 60),
        st.sets(st.sampled_from(NAMES), max_size=2),
        st.none() | st.sampled_from(["x", "y"]),
        values,
    )
    return st.lists(row, max_size=16, unique_by=lambda one: one[0])


OPERATORS = st.sampled_from(["gt", "gte", "lt", "lte", "eq", "neq"])


@st.composite
def counting(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["event_count", "value_count", "temporal", "temporal_ordered"]))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    operator = draw(st.sampled_from(["gt", "gte"]) if kind == "temporal_ordered" else OPERATORS)
    number = draw(st.integers(1, min(3, len(names)) if kind.startswith("temporal") else 4))
    if (kind != "value_count" and operator == "lt" and number == 1) or (
        kind.startswith("temporal") and operator == "gt"
    ):
        operator = "gte"
    if kind.startswith("temporal") and operator == "neq" and len(names) == 1:
        operator = "eq"
    made = {"type": kind, "rules": names, "timespan": "10s", "condition": {operator: number}, "group-by": ["g"]}
    if kind == "value_count":
        made["condition"]["field"] = "v"
    return made


@given(counting(), drawn(st.none() | st.sampled_from(["p", "P", "q", "r", "s"])), st.booleans())
@EXAMPLES
def test_counts_and_sequences(correlation: dict[str, Any], rows: Any, grouped: bool) -> None:
    """event_count, value_count, temporal and temporal_ordered, with every operator."""
    if not grouped:
        del correlation["group-by"]
    compare(correlation, rows)


@given(
    st.sampled_from(["value_sum", "value_avg", "value_median", "value_percentile"]), OPERATORS, st.integers(-3, 20),
    st.sampled_from([0, 10, 50, 75, 100]), st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
    drawn(st.none() | st.integers(-5, 20) | st.sampled_from(["7", "x", "2.5", ""])),
)  # fmt: skip
@EXAMPLES
def test_numbers(kind: str, operator: str, number: int, percentile: int, names: list[str], rows: Any) -> None:
    """The kinds that measure numbers, with texts that are numbers and texts that are not."""
    condition: dict[str, Any] = {operator: number, "field": "v"}
    if kind == "value_percentile":
        condition["percentile"] = percentile
    compare({"type": kind, "rules": names, "timespan": "10s", "condition": condition, "group-by": ["g"]}, rows)


EXTENDED = (
    "aa and bb", "aa or bb", "aa or bb and cc", "(aa or bb) and cc", "not not aa", "aa and not bb",
    "aa and not (bb or cc)", "(aa or bb) and not cc", "aa and bb and not cc", "not (not aa or not bb)",
)  # fmt: skip


@given(st.sampled_from(["temporal", "temporal_ordered"]), st.sampled_from(EXTENDED), drawn(st.none()))
@EXAMPLES
def test_extended_conditions(kind: str, condition: str, rows: Any) -> None:
    """Conditions that name rules, with and without 'not'."""
    compare({"type": kind, "timespan": "10s", "condition": condition, "group-by": ["g"]}, rows)


def compare(correlation: dict[str, Any], rows: Any) -> None:
    text, events = rules(correlation), events_of(rows)
    condition = correlation["condition"]
    names = correlation.get("rules") or [n for n in NAMES if n in condition]
    forward = isinstance(condition, str) and "and not " in condition
    wanted = [n for n in names if not forward or n in condition.split("not")[0]]
    by = "group-by" in correlation
    anchors = [
        ((group if by else ""), time)
        for time, matched, group, _ in rows
        if matched & set(wanted) and (group is not None or not by)
    ]
    windows = judged_by_sqlite(text, events)
    assert fired(judged_here(text, events), forward=forward) == heads(windows, anchors, 10, forward)


@given(
    st.sampled_from(["temporal", "temporal_ordered"]), st.integers(1, 3), drawn(st.sampled_from(["p", "q"])),
    st.sampled_from([["g"], ["v"], []]), st.booleans(),
)  # fmt: skip
@EXAMPLES
def test_chains(kind: str, number: int, rows: Any, above: list[str], swapped: bool) -> None:
    """A correlation of a correlation, grouped by the same field or another: the same groups fire first at the same
    time."""
    below = {
        "type": "event_count", "rules": ["aa", "bb"], "timespan": "10s", "group-by": ["g"],
        "condition": {"gte": number},
    }  # fmt: skip
    names = ["cc", "c0"] if swapped else ["c0", "cc"]
    top = {"type": kind, "rules": names, "timespan": "15s", **({"group-by": above} if above else {})}
    text, events = rules(below, top), events_of(rows)
    first: dict[str, int] = {}
    module = oracle()
    for group, time in occurrences(module, text, events):
        first[group] = min(time, first.get(group, time))
    here: dict[str, int] = {}
    for one in judged_here(text, events):
        group = json.dumps(one.group, sort_keys=True)
        time = one.firing.event.time // 1_000_000 - BASE
        here[group] = min(time, here.get(group, time))
    assert here == first


def occurrences(module: Any, text: str, events: Sequence[Event]) -> list[tuple[str, int]]:
    from sigma.backends.sqlite import sqliteBackend
    from sigma.collection import SigmaCollection

    backend = sqliteBackend(timestamp_field="time", observation_end=BASE + 10_000)
    query = backend.convert(SigmaCollection.from_yaml(text))[-1].replace("<TABLE_NAME>", "logs")
    connection = module.load([*events, {"time": None, "g": None, "v": None, **{f"is_{n}": None for n in NAMES}}])
    rows = connection.execute(query).fetchall()
    return [(json.dumps(json.loads(row[1]), sort_keys=True), round(row[2]) - BASE) for row in rows]


@pytest.mark.parametrize("event", [{"g": "A"}, {"g": "a"}])
def test_groups_are_told_apart_without_regard_to_case(event: Event) -> None:
    """Two spellings of one value are one group, shown as the completing event spells it."""
    text = rules(
        {"type": "event_count", "rules": ["aa"], "timespan": "10s", "group-by": ["g"], "condition": {"gte": 2}}
    )
    events = events_of([(0, {"aa"}, "a", None), (1, {"aa"}, event["g"], None)])
    assert [one.group for one in judged_here(text, events)] == [event]
    assert len(judged_by_sqlite(text, events)) == 1
