"""Numbers and intervals as they are written in SQL, to literals of Flink's types."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from vedette.plan.query import SECOND, Literal, Type
from vedette.rules.sql.checked import BIGINT, INT
from vedette.rules.sql.trees import Wrong


def number(node: Any, text: str) -> Literal:
    """INT, BIGINT or DECIMAL by size; with an exponent DOUBLE."""
    if re.fullmatch(r"-?\d{1,100}", text):
        value = int(text)
        if -(1 << 31) <= value < 1 << 31:
            return Literal(value, INT)
        if -(1 << 63) <= value < 1 << 63:
            return Literal(value, BIGINT)
        text += "."
    if re.fullmatch(r"-?\d*\.\d*", text) and any(map(str.isdigit, text)):
        whole, _, fraction = text.removeprefix("-").partition(".")
        digits = max(1, len(whole)) + len(fraction) if fraction else max(1, len(whole.lstrip("0")))
        if digits <= 38:
            return Literal(Decimal(text), Type("DECIMAL", digits, len(fraction)))
    elif re.fullmatch(r"-?(\d+\.?\d*|\.\d+)[eE][+-]?\d{1,4}", text):
        return Literal(float(text), Type("DOUBLE"))
    raise Wrong(node, f"{text[:40]} is no number, or has more than 38 digits")


def fraction_of(text: str, digits: int) -> int:
    if not re.fullmatch(r"\d{0,9}", text):
        raise ValueError
    return int(text.ljust(digits, "0")[:digits] or 0)


_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3_600, "DAY": 86_400, "WEEK": 604_800}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_SPANS = {
    ("DAY", "HOUR"): (r"(\d+) (\d+)", (86_400, 3_600)),
    ("DAY", "MINUTE"): (r"(\d+) (\d+):(\d+)", (86_400, 3_600, 60)),
    ("DAY", "SECOND"): (r"(\d+) (\d+):(\d+):(\d+)(\.\d+)?", (86_400, 3_600, 60, 1)),
    ("HOUR", "MINUTE"): (r"(\d+):(\d+)", (3_600, 60)),
    ("HOUR", "SECOND"): (r"(\d+):(\d+):(\d+)(\.\d+)?", (3_600, 60, 1)),
    ("MINUTE", "SECOND"): (r"(\d+):(\d+)(\.\d+)?", (60, 1)),
    ("YEAR", "MONTH"): (r"(\d+)-(\d+)", (12, 1)),
}


def interval(node: Any) -> Literal:
    """Microseconds, or months."""
    text, unit, to, sign = (node.args.get(key) for key in ("text", "unit", "to", "sign"))
    text = text.strip()
    if text.startswith("-"):
        sign, text = -sign, text[1:]
    value: int | None = None
    if to is None and len(text) < 20:
        if unit in _MONTHS and text.isdecimal():
            value = int(text) * _MONTHS[unit]
        elif unit in _SECONDS and text.isdecimal():
            value = int(text) * _SECONDS[unit] * SECOND
        elif unit == "SECOND" and re.fullmatch(r"\d*\.\d{1,6}", text):
            value = int(Decimal(text) * SECOND)
    elif (unit, to) in _SPANS and len(text) < 40:
        pattern, sizes = _SPANS[unit, to]
        if match := re.fullmatch(pattern, text):
            value = sum(int(part) * size for part, size in zip(match.groups(), sizes, strict=False))
            if unit != "YEAR":
                fraction = match[len(sizes) + 1] if to == "SECOND" and match.lastindex == len(sizes) + 1 else None
                value = value * SECOND + (int(Decimal(fraction) * SECOND) if fraction else 0)
    if value is None or abs(value) > 1 << 56:
        raise Wrong(node, f"{text!r:.40} is no interval of {unit}{f' TO {to}' if to else ''}", "INTERVAL '10' MINUTE")
    months = unit in _MONTHS
    if not months:
        value -= value % 1000  # as in Flink
    return Literal(sign * value, Type("INTERVAL_MONTH" if months else "INTERVAL_SECOND"))
