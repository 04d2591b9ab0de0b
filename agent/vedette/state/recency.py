"""Which groups were touched least recently, without a note at each touch.

Every group has a **stamp** that only grows: the greatest raw offset in it. Keys lie in chunks; all keys of a chunk had
a stamp up to the chunk's when they were put there. So the least stamp of all is that of a key in the first chunk which
still has one that is not beyond it; those that are beyond have been touched since, and are put where they belong now.
A key lies in one chunk, 8 bytes; a touch costs nothing here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

CHUNK = 512
"""Keys, about."""


class Recency:
    """``stamp`` gives that of a key, None for one that is gone."""

    def __init__(self, stamp: Callable[[bytes], int | None]) -> None:
        self._stamp = stamp
        self._upto: list[int] = []
        """Ascending; by chunk the stamp up to which its keys were."""
        self._chunks: list[list[bytes]] = []
        self._open: list[bytes] = []
        """Those after the last chunk."""
        self._victims: list[tuple[int, bytes]] = []
        """The chunk before the first, with their stamps; the least last."""
        self._before = 0
        """Its stamp."""
        self._at = 0
        """The chunk that ``some`` looks at next."""

    def put(self, key: bytes, stamp: int) -> None:
        """A key that is not there yet; ``stamp`` is the newest of all."""
        self._open.append(key)
        if len(self._open) >= CHUNK:
            self._close(stamp)

    def fill(self, keys: Iterable[bytes]) -> None:
        """Take these instead of all."""
        self._upto, self._chunks, self._open, self._victims, self._at = [], [], [], [], 0
        for stamp, key in sorted((stamp, key) for key in keys if (stamp := self._stamp(key)) is not None):
            self.put(key, stamp)

    def least(self) -> bytes:
        """Take out the key with the least stamp; raises IndexError when there is none."""
        while True:
            while self._victims:
                noted, key = self._victims.pop()
                stamp = self._stamp(key)
                if stamp == noted:
                    return key
                if stamp is not None and stamp <= self._before:
                    insort(self._victims, (stamp, key), key=lambda victim: (-victim[0], victim[1]))
                elif stamp is not None:
                    self._file(key, stamp, 0)
            if not self._chunks:
                self._close_open()
            self._victims = [(self._stamp(key) or 0, key) for key in self._refile(0)]
            self._victims.sort(key=lambda victim: (-victim[0], victim[1]))
            self._before = self._upto[0]
            self._remove(0)

    def some(self) -> list[bytes]:
        """The keys of a chunk, each time of the next. When some of them are gone, call ``next``."""
        if self._at >= len(self._chunks):
            if self._victims:
                self._chunks.insert(0, [key for _, key in self._victims])
                self._upto.insert(0, self._before)
                self._victims = []
            self._close_open()
            self._at = 0
        return self._refile(self._at) if self._chunks else []

    def next(self) -> None:
        """Go on to the next chunk; of the last, what is gone is left out. Two small ones become one."""
        if self._at >= len(self._chunks):
            return
        chunk = self._chunks[self._at] = [key for key in self._chunks[self._at] if self._stamp(key) is not None]
        after = self._at + 1
        if not chunk:
            self._remove(self._at)
        elif after < len(self._chunks) and len(chunk) + len(self._chunks[after]) <= CHUNK:
            self._chunks[after] += chunk
            self._remove(self._at)
        else:
            self._at += 1

    def _close_open(self) -> None:
        self._close(max((stamp for key in self._open if (stamp := self._stamp(key)) is not None), default=0))

    def _close(self, stamp: int) -> None:
        if self._open:
            self._upto.append(max([stamp, *self._upto[-1:]]))
            self._chunks.append(self._open)
            self._open = []

    def _remove(self, i: int) -> None:
        del self._chunks[i], self._upto[i]
        self._at -= i < self._at

    def _refile(self, i: int) -> list[bytes]:
        """Leave in chunk ``i`` those that belong there, and return them."""
        upto, stay = self._upto[i], []
        for key in self._chunks[i]:
            stamp = self._stamp(key)
            if stamp is not None:
                if stamp <= upto:
                    stay.append(key)
                else:
                    self._file(key, stamp, i + 1)
        self._chunks[i] = stay
        return stay

    def _file(self, key: bytes, stamp: int, i: int) -> None:
        """Put a key in its chunk, from the ``i``-th on."""
        place = bisect_left(self._upto, stamp, i)
        (self._chunks[place] if place < len(self._chunks) else self._open).append(key)
