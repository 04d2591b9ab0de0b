"""Bodies of webhooks: one function a template, from an alert's row to a JSON document. Pure.

``generic`` is the row itself, as ``vedette alerts --json`` prints it. The others are what their makers document:
Slack's Block Kit for incoming webhooks, an Adaptive Card for Teams' Workflows, PagerDuty's Events API v2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

Row = Mapping[str, Any]

_SEVERITY = {"critical": "critical", "high": "error", "medium": "warning", "low": "warning"}
_COLOUR = {"critical": "Attention", "high": "Attention", "medium": "Warning"}


def written(time: int) -> str:
    """RFC 3339 of UTC microseconds."""
    return datetime.fromtimestamp(time / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def summary(row: Row) -> str:
    """One line."""
    count = f" ({row['count']} times)" if row["count"] > 1 else ""
    return f"[{row['level']}] {row['rule_title']} on {row['host'] or row['agent_id']}{count}"


def facts(row: Row) -> list[tuple[str, str]]:
    """Names and values for people, few and short."""
    rows = [
        ("Host", row["host"] or row["agent_id"]),
        ("Site", f"{row['fleet']}/{row['site']}"),
        ("Time", written(row["event_time"])),
        ("Rule", row["rule_id"]),
        *((entity["kind"], entity["value"]) for entity in row["entities"][:5]),
    ]
    if row["tags"]:
        rows.append(("Tags", ", ".join(row["tags"][:10])))
    return [*rows, ("Alert", row["alert_id"])]


def generic(row: Row, token: str) -> Any:
    return row


def slack(row: Row, token: str) -> Any:
    title = summary(row)
    fields = [{"type": "mrkdwn", "text": _cut(f"*{_slack(name)}*\n{_slack(text)}", 2000)} for name, text in facts(row)]
    blocks: list[Any] = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(title, 150)}},
        {"type": "section", "fields": fields[:10]},
    ]
    if row["raw"]:
        quoted = _slack(_cut(row["raw"], 1500)).replace("```", "'''")
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": f"```{_cut(quoted, 2900)}```"}})
    return {"text": _slack(_cut(title, 1000)), "blocks": blocks}


def teams(row: Row, token: str) -> Any:
    """Build a card of TextRuns alone: Markdown in what an attacker wrote, a link say, is shown as it is."""
    body = [
        _runs(_run(_cut(summary(row), 300), weight="Bolder", size="Medium",
                   color=_COLOUR.get(row["level"], "Default"))),
        *(_runs(_run(f"{name}  ", weight="Bolder"), _run(_cut(text, 500))) for name, text in facts(row)),
    ]  # fmt: skip
    if row["raw"]:
        body.append(_runs(_run(_cut(row["raw"], 1500), fontType="Monospace")))
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [content]}


def pagerduty(row: Row, token: str) -> Any:
    """Alerts of one rule and host make one incident: its key is theirs, so that ten thousand do not page ten thousand
    times; the id of each is in its details."""
    return {
        "routing_key": token,
        "event_action": "trigger",
        "dedup_key": _cut(f"vedette/{row['agent_id']}/{row['rule_id']}/{row['host'] or ''}", 255),
        "client": "Vedette",
        "payload": {
            "summary": _cut(summary(row), 1024),
            "source": row["host"] or row["agent_id"],
            "severity": _SEVERITY.get(row["level"], "info"),
            "timestamp": written(row["event_time"]),
            "component": row["source"],
            "group": f"{row['fleet']}/{row['site']}",
            "class": row["rule_id"],
            "custom_details": {
                name: row[name]
                for name in ("alert_id", "agent_id", "kind", "tags", "fields", "entities", "group_by", "count", "raw")
            },
        },
    }


TEMPLATES: Mapping[str, Callable[[Row, str], Any]] = {
    "generic": generic,
    "slack": slack,
    "teams": teams,
    "pagerduty": pagerduty,
}
"""By ``template``; the second argument is the token, which PagerDuty wants in the document."""


def _run(text: str, **look: str) -> dict[str, str]:
    return {"type": "TextRun", "text": text, **look}


def _runs(*inlines: Any) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [*inlines]}


def _slack(text: str) -> str:
    """Escape what Slack asks to be escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
