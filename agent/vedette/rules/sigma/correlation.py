"""Sigma's ``correlation`` documents to ``relation.Correlation``. pySigma parses; the meaning is ours.

They are compiled when all files are read, because they refer to rules of any of them: by id, or by name,
where a rule of the same file goes before others, also one that is refused. One that refers to what is not there or does
not run is refused with that reason, and so are those above it; a cycle is refused, and so is what stands above a chain
of ``MAX_CHAIN``. The others run. In which order they are written makes no difference.

Sigma specification 2.1, "Sigma Correlation Rules"; extended conditions as pySigma 2 has them. ``window`` and ``gap``
are beyond the specification (``_OWN``).
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from sigma.correlations import (
    CorrelationConditionAND,
    CorrelationConditionItem,
    CorrelationConditionNOT,
    SigmaCorrelationCondition,
    SigmaCorrelationRule,
    SigmaCorrelationTimespan,
    SigmaExtendedCorrelationCondition,
    SigmaRuleReference,
)
from sigma.exceptions import SigmaRuleLocation, SigmaTimespanError
from sigma.rule import SigmaRule

from vedette.plan.aggregates import Kind, Reads
from vedette.plan.grid import Grid
from vedette.plan.ir import MAX_SPAN, Refusal
from vedette.plan.relation import COMPARE, MAX_CHAIN, MAX_SLOTS, Clause, Correlation, Slot, meaning_digest
from vedette.rules.ruleset import RuleSet, Unsupported
from vedette.rules.sigma.documents import child, expect
from vedette.rules.sigma.faults import refusal
from vedette.rules.sigma.head import DESCRIPTIVE, check_head, derived_id, suppress_of
from vedette.rules.sigma.pipelines import POLICY, Pipelines

MAX_CLAUSES = 64
"""Alternatives that an extended condition may come to."""
_CHAINED = f"correlations are chained deeper than {MAX_CHAIN}"

_KEYS = ("type", "rules", "group-by", "timespan", "window", "gap", "condition", "aliases", "generate")
_OWN = ("window", "gap")
"""Keys that pySigma does not know: https://github.com/SigmaHQ/sigma-specification/issues/214, as rsigma has them."""
_MEANT = {
    **dict.fromkeys(("timeframe", "time-window", "within", "interval", "period", "duration"), "timespan"),
    **dict.fromkeys(("groupby", "group_by", "group", "by"), "group-by"),
    "field": "condition: {field: NAME}",
}
"""Words that people write in the place of a correlation's keys."""


class Document(NamedTuple):
    """A ``correlation:`` document and where it stands."""

    document: Any
    path: str
    line: int
    node: Any


class _TooDeep(Unsupported):
    """A walk met a chain longer than ``MAX_CHAIN`` below the correlation where it began, which alone is refused by it:
    those in between may be of the lowest ``MAX_CHAIN``, and have their own turn."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A correlation as pySigma reads it, before its references are looked up."""

    parsed: SigmaCorrelationRule
    bounds: tuple[tuple[str, int | float], ...]
    id: str
    grid: Grid | None


def named(node: Any, used_ids: Container[str]) -> set[str]:
    """Id and name of a document that is refused, unless its id is in ``used_ids``: another then has both."""
    values = child(node, "id"), child(node, "name")
    names = [_canonical(value.value) for value in values if isinstance(value, yaml.ScalarNode)]
    return set() if names and names[0] in used_ids else set(names)


def compile_all(
    rules: RuleSet,
    written: Mapping[str, SigmaRule],
    documents: Sequence[Document],
    pipelines: Pipelines,
    gone: Iterable[tuple[set[str], Refusal]] = (),
) -> tuple[list[Correlation], list[Refusal]]:
    """The correlations of ``documents``, and those that do not run; ``written``: all rules as pySigma read them;
    ``gone``: ids and names of those that are refused."""
    compiler = Compiler(rules, written, documents, pipelines)
    for names, refused in gone:
        compiler.know(names, refused.path, refused)
    for number in range(len(documents)):
        compiler.read(number)
    for number in range(len(documents)):
        with suppress(Exception):  # it is among the refused
            compiler.make(number, ())
    return list(compiler.compiled.values()), compiler.refused


