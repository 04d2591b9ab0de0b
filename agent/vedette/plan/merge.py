"""Several rule sets as one plan: rules share predicates, so that ten sets on one source cost little more than one.

Sets are named, and independent of each other: none changes what another means.

* A rule, correlation or statement that several sets have alike (same id, meaning and texts) runs once, for all of them.
* Where sets have different ones under one id, all of them run. That of the first set keeps the id; that of another set
  is called ``ID@SET``, also by the correlations of its set that refer to it.
* Rules that correlations look at make no alerts when they make none in their own set.
* A declared format is known by its name: sets whose formats of one name differ do not merge.
* A lookup is known by its name: sets whose rules ask lookups of one name that differ do not merge.

Pure: plans in, a plan out. The literals of each set stay as they were chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from vedette.decode.declared import Declared
from vedette.plan import limits, relation
from vedette.plan.ir import And, Expr, Leaf, Not, Or, Predicate, Rule
from vedette.plan.plan import AnyRule, Plan, names_of
from vedette.plan.query import Modules, Statement
from vedette.plan.relation import Correlation

RuleType = TypeVar("RuleType", Rule, Correlation, Statement)


class Merged(NamedTuple):
    """``sets``: by the id of each rule, correlation and statement of ``plan`` the names of the sets that have it.
    ``renamed``: ids that are not as written, by set the written one and that in ``plan``."""

    plan: Plan
    sets: Mapping[str, tuple[str, ...]]
    renamed: Mapping[str, Mapping[str, str]]


def merge(parts: Mapping[str, Plan]) -> Merged:
    """``parts``: plans by the names of their sets, the first before others. Raises ValueError when they do not fit
    together, naming the set that does not fit to those before it."""
    merging = _Merging()
    formats: dict[str, Declared] = {}
    for name, plan in parts.items():
        for declared in plan.formats:
            if formats.setdefault(declared.name, declared) != declared:
                raise ValueError(
                    f"the rule set {name} cannot be merged: its format {declared.name} differs from that of a set"
                    " before it: give it another name"
                )
    merging.formats = tuple(formats[name] for name in sorted(formats))
    for name, plan in parts.items():
        try:
            fitted = replace(plan, formats=merging.formats).fitted()  # a set's rules meet the events of all formats
            merging.add(name, replace(fitted, lookups=plan.lookups))
        except ValueError as error:
            raise ValueError(f"the rule set {name} cannot be merged: {error}") from error
    return merging.merged()


def apart(name: str, plan: Plan, used_ids: Iterable[str]) -> Plan:
    """``plan`` of the set ``name``, to be evaluated by itself: what has one of ``used_ids`` is called
    ``ID@SET``, or two alerts about one event would have one id."""
    merging = _Merging(dict.fromkeys(used_ids, ()))
    merging.formats = plan.formats
    merging.add(name, replace(plan.fitted(), lookups=plan.lookups))
    return merging.merged().plan


class _Merging:
    def __init__(self, sets: Mapping[str, tuple[str, ...]] | None = None) -> None:
        """``sets``: ids that are taken."""
        self._predicates: dict[Predicate, int] = {}
        self._tally = limits.Tally()
        self._rules: dict[str, tuple[Rule, Any, Any]] = {}
        """By id; with its literals, and further ones."""
        self._correlations: dict[str, Correlation] = {}
        self._statements: dict[str, Statement] = {}
        self._sets: dict[str, tuple[str, ...]] = dict(sets or {})
        self._renamed: dict[str, dict[str, str]] = {}
        self._heard: set[str] = set()
        """Ids of what makes alerts in some set."""
        self._refused: list[Any] = []
        self._lookups: dict[str, Any] = {}
        self._asked: set[str] = set()
        """Names of those that rules ask."""
        self._modules: dict[str, Modules] = {}
        self.formats: tuple[Declared, ...] = ()
        """Of all sets."""

    def add(self, name: str, plan: Plan) -> None:
        self._add_lookups(plan.lookups, {asked for asked, _ in plan.asked})
        numbers = [self._number(predicate) for predicate in plan.predicates]
        ids: dict[str, str] = {}
        further = plan.further or (None,) * len(plan.rules)
        for rule, literals, more in zip(plan.rules, plan.literals, further, strict=True):
            written = replace(rule, expr=_renumbered(rule.expr, numbers))
            earlier, *_ = self._rules.get(rule.id, (None,))
            if rule.id in plan.scans and earlier is not None:
                earlier = written  # its id is made of its meaning, and nobody sees its texts
            named = self._named(name, written, earlier, ids)
            self._rules.setdefault(named.id, (named, literals, more))
        for correlation in relation.ordered(plan.correlations):  # those that others look at first
            slots = tuple(slot._replace(rule_id=ids[slot.rule_id]) for slot in correlation.slots)
            related = replace(correlation, slots=slots)
            related = self._named(name, related, self._correlations.get(related.id), ids)
            self._correlations.setdefault(related.id, related)
        for statement in plan.statements:
            stated = self._named(name, statement, self._statements.get(statement.id), ids)
            self._statements.setdefault(stated.id, stated)
        if len(self._sets) > limits.MAX_RULES:
            raise ValueError(f"more than {limits.MAX_RULES} rules")
        self._heard |= {ids[rule.id] for rule in plan.written if rule.id not in plan.silent}
        self._renamed[name] = {old: new for old, new in ids.items() if old != new}
        self._refused += plan.refused
        self._modules |= {modules.digest: modules for modules in plan.modules}

    def _add_lookups(self, lookups: Mapping[str, Any], asked: set[str]) -> None:
        """Take over a set's lookups. One that no rule asks stays, the first of its name, for whoever else may want
        it."""
        for name, lookup in lookups.items():
            if name not in self._lookups or (name in asked and name not in self._asked):
                self._lookups[name] = lookup
            elif name in asked and self._lookups[name].version != lookup.version:
                raise ValueError(f"its lookup {name} differs from that of a set before it: give it another name")
        self._asked |= asked

    def _number(self, predicate: Predicate) -> int:
        """Raises ValueError when all sets together would be beyond a bound."""
        if predicate not in self._predicates:
            self._tally.add(predicate)
        return self._predicates.setdefault(predicate, len(self._predicates))

    def _named(self, name: str, rule: RuleType, earlier: RuleType | None, ids: dict[str, str]) -> RuleType:
        """``rule`` of the set ``name`` under the id that it has in the plan; ``earlier``: what has its id already."""
        written = rule.id
        if written in self._sets and (earlier is None or not _alike(rule, earlier)):
            rule = replace(rule, id=f"{written}@{name}")
            if rule.id in self._sets:
                raise ValueError(f"two rules with the id {rule.id}")
        ids[written] = rule.id
        self._sets[rule.id] = (*self._sets.get(rule.id, ()), name)
        return rule

    def merged(self) -> Merged:
        rules = [rule for rule, _, _ in self._rules.values()]
        further = tuple(more for _, _, more in self._rules.values())
        predicates = tuple(self._predicates)
        plan = Plan(
            predicates,
            tuple(rules),
            tuple(literals for _, literals, _ in self._rules.values()),
            tuple(self._refused),
            tuple(self._correlations.values()),
            further if any(further) else (),
            names_of(predicates, self.formats),
            tuple(self._statements.values()),
            self._lookups,
            frozenset(rule_id for rule_id, names in self._sets.items() if names) - self._heard,
            tuple(self._modules.values()),
            self.formats,
        )
        return Merged(plan, self._sets, self._renamed)


def _alike(rule: AnyRule, other: AnyRule) -> bool:
    """Whether both mean and say the same, wherever they are written."""
    return replace(rule, path="", line=0) == replace(other, path="", line=0)


def _renumbered(expr: Expr, numbers: list[int]) -> Expr:
    match expr:
        case Leaf(predicate):
            return Leaf(numbers[predicate])
        case Not(arg):
            return Not(_renumbered(arg, numbers))
        case And(args):
            return And(tuple(_renumbered(arg, numbers) for arg in args))
        case Or(args):
            return Or(tuple(_renumbered(arg, numbers) for arg in args))
