"""The fleet's side of the console in one place: what API and pages ask, and what runs beside them.

Works without a broker, documents or keys: what needs one says which is missing, and how to give it. Every function
takes the one who asks, shows what they may see, and raises ``web.Problem``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI

from vedette.system.wallclock import utc_now
from vedette_console.fleet import evidence as evidences
from vedette_console.fleet.asked import ACT, job
from vedette_console.fleet.authoring import Authoring
from vedette_console.fleet.backtest import Backtests
from vedette_console.fleet.desk import Desk
from vedette_console.fleet.documents import Documents
from vedette_console.fleet.evidence import Evidence
from vedette_console.fleet.given import Given
from vedette_console.fleet.hunts import Hunts
from vedette_console.fleet.live import Live, Place
from vedette_console.fleet.located import locate
from vedette_console.fleet.models import (
    Action,
    AgentPage,
    AnswerPage,
    BacktestOrder,
    BacktestPage,
    BacktestsList,
    EventInput,
    EvidenceOrder,
    EvidencePage,
    Explained,
    FleetPage,
    HuntOrder,
    HuntPage,
    HuntsList,
    Job,
    Linted,
    Order,
    Proposal,
    ProposalsList,
    Proposed,
    Question,
    RolloutPage,
    RolloutsPage,
    RuleInput,
    Tested,
)
from vedette_console.fleet.overview import Overview
from vedette_console.fleet.propose import Proposals
from vedette_console.fleet.questions import Questions
from vedette_console.fleet.rollouts import Rollouts
from vedette_console.security.principal import Principal
from vedette_console.web import Problem

NEWS_SECONDS = 1.0
"""Between two pieces of news on a topic: an open page asks again upon each."""
HEARTBEAT_SECONDS = 5.0
"""Between two on the fleet, where heartbeats come all the time."""


Sees = Callable[[Principal], bool]
Publish = Callable[[str, Callable[[Principal], Any]], None]


class News:
    """Tells open pages what has changed, each what they may see: at once, and then what came meanwhile after a
    pause."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._due: dict[str, dict[str | Place | None, Sees]] = {}
        self._pausing: dict[str, asyncio.TimerHandle] = {}

    def heard(self, topic: str, place: Place | None) -> None:
        """Of a fleet and site, of all with None."""
        self._tell(topic, place, lambda who: place is None or who.sites().sees(*place))

    def job(self, sees: Callable[[str, Principal], bool], id: str) -> None:
        self._tell("jobs", id, partial(sees, id))

    def _tell(self, topic: str, what: str | Place | None, sees: Sees) -> None:
        self._due.setdefault(topic, {})[what] = sees
        if topic not in self._pausing:
            self._send(topic)

    def _send(self, topic: str) -> None:
        self._pausing.pop(topic, None)
        due = self._due.pop(topic, {})

        def seen(who: Principal) -> dict[str, Any] | None:
            mine = [what for what, sees in due.items() if sees(who)]
            return {"ids": [id for id in mine if isinstance(id, str)][:100]} if mine else None

        self._publish(topic, seen)
        pause = HEARTBEAT_SECONDS if topic == "fleet" else NEWS_SECONDS
        self._pausing[topic] = asyncio.get_running_loop().call_later(pause, self._again, topic)

    def _again(self, topic: str) -> None:
        self._pausing.pop(topic, None)
        if topic in self._due:
            self._send(topic)

    def close(self) -> None:
        for handle in self._pausing.values():
            handle.cancel()


