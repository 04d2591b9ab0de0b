"""What reading rule files comes to: rules, filters and correlations with where they stand, and what does not run.

Filled by ``sigma.py``; expressions refer to ``RuleSet.predicates`` by index, and equal predicates are one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sigma.filters import SigmaFilter
from sigma.rule import SigmaRule

from vedette.model.event import LogSource
from vedette.plan.ir import Expr, Leaf, Predicate, Refusal, Rule
from vedette.plan.limits import SetFull, Tally
from vedette.plan.relation import Correlation
from vedette.rules.pipelines import NONE, Pipelines

OF_SET = "rule set"
"""``Unsupported.part`` of what is no fault of the rule's own."""


class Unsupported(ValueError):
    """A rule asks for something valid that Vedette cannot do.

    ``part``: the key of the rule that it is about; ``hint``: what to write instead, lines of YAML.
    """

    def __init__(self, reason: str, part: str = "", hint: str = "") -> None:
        super().__init__(reason)
        self.part = part
        self.hint = hint


@dataclass(slots=True)
class Filter:
    """A ``filter:`` document; ``joined``: the ids of the rules that it is part of."""

    parsed: SigmaFilter
    document: Any
    path: str
    line: int
    column: int
    joined: set[str] = field(default_factory=set)


class Document(NamedTuple):
    """A ``correlation:`` document and where it stands."""

    document: Any
    path: str
    line: int
    column: int
    node: Any


@dataclass(slots=True)
class RuleSet:
    """What a set of rule files came to; ``rules`` refer to ``predicates`` by index."""

    rules: list[Rule] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    predicates: list[Predicate] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    pipelines: Pipelines = NONE
    filters: list[Filter] = field(default_factory=list)
    written: dict[str, SigmaRule] = field(default_factory=dict)
    """By id the rules as pySigma read them, after the pipelines."""
    sources: dict[str, LogSource] = field(default_factory=dict)
    """By id the log sources as the rules name them, before the pipelines."""
    documents: list[Document] = field(default_factory=list)
    """The correlations as they were written; ``finish`` compiles them."""
    correlations: list[Correlation] = field(default_factory=list)
    correlations_refused: list[Refusal] = field(default_factory=list)
    placeholders: dict[Expr, tuple[str, ...]] = field(default_factory=dict)
    """The placeholders that an expression's values come from."""
    _index: dict[Predicate, int] = field(default_factory=dict)
    _tally: Tally = field(default_factory=Tally)

    def leaf(self, predicate: Predicate) -> Leaf:
        """Raises Unsupported when the set would be beyond a bound with it (``limits.py``)."""
        number = self._index.get(predicate)
        if number is None:
            self.check(predicate)
            self._tally.add(predicate)
            number = self._index[predicate] = len(self.predicates)
            self.predicates.append(predicate)
        return Leaf(number)

    def check(self, predicate: Predicate) -> None:
        """Raises Unsupported when the predicate, or the set with it, would be beyond a bound."""
        try:
            if predicate not in self._index:
                self._tally.check(predicate)
        except SetFull as error:
            raise Unsupported(str(error), OF_SET) from error
        except ValueError as error:
            raise Unsupported(str(error)) from error

    def forget(self, first: int, placeholders: int) -> None:
        """Take the predicates from ``first`` on, and all but so many ``placeholders``, out again: those of a rule that
        is refused."""
        for predicate in self.predicates[first:]:
            del self._index[predicate]
            self._tally.remove(predicate)
        del self.predicates[first:]
        while len(self.placeholders) > placeholders:
            self.placeholders.popitem()
