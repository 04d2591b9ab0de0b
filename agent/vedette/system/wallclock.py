"""The agent's clock: when something was received. UTC microseconds, from a clock that may be set at any moment.

* **It does not run backwards** when the host's clock is set back by ``MAX_BACK`` or less (a step of NTP, a leap
  second): it goes on at its pace and gives up the lead little by little, one part in ``SLEW``, so that a window of a
  minute is never filled with an hour. Nor does it at a start after such a step: the newest receipt in the log counts.
* A clock that is set back further was wrong: its time is taken at once, the log goes on under earlier receipts, and
  watermarks go back with them (``state/clock.py``). It is logged (``clock_stepped``).
* **Forward** it follows at once. What it does not do is believe so: ``trusted`` goes on at its pace for ``BELIEVED``
  seconds, so that a clock in 2099 does not make all raw logs look over-aged.
* **Suspend**: by the boot clock, time for which the host slept is no step (``host_resumed``).

All that is an interval in the agent (flushes, deadlines, back-off, the watchdog) goes by the monotonic clock and does
not come here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from vedette.model.counters import Log

log = structlog.get_logger()

MAX_BACK = 300_000_000
"""Microseconds; the bound of ``model.times.MAX_SKEW``."""
SLEW = 8
LOGGED = 1_000_000
"""Steps below are not logged."""
BELIEVED = 6 * 3600
"""Seconds."""


def utc_now() -> int:
    """What the host's clock shows, for what needs no ``WallClock``: UTC microseconds."""
    return time.time_ns() // 1000


def _boot() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class WallClock:
    """See the module's text. Called from any thread."""

    def __init__(
        self,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
        boot: Callable[[], int] = _boot,
    ) -> None:
        """The three give nanoseconds."""
        self._wall, self._monotonic, self._boot = wall, monotonic, boot
        self._lock = threading.Lock()
        self._ahead = 0
        """By how much this clock leads the host's."""
        self._doubted = 0
        """By how much the host's clock was set forward lately, and until when (monotonic) that is not believed."""
        self._doubted_until = 0
        self.steps = 0
        """Steps of LOGGED or more since the start, suspends not among them."""
        self._at, self._host, self._slept = monotonic() // 1000, wall() // 1000, self._sleep()
        self._last = self._host

    def _sleep(self) -> int:
        """Microseconds for which the host was suspended since it was booted."""
        return (self._boot() - self._monotonic()) // 1000

    def __call__(self) -> int:
        with self._lock:
            at, host = self._monotonic() // 1000, self._wall() // 1000
            elapsed = at - self._at
            step = host - self._host - elapsed
            self._at, self._host = at, host
            self._ahead -= min(self._ahead, max(0, elapsed) // SLEW)
            if step > 0:
                self._forward(step)
            elif step < 0:
                self._back(-step)
            self._last = max(self._last, host + self._ahead)
            return self._last

    def _forward(self, step: int) -> None:
        self._ahead = max(0, self._ahead - step)
        if step < LOGGED:
            return
        slept, self._slept = self._slept, self._sleep()
        if self._slept - slept >= LOGGED:
            log.warning(Log.HOST_RESUMED, seconds=(self._slept - slept) / 1e6)
            step -= self._slept - slept
            if step < LOGGED:
                return
        self.steps += 1
        if step > MAX_BACK:
            self._doubted = step + (self._doubted if self._at < self._doubted_until else 0)
            self._doubted_until = self._at + BELIEVED * 1_000_000
        log.warning(Log.CLOCK_STEPPED, seconds=step / 1e6, action="followed")

    def _back(self, step: int) -> None:
        self._doubted = max(0, self._doubted - step)
        follow = self._ahead + step > MAX_BACK
        if follow:
            self._ahead, self._last = 0, self._host
        else:
            self._ahead += step
        if step >= LOGGED:
            self.steps += 1
            action = "followed: receipts go back" if follow else "receipts go on and give up the lead little by little"
            log.warning(Log.CLOCK_STEPPED, seconds=-step / 1e6, action=action)

    @property
    def ahead(self) -> float:
        """Seconds by which this clock leads the host's."""
        return self._ahead / 1e6

    def begin(self, newest: int) -> None:
        """Go on after ``newest``, the newest receipt that the log holds (0: none)."""
        behind = newest - self()
        if behind <= 0:
            return
        with self._lock:
            if behind <= MAX_BACK:
                self._ahead += behind
                self._last = max(self._last, newest)
                return
        self.steps += 1
        action = "the host's clock is taken; is it set right? The log goes on under earlier receipts"
        log.warning(Log.CLOCK_STEPPED, seconds=-behind / 1e6, action=action)

    def trusted(self) -> int:
        """Now, for deleting what is too old: see the module's text."""
        now = self()
        return now - self._doubted if self._at < self._doubted_until else now
