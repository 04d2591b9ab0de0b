"""The record of what a run has changed, by which it is undone.

A file is copied beside itself (``FILE.was.PID``) before it is replaced, and put back by a rename; what was new is
removed. Both in the reverse order. Folders that were there get their owner and mode again.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from installer.host import PID, remove


class Changes:
    def __init__(self) -> None:
        self._replaced: list[Path] = []
        self._created: list[Path] = []
        self._access: list[tuple[Path, os.stat_result]] = []

    def keep(self, path: Path) -> None:
        """Copy ``path``, which is about to be replaced, or note that it is new. Raises OSError."""
        if not os.path.lexists(path):
            self.created(path)
            return
        copy = _copy(path)
        remove(copy)  # of a killed run with the same number
        shutil.copy2(path, copy, follow_symlinks=False)
        status = path.lstat()
        with suppress(PermissionError):
            os.chown(copy, status.st_uid, status.st_gid, follow_symlinks=False)
        self._replaced.append(path)

    def created(self, path: Path) -> None:
        """Note that ``path`` was not there before this run."""
        self._created.append(path)

    def keep_access(self, folder: Path) -> None:
        """Note owner and mode of a folder, which may be changed. Raises OSError."""
        self._access.append((folder, folder.stat()))

    def put_back(self) -> None:
        """Bring back the files that were replaced, and owners and modes."""
        for folder, status in self._access:
            with suppress(OSError):
                os.chown(folder, status.st_uid, status.st_gid)
                folder.chmod(stat.S_IMODE(status.st_mode))
        for path in reversed(self._replaced):
            with suppress(OSError):
                _copy(path).replace(path)

    def take_away(self) -> None:
        """Remove what was new."""
        for path in reversed(self._created):
            remove(path)

    def forget(self) -> None:
        """Delete the copies."""
        for path in self._replaced:
            remove(_copy(path))


def _copy(path: Path) -> Path:
    return Path(f"{path}.was.{PID}")
