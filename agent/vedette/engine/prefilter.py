"""Which events of a chunk can match at all: one Hyperscan scan over the raw bytes of the whole chunk.

The database holds the literals of every rule that has some (``compiler/literals.py``) and the guards. An event with
a hit is a **candidate** of the rules that the hit stands for; a rule without literals is a candidate everywhere.
The scan never misses an event that matches; it may name too many.

Hits come with the position of their last byte. A literal holds no newline, and in a chunk with explicit ends a hit
that straddles two events is charged to the second: too many, never too few. The database uses neither SINGLEMATCH
nor anchors, so every event with a hit is seen. Hyperscan promises no order of hits, so they are sorted. After
``MAX_HITS`` the scan of a chunk ends and each of its events is a candidate of every rule: a hostile chunk costs
evaluation, not memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from vedette.compiler.ir import tests
from vedette.compiler.literals import GUARDS, NUMBER_GUARDS, Cost, guess, is_numeric
from vedette.compiler.plan import Plan
from vedette.engine.scan import CASELESS, Pattern, Scanner, literal
from vedette.event import Chunk
from vedette.inputs.provenance import guards as guards_of

MAX_HITS = 1 << 16
"""Hits in one chunk after which all its events are candidates of every rule."""

DATABASE = "prefilter"


class Candidate(NamedTuple):
    """An event of a chunk, ``data[start:end]``, and the rules that may match it: indexes into the plan."""

    start: int
    end: int
    rules: frozenset[int]


class Prefilter:
    """The chunk scan of one plan; ``always`` are the rules without literals."""

    def __init__(self, plan: Plan, databases: Mapping[str, bytes] | None = None) -> None:
        """``databases``: from ``Prefilter.databases`` under this library version; else they are compiled here."""
        self.always = frozenset(i for i, found in enumerate(plan.literals) if found is None)
        filtered = frozenset(range(len(plan.rules))) - self.always
        rules: dict[Pattern, set[int]] = {}
        for i, found in enumerate(plan.literals):
            for item in found or ():
                rules.setdefault(Pattern(tolerant(item), CASELESS), set()).add(i)
        for i in filtered:
            for name in {plan.predicates[number].field for number in tests(plan.rules[i].expr)}:
                for guard in guards_of(name):  # an event whose value of this field is transformed
                    rules.setdefault(Pattern(guard, CASELESS), set()).add(i)
        numeric = {i for i in filtered if any(map(is_numeric, plan.literals[i] or ()))}
        for guards, guarded in ((GUARDS, filtered), (NUMBER_GUARDS, numeric)):
            for guard in guards if guarded else ():
                rules.setdefault(Pattern(guard, CASELESS), set()).update(guarded)
        patterns = sorted(rules)
        self._rules = [frozenset(rules[item]) for item in patterns]
        self._all = filtered
        self._scanner: Scanner | None = None
        if patterns:
            given = (databases or {}).get(DATABASE)
            self._scanner = Scanner.load(given) if given is not None else Scanner.compile(patterns)

    def databases(self) -> dict[str, bytes]:
        return {DATABASE: self._scanner.dump()} if self._scanner is not None else {}

    def hits(self, chunk: Chunk) -> Iterator[Candidate]:
        """The events that hold a literal, in order, with the rules these literals stand for (not ``always``)."""
        if self._scanner is None:
            return
        found: list[tuple[int, int]] = []
        note = found.append

        def handler(number: int, _from: int, to: int, _flags: int, _context: Any) -> bool | None:
            note((to, number))
            return len(found) >= MAX_HITS or None

        data, ends, rules_of = chunk.data, chunk.ends, self._rules
        self._scanner.scan_until(data, handler)
        if len(found) >= MAX_HITS:
            yield from (Candidate(start, end, self._all) for start, end in chunk.spans())
            return
        found.sort()
        start = end = -1
        rules: frozenset[int] = frozenset()
        for to, number in found:
            if to <= end:
                rules |= rules_of[number]
                continue
            if end >= 0:
                yield Candidate(start, end, rules)
            rules = rules_of[number]
            if ends is None:
                start, end = data.rfind(b"\n", 0, to - 1) + 1, data.index(b"\n", to - 1)
            else:
                i = bisect_right(ends, to - 1)
                start, end = (ends[i - 1] if i else 0), ends[i]
        if end >= 0:
            yield Candidate(start, end, rules)

    def candidates(self, chunk: Chunk, always: frozenset[int]) -> Iterator[Candidate]:
        """Every event that can match, in order; ``always`` is the part of the rules without literals to consider."""
        if not always:
            yield from self.hits(chunk)
            return
        hits = self.hits(chunk)
        hit = next(hits, None)
        for start, end in chunk.spans():
            if hit is not None and hit.start == start:
                yield Candidate(start, end, hit.rules | always)
                hit = next(hits, None)
            else:
                yield Candidate(start, end, always)


def tolerant(item: bytes) -> bytes:
    """The regular expression that finds a literal whether or not its codec put a backslash before ``" / \\ ] | =``,
    and with XML's ``&quot;`` for ``"``."""
    return b"".join(_TOLERANT.get(char) or literal(char) for char in (item[i : i + 1] for i in range(len(item))))


_TOLERANT = {
    b"\\": rb"\\{1,2}",
    b'"': rb"(?:\\?\"|&quot;)",
    **{char: rb"\\?" + literal(char) for char in (b"/", b"]", b"|", b"=")},
}


def measured(literals: set[bytes], sample: bytes) -> Cost:
    """How often each of ``literals`` occurs in the lines of ``sample``, as a cost for ``plan.build``.

    A literal that the sample lacks costs less than one seen, and the less the rarer it looks (``guess``).
    """
    lines = max(1, sample.count(b"\n"))
    patterns = sorted(literals)
    if not patterns:
        return guess
    counts = dict.fromkeys(patterns, 0)
    scanner = Scanner.compile([Pattern(tolerant(item), CASELESS) for item in patterns])

    def handler(number: int, _from: int, _to: int, _flags: int, _context: Any) -> None:
        counts[patterns[number]] += 1

    scanner.scan(sample, handler)

    def cost(item: bytes) -> float:
        return counts.get(item, 0) / lines + min(guess(item), 1.0 / lines)

    return cost
