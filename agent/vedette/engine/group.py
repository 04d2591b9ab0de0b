"""The predicates of one field, as one test: a field value in, the truth of all of them out, as one integer.

Bit *i* is the group's predicate *i* (``Group.bits``). Equality is one dictionary look-up; patterns (regexes, globs) are
one Hyperscan scan, so their time is linear and their meaning the same in every group; plain searches join it, and
without patterns it is worth while from ``SCAN_FROM`` of them (``patterns.py``). Patterns that Hyperscan refuses run in
bounded time on another engine (``engine/fallback.py``). A timeout is never "no match": the predicate is *undecided*.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import regex

from vedette.decode.decoder import ABSENT, Record
from vedette.engine.fallback import Undecided, Watch
from vedette.model import event
from vedette.plan.database import Pattern
from vedette.plan.ir import ANY, STAR, Op, Predicate, fold, leaves, text
from vedette.plan.operators import OPERATORS, Test
from vedette.plan.patterns import PAD, End, counts, fallback, search

SCAN_FROM = 8
"""Searches in a group from which one Hyperscan scan is cheaper than as many string operations."""

PATTERNS = frozenset({Op.GLOB, Op.REGEX})
SEARCHES = PATTERNS | {Op.PREFIX, Op.SUFFIX, Op.CONTAINS}

Hit = tuple[int, int]
"""A pattern's number, and where it ends."""
Find = Callable[[bytes], list[Hit]]
"""All hits in a text with its ``PAD``."""


