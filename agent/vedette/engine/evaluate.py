"""Which rules are true for one event: predicates by field group, rules as expressions over their bits.

All predicates of a plan are grouped by field. For one field value the answers of its whole group are one integer,
bit *i* for the group's predicate *i* (``group.py``). A rule is an expression over those bits (``Node``), made when it
is first a candidate. What a predicate means is in ``plan/ir.py``; ``tests/reference.py`` says the same without groups,
bits or Hyperscan, and property tests hold the two together.

A predicate whose test ran out of time is *undecided* for the event, and so is each rule whose truth hangs on it, no
other. A rule that raises is undecided, too: a defect in one rule takes no other with it.

Only what the rules in question need is evaluated (``Among``): of a large group the few plain predicates that they test
are tested one by one, without the scan. Answers are kept for whole events only (``match.py``).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import msgpack

from vedette.decode.decoder import Record
from vedette.engine.fallback import TIMEOUT, Watch
from vedette.engine.group import PATTERNS, SEARCHES, Find, Group, Hit, compare_fields, of_lookup
from vedette.plan.database import Scanner, refused
from vedette.plan.ir import FIELD_OPS, KEYWORDS, Expr, Leaf, Not, Op, Or, Predicate, tests
from vedette.plan.operators import Test
from vedette.plan.patterns import search
from vedette.plan.plan import Plan

AMONG_BYTES, MEMBER_BYTES, SEARCH_BYTES = 2000, 250, 700
"""About what a set of rules takes, prepared: for itself; for each rule and each group; for each search of a part of a
group that was made for it."""

FEW = 12
"""Plain searches of a scanned group up to which testing them one by one is cheaper than the scan with its hits."""

GROUP = "group-"
"""Begins the names of the groups' databases; each is loaded when the first value is searched for."""
REFUSED = "refused"
"""Name among a plan's databases of the msgpack list of predicates that Hyperscan does not take."""

Answer = tuple[int, int]
"""Of a group: the bits of its predicates that are true, and of those that are undecided."""

Hits = Callable[[int, bool, bytes], list[Hit]]
"""Of a group, of the text as it is or folded: ``Find``."""


class Unreadable(Exception):
    """A decoder raised (``__cause__``): a fault of the event, not of the rule that asked."""


class Node(NamedTuple):
    """One AND or OR of a rule, those of its arguments that are predicates as one mask for each group."""

    negated: bool
    settled: bool
    """The truth of an argument that decides the whole: True for OR, False for AND."""
    masks: tuple[tuple[int, int], ...]
    """Groups, and the bits of their predicates."""
    comparisons: tuple[int, ...]
    """Predicates that compare two fields."""
    nodes: tuple[Node, ...]


class _Answers(dict[int, Answer]):
    """Answers of the groups about one event, each worked out when it is first asked for."""

    __slots__ = ("_groups", "_predicates", "_record")

    def __init__(
        self, record: Record, groups: Mapping[int, Group] | Sequence[Group], predicates: Sequence[Predicate]
    ) -> None:
        self._record = record
        self._groups = groups
        self._predicates = predicates

    def __missing__(self, number: int) -> Answer:
        group = self._groups[number]
        searched = group.field == KEYWORDS
        value: Any
        try:
            value = list(self._record.keywords()) if searched else self._record.get(group.field)
        except Exception as error:
            raise Unreadable from error
        bits = group.any_bits(value) if searched else group.bits(value)
        undecided = bits >> group.size
        answer = self[number] = (bits ^ undecided << group.size, undecided) if undecided else (bits, 0)
        return answer

    def compared(self, number: int) -> bool:
        """The truth of a predicate that compares two fields."""
        try:
            return compare_fields(self._predicates[number], self._record)
        except Exception as error:
            raise Unreadable from error


def _truth(node: Node, answers: _Answers) -> bool | None:
    """The truth of ``node`` by Kleene's logic; None when it hangs on what is undecided. Asks no more than that needs;
    raises ``Unreadable``."""
    negated, settled, masks, comparisons, nodes = node
    doubt = False
    for group, mask in masks:
        true, undecided = answers[group]
        if settled:
            if true & mask:
                return not negated
        elif (true | undecided) & mask != mask:
            return negated
        if undecided & mask:
            doubt = True
    for number in comparisons:
        if answers.compared(number) is settled:
            return settled is not negated
    for inner in nodes:
        truth = _truth(inner, answers)
        if truth is settled:
            return settled is not negated
        if truth is None:
            doubt = True
    return None if doubt else settled is negated


