"""Files that people keep in folders: what such a folder lists, and the bytes of a regular file.

A folder may list what is no file of its owner's: an editor's lock (a link to nowhere), a pipe, a socket. Nothing here
waits for one, nor for another process that holds ``locked``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Collection
from pathlib import Path

from vedette.system.descriptors import SPENT


def listed(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """What lies in ``folder`` and the folders below with one of the ``suffixes``, by name; hidden ones are left out.

    A folder that cannot be listed counts as one entry. Raises OSError when no descriptor is left: that is no folder
    without files.
    """
    found: list[Path] = []

    def closed(error: OSError) -> None:
        if error.errno in SPENT:
            raise error
        found.append(Path(error.filename))

    for inside, folders, names in os.walk(folder, onerror=closed):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(inside, name) for name in names if not name.startswith("."))
        found += (path for path in paths if path.suffix in suffixes)
    return sorted(found)


def locked(path: Path, held: str, mode: int = 0o600) -> int:
    """A descriptor of the file ``path``, made if need be, that holds its lock; the kernel drops it with the process.
    Raises BlockingIOError with the reason ``held`` while another process has it, and OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise type(error)(
            error.errno, held if isinstance(error, BlockingIOError) else error.strerror, str(path.parent)
        ) from error
    return descriptor


def read_regular(path: Path, limit: int = -1) -> bytes:
    """At most ``limit`` bytes of a regular file. Raises OSError, also for what is none."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    with open(path, "rb", opener=_at_once) as file:
        return file.read(limit)


def _at_once(path: str, flags: int) -> int:
    """Opening a pipe would wait for who writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)
