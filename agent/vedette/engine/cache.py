"""The result cache: what was evaluated once need not be evaluated again.

Keys are MD5 digests of all that an answer depends on, begun with a random salt: log values are chosen by attackers, and
MD5 collides. Values are numbers of answers, of which there are few (most are "nothing is true", and are kept too: they
are what events mostly get). ``Store`` holds both in one flat piece of memory, without an object per entry:

    memory = sets of WAYS slots; slot = digest[:14] | number of the answer, u16 of the machine; number 0: never used

A digest belongs to one set. A new entry becomes the set's first slot and pushes the others on, so the set's oldest
goes; one that is found in the oldest quarter becomes the first again. So memory is bounded by the slots alone, and
nothing is ever deleted. A page is touched, and so costs memory, when an entry first comes to lie in it.

``Cache`` adds the answers, the account and the proof: every ``1 / verify``-th hit is evaluated again by the caller,
and an answer that differs ends the cache (``fail``). A cache belongs to one engine, so to one plan: there is nothing to
invalidate. What is undecided is not put in; neither is what depends on more than its key, for the callers to see to.

A ``Part`` is one use of the cache. Where hits are too rare to pay for the look-ups it rests: a trial of ``TRIAL``
look-ups that stays under ``floor`` in its second half (the first fills the memory) is followed by ``REST`` times as
many events without one, and the next trial is twice as long, up to ``MAX_TRIAL``. No clock is read: whether it pays is
a matter of hits, and the same frames take the same course.
"""

from __future__ import annotations

import hashlib
import mmap
import secrets
import sys
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Protocol

WAYS = 8
SLOT = 16
KEY = 14
SET = WAYS * SLOT
OLD = SET * 3 // 4
MAX_ANSWERS = 0xFFFF
"""Distinct answers; with more, the cache is emptied."""

TRIAL = 2048
MAX_TRIAL = 1 << 14
REST = 31

CACHE_BYTES = 32 << 20
VERIFY_SAMPLE = 0.001


class Hash(Protocol):
    """A hash as ``hashlib`` makes it; tests bring one that collides."""

    def copy(self) -> Hash: ...
    def update(self, data: bytes, /) -> None: ...
    def digest(self) -> bytes: ...


