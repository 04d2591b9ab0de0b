"""What a process and everything below it takes: CPU-seconds and resident memory, sampled from ``/proc``.

CPU time of a process that ended between two looks is lost from its last look on, at most ``SAMPLE_SECONDS``. Memory is
the largest sum seen at one look, the JVM's (``java``) and that of all other processes apart; pages that processes
share count once for each.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SAMPLE_SECONDS = 0.2


def cpu_seconds(pid: int) -> float:
    """Of a process so far, without those below it."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


@dataclass(slots=True)
class Usage:
    """Filled in when the ``with`` of ``measured`` ends."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    jvm_mb: float = 0.0
    other_mb: float = 0.0


@dataclass(slots=True)
class _Seen:
    """CPU-seconds of every process seen, by its id and start, and the largest sums of memory in bytes."""

    cpu: dict[tuple[int, str], float] = field(default_factory=dict)
    jvm: int = 0
    other: int = 0

    def look(self) -> None:
        jvm = other = 0
        for pid, stat in family(os.getpid()):
            self.cpu[pid, stat[19]] = (int(stat[11]) + int(stat[12])) / TICKS
            resident = int(stat[21]) * PAGE
            try:
                name = Path(f"/proc/{pid}/comm").read_text().strip()
            except OSError:
                continue
            jvm, other = (jvm + resident, other) if name == "java" else (jvm, other + resident)
        self.jvm, self.other = max(self.jvm, jvm), max(self.other, other)


def family(first: int) -> Iterator[tuple[int, list[str]]]:
    """``first`` and all processes below it, each with the fields of its ``stat`` from ``state`` on."""
    stats: dict[int, list[str]] = {}
    below: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            stats[int(entry)] = stat
            below.setdefault(int(stat[1]), []).append(int(entry))
    queue = [first]
    while queue:
        pid = queue.pop()
        if pid in stats:
            yield pid, stats[pid]
        queue += below.get(pid, [])


@contextmanager
def measured() -> Iterator[Usage]:
    """What this process and those below it take while the ``with`` lasts."""
    usage, before, seen, done = Usage(), _Seen(), _Seen(), threading.Event()
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
        usage.jvm_mb, usage.other_mb = seen.jvm / 1e6, seen.other / 1e6
