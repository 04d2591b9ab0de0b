"""Which rules are true for one event: predicates by field group, rules as boolean programs over their bits.

All predicates of a plan are grouped by field. For one field value the answers of its whole group are one integer,
bit *i* for the group's predicate *i* (``group.py``). A rule is an expression over those bits, compiled to a Python
function when it is first a candidate. What a predicate means is in ``plan/ir.py``; ``tests/reference.py``
says the same without groups, bits or Hyperscan, and property tests hold the two together.

A predicate whose test ran out of time is *undecided* for the event, and so is each rule whose truth hangs on it, no
other. A rule that raises is undecided, too: a defect in one rule takes no other with it.

Only what the rules in question need is evaluated (``Among``): of a large group the few plain predicates that they test
are tested one by one, without the scan. Answers are kept for whole events only (``match.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgpack

from vedette.decode.decoder import Record
from vedette.engine.fallback import TIMEOUT, Watch
from vedette.engine.group import PATTERNS, SEARCHES, Find, Group, Hit, compare_fields, of_lookup
from vedette.plan.database import Scanner, refused
from vedette.plan.ir import FIELD_OPS, KEYWORDS, And, Expr, Leaf, Not, Op, Or, Predicate, tests
from vedette.plan.operators import Test
from vedette.plan.patterns import search
from vedette.plan.plan import Plan

AMONG_BYTES, MEMBER_BYTES, SEARCH_BYTES = 2000, 250, 700
"""About what a set of rules takes, prepared: for itself; for each rule and each group; for each search of a part of a
group that was made for it."""

FEW = 12
"""Plain searches of a scanned group up to which testing them one by one is cheaper than the scan with its hits."""


def _value(record: Record, name: str) -> Any:
    """What the predicates of the field ``name`` test."""
    return list(record.keywords()) if name == KEYWORDS else record.get(name)


class Unreadable(Exception):
    """A decoder raised (``__cause__``): a fault of the event, not of the rule that asked."""


def _read(get: Callable[[], Any]) -> Any:
    try:
        return get()
    except Exception as error:
        raise Unreadable from error


GROUP = "group-"
"""Begins the names of the groups' databases; each is loaded when the first value is searched for."""
REFUSED = "refused"
"""Name among a plan's databases of the msgpack list of predicates that Hyperscan does not take."""

Program = Callable[[Callable[[int], int], Callable[[int], bool]], object]
"""A rule: called with ``bits of group`` and ``truth of field comparison``."""


Hits = Callable[[int, bool, bytes], list[Hit]]
"""Of a group, of the text as it is or folded: ``Find``."""


@dataclass(slots=True)
class Among:
    """A set of rules, prepared to be asked about many events."""

    programs: list[tuple[int, Program]]
    groups: dict[int, Group]
    """Per group that they test, the part of it that they need, or the whole."""
    weight: int
    """About how many bytes it takes."""