class Store:
    """Answers (hashable values but None) under digests, in at most ``max_bytes`` for the keys (one set at least)."""

    __slots__ = ("_answers", "_find", "_memory", "_number", "_numbers", "_sets", "answer_bytes", "bytes")

    def __init__(self, max_bytes: int) -> None:
        self._sets = max(1, max_bytes // SET)
        self.bytes = self._sets * SET
        # Python 3.11's find reads the byte behind the last, which is mapped by chance only.
        self._memory = mmap.mmap(-1, self.bytes + SLOT)
        self._find = self._memory.find
        self._number = memoryview(self._memory).cast("H")
        self._answers: list[Any] = [None]
        self._numbers: dict[Hashable, int] = {}
        self.answer_bytes = 0
        """Taken by the distinct answers, about."""

    def get(self, digest: bytes) -> Any:
        """The answer under ``digest``; None for none."""
        first = hash(digest) % self._sets * SET
        at = self._find(digest[:KEY], first, first + SET)
        while at >= 0:
            place = at - first
            if not place % SLOT:
                number = self._number[(at + KEY) // 2]
                if place >= OLD and number:
                    self._memory.move(first + SLOT, first, place)
                    self._memory[first : first + SLOT] = digest[:KEY] + number.to_bytes(2, sys.byteorder)
                return self._answers[number]
            at = self._find(digest[:KEY], at + 1, first + SET)  # bytes of two slots that look like the key
        return None

    def put(self, digest: bytes, answer: Hashable, room: int) -> bool:
        """Enter what ``get`` did not find; False when the answer is a new one and there is no ``room`` for it."""
        number = self._numbers.get(answer)
        if number is None:
            size = sys.getsizeof(answer) + ANSWER_BYTES
            if len(self._answers) > MAX_ANSWERS or self.answer_bytes + size > room:
                return False
            number = self._numbers[answer] = len(self._answers)
            self._answers.append(answer)
            self.answer_bytes += size
        first = hash(digest) % self._sets * SET
        self._memory.move(first + SLOT, first, SET - SLOT)
        self._memory[first : first + SLOT] = digest[:KEY] + number.to_bytes(2, sys.byteorder)
        return True

    @property
    def answers(self) -> int:
        """How many different ones there are."""
        return len(self._numbers)

    def entries(self) -> int:
        """Slots in use; reads all memory."""
        return sum(map(bool, self._number[KEY // 2 : self.bytes // 2 : SLOT // 2]))


class Part:
    """One use of a cache, with its account. See the module's text for when it rests."""

    __slots__ = ("_hits_before", "_trial", "floor", "hits", "left", "misses", "on", "skipped")

    def __init__(self, floor: float) -> None:
        """``floor``: the share of look-ups that must hit for them to pay."""
        self.floor = floor
        self.hits = self.misses = self.skipped = 0
        self.on = True
        self._trial = TRIAL
        self.left = TRIAL // 2
        """Events until ``turn``, for ``Engine.matches`` to count."""
        self._hits_before = -1

    def turn(self) -> None:
        """Decide how to go on, when ``left`` is used up."""
        half = self._trial // 2
        if not self.on:  # rested enough
            self.on, self.left, self._hits_before = True, half, -1
        elif self._hits_before < 0 or self.hits - self._hits_before >= self.floor * half:
            self.left, self._hits_before = half, self.hits
        else:
            self.on, self.left = False, REST * self._trial
            self._trial = min(2 * self._trial, MAX_TRIAL)


class Cache:
    """A store, its account and its proof; see the module's text."""

    def __init__(
        self,
        max_bytes: int = CACHE_BYTES,
        verify: float = VERIFY_SAMPLE,
        *,
        seed: Callable[[bytes], Hash] | None = None,
    ) -> None:
        """``max_bytes``: of keys and answers together; 0: no cache. ``verify``: the share of hits that are evaluated
        afresh, 0 to 1. ``seed``: in place of MD5, for tests."""
        self.max_bytes = max_bytes
        self.on = max_bytes > 0
        self.verified = 0
        self.forgotten = 0
        """Times that all was forgotten because the distinct answers became too many."""
        self.failure = ""
        """What the proof found wrong; the cache is off then."""
        self.parts: list[Part] = []
        self._salt = secrets.token_bytes(16)
        self._seed = seed or partial(hashlib.md5, usedforsecurity=False)
        self._every = round(1 / verify) if verify > 0 else 0
        self.until_check = self._every
        self._room = max_bytes // ANSWER_SHARE
        self.forget()

    def part(self, floor: float) -> Part:
        """Begin a new use, for the account."""
        part = Part(floor)
        self.parts.append(part)
        return part

    def begin(self, head: bytes) -> Callable[[], Hash]:
        """Gives hashes that have read the salt and ``head``; no head may begin with another one."""
        return self._seed(self._salt + head).copy

    def check(self) -> bool:
        """Whether this hit is one to evaluate afresh; to be asked for each."""
        self.until_check -= 1
        if self.until_check:
            return False
        self.until_check = self._every
        self.verified += 1
        return True

    def put(self, digest: bytes, answer: Hashable) -> None:
        """Keep ``answer`` (not None), which ``get`` did not find."""
        if self.on and not self._store.put(digest, answer, self._room) and self._store.answers:
            self.forgotten += 1
            self.forget()
            self._store.put(digest, answer, self._room)

    def forget(self) -> None:
        """Empty it; the account stays as it is."""
        self._store = Store(self.max_bytes - self._room)
        self.get = self._store.get
        """The answer under a digest; None for none."""

    def fail(self, reason: str) -> None:
        """An answer was wrong: drop all and stay off."""
        self.failure = self.failure or reason
        self.on, self.max_bytes = False, 0
        self.forget()

    def account(self) -> dict[str, Any]:
        """For the status; sizes in bytes."""
        return {
            "on": self.on,
            "bytes": self._store.bytes + self._store.answer_bytes if self.on else 0,
            "answers": self._store.answers,
            "forgotten": self.forgotten,
            "verified": self.verified,
            "failure": self.failure,
            "events": {
                "hits": sum(part.hits for part in self.parts),
                "misses": sum(part.misses for part in self.parts),
                "off": sum(part.skipped for part in self.parts),
                "resting": sum(not part.on for part in self.parts),
                "uses": len(self.parts),
            },
        }


ANSWER_BYTES = 200
"""What a distinct answer costs beside itself: its places in a list and a dictionary, its numbers."""
ANSWER_SHARE = 8
"""Of the bound, the part that answers may take."""
