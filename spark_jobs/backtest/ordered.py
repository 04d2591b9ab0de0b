"""The second step of a backtest: correlations and statements over the moments of each raw log, in order of time.

Spark sorts the moments of an agent, on disk where they are many; here they pass one by one, and only state is held:
at most ``STATE_BYTES`` each for correlations and for statements. What gives way to that is a row of the kind
``not_correlated``. Time is that of the events, of one that says none that of its receipt; so nothing is late, in
whatever order they were received.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.backtest.rows import MATCHES, Rules, batches, opened
from spark_jobs.backtest.segments import OF_LOG, logs_of

if TYPE_CHECKING:
    from vedette.runtime.offline.timeline import Correlated, Stated

STATE_BYTES = 512 << 20


Logs = Mapping[str, Sequence[str]]
"""By agent the ids of its logs, where they are no files below ``root``."""


def over_time(
    pieces: Iterable[pa.RecordBatch], root: Path | None, rules: Rules, logs: Logs
) -> Iterator[pa.RecordBatch]:
    """Batches of ``WORK`` in their ``ORDER``, every agent whole; to ``MATCHES``: what fires in place of moments."""
    of: _Agent | None = None
    for batch in pieces:
        plain = batch.filter(pc.is_null(batch.column("step")))
        if plain.num_rows:
            yield plain.select(MATCHES.names)
        moments = batch.filter(pc.is_valid(batch.column("step"))).select(["agent", "moment"])
        for row in moments.to_pylist():
            if of is None or of.agent != row["agent"]:
                if of is not None:
                    yield from batches(of.finish(), MATCHES)
                of = _Agent(row["agent"], root, rules, logs)
            yield from batches(of.rows(row["moment"]), MATCHES)
    if of is not None:
        yield from batches(of.finish(), MATCHES)


class _Agent:
    """Evaluation over time of one raw log."""

    def __init__(self, agent: str, root: Path | None, rules: Rules, logs: Logs) -> None:
        from vedette.runtime.offline.timeline import Timeline

        artifact, lookups = opened(rules.artifact)
        plan = artifact.read_plan().fitted().with_lookups(lookups)
        self.agent = agent
        self._logs = logs[agent] if root is None or agent in logs else logs_of(root / agent)
        self._timeline = Timeline(plan, max_bytes=STATE_BYTES, where=self._where)

    def _where(self, place: int) -> tuple[str, int]:
        return self._logs[place >> OF_LOG], place & (1 << OF_LOG) - 1

    def rows(self, moment: bytes) -> Iterator[dict[str, Any]]:
        return map(self._row, self._timeline.pass_by(self._timeline.moment(moment)))

    def finish(self) -> Iterator[dict[str, Any]]:
        yield from map(self._row, self._timeline.finish())
        for reason in (*self._timeline.failures(), *self._timeline.unused()):
            yield {"kind": "not_correlated", "agent": self.agent, "reason": reason}

    def _row(self, result: Correlated | Stated) -> dict[str, Any]:
        from vedette.runtime.offline.timeline import Correlated

        fired = isinstance(result, Correlated)
        row = result.to_row()
        return {
            "kind": "correlation" if fired else "statement",
            "agent": self.agent,
            "log_id": row["file"],
            "offset": row["line"],
            "event_time": result.firing.event.time if isinstance(result, Correlated) else None,
            "rule_id": row["rule_id"],
            "rule_title": row["rule_title"],
            "level": row["level"],
            "fields": {name: str(value) for name, value in row["fields"].items()},
        }
