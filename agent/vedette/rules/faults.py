"""Where a rule that does not run is at fault: line and column of the part that its author must look at.

The detection items are tried one by one, in the order in which they are written; the first that is refused by itself
is it. What is tried is bounded, since YAML's aliases may nest without end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import yaml
from sigma.exceptions import SigmaError
from sigma.rule import SigmaDetection

from vedette.plan.ir import Refusal
from vedette.rules import modifiers
from vedette.rules.documents import child
from vedette.rules.expression import MAX_DEPTH, check_modifiers, expression
from vedette.rules.pipelines import POLICY
from vedette.rules.ruleset import OF_SET, RuleSet, Unsupported

MAX_REASON = 1000
"""Characters of a refusal's reason: some quote the value."""

MAX_TRIED = 1000
"""Detection items of a selection that are tried by themselves when the one at fault is looked for."""


_ADVICE = {
    "cannot start any token": "indent with blanks, not tabs; a value that begins with %, @ or ` stands in quotes",
    "expected alphabetic or numeric": "a value that begins with * or & stands in quotes",
    "undefined alias": "a value that begins with * stands in quotes",
    "mapping values are not allowed": "a value that holds ': ' stands in quotes",
    "could not determine a constructor": "a value that begins with ! stands in quotes; rules have no other tags",
}
"""By what YAML's parser says, what to write instead."""


def not_yaml(path: str, line: int, error: Exception, content: bytes | str = b"") -> Refusal:
    """``line``: the document's, for an error that does not know its own."""
    mark = getattr(error, "problem_mark", None)
    reason = " ".join(str(getattr(error, "problem", None) or error).split())
    if isinstance(error, yaml.reader.ReaderError):
        reason = f"{error.reason} (#x{error.character:02x}): rule files are UTF-8 text"
        line = content[: error.position].count(b"\n" if isinstance(content, bytes) else "\n") + 1  # type: ignore
    elif (told := re.match(r"line ([0-9]+): ", reason)) is not None:
        line = int(told[1])
    advice = next((f": {instead}" for says, instead in _ADVICE.items() if says in reason), "")
    place = (mark.line + 1, mark.column + 1) if mark else (line, 0)
    return Refusal(path, place[0], "", "", f"not valid YAML: {reason[:MAX_REASON]}{advice}", place[1])


def refusal(path: str, node: Any, document: Any, error: Exception) -> Refusal:
    """A document that does not run because of ``error``, whatever pySigma and its parsers raise."""
    known = document if isinstance(document, dict) else {}
    at, column, item = place_at_fault(node, document, error) or (*_place(node), None)
    hint, reason = getattr(error, "hint", ""), reason_of(error)
    if not isinstance(error, Unsupported):
        searches = known.get("detection", known.get("filter"))
        advice = ""
        if item is not None:
            other = modifiers.in_other_order(item, lambda one: _fault_of(one) is None)
            advice = f"write {other}" if other else ""
        elif isinstance(searches, dict) and "Condition" in type(error).__name__:
            advice = modifiers.condition_advice(searches.get("condition"), searches.keys())
        reason += f": {advice}" if advice else ""
    return Refusal(path, at, text(known.get("id")), text(known.get("title")), reason, column, hint)


def text(value: object) -> str:
    """A document's value for people, bounded; a number may have too many digits to be shown."""
    try:
        return "" if value is None else str(value)[:MAX_REASON]
    except ValueError:
        return "?"


def reason_of(error: Exception) -> str:
    """Why a rule does not run, for its author."""
    reason = _KIND.sub(lambda kind: kind[1].lower(), str(error.args[0] if error.args else error))
    if isinstance(error, RecursionError):
        return f"it is nested too deep: {MAX_DEPTH} levels of a condition at most"
    if not isinstance(error, SigmaError | Unsupported):  # pySigma lets builtin errors out
        return f"not a valid Sigma rule: {type(error).__name__}: {reason}"[:300]
    if len(reason) > MAX_REASON:
        reason = f"{reason[: MAX_REASON // 2]} … {reason[-MAX_REASON // 2 :]}"
    return reason


_KIND = re.compile(r"'?<sigma\.types\.Sigma(\w+) object at 0x[0-9a-f]+>'?")
"""How pySigma's messages show a value that has no text."""


def place_at_fault(node: Any, document: Any, error: Exception) -> tuple[int, int, Any] | None:
    """Line and column of the first detection item that is refused by itself, and the item; else of the condition or of
    the part of the rule that ``error`` is about, and None. None: unknown."""
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
            for item, item_node in islice(items(document[kind].get(key.value), key, value), MAX_TRIED):
                if _fault_of(item) is not None:
                    return *_place(item_node), item
        if part == "condition":
            node = selections
    if isinstance(node, yaml.MappingNode):
        for key, _ in node.value:
            if key.value == part:
                return *_place(key), None
    return None


def _fault_of(item: Any) -> Exception | None:
    """Why a definition with one item cannot run."""
    try:
        modifiers.check(item)
        detection = SigmaDetection.from_definition(item, policy=POLICY)
        check_modifiers(detection)
        expression(RuleSet(), detection.postprocess(_NO_DETECTIONS))
    except Exception as error:  # whatever it is, it is the fault being looked for
        return error
    return None


def _place(node: Any) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


_NO_DETECTIONS: Any = None
"""Of a detection without a condition: items do not look at others."""


def items(definition: Any, key: Any, value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
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
            yield from items(item, item_node, item_node, depth + 1)
    else:
        yield definition, key
