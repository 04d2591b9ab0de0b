"""Metadata that a broker retains, kept in memory until they are looked at: a ``Source`` of ``trust.py``.

Whoever can write at the broker can send anything, so every file and their number is bounded: of each role the newest
``KEPT`` versions by number, of roots ``ROOTS`` from the lowest on. Nothing here is believed.
"""

from __future__ import annotations

import re

NAME = re.compile(r"(timestamp)\.json|([1-9][0-9]{0,8})\.(root|snapshot|targets|rollout)\.json")
KEPT, ROOTS = 3, 300
MAX_FILE = 4 << 20
MAX_BYTES = 32 << 20


class Mailbox:
    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._blobs: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> bool:
        """Take a file, or forget it where ``data`` is empty; True when that is news."""
        match = NAME.fullmatch(name)
        if match is None or len(data) > MAX_FILE:
            return False
        if not data:
            self._files.pop(name, None)
            return False
        if self._files.get(name) == data:
            return False
        self._files[name] = data
        role = match[1] or match[3]
        same = sorted((stored for stored in self._files if stored.endswith(f"{role}.json")), key=_version)
        for old in same[ROOTS:] if role == "root" else same[:-KEPT]:
            del self._files[old]
        while sum(map(len, self._files.values())) > MAX_BYTES:
            del self._files[max(self._files, key=lambda stored: len(self._files[stored]))]
        return name in self._files

    def keep(self, sha256: str, data: bytes) -> None:
        """A target, until ``clear``."""
        self._blobs[sha256] = data

    def clear(self) -> None:
        """Forget the targets."""
        self._blobs.clear()

    def metadata(self, name: str) -> bytes | None:
        return self._files.get(name)

    def blob(self, sha256: str) -> bytes | None:
        return self._blobs.get(sha256)

    def __len__(self) -> int:
        return len(self._files)


def _version(name: str) -> int:
    head = name.partition(".")[0]
    return int(head) if head.isdigit() else 0
