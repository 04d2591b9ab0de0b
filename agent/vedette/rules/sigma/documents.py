"""Rule files as YAML documents: the scalars of YAML 1.2, and collections (``action: global | reset | repeat``).

The Sigma specification names YAML 1.2.2. Its core schema knows fewer scalars than the YAML 1.1 of PyYAML: ``yes``,
``no``, ``on`` and ``off`` are strings, and so are dates, ``1:30`` and ``1_000``; ``010`` is ten, ``1e5`` a number;
there are no merge keys (``docs/decisions/0006-sigma-meaning.md``).

A collection is resolved on the level of YAML nodes, so that every part of a rule keeps the place where it was written:

* ``global``: what it holds goes into every following rule of the file, over what the rule itself says;
* ``reset``: from here on no global document;
* ``repeat``: the rule before it, with what this document says over it.

A document that is not YAML is refused by itself where the others of its file do not build on it (``read``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import yaml

from vedette.plan.limits import MAX_FILE, MAX_FILE_NODES, MAX_NESTING, MAX_NODES
from vedette.rules.ruleset import Unsupported

T = TypeVar("T")

MAX_SHOWN = 1000
"""Characters of a document's value in a message."""


class RuleLoader(yaml.CSafeLoader):
    """Loads the core schema of YAML 1.2 and no other tags; a key is a scalar, and in its mapping only once."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, _NO_KEY, key.start_mark)
            name = self.construct_object(key, deep=True)
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"Duplicate key '{name}'"[:200], key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


_NO_KEY = "a mapping or list is used as a key: if this is a template ({{ name }}), render it or put it in quotes"

_CORE = ("null", "bool", "int", "float", "str", "seq", "map")
RuleLoader.yaml_implicit_resolvers = {}
RuleLoader.yaml_constructors = {
    tag: construct_value
    for tag, construct_value in yaml.CSafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix("tag:yaml.org,2002:") in _CORE
}

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


def read(content: bytes | str) -> tuple[list[Any], list[Exception]]:
    """The YAML nodes of a file's documents, and why the others are none.

    What is not YAML refuses its own document. Of a collection it refuses the whole file: what the other documents mean
    may hang on the one that cannot be read.
    """
    try:
        check_shape(content)
        return _nodes(content), []
    except Exception as error:  # whatever YAML's parser raises
        parts = _parts(content)
        if len(parts) < 2 or len(content) * len(parts) > MAX_FILE or any(_ACTION.search(part) for part in parts):
            return [], [error]
    nodes: list[Any] = []
    faults: list[Exception] = []
    left = MAX_FILE_NODES
    for part in parts:
        try:
            left -= check_shape(part)
            if left < 0:
                return [], [_too_many()]
            nodes += _nodes(part)
        except Exception as error:  # the same, of one document
            faults.append(error)
    return nodes, faults


def construct(node: Any) -> Any:
    """The value of a document's node. Raises YAMLError or ValueError."""
    try:
        return RuleLoader("").construct_document(node)
    except (yaml.YAMLError, ValueError):
        raise
    except Exception as error:  # a tag on what is none of its kind
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _nodes(content: bytes | str) -> list[Any]:
    loader = RuleLoader(content)
    nodes = []
    while loader.check_node():
        nodes.append(loader.get_node())
    return nodes


_MARKER = re.compile(rb"^---(?=[ \t\r\n]|\Z)", re.M)
_NOTHING = re.compile(rb"\s*(?:[%#].*\s*)*\Z")
_ACTION = re.compile(rb"^(?:\xef\xbb\xbf)?[\"']?action[\"']?\s*:|^\{.*\baction\b", re.M)


def _parts(content: bytes | str) -> list[bytes]:
    """``content`` cut at its document markers, which stand in no value; each part at its own lines."""
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    cuts = [marker.start() for marker in _MARKER.finditer(data)]
    if cuts and _NOTHING.match(data, 0, cuts[0]):  # directives
        cuts[0] = 0
    starts = cuts if cuts[:1] == [0] else [0, *cuts]
    return [
        b"\n" * data.count(b"\n", 0, start) + data[start:end]
        for start, end in zip(starts, [*starts[1:], None], strict=True)
    ]


def check_shape(content: bytes | str) -> int:
    """The number of nodes of a file, aliases expanded.

    Raises ValueError, naming line and bound, for a file that is larger than rules are or stands for more than it shows;
    the parser's own errors pass through. Goes over the parser's events: no recursion, no values made.
    """
    if len(content) > MAX_FILE:
        raise ValueError(f"a rule file of more than {MAX_FILE} bytes: split it, and put lists of values into lookups")
    anchors: dict[str, tuple[int, int]] = {}
    open_: list[list[Any]] = []  # of each open list or mapping: its nodes so far, its height so far, its anchor
    documents: list[int] = []
    inherited = 0
    action = False
    for event in yaml.parse(content, Loader=RuleLoader):
        if isinstance(event, yaml.DocumentStartEvent):
            anchors = {}
            open_ = [[0, 0, None]]
            action = False
            continue
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append([1, 1, event.anchor])
            nodes = 0
            height = 0
            _within(event, "nested deeper than", len(open_) - 1, MAX_NESTING)
        elif isinstance(event, yaml.ScalarEvent):
            nodes = 1
            height = 0
            action = action or event.value == "action"
            if event.anchor:
                anchors[event.anchor] = (1, 0)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in (holder for _, _, holder in open_):
                raise ValueError(f"line {_line(event)}: Recursive: *{event.anchor} is within itself")
            nodes, height = anchors.get(str(event.anchor), (1, 0))  # one of none: refused when it is composed
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
    total = sum(documents) + inherited * len(documents)
    if total > MAX_FILE_NODES:
        raise _too_many()
    return total


def _too_many() -> ValueError:
    return ValueError(f"a file of more than {MAX_FILE_NODES} keys and values, actions expanded: split it")


def _within(event: Any, what: str, size: int, bound: int) -> None:
    if size > bound:
        raise ValueError(f"line {_line(event)}: {what} {bound}: split it, or use lookups")


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def collected(nodes: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
    """The rules of a file's documents, each with whether it took its ``id`` from another document.

    A document with an unknown action is given as it is: who compiles it refuses it (``action`` tells).
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
    """The action that a document says; None for a rule of its own."""
    value = child(node, "action")
    return value and (str(value.value) if isinstance(value, yaml.ScalarNode) else "?")


def pair(node: Any, name: str) -> tuple[Any, Any]:
    """The nodes of key ``name`` in a mapping and of its value; None twice where there is none."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((both for both in pairs if both[0].value == name), (None, None))


def child(node: Any, name: str) -> Any:
    """The node of key ``name`` in a mapping, or None."""
    return pair(node, name)[1]


def place(node: Any) -> tuple[int, int]:
    """Line and column where a node begins, from 1."""
    return node.start_mark.line + 1, node.start_mark.column + 1


def expect(value: Any, kind: type[T], expected: str, part: str = "") -> T:
    """``value``, which is of ``kind``; of another kind Unsupported, about ``part`` of the rule, says ``expected``."""
    if isinstance(value, kind):
        return value
    raise Unsupported(f"{expected}, not {written(value)}", part)


def written(value: Any) -> str:
    """A value as YAML writes it, bounded."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value!r:.60}"


def shown(value: object) -> str:
    """A document's value for people, bounded; a number may have too many digits to be shown."""
    try:
        return "" if value is None else str(value)[:MAX_SHOWN]
    except ValueError:
        return "?"


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
