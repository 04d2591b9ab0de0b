"""Which events of a chunk can match at all: one Hyperscan scan over the raw bytes of the whole chunk.

The database holds the literals of every rule that has some (``plan/literals.py``) and the guards. An event with
a hit is a **candidate** of the rules whose literal it is; a rule without literals is a candidate everywhere.
The scan never misses an event that matches; it may name too many.

Of a rule with literals of two kinds (``Plan.further``) an event must hold one of each, so a pattern says of each rule
which kind it is. Records that ``engine/join.py`` may bring together are named by the first kind alone, as the other
may be in another record. ``within`` leaves out the rules that no event of the input can meet; an event of none is not
named. A rule without literals may be found by its log source instead (``plan/witness.py``, ``excused``).

The native kernel scans and groups hits by event and rule (``kernel/src/lines.rs``). Where it is absent, ``_Plain`` does
the same with a call for each hit. By the kernel, ``engine/native.py`` then leaves out what surely does not match.

Hits come with the position of their last byte. A literal holds no newline, and in a chunk with explicit ends a hit
that straddles two events is charged to the second: too many, never too few. The database uses neither SINGLEMATCH nor
anchors, so every event with a hit is seen. Hyperscan promises no order of hits, so they are sorted. After ``MAX_HITS``
the scan of a chunk ends and each of its events is a candidate of every rule: a hostile chunk costs evaluation, not
memory.
"""

from __future__ import annotations

import functools
import hashlib
import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from struct import Struct
from sys import getsizeof
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from vedette.decode.codecs import Codec
from vedette.decode.fields import guards as guards_of
from vedette.engine import kernel
from vedette.engine.bounded import Bounded
from vedette.engine.rows import Batch
from vedette.model.event import Chunk, LogSource
from vedette.plan.database import CASELESS, LITERALS, MODULE, ONCE, Pattern, Scanner, literal
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
    rarest,
    unescaped,
)
from vedette.plan.patterns import PAD
from vedette.plan.plan import Plan
from vedette.plan.witness import witness

if TYPE_CHECKING:
    from vedette._kernel import Lines
else:
    Lines = getattr(kernel.LOADED, "Lines", None)

MAX_HITS = 1 << 16
"""Hits in one chunk after which all its events are candidates of every rule; the kernel has the same bound."""

SETS_BYTES = 8 << 20
"""About how much the sets of rules take that were named and are kept, so that one set is one object."""

DATABASE = "prefilter"
SEARCHED = "prefilter-patterns"
"""Name among the databases of the digest of what they search for."""


class Candidate(NamedTuple):
    """An event of a chunk, ``data[start:end]``, and the rules that may match it: indexes into the plan."""

    start: int
    end: int
    rules: frozenset[int]


class Sure(frozenset[int]):
    """Rules of which it is known that they match: nothing is left to evaluate."""


class _Meaning(NamedTuple):
    """The meaning of hits of the patterns, by their numbers, for the ``size`` rules of a plan."""

    size: int
    says: list[list[int]]
    """Per pattern ``rule`` for each rule of which it is the first kind of literal, ``size + rule`` for the second. The
    last are those of numbers: hits of ``NUMBER_GUARDS`` and ``BARE_NUMBER``."""
    escapes: frozenset[int]
    """Patterns after which an event is searched again, its escapes undone."""
    single: int
    """A bit for each rule that needs the first kind alone."""
    searched: int
    """A bit for each rule that is searched for."""


