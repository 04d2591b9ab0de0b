"""The memory of this process: how much is resident, and what gives back what is free (nothing does without glibc).

Replacing a rule set frees megabytes at once, between blocks that live on; glibc keeps such pages, and so a process that
takes a new rule set every day grows by each time's peak. Two things bring it back:

* ``settle``, once at the start: blocks from ``MAPPED`` bytes on are always mappings of their own, which go back when
  they are freed (by itself glibc puts ever larger blocks into its heaps, once such a one was freed); of what is freed
  at a heap's end ``KEPT`` bytes stay, so that chunks that come and go take no page faults; and threads share
  ``ARENAS`` heaps (by itself each of eight threads a processor would have its own).
* ``trim``, after a rule set was replaced and once a minute: whole free pages of all heaps go back.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache
from typing import Any

MAPPED = 1 << 20
"""Larger than a chunk, so that what the hot path takes and frees stays in the heap."""
KEPT = 8 << 20
"""What the chunks of a burst take that are stored and evaluated at once."""
ARENAS = 2

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Of mallopt(3)."""


LIBC: Any = None
with suppress(OSError):
    LIBC = ctypes.CDLL("libc.so.6")


def settle() -> None:
    """For the start of a process, before it has threads."""
    if LIBC is not None:
        LIBC.mallopt(_MMAP_THRESHOLD, MAPPED)
        LIBC.mallopt(_TRIM_THRESHOLD, KEPT)
        LIBC.mallopt(_ARENA_MAX, ARENAS)


def trim() -> None:
    """Give whole free pages back. Holds no interpreter lock, but each heap's while it looks through it."""
    if LIBC is not None:
        LIBC.malloc_trim(0)


_PAGE = os.sysconf("SC_PAGE_SIZE")


@cache
def _statm() -> int:
    """Kept open: it is read also when no descriptor is left."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def resident() -> int:
    """Bytes of memory that this process has. Raises OSError the first time only."""
    return int(os.pread(_statm(), 256, 0).split()[1]) * _PAGE
