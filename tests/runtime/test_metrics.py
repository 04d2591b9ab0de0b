"""Every row of the table of metrics is whole, and the page says who watches it; what of a status becomes samples."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from tests.differences import walk
from tests.test_docs import status_keys
from tools.docs import DOCS
from vedette.runtime.agent.exporter import text
from vedette.runtime.agent.metrics import (
    AGENT,
    METRICS,
    Metric,
    Read,
    Use,
    failing,
    microseconds,
    number,
    present,
    samples,
)

PAGE = (DOCS / "metrics.md").read_text("utf-8")


@walk("metric", METRICS)
def test_a_row(metric: Metric) -> None:
    """A name as Prometheus wants it, a meaning, a label for each star of a path that begins in the status, and a line
    of docs/metrics.md that says who would draw it or have an alarm on it."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
    assert metric.help[0].isupper() or metric.help[0].isdigit()
    assert not metric.help.endswith(".")
    assert len(metric.labels) == metric.path.count("*") + metric.path.count("[")
    assert metric.path.partition(".")[0] in status_keys() | {"backlog", "membership"}
    assert re.search(rf"^\| `vedette_{metric.name}` \|.*\| {metric.use.name.lower()} \|$", PAGE, re.MULTILINE)


@walk("use", Use)
def test_a_use(use: Use) -> None:
    """It says who watches, in the page too, and there is a metric for it."""
    assert "graph" in use or "alarm" in use
    assert f"| {use.name.lower()} | {use} |" in PAGE
    assert any(metric.use is use for metric in METRICS)


def test_each_name_and_path_is_there_once() -> None:
    for counts in (Counter(metric.name for metric in METRICS), Counter(metric.path for metric in METRICS)):
        assert max(counts.values()) == 1


def test_the_alarms_of_the_page() -> None:
    """docs/metrics.md proposes alarms on metrics that are there."""
    proposed = set(re.findall(r"\bvedette_(\w+)", PAGE.partition("## All metrics")[0]))
    assert "lag_seconds" in proposed
    assert proposed <= {metric.name for metric in METRICS}


def test_samples() -> None:
    """By star, by member of a list; of texts their number, of a date its time; a counter without labels is there before
    it counts."""

    def read(path: str, status: dict[str, Any], by: Read = number, name: str = "m") -> list[Any]:
        return list(samples(Metric(name, path, Use.RATE, "M", read=by), status))

    status = {
        "inputs": {"a": {"n": 1}, "b": {"n": True}},
        "rules": [{"id": "x", "n": 3}],
        "error": None,
        "reason": "r",
        "problems": ["a", "b"],
        "ends": "2026-11-29T05:00:00Z",
    }
    assert read("inputs.*.n", status) == [(("a",), 1.0), (("b",), 1.0)]
    assert read("rules.[id].n", status) == [(("x",), 3.0)]
    assert read("error", status) == []
    assert read("error", status, present) == [((), 0.0)]
    assert read("reason", status, present) == [((), 1.0)]
    assert read("problems", status, present) == [((), 2.0)]
    assert read("ends", status, microseconds) == [((), datetime(2026, 11, 29, 5, tzinfo=UTC).timestamp() * 1e6)]
    assert read("error", status, microseconds) == []
    states = {"input_states": [{"name": "a", "state": "failing"}, {"name": "b", "state": "waiting"}]}
    assert read("input_states.[name].state", states, failing) == [(("a",), 1.0), (("b",), 0.0)]
    assert read("gone", status) == []
    assert read("gone", status, name="m_total") == [((), 0.0)]
    served = text({**dict.fromkeys(AGENT, "x"), "lag_events": 7}).decode()
    assert "vedette_lag_events 7.0" in served
    assert "vedette_candidates_total 0.0" in served
