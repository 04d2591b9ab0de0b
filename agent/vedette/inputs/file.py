"""``[[input]] type = "file"``: its settings. The transport is in ``tail.py``."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from vedette.inputs.base import InputSettings, Running, Surroundings
from vedette.model.settings import INTERNAL, Seconds
from vedette.system.descriptors import OPEN_FILES

PER_PATH = 4
"""Files open of a path without a pattern: the one there, and former ones that are read to their end."""


@dataclass(frozen=True, slots=True)
class FileInput(InputSettings):
    """Tailed files; ``paths`` may be globs."""

    paths: tuple[str, ...] = ()
    from_start: bool = True
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

    async def open(self, given: Surroundings, descriptors: int) -> Running:
        from vedette.inputs.tail import FileTail

        return FileTail(self, given.intake, given.counters, given.positions(), given.clock, open_files=descriptors)
