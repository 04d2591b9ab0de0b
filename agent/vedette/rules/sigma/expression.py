"""Searches of a rule: pySigma's conditions and values as expressions over predicates (``plan/ir.py``).

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
        names = (reverse_modifier_mapping[modifier.__name__] for modifier in item.modifiers)
        for kind in (row.kind for name in names if (row := MODIFIERS[name]).kind is not None):
            item.value = [_as(kind, value) for value in item.value]


def _as(kind: Any, value: SigmaType) -> SigmaType:
    if isinstance(value, SigmaExpansion):
        return SigmaExpansion([_as(kind, text) for text in value.values])
    if not isinstance(value, SigmaString):
        return value
    text: SigmaString = kind()
    text.original = value.original
    text.s = value.s
    return text


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


def expression(rules: RuleSet, node: Any, pipelines: Pipelines = NONE, depth: int = 0) -> Expr:
    """A condition over predicates of ``rules``; ``pipelines``: the values of placeholders. Raises Unsupported."""
    if depth > MAX_DEPTH:
        raise Unsupported(f"the condition is nested deeper than {MAX_DEPTH}", "condition")
    match node:
        case ConditionAND():
            return And(tuple(expression(rules, arg, pipelines, depth + 1) for arg in node.args))
        case ConditionOR():
            return Or(tuple(expression(rules, arg, pipelines, depth + 1) for arg in node.args))
        case ConditionNOT():
            return Not(expression(rules, node.args[0], pipelines, depth + 1))
        case ConditionFieldEqualsValueExpression():
            return _value(rules, node.field, node.value, pipelines)
        case ConditionValueExpression():
            return _value(rules, KEYWORDS, node.value, pipelines)
    raise Unsupported("the condition is empty", "condition")


def _value(rules: RuleSet, name: str, value: SigmaType, pipelines: Pipelines) -> Expr:
    """The test that a value of any kind makes of the field ``name``, or of all texts of an event (``KEYWORDS``)."""
    match value:
        case SigmaExpansion():
            return Or(tuple(_value(rules, name, item, pipelines) for item in value.values))
        case SigmaString() | SigmaRegularExpression() if value.contains_placeholder():
            return _with_placeholder(rules, name, value, pipelines)
        case SigmaNetworkText():
            try:
                return rules.leaf(Predicate(name, Op.CIDR, str(SigmaCIDRExpression(str(value)).network)))
            except SigmaError as error:
                raise Unsupported(f"a value of its placeholder is not a network: {error}") from error
        case SigmaString():
            return rules.leaf(_string(name, value))
        case SigmaRegularExpression():
            return rules.leaf(_regex(rules, name, value))
        case SigmaBool():
            return rules.leaf(_plain(name, "true" if value.boolean else "false"))
        case SigmaNumber() if name == KEYWORDS:
            return rules.leaf(_plain(name, str(_exact(value))))
        case SigmaNumber():
            return rules.leaf(Predicate(name, Op.NUMBER, _exact(value)))
        case SigmaCIDRExpression():
            return rules.leaf(Predicate(name, Op.CIDR, str(value.network)))
        case SigmaExists():
            present: Expr = rules.leaf(Predicate(name, Op.EXISTS))
            return present if bool(value) else Not(present)
        case SigmaTest() | SigmaNull() | SigmaFieldReference():
            return rules.leaf(_of_field(name, value))
    raise Unsupported(f"values of kind {type(value).__name__} are not supported")


def _with_placeholder(
    rules: RuleSet, name: str, value: SigmaString | SigmaRegularExpression, pipelines: Pipelines
) -> Expr:
    """A value with placeholders: a test by a lookup, or a choice of the values that they stand for."""
    if (table := _asked(value, pipelines)) is not None:
        return rules.leaf(_looked_up(name, value, table))
    if isinstance(value, SigmaString) and name != KEYWORDS:
        if (wanted := _wanted(name, value, pipelines)) is not None:
            rules.wanted.append(wanted)
            return rules.leaf(Predicate(name, Op.LOOKUP, wanted.lookup, option=wanted.column or INDEX))
        if (long := _listed(value, pipelines)) is not None:
            placeholder, (lookup, rest) = long
            rules.lookups[lookup.name] = lookup
            test = rules.leaf(Predicate(name, Op.LOOKUP, lookup.name, option=INDEX))
            patterns = _replaced(value, replace(pipelines, lookups={placeholder: rest})) if rest else ()
            choice = Or((test, *(_value(rules, name, item, pipelines) for item in patterns)))
            rules.placeholders[choice] = (f"%{placeholder}%",)
            return choice
    choice = Or(tuple(_value(rules, name, item, pipelines) for item in _replaced(value, pipelines)))
    whole = value.regexp if isinstance(value, SigmaRegularExpression) else value
    rules.placeholders[choice] = tuple(f"%{part.name}%" for part in whole.s if isinstance(part, Placeholder))
    return choice


def _regex(rules: RuleSet, name: str, value: SigmaRegularExpression) -> Predicate:
    flags = "".join(sorted(_FLAGS[flag] for flag in value.flags))
    if "\0" in str(value.regexp):
        raise Unsupported(r"a regular expression holds a NUL character: write it as \x00")
    predicate = Predicate(name, Op.REGEX, str(value.regexp), True, flags)
    rules.check(predicate)  # before an engine sees it
    return _readable(predicate)


_NEEDS_FIELD: dict[type, str] = {
    SigmaTest: "a comparison needs a field",
    SigmaNull: "null needs a field",
    SigmaFieldReference: "a field reference needs a field to compare with",
}


def _of_field(name: str, value: SigmaTest | SigmaNull | SigmaFieldReference) -> Predicate:
    """A test that a field alone can have. Raises Unsupported for keywords."""
    if name == KEYWORDS:
        raise Unsupported(_NEEDS_FIELD[type(value)])
    match value:
        case SigmaTest():
            return Predicate(name, value.op, _exact(value.number), option=value.option)
        case SigmaNull():
            return Predicate(name, Op.NULL)
        case SigmaFieldReference():
            ops = {
                (False, False): Op.FIELD_EXACT,
                (True, False): Op.FIELD_PREFIX,
                (False, True): Op.FIELD_SUFFIX,
                (True, True): Op.FIELD_CONTAINS,
            }
            return Predicate(name, ops[value.starts_with, value.ends_with], value.field)


def _readable(p: Predicate) -> Predicate:
    """A regex predicate that an engine can run; raises Unsupported for another."""
    try:
        searched = search(p)
        if searched.end is End.PERHAPS or refused([searched.pattern]):
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


def _asked(value: SigmaString | SigmaRegularExpression, pipelines: Pipelines) -> Table | None:
    """The built lookup that a value's placeholder names; None: it names none."""
    whole = value.regexp if isinstance(value, SigmaRegularExpression) else value
    tables = [(part.name, pipelines.table(part.name)) for part in whole.s if isinstance(part, Placeholder)]
    name, table = next(((name, table) for name, table in tables if table is not None), ("", None))
    if table is not None and (len(whole.s) != 1 or whole is not value):
        raise Unsupported(
            f"%{name}% is a built lookup, which is asked for the whole value of a field: write 'field|expand:"
            f" %{name}%' alone (a key of kind domain finds what ends so, cidr|expand networks)"
        )
    return table


