"""A bundle's trial: does it compile, and does it do what its author said? First in a process of its own.

A signature says who made a bundle, not that it does no harm: one whose plan takes for ever, takes all memory or makes
the pattern library crash must not take the agent with it. So a bundle that arrives is tried by ``in_child`` before the
agent itself loads it: bounded in time and memory, first in line when memory runs out, and whatever ends that process
early is a refusal with a reason.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from vedette.bundle.seal import MAX_BUNDLE
from vedette.bundle.trust import Bundle, inspect
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.rules.selftest import check, from_row
from vedette.system import child

TRIAL_SECONDS = 120.0
TRIAL_BYTES = 1 << 30
"""Address space of the trial's process; thousands of rules take about 300 MiB of it."""


def trial(bundle: Bundle) -> Engine:
    """Compile a verified bundle and run its self-test; raises ValueError when it does not work."""
    engine = Artifact(bundle.plan, bundle.databases, bundle.manifest.hyperscan).engine()
    failures = check(engine, map(from_row, bundle.tests))
    if failures:
        raise ValueError(f"{len(failures)} of {len(bundle.tests)} self-tests fail, first {failures[0]}")
    return engine


def in_child(data: bytes) -> None:
    """``trial`` of the verified bundle ``data`` in a process of its own. Blocks; raises ValueError with its verdict, or
    with how the process ended, and OSError when none can be started."""
    command = child.command(__name__, str(TRIAL_BYTES))
    try:
        done = subprocess.run(
            command, input=data, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=TRIAL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"its trial took longer than {TRIAL_SECONDS:g} s and was stopped") from error
    if done.returncode < 0:
        raise ValueError(f"its trial ended by {signal.Signals(-done.returncode).name}")
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ValueError(said[-1] if said else f"its trial ended with code {done.returncode}")


def main() -> int:
    """The trial's process: the bundle on standard input; the verdict is the last line of standard error."""
    bound = int(sys.argv[1])
    with suppress(OSError, ValueError):  # a unit's system call filter may forbid it: its MemoryMax bounds us then
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        trial(inspect(sys.stdin.buffer.read(MAX_BUNDLE + 1)))
    except MemoryError:
        sys.stderr.write(f"its trial needs more than {bound} bytes of memory\n")
        return 2
    except Exception as error:  # whatever a plan makes fail, it is the verdict
        sys.stderr.write(f"{str(error) or type(error).__name__}\n".replace("\n", " ").strip() + "\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
