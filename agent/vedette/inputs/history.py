"""Rotated files of a path that were there before it was seen first: which are to be read, and from where. Looks, reads
no lines.

A content that has a position, under whatever name and inode, goes on there. Of several contents that begin alike nobody
knows which it was, unless one has the inode of the position: then none of them is taken for it, and they are read from
their start: twice rather than never.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vedette.inputs.archives import SUFFIXES, Archive, Damaged
from vedette.inputs.files import SPAN, IsPrivate, Key, Seen, fits, is_rotated, lies, open_same, plain
from vedette.model.event import FilePosition


class Earlier(NamedTuple):
    """A rotated file, and where to begin in its content."""

    seen: Seen
    reached: Sequence[FilePosition]
    """Positions in it, ascending; without one it is read from its start."""

    @property
    def position(self) -> int:
        return self.reached[-1].position if self.reached else 0

    @property
    def packed(self) -> bool:
        return os.path.splitext(self.seen.path)[1] in SUFFIXES

    @property
    def done(self) -> bool:
        """Read to its end; of a packed file that is not known."""
        return not self.packed and self.position == self.seen.size

    def unpacked(self, private: IsPrivate) -> Archive:
        """Raises OSError."""
        return _unpacked(self.seen, private)


def earlier(path: str, files: Sequence[Seen], saved: Iterable[FilePosition], private: IsPrivate) -> list[Earlier]:
    """Return where to begin in each of ``files``, which rotation has made of ``path``, the oldest first; ``saved``:
    positions of whatever files."""
    origin = lies(path)
    heads = {file.key: _head(file, private) for file in files}
    reached: dict[Key, list[FilePosition]] = {file.key: [] for file in files}
    for position in sorted(saved, key=lambda position: position.position):
        if position.position and (position.path in (path, origin) or is_rotated(plain(position.path), origin)):
            of = [key for key, head in heads.items() if fits(head, position)]
            own = [key for key in of if key[1] == position.inode]
            if own or len(of) == 1:
                reached[(own or of)[0]].append(position)
    return [Earlier(file, reached[file.key]) for file in files]


def _unpacked(seen: Seen, private: IsPrivate) -> Archive:
    return Archive(os.fdopen(open_same(seen.path, seen.key, private), "rb"), os.path.splitext(seen.path)[1])


def _head(seen: Seen, private: IsPrivate) -> bytes:
    """The first SPAN bytes of a content, as far as they can be read."""
    with contextlib.suppress(OSError, Damaged):
        if seen.path != plain(seen.path):
            with contextlib.closing(_unpacked(seen, private)) as archive:
                return archive.read(SPAN)[:SPAN]
        descriptor = open_same(seen.path, seen.key, private)
        try:
            return os.pread(descriptor, SPAN, 0)
        finally:
            os.close(descriptor)
    return b""
