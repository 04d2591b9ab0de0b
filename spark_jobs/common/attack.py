"""ATT&CK (Enterprise) names of tags: tactics with their ids, techniques and sub-techniques."""

from __future__ import annotations

import re
from collections.abc import Iterable

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

_TECHNIQUE = re.compile(r"t[0-9]{4}(?:\.[0-9]{3})?")


def of_tags(tags: Iterable[str] | None) -> tuple[list[str], list[str]]:
    """Tactics (short names) and techniques (``T1110.001``) that ``tags`` name, each once, in their order."""
    tactics: dict[str, None] = {}
    techniques: dict[str, None] = {}
    for tag in tags or ():
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
