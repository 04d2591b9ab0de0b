"""Which events of a chunk can match at all: one Hyperscan scan over the raw bytes of the whole chunk.

The database holds the literals of every rule that has some (``plan/literals.py``) and the guards. An event with
a hit is a **candidate** of the rules that the hit stands for; a rule without literals is a candidate everywhere.
The scan never misses an event that matches; it may name too many.

Of a rule with literals of two kinds (``Plan.further``) an event must hold one of each. What an event holds is an
integer of two bits a rule, one per kind, and so is what each pattern says: the rules of an event are an OR per hit, one
AND and a look-up. Records that ``engine/join.py`` may bring together are named by the first kind alone, as the other
may be in another record. ``within`` leaves out the rules that no event of the input can meet; an event of none is not
named. A rule without literals may be found by its log source instead (``plan/witness.py``, ``excused``).

Events that hold many literals are scanned one by one, by a second database of the same patterns that reports each hit
once: which of the two is used is a matter of cost alone, decided from the chunk before.

Hits come with the position of their last byte. A literal holds no newline, and in a chunk with explicit ends a hit
that straddles two events is charged to the second: too many, never too few. The chunks' database uses neither
SINGLEMATCH nor anchors, so every event with a hit is seen. Hyperscan promises no order of hits, so they are sorted.
After ``MAX_HITS`` the scan of a chunk ends and each of its events is a candidate of every rule: a hostile chunk costs
evaluation, not memory.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from sys import getsizeof
from typing import Any, NamedTuple

from vedette.decode.fields import guards as guards_of
from vedette.engine.bounded import Bounded
from vedette.model.event import Chunk, LogSource
from vedette.plan.database import CASELESS, ONCE, Pattern, Scanner, literal
from vedette.plan.ir import tests
from vedette.plan.literals import (
    BARE_NUMBER,
    FOREIGN_GUARDS,
    GUARDS,
    NUMBER_GUARDS,
    Literals,
    Measured,
    folded,
    guess,
    is_foreign,
    is_numeric,
    unescaped,
)
from vedette.plan.patterns import PAD
from vedette.plan.plan import Plan
from vedette.plan.window import rarest
from vedette.plan.witness import witness

MAX_HITS = 1 << 16
"""Hits in one chunk after which all its events are candidates of every rule."""

REMEMBERED_BYTES = 8 << 20
"""About how much the sets of rules take that are remembered by what was hit, and as much by what the hits say."""
FEW_HITS = 16
"""Hits of an event up to which what they say is remembered by the hits themselves."""

DATABASE = "prefilter"
ONCE_DATABASE = "prefilter-once"
NUMBERS_DATABASE = "prefilter-numbers"
"""``NUMBER_GUARDS`` alone: beside the literals they would cost as much as these."""
SEARCHED = "prefilter-patterns"
"""Name among the databases of the digest of what they search for."""

DENSE = 6
"""Hits an event from which events are scanned one by one: a call costs two hits, a literal is reported once."""


class Candidate(NamedTuple):
    """An event of a chunk, ``data[start:end]``, and the rules that may match it: indexes into the plan."""

    start: int
    end: int
    rules: frozenset[int]


class Prefilter:
    """The chunk scan of one plan; ``always`` are the rules without literals."""

    def __init__(
        self, plan: Plan, databases: Mapping[str, bytes] | None = None, rules: frozenset[int] | None = None
    ) -> None:
        """``databases``: from ``Prefilter.databases`` under this library version; else, and when they search for
        something else than is wanted under the decoders at hand, they are compiled here.

        ``rules``: all that is searched for; None: every rule.
        """
        self._size = size = len(plan.rules)
        rules = frozenset(range(size)) if rules is None else rules
        self.always = frozenset(i for i in rules if plan.literals[i] is None)
        filtered = rules - self.always
        further: Sequence[Literals | None] = plan.further or (None,) * size
        self._whole = (1 << size) - 1
        self._single = sum(1 << size + i for i in filtered if not further[i])
        says: dict[Pattern, int] = {}

        def add(guards: Iterable[bytes], bits: int) -> None:
            for item in (Pattern(guard, CASELESS) for guard in guards if bits):
                says[item] = says.get(item, 0) | bits

        numeric = foreign = 0
        for i in filtered:
            both = 1 << i | 1 << size + i
            for clause, bit in ((plan.literals[i], 1 << i), (further[i], 1 << size + i)):
                add(map(tolerant, clause or ()), bit)
                numeric |= bit if any(map(is_numeric, clause or ())) else 0
                foreign |= bit if any(map(is_foreign, clause or ())) else 0
            for name in {plan.predicates[number].field for number in tests(plan.rules[i].expr)}:
                add(guards_of(name), both)  # an event whose value of this field is transformed
        self._witness = {i: found for i in self.always if (found := witness(plan.rules[i].logsource)) is not None}
        self._all = bits_of([*filtered, *self._witness])
        self._sources = [rule.logsource for rule in plan.rules]
        for i, found in self._witness.items():
            add(map(tolerant, found.literals), 1 << i)
            self._single |= 1 << size + i
        add(FOREIGN_GUARDS, foreign)
        escapes = {Pattern(guard, CASELESS) for guard in GUARDS} if says else set()
        patterns = sorted({*says, *escapes})
        self._number = len(patterns)
        """What hits of ``NUMBER_GUARDS`` are noted as."""
        self._says = [*(says.get(item, 0) for item in patterns), numeric]
        self._escapes = frozenset(i for i, item in enumerate(patterns) if item in escapes)
        self._sets: Bounded[int, frozenset[int]] = Bounded(REMEMBERED_BYTES)
        self._known_hits: Bounded[_Hits, frozenset[int]] = Bounded(REMEMBERED_BYTES)
        self._kinds: dict[tuple[int, bool], int] = {}
        """(``within``, ``apart``), numbered below the patterns: the first number of each key of ``_known_hits``."""
        self._rule_numbers = tuple(range(size))
        self._scanner: Scanner | None = None
        self._once: Scanner | None = None
        self._numbers: Scanner | None = None
        self._dense: dict[str, bool] = {}
        if patterns:
            once = [Pattern(item.expression, item.flags | ONCE) for item in patterns]
            searched = (patterns, bool(numeric), NUMBER_GUARDS)
            self._digest = hashlib.blake2b(repr(searched).encode(), digest_size=16).digest()
            known = databases if databases and databases.get(SEARCHED, self._digest) == self._digest else {}

            def scanner(name: str, wanted: list[Pattern]) -> Scanner:
                given = known.get(name)
                return Scanner.load(given) if given is not None else Scanner.compile(wanted)

            self._scanner, self._once = scanner(DATABASE, patterns), scanner(ONCE_DATABASE, once)
            if numeric:
                self._numbers = scanner(NUMBERS_DATABASE, [Pattern(guard, CASELESS) for guard in NUMBER_GUARDS])

    def excused(self, codec: str, logsource: LogSource) -> frozenset[int]:
        """Those of ``always`` that ``hits`` finds by what their log source's events hold, on such an input."""
        return frozenset(i for i, one in self._witness.items() if one.excuses(self._sources[i], codec, logsource))

    def databases(self) -> dict[str, bytes]:
        if self._scanner is None or self._once is None:
            return {}
        numbers = {NUMBERS_DATABASE: self._numbers.dump()} if self._numbers is not None else {}
        return {DATABASE: self._scanner.dump(), ONCE_DATABASE: self._once.dump(), **numbers, SEARCHED: self._digest}

    def forget(self) -> None:
        """Give back the memory of what is remembered."""
        self._sets.clear()
        self._known_hits.clear()

    def hits(self, chunk: Chunk, within: int = -1, apart: bool = False) -> Iterator[Candidate]:
        """The events that hold literals, in order, with the rules these stand for (not ``always``) of ``within``.

        ``within``: a bit per rule, all when negative. ``apart``: what an event must hold may be in other events, with
        which ``engine/join.py`` brings it together.
        """
        if self._scanner is None or not within:
            return
        if self._dense.get(chunk.codec):
            yield from self._each(chunk, within, apart)
            return
        found: list[tuple[int, int]] = []
        note = found.append

        def handler(number: int, _from: int, to: int, _flags: int, _context: Any) -> bool | None:
            note((to, number))
            return len(found) >= MAX_HITS or None

        data, ends = chunk.data, chunk.ends
        padded = data + PAD
        self._scanner.scan_until(padded, handler)  # no literal and no guard holds a newline
        numbers = self._number_ends(chunk, padded) if len(found) < MAX_HITS else None
        if numbers is None:
            everything = self._rules(self._all & within)
            yield from (Candidate(start, end, everything) for start, end in chunk.spans())
            return
        self._dense[chunk.codec] = len(found) > DENSE * len(chunk)
        found += ((end, self._number) for end in numbers)
        found.sort()
        found.append((_NEVER, 0))
        known_hits, kind = self._known_hits, self._kind(within, apart)
        start = end = -1
        hit: list[int] = []
        for to, number in found:
            if to <= end:
                hit.append(number)
                continue
            if hit:
                rules = known_hits.get(tuple(hit))
                if rules is None:
                    rules = self._rules_hit(hit, data[start:end], within, apart)
                if rules:
                    yield Candidate(start, end, rules)
            if to == _NEVER:
                return
            hit = [kind, number]
            if ends is None:
                start, end = data.rfind(b"\n", 0, to - 1) + 1, data.index(b"\n", to - 1)
            else:
                i = bisect_right(ends, to - 1)
                start, end = (ends[i - 1] if i else 0), ends[i]

    def _kind(self, within: int, apart: bool) -> int:
        """What stands for the two in the keys of ``_known_hits``."""
        return self._kinds.setdefault((within, apart), ~len(self._kinds))

    def _rules_hit(self, hit: Sequence[int], event: bytes, within: int, apart: bool) -> frozenset[int]:
        """The rules of ``event``, in which the patterns ``hit[1:]`` were hit; kept by ``hit`` where it says it all."""
        held, says, again = 0, self._says, False
        for number in hit[1:]:
            held |= says[number]
            again = again or number in self._escapes
        if again:
            return self._named(held | self._searched_again(event), apart, within)
        rules = self._named(held, apart, within)
        if len(hit) - 1 <= FEW_HITS:
            self._known_hits.keep(tuple(hit), rules, ENTRY + HIT * len(hit))
        return rules

    def _number_ends(self, chunk: Chunk, padded: bytes) -> list[int] | None:
        """Where in ``chunk`` the numbers end that ``NUMBER_GUARDS`` find; None: too many to say."""
        if self._numbers is None:
            return []
        found: list[int] = []
        note = found.append

        def handler(_number: int, _from: int, to: int, _flags: int, _context: Any) -> bool | None:
            note(to)
            return len(found) >= MAX_HITS or None

        self._numbers.scan_until(padded, handler)
        return None if len(found) >= MAX_HITS else [*found, *_bare_numbers(chunk, padded)]

    def _each(self, chunk: Chunk, within: int, apart: bool) -> Iterator[Candidate]:
        """``hits`` by one scan an event, for events that hold many literals."""
        assert self._once is not None
        data, scan = chunk.data, self._once.scan
        kind = self._kind(within, apart)
        hits: list[int] = [kind]
        note = hits.append
        total = events = 0
        numbers = self._number_ends(chunk, data + PAD) if self._numbers is not None else []
        at_number = iter(sorted(numbers) if numbers is not None else ())
        number_end = next(at_number, _NEVER)
        known_hits = self._known_hits

        def handler(number: int, _from: int, _to: int, _flags: int, _context: Any) -> None:
            note(number)

        for start, end in chunk.spans():
            scan(data[start:end] + PAD, handler)
            events += 1
            total += len(hits) - 1
            if numbers is None or number_end <= end:
                note(self._number)
                while number_end <= end:
                    number_end = next(at_number, _NEVER)
            if len(hits) > 1:
                rules = known_hits.get(tuple(hits))
                if rules is None:
                    rules = self._rules_hit(hits, data[start:end], within, apart)
                del hits[1:]
                if rules:
                    yield Candidate(start, end, rules)
        self._dense[chunk.codec] = total * 2 > DENSE * events

    def _named(self, held: int, apart: bool, within: int) -> frozenset[int]:
        """The rules of an event in which patterns were hit that say ``held``."""
        if not apart:
            held &= (held | self._single) >> self._size
        return self._rules(held & self._whole & within)

    def _rules(self, bits: int) -> frozenset[int]:
        known = self._sets.get(bits)
        if known is None:
            known = frozenset(map(self._rule_numbers.__getitem__, _ones(bits)))
            self._sets.keep(bits, known, ENTRY + getsizeof(bits) + getsizeof(known))
        return known

    def _searched_again(self, event: bytes) -> int:
        """What the patterns say that ``event`` holds once its escapes are undone."""
        found: set[int] = set()
        scanner = self._scanner
        assert scanner is not None
        forms = unescaped(event) + b"\n" + folded(event) + PAD
        scanner.scan(forms, lambda number, *_: found.add(number))
        if self._numbers is not None:
            self._numbers.scan(forms, lambda *_: found.add(self._number))
        held = 0
        for number in found:
            held |= self._says[number]
        return held

    def candidates(
        self, chunk: Chunk, always: frozenset[int], within: int = -1, apart: bool = False
    ) -> Iterator[Candidate]:
        """Every event that can match, in order; ``always`` is the part of the rules without literals to consider."""
        if not always:
            yield from self.hits(chunk, within, apart)
            return
        hits = self.hits(chunk, within, apart)
        hit = next(hits, None)
        for start, end in chunk.spans():
            if hit is not None and hit.start == start:
                yield Candidate(start, end, hit.rules | always)
                hit = next(hits, None)
            else:
                yield Candidate(start, end, always)


