"""``python -m bench.alertpath``: what an alert costs from the match to its commit in the outbox, by part.

Rules of which some match ``--alerts`` of the events of a generated syslog stream run on ``--lines`` of it; the matches
go through the agent's own alert builder, checkpointer and store, those of COMMIT_CHUNKS chunks in one commit. Prints
one JSON object of microseconds of CPU an alert, medians of PASSES: ``header`` (time and host of the event), ``fields``
(all of it decoded), ``entities``, ``build`` (the rest of making the alert), ``encode`` (envelope, counters), ``commit``
(LMDB and the syncs), and ``all`` in one go; for the parts and for all of it every other commit each. No pass finds
anything that one before has remembered. ``rows`` is a digest of the alerts without what differs from run to run: two
versions that give the same made the same alerts.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import hashlib
import json
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import rules, traffic
from tests.life import NOW, Life
from vedette.decode.entities import entities
from vedette.delivery import envelope
from vedette.engine.match import Engine, Match
from vedette.model.event import CHUNK_BYTES, Chunk, Frame
from vedette.rules import build
from vedette.runtime.pipeline.evaluator import TOGETHER
from vedette.runtime.rulesets.active import freeze
from vedette.system import memory

PASSES = 9
COMMIT_CHUNKS = 4
"""Chunks whose alerts are one commit: as many as the agent evaluates in ``MANY_SECONDS``."""
OF_A_RUN = ("alert_id", "detected_at", "raw_ref", "seq")
"""Columns that differ from run to run."""


class Measured:
    """One life of a pipeline, and the CPU seconds of what it did."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.life = Life(folder, engine)
        self.builder = self.life.pipeline.evaluator._alerts
        self.seconds: Counter[str] = Counter()
        self.alerts: Counter[str] = Counter()
        self.rows = hashlib.sha256()

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds[part] += time.process_time() - began  # type: ignore[assignment]

    def matches(self, frames: list[Frame]) -> list[tuple[Frame, list[Match]]]:
        """By event, with records that are decoded as far as the rules asked."""
        pipeline, context = self.life.pipeline, self.life.context.input_contexts["in"]
        engine = pipeline.evaluator.engine
        matched = []
        for frame in frames:
            for event in engine.candidates(frame, pipeline.state.joiner, context):
                if matches := engine.matches(frame.chunk, event, context):
                    matched.append((frame, matches))
        return matched

    async def apart(self, frames: list[Frame]) -> None:
        """One part after the other."""
        checkpointer, events = self.life.pipeline.checkpointer, self.matches(frames)
        records = [matches[0].record for _, matches in events]
        with self.timed("header"):
            hosts = [(record.event_time, record.host)[1] for record in records]
        with self.timed("fields"):
            fields = [record.fields() for record in records]
        with self.timed("entities"):
            for of_event, host in zip(fields, hosts, strict=True):
                entities(of_event, host)
        with self.timed("build"):
            batch = [alert for alerts in self.builder.of(events) for alert in alerts]
        with self.timed("encode"):
            checkpointer.take(batch)
        with self.timed("commit"):
            await checkpointer.commit()
        self.alerts["apart"] += len(batch)
        for alert in batch:
            row = {name: value for name, value in envelope.to_row(alert).items() if name not in OF_A_RUN}
            self.rows.update(json.dumps(row).encode())

    async def together(self, frames: list[Frame]) -> None:
        events, checkpointer = self.matches(frames), self.life.pipeline.checkpointer
        with self.timed("all"):
            for at in range(0, len(events), TOGETHER):
                for alerts in self.builder.of(events[at : at + TOGETHER]):
                    checkpointer.take(alerts)
            self.alerts["all"] += len(checkpointer.alerts)
            await checkpointer.commit()

    async def run(self, commits: list[list[Frame]], turn: int) -> dict[str, float]:
        """Microseconds an alert, by part."""
        self.alerts, self.seconds, self.rows = Counter(), Counter(), hashlib.sha256()
        for number, frames in enumerate(commits):
            await (self.together(frames) if (number + turn) % 2 else self.apart(frames))
        self.seconds["build"] -= self.seconds["entities"]  # it makes them again
        of = dict.fromkeys(self.seconds, self.alerts["apart"]) | {"all": self.alerts["all"]}
        return {name: spent / of[name] * 1e6 for name, spent in self.seconds.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What an alert costs from the match to the outbox.")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--rules", type=int, default=300)
    parser.add_argument("--alerts", type=float, default=0.017, help="share of events that a rule matches")
    options = parser.parse_args(arguments)
    data = b"".join(traffic.blocks(1, options.lines))
    sample = data.splitlines()[: rules.SAMPLE]
    texts = rules.rules(1, options.rules, sample, share=options.alerts * 1.5, alert_share=options.alerts)
    frames, at = list[Frame](), 0
    while at < len(data):
        end = data.rfind(b"\n", at, at + CHUNK_BYTES) + 1
        frames.append(Frame(at, Chunk("in", "auto", NOW, data[at:end])))
        at = end
    commits = [frames[at : at + COMMIT_CHUNKS] for at in range(0, len(frames), COMMIT_CHUNKS)]
    with tempfile.TemporaryDirectory() as folder:
        rules.write(Path(folder) / "rules", texts)
        plan = build.from_rules(build.load([Path(folder) / "rules"]), sample=b"\n".join(sample))
        measured = Measured(Path(folder), Engine(plan))
        remembered = [function for function in gc.get_objects() if isinstance(function, functools._lru_cache_wrapper)]
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # as the agent of the harness
        memory.settle()
        freeze()
        passes = []
        for turn in range(PASSES):
            for cache in remembered:
                cache.cache_clear()
            passes.append(asyncio.run(measured.run(commits, turn)))
        measured.life.end()
    result = {"events": options.lines, "alerts": sum(measured.alerts.values()), "chunks": len(frames)}
    result |= {name: round(statistics.median(figures[name] for figures in passes), 2) for name in passes[0]}
    print(json.dumps({**result, "rows": measured.rows.hexdigest()[:16]}))


if __name__ == "__main__":
    main()
