"""Reading landed files, unreadable ones as dead letters.

Structured Streaming keeps the account of which files are done (``new_files``: names only, a bounded number each
micro-batch); the rows are then read by name. So one bad file costs a second look at its batch, never the stream.

Three kinds of file are never rows, and each is reported:

* **Damaged or foreign**: Spark fails on it. ``damaged`` finds it by halving the batch, and ``examine`` says why; it is
  bad only if its bytes can be read all the same. If they cannot, storage is at fault: the error is raised and the batch
  comes again later.
* **Empty or gone**: Spark's listing passes over it without a word. ``overlooked`` compares the batch with Spark's own
  log of files, whatever is in the file by now.
* **Temporary** (``*.tmp`` beside the others, as some collectors write; Vedette's own landing writes elsewhere): a
  collector was stopped before its rename. The rows in it were never receipted, so their agents send them again.

A file that is damaged, empty or gone may have been met while it was copied in: ``unread`` has it tried again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_jobs.tables import storage

FAILURES = (PySparkException, Py4JJavaError)
"""What a Spark action raises; in a streaming batch the second comes through as it is."""

MAX_REASON = 300

_LISTED = "path STRING, modificationTime TIMESTAMP, length LONG, content BINARY"


class File(NamedTuple):
    """A landed file, by its URL, when it was landed, and its bytes then."""

    path: str
    landed: datetime
    size: int = 0

    @property
    def stamp(self) -> tuple[int, int]:
        """As ``storage.stamp`` has it."""
        return self.size, round(self.landed.timestamp() * 1000)

    @property
    def name(self) -> str:
        """The path as a person writes it: without ``file:`` before a local one."""
        return storage.bare(self.path) if self.path.startswith("file:") else self.path


def new_files(spark: SparkSession, folder: str, *, bytes_per_batch: int) -> DataFrame:
    """Stream of ``(path, landed, size)``: every ``*.parquet`` below ``folder`` once, of any age, in any subfolder.

    A micro-batch takes files until they have ``bytes_per_batch`` (one file at least).
    ``folder`` must exist. Names that begin with ``.`` or ``_`` are not files of the landing.
    """
    return (
        spark.readStream.format("binaryFile")
        .schema(_LISTED)
        .option("pathGlobFilter", "*.parquet")
        # Without it Spark drops files that do not lie in dt=/hh= folders when others do.
        .option("recursiveFileLookup", "true")
        .option("maxBytesPerTrigger", str(bytes_per_batch))
        # The default leaves out files that are seven days older than the newest one.
        .option("maxFileAge", "36500d")
        .load(storage.literal(folder))
        .select("path", F.col("modificationTime").alias("landed"), F.col("length").alias("size"))
    )


def read(spark: SparkSession, paths: Sequence[str], schema: StructType) -> DataFrame:
    """Rows of the files ``paths``: columns of ``schema``, then ``origin`` (the file's URL) and ``position`` in it."""
    rows = (
        spark.read.schema(schema)
        .option("recursiveFileLookup", "true")
        .option("ignoreCorruptFiles", "false")
        .parquet(*map(storage.literal, paths))
    )
    return rows.select(
        *schema.names,
        F.col("_metadata.file_path").alias("origin"),
        F.col("_metadata.row_index").alias("position"),
    )


def examine(spark: SparkSession, path: str, schema: StructType) -> str | None:
    """Why the file at ``path`` cannot be read as ``schema``, or None when it can. Raises when storage is at fault."""
    if not storage.exists(path):
        return "is gone"
    try:
        read(spark, [path], schema).write.format("noop").mode("overwrite").save()
    except FAILURES as error:
        content = spark.read.format("binaryFile").load(storage.literal(path)).select(F.md5("content"))
        content.write.format("noop").mode("overwrite").save()
        # Spark says the path again.
        return re.sub(rf"\S*{re.escape(storage.bare(path))}:?\s*", "", reason(error))
    return None


def damaged(spark: SparkSession, files: Sequence[File], schema: StructType) -> dict[File, str]:
    """Those of ``files`` that cannot be read as ``schema``, with the reason; raises as ``examine`` does.

    Halves them again and again and goes on where reading fails: one bad file among n costs about 2 log n looks.
    """
    if not files:
        return {}
    if len(files) == 1:
        why = examine(spark, files[0].path, schema)
        return {} if why is None else {files[0]: why}
    try:
        read(spark, [file.path for file in files], schema).write.format("noop").mode("overwrite").save()
    except FAILURES:
        half = len(files) // 2
        return damaged(spark, files[:half], schema) | damaged(spark, files[half:], schema)
    return {}


def overlooked(checkpoint: str, batch_id: int, listed: Sequence[File]) -> list[tuple[File, str]]:
    """Files that Spark planned for the micro-batch and left out, each with the reason.

    Reads the file source's log in the checkpoint (``sources/0/<n>``, JSON lines after a version line). A log that is
    not there or is of another form gives no files.
    """
    log = f"{checkpoint}/sources/0/{batch_id}"
    names = [name for name in (log, f"{log}.compact") if storage.exists(name)]
    mine = re.compile(rb'"batchId":%d\b' % batch_id)  # of all that a compact log has
    seen = {storage.bare(file.path) for file in listed}
    missing = []
    for entry in map(_entry, filter(mine.search, storage.lines(names[0]) if names else ())):
        path = unquote(entry.get("path") or "")
        if entry.get("batchId") != batch_id or storage.bare(path) in seen:
            continue
        there = storage.stamp(path)
        why = "is gone" if there is None else "was empty when it was listed" if there[0] else "is empty (0 bytes)"
        missing.append((File(path, datetime.fromtimestamp(entry["timestamp"] / 1000)), why))
    return missing


def _entry(line: bytes) -> dict[str, Any]:
    """A line of Spark's log of files; empty for what is none."""
    try:
        entry = json.loads(line)
        return entry if isinstance(entry, dict) else {}
    except ValueError:
        return {}


def leftovers(folder: str) -> int:
    """How many temporary files lie in the hour folders below ``folder``."""
    return storage.count(folder, "*/*/*.tmp")


def reason(error: Exception) -> str:
    """The innermost message of a Spark failure, on one line."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = str(cause.getMessage() or cause)
    return " ".join(text.split())[:MAX_REASON]
