"""The job ``backtest``: rules tried on the raw logs of a fleet before they are pushed, by the agent's own engine.

``--logs`` holds exported raw logs: folders of segments (``*.seg``), as they lie in ``DATA_DIR/raw`` of each agent, at
any depth; a folder's path below ``--logs`` is taken for the agent's name. Executors open them as files, so the folder
must be on a disk that all of them see; and they need ``vedette`` installed.

The rules are compiled once, on the driver, and broadcast with their databases and the lookups that they ask. A
**segment** is the unit of work: its frames are evaluated chunk by chunk, as the agent and ``vedette scan`` do it, with
the same matches. Audit records that belong together may lie in two segments: so a unit also looks at ``AROUND`` bytes
on either side, and gives only the events that begin in its own segment.

Nothing is passed over silently: a damaged part of a log, and a rule that could not be decided on some event, are
rows of their own ``kind``. Correlations are not evaluated, nor are rules shown that only a correlation looks at.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.jobs.job import COUNT, FILE, FOLDER, Job, spark_job
from spark_jobs.tables import storage
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import columns
from spark_jobs.tables.storage import bare

if TYPE_CHECKING:
    from vedette.model.event import Frame
    from vedette.rawlog.read import Gap
    from vedette.runtime.evaluation import Detection

log = logging.getLogger(__name__)

AROUND = 1 << 20
"""Bytes of the log on either side of a segment in which records of its events may lie, as the engine looks for them."""

REMEMBERED = 4 << 20
"""Bytes of frames that are kept to name the place of an event in them: more than an event can be long."""

MAX_RAW = 2048
"""Bytes of an event that a row shows; as in an alert."""

ROWS = 1000
"""Rows handed to Spark at once."""

MAX_TASKS = 20_000

MATCHES = columns(
    """string kind agent log_id; long offset; int length; string input host; time received_at event_time;
    string rule_id rule_title level; map fields; string raw reason; long events bytes; double seconds"""
)
"""``kind`` ``match``: a rule matched the event at ``offset`` of ``log_id``. ``read``: a segment was read; ``events``,
``bytes`` and the CPU ``seconds`` it took. ``gap``: ``events`` from ``offset`` on that cannot be read, with ``reason``.
``undecided``: ``events`` of a segment on which ``rule_id`` could not be decided, with ``reason``."""


class Rules(NamedTuple):
    """What executors evaluate: a built rule set (``vedette.engine.artifact``), and how it is asked."""

    artifact: bytes
    route: bool
    product: str


def built(rules: Sequence[Path], keys: Sequence[str], pipelines: Sequence[Path], lookups: Sequence[Path],
          route: bool, product: str) -> Rules:  # fmt: skip
    """The rules of the command line, compiled. Raises OSError, ValueError."""
    from vedette import __version__, compile_rules
    from vedette.bundle.install import read_bundle
    from vedette.bundle.trust import verify
    from vedette.lookup.sets import bundled, whole

    if rules[0].suffix == ".vbundle":
        bundle = verify(read_bundle(rules[0]), keys, __version__)
        artifact = bundled(bundle)
    else:
        plan = compile_rules(*rules, pipelines=pipelines, lookups=lookups)
        for refusal in plan.refused:
            log.warning("not run: %s", refusal)
        if not plan.rules:
            raise ValueError("no rule runs")
        artifact = whole(plan)
    return Rules(artifact.to_bytes(), route, product)


def matches(spark: SparkSession, logs: str, rules: Rules) -> DataFrame:
    """``MATCHES`` of every segment below ``logs``. Raises FileNotFoundError when there is none."""
    root = storage.local(spark, logs)
    if root is None:
        raise FileNotFoundError(f"{logs}: raw logs are opened as files; mount the folder and name it by its path")
    if not root.is_dir():
        raise FileNotFoundError(f"{logs}: no such folder")
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true").option("pathGlobFilter", "*.seg")
    paths = reader.load(storage.literal(str(root))).select("path")
    number = paths.count()
    if not number:
        raise FileNotFoundError(f"{logs}: holds no segments (*.seg); copy DATA_DIR/raw of agents there")
    return paths.repartition(min(number, MAX_TASKS)).mapInArrow(_evaluating(spark, str(root), rules), MATCHES)


def _evaluating(
    spark: SparkSession, root: str, rules: Rules
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: batches of segments' paths (first column) to ``MATCHES``."""
    shared = spark.sparkContext.broadcast(rules)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema, rows = arrow_schema(MATCHES), list[dict[str, Any]]()
        for batch in batches:
            for path in batch.column(0).to_pylist():
                for row in segment_rows(Path(bare(path)), Path(root), shared.value):
                    rows.append(row)
                    if len(rows) >= ROWS:
                        yield pa.RecordBatch.from_pylist(rows, schema)
                        rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema)

    return work


