"""Resident memory of this process."""

from __future__ import annotations

import os
from functools import cache

_PAGE = os.sysconf("SC_PAGE_SIZE")


@cache
def _statm() -> int:
    """Kept open: it is read also when no descriptor is left."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def resident() -> int:
    """Bytes of memory that this process has. Raises OSError the first time only."""
    return int(os.pread(_statm(), 256, 0).split()[1]) * _PAGE
