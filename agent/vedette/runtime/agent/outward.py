"""The status and the answers to requests of the fleet of an agent that redacts, as others get them.

Alerts are redacted by their events (``alerts/redact.py``). What a rule, a function or a decoder raised may quote an
event, too, and which one nobody knows any more. So of such a text only the kind of error leaves the host; the whole
stays with its owner, in ``vedette status`` and the agent's log. What the agent says in words of its own passes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vedette.decode.redact import MARK
from vedette.runtime.agent.questions import QUARANTINED_LINE

_RAISED = re.compile(r"((?:its evaluation raised )?[A-Za-z_]\w*): ")
"""As ``Failures`` and the engine write it."""


def withheld(reason: str) -> str:
    """Return ``reason`` without the text of an error."""
    if ": " not in reason:
        return reason
    kind = _RAISED.match(reason)
    return MARK if kind is None else f"{kind[1]}: {MARK}"


def status(whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status without the texts of errors."""
    rules = whole["rules"]
    quarantined = [{**row, "reason": withheld(row["reason"])} for row in rules["quarantined"]]
    plugins = [{**row, "error": row["error"] and MARK} for row in whole["plugins"]]
    return {**whole, "rules": {**rules, "quarantined": quarantined}, "plugins": plugins}


def answer(command: str, whole: Any) -> Any:
    """Return the answer of ``command`` of the control socket for others than the host's owner."""
    match command:
        case "status":
            return status(whole)
        case "rules":
            return [
                {**row, "reason": withheld(row["reason"])} if row["state"] == "quarantined" else row for row in whole
            ]
        case "explain":
            return [{"text": _line(row["text"])} for row in whole]
    return whole


def _line(text: str) -> str:
    if not text.startswith(QUARANTINED_LINE):
        return text
    return QUARANTINED_LINE + withheld(text.removeprefix(QUARANTINED_LINE))
