"""The plan: a rule set compiled to shared predicates, rule expressions and prefilter literals.

A plan is values only; ``to_bytes`` and ``from_bytes`` carry it into bundles and to agents without a rule compiler.
``digest`` covers meaning (rules and predicates), ``literal_digest`` the choice of literals: two plans with the same
digest give the same matches, however they search.

Wire form: msgpack ``[FORMAT, predicates, rules, literals, refused, correlations, further, names]``, behind it
``statements`` where there are some or anything follows, ``quiet`` of a plan that was merged (nil for another where
anything follows), the modules of the statements' user functions where they call any or anything follows, and the
declared formats where there are some. ``relation.py``, ``query.py`` and ``decode/declared.py`` are imported by a plan
that has correlations, statements, such formats.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import msgpack

from vedette.decode import fields as decoded
from vedette.decode.codecs import Codecs, with_declared
from vedette.model.event import LogSource
from vedette.plan import limits, operators
from vedette.plan.ir import FIELD_OPS, Expr, Op, Predicate, Refusal, Rule, dump, load, suppress_of, tests
from vedette.plan.literals import Choice, Cost, Measured, choose, declared_by, digest, guess, sought

if TYPE_CHECKING:
    from vedette.decode.declared import Declared
    from vedette.plan.query import Modules, Statement
    from vedette.plan.relation import Correlation

FORMAT = 3

AnyRule: TypeAlias = "Rule | Correlation | Statement"
"""What makes alerts."""


@dataclass(frozen=True)
class Plan:
    """``literals[i]`` and ``further[i]`` belong to ``rules[i]``: an event is a candidate when it holds one of the first
    and, where there are further, one of these. ``literals[i]`` None: the rule is always a candidate.

    ``further`` may be empty: then no rule has any.
    """

    predicates: tuple[Predicate, ...]
    rules: tuple[Rule, ...]
    literals: tuple[frozenset[bytes] | None, ...]
    refused: tuple[Refusal, ...] = ()
    correlations: tuple[Correlation, ...] = ()
    further: tuple[frozenset[bytes] | None, ...] = ()
    names: str = ""
    """Digest of what the decoders for which literals were chosen declare of its fields; ``fitted``: for others."""
    statements: tuple[Statement, ...] = ()
    """In SQL; each of their scans names one of ``rules``."""
    lookups: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """By name the opened lookups (``lookup/table.py``) that rules and statements ask: no part of what a plan means, nor
    of its bytes. Who loads a plan gives them: ``with_lookups``."""
    quiet: frozenset[str] | None = None
    """``silent`` of a plan that was merged of several rule sets (``merge.py``), each of which says it of its own."""
    modules: tuple[Modules, ...] = ()
    """Those of the statements' user functions; by their digests part of what statements mean."""
    formats: tuple[Declared, ...] = ()
    """Declared by the rule set, by name."""

    @cached_property
    def codecs(self) -> Codecs:
        """How the events of inputs are read, by what these name."""
        return with_declared(form.codec for form in self.formats)

    @cached_property
    def digest(self) -> str:
        """Hex digest of the meaning: rule ids, levels and texts that reach alerts, and each rule's own digest."""
        described: list[list[Any]] = sorted(
            [r.id, r.title, r.level, list(r.tags), list(r.fields), r.digest, *_suppressed(r)] for r in self.rules
        )
        described += sorted(
            [c.id, c.title, c.level, list(c.tags), c.digest, c.generate, *_suppressed(c)] for c in self.correlations
        )
        described += sorted([s.id, s.title, s.level, list(s.tags), s.digest, *_suppressed(s)] for s in self.statements)
        described += [sorted(self.quiet)] if self.quiet is not None else []
        described += [["format", form.text] for form in self.formats]
        return hashlib.blake2b(msgpack.packb(described), digest_size=16).hexdigest()

    @cached_property
    def silent(self) -> frozenset[str]:
        """The ids of rules and correlations that make no alerts: what refers to them makes its own."""
        if self.quiet is not None:
            return self.quiet
        shown = {slot.rule_id for c in self.correlations if c.generate for slot in c.slots}
        looked_at = {slot.rule_id for c in self.correlations for slot in c.slots}
        return frozenset(looked_at - shown) | self.scans

    @cached_property
    def detections(self) -> tuple[Rule, ...]:
        """The rules that people wrote: without those of ``scans``."""
        return tuple(rule for rule in self.rules if rule.id not in self.scans)

    @property
    def written(self) -> list[AnyRule]:
        """All that people wrote."""
        return [*self.detections, *self.correlations, *self.statements]

    @property
    def counted(self) -> str:
        """How many rules of which kind, for people."""
        counted = f"{len(self.detections)} rules, {len(self.correlations)} correlations"
        return f"{counted}, {len(self.statements)} statements" if self.statements else counted

    @cached_property
    def scans(self) -> frozenset[str]:
        """The ids of the rules that select events for statements."""
        return frozenset(scan.rule for statement in self.statements for scan in statement.scans)

    @cached_property
    def literal_digest(self) -> str:
        chosen: list[list[Any]] = sorted(
            [r.id, sorted(x) if x else None] for r, x in zip(self.rules, self.literals, strict=True)
        )
        if self.further:
            chosen.append([sorted(x) if x else None for x in self.further])
        return hashlib.blake2b(msgpack.packb(chosen), digest_size=16).hexdigest()

    @cached_property
    def fields_of(self) -> tuple[tuple[str, ...], ...]:
        """Per rule the fields its predicates test, and those its author wants shown; what an alert carries."""
        return tuple(
            tuple(dict.fromkeys([*(self.predicates[i].field for i in tests(r.expr)), *r.fields])) for r in self.rules
        )

    @property
    def always(self) -> list[Rule]:
        """The rules that are candidates at every event of their log source."""
        return [rule for rule, chosen in zip(self.rules, self.literals, strict=True) if chosen is None]

    @cached_property
    def asked(self) -> frozenset[tuple[str, str]]:
        """Names and indexes of the lookups that predicates and statements ask."""
        asked = {(str(p.value), p.option) for p in self.predicates if p.op is Op.LOOKUP}
        return frozenset(
            asked | {(node.lookup, node.index) for statement in self.statements for node in statement.lookups}
        )

    def lacks(self, lookups: Mapping[str, Any], names: Iterable[str] | None = None) -> str:
        """Say what rules ask of the lookups ``names`` (None: of all) and do not find among ``lookups``; else empty."""
        for name, index in sorted(self.asked):
            if (names is None or name in names) and (lack := lacking(lookups, name, index)):
                return f"its rules ask {lack}"
        for statement in self.statements:
            for node in statement.lookups:
                lack = lacking(lookups, node.lookup, node.index, node.wanted)
                if lack and (names is None or node.lookup in names):
                    return f"its statement {statement.title} asks {lack}"
        return ""

    def with_lookups(self, lookups: Mapping[str, Any]) -> Plan:
        """This plan with its lookups. Raises ValueError when one that rules ask is not there or lacks the index."""
        if lack := self.lacks(lookups):
            raise ValueError(lack)
        return replace(self, lookups=lookups)

    def asking(self, names: Collection[str]) -> frozenset[str]:
        """The ids of rules, correlations and statements whose answer depends on one of these lookups."""
        tested = {i for i, p in enumerate(self.predicates) if p.op is Op.LOOKUP and str(p.value) in names}
        ids = {rule.id for rule in self.rules if not tested.isdisjoint(tests(rule.expr))}
        ids |= {
            statement.id for statement in self.statements if any(node.lookup in names for node in statement.lookups)
        }
        ids |= {statement.id for statement in self.statements if any(scan.rule in ids for scan in statement.scans)}
        if self.correlations:
            from vedette.plan.relation import ordered

            for correlation in ordered(self.correlations):
                if any(slot.rule_id in ids for slot in correlation.slots):
                    ids.add(correlation.id)
        return frozenset(ids)

    def to_bytes(self) -> bytes:
        return bytes(
            msgpack.packb(
                [
                    FORMAT,
                    [[p.field, p.op.value, p.value, p.cased, p.option] for p in self.predicates],
                    [_rule_row(rule) for rule in self.rules],
                    [sorted(x) if x is not None else None for x in self.literals],
                    [list(x) for x in self.refused],
                    [c.to_row() for c in self.correlations],
                    [sorted(x) if x is not None else None for x in self.further],
                    self.names,
                    *self._behind(),
                ]
            )
        )

    def _behind(self) -> list[Any]:
        """Return what a plan may have besides, up to the last that is there."""
        modules = [[list(module) for module in each.modules] for each in self.modules]
        parts = [
            (_dumped(self.statements), bool(self.statements)),
            (None if self.quiet is None else sorted(self.quiet), self.quiet is not None),
            (modules, bool(modules)),
            ([[form.text, form.path] for form in self.formats], bool(self.formats)),
        ]
        while parts and not parts[-1][1]:
            parts.pop()
        return [part for part, _ in parts]

    @classmethod
    def from_bytes(cls, data: bytes) -> Plan:
        """Raises ValueError when ``data`` is not a plan of this format."""
        try:
            form, *parts = msgpack.unpackb(data, use_list=True, strict_map_key=True)
            if form != FORMAT:
                raise ValueError(f"its format is {form}, not {FORMAT}: rebuild the bundle")
            predicates, rules, literals, refused, correlations, further, made_for, *more = parts
            statements, modules = _statements(more[0], more[2] if len(more) > 2 else []) if more else ((), ())
            formats = _formats(more[3]) if len(more) > 3 else ()
            _all(str, [made_for])
            if len(rules) + len(correlations) + len(statements) > limits.MAX_RULES:
                raise ValueError(f"more than {limits.MAX_RULES} rules")
            plan = cls(
                tuple(_predicate(row) for row in predicates),
                tuple(_rule(row) for row in rules),
                tuple(frozenset(_all(bytes, x)) if x is not None else None for x in literals),
                tuple(Refusal(*x) for x in refused),
                _correlations(correlations),
                tuple(frozenset(_all(bytes, x)) if x is not None else None for x in further),
                made_for,
                statements,
                quiet=frozenset(_all(str, more[1])) if more[1:] and more[1] is not None else None,
                modules=modules,
                formats=formats,
            )
            lacking_modules = {digest for statement in statements for digest in statement.modules} - {
                m.digest for m in modules
            }
            if lacking_modules:
                raise ValueError("it lacks modules that its statements call")
            limits.check(plan.predicates)
        except (TypeError, IndexError, ValueError, msgpack.UnpackException, RecursionError) as error:
            raise ValueError(f"not a plan that this version can run: {error}") from error
        numbers = range(len(plan.predicates))
        bad = [r.id for r in plan.rules if not all(map(numbers.__contains__, tests(r.expr)))]
        ids = {rule.id for rule in plan.rules}
        bad += [c.id for c in plan.correlations if any(not s.correlation and s.rule_id not in ids for s in c.slots)]
        bad += plan.scans - ids
        if bad or len(plan.literals) != len(plan.rules) or len(plan.further) not in (0, len(plan.rules)):
            raise ValueError(f"not a plan: rules and predicates do not fit together ({bad[:3]})")
        return plan

    def fitted(self) -> Plan:
        """The same rules with literals that hold under the decoders at hand: this plan, if it was made for them."""
        if self.names == names_of(self.predicates, self.formats):
            return self
        return self.chosen(guess)

    def chosen(self, cost: Cost | Measured) -> Plan:
        """The same rules with other literals, by ``cost``; without lookups."""
        plan = build(self.rules, self.predicates, self.refused, cost, self.correlations, self.statements, self.formats)
        return replace(plan, quiet=self.quiet, modules=self.modules)


