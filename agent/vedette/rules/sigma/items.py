"""Detection items as they are written: what has no meaning, what is likely a slip, numbers that are meant as texts.

``check`` refuses what has no meaning or can never be true; ``doubts`` (for ``rules lint``) finds what runs and is
likely not what its author meant; ``texts_too`` keeps the text of a number that is not written as it is printed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import yaml

from vedette.plan.limits import MAX_NESTING
from vedette.rules.ruleset import Unsupported
from vedette.rules.sigma.documents import child
from vedette.rules.sigma.modifiers import MODIFIERS, PLACES, company

_PLACEHOLDER = re.compile(r"(?<!\\)%[^%\\]+%")
_MEANT = re.compile(r"\\?(%[^%\\]+)\\?%")
"""A whole text that is likely meant as a placeholder."""


def check(definition: Any) -> None:
    """Raise Unsupported for an item in a search (a mapping, or a list of such and of texts) that makes no sense."""
    for key, value in _items(definition):
        if not isinstance(key, str):
            raise Unsupported("a field's name is a text: put it in quotes")
        if key == "<<":
            raise Unsupported("YAML 1.2 has no merge keys (<<): write the items out, or use an alias alone")
        name, *chain = key.split("|")
        for modifier in chain:
            if modifier not in MODIFIERS:
                near = difflib.get_close_matches(modifier, MODIFIERS, 1)
                raise Unsupported(f"Unknown modifier {modifier!r}" + (f": did you mean {near[0]!r}?" if near else ""))
        if value == []:
            raise Unsupported(
                f"the list of {key!r} is empty: write null for an absent field, '' for an empty text, or remove the"
                " item"
            )
        for modifier in chain:
            if wrong := company(modifier, name, chain):
                raise Unsupported(wrong)
        fixed = any(MODIFIERS[modifier].fixed for modifier in chain)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, list | dict):
                what = "a list" if isinstance(item, list) else f"a mapping: a nested field is {name}.NAME, a path"
                raise Unsupported(f"a field takes a value or a list of values, not {what}")
            for modifier in chain:
                if wrong := MODIFIERS[modifier].wrong(modifier, item, chain):
                    raise Unsupported(wrong)
            if fixed and "expand" in chain and (placeholder := re.search(r"%[^%]+%", str(item))):
                raise Unsupported(
                    f"the placeholder {placeholder[0]} has no value yet when it is encoded: give the values themselves"
                )


def doubts(definition: Any) -> Iterator[str]:
    """Yield what runs in an item of a search and is likely a slip."""
    for text in definition if isinstance(definition, list) else [definition]:
        if isinstance(text, str) and (match := _MEANT.fullmatch(text)):
            yield f"{text} is literal text, not a placeholder: for a placeholder write '|expand': '{match[1]}%'"
    for key, value in _items(definition):
        name, *chain = str(key).split("|")
        values = value if isinstance(value, list) else [value]
        places = [modifier for modifier in chain if modifier in PLACES]
        if "all" in chain and len(values) == 1:
            yield f"{key}: 'all' with one value has no effect: remove it, or list further values"
        if len(places) > 1:
            yield f"{key}: {' and '.join(places)} together mean contains: keep one"
        if "cased" in chain and "fieldref" in chain:
            yield f"{key}: 'cased' has no effect on 'fieldref', which ignores case"
        for text in values:
            if not isinstance(text, str):
                continue
            if set(chain) <= {"all", "neq"} and (match := _MEANT.fullmatch(text)):  # no %TEMP% in a path
                other = "|".join([name, *chain, "expand"])
                instead = f"for a placeholder write {other}: '{match[1]}%'"
                yield f"{key}: {text} is literal text, not a placeholder: {instead}"
            if "expand" in chain and _PLACEHOLDER.search(text) is None:
                if match := re.search(r"\\(%[^%\\]+)\\?%", text):
                    yield f"{key}: '{text:.80}' is the text {match[1]}%: a placeholder has no backslash before it"
                elif not any(isinstance(other, str) and _PLACEHOLDER.search(other) for other in values):
                    yield f"{key}: no %placeholder% in {text!r:.80}: remove 'expand'"
            if places and "base64offset" not in chain and re.fullmatch(r"\**", text):
                yield f"{key}: every value contains {text!r}: to test for presence write {name}|exists: true"


def in_other_order(definition: Any, runs: Callable[[Any], bool]) -> str:
    """The key of an item that is refused, with its modifiers in an order in which it runs; empty when there is none."""
    for key, value in _items(definition):
        name, *chain = str(key).split("|")
        for order in permutations(chain) if 2 <= len(chain) <= 4 else ():
            if runs({(other := "|".join([name, *order])): value}):
                return other
    return ""


def single(definition: Any, key: Any, value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Pairs of (a definition with one item, its YAML node), down to single keys of mappings."""
    if depth > MAX_NESTING:  # a list may hold itself, by an alias
        return
    if not definition:
        yield definition, key
    elif isinstance(definition, dict) and isinstance(value, yaml.MappingNode):
        for (name, item), (item_key, _) in zip(definition.items(), value.value, strict=False):
            yield {name: item}, item_key
    elif isinstance(definition, list) and isinstance(value, yaml.SequenceNode):
        for item, item_node in zip(definition, value.value, strict=False):
            yield from single(item, item_node, item_node, depth + 1)
    else:
        yield definition, key


