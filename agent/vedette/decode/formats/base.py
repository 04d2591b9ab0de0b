"""A format: how its messages begin, what they say, where they belong and when they happened.

Two kinds. A ``Format`` reads text: the message of a syslog line, or a whole line. A ``Shape`` knows JSON objects of one
make and gives their fields the names that rules use. Both are rows of ``formats/__init__.py``. Readers are total: any
text, any object, no exception; their time is linear in the text. ``sources`` holds all that ``source_of`` can give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import Any, NamedTuple, TypeAlias

from vedette.decode.provenance import Gives
from vedette.model.event import Source
from vedette.model.times import named_time, time_of

Fields: TypeAlias = dict[str, Any]
"""Decoded values by name; see ``values.Value``."""

Seen: TypeAlias = Mapping[str, Any]

NOWHERE = Source()


def source(product: str = "", categories: str = "", services: str = "") -> Source:
    """A source of one product (or none) and the blank-separated categories and services."""
    return Source(frozenset({product} - {""}), frozenset(categories.split()), frozenset(services.split()))


def union(*sources: Source) -> Source:
    """All that ``sources`` hold."""
    return Source(*(frozenset().union(*parts) for parts in zip(NOWHERE, *sources, strict=True)))


class Format(NamedTuple):
    """Text of one format."""

    name: str
    starts: bytes
    """Regular expression, matched where the message begins."""
    read: Callable[[str], Fields]
    gives: Gives
    sources: Source = NOWHERE
    source_of: Callable[[Seen], Source] | None = None
    """Where an event with these fields belongs; None: to ``sources``."""
    time_of: Callable[[Seen, tzinfo | None], int | None] = lambda fields, zone: None
    structured: bool = True
    """Keywords search the decoded values as well as the message."""


class Shape(NamedTuple):
    """JSON objects of one make."""

    name: str
    fits: Callable[[Seen], bool]
    read: Callable[[Seen], Fields]
    """Further fields; the object's own of the same name go before them."""
    gives: Gives
    names: tuple[str, ...]
    """Names of which an object that ``fits`` has one, at whatever depth."""
    sources: Source = NOWHERE
    source_of: Callable[[Seen, Callable[[], Seen]], Source] | None = None
    """Where an object belongs, of its own fields and, called for when needed, the further; None: to ``sources``."""
    times: tuple[str, ...] = ()
    """Names of fields with its time."""


def add_names(fields: Fields, table: Mapping[str, str]) -> None:
    """Adds to what is there under the names of ``table`` its further names."""
    for own, name in table.items():
        if fields.get(own):
            fields.setdefault(name, fields[own])


def first_time(*names: str) -> Callable[[Seen, tzinfo | None], int | None]:
    """``time_of`` of a format whose time is in the first of ``names`` that holds one."""

    def find(fields: Seen, zone: tzinfo | None) -> int | None:
        for name in names:
            value = fields.get(name)
            time = time_of(value, zone) if value is not None else None
            if time is None and isinstance(value, str):
                time = named_time(value, zone)
            if time is not None:
                return time
        return None

    return find
