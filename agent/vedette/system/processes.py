"""What the kernel says of another process of this host. None where it is gone or the kernel says nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_PAGE, _TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    """Of one process. ``private``: bytes of memory that no file is behind; ``resident``: with files that it maps."""

    cpu_seconds: float
    private: int
    resident: int


def used(pid: int) -> Used | None:
    folder = Path("/proc", str(pid))
    try:
        _, resident, shared, *_ = map(int, (folder / "statm").read_text().split())
        times = (folder / "stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return Used((int(times[11]) + int(times[12])) / _TICKS, (resident - shared) * _PAGE, resident * _PAGE)
