"""A format: how its messages begin, what they say, where they belong, when they happened, and how it declares its
fields.

Two kinds. A ``Format`` reads text: the message of a syslog line, or a whole line. A ``Shape`` knows JSON objects of one
make and gives their fields the names that rules use. Both are rows of ``table.py``. Readers are total: any text, any
object, no exception; their time is linear in the text. ``sources`` holds all that ``source_of`` can give.

The prefilter's soundness hangs on what is declared (``Gives``): a rule's literal is searched in the raw bytes of
events. So for every field that any decoder gives, one of these holds:

* the value stands there as it is, or under escapes that the search tolerates (``Provenance``);
* it may be **transformed** (hex in audit records); then every event in which it is holds the field's ``guard``, a
  regular expression, and is a candidate of every rule that tests the field;
* it is **synthetic**, made by the agent: no literal is taken from it, unless the agent never makes that value
  (``values``): an event in which it is has it of its own.

The name of a field stands in the event, too (``Gives.any``), unless a format gives it a name of its own (``Field``).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from datetime import tzinfo
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from vedette.model.event import Source
from vedette.model.times import named_time, time_of


class Provenance(enum.Enum):
    """How a field's value stands in the raw bytes of its event."""

    VERBATIM = "verbatim"
    """As it is (but for U+FFFD in place of invalid UTF-8)."""
    ESCAPED = "escaped"
    """Verbatim, or escaped: as a JSON text or number; with a backslash before ``"`` ``\\`` ``]`` (RFC 5424) or ``|``
    ``=`` (CEF); with XML's entities."""
    SYNTHETIC = "synthetic"
    """Perhaps not at all."""


class Field(NamedTuple):
    """A field that a format gives under a name of its own, or transformed."""

    name: str
    """``<n>`` at its end is a number of up to four digits."""
    of: tuple[str, ...] = ()
    """Names of which one stands in every event to which the format gives the field; empty: none needs to."""
    how: Provenance = Provenance.VERBATIM
    guard: bytes = b""
    """Regular expression without regard to case; an event holds it, or the value as ``how`` says."""
    values: frozenset[str] | None = None
    """All that a synthetic value can be; None: anything."""


class Gives(NamedTuple):
    """The fields that a format gives."""

    recognized: str
    """How an event of it is recognized, in Markdown."""
    fields: tuple[Field, ...] = ()
    any: Provenance | None = None
    """How the values stand of whatever other names the event has; None: there are no other fields."""


def named(names: Iterable[str], how: Provenance = Provenance.VERBATIM) -> tuple[Field, ...]:
    """Fields whose names need not stand in the event."""
    return tuple(Field(name, how=how) for name in names)


def renamed(*tables: Mapping[str, str | tuple[str, ...]], how: Provenance = Provenance.ESCAPED) -> tuple[Field, ...]:
    """Fields that tables from an event's own names to others give; a name that is in one of them may be given on."""
    origins: dict[str, set[str]] = {}
    for table in tables:
        for own, names in table.items():
            for name in (names,) if isinstance(names, str) else names:
                origins.setdefault(name, set()).update({own}, origins.get(own, ()))
    return tuple(Field(name, tuple(sorted(of)), how) for name, of in origins.items())


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


load: Callable[[str], ModuleType] = import_module
"""How the module that reads a format is imported. An agent sets what does so without a free descriptor
(``system/descriptors.py``)."""


def late(module: str, name: str = "read") -> Callable[..., Any]:
    """Return what calls the function ``name`` of ``formats/MODULE.py``, which is imported with its first call."""

    @cache
    def function() -> Callable[..., Any]:
        loaded: Callable[..., Any] = getattr(load(f"vedette.decode.formats.{module}"), name)
        return loaded

    return lambda *arguments: function()(*arguments)


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
    """``time_of`` of a format whose time is in the first of ``names`` that holds one; Sysmon's UtcTime has no zone."""

    def find(fields: Seen, zone: tzinfo | None) -> int | None:
        for name in names:
            zone = None if name == "UtcTime" else zone
            value = fields.get(name)
            time = time_of(value, zone) if value is not None else None
            if time is None and isinstance(value, str):
                time = named_time(value, zone)
            if time is not None:
                return time
        return None

    return find
