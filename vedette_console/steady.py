"""Loops that run beside the routes: no fault of a step ends one."""

from __future__ import annotations

from types import TracebackType

import structlog

from vedette.system.trouble import Trouble

log = structlog.get_logger(__name__)


class Steady:
    """``with Steady(name):`` around a step that comes again and again: what goes wrong there is logged, once for each
    reason until a step ends well, and goes no further."""

    def __init__(self, name: str) -> None:
        self._name, self._trouble = name, Trouble()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if error is None:
            self._trouble.ends()
        elif isinstance(error, Exception) and self._trouble.begins(repr(error)):
            log.error("console_step_failed", step=self._name, reason=str(error)[:500], exc_info=error,
                      action="trying again")  # fmt: skip
        return isinstance(error, Exception)
