"""The agent's log: what passes, what is held back, and that it is told."""

from __future__ import annotations

import json
import subprocess
import sys

from vedette.runtime.logs import WINDOW, Limiter


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


def test_no_limit() -> None:
    """A limit of 0 lets all pass."""
    assert [Limiter(0).take("a") for _ in range(1000)] == [0] * 1000


PROGRAM = """
import structlog
from vedette.config.settings import LogSettings
from vedette.runtime.logs import configure_logging
log = structlog.get_logger()
configure_logging(LogSettings(format="json", limit=2))
for i in range(5):
    log.warning("a", i=i)
log.debug("quiet")
configure_logging(LogSettings(format="json", level="debug", limit=0))
log.debug("loud")
log.warning("a", i=5)
configure_logging(LogSettings(format="console", level="error"))
log.warning("b")
log.error("c", reason="x y")
"""


def test_the_settings_may_change() -> None:
    """A logger that was used before goes by the newest settings: limit, level and format."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    rows = [json.loads(line) for line in lines[:4]]
    assert [(row["event"], row.get("i"), row.get("suppressed")) for row in rows] == [
        ("a", 0, None),
        ("a", 1, None),
        ("loud", None, None),
        ("a", 5, 3),
    ]
    assert rows[0]["level"] == "warning"
    assert rows[0]["timestamp"].endswith("Z")
    assert len(lines) == 5
    assert "c" in lines[4]
    assert "x y" in lines[4]
    assert done.stdout == ""
