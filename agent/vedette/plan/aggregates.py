"""Measures that a correlation can take of a window's matches: one row of ``Kind`` for each aggregate.

A row says what the aggregate reads of each match, which function measures a stretch of matches, and what it allows the
state to forget. The function alone makes it work; a ``running`` form makes it fast in large windows. Everything else
(syntax of rules, decision, compaction, what an alert shows) follows from the row.

Sums and averages are exact and rounded once, percentiles interpolate linearly between the two nearest ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cached_property
from math import inf
from typing import Any

from vedette.plan.numbers import Number, exact_sum

_UNIT = 1074
"""Every finite double is a multiple of 2 to the power of minus this."""


class Reads(Enum):
    """The thing that is read of each match."""

    NOTHING = 0
    RULE = 1
    """Which of the correlation's rules it is of, as the number of its slot."""
    TEXT = 2
    """The value of ``field`` as a text, of several fields all of them; matches without one are left out."""
    NUMBER = 3
    """The number in ``field``; matches without one are left out."""


class Keeps(Enum):
    """Which matches before the watermark can still decide a condition that is decided at once."""

    ALL = 0
    NEWEST = 1
    """As many of the newest as the condition counts."""
    ONE_EACH = 2
    """The newest of each text or rule."""
    CHAIN = 3
    """Those that a chain of rules in their order can use."""


class Running(ABC):
    """An aggregate of a stretch that moves: takes in what is new, lets go of what has left it."""

    __slots__ = ()

    in_order = False
    """Whether ``take`` has to be given what was read in the order of the window."""

    @abstractmethod
    def take(self, read: Sequence[Any]) -> None: ...

    @abstractmethod
    def leave(self, read: Sequence[Any]) -> None: ...

    @abstractmethod
    def value(self, percent: float) -> Number | None:
        """Exactly what the row's ``measure`` gives for all that is taken in."""


