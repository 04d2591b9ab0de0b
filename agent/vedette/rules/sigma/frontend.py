"""Sigma YAML to the IR. pySigma parses; the meaning is ours (``plan/ir.py``).

A file may hold several documents, also a collection (``documents.py``). Each that is a single detection becomes one
``ir.Rule``; each that cannot run becomes one ``ir.Refusal`` with file, line, column and reason, and the others go on.
The place is that of the part at fault: the detection item, else the condition, else the document.

A **filter** (``filter:`` document) of any file is joined by AND to the rules that it names and whose log source is
within its own; correlations refer to rules of any file. ``finish`` does both when all files are read.

Needs the extra ``vedette[rules]``. Nothing on an installed edge imports this package.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgpack
import yaml
from sigma.exceptions import SigmaRuleLocation
from sigma.filters import SigmaFilter
from sigma.rule import SigmaRule

from vedette.model.event import LogSource
from vedette.plan.ir import And, Expr, Or, Predicate, Refusal, Rule, dump, tests
from vedette.plan.limits import MAX_CONDITION, MAX_RULES, MAX_TESTS
from vedette.rules.ruleset import Filter, RuleSet, Unsupported
from vedette.rules.sigma import correlation, items, legacy
from vedette.rules.sigma.documents import collected, construct, expect, place, read, shown
from vedette.rules.sigma.expression import expression, keep_kinds
from vedette.rules.sigma.faults import not_yaml, reason_of, refusal
from vedette.rules.sigma.head import DESCRIPTIVE, check_head, derived_id, own_id, suppress_of
from vedette.rules.sigma.pipelines import NONE, POLICY, Pipelines


@dataclass(slots=True)
class _Filter:
    """A ``filter:`` document as it was read, and what the rule set shows of it."""

    parsed: SigmaFilter
    document: Any
    column: int
    shown: Filter


class Sigma:
    """The front end (``ruleset.FrontEnd``); ``pipelines`` change rules before they are compiled."""

    def __init__(self, rules: RuleSet, pipelines: Pipelines = NONE) -> None:
        self.rules = rules
        self.pipelines = pipelines
        rules.lookups_refused = tuple(pipelines.faults.values())
        rules.refused += rules.lookups_refused
        self.written: dict[str, SigmaRule] = {}
        """Rules by id, as pySigma read them, after the pipelines."""
        self.correlations: list[correlation.Document] = []
        self._sources: dict[str, LogSource] = {}
        """Log sources by id, as the rules name them, before the pipelines."""
        self._filters: list[_Filter] = []
        self._gone: list[tuple[set[str], Refusal]] = []
        """Rules that are refused, each with its id and name."""
        self._late: list[Refusal] = []
        """Refusals of the last ``finish``."""

    def add(self, content: bytes | str, path: str) -> None:
        """Compile every document of one rule file. Whatever a parser raises refuses its document alone."""
        refused = self.rules.refused
        nodes, faults = read(content)
        refused += (not_yaml(path, 1, error, content) for error in faults)
        for node, borrowed in collected(nodes):
            document: Any = None
            try:
                items.texts_too(node)
                try:
                    document = construct(node)
                except (yaml.YAMLError, ValueError) as error:
                    refused.append(not_yaml(path, node.start_mark.line + 1, error))
                    self._gone.append((correlation.named(node, self.rules.ids), refused[-1]))
                    continue
                if document is not None:
                    self._add(node, document, path, borrowed)
            except Exception as error:  # whatever a document makes pySigma raise refuses that document alone
                refused.append(refusal(path, node, document, error))
                self._gone.append((correlation.named(node, self.rules.ids), refused[-1]))

    def _add(self, node: Any, document: Any, path: str, borrowed: bool) -> None:
        line, column = place(node)
        mapping = document if isinstance(document, dict) else {}
        if "filter" in mapping:
            rule_filter = self._filter(document, path, line, column)
            self._filters.append(rule_filter)
            self.rules.filters.append(rule_filter.shown)
        elif "correlation" in mapping:
            self.correlations.append(correlation.Document(document, path, line, node))
        else:
            ids = self.rules.ids
            if (
                borrowed and (rule_id := shown(mapping.get("id"))) in ids
            ):  # of a collection, whose documents share an id
                document["id"] = own_id(rule_id, ids)
            self.rules.add(self._rule(document, path, line))

    def _rule(self, document: Any, path: str, line: int) -> Rule:
        rules = self.rules
        document = expect(document, dict, "expects a mapping with title, logsource and detection")
        if "action" in document:
            wanted = "expects global, reset, or repeat after a rule"
            raise Unsupported(f"action {document['action']!r:.40}: {wanted}", "action")
        if (instead := legacy.correlation(document)) is not None:
            raise Unsupported(*instead)
        _check_items(document.get("detection"))
        meaning = {key: value for key, value in document.items() if key not in DESCRIPTIVE}
        parsed = SigmaRule.from_dict(meaning, source=SigmaRuleLocation(Path(path), line), policy=POLICY)
        check_head(parsed.title, parsed.status)
        if len(rules.rules) >= MAX_RULES:
            raise Unsupported(f"the rule set holds {MAX_RULES} rules already, the most it can hold")
        if sum(map(len, map(str, parsed.detection.condition))) > MAX_CONDITION:
            raise Unsupported(f"the condition is longer than {MAX_CONDITION} characters", "condition")
        rule_id = str(parsed.id) if parsed.id else derived_id(document)
        if parsed.id is None and rule_id in rules.ids:
            rule_id = own_id(rule_id, rules.ids)
        if rule_id in rules.ids:
            raise Unsupported(f"id {rule_id} is used by an earlier rule", "id")
        own_source = _source(parsed)
        expr = self._compiled(rules, parsed, f"{path}:{line}")
        source = _source(parsed)
        self.written[rule_id] = parsed
        self._sources[rule_id] = own_source
        return Rule(
            id=rule_id,
            title=parsed.title,
            level=parsed.level.name.lower() if parsed.level else "medium",
            tags=tuple(str(tag) for tag in parsed.tags),
            logsource=LogSource(*(part.lower() for part in source)),
            fields=tuple(str(name) for name in parsed.fields or ()),
            expr=expr,
            digest=meaning_digest(expr, rules.predicates, source),
            path=path,
            line=line,
            suppress=suppress_of(parsed.custom_attributes),
        )

    def _compiled(self, rules: RuleSet, parsed: SigmaRule, place: str) -> Expr:
        """Compile ``parsed``, written at ``place``, after the pipelines, which change it in place."""
        first = len(rules.predicates)
        placeholders = len(rules.placeholders)
        asked = len(rules.wanted)
        try:
            self.pipelines.apply(parsed)
            for detection in parsed.detection.detections.values():
                keep_kinds(detection)
            conditions = []
            left = MAX_TESTS
            for condition in parsed.detection.parsed_condition:
                conditions.append(expression(rules, condition.parsed, self.pipelines))
                left -= sum(1 for _ in tests(conditions[-1]))
                if left < 0:
                    raise Unsupported(f"more than {MAX_TESTS} tests in one rule", "condition")
        except Exception:  # raised again below
            rules.forget(first, placeholders)  # a refused rule leaves no predicate behind
            del rules.wanted[asked:]
            raise
        rules.wanted[asked:] = [request._replace(rule=place) for request in rules.wanted[asked:]]
        return conditions[0] if len(conditions) == 1 else Or(tuple(conditions))

    def _filter(self, document: Any, path: str, line: int, column: int) -> _Filter:
        """A filter, which is also compiled by itself, so that its mistakes are its own and no rule's."""
        _check_items(document["filter"])
        parsed = SigmaFilter.from_dict(document, source=SigmaRuleLocation(Path(path), line), policy=POLICY)
        for reference in () if isinstance(parsed.filter.rules, str) else parsed.filter.rules:
            expect(reference.reference, str, "a filter names rules by id or name", "filter")
        self._compiled(RuleSet(), _as_rule(document, document.get("logsource")), f"{path}:{line}")
        seen = Filter(shown(document.get("id")), shown(document.get("title")), path, line)
        return _Filter(parsed, document, column, seen)

    def names(self, rule: Rule) -> dict[Expr, str]:
        """The search identifiers of a rule, by what they came to."""
        written = self.written[rule.id]
        scratch = self.rules.scratch()
        names = {
            expression(scratch, part.postprocess(written.detection), self.pipelines): name
            for name, part in written.detection.detections.items()
        }
        return dict(reversed(names.items()))

    def finish(self) -> None:
        """Join the filters to their rules and compile the correlations, once all rules are there; may be called again
        when more were added.

        A filter that names a rule which is not there is refused, but for the rules that are.
        """
        rules = self.rules
        late = self._late
        rules.refused[:] = [refusal for refusal in rules.refused if refusal not in late]
        late.clear()
        names = {str(written.name): rule_id for rule_id, written in self.written.items() if written.name}
        for rule_filter in self._filters:
            late += self._join(rule_filter, names)
        compiled, refused = correlation.compile_all(rules, self.written, self.correlations, self.pipelines, self._gone)
        rules.correlations[:] = compiled
        late += refused
        rules.refused += late

    def _join(self, rule_filter: _Filter, names: dict[str, str]) -> list[Refusal]:
        """AND a filter's condition to its rules; what of that is refused."""
        rules = self.rules
        refused = []
        wanted = rule_filter.parsed.filter.rules
        targets = set(self.written)
        if not isinstance(wanted, str):
            referred = {ref.reference: names.get(ref.reference, ref.reference) for ref in wanted}
            gone = {name for names_of, _ in self._gone for name in names_of}
            for reference in sorted(gone & referred.keys()):
                refused.append(_refused(rule_filter, reference, "which is refused"))
                del referred[reference]
            for reference in (ref for ref, target in referred.items() if target not in targets):
                refused.append(_refused(rule_filter, reference, "which is not among the rules"))
            targets &= set(referred.values())
        for i, rule in enumerate(rules.rules):
            if rule.id in targets - rule_filter.shown.joined and _within(self._sources[rule.id], rule_filter.parsed):
                logsource = {k: v for k, v in self._sources[rule.id]._asdict().items() if v}
                conditions = rule.expr.args if isinstance(rule.expr, And) else (rule.expr,)
                try:
                    place = f"{rule_filter.shown.path}:{rule_filter.shown.line}"
                    expr = And((*conditions, self._compiled(rules, _as_rule(rule_filter.document, logsource), place)))
                except Exception as error:  # a pipeline or a bound of the set
                    refused.append(_refused(rule_filter, rule.id, f"to which it cannot be joined: {reason_of(error)}"))
                    continue
                rule_filter.shown.joined.add(rule.id)
                digest = meaning_digest(expr, rules.predicates, rule.logsource)
                rules.rules[i] = replace(rule, expr=expr, digest=digest)
        return refused


