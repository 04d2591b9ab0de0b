"""Limits on failed logins: by name and by address, in a sliding window.

A name at an address may fail ``failures`` times, an address four times as often, a name at all addresses ten times as
often; each further attempt waits twice as long as the one before, up to the window. A right password within the wait is
refused, too, so nothing is learned from it; one that is taken counts for nothing. Who has logged in at an address is
known there: what others try, there by other names or elsewhere by this one, does not shut them out. An address is an
IPv4 address, or an IPv6 network of 64 bits. Held in memory, for the ``LARGEST`` newest keys and known names.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from contextlib import suppress

from vedette.inputs.accept import network

LARGEST = 20_000
FIRST_WAIT = 2.0


class Attempts:
    """Time is an argument: seconds of any clock that does not go back."""

    def __init__(self, failures: int, window: float) -> None:
        self._failures, self._window = failures, window
        self._failed: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()
        self._at_home: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Names with an address where each has logged in."""
        self._lock = threading.Lock()

    def wait(self, name: str, address: str, now: float) -> float:
        """Seconds until the next attempt is taken; 0 when it is at once."""
        with self._lock:
            own, *others = self._keys(name, address)
            keys = (own,) if own[0] in self._at_home else (own, *others)
            return max(self._wait(key, allowed, now) for key, allowed in keys)

    def failed(self, name: str, address: str, now: float) -> None:
        with self._lock:
            for key, allowed in self._keys(name, address):
                times = self._failed.setdefault(key, deque(maxlen=allowed + 12))
                times.append(now)
                self._failed.move_to_end(key)
            while len(self._failed) > LARGEST:
                self._failed.popitem(last=False)

    def taken_back(self, name: str, address: str) -> None:
        """The newest failure of this name at this address was none."""
        with self._lock:
            for key, _ in self._keys(name, address):
                self._forget_newest(key)

    def succeeded(self, name: str, address: str) -> None:
        """The same, and forget what failed before it for this name at this address, where it is known now."""
        self.taken_back(name, address)
        with self._lock:
            (own, _), *_ = self._keys(name, address)
            self._failed.pop(own, None)
            self._at_home[own] = None
            self._at_home.move_to_end(own)
            while len(self._at_home) > LARGEST:
                self._at_home.popitem(last=False)

    def _forget_newest(self, key: tuple[str, str]) -> None:
        if times := self._failed.get(key):
            times.pop()
        if not times:
            self._failed.pop(key, None)

    def _keys(self, name: str, address: str) -> tuple[tuple[tuple[str, str], int], ...]:
        name = name.lower()[:64]
        with suppress(ValueError):  # what a proxy calls an address need not be one
            address = network(address)
        return (
            ((name, address), self._failures),
            (("", address), self._failures * 4),
            ((name, ""), self._failures * 10),
        )

    def _wait(self, key: tuple[str, str], allowed: int, now: float) -> float:
        times = self._failed.get(key)
        if times is None:
            return 0.0
        while times and times[0] <= now - self._window:
            times.popleft()
        if not times:
            del self._failed[key]
            return 0.0
        over = len(times) - allowed
        if over < 0:
            return 0.0
        pause: float = min(FIRST_WAIT * 2.0**over, self._window)
        return max(0.0, times[-1] + pause - now)
