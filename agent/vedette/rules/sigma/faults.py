"""Places where a rule that does not run is at fault: line and column of the part that its author must look at.

The detection items are tried one by one, in the order in which they are written; the first that is refused by itself
is it. What is tried is bounded, since YAML's aliases may nest without end.
"""

from __future__ import annotations

import difflib
import re
from itertools import islice
from typing import Any

import yaml
from sigma.exceptions import SigmaError
from sigma.rule import SigmaDetection

from vedette.plan.ir import Refusal
from vedette.rules.ruleset import OF_SET, RuleSet, Unsupported
from vedette.rules.sigma import items
from vedette.rules.sigma.documents import MAX_SHOWN, child, pair, place, shown
from vedette.rules.sigma.expression import MAX_DEPTH, expression
from vedette.rules.sigma.pipelines import POLICY

MAX_TRIED = 1000
"""Detection items of a selection that are tried by themselves when the one at fault is looked for."""


_ADVICE = {
    "cannot start any token": "indent with blanks, not tabs; put a value that begins with %, @ or ` in quotes",
    "expected alphabetic or numeric": "put a value that begins with * or & in quotes",
    "undefined alias": "put a value that begins with * in quotes",
    "mapping values are not allowed": "put a value that contains ': ' in quotes",
    "could not determine a constructor": "put a value that begins with ! in quotes; rules have no tags",
}
"""Advice what to write instead, by what YAML's parser says."""


def not_yaml(path: str, line: int, error: Exception, content: bytes | str = b"") -> Refusal:
    """``line``: the document's, for an error that does not know its own."""
    mark = getattr(error, "problem_mark", None)
    reason = " ".join(str(getattr(error, "problem", None) or error).split())
    if isinstance(error, yaml.reader.ReaderError):
        reason = f"{error.reason} (#x{error.character:02x}): rule files are UTF-8 text"
        line = content[: error.position].count(b"\n" if isinstance(content, bytes) else "\n") + 1  # type: ignore
    elif (numbered := re.match(r"line ([0-9]+): ", reason)) is not None:
        line = int(numbered[1])
    advice = next((f": {instead}" for says, instead in _ADVICE.items() if says in reason), "")
    line, column = (mark.line + 1, mark.column + 1) if mark else (line, 0)
    return Refusal(path, line, "", "", f"not valid YAML: {reason[:MAX_SHOWN]}{advice}", column)


def refusal(path: str, node: Any, document: Any, error: Exception) -> Refusal:
    """A document that does not run because of ``error``, whatever pySigma and its parsers raise."""
    mapping = document if isinstance(document, dict) else {}
    reason = reason_of(error)
    hint = getattr(error, "hint", "")
    item = None
    if "correlation" in mapping:
        at = _key_at_fault(node, error)
    else:
        at, item = place_at_fault(node, document, error) or (place(node), None)
    if not isinstance(error, Unsupported):
        advice = ""
        searches = mapping.get("correlation", mapping.get("detection", mapping.get("filter")))
        if item is not None:
            other = items.in_other_order(item, lambda candidate: _fault_of(candidate) is None)
            advice = f"write {other}" if other else ""
        elif isinstance(searches, dict) and ("correlation" in mapping or "Condition" in type(error).__name__):
            names = searches if "correlation" not in mapping else searches.get("rules")
            advice = condition_advice(searches.get("condition"), names if isinstance(names, list | dict) else ())
        reason += f": {advice}" if advice else ""
    return Refusal(path, at[0], shown(mapping.get("id")), shown(mapping.get("title")), reason, at[1], hint)


def _key_at_fault(node: Any, error: Exception) -> tuple[int, int]:
    """The place of the key of a correlation that ``error`` is about."""
    words = {"timespan": "timespan", "condition": "condition", "group": "group-by", "alias": "aliases", "type": "type"}
    reason = str(error).lower()
    part = next((key for word, key in words.items() if word in reason), "rules")
    if isinstance(error, Unsupported):
        part = error.part
    body = child(node, "correlation")
    return place(pair(body, part)[0] or pair(node, part)[0] or pair(node, "correlation")[0])


