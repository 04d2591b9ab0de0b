"""Sigma YAML to the intermediate form. pySigma parses; the meaning is ours (``compiler/ir.py``).

A file may hold several documents, also a collection (``compiler/documents.py``). Each that is a single detection
becomes one ``ir.Rule``; each that cannot run becomes one ``ir.Refusal`` with file, line, column and reason, and the
others go on. The place is that of the part at fault: the detection item, else the condition, else the document.

A **filter** (``filter:`` document) of any file is joined by AND to the rules that it names and whose log source is
within its own: ``finish`` does so when all files are read.

Needs the extra ``vedette[rules]``. Nothing on an installed edge imports this module.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import yaml
from sigma import modifiers
from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.exceptions import SigmaError, SigmaRuleLocation
from sigma.filters import SigmaFilter
from sigma.modifiers import SigmaExpandModifier
from sigma.rule import SigmaDetection, SigmaRule
from sigma.rule.attributes import SigmaStatus
from sigma.types import (
    Placeholder,
    SigmaBool,
    SigmaCasedString,
    SigmaCIDRExpression,
    SigmaCompareExpression,
    SigmaExists,
    SigmaExpansion,
    SigmaFieldReference,
    SigmaNull,
    SigmaNumber,
    SigmaRegularExpression,
    SigmaRegularExpressionFlag,
    SigmaString,
    SigmaTimestampPart,
    SigmaType,
    SpecialChars,
    type_map,
)

from vedette.compiler import legacy
from vedette.compiler.documents import RuleLoader, child, collected, texts_too
from vedette.compiler.ir import (
    ANY,
    KEYWORDS,
    STAR,
    And,
    Expr,
    Leaf,
    Not,
    Op,
    Or,
    Predicate,
    Refusal,
    Rule,
    dump,
    fold,
)
from vedette.compiler.pipelines import NONE, POLICY, Pipelines
from vedette.compiler.relation import MAX_SPAN, Correlation, Suppress
from vedette.engine.patterns import End, fallback, search
from vedette.engine.scan import refused
from vedette.event import LogSource


class SigmaPlaceholderModifier(SigmaExpandModifier):
    """``expand`` as the specification has it: ``\\%`` is a percent sign, ``\\%plain%name%`` has one placeholder."""

    def modify(self, val: SigmaString | SigmaRegularExpression) -> SigmaString | SigmaRegularExpression:
        whole, percent = (val.regexp, r"\%") if isinstance(val, SigmaRegularExpression) else (val, "%")
        parts: list[Any] = []
        for part in whole.s:
            if not isinstance(part, str):
                parts.append(part)
                continue
            for token in re.finditer(r"\\%|%([^%\\]+)%|[^%\\]+|.", part, re.S):
                text = percent if token[0] == r"\%" else token[0]
                if token[1] is not None:
                    parts.append(Placeholder(token[1]))
                elif parts and isinstance(parts[-1], str):
                    parts[-1] += text
                else:
                    parts.append(text)
        whole.s = parts
        return val


class SigmaWholeNumber(SigmaNumber):
    """A whole number as it is written: pySigma's own goes through a float, which rounds beyond 53 bits."""

    def __post_init__(self, init_number: int) -> None:
        self.number = init_number


type_map[int] = SigmaWholeNumber
modifiers.modifier_mapping["expand"] = SigmaPlaceholderModifier
modifiers.reverse_modifier_mapping["SigmaPlaceholderModifier"] = "expand"
modifiers.modifier_mapping.setdefault("utf16le", modifiers.SigmaWideModifier)  # Sigma 2.1's name of ``wide``

MAX_EXPANSION = 10_000
"""Values that the placeholders of one value may stand for."""

MAX_DEPTH = 100
"""Nesting of a condition beyond which a rule is refused."""

MAX_TRIED = 1000
"""Detection items of a selection that are tried by themselves when the one at fault is looked for."""

