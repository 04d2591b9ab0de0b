"""Snappy's block format against a real encoder; what is no block is refused, and none grows beyond its bound."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.inputs.push.snappy import TURN, unpack

cramjam = pytest.importorskip("cramjam", reason="needs cramjam, of the extra dev")


def packed(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def unpacked(body: bytes, most: int = 1 << 20) -> bytes:
    turns = unpack(body, most)
    while True:
        try:
            assert not next(turns)
        except StopIteration as done:
            found: bytes = done.value
            return found


@given(st.lists(st.tuples(st.binary(max_size=80), st.integers(1, 300))))
def test_what_a_real_encoder_packs(parts: list[tuple[bytes, int]]) -> None:
    """Repeats of any length and distance come back as they were."""
    data = b"".join(part * times for part, times in parts)
    assert unpacked(packed(data), len(data)) == data


def test_far_and_long() -> None:
    """Literals of more than 64 KiB and copies from far back: elements of every kind, the event loop between them."""
    noise = random.Random(1).randbytes(200_000)
    data = noise + b"x" * 100_000 + noise[:70_000] + bytes(range(256)) * 40
    assert unpacked(packed(data)) == data
    far = (
        b"\x05" + b"\x0cabcd" + b"\x03\x04\x00\x00\x00"
    )  # a copy with an offset of 4 bytes, which encoders do not write
    assert unpacked(far) == b"abcda"
    lines = b"".join(b"line %d of many\n" % i for i in range(TURN))
    turns: list[list[object]] = list(unpack(packed(lines), 1 << 20))
    assert len(turns) >= 1


@pytest.mark.parametrize(
    "body",
    [b"", b"\x80", b"\xff\xff\xff\xff\xff\xff\x01", b"\x05", b"\x05\x10ab", b"\x04\x0cabc", b"\x05\x01\x01",
     b"\x05\x01", b"\x04\x00a\x01\x00", b"\x02\x00a\x3d\x01", b"\x02\x00a\x02", b"\x03\xf4\x01"],
)  # fmt: skip
def test_no_block(body: bytes) -> None:
    """Cut off, longer or shorter than it says, or copying from where nothing is."""
    with pytest.raises(ValueError, match=r"^(is|its|copies) "):
        unpacked(body)


def test_bounded() -> None:
    """What says that it is larger is refused before a byte is unpacked."""
    with pytest.raises(OverflowError):
        unpacked(packed(bytes(1001)), 1000)
