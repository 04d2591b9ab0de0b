"""A correlation whose windows tumble or are sessions, and the statement in SQL that says the same: the same windows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deep import examples
from vedette.engine.match import Engine
from vedette.plan.grid import aligned
from vedette.rules import build
from vedette.runtime.offline.evaluation import evaluate
from vedette.runtime.offline.scan import chunk_of
from vedette.runtime.offline.timeline import Correlated, Stated, Timeline

START = 1_790_000_003
SPAN, GAP = 60, 7
MEASURES = {
    "event_count": ("COUNT(*)", ""),
    "value_count": ("COUNT(DISTINCT v)", ", field: v"),
    "value_sum": ("SUM(v)", ", field: v"),
    "value_avg": ("AVG(v)", ", field: v"),
    "value_median": ("PERCENTILE(v, 0.5)", ", field: v"),
}
SIGNS = {"gte": ">=", "gt": ">", "lt": "<", "lte": "<=", "eq": "=", "neq": "<>"}
WINDOWS = {
    "tumbling": (f"TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '{SPAN}' SECOND)", f"timespan: {SPAN}s"),
    "session": (
        f"SESSION(TABLE readings PARTITION BY g, DESCRIPTOR(ts), INTERVAL '{GAP}' SECOND)",
        f"gap: {GAP}s, timespan: 1d",
    ),
}

SIGMA = """
title: Reading
name: reading
logsource: {{product: plant}}
detection: {{selection: {{kind: reading}}, condition: selection}}
---
title: Correlation
correlation: {{type: {kind}, rules: [reading], group-by: [g], window: {window}, {length},
    condition: {{{name}: {number}{field}}}}}
"""
SQL = """
CREATE TABLE readings (kind STRING, g STRING, v DOUBLE, ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'vedette', 'product' = 'plant');
INSERT INTO alerts SELECT g, window_start FROM TABLE({table}) WHERE kind = 'reading'
GROUP BY window_start, window_end, g HAVING {measure} {sign} {number};
"""


@cache
def engine(window: str, kind: str, name: str, number: int) -> Engine:
    table, length = WINDOWS[window]
    measure, field = MEASURES[kind]
    rule = SIGMA.format(kind=kind, window=window, length=length, name=name, number=number, field=field)
    statement = SQL.format(table=table, measure=measure, sign=SIGNS[name], number=number)
    with TemporaryDirectory() as folder:
        Path(folder, "c.yml").write_text(rule)
        Path(folder, "s.sql").write_text(statement)
        plan = build.build([Path(folder)])
    assert not plan.refused
    return Engine(plan, route=False)


def windows(one: Engine, events: Sequence[dict[str, Any]]) -> tuple[set[Any], set[Any], int]:
    """Group and start of each window that the correlation and the statement fire for; how often the former does."""
    timeline = Timeline(one.plan, "t")
    for found in evaluate(one, chunk_of([json.dumps(event) for event in events], "json", START * 1_000_000)):
        timeline.add(found, "")
    every = list(timeline.correlate())
    fired = [one.firing for one in every if isinstance(one, Correlated)]
    span = SPAN * 1_000_000
    begun = [(one.values[0], one.first_time, one.correlation.grid) for one in fired]
    stated = [one.selected.fields for one in every if isinstance(one, Stated)]
    return (
        {(group, aligned(time, span) if grid and grid.kind == "TUMBLE" else time) for group, time, grid in begun},
        {(one["g"], _micros(one["window_start"])) for one in stated},
        len(fired),
    )


def _micros(text: str) -> int:
    time = datetime.fromisoformat(text)
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000_000)


readings = st.lists(st.tuples(st.integers(0, 200), st.sampled_from("ab"), st.integers(0, 9)), min_size=1, max_size=40)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", MEASURES)
@given(drawn=readings, condition=st.sampled_from([("gte", 3), ("gt", 6), ("lt", 5), ("neq", 2)]))
@examples(40)
def test_the_same_windows(window: str, kind: str, drawn: Any, condition: tuple[str, int]) -> None:
    """Whatever the measure and comparison; once a window, also where it is decided at the event that completes it."""
    events = [{"t": START + time, "kind": "reading", "g": g, "v": v} for time, g, v in drawn]
    ours, theirs, fired = windows(engine(window, kind, *condition), events)
    assert ours == theirs
    assert fired == len(theirs)
