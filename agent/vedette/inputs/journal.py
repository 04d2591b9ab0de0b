"""``[[input]] type = "journal"``: its settings. The transport is in ``follow.py``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from vedette.inputs.base import InputSettings, Running, Surroundings
from vedette.inputs.condition import WORKS, Condition, failing
from vedette.model.event import LogSource

PRIORITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
"""By number, as journalctl names them."""

_NAME = re.compile(r"[A-Z0-9_]{1,64}")


@dataclass(frozen=True, slots=True)
class JournalInput(InputSettings):
    """systemd's journal, of this host or of a folder."""

    format: str = "syslog"
    logsource: LogSource = LogSource(product="linux")
    units: tuple[str, ...] = ()
    exclude_units: tuple[str, ...] = ()
    priority: str = "debug"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    from_start: bool = True
    namespace: str = ""
    directory: str = ""

    local: ClassVar[bool] = True

    def mistakes(self) -> Iterator[str]:
        if self.priority not in PRIORITIES:
            yield f".priority: must be one of {', '.join(PRIORITIES)}, not {self.priority!r}"
        for key, given in (("include", self.include), ("exclude", self.exclude)):
            for one in given:
                name, equals, _ = one.partition("=")
                if not equals or not _NAME.fullmatch(name):
                    yield f'.{key}: must be FIELD=VALUE, e.g. "_COMM=sshd", not {one!r}'
        for one in self.fields:
            if not _NAME.fullmatch(one):
                yield f'.fields: must be names of fields, e.g. "_SYSTEMD_SLICE", not {one!r}'
        if self.namespace.startswith("-"):
            yield ".namespace: must not begin with -"

    @property
    def least(self) -> int:
        """The number of ``priority``."""
        return PRIORITIES.index(self.priority)

    def foreseen(self, private: Callable[[int], bool] = lambda descriptor: False) -> Condition:
        from vedette.inputs.journalaccess import unreadable

        reason = unreadable(self)
        return failing(reason) if reason else WORKS

    async def open(self, given: Surroundings, descriptors: int) -> Running:
        from vedette.inputs.follow import JournalFollower

        return JournalFollower(self, given.intake, given.counters, given.positions(), given.clock)
