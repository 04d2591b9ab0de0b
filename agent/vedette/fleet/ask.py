"""Questions and commands that an agent answers by what its control socket offers its owner: one path for both.

``{"question": name, …}`` and ``{"action": name, …}``; what each may say besides is in the tables, and nothing of it is
a program, a path or a setting. An answer that is a list comes a record each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vedette.fleet.job import Job
from vedette.system.within import is_name

MAX_ROWS = 20_000
"""Records of an answer."""


class Command(NamedTuple):
    """The command of the control socket, and what may be said with it: a check by name."""

    name: str
    words: Mapping[str, Callable[[object], bool]] = {}


def _rule_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()


def _version(value: object) -> bool:
    return type(value) is int and 0 < value < 2**53


QUESTIONS: Mapping[str, Command] = {
    "status": Command("status"),
    "rules": Command("rules"),
    "explain": Command("explain", {"rule": _rule_id}),
    "disk": Command("disk"),
    "versions": Command("versions"),
}
ACTIONS: Mapping[str, Command] = {
    "release-quarantine": Command("release"),
    "reload": Command("reload"),
    "rollback": Command("rollback", {"ruleset": is_name, "version": _version}),
}
NEEDED = {"explain": ("rule",)}
"""What a question cannot do without."""


def validate_question(body: Mapping[str, Any]) -> None:
    """Raises ValueError."""
    _validate(body, "question", QUESTIONS)


def validate_action(body: Mapping[str, Any]) -> None:
    """Raises ValueError."""
    _validate(body, "action", ACTIONS)


def _validate(body: Mapping[str, Any], what: str, table: Mapping[str, Command]) -> None:
    name = body.get(what)
    row = table.get(name) if isinstance(name, str) else None
    if row is None or not isinstance(name, str):
        raise ValueError(f"{what}: expects one of {', '.join(table)}")
    for word, value in body.items():
        if word == what:
            continue
        if word not in row.words:
            raise ValueError(f"{word}: {name} knows {', '.join(row.words) or 'nothing else'}")
        if not row.words[word](value):
            raise ValueError(f"{word}: not a valid value")
    for word in NEEDED.get(name, ()):
        if word not in body:
            raise ValueError(f"{word}: missing")


async def question(job: Job) -> None:
    await _answer(job, QUESTIONS[job.request.body["question"]], "question")


async def action(job: Job) -> None:
    """Asked again after a kill in the middle, it may be done a second time: each action may be."""
    await _answer(job, ACTIONS[job.request.body["action"]], "action")


async def _answer(job: Job, command: Command, what: str) -> None:
    words = {name: value for name, value in job.request.body.items() if name != what}
    found = await job.services.command(command.name, **words)
    await asyncio.to_thread(_emit, job, found if isinstance(found, list) else [found])


def _emit(job: Job, rows: list[Any]) -> None:
    """Raises as ``Job.emit``."""
    done = job.cursor or 0
    for number, row in enumerate(rows[:MAX_ROWS], 1):
        if number > done:
            job.emit(row if isinstance(row, dict) else {"text": str(row)})
            job.checkpoint(number)
