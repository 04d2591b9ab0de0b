"""Whether an input works: what status, heartbeat, metrics and ``vedette check`` say of it, and why.

========= ==============================================================================================
works     what is sent to it, or written for it, comes in; a quiet input works; its reason says how far it is behind
waiting   nothing is wrong, and nothing can come in yet: no file is there, or it is being opened
failing   what it is to take does not come in: missing, taken, closed to it, not reached, or waiting for too long
========= ==============================================================================================

Each transport says so of itself (``Running.condition``); its settings say what shows before it is opened
(``InputSettings.foreseen``).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

BEHIND_SECONDS = 300
"""Age from which on it is no mere backlog: of what an input has not begun, and of what is stored and not evaluated."""


class State(StrEnum):
    WORKS = "works"
    WAITING = "waiting"
    FAILING = "failing"


class Condition(NamedTuple):
    state: State
    reason: str = ""


WORKS = Condition(State.WORKS)
OPENING = Condition(State.WAITING, "it is being opened")


def waiting(reason: str) -> Condition:
    return Condition(State.WAITING, reason)


def failing(reason: str) -> Condition:
    return Condition(State.FAILING, reason)


def with_files(paths: Iterable[Path | None]) -> Condition:
    """Return the condition of an input that reads these files when it is opened, as this process finds them."""
    for path in paths:
        try:
            if path is not None:
                path.open("rb").close()
        except (OSError, ValueError) as error:  # ValueError: a NUL in its name
            return failing(f"{path}: {getattr(error, 'strerror', None) or error}")
    return WORKS