_NO_STATEMENTS = [""]
"""What ``query.dump`` gives of none."""


def _dumped(statements: tuple[Statement, ...]) -> Any:
    if not statements:
        return _NO_STATEMENTS
    from vedette.plan import query

    return query.dump(statements)


def _statements(rows: Any, modules: Any) -> tuple[tuple[Statement, ...], tuple[Modules, ...]]:
    if rows == _NO_STATEMENTS and not modules:
        return (), ()
    from vedette.plan import stored

    return stored.statements(rows), stored.modules(modules)


def _correlations(rows: Any) -> tuple[Correlation, ...]:
    """Raises ValueError or TypeError, also when they do not refer to each other as they may."""
    if not rows:
        return ()
    from vedette.plan import relation

    correlations = tuple(map(relation.from_row, rows))
    relation.ordered(correlations)
    return correlations


def _formats(rows: Any) -> tuple[Declared, ...]:
    if not rows:
        return ()
    from vedette.decode import declared

    return tuple(declared.from_text(text, path) for text, path in rows)


def lacking(lookups: Mapping[str, Any], name: str, index: str, wanted: Iterable[str] = ()) -> str:
    """Say what of the opened ``lookups`` one lacks that is asked by ``index`` for the columns ``wanted``; else
    empty."""
    if name not in lookups:
        return f"the lookup {name}, which is not there"
    try:
        lookups[name].index(index)
    except KeyError:
        return f"the lookup {name} by {index}, which is no key of it"
    gone = sorted(set(wanted) - {column.name for column in lookups[name].columns})
    return f"the lookup {name} for {', '.join(gone)}, which it does not have" if gone else ""