def _bare_numbers(chunk: Chunk, padded: bytes) -> Iterator[int]:
    """The ends of events that are nothing but a number, where no character of their own stands before it."""
    data, ends = chunk.data, chunk.ends
    if not data:
        return
    stops = (data.index(b"\n"),) if ends is None else ends
    starts = [0, *stops[:-1]]
    for first in _DIGIT.finditer(bytes(map(padded.__getitem__, starts))):
        start, end = starts[first.start()], stops[first.start()]
        if start < end and BARE_NUMBER.match(data, start):
            yield end


_NEVER = 1 << 62
"""Behind every chunk."""

_DIGIT = re.compile(rb"[-0-9]")

_Hits = tuple[int, ...]

ENTRY, HIT = 160, 36
"""Bytes that an entry of a dictionary takes, and a number in a tuple."""


def bits_of(rules: Collection[int]) -> int:
    """``within`` of these rules."""
    return sum(1 << rule for rule in rules)


def _ones(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def tolerant(item: bytes) -> bytes:
    """The regular expression that finds a literal whether or not its codec put a backslash before ``" / \\ ] | =``,
    and with XML's ``&quot;`` for ``"``.

    What is put before the first character need not be found, nor a backslash be doubled at either end.
    """
    parts = [_TOLERANT.get(char) or literal(char) for char in (item[i : i + 1] for i in range(len(item)))]
    parts[0] = rb"(?:\"|&quot;)" if item[:1] == b'"' else literal(item[:1])
    if item.endswith(b"\\"):
        parts[-1] = literal(item[-1:])
    return b"".join(parts)


_TOLERANT = {
    b"\\": rb"\\{1,2}",
    b'"': rb"(?:\\?\"|&quot;)",
    **{char: rb"\\?" + literal(char) for char in (b"/", b"]", b"|", b"=")},
}


class _Sample:
    """Which lines of a sample hold which literals: a bit a line."""

    def __init__(self, literals: Collection[bytes], sample: bytes) -> None:
        lines = sample.splitlines()
        self._lines = lines[:: len(lines) // MAX_LINES + 1]
        self._count = max(1, len(self._lines))
        self._held: dict[bytes, int] = {}
        self._measure(literals)

    def _measure(self, literals: Collection[bytes]) -> None:
        patterns = sorted(literals)
        if not patterns:
            return
        searched = [*map(tolerant, patterns), *NUMBER_GUARDS, *FOREIGN_GUARDS]
        scanner = Scanner.compile([Pattern(item, CASELESS | ONCE) for item in searched])
        rows: dict[int, bytearray] = {}
        width = len(self._lines) // 8 + 1
        for line_number, line in enumerate(self._lines):
            found: list[int] = []
            scanner.scan(line + PAD, lambda number, *_, found=found: found.append(number))
            for number in found:
                row = rows.get(number)
                if row is None:
                    row = rows[number] = bytearray(width)
                row[line_number >> 3] |= 1 << (line_number & 7)
        held = {number: int.from_bytes(row, "little") for number, row in rows.items()}
        guards = len(patterns) + len(NUMBER_GUARDS)
        numbers = functools.reduce(operator.or_, (held.get(i, 0) for i in range(len(patterns), guards)))
        escapes = functools.reduce(operator.or_, (held.get(i, 0) for i in range(guards, len(searched))))
        for number, item in enumerate(patterns):
            lines_with = held.get(number, 0) | (numbers if is_numeric(item) else escapes if is_foreign(item) else 0)
            if lines_with:
                self._held[item] = lines_with

    def __call__(self, literal: bytes) -> float:
        """A literal that the sample lacks costs less than one seen, and the less the rarer it looks (``guess``)."""
        return self._held.get(literal, 0).bit_count() / self._count + min(guess(literal), 1.0 / self._count)

    def share(self, clauses: Sequence[Literals]) -> float:
        held = -1
        for clause in clauses:
            lines = 0
            for item in clause:
                lines |= self._held.get(item, 0)
            held &= lines
        return held.bit_count() / self._count

    def cut(self, literals: Collection[bytes]) -> Mapping[bytes, bytes]:
        """By literal a part of it that no more lines hold (``plan/window.py``)."""
        parts = rarest(literals, self._lines)
        self._measure(set(parts.values()) - self._held.keys())
        seen = self._held.get
        return {whole: part for whole, part in parts.items() if seen(part, 0).bit_count() <= seen(whole, 0).bit_count()}


MAX_LINES = 1 << 14
"""Lines of a sample that are looked at, evenly spread."""


def measured(literals: Collection[bytes], sample: bytes) -> Measured:
    """How often each of ``literals`` occurs in the lines of ``sample``, as a cost for ``plan.build``."""
    return _Sample(literals, sample)