def _items(definition: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(definition, dict):
        yield from definition.items()
    elif isinstance(definition, list):
        for part in definition:
            if isinstance(part, dict | list):
                yield from _items(part)


_KEEPS_KIND = frozenset(("all", "neq"))
_PRINTED = re.compile(r"(?:-?[1-9][0-9]*|0)(?:\.(?:[0-9]*[1-9]|0))?\Z")


def texts_too(node: Any) -> None:
    """Give the oddly written numbers in the searches of the rule or filter ``node`` their text back, in place.

    To Sigma all values are strings, and an unquoted ``0815``, ``12e5`` or ``0x17`` may well be meant as one. A keyword
    and the value of a text modifier are the text then; the value of a field is the number or the text. What compares
    numbers or takes parts of a time is left alone.
    """
    seen: set[int] = set()
    for part in ("detection", "filter"):
        searches = child(node, part)
        for key, value in searches.value if isinstance(searches, yaml.MappingNode) else ():
            if key.value not in ("condition", "rules"):
                searches.value[searches.value.index((key, value))] = (key, _keyword(value, seen))


def _keyword(node: Any, seen: set[int]) -> Any:
    """``node`` as a search: a keyword, a mapping of fields, or a list of either."""
    if id(node) in seen:  # an alias, be it of itself
        return node
    if isinstance(node, yaml.SequenceNode):
        seen.add(id(node))
        node.value[:] = [_keyword(item, seen) for item in node.value]
    elif isinstance(node, yaml.MappingNode):
        seen.add(id(node))
        node.value[:] = [(key, _field_value(key, value)) for key, value in node.value]
    return _text_of(node) or node


def _field_value(key: Any, value: Any) -> Any:
    name, *chain = str(key.value).split("|")
    as_text = not name or any(modifier in MODIFIERS and MODIFIERS[modifier].takes_text for modifier in chain)
    if not as_text and (not _KEEPS_KIND.issuperset(chain) or "all" in chain):
        return value
    items = value.value if isinstance(value, yaml.SequenceNode) else [value]
    texts = [_text_of(item) for item in items]
    if not any(texts):
        return value
    if as_text:
        nodes = [text or item for item, text in zip(items, texts, strict=True)]
    else:
        nodes = [*items, *(text for text in texts if text is not None)]
    if len(nodes) == 1 and not isinstance(value, yaml.SequenceNode):
        return nodes[0]
    return yaml.SequenceNode("tag:yaml.org,2002:seq", nodes, value.start_mark, value.end_mark)


def _text_of(node: Any) -> Any:
    """The text that ``node`` is written as, as a node, when it is a number that is printed otherwise; else None."""
    number = isinstance(node, yaml.ScalarNode) and node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
    if not number or _PRINTED.match(node.value):
        return None
    return yaml.ScalarNode("tag:yaml.org,2002:str", node.value, node.start_mark, node.end_mark, node.style)
