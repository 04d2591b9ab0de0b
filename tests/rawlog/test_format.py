"""The bytes of segments and frames."""

from __future__ import annotations

import struct
from array import array
from zlib import crc32

import msgpack
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rawlog.samples import line_chunks, lines, message_chunks, messages
from vedette.model.event import Chunk
from vedette.rawlog import format
from vedette.rawlog.format import Coder, SegmentHeader

LOG = "00112233445566778899aabbccddeeff"


def encode(chunk: Chunk, coder: Coder | None = None, offset: int = 100) -> bytes:
    coder = coder or Coder(LOG)
    return b"".join(coder.encode(chunk, events=len(chunk), offset=offset, first_event=7, durable=50))


def decode(data: bytes, log_id: str = LOG) -> Chunk:
    coder = Coder(log_id)
    header = coder.header(data)
    body = format.FRAME_HEADER + header.meta_size
    meta = coder.meta(header, data[format.FRAME_HEADER : body])
    return coder.chunk(header, meta, data[body : header.size])


def test_frame_bytes() -> None:
    """A frame is what the module's text says, byte for byte."""
    data = encode(lines(b"one", b"two", at=1234))
    seed = crc32(bytes.fromhex(LOG))
    fields = struct.unpack_from("<4s5IQQQq3I", data)
    magic, meta_size, meta_raw, body_size, raw, events, offset, first, durable, at, meta_crc, body_crc, head_crc = (
        fields
    )
    assert (magic, meta_raw, raw, events, offset, first, durable, at) == (b"\xfeVF\x01", 0, 8, 2, 100, 7, 50, 1234)
    meta, body = data[68 : 68 + meta_size], data[68 + meta_size :]
    assert msgpack.unpackb(meta) == {"input": "auth", "codec": "syslog"}
    assert zstandard.ZstdDecompressor().decompress(body) == b"one\ntwo\n"
    assert (meta_crc, body_crc, head_crc) == (crc32(meta, seed), crc32(body, seed), crc32(data[:64], seed))
    assert len(body) == body_size


def test_segment_header_bytes() -> None:
    """A segment's header and name are read back; a changed bit or a short one is refused."""
    header = SegmentHeader(LOG, 3, 1 << 40, 9, -5, 77)
    data = format.encode_segment(header)
    assert len(data) == 80
    assert data[:8] == b"VEDSEG2\n"
    assert format.decode_segment(data + b"frames") == header
    for i in range(len(data)):
        with pytest.raises(ValueError, match="segment"):
            format.decode_segment(data[:i] + bytes([data[i] ^ 4]) + data[i + 1 :])
        with pytest.raises(ValueError, match="cut short"):
            format.decode_segment(data[:i])
    name = format.segment_name(3, 1 << 40, LOG)
    assert name == f"00000003-00000001099511627776-{LOG}.seg"
    assert format.parse_segment_name(name) == (3, 1 << 40, LOG)
    assert format.parse_segment_name(name + ".tmp") is None
    assert format.parse_segment_name("lock") is None


@settings(max_examples=100)
@given(line_chunks() | message_chunks())
def test_round_trip(chunk: Chunk) -> None:
    """Any chunk comes back as it was."""
    assert decode(encode(chunk)) == chunk


def test_large_metadata_is_compressed() -> None:
    """Ten thousand equal messages cost far less metadata than their ends and ids take plain, and come back."""
    chunk = messages(*[b"x" * 10] * 10_000)
    data = encode(chunk)
    assert Coder(LOG).header(data).meta_size < 100_000 < Coder(LOG).header(data).meta_raw
    assert decode(data) == chunk


def test_long_event() -> None:
    """An event over 64 KiB keeps its length."""
    chunk = messages(b"a", b"b" * 70_000)
    assert decode(encode(chunk)) == chunk


@settings(max_examples=100)
@given(st.data())
def test_bit_flip_is_found(data: st.DataObject) -> None:
    """A frame with one changed bit is refused, wherever the bit is."""
    frame = bytearray(encode(messages(b"alpha", b"-", b"beta")))
    bit = data.draw(st.integers(0, len(frame) * 8 - 1))
    frame[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ValueError, match=r"frame|no frame"):
        decode(bytes(frame))


def test_cut_anywhere_is_found() -> None:
    """A frame cut at any byte is refused."""
    frame = encode(lines(b"hello", b"world"))
    for size in range(len(frame)):
        with pytest.raises(ValueError, match="frame"):
            decode(frame[:size])


def test_frame_of_another_log_is_none() -> None:
    """The CRCs belong to the log: the same bytes are no frame of another one."""
    with pytest.raises(ValueError, match="checksum"):
        decode(encode(lines(b"hello")), "ff" * 16)


def test_a_compacted_frame_says_what_its_frames_say() -> None:
    """How far the log was durable when the last was written, and when the newest was received."""
    coder = Coder(LOG)
    meta = msgpack.packb({"input": "a", "codec": "b"})
    parts = [format.Part(2, 1, at, durable, meta) for at, durable in ((5, 10), (9, 50), (3, 90))]
    header = coder.header(b"".join(coder.encode_compacted(parts, b"a\nb\nc\n", 100, 7)))
    assert (header.durable, header.received_at, header.events, header.end) == (90, 9, 3, 106)


