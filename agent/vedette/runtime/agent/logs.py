"""The agent's own log: one line per event on standard error, and never a flood of them.

Of one event name ``LIMIT`` lines pass in ``WINDOW`` seconds (monotonic); further ones are counted. The count goes out
with the next line of that name that passes, as ``suppressed``, or, when none comes, as a line ``log_suppressed`` of its
own (``Limiter.rest``, which ``report_suppressed`` calls). So a sender that causes a line for each message neither fills
the host's journal nor hides what others have to say.

What others have written (a topic, a peer's error, a file's name) acts on no terminal and begins no line:
``terminal.py``.

Format and level may be changed while the agent runs: loggers that were handed out go by the newest.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import structlog

from vedette.config.settings import LogSettings
from vedette.model.counters import Log
from vedette.system.terminal import shown

LIMIT, WINDOW = 50, 10.0

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50, "exception": 40}


class Limiter:
    """How many lines of each name pass; see the module's text. Called from any thread."""

    def __init__(self, limit: int = LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._names: dict[str, list[float]] = {}
        """Begin of the window, lines in it, lines held back."""

    def take(self, name: str) -> int | None:
        """None: the line is held back; else how many lines of this name were, before it."""
        with self._lock:
            now = self._clock()
            row = self._names.setdefault(name, [now, 0, 0])
            if now - row[0] >= WINDOW:
                row[0], row[1] = now, 0
            if row[1] >= self._limit:
                row[2] += 1
                return None
            row[1] += 1
            suppressed, row[2] = int(row[2]), 0
            return suppressed

    def rest(self) -> Iterator[tuple[str, int]]:
        """Names whose window is over with lines held back, and how many; they are reported now."""
        with self._lock:
            now = self._clock()
            over = [(name, row) for name, row in self._names.items() if row[2] and now - row[0] >= WINDOW]
            counts = [(name, int(row[2])) for name, row in over]
            for _, row in over:
                row[2] = 0
        yield from counts


class _Writer:
    """The last structlog processor: level, limit and format; level and format as they are set now."""

    def __init__(self) -> None:
        self.limiter = Limiter()
        self.use(LogSettings())

    def use(self, settings: LogSettings) -> None:
        self._level = _LEVELS[settings.level]
        self._lines = settings.format != "json"  # JSON escapes by itself
        self._render: Any = (
            structlog.processors.JSONRenderer()
            if settings.format == "json"
            else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        )

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> str | bytes:
        if _LEVELS.get(method, 40) < self._level:
            raise structlog.DropEvent
        suppressed = self.limiter.take(str(event.get("event", "")))
        if suppressed is None:
            raise structlog.DropEvent
        if suppressed:
            event["suppressed"] = suppressed
        if self._lines:
            event = {name: shown(value) for name, value in event.items()}
        rendered: str | bytes = self._render(logger, method, event)
        return rendered


_WRITER = _Writer()


def configure_logging(settings: LogSettings, **always: str) -> None:
    """``always``: in every line."""

    def add(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {**always, **event}

    _WRITER.use(settings)
    structlog.configure(
        processors=[
            *([add] if always else ()),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _WRITER,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(10),  # all: the writer knows the level as it is now
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def log_to_stderr() -> None:
    """Of a command that is no agent: warnings only, since standard output is for its results."""
    structlog.configure(
        processors=[
            _warnings,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


def _warnings(_: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if _LEVELS.get(method, 40) < _LEVELS["warning"]:
        raise structlog.DropEvent
    return event


def report_suppressed() -> None:
    """Log what was held back and not counted with a later line; to be called now and then, and at the end."""
    for name, lines in _WRITER.limiter.rest():
        structlog.get_logger().warning(Log.LOG_SUPPRESSED, name=name, suppressed=lines)
