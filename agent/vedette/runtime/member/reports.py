"""What the agent says of following its fleet: problems, in every heartbeat, and the hash-chained record.

Lines of the record are written by a thread, in the order in which they were asked for; each is on the disk when the
call returns, so that what is recorded before an act is there before the act.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import structlog

from vedette.fleet import actual
from vedette.fleet.audit import FIRST, Audit, Head
from vedette.fleet.folded import Folded
from vedette.model.counters import Log

log = structlog.get_logger()


class Record:
    """The agent's record; one per file."""

    def __init__(self, audit: Audit) -> None:
        self.audit = audit
        self._folded = Folded(audit)
        self._turn = asyncio.Lock()
        """Whoever asked first writes first."""

    async def append(self, event: str, **facts: Any) -> None:
        """Raises OSError and ValueError."""
        await self._write(lambda: self.audit.append(event, **facts))

    async def fold(self, event: str, apart: tuple[str, ...], times: int = 1, **facts: Any) -> None:
        """As ``Folded.append``. Raises OSError and ValueError."""
        await self._write(lambda: self._folded.append(event, apart, times, **facts))

    async def settle(self, *, all: bool = False) -> None:
        """As ``Folded.settle``. Raises OSError and ValueError."""
        await self._write(lambda: self._folded.settle(all=all))

    async def _write(self, write: Callable[[], object]) -> None:
        async with self._turn:
            await asyncio.to_thread(write)


class Reports:
    def __init__(self, path: Path) -> None:
        """``path``: of the record. Blocks on the disk. Raises OSError."""
        self.written = Record(Audit(path))
        self._problems: dict[str, str] = {}

    def problem(self, about: str, reason: str) -> bool:
        """Report ``reason``, or with none that nothing is wrong; True when it is news."""
        new = self._problems.get(about, "") != reason
        self._problems[about] = reason
        return new and bool(reason)

    def of(self, about: str) -> str:
        return self._problems.get(about, "")

    def only(self, kind: str, names: Iterable[str]) -> None:
        """Forget problems about ``KIND NAME`` of names that are not in ``names``."""
        wanted = {f"{kind} {name}" for name in names}
        for about in [*self._problems]:
            if about.startswith(f"{kind} ") and about not in wanted:
                del self._problems[about]

    async def record(self, event: str, **facts: Any) -> None:
        """Write a line of the record; when that fails, it is a problem and logged once."""
        try:
            await self.written.append(event, **facts)
        except (OSError, ValueError) as error:
            if self.problem("audit", str(error)):
                log.error(Log.AUDIT_FAILED, path=str(self.written.audit.path), reason=str(error))
        else:
            self.problem("audit", "")

    def head(self) -> Head:
        """The record's newest line."""
        try:
            return self.written.audit.head()
        except (OSError, ValueError) as error:
            self.problem("audit", str(error))
            return Head(0, FIRST)

    def problems(self, **more: str) -> list[str]:
        """All of them and ``more``, bounded, as the heartbeat has them."""
        return actual.problems({**self._problems, **{about: reason for about, reason in more.items() if reason}})