class Fleet:
    def __init__(self, given: Given, fleet: str, publish: Publish) -> None:
        """``publish`` is given a topic ("fleet", "rollouts", "jobs") and what gives ``{"ids": […]}`` of it for one who
        may see it, None for others. Raises ValueError."""
        self.given, self._news = given, News(publish)
        self._documents = documents = Documents(given.trust)
        self.live = live = Live(given.broker, fleet, self._news.heard)
        self._overview = Overview(live, documents, given.operator)
        self._rollouts = Rollouts(given, live, documents, self._overview)
        self._desk = Desk(given, lambda id: self._news.job(self._desk.sees, id), partial(evidences.store, given))
        self._authoring = Authoring(given)
        self._hunts = Hunts(given, live, documents, self._desk, self._authoring)
        self._evidence = Evidence(given, live, documents, self._desk, partial(locate, given))
        self._questions = Questions(given, live, documents, self._desk)
        self._proposals = Proposals(given, live, documents, lambda id: self._news.job(self._proposals.sees, id))
        self._backtests = Backtests(given, live, lambda id: self._news.job(self._backtests.sees, id))

    async def start(self) -> None:
        await self.live.start()
        for part in (self._proposals, self._backtests, self._desk):
            await part.start()

    async def stop(self) -> None:
        """What was asked of hosts goes on with the next start."""
        for part in (self._desk, self._backtests, self._proposals):
            await part.stop()
        await self.live.stop()
        self._news.close()

    # --- the fleet

    async def overview(
        self, who: Principal, q: str = "", group: str | None = None, state: str = "", after: str = "", limit: int = 100
    ) -> FleetPage:
        """``group`` None: all, "": the agents in none; ``state``: of ``AgentRow.state`` or ``health``."""
        return await asyncio.to_thread(self._overview.page, who, q, group, state, offset_of(after), limit)

    async def agent(self, who: Principal, fleet: str, agent: str) -> AgentPage:
        return await asyncio.to_thread(self._overview.agent, who, fleet, agent)

    async def ask(self, who: Principal, fleet: str, agent: str, question: Question) -> AnswerPage:
        return await self._questions.ask(who, fleet, agent, question)

    async def do(self, who: Principal, fleet: str, agent: str, action: Action) -> AnswerPage:
        return await self._questions.do(who, fleet, agent, action)

    async def answer(self, who: Principal, id: str) -> AnswerPage:
        return await asyncio.to_thread(self._questions.one, who, id)

    # --- roll-outs

    async def rollouts(self, who: Principal) -> RolloutsPage:
        return await asyncio.to_thread(self._rollouts.page, who)

    async def rollout(self, who: Principal, change: str) -> RolloutPage:
        return await asyncio.to_thread(self._rollouts.one, who, change)

    async def order(self, who: Principal, change: str, command: str, reason: str) -> Order:
        """``command``: "pause", "resume" or "abort"."""
        return await self._rollouts.order(who, change, command, reason)

    async def propose(self, who: Principal, proposal: Proposal) -> Proposed:
        return await self._proposals.propose(who, proposal)

    async def proposals(self, who: Principal, after: str = "", limit: int = 50) -> ProposalsList:
        return await asyncio.to_thread(self._proposals.listed, who, offset_of(after), limit)

    async def proposal(self, who: Principal, id: str) -> Proposed:
        return await asyncio.to_thread(self._proposals.one, who, id)

    # --- hunts and evidence

    async def hunts(self, who: Principal, after: str = "", limit: int = 50) -> HuntsList:
        return await asyncio.to_thread(self._hunts.listed, who, offset_of(after), limit)

    async def hunt(self, who: Principal, id: str) -> HuntPage:
        return await asyncio.to_thread(self._hunts.one, who, id)

    async def start_hunt(self, who: Principal, order: HuntOrder) -> HuntPage:
        return await self._hunts.start(who, order)

    async def pull(self, who: Principal, order: EvidenceOrder) -> EvidencePage:
        return await self._evidence.pull(who, order)

    async def evidence(self, who: Principal, id: str, after: str = "", limit: int = 1000) -> EvidencePage:
        return await asyncio.to_thread(self._evidence.one, who, id, offset_of(after), limit)

    async def evidence_of(self, who: Principal, alert: str, limit: int = 1000) -> list[EvidencePage]:
        """All that was asked for an alert, the newest first and with its lines."""
        return await asyncio.to_thread(self._evidence.of, who, alert, limit)

    async def cancel(self, who: Principal, id: str) -> Job:
        """Call off a request; what hosts have found until then still comes."""
        asked = await asyncio.to_thread(self._desk.of, who, id, *ACT)
        if not asked.note.may_cancel(who):
            raise Problem(403, f"{who.name} may not cancel this: {ACT[asked.note.kind]} at all of its sites")
        await self._desk.cancel(id)
        return job(asked.note, who, asked, utc_now())

    # --- rules

    async def lint(self, rule: RuleInput) -> Linted:
        return await self._authoring.lint(rule)

    async def explain(self, rule: EventInput) -> Explained:
        return await self._authoring.explain(rule)

    async def test(self, rule: RuleInput) -> Tested:
        return await self._authoring.test(rule)

    async def backtests(self, who: Principal, after: str = "", limit: int = 50) -> BacktestsList:
        return await asyncio.to_thread(self._backtests.listed, who, offset_of(after), limit)

    async def backtest(self, who: Principal, id: str) -> BacktestPage:
        return await asyncio.to_thread(self._backtests.one, who, id)

    async def start_backtest(self, who: Principal, order: BacktestOrder) -> BacktestPage:
        return await self._backtests.begin(who, order)

    async def stop_backtest(self, who: Principal, id: str) -> BacktestPage:
        return await self._backtests.cancel(who, id)


def offset_of(after: str) -> int:
    """Of a list's cursor. Raises Problem 422."""
    if after and not (after.isascii() and after.isdigit() and len(after) <= 9):
        raise Problem(422, f"{after[:40]!r} is no cursor", where="after", what_to_do="send `next` of the page before")
    return int(after or 0)


@asynccontextmanager
async def run(app: FastAPI) -> AsyncIterator[None]:
    """For ``services``: ``app.state.fleet`` while the application runs."""
    given = Given.of(app.state.settings)
    name = app.state.settings.fleet or (await asyncio.to_thread(Documents(given.trust).read)).fleet
    fleet = Fleet(given, name, app.state.hub.publish)
    app.state.fleet = fleet
    await fleet.start()
    try:
        yield
    finally:
        await fleet.stop()
