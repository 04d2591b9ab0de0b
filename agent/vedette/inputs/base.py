"""What an input is to the rest: its settings, and how it is opened.

Each type of input is one module: a dataclass of its settings that extends ``InputSettings``, and a transport that it
imports when it is opened, so that reading a configuration loads none. ``table.py`` lists the types.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from vedette.inputs.condition import Condition, with_files
from vedette.model.counters import Counters
from vedette.model.event import FilePosition, Intake, LogSource
from vedette.model.settings import Name, Zone


class Running(Protocol):
    """An open input."""

    @property
    def condition(self) -> Condition:
        """Whether it works now, and why not."""

    async def run(self) -> None:
        """Receive until ``stop``; raises OSError when the raw log cannot be written."""

    async def stop(self) -> None:
        """Hand over what has arrived, and close."""

    def bound(self, descriptors: int) -> None:
        """How many files or connections it may hold open."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an input is given by the agent, besides its settings."""

    intake: Intake
    counters: Counters
    clock: Callable[[], int]
    """UTC microseconds."""
    agent_id: str
    positions: Callable[[], Iterable[FilePosition]]
    """Where files were left, of all inputs."""
    recent: Callable[[str], Iterable[tuple[int, str, bytes]]]
    """Blocks. Messages of an input at the end of the raw log: packet identifier, topic, MD5 of the payload."""
    private: Callable[[int], bool]
    """Whether an open file is the agent's own, and no log. Raises OSError."""


@dataclass(frozen=True, slots=True)
class InputSettings(ABC):
    """A table ``[[input]]``; what all types have."""

    name: Name
    format: str = "auto"
    timezone: Zone = ""
    logsource: LogSource = LogSource()

    local: ClassVar[bool] = False
    """Its events are of this host, unless they say otherwise."""

    @property
    def codec(self) -> str:
        """What its events carry as their format."""
        return self.format

    @property
    def connections(self) -> int:
        """That it may hold open."""
        return 0

    @property
    def open_files(self) -> int:
        """That it may hold open."""
        return 0

    @property
    def exclusive(self) -> tuple[str, ...]:
        """Paths that no other input may read."""
        return ()

    def needed_files(self) -> tuple[Path | None, ...]:
        """Certificates, keys, passwords: what it reads when it is opened."""
        return ()

    def foreseen(self, private: Callable[[int], bool] = lambda descriptor: False) -> Condition:
        """What this host makes of it, as far as this process can see before it is opened; ``private`` as in
        ``Surroundings``."""
        return with_files(self.needed_files())

    def mistakes(self) -> Iterator[str]:
        """What is wrong that one key alone does not show: each begins with ``.KEY: `` or ``: ``."""
        yield from ()

    @abstractmethod
    async def open(self, given: Surroundings, descriptors: int) -> Running:
        """Raises OSError that names the input and what to do; nothing stays open then."""
