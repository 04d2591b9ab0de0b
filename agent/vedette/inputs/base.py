"""An open input, and what it gets from the agent.

Delivery: every chunk of every input goes through ``Surroundings.deliver``, which stores and counts it. An input
acknowledges only after ``Intake.durable``, and takes in nothing while ``Intake.accepting`` is false.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from vedette.inputs.condition import Condition
from vedette.model.counters import Counters
from vedette.model.event import Chunk, FilePosition, Flag, Intake


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


class Memory(Protocol):
    """Where an input keeps a small value over restarts; msgpack carries it."""

    def get(self, name: str) -> Any:
        """None: there is none."""

    def put(self, name: str, value: Any) -> None:
        """Raises OSError."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The agent as an input sees it."""

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
    memory: Memory

    def deliver(self, chunk: Chunk) -> int:
        """Store ``chunk`` and count its events, bytes and cut events; returns the raw offset after it.

        ``bytes_in`` grows by what the chunk adds to the raw log before compression. Raises OSError when the raw log
        cannot be written; nothing is counted then, so that the agent's last account still adds up.
        """
        offset = self.intake.store(chunk)
        self.counters.received[chunk.input] += len(chunk)
        self.counters.bytes_in[chunk.input] += len(chunk.data)
        if chunk.marks:
            self.counters.cut[chunk.input] += sum(1 for _, bits in chunk.marks if bits & Flag.CUT)
        return offset


class Stoppable(ABC):
    """An input that reads in ``_run`` until it is stopped; ``run`` then returns as if it had read all."""

    _task: asyncio.Task[None] | None = None
    """The task that ``run`` is in; what else runs in it is the caller's."""
    _stopping = False

    async def run(self) -> None:
        """Read until cancelled or stopped. Raises OSError when the raw log cannot be written."""
        if self._stopping:
            return
        self._task = asyncio.current_task()
        try:
            await self._run()
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        finally:
            self._task = None

    @abstractmethod
    async def _run(self) -> None:
        """Read until cancelled."""

    async def stop(self) -> None:
        """End ``run``, which returns. What was not handed over is read again at the next start, where it can be."""
        self._stopping = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
