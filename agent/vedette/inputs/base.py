"""An open input, and what it gets from the agent.

Delivery: every chunk of every input goes through ``Surroundings.deliver``, which stores and counts it. An input
acknowledges only after ``Intake.durable``, and takes in nothing while ``Intake.accepting`` is false.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
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
    recall: Callable[[str], Any]
    """A small value that an input keeps over restarts, by name; None: there is none."""
    remember: Callable[[str, Any], Awaitable[None]]
    """Keep it; msgpack carries it. Awaited until the disk has it; raises OSError."""

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
