"""A sink: the settings that all types have, and the contract of their receivers.

``settings.py`` lists the types, ``opening.py`` makes a receiver, whose module and libraries are imported then.

Delivery: ``Receiver.deliver`` answers for each alert. TAKEN is final: the other side has it, as far as its protocol can
say. LATER: it is tried again, under the same id. REFUSED: the receiver will never take this alert. UNTRIED: it was not
sent. Which of these an answer is belongs to the type; when to try again does not (``delivery/forward.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from vedette.model.settings import Name, Size

LEVELS = ("informational", "low", "medium", "high", "critical")
MAX_TEXT = 500
"""Characters of an answer that are kept."""


class Outgoing(NamedTuple):
    """An alert on its way: ``row`` has the columns of ``delivery.envelope.ALERT``. Or a row of a statement: ``line`` is
    its JSON object, and ``row`` says of which agent it is."""

    seq: int
    id: str
    row: Mapping[str, Any]
    line: bytes = b""


class Verdict(Enum):
    """The outcome for an alert: the other side has it, it is tried again, it is never taken, it was not sent."""

    TAKEN = "taken"
    LATER = "later"
    REFUSED = "refused"
    UNTRIED = "untried"


class Answer(NamedTuple):
    """``text``: what the receiver said; ``wait``: seconds for which it wants to be left alone."""

    verdict: Verdict
    text: str = ""
    wait: float = 0.0


class Receiver(Protocol):
    """The other side of one sink."""

    @property
    def batch(self) -> int:
        """Alerts that one ``deliver`` may be given; a ``row_batch`` says how many rows, where these are more."""

    async def deliver(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        """An answer for each, in order. May be cancelled, which ends what is under way at once."""

    async def close(self) -> None:
        """Let go of connections, files and threads."""


@dataclass(frozen=True, slots=True)
class SinkSettings(ABC):
    """A table ``[[sink]]``; what all types have. An empty filter lets everything through; it is one of alerts."""

    name: Name
    takes: Literal["alerts", "rows", "both"] = "alerts"
    max_waiting: Size = 256 << 20
    level: Literal["informational", "low", "medium", "high", "critical"] = "informational"
    rules: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    type: ClassVar[str]

    @property
    @abstractmethod
    def to(self) -> str:
        """Where it goes, for people; nothing of it is a secret."""

    @property
    def program(self) -> str:
        """The program of this host that it runs; empty: none."""
        return ""

    @property
    def names(self) -> tuple[str, ...]:
        """Kinds of entities, ``host`` among them, that its form has a place for, or goes by."""
        return ()

    def mistakes(self) -> Iterator[str]:
        """Yield mistakes that one key alone does not show: each begins with ``.KEY: `` or ``: ``."""
        yield from ()

    def open(self, version: str) -> Receiver:
        """Make the receiver of a type that is no row of ``SINK_TYPES``; those override it; see ``opening.opened``."""
        raise TypeError(f"{type(self).__name__} has no receiver")

    def wants(self, row: Mapping[str, Any]) -> bool:
        """Whether an alert passes the filter."""
        return fits(self, row["level"], row["rule_id"], row["tags"])


class Filter(Protocol):
    """Conditions on an alert; empty: none. ``rules`` and ``tags`` are patterns of fnmatch."""

    @property
    def level(self) -> str: ...
    @property
    def rules(self) -> tuple[str, ...]: ...
    @property
    def tags(self) -> tuple[str, ...]: ...


def fits(of: Filter, level: str, rule_id: str, tags: Iterable[str]) -> bool:
    """Whether an alert passes ``of``. A level that nobody knows does."""
    if level in LEVELS and LEVELS.index(level) < LEVELS.index(of.level):
        return False
    if of.rules and not any(fnmatchcase(rule_id, pattern) for pattern in of.rules):
        return False
    return not of.tags or any(fnmatchcase(tag, pattern) for tag in tags for pattern in of.tags)


def secret(path: Path) -> str:
    """The first line of a file. Raises OSError, also when it is empty."""
    line = path.read_text("utf-8").partition("\n")[0].strip()
    if not line:
        raise OSError(f"{path}: is empty; expects one line")
    return line
