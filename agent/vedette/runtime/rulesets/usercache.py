"""A user's cache of compiled rule files: ``$XDG_CACHE_HOME/vedette``, else ``~/.cache/vedette``, by the digest of what
they are built from (``compiled.py``).

What is kept holds databases of native code's own format, so nothing is read that anybody else could have written:
folder and file must belong to the user, writable by no other, and are opened without following a link. A cache that
cannot be used is none: what is asked for is compiled, and the command goes on.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vedette.engine.artifact import Artifact

KEEP = 8
"""Rule sets in the cache; the one that was not used for longest goes first."""
MAX_BYTES = 256 << 20
"""Of a file that is read, and of all that are kept."""


def user_folder() -> Path | None:
    """Where the user's programs keep what can be made again, by the XDG Base Directory Specification; None: nowhere."""
    folder = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(folder) if os.path.isabs(folder) else Path.home() / ".cache"
    except RuntimeError:  # no home
        return None
    return root / "vedette" if root.is_absolute() else None


class UserCache:
    """Compiled rule sets of one user, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, digest: str) -> Artifact | None:
        """What was kept under ``digest``; None when nothing was, or it is damaged or not the user's alone."""
        try:
            with self._opened() as folder:
                descriptor = os.open(_name(digest), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
                with os.fdopen(descriptor, "rb") as file:
                    if not _own(os.fstat(descriptor), stat.S_ISREG):
                        return None
                    artifact = Artifact.from_bytes(file.read(MAX_BYTES))
                    os.utime(descriptor)
        except (OSError, ValueError):
            return None
        return artifact

    def keep(self, digest: str, artifact: Artifact) -> None:
        """Keep ``artifact``, and let go of what was not used for longest; nothing is kept where that cannot be done."""
        data, name = artifact.to_bytes(), _name(digest)
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._opened() as folder:
                self._make_room(folder, len(data))
                if len(data) > MAX_BYTES:
                    return
                temporary = f".{name}.{os.getpid()}"
                try:
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                    with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
                        file.write(data)
                    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                except OSError:
                    os.unlink(temporary, dir_fd=folder)
                    raise

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the folder. Raises OSError, also when it is not the user's alone."""
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if not _own(os.fstat(descriptor), stat.S_ISDIR):
                raise PermissionError(f"{self._folder} is not this user's alone")
            yield descriptor
        finally:
            os.close(descriptor)

    @staticmethod
    def _make_room(folder: int, size: int) -> None:
        """Delete, the oldest first, what is too much beside ``size`` bytes more; and what a kill left half-written."""
        files = []
        for name in os.listdir(folder):
            if name.endswith(_SUFFIX):
                stats = os.stat(name, dir_fd=folder, follow_symlinks=False)
                files.append((stats.st_mtime_ns, stats.st_size, name))
            elif name.startswith(".") and _SUFFIX in name:
                os.unlink(name, dir_fd=folder)
        files.sort(reverse=True)
        for number, (_, own, name) in enumerate(files, 2):
            size += own
            if number > KEEP or size > MAX_BYTES:
                os.unlink(name, dir_fd=folder)


_SUFFIX = ".vplan"


def _name(digest: str) -> str:
    return f"rules-{digest}{_SUFFIX}"


def _own(stats: os.stat_result, kind: Callable[[int], bool]) -> bool:
    """Whether it is of this kind, this user's, and writable by no other."""
    return kind(stats.st_mode) and stats.st_uid == os.geteuid() and not stats.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