@dataclass(slots=True)
class Among:
    """A set of rules, prepared to be asked about many events."""

    nodes: list[tuple[int, Node]]
    """Rules (indexes into the plan) with their expressions."""
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
        self._group, self._bit = (array("i", [-1]) * len(plan.predicates) for _ in range(2))
        """Of each predicate its group and the number of its bit; the bits themselves would take 10 MB for 30,000."""
        supplied = self._supplied = databases or {}
        if REFUSED in supplied:
            self.refused = frozenset[int](msgpack.unpackb(supplied[REFUSED]))
        else:
            tried = [number for number, p in enumerate(plan.predicates) if p.op in (Op.REGEX, Op.GLOB)]
            refusals = refused([search(plan.predicates[number]).pattern for number in tried])
            self.refused = frozenset(tried[i] for i in refusals)
        not_scanned = {plan.predicates[number] for number in self.refused}
        # A pattern for the fallback engine is a group of its own: it runs when a rule hangs on it, and then only.
        by_field: dict[tuple[str, int], list[int]] = {}
        for number, p in enumerate(plan.predicates):
            if p.op not in FIELD_OPS:
                by_field.setdefault((p.field, number if number in self.refused else -1), []).append(number)
        for name, data in supplied.items():
            if name.startswith(GROUP):
                Scanner.look(data)
        self.groups: list[Group] = []
        self.members = list(by_field.values())
        """By group the numbers of its predicates, by bit."""
        for i, ((name, _), numbers) in enumerate(by_field.items()):
            members = [plan.predicates[number] for number in numbers]
            self.groups.append(Group(name, members, not_scanned, partial(self._finder, i), self._watch, self._test))
            for bit, number in enumerate(numbers):
                self._group[number], self._bit[number] = i, bit
        self._nodes: list[Node | None] = [None] * len(plan.rules)

    def _test(self, p: Predicate) -> Test:
        return of_lookup(p, self._plan.lookups)

    def search_by(self, hits: Hits) -> None:
        """Search in another's copy of the databases, and let go of those that were given."""
        self._hits, self._supplied = hits, {}

    def _finder(self, group: int, cased: bool) -> Find:
        return partial(self._hits, group, cased) if self._hits else Scanner.load(self.database(group, cased)).hits

    def database(self, group: int, cased: bool) -> bytes:
        """The compiled searches of the text as it is (``cased``), or folded, of a group that has some."""
        name = f"{GROUP}{group}-{'raw' if cased else 'folded'}"
        if name in self._supplied:
            return self._supplied[name]
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
        supplied = {name: data for name, data in self._supplied.items() if name.startswith(GROUP)}
        return {REFUSED: msgpack.packb(sorted(self.refused)), **supplied, **self._compiled}

    @property
    def fallback(self) -> list[Predicate]:
        """The predicates that run on the ``regex`` module because Hyperscan does not take them."""
        return [self._plan.predicates[number] for number in sorted(self.refused)]

    def holds(self, number: int, record: Record) -> bool | None:
        """The truth of one predicate for ``record``; None when it takes too long. Raises ``Unreadable``."""
        self._watch.begin()
        return _truth(self._node(Leaf(number)), _Answers(record, self.groups, self._plan.predicates))

    def place(self, number: int) -> tuple[int, int] | None:
        """Group and bit of a predicate; None for one that compares two fields."""
        return None if self._group[number] < 0 else (self._group[number], self._bit[number])

    def among(self, record: Record, among: Among, undecided: Callable[[int, str], None]) -> list[int]:
        """The rules of ``among`` that are true for ``record``, in its order.

        ``undecided(rule, reason)`` is called for a rule whose truth hangs on a fallback pattern that took too long, or
        whose evaluation raised. What a decoder raises is raised.
        """
        self._watch.begin()
        answers = _Answers(record, among.groups, self._plan.predicates)
        matched = []
        for rule, node in among.nodes:
            try:
                truth = _truth(node, answers)
            except Unreadable as error:
                raise error.__cause__ or error from None
            except Exception as error:
                undecided(rule, f"its evaluation raised {type(error).__name__}: {error}"[:200])
                continue
            if truth:
                matched.append(rule)
            elif truth is None:
                undecided(rule, f"a pattern took longer than {TIMEOUT} s")
        return matched

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
                if (place := self.place(number)) is not None:
                    wanted.setdefault(place[0], {})[place[1]] = p
        nodes = [(rule, self._node_of(rule)) for rule in rules]
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
        weight = AMONG_BYTES + MEMBER_BYTES * (len(nodes) + len(groups)) + SEARCH_BYTES * searched
        return Among(nodes, groups, weight)

    def _node_of(self, rule: int) -> Node:
        node = self._nodes[rule]
        if node is None:
            node = self._nodes[rule] = self._node(self._plan.rules[rule].expr)
        return node

    def _node(self, expr: Expr, negated: bool = False) -> Node:
        """The form of ``expr`` that ``_truth`` takes; of its denial when it is ``negated``."""
        if isinstance(expr, Not):
            return self._node(expr.arg, not negated)
        masks: dict[int, int] = {}
        comparisons = []
        nodes = []
        for arg in (expr,) if isinstance(expr, Leaf) else expr.args:
            if not isinstance(arg, Leaf):
                nodes.append(self._node(arg))
            elif (place := self.place(arg.predicate)) is not None:
                masks[place[0]] = masks.get(place[0], 0) | 1 << place[1]
            else:
                comparisons.append(arg.predicate)
        return Node(negated, isinstance(expr, Or), tuple(masks.items()), tuple(comparisons), tuple(nodes))
