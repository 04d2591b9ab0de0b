"""Rule files as YAML documents: the scalars of YAML 1.2, and collections (``action: global | reset | repeat``).

The Sigma specification names YAML 1.2.2. Its core schema knows fewer scalars than the YAML 1.1 of PyYAML: ``yes``,
``no``, ``on`` and ``off`` are strings, and so are dates, ``1:30`` and ``1_000``; ``010`` is ten, ``1e5`` a number;
there are no merge keys (``docs/decisions/0006-sigma-meaning.md``).

A collection is resolved on the level of YAML nodes, so that every part of a rule keeps the place where it was written:

* ``global``: what it holds goes into every following rule of the file, over what the rule itself says;
* ``reset``: from here on no global document;
* ``repeat``: the rule before it, with what this document says over it.

To Sigma all values are strings, and an unquoted ``0815``, ``12e5`` or ``0x17`` may well be meant as one: ``texts_too``
keeps the text of a number that is not written as it is printed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml
from sigma.rule.base import SigmaYAMLLoader

from vedette.compiler.limits import MAX_FILE, MAX_FILE_NODES, MAX_NESTING, MAX_NODES


class RuleLoader(SigmaYAMLLoader):
    """Loads the core schema of YAML 1.2; a key that its mapping has already is an error."""


RuleLoader.yaml_implicit_resolvers = {}

_NULL = r"~|null|Null|NULL|"
_BOOL = r"true|True|TRUE|false|False|FALSE"
_INT = r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"

for _tag, _pattern, _first in (
    ("null", _NULL, ["~", "n", "N", ""]),
    ("bool", _BOOL, list("tTfF")),
    ("int", _INT, list("-+0123456789")),
    ("float", _FLOAT, list("-+0123456789.")),
):
    RuleLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), _first)


def _int(loader: Any, node: Any) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _float(loader: Any, node: Any) -> float:
    text = str(loader.construct_scalar(node)).lower()
    if text.endswith("inf"):
        return -math.inf if text.startswith("-") else math.inf
    return math.nan if text.endswith("nan") else float(text)


RuleLoader.add_constructor("tag:yaml.org,2002:int", _int)
RuleLoader.add_constructor("tag:yaml.org,2002:float", _float)


def check_shape(content: bytes | str) -> None:
    """Raises ValueError, naming line and bound, for a file that is larger than rules are or stands for more than it
    shows; the parser's own errors pass through. Goes over the parser's events: no recursion, no values made."""
    if len(content) > MAX_FILE:
        raise ValueError(f"a rule file of more than {MAX_FILE} bytes: split it, and put lists of values into lookups")
    anchors: dict[str, tuple[int, int]] = {}
    open_: list[list[Any]] = []  # of each open list or mapping: its nodes so far, its height so far, its anchor
    documents: list[int] = []
    inherited = 0
    action = False
    for event in yaml.parse(content, Loader=RuleLoader):
        if isinstance(event, yaml.DocumentStartEvent):
            anchors, open_, action = {}, [[0, 0, None]], False
            continue
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append([1, 1, event.anchor])
            nodes, height = 0, 0
            _within(event, "nested deeper than", len(open_) - 1, MAX_NESTING)
        elif isinstance(event, yaml.ScalarEvent):
            nodes, height = 1, 0
            action = action or event.value == "action"
            if event.anchor:
                anchors[event.anchor] = (1, 0)
        elif isinstance(event, yaml.AliasEvent):
            nodes, height = anchors.get(str(event.anchor), (1, 0))  # one of itself: refused when it is composed
        elif isinstance(event, yaml.CollectionEndEvent):
            nodes, height, anchor = open_.pop()
            if anchor:
                anchors[anchor] = (nodes, height)
        else:
            if isinstance(event, yaml.DocumentEndEvent):
                documents.append(open_[0][0])
                inherited += open_[0][0] if action else 0
            continue
        open_[-1][0] += nodes
        open_[-1][1] = max(open_[-1][1], height + 1)
        _within(event, "aliases nest deeper than", len(open_) - 1 + height, MAX_NESTING)
        _within(event, "a document of more keys and values (aliases expanded) than", open_[-1][0], MAX_NODES)
    if sum(documents) + inherited * len(documents) > MAX_FILE_NODES:
        raise ValueError(f"a file of more than {MAX_FILE_NODES} keys and values, actions expanded: split it")


def _within(event: Any, what: str, size: int, bound: int) -> None:
    if size > bound:
        raise ValueError(f"line {event.start_mark.line + 1}: {what} {bound}: split it, or use lookups")


class UnknownAction(ValueError):
    """A document's ``action`` is none of a collection's."""


def collected(nodes: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
    """The rules of a file's documents, each with whether it took its ``id`` from another document.

    A document with an action that is none is given as it is: who compiles it refuses it (``action`` tells).
    """
    base: Any = None
    before: Any = None
    for node in nodes:
        if node is None or not isinstance(node, yaml.MappingNode):
            yield node, False
            continue
        match action(node):
            case "global":
                base = before = _without_action(node)
            case "reset":
                base = None
            case "repeat" if before is not None:
                own = _without_action(node)
                before = _merged(before, own, node)
                yield before, child(own, "id") is None
            case None if child(node, "correlation") is None and child(node, "filter") is None:
                before = node if base is None else _merged(node, base, node)
                yield before, child(node, "id") is None
            case _:
                yield node, False


def action(node: Any) -> str | None:
    """What a document says it is to its collection; None for a rule of its own."""
    value = child(node, "action")
    if value is None:
        return None
    return str(value.value) if isinstance(value, yaml.ScalarNode) else "?"


def child(node: Any, name: str) -> Any:
    """The node of key ``name`` in a mapping, or None."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == name:
                return value
    return None


