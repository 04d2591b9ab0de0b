"""Rules before they run anywhere: lint, explain on an event, test events. None of it changes anything."""

from __future__ import annotations

from fastapi import APIRouter, Request

from vedette_console.api.fleet import fleet_of
from vedette_console.fleet.models import EventInput, Explained, Linted, RuleInput, Tested
from vedette_console.security.principal import Principal
from vedette_console.web import need

router = APIRouter(tags=["rules"])


@router.post("/rules/lint")
async def lint_rule(body: RuleInput, request: Request, who: Principal = need("rules.try", audit=False)) -> Linted:
    """Mistakes and doubtful parts, with line and column."""
    found: Linted = await fleet_of(request).lint(body)
    return found


@router.post("/rules/explain")
async def explain_rule(
    body: EventInput, request: Request, who: Principal = need("rules.try", audit=False)
) -> Explained:
    """How the rule is evaluated, and why it fires on the event or does not."""
    found: Explained = await fleet_of(request).explain(body)
    return found


@router.post("/rules/test")
async def run_tests(body: RuleInput, request: Request, who: Principal = need("rules.try", audit=False)) -> Tested:
    """Its test events, as in NAME.test.yml."""
    found: Tested = await fleet_of(request).test(body)
    return found