DESCRIPTIVE = frozenset(
    ("related", "description", "license", "references", "author", "date", "modified", "falsepositives", "scope")
)
"""Attributes that tell people about a rule: a mistake in one is for ``rules lint`` and does not stop the rule."""

LEVELS = ("informational", "low", "medium", "high", "critical")

_FLAGS = {
    SigmaRegularExpressionFlag.IGNORECASE: "i",
    SigmaRegularExpressionFlag.MULTILINE: "m",
    SigmaRegularExpressionFlag.DOTALL: "s",
}


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
    _index: dict[Predicate, int] = field(default_factory=dict)

    def leaf(self, predicate: Predicate) -> Leaf:
        number = self._index.setdefault(predicate, len(self.predicates))
        if number == len(self.predicates):
            self.predicates.append(predicate)
        return Leaf(number)


def rule_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The rule files at ``paths``: files as given, folders recursively; ``*.test.yml`` are not rules.

    Raises FileNotFoundError for a path that does not exist.
    """
    for path in paths:
        if path.is_dir():
            found = (p for p in path.rglob("*") if p.suffix in (".yml", ".yaml"))
            yield from sorted(p for p in found if not p.name.endswith((".test.yml", ".test.yaml")))
        elif path.exists():
            yield path
        else:
            raise FileNotFoundError(f"{path}: no such rule file or folder")


def load(paths: Iterable[Path], pipelines: Pipelines = NONE) -> RuleSet:
    """All rules of the files and folders at ``paths``; a rule id that occurs twice is refused the second time."""
    rules = RuleSet(pipelines=pipelines)
    for path in rule_files(paths):
        name = str(path).encode("utf-8", "replace").decode()  # a plan's texts are UTF-8, file names need not be
        try:
            content = path.read_bytes()
        except OSError as error:
            rules.refused.append(Refusal(name, 1, "", "", f"cannot be read: {error.strerror}"))
            continue
        add(rules, content, name)
    return rules


def add(rules: RuleSet, content: bytes | str, path: str = "<rule>") -> None:
    """Compile every document of one rule file into ``rules``."""
    try:
        loader = RuleLoader(content)
        nodes: list[Any] = []
        while loader.check_node():
            nodes.append(loader.get_node())
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        rules.refused.append(_not_yaml(path, 1, error))
        return
    for node, borrowed in collected(nodes):
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        try:
            texts_too(node)
            document = loader.construct_document(node)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            rules.refused.append(_not_yaml(path, _repeated_key(node) or line, error))
            continue
        if document is None:
            continue
        known = document if isinstance(document, dict) else {}
        rule_id, title = str(known.get("id", "")), str(known.get("title", ""))
        try:
            if "filter" in known:
                rules.filters.append(_filter(document, path, line, column, rules.pipelines))
                continue
            if "correlation" in known:
                rules.documents.append(Document(document, path, line, column, node))
                continue
            if borrowed and rule_id in rules.ids:  # one of a collection, whose documents share an id
                document["id"] = _own_id(rule_id, rules.ids)
            rule = _rule(rules, document, path, line)
            rules.ids.add(rule.id)
            rules.rules.append(rule)
        except (SigmaError, Unsupported) as error:
            at, column = _place_at_fault(node, document, error) or (line, column)
            reason = str(error.args[0] if error.args else error)
            rules.refused.append(Refusal(path, at, rule_id, title, reason, column, getattr(error, "hint", "")))
        except (RecursionError, TypeError, AttributeError, ValueError, LookupError, ArithmeticError) as error:
            # pySigma lets builtin errors out on values of an unexpected type.
            at, column = _place_at_fault(node, document, error) or (line, column)
            reason = f"not a valid Sigma rule: {type(error).__name__}: {error}"
            rules.refused.append(Refusal(path, at, rule_id, title, reason[:300], column))


def _not_yaml(path: str, line: int, error: Exception) -> Refusal:
    mark = getattr(error, "problem_mark", None)
    reason = " ".join(str(getattr(error, "problem", None) or error).split())
    column = mark.column + 1 if mark else 0
    return Refusal(path, mark.line + 1 if mark else line, "", "", f"not valid YAML: {reason}", column)


def _repeated_key(document: Any) -> int | None:
    """The line of the first key that its mapping has already; None when there is none."""
    stack, seen = [document], set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in keys:
                    return int(key.start_mark.line) + 1
                keys.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
            stack.extend(value for _, value in reversed(node.value))
        elif isinstance(node, yaml.SequenceNode):
            stack.extend(reversed(node.value))
    return None


def _rule(rules: RuleSet, document: Any, path: str, line: int) -> Rule:
    if not isinstance(document, dict):
        raise Unsupported(f"expects a mapping with title, logsource and detection, not {type(document).__name__}")
    if "action" in document:
        raise Unsupported(f"action {document['action']!r:.40}: expects global, reset, or repeat after a rule", "action")
    if (instead := legacy.correlation(document)) is not None:
        raise Unsupported(*instead)
    meaning = {key: value for key, value in document.items() if key not in DESCRIPTIVE}
    parsed = SigmaRule.from_dict(meaning, source=SigmaRuleLocation(Path(path), line), policy=POLICY)
    if not parsed.title:
        raise Unsupported("title is missing")
    if parsed.status is SigmaStatus.UNSUPPORTED:
        raise Unsupported("its status is 'unsupported': by its author's word it cannot be used as it is", "status")
    rule_id = str(parsed.id) if parsed.id else derived_id(document)
    if parsed.id is None and rule_id in rules.ids:
        rule_id = _own_id(rule_id, rules.ids)
    if rule_id in rules.ids:
        raise Unsupported(f"id {rule_id} is used by an earlier rule", "id")
    for detection in parsed.detection.detections.values():
        _check_placeholders(detection)
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


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


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
    match = re.fullmatch(r"([0-9]+)\s*([smhdw])", str(asked["for"]))
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 0 < seconds * 1_000_000 <= MAX_SPAN:
        raise Unsupported(f"{wanted}: for is a time of 1s to 366d, not {asked['for']!r}", "suppress")
    return Suppress(tuple(by), float(seconds))


def _source(parsed: SigmaRule) -> LogSource:
    source = parsed.logsource
    return LogSource(source.product or "", source.category or "", source.service or "")


def _compiled(rules: RuleSet, parsed: SigmaRule) -> Expr:
    """What ``parsed`` asks after the pipelines, which change it in place."""
    first = len(rules.predicates)
    try:
        rules.pipelines.apply(parsed)
        conditions = [_expr(rules, condition.parsed) for condition in parsed.detection.parsed_condition]
    except Exception:
        for predicate in rules.predicates[first:]:  # a refused rule leaves no predicate behind
            del rules._index[predicate]
        del rules.predicates[first:]
        raise
    return conditions[0] if len(conditions) == 1 else Or(tuple(conditions))


def _filter(document: Any, path: str, line: int, column: int, pipelines: Pipelines) -> Filter:
    """A filter, which is also tried by itself, so that its mistakes are its own and no rule's."""
    parsed = SigmaFilter.from_dict(document, source=SigmaRuleLocation(Path(path), line), policy=POLICY)
    for detection in parsed.filter.detections.values():
        _check_placeholders(detection)
    _compiled(RuleSet(pipelines=pipelines), _as_rule(document, document.get("logsource")))
    return Filter(parsed, document, path, line, column)


