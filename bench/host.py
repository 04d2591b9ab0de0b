"""The machine under the benchmark: what it is, which core is the agent's, and the memory limit of a small edge host.

The limit is a cgroup of the benchmark's own (version 2 or 1, whichever can be made); where none can, the agent runs
without, and its peak is measured all the same.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

MEMORY = 1 << 30
"""Bytes the agent may use, page cache included."""
_GROUPS = (("cgroup v2", Path("/sys/fs/cgroup"), "memory.max"),
           ("cgroup v1", Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"))  # fmt: skip


def machine() -> dict[str, Any]:
    """What it ran on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return {"cpu": model, "cores": os.cpu_count(), "memory_mb": memory, "kernel": platform.release()}


def versions() -> dict[str, str]:
    """Of what decides the figures."""
    packages = ("vedette", "hyperscan", "pysigma", "zstandard", "lmdb", "orjson")
    named = {package: importlib.metadata.version(package) for package in packages}
    return {"python": platform.python_version(), **named}


def cores() -> tuple[int | None, set[int]]:
    """The agent's core and the others; (None, all) when there is one core only."""
    usable = sorted(os.sched_getaffinity(0))
    return (usable[0], set(usable[1:])) if len(usable) > 1 else (None, set(usable))


@contextmanager
def undisturbed(wanted: bool) -> Iterator[bool]:
    """Within it this process and those it starts run before the machine's other work, as an agent does that has its
    core for itself: by the nice value of their session's group (sched(7)), where there are such groups. Gives whether
    that is so: it takes privileges. (SCHED_RR would not do: it takes 50 ms of each second from a busy agent.)
    """
    group = Path("/proc/self/autogroup")
    if wanted:
        try:
            group.write_text("-20")
        except OSError:
            wanted = False
    try:
        yield wanted
    finally:
        if wanted:
            group.write_text("0")


class MemoryLimit:
    """A cgroup with MEMORY bytes; ``kind`` says which, or why there is none. Removed at the end of a ``with``."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        reasons = []
        for kind, root, setting in _GROUPS:
            folder = root / f"vedette-bench-{os.getpid()}"
            try:
                folder.mkdir()
                if not (folder / setting).exists():
                    raise OSError("has no memory controller")
                (folder / setting).write_text(str(MEMORY))
            except OSError as error:
                reasons.append(f"{kind}: {error.strerror or error}")
                with suppress(OSError):
                    folder.rmdir()
                continue
            self.folder, self.kind = folder, f"1 GB by {kind}"
            return
        self.kind = f"none, measured only ({'; '.join(reasons)})"

    def command(self) -> list[str]:
        """What to put before a command so that its process is in the cgroup from its start."""
        if self.folder is None:
            return []
        return ["sh", "-c", f'echo $$ > "{self.folder}/cgroup.procs" && exec "$@"', "sh"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.folder is not None:
            with suppress(OSError):  # an agent that could not be stopped is still in it
                self.folder.rmdir()