def segment_rows(path: Path, root: Path, rules: Rules) -> Iterator[dict[str, Any]]:
    """Rows of ``MATCHES`` of one segment."""
    from vedette.model.event import LogSource
    from vedette.rawlog import read
    from vedette.rawlog.segment import segments
    from vedette.runtime.evaluation import evaluate

    began = time.process_time()
    every = segments(path.parent)
    place = next(number for number, one in enumerate(every) if one.path.name == path.name)
    segment = every[place]
    behind = next((one.base for one in every[place + 1 :] if one.log_id == segment.log_id), None)
    about = {"agent": str(path.parent.relative_to(root)), "log_id": segment.log_id}
    gaps: list[Gap] = []
    stop = None if behind is None else behind + AROUND
    start = max(0, segment.base - AROUND)
    frames = read.frames(path.parent, start, stop, log_id=segment.log_id, on_gap=gaps.append)
    artifact, lookups = _artifact(rules.artifact)
    engine = artifact.engine(lookups, route=rules.route)
    line = _Line(segment.base, behind)
    for found in evaluate(engine, line.chunks(frames), logsource=LogSource(product=rules.product)):
        if (at := line.place(found)) is not None:
            yield {**about, **_match(found, *at)}
    for gap in gaps:
        if gap.offset >= segment.base and (behind is None or gap.offset < behind):
            yield {**about, "kind": "gap", "offset": gap.offset, "events": gap.events, "reason": gap.reason}
    for number, count in engine.tally.undecided.items():
        rule, reason = engine.plan.rules[number], engine.tally.reasons[number]
        count += engine.tally.skipped.get(number, 0)
        yield {**about, "kind": "undecided", "rule_id": rule.id, "rule_title": rule.title, "events": count,
               "offset": segment.base, "reason": reason}  # fmt: skip
    yield {**about, "kind": "read", "offset": segment.base, "events": line.events, "bytes": line.bytes,
           "seconds": time.process_time() - began}  # fmt: skip


@lru_cache(maxsize=2)
def _artifact(data: bytes) -> tuple[Any, Any]:
    """The rules, and the lookups that they bring, opened."""
    from vedette.engine.artifact import Artifact
    from vedette.lookup.sets import made

    artifact = Artifact.from_bytes(data)
    return artifact, made(artifact.lookups)


class _Line:
    """Frames in their order, and where in the raw log the events lie that ``judge`` numbers."""

    def __init__(self, base: int, behind: int | None) -> None:
        self._base, self._behind = base, behind
        self._held: deque[tuple[int, Frame]] = deque()
        self._size = 0
        self._spans: tuple[int, list[tuple[int, int]]] = -1, []
        self.events = self.bytes = 0
        """Of the segment itself."""

    def chunks(self, frames: Iterable[Frame]) -> Iterator[Any]:
        """Their chunks; each frame is remembered with the number, from 1, of its first event."""
        first = 1
        for frame in frames:
            self._held.append((first, frame))
            self._size += len(frame.chunk.data)
            while self._size - len(self._held[0][1].chunk.data) > REMEMBERED:
                self._size -= len(self._held.popleft()[1].chunk.data)
            if self._own(frame.offset):
                self.events += len(frame.chunk)
                self.bytes += len(frame.chunk.data)
            yield frame.chunk
            first += len(frame.chunk)

    def place(self, found: Detection) -> tuple[Frame, int, int] | None:
        """Frame, start and end in it of the event that matched; None when it begins in another segment."""
        first, frame = next((number, frame) for number, frame in reversed(self._held) if number <= found.line)
        if self._spans[0] != frame.offset:
            self._spans = frame.offset, list(frame.chunk.spans())
        start, end = self._spans[1][found.line - first]
        return (frame, start, end) if self._own(frame.offset) else None

    def _own(self, offset: int) -> bool:
        return offset >= self._base and (self._behind is None or offset < self._behind)


