"""Words of the command line, read: times, folders, numbers, days. Each raises ``ArgumentTypeError`` in plain words."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import UTC, date, datetime, timedelta

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def folder(text: str) -> str:
    """A folder's URL without a slash at its end."""
    if not text.strip("/"):
        raise ArgumentTypeError("names no folder")
    return text.rstrip("/")


def setting(text: str) -> tuple[str, str]:
    """A Spark property."""
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise ArgumentTypeError(f"expects spark.KEY=VALUE, not {text!r}")
    return key, value


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ArgumentTypeError(f"expects KEY=VALUE, not {text!r}")
    return key, value


def seconds(text: str) -> float:
    """``30s``, ``5m`` or ``1h`` in seconds."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", text)
    if match is None or not float(match[1]):
        raise ArgumentTypeError(f"expects a time such as 30s, 5m or 1h, not {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"expects a number from 1, not {text!r}")
    return int(text)


def day(text: str) -> date:
    """A UTC date: ``2026-11-20``, ``today`` or ``yesterday``."""
    today = datetime.now(UTC).date()
    if text in ("today", "yesterday"):
        return today - timedelta(days=text == "yesterday")
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"expects YYYY-MM-DD, today or yesterday, not {text!r}") from None