class Group:
    """The predicates of one field."""

    __slots__ = (
        "_absent",
        "_begins",
        "_ends",
        "_exact",
        "_exact_cased",
        "_folded",
        "_networks",
        "_numbers",
        "_others",
        "_present",
        "_raw",
        "_watch",
        "_within",
        "field",
        "size",
    )

    def __init__(
        self,
        name: str,
        predicates: Sequence[Predicate],
        not_scanned: Collection[Predicate],
        load: Callable[[bool], Find] | None,
        watch: Watch,
        lookup_test: Callable[[Predicate], Test],
        part: tuple[Sequence[int], int] | None = None,
    ) -> None:
        """``load(cased)`` gives what finds the searches of the text as it is, or folded; None: no scans.

        ``not_scanned``: the predicates whose pattern Hyperscan does not take. ``lookup_test``: the test of a lookup.
        ``part``: of a part of a group, the bits of its ``predicates`` in the whole, and the whole's size.
        """
        places, size = part or (range(len(predicates)), len(predicates))
        self.field = name
        self.size = size
        self._watch = watch
        self._absent = self._present = 0
        self._exact: dict[str, int] = {}
        self._exact_cased: dict[str, int] = {}
        self._numbers: dict[float, int] = {}
        self._networks: list[tuple[int, Any]] = []
        self._within: list[tuple[int, str]] = []
        self._begins: list[tuple[int, str]] = []
        self._ends: list[tuple[int, str]] = []
        """Plain searches of the folded text, not scanned: without a call each."""
        self._others: list[tuple[int, Test]] = []
        folded: list[tuple[int, Predicate]] = []
        raw: list[tuple[int, Predicate]] = []
        for place, p in zip(places, predicates, strict=True):
            bit = 1 << place
            match p.op:
                case Op.NULL:
                    self._absent |= bit
                case Op.EXISTS:
                    self._present |= bit
                case Op.EXACT:
                    table = self._exact_cased if p.cased else self._exact
                    table[str(p.value)] = table.get(str(p.value), 0) | bit
                case Op.NUMBER if isinstance(p.value, int | float):
                    self._numbers[p.value] = self._numbers.get(p.value, 0) | bit
                    self._exact_cased[repr(p.value)] = self._exact_cased.get(repr(p.value), 0) | bit
                case Op.CIDR:
                    self._networks.append((bit, event.network(str(p.value))))
                case Op.LOOKUP:
                    self._others.append((bit, lookup_test(p)))
                case _ if p.op in SEARCHES and p not in not_scanned:
                    (raw if p.cased else folded).append((place, p))
                case _:
                    self._others.append((bit, _plain_test(p, watch)))
        self._folded = self._searches(folded, False, load)
        self._raw = self._searches(raw, True, load)

    def _searches(
        self, searches: list[tuple[int, Predicate]], cased: bool, load: Callable[[bool], Find] | None
    ) -> _Scan | None:
        """The scan of ``searches``; None when they are few and plain: then they are tests."""
        if load is None or (len(searches) < SCAN_FROM and not any(p.op in PATTERNS for _, p in searches)):
            plain = {Op.CONTAINS: self._within, Op.PREFIX: self._begins, Op.SUFFIX: self._ends}
            for place, p in searches:
                if p.op in plain and not p.cased:
                    plain[p.op].append((1 << place, str(p.value)))
                else:
                    self._others.append((1 << place, _plain_test(p, self._watch)))
            return None
        return _Scan(searches, partial(load, cased), self._watch)

    def load(self) -> None:
        """Load what else the first value would; raises ValueError when that fails."""
        for scan in (self._folded, self._raw):
            if scan is not None:
                scan.load()

    def patterns(self, cased: bool) -> list[Pattern]:
        """Return those of its searches of the text as it is, or folded."""
        scan = self._raw if cased else self._folded
        return [] if scan is None else scan.patterns()

    @property
    def scans(self) -> bool:
        """Whether a value costs a scan."""
        return self._folded is not None or self._raw is not None

    @property
    def scanned(self) -> tuple[bool, bool]:
        """Whether searches of the folded text, and of the text as it is, are scans."""
        return self._folded is not None, self._raw is not None

    def bits(self, value: Any) -> int:
        """The truth of every predicate for a field value (``ABSENT`` when the event has no such field).

        Above the ``size`` bits of truth stand as many for the predicates that are undecided.
        """
        if value is ABSENT:
            return self._absent
        if value is None:
            return self._absent | self._present
        if type(value) is str:
            bits = self._of_text(value, 0)
            return self._present | (bits if bits < 1 << self.size else self._settled(bits))
        return self._present | self.any_bits(leaves(value))

    def any_bits(self, values: Iterable[Any]) -> int:
        """The same for several values: a predicate holds when it does for one of them."""
        bits = 0
        for value in values:
            value_text = text(value)
            if value_text is not None:
                bits |= self._of_text(value_text, bits)
                if self._numbers and type(value) is not str and type(value) is not bool:
                    bits |= self._numbers.get(value, 0)
        return self._settled(bits)

    def _settled(self, bits: int) -> int:
        """``bits`` without what is undecided for one value and true for another."""
        size = self.size
        true = bits & (1 << size) - 1
        return true | (bits >> size & ~true) << size

    def _of_text(self, value: str, earlier: int) -> int:
        """The bits of one text; what held for ``earlier`` values is perhaps not asked again: one timeout per predicate
        and event."""
        folded = value.lower() if value.isascii() else fold(value)
        bits = self._exact.get(folded, 0)
        if self._exact_cased:
            bits |= self._exact_cased.get(value, 0)
        for bit, part in self._within:
            if part in folded:
                bits |= bit
        for bit, part in self._begins:
            if folded.startswith(part):
                bits |= bit
        for bit, part in self._ends:
            if folded.endswith(part):
                bits |= bit
        undecided = 0
        if self._folded is not None:
            hits, undecided = self._folded.bits(folded)
            bits |= hits
        if self._raw is not None:
            hits, open_ = self._raw.bits(value)
            bits, undecided = bits | hits, undecided | open_
        if self._networks:
            own = event.address(value)
            for bit, network in self._networks if own else ():
                if own in network:
                    bits |= bit
        if self._others:
            earlier |= earlier >> self.size
            for bit, test in self._others:
                if earlier & bit:
                    continue
                try:
                    if test(value, folded):
                        bits |= bit
                except Undecided:
                    undecided |= bit
        return bits | undecided << self.size if undecided else bits