class Compiler:
    """One pass over the correlations of a rule set."""

    def __init__(
        self, rules: RuleSet, written: Mapping[str, SigmaRule], documents: Sequence[Document], pipelines: Pipelines
    ) -> None:
        self.compiled: dict[int, Correlation] = {}
        self.refused: list[Refusal] = []
        self._documents = documents
        self._written = written
        self._pipelines = pipelines
        self._digests = {rule.id: rule.digest for rule in rules.rules}
        self._read: dict[int, _Read] = {}
        self._parsed: dict[str, SigmaCorrelationRule] = {}
        self._reasons: dict[int, str] = {}
        self._depths: dict[str, int] = {}
        """Lengths of the longest chains down from correlations, by id."""
        self._targets: dict[str, list[tuple[str, int | str | Refusal]]] = {}
        """Targets by id and name: (file, number of the correlation or id of the rule, or why there is none)."""
        for rule in rules.rules:
            if rule.id not in written:  # of another language
                continue
            self.know({rule.id, written[rule.id].name or rule.id}, rule.path, rule.id)

    def know(self, names: set[str], path: str, target: int | str | Refusal) -> None:
        """References to one of ``names`` mean ``target``."""
        for name in names:
            self._targets.setdefault(name, []).append((path, target))

    def read(self, number: int) -> None:
        """Parse a document, so that others can refer to it."""
        document = self._documents[number]
        try:
            read = _parse(document.document, document.path, document.line)
            if read.id in self._digests or read.id in self._parsed:
                raise Unsupported(f"id {read.id} is used by an earlier rule", "id")
            self._read[number] = read
            self._parsed[read.id] = read.parsed
            self.know({read.id, read.parsed.name or read.id}, document.path, number)
        except Exception as error:  # whatever pySigma raises refuses this correlation alone
            self._refuse(number, error)
            self.know(named(document.node, {*self._digests, *self._parsed}), document.path, self.refused[-1])

    def _refuse(self, number: int, error: Exception) -> None:
        document = self._documents[number]
        refused = refusal(document.path, document.node, document.document, error)
        self._reasons[number] = refused.reason
        self.refused.append(refused)

    def make(self, number: int, above: tuple[int, ...]) -> Correlation:
        """Compile correlation ``number`` and those below it; raises Unsupported and notes the reason."""
        if number in above:
            raise Unsupported("its rules refer back to it: a cycle", "rules")
        if number in self.compiled:
            return self.compiled[number]
        if number in self._reasons:
            raise Unsupported(self._reasons[number])
        if len(above) >= MAX_CHAIN:
            raise _TooDeep(_CHAINED, "rules")
        try:
            self.compiled[number] = compiled = self._compile(number, (*above, number))
        except Exception as error:  # whatever pySigma raises refuses this correlation alone
            if not above or not isinstance(error, _TooDeep):
                self._refuse(number, error)
            raise
        return compiled

    def _compile(self, number: int, above: tuple[int, ...]) -> Correlation:
        document = self._documents[number]
        read = self._read[number]
        parsed = read.parsed
        kind = Kind(parsed.type.name.lower())
        references = _references(parsed, kind)
        targets = [self._target(reference.reference, document.path, above) for reference in references]
        depth = 1 + max((self._depths[below.id] for _, below in targets if below is not None), default=0)
        if depth > MAX_CHAIN:
            raise Unsupported(_CHAINED, "rules")
        for reference, (rule_id, below) in zip(references, targets, strict=True):
            reference.rule = self._written[rule_id] if below is None else self._parsed[rule_id]
        parsed.referenced_rules = references
        self._pipelines.apply(parsed)  # type: ignore[arg-type]
        slots = _slots(parsed, references, targets)
        field = parsed.condition.fieldref if isinstance(parsed.condition, SigmaCorrelationCondition) else None
        bounds = read.bounds
        clauses = tuple[Clause, ...]()
        if isinstance(parsed.condition, SigmaExtendedCorrelationCondition):
            clauses = _clauses(parsed.condition, [reference.reference for reference in references])
        elif not bounds:
            bounds = (("gte", len(slots)),)
        fields = tuple(field) if isinstance(field, list) else (field,) if field is not None else ()
        correlation = Correlation(
            id=read.id,
            title=parsed.title,
            level=parsed.level.name.lower() if parsed.level else "medium",
            tags=tuple(str(tag) for tag in parsed.tags),
            kind=kind,
            slots=slots,
            group_by=tuple(dict.fromkeys(parsed.group_by or ())),
            span=parsed.timespan.seconds * 1_000_000,
            bounds=bounds,
            field=fields,
            percentile=_percentile(parsed.condition, kind),
            clauses=clauses,
            generate=bool(parsed.generate or document.document.get("generate") is True),
            path=document.path,
            line=document.line,
            suppress=suppress_of(parsed.custom_attributes),
            grid=read.grid,
        )
        _check(correlation)
        self._depths[correlation.id] = depth
        digests = [self._digests[rule_id] if below is None else below.digest for rule_id, below in targets]
        return replace(correlation, digest=meaning_digest(correlation, digests))

    def _target(self, reference: str, path: str, above: tuple[int, ...]) -> tuple[str, Correlation | None]:
        """The rule's id, or the correlation, that ``reference`` names."""
        targets = self._targets.get(reference) or self._targets.get(_canonical(reference)) or []
        targets = [target for target in targets if target[0] == path] or targets
        if len(targets) > 1:
            places = " and ".join(sorted({path for path, _ in targets})) or path
            raise Unsupported(f"{reference!r} is the name of several rules ({places}): refer to one by its id", "rules")
        if not targets:
            reason = "which is not among the rules, or is refused"
            raise Unsupported(f"it refers to {reference!r}, {reason}", "rules")
        target = targets[0][1]
        if isinstance(target, Refusal):
            raise Unsupported(f"it refers to {reference!r}, which is refused: {target.reason}", "rules")
        if isinstance(target, str):
            return target, None
        if target in above:
            raise Unsupported("its rules refer back to it: a cycle", "rules")
        try:
            return self._read[target].id, self.make(target, above)
        except _TooDeep:
            raise
        except Exception as error:
            raise Unsupported(f"it refers to {reference!r}, which is refused: {error}", "rules") from error


