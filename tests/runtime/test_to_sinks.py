"""Rows of statements for sinks, in the pipeline: which rows, in which order, and what is hidden in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.life import NOW, Life
from vedette.config.settings import RedactSettings
from vedette.engine.match import Engine
from vedette.model.counters import Log
from vedette.model.event import Chunk
from vedette.rules import build
from vedette.runtime.pipeline import evaluator
from vedette.sinks.settings import FileSink

LAKE = FileSink("lake", path=Path("/nowhere"), takes="rows")
SQL = """
CREATE TABLE door (n BIGINT, kind STRING, `user` STRING, card STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts) WITH ('connector' = 'vedette');
CREATE TABLE lake (n BIGINT, what STRING, who STRING) WITH ('connector' = 'sink', 'name' = 'lake');
-- title: A
INSERT INTO lake SELECT n, 'a', `user` FROM door WHERE kind = 'a';
-- title: B
INSERT INTO lake (what, n) SELECT 'b', n FROM door WHERE kind = 'b';
-- title: Alert
INSERT INTO alerts SELECT n FROM door WHERE kind = 'c';
"""
WINDOWS = (
    SQL
    + """
-- title: Counts
INSERT INTO lake (n, what) SELECT COUNT(*), CAST(window_start AS STRING)
    FROM TABLE(TUMBLE(TABLE door, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;
"""
)


def engine(sql: str) -> Engine:
    rules = build.empty()
    rules.front_ends[".sql"].add(sql, "rule.sql")
    plan = build.from_rules(rules)
    assert not plan.refused, plan.refused
    return Engine(plan, route=False)


def frame(kinds: str, first: int = 1, **fields: str) -> Chunk:
    lines = [
        json.dumps({"n": n, "kind": kind, "ts": f"2026-11-21T02:4{n // 100}:{n % 60:02}Z", **fields})
        for n, kind in enumerate(kinds, first)
    ]
    return Chunk("in", "json", NOW, "".join(line + "\n" for line in lines).encode())


def rows_of(life: Life) -> list[dict[str, Any]]:
    assert life.context.rows is not None
    return [json.loads(line) for _, line in life.context.rows.of("lake").kept(0, 100_000)]


@pytest.mark.parametrize("together", [1, 3, 128])
def test_streams_are_split(tmp_path: Path, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event in a row of its statement, those of a statement in order, and beside them an alert where a statement
    makes one; over two lives, numbered on."""
    monkeypatch.setattr(evaluator, "TOGETHER", together)
    kinds = "abababcabbbaaacaxb" * 20
    for number in range(2):
        life = Life(tmp_path, engine(SQL), sinks=(LAKE,))
        life.give(frame(kinds, 1 + number * len(kinds)))
        life.live()
        rows = rows_of(life)
        numbers = [n for n, kind in enumerate(kinds * (number + 1), 1) if kind in "ab"]
        assert sorted(row["n"] for row in rows) == numbers
        for what in "ab":
            own = [row["n"] for row in rows if row["what"] == what]
            assert own == [n for n, kind in enumerate(kinds * (number + 1), 1) if kind == what]
        assert [alert.fields["n"] for alert in life.alerts()] == [
            str(n) for n, kind in enumerate(kinds * (number + 1), 1) if kind == "c"
        ]
        life.end()


def test_windows(tmp_path: Path) -> None:
    """A statement that keeps state gives its rows when its window ends, beside those that only filter."""
    life = Life(tmp_path, engine(WINDOWS), sinks=(LAKE,))
    life.give(frame("ab" * 25), frame("x", 100), frame("x", 200))
    life.live()
    rows = rows_of(life)
    assert next(row["n"] for row in rows if row["what"].startswith("2026")) == 50
    assert len([row for row in rows if row["what"] in "ab"]) == 50
    life.end()


def test_a_sink_that_is_not_there(tmp_path: Path) -> None:
    """Its statements make no rows, which is said; all else runs."""
    for sinks in ((), (FileSink("lake", path=Path("/nowhere")),)):
        with capture_logs() as logged:
            life = Life(tmp_path / str(len(sinks)), engine(WINDOWS), sinks=sinks)
            life.give(frame("abcc"))
            life.live()
        assert rows_of(life) == []
        assert len(life.alerts()) == 2
        (said,) = [entry for entry in logged if entry["event"] == Log.SINK_MISSING]
        assert (said["sinks"], said["statements"]) == (["lake"], ["A", "B", "Counts"])
        assert [row["sink"] for row in life.pipeline.state.statements.status()["for_sinks"]] == ["lake"] * 3
        life.end()


REDACT = (
    RedactSettings("hash", fields=("user",)),
    RedactSettings("drop", fields=("n",)),
    RedactSettings("mask", patterns=("card",)),
)


@pytest.mark.parametrize("redact", [REDACT, REDACT[:1], REDACT[1:2]])
def test_redacted(tmp_path: Path, redact: Sequence[RedactSettings]) -> None:
    """What the owner redacts is in no byte of a row, under whatever name its column has."""
    sql = SQL + "INSERT INTO lake (what, who) SELECT card, UPPER(`user`) FROM door WHERE kind = 'b';"
    life = Life(tmp_path, engine(sql), sinks=(LAKE,), redact=tuple(redact))
    life.give(frame("ab", 4_711, user="alice", card="4111 1111 1111 1111"))
    life.live()
    rows, text = rows_of(life), json.dumps(rows_of(life)).lower()
    assert len(rows) == 3
    assert ("alice" in text) is (redact[0].action != "hash")
    assert ("4711" in text or "4712" in text) is (REDACT[1] not in redact)
    assert ("1111 1111" in text) is (REDACT[2] not in redact)
    life.end()
