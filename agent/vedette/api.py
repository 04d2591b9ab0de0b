"""The Python API: compile rules, evaluate events at once or as they come (``Detector``), read a raw log.
``from vedette import …`` gives these names.

Everything returns values; nothing here starts an agent, writes a file or keeps a connection.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vedette.engine.match import Engine
from vedette.model.event import Frame, LogSource
from vedette.plan.plan import Plan
from vedette.rawlog import read
from vedette.runtime.offline.detector import Detected, Detector
from vedette.runtime.offline.evaluation import Detection
from vedette.runtime.offline.evaluation import evaluate as evaluate_chunks
from vedette.runtime.offline.scan import chunk_of
from vedette.runtime.offline.timeline import Correlated, Stated, Timeline

__all__ = [
    "Correlated", "Detected", "Detection", "Detector", "Engine", "Plan", "Stated", "compile_rules", "correlate",
    "evaluate", "load_rules", "read_log",
]  # fmt: skip


def compile_rules(
    *paths: str | Path,
    text: str = "",
    sample: bytes = b"",
    pipelines: Iterable[str | Path] = (),
    lookups: Iterable[str | Path] = (),
) -> Plan:
    """The plan of the Sigma rules at ``paths`` (files or folders, without ``*.test.yml``) and in the YAML ``text``.

    Rules that cannot run are in ``plan.refused``, each with file, line and reason. ``sample``: lines like those to be
    evaluated; with it the prefilter picks literals that are rare in them. ``pipelines``: pySigma processing pipelines;
    ``lookups``: files of values for placeholders (``rules/sigma/pipelines.py``). Needs ``vedette[rules]``.
    Raises OSError for a path that does not exist, ValueError for a pipeline or lookup that cannot be used.
    """
    from vedette.rules import build

    rules = build.load(map(Path, paths), map(Path, pipelines), map(Path, lookups))
    if text:
        build.add(rules, text)
    return build.from_rules(rules, sample=sample)


def load_rules(bundle: str | Path, trusted_keys: Iterable[str]) -> Engine:
    """The engine of a signed bundle file. Raises ``BundleRefused`` (a ValueError) with the reason, and OSError."""
    from vedette.bundle.install import read_bundle
    from vedette.bundle.trust import verify
    from vedette.lookup.sets import bundled, engine_of
    from vedette.version import __version__

    verified = verify(read_bundle(Path(bundle)), trusted_keys, __version__)
    return engine_of(bundled(verified), route=False)


def evaluate(
    rules: Plan | Engine,
    events: Iterable[bytes | str | Mapping[str, Any]],
    *,
    format: str = "auto",
    product: str = "",
    category: str = "",
    service: str = "",
    received_at: int | None = None,
) -> Iterator[Detection]:
    """Every rule that matches, event by event, in order; ``Detection.line`` counts events from 1.

    ``events``: lines (with or without their newline) or mappings of fields. ``format``: how bytes and texts are
    read, see ``vedette.decode.decoder.CODECS``, or ``rules:NAME`` of a format that the rules declare; KeyError for
    others. Log sources are ignored for a plan; an ``Engine`` made with ``route=True`` asks a rule only about events of
    its own, to which ``product``, ``category``, ``service`` add. Rules that only correlations look at are left out;
    ``correlate`` gives these. ``received_at`` (UTC microseconds): tells the year of times that have none; default: now.
    """
    engine = rules if isinstance(rules, Engine) else Engine(rules, route=False)
    chunks = chunk_of(events, _known(engine, format), _received(received_at))
    return evaluate_chunks(engine, chunks, logsource=LogSource(product, category, service))


def correlate(
    rules: Plan | Engine,
    events: Iterable[bytes | str | Mapping[str, Any]],
    *,
    format: str = "auto",
    time_field: str = "",
    product: str = "",
    category: str = "",
    service: str = "",
    received_at: int | None = None,
) -> Iterator[Correlated | Stated]:
    """Every correlation that fires, by time, then every row that a statement gives; ``line`` is that of the event that
    completed it, from 1.

    ``events`` may come in any order; all are read first. ``time_field``: the field that says when an event happened;
    empty: what its decoder finds. The others as for ``evaluate``.
    """
    engine = rules if isinstance(rules, Engine) else Engine(rules, route=False)
    timeline = Timeline(engine.plan, time_field)
    source = LogSource(product, category, service)
    chunks = chunk_of(events, _known(engine, format), _received(received_at))
    for detection in evaluate_chunks(engine, chunks, logsource=source, silent=True):
        timeline.add(detection, "")
    yield from timeline.correlate()


def _known(engine: Engine, form: str) -> str:
    """``form``; raises KeyError when neither Vedette nor the rules have such a format."""
    if form not in engine.plan.codecs:
        raise KeyError(form)
    return form


def _received(at: int | None) -> int:
    return time.time_ns() // 1000 if at is None else at


def read_log(folder: str | Path, start: int = 0) -> Iterator[Frame]:
    """The frames of an agent's raw log (``DATA_DIR/raw``) from raw offset ``start`` on; ``frame.chunk.spans()`` are
    its events. The agent may be running."""
    return read.frames(Path(folder), start)