def _parse(document: dict[str, Any], path: str, line: int) -> _Read:
    if "detection" in document:
        raise Unsupported("a document is a detection or a correlation, not both", "detection")
    body = expect(document["correlation"], dict, "'correlation' expects a mapping with type, rules and timespan")
    if (unknown := next((key for key in body if key not in _KEYS), None)) is not None:
        near = _MEANT.get(str(unknown)) or next(iter(get_close_matches(str(unknown), _KEYS, 1)), "")
        meant = f"did you mean {near!r}?" if near else f"it has {', '.join(_KEYS)}"
        raise Unsupported(f"{unknown!r:.60} is not a key of a correlation: {meant}", str(unknown))
    meaning = {key: value for key, value in document.items() if key not in DESCRIPTIVE}
    bounds: tuple[tuple[str, int | float], ...] = ()
    if isinstance(condition := body.get("condition"), dict):
        bounds = _bounds(condition)
        meaning = first_bound(meaning)
    if isinstance(kind := body.get("type"), str) and kind.endswith("_extended"):
        plain = kind.removesuffix("_extended")
        raise Unsupported(f"{kind} is written as 'type: {plain}' with a condition that names rules", "type")
    left_out = {*_OWN, *(["rules"] if body.get("rules") is None and isinstance(body.get("condition"), str) else [])}
    meaning["correlation"] = {key: value for key, value in meaning["correlation"].items() if key not in left_out}
    parsed = SigmaCorrelationRule.from_dict(meaning, source=SigmaRuleLocation(Path(path), line), policy=POLICY)
    check_head(parsed.title, parsed.status)
    grid = _grid(body, parsed.timespan.seconds * 1_000_000)
    return _Read(parsed, bounds, str(parsed.id) if parsed.id else derived_id(document), grid)


