"""What a rule's search asks: pySigma's conditions and values as expressions over predicates (``plan/ir.py``).

One function a step: ``expression`` for a condition, ``_value`` for a value of any kind, ``_string`` for the narrowest
operator of a string. What cannot be evaluated raises ``Unsupported``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.exceptions import SigmaError
from sigma.modifiers import reverse_modifier_mapping
from sigma.rule import SigmaDetection
from sigma.types import (
    Placeholder,
    SigmaBool,
    SigmaCasedString,
    SigmaCIDRExpression,
    SigmaExists,
    SigmaExpansion,
    SigmaFieldReference,
    SigmaNull,
    SigmaNumber,
    SigmaRegularExpression,
    SigmaRegularExpressionFlag,
    SigmaString,
    SigmaType,
    SpecialChars,
    type_map,
)

from vedette.lookup.layout import KINDS
from vedette.plan.database import refused
from vedette.plan.ir import ANY, KEYWORDS, STAR, And, Expr, Not, Op, Or, Predicate, fold
from vedette.plan.patterns import End, fallback, search
from vedette.rules.ruleset import RuleSet, Unsupported, Wanted
from vedette.rules.sigma.lists import INDEX, Listed
from vedette.rules.sigma.modifiers import MODIFIERS, SigmaNetworkText, SigmaTest
from vedette.rules.sigma.pipelines import NONE, POLICY, Pipelines, Table


def keep_kinds(detection: SigmaDetection) -> None:
    """Make the texts of items what their modifiers say (``Modifier.kind``), once pipelines are through: these put
    plain texts in the place of any."""
    for item in detection.detection_items:
        if isinstance(item, SigmaDetection):
            keep_kinds(item)
            continue
        names = (reverse_modifier_mapping[made.__name__] for made in item.modifiers)
        for kind in (row.kind for name in names if (row := MODIFIERS[name]).kind is not None):
            item.value = [_as(kind, value) for value in item.value]


def _as(kind: Any, value: SigmaType) -> SigmaType:
    if isinstance(value, SigmaExpansion):
        return SigmaExpansion([_as(kind, one) for one in value.values])
    if not isinstance(value, SigmaString):
        return value
    made: SigmaString = kind()
    made.original, made.s = value.original, value.s
    return made


class SigmaWholeNumber(SigmaNumber):
    """A whole number as it is written: pySigma's own goes through a float, which rounds beyond 53 bits."""

    def __post_init__(self, init_number: int) -> None:
        self.number = init_number


type_map[int] = SigmaWholeNumber

MAX_EXPANSION = 10_000
"""Values that the placeholders of one value may stand for."""

MAX_DEPTH = 100
"""Nesting of a condition beyond which a rule is refused."""

_FLAGS = {
    SigmaRegularExpressionFlag.IGNORECASE: "i",
    SigmaRegularExpressionFlag.MULTILINE: "m",
    SigmaRegularExpressionFlag.DOTALL: "s",
}


def expression(rules: RuleSet, node: Any, given: Pipelines = NONE, depth: int = 0) -> Expr:
    """A condition over predicates of ``rules``; ``given``: the values of placeholders. Raises Unsupported."""
    if depth > MAX_DEPTH:
        raise Unsupported(f"the condition is nested deeper than {MAX_DEPTH}", "condition")
    match node:
        case ConditionAND():
            return And(tuple(expression(rules, arg, given, depth + 1) for arg in node.args))
        case ConditionOR():
            return Or(tuple(expression(rules, arg, given, depth + 1) for arg in node.args))
        case ConditionNOT():
            return Not(expression(rules, node.args[0], given, depth + 1))
        case ConditionFieldEqualsValueExpression():
            return _value(rules, node.field, node.value, given)
        case ConditionValueExpression():
            return _value(rules, KEYWORDS, node.value, given)
    raise Unsupported("the condition is empty", "condition")