def build(
    rules: Iterable[Rule],
    predicates: Iterable[Predicate],
    refused: Iterable[Refusal] = (),
    cost: Cost | Measured = guess,
    correlations: Iterable[Correlation] = (),
    statements: Iterable[Statement] = (),
    formats: Iterable[Declared] = (),
) -> Plan:
    """Choose literals for every rule; ``cost`` tells how often a literal occurs."""
    rules, predicates = tuple(rules), tuple(predicates)
    formats = tuple(sorted(formats, key=lambda form: form.name))
    own_fields = declared_by(with_declared(form.codec for form in formats).values())
    searched = sought(predicates, own_fields)
    chosen = [choose(rule.expr, searched, cost) for rule in rules]
    if (cut := getattr(cost, "cut", None)) is not None:
        short = cut({literal for choice in chosen for clause in choice for literal in clause or ()})
        chosen = [
            Choice(*(clause and frozenset(short.get(x, x) for x in clause) for clause in choice)) for choice in chosen
        ]
    literals, further = tuple(choice.first for choice in chosen), tuple(choice.second for choice in chosen)
    further = further if any(further) else ()
    names, refused = names_of(predicates, formats), tuple(refused)
    return Plan(
        predicates, rules, literals, refused, tuple(correlations), further, names, tuple(statements), formats=formats
    )


