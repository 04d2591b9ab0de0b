"""Runs a module in an isolated subprocess, bounded in time and memory.

The child gets our module path: the Python of an installed agent finds its packages by no other way, and what stands in
the environment or in the host's own folders must not reach it. One that is bounded in memory is also the first to go
when the host has none left.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_START = """
import contextlib, json, resource, runpy, sys
sys.path[:] = json.loads(sys.argv.pop(1))
if memory := int(sys.argv.pop(1)):
    with contextlib.suppress(OSError, ValueError):  # a unit's system call filter may forbid it: its MemoryMax holds
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


_ROOT = str(Path(__file__).parents[2])
"""Where this package lies; an editable installation may find it without its path."""


class Ended(NamedTuple):
    """How a child ended. ``code`` None: it took too long and was killed; negative: a signal's number."""

    code: int | None
    out: bytes
    complaint: str
    """The last line of its standard error."""


def command(module: str, *arguments: str, memory: int = 0, seeded: bool = False) -> list[str]:
    """What to execute for ``python -m MODULE ARGUMENTS`` with ``memory`` bytes of addresses; 0: unbounded. ``seeded``:
    Python looks at its environment (``PYTHONHASHSEED``), which the caller must have made."""
    return [
        sys.executable,
        "-sP" if seeded else "-I",
        "-S",
        "-B",
        "-c",
        _START,
        json.dumps(sys.path if _ROOT in sys.path else [*sys.path, _ROOT]),
        str(memory),
        module,
        *arguments,
    ]


def run(module: str, *arguments: str, data: bytes = b"", seconds: float, memory: int = 0) -> Ended:
    """Run a module with ``data`` on its standard input. Blocks. Raises OSError when it cannot be started."""
    with _started(command(module, *arguments, memory=memory)) as process:
        return _end(process, data, seconds)


async def run_async(module: str, *arguments: str, data: bytes = b"", seconds: float, memory: int = 0) -> Ended:
    """The same beside the event loop; the child is killed when the caller is cancelled."""
    process = _started(command(module, *arguments, memory=memory))
    ending = asyncio.create_task(asyncio.to_thread(_end, process, data, seconds))
    try:
        return await asyncio.shield(ending)
    finally:
        if not ending.done():
            process.kill()
            await ending


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _end(process: subprocess.Popen[bytes], data: bytes, seconds: float) -> Ended:
    code: int | None = None
    try:
        out, complaint = process.communicate(data, timeout=seconds)
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        out, complaint = process.communicate()
    finally:
        process.kill()  # nothing, when it has ended
    return Ended(code, out, complaint.decode("utf-8", "replace").strip().rpartition("\n")[2])
