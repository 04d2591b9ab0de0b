"""What the process of a strict rule set is at, where the agent can read it after the process has died.

A page of memory that both map. The process writes before each step which event it evaluates; nothing is flushed and
nothing can tear that matters: the writer is dead when it is read.

Bytes: raw offset of the first event (8), of the last (8), number of the rule that is asked alone, from 1 (4; 0: all of
them), the stage (1), the length of the next (1), the id of the correlation or statement at work as UTF-8, cut after
``ID_BYTES``; little-endian. A new stage begins with none at work.
"""

from __future__ import annotations

import mmap
import os
import struct
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

_FORM = struct.Struct("<QQIBB")
_LENGTH_AT = _FORM.size - 1
ID_BYTES = 200


class Stage(IntEnum):
    OTHER = 0
    MATCHING = 1
    """Rules are asked about an event."""
    ALERTS = 2
    """Correlations, statements and alerts of events that matched."""
    ALERTS_ALONE = 3
    """The same of a single event that was suspected."""
    RESTORING = 4
    """The state is restored; no event is at fault, as of the next two."""
    TIME = 5
    """Time passes for correlations, windows and suppression."""
    ROWS = 6
    """Alerts of rows of statements that have waited."""
    WRITING = 7
    """What has changed in the state is written down; no event is at fault."""


EVENTLESS = {
    Stage.RESTORING: "while it restored its state",
    Stage.TIME: "while time passed for correlations, windows and suppression",
    Stage.ROWS: "at the alerts of rows that waited",
    Stage.WRITING: "while it wrote its state",
}
"""Stages in which the set's state is at fault, if anything of it; in words."""


class Note(NamedTuple):
    first: int
    last: int
    rule: int
    stage: Stage
    at_work: str
    """Id of a correlation or statement; empty: none was."""


@lru_cache(maxsize=4096)
def cut(rule_id: str) -> str:
    """As much of an id as the page holds."""
    return rule_id.encode()[:ID_BYTES].decode(errors="ignore")


class BlackBox:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._page = mmap.mmap(descriptor, mmap.PAGESIZE)

    @classmethod
    def make(cls) -> BlackBox:
        """Raises OSError."""
        descriptor = os.memfd_create("vedette-blackbox")
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return cls(descriptor)

    def note(self, stage: Stage, first: int = 0, last: int = 0, rule: int = 0) -> None:
        _FORM.pack_into(self._page, 0, first, last, rule, stage, 0)

    def at_work(self, rule_id: str) -> None:
        """This correlation or statement runs now; empty: none does."""
        if not rule_id:
            self._page[_LENGTH_AT] = 0
            return
        data = cut(rule_id).encode()
        self._page[_FORM.size : _FORM.size + len(data)] = data
        self._page[_LENGTH_AT] = len(data)

    def read(self) -> Note:
        first, last, rule, stage, length = _FORM.unpack_from(self._page)
        at_work = self._page[_FORM.size : _FORM.size + length].decode(errors="ignore")
        return Note(first, last, rule, Stage(stage) if stage in (*Stage,) else Stage.OTHER, at_work)

    def close(self) -> None:
        """Closing twice is allowed."""
        if self._page.closed:
            return
        self._page.close()
        os.close(self.descriptor)
