"""ELF files (64 bits, little-endian): what the recipe reads of them and takes away. Source: elf(5).

The section table and what only debuggers read (``.symtab``, ``.debug_*``) lie behind the last segment; a loader reads
segments only. ``strip`` cuts there. Unlike strip(1) it works on every architecture's files alike and always gives the
same bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

MACHINES = {"x86_64": 62, "aarch64": 183}
"""e_machine."""
_HEADER = 64


def machine(path: Path) -> int | None:
    """e_machine of an ELF file; None for another file."""
    with path.open("rb") as file:
        head = file.read(_HEADER)
    if len(head) < _HEADER or head[:6] != b"\x7fELF\x02\x01":
        return None
    return int.from_bytes(head[18:20], "little")


def files(folder: Path) -> Iterator[Path]:
    """The ELF files below ``folder``, in order."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and machine(path) is not None:
            yield path


def glibc(path: Path) -> tuple[int, int]:
    """The newest version of the C library that the file names: it needs that one or a later."""
    named = re.findall(rb"GLIBC_(\d+)\.(\d+)[.\d]*\0", path.read_bytes())
    return max(((int(major), int(minor)) for major, minor in named), default=(0, 0))


def strip(path: Path) -> int:
    """Cut the file behind its last segment; returns the bytes saved."""
    data = bytearray(path.read_bytes())
    table, size, count = *struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54)
    end = table + size * count
    for index in range(count):
        _, _, offset, _, _, in_file = struct.unpack_from("<IIQQQQ", data, table + index * size)
        end = max(end, offset + in_file)
    struct.pack_into("<Q", data, 40, 0)  # e_shoff
    struct.pack_into("<HH", data, 60, 0, 0)  # e_shnum, e_shstrndx
    saved = len(data) - end
    path.write_bytes(data[:end])
    return saved
