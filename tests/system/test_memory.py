"""What is freed goes back to the kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vedette.system import memory

FREE = """
import sys
from vedette.system import memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20

settle, trim = sys.argv[1] == "settle", sys.argv[2] == "trim"
if settle:
    memory.settle()
bytearray(8 << 20)  # freed at once: from here on glibc keeps blocks of this size in its heap
blocks = [bytearray(b"x") * {size} for _ in range({count})]
kept = blocks[1::2]
before = resident()
del blocks[::2], blocks
if trim:
    memory.trim()
print(before - resident())
"""


def freed(size: int, count: int, *arguments: str) -> int:
    """MiB that go back when every second of ``count`` blocks of ``size`` bytes is freed."""
    program = FREE.format(size=size, count=count)
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return int(done.stdout)


pytestmark = pytest.mark.skipif(memory.LIBC is None, reason="the C library is not glibc, whose allocator this is about")


def test_free_pages_between_used_ones_go_back() -> None:
    """Of 64 MiB in small blocks, every second freed, nothing goes back by itself, and with ``trim`` most of 32 MiB."""
    assert freed(32 << 10, 2048, "", "") < 4
    assert freed(32 << 10, 2048, "", "trim") > 24


def test_large_blocks_go_back_by_themselves() -> None:
    """Of 64 MiB in blocks of 2 MiB, every second freed, half goes back at once; without ``settle`` nothing does."""
    assert freed(2 << 20, 32, "", "") < 4
    assert freed(2 << 20, 32, "settle", "") > 28