def crafted(body: bytes, raw_size: int, meta: bytes | None = None, meta_raw: int = 0, meta_size: int = -1) -> bytes:
    """A frame with true checksums and these parts."""
    seed = crc32(bytes.fromhex(LOG))
    meta = msgpack.packb({"input": "a", "codec": "b"}) if meta is None else meta
    meta_size = len(meta) if meta_size < 0 else meta_size
    head = struct.pack(
        "<4s5IQQQqII",
        format.FRAME_MAGIC,
        meta_size,
        meta_raw,
        len(body),
        raw_size,
        1,
        0,
        0,
        0,
        0,
        crc32(meta, seed),
        crc32(body, seed),
    )
    return head + struct.pack("<I", crc32(head, seed)) + meta + body


@pytest.mark.parametrize("cut", [1, 3, 8])
def test_truncated_zstd_frame(cut: int) -> None:
    """A zstd frame that is cut short is refused even when every checksum is right."""
    line = b"hello world, " * 50 + b"\n"
    body = zstandard.ZstdCompressor(level=1).compress(line)
    assert decode(crafted(body, 651)).data == line
    with pytest.raises(ValueError, match="frame body"):
        decode(crafted(body[:-cut], 651))


def test_lines_that_do_not_add_up() -> None:
    """A frame with more or fewer lines than it states is refused even when every checksum is right."""
    for line in (b"no newline", b"two\nlines\n"):
        body = zstandard.ZstdCompressor(level=1).compress(line)
        with pytest.raises(ValueError, match="as many as it states"):
            decode(crafted(body, len(line)))


def test_zstd_size_is_not_believed() -> None:
    """A zstd frame that states (or gives) more than the header's size is refused before it is allocated."""
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(64 << 20))
    with pytest.raises(ValueError, match="another size"):
        decode(crafted(bomb, 1000))
    unsized = zstandard.ZstdCompressor(level=1, write_content_size=False).compress(bytes(64 << 20))
    with pytest.raises(ValueError, match="frame body"):
        decode(crafted(unsized, 1000))


@pytest.mark.parametrize(
    ("raw", "meta_size", "meta_raw"), [(0, -1, 0), ((16 << 20) + 1, -1, 0), (5, 1 << 31, 0), (5, -1, 1 << 31)]
)
def test_absurd_sizes_are_refused(raw: int, meta_size: int, meta_raw: int) -> None:
    """No size over its bound is believed, even under a right checksum."""
    with pytest.raises(ValueError, match="out of bounds"):
        decode(crafted(b"x", raw, meta_size=meta_size, meta_raw=meta_raw))


@pytest.mark.parametrize(
    "meta",
    [
        b"",
        b"\xc1",
        msgpack.packb([1]),
        msgpack.packb({"codec": "x"}),
        msgpack.packb({"input": "a", "codec": "b", "short": b"abc"}),
        msgpack.packb({"input": "a", "codec": "b", "short": b"\x01\x00\x01\x00"}),
        msgpack.packb({"input": "a", "codec": "b", "message_ids": b"\x01\x00\x01\x00"}),
        msgpack.packb({"input": "a", "codec": "b", "file": ["p"]}),
    ],
)
def test_metadata_that_makes_no_sense(meta: bytes) -> None:
    """Metadata that is no map of the right things is refused as such."""
    body = zstandard.ZstdCompressor().compress(b"hello")
    with pytest.raises(ValueError, match="frame"):
        decode(crafted(body, 5, meta))


def test_16_mib_bound() -> None:
    """A chunk of 16 MiB is a frame; one byte more, or none, is refused with the bound named."""
    full = Chunk("a", "text", 0, bytes(format.MAX_RAW - 1) + b"\n")
    assert decode(encode(full)).data == full.data
    for data in (full.data + b"\n", b""):
        with pytest.raises(ValueError, match="16777216"):
            encode(Chunk("a", "text", 0, data))


@pytest.mark.parametrize(
    ("chunk", "reason"),
    [
        (Chunk("a", "text", 0, b"no newline"), "newline"),
        (Chunk("a", "text", 0, b"abc", ends=array("I", [2])), "end"),
        (Chunk("a", "text", 0, b"abc", ends=array("I", [2, 1, 3])), "ascend"),
        (Chunk("a", "text", 0, b"abc", ends=array("I", [3]), origin_of=array("H", [1])), "origin"),
        (Chunk("a", "text", 0, b"abc", ends=array("I", [3]), message_ids=array("H")), "one entry"),
        (Chunk("a", "text", 0, b"abc\n", message_ids=array("H", [1])), "ends"),
        (Chunk("a", "text", 0, b"abc\n", origins=()), "origins"),
    ],
)
def test_chunk_that_contradicts_itself(chunk: Chunk, reason: str) -> None:
    """A chunk that could not be read back as it is, is refused with its input named."""
    with pytest.raises(ValueError, match=f"input 'a'.*{reason}"):
        Coder(LOG).encode(chunk, events=1, offset=0, first_event=0, durable=0)
