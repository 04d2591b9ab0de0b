"""Every row of the table of metrics is whole; what of a status becomes samples."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from tests.differences import walk
from tests.runtime.twice import TWICE
from tests.test_docs import status_keys
from vedette.runtime.exporter import text
from vedette.runtime.metrics import AGENT, METRICS, UNITS, Metric, samples


@walk("metric", METRICS)
def test_a_row(metric: Metric) -> None:
    """A name as Prometheus wants it, a unit that the name bears out, a meaning, a label for each star of a path that
    begins in the status."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
    assert not metric.name.endswith("_total")  # the exporter adds it
    assert metric.unit in UNITS
    assert ("bytes" in metric.name.split("_")) == (metric.unit == "bytes")
    assert metric.name.endswith("_seconds") == (metric.unit == "seconds")
    assert metric.name.endswith("_timestamp_us") == (metric.unit == "us")
    assert metric.help[0].isupper() or metric.help[0].isdigit()
    assert not metric.help.endswith(".")
    assert len(metric.labels) == metric.path.count("*") + metric.path.count("[")
    assert metric.path.partition(".")[0] in status_keys() | {"backlog"}


def test_each_name_and_path_is_there_once() -> None:
    for counted in (Counter(one.name for one in METRICS), Counter(one.path for one in METRICS)):
        assert max(counted.values()) == 1
    assert set(TWICE.values()) <= {one.path for one in METRICS}


def test_samples() -> None:
    """By star, by member of a list, of texts their number; a counter without labels is there before it counts."""

    def of(path: str, kind: Any, unit: str, status: dict[str, Any]) -> list[tuple[tuple[str, ...], float]]:
        return list(samples(Metric("m", path, kind, unit, "M"), status))

    status = {
        "inputs": {"a": {"n": 1}, "b": {"n": True}},
        "rules": [{"id": "x", "n": 3}],
        "error": None,
        "why": ["a", "b"],
    }
    assert of("inputs.*.n", "gauge", "count", status) == [(("a",), 1.0), (("b",), 1.0)]
    assert of("rules.[id].n", "gauge", "count", status) == [(("x",), 3.0)]
    assert of("error", "gauge", "texts", status) == [((), 0.0)]
    assert of("why", "gauge", "texts", status) == [((), 2.0)]
    assert of("gone", "gauge", "count", status) == []
    states = {"input_states": [{"name": "a", "state": "failing"}, {"name": "b", "state": "waiting"}]}
    assert of("input_states.[name].state", "gauge", "state", states) == [(("a",), 1.0), (("b",), 0.0)]
    assert of("gone", "counter", "count", status) == [((), 0.0)]
    served = text({**dict.fromkeys(AGENT, "one"), "lag_events": 7}).decode()
    assert "vedette_lag_events 7.0" in served
    assert "vedette_commits_total 0.0" in served
