"""What an evaluation is at, where somebody can read it after its process has died: of strict sets and of the agent.

A page of mapped memory: of a process of a strict set the agent maps it, too (``make``); of the agent itself it is a
file, which its next life reads (``open``). It is written before each step that may be deadly, without a system call;
nothing is flushed and nothing can tear that matters: the writer is dead when it is read.

Bytes: raw offset of the first event (8), of the last (8), the stage (1), the length of the next (1), the part that is
at work as UTF-8, cut after ``ID_BYTES``; little-endian. A new stage begins with none at work.

Behind it stands what is at work beside evaluation, in threads of its own: at ``_OUTLIVED`` whether this life has lasted
(1), then rows of the length of a name (1; 0: a free row) and the name, as above. Without a free row none is noted.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_FORM = struct.Struct("<QQBB")
_STAGE_AT, _LENGTH_AT = _FORM.size - 2, _FORM.size - 1
ID_BYTES = 200
_OUTLIVED = 255
_ROWS = range(_OUTLIVED + 1, mmap.PAGESIZE - ID_BYTES, 1 + ID_BYTES)
NOWHERE = (1 << 64) - 1
"""The offset of a step that is about no place in the log."""


class Stage(IntEnum):
    OTHER = 0
    """Nothing that may be deadly; the offsets are those of the last step."""
    FRAME = 1
    """The events of a frame, together."""
    SCANNING = 2
    """The prefilter looks at one event."""
    MATCHING = 3
    """One rule, by its id, is asked about one event."""
    DECODING = 4
    """The same, and within it a decoder plugin reads the message."""
    ALERTS_ALONE = 5
    """Correlations, statements and alerts of one event that matched."""
    RESTORING = 6
    """The state is restored; no event is at fault, as of the next three."""
    TIME = 7
    """Time passes for correlations, windows and suppression."""
    ROWS = 8
    """Alerts of rows of statements that have waited."""
    WRITING = 9
    """What has changed in the state is written down."""
    LOADING = 10
    """A plugin is imported; no event is at fault."""


EVENTLESS = {
    Stage.RESTORING: "while it restored its state",
    Stage.TIME: "while time passed for correlations, windows and suppression",
    Stage.ROWS: "at the alerts of rows that waited",
    Stage.WRITING: "while it wrote its state",
}
"""Stages in which the state is at fault, if anything of evaluation; in words."""


class Note(NamedTuple):
    first: int
    last: int
    stage: Stage
    part: str
    """The rule, plugin, correlation or statement at work; empty: none was."""


@lru_cache(maxsize=4096)
def cut(rule_id: str) -> str:
    """As much of an id as the page holds."""
    return rule_id.encode()[:ID_BYTES].decode(errors="ignore")


class BlackBox:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._page = mmap.mmap(descriptor, mmap.PAGESIZE)
        self._free = [*_ROWS]
        """Taken and given back by any thread."""

    @classmethod
    def make(cls) -> BlackBox:
        """In memory that a child can map. Raises OSError."""
        descriptor = os.memfd_create("vedette-blackbox")
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return cls(descriptor)

    @classmethod
    def open(cls, path: Path) -> BlackBox:
        """In a file, as it was left there. Raises OSError."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        try:
            os.posix_fallocate(descriptor, 0, mmap.PAGESIZE)  # a page that a full disk has no room for is a SIGBUS
            return cls(descriptor)
        except OSError:
            os.close(descriptor)
            raise

    def note(self, stage: Stage, first: int = 0, last: int = 0, part: str = "") -> None:
        _FORM.pack_into(self._page, 0, first, last, stage, 0)
        if part:
            self.at_work(part)

    def rest(self) -> None:
        """The step is over."""
        self._page[_STAGE_AT] = Stage.OTHER

    @contextmanager
    def within(self, stage: Stage, at: int | None, part: str = "") -> Iterator[None]:
        """A step at the raw offset ``at``, or at those of what is under way; behind it that goes on."""
        before = self._page[: _FORM.size + ID_BYTES]
        if at is None:
            self._page[_STAGE_AT] = stage
            self.at_work(part)
        else:
            self.note(stage, at, at, part)
        ended = False
        try:
            yield
        except MemoryError:
            ended = True  # a process that ends for it ends at this step
            raise
        finally:
            if not ended:
                self._page[: len(before)] = before

    def at_work(self, part: str) -> None:
        """This part runs now; empty: none does."""
        if not part:
            self._page[_LENGTH_AT] = 0
            return
        data = cut(part).encode()
        self._page[_FORM.size : _FORM.size + len(data)] = data
        self._page[_LENGTH_AT] = len(data)

    @contextmanager
    def beside(self, part: str) -> Iterator[None]:
        """``part`` is at work in this thread, which is not that of evaluation."""
        try:
            row = self._free.pop()
        except IndexError:
            yield
            return
        data = cut(part).encode()
        with suppress(ValueError):  # closed: the agent ends
            self._page[row + 1 : row + 1 + len(data)] = data
            self._page[row] = len(data)
        try:
            yield
        finally:
            with suppress(ValueError):
                self._page[row] = 0
            self._free.append(row)

    def outlived(self) -> None:
        """This life has lasted."""
        self._page[_OUTLIVED] = 1

    def read_beside(self) -> tuple[set[str], bool]:
        """The parts that are at work beside evaluation, and whether this life has lasted."""
        names = (self._page[row + 1 : row + 1 + self._page[row]] for row in _ROWS if self._page[row])
        return {name.decode(errors="ignore") for name in names}, bool(self._page[_OUTLIVED])

    def rest_beside(self) -> None:
        """None is at work, and the life begins."""
        self._page[_OUTLIVED:] = bytes(len(self._page) - _OUTLIVED)

    def read(self) -> Note:
        first, last, stage, length = _FORM.unpack_from(self._page)
        part = self._page[_FORM.size : _FORM.size + length].decode(errors="ignore")
        return Note(first, last, Stage(stage) if stage in (*Stage,) else Stage.OTHER, part)

    def close(self) -> None:
        """Closing twice is allowed."""
        if self._page.closed:
            return
        self.rest_beside()
        self._page.close()
        os.close(self.descriptor)
