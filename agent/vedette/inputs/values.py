"""Values of decoded events: what they are, dotted paths into them, all their texts, and times among them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import tzinfo
from typing import Any, TypeAlias

from vedette.inputs import syslog

Value: TypeAlias = "str | int | float | bool | list[Value] | dict[str, Value] | None"


class Absent(enum.Enum):
    """What ``Record.get`` gives for a field the event does not have; None is a field that is there and null."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT

_PLAUSIBLE = (631_152_000, 7_258_118_400)
"""Seconds since 1970 of the years 1990 and 2200."""


def path(fields: Mapping[str, Value], field: str) -> Value | Absent:
    """The value at the dotted path ``field``; where a list is on the way, the list of what its objects have."""
    dot = field.find(".")
    while dot >= 0:
        if (head := field[:dot]) in fields and (found := descend(fields[head], field[dot + 1 :])) is not ABSENT:
            return found
        dot = field.find(".", dot + 1)
    return ABSENT


def descend(value: Value, rest: str) -> Value | Absent:
    """What lies at the path ``rest`` below ``value``."""
    if isinstance(value, dict):
        return value[rest] if rest in value else path(value, rest)
    if not isinstance(value, list):
        return ABSENT
    values: list[Value] = []
    for item in value:
        found = descend(item, rest) if isinstance(item, dict) else ABSENT
        if isinstance(found, list):
            values.extend(found)
        elif not isinstance(found, Absent):
            values.append(found)
    return values or ABSENT


def scalars(stack: list[Any]) -> list[str]:
    """All scalars below the values of ``stack`` (which is emptied), in the reverse of their order; null is none."""
    texts: list[str] = []
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
        elif value is True or value is False:
            texts.append("true" if value else "false")
        elif value is not None:
            texts.append(str(value))
    return texts


def time_of(value: Value | Absent, zone: tzinfo | None) -> int | None:
    """A time in JSON: RFC 3339, or a number (or digits) of seconds, milli-, micro- or nanoseconds since 1970."""
    if isinstance(value, str):
        if len(value) > 40:
            return None
        if (time := syslog.iso_time(value, zone)) is not None:
            return time
        try:
            value = int(value) if value.isdigit() else float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    for unit in (1, 1_000, 1_000_000, 1_000_000_000):
        if _PLAUSIBLE[0] * unit <= value <= _PLAUSIBLE[1] * unit:
            return int(value * 1_000_000) // unit if isinstance(value, int) else round(value * (1_000_000 / unit))
    return None
