"""Where ingest's time goes: its steps, timed from outside by wrapping the functions that do them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.usage import TICKS, family
from spark_jobs.intake import batch, counts, landed
from spark_jobs.intake.enrich import Lookups
from spark_jobs.tables import delta as tables_delta

Steps = dict[str, dict[str, float]]
"""Step -> ``times`` it was done, ``seconds``, and CPU-seconds of the JVM (``jvm``) and of Python (``python``)."""


@contextmanager
def steps() -> Iterator[Steps]:
    """The steps done within, filled in as they end. None of them lies in another."""
    found: Steps = {}

    def timed(name: Callable[..., str], work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            began, before = time.perf_counter(), _cpu()
            try:
                return work(*arguments, **options)
            finally:
                after = _cpu()
                one = found.setdefault(name(*arguments), {"times": 0, "seconds": 0.0, "jvm": 0.0, "python": 0.0})
                one["times"] += 1
                one["seconds"] += time.perf_counter() - began
                one["jvm"] += after[0] - before[0]
                one["python"] += max(0.0, after[1] - before[1])  # a worker that has ended is not counted

        return run

    wrapped: list[tuple[Any, str, Callable[..., str]]] = [
        (batch, "_met", lambda *_: "read keys, count"),
        (batch, "_places", lambda *_: "find what is new, join the lookups"),
        (Lookups, "enrich", lambda *_: "ask the lookups"),
        (landed, "rows", lambda *_: "read landed rows"),
        (counts.ByDuck, "__init__", lambda *_: "read what was written"),
        (counts.ByDuck, "rules", lambda *_: "count rules"),
        (counts.ByDuck, "of", lambda _, table: f"count {table.name}"),
        (tables_delta, "_arrow", lambda table, _: f"compute {table.name}, hand over as Arrow"),
        (tables_delta, "_merge", lambda table, *_: f"merge into {table.name}"),
        (tables_delta.DeltaTables, "_write", lambda _, table, *__: f"write {table.name}"),
    ]
    originals = [(where, name, getattr(where, name)) for where, name, _ in wrapped]
    for where, name, said in wrapped:
        setattr(where, name, timed(said, getattr(where, name)))
    try:
        yield found
    finally:
        for where, name, original in originals:
            setattr(where, name, original)


def _cpu() -> tuple[float, float]:
    """CPU-seconds of the JVM and of all else from this process down."""
    jvm = python = 0.0
    for pid, stat in family(os.getpid()):
        used = (int(stat[11]) + int(stat[12])) / TICKS
        try:
            java = Path(f"/proc/{pid}/comm").read_text().strip() == "java"
        except OSError:
            continue
        jvm, python = (jvm + used, python) if java else (jvm, python + used)
    return jvm, python
