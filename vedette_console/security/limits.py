"""How often one may fail to log in: by name and by address, in a sliding window.

After ``failures`` wrong passwords for a name, or four times as many from one address, each further attempt waits
twice as long as the one before, up to the window; a right password within the wait is refused, too, so nothing is
learned from it. One who is known at an address (a success there before) is not shut out of it by what others try
elsewhere: names are counted by address, and over all addresses with ten times the limit. Held in memory, for the
``LARGEST`` newest keys.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

LARGEST = 20_000
FIRST_WAIT = 2.0


class Attempts:
    """Time is an argument: seconds of any clock that does not go back."""

    def __init__(self, failures: int, window: float) -> None:
        self._failures, self._window = failures, window
        self._held: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, name: str, address: str, now: float) -> float:
        """Seconds until the next attempt is taken; 0 when it is at once."""
        with self._lock:
            return max(self._wait(key, allowed, now) for key, allowed in self._keys(name, address))

    def failed(self, name: str, address: str, now: float) -> None:
        with self._lock:
            for key, allowed in self._keys(name, address):
                times = self._held.setdefault(key, deque(maxlen=allowed + 12))
                times.append(now)
                self._held.move_to_end(key)
            while len(self._held) > LARGEST:
                self._held.popitem(last=False)

    def succeeded(self, name: str, address: str) -> None:
        """Forget what failed for this name at this address."""
        with self._lock:
            self._held.pop((name.lower(), address), None)

    def _keys(self, name: str, address: str) -> tuple[tuple[tuple[str, str], int], ...]:
        name = name.lower()[:64]
        return (
            ((name, address), self._failures),
            (("", address), self._failures * 4),
            ((name, ""), self._failures * 10),
        )

    def _wait(self, key: tuple[str, str], allowed: int, now: float) -> float:
        times = self._held.get(key)
        if times is None:
            return 0.0
        while times and times[0] <= now - self._window:
            times.popleft()
        if not times:
            del self._held[key]
            return 0.0
        over = len(times) - allowed
        if over < 0:
            return 0.0
        pause: float = min(FIRST_WAIT * 2.0**over, self._window)
        return max(0.0, times[-1] + pause - now)
