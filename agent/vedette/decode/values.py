"""Values of decoded events: JSON, also of careless writers, dotted paths, all texts."""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
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
    U+FFFD, controls in strings stay; ``NaN``, ``Infinity``, whole numbers beyond 64 bits and other numbers beyond a
    float are texts as they are written.
    """
    data = data.strip(b" \t\r\n\0").removeprefix(b"\xef\xbb\xbf")
    try:
        return from_strict(data)
    except ValueError:
        text = _LONE_SURROGATE.sub(lambda match: r"\ufffd" if match[1] else match[0], data.decode("utf-8", "replace"))
        try:
            value: Value = _LENIENT.decode(text)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
    return value


def from_strict(data: bytes) -> Value:
    """The value of valid JSON, whole numbers beyond 64 bits as texts; raises ValueError for anything else."""
    value: Value = orjson.loads(data)
    # Of 19 digits in a row two of every ninth byte are digits: seldom is it worth to look at all.
    if b"00" in data[::9].translate(_DIGITS) and (b"0" * 20 in (shown := data.translate(_DIGITS)) or _SIGNED in shown):
        with suppress(ValueError, RecursionError):
            value = _LENIENT.decode(data.decode())
    return value


_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_SIGNED = b"-" + b"0" * 19


def _whole(text: str) -> int | str:
    """As orjson has it up to 64 bits."""
    return whole if len(text) <= 20 and -(2**63) <= (whole := int(text)) < 2**64 else text


def _number(text: str) -> float | str:
    return number if math.isfinite(number := float(text)) else text


decoder = partial(json.JSONDecoder, parse_int=_whole, parse_float=_number, parse_constant=str)
"""Makes Python's readers of JSON with numbers as ``from_json`` has them."""
_LENIENT = decoder(strict=False)
_LONE_SURROGATE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.S
)


def to_json(value: Any) -> bytes:
    """A value as JSON, whole numbers of any size; what JSON does not have is a text."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # a number beyond 64 bits, or a half of a surrogate pair
        return json.dumps(value, default=str).encode()


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


def text_of(value: Any) -> str:
    """The text of a scalar; empty for what is empty, and for lists and objects, which may nest too deep for ``str``."""
    return str(value) if value and not isinstance(value, (dict, list)) else ""


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
