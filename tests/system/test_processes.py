"""What another process uses."""

from __future__ import annotations

import subprocess
import sys

from vedette.system.processes import used

PROGRAM = """
import mmap, sys, time
kept = bytearray(b"x" * (40 << 20))
while time.process_time() < 0.3:
    pass
print("ready", flush=True)
sys.stdin.read()
"""


def test_used() -> None:
    """CPU time and private memory of a process, and nothing of one that is gone."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = used(process.pid)
        process.kill()
    assert found is not None
    assert found.cpu_seconds >= 0.2
    assert 40 << 20 <= found.private <= 120 << 20
    assert found.private <= found.resident
    assert used(process.pid) is None
