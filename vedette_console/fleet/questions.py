"""Questions and commands to one agent: its status, rules, disk, versions; reload, release-quarantine, rollback."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice
from typing import Any

from vedette.fleet.ask import validate_action, validate_question
from vedette.fleet.requests import Request
from vedette.region import requests
from vedette.system.wallclock import utc_now
from vedette_console.fleet.desk import Asked, Desk, answer_row, job
from vedette_console.fleet.documents import Documents
from vedette_console.fleet.live import Live
from vedette_console.fleet.means import need_requests, reasoned, signer
from vedette_console.fleet.models_asked import Action, AnswerPage, Question
from vedette_console.fleet.sight import Sight
from vedette_console.security.principal import Principal
from vedette_console.settings import Settings
from vedette_console.web import Problem, require

HOLDS = {"ask": 600_000_000, "do": 3_600_000_000}
"""For how long an agent may act on it, in microseconds."""
WAIT_SECONDS = 5.0
"""For the answer, before the page shows that it is awaited."""
ROLE = {"ask": "viewer", "do": "operator"}
SHOWN = 1000


class Questions:
    def __init__(self, settings: Settings, live: Live, documents: Documents, desk: Desk) -> None:
        self._settings, self._live, self._documents, self._desk = settings, live, documents, desk

    async def ask(self, who: Principal, fleet: str, agent: str, question: Question) -> AnswerPage:
        """Raises Problem."""
        body = {"question": question.question, **({"rule": question.rule} if question.rule else {})}
        return await self._send(who, fleet, agent, "ask", body, question.reason)

    async def do(self, who: Principal, fleet: str, agent: str, action: Action) -> AnswerPage:
        """Raises Problem."""
        body: dict[str, Any] = {"action": action.action}
        body |= {"ruleset": action.ruleset} if action.ruleset else {}
        body |= {"version": action.version} if action.version is not None else {}
        return await self._send(who, fleet, agent, "do", body, action.reason)

    async def _send(
        self, who: Principal, fleet: str, agent: str, kind: str, body: Mapping[str, Any], reason: str
    ) -> AnswerPage:
        beat = Sight(self._live, who).need_beat(fleet, agent)
        require(who, "fleet.ask", fleet, beat.site)
        try:
            (validate_question if kind == "ask" else validate_action)(body)
        except ValueError as error:
            raise Problem(422, str(error), where=str(error).partition(":")[0]) from error
        contents = await asyncio.to_thread(self._documents.read)
        if fleet != contents.fleet:
            raise Problem(409, f"the console steers fleet {contents.fleet or 'none'}, not {fleet}", where="fleet")
        need_requests(self._settings)
        name, key = await asyncio.to_thread(signer, self._settings, contents, ROLE[kind])
        now = requests.moment()
        text = reasoned(reason, who.who)
        request = Request(fleet, kind, name, now, now + HOLDS[kind], body, (agent,), None, text)
        title = " ".join(str(value) for value in body.values())
        asked = await self._desk.ask(
            request, key, {agent: beat.site}, title=title, by=who.who, more={"body": dict(body)}
        )
        await _answered(asked, WAIT_SECONDS)
        return await asyncio.to_thread(page, asked, who)

    def answer(self, who: Principal, id: str) -> AnswerPage:
        """Raises Problem 404."""
        return page(self._desk.of(who, id, *HOLDS), who)


async def _answered(asked: Asked, seconds: float) -> None:
    """Until the reply is whole, or the time is over."""
    for _ in range(round(seconds / 0.05)):
        if asked.note.state:
            return
        await asyncio.sleep(0.05)


def page(asked: Asked, who: Principal) -> AnswerPage:
    """Blocking. Raises Problem 503."""
    seen = asked.note.seen(who)
    agents = [agent for agent in asked.collection.answers if agent in seen]
    try:
        records = {agent: [*islice(asked.collection.records(agent), SHOWN)] for agent in agents}
    except OSError as error:
        raise Problem(503, f"the reply cannot be read: {error}") from error
    return AnswerPage(
        job=job(asked.note, who, asked, utc_now()), what=dict(asked.note.more.get("body", {})),
        agents=[answer_row(asked, agent) for agent in agents], records=records,
    )  # fmt: skip
