"""What the control socket offers the host's owner, and requests of the fleet's operators in part.

Each command is a coroutine that gives something JSON-able; it raises ValueError and OSError with the reason. What
explains rules (``questions.py``) is imported by the first who asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from vedette.runtime.agent.control import Command

if TYPE_CHECKING:
    from vedette.runtime.member.fleet import Fleet
    from vedette.runtime.member.membership import Membership
    from vedette.runtime.member.requests import Requests
    from vedette.runtime.options.response import Response
    from vedette.runtime.pipeline.context import RunContext
    from vedette.runtime.pipeline.pipeline import Pipeline
    from vedette.runtime.rulesets.active import ActiveRules
    from vedette.runtime.rulesets.lookups import Lookups


class Agent(Protocol):
    """The parts of the agent (``app.py``, which imports this module) that commands ask."""

    active: ActiveRules
    context: RunContext
    fleet: Fleet | None
    lookups: Lookups | None
    membership: Membership | None
    pipeline: Pipeline
    requests: Requests | None
    response: Response | None

    def status(self) -> dict[str, Any]: ...


class Commands:
    """Those of ``agent``, whose parts may change under it; ``reload`` reads its configuration again."""

    def __init__(self, agent: Agent, reload: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        self._agent = agent
        self.by_name: dict[str, Command] = {
            "status": self.status,
            "busiest": self._busiest,
            "rollback": agent.active.rollback,
            "lookup_rollback": self._lookup_rollback,
            "lookup_remove": self._lookup_remove,
            "rules": self._rules,
            "explain": self._explain,
            "disk": self._disk,
            "versions": self._versions,
            "reload": reload,
            "release": self._release,
            "carried": self._carried,
            "replies": self._replies,
            "reply": self._reply,
            "renewal": self._renewal,
            "response": self._response,
        }

    async def asked(self, name: str, **words: Any) -> Any:
        """By a request of the fleet's operators: without what is redacted."""
        answer = await self.by_name[name](**words)
        if self._agent.context.config.redact:
            from vedette.runtime.agent import outward

            return outward.answer(name, answer)
        return answer

    def declared(self) -> tuple[tuple[str, str], ...]:
        """The formats of the active rules: their text, and where it is."""
        return tuple((declared.text, declared.path) for declared in self._agent.active.loaded.engine.plan.formats)

    async def status(self) -> dict[str, Any]:
        await self._agent.pipeline.checkpointer.asked()
        return self._agent.status()

    async def _busiest(self, most: int) -> Any:
        return _questions().busiest(self._agent.pipeline, self._agent.active, most)

    async def _lookup_rollback(self, name: str) -> Any:
        return await self._lookups(name).rollback(name)

    async def _lookup_remove(self, name: str) -> Any:
        return await self._lookups(name).removed(name)

    def _lookups(self, name: str) -> Lookups:
        if self._agent.lookups is None:
            raise ValueError(f"no lookup {name} is installed here")
        return self._agent.lookups

    async def _rules(self) -> Any:
        agent = self._agent
        return _questions().rules(agent.context, agent.active, await self._apart())

    async def _explain(self, rule: str) -> Any:
        agent = self._agent
        return _questions().explained(agent.context, agent.active, await self._apart(), rule)

    async def _apart(self) -> Any:
        strict = self._agent.pipeline.strict
        return {} if strict is None else await _questions().strict(strict.running)

    async def _disk(self) -> Any:
        return await asyncio.to_thread(_questions().disk, self._agent.context)

    async def _versions(self) -> Any:
        return _questions().versions(self._agent.context, self._agent.active)

    async def _release(self) -> Any:
        pipeline = self._agent.pipeline
        released = len(self._agent.context.failures.quarantined)
        pipeline.release()
        if (strict := pipeline.strict) is not None:
            released += strict.quarantined
            await strict.release()
        return {"released": released}

    async def _carried(self) -> Any:
        agent = self._agent
        if agent.fleet is None:
            raise ValueError("this agent follows no fleet: [fleet] root")
        took: dict[str, Any] = await agent.fleet.carried()
        if agent.requests is not None:
            took["requests"] = await agent.requests.carried()
        if agent.membership is not None:
            took["certificate"] = await agent.membership.carried()
        return took

    async def _replies(self) -> Any:
        requests = self._agent.requests
        return {"parts": {}, "refusals": {}} if requests is None else requests.waiting()

    async def _renewal(self) -> Any:
        membership = self._agent.membership
        request = None if membership is None else await membership.request()
        return {"request": request and request.decode()}

    async def _reply(self, request: str, part: int) -> Any:
        if self._agent.requests is None:
            raise ValueError("this agent follows no fleet: [fleet] root")
        return {"message": await self._agent.requests.part(request, part)}

    async def _response(self, action: str, **words: Any) -> Any:
        if self._agent.response is None:
            raise ValueError("local response is off: [response] enabled")
        return await self._agent.response.command(action, **words)


def _questions() -> ModuleType:
    from vedette.runtime.agent import questions

    return questions
