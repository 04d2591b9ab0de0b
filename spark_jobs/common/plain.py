"""Texts made fit to be shown: those from logs, which an attacker may have chosen, and numbers with their nouns."""

from __future__ import annotations

import unicodedata
from datetime import timedelta


def plain(text: str) -> str:
    """``text`` without control, format, surrogate, private or unassigned characters, nor line ends.

    None of what is left is obeyed by a terminal or turns the direction of text around.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c == " " or unicodedata.category(c)[0] not in "CZ" else _visible(c) for c in text)


def _visible(character: str) -> str:
    """Tabs, line ends and odd spaces as a space; anything else as U+FFFD."""
    return " " if character.isspace() else "�"


def short(text: str, most: int = 40) -> str:
    """``text`` of at most ``most`` characters: the middle of a longer one, such as a hash, left out."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]}…{text[-most // 4 :]}"


def cut(text: str, most: int) -> str:
    """The first ``most`` characters of ``text``; a longer one ends in an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def many(n: int, singular: str, plural: str = "") -> str:
    """``n`` and its noun, in the plural where it should be."""
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def ago(age: timedelta) -> str:
    """``6 minutes ago``, in whole minutes, hours or days."""
    minutes = max(0, int(age.total_seconds()) // 60)
    if minutes < 60:
        return f"{many(minutes, 'minute')} ago"
    return f"{many(minutes // 60, 'hour')} ago" if minutes < 48 * 60 else f"{many(minutes // 1440, 'day')} ago"