class _Scan:
    """Searches over the same text, in one pass; nothing is loaded before the first."""

    __slots__ = ("_find", "_load", "_searches", "_tests", "_watch")

    def __init__(self, searches: list[tuple[int, Predicate]], load: Callable[[], Find], watch: Watch) -> None:
        self._load, self._watch = load, watch
        self._searches = searches
        """By number the place of a search's bit: bits of thousands of places would take 10 MB."""
        self._find: Find | None = None
        self._tests: dict[int, tuple[int, End, Test | None]] = {}
        """By number, of the searches that were hit."""

    def patterns(self) -> list[Pattern]:
        """Raises ValueError when a search cannot be made."""
        return [search(p).pattern for _, p in self._searches]

    def load(self) -> None:
        """Raises ValueError when a search cannot be made, or its database not be loaded."""
        self._find = self._find or self._load()
        for i in range(len(self._searches)):
            self._test(i)

    def _test(self, i: int) -> tuple[int, End, Test | None]:
        place, p = self._searches[i]
        try:
            plain = _plain_test(p, self._watch)
        except ValueError:  # the second engine cannot read it
            plain = None
        compiled = self._tests[i] = 1 << place, search(p).end, plain
        return compiled

    def bits(self, value: str) -> tuple[int, int]:
        """The searches that hold for ``value``; those that are undecided."""
        data = value.encode("utf-8", "replace")
        if self._find is None:
            self._find = self._load()
        hits = self._find(data + PAD)
        bits = undecided = 0
        for i, to in hits:
            bit, end, plain = self._tests.get(i) or self._test(i)
            if counts(end, to, data):
                bits |= bit
            elif end is End.PERHAPS or end is End.WITHIN:  # of several hits the library may give one in the pad
                try:
                    if plain is None:
                        raise Undecided("its only hit reaches behind the value, and the second engine cannot read it")
                    if plain(value, value):
                        bits |= bit
                except Undecided:
                    undecided |= bit
        return bits, undecided


def _plain_test(p: Predicate, watch: Watch) -> Test:
    """A predicate on one text, without Hyperscan."""
    value: Any = p.value
    if p.op in (Op.PREFIX, Op.SUFFIX, Op.CONTAINS):
        return _SEARCH[p.op, p.cased](value)
    if p.op is Op.GLOB:
        source = "".join(".*" if v == STAR else "." if v == ANY else re.escape(v) for v in value)
        full = regex.compile(source, regex.DOTALL).fullmatch
        return lambda plain, folded: watch.finds(full, plain if p.cased else folded)
    if p.op is Op.REGEX:
        second = fallback(value, p.option).search
        return lambda plain, folded: watch.finds(second, plain)
    if (test := OPERATORS[p.op].test) is not None:
        return test(value, p.option)
    raise ValueError(f"operator {p.op} needs an engine that this version lacks")


_SEARCH: dict[tuple[Op, bool], Callable[[str], Test]] = {
    (Op.PREFIX, True): lambda value: lambda plain, folded: plain.startswith(value),
    (Op.PREFIX, False): lambda value: lambda plain, folded: folded.startswith(value),
    (Op.SUFFIX, True): lambda value: lambda plain, folded: plain.endswith(value),
    (Op.SUFFIX, False): lambda value: lambda plain, folded: folded.endswith(value),
    (Op.CONTAINS, True): lambda value: lambda plain, folded: value in plain,
    (Op.CONTAINS, False): lambda value: lambda plain, folded: value in folded,
}


def of_lookup(p: Predicate, lookups: Mapping[str, Any]) -> Test:
    """The test of a lookup. One that is not there leaves it undecided: that is never "no match"."""
    lookup = lookups.get(str(p.value))
    if lookup is None:

        def absent(plain: str, folded: str) -> object:
            raise Undecided(f"the lookup {p.value} is not there")

        return absent
    holds: Callable[[object], bool] = lookup.tester(p.option)
    return lambda plain, folded: holds(plain)


def compare_fields(p: Predicate, record: Record) -> bool:
    """The truth of a ``FIELD_*`` predicate: both fields present, one pair of their texts fits.

    Lists may be long, so texts are looked up where they can be: what is cut off a text for one is begin or end of it.
    """
    own, other = _texts(record.get(p.field)), _texts(record.get(str(p.value)))
    match p.op:
        case Op.FIELD_EXACT:
            return not own.isdisjoint(other)
        case Op.FIELD_PREFIX:
            sizes = set(map(len, other))
            return any(a[:size] in other for a in own for size in sizes)
        case Op.FIELD_SUFFIX:
            sizes = set(map(len, other))
            return any(a[len(a) - size :] in other for a in own for size in sizes)
    sizes = set(map(len, other))
    if sum(map(len, own)) * len(sizes) < len(own) * len(other):
        return any(a[at : at + size] in other for a in own for size in sizes for at in range(len(a) - size + 1))
    return any(b in a for a in own for b in other)


def _texts(value: Any) -> set[str]:
    return {fold(t) for item in leaves(value) if (t := text(item)) is not None}
