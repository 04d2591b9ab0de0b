"""The job ``backtest``: rules tried on the raw logs of a fleet before they are pushed, by the agent's own engine.

``--logs`` holds exported raw logs: folders of segments (``*.seg``), as they lie in ``DATA_DIR/raw`` of each agent, at
any depth; a folder's path below ``--logs`` is taken for the agent's name. Executors open them as files, so the folder
must be on a disk that all of them see; and they need ``vedette`` installed. Or it is an archive, mounted or in an
object store (``backtest/archived.py``), of which each task fetches its segments.

The rules are compiled once, on the driver, and broadcast with their databases and the lookups that they ask. A
**segment** is the unit of work for what single events match (``backtest/segments.py``). What correlations and
statements want of the matches is then sorted by agent and time, by Spark and thus on disk where it is much, and passes
by in one task an agent (``backtest/ordered.py``). Both find what ``vedette scan`` finds in that agent's log.

Nothing is passed over silently: a damaged part of a log, a rule that could not be decided on some event, and matches
that could not be correlated are rows of their own ``kind``; rules that do not run are named. Rules that only a
correlation or a statement looks at are not shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path

import click
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.backtest.archived import ROW, Archive, Listed, archived_rows, encrypted, listed
from spark_jobs.backtest.ordered import Logs, over_time
from spark_jobs.backtest.rows import MATCHES, ORDER, WORK, Rules, batches
from spark_jobs.backtest.segments import segment_rows
from spark_jobs.common.plain import plain
from spark_jobs.jobs.job import COUNT, FILE, FOLDER, Job, spark_job
from spark_jobs.tables import storage
from spark_jobs.tables.storage import bare

log = logging.getLogger(__name__)

MAX_TASKS = 20_000
MAX_NAMED = 20
"""Rules that do not run, and reasons, that are printed."""
FOUND = ("match", "correlation", "statement")


def built(rules: Sequence[Path], keys: Sequence[str], pipelines: Sequence[Path], lookups: Sequence[Path],
          route: bool, product: str) -> Rules:  # fmt: skip
    """The rules of the command line, compiled. Raises OSError, ValueError."""
    from vedette import __version__, compile_rules
    from vedette.bundle.install import read_bundle
    from vedette.bundle.trust import verify
    from vedette.engine.artifact import Artifact
    from vedette.lookup.sets import bundled

    if rules[0].suffix == ".vbundle":
        bundle = verify(read_bundle(rules[0]), keys, __version__)
        artifact = bundled(bundle)
    else:
        plan = compile_rules(*rules, pipelines=pipelines, lookups=lookups)
        if not plan.rules:
            for refusal in plan.refused:
                log.warning("not run: %s", refusal)
            raise ValueError("no rule runs")
        lookups_asked = {name: plan.lookups[name].data for name, _ in plan.asked}  # no file of them is where it runs
        artifact = Artifact.of(plan)._replace(lookups=lookups_asked)
    plan = artifact.read_plan()
    calling = (f"{statement.title}: it calls functions in Python" for statement in plan.statements if statement.modules)
    later = bool(plan.correlations or plan.statements)
    return Rules(artifact.to_bytes(), route, product, later, (*map(str, plan.refused), *calling))


def matches(spark: SparkSession, logs: str, rules: Rules, options_file: Path | None = None,
            identity: Path | None = None) -> DataFrame:  # fmt: skip
    """``MATCHES`` of every segment below ``logs``. Raises FileNotFoundError when there is none, OSError."""
    from vedette.config.settings import ArchiveSettings

    root = storage.local(logs)
    archive = Archive(logs if root is None else str(root), options_file, identity)
    if root is None:
        if mistake := next(ArchiveSettings(logs, options_file).mistakes(), ""):
            raise ValueError(f"--logs{mistake.removeprefix('.url')}")
        there, of_agents = None, listed(archive)
    elif not root.is_dir():
        raise FileNotFoundError(f"{logs}: no such folder")
    else:
        sealed = encrypted(root)
        of_agents = listed(archive, sorted(sealed)) if sealed else Listed([], {})
        there = _files(spark, root, rules, of_agents.logs)
    rows = there
    if of_agents.rows:
        objects = spark.createDataFrame(of_agents.rows, ROW).repartition(min(len(of_agents.rows), MAX_TASKS))
        sent = objects.mapInArrow(_by_object(archive, rules, of_agents.logs), WORK)
        rows = sent if there is None else there.unionByName(sent)
    if rows is None:
        raise FileNotFoundError(f"{logs}: holds no segments (*.seg); copy DATA_DIR/raw of agents there")
    if not rules.over_time:
        return rows.select(*MATCHES.names)
    ordered = rows.repartition("agent").sortWithinPartitions(*ORDER)
    return ordered.mapInArrow(_by_agent(root, rules, of_agents.logs), MATCHES)


def _files(spark: SparkSession, root: Path, rules: Rules, without: Container[str]) -> DataFrame | None:
    """``WORK`` of the segments that are files below ``root``, but for those of the agents ``without``."""
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true").option("pathGlobFilter", "*.seg")
    paths = reader.load(storage.literal(str(root))).select("path")
    number = paths.count()
    if not number:
        return None
    return paths.repartition(min(number, MAX_TASKS)).mapInArrow(_by_segment(root, rules, without), WORK)


Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _by_segment(root: Path, rules: Rules, without: Container[str]) -> Work:
    """Batches of segments' paths (first column) to ``WORK``."""

    def work(pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        paths = (Path(bare(path)) for batch in pieces for path in batch.column(0).to_pylist())
        wanted = (path for path in paths if str(path.parent.relative_to(root)) not in without)
        rows = (row for path in wanted for row in segment_rows(path, root, rules))
        yield from batches(rows, WORK)

    return work


def _by_object(archive: Archive, rules: Rules, logs: Logs) -> Work:
    """Batches of ``ROW`` to ``WORK``."""

    def work(pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = archive.store()
        every = (entry for batch in pieces for entry in batch.to_pylist())
        rows = (row for entry in every for row in archived_rows(entry, archive, store, rules, logs))
        yield from batches(rows, WORK)

    return work


def _by_agent(root: Path | None, rules: Rules, logs: Logs) -> Work:
    """Batches of ``WORK``, sorted, to ``MATCHES``."""
    return lambda pieces: over_time(pieces, root, rules, logs)


def _summary(matched: DataFrame, rules: Rules, top: int) -> str:
    """The result in words: the account of the reading, then the rules by their matches."""
    total = matched.groupBy("kind").agg(
        F.count("*").alias("rows"), F.sum("events").alias("events"), F.sum("bytes").alias("bytes"),
        F.sum("seconds").alias("seconds"),
    )  # fmt: skip
    by = {row.kind: row for row in total.collect()}
    number = {kind: by[kind].rows if kind in by else 0 for kind in FOUND}
    read = by.get("read")
    later = f"; {number['correlation']} correlations and {number['statement']} rows of statements"
    lines = [
        f"backtest: {read.events if read else 0} events, {read.bytes if read else 0} bytes, of "
        f"{read.rows if read else 0} segments; {number['match']} matches{later if rules.over_time else ''}; "
        f"{read.seconds if read else 0:.1f} CPU-seconds"
    ]
    lines += _named("not run", rules.not_run)
    if "gap" in by:
        lines.append(f"{by['gap'].events} events cannot be read, in {by['gap'].rows} places: kind gap")
    if "undecided" in by:
        lines.append(f"{by['undecided'].events} times a rule could not be decided on an event: kind undecided")
    if "not_correlated" in by:
        rows = matched.where("kind = 'not_correlated'").select("agent", "reason").orderBy("agent", "reason")
        lines += _named("not correlated", [f"{row.agent}: {row.reason}" for row in rows.limit(MAX_NAMED + 1).collect()])
    loudest = (
        matched.where(F.col("kind").isin(*FOUND))
        .groupBy("rule_id", "rule_title", "level")
        .agg(F.count("*").alias("n"), F.count_distinct("agent").alias("agents"))
        .orderBy(F.desc("n"), "rule_id")
        .limit(top)
    )
    lines += [f"{row.n:10}  {row.level:13}  {row.agents:5} agents  {row.rule_title}" for row in loudest.collect()]
    return "\n".join(lines)


def _named(what: str, reasons: Iterable[str]) -> list[str]:
    lines = [f"{what}: {plain(reason)}" for reason in reasons]
    return lines if len(lines) <= MAX_NAMED else [*lines[:MAX_NAMED], f"{what}: more"]


@spark_job(tables=False)
@click.option("--logs", type=FOLDER, required=True, metavar="DIR|URL",
              help="Folder of exported raw logs, or an archive: a mounted folder, s3://, az://, gs://.")  # fmt: skip
@click.option("--options-file", type=FILE, metavar="FILE",
              help="TOML of the store's options and keys, as of [archive]; executors see it at this path.")  # fmt: skip
@click.option("--identity", type=FILE, metavar="FILE",
              help="The owner's identity (age), for encrypted segments; executors see it at this path.")  # fmt: skip
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
    job: Job, logs: str, options_file: Path | None, identity: Path | None, rules: tuple[Path, ...],
    keys: tuple[str, ...], pipelines: tuple[Path, ...], lookups: tuple[Path, ...], route: bool, product: str,
    output: str | None, top: int,
) -> str:  # fmt: skip
    """Try rules on exported raw logs.

    The agent's own engine evaluates them, correlations and statements in SQL over each agent's log by the events' own
    times, as `vedette scan` does.

    Example: vedette-spark backtest --logs exported --rules new-rules --output matches

    Example: vedette-spark backtest --logs s3://owner/edge --options-file s3.toml --identity key.txt --rules new-rules
    """
    bundles = [path for path in rules if path.suffix == ".vbundle"]
    if bundles and (len(rules) > 1 or pipelines or lookups):
        raise click.UsageError("--rules: one bundle alone, without --pipeline and --lookup, or rule files and folders")
    if bundles and not keys:
        raise click.UsageError("a bundle needs --trusted-key")
    asked = built(rules, keys, pipelines, lookups, route, product)
    rows = matches(job.spark, logs, asked, options_file, identity)
    if output is None:
        return _summary(rows.persist(), asked, top)
    rows.write.mode("errorifexists").parquet(output)
    return _summary(job.spark.read.schema(MATCHES).parquet(storage.literal(output)), asked, top)
