"""Sigma YAML to the intermediate form. pySigma parses; the meaning is ours (``compiler/ir.py``).

A file may hold several documents. Each that is a single detection becomes one ``ir.Rule``; each that cannot run
becomes one ``ir.Refusal`` with file, line and reason, and the others go on. The line is that of the part at fault:
the detection item, else the condition, else the document.

Needs the extra ``vedette[rules]``. Nothing on an installed edge imports this module.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import yaml
from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.exceptions import SigmaError, SigmaRuleLocation
from sigma.modifiers import SigmaExpandModifier
from sigma.rule import SigmaDetection, SigmaDetectionItem, SigmaRule
from sigma.rule.base import SigmaYAMLLoader
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
)

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
from vedette.engine.patterns import End, fallback, search
from vedette.engine.scan import refused
from vedette.event import LogSource

MAX_DEPTH = 100
"""Nesting of a condition beyond which a rule is refused."""

LEVELS = ("informational", "low", "medium", "high", "critical")

_FLAGS = {
    SigmaRegularExpressionFlag.IGNORECASE: "i",
    SigmaRegularExpressionFlag.MULTILINE: "m",
    SigmaRegularExpressionFlag.DOTALL: "s",
}


class Unsupported(ValueError):
    """A rule asks for something valid that Vedette cannot do; ``part``: the key of the rule that it is about."""

    def __init__(self, reason: str, part: str = "") -> None:
        super().__init__(reason)
        self.part = part


@dataclass(slots=True)
class RuleSet:
    """What a set of rule files came to; ``rules`` refer to ``predicates`` by index."""

    rules: list[Rule] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    predicates: list[Predicate] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
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


def load(paths: Iterable[Path]) -> RuleSet:
    """All rules of the files and folders at ``paths``; a rule id that occurs twice is refused the second time."""
    rules = RuleSet()
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
        loader = SigmaYAMLLoader(content)
        nodes: list[Any] = []
        while loader.check_node():
            nodes.append(loader.get_node())
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        rules.refused.append(_not_yaml(path, 1, error))
        return
    for node in nodes:
        line = node.start_mark.line + 1
        try:
            document = loader.construct_document(node)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            rules.refused.append(_not_yaml(path, _repeated_key(node) or line, error))
            continue
        if document is None:
            continue
        known = document if isinstance(document, dict) else {}
        rule_id, title = str(known.get("id", "")), str(known.get("title", ""))
        try:
            rule = _rule(rules, document, path, line)
            rules.ids.add(rule.id)
            rules.rules.append(rule)
        except (SigmaError, Unsupported) as error:
            at = _line_at_fault(node, document, error) or line
            reason = str(error.args[0] if error.args else error)
            rules.refused.append(Refusal(path, at, rule_id, title, reason))
        except (RecursionError, TypeError, AttributeError, ValueError, LookupError, ArithmeticError) as error:
            # pySigma lets builtin errors out on values of an unexpected type.
            at = _line_at_fault(node, document, error) or line
            reason = f"not a valid Sigma rule: {type(error).__name__}: {error}"
            rules.refused.append(Refusal(path, at, rule_id, title, reason[:300]))


def _not_yaml(path: str, line: int, error: Exception) -> Refusal:
    mark = getattr(error, "problem_mark", None)
    reason = " ".join(str(getattr(error, "problem", None) or error).split())
    return Refusal(path, mark.line + 1 if mark else line, "", "", f"not valid YAML: {reason}")


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
    for key in ("correlation", "filter", "action"):
        if key in document:
            raise Unsupported(f"'{key}' documents are not supported yet; single detections are", key)
    parsed = SigmaRule.from_dict(document, source=SigmaRuleLocation(Path(path), line))
    if not parsed.title:
        raise Unsupported("title is missing")
    rule_id = str(parsed.id) if parsed.id else _derived_id(document)
    if rule_id in rules.ids:
        raise Unsupported(f"id {rule_id} is used by an earlier rule", "id")
    for detection in parsed.detection.detections.values():
        _check_placeholders(detection)
    first = len(rules.predicates)
    try:
        conditions = [_expr(rules, condition.parsed) for condition in parsed.detection.parsed_condition]
    except Exception:
        for predicate in rules.predicates[first:]:  # a refused rule leaves no predicate behind
            del rules._index[predicate]
        del rules.predicates[first:]
        raise
    expr = conditions[0] if len(conditions) == 1 else Or(tuple(conditions))
    source = LogSource(parsed.logsource.product or "", parsed.logsource.category or "", parsed.logsource.service or "")
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
    )


def _derived_id(document: dict[str, Any]) -> str:
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
        case SigmaString():
            return rules.leaf(_string(name, value))
        case SigmaRegularExpression():
            flags = "".join(sorted(_FLAGS[flag] for flag in value.flags))
            if "\0" in str(value.regexp):
                raise Unsupported(r"a regular expression holds a NUL character: write it as \x00")
            return rules.leaf(_readable(Predicate(name, Op.REGEX, str(value.regexp), True, flags)))
        case SigmaTimestampPart():
            unit = value.timestamp_part.name.lower()
            raise Unsupported(f"the modifier '{unit}' is not supported yet")
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
    """The number; raises Unsupported beyond 64 bits, or where pySigma has rounded a whole number."""
    number = value.number
    rounded = isinstance(number, float) and number.is_integer()
    if rounded or not -(2**63) <= number < 2**64:
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
            case Placeholder():
                raise Unsupported(f"the placeholder %{part.name}% has no value: no pipeline gives one")
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


def _check_placeholders(detection: SigmaDetection) -> None:
    """Raise Unsupported for a placeholder: another modifier may have made plain text of its name."""
    for item in detection.detection_items:
        if isinstance(item, SigmaDetection):
            _check_placeholders(item)
        elif isinstance(item, SigmaDetectionItem) and SigmaExpandModifier in item.modifiers:
            for value in item.original_value or ():
                if isinstance(value, SigmaString) and (name := re.search(r"%[^%]+%", value.original)):
                    raise Unsupported(f"the placeholder {name[0]} has no value: no pipeline gives one")


def _line_at_fault(node: Any, document: Any, error: Exception) -> int | None:
    """The line of the first detection item that is refused by itself, else of the condition or of the part of the
    rule that ``error`` is about; None: unknown."""
    part = type(error).__name__.removeprefix("Sigma").removesuffix("Error").lower()
    part = {"identifier": "id", "recursion": "condition"}.get(part, part)
    if isinstance(error, Unsupported):
        part = error.part
    selections = _child(node, "detection")
    if isinstance(selections, yaml.MappingNode) and isinstance(document, dict):
        for key, value in selections.value:
            if key.value == "condition":
                continue
            for item, item_node in _items(document["detection"].get(key.value), key, value):
                try:
                    detection = SigmaDetection.from_definition(item)
                    _check_placeholders(detection)
                    _expr(RuleSet(), detection.postprocess(_NO_DETECTIONS))
                except Exception:  # whatever it is, it is the fault being looked for
                    return int(item_node.start_mark.line) + 1
        if part == "condition":
            node = selections
    if isinstance(node, yaml.MappingNode):
        for key, _ in node.value:
            if key.value == part:
                return int(key.start_mark.line) + 1
    return None


_NO_DETECTIONS: Any = None
"""Of a detection without a condition: items do not look at others."""


def _items(definition: Any, key: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of (a definition with one item, its YAML node), down to single keys of mappings."""
    if not definition:
        yield definition, key
    elif isinstance(definition, dict) and isinstance(value, yaml.MappingNode):
        for (name, item), (item_key, _) in zip(definition.items(), value.value, strict=False):
            yield {name: item}, item_key
    elif isinstance(definition, list) and isinstance(value, yaml.SequenceNode):
        for item, item_node in zip(definition, value.value, strict=False):
            yield from _items(item, item_node, item_node)
    else:
        yield definition, key


def _child(node: Any, name: str) -> Any:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == name:
                return value
    return None
