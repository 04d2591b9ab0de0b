"""Fields that a decoder makes of a text by looking into it, and how: declared, so that it need not be done to know it.

``engine/native.py`` decodes an event once to learn where the fields of all events like it come from. A value that a
decoder looks into would have to be the same in all of them, which a URI or an address never is. So what looks into
values that differ from event to event goes through ``compute``: it says of each field which parts of the text it may
be. Whoever goes on with such a field does so by ``compute`` as well, and nothing depends on whether it is there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Cut(NamedTuple):
    """The part before the ``separator``, one character, or ``after`` it; of several the first, or the ``last``.

    As ``str.partition`` and ``str.rpartition`` have it, also where there is none; behind a cut at a blank without the
    blanks around it."""

    separator: str
    after: bool = False
    last: bool = False

    def of(self, text: str) -> str:
        """The part of ``text``."""
        part = (text.rpartition if self.last else text.partition)(self.separator)[2 if self.after else 0]
        return part.strip(" ") if self.separator == " " else part


class Part(NamedTuple):
    """The parts of a text that a field may be, where it is there at all."""

    cuts: tuple[tuple[Cut, ...], ...] = ((),)
    """Alternatives: the text after all cuts of one of these; the whole text without any."""
    unless: str = ""
    """Characters of which one in the text makes the field anything."""


WHOLE = Part()


class Traced(ABC):
    """A value whose place in the event is known, not what it is."""

    @abstractmethod
    def give(self, fields: dict[str, Any], parts: Mapping[str, Part]) -> None:
        """Note that ``fields`` may have these parts of it from now on, each or what it was before."""


def compute(
    fields: dict[str, Any], value: Any, function: Callable[[Any], Mapping[str, Any]], parts: Mapping[str, Part]
) -> bool:
    """Update ``fields`` by ``function(value)``; whether it surely gave any.

    ``parts``: all names that it gives, and what their values are of a text ``value``."""
    if isinstance(value, Traced):
        value.give(fields, parts)
        return False
    result = function(value)
    fields.update(result)
    return bool(result)
