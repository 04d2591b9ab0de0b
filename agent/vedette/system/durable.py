"""Files that are there whole or not at all, and still there after a power cut: written beside, synced, renamed, and
the folder synced. ``stamp`` tells whether another is there."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, data: bytes, mode: int | None = None) -> None:
    """Replace ``path`` by ``data``, with ``mode`` from the first byte on (None: what the umask leaves of 0666).

    Raises OSError; ``path`` is then as it was, and ``.NAME.tmp`` may lie beside it until the next write.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
    with os.fdopen(descriptor, "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_path(path.parent)


def stamp(file: Path | int) -> tuple[int, int, int] | None:
    """Return what differs once a file was written or replaced, whatever size and times it was given: inode, time of the
    last change of any kind in ns, bytes. None when it is not there or cannot be looked at."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns, status.st_size


def make_folders(path: Path, mode: int = 0o777) -> None:
    """Make a folder with those above it that are missing (all with ``mode``), each durable in the one above it. Raises
    OSError."""
    missing = [] if path.is_dir() else [path]
    while missing and not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for folder in reversed(missing):
        try:
            folder.mkdir(mode)
        except FileExistsError:
            if not folder.is_dir():
                raise
        else:
            sync_path(folder.parent)


def sync_path(path: Path) -> None:
    """Make a file, or the names in a folder, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
