"""Questions and commands that an agent answers by what its control socket offers its owner: one path for both.

``{"question": name, …}`` and ``{"action": name, …}``; what each may say besides is in the tables, and nothing of it is
a program, a path or a setting. An answer that is a list comes a record each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from vedette.fleet.job import Job
from vedette.system import documents
from vedette.system.documents import Name, Serial

MAX_ROWS = 20_000
"""Records of an answer."""


class _Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No further words."""


class _Explain(Struct, frozen=True, forbid_unknown_fields=True):
    rule: Annotated[str, Meta(min_length=1, max_length=200, description="the id of a rule")]

    def __post_init__(self) -> None:
        if not self.rule.isprintable():
            raise documents.Misfit("rule", "expects the id of a rule")


class _Rollback(Struct, frozen=True, forbid_unknown_fields=True):
    ruleset: Name = ""
    version: Serial = 0


class Command(NamedTuple):
    """The command of the control socket, and what may be said with it."""

    name: str
    words: type[Struct] = _Nothing


QUESTIONS: Mapping[str, Command] = {
    "status": Command("status"),
    "rules": Command("rules"),
    "explain": Command("explain", _Explain),
    "disk": Command("disk"),
    "versions": Command("versions"),
}
ACTIONS: Mapping[str, Command] = {
    "release-quarantine": Command("release"),
    "reload": Command("reload"),
    "rollback": Command("rollback", _Rollback),
}


def validate_question(body: Mapping[str, Any]) -> None:
    """Raises ValueError."""
    _validate(body, "question", QUESTIONS)


def validate_action(body: Mapping[str, Any]) -> None:
    """Raises ValueError."""
    _validate(body, "action", ACTIONS)


def _validate(body: Mapping[str, Any], what: str, table: Mapping[str, Command]) -> None:
    name = body.get(what)
    if name not in list(table):
        raise ValueError(f"{what}: expects one of {', '.join(table)}")
    documents.read(table[name].words, {word: value for word, value in body.items() if word != what})


async def question(job: Job) -> None:
    await _answer(job, QUESTIONS[job.request.body["question"]], "question")


async def action(job: Job) -> None:
    """Asked again after a kill in the middle, it may be done a second time: each action may be."""
    await _answer(job, ACTIONS[job.request.body["action"]], "action")


async def _answer(job: Job, command: Command, what: str) -> None:
    words = {name: value for name, value in job.request.body.items() if name != what}
    answer = await job.services.command(command.name, **words)
    await asyncio.to_thread(_emit, job, answer if isinstance(answer, list) else [answer])


def _emit(job: Job, rows: list[Any]) -> None:
    """Raises as ``Job.emit``."""
    done = job.cursor or 0
    for number, row in enumerate(rows[:MAX_ROWS], 1):
        if number > done:
            job.emit(row if isinstance(row, dict) else {"text": str(row)})
            job.checkpoint(number)
