"""Files that people keep in folders: what such a folder lists, and the bytes of a regular file; and a folder's lock.

A folder may list what is no file of its owner's: an editor's lock (a link to nowhere), a pipe, a socket. Nothing here
waits for one, nor for another process that holds ``locked``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from vedette.system.descriptors import SPENT

FORMER = ("lock", "owner", "console.lock")  # files that the release before locks instead of the folder


def listed(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """What lies in ``folder`` and the folders below with one of the ``suffixes``, by name; hidden ones are left out.

    A folder that cannot be listed counts as one entry. Raises OSError when no descriptor is left: that is no folder
    without files.
    """
    files: list[Path] = []

    def closed(error: OSError) -> None:
        if error.errno in SPENT:
            raise error
        files.append(Path(error.filename))

    for inside, folders, names in os.walk(folder, onerror=closed):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(inside, name) for name in names if not name.startswith("."))
        files += (path for path in paths if path.suffix in suffixes)
    return sorted(files)


def locked(folder: Path, reason: str, *, wait: bool = False) -> int:
    """Lock ``folder`` itself and return its descriptor; the kernel drops the lock with that. There is no lock file,
    which somebody could delete as a leftover and so let a second process in.

    ``folder`` is its owner's alone (0700): whoever can open it can hold its lock, to read it is enough. Of another one
    see ``locked_within``. Raises BlockingIOError with ``reason`` while another process has it, also one of the release
    before, which locks a file of FORMER; with ``wait`` it waits for that one. Raises OSError."""
    how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    while True:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, how)
            for name in FORMER:
                with suppress(FileNotFoundError), open(folder / name, "rb", opener=at_once) as file:
                    fcntl.flock(file, how)
            if os.path.samestat(os.fstat(descriptor), os.stat(folder)):
                return descriptor
        except OSError as error:
            os.close(descriptor)
            why = reason if isinstance(error, BlockingIOError) else error.strerror
            raise type(error)(f"{folder}: {why}") from error
        os.close(descriptor)  # it was removed meanwhile, and another one made


def locked_within(folder: Path, name: str, reason: str, *, wait: bool = False) -> int:
    """Lock a folder that others may read, by ``name``: as ``locked`` does a folder of that name in it, made when
    missing. Made by root it is given to the owner of ``folder``, who could not lock it else."""
    place = folder / name
    with suppress(FileExistsError, PermissionError):  # what lacks, ``locked`` says
        place.mkdir(0o700)
        if os.geteuid() == 0:
            owner, lock = folder.stat(), os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fchown(lock, owner.st_uid, owner.st_gid)
            finally:
                os.close(lock)
    return locked(place, reason, wait=wait)


def read_regular(path: Path, limit: int = -1) -> bytes:
    """At most ``limit`` bytes of a regular file. Raises OSError, also for what is none."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    with open(path, "rb", opener=at_once) as file:
        return file.read(limit)


def at_once(path: str, flags: int) -> int:
    """Open as ``open``'s ``opener``: a pipe does not wait for who writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)
