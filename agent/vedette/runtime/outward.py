"""What an agent that redacts says of itself to others: its status, and its answers to requests of the fleet.

Alerts are redacted by their events (``redact.py``). What a rule, a function or a decoder raised may quote an event,
too, and which one nobody knows any more. So of such a text only the kind of error leaves the host; the whole stays with
its owner, in ``vedette status`` and the agent's log. What the agent says in words of its own passes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vedette.decode.redact import MARK
from vedette.runtime.questions import QUARANTINED_LINE

_RAISED = re.compile(r"((?:its evaluation raised )?[A-Za-z_]\w*): ")
"""As ``Failures`` and the engine write it."""


def withheld(reason: str) -> str:
    """``reason`` without the text of an error."""
    if ": " not in reason:
        return reason
    kind = _RAISED.match(reason)
    return MARK if kind is None else f"{kind[1]}: {MARK}"


def status(found: Mapping[str, Any]) -> dict[str, Any]:
    rules = found["rules"]
    aside = [{**row, "reason": withheld(row["reason"])} for row in rules["quarantined"]]
    plugins = [{**one, "error": one["error"] and MARK} for one in found["plugins"]]
    return {**found, "rules": {**rules, "quarantined": aside}, "plugins": plugins}


def answer(command: str, found: Any) -> Any:
    """What ``command`` of the control socket answered, for others than the host's owner."""
    match command:
        case "status":
            return status(found)
        case "rules":
            return [
                {**row, "reason": withheld(row["reason"])} if row["state"] == "quarantined" else row for row in found
            ]
        case "explain":
            return [{"text": _line(one["text"])} for one in found]
    return found


def _line(text: str) -> str:
    if not text.startswith(QUARANTINED_LINE):
        return text
    return QUARANTINED_LINE + withheld(text.removeprefix(QUARANTINED_LINE))
