"""Roll-outs: how far changes have come, orders to the controller, and proposals."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from vedette.system.within import NAME
from vedette_console.fleet.models import Order, Proposal, Proposed, Reason, RolloutPage, RolloutsPage
from vedette_console.fleet.service import fleet_of
from vedette_console.pages.render import page
from vedette_console.security.principal import Principal
from vedette_console.views.forms import START, Limit
from vedette_console.web import Listing, Sent, need, note

api = APIRouter(tags=["rollouts"])

Change = Annotated[str, Path(pattern=rf"^{NAME}$", description="The id of a change, or its beginning.")]
ProposalId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


class Why(Sent):
    """For the records of the console and of the controller."""

    reason: Reason


@api.get("/rollouts")
def get_rollouts(request: Request, who: Principal = need("read")) -> RolloutsPage:
    """All changes of the desired document, as the controller last said."""
    return fleet_of(request).rollouts.page(who)


@api.post("/rollouts/propose", status_code=202)
async def propose_rollout(body: Proposal, request: Request, who: Principal = need("rollout.propose")) -> Proposed:
    """Build, sign and desire rules for a group, as far as the console's keys go; else the answer has the commands that
    are left."""
    paths = [rule.path for rule in body.rules]
    note(request, group=body.group, ruleset=body.ruleset, rules=paths, bundle=body.bundle, reason=body.reason)
    proposed: Proposed = await fleet_of(request).proposals.propose(who, body)
    note(request, proposal=proposed.id, became=proposed.state, changes=proposed.changes)
    return proposed


@api.get("/rollouts/proposals")
def get_proposals(
    request: Request, start: int = START, limit: Limit = 50, who: Principal = need("read")
) -> Listing[Proposed]:
    """Proposals, the newest first."""
    return fleet_of(request).proposals.listed(who, start, limit)


@api.get("/rollouts/proposals/{id}")
def get_proposal(id: ProposalId, request: Request, who: Principal = need("read")) -> Proposed:
    """How far a proposal is."""
    return fleet_of(request).proposals.proposal(who, id)


@api.get("/rollouts/{change}")
async def get_rollout(change: Change, request: Request, who: Principal = need("read")) -> RolloutPage:
    """One change: its rings, gates, agents and events."""
    return fleet_of(request).rollouts.rollout(who, change)


async def _order(request: Request, who: Principal, change: str, command: str, why: Why) -> Order:
    note(request, change=change, reason=why.reason)
    order: Order = await fleet_of(request).rollouts.order(who, change, command, why.reason)
    note(request, order=order.id, became=order.outcome)
    return order


@api.post("/rollouts/{change}/pause")
async def pause_rollout(change: Change, body: Why, request: Request, who: Principal = need("rollout.pause")) -> Order:
    """Keep a change where it is; its gates still stop it."""
    return await _order(request, who, change, "pause", body)


@api.post("/rollouts/{change}/resume")
async def resume_rollout(change: Change, body: Why, request: Request, who: Principal = need("rollout.resume")) -> Order:
    """Let a paused change go on."""
    return await _order(request, who, change, "resume", body)


@api.post("/rollouts/{change}/abort")
async def abort_rollout(change: Change, body: Why, request: Request, who: Principal = need("rollout.abort")) -> Order:
    """Put a change back: everybody returns to what ran before."""
    return await _order(request, who, change, "abort", body)


pages = APIRouter()


@pages.get("/rollouts")
def show_rollouts(request: Request, who: Principal = need("read")) -> Response:
    """All changes that the controller reports, and this console's proposals."""
    fleet = fleet_of(request)
    changes, proposals = fleet.rollouts.page(who), fleet.proposals.listed(who)
    return page(request, "rollouts.html.j2", page=changes, proposals=proposals.items[:10])


@pages.get("/rollouts/{change}")
def show_rollout(request: Request, change: str, who: Principal = need("read")) -> Response:
    """One change: rings, gates, agents, record."""
    return page(request, "rollout.html.j2", page=fleet_of(request).rollouts.rollout(who, change))
