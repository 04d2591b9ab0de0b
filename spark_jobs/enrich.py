"""What the region knows about hosts, sites and indicators, joined to a batch of alerts.

A lookup is ``FOLDER/<name>.parquet`` (a file or a folder) or ``FOLDER/<name>.csv`` (with a header line); columns are
found by name, ones that are not here are passed over. Each batch reads them anew, so a lookup is in effect with the
first batch after it was replaced; replace it by renaming a whole one into place.

* ``assets``: by ``host`` and ``site``; an empty ``site`` means every site, and gives way to a row of that site.
* ``sites``: by ``site`` and ``fleet``; an empty ``fleet`` means every fleet.
* ``intel``: indicators by ``kind`` (``ip``, ``cidr``, ``domain``, ``hash``, or another kind of entity) and ``value``;
  one counts for alerts whose ``counted_at`` lies from ``valid_from`` until before ``valid_until`` (null: open). A
  domain speaks for the domains below it, too.

Of each lookup only what the batch asks for leaves the executors, so its size costs a scan and no memory. A lookup that
cannot be read, or is being overwritten, is said and left out for that batch: alerts never wait for it. Of its rows,
those that make no sense (an address that is none, a time that is none) are left out.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_jobs import frames, landing, storage
from spark_jobs.schema import INTEL_HITS, LOOKUPS

log = logging.getLogger(__name__)

MAX_NETWORKS = 1_000_000
"""Address ranges of ``intel`` that are used; they are sent to every executor."""

MAX_LABELS = 8
"""Of a domain, how many domains above it are looked up."""

_HIT = T.StructType([*LOOKUPS["intel"].fields, T.StructField("entity", T.StringType())])
_FOUND = "entity STRING, network STRING"


@dataclass(frozen=True, slots=True)
class Lookups:
    """The lookups in a folder; any of them may be missing."""

    folder: str

    def enrich(self, spark: SparkSession, rows: DataFrame, about: DataFrame | None = None) -> DataFrame:
        """``rows`` of alerts with the columns ``asset``, ``place`` and ``intel``; the rows stay as many as they are.

        ``about``: the same rows or more, by their hosts, sites, entities and times only; they are read several times,
        so who has them at hand saves reading ``rows`` as often.
        """
        about = rows if about is None else about
        for name, join in (("assets", _assets), ("sites", _sites), ("intel", _intel)):
            try:
                found = _read(spark, f"{self.folder}/{name}", LOOKUPS[name])
                if found is not None:
                    rows = join(spark, rows, found, about)
            except landing.FAILURES as error:
                log.warning("%s/%s: %s; left out for this batch", self.folder, name, landing.reason(error))
        return rows

    def table(self, spark: SparkSession, name: str) -> DataFrame | None:
        """The lookup ``name`` as it is now; None when there is none, or none that can be read, which is said."""
        try:
            return _read(spark, f"{self.folder}/{name}", LOOKUPS[name])
        except landing.FAILURES as error:
            log.warning("%s/%s: %s; done without", self.folder, name, landing.reason(error))
            return None


def _read(spark: SparkSession, path: str, schema: T.StructType) -> DataFrame | None:
    """The lookup at ``path`` plus a suffix, in the columns of ``schema``; None when there is none."""
    if storage.exists(spark, f"{path}.parquet"):
        rows = spark.read.parquet(storage.literal(f"{path}.parquet"))
    elif storage.exists(spark, f"{path}.csv"):
        rows = spark.read.csv(storage.literal(f"{path}.csv"), header=True)
    else:
        return None
    there = {name.lower().strip(): name for name in rows.columns}

    def column(field: T.StructField) -> Column:
        if field.name not in there:
            return F.lit(None).cast(field.dataType).alias(field.name)
        given = F.col(f"`{there[field.name]}`")
        return given.try_cast(field.dataType).alias(field.name)

    return rows.select(*map(column, schema.fields))


def _small(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """``rows`` read now and held, so that nothing that happens to their files later matters."""
    held = rows.toArrow()
    return F.broadcast(
        spark.createDataFrame(held, rows.schema) if held.num_rows else spark.createDataFrame([], rows.schema)
    )


def _about(rows: DataFrame, found: DataFrame, keys: list[str], wild: str, into: str) -> DataFrame:
    """``rows`` with the struct ``into`` out of ``found``, by ``keys``, of which ``wild`` may be empty in ``found``."""
    about = F.struct(*(name for name in found.columns if name not in keys))
    named = found.groupBy(*keys).agg(F.min(about).alias(into))
    exact = named.where(F.col(wild) != "")
    everywhere = named.where(F.col(wild) == "").drop(wild).withColumnRenamed(into, f"{into}_else")
    rows = rows.join(F.broadcast(exact), keys, "left")
    rows = rows.join(F.broadcast(everywhere), [key for key in keys if key != wild], "left")
    return rows.withColumn(into, F.coalesce(into, f"{into}_else")).drop(f"{into}_else")


def _assets(spark: SparkSession, rows: DataFrame, assets: DataFrame, about: DataFrame) -> DataFrame:
    hosts = F.broadcast(about.select("host").where("host IS NOT NULL").distinct())
    found = _small(spark, assets.fillna("", ["site"]).join(hosts, "host", "left_semi"))
    return _about(rows, found, ["host", "site"], "site", "asset")


def _sites(spark: SparkSession, rows: DataFrame, sites: DataFrame, about: DataFrame) -> DataFrame:
    asked = F.broadcast(about.select("site").where("site IS NOT NULL").distinct())
    found = _small(spark, sites.fillna("", ["fleet"]).join(asked, "site", "left_semi"))
    return _about(rows, found, ["site", "fleet"], "fleet", "place")


def _intel(spark: SparkSession, rows: DataFrame, intel: DataFrame, about: DataFrame) -> DataFrame:
    """Indicators for the entities of each row, as a sorted list; empty where there are none."""
    entity = F.explode("entities").alias("entity")
    each = about.select(*frames.PLACE, "counted_at", entity).select(
        *frames.PLACE, "counted_at", F.col("entity.kind").alias("kind"), F.lower("entity.value").alias("entity")
    )
    asked = each.select("kind", "entity").distinct().persist()
    try:
        hits = _small(spark, _exact(asked, intel).unionByName(_networks(spark, asked, intel)))
    finally:
        asked.unpersist()
    one = F.struct(
        "kind", F.col("entity").alias("value"), F.col("value").alias("indicator"), "source", "threat", "score"
    )
    valid = (F.coalesce(F.col("valid_from") <= F.col("counted_at"), F.lit(True))) & (
        F.coalesce(F.col("counted_at") < F.col("valid_until"), F.lit(True))
    )
    found = (
        each.join(hits, ["kind", "entity"])
        .where(valid)
        .groupBy(*frames.PLACE)
        .agg(F.sort_array(F.collect_set(one)).alias("intel"))
    )
    nothing = F.array().cast(INTEL_HITS)
    return rows.join(F.broadcast(found), frames.PLACE, "left").withColumn("intel", F.coalesce("intel", nothing))


def _exact(asked: DataFrame, intel: DataFrame) -> DataFrame:
    """Indicators whose value an entity of the same kind has, or for a domain, ends with."""
    labels = F.split("entity", r"\.")
    above = F.transform(
        F.sequence(F.lit(0), F.least(F.size(labels) - 2, F.lit(MAX_LABELS))),
        lambda skip: F.array_join(F.slice(labels, skip + 1, F.size(labels)), "."),
    )
    domains = F.when((F.col("kind") == "domain") & (F.size(labels) >= 2), above).otherwise(F.array("entity"))
    keys = asked.select("kind", "entity", F.explode(domains).alias("value"))
    indicators = intel.where("kind != 'cidr'").withColumn("value", F.lower("value"))
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
    found = addresses.mapInArrow(containing(networks(ranges[:MAX_NETWORKS])), _FOUND)
    of_range = intel.where("kind = 'cidr'").withColumnRenamed("value", "network").drop("kind")
    joined = of_range.join(F.broadcast(found), "network")
    return joined.select(F.lit("ip").alias("kind"), F.col("network").alias("value"), *_HIT.names[2:])


Networks = dict[int, dict[int, dict[int, list[str]]]]
"""Version of the protocol -> bits behind the prefix -> prefix -> ranges as they were written."""


def networks(ranges: list[str]) -> Networks:
    """``ranges`` by prefix; texts that are none are left out."""
    found: Networks = {4: defaultdict(lambda: defaultdict(list)), 6: defaultdict(lambda: defaultdict(list))}
    for text in ranges:
        try:
            network = ipaddress.ip_network(text.strip(), strict=False)
        except (ValueError, AttributeError):
            continue
        shift = network.max_prefixlen - network.prefixlen
        found[network.version][shift][int(network.network_address) >> shift].append(text)
    return {version: {shift: dict(prefixes) for shift, prefixes in by.items()} for version, by in found.items()}


def containing(known: Networks) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
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
                for shift, prefixes in known[address.version].items():
                    pairs.extend((text, network) for network in prefixes.get(number >> shift, ()))
            columns = zip(*pairs, strict=True) if pairs else ((), ())
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, pa.string()) for column in columns], names=["entity", "network"]
            )

    return work
