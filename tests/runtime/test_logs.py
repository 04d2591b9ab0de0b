"""The agent's log: what passes, what is held back, and that it is told."""

from __future__ import annotations

import json
import subprocess
import sys

from vedette.runtime.agent.logs import LIMIT, WINDOW, Limiter


class Time:
    """A monotonic clock to be set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_name_is_limited_and_the_others_are_not() -> None:
    """Of each name so many lines pass in a window; the first of the next window tells how many were held back."""
    time = Time()
    limiter = Limiter(3, time)
    assert [limiter.take("a") for _ in range(5)] == [0, 0, 0, None, None]
    assert limiter.take("b") == 0
    time.now += WINDOW
    assert [limiter.take("a"), limiter.take("a")] == [2, 0]


def test_what_nothing_follows_is_told() -> None:
    """Lines held back whose name falls silent are told once, after their window."""
    time = Time()
    limiter = Limiter(1, time)
    assert [limiter.take("a") for _ in range(4)] == [0, None, None, None]
    assert list(limiter.rest()) == []
    time.now += WINDOW
    assert list(limiter.rest()) == [("a", 3)]
    assert list(limiter.rest()) == []
    assert limiter.take("a") == 0


PROGRAM = """
import structlog
from vedette.config.settings import LogSettings
from vedette.runtime.agent import logs
from vedette.runtime.agent.logs import LIMIT, configure_logging
log = structlog.get_logger()
configure_logging(LogSettings(format="json"))
for i in range(LIMIT + 3):
    log.warning("a", i=i)
log.debug("quiet")
configure_logging(LogSettings(format="json", level="debug"))
log.debug("loud")
logs.WINDOW = 0.0
log.warning("a", i=-1)
configure_logging(LogSettings(format="console", level="error"))
log.warning("b")
log.error("c", reason="x y")
"""


def test_the_settings_may_change() -> None:
    """A logger that was used before goes by the newest settings, level and format; LIMIT lines of a name pass."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    rows = [json.loads(line) for line in lines[:-1]]
    written = [*(("a", i) for i in range(LIMIT)), ("loud", None), ("a", -1)]
    assert [(row["event"], row.get("i")) for row in rows] == written
    assert rows[-1]["suppressed"] == 3
    assert rows[0]["level"] == "warning"
    assert rows[0]["timestamp"].endswith("Z")
    assert "c" in lines[-1]
    assert "x y" in lines[-1]
    assert done.stdout == ""