def names_of(predicates: Iterable[Predicate], formats: Iterable[Declared] = ()) -> str:
    """The digest of what the decoders at hand, and ``formats``, declare of the fields of ``predicates``:
    ``Plan.names``."""
    pairs = ((p.field, str(p.value) if p.op in FIELD_OPS else p.field) for p in predicates)
    fields = [*chain.from_iterable(pairs)]
    own = digest(fields, declared_by(with_declared(form.codec for form in formats).values()))
    return decoded.digest(fields) + own


def _suppressed(rule: AnyRule) -> list[Any]:
    return [] if rule.suppress is None else rule.suppress.to_row()


def _rule_row(r: Rule) -> list[Any]:
    expr: Any = dump(r.expr)
    return [
        r.id,
        r.title,
        r.level,
        r.tags,
        list(r.logsource),
        r.fields,
        expr,
        r.digest,
        r.path,
        r.line,
        *_suppressed(r),
    ]


def _rule(row: list[Any]) -> Rule:
    rule_id, title, level, tags, source, fields, expr, digest, path, line, *suppress = row
    parsed: Expr = load(expr)
    _all(str, [rule_id, title, level, digest, path, *tags, *source, *fields])
    _all(int, [line])
    return Rule(
        rule_id,
        title,
        sys.intern(level),
        tuple(map(sys.intern, tags)),
        LogSource(*map(sys.intern, source)),
        tuple(map(sys.intern, fields)),
        parsed,
        digest,
        path,
        line,
        suppress_of(suppress or None),
    )


_OPS = {op.value: op for op in Op}


def _predicate(row: list[Any]) -> Predicate:
    name, op, value, cased, option = row
    if type(value) is list:
        value = tuple(value)
    if type(name) is not str or type(option) is not str or type(cased) is not bool or op not in _OPS:
        raise ValueError(f"{row!r:.80} is no predicate")
    predicate = Predicate(sys.intern(name), _OPS[op], value, cased, option)
    operators.check(predicate)
    return predicate


def _all(kind: type, values: list[Any]) -> list[Any]:
    """``values``; raises ValueError when one is not of ``kind``."""
    wrong = next((value for value in values if type(value) is not kind), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r:.80} is not of type {kind.__name__}")
    return values