class Evaluator:
    """The rules of a plan, ready to be asked about events."""

    def __init__(self, plan: Plan, databases: Mapping[str, bytes] | None = None) -> None:
        """``databases``: what ``databases()`` gave under this ``LIBRARY``; without them they are compiled here."""
        self._plan = plan
        self._compiled: dict[str, bytes] = {}
        self._hits: Hits | None = None
        self._watch = Watch()
        self._place: dict[int, tuple[int, int]] = {}
        """Group and number of the bit: the bits themselves would take 10 MB for 30,000 predicates."""
        given = self._given = databases or {}
        if REFUSED in given:
            self.refused = frozenset[int](msgpack.unpackb(given[REFUSED]))
        else:
            tried = [number for number, p in enumerate(plan.predicates) if p.op in (Op.REGEX, Op.GLOB)]
            found = refused([search(plan.predicates[number]).pattern for number in tried])
            self.refused = frozenset(tried[i] for i in found)
        not_scanned = {plan.predicates[number] for number in self.refused}
        # A pattern for the fallback engine is a group of its own: it runs when a rule hangs on it, and then only.
        by_field: dict[tuple[str, int], list[int]] = {}
        for number, p in enumerate(plan.predicates):
            if p.op not in FIELD_OPS:
                by_field.setdefault((p.field, number if number in self.refused else -1), []).append(number)
        for name, data in given.items():
            if name.startswith(GROUP):
                Scanner.look(data)
        self.groups: list[Group] = []
        self.members = list(by_field.values())
        """By group the numbers of its predicates, by bit."""
        for i, ((name, _), numbers) in enumerate(by_field.items()):
            members = [plan.predicates[number] for number in numbers]
            self.groups.append(Group(name, members, not_scanned, partial(self._finder, i), self._watch, self._test))
            self._place.update((number, (i, bit)) for bit, number in enumerate(numbers))
        self._programs: list[Program | None] = [None] * len(plan.rules)

    def _test(self, p: Predicate) -> Test:
        return of_lookup(p, self._plan.lookups)

    def search_by(self, hits: Hits) -> None:
        """Search in another's copy of the databases, and let go of those that were given."""
        self._hits, self._given = hits, {}

    def _finder(self, group: int, cased: bool) -> Find:
        return partial(self._hits, group, cased) if self._hits else Scanner.load(self.database(group, cased)).hits

    def database(self, group: int, cased: bool) -> bytes:
        """The compiled searches of the text as it is (``cased``), or folded, of a group that has some."""
        name = f"{GROUP}{group}-{'raw' if cased else 'folded'}"
        if name in self._given:
            return self._given[name]
        if name not in self._compiled:
            self._compiled[name] = Scanner.compile(self.groups[group].patterns(cased)).dump()
        return self._compiled[name]

    def compile(self) -> None:
        """Compile at once the groups whose databases were not given, which else happens at their first value."""
        for i, group in enumerate(self.groups) if self._hits is None else ():
            for cased in (False, True):
                if group.scanned[cased]:
                    self.database(i, cased)

    def load(self) -> None:
        """Load at once what else the first values would; raises ValueError when that fails."""
        for group in self.groups:
            group.load()

    def databases(self) -> dict[str, bytes]:
        """The compiled groups, by name, for a bundle or a cache; without those that were given and let go."""
        self.compile()
        given = {name: data for name, data in self._given.items() if name.startswith(GROUP)}
        return {REFUSED: msgpack.packb(sorted(self.refused)), **given, **self._compiled}

    @property
    def fallback(self) -> list[Predicate]:
        """The predicates that run on the ``regex`` module because Hyperscan does not take them."""
        return [self._plan.predicates[number] for number in sorted(self.refused)]

    def holds(self, number: int, record: Record) -> bool | None:
        """The truth of one predicate for ``record``; None when it takes too long."""
        predicate = self._plan.predicates[number]
        if predicate.op in FIELD_OPS:
            return compare_fields(predicate, record)
        self._watch.begin()
        index, bit = self._place[number]
        group = self.groups[index]
        known = group.any_bits(record.keywords()) if group.field == KEYWORDS else group.bits(record.get(group.field))
        return None if known >> group.size + bit & 1 else bool(known >> bit & 1)

    def place(self, number: int) -> tuple[int, int] | None:
        """Group and bit of a predicate; None for one that compares two fields."""
        return self._place.get(number)

    def among(self, record: Record, among: Among, undecided: Callable[[int, str], None]) -> list[int]:
        """The rules of ``among`` that are true for ``record``, in its order.

        ``undecided(rule, reason)`` is called for a rule whose truth hangs on a fallback pattern that took too long, or
        whose evaluation raised. What a decoder raises is raised.
        """
        self._watch.begin()
        memo: dict[int, int] = {}
        doubt = False
        groups = among.groups

        def bits(number: int) -> int:
            nonlocal doubt
            known = memo.get(number)
            if known is None:
                group = groups[number]
                name = group.field
                try:
                    value = _value(record, name)
                except Exception as error:
                    raise Unreadable from error
                known = memo[number] = group.any_bits(value) if name == KEYWORDS else group.bits(value)
                doubt = doubt or known >> group.size != 0
            return known

        def fields(number: int) -> bool:
            return bool(_read(lambda: compare_fields(self._plan.predicates[number], record)))

        found = []
        for rule, program in among.programs:
            try:
                truth: object = program(bits, fields)
                if doubt:
                    truth = self._decide(self._plan.rules[rule].expr, bits, fields)
                    if truth is None:
                        undecided(rule, f"a pattern took longer than {TIMEOUT} s")
            except Unreadable as error:
                raise error.__cause__ or error from None
            except Exception as error:
                truth = None
                undecided(rule, f"its evaluation raised {type(error).__name__}: {error}"[:200])
            if truth:
                found.append(rule)
        return found

    def fields(self, rules: Iterable[int]) -> set[str]:
        """All fields that the truth of ``rules`` depends on."""
        asked = set()
        for rule in rules:
            for number in tests(self._plan.rules[rule].expr):
                p = self._plan.predicates[number]
                asked.add(p.field)
                if p.op in FIELD_OPS:
                    asked.add(str(p.value))
        return asked

    def prepare(self, rules: Iterable[int]) -> Among:
        """``rules`` (indexes into the plan) for ``among``."""
        predicates, plan = self._plan.predicates, self._plan
        rules = tuple(rules)
        wanted: dict[int, dict[int, Predicate]] = {}
        for rule in rules:
            for number in tests(plan.rules[rule].expr):
                p = predicates[number]
                if number in self._place:
                    group, bit = self._place[number]
                    wanted.setdefault(group, {})[bit] = p
        programs = [(rule, self._programs[rule] or self._compile(rule)) for rule in rules]
        groups, searched = {}, 0
        for group, members in wanted.items():
            whole = self.groups[group]
            groups[group] = whole
            searches = sum(p.op in SEARCHES for p in members.values())
            if whole.scans and searches <= FEW and not any(p.op in PATTERNS for p in members.values()):
                groups[group] = Group(
                    whole.field, list(members.values()), (), None, self._watch, self._test, (list(members), whole.size)
                )
                searched += len(members)
        weight = AMONG_BYTES + MEMBER_BYTES * (len(programs) + len(groups)) + SEARCH_BYTES * searched
        return Among(programs, groups, weight)

    def _decide(self, expr: Expr, bits: Callable[[int], int], fields: Callable[[int], bool]) -> bool | None:
        """The truth of ``expr`` where predicates may be undecided (Kleene's logic); None when it hangs on them."""
        match expr:
            case Leaf(number):
                if number not in self._place:
                    return fields(number)
                group, bit = self._place[number]
                known = bits(group)
                return None if known >> self.groups[group].size + bit & 1 else bool(known >> bit & 1)
            case Not(arg):
                truth = self._decide(arg, bits, fields)
                return None if truth is None else not truth
            case And(args) | Or(args):
                truths = {self._decide(arg, bits, fields) for arg in args}
                settled = isinstance(expr, Or)
                return settled if settled in truths else None if None in truths else not settled

    def _compile(self, rule: int) -> Program:
        source = f"lambda g, f: {self._source(self._plan.rules[rule].expr)}"
        program: Program = eval(compile(source, f"<rule {self._plan.rules[rule].id}>", "eval"), {})  # noqa: S307
        self._programs[rule] = program
        return program

    def _source(self, expr: Expr) -> str:
        """``expr`` as Python over ``g(group) & mask`` and ``f(predicate)``: numbers only, no text of the rule."""
        match expr:
            case Leaf(number):
                if number not in self._place:
                    return f"f({number})"
                group, bit = self._place[number]
                return f"g({group})&{1 << bit:#x}"
            case Not(arg):
                return f"not({self._source(arg)})"
            case And(args):
                masks, rest = self._merge(args)
                tests = [f"g({group})&{mask:#x}=={mask:#x}" for group, mask in masks.items()]
                return " and ".join([*tests, *(f"({self._source(arg)})" for arg in rest)]) or "True"
            case Or(args):
                masks, rest = self._merge(args)
                tests = [f"g({group})&{mask:#x}" for group, mask in masks.items()]
                return " or ".join([*tests, *(f"({self._source(arg)})" for arg in rest)])

    def _merge(self, args: Iterable[Expr]) -> tuple[dict[int, int], list[Expr]]:
        """The leaves of one AND or OR as one mask per group; and the other arguments."""
        masks: dict[int, int] = {}
        rest: list[Expr] = []
        for arg in args:
            if isinstance(arg, Leaf) and arg.predicate in self._place:
                group, bit = self._place[arg.predicate]
                masks[group] = masks.get(group, 0) | 1 << bit
            else:
                rest.append(arg)
        return masks, rest
