"""Where landed rows come from: the landing's folders, or Kafka. Both give a stream, and of each micro-batch the rows.

Rows have the columns of their landed schema, and four more: ``origin`` and ``position``, which place and order them
(file and row, or topic/partition and offset), ``undecoded``, why the row could not be read (null when it could), and
``whole``, all of it as bytes, for the dead letters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_jobs.intake import landing
from spark_jobs.tables import storage


class Letter(NamedTuple):
    """A landed file of which nothing can be read."""

    file: landing.File
    reason: str


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: rows that are read when they are asked for, and the files already known to be bad."""

    rows: DataFrame
    letter_kind: str
    """``kind`` of the dead letters that single rows become."""
    files: tuple[landing.File, ...] = ()
    letters: tuple[Letter, ...] = ()

    @property
    def local(self) -> bool:
        """Whether all rows are those of files on this host."""
        return bool(self.files) and all(file.path.startswith("file:") for file in self.files)


class Source(ABC):
    """One stream of landed rows."""

    kind: ClassVar[str] = ""
    """Begins the names of the checkpoints: Spark refuses that of another kind of source."""

    @abstractmethod
    def ready(self, spark: SparkSession) -> bool:
        """Whether there is anything to read yet."""

    @abstractmethod
    def stream(self, spark: SparkSession) -> DataFrame:
        """The streaming frame whose micro-batches ``batch`` takes."""

    @abstractmethod
    def batch(self, spark: SparkSession, frame: DataFrame, number: int, checkpoint: str) -> Batch:
        """Micro-batch ``number``; the same one again gives the same rows."""

    def files(self, spark: SparkSession, files: Sequence[landing.File]) -> Batch:
        """The rows of these files. Only a landing has files, and notes those that it could not read."""
        raise NotImplementedError

    def mend(self, spark: SparkSession, batch: Batch) -> Batch | None:
        """``batch`` without the files on which reading failed; None when the fault is not theirs."""
        return None


@dataclass(frozen=True, slots=True)
class LandingSource(Source):
    """A table of the landing. The stream is of names (``landing``), so a bad file never stops it."""

    folder: str
    schema: T.StructType
    bytes_per_batch: int

    def ready(self, spark: SparkSession) -> bool:
        return storage.exists(self.folder)

    def stream(self, spark: SparkSession) -> DataFrame:
        return landing.new_files(spark, self.folder, bytes_per_batch=self.bytes_per_batch)

    def batch(self, spark: SparkSession, frame: DataFrame, number: int, checkpoint: str) -> Batch:
        files = [landing.File(row.path, row.landed, row.size) for row in frame.collect()]
        letters = [Letter(*missing) for missing in landing.overlooked(checkpoint, number, files)]
        return replace(self.files(spark, files), letters=tuple(letters))

    def files(self, spark: SparkSession, files: Sequence[landing.File]) -> Batch:
        return Batch(self._rows(spark, files), "row", tuple(files))

    def mend(self, spark: SparkSession, batch: Batch) -> Batch | None:
        damaged = landing.damaged(spark, batch.files, self.schema)
        if not damaged:
            return None
        good = [file for file in batch.files if file not in damaged]
        letters = [Letter(*bad) for bad in damaged.items()]
        return replace(batch, rows=self._rows(spark, good), files=tuple(good), letters=(*batch.letters, *letters))

    def _rows(self, spark: SparkSession, files: Sequence[landing.File]) -> DataFrame:
        whole = F.encode(F.to_json(F.struct(*self.schema.names)), "UTF-8")
        if not files:
            place = T.StructType([T.StructField("origin", T.StringType()), T.StructField("position", T.LongType())])
            rows = spark.createDataFrame([], T.StructType([*self.schema.fields, *place.fields]))
        else:
            rows = landing.read(spark, [file.path for file in files], self.schema)
        return rows.withColumn("undecoded", F.lit(None).cast("string")).withColumn("whole", whole)


@dataclass(frozen=True, slots=True)
class KafkaSource(Source):
    """A topic whose messages are rows as JSON objects: times as integers (UTC microseconds), bytes as Base64."""

    kind = "kafka-"

    servers: str
    topic: str
    schema: T.StructType
    rows_per_batch: int
    options: Mapping[str, str]
    """More options of Spark's Kafka source, such as ``kafka.security.protocol``."""

    def ready(self, spark: SparkSession) -> bool:
        return True

    def stream(self, spark: SparkSession) -> DataFrame:
        return (
            spark.readStream.format("kafka")
            .option("startingOffsets", "earliest")
            .options(**self.options)
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", self.topic)
            .option("maxOffsetsPerTrigger", str(self.rows_per_batch))
            .load()
        )

    def batch(self, spark: SparkSession, frame: DataFrame, number: int, checkpoint: str) -> Batch:
        wired = (T.StructField(field.name, _wire(field.dataType)) for field in self.schema.fields)
        wire = T.StructType([*wired, T.StructField("undecoded", T.StringType())])
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "undecoded"}
        read = F.from_json(F.col("value").cast("string"), wire, options).alias("row")
        origin = F.concat_ws("/", "topic", "partition").alias("origin")
        rows = frame.select(read, origin, F.col("offset").alias("position"), F.col("value").alias("whole"))
        unread = F.when(
            F.col("row").isNull() | F.col("row.undecoded").isNotNull(), F.lit("is no JSON object of these columns")
        )
        columns = [_unwire(F.col(f"row.{f.name}"), f.dataType).alias(f.name) for f in self.schema.fields]
        return Batch(rows.select(*columns, "origin", "position", unread.alias("undecoded"), "whole"), "message")


def _wire(kind: T.DataType) -> T.DataType:
    """The type as which JSON holds a column of type ``kind``."""
    match kind:
        case T.TimestampType():
            return T.LongType()
        case T.BinaryType():
            return T.StringType()
        case T.ArrayType():
            return T.ArrayType(_wire(kind.elementType))
        case T.StructType():
            return T.StructType([T.StructField(field.name, _wire(field.dataType)) for field in kind.fields])
    return kind


def _unwire(column: Column, kind: T.DataType) -> Column:
    """``column`` of type ``_wire(kind)`` as ``kind``."""
    if _wire(kind) == kind:
        return column
    match kind:
        case T.TimestampType():
            return F.timestamp_micros(column)
        case T.BinaryType():
            return F.unbase64(column)
        case T.ArrayType():
            return F.transform(column, lambda element: _unwire(element, kind.elementType))
        case T.StructType():
            parts = [_unwire(column[field.name], field.dataType).alias(field.name) for field in kind.fields]
            return F.when(column.isNotNull(), F.struct(*parts))
    raise TypeError(kind)
