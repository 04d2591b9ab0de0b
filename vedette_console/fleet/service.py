"""The fleet's side of the console in one place: what API and pages ask, and what runs beside them.

Works without a broker, documents or keys: what needs one says which is missing, and how to give it. Every function of
its parts takes the one who asks, shows what they may see, and raises ``web.Problem``; those that are no coroutines
block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import Request

from vedette_console.fleet import evidence as evidences
from vedette_console.fleet.authoring import Authoring
from vedette_console.fleet.backtest import Backtests
from vedette_console.fleet.desk import Desk
from vedette_console.fleet.documents import Documents
from vedette_console.fleet.evidence import Evidence, locate
from vedette_console.fleet.hunts import Hunts
from vedette_console.fleet.live import Live, Place
from vedette_console.fleet.overview import Overview
from vedette_console.fleet.propose import Proposals
from vedette_console.fleet.questions import Questions
from vedette_console.fleet.rollouts import Rollouts
from vedette_console.security.principal import Principal
from vedette_console.settings import Settings

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
        """Note news of a fleet and site, of all with None."""
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
    """A part for each noun; ``fleet_of`` gives it to a route."""

    def __init__(self, settings: Settings, fleet: str, publish: Publish) -> None:
        """``publish`` is given a topic ("fleet", "rollouts", "jobs") and what gives ``{"ids": […]}`` of it for one who
        may see it, None for others. Raises OSError and ValueError."""
        self._news = News(publish)
        self._documents = documents = Documents(settings.trust)
        self.live = live = Live(settings.broker, fleet, self._news.heard, members=settings.members)
        self.overview = Overview(live, documents, settings.operator)
        self.rollouts = Rollouts(settings, live, documents, self.overview)
        self.desk = Desk(settings, lambda id: self._news.job(self.desk.sees, id), partial(evidences.store, settings))
        self.authoring = Authoring(settings)
        self.hunts = Hunts(settings, live, documents, self.desk, self.authoring)
        self.evidence = Evidence(settings, live, documents, self.desk, partial(locate, settings))
        self.questions = Questions(settings, live, documents, self.desk)
        self.proposals = Proposals(settings, live, documents, lambda id: self._news.job(self.proposals.sees, id))
        self.backtests = Backtests(settings, live, lambda id: self._news.job(self.backtests.sees, id))

    async def start(self) -> None:
        await self.live.start()
        for part in (self.proposals, self.backtests, self.desk):
            await part.start()

    async def stop(self) -> None:
        """End all parts; what was asked of hosts goes on with the next start."""
        for part in (self.desk, self.backtests, self.proposals):
            await part.stop()
        await self.live.stop()
        self._news.close()


def fleet_of(request: Request) -> Fleet:
    """The application's."""
    fleet: Fleet = request.app.state.fleet
    return fleet
