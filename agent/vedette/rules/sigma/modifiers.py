"""The modifiers of detection items, one row each: what it means, which values and which company it takes, and the
operator (``plan/operators.py``) that it compares by or the class that stands in for pySigma's.

pySigma refuses most nonsense, but not all, and names its own classes; so items are checked as they are written
(``items.py``).
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any, NamedTuple

from sigma import modifiers
from sigma.modifiers import SigmaExpandModifier, SigmaModifier, SigmaValueModifier
from sigma.types import (
    Placeholder,
    SigmaCasedString,
    SigmaCIDRExpression,
    SigmaExpansion,
    SigmaNumber,
    SigmaRegularExpression,
    SigmaString,
    SigmaType,
)

from vedette.plan.ir import Op
from vedette.plan.timepart import UNITS
from vedette.rules.sigma.documents import written


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
    """``cidr`` before or behind ``expand``: a text until its placeholders are known (``SigmaNetworkText``)."""

    def modify(self, val: SigmaString) -> SigmaCIDRExpression | SigmaString:  # type: ignore[override]
        if SigmaPlaceholderModifier in self.detection_item.modifiers:
            return val
        return super().modify(val)


class SigmaNetworkText(SigmaString):
    """A text that is a network, once its placeholders have their values."""


class SigmaDashModifier(modifiers.SigmaWindowsDashModifier):
    """``windash`` for each of the five dashes that the specification names, not only for a rule's ``-`` and ``/``."""

    def modify(self, val: SigmaString) -> SigmaExpansion:
        plain = copy.copy(val)
        plain.s = [_LONG_DASH.sub("-", part) if isinstance(part, str) else part for part in val.s]
        return super().modify(plain)


_LONG_DASH = re.compile(r"\B[\u2013\u2014\u2015]\b")


@dataclass
class SigmaTest(SigmaType):
    """A number that a field is compared with by an operator (``Modifier.op``)."""

    number: SigmaNumber
    op: Op
    option: str


class SigmaTestModifier(SigmaValueModifier[SigmaNumber, SigmaTest]):
    """The modifier with ``op``; each has a class of its own."""

    op: Op
    option = ""

    def modify(self, val: SigmaNumber) -> SigmaTest:
        return SigmaTest(val, self.op, self.option)


Wrong = Callable[[str, Any, list[str]], str]
"""A check of a value, given the modifier's name and all modifiers of the item: what is wrong; empty: nothing."""


def _nothing(modifier: str, value: Any, chain: list[str]) -> str:
    return ""


def _number(modifier: str, value: Any, chain: list[str]) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "" if isinstance(value, int) or math.isfinite(value) else f"{modifier} compares with a number"
    try:
        float(value)
    except (TypeError, ValueError):
        return f"{modifier} compares numbers, not {written(value)}"
    if isinstance(value, str):
        return f"{modifier} compares numbers: remove the quotes around {value:.40}"
    return f"{modifier} compares numbers, not {written(value)}"


def _time_part(modifier: str, value: Any, chain: list[str]) -> str:
    low, high = UNITS[modifier]
    if isinstance(value, str) and value.isdecimal():
        return f"{modifier} takes a number: remove the quotes around {value:.20}"
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{modifier} takes a whole number from {low} to {high}, not {written(value)}"
    return "" if low <= value <= high else f"{modifier} is a number from {low} to {high}: {value} never occurs"


def _truth(modifier: str, value: Any, chain: list[str]) -> str:
    if isinstance(value, bool):
        return ""
    meant = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}
    instead = meant.get(str(value).lower())
    return f"exists takes true or false, not {written(value)}" + (
        f": write {instead} without quotes" if instead else ""
    )


def _text(modifier: str, value: Any, chain: list[str]) -> str:
    if isinstance(value, str):
        return ""
    if value is None:
        return f"{modifier} takes a text, not null: for an absent field write null without a modifier"
    kind = "boolean" if isinstance(value, bool) else "number"
    return f"{modifier} takes a text: put the {kind} in quotes if it is a text: '{written(value)}'"


def _network(modifier: str, value: Any, chain: list[str]) -> str:
    if not isinstance(value, str) or ("expand" in chain and "%" in value):
        return _text(modifier, value, chain)
    try:
        ip_network(value)
    except ValueError as error:
        try:
            return f"{value} has host bits set: write {ip_network(value, strict=False)}"
        except ValueError:
            return f"cidr takes a network such as 10.0.0.0/8 or fe80::/10: {error}"
    return ""


def _name(modifier: str, value: Any, chain: list[str]) -> str:
    return "fieldref takes the name of a field, not an empty text" if value == "" else _text(modifier, value, chain)


def _encoded(modifier: str, value: Any, chain: list[str]) -> str:
    least = 2 if modifier == "base64offset" and not set(WIDE).intersection(chain) else 1
    if isinstance(value, str) and len(value.encode()) < least:
        return f"{modifier} of {value!r} matches nearly everything: it needs {least} characters or more"
    return _text(modifier, value, chain)


