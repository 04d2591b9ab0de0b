"""The weight of a way through the sites: whether an attack, how much it matters, what it tells. Values in, values out.

**Score** (0 to 100) says what to look at first: the highest level alone decides the band (``BANDS``), within it the
furthest tactic, then the ``confidence``: the evidence (``moves``), less for each point that is ``against`` it. So no
number of sites lifts a roll-out above a stolen account.

**Not an attack** though evidence is there (``decoy``), where no critical rule says otherwise: whoever only scans, or
tries its way in at many from outside; a program that is rolled out, with the same rules at every site, none of them
severe nor of an intruder's tactics; what only rules of a low level saw. An account that does the same at all sites may
patch them or encrypt them, and is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from spark_jobs.common.attack import TACTICS
from spark_jobs.common.entities import MANY_SITES, SEVERE
from spark_jobs.common.plain import many
from spark_jobs.findings.moves import DEEP_RULES

Way: TypeAlias = dict[str, Any]
"""A row of ``moves.find`` with its ``entities``."""

BANDS = {
    "informational": (0.1, 5.0), "low": (5.0, 30.0), "medium": (30.0, 55.0), "high": (55.0, 80.0),
    "critical": (80.0, 100.0),
}  # fmt: skip
"""Of each level where its scores begin, and below which they end."""

STAGE_PART = 0.6
"""Of a band what the furthest tactic decides; the rest is confidence."""

DOUBT = 0.85
"""What each point against it leaves of the confidence."""

SCANNING = {"reconnaissance", "resource-development"}
ATTEMPTS = SCANNING | {"initial-access"}
GUESSES = ATTEMPTS | {"credential-access", "discovery"}
"""What is tried from outside all the time. Rules of the level high say that a try came through, unless they are about
the try itself and it is tried at ``SCANNED_SITES`` or more; where critical ones say so, or anything more was seen, it
may be an attack."""

SCANNED_SITES = 8
OUTSIDE = {"ip", "domain", "user_agent"}
SOFTWARE = {"user_agent", "hash", "domain"}
INTRUDES = {
    "credential-access", "lateral-movement", "collection", "command-and-control", "exfiltration", "impact"
}  # fmt: skip
"""What no program does because it is new: an update that does has been tampered with."""

UNIFORM = 0.75
"""Share of its rules that an average site saw, from which on all sites look alike."""

HELD = "held back: "
"""Begins the reason of what is no attack though evidence is there."""


def decoy(way: Way) -> str:
    """Say what it is in place of an attack; empty when it may be one."""
    kinds, tactics = {entity["kind"] for entity in way["entities"]}, set(way["tactics"])
    severe, grave = way["level"] in SEVERE, way["level"] == "critical"
    # A rule of several tactics, such as a port scan, says the first of them.
    first = {stage["tactic"] for stage in way["story"]} - {""}
    outside = "ip" in kinds and kinds <= OUTSIDE and first <= GUESSES
    tries = set(way["severe"]) <= ATTEMPTS and set(way["reached"]) <= GUESSES and len(way["sites"]) >= SCANNED_SITES
    if first and not grave and (tactics <= SCANNING or (outside and (tries or not severe))):
        return "scan"
    wide = len(way["sites"]) >= MANY_SITES
    software = kinds <= SOFTWARE or (wide and kinds <= {*SOFTWARE, "user"} and kinds & SOFTWARE)
    if software and not severe and not tactics & INTRUDES and _alike(way) >= UNIFORM:
        return "roll-out"
    return "" if severe or way["level"] == "medium" else "low level only"


def held_back(held: Mapping[str, int]) -> str:
    """How many are ``held`` back as what, in words, the most first."""
    names = {"scanner": "own scanner", "shared": "shared address", "low level only": "low-level run"}
    each = sorted((-number, names.get(what, what)) for what, number in held.items())
    return ", ".join(many(-number, name, name + ("es" if name.endswith("s") else "s")) for number, name in each)


def held_as(reason: str | None) -> str:
    """What a campaign with this ``reason`` is held back as; empty when it is not."""
    return (reason or "").removeprefix(HELD).split(";")[0] if (reason or "").startswith(HELD) else ""


def withheld(way: Way, what: str) -> Way:
    """``way`` as the row of what is no attack, but ``what``: no score, and no steps, as there may be many such rows."""
    reason = f"{HELD}{what}; {_reason(way)}"
    return {**way, "held": what, "against": [], "confidence": 0.0, "score": 0.0, "reason": reason, "steps": []}


def weighed(way: Way) -> Way:
    """``way`` with ``against``, ``confidence``, ``score`` and ``reason``."""
    against = list(_doubts(way))
    confidence = way["evidence"] / 100 * DOUBT ** len(against)
    low, high = BANDS[way["level"]]
    stage = (TACTICS.index(way["stage"]) + 1) / len(TACTICS) if way["stage"] else 0.0
    within = STAGE_PART * stage + (1 - STAGE_PART) * confidence
    return {
        **way,
        "against": against,
        "confidence": round(confidence, 2),
        "score": round(low + within * (high - low - 0.1), 1),
        "reason": _reason(way),
    }


def _alike(way: Way) -> float:
    """Share of the rules that an average site saw."""
    return float(way["cells"] / (len(way["sites"]) * len(way["rules"])))


def _doubts(way: Way) -> Iterable[str]:
    """Reasons against it, in words."""
    tactics = set(way["tactics"])
    if not tactics:
        yield "no tactic is known of its rules"
    elif tactics <= ATTEMPTS:
        yield "nothing beyond initial access was seen"
    if len(tactics) > 1 and not way["forward"]:
        yield "its tactics are in no order of an attack"
    if not way["deep"]:
        yield "each site saw one rule only"
    if len(way["rules"]) > 1 and _alike(way) >= UNIFORM:
        yield "every site saw the same rules, as in a roll-out"


def _reason(way: Way) -> str:
    """Why it stands where it stands: what decides most comes first."""
    others = len(way["entities"])
    return (
        f"level {way['level']}, reached {way['stage'] or 'no tactic'}; "
        f"{many(way['at_once'], 'site')} within 24 h ({way['in_hour']} within 1 h), {len(way['sites'])} in all; "
        f"{many(way['deep'], 'site')} with {DEEP_RULES} or more rules; {many(way['forward'], 'step')} forward"
        + (f"; {others} entities share its events" if others > 1 else "")
    )