class Prefilter:
    """The chunk scan of one plan; ``always`` are the rules without literals."""

    def __init__(
        self, plan: Plan, databases: Mapping[str, bytes] | None = None, rules: frozenset[int] | None = None, *,
        native: bool = True,
    ) -> None:  # fmt: skip
        """``databases``: from ``Prefilter.databases`` under this library version; else, and when they search for
        something else than is wanted under the decoders at hand, they are compiled here.

        ``rules``: all that is searched for; None: every rule. ``native``: by the kernel, where it is present.
        """
        size = len(plan.rules)
        rules = frozenset(range(size)) if rules is None else rules
        self.always = frozenset(i for i in rules if plan.literals[i] is None)
        filtered = rules - self.always
        further: Sequence[Literals | None] = plan.further or (None,) * size
        single = {i for i in filtered if not further[i]}
        says: defaultdict[bytes, set[int]] = defaultdict(set)

        def add(guards: Iterable[bytes], numbers: Iterable[int]) -> None:
            for guard in guards:
                says[guard].update(numbers)

        numeric: set[int] = set()
        foreign: set[int] = set()
        by_field: defaultdict[str, set[int]] = defaultdict(set)
        for i in filtered:
            for clause, number in ((plan.literals[i] or (), i), (further[i] or (), size + i)):
                add(map(tolerant, clause), (number,))
                if any(map(is_numeric, clause)):
                    numeric.add(number)
                if any(map(is_foreign, clause)):
                    foreign.add(number)
            for number in tests(plan.rules[i].expr):
                by_field[plan.predicates[number].field].update((i, size + i))
        for name, asking in by_field.items():
            add(guards_of(name), asking)  # an event whose value of this field is transformed
        self._witness = {
            i: witnessed for i in self.always if (witnessed := witness(plan.rules[i].logsource)) is not None
        }
        self._sources = [rule.logsource for rule in plan.rules]
        for i, witnessed in self._witness.items():
            add(map(tolerant, witnessed.literals), (i,))
        if foreign:
            add(FOREIGN_GUARDS, foreign)
        escapes = frozenset(GUARDS if says else ())
        patterns = [Pattern(item, CASELESS) for item in sorted({*says, *escapes})]
        self._databases: dict[str, bytes] = {}
        self.native = native and Lines is not None
        self._scan: _Native | _Plain | None = None
        self.sets: Bounded[bytes | int, frozenset[int]] = Bounded(SETS_BYTES)
        if not patterns:
            return
        meaning = _Meaning(
            size,
            [*(sorted(says.get(item.expression, ())) for item in patterns), sorted(numeric)],
            frozenset(i for i, item in enumerate(patterns) if item.expression in escapes),
            bits_of([*single, *self._witness]),
            bits_of([*filtered, *self._witness]),
        )
        digest = hashlib.blake2b(repr((patterns, bool(numeric), NUMBER_GUARDS)).encode(), digest_size=16).digest()
        stored = databases.get(DATABASE) if databases and databases.get(SEARCHED, digest) == digest else None
        database = Scanner.compile(patterns).dump() if stored is None else stored
        self._databases = {DATABASE: database, SEARCHED: digest}
        self._scan = (_Native if self.native else _Plain)(meaning, database, self.sets)

    def excused(self, codec: Codec, logsource: LogSource) -> frozenset[int]:
        """Those of ``always`` that ``hits`` finds by what their log source's events hold, on such an input."""
        return frozenset(
            i for i, witnessed in self._witness.items() if witnessed.excuses(self._sources[i], codec, logsource)
        )

    def databases(self) -> dict[str, bytes]:
        return self._databases

    @property
    def panics(self) -> int:
        """Panics of the kernel; each made every event of a chunk a candidate of every rule."""
        return self._scan.panics if isinstance(self._scan, _Native) else 0

    def forget(self) -> None:
        """Give back the memory of what is remembered."""
        self.sets.clear()

    def hits(self, chunk: Chunk, within: int = -1, apart: bool = False) -> Iterator[Candidate]:
        """The events that hold literals, in order, with the rules these stand for (not ``always``) of ``within``.

        ``within``: a bit per rule, all when negative. ``apart``: what an event must hold may be in other events, with
        which ``engine/join.py`` brings it together.
        """
        return self._scan.hits(chunk, within, apart) if self._scan is not None and within else iter(())

    def named(self, chunk: Chunk, within: int, apart: bool, runs: bytes | None) -> bytes:
        """Return what ``hits`` gives of some ``runs`` of events, as the kernel has it."""
        return self._scan.named(chunk, within, apart, runs)[0] if isinstance(self._scan, _Native) and within else b""

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


class _Native:
    """The scan by the kernel."""

    def __init__(self, meaning: _Meaning, database: bytes, sets: Bounded[bytes | int, frozenset[int]]) -> None:
        """Raises ValueError when ``database`` cannot be loaded."""
        size, says, escapes, single, self._searched = meaning
        self._bytes = size // 8 + 1
        self._lines = Lines(MODULE, database, size, says, sorted(escapes), self._packed(single))
        self._within: dict[int, tuple[int, frozenset[int]]] = {}
        self._sets = sets

    @property
    def panics(self) -> int:
        return self._lines.panics

    def _packed(self, rules: int) -> bytes:
        return rules.to_bytes(self._bytes, "little")

    def named(self, chunk: Chunk, within: int, apart: bool, runs: bytes | None = None) -> tuple[bytes, frozenset[int]]:
        """The kernel's answer, for ``unpacked``; of some ``runs`` of events."""
        if (prepared := self._within.get(within)) is None:  # one for each kind of input
            rules = within & self._searched
            prepared = self._within[within] = self._lines.within(self._packed(rules)), frozenset(ones(rules))
        handle, everything = prepared
        return self._lines.candidates(chunk.data, chunk.ends, handle, apart, runs), everything

    def hits(self, chunk: Chunk, within: int, apart: bool) -> Iterator[Candidate]:
        answer, everything = self.named(chunk, within, apart)
        return unpacked(answer, self._sets, everything)


