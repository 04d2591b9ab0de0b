"""A block of a lookup as the bytes that travel: compressed by itself, or against a part of the version before.

    the lookup's name, NUL, a zstd frame that states its size

The name makes the bytes differ between lookups, so that no two of them share a blob and one can be withdrawn without
the other. A block is compressed against the part of the earlier file where the same rows lie: of the same section, as
far into it, and ``SLACK`` on either side, for rows that came or went before. So whoever has the earlier version needs
that part of it, and a few megabytes of memory, for each block by itself.
"""

from __future__ import annotations

import zstandard

from vedette.lookup.layout import Header, LookupRefused
from vedette.lookup.sign import BLOCK

SLACK = 1 << 20
MAX_REFERENCE = 4 << 20
"""Bytes of the earlier file that one block may need."""
MAX_BLOB = BLOCK + (64 << 10)
_LEVEL, _DELTA_LEVEL = 3, 9
"""Below 9, zstd does not find its way in a reference of megabytes."""


def packed(name: str, block: bytes, reference: bytes = b"") -> bytes:
    """What travels for ``block``; ``reference``: the part of the earlier file that the receiver has."""
    if not reference:
        return name.encode() + b"\0" + zstandard.ZstdCompressor(level=_LEVEL).compress(block)
    dictionary = zstandard.ZstdCompressionDict(reference, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    how = zstandard.ZstdCompressionParameters.from_level(
        _DELTA_LEVEL, source_size=len(block), dict_size=len(reference), write_content_size=1
    )
    return (
        name.encode() + b"\0" + zstandard.ZstdCompressor(dict_data=dictionary, compression_params=how).compress(block)
    )


def unpacked(blob: bytes, size: int, reference: bytes = b"") -> bytes:
    """The block of ``size`` bytes. Raises LookupRefused."""
    frame = blob[blob.find(b"\0") + 1 :]
    dictionary = (
        zstandard.ZstdCompressionDict(reference, dict_type=zstandard.DICT_TYPE_RAWCONTENT) if reference else None
    )
    try:
        if zstandard.frame_content_size(frame) != size:
            raise LookupRefused("a block that arrived has another size than was signed")
        return zstandard.ZstdDecompressor(dict_data=dictionary).decompress(frame)
    except zstandard.ZstdError as error:
        raise LookupRefused(f"a block that arrived cannot be unpacked: {error}") from error


def reference(new: Header, old: Header, start: int, size: int, end: int) -> tuple[int, int]:
    """Where in the earlier file, of ``end`` bytes, the rows of a block at ``start`` lie: first and last place."""
    first, last = _place(new, old, start) - SLACK, _place(new, old, start + size) + SLACK
    if last - first > MAX_REFERENCE:
        first = (first + last - MAX_REFERENCE) // 2
        last = first + MAX_REFERENCE
    first, last = max(0, min(first, end)), max(0, min(last, end))
    return first, last


def _place(new: Header, old: Header, at: int) -> int:
    """Where in the earlier file that lies which lies ``at`` in the new one, about."""
    before = [(place, size, name) for name, (place, size, _) in new.sections.items() if place <= at]
    if not before:
        return at
    place, size, name = max(before)
    if name not in old.sections:
        return at
    old_place, old_size, _ = old.sections[name]
    return old_place + (at - place) * old_size // size if size and at <= place + size else old_place + old_size
