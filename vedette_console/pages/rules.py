"""Rules: what is deployed, what fired and what never did, noise, ATT&CK; one rule; and the editor."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from vedette_console.data.alerts import alert as ask_alert
from vedette_console.data.models import Listing
from vedette_console.data.models_fleet import RuleRow
from vedette_console.data.rules import coverage as ask_coverage
from vedette_console.data.rules import noise as ask_noise
from vedette_console.data.rules import rule as ask_rule
from vedette_console.data.rules import rules as ask_rules
from vedette_console.pages import rulefiles
from vedette_console.pages.render import page, query_of
from vedette_console.pages.render import search as search_link
from vedette_console.pages.shapes import of_days
from vedette_console.security.principal import Principal
from vedette_console.web import Problem, need

router = APIRouter()
ROWS = 100
TABS = (
    ("", "All"),
    ("fired", "Fired"),
    ("silent", "Never fired"),
    ("noise", "Noise"),
    ("attack", "ATT&CK"),
)
SKETCH = """title: A Short Name of What It Finds
id: {id}
status: experimental
description: What happened when this matches, and why it matters.
logsource:
  product: linux
detection:
  selection:
    message|contains: something
  condition: selection
level: medium
tags:
  - attack.execution
"""
SKETCH_PATH = "drafts/new_rule.yml"


@router.get("/rules")
async def rules(
    request: Request,
    who: Principal = need("read"),
    show: Annotated[str, Query(pattern="^(|fired|silent|noise|attack)$")] = "",
    after: Annotated[str, Query(max_length=500)] = "",
) -> Response:
    """A list of rules, or the ATT&CK matrix."""
    ask = request.app.state.pool.ask
    found, coverage, noise = Listing[RuleRow](items=[]), None, None
    if show == "attack":
        coverage = await ask(ask_coverage, who)
    elif show == "noise":
        noise = (await ask(ask_noise, who)).items
    else:
        found = await ask(ask_rules, who, show=show, after=after, limit=ROWS)
    return page(
        request,
        "rules.html.j2",
        show=show,
        tabs=TABS,
        found=found,
        coverage=coverage,
        noise=noise,
        first=query_of(request, after=None) if after else "",
        following=query_of(request, after=found.next) if found.next else "",
    )


@router.get("/rules/new")
async def editor(
    request: Request,
    who: Principal = need("rules.try"),
    rule: Annotated[str, Query(max_length=200)] = "",
    filter: Annotated[str, Query(max_length=200)] = "",
    alert: Annotated[str, Query(max_length=600)] = "",
) -> Response:
    """The editor: empty, with a rule's file, or with ``filter``, which the job ``noise`` proposes for that rule, below
    it; ``alert`` (DAY/AGENT/ID) brings that alert's event."""
    state = request.app.state
    opened, event = await _opened(request, who, rule, filter)
    if alert.count("/") >= 2:
        day, agent, alert_id = alert.split("/", 2)
        event = (await state.pool.ask(ask_alert, who, day, agent, alert_id)).raw
    groups = [group.name for group in (await state.fleet.overview(who, limit=1)).groups if group.name]
    tried = await state.fleet.backtests(who)
    return page(
        request,
        "editor.html.j2",
        origin=f"{rule}|{filter}",
        new=not rule and not filter,
        kind=opened.kind,
        path=opened.path,
        text=opened.text,
        tests=opened.tests,
        event=event,
        groups=groups,
        backtests=tried.items[:5],
        sources=tried.sources,
    )


async def _opened(request: Request, who: Principal, rule: str, filter: str) -> tuple[rulefiles.RuleText, str]:
    """A text for the editor, and an event to try it on. Raises Problem 404."""
    folders = request.app.state.settings.rules
    if not rule and not filter:
        return rulefiles.RuleText(SKETCH_PATH, SKETCH.format(id=_fresh_id()), ""), ""
    found = await asyncio.to_thread(rulefiles.find, folders, rule or filter)
    if filter:
        one = await request.app.state.pool.ask(ask_rule, who, filter)
        if one.noise is None or not one.noise.proposal:
            raise Problem(404, "no filter is proposed for this rule", what_to_do="run vedette-spark noise")
        event = next((alert.raw for alert in one.newest if alert.raw), "")
        if found is None or found.kind != "sigma":
            return rulefiles.RuleText(f"filters/{_name(filter)}.yml", one.noise.proposal, ""), event
        return found._replace(text=f"{found.text.rstrip()}\n---\n{one.noise.proposal}"), event
    if found is None:
        where = "it is in none of the rules' folders" if folders else "the console has no rules' folder"
        raise Problem(
            404,
            f"the file of this rule is not here: {where}",
            what_to_do="start the console with --rules and the folder in which rules are kept",
        )
    return found, ""


def _name(rule_id: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in rule_id)[:80] or "rule"


def _fresh_id() -> str:
    from uuid import uuid4

    return str(uuid4())


@router.get("/rules/{rule_id:path}")
async def rule(request: Request, rule_id: str, who: Principal = need("read")) -> Response:
    """One rule: what it speaks for and how it does."""
    found = await request.app.state.pool.ask(ask_rule, who, rule_id)
    days = of_days(found.by_day, lambda day: search_link(f"{found.query} from:{day} to:{day}"))
    return page(request, "rule.html.j2", one=found, days=days)
