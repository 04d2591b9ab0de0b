"""Texts in UTF-16: how they are known, and read as UTF-8, line by line, with their own bytes counted."""

from __future__ import annotations

from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator

from vedette.model.event import CHUNK_BYTES


def wide(head: bytes) -> str:
    """The encoding of a text in UTF-16 that begins with ``head``: by its byte order mark, else by the zeros of its
    first letters; empty for any other."""
    text = head[:64]
    if text.startswith(BOM_UTF16_LE) or (len(text) > 7 and all(text[::2]) and not any(text[1::2])):
        return "utf-16-le"
    return (
        "utf-16-be"
        if text.startswith(BOM_UTF16_BE) or (len(text) > 7 and all(text[1::2]) and not any(text[::2]))
        else ""
    )


class Wide:
    """A text in UTF-16 as UTF-8, line by line."""

    __slots__ = ("_held", "_utf8", "_utf16", "encoding", "pending")

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        self._held = bytearray()
        self._utf16 = self._utf8 = 0
        """Bytes of the unfinished line that were given, in UTF-16 and in UTF-8."""
        self.pending = 0
        """Bytes after the last whole line."""

    def feed(self, data: bytes, *, final: bool = False) -> Iterator[tuple[bytes, int]]:
        """Pieces, at a line's end with how much shorter it is in UTF-8; ``final``: an unfinished line, too."""
        held, newline = self._held, "\n".encode(self.encoding)
        held += data
        self.pending += len(data)
        begin = end = 0
        while (end := held.find(newline, end) + 2) > 1:
            if end % 2:
                end -= 1
                continue
            yield self._text(begin, end, whole=True)
            begin = end
        if len(held) - begin > (0 if final else CHUNK_BYTES):
            end = len(held) if final else len(held) & ~3
            yield self._text(begin, end, whole=final)
            begin = end
        del held[:begin]

    def _text(self, begin: int, end: int, *, whole: bool) -> tuple[bytes, int]:
        text = self._held[begin:end].decode(self.encoding, "replace").encode()
        self._utf16 += end - begin
        self._utf8 += len(text)
        if not whole:
            return text, 0
        shorter = self._utf16 - self._utf8
        self.pending -= self._utf16
        self._utf16 = self._utf8 = 0
        return text, shorter
