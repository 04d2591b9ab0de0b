"""ATT&CK in columns: what tags name, and in which order an entity met the tactics. Columns in, columns out."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_jobs.common.attack import TACTIC_IDS

TACTICS = tuple(TACTIC_IDS)
"""ATT&CK (Enterprise) tactics by short name, in the order of an attack."""

_TECHNIQUE = r"^T[0-9]{4}(\.[0-9]{3})?\z"


def tactics_of(tags: str) -> Column:
    """Short names with hyphens of the tactics that the column ``tags`` names, each once."""
    named = F.transform(_attack(tags), lambda name: F.replace(name, F.lit("_"), F.lit("-")))
    return F.array_distinct(F.filter(named, lambda name: name.isin(*TACTICS)))


def techniques_of(tags: str) -> Column:
    """Upper-case ids of the techniques that the column ``tags`` names, each once."""
    named = F.transform(_attack(tags), F.upper)
    return F.array_distinct(F.filter(named, lambda name: name.rlike(_TECHNIQUE)))


def _attack(tags: str) -> Column:
    lower = F.transform(F.coalesce(tags, F.array()), F.lower)
    return F.transform(F.filter(lower, lambda tag: tag.startswith("attack.")), lambda tag: F.substr(tag, F.lit(8)))


def first_times() -> list[Column]:
    """For each of ``TACTICS`` an aggregate of its name: when a row with it (``tactics``, ``first_time``) was first."""
    return [F.min(F.when(F.array_contains("tactics", name), F.col("first_time"))).alias(name) for name in TACTICS]


def furthest() -> Column:
    """Of ``first_times`` the last tactic of an attack that was met; null when none was."""
    met = _met()
    return F.get(met, F.size(met) - 1)["tactic"]


def as_met() -> Column:
    """Of ``first_times`` the tactics that were met, in the order in which they were; of equals, by
    name."""
    return F.transform(F.sort_array(_met()), lambda one: one["tactic"])


def _met() -> Column:
    each = F.array(*(F.struct(F.col(f"`{name}`").alias("time"), F.lit(name).alias("tactic")) for name in TACTICS))
    return F.filter(each, lambda one: one["time"].isNotNull())
