"""What the region knows about hosts, sites and indicators, joined to a batch of alerts.

A lookup is ``FOLDER/<name>.parquet`` (a file or a folder) or ``FOLDER/<name>.csv`` (with a header line); columns are
found by name, missing ones are skipped. Each batch looks them up again, so a lookup is in effect with the
first batch after it was replaced; replace it by renaming a whole one into place.

* ``assets``: by ``host`` and ``site``; an empty ``site`` means every site, and gives way to a row of that site.
* ``sites``: by ``site`` and ``fleet``; an empty ``fleet`` means every fleet.
* ``intel``, and beside it ``intel_feeds`` as ``vedette lookup fetch`` writes it: indicators by ``kind`` (``ip``,
  ``cidr``, ``domain``, ``hash``, or another kind of entity) and ``value``; one counts for alerts whose ``counted_at``
  lies from ``valid_from`` until before ``valid_until`` (null: open). A domain speaks for the domains below it, too.

A small one (a file of at most ``HELD_BYTES`` and ``HELD_ROWS``) is held as long as its size and time of change stay.
Of a larger one only what the batch asks for leaves the executors, so its size costs a scan and no memory. A lookup that
cannot be read, or is being overwritten, is logged and left out for that batch: alerts never wait for it. Of its rows,
those that make no sense are left out: an invalid address, and an invalid time, which is logged.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_jobs.intake import frames, landing
from spark_jobs.tables import storage
from spark_jobs.tables.schema import INTEL_HITS, LOOKUPS

log = logging.getLogger(__name__)

MAX_NETWORKS = 1_000_000
"""Address ranges of ``intel`` that are used; they are sent to every executor."""

MAX_LABELS = 8
"""Of a domain, how many domains above it are looked up."""

_HIT = T.StructType([*LOOKUPS["intel"].fields, T.StructField("entity", T.StringType())])
_FOUND = "entity STRING, network STRING"


HELD_BYTES = 4 << 20
HELD_ROWS = 200_000
"""Of a lookup that is held in the driver between batches."""

SETTLED = 2.0
"""Seconds after its last change from which on a file is held: one that is changed again sooner could look the same."""


UNREADABLE = (*landing.FAILURES, OSError)
"""What it raises to look for a lookup, or to read it."""


class Lookup(NamedTuple):
    """A lookup in the columns of its schema."""

    rows: DataFrame
    held: pa.Table | None
    """The same rows, when they are held."""


Join: TypeAlias = Callable[[SparkSession, DataFrame, Lookup, DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class Lookups:
    """The lookups in a folder; any of them may be missing."""

    folder: str
    _held: dict[str, tuple[tuple[int, int], Lookup | None]] = field(default_factory=dict, compare=False, repr=False)
    """By path, of the file as it was when it was last looked at; None when it is too large to be held."""

    def enrich(self, spark: SparkSession, rows: DataFrame, about: DataFrame | None = None) -> DataFrame:
        """``rows`` of alerts with the columns ``asset``, ``place`` and ``intel``; the rows stay as many as they are.

        ``about``: the same rows or more, by their hosts, sites, entities and times only; they are read several times,
        so who has them at hand saves reading ``rows`` as often.
        """
        about = rows if about is None else about
        for name, join in _JOINS.items():
            try:
                lookup = self._look(spark, name)
                if lookup is not None:
                    rows = join(spark, rows, lookup, about)
            except UNREADABLE as error:
                log.warning("%s/%s: %s; left out for this batch", self.folder, name, landing.reason(error))
        return rows

    def table(self, spark: SparkSession, name: str) -> DataFrame | None:
        """The lookup ``name`` as it is now; None when there is none, or none that can be read, which is logged."""
        try:
            lookup = self._look(spark, name)
            return None if lookup is None else lookup.rows
        except UNREADABLE as error:
            log.warning("%s/%s: %s; not used", self.folder, name, landing.reason(error))
            return None

    def _look(self, spark: SparkSession, name: str) -> Lookup | None:
        """The lookup ``name`` as it is now, or None; of several files that are one, those that can be read."""
        tables = []
        for file_name in (name, *_BESIDE.get(name, ())):
            try:
                tables.append(self._one(spark, file_name, LOOKUPS[name]))
            except UNREADABLE as error:
                if name not in _BESIDE:
                    raise
                log.warning("%s/%s: %s; not used", self.folder, file_name, landing.reason(error))
        there = [lookup for lookup in tables if lookup is not None]
        if len(there) < 2:
            return there[0] if there else None
        rows = reduce(DataFrame.unionByName, (lookup.rows for lookup in there))
        held = [lookup.held for lookup in there if lookup.held is not None]
        return Lookup(rows, pa.concat_tables(held) if len(held) == len(there) else None)

    def _one(self, spark: SparkSession, name: str, schema: T.StructType) -> Lookup | None:
        """The file ``name`` in the columns of ``schema`` as it is now, or None."""
        for suffix in (".parquet", ".csv"):
            path = f"{self.folder}/{name}{suffix}"
            if storage.exists(path):
                break
        else:
            return None
        stamp = storage.stamp(path)
        cached = self._held.get(path)
        if stamp is None or cached is None or cached[0] != stamp:
            rows = _read(spark, path, schema)
            held = None
            if stamp is not None and stamp[0] <= HELD_BYTES:
                table = rows.limit(HELD_ROWS + 1).toArrow()
                if table.num_rows <= HELD_ROWS:
                    held = Lookup(_frame(spark, table, rows.schema), table)
            if stamp is None or time.time() - stamp[1] / 1000 < SETTLED:
                return held or Lookup(rows, None)
            self._held[path] = cached = (stamp, held)
        return cached[1] or Lookup(_read(spark, path, schema, said=True), None)


def _read(spark: SparkSession, path: str, schema: T.StructType, *, said: bool = False) -> DataFrame:
    """The file or folder ``path`` in the columns of ``schema``, without rows of which a time is none. How many these
    are is logged unless it has been ``said``."""
    if path.endswith(".parquet"):
        rows = spark.read.parquet(storage.literal(path))
    else:
        rows = spark.read.csv(storage.literal(path), header=True)
    there = {name.lower().strip(): name for name in rows.columns}
    wrong: Column | None = None

    def column(field: T.StructField) -> Column:
        nonlocal wrong
        if field.name not in there:
            return F.lit(None).cast(field.dataType).alias(field.name)
        stored = F.col(f"`{there[field.name]}`")
        cast = stored.try_cast(field.dataType)
        if field.dataType == T.TimestampType() and rows.schema[there[field.name]].dataType != field.dataType:
            odd = cast.isNull() & F.coalesce(F.trim(stored.cast("string")) != "", F.lit(False))
            wrong = odd if wrong is None else wrong | odd
        return cast.alias(field.name)

    columns = [column(field) for field in schema.fields]
    if wrong is None:
        return rows.select(*columns)
    if not said and (number := rows.where(wrong).count()):
        log.warning("%s: %d rows with an invalid time; left out", path, number)
    return rows.where(~wrong).select(*columns)


def _frame(spark: SparkSession, held: pa.Table, schema: T.StructType) -> DataFrame:
    return spark.createDataFrame(held, schema) if held.num_rows else spark.createDataFrame([], schema)


def _small(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """``rows`` read now and held, so that nothing that happens to their files later matters."""
    return F.broadcast(_frame(spark, rows.toArrow(), rows.schema))


def _by_keys(asked: str, wild: str, into: str) -> Join:
    """Joins a lookup as the struct ``into``, by ``asked`` and ``wild``; a row of it whose ``wild`` is empty is for all
    that have none of their own."""

    def join(spark: SparkSession, rows: DataFrame, lookup: Lookup, about: DataFrame) -> DataFrame:
        entries = lookup.rows.fillna("", [wild])
        if lookup.held is None:
            named = F.broadcast(about.select(asked).where(F.col(asked).isNotNull()).distinct())
            entries = _small(spark, entries.join(named, asked, "left_semi"))
        struct = F.struct(*(name for name in entries.columns if name not in (asked, wild)))
        structs = entries.groupBy(asked, wild).agg(F.min(struct).alias(into))
        exact = structs.where(F.col(wild) != "")
        anywhere = structs.where(F.col(wild) == "").drop(wild).withColumnRenamed(into, f"{into}_else")
        rows = rows.join(F.broadcast(exact), [asked, wild], "left").join(F.broadcast(anywhere), asked, "left")
        return rows.withColumn(into, F.coalesce(into, f"{into}_else")).drop(f"{into}_else")

    return join


def _intel(spark: SparkSession, rows: DataFrame, intel: Lookup, about: DataFrame) -> DataFrame:
    """Indicators for the entities of each row, as a sorted list; empty where there are none."""
    kinds = None if intel.held is None else set(pc.unique(intel.held["kind"]).to_pylist()) - {None}
    asked_for = F.col("entities")
    if kinds is not None:
        named = kinds | ({"ip"} if "cidr" in kinds else set())
        asked_for = F.filter("entities", lambda entity: entity.kind.isin(*sorted(named)))
    each = about.select(*frames.PLACE, "counted_at", F.explode(asked_for).alias("entity")).select(
        *frames.PLACE, "counted_at", F.col("entity.kind").alias("kind"), F.lower("entity.value").alias("entity")
    )
    if kinds is not None and not kinds & {"cidr", "domain"}:
        hits = F.broadcast(intel.rows.withColumns({"value": _value(), "entity": _value()}))
    else:
        asked = each.select("kind", "entity").distinct().persist()
        try:
            matched = _exact(asked, intel.rows)
            if kinds is None or "cidr" in kinds:
                matched = matched.unionByName(_networks(spark, asked, intel.rows))
            hits = _small(spark, matched)
        finally:
            asked.unpersist()
    hit = F.struct(
        "kind", F.col("entity").alias("value"), F.col("value").alias("indicator"), "source", "threat", "score"
    )
    valid = (F.coalesce(F.col("valid_from") <= F.col("counted_at"), F.lit(True))) & (
        F.coalesce(F.col("counted_at") < F.col("valid_until"), F.lit(True))
    )
    by_place = (
        each.join(hits, ["kind", "entity"])
        .where(valid)
        .groupBy(*frames.PLACE)
        .agg(F.sort_array(F.collect_set(hit)).alias("intel"))
    )
    nothing = F.array().cast(INTEL_HITS)
    return rows.join(F.broadcast(by_place), frames.PLACE, "left").withColumn("intel", F.coalesce("intel", nothing))


def _value() -> Column:
    """An indicator as entities are written: in lower case, an address of IPv4 within IPv6 as that of IPv4."""
    return F.regexp_replace(F.lower("value"), r"^::ffff:(\d+\.\d+\.\d+\.\d+)$", "$1")


def _exact(asked: DataFrame, intel: DataFrame) -> DataFrame:
    """Indicators whose value an entity of the same kind has, or for a domain, ends with."""
    labels = F.split("entity", r"\.")
    above = F.transform(
        F.sequence(F.lit(0), F.least(F.size(labels) - 2, F.lit(MAX_LABELS))),
        lambda skip: F.array_join(F.slice(labels, skip + 1, F.size(labels)), "."),
    )
    domains = F.when((F.col("kind") == "domain") & (F.size(labels) >= 2), above).otherwise(F.array("entity"))
    keys = asked.select("kind", "entity", F.explode(domains).alias("value"))
    indicators = intel.where("kind != 'cidr'").withColumn("value", _value())
    return F.broadcast(keys).join(indicators, ["kind", "value"]).select(*_HIT.names)


def _networks(spark: SparkSession, asked: DataFrame, intel: DataFrame) -> DataFrame:
    """Address ranges that an ``ip`` lies in."""
    ranges = (
        intel.where("kind = 'cidr'").select("value").distinct().limit(MAX_NETWORKS + 1).toArrow()["value"].to_pylist()
    )
    if not ranges:
        return spark.createDataFrame([], _HIT)
    if len(ranges) > MAX_NETWORKS:
        log.warning("intel: more than %d address ranges, the rest is left out", MAX_NETWORKS)
    addresses = asked.where("kind = 'ip'").select("entity")
    inside = addresses.mapInArrow(containing(networks(ranges[:MAX_NETWORKS])), _FOUND)
    of_range = intel.where("kind = 'cidr'").withColumnRenamed("value", "network").drop("kind")
    joined = of_range.join(F.broadcast(inside), "network")
    return joined.select(F.lit("ip").alias("kind"), F.col("network").alias("value"), *_HIT.names[2:])


Networks = dict[int, dict[int, dict[int, list[str]]]]
"""Version of the protocol -> bits behind the prefix -> prefix -> ranges as they were written."""


_MAPPED = re.compile(r"^::ffff:(?=\d+\.\d+\.\d+\.\d+$)", re.IGNORECASE)


def networks(ranges: list[str]) -> Networks:
    """``ranges`` by prefix; texts that are none are left out."""
    by_version: Networks = {4: defaultdict(lambda: defaultdict(list)), 6: defaultdict(lambda: defaultdict(list))}
    for text in ranges:
        try:
            network = ipaddress.ip_network(_MAPPED.sub("", text.strip()), strict=False)
        except (ValueError, AttributeError):
            continue
        shift = network.max_prefixlen - network.prefixlen
        by_version[network.version][shift][int(network.network_address) >> shift].append(text)
    return {version: {shift: dict(prefixes) for shift, prefixes in by.items()} for version, by in by_version.items()}


def containing(by_version: Networks) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: batches of addresses (first column) to pairs of address and range that holds it."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            pairs: list[tuple[str, str]] = []
            for text in batch.column(0).to_pylist():
                try:
                    address = ipaddress.ip_address(text)
                except ValueError:
                    continue
                number = int(address)
                for shift, prefixes in by_version[address.version].items():
                    pairs.extend((text, network) for network in prefixes.get(number >> shift, ()))
            columns = zip(*pairs, strict=True) if pairs else ((), ())
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, pa.string()) for column in columns], names=["entity", "network"]
            )

    return work


_BESIDE: Mapping[str, tuple[str, ...]] = {"intel": ("intel_feeds",)}
"""Files that are a lookup together with that of its own name: what the owner writes, and what feeds say."""

_JOINS: Mapping[str, Join] = {
    "assets": _by_keys("host", "site", "asset"),
    "sites": _by_keys("site", "fleet", "place"),
    "intel": _intel,
}
"""How each lookup is joined to rows of alerts."""
