"""Rules as they run: deployed, fired, silent, noisy, and the ATT&CK matrix."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request

from vedette_console.api.alerts import After, Limit
from vedette_console.api.campaigns import Days
from vedette_console.api.entities import Part
from vedette_console.data import rules
from vedette_console.data.models import Listing
from vedette_console.data.models_fleet import Coverage, RuleNoise, RulePage, RuleRow
from vedette_console.data.reader import Pool
from vedette_console.security.principal import Principal
from vedette_console.web import need

router = APIRouter(tags=["rules"])


@router.get("/rules")
async def get_rules(
    request: Request, q: Part = "", show: Literal["", "deployed", "fired", "silent", "noisy"] = "", days: Days = 14,
    after: After = "", limit: Limit = 100, who: Principal = need("read"),
) -> Listing[RuleRow]:  # fmt: skip
    """Rules with what they did in the last days, those with most alerts first."""
    pool: Pool = request.app.state.pool
    return await pool.ask(rules.rules, who, q, show, days, after, limit)


@router.get("/rules/coverage")
async def get_coverage(request: Request, days: Days = 14, who: Principal = need("read")) -> Coverage:
    """The ATT&CK matrix, and the deployed rules that never fired."""
    pool: Pool = request.app.state.pool
    return await pool.ask(rules.coverage, who, days)


@router.get("/rules/noise")
async def get_noise(
    request: Request, after: After = "", limit: Limit = 50, who: Principal = need("read")
) -> Listing[RuleNoise]:
    """How loud rules were, the loudest first, with filters that would help."""
    pool: Pool = request.app.state.pool
    return await pool.ask(rules.noise, who, after, limit)


@router.get("/rules/{rule_id:path}")
async def get_rule(request: Request, rule_id: str, days: Days = 14, who: Principal = need("read")) -> RulePage:
    """A rule: by day, site, host and entity, and its newest alerts."""
    pool: Pool = request.app.state.pool
    return await pool.ask(rules.rule, who, rule_id, days)
