"""The rows of a backtest, and what its executors are given.

``MATCHES`` is what it gives. ``WORK`` is what passes between its two steps: rows of ``MATCHES``, and **moments**, what
matches mean to correlations and statements (``vedette.runtime.offline.timeline``), with the order in which these want
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import columns

ROWS = 1000
"""Rows handed to Spark at once."""

MATCHES = columns(
    """string kind agent log_id; long offset; int length; string input host; time received_at event_time;
    string rule_id rule_title level; map fields; string raw reason; long events bytes; double seconds"""
)
"""``kind`` ``match``: a rule matched the event at ``offset`` of ``log_id``. ``correlation``, ``statement``: it fired, a
row came out, completed by that event. ``read``: a segment was read; ``events``, ``bytes`` and the CPU ``seconds`` it
took. ``gap``: ``events`` from ``offset`` on that cannot be read, with ``reason``; 0 where their number is unknown.
``undecided``: ``events`` of a segment on which ``rule_id`` could not be decided, with ``reason``. ``not_correlated``:
why matches of ``agent`` were not used over time."""

WORK = StructType([*MATCHES.fields, *columns("int step; long time place; binary moment").fields])
"""A moment has a ``step``, 0 of correlations and 1 of statements; rows of ``MATCHES`` have none."""
ORDER = ("agent", "step", "time", "place")


class Rules(NamedTuple):
    """The rules as executors evaluate them: a built rule set (``vedette.engine.artifact``), and how it is asked."""

    artifact: bytes
    route: bool
    product: str
    over_time: bool
    """Whether it has correlations or statements."""
    not_run: tuple[str, ...] = ()
    """Rules that do not run, and why."""


@lru_cache(maxsize=2)
def opened(data: bytes) -> tuple[Any, Any]:
    """The rules, and the lookups that they bring, opened."""
    from vedette.engine.artifact import Artifact
    from vedette.lookup.sets import made

    artifact = Artifact.from_bytes(data)
    return artifact, made(artifact.lookups)


def batches(rows: Iterable[dict[str, Any]], of: StructType) -> Iterator[pa.RecordBatch]:
    """``rows`` as Spark takes them, ``ROWS`` at a time."""
    schema, some = arrow_schema(of), list[dict[str, Any]]()
    for row in rows:
        some.append(row)
        if len(some) >= ROWS:
            yield pa.RecordBatch.from_pylist(some, schema)
            some = []
    if some:
        yield pa.RecordBatch.from_pylist(some, schema)
