"""Compressed files: what is in them, however it is read, cut off or damaged, in bounded memory."""

from __future__ import annotations

import gzip
import io
import lzma
import random
import tracemalloc

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.system.compressed import MAX_WINDOW, READ, STEP, Ahead, unpacked

KINDS = {
    "gzip": gzip.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
    "zstd without a size": lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data),
    "xz": lzma.compress,
}
SKIPPED = b"\x50\x2a\x4d\x18\x04\x00\x00\x00\x10\x00\x00\x00"
every_kind = pytest.mark.parametrize("kind", KINDS)


def _lines(seed: int) -> bytes:
    rng = random.Random(seed)
    return b"".join(b"%d a line\n" % rng.randrange(10**9) for _ in range(seed % 3000))


random_lines = st.integers(0, 1 << 32).map(_lines)
EXAMPLES = settings(max_examples=30)


class Slow(io.RawIOBase):
    """Gives what a pipe gives: some of it, and cannot be sought."""

    def __init__(self, data: bytes, step: int) -> None:
        super().__init__()
        self._data, self._step = io.BytesIO(data), step

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(self._step if size < 0 else min(size, self._step))


def read(data: bytes, size: int = 1 << 18, step: int = 1 << 20) -> tuple[bytes, str]:
    file = unpacked(Slow(data, step))
    found = b"".join(iter(lambda: file.read(size), b""))
    assert file.read(size) == b""
    return found, file.damage


@every_kind
@given(random_lines, st.sampled_from([1, 7, 4096, 1 << 20]), st.sampled_from([100, 4096, 1 << 18]))
@EXAMPLES
def test_whole(kind: str, data: bytes, step: int, size: int) -> None:
    """Unpacked it is what was packed, in reads of any size; one member or several, with zeros between."""
    packed = KINDS[kind](data)
    assert read(packed, size, step) == (data, "")
    assert read(packed + KINDS[kind](b"more\n") + b"\0" * 9 + gzip.compress(b"end\n"), size, step) == (
        data + b"more\nend\n", "",
    )  # fmt: skip


def test_what_is_not_compressed() -> None:
    """It is given as it is, also when it is shorter than what is looked at."""
    for data in (b"", b"a", b"Nov 20 10:00:00 web1 x\n" * 99):
        assert isinstance(unpacked(io.BytesIO(data)), Ahead)
        assert read(data) == (data, "")


def test_a_skippable_frame() -> None:
    """``pzstd`` writes one first."""
    assert read(SKIPPED + KINDS["zstd"](b"a line\n")) == (b"a line\n", "")


@every_kind
@given(st.data())
@EXAMPLES
def test_cut_off(kind: str, data: st.DataObject) -> None:
    """Cut off anywhere, what could be unpacked is given, and it is told that it is cut off."""
    lines = data.draw(random_lines)
    packed = KINDS[kind](lines)
    end = data.draw(st.integers(6, len(packed) - 1))
    found, damage = read(packed[:end])
    assert lines.startswith(found)
    assert "it is cut off" in damage
    assert f"before byte {end:,}" in damage
    assert f"the {len(found):,} bytes" in damage


@every_kind
@given(st.data())
@EXAMPLES
def test_damaged(kind: str, data: st.DataObject) -> None:
    """With any byte changed it ends, and raises nothing; that it is damaged is told when the format can tell."""
    lines = data.draw(random_lines)
    packed = bytearray(KINDS[kind](lines))
    packed[data.draw(st.integers(6, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    found, damage = read(bytes(packed))
    assert damage or kind.startswith("zstd") or found == lines  # zstd's checksum is optional


@every_kind
def test_what_follows_is_none(kind: str) -> None:
    """Something else after the last member is told."""
    found, damage = read(KINDS[kind](b"a line\n") + b"and so on")
    assert found == b"a line\n"
    assert "what follows is not compressed" in damage
    assert f"the {len(found):,} bytes" in damage


@pytest.mark.parametrize(("kind", "lost"), [("gzip", STEP), ("zstd", 128 << 10)])
def test_a_wrong_checksum(kind: str, lost: int) -> None:
    """What stood before it is given and counted, but for the last step, of Zstandard the last block."""
    data = random.Random(7).randbytes(720_000)
    checked = zstandard.ZstdCompressor(write_checksum=True).compress(data) if kind == "zstd" else gzip.compress(data)
    packed = bytearray(checked)
    packed[-5 if kind == "gzip" else -1] ^= 1
    found, damage = read(bytes(packed))
    assert data.startswith(found)
    assert len(data) - len(found) <= lost
    assert f"the {len(found):,} bytes" in damage


@pytest.mark.parametrize("kind", ["gzip", "zstd", "xz"])
def test_a_bomb(kind: str) -> None:
    """48 MiB of zeros in a few KiB: a read gives what it asks for, in bounded memory."""
    packed = KINDS[kind](bytes(48 << 20))
    file, total = unpacked(io.BytesIO(packed)), 0
    tracemalloc.start()
    while part := file.read(READ):
        assert len(part) <= READ
        total += len(part)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (total, file.damage) == (48 << 20, "")
    assert peak < 24 << 20


def test_a_window_that_is_too_large() -> None:
    """A file that asks for more memory than there may be is told, not unpacked."""
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 2 * MAX_WINDOW}]
    found, damage = read(lzma.compress(b"a line\n", filters=filters))
    assert found == b""
    assert "emory usage limit" in damage
