"""How a format declares its fields: what the prefilter's soundness hangs on, as data.

A rule's literal is searched in the raw bytes of events. So for every field that any decoder gives, one of these holds:

* the value stands there as it is, or under escapes that the search tolerates (``Provenance``);
* it may be **transformed** (hex in audit records); then every event in which it is holds the field's ``guard``, a
  regular expression, and is a candidate of every rule that tests the field;
* it is **synthetic**, made by the agent: no literal is taken from it, unless the agent never makes that value
  (``values``): an event in which it is has it of its own.

The name of a field stands in the event, too (``Gives.any``), unless a format gives it a name of its own (``Field``).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple


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