def reason_of(error: Exception) -> str:
    """The reason why a rule does not run, for its author."""
    reason = _KIND.sub(lambda kind: kind[1].lower(), str(error.args[0] if error.args else error))
    if isinstance(error, RecursionError):
        return f"it is nested too deep: the limit is {MAX_DEPTH} levels of a condition"
    if not isinstance(error, SigmaError | Unsupported):  # pySigma lets builtin errors out
        return f"not a valid Sigma rule: {type(error).__name__}: {reason}"[:300]
    if len(reason) > MAX_SHOWN:
        reason = f"{reason[: MAX_SHOWN // 2]} … {reason[-MAX_SHOWN // 2 :]}"
    return reason


_KIND = re.compile(r"'?<sigma\.types\.Sigma(\w+) object at 0x[0-9a-f]+>'?")
"""A value that has no text, as pySigma's messages show it."""


def place_at_fault(node: Any, document: Any, error: Exception) -> tuple[tuple[int, int], Any] | None:
    """The place of the first detection item that is refused by itself, and the item; else of the condition or of the
    part of the rule that ``error`` is about, and None. None: unknown."""
    part = type(error).__name__.removeprefix("Sigma").removesuffix("Error").lower()
    part = {
        "identifier": "id",
        "recursion": "condition",
        "filtercondition": "filter",
        "filterrulereference": "filter",
    }.get(part, part)
    if isinstance(error, Unsupported):
        part = error.part
    if part == OF_SET:
        return None
    kind = "filter" if child(node, "filter") is not None else "detection"
    searches = child(node, kind)
    if isinstance(searches, yaml.MappingNode) and isinstance(document, dict):
        for key, value in searches.value:
            if key.value in ("condition", "rules" if kind == "filter" else "condition"):
                continue
            for item, item_node in islice(items.single(document[kind].get(key.value), key, value), MAX_TRIED):
                if _fault_of(item) is not None:
                    return place(item_node), item
        if part == "condition":
            node = searches
    key, _ = pair(node, part)
    return None if key is None else (place(key), None)


def _fault_of(item: Any) -> Exception | None:
    """The error by which a definition with one item cannot run; None: it can."""
    try:
        items.check(item)
        detection = SigmaDetection.from_definition(item, policy=POLICY)
        expression(RuleSet(), detection.postprocess(_NO_DETECTIONS))
    except Exception as error:  # whatever it is, it is the fault being looked for
        return error
    return None


_NO_DETECTIONS: Any = None
"""The detections of a rule that has none: items do not look at others."""


def condition_advice(condition: Any, names: Any) -> str:
    """Advice what to write in place of a condition that cannot be parsed; empty when unknown."""
    texts = [text for text in (condition if isinstance(condition, list) else [condition]) if isinstance(text, str)]
    searches = {str(name) for name in names}
    for text in texts:
        words = [word for word in re.findall(r"[\w*?.-]+", text) if word not in searches]
        if any(word.lower() in _WORDS and word != word.lower() for word in words):
            return "and, or, not, of, all and them are written in lower case"
        if (count := re.search(r"\b([02-9]|\d\d+) of (\S+)", text)) is not None:
            return (
                f"there is '1 of' and 'all of', no '{count[1]} of': write out what may hold together, as in"
                " (a and b) or (a and c) or (b and c)"
            )
        if sign := re.search(r"&&|\|\||!|&", text):
            return f"{sign[0]} is written {'and' if '&' in sign[0] else 'or' if '|' in sign[0] else 'not'}"
        if text.count("(") != text.count(")"):
            return f"{text.count('(')} parentheses are opened, and {text.count(')')} closed"
        for word in words:
            if word not in _WORDS and not re.search(r"[*?]|^\d+$", word):
                near = difflib.get_close_matches(word, searches, 1)
                instead = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(searches))[:200]}"
                return f"there is no {word!r}: {instead}"
    return ""


_WORDS = frozenset({"and", "or", "not", "of", "all", "any", "them"})
