"""What the modifiers of a detection item take. pySigma refuses most nonsense, but not all, and names its own classes:
each item is looked at as it is written, and what is wrong is said with what to write instead.

``check`` refuses what has no meaning or can never be true; ``doubts`` (for ``rules lint``) tells what runs and is
likely not what its author meant.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from itertools import permutations
from typing import Any

from sigma.modifiers import modifier_mapping

from vedette.plan.timepart import UNITS
from vedette.rules.ruleset import Unsupported

_PLACES = ("contains", "startswith", "endswith")
_FLAGS = ("i", "ignorecase", "m", "multiline", "s", "dotall")
_WIDE = ("wide", "utf16", "utf16le", "utf16be")
_PLACEHOLDER = re.compile(r"(?<!\\)%[^%\\]+%")
_MEANT = re.compile(r"\\?(%[^%\\]+)\\?%")
"""A whole text that is likely meant as a placeholder."""


def check(definition: Any) -> None:
    """Raise Unsupported for an item in a search (a mapping, or a list of such and of texts) that makes no sense."""
    for key, value in _items(definition):
        if not isinstance(key, str):
            raise Unsupported("a field's name is a text: put it in quotes")
        if key == "<<":
            raise Unsupported("there are no merge keys (<<) in YAML 1.2: write the items out, or use an alias alone")
        name, *chain = key.split("|")
        for modifier in chain:
            if modifier not in modifier_mapping:
                near = difflib.get_close_matches(modifier, modifier_mapping, 1)
                raise Unsupported(f"Unknown modifier {modifier!r}" + (f": did you mean {near[0]!r}?" if near else ""))
        if value == []:
            raise Unsupported(
                f"the list of {key!r} is empty: write null for a field that is absent, '' for an empty text, or take"
                " the item out"
            )
        places = [modifier for modifier in chain if modifier in _PLACES]
        if "fieldref" in chain and places and chain.index(places[0]) < chain.index("fieldref"):
            raise Unsupported(f"'fieldref' comes first: write {name}|fieldref|{'|'.join(places)}")
        if "re" in chain and "cased" in chain:
            raise Unsupported("in a regular expression upper and lower case count: take 'cased' out")
        if "cidr" in chain and (rest := [one for one in chain if one not in ("cidr", "neq", "all", "expand")]):
            raise Unsupported(f"a network takes no {rest[0]!r}: write {name}|cidr")
        if "re" not in chain and (flags := [flag for flag in chain if flag in _FLAGS]):
            raise Unsupported(f"{flags[0]!r} is of regular expressions: write {name}|re|{flags[0]}")
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, list | dict):
                what = "a list" if isinstance(one, list) else f"a mapping: what lies within is {name}.NAME, a path"
                raise Unsupported(f"a field takes a value or a list of values, not {what}")
            for modifier in chain:
                if (wrong := _CHECKS.get(modifier, _nothing)(modifier, one, chain)) is not None:
                    raise Unsupported(wrong)


def doubts(definition: Any) -> Iterator[str]:
    """What runs in an item of a search and is likely a slip."""
    for one in definition if isinstance(definition, list) else [definition]:
        if isinstance(one, str) and (found := _MEANT.fullmatch(one)):
            yield f"{one} is this text, no placeholder: for one write '|expand': '{found[1]}%'"
    for key, value in _items(definition):
        name, *chain = str(key).split("|")
        values = value if isinstance(value, list) else [value]
        if "all" in chain and len(values) == 1:
            yield f"{key}: 'all' of one value says nothing: take it out, or list further values"
        if len(places := [modifier for modifier in chain if modifier in _PLACES]) > 1:
            yield f"{key}: {' and '.join(places)} together mean contains: take one"
        if "cased" in chain and "fieldref" in chain:
            yield f"{key}: 'cased' has no effect on 'fieldref': upper and lower case do not count"
        for one in values:
            if not isinstance(one, str):
                continue
            if set(chain) <= {"all", "neq"} and (found := _MEANT.fullmatch(one)):  # no %TEMP% in a path
                other = "|".join([name, *chain, "expand"])
                yield f"{key}: {one} is this text, no placeholder: for one write {other}: '{found[1]}%'"
            if "expand" in chain and _PLACEHOLDER.search(one) is None:
                if found := re.search(r"\\(%[^%\\]+)\\?%", one):
                    yield f"{key}: '{one:.80}' is the text {found[1]}%: a placeholder has no backslash before it"
                elif not any(isinstance(other, str) and _PLACEHOLDER.search(other) for other in values):
                    yield f"{key}: there is no %placeholder% in {one!r:.80}: take 'expand' out"
            if places and "base64offset" not in chain and re.fullmatch(r"\**", one):
                yield f"{key}: every value holds {one!r}: for a field that is there write {name}|exists: true"


def in_other_order(definition: Any, runs: Callable[[Any], bool]) -> str:
    """The key of an item that is refused, with its modifiers in an order in which it runs; empty when there is none."""
    for key, value in _items(definition):
        name, *chain = str(key).split("|")
        for order in permutations(chain) if 2 <= len(chain) <= 4 else ():
            if runs({(other := "|".join([name, *order])): value}):
                return other
    return ""


def _items(definition: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(definition, dict):
        yield from definition.items()
    elif isinstance(definition, list):
        for one in definition:
            if isinstance(one, dict | list):
                yield from _items(one)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value!r:.60}"


def _nothing(modifier: str, value: Any, chain: list[str]) -> str | None:
    return None


def _number(modifier: str, value: Any, chain: list[str]) -> str | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return None if isinstance(value, int) or math.isfinite(value) else f"{modifier} compares with a number"
    try:
        float(value)
    except (TypeError, ValueError):
        return f"{modifier} compares numbers, not {_shown(value)}"
    return (
        f"{modifier} compares numbers: take the quotes off {value!s:.40}"
        if isinstance(value, str)
        else (f"{modifier} compares numbers, not {_shown(value)}")
    )


def _time_part(modifier: str, value: Any, chain: list[str]) -> str | None:
    low, high = UNITS[modifier]
    if isinstance(value, str) and value.isdecimal():
        return f"{modifier} takes a number: take the quotes off {value:.20}"
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{modifier} takes a whole number from {low} to {high}, not {_shown(value)}"
    return None if low <= value <= high else f"{modifier} is a number from {low} to {high}: {value} never occurs"


def _exists(modifier: str, value: Any, chain: list[str]) -> str | None:
    if isinstance(value, bool):
        return None
    meant = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}
    instead = meant.get(str(value).lower())
    return f"exists takes true or false, not {_shown(value)}" + (f": write {instead}, no quotes" if instead else "")


def _text(modifier: str, value: Any, chain: list[str]) -> str | None:
    if isinstance(value, str):
        return None
    if value is None:
        return f"{modifier} takes a text, not null: for a field that is absent write null without a modifier"
    kind = "truth value" if isinstance(value, bool) else "number"
    return f"{modifier} takes a text: put the {kind} in quotes if it is a text: '{_shown(value)}'"


def _network(modifier: str, value: Any, chain: list[str]) -> str | None:
    if not isinstance(value, str) or ("expand" in chain and "%" in value):
        return _text(modifier, value, chain)
    try:
        ip_network(value)
    except ValueError as error:
        try:
            return f"{value} has host bits set: write {ip_network(value, strict=False)}"
        except ValueError:
            return f"cidr takes a network such as 10.0.0.0/8 or fe80::/10: {error}"
    return None


def _name(modifier: str, value: Any, chain: list[str]) -> str | None:
    return "fieldref takes the name of a field, not an empty text" if value == "" else _text(modifier, value, chain)


def _encoded(modifier: str, value: Any, chain: list[str]) -> str | None:
    least = 2 if modifier == "base64offset" and not set(_WIDE).intersection(chain) else 1
    if isinstance(value, str) and len(value.encode()) < least:
        return f"{modifier} of {value!r} says nothing: it needs {least} characters or more"
    return _text(modifier, value, chain)


_CHECKS: dict[str, Callable[[str, Any, list[str]], str | None]] = {
    **dict.fromkeys(("lt", "lte", "gt", "gte"), _number),
    **dict.fromkeys(UNITS, _time_part),
    **dict.fromkeys((*_PLACES, *_WIDE, "cased", "windash", "expand", "re"), _text),
    **dict.fromkeys(("base64", "base64offset"), _encoded),
    "exists": _exists,
    "cidr": _network,
    "fieldref": _name,
}
"""By modifier what is wrong with a value; None: nothing."""


def condition_advice(condition: Any, names: Any) -> str:
    """What to write in the place of a condition that cannot be read; empty when that cannot be told."""
    texts = [text for text in (condition if isinstance(condition, list) else [condition]) if isinstance(text, str)]
    known = {str(name) for name in names}
    for text in texts:
        words = [word for word in re.findall(r"[\w*?.-]+", text) if word not in known]
        if any(word.lower() in _WORDS and word != word.lower() for word in words):
            return "and, or, not, of, all and them are written in lower case"
        if (count := re.search(r"\b([02-9]|\d\d+) of (\S+)", text)) is not None:
            return (
                f"there is '1 of' and 'all of', no '{count[1]} of': write out what may hold together, as in"
                " (a and b) or (a and c) or (b and c)"
            )
        if found := re.search(r"&&|\|\||!|&", text):
            return f"{found[0]} is written {'and' if '&' in found[0] else 'or' if '|' in found[0] else 'not'}"
        if text.count("(") != text.count(")"):
            return f"{text.count('(')} parentheses are opened and {text.count(')')} closed"
        for word in words:
            if word not in _WORDS and not re.search(r"[*?]|^\d+$", word):
                near = difflib.get_close_matches(word, known, 1)
                told = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))[:200]}"
                return f"there is no {word!r}: {told}"
    return ""


_WORDS = frozenset({"and", "or", "not", "of", "all", "any", "them"})
