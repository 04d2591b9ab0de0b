"""What the landing has of each agent's alerts, and what is missing: gaps in ``seq``.

An agent numbers its alerts without a gap (``seq``, per numbering: see ``store.py``), and every landing writes down
which it has (the table ``seqs``). So a number that is in no run, and lies between two that are, was made and has not
come. For ``SETTLE_SECONDS`` that may be on its way, by another landing or by the agent's next try; after that it is
missing.

What an agent made last has nothing after it: there its heartbeat (the table ``status``) is asked. When that says the
agent made alerts up to ``seq_high`` and that so many of them wait in its outbox, those beyond both are missing, too.

Needs pyarrow (``vedette[region]``). Reads only; landings may be writing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from vedette.model.times import micros
from vedette.system import foreign

SETTLE_SECONDS = 900.0
"""Longer than an uplink waits for a receipt unless it is set (``[uplink] resend_after``)."""
SHOWN = 20
"""Gaps listed of each agent."""


SEQS_COLUMNS = ["fleet", "agent_id", "log_id", "first", "last", "received_at"]
STATUS_COLUMNS = ["fleet", "agent_id", "state", "seq_high", "payload", "received_at"]


class Run(NamedTuple):
    """Seqs ``first`` to ``last`` came at ``at`` (UTC microseconds)."""

    first: int
    last: int
    at: int


class Numbering(NamedTuple):
    """An agent's alerts under one numbering. ``gaps``: (first, last), of which some may still come: ``on_the_way``."""

    fleet: str
    agent_id: str
    log_id: str
    first: int
    last: int
    landed: int
    missing: int
    on_the_way: int
    gaps: tuple[tuple[int, int], ...]
    unlanded: int
    """Alerts after ``last`` of which the heartbeat says that they left the outbox."""
    heard: int
    """When the agent's newest heartbeat came, UTC microseconds; 0: none."""
    state: str


def between(runs: Sequence[Run], settled: int) -> tuple[int, int, int, int, int, tuple[tuple[int, int], ...]]:
    """First, last, landed, missing, on the way, and the gaps between ``runs`` (any order, doubles allowed).

    A gap that came to be after ``settled`` (UTC microseconds) may be on its way.
    """
    ordered = sorted(runs)
    since = [*accumulate((run.at for run in reversed(ordered)), min)][::-1]
    first, last = ordered[0].first, ordered[0].last
    landed, missing, on_the_way = last - first + 1, 0, 0
    gaps: list[tuple[int, int]] = []
    for number, run in enumerate(ordered[1:], 1):
        if run.first > last + 1:
            size = run.first - last - 1
            if since[number] > settled:
                on_the_way += size
            else:
                missing += size
            if len(gaps) < SHOWN:
                gaps.append((last + 1, run.first - 1))
        landed += max(0, run.last - max(last, run.first - 1))
        last = max(last, run.last)
    return first, last, landed, missing, on_the_way, tuple(gaps)


def find(landing: Path, now: int, *, days: int = 7, settle: float = SETTLE_SECONDS) -> list[Numbering]:
    """Every numbering of which something came in the last ``days``, by fleet, agent and first coming.

    Raises FileNotFoundError when there is no such landing, ModuleNotFoundError without pyarrow, OSError and ValueError
    when a file cannot be read.
    """
    if not landing.is_dir():
        raise FileNotFoundError(2, "no landing here", str(landing))
    settled = now - int(settle * 1e6)
    runs: dict[tuple[str, str, str], list[Run]] = {}
    for row in _rows(landing, "seqs", now, days, SEQS_COLUMNS):
        key = row["fleet"], row["agent_id"], row["log_id"]
        runs.setdefault(key, []).append(Run(row["first"], row["last"], micros(row["received_at"])))
    heard: dict[tuple[str, str], dict[str, Any]] = {}
    for row in _rows(landing, "status", now, days, STATUS_COLUMNS):
        newer = heard.get((row["fleet"], row["agent_id"]))
        if newer is None or row["received_at"] >= newer["received_at"]:
            heard[row["fleet"], row["agent_id"]] = row
    newest = {key[:2]: key for key, _ in sorted(runs.items(), key=lambda item: max(run.at for run in item[1]))}
    numberings = []
    for key, came in sorted(runs.items(), key=lambda item: (item[0][:2], min(run.at for run in item[1]))):
        first, last, landed, missing, on_the_way, gaps = between(came, settled)
        status = heard.get(key[:2])
        tail = _tail(status, last, settled) if newest[key[:2]] == key else 0
        when, state = (micros(status["received_at"]), status["state"] or "?") if status else (0, "never heard")
        counts = landed, missing + tail, on_the_way
        numberings.append(Numbering(*key, first, last, *counts, gaps, tail, when, state))
    return numberings


def _tail(status: dict[str, Any] | None, last: int, settled: int) -> int:
    """Alerts after ``last`` that are neither landed nor, by the heartbeat, in the outbox."""
    if status is None or status["seq_high"] is None or micros(status["received_at"]) > settled:
        return 0
    try:
        waiting = foreign.count(foreign.read(status["payload"])["alerts"]["in_outbox"], -1)
    except (ValueError, TypeError, KeyError):  # an agent's text
        return 0
    return max(0, int(status["seq_high"]) - last - waiting) if waiting >= 0 else 0


def _rows(landing: Path, table: str, now: int, days: int, columns: list[str]) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    today = datetime.fromtimestamp(now / 1e6, UTC).date()
    for back in range(days, -2, -1):  # tomorrow, too: a landing's clock may be ahead
        for path in sorted((landing / table / f"dt={today - timedelta(days=back)}").glob("hh=*/*.parquet")):
            yield from pq.read_table(path, columns=columns, partitioning=None).to_pylist()
