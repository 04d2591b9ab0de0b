"""Which files are gone from their path, looked up beside the commits: a dead file system delays none of these."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from vedette.model.event import FilePosition


class Absent:
    """A search, begun at once, for those of ``positions`` whose file is not at its path."""

    def __init__(self, positions: Iterable[FilePosition]) -> None:
        self._files: set[tuple[str, int]] = set()
        self._thread = threading.Thread(target=self._search, args=(list(positions),), name="absent", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether all were looked for."""
        return not self._thread.is_alive()

    def __contains__(self, position: FilePosition) -> bool:
        """Whether the file is gone, as far as they were looked for."""
        return position.file in self._files

    def _search(self, positions: list[FilePosition]) -> None:
        for position in positions:
            if not _is_there(position):
                self._files.add(position.file)


def _is_there(position: FilePosition) -> bool:
    """Whether the file is still at its path. Blocks as long as the path's file system does."""
    try:
        return os.stat(position.path).st_ino == position.inode
    except (OSError, ValueError):
        return False
