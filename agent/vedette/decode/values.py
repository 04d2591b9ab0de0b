"""Values of decoded events: JSON, also of careless writers, dotted paths, all texts."""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import orjson

Value: TypeAlias = "str | int | float | bool | list[Value] | dict[str, Value] | None"


class Absent(enum.Enum):
    """The value of a field that the event does not have; None is one that is there and null."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT


def from_json(data: bytes) -> Value:
    """The value of a JSON text; raises ValueError for what is none.

    A writer's slip in one value does not hide the others: bytes that are no UTF-8 and halves of surrogate pairs are
    U+FFFD, controls in strings stay; ``NaN``, ``Infinity`` and numbers beyond a float are texts as they are written.
    """
    data = data.strip(b" \t\r\n\0").removeprefix(b"\xef\xbb\xbf")
    try:
        value: Value = orjson.loads(data)
    except ValueError:
        text = _LONE_SURROGATE.sub(lambda match: r"\ufffd" if match[1] else match[0], data.decode("utf-8", "replace"))
        try:
            value = _LENIENT.decode(text)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
    return value


def _number(text: str) -> int | float | str:
    """As orjson has it: 64 bits are a whole number, more are a float; what no float holds is a text."""
    if len(text) <= 20 and text.lstrip("-").isdigit() and -(2**63) <= (whole := int(text)) < 2**64:
        return whole
    return number if math.isfinite(number := float(text)) else text


_LENIENT = json.JSONDecoder(strict=False, parse_int=_number, parse_float=_number, parse_constant=str)
_LONE_SURROGATE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.S
)


def path(fields: Mapping[str, Value], field: str) -> Value | Absent:
    """The value at the dotted path ``field``; where a list is on the way, the list of what its objects have."""
    dot = field.find(".")
    while dot >= 0:
        if (head := field[:dot]) in fields and (value := descend(fields[head], field[dot + 1 :])) is not ABSENT:
            return value
        dot = field.find(".", dot + 1)
    return ABSENT


def descend(value: Value, rest: str) -> Value | Absent:
    """Return the value at the path ``rest`` below ``value``."""
    if isinstance(value, dict):
        return value[rest] if rest in value else path(value, rest)
    if not isinstance(value, list):
        return ABSENT
    values: list[Value] = []
    for item in value:
        inner = descend(item, rest) if isinstance(item, dict) else ABSENT
        if isinstance(inner, list):
            values.extend(inner)
        elif not isinstance(inner, Absent):
            values.append(inner)
    return values or ABSENT


def lowered(text: str) -> str:
    """Return ``text`` in lower case, character by character, so that places stay."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c if len(c.lower()) != 1 else c.lower() for c in text)


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
