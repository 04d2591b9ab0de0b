"""What the agent says of following its fleet: problems, in every heartbeat, and the hash-chained record."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import structlog

from vedette.fleet import actual
from vedette.fleet.audit import FIRST, Audit, Head
from vedette.model.counters import Log

log = structlog.get_logger()


class Reports:
    def __init__(self, path: Path) -> None:
        """``path``: of the record. Blocks on the disk. Raises OSError."""
        self.audit = Audit(path)
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
        kept = {f"{kind} {name}" for name in names}
        for about in [one for one in self._problems if one.startswith(f"{kind} ") and one not in kept]:
            del self._problems[about]

    def record(self, event: str, **facts: Any) -> None:
        try:
            self.audit.append(event, **facts)
        except (OSError, ValueError) as error:
            if self.problem("audit", str(error)):
                log.error(Log.AUDIT_FAILED, path=str(self.audit.path), reason=str(error))

    def head(self) -> Head:
        """The record's newest line."""
        try:
            return self.audit.head()
        except (OSError, ValueError) as error:
            self.problem("audit", str(error))
            return Head(0, FIRST)

    def problems(self, **more: str) -> list[str]:
        """All of them and ``more``, bounded, as the heartbeat has them."""
        return actual.problems({**self._problems, **{about: reason for about, reason in more.items() if reason}})
