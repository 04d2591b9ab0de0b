"""What processes take: CPU-seconds and memory of one, and of this one with everything below it, sampled from ``/proc``.

CPU time of a process that ended between two looks is lost from its last look on, at most ``SAMPLE_SECONDS``. Memory is
the largest sum seen at one look, the JVM's (``java``) and that of all other processes apart; pages that processes
share count once for each.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from vedette.system.processes import Used, used

SAMPLE_SECONDS = 0.2


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process so far, without processes below it (clock_getcpuclockid(3))."""
    return time.clock_gettime(~pid << 3 | 2)


def memory_mb(pid: int | str) -> dict[str, float]:
    """The rows of ``/proc/PID/status`` about memory, such as VmRSS and VmHWM (the most so far), in MiB."""
    rows = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {row[0].rstrip(":"): int(row[1]) / 1024 for row in rows if row[-1] == "kB"}


@dataclass(slots=True)
class Usage:
    """Filled in when the ``with`` of ``measured`` ends."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    jvm_mb: float = 0.0
    python_mb: float = 0.0
    """Of all processes but the JVM."""


@dataclass(slots=True)
class _Seen:
    """CPU-seconds of every process seen, by its id and start, and the largest sums of memory in bytes."""

    cpu: dict[tuple[int, str], float] = field(default_factory=dict)
    jvm: int = 0
    other: int = 0

    def look(self) -> None:
        jvm = other = 0
        for pid, (name, start, usage) in family(os.getpid()).items():
            with suppress(OSError):  # it has ended
                self.cpu[pid, start] = cpu_seconds(pid)
            jvm += usage.resident if name == "java" else 0
            other += usage.resident if name != "java" else 0
        self.jvm, self.other = max(self.jvm, jvm), max(self.other, other)


def family(first: int) -> dict[int, tuple[str, str, Used]]:
    """``first`` and all processes below it by id: name, time of start, usage."""
    members: dict[int, tuple[str, str, Used]] = {}
    waiting = [first]
    while waiting:
        pid = waiting.pop()
        try:
            head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            for thread in os.listdir(f"/proc/{pid}/task"):
                waiting += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
        except OSError:
            continue
        if (usage := used(pid)) is not None:
            members[pid] = head.partition("(")[2], tail.split()[19], usage
    return members


@contextmanager
def measured(usage: Usage) -> Iterator[Usage]:
    """Fill in what this process and those below it take while the ``with`` lasts."""
    before, seen, done = _Seen(), _Seen(), threading.Event()
    before.look()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            seen.look()

    watcher = threading.Thread(target=sample, daemon=True)
    watcher.start()
    began = time.perf_counter()
    try:
        yield usage
    finally:
        usage.seconds = time.perf_counter() - began
        done.set()
        watcher.join()
        seen.look()
        usage.cpu_seconds = sum(cpu - before.cpu.get(process, 0.0) for process, cpu in seen.cpu.items())
        usage.jvm_mb, usage.python_mb = seen.jvm / 1e6, seen.other / 1e6