class Modifier(NamedTuple):
    """``meaning``: its line in ``docs/rules.md``, one for all rows with the same."""

    meaning: str
    wrong: Wrong = _nothing
    needs: str = ""
    """The modifier that must stand before it."""
    before: tuple[str, ...] = ()
    """Modifiers that must stand behind it."""
    only_with: tuple[str, ...] | None = None
    """The only modifiers that may stand beside it; None: any."""
    not_with: tuple[str, ...] = ()
    instead: str = ""
    """Advice where its company is wrong; ``{name}``: the field."""
    op: Op | None = None
    """The operator by which it compares numbers; its option is the modifier's name where the operator has one."""
    fixed: bool = False
    """Whether its value must be known when the rule is read, so no placeholder."""
    kind: type[SigmaString] | None = None
    """The class of its texts, also of those that a pipeline or a lookup puts in their place."""
    ours: type[SigmaModifier[Any, Any]] | None = None
    """The class that stands in for pySigma's own."""

    @property
    def takes_text(self) -> bool:
        """Whether a number under it, say 0815, is the text that it is written as."""
        return self.wrong in (_text, _network, _name, _encoded)


PLACES = ("contains", "startswith", "endswith")
WIDE = ("wide", "utf16", "utf16le", "utf16be")

_PLACE = Modifier("the text is in it, at its beginning, at its end", _text)
_UTF16 = Modifier(
    "the value in UTF-16 (`utf16` with byte order mark), before `base64offset`: `utf16le\\|base64offset\\|contains`",
    _text,
    fixed=True,
)
_FLAG = Modifier(
    "after `re`: regardless of case; `^` and `$` at each line; `.` also matches a newline",
    needs="re",
    instead="write {name}|re|{modifier}",
)
_TIME = Modifier(
    "that part of the time in the field, as written there: `timestamp\\|hour: [22, 23, 0, 1]`. Takes numbers, and no"
    " modifier beside it but `neq`",
    _time_part,
    only_with=("neq",),
    instead="list the numbers, as in [20, 21, 22, 23]",
    op=Op.TIME_PART,
)

MODIFIERS: dict[str, Modifier] = {
    **dict.fromkeys(PLACES, _PLACE),
    "all": Modifier("all values of the list, not one of them: `command\\|contains\\|all: [curl, '\\| sh']`"),
    "cased": Modifier("case-sensitive", _text, kind=SigmaCasedString),
    "re": Modifier(
        "a regular expression (PCRE), searched anywhere, case-sensitive",
        _text,
        not_with=("cased",),
        instead="a regular expression is case-sensitive already: take 'cased' out",
    ),
    **dict.fromkeys(("i", "ignorecase", "m", "multiline", "s", "dotall"), _FLAG),
    "cidr": Modifier(
        "the address is in the network, IPv4 or IPv6: `src_ip\\|cidr: [10.0.0.0/8, 'fe80::/10']`",
        _network,
        only_with=("neq", "all", "expand"),
        instead="write {name}|cidr",
        kind=SigmaNetworkText,
        ours=SigmaNetworkModifier,
    ),
    **{
        op.value: Modifier(
            "compares numbers, also texts that are numbers. Two items on one field are a range", _number, op=op
        )
        for op in (Op.LT, Op.LTE, Op.GT, Op.GTE)
    },
    "neq": Modifier(
        "none of the values equals; true also when the field is absent. After another modifier:"
        " `path\\|startswith\\|neq: /usr/`"
    ),
    "exists": Modifier("`true`: the field is present, even if empty or null; `false`: it is absent", _truth),
    "fieldref": Modifier(
        "the value names another field: equal to it. With `startswith`, `endswith`, `contains` behind it:"
        " `path\\|fieldref\\|startswith: home`",
        _name,
        before=PLACES,
        fixed=True,
    ),
    "windash": Modifier(
        "each of `- / – — ―` before a word matches all five; at most three in a value", _text, ours=SigmaDashModifier
    ),
    "base64": Modifier("the value in base64", _encoded, fixed=True),
    "base64offset": Modifier(
        "the value within a base64 text, at each of the three offsets; with `contains` behind it. Base64 is compared"
        " regardless of case: add `cased` when that is too loose",
        _encoded,
        fixed=True,
    ),
    **dict.fromkeys(WIDE, _UTF16),
    "expand": Modifier(
        "`%name%` is replaced by the values that a [lookup or pipeline](#pipelines-and-lookups) gives it;"
        " `cidr\\|expand` for networks",
        _text,
        ours=SigmaPlaceholderModifier,
    ),
    **dict.fromkeys(UNITS, _TIME),
}


def _register(name: str, row: Modifier) -> None:
    replacement = row.ours
    if row.op is not None:
        option = name if row.op is Op.TIME_PART else ""
        replacement = type(f"Sigma{name.title()}Modifier", (SigmaTestModifier,), {"op": row.op, "option": option})
    if replacement is not None:
        modifiers.modifier_mapping[name] = replacement
        modifiers.reverse_modifier_mapping[replacement.__name__] = name


for _item in MODIFIERS.items():
    _register(*_item)
modifiers.modifier_mapping.setdefault("utf16le", modifiers.SigmaWideModifier)  # Sigma 2.1's name of ``wide``


def company(modifier: str, name: str, chain: list[str]) -> str:
    """Say what is wrong with the modifiers beside ``modifier`` in ``name|chain``; empty: nothing."""
    row = MODIFIERS[modifier]
    others = [other for other in chain if other != modifier]
    instead = row.instead.format(name=name, modifier=modifier)
    if row.needs and row.needs not in chain:
        return f"{modifier!r} needs {row.needs!r} before it: {instead}"
    for other in others:
        if other in row.not_with or (row.only_with is not None and other not in row.only_with):
            return f"{modifier!r} cannot be combined with {other!r}: {instead}"
        if other in row.before and chain.index(other) < chain.index(modifier):
            rest = [place for place in others if place in row.before]
            return f"{modifier!r} comes first: write {'|'.join([name, modifier, *rest])}"
    return ""