def _match(found: Detection, frame: Frame, start: int, end: int) -> dict[str, Any]:
    return {
        "kind": "match",
        "offset": frame.offset + start,
        "length": end - start,
        "input": frame.chunk.input,
        "host": found.record.host,
        "received_at": frame.chunk.received_at,
        "event_time": found.record.event_time,
        "rule_id": found.rule.id,
        "rule_title": found.rule.title,
        "level": found.rule.level,
        "fields": found.fields,
        "raw": frame.chunk.data[start : min(end, start + MAX_RAW)].decode(errors="replace"),
    }


def _summary(found: DataFrame, top: int) -> str:
    """What came of it, in words: the account of the reading, then the rules by their matches."""
    total = found.groupBy("kind").agg(
        F.count("*").alias("rows"), F.sum("events").alias("events"), F.sum("bytes").alias("bytes"),
        F.sum("seconds").alias("seconds"),
    )  # fmt: skip
    by = {row.kind: row for row in total.collect()}
    read = by["read"]
    lines = [
        f"backtest: {read.events} events, {read.bytes} bytes, of {read.rows} segments; "
        f"{by['match'].rows if 'match' in by else 0} matches; {read.seconds:.1f} CPU-seconds"
    ]
    if "gap" in by:
        lines.append(f"{by['gap'].events} events cannot be read, in {by['gap'].rows} places: kind gap")
    if "undecided" in by:
        lines.append(f"{by['undecided'].events} times a rule could not be decided on an event: kind undecided")
    rules = (
        found.where("kind = 'match'")
        .groupBy("rule_id", "rule_title", "level")
        .agg(F.count("*").alias("n"), F.count_distinct("agent").alias("agents"))
        .orderBy(F.desc("n"), "rule_id")
        .limit(top)
    )
    lines += [f"{row.n:10}  {row.level:13}  {row.agents:5} agents  {row.rule_title}" for row in rules.collect()]
    return "\n".join(lines)


@spark_job(tables=False)
@click.option("--logs", type=FOLDER, required=True, metavar="DIR", help="Folder of exported raw logs.")
@click.option("--rules", type=FILE, multiple=True, required=True,
              help="Rule file or folder, or a bundle (*.vbundle); may be repeated.")  # fmt: skip
@click.option("--trusted-key", "keys", metavar="KEY", multiple=True,
              help="Public key (ed25519:…) that a bundle must be signed by; may be repeated.")  # fmt: skip
@click.option("--pipeline", "pipelines", type=FILE, multiple=True, help="pySigma pipeline; may be repeated.")
@click.option("--lookup", "lookups", type=FILE, multiple=True, help="Values of a placeholder; may be repeated.")
@click.option("--route", is_flag=True, help="Ask a rule only about events of its log source; else about every event.")
@click.option("--product", metavar="NAME", default="", help="With --route: the log source's product of all events.")
@click.option("-o", "--output", type=FOLDER, metavar="DIR", help="Write every match there, as Parquet; a new folder.")
@click.option("--top", type=COUNT, default=20, show_default=True, help="Rules printed.")
def backtest(
    job: Job, logs: str, rules: tuple[Path, ...], keys: tuple[str, ...], pipelines: tuple[Path, ...],
    lookups: tuple[Path, ...], route: bool, product: str, output: str | None, top: int,
) -> str:  # fmt: skip
    """Try rules on exported raw logs.

    The agent's own engine evaluates them; correlations are not evaluated.

    Example: vedette-spark backtest --logs exported --rules new-rules --output matches
    """
    bundles = [path for path in rules if path.suffix == ".vbundle"]
    if bundles and (len(rules) > 1 or pipelines or lookups):
        raise click.UsageError("--rules: one bundle alone, without --pipeline and --lookup, or rule files and folders")
    if bundles and not keys:
        raise click.UsageError("a bundle needs --trusted-key")
    asked = built(rules, keys, pipelines, lookups, route, product)
    found = matches(job.spark, logs, asked)
    if output is None:
        return _summary(found.persist(), top)
    found.write.mode("errorifexists").parquet(output)
    return _summary(job.spark.read.schema(MATCHES).parquet(storage.literal(output)), top)
