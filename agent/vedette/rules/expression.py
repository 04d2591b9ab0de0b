"""What a rule's search asks: pySigma's conditions and values as expressions over predicates (``ir.py``).

One function a step: ``expression`` for a condition, ``_value`` for a value of any kind, ``_string`` for the narrowest
operator of a string. pySigma's own reading is replaced where it falls short of the specification: placeholders with
escapes, whole numbers beyond 53 bits, ``utf16le``. What cannot be judged raises ``Unsupported``.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from sigma import modifiers
from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.exceptions import SigmaError
from sigma.modifiers import SigmaExpandModifier
from sigma.rule import SigmaDetection
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

from vedette.plan.database import refused
from vedette.plan.ir import ANY, KEYWORDS, STAR, And, Expr, Not, Op, Or, Predicate, fold
from vedette.plan.patterns import End, fallback, search
from vedette.plan.timepart import UNITS
from vedette.rules.pipelines import POLICY, Pipelines
from vedette.rules.ruleset import RuleSet, Unsupported


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


class SigmaNetworkModifier(modifiers.SigmaCIDRModifier):
    """``cidr`` before or behind ``expand``: a text until its placeholders are known (``mark_networks``)."""

    def modify(self, val: SigmaString) -> SigmaCIDRExpression | SigmaString:  # type: ignore[override]
        if SigmaPlaceholderModifier in self.detection_item.modifiers:
            return val
        return super().modify(val)


class SigmaNetworkText(SigmaString):
    """A text that is a network, once its placeholders have their values."""


def mark_networks(detection: SigmaDetection) -> None:
    """Mark the texts of items with ``cidr``: when pipelines are through, since these make plain texts of any."""
    for item in detection.detection_items:
        if isinstance(item, SigmaDetection):
            mark_networks(item)
        elif SigmaNetworkModifier in item.modifiers:
            item.value = [_network(value) if isinstance(value, SigmaString) else value for value in item.value]


def _network(text: SigmaString) -> SigmaNetworkText:
    made = SigmaNetworkText(text.original)
    made.s = text.s
    return made


class SigmaDashModifier(modifiers.SigmaWindowsDashModifier):
    """``windash`` for each of the five dashes that the specification names, not only for a rule's ``-`` and ``/``."""

    def modify(self, val: SigmaString) -> SigmaExpansion:
        plain = copy.copy(val)
        plain.s = [_LONG_DASH.sub("-", part) if isinstance(part, str) else part for part in val.s]
        return super().modify(plain)


_LONG_DASH = re.compile(r"\B[\u2013\u2014\u2015]\b")


class SigmaWholeNumber(SigmaNumber):
    """A whole number as it is written: pySigma's own goes through a float, which rounds beyond 53 bits."""

    def __post_init__(self, init_number: int) -> None:
        self.number = init_number


type_map[int] = SigmaWholeNumber
modifiers.modifier_mapping["expand"] = SigmaPlaceholderModifier
modifiers.reverse_modifier_mapping["SigmaPlaceholderModifier"] = "expand"
modifiers.modifier_mapping["windash"] = SigmaDashModifier
modifiers.reverse_modifier_mapping["SigmaDashModifier"] = "windash"
modifiers.modifier_mapping["cidr"] = SigmaNetworkModifier
modifiers.reverse_modifier_mapping["SigmaNetworkModifier"] = "cidr"
modifiers.modifier_mapping.setdefault("utf16le", modifiers.SigmaWideModifier)  # Sigma 2.1's name of ``wide``

MAX_EXPANSION = 10_000
"""Values that the placeholders of one value may stand for."""

MAX_DEPTH = 100
"""Nesting of a condition beyond which a rule is refused."""

_FLAGS = {
    SigmaRegularExpressionFlag.IGNORECASE: "i",
    SigmaRegularExpressionFlag.MULTILINE: "m",
    SigmaRegularExpressionFlag.DOTALL: "s",
}


def expression(rules: RuleSet, node: Any, depth: int = 0) -> Expr:
    if depth > MAX_DEPTH:
        raise Unsupported(f"the condition is nested deeper than {MAX_DEPTH}", "condition")
    match node:
        case ConditionAND():
            return And(tuple(expression(rules, arg, depth + 1) for arg in node.args))
        case ConditionOR():
            return Or(tuple(expression(rules, arg, depth + 1) for arg in node.args))
        case ConditionNOT():
            return Not(expression(rules, node.args[0], depth + 1))
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
            made = Or(tuple(_value(rules, name, item) for item in _replaced(value, rules.pipelines)))
            whole = value.regexp if isinstance(value, SigmaRegularExpression) else value
            rules.placeholders[made] = tuple(f"%{part.name}%" for part in whole.s if isinstance(part, Placeholder))
            return made
        case SigmaNetworkText():
            try:
                return rules.leaf(Predicate(name, Op.CIDR, str(SigmaCIDRExpression(str(value)).network)))
            except SigmaError as error:
                raise Unsupported(f"a placeholder stands for what is no network: {error}") from error
        case SigmaString():
            return rules.leaf(_string(name, value))
        case SigmaRegularExpression():
            flags = "".join(sorted(_FLAGS[flag] for flag in value.flags))
            if "\0" in str(value.regexp):
                raise Unsupported(r"a regular expression holds a NUL character: write it as \x00")
            written = Predicate(name, Op.REGEX, str(value.regexp), True, flags)
            rules.check(written)  # before an engine sees it
            return rules.leaf(_readable(written))
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
        raise Unsupported(f"the number {number} is too large: put it in quotes")
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


def _replaced(value: SigmaString | SigmaRegularExpression, given: Pipelines) -> list[SigmaType]:
    """``value`` once for each value of its placeholders; in a regular expression these are texts, ``*`` and ``?``
    of them wildcards."""
    parts: list[list[Any]] = [[]]
    whole = value.regexp if isinstance(value, SigmaRegularExpression) else value
    for part in whole.s:
        if not isinstance(part, Placeholder):
            parts = [[*head, part] for head in parts]
            continue
        if (fault := given.faults.get(part.name)) is not None:
            raise Unsupported(f"the placeholder %{part.name}% has no value: {fault.path}: {fault.reason}")
        if (values := given.lookups.get(part.name)) is None:
            raise Unsupported(f"the placeholder %{part.name}% has no value: no pipeline and no lookup gives one")
        found = [SigmaString(text) for text in values]
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
        text = type(value)()
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


_TIME_PARTS = frozenset(modifiers.modifier_mapping[unit] for unit in UNITS)


def check_modifiers(detection: SigmaDetection) -> None:
    """Raise Unsupported for modifiers that pySigma takes together though one makes nothing of the other: a placeholder
    under one that has made something else of its name; a part of a time under any other."""
    for item in detection.detection_items:
        if isinstance(item, SigmaDetection):
            check_modifiers(item)
            continue
        others = [made for made in item.modifiers if made is not modifiers.SigmaNegateModifier]
        if _TIME_PARTS.intersection(others) and len(others) > 1:
            raise Unsupported("a part of a time takes no further modifier: list the numbers, as in [20, 21, 22, 23]")
        if SigmaPlaceholderModifier in item.modifiers and _TAKE_TEXT.intersection(item.modifiers):
            for value in item.original_value or ():
                if isinstance(value, SigmaString) and (name := re.search(r"%[^%]+%", value.original)):
                    raise Unsupported(
                        f"the placeholder {name[0]} has no value yet when it is encoded: modifiers come first"
                    )
