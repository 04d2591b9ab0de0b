"""Sigma YAML to the intermediate form. pySigma parses; the meaning is ours (``plan/ir.py``).

A file may hold several documents, also a collection (``rules/documents.py``). Each that is a single detection
becomes one ``ir.Rule``; each that cannot run becomes one ``ir.Refusal`` with file, line, column and reason, and the
others go on. The place is that of the part at fault: the detection item, else the condition, else the document.

A **filter** (``filter:`` document) of any file is joined by AND to the rules that it names and whose log source is
within its own: ``finish`` does so when all files are read.

Needs the extra ``vedette[rules]``. Nothing on an installed edge imports this module.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import yaml
from sigma.exceptions import SigmaRuleLocation
from sigma.filters import SigmaFilter
from sigma.rule import SigmaRule
from sigma.rule.attributes import SigmaStatus

from vedette.model.event import LogSource
from vedette.model.times import seconds
from vedette.plan.ir import And, Expr, Or, Predicate, Refusal, Rule, dump, tests
from vedette.plan.limits import MAX_CONDITION, MAX_FILE, MAX_RULES, MAX_TESTS
from vedette.plan.relation import MAX_SPAN, Suppress
from vedette.rules import legacy, modifiers
from vedette.rules.documents import collected, construct, read, texts_too
from vedette.rules.expression import check_modifiers, expression, mark_networks
from vedette.rules.faults import not_yaml, reason_of, refusal, text
from vedette.rules.pipelines import NONE, POLICY, Pipelines
from vedette.rules.ruleset import Document, Filter, RuleSet, Unsupported
from vedette.system.folders import listed, read_regular

DESCRIPTIVE = frozenset(
    ("related", "description", "license", "references", "author", "date", "modified", "falsepositives", "scope")
)
"""Attributes that tell people about a rule: a mistake in one is for ``rules lint`` and does not stop the rule."""

LEVELS = ("informational", "low", "medium", "high", "critical")


def rule_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The rule files at ``paths``: files as given, folders recursively; ``*.test.yml`` and hidden ones are not rules.

    Raises FileNotFoundError for a path that does not exist.
    """
    for path in paths:
        if path.is_dir():
            found = listed(path, (".yml", ".yaml"))
            yield from (p for p in found if not p.name.endswith((".test.yml", ".test.yaml")))
        elif path.exists():
            yield path
        else:
            raise FileNotFoundError(f"{path}: no such rule file or folder")


def load(files: Iterable[Path], pipelines: Pipelines = NONE) -> RuleSet:
    """All rules of ``files`` (``rule_files``); a rule id that occurs twice is refused the second time, and so is a file
    that cannot be read."""
    rules = RuleSet(pipelines=pipelines)
    rules.refused += pipelines.faults.values()
    for path in files:
        name = str(path).encode("utf-8", "replace").decode()  # a plan's texts are UTF-8, file names need not be
        try:
            content = read_regular(path, MAX_FILE + 1)
        except OSError as error:
            rules.refused.append(Refusal(name, 1, "", "", f"cannot be read: {error.strerror}"))
            continue
        add(rules, content, name)
    return rules


def add(rules: RuleSet, content: bytes | str, path: str = "<rule>") -> None:
    """Compile every document of one rule file into ``rules``. Whatever a parser raises refuses its document alone."""
    nodes, faults = read(content)
    rules.refused += (not_yaml(path, 1, error, content) for error in faults)
    for node, borrowed in collected(nodes):
        document: Any = None
        try:
            texts_too(node)
            try:
                document = construct(node)
            except (yaml.YAMLError, ValueError) as error:
                rules.refused.append(not_yaml(path, node.start_mark.line + 1, error))
                continue
            if document is not None:
                _add(rules, node, document, path, borrowed)
        except Exception as error:
            rules.refused.append(refusal(path, node, document, error))


def _add(rules: RuleSet, node: Any, document: Any, path: str, borrowed: bool) -> None:
    line, column = node.start_mark.line + 1, node.start_mark.column + 1
    known = document if isinstance(document, dict) else {}
    if "filter" in known:
        rules.filters.append(_filter(document, path, line, column, rules.pipelines))
        return
    if "correlation" in known:
        rules.documents.append(Document(document, path, line, column, node))
        return
    if borrowed and (rule_id := text(known.get("id"))) in rules.ids:  # one of a collection, whose documents share an id
        document["id"] = _own_id(rule_id, rules.ids)
    rule = _rule(rules, document, path, line)
    rules.ids.add(rule.id)
    rules.rules.append(rule)


