"""The time that is known to have passed: what somebody of the fleet has signed. It only rises, and outlives restarts.

    PATH    one line: UTC microseconds

A host's clock may be wrong: far ahead after a start without a clock of its own, put back by whoever owns the network's
time. What has expired must not come alive again then. So expiry is held against ``now``, the later of the clock and
the newest time that was signed (by the timestamp metadata, or an operator's request that was taken), and what must be
known until something expires is forgotten only at ``sure``, the earlier of the two.

A signed time counts as far as the clock bears it out: the thief of an online key who signs the year 2100 stops nobody
for good. Two clocks, a signer's and the host's, have to be ahead for that; then remove the file.

What nobody signed anything after cannot be known: metadata that have expired look fresh once the clock is put back to
the last signature.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vedette.system.durable import write_whole


class SignedTime:
    """Called from any thread; times are UTC microseconds."""

    def __init__(self, path: Path, clock: Callable[[], int]) -> None:
        """A damaged file counts as none. Raises OSError."""
        self._path, self._clock, self._lock = path, clock, threading.Lock()
        self._signed = 0
        with suppress(FileNotFoundError, ValueError):
            self._signed = max(0, int(path.read_bytes()[:32]))

    def now(self) -> int:
        """The later of the clock and what was signed: by it things expire."""
        return max(self._clock(), self._signed)

    def sure(self) -> int:
        """The earlier of the two: what expired before that is refused whatever the clock shows later."""
        return min(self._clock(), self._signed)

    def rise(self, signed: int) -> None:
        """Somebody who is believed has signed something at the time ``signed``. On disk on return. Raises OSError."""
        with self._lock:
            if (time := min(signed, self._clock())) > self._signed:
                write_whole(self._path, b"%d\n" % time, 0o600)
                self._signed = time