def _value(rules: RuleSet, name: str, value: SigmaType, given: Pipelines) -> Expr:
    match value:
        case SigmaExpansion():
            return Or(tuple(_value(rules, name, item, given) for item in value.values))
        case SigmaString() | SigmaRegularExpression() if (asked := _asked(value, given)) is not None:
            return rules.leaf(_looked_up(name, value, asked))
        case SigmaString() if name != KEYWORDS and (wanted := _wanted(name, value, given)) is not None:
            rules.wanted.append(wanted)
            return rules.leaf(Predicate(name, Op.LOOKUP, wanted.lookup, option=wanted.column or INDEX))
        case SigmaString() if name != KEYWORDS and (long := _listed(value, given)) is not None:
            placeholder, (lookup, rest) = long
            rules.lookups[lookup.name] = lookup
            tests = [rules.leaf(Predicate(name, Op.LOOKUP, lookup.name, option=INDEX))]
            patterns = _replaced(value, replace(given, lookups={placeholder: rest})) if rest else ()
            made = Or((*tests, *(_value(rules, name, item, given) for item in patterns)))
            rules.placeholders[made] = (f"%{placeholder}%",)
            return made
        case SigmaString() | SigmaRegularExpression() if value.contains_placeholder():
            made = Or(tuple(_value(rules, name, item, given) for item in _replaced(value, given)))
            whole = value.regexp if isinstance(value, SigmaRegularExpression) else value
            rules.placeholders[made] = tuple(f"%{part.name}%" for part in whole.s if isinstance(part, Placeholder))
            return made
        case SigmaNetworkText():
            try:
                return rules.leaf(Predicate(name, Op.CIDR, str(SigmaCIDRExpression(str(value)).network)))
            except SigmaError as error:
                raise Unsupported(f"a value of its placeholder is not a network: {error}") from error
        case SigmaString():
            return rules.leaf(_string(name, value))
        case SigmaRegularExpression():
            flags = "".join(sorted(_FLAGS[flag] for flag in value.flags))
            if "\0" in str(value.regexp):
                raise Unsupported(r"a regular expression holds a NUL character: write it as \x00")
            written = Predicate(name, Op.REGEX, str(value.regexp), True, flags)
            rules.check(written)  # before an engine sees it
            return rules.leaf(_readable(written))
        case SigmaTest():
            if name == KEYWORDS:
                raise Unsupported("a comparison needs a field")
            return rules.leaf(Predicate(name, value.op, _exact(value.number), option=value.option))
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


def _asked(value: SigmaString | SigmaRegularExpression, given: Pipelines) -> Table | None:
    """The built lookup that a value's placeholder names; None: it names none."""
    whole = value.regexp if isinstance(value, SigmaRegularExpression) else value
    found = [(part.name, given.table(part.name)) for part in whole.s if isinstance(part, Placeholder)]
    name, table = next(((name, table) for name, table in found if table is not None), ("", None))
    if table is not None and (len(whole.s) != 1 or whole is not value):
        raise Unsupported(
            f"%{name}% is a built lookup, which is asked for the whole value of a field: write 'field|expand:"
            f" %{name}%' alone (a key of kind domain finds what ends so, cidr|expand networks)"
        )
    return table


def _wanted(name: str, value: SigmaString, given: Pipelines) -> Wanted | None:
    """What a value asks of the lookup that is to be built; None: it asks another, or none."""
    kind = _KINDS.get(type(value))
    part = value.s[0] if len(value.s) == 1 else None
    found = given.of_wanted(part.name) if kind and isinstance(part, Placeholder) else None
    return None if kind is None or found is None else Wanted(*found, name, kind)


def _listed(value: SigmaString, given: Pipelines) -> tuple[str, Listed] | None:
    """The placeholder that a value is, and the lookup made of its list; None: its values are spelled out."""
    kind = _KINDS.get(type(value))
    if (
        kind is None
        or len(value.s) != 1
        or not isinstance(part := value.s[0], Placeholder)
        or part.name in given.faults
    ):
        return None
    found = given.listed(part.name, kind)
    return None if found is None else (part.name, found)


_KINDS = {SigmaString: "nocase", SigmaCasedString: "text", SigmaNetworkText: "cidr"}


def _looked_up(name: str, value: SigmaString | SigmaRegularExpression, asked: Table) -> Predicate:
    called, lookup, index = asked
    if name == KEYWORDS:
        raise Unsupported(f"the lookup {called} is asked for the value of a field: name the field")
    kinds = {"cidr", "ip"} if isinstance(value, SigmaNetworkText) else {*KINDS} - {"range"}
    if isinstance(value, SigmaCasedString):
        kinds = {"text"}
    fit = [one.name for one in lookup.indexes if one.kind in kinds and index in (None, one.name, *one.columns)]
    if not fit:
        has = ", ".join(f"{one.name} ({one.kind})" for one in lookup.indexes)
        raise Unsupported(
            f"the lookup {called} has no key that this can ask; it has {has}: build it with this rule,"
            f" vedette lookup build --rules"
        )
    own = [one.name for one in lookup.indexes if one.name in fit and one.columns == (name,)] if index is None else []
    return Predicate(name, Op.LOOKUP, called, option=(own or fit)[0])


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
            raise Unsupported(f"the placeholder %{part.name}% has no value: no pipeline or lookup defines it")
        found = [SigmaString(text) for text in values]
        if len(parts) * len(found) > MAX_EXPANSION:
            raise Unsupported(f"its placeholders expand to more than {MAX_EXPANSION:,} values")
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
