"""Where a rule that does not run is at fault: line and column of the part that its author must look at.

The detection items are tried one by one, in the order in which they are written; the first that is refused by itself
is it. What is tried is bounded, since YAML's aliases may nest without end.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import yaml
from sigma.rule import SigmaDetection

from vedette.compiler.documents import child
from vedette.compiler.expression import MAX_DEPTH, check_modifiers, expression
from vedette.compiler.ir import (
    Refusal,
)
from vedette.compiler.pipelines import POLICY
from vedette.compiler.ruleset import OF_SET, RuleSet, Unsupported

MAX_TRIED = 1000
"""Detection items of a selection that are tried by themselves when the one at fault is looked for."""


def not_yaml(path: str, line: int, error: Exception) -> Refusal:
    mark = getattr(error, "problem_mark", None)
    reason = " ".join(str(getattr(error, "problem", None) or error).split())
    column = mark.column + 1 if mark else 0
    return Refusal(path, mark.line + 1 if mark else line, "", "", f"not valid YAML: {reason}", column)


def repeated_key(document: Any) -> int | None:
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


def place_at_fault(node: Any, document: Any, error: Exception) -> tuple[int, int] | None:
    """Line and column of the first detection item that is refused by itself, else of the condition or of the part of
    the rule that ``error`` is about; None: unknown."""
    part = type(error).__name__.removeprefix("Sigma").removesuffix("Error").lower()
    part = {"identifier": "id", "recursion": "condition", "filtercondition": "filter",
            "filterrulereference": "filter"}.get(part, part)  # fmt: skip
    if isinstance(error, Unsupported):
        part = error.part
    if part == OF_SET:
        return None
    kind = "filter" if child(node, "filter") is not None else "detection"
    selections = child(node, kind)
    if isinstance(selections, yaml.MappingNode) and isinstance(document, dict):
        for key, value in selections.value:
            if key.value in ("condition", "rules" if kind == "filter" else "condition"):
                continue
            for item, item_node in islice(_items(document[kind].get(key.value), key, value), MAX_TRIED):
                try:
                    detection = SigmaDetection.from_definition(item, policy=POLICY)
                    check_modifiers(detection)
                    expression(RuleSet(), detection.postprocess(_NO_DETECTIONS))
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
