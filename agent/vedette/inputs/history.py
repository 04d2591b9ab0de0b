"""What rotation had made of a path before it was seen first: which of it is to be read, and from where. Looks, reads no
lines.

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
from vedette.inputs.files import SPAN, IsPrivate, Key, Seen, fits, is_rotated, lies, open_same, plain, predecessors
from vedette.model.event import FilePosition


class Earlier(NamedTuple):
    """A rotated file, and where to begin in its content."""

    seen: Seen
    position: int

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


def earlier(
    path: str, followed: Iterable[Key], saved: Sequence[FilePosition], private: IsPrivate, behind: bool
) -> list[Earlier]:
    """What rotation has made of ``path``, the oldest first, without files that are ``followed``.

    ``saved``: positions of whatever files. ``behind``: only from the newest on that has one. Raises OSError when the
    folder cannot be read.
    """
    origin = lies(path)
    without = set(followed)
    found = [one for one in predecessors(origin) if one.key not in without]
    heads = {one.key: _head(one, private) for one in found}
    known: dict[Key, int] = {}
    for one in sorted(saved, key=lambda one: one.position):
        if one.position and (one.path in (path, origin) or is_rotated(plain(one.path), origin)):
            of = [key for key, head in heads.items() if fits(head, one)]
            own = [key for key in of if key[1] == one.inode]
            if own or len(of) == 1:
                known[(own or of)[0]] = one.position
    if behind:
        last = max((i for i, one in enumerate(found) if one.key in known), default=len(found))
        found = found[last:]
    return [Earlier(one, known.get(one.key, 0)) for one in found]


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
