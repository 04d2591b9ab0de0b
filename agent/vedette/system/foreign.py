"""A document from outside, as values that nothing chokes on: from an agent, a member, an operator, a feed or a zip.

``read`` gives JSON, and ``read_toml`` TOML, of at most ``DEPTH`` objects and lists within each other: what compares,
writes or shows it never runs out of stack. ``text``, ``texts``, ``count`` and ``table`` take a value for what it
should be; what is something else counts as nothing. How many bytes a document may have is its format's to say.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import orjson

DEPTH = 32
"""Objects and lists within each other."""
COUNT = 2**53
"""Beyond, a number is no count, nor a time in microseconds: JSON's readers do not agree on it, and sums would leave the
64 bits of tables and of msgpack."""
MAX_TEXTS, MAX_TEXT = 200, 300
"""Of ``texts``; characters of one."""
_DEEPER = "…"
_TOO_DEEP = f"objects or lists nested deeper than {DEPTH}"


def read(data: bytes | str, *, cut: bool = False) -> Any:
    """The JSON in ``data``. ``cut``: a text stands for what lies too deep, else that raises. Raises ValueError."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not _is_deeper(value):
        return value
    if cut:
        return _cut(value, DEPTH)
    raise ValueError(_TOO_DEEP)


def read_toml(text: str) -> dict[str, Any]:
    """The TOML in ``text``. Raises ValueError."""
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not valid TOML: {error}") from error
    if _is_deeper(value):
        raise ValueError(_TOO_DEEP)
    return value


def _is_deeper(value: Any) -> bool:
    level = _boxes([value])
    for _ in range(DEPTH):
        level = [part for box in level for part in _boxes(box.values() if isinstance(box, dict) else box)]
        if not level:
            return False
    return True


def _boxes(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]


def _cut(value: Any, depth: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        return _DEEPER
    if isinstance(value, dict):
        return {key: _cut(part, depth - 1) for key, part in value.items()}
    return [_cut(part, depth - 1) for part in value]


def text(value: object, longest: int = MAX_TEXT) -> str:
    """Empty for what is neither a text nor a whole number."""
    if isinstance(value, str):
        return value[:longest]
    return str(value) if type(value) is int and abs(value) <= COUNT else ""


def texts(value: object) -> dict[str, str]:
    """Texts by name, as labels are: those of an object's values that are texts or whole numbers, so many."""
    pairs = islice(table(value).items(), MAX_TEXTS)
    return {key[:MAX_TEXT]: text(part) for key, part in pairs if isinstance(key, str) and type(part) in (str, int)}


def listed(value: object) -> list[str]:
    """The texts and whole numbers of a list, so many."""
    return [text(part) for part in items(value)[:MAX_TEXTS] if type(part) in (str, int)]


def count(value: object, default: int = 0) -> int:
    """``default`` for what is no whole number from 0 to ``COUNT``."""
    return value if type(value) is int and 0 <= value <= COUNT else default


def table(value: object) -> Mapping[str, Any]:
    """Empty for what is no object."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """Empty for what is no list."""
    return value if isinstance(value, list) else []
