"""Compressed files: what the real gzip and zstd write, whole, in several members, torn, damaged, and bombs."""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest
import zstandard

from vedette.inputs.archives import SUFFIXES, Archive, Damaged

CONTENT = b"".join(b"line %d of the file\n" % i for i in range(60_000))
PROGRAMS = {".gz": "gzip", ".zst": "zstd"}


def packed(content: bytes, suffix: str) -> bytes:
    if not shutil.which(PROGRAMS[suffix]):
        pytest.skip(f"no {PROGRAMS[suffix]}")
    return subprocess.run([PROGRAMS[suffix], "-c", "-q"], input=content, capture_output=True, check=True).stdout


def read(data: bytes, suffix: str) -> tuple[bytes, str]:
    """The content, and what is wrong with the rest."""
    archive, pieces = Archive(io.BytesIO(data), suffix), []
    try:
        while piece := archive.read():
            pieces.append(piece)
    except Damaged as error:
        return b"".join(pieces), str(error)
    finally:
        archive.close()
    return b"".join(pieces), ""


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_programs_write(suffix: str, tmp_path: Path) -> None:
    """The content is what was compressed; members one after the other are one content, and nothing is one."""
    data = packed(CONTENT, suffix)
    assert read(data, suffix) == (CONTENT, "")
    assert read(packed(b"a\n", suffix) + data + packed(b"", suffix), suffix) == (b"a\n" + CONTENT, "")
    assert read(packed(b"", suffix), suffix) == (b"", "")
    assert read(b"", suffix) == (b"", "")
    assert read(data + bytes(40_000), suffix) == (CONTENT, "")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_torn_and_damaged(suffix: str) -> None:
    """What stands before a torn end or damage is given, and then it is named."""
    data = packed(CONTENT, suffix)
    torn, why = read(data[: len(data) // 2], suffix)
    assert CONTENT.startswith(torn)
    assert len(torn) > len(CONTENT) // 4
    assert why == "it is cut off"
    damaged, why = read(data[:-200] + bytes(200), suffix)
    assert CONTENT.startswith(damaged[: len(damaged) // 2])
    assert why
    assert read(b"no archive", suffix)[1]
    assert read(data + b"garbage", suffix)[0] == CONTENT


def test_bombs() -> None:
    """Zeros without end are given in pieces of some megabytes; a window that would take too much memory is refused."""
    for suffix, bomb in ((".gz", gzip.compress(bytes(32 << 20))), (".zst", zstandard.compress(bytes(256 << 20)))):
        archive, size, largest = Archive(io.BytesIO(bomb), suffix), 0, 0
        while piece := archive.read():
            size += len(piece)
            largest = max(largest, len(piece))
        archive.close()
        assert size == (32 << 20 if suffix == ".gz" else 256 << 20)
        assert largest <= 17 << 20
    wide = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=27)).compressobj()
    assert "memory" in read(wide.compress(bytes(1 << 20)) + wide.flush(), ".zst")[1].lower()


def test_a_deflate_stream_is_no_gzip() -> None:
    """Only what the name says is read."""
    assert read(zlib.compress(b"x"), ".gz")[1]