def _rule(rules: RuleSet, document: Any, path: str, line: int) -> Rule:
    if not isinstance(document, dict):
        raise Unsupported(f"expects a mapping with title, logsource and detection, not {type(document).__name__}")
    if "action" in document:
        raise Unsupported(f"action {document['action']!r:.40}: expects global, reset, or repeat after a rule", "action")
    if (instead := legacy.correlation(document)) is not None:
        raise Unsupported(*instead)
    _check_items(document.get("detection"))
    meaning = {key: value for key, value in document.items() if key not in DESCRIPTIVE}
    parsed = SigmaRule.from_dict(meaning, source=SigmaRuleLocation(Path(path), line), policy=POLICY)
    if not parsed.title:
        raise Unsupported("title is missing")
    if len(rules.rules) >= MAX_RULES:
        raise Unsupported(f"the rule set has {MAX_RULES} rules before this one, and no more are taken")
    if sum(map(len, map(str, parsed.detection.condition))) > MAX_CONDITION:
        raise Unsupported(f"the condition is longer than {MAX_CONDITION} characters", "condition")
    if parsed.status is SigmaStatus.UNSUPPORTED:
        raise Unsupported("its status is 'unsupported': by its author's word it cannot be used as it is", "status")
    rule_id = str(parsed.id) if parsed.id else derived_id(document)
    if parsed.id is None and rule_id in rules.ids:
        rule_id = _own_id(rule_id, rules.ids)
    if rule_id in rules.ids:
        raise Unsupported(f"id {rule_id} is used by an earlier rule", "id")
    for detection in parsed.detection.detections.values():
        check_modifiers(detection)
    named = _source(parsed)
    expr = _compiled(rules, parsed)
    source = _source(parsed)
    rules.written[rule_id], rules.sources[rule_id] = parsed, named
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


def suppress_of(attributes: dict[str, Any]) -> Suppress | None:
    """What a rule's own attribute ``suppress: {by: [field, …], for: 10m}`` asks for; raises Unsupported."""
    asked = attributes.get("suppress")
    if asked is None:
        return None
    wanted = "suppress expects {by: [field, …], for: 10m}"
    if not isinstance(asked, dict) or set(asked) - {"by", "for"} or "for" not in asked:
        raise Unsupported(wanted, "suppress")
    by = asked.get("by") or []
    by = [by] if isinstance(by, str) else by
    if not isinstance(by, list) or not all(isinstance(name, str) for name in by):
        raise Unsupported(f"{wanted}: by is a list of fields", "suppress")
    try:
        held = seconds(str(asked["for"]))
    except ValueError:
        held = 0.0
    if not 1_000_000 <= held * 1_000_000 <= MAX_SPAN:
        raise Unsupported(f"{wanted}: for is a time of 1s to 366d, not {asked['for']!r}", "suppress")
    return Suppress(tuple(by), held)


def _source(parsed: SigmaRule) -> LogSource:
    source = parsed.logsource
    return LogSource(source.product or "", source.category or "", source.service or "")


def _compiled(rules: RuleSet, parsed: SigmaRule) -> Expr:
    """What ``parsed`` asks after the pipelines, which change it in place."""
    first, placeholders = len(rules.predicates), len(rules.placeholders)
    try:
        rules.pipelines.apply(parsed)
        for detection in parsed.detection.detections.values():
            mark_networks(detection)
        conditions, left = [], MAX_TESTS
        for condition in parsed.detection.parsed_condition:
            conditions.append(expression(rules, condition.parsed))
            left -= sum(1 for _ in tests(conditions[-1]))
            if left < 0:
                raise Unsupported(f"more than {MAX_TESTS} tests in one rule", "condition")
    except Exception:
        rules.forget(first, placeholders)  # a refused rule leaves no predicate behind
        raise
    return conditions[0] if len(conditions) == 1 else Or(tuple(conditions))


def _check_items(searches: Any) -> None:
    for name, definition in searches.items() if isinstance(searches, dict) else ():
        if name == "condition":
            for one in definition if isinstance(definition, list) else [definition]:
                if not isinstance(one, str):
                    told = "the condition is a text that names searches, as in 'selection and not filter', not"
                    raise Unsupported(f"{told} {'null' if one is None else repr(one)[:40]}", "condition")
        elif name != "rules":
            modifiers.check(definition)


