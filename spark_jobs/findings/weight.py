"""The weight of a way through the sites: whether an attack, how much it matters, what it tells. Values in, values out.

**Score** (0 to 100) says what to look at first: the highest level alone decides the band (``BANDS``), within it the
furthest tactic, then the ``confidence``: the evidence (``moves``), less for each point that is ``against`` it. So no
number of sites lifts a roll-out above a stolen account.

**Not an attack** though evidence is there (``decoy``), where no critical rule says otherwise: whoever only scans, or
tries its way in at many from outside; a program that is rolled out, with the same rules at every site and none of them
severe; what only rules of a low level saw.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from spark_jobs.common.attack import TACTICS
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
"""What is tried from outside all the time. Rules of the level high say that a try came through, unless it is tried at
``SCANNED_SITES`` or more; where critical ones say so, or anything more than a try was seen, it may be an attack."""

SCANNED_SITES = 8
OUTSIDE = {"ip", "domain", "user_agent"}
SOFTWARE = {"user_agent", "hash", "domain"}

UNIFORM = 0.75
"""Share of its rules that an average site saw, from which on all sites look alike."""


def decoy(way: Way) -> str:
    """Say what it is in place of an attack; empty when it may be one."""
    kinds, tactics = {entity["kind"] for entity in way["entities"]}, set(way["tactics"])
    severe, grave = way["level"] in ("high", "critical"), way["level"] == "critical"
    outside = "ip" in kinds and kinds <= OUTSIDE
    tries = tactics <= ATTEMPTS and not grave and len(way["sites"]) >= SCANNED_SITES
    guesses = tactics <= GUESSES and not severe
    if tactics and ((tactics <= SCANNING and not grave) or (outside and (tries or guesses))):
        return "scan"
    if kinds <= SOFTWARE and not severe and _alike(way) >= UNIFORM:
        return "roll-out"
    return "" if severe or way["level"] == "medium" else "low level only"


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
