"""Literals of a log source: what is in the raw bytes of every event that belongs to it, unless its input says so.

A rule without literals of its own is a candidate at every event of its log source. Where an input takes many formats,
few of its events are of that source, and most sources show in the event: a program's name, how a
format begins, a name in a JSON object. One such clause is searched for in the place of the rule's own; it holds for
inputs whose settings do not give that part of the source (``excuses``), nor name a daemon whose own log they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from vedette.decode import cisco, ownlog
from vedette.decode.codecs import Codec
from vedette.decode.formats.table import FORMATS, SHAPES
from vedette.decode.programs import PROGRAMS
from vedette.decode.sources import OUTER
from vedette.model.event import LogSource, Source
from vedette.plan.ir import Op, Predicate
from vedette.plan.literals import Literals, clauses_of, guess, pieces


class Witness(NamedTuple):
    """``literals``: one is in every event whose log source has ``part``, unless its input's own has."""

    part: int
    """0 product, 1 category, 2 service."""
    literals: Literals

    def excuses(self, wanted: LogSource, read: Codec, own: LogSource) -> bool:
        """True when events of an input with this codec and log source of its own need the literals."""
        return read.only not in SHAPES and read.row is None and not read.program and own[self.part] != wanted[self.part]


@lru_cache(maxsize=4096)
def witness(wanted: LogSource) -> Witness | None:
    """The cheapest clause of one part of ``wanted``; None when there is none."""
    witnesses = [
        Witness(part, literals)
        for part, value in enumerate(wanted)
        if value and (literals := _of_part(part, value)) is not None
    ]
    return min(witnesses, key=lambda witness: (sum(map(guess, sorted(witness.literals))), witness.part), default=None)


def _of_part(part: int, value: str) -> Literals | None:
    if value in OUTER[part]:
        return None
    union: set[bytes] = set()
    for literals in _of_rows(part, value):
        if not literals:
            return None
        union |= literals
    return frozenset(union)


def _of_rows(part: int, value: str) -> Iterable[Literals | None]:
    """The clause of every row that makes events belong there; None of one that has none."""

    def gives(source: Source) -> bool:
        return value in source[part]

    for name, program in PROGRAMS.items():
        if gives(program.source):
            yield _of_program(name)
            if (words := ownlog.BY_WORDS.get(name)) is not None:
                yield _of_start(words.pattern)
    for form in FORMATS.values():
        if gives(form.sources):
            yield _of_start(form.starts)
    for shape in SHAPES.values():
        if gives(shape.sources):
            yield frozenset(f'"{name.lower()}"'.encode() for name in shape.names) or None


def _of_start(pattern: bytes) -> Literals | None:
    """Return what is in every text that begins with ``pattern``."""
    return next(iter(clauses_of(Predicate("", Op.REGEX, pattern.decode("ascii"), True))), None)


def _of_program(name: str) -> Literals | None:
    if name.startswith("%"):  # the facility is a word, or words joined by ``-``, between ``%`` and ``-``
        words = [word for word, key in cisco.FACILITIES.items() if key == name]
        return frozenset(mark + word.encode() + b"-" for word in words for mark in (b"%", b"-")) or None
    return frozenset(parts[:1]) if (parts := sorted(pieces(name), key=len, reverse=True)) else None