def _source(parsed: SigmaRule) -> LogSource:
    source = parsed.logsource
    return LogSource(source.product or "", source.category or "", source.service or "")


_CONDITION = "the condition is a text that names searches, as in 'selection and not filter'"


def _check_items(searches: Any) -> None:
    for name, definition in searches.items() if isinstance(searches, dict) else ():
        if name == "condition":
            for text in definition if isinstance(definition, list) else [definition]:
                expect(text, str, _CONDITION, "condition")
        elif name != "rules":
            items.check(definition)


def _as_rule(document: Any, logsource: Any) -> SigmaRule:
    """A filter's condition as a rule of its own, of the given log source: pipelines ask for it."""
    detection = {key: value for key, value in document["filter"].items() if key != "rules"}
    return SigmaRule.from_dict({"title": "filter", "logsource": logsource, "detection": detection}, policy=POLICY)


def _refused(rule_filter: _Filter, reference: str, why: str) -> Refusal:
    seen = rule_filter.shown
    return Refusal(
        seen.path, seen.line, seen.id, seen.title, f"the filter names the rule {reference!r}, {why}", rule_filter.column
    )


def _within(source: LogSource, rule_filter: SigmaFilter) -> bool:
    """True when a rule of ``source`` is of the filter's log source: what that leaves open may be anything."""
    asked = (rule_filter.logsource.product, rule_filter.logsource.category, rule_filter.logsource.service)
    return all(wanted is None or wanted == part for wanted, part in zip(asked, source, strict=True))


def meaning_digest(expr: Expr, predicates: list[Predicate], source: LogSource) -> str:
    """Hex digest of what a rule means, independent of predicate numbers and of its texts."""

    def spelled(data: Any) -> Any:
        if isinstance(data, int):
            return ["test", *predicates[data]]
        return [data[0], *map(spelled, data[1:])]

    packed = msgpack.packb([list(source), spelled(dump(expr))], use_bin_type=True)
    return hashlib.blake2b(packed, digest_size=16).hexdigest()