def named(rules: RuleSet, rule_id: str) -> dict[Expr, str]:
    """The names that a rule's author gave its parts: the expression of each search identifier."""
    detections = rules.written[rule_id].detection.detections
    known = RuleSet(list(rules.rules), [], list(rules.predicates), pipelines=rules.pipelines)
    known._index.update(rules._index)
    found = {
        _expr(known, part.postprocess(rules.written[rule_id].detection)): name for name, part in detections.items()
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
    from vedette.compiler import correlation  # it builds on this module

    rules.refused[:] = [refusal for refusal in rules.refused if not refusal.reason.startswith(_UNKNOWN_RULE)]
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
                    reason = f"{_UNKNOWN_RULE} {reference.reference!r}, which is not among the rules"
                    title, own_id = str(one.document.get("title", "")), str(one.document.get("id", ""))
                    rules.refused.append(Refusal(one.path, one.line, own_id, title, reason, one.column))
        for i, rule in enumerate(rules.rules):
            if rule.id in targets - one.joined and _within(rules.sources[rule.id], one.parsed):
                one.joined.add(rule.id)
                logsource = {k: v for k, v in rules.sources[rule.id]._asdict().items() if v}
                known = rule.expr.args if isinstance(rule.expr, And) else (rule.expr,)
                expr = And((*known, _compiled(rules, _as_rule(one.document, logsource))))
                digest = meaning_digest(expr, rules.predicates, rule.logsource)
                rules.rules[i] = replace(rule, expr=expr, digest=digest)
    correlation.finish(rules)


_UNKNOWN_RULE = "the filter names the rule"


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


def _expr(rules: RuleSet, node: Any, depth: int = 0) -> Expr:
    if depth > MAX_DEPTH:
        raise Unsupported(f"the condition is nested deeper than {MAX_DEPTH}", "condition")
    match node:
        case ConditionAND():
            return And(tuple(_expr(rules, arg, depth + 1) for arg in node.args))
        case ConditionOR():
            return Or(tuple(_expr(rules, arg, depth + 1) for arg in node.args))
        case ConditionNOT():
            return Not(_expr(rules, node.args[0], depth + 1))
        case ConditionFieldEqualsValueExpression():
            return _value(rules, node.field, node.value)
        case ConditionValueExpression():
            return _value(rules, KEYWORDS, node.value)
    raise Unsupported("the condition is empty", "condition")


def _value(rules: RuleSet, name: str, value: SigmaType) -> Expr:
    match value:
        case SigmaExpansion():
            return Or(tuple(_value(rules, name, item) for item in value.values))
        case SigmaString() | SigmaRegularExpression() if value.contains_placeholder():
            return Or(tuple(_value(rules, name, item) for item in _replaced(value, rules.pipelines.lookups)))
        case SigmaString():
            return rules.leaf(_string(name, value))
        case SigmaRegularExpression():
            flags = "".join(sorted(_FLAGS[flag] for flag in value.flags))
            if "\0" in str(value.regexp):
                raise Unsupported(r"a regular expression holds a NUL character: write it as \x00")
            return rules.leaf(_readable(Predicate(name, Op.REGEX, str(value.regexp), True, flags)))
        case SigmaTimestampPart():
            if name == KEYWORDS:
                raise Unsupported("a part of a time needs a field")
            unit = value.timestamp_part.name.lower()
            return rules.leaf(Predicate(name, Op.TIME_PART, _exact(value), option=unit))
        case SigmaBool():
            return rules.leaf(_plain(name, "true" if value.boolean else "false"))
        case SigmaNumber():
            if name == KEYWORDS:
                return rules.leaf(_plain(name, str(_exact(value))))
            return rules.leaf(Predicate(name, Op.NUMBER, _exact(value)))
        case SigmaNull():
            if name == KEYWORDS:
                raise Unsupported("null needs a field")
            return rules.leaf(Predicate(name, Op.NULL))
        case SigmaCIDRExpression():
            return rules.leaf(Predicate(name, Op.CIDR, str(value.network)))
        case SigmaCompareExpression():
            if name == KEYWORDS:
                raise Unsupported("a comparison needs a field")
            op = Op(value.op.name.lower())
            return rules.leaf(Predicate(name, op, _exact(value.number)))
        case SigmaExists():
            present: Expr = rules.leaf(Predicate(name, Op.EXISTS))
            return present if bool(value) else Not(present)
        case SigmaFieldReference():
            if name == KEYWORDS:
                raise Unsupported("a field reference needs a field to compare with")
            ops = {
                (False, False): Op.FIELD_EXACT,
                (True, False): Op.FIELD_PREFIX,
                (False, True): Op.FIELD_SUFFIX,
                (True, True): Op.FIELD_CONTAINS,
            }
            return rules.leaf(Predicate(name, ops[value.starts_with, value.ends_with], value.field))
    raise Unsupported(f"values of kind {type(value).__name__} are not supported")


def _readable(p: Predicate) -> Predicate:
    """A regex predicate that an engine can run; raises Unsupported for another."""
    try:
        found = search(p)
        if found.end is End.PERHAPS or refused([found.pattern]):
            fallback(str(p.value), p.option)
    except ValueError as error:
        raise Unsupported(str(error)) from error
    return p


def _exact(value: SigmaNumber) -> int | float:
    """The number; raises Unsupported for a whole number beyond 64 bits."""
    number = value.number
    if isinstance(number, int) and not -(2**63) <= number < 2**64:
        raise Unsupported(f"the number {number:.17g} is too large: put it in quotes")
    return number


def _plain(name: str, value: str) -> Predicate:
    return Predicate(name, Op.CONTAINS if name == KEYWORDS else Op.EXACT, fold(value))


def _string(name: str, value: SigmaString) -> Predicate:
    """The narrowest operator for a string with wildcards; a keyword is searched, so it has ``*`` around it."""
    cased = isinstance(value, SigmaCasedString)
    parts: list[str] = []
    for part in value.s:
        match part:
            case str():
                text = part if cased else fold(part)
                parts.extend(text if text in (STAR, ANY) else [text])  # as two texts it is no wildcard
            case SpecialChars.WILDCARD_MULTI:
                if not parts or parts[-1] != STAR:
                    parts.append(STAR)
            case SpecialChars.WILDCARD_SINGLE:
                parts.append(ANY)
            case _:
                raise Unsupported(f"string part {part!r} is not supported")
    if name == KEYWORDS:
        parts = [STAR, *parts, STAR]
        parts = [p for i, p in enumerate(parts) if p != STAR or i == 0 or parts[i - 1] != STAR]
    match parts:
        case []:
            return Predicate(name, Op.EXACT, "", cased)
        case [text] if text not in (STAR, ANY):
            return Predicate(name, Op.EXACT, text, cased)
        case [text, "\x00*"] if text not in (STAR, ANY):
            return Predicate(name, Op.PREFIX, text, cased)
        case ["\x00*", text] if text not in (STAR, ANY):
            return Predicate(name, Op.SUFFIX, text, cased)
        case ["\x00*", text, "\x00*"] if text not in (STAR, ANY):
            return Predicate(name, Op.CONTAINS, text, cased)
    return Predicate(name, Op.GLOB, tuple(parts), cased)


def _replaced(value: SigmaString | SigmaRegularExpression, lookups: Mapping[str, tuple[str, ...]]) -> list[SigmaType]:
    """``value`` once for each value of its placeholders; in a regular expression these are texts, ``*`` and ``?``
    of them wildcards."""
    parts: list[list[Any]] = [[]]
    whole = value.regexp if isinstance(value, SigmaRegularExpression) else value
    for part in whole.s:
        if not isinstance(part, Placeholder):
            parts = [[*head, part] for head in parts]
            continue
        if part.name not in lookups:
            raise Unsupported(f"the placeholder %{part.name}% has no value: no pipeline and no lookup gives one")
        found = [SigmaString(text) for text in lookups[part.name]]
        if len(parts) * len(found) > MAX_EXPANSION:
            raise Unsupported(f"its placeholders stand for more than {MAX_EXPANSION:,} values")
        tails = [[str(text.to_regex().regexp)] if whole is not value else text.s for text in found]
        parts = [[*head, *tail] for head in parts for tail in tails]
    made: list[SigmaType] = []
    for one in parts:
        if isinstance(value, SigmaRegularExpression):
            source = "".join(part if isinstance(part, str) else "*" for part in one)  # |contains has put .* around it
            made.append(SigmaRegularExpression(source, set(value.flags), POLICY))
            continue
        text = SigmaCasedString() if isinstance(value, SigmaCasedString) else SigmaString()
        text.s = []
        for part in one:
            if isinstance(part, str) and text.s and isinstance(text.s[-1], str):
                text.s[-1] += part
            else:
                text.s.append(part)
        made.append(text)
    return made


_TAKE_TEXT = frozenset(
    {
        modifiers.SigmaFieldReferenceModifier,
        modifiers.SigmaBase64Modifier,
        modifiers.SigmaBase64OffsetModifier,
        modifiers.SigmaWideModifier,
        modifiers.SigmaUTF16Modifier,
        modifiers.SigmaUTF16BEModifier,
    }
)


def _check_placeholders(detection: SigmaDetection) -> None:
    """Raise Unsupported for a placeholder under a modifier that has made something else of its name."""
    for item in detection.detection_items:
        if isinstance(item, SigmaDetection):
            _check_placeholders(item)
        elif SigmaPlaceholderModifier in item.modifiers and _TAKE_TEXT.intersection(item.modifiers):
            for value in item.original_value or ():
                if isinstance(value, SigmaString) and (name := re.search(r"%[^%]+%", value.original)):
                    raise Unsupported(
                        f"the placeholder {name[0]} has no value yet when it is encoded: modifiers come first"
                    )


def _place_at_fault(node: Any, document: Any, error: Exception) -> tuple[int, int] | None:
    """Line and column of the first detection item that is refused by itself, else of the condition or of the part of
    the rule that ``error`` is about; None: unknown."""
    part = type(error).__name__.removeprefix("Sigma").removesuffix("Error").lower()
    part = {"identifier": "id", "recursion": "condition", "filtercondition": "filter",
            "filterrulereference": "filter"}.get(part, part)  # fmt: skip
    if isinstance(error, Unsupported):
        part = error.part
    kind = "filter" if child(node, "filter") is not None else "detection"
    selections = child(node, kind)
    if isinstance(selections, yaml.MappingNode) and isinstance(document, dict):
        for key, value in selections.value:
            if key.value in ("condition", "rules" if kind == "filter" else "condition"):
                continue
            for item, item_node in islice(_items(document[kind].get(key.value), key, value), MAX_TRIED):
                try:
                    detection = SigmaDetection.from_definition(item, policy=POLICY)
                    _check_placeholders(detection)
                    _expr(RuleSet(), detection.postprocess(_NO_DETECTIONS))
                except Exception:  # whatever it is, it is the fault being looked for
                    return _place(item_node)
        if part == "condition":
            node = selections
    if isinstance(node, yaml.MappingNode):
        for key, _ in node.value:
            if key.value == part:
                return _place(key)
    return None


def _place(node: Any) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


_NO_DETECTIONS: Any = None
"""Of a detection without a condition: items do not look at others."""


def _items(definition: Any, key: Any, value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Pairs of (a definition with one item, its YAML node), down to single keys of mappings."""
    if depth > MAX_DEPTH:  # a list may hold itself, by an alias
        return
    if not definition:
        yield definition, key
    elif isinstance(definition, dict) and isinstance(value, yaml.MappingNode):
        for (name, item), (item_key, _) in zip(definition.items(), value.value, strict=False):
            yield {name: item}, item_key
    elif isinstance(definition, list) and isinstance(value, yaml.SequenceNode):
        for item, item_node in zip(definition, value.value, strict=False):
            yield from _items(item, item_node, item_node, depth + 1)
    else:
        yield definition, key
