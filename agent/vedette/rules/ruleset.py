"""The result of reading rule files, whatever language they are written in: the IR, and what does not run.

The seam between rule languages and the rest: a front end fills a ``RuleSet``, and nothing behind it knows the language.
Expressions refer to ``RuleSet.predicates`` by index, and equal predicates are one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from vedette.decode.declared import Declared
from vedette.lookup.table import Lookup
from vedette.plan.ir import Expr, Leaf, Predicate, Refusal, Rule
from vedette.plan.limits import SetFull, Tally
from vedette.plan.query import Modules, Statement
from vedette.plan.relation import Correlation

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
    """A condition that is joined to rules by AND; ``joined``: the ids of those rules."""

    id: str
    title: str
    path: str
    line: int
    joined: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return f"filter '{self.title}' ({self.path}:{self.line})"


class FrontEnd(Protocol):
    """One rule language. ``build.front_ends`` lists them by the suffix of their files."""

    def add(self, content: bytes | str, path: str) -> None:
        """Compile one file into the rule set; what cannot run is a refusal of its own."""

    def finish(self) -> None:
        """Compile what refers to rules of any file; may be called again when more were added."""

    def names(self, rule: Rule) -> dict[Expr, str]:
        """Return what its author calls the parts of a rule's condition."""


class Wanted(NamedTuple):
    """``column``: where the placeholder names one; ``field``: the rule's; ``kind``: of the key that means the same;
    ``rule``: its file and line."""

    lookup: str
    column: str
    field: str
    kind: str
    rule: str = ""


class Describer(Protocol):
    """A runner of user functions, where rules are compiled (``udf/host.py``)."""

    def describe(self, modules: Modules, target: str) -> dict[str, Any]:
        """Kind and types of ``module.attr``. Raises ValueError with what is wrong with it."""

    def close(self) -> None:
        """End its processes."""


@dataclass(slots=True)
class RuleSet:
    """The result of a set of rule files; ``rules`` refer to ``predicates`` by index."""

    rules: list[Rule] = field(default_factory=list)
    correlations: list[Correlation] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    """In SQL. What selects the events of each of their scans is one of ``rules``."""
    refused: list[Refusal] = field(default_factory=list)
    predicates: list[Predicate] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    filters: list[Filter] = field(default_factory=list)
    formats: dict[str, Declared] = field(default_factory=dict)
    """Formats that the set declares, by name."""
    lookups_refused: tuple[Refusal, ...] = ()
    """Those of ``refused`` that are about a lookup."""
    lookups: dict[str, Lookup] = field(default_factory=dict)
    """Lookups that rules may ask, by name."""
    wanted: list[Wanted] = field(default_factory=list)
    """Requests of placeholders to the lookup that is to be built (``asks.py``)."""
    functions: Describer | None = None
    """Looks into the modules of user functions; None: these are not allowed."""
    modules: dict[str, Modules] = field(default_factory=dict)
    """Modules of user functions, by digest."""
    module_files: dict[Path, None] = field(default_factory=dict)
    """The files of these."""
    placeholders: dict[Expr, tuple[str, ...]] = field(default_factory=dict)
    """The placeholders that an expression's values come from."""
    front_ends: dict[str, FrontEnd] = field(default_factory=dict)
    _index: dict[Predicate, int] = field(default_factory=dict)
    _tally: Tally = field(default_factory=Tally)

    def add(self, rule: Rule) -> None:
        self.ids.add(rule.id)
        self.rules.append(rule)

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

    def scratch(self) -> RuleSet:
        """The same predicates in a set of its own, to which an expression may add without a trace in this one."""
        return RuleSet(predicates=list(self.predicates), _index=dict(self._index))
