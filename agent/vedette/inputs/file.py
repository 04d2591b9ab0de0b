"""``[[input]] type = "file"``: its settings. The transport is in ``tail.py``."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from vedette.decode import bounded
from vedette.decode.bounded import Guard, TooSlow
from vedette.decode.codecs import CODECS, Kind
from vedette.inputs.base import InputSettings, Running, Surroundings
from vedette.inputs.condition import Condition
from vedette.model.settings import INTERNAL, Seconds
from vedette.system.descriptors import OPEN_FILES

PER_PATH = 4
"""Files open of a path without a pattern: the one there, and former ones that are read to their end."""


@dataclass(frozen=True, slots=True)
class Multiline:
    """Events of several lines: which lines begin one (``start``), or which do not (``continue``)."""

    start: str = ""
    continue_: str = ""
    timeout: Seconds = 2.0

    def mistakes(self) -> Iterator[str]:
        if bool(self.start) == bool(self.continue_):
            yield ': needs start or continue, e.g. start = "^[0-9]{4}-"'
        for key, pattern in (("start", self.start), ("continue", self.continue_)):
            try:
                bounded.compiled(pattern.encode())
            except ValueError as error:
                yield f".{key}: not a regular expression: {error}"
        if not 0.1 <= self.timeout <= 300:
            yield f".timeout: expects 0.1 to 300, not {self.timeout:g}"

    def asked(self, guard: Guard) -> Callable[[bytes], bool]:
        """Whether an event begins with a line; one at which the pattern takes too long begins one."""
        looks, starts = bounded.finder((self.start or self.continue_).encode(), guard), bool(self.start)

        def begins(line: bytes) -> bool:
            try:
                return (looks(line) is not None) is starts
            except TooSlow:
                return True

        return begins


@dataclass(frozen=True, slots=True)
class FileInput(InputSettings):
    """Tailed files; ``paths`` may be globs."""

    paths: tuple[str, ...] = ()
    from_start: bool = True
    multiline: Multiline | None = None
    containers: bool = False
    poll: Seconds = field(default=0.25, metadata=INTERNAL)

    local: ClassVar[bool] = True

    @property
    def open_files(self) -> int:
        wanted = sum(OPEN_FILES if glob.has_magic(path) else PER_PATH for path in self.paths)
        return min(wanted, OPEN_FILES)

    @property
    def exclusive(self) -> tuple[str, ...]:
        return self.paths

    def mistakes(self) -> Iterator[str]:
        if not self.paths:
            yield ": needs paths"
        if self.multiline is not None:
            yield from (f".multiline{mistake}" for mistake in self.multiline.mistakes())
        if self.containers and self.format in CODECS and Kind.SYSLOG not in CODECS[self.format].kinds:
            yield f'.format: must be "auto" with containers, since what is in their lines shows, not {self.format!r}'

    def foreseen(self, private: Callable[[int], bool] = lambda descriptor: False) -> Condition:
        from vedette.inputs.files import condition, look, open_same

        files, problems = look(self.paths)
        for one in files:
            try:
                os.close(open_same(one.path, one.key, private))
            except OSError as error:
                problems[one.path] = error.strerror or str(error)
        return condition(problems, self.paths, there=bool(files))

    async def open(self, given: Surroundings, descriptors: int) -> Running:
        from vedette.inputs.tail import FileTail

        return FileTail(
            self, given.intake, given.counters, given.positions(), given.clock,
            open_files=descriptors, private=given.private,
        )  # fmt: skip