def _wanted(name: str, value: SigmaString, pipelines: Pipelines) -> Wanted | None:
    """The request of a value to the lookup that is to be built; None: it asks another, or none."""
    kind = _KINDS.get(type(value))
    part = value.s[0] if len(value.s) == 1 else None
    target = pipelines.of_wanted(part.name) if kind and isinstance(part, Placeholder) else None
    return None if kind is None or target is None else Wanted(*target, name, kind)


def _listed(value: SigmaString, pipelines: Pipelines) -> tuple[str, Listed] | None:
    """The placeholder that a value is, and the lookup made of its list; None: its values are spelled out."""
    kind = _KINDS.get(type(value))
    if (
        kind is None
        or len(value.s) != 1
        or not isinstance(part := value.s[0], Placeholder)
        or part.name in pipelines.faults
    ):
        return None
    listed = pipelines.listed(part.name, kind)
    return None if listed is None else (part.name, listed)


_KINDS = {SigmaString: "nocase", SigmaCasedString: "text", SigmaNetworkText: "cidr"}


def _looked_up(name: str, value: SigmaString | SigmaRegularExpression, asked: Table) -> Predicate:
    called, lookup, index = asked
    if name == KEYWORDS:
        raise Unsupported(f"the lookup {called} is asked for the value of a field: name the field")
    kinds = {"cidr", "ip"} if isinstance(value, SigmaNetworkText) else {*KINDS} - {"range"}
    if isinstance(value, SigmaCasedString):
        kinds = {"text"}
    fit = [key.name for key in lookup.indexes if key.kind in kinds and index in (None, key.name, *key.columns)]
    if not fit:
        has = ", ".join(f"{key.name} ({key.kind})" for key in lookup.indexes)
        raise Unsupported(
            f"the lookup {called} has no key that this can ask; it has {has}: build it with this rule,"
            f" vedette lookup build --rules"
        )
    own = [key.name for key in lookup.indexes if key.name in fit and key.columns == (name,)] if index is None else []
    return Predicate(name, Op.LOOKUP, called, option=(own or fit)[0])


def _replaced(value: SigmaString | SigmaRegularExpression, pipelines: Pipelines) -> list[SigmaType]:
    """``value`` once for each value of its placeholders; in a regular expression these are texts, ``*`` and ``?``
    of them wildcards."""
    parts: list[list[Any]] = [[]]
    whole = value.regexp if isinstance(value, SigmaRegularExpression) else value
    for part in whole.s:
        if not isinstance(part, Placeholder):
            parts = [[*head, part] for head in parts]
            continue
        if (fault := pipelines.faults.get(part.name)) is not None:
            raise Unsupported(f"the placeholder %{part.name}% has no value: {fault.path}: {fault.reason}")
        if (values := pipelines.lookups.get(part.name)) is None:
            raise Unsupported(f"the placeholder %{part.name}% has no value: no pipeline or lookup defines it")
        texts = [SigmaString(text) for text in values]
        if len(parts) * len(texts) > MAX_EXPANSION:
            raise Unsupported(f"its placeholders expand to more than {MAX_EXPANSION:,} values")
        tails = [[str(text.to_regex().regexp)] if whole is not value else text.s for text in texts]
        parts = [[*head, *tail] for head in parts for tail in tails]
    replaced: list[SigmaType] = []
    for combination in parts:
        if isinstance(value, SigmaRegularExpression):
            source = "".join(
                part if isinstance(part, str) else "*" for part in combination
            )  # |contains has put .* around it
            replaced.append(SigmaRegularExpression(source, set(value.flags), POLICY))
            continue
        text = type(value)()
        text.s = []
        for part in combination:
            if isinstance(part, str) and text.s and isinstance(text.s[-1], str):
                text.s[-1] += part
            else:
                text.s.append(part)
        replaced.append(text)
    return replaced