_TEXT_MODIFIERS = frozenset(
    (
        *("contains", "startswith", "endswith", "cased", "windash", "re", "expand", "fieldref", "cidr"),
        *("base64", "base64offset", "wide", "utf16", "utf16le", "utf16be"),
    )
)
_KEEPS_KIND = frozenset(("all", "neq"))
_PRINTED = re.compile(r"(?:-?[1-9][0-9]*|0)(?:\.(?:[0-9]*[1-9]|0))?\Z")


def texts_too(node: Any) -> None:
    """Give the oddly written numbers in the searches of the rule or filter ``node`` their text back, in place.

    A keyword and the value of a text modifier are the text then; the value of a field is the number or the text. What
    compares numbers or takes parts of a time is left alone.
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
    as_text = not name or not _TEXT_MODIFIERS.isdisjoint(chain)
    if not as_text and (not _KEEPS_KIND.issuperset(chain) or "all" in chain):
        return value
    items = value.value if isinstance(value, yaml.SequenceNode) else [value]
    texts = [_text_of(item) for item in items]
    if not any(texts):
        return value
    if as_text:
        made = [text or item for item, text in zip(items, texts, strict=True)]
    else:
        made = [*items, *(text for text in texts if text is not None)]
    if len(made) == 1 and not isinstance(value, yaml.SequenceNode):
        return made[0]
    return yaml.SequenceNode("tag:yaml.org,2002:seq", made, value.start_mark, value.end_mark)


def _text_of(node: Any) -> Any:
    """The text that ``node`` is written as, as a node, when it is a number that is printed otherwise; else None."""
    number = isinstance(node, yaml.ScalarNode) and node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
    if not number or _PRINTED.match(node.value):
        return None
    return yaml.ScalarNode("tag:yaml.org,2002:str", node.value, node.start_mark, node.end_mark, node.style)


def _without_action(node: Any) -> Any:
    pairs = [(key, value) for key, value in node.value if key.value != "action"]
    return yaml.MappingNode(node.tag, pairs, node.start_mark, node.end_mark)


def _merged(under: Any, over: Any, place: Any) -> Any:
    """``over`` laid over ``under``: mappings key by key, all else replaced. It stands where ``place`` does."""
    pairs = list(under.value)
    at = {key.value: i for i, (key, _) in enumerate(pairs) if isinstance(key, yaml.ScalarNode)}
    for key, value in over.value:
        # A key that ``over`` itself repeats is added again: loading then finds the mistake.
        i = at.pop(key.value, None) if isinstance(key, yaml.ScalarNode) else None
        if i is None:
            pairs.append((key, value))
        elif isinstance(value, yaml.MappingNode) and isinstance(pairs[i][1], yaml.MappingNode):
            pairs[i] = (key, _merged(pairs[i][1], value, value))
        else:
            pairs[i] = (key, value)
    return yaml.MappingNode(under.tag, pairs, place.start_mark, place.end_mark)
