"""Whether an agent's store can be used: looked at by a process of its own.

A damaged LMDB file may kill who reads it (a truncated one with SIGBUS), and reads nothing wrong where a bit has flipped
in a value. So the agent has its store looked at by a child before it opens it: every value against its checksum, the
tree and its free pages by a compacting copy into nothing, and a transaction that is not committed.

The child says ``ready`` once its imports are done; from there on it does nothing but read the store. If it then ends
other than with 0, or not in time, the store is damaged. So it is when an agent has left word of damage found at work.
A child that is not started, does not get as far as ``ready``, or dies of a signal that only others send (the kernel for
want of memory, a service that is stopped) says nothing of the store: it is ``unchecked``, which is no damage. So is one
that ends with ``UNCHECKED``, because the system lacks or forbids what it needs (``environment.OUTSIDE``). Memory lacks
only where what a sound store needs is unavailable as well: a damaged one may ask for any amount.

On standard output: ``ready``, then ``next_seq N`` as soon as it is known, which may outlive the check; on standard
error the reason.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import NamedTuple

from vedette.store.environment import DAMAGED, OUTSIDE, rehearse
from vedette.store.store import TABLES, Store
from vedette.system import child

LEAST_SECONDS = 30.0
BYTES_PER_SECOND = 10 << 20
"""What the slowest disk is taken to read."""
MAP_BYTES = 1 << 30
"""Of addresses, for the store's map; a larger store gets what it has."""

READY = b"ready"
UNCHECKED = os.EX_TEMPFAIL
"""Exit code of a check that could not go on, for no fault of the store."""
FOREIGN = {Signals.SIGKILL, Signals.SIGTERM, Signals.SIGINT, Signals.SIGHUP, Signals.SIGQUIT, Signals.SIGXCPU}
"""No file makes a process die of these."""


class Finding(NamedTuple):
    """``reason``: what is wrong, empty when nothing is known to be. ``next_seq``: as far as it could be read, else 0.
    ``unchecked``: why the check could not run, empty when it did."""

    reason: str
    next_seq: int
    unchecked: str = ""


def examine(folder: Path) -> Finding:
    """Have the store in ``folder`` checked by a child."""
    try:
        size = (folder / "data.mdb").stat().st_size
    except FileNotFoundError:
        return Finding("", 0)
    with suppress(FileNotFoundError):
        said = (folder / DAMAGED).read_text("utf-8", "replace")
        return Finding(f"found at work: {said}", _ask(folder, LEAST_SECONDS).next_seq)
    return _ask(folder, LEAST_SECONDS + size / BYTES_PER_SECOND)


def _ask(folder: Path, seconds: float) -> Finding:
    try:
        ended = child.run(__name__, str(folder), seconds=seconds)
    except OSError as error:
        return Finding("", 0, f"its check cannot be started: {error}")
    reason = _ending(ended, seconds)
    outside = ended.code is not None and (-ended.code in FOREIGN or ended.code == UNCHECKED)
    ready, _, rest = ended.out.partition(b"\n")
    if reason and (outside or ready != READY):
        return Finding("", _next_seq(rest), reason)
    return Finding(reason, _next_seq(rest))


def _ending(ended: child.Ended, seconds: float) -> str:
    """How a child has ended; empty: well."""
    if ended.code is None:
        return f"its check did not end within {seconds:.0f} s"
    if ended.code < 0:
        return f"its check died of {Signals(-ended.code).name}"
    return (ended.complaint or f"its check ended with {ended.code}") if ended.code else ""


def _next_seq(said: bytes) -> int:
    words = said.split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def _blameless(error: OSError | MemoryError, folder: Path) -> bool:
    """Whether ``error`` says nothing of the store in ``folder``, which is closed by now."""
    if isinstance(error, OSError) and error.errno != errno.ENOMEM:
        return error.errno in OUTSIDE
    try:
        mmap.mmap(-1, MAP_BYTES + 2 * (folder / "data.mdb").stat().st_size, prot=mmap.PROT_READ).close()
    except OSError:
        return True
    return False


def main() -> None:
    folder = Path(sys.argv[1])
    sys.stdout.write(f"{READY.decode()}\n")
    sys.stdout.flush()
    try:
        with Store.open(folder, readonly=True, map_bytes=MAP_BYTES) as store:
            sys.stdout.write(f"next_seq {store.account().next_seq}\n")
            sys.stdout.flush()
            store.verify()
        rehearse(folder, TABLES)
    except (OSError, MemoryError) as error:
        if not _blameless(error, folder):
            raise
        sys.stderr.write(f"its check could not go on: {type(error).__name__}: {error}\n")
        raise SystemExit(UNCHECKED) from None


if __name__ == "__main__":
    main()
