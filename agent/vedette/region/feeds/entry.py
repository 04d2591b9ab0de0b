"""What a feed's reader gives: entries with their values, threats and what indicates them; and what it left out.

Times are UTC microseconds, None is open. Texts are bounded and without control characters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

MAX_TEXT = 512
"""Characters of a threat's name, of labels, of a reference."""

MAX_REASONS = 50


class Entry(NamedTuple):
    """An indicator object of STIX or an attribute of MISP. Of two with one ``id`` the later ``modified`` counts."""

    id: str
    modified: int
    values: tuple[tuple[str, str], ...]
    """Kinds and values (``values.py``); none of what is revoked, so that it replaces an earlier version."""
    since: int | None = None
    until: int | None = None
    confidence: int | None = None
    threat: str = ""
    labels: str = ""
    reference: str = ""


class Threat(NamedTuple):
    """A malware, tool, campaign or actor of STIX that indicators may name."""

    id: str
    modified: int
    revoked: bool
    name: str


class Indicates(NamedTuple):
    """A relationship of STIX: the entry ``source`` indicates the threat ``target``."""

    id: str
    modified: int
    revoked: bool
    source: str
    target: str


Found = Entry | Threat | Indicates


class LeftOut:
    """What was not taken: by reason how many, and the first of them by name."""

    def __init__(self) -> None:
        self.reasons: dict[str, tuple[int, str]] = {}

    def add(self, reason: str, name: object) -> None:
        if reason not in self.reasons and len(self.reasons) >= MAX_REASONS:
            reason = "other reasons"
        count, first = self.reasons.get(reason, (0, plain(name)[:120]))
        self.reasons[reason] = count + 1, first


def plain(text: object) -> str:
    """``text`` as it may stand in a table and on a terminal; empty for what is no text."""
    if not isinstance(text, str):
        return ""
    shown = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * MAX_TEXT])
    return " ".join(shown.split())[:MAX_TEXT]


def joined(texts: Iterable[object]) -> str:
    """Several texts as one."""
    return plain(", ".join(dict.fromkeys(word for text in texts if (word := plain(text)))))