class Distinct(Running):
    """How often each value occurs."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[Any, int] = {}

    def take(self, read: Sequence[Any]) -> None:
        counts = self.counts
        for value in read:
            counts[value] = counts.get(value, 0) + 1

    def leave(self, read: Sequence[Any]) -> None:
        counts = self.counts
        for value in read:
            left = counts[value] - 1
            if left:
                counts[value] = left
            else:
                del counts[value]

    def value(self, percent: float) -> int:
        return len(self.counts)


class Sum(Running):
    """Exact: whole numbers as such, others as multiples of 2**-1074, which all of them are."""

    __slots__ = ("count", "floats", "scaled", "whole")

    def __init__(self) -> None:
        self.count = self.floats = self.whole = self.scaled = 0

    def _add(self, read: Sequence[Number], sign: int) -> None:
        self.count += sign * len(read)
        for value in read:
            if type(value) is int:
                self.whole += sign * value
            else:
                self.floats += sign
                above, below = value.as_integer_ratio()
                self.scaled += sign * (above << _UNIT + 1 - below.bit_length())

    def take(self, read: Sequence[Number]) -> None:
        self._add(read, 1)

    def leave(self, read: Sequence[Number]) -> None:
        self._add(read, -1)

    def value(self, percent: float) -> Number | None:
        if not self.floats:
            return self.whole if self.count else None
        exact = (self.whole << _UNIT) + self.scaled
        try:
            return exact / (1 << _UNIT)
        except OverflowError:
            return inf if exact > 0 else -inf


class Mean(Sum):
    __slots__ = ()

    def value(self, percent: float) -> float | None:
        return ((self.whole << _UNIT) + self.scaled) / (self.count << _UNIT) if self.count else None


class Ranked(Running):
    """The numbers in order; equal ones in the order of the window."""

    __slots__ = ("numbers",)

    in_order = True

    def __init__(self) -> None:
        self.numbers: list[Number] = []

    def take(self, read: Sequence[Number]) -> None:
        if len(read) * 8 > len(self.numbers):
            self.numbers += read
            self.numbers.sort()
        else:
            for value in read:
                insort(self.numbers, value)

    def leave(self, read: Sequence[Number]) -> None:
        for value in read:
            del self.numbers[bisect_left(self.numbers, value)]

    def value(self, percent: float) -> Number | None:
        return at_rank(self.numbers, percent) if self.numbers else None


def how_many(read: Sequence[Any], percent: float) -> int:
    return len(read)


def distinct(read: Sequence[Any], percent: float) -> int:
    return len(set(read))


def total(read: Sequence[Number], percent: float) -> Number:
    """The exact sum, rounded once."""
    summed = sum(read)
    return summed if type(summed) is int else exact_sum(read)


def mean(read: Sequence[Number], percent: float) -> float:
    """The average, rounded once. Denominators are powers of two."""
    ratios = [value.as_integer_ratio() for value in read]
    below = max(ratio[1] for ratio in ratios)
    return sum(above * (below // own) for above, own in ratios) / (below * len(read))


def percentile(read: Sequence[Number], percent: float) -> Number:
    return at_rank(sorted(read), percent)


def at_rank(ranked: Sequence[Number], percent: float) -> Number:
    """Interpolate linearly between the two nearest ranks of ``n`` numbers in order; the last has rank n - 1.

    Exact, and rounded once: Python's division of integers is. So it lies between the two, and rises with ``percent``.
    """
    above, below = percent.as_integer_ratio()
    whole = 100 * below
    low, part = divmod((len(ranked) - 1) * above, whole)
    if not part or ranked[low] == ranked[low + 1]:
        return ranked[low]
    (a, over_a), (b, over_b) = ranked[low].as_integer_ratio(), ranked[low + 1].as_integer_ratio()
    return (a * over_b * (whole - part) + b * over_a * part) / (over_a * over_b * whole)


@dataclass(frozen=True)
class Aggregate:
    """One row: see the module's text."""

    reads: Reads
    measure: Callable[[Sequence[Any], float], Number]
    """Of what was read of a stretch of matches, in order and not empty where values are read, and of the percentile."""
    grows: bool
    """Whether a further match never makes it less: then ``gt`` and ``gte`` are decided at once."""
    keeps: Keeps = Keeps.ALL
    running: type[Running] | None = None
    """None: a stretch is measured as a whole each time."""
    entry_bytes: int = 0
    """What the running form takes for each match, about."""
    percentile: bool = False
    """Whether rules give a ``percentile``; else it is 50."""

    @cached_property
    def numeric(self) -> bool:
        """Whether its metric is of numbers; of the others it is a count."""
        return self.reads is Reads.NUMBER

    @cached_property
    def valued(self) -> bool:
        """Whether it reads the values of ``field``."""
        return self.reads is Reads.TEXT or self.reads is Reads.NUMBER

    @cached_property
    def ordered(self) -> bool:
        """Whether it looks for chains, which ``state/chains.py`` measures: the order of events matters."""
        return self.keeps is Keeps.CHAIN


class Kind(StrEnum):
    """The aggregates, by their name in rules."""

    _value_: str
    row: Aggregate

    def __new__(cls, name: str, row: Any = None) -> Kind:
        kind = str.__new__(cls, name)
        kind._value_, kind.row = name, row
        return kind

    EVENT_COUNT = "event_count", Aggregate(Reads.NOTHING, how_many, True, Keeps.NEWEST)
    VALUE_COUNT = "value_count", Aggregate(Reads.TEXT, distinct, True, Keeps.ONE_EACH, Distinct, 64)
    TEMPORAL = "temporal", Aggregate(Reads.RULE, distinct, True, Keeps.ONE_EACH, Distinct)
    TEMPORAL_ORDERED = "temporal_ordered", Aggregate(Reads.RULE, distinct, True, Keeps.CHAIN, Distinct, 24)
    VALUE_SUM = "value_sum", Aggregate(Reads.NUMBER, total, True, running=Sum)
    VALUE_AVG = "value_avg", Aggregate(Reads.NUMBER, mean, False, running=Mean)
    VALUE_PERCENTILE = (
        "value_percentile", Aggregate(Reads.NUMBER, percentile, False, running=Ranked, entry_bytes=8, percentile=True),
    )  # fmt: skip
    VALUE_MEDIAN = "value_median", Aggregate(Reads.NUMBER, percentile, False, running=Ranked, entry_bytes=8)