Gathered = tuple[list[tuple[int, int]], list[Any], list[str | None]]
"""Of events that only give rows start and end, rows, hosts."""


@overload
def unpacked(
    answer: bytes, sets: Bounded[bytes | int, frozenset[int]], everything: frozenset[int]
) -> Iterator[Candidate]: ...
@overload
def unpacked(
    answer: bytes, sets: Bounded[bytes | int, frozenset[int]], everything: frozenset[int], gathered: Gathered | None
) -> Iterator[Candidate | Batch]: ...
def unpacked(
    answer: bytes,
    sets: Bounded[bytes | int, frozenset[int]],
    everything: frozenset[int],
    gathered: Gathered | None = None,
) -> Iterator[Candidate | Batch]:
    """The kernel's answer: per event start, end, number of rules, rules. Equal sets are one object of ``sets``. Where
    ``_RUN`` is in the number these are several events, and behind the rules is which of ``gathered`` they are."""
    at, size = 0, len(answer)
    while at < size:
        start, end, count = _ROW.unpack_from(answer, at)
        at += _ROW.size
        if count == _EVERY:
            yield Candidate(start, end, everything)
            continue
        size_of = 4 * (count & ~(_SURE | _RUN))
        key = answer[at - 4 : at + size_of]
        at += size_of
        named = sets.get(key)
        if named is None:
            named = (Sure if count & _SURE else frozenset)(memoryview(key)[4:].cast("I"))
            sets.keep(key, named, ENTRY + getsizeof(key) + getsizeof(named))
        if count & _RUN and gathered is not None:
            first, last = _FROM_TO.unpack_from(answer, at)
            at += _FROM_TO.size
            spans, rows, hosts = gathered
            yield Batch(start, end, named, spans[first:last], rows[first:last], hosts[first:last])
        else:
            yield Candidate(start, end, named)


_ROW = Struct("=III")
"""Start, end, number of rules."""
_SURE = 1 << 31
"""A bit of that number: each surely matches."""
_RUN, _FROM_TO = 1 << 30, Struct("=II")
_EVERY = 0 if Lines is None else Lines.EVERY


class _Plain:
    """The scan without the kernel: a call for each hit."""

    def __init__(self, meaning: _Meaning, database: bytes, sets: Bounded[bytes | int, frozenset[int]]) -> None:
        """Raises ValueError when ``database`` cannot be loaded."""
        self._size, says, self._escapes, self._single, self._searched = meaning
        self._says = [bits_of(numbers) for numbers in says]
        self._number = len(says) - 1
        self._literals = Scanner.load(database)
        self._numbers = Scanner.compile([Pattern(guard, CASELESS) for guard in NUMBER_GUARDS]) if says[-1] else None
        self._sets = sets

    def hits(self, chunk: Chunk, within: int, apart: bool) -> Iterator[Candidate]:
        noted: list[tuple[int, int]] = []

        def note(number: int, to: int) -> bool:
            noted.append((to, number))
            return len(noted) >= MAX_HITS

        self._search(chunk.data + PAD, note)
        if len(noted) >= MAX_HITS:
            everything = self._rules(self._searched & within)
            yield from (Candidate(start, end, everything) for start, end in chunk.spans())
            return
        if self._numbers is not None:
            noted += ((end, self._number) for end in _bare_numbers(chunk))
        noted.sort()
        for (start, end), hits in groupby(noted, lambda hit: chunk.bounds(hit[0] - 1)):
            numbers = {number for _, number in hits}
            if not numbers.isdisjoint(self._escapes):
                event = chunk.data[start:end]
                forms = unescaped(event) + b"\n" + folded(event) + PAD
                self._search(forms, lambda number, _: numbers.add(number))  # noqa: B023 (called at once)
            bits = 0
            for number in numbers:
                bits |= self._says[number]
            if not apart:
                bits &= bits >> self._size | self._single
            if rules := bits & self._searched & within:
                yield Candidate(start, end, self._rules(rules))

    def _search(self, text: bytes, note: Callable[[int, int], object]) -> None:
        """Call ``note`` with the number and the end of each hit in ``text``, until it is true."""
        self._literals.scan_until(text, lambda number, _from, to, *_: bool(note(number, to)))
        if self._numbers is not None:
            self._numbers.scan_until(text, lambda _number, _from, to, *_: bool(note(self._number, to)))

    def _rules(self, bits: int) -> frozenset[int]:
        rules = self._sets.get(bits)
        if rules is None:
            rules = frozenset(ones(bits))
            self._sets.keep(bits, rules, ENTRY + getsizeof(bits) + getsizeof(rules))
        return rules


