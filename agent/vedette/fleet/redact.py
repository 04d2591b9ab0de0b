"""What must not leave a host, taken out of lines of its raw log. Pure.

Each match of one of the owner's patterns becomes ``MARK``. A pattern that takes too long on a line takes the whole line
out: what could not be looked at does not leave either.
"""

from __future__ import annotations

from collections.abc import Sequence

import regex

MARK = b"[redacted]"
SLOW = b"[redacted: a pattern took too long]"
SECONDS = 0.25
"""For one pattern on one line."""


class Redaction:
    def __init__(self, patterns: Sequence[str]) -> None:
        """Raises ValueError for one that is no regular expression."""
        try:
            self._patterns = [regex.compile(one.encode()) for one in patterns]
        except regex.error as error:
            raise ValueError(f"redact: {error}") from error

    def apply(self, raw: bytes) -> tuple[bytes, int]:
        """The line without what the patterns match, and how many matches there were."""
        total = 0
        for pattern in self._patterns:
            try:
                raw, found = pattern.subn(lambda _: MARK, raw, timeout=SECONDS)
            except TimeoutError:
                return SLOW, total + 1
            total += found
        return raw, total
