"""A folder of the versions of one thing, and the links that say which of them is used.

    NUMBER-DIGITS.SUFFIX   a version: its number, which rises, and the first 12 digits of its digest
    current -> …           what is used
    previous -> …          what was used before it
    withdrawn -> …         after a rollback: what was rolled back from; its file may be gone

A file is whole before its name appears: that is for who writes it. Links move by an atomic rename, and the folder is
synced after each step. ``current`` moves first: a crash between any two steps leaves the old or the new version
current, and ``previous`` names an older one, never none. Leftovers of a crash go with the next switch.

One caller at a time; every method blocks on the disk and may raise OSError.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from vedette.system.durable import sync_path

PREVIOUS = "previous"
WITHDRAWN = "withdrawn"


def number_of(path: Path) -> int:
    """The number of a version, by the name of its file."""
    return int(path.name.partition("-")[0])


def digits_of(path: Path) -> str:
    """The first 12 digits of its digest."""
    return path.stem.partition("-")[2]


class Versions:
    """The versions in ``folder`` whose files end in ``suffix``.

    ``current``: what that link is called. ``keep``: how many files stay; those that are current or previous always do.
    ``rising``: what is previous never has a higher number than what is current.
    """

    def __init__(
        self, folder: Path, suffix: str, *, current: str = "current", keep: int = 0, rising: bool = False
    ) -> None:
        self.folder = folder
        self._suffix = suffix
        self._current = current
        self._keep = keep
        self._rising = rising
        self._name = re.compile(rf"(\d{{1,17}})-([0-9a-f]{{12}}){re.escape(suffix)}")

    @property
    def current(self) -> Path | None:
        return self._linked(self._current)

    @property
    def previous(self) -> Path | None:
        return self._linked(PREVIOUS)

    @property
    def withdrawn(self) -> Path | None:
        return self._linked(WITHDRAWN)

    def path(self, number: int, digest: str) -> Path:
        """The file of a version."""
        return self.folder / f"{number}-{digest[:12]}{self._suffix}"

    def switch(self, target: Path) -> None:
        """Make a version whose file is there current, and what was current previous; one that was withdrawn and is
        older is forgotten."""
        before = self.current
        earlier = self.previous
        if self._rising and earlier is not None and number_of(earlier) > number_of(target):
            self._unlink(PREVIOUS)
        self._link(self._current, target)
        later = self._rising and before is not None and number_of(before) > number_of(target)
        if before is not None and before != target and before.exists() and not later:
            self._link(PREVIOUS, before)
        withdrawn = self.withdrawn
        if withdrawn is not None and number_of(withdrawn) < number_of(target):
            self._unlink(WITHDRAWN)
        self._prune()

    def withdraw(self, path: Path) -> None:
        """Note that ``path`` was rolled back from."""
        self._link(WITHDRAWN, path)

    def go_back(self, target: Path) -> None:
        """Make an earlier version current, and the newest of those before it previous."""
        self._link(self._current, target)
        older = [path for path in self._files() if number_of(path) < number_of(target)]
        if older:
            self._link(PREVIOUS, max(older, key=number_of))
        else:
            self._unlink(PREVIOUS)

    def drop(self, path: Path) -> bool:
        """Delete what is current and damaged; whether what was previous is current in its place."""
        earlier = self.previous
        stands_in = earlier is not None and earlier.exists() and earlier != path
        if earlier is not None and stands_in:
            self._link(self._current, earlier)
        else:
            self._unlink(self._current)
        path.unlink(missing_ok=True)
        return stands_in

    def clear(self) -> None:
        """Delete every version; a crash in between leaves some or none current, and the next call ends it."""
        self._unlink(PREVIOUS)
        self._unlink(self._current)
        for path in self._files():
            path.unlink(missing_ok=True)

    def _linked(self, link: str) -> Path | None:
        try:
            target = os.readlink(self.folder / link)
        except OSError:
            return None
        return self.folder / target if self._name.fullmatch(target) else None

    def _link(self, link: str, path: Path) -> None:
        temporary = self.folder / f".{link}.tmp"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(path.name)
        temporary.rename(self.folder / link)
        sync_path(self.folder)

    def _unlink(self, link: str) -> None:
        (self.folder / link).unlink(missing_ok=True)
        sync_path(self.folder)

    def _files(self) -> list[Path]:
        return [path for path in self.folder.iterdir() if self._name.fullmatch(path.name)]

    def _prune(self) -> None:
        """Delete what is neither linked nor among the newest, and temporary files."""
        linked = [path for path in (self.current, self.previous) if path is not None]
        others = sorted((path for path in self._files() if path not in linked), key=number_of, reverse=True)
        for path in [*others[max(0, self._keep - len(linked)) :], *self.folder.glob(".*.tmp")]:
            path.unlink(missing_ok=True)