def _grid(body: dict[str, Any], span: int) -> Grid | None:
    """The grid that ``window`` and ``gap`` say; None: windows slide."""
    window = body.get("window", "sliding")
    if window not in ("sliding", "tumbling", "session"):
        longer = "; its length goes into 'timespan'" if isinstance(window, str) and window[:1].isdigit() else ""
        raise Unsupported(f"'window' is sliding, tumbling or session, not {window!r:.40}{longer}", "window")
    if window != "session":
        if "gap" in body:
            raise Unsupported("'gap' is for 'window: session' only", "gap")
        return Grid("TUMBLE", span) if window == "tumbling" else None
    if "gap" not in body:
        raise Unsupported("a session needs 'gap', the time without a match that ends it, as in 'gap: 5m'", "window")
    try:
        gap = SigmaCorrelationTimespan(body["gap"]).seconds * 1_000_000
    except SigmaTimespanError as error:
        raise Unsupported(f"'gap' is a time such as 30s or 5m, not {body['gap']!r:.40}", "gap") from error
    if gap > span:
        raise Unsupported("'gap' is longer than 'timespan', the longest that a session may be", "gap")
    return Grid("SESSION", gap)


def _references(parsed: SigmaCorrelationRule, kind: Kind) -> list[SigmaRuleReference]:
    if parsed.rules is not None:
        references = list(parsed.rules)
    else:
        assert isinstance(parsed.condition, SigmaExtendedCorrelationCondition)
        references = [SigmaRuleReference(name) for name in parsed.condition.get_referenced_rules()]
    if not references:
        raise Unsupported("it names no rules", "rules")
    if len(references) > MAX_SLOTS:
        raise Unsupported(f"it names {len(references)} rules, more than {MAX_SLOTS}", "rules")
    names = [expect(reference.reference, str, "rules are named by id or name", "rules") for reference in references]
    if not kind.row.ordered and len(set(names)) < len(names):
        raise Unsupported("it names a rule twice", "rules")
    return references


def _slots(
    parsed: SigmaCorrelationRule,
    references: list[SigmaRuleReference],
    targets: list[tuple[str, Correlation | None]],
) -> tuple[Slot, ...]:
    used: set[str] = set()
    slots = []
    for reference, (rule_id, below) in zip(references, targets, strict=True):
        called = {reference.reference, rule_id, reference.rule.name}
        names = []
        for alias in parsed.aliases:
            for target, field in alias.mapping.items():
                if target.reference in called:
                    names.append((alias.alias, str(field)))
                    used.add(target.reference)
        slots.append(Slot(rule_id, below is not None, tuple(names)))
    for alias in parsed.aliases:
        for target in alias.mapping:
            if target.reference not in used:
                raise Unsupported(
                    f"the alias {alias.alias!r} is for {target.reference!r}, which is not one of its rules", "aliases"
                )
    return tuple(slots)


def first_bound(document: dict[str, Any]) -> dict[str, Any]:
    """A correlation with one of its comparisons: pySigma takes no range."""
    condition = document["correlation"].get("condition")
    if not isinstance(condition, dict):
        return document
    first = next((key for key in condition if key in COMPARE), None)
    rest = {key: value for key, value in condition.items() if key == first or key not in COMPARE}
    return {**document, "correlation": {**document["correlation"], "condition": rest}}


def _bounds(condition: dict[str, Any]) -> tuple[tuple[str, int | float], ...]:
    bounds = []
    for name, value in condition.items():
        if name in COMPARE:
            if isinstance(value, bool):
                raise Unsupported(f"{name} expects a number, not {str(value).lower()}", "condition")
            number = SigmaCorrelationCondition.from_dict({name: value}).count
            if isinstance(number, int) and not -(1 << 63) < number < 1 << 63:
                number = float(number)
            bounds.append((str(name), number))
    if not bounds:
        raise Unsupported(f"the condition has no comparison: expects one of {', '.join(COMPARE)}", "condition")
    return tuple(sorted(bounds))


