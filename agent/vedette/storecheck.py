"""``python -m vedette.storecheck FOLDER``: whether an agent's store can be used. Run as a process of its own.

A damaged LMDB file may kill who reads it (a truncated one with SIGBUS), and reads nothing wrong where a bit has flipped
in a value. So the agent has its store looked at by a child before it opens it: every value against its checksum, the
tree and its free pages by a compacting copy into nothing, and a transaction that is not committed. A child that ends
other than with 0, or not in time, means: damaged. So does word that an agent has left which found damage at work.

On standard output: ``next_seq N`` as soon as it is known, which may outlive the check; on standard error the reason.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import NamedTuple

from vedette.store import DAMAGED, Store, rehearse

LEAST_SECONDS = 30.0
BYTES_PER_SECOND = 10 << 20
"""What the slowest disk is taken to read."""


class Finding(NamedTuple):
    """``reason``: what is wrong, empty when nothing is. ``next_seq``: as far as it could be read, else 0."""

    reason: str
    next_seq: int


def examine(folder: Path) -> Finding:
    """Have the store in ``folder`` checked by a child. Raises OSError when none can be started."""
    try:
        size = (folder / "data.mdb").stat().st_size
    except FileNotFoundError:
        return Finding("", 0)
    with suppress(FileNotFoundError):
        said = (folder / DAMAGED).read_text("utf-8", "replace")
        return Finding(f"found at work: {said}", _ask(folder, LEAST_SECONDS).next_seq)
    return _ask(folder, LEAST_SECONDS + size / BYTES_PER_SECOND)


def _ask(folder: Path, seconds: float) -> Finding:
    """The child's word."""
    command = [sys.executable, "-m", "vedette.storecheck", str(folder)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as late:
        return Finding(f"its check did not end within {seconds:.0f} s", _next_seq(late.stdout or b""))
    found = _next_seq(done.stdout)
    if done.returncode < 0:
        return Finding(f"its check died of {Signals(-done.returncode).name}", found)
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return Finding(reason or f"its check ended with {done.returncode}", found)
    return Finding("", found)


def _next_seq(said: bytes) -> int:
    words = said.split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def main() -> None:
    folder = Path(sys.argv[1])
    with Store.open(folder, readonly=True) as store:
        sys.stdout.write(f"next_seq {store.next_seq()}\n")
        sys.stdout.flush()
        store.verify()
    rehearse(folder)


if __name__ == "__main__":
    main()
