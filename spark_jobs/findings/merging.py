"""Which findings are one: entities whose alerts, or the events these are made of, are largely the same.

An attack shows as an address, the account that it took and the tool that it used. Two findings are one when they share
``OF_SMALLER`` of the events of the one that has fewer, and these are ``OF_LARGER`` of the other's: a browser that
half of the world uses makes no one of two strangers. An event is a place in a raw log; an alert of a correlation stands
for its own and for those that contributed to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.common import entities
from spark_jobs.common.entities import WHO
from spark_jobs.common.materialised import materialised

OF_SMALLER = 0.5
OF_LARGER = 0.1

MAX_SHARING = 50
"""Findings that one event joins: an event that names more says nothing about them."""


def links(members: DataFrame, alerts: DataFrame) -> list[tuple[str, str]]:
    """Pairs of ``member`` of ``members`` (with ``WHO``, ``first_seen``, ``last_seen``) that are one by ``alerts``."""
    own = F.struct(F.col("raw_ref.log_id").alias("log_id"), F.col("raw_ref.offset").alias("offset"))
    nameless = F.struct(
        F.concat_ws("/", "agent_id", "alert_id").alias("log_id"), F.lit(-1).cast("long").alias("offset")
    )
    refs = F.transform(
        F.coalesce("contributing", F.array()),
        lambda ref: F.struct(ref["raw_ref"]["log_id"].alias("log_id"), ref["raw_ref"]["offset"].alias("offset")),
    )
    events = F.array_distinct(F.concat(F.array(F.coalesce(F.when(F.col("raw_ref.log_id").isNotNull(), own), nameless)),
                                       F.filter(refs, lambda ref: ref["log_id"].isNotNull())))  # fmt: skip
    place = [F.coalesce(name, F.lit("")).alias(name) for name in ("fleet", "site")]
    what = ["agent_id", "alert_id", "raw_ref", "contributing"]
    named = alerts.where(F.coalesce("kind", F.lit("")) != "fold").select(
        *place, "counted_at", *what, F.inline("entities")
    )
    whose = members.select(*WHO, "member", "first_seen", "last_seen")
    mine = materialised(
        named.join(F.broadcast(whose.select("kind", "value").distinct()), ["kind", "value"], "left_semi")
        .withColumn("scope", entities.scope())
        .join(F.broadcast(whose), WHO)
        .where(F.col("counted_at").between(F.col("first_seen"), F.col("last_seen")))
        .select("member", F.explode(events).alias("event"))
        .distinct()
    )
    sharing = mine.groupBy("event").agg(F.sort_array(F.collect_set("member")).alias("those"))
    some = sharing.where(F.size("those").between(2, MAX_SHARING))
    pairs = (
        some.select("those", F.explode("those").alias("one"))
        .select("one", F.explode("those").alias("other"))
        .where(F.col("one") < F.col("other"))
    )
    sizes = mine.groupBy("member").agg(F.count("*").alias("size"))
    counted = (
        pairs.groupBy("one", "other")
        .agg(F.count("*").alias("shared"))
        .join(F.broadcast(sizes.select(F.col("member").alias("one"), F.col("size").alias("of_one"))), "one")
        .join(F.broadcast(sizes.select(F.col("member").alias("other"), F.col("size").alias("of_other"))), "other")
    )
    same = (F.col("shared") >= OF_SMALLER * F.least("of_one", "of_other")) & (
        F.col("shared") >= OF_LARGER * F.greatest("of_one", "of_other")
    )
    return [(row.one, row.other) for row in counted.where(same).select("one", "other").collect()]


def groups(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """The smallest name that each in ``pairs`` is joined with, by whatever way."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        parent.setdefault(name, name)
        while parent[name] != name:
            parent[name] = name = parent[parent[name]]
        return name

    for name, other in pairs:
        low, high = sorted((root(name), root(other)))
        parent[high] = low
    return {name: root(name) for name in parent}
