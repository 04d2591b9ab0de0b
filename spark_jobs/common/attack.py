"""ATT&CK (Enterprise): what tags name, and in which order an entity met the tactics."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

TACTIC_IDS = {
    "reconnaissance": "TA0043",
    "resource-development": "TA0042",
    "initial-access": "TA0001",
    "execution": "TA0002",
    "persistence": "TA0003",
    "privilege-escalation": "TA0004",
    "defense-evasion": "TA0005",
    "credential-access": "TA0006",
    "discovery": "TA0007",
    "lateral-movement": "TA0008",
    "collection": "TA0009",
    "command-and-control": "TA0011",
    "exfiltration": "TA0010",
    "impact": "TA0040",
}
"""By short name, in the order of an attack."""
TACTICS = tuple(TACTIC_IDS)

_TECHNIQUE = re.compile(r"t[0-9]{4}(?:\.[0-9]{3})?")


def of_tags(tags: Iterable[str | None] | None) -> tuple[list[str], list[str]]:
    """Tactics (short names) and techniques (``T1110.001``) that ``tags`` name, each once, in their order."""
    tactics: dict[str, None] = {}
    techniques: dict[str, None] = {}
    for tag in filter(None, tags or ()):
        name = tag.lower().removeprefix("attack.")
        if name == tag.lower():
            continue
        if (tactic := name.replace("_", "-")) in TACTIC_IDS:
            tactics[tactic] = None
        elif _TECHNIQUE.fullmatch(name):
            techniques[name.upper()] = None
    return list(tactics), list(techniques)


def caption(tactic: str) -> str:
    """``command-and-control`` as ``Command and Control``."""
    return " ".join(word if word == "and" else word.capitalize() for word in tactic.split("-"))


def first_times() -> list[Column]:
    """For each of ``TACTICS`` an aggregate of its name: when a row with it (``tactics``, ``first_time``) was first."""
    return [F.min(F.when(F.array_contains("tactics", name), F.col("first_time"))).alias(name) for name in TACTICS]


def furthest() -> Column:
    """The last tactic of an attack that ``first_times`` has; null for none."""
    met = _met()
    return F.get(met, F.size(met) - 1)["tactic"]


def as_met() -> Column:
    """The tactics that ``first_times`` has, in the order in which they were met; of equals, by
    name."""
    return F.transform(F.sort_array(_met()), lambda tactic: tactic["tactic"])


def _met() -> Column:
    each = F.array(*(F.struct(F.col(f"`{name}`").alias("time"), F.lit(name).alias("tactic")) for name in TACTICS))
    return F.filter(each, lambda tactic: tactic["time"].isNotNull())