def _percentile(condition: Any, kind: Kind) -> float:
    """pySigma takes a whole percentile; the specification shows none, and what its example means is unclear."""
    if not kind.row.percentile:
        if getattr(condition, "percentile", None) is not None:
            raise Unsupported(f"'percentile' is for value_percentile, not {kind}", "condition")
        return 50.0
    percent = condition.percentile
    if percent is None:
        raise Unsupported("value_percentile needs 'percentile' (0 to 100) in its condition", "condition")
    if not 0 <= percent <= 100:
        raise Unsupported(f"a percentile is a number from 0 to 100, not {percent}", "condition")
    return float(percent)


def _check(c: Correlation) -> None:
    """Refuse what can never be true, or means nothing."""
    reads = c.kind.row.reads
    valued = c.kind.row.valued
    if c.field and not valued:
        raise Unsupported(f"{c.kind} counts matches: 'field' belongs to value_count and the like", "condition")
    if len(c.field) > 1 and reads is not Reads.TEXT:
        raise Unsupported(f"{c.kind} measures one field, not {len(c.field)}", "condition")
    if any(not isinstance(name, str) or not name for name in (*c.field, *c.group_by)) or (valued and not c.field):
        raise Unsupported("the name of a field is a text", "condition")
    if c.span > MAX_SPAN:
        raise Unsupported("the timespan is longer than 366 days", "timespan")
    if not c.bounds:
        return
    numbers = sorted(number for _, number in c.bounds)
    for name, number in c.bounds:
        if not c.kind.row.numeric and (number < 0 or number % 1):
            raise Unsupported(f"{c.kind} counts: {name} takes a whole number from 0, not {number}", "condition")
    if c.kind.row.numeric:
        tried: Iterable[float] = [
            *numbers,
            numbers[0] - 1,
            numbers[-1] + 1,
            *((a + b) / 2 for a in numbers for b in numbers),
        ]
    else:
        least = 0 if reads is Reads.TEXT else 1
        most = len(c.slots) if reads is Reads.RULE else math.inf
        near = {least, *(math.floor(number) + d for number in numbers for d in (-1, 0, 1))}
        tried = [number for number in near if least <= number <= most]
    if not any(c.holds(number) for number in tried):
        raise Unsupported(
            "the condition can never be true: a window contains at least the match that opened it"
            + (f", and at most {len(c.slots)} rules" if reads is Reads.RULE else ""),
            "condition",
        )


def _clauses(condition: SigmaExtendedCorrelationCondition, names: list[str]) -> tuple[Clause, ...]:
    """The condition's alternatives: rules that match together with rules that do not."""
    clauses = []
    for wanted, forbidden in _terms(condition.parsed, False):
        if not wanted:
            raise Unsupported(
                "the condition can be true although none of its rules matches: combine 'not' with a rule that does,"
                " as in 'a and not b'",
                "condition",
            )
        clause = Clause(tuple(sorted(map(names.index, wanted))), tuple(sorted(map(names.index, forbidden))))
        if clause not in clauses:
            clauses.append(clause)
    if not clauses:
        raise Unsupported("the condition can never be true: it asks a rule to match and not to match", "condition")
    return tuple(clauses)


def _terms(node: CorrelationConditionItem | SigmaRuleReference, negative: bool) -> list[tuple[set[str], set[str]]]:
    """``node`` as alternatives of (rules that match, rules that do not)."""
    if isinstance(node, SigmaRuleReference):
        return [(set(), {node.reference})] if negative else [({node.reference}, set())]
    if isinstance(node, CorrelationConditionNOT):
        return _terms(node.args[0], not negative)
    parts = [_terms(arg, negative) for arg in node.args]
    if isinstance(node, CorrelationConditionAND) == negative:
        terms = [term for part in parts for term in part]
    else:
        terms = [(set(), set())]
        for part in parts:
            terms = [(a | c, b | d) for a, b in terms for c, d in part if not (a | c) & (b | d)]
            if len(terms) > MAX_CLAUSES:
                break
    if len(terms) > MAX_CLAUSES:
        raise Unsupported(f"the condition expands to more than {MAX_CLAUSES} alternatives", "condition")
    return terms


def _canonical(reference: str) -> str:
    """A UUID as rules spell theirs; any other text as it is."""
    try:
        return str(uuid.UUID(reference))
    except ValueError:
        return reference