def _filter(document: Any, path: str, line: int, column: int, pipelines: Pipelines) -> Filter:
    """A filter, which is also tried by itself, so that its mistakes are its own and no rule's."""
    _check_items(document["filter"])
    parsed = SigmaFilter.from_dict(document, source=SigmaRuleLocation(Path(path), line), policy=POLICY)
    for one in () if isinstance(parsed.filter.rules, str) else parsed.filter.rules:
        if not isinstance(one.reference, str):
            raise Unsupported(f"a filter names rules by id or name, not {one.reference!r:.40}", "filter")
    for detection in parsed.filter.detections.values():
        check_modifiers(detection)
    _compiled(RuleSet(pipelines=pipelines), _as_rule(document, document.get("logsource")))
    return Filter(parsed, document, path, line, column)


def named(rules: RuleSet, rule_id: str) -> dict[Expr, str]:
    """The names that a rule's author gave its parts: the expression of each search identifier."""
    detections = rules.written[rule_id].detection.detections
    known = RuleSet(list(rules.rules), [], list(rules.predicates), pipelines=rules.pipelines)
    known._index.update(rules._index)
    found = {
        expression(known, part.postprocess(rules.written[rule_id].detection)): name for name, part in detections.items()
    }
    return dict(reversed(found.items()))


def _as_rule(document: Any, logsource: Any) -> SigmaRule:
    """A filter's condition as a rule of its own, of the given log source: pipelines ask for it."""
    detection = {key: value for key, value in document["filter"].items() if key != "rules"}
    return SigmaRule.from_dict({"title": "filter", "logsource": logsource, "detection": detection}, policy=POLICY)


def finish(rules: RuleSet) -> None:
    """Join the filters to their rules and compile the correlations, once all rules are there; may be called again when
    more were added.

    A filter that names a rule which is not there is refused, but for the rules that are.
    """
    from vedette.rules import correlation  # it builds on this module

    rules.refused[:] = [refusal for refusal in rules.refused if not refusal.reason.startswith(_FILTER)]
    names = {written.name: rule_id for rule_id, written in rules.written.items() if written.name}
    for one in rules.filters:
        wanted = one.parsed.filter.rules
        if isinstance(wanted, str):
            targets = set(rules.written)
        else:
            targets = set()
            for reference in wanted:
                target = names.get(reference.reference, reference.reference)
                if target in rules.written:
                    targets.add(target)
                else:
                    _refuse(rules, one, f"{_FILTER} {reference.reference!r}, which is not among the rules")
        for i, rule in enumerate(rules.rules):
            if rule.id in targets - one.joined and _within(rules.sources[rule.id], one.parsed):
                logsource = {k: v for k, v in rules.sources[rule.id]._asdict().items() if v}
                known = rule.expr.args if isinstance(rule.expr, And) else (rule.expr,)
                try:
                    expr = And((*known, _compiled(rules, _as_rule(one.document, logsource))))
                except Exception as error:  # a pipeline or a bound of the set
                    _refuse(rules, one, f"{_FILTER} {rule.id!r}, to which it cannot be joined: {reason_of(error)}")
                    continue
                one.joined.add(rule.id)
                digest = meaning_digest(expr, rules.predicates, rule.logsource)
                rules.rules[i] = replace(rule, expr=expr, digest=digest)
    correlation.finish(rules)


_FILTER = "the filter names the rule"


def _refuse(rules: RuleSet, one: Filter, reason: str) -> None:
    title, own_id = text(one.document.get("title")), text(one.document.get("id"))
    rules.refused.append(Refusal(one.path, one.line, own_id, title, reason, one.column))


def _within(source: LogSource, one: SigmaFilter) -> bool:
    """True when a rule of ``source`` is of the filter's log source: what that leaves open may be anything."""
    asked = (one.logsource.product, one.logsource.category, one.logsource.service)
    return all(wanted is None or wanted == part for wanted, part in zip(asked, source, strict=True))


def _own_id(rule_id: str, taken: Collection[str]) -> str:
    """An id for one more rule where several have ``rule_id`` or a title in common; stable while their order is."""
    number = 2
    while (own := str(uuid.uuid5(uuid.NAMESPACE_OID, f"{rule_id}/{number}"))) in taken:
        number += 1
    return own


def derived_id(document: dict[str, Any]) -> str:
    """A stable id for a rule that has none: from its title, so that a later edit keeps it."""
    return hashlib.blake2b(str(document.get("title")).encode(), digest_size=16).hexdigest()


def meaning_digest(expr: Expr, predicates: list[Predicate], source: LogSource) -> str:
    """Hex digest of what a rule means, independent of predicate numbers and of its texts."""

    def spelled(data: Any) -> Any:
        if isinstance(data, int):
            return ["test", *predicates[data]]
        return [data[0], *map(spelled, data[1:])]

    packed = msgpack.packb([list(source), spelled(dump(expr))], use_bin_type=True)
    return hashlib.blake2b(packed, digest_size=16).hexdigest()