def _bare_numbers(chunk: Chunk) -> Iterator[int]:
    """The ends of events that are nothing but a number, where no character of their own stands before it."""
    for start, end in chunk.spans() if chunk.ends is not None else islice(chunk.spans(), 1):
        if BARE_NUMBER.match(chunk.data, start, end):
            yield end


ENTRY = 160
"""Bytes that an entry of a dictionary takes."""


def bits_of(rules: Collection[int]) -> int:
    """``within`` of these rules."""
    return sum(1 << rule for rule in rules)


def ones(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def tolerant(item: bytes) -> bytes:
    """The regular expression that finds a literal whether or not its codec put a backslash before ``" / \\ ] | =``,
    and with XML's ``&quot;`` for ``"``.

    What is put before the first character need not be found, nor a backslash be doubled at either end.
    """
    parts = [_TOLERANT[byte] for byte in item]
    parts[0] = rb"(?:\"|&quot;)" if item[:1] == b'"' else literal(item[:1])
    if item.endswith(b"\\"):
        parts[-1] = literal(item[-1:])
    return b"".join(parts)


_DOUBLED = {
    ord("\\"): rb"\\{1,2}",
    ord('"'): rb"(?:\\?\"|&quot;)",
    **{byte: rb"\\?" + LITERALS[byte] for byte in b"/]|="},
}
_TOLERANT = [_DOUBLED.get(byte, expression) for byte, expression in enumerate(LITERALS)]


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
            hits: list[int] = []
            scanner.scan(line + PAD, lambda number, *_, hits=hits: hits.append(number))
            for number in hits:
                row = rows.get(number)
                if row is None:
                    row = rows[number] = bytearray(width)
                row[line_number >> 3] |= 1 << (line_number & 7)
        lines_of = {number: int.from_bytes(row, "little") for number, row in rows.items()}
        guards = len(patterns) + len(NUMBER_GUARDS)
        numbers = functools.reduce(operator.or_, (lines_of.get(i, 0) for i in range(len(patterns), guards)))
        escapes = functools.reduce(operator.or_, (lines_of.get(i, 0) for i in range(guards, len(searched))))
        for number, item in enumerate(patterns):
            lines_with = lines_of.get(number, 0) | (numbers if is_numeric(item) else escapes if is_foreign(item) else 0)
            if lines_with:
                self._held[item] = lines_with

    def __call__(self, literal: bytes) -> float:
        """A literal that the sample lacks costs less than one seen, and the less the rarer it looks (``guess``)."""
        return self._held.get(literal, 0).bit_count() / self._count + min(guess(literal), 1.0 / self._count)

    def share(self, clauses: Sequence[Literals]) -> float:
        common = -1
        for clause in clauses:
            lines = 0
            for item in clause:
                lines |= self._held.get(item, 0)
            common &= lines
        return common.bit_count() / self._count

    def cut(self, literals: Collection[bytes]) -> Mapping[bytes, bytes]:
        """By literal a part of it that no more lines hold (``literals.WINDOW``)."""
        parts = rarest(literals, self._lines)
        self._measure(set(parts.values()) - self._held.keys())
        seen = self._held.get
        return {whole: part for whole, part in parts.items() if seen(part, 0).bit_count() <= seen(whole, 0).bit_count()}


MAX_LINES = 1 << 14
"""Lines of a sample that are looked at, evenly spread."""


def measured(literals: Collection[bytes], sample: bytes) -> Measured:
    """How often each of ``literals`` occurs in the lines of ``sample``, as a cost for ``plan.build``."""
    return _Sample(literals, sample)
