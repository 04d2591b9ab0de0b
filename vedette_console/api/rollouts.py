"""Roll-outs: how far changes have come, orders to the controller, and proposals."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict

from vedette.system.within import NAME
from vedette_console.api.fleet import Cursor, Limit, fleet_of
from vedette_console.fleet.models import Order, Proposal, ProposalsList, Proposed, Reason, RolloutPage, RolloutsPage
from vedette_console.security.principal import Principal
from vedette_console.web import need, note

router = APIRouter(tags=["rollouts"])

Change = Annotated[str, Path(pattern=rf"^{NAME}$", description="The id of a change, or its beginning.")]
ProposalId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


class Why(BaseModel):
    """For the records of the console and of the controller."""

    model_config = ConfigDict(extra="forbid")
    reason: Reason


@router.get("/rollouts")
async def get_rollouts(request: Request, who: Principal = need("read")) -> RolloutsPage:
    """All changes of the desired document, as the controller last said."""
    page: RolloutsPage = await fleet_of(request).rollouts(who)
    return page


@router.post("/rollouts/propose", status_code=202)
async def propose_rollout(body: Proposal, request: Request, who: Principal = need("rollout.propose")) -> Proposed:
    """Build, sign and desire rules for a group, as far as the console's keys go; else the answer has the commands that
    are left."""
    paths = [one.path for one in body.rules]
    note(request, group=body.group, ruleset=body.ruleset, rules=paths, bundle=body.bundle, reason=body.reason)
    made: Proposed = await fleet_of(request).propose(who, body)
    note(request, proposal=made.id, became=made.state, changes=made.changes)
    return made


@router.get("/rollouts/proposals")
async def get_proposals(
    request: Request, after: Cursor = "", limit: Limit = 50, who: Principal = need("read")
) -> ProposalsList:
    """Proposals, the newest first."""
    page: ProposalsList = await fleet_of(request).proposals(who, after, limit)
    return page


@router.get("/rollouts/proposals/{id}")
async def get_proposal(id: ProposalId, request: Request, who: Principal = need("read")) -> Proposed:
    """How far a proposal is."""
    made: Proposed = await fleet_of(request).proposal(who, id)
    return made


@router.get("/rollouts/{change}")
async def get_rollout(change: Change, request: Request, who: Principal = need("read")) -> RolloutPage:
    """One change: its rings, gates, agents and events."""
    page: RolloutPage = await fleet_of(request).rollout(who, change)
    return page


async def _order(request: Request, who: Principal, change: str, command: str, why: Why) -> Order:
    note(request, change=change, reason=why.reason)
    made: Order = await fleet_of(request).order(who, change, command, why.reason)
    note(request, order=made.id, became=made.outcome)
    return made


@router.post("/rollouts/{change}/pause")
async def pause_rollout(change: Change, body: Why, request: Request, who: Principal = need("rollout.pause")) -> Order:
    """Keep a change where it is; its gates still stop it."""
    return await _order(request, who, change, "pause", body)


@router.post("/rollouts/{change}/resume")
async def resume_rollout(change: Change, body: Why, request: Request, who: Principal = need("rollout.resume")) -> Order:
    """Let a paused change go on."""
    return await _order(request, who, change, "resume", body)


@router.post("/rollouts/{change}/abort")
async def abort_rollout(change: Change, body: Why, request: Request, who: Principal = need("rollout.abort")) -> Order:
    """Put a change back: everybody returns to what ran before."""
    return await _order(request, who, change, "abort", body)
