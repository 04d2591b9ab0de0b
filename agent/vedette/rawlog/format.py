"""The bytes of the raw log: segment names and headers, frames. Bytes and values in, values out.

A log is a run of **segments**, each one file named ``GENERATION-BASE-LOGID.seg``: the generation (decimal, 8 digits)
rises with every new log in a folder, the base (decimal, 20 digits) is the raw offset of the segment's first byte, so
names sort by age. A segment is one header and then frames, back to back. Integers are little-endian, as the hosts are.

Segment header, 80 bytes: magic ``VEDSEG2\\n`` · log_id 16 B · generation u64 · base u64 · first_event u64 · created_at
i64 · durable u64 · compacted u32 · checkpoint_size u32 · CRC32 of the checkpoint · CRC32 of all before it. Then the
**checkpoint** (``checkpoint.py``): what a store that is lost is made again from.

Frame, 68 bytes of header, then metadata, then body:
magic ``FE 'V' 'F' 01`` · meta_size u32 · meta_raw u32 · body_size u32 · raw_size u32 · events u32 · offset u64 ·
first_event u64 · durable u64 · received_at i64 · CRC32 of the metadata · CRC32 of the body · CRC32 of the header.

* The body is the chunk's bytes as one zstd frame (RFC 8878). The metadata is a msgpack map of what else the chunk
  holds, itself a zstd frame when ``meta_raw`` (its size before that) is not 0. A key at its default is left out.
* Every CRC of a frame starts from the CRC of its log_id. A frame of another log, or one that a sender has written
  inside an event, is therefore no frame of this log, also when a reader searches for the next magic after damage.
* The header's CRC covers the other two, so a header is trusted, and walked over, without reading its body.
* ``first_event`` numbers the log's events from 0: the difference across a hole is how many were in it.
* ``durable`` is the offset up to which the log was known to be on disk when the frame was written: a hole below it is
  damage to what was once safe, a hole above it is a write that never finished (see ``recover.py``).
* A **compacted frame** (magic ``FE 'V' 'P' 01``, header as above) holds neighbouring frames as one: their events'
  bytes, one after the other, are one body, and its metadata is a msgpack map of columns (``sizes events times durables
  metas meta_of``), a row for each frame. Offsets stay what they were, and a compacted frame has no holes. Sealed
  segments of small frames are compacted (``compaction.py``); their header says ``compacted`` 1.
* No length is believed before it is checked against MAX_RAW, MAX_META, MAX_BODY and MAX_CHECKPOINT.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate, chain
from operator import sub
from typing import Any, NamedTuple
from zlib import crc32

import msgpack
import zstandard

from vedette.model.event import Chunk, FilePosition, lines

MAX_RAW = 16 << 20
"""Bytes of events in one frame; also the most events in one."""
MAX_META = 16 << 20
"""Bytes of metadata before compression: room for 2 million events, each with its length, origin and message id, and
few marks. A chunk that takes more is halved (``halves.py``)."""
MAX_BODY = MAX_RAW + (MAX_RAW >> 8) + 64
"""Bytes of a body: what zstd may make of MAX_RAW bytes that do not compress."""
META_PLAIN = 512
"""Bytes up to which metadata is stored as it is."""
MAX_CHECKPOINT = 16 << 20
"""Bytes of a segment's checkpoint."""
LEVEL = 1
COMPACTED_LEVEL = 6
"""Of compacted frames, which are made once, in the background."""

SEGMENT_MAGIC = b"VEDSEG2\n"
FRAME_MAGIC = b"\xfeVF\x01"
COMPACTED_MAGIC = b"\xfeVP\x01"
_SEGMENT = struct.Struct("<8s16sQQQqQIIII")
_FRAME = struct.Struct("<4s5IQQQqIII")
SEGMENT_HEADER = _SEGMENT.size
FRAME_HEADER = _FRAME.size
_NAME = re.compile(r"(\d{8})-(\d{20})-([0-9a-f]{32})\.seg")


class SegmentHeader(NamedTuple):
    """The start of a segment. ``created_at`` is not before the ``received_at`` of any frame of an earlier segment.

    ``compacted``: 1 when it was compacted. ``checkpoint_size``, ``checkpoint_crc``: see ``encode_segment``.
    """

    log_id: str
    generation: int
    base: int
    first_event: int
    created_at: int
    durable: int
    compacted: int = 0
    checkpoint_size: int = 0
    checkpoint_crc: int = 0

    @property
    def size(self) -> int:
        """Bytes before the first frame."""
        return SEGMENT_HEADER + self.checkpoint_size


class FrameHeader(NamedTuple):
    """The start of a frame or a compacted one; sizes in bytes. A compacted frame's ``raw_size`` and ``events`` are
    those of its frames."""

    meta_size: int
    meta_raw: int
    body_size: int
    raw_size: int
    events: int
    offset: int
    first_event: int
    durable: int
    received_at: int
    meta_crc: int
    body_crc: int
    compacted: bool = False

    @property
    def size(self) -> int:
        """Of the whole frame in its segment."""
        return FRAME_HEADER + self.meta_size + self.body_size

    @property
    def end(self) -> int:
        """Raw offset after the frame."""
        return self.offset + self.raw_size


class Meta(NamedTuple):
    """What a frame holds beside its header and the events' bytes; ``lengths`` are those of the events, or None."""

    input: str
    codec: str
    lengths: array[int] | None
    origins: tuple[str, ...]
    origin_of: array[int] | None
    marks: tuple[tuple[int, int], ...]
    message_ids: array[int] | None
    file: FilePosition | None


class Part(NamedTuple):
    """A frame as it goes into a compacted frame and comes out of it. ``meta``: its metadata, msgpack, not
    compressed."""

    raw_size: int
    events: int
    received_at: int
    durable: int
    meta: bytes


def segment_name(generation: int, base: int, log_id: str) -> str:
    return f"{generation:08d}-{base:020d}-{log_id}.seg"


def parse_segment_name(name: str) -> tuple[int, int, str] | None:
    """Generation, base and log_id; None when ``name`` is not a segment's."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2]), match[3]) if match else None


def encode_segment(header: SegmentHeader, checkpoint: bytes = b"") -> bytes:
    """The header, which gets the ``checkpoint``'s size and checksum, and the checkpoint. Raises ValueError over
    MAX_CHECKPOINT."""
    if len(checkpoint) > MAX_CHECKPOINT:
        raise ValueError(f"a segment's checkpoint has at most {MAX_CHECKPOINT} bytes, not {len(checkpoint)}")
    log_id, *rest = header._replace(checkpoint_size=len(checkpoint), checkpoint_crc=crc32(checkpoint))
    packed = _SEGMENT.pack(SEGMENT_MAGIC, bytes.fromhex(log_id), *rest, 0)[:-4]
    return packed + crc32(packed).to_bytes(4, "little") + checkpoint


def decode_segment(data: bytes) -> SegmentHeader:
    """The header at the start of ``data``; raises ValueError."""
    if len(data) < SEGMENT_HEADER:
        raise ValueError("segment header is cut short")
    magic, log_id, *rest, crc = _SEGMENT.unpack_from(data)
    if magic != SEGMENT_MAGIC:
        raise ValueError("not a raw log segment")
    if crc32(data[: SEGMENT_HEADER - 4]) != crc:
        raise ValueError("segment header fails its checksum")
    header = SegmentHeader(log_id.hex(), *rest)
    if header.checkpoint_size > MAX_CHECKPOINT:
        raise ValueError("segment header has a size out of bounds")
    return header


def verify_checkpoint(header: SegmentHeader, checkpoint: bytes) -> None:
    """Raises ValueError when ``checkpoint`` is not the one that was written."""
    if len(checkpoint) != header.checkpoint_size or crc32(checkpoint) != header.checkpoint_crc:
        raise ValueError("segment checkpoint fails its checksum")


def _array(typecode: str, data: bytes | None) -> array[int] | None:
    """Raises TypeError and ValueError for what is none."""
    if data is None:
        return None
    items = array(typecode)
    items.frombytes(data)
    return items


def _meta(chunk: Chunk) -> bytes:
    """The metadata of ``chunk`` as a msgpack map; raises ValueError when the chunk contradicts itself."""
    fields: dict[str, Any] = {"input": chunk.input, "codec": chunk.codec}
    if chunk.ends is None:
        if chunk.data[-1:] != b"\n":
            raise ValueError(f"input {chunk.input!r}: a chunk of lines must end in a newline")
        if chunk.origin_of is not None or chunk.message_ids is not None:
            raise ValueError(f"input {chunk.input!r}: origins and message ids of single events need their ends")
    else:
        ends = chunk.ends
        if not ends or ends[-1] != len(chunk.data):
            raise ValueError(f"input {chunk.input!r}: the last event must end where the chunk does")
        try:
            lengths = array("I", map(sub, ends, chain((0,), ends)))
        except OverflowError as error:
            raise ValueError(f"input {chunk.input!r}: the ends of a chunk's events must ascend") from error
        if 0 in lengths:
            raise ValueError(f"input {chunk.input!r}: an event must not be empty")
        short = max(lengths) < 1 << 16
        fields["short" if short else "long"] = (array("H", lengths) if short else lengths).tobytes()
        for name, items in (("origin_of", chunk.origin_of), ("message_ids", chunk.message_ids)):
            if items is not None:
                if len(items) != len(ends):
                    raise ValueError(f"input {chunk.input!r}: {name} must have one entry per event")
                fields[name] = (items if items.typecode == "H" else array("H", items)).tobytes()
        if chunk.origin_of is not None and max(chunk.origin_of) >= len(chunk.origins):
            raise ValueError(f"input {chunk.input!r}: origin_of points outside origins")
    if not chunk.origins:
        raise ValueError(f"input {chunk.input!r}: origins must not be empty")
    if chunk.origins != ("",):
        fields["origins"] = chunk.origins
    if chunk.marks:
        fields["marks"] = chunk.marks
    if chunk.file is not None:
        fields["file"] = tuple(chunk.file)
    packed: bytes = msgpack.packb(fields, unicode_errors="surrogateescape")
    return packed


class Coder:
    """Frames of one log, to bytes and back. Not for use by two threads at once (it keeps the zstd contexts)."""

    __slots__ = ("_compress", "_decompress", "_press", "_seed")

    def __init__(self, log_id: str) -> None:
        self._seed = crc32(bytes.fromhex(log_id))
        self._compress = zstandard.ZstdCompressor(level=LEVEL)
        self._press: zstandard.ZstdCompressor | None = None
        self._decompress = zstandard.ZstdDecompressor()

    def encode(
        self, chunk: Chunk, *, events: int, offset: int, first_event: int, durable: int
    ) -> tuple[bytes, bytes, bytes]:
        """Header, metadata and body of a frame for ``chunk``, which has ``events`` events.

        Raises ValueError when the chunk is empty, over MAX_RAW or contradicts itself.
        """
        raw = len(chunk.data)
        if not 0 < raw <= MAX_RAW or not 0 < events <= MAX_RAW:
            raise ValueError(
                f"input {chunk.input!r}: a frame holds 1 to {MAX_RAW} bytes and events, not {raw} in {events}"
            )
        meta, meta_raw = _meta(chunk), 0
        if len(meta) > META_PLAIN:
            if len(meta) > MAX_META:
                raise ValueError(f"input {chunk.input!r}: {len(meta)} bytes of metadata are over {MAX_META}")
            meta, meta_raw = self._compress.compress(meta), len(meta)
        body = self._compress.compress(chunk.data)
        return self._framed(
            FRAME_MAGIC, meta, meta_raw, body, (raw, events, offset, first_event, durable, chunk.received_at)
        )

    def encode_compacted(
        self, parts: Sequence[Part], data: bytes, offset: int, first_event: int
    ) -> tuple[bytes, bytes, bytes]:
        """Header, metadata and body of a compacted frame of neighbouring frames; ``data``: the bytes of their events.

        Raises ValueError when there are none, or too much.
        """
        if not parts or len(data) > MAX_RAW or len(data) != sum(part.raw_size for part in parts):
            raise ValueError(f"a compacted frame holds frames of 1 to {MAX_RAW} bytes together, not {len(data)}")
        table: dict[bytes, int] = {}
        columns = {
            "sizes": [part.raw_size for part in parts],
            "events": [part.events for part in parts],
            "times": list(map(sub, (part.received_at for part in parts), chain((0,), (p.received_at for p in parts)))),
            "durables": list(map(sub, (part.durable for part in parts), chain((0,), (p.durable for p in parts)))),
            "meta_of": [table.setdefault(part.meta, len(table)) for part in parts],
            "metas": list(table),
        }
        plain = bytes(msgpack.packb(columns))
        if len(plain) > MAX_META:
            raise ValueError(f"{len(plain)} bytes of metadata are over {MAX_META}")
        if self._press is None:
            self._press = zstandard.ZstdCompressor(level=COMPACTED_LEVEL)
        meta, body = self._press.compress(plain), self._press.compress(data)
        events, newest = sum(part.events for part in parts), max(part.received_at for part in parts)
        figures = len(data), events, offset, first_event, parts[-1].durable, newest
        return self._framed(COMPACTED_MAGIC, meta, len(plain), body, figures)

    def _framed(
        self, magic: bytes, meta: bytes, meta_raw: int, body: bytes, figures: tuple[int, ...]
    ) -> tuple[bytes, bytes, bytes]:
        seed = self._seed
        # fmt: off
        header = _FRAME.pack(
            magic, len(meta), meta_raw, len(body), *figures, crc32(meta, seed), crc32(body, seed), 0,
        )[:-4]
        # fmt: on
        return header + crc32(header, seed).to_bytes(4, "little"), meta, body

    def header(self, data: bytes) -> FrameHeader:
        """The header of the frame at the start of ``data``; raises ValueError with the reason."""
        if len(data) < FRAME_HEADER:
            raise ValueError("frame header is cut short")
        magic, *rest, crc = _FRAME.unpack_from(data)
        if magic != FRAME_MAGIC and magic != COMPACTED_MAGIC:
            raise ValueError("no frame begins here")
        if crc32(data[: FRAME_HEADER - 4], self._seed) != crc:
            raise ValueError("frame header fails its checksum")
        header = FrameHeader(*rest)
        if magic == COMPACTED_MAGIC:
            header = header._replace(compacted=True)
        if not (
            0 < header.raw_size <= MAX_RAW
            and 0 < header.events <= MAX_RAW
            and 0 < header.body_size <= MAX_BODY
            and 0 < header.meta_size <= MAX_META
            and header.meta_raw <= MAX_META
        ):
            raise ValueError("frame header has a size out of bounds")
        return header

    def verify_meta(self, header: FrameHeader, data: bytes) -> None:
        """Raises ValueError when ``data`` is not the metadata that was written."""
        if len(data) != header.meta_size or crc32(data, self._seed) != header.meta_crc:
            raise ValueError("frame metadata fails its checksum")

    def plain_meta(self, header: FrameHeader, data: bytes) -> bytes:
        """The metadata ``data`` as msgpack; raises ValueError with the reason."""
        return self._inflate(data, header.meta_raw, "metadata") if header.meta_raw else data

    def meta(self, header: FrameHeader, data: bytes) -> Meta:
        """The metadata ``data`` (``header.meta_size`` bytes); raises ValueError with the reason."""
        self.verify_meta(header, data)
        return self._read_meta(header, self.plain_meta(header, data))

    def _read_meta(self, header: FrameHeader, data: bytes) -> Meta:
        try:
            return self._parse(header, msgpack.unpackb(data, unicode_errors="surrogateescape", use_list=False))
        except (AttributeError, KeyError, TypeError, ValueError, msgpack.UnpackException) as error:
            raise ValueError(f"frame metadata cannot be read: {error!r}") from error

    def unpack(self, header: FrameHeader, data: bytes) -> list[tuple[FrameHeader, Meta]]:
        """The frames of a compacted frame, whose metadata is ``data``; raises ValueError with the reason.

        Their headers have no sizes and no checksums of their own.
        """
        try:
            columns = msgpack.unpackb(self.plain_meta(header, data), use_list=False)
            sizes, events, metas, meta_of = (columns[name] for name in ("sizes", "events", "metas", "meta_of"))
            times, durables = accumulate(columns["times"]), accumulate(columns["durables"])
            if (sum(sizes), sum(events)) != (header.raw_size, header.events) or min(sizes) <= 0 or min(events) <= 0:
                raise ValueError("the frames of a compacted frame do not add up")
            offset, first, frames = header.offset, header.first_event, []
            for size, count, time, durable, number in zip(sizes, events, times, durables, meta_of, strict=True):
                frame = FrameHeader(0, 0, 0, size, count, offset, first, durable, time, 0, 0)
                frames.append((frame, self._read_meta(frame, metas[number])))
                offset, first = offset + size, first + count
        except (AttributeError, IndexError, KeyError, TypeError, msgpack.UnpackException) as error:
            raise ValueError(f"compacted metadata cannot be read: {error!r}") from error
        return frames

    @staticmethod
    def _parse(header: FrameHeader, fields: dict[str, Any]) -> Meta:
        get = fields.get
        lengths = _array("H", get("short")) or _array("I", get("long"))
        origin_of, message_ids = _array("H", get("origin_of")), _array("H", get("message_ids"))
        if lengths is not None and (len(lengths), sum(lengths)) != (header.events, header.raw_size):
            raise ValueError("the events' lengths do not add up")
        for items in (origin_of, message_ids):
            if items is not None and len(items) != header.events:
                raise ValueError("not one entry per event")
        file = FilePosition(*fields["file"]) if "file" in fields else None
        origins, marks = get("origins", ("",)), get("marks", ())
        return Meta(fields["input"], fields["codec"], lengths, origins, origin_of, marks, message_ids, file)

    def verify(self, header: FrameHeader, body: bytes) -> None:
        """Raises ValueError when ``body`` is not the one that was written."""
        if len(body) != header.body_size or crc32(body, self._seed) != header.body_crc:
            raise ValueError("frame body fails its checksum")

    def chunk(self, header: FrameHeader, meta: Meta, body: bytes) -> Chunk:
        """The chunk that was encoded; raises ValueError with the reason."""
        return self.chunk_of(header, meta, self.events(header, body))

    def events(self, header: FrameHeader, body: bytes) -> bytes:
        """The bytes of a frame's events; raises ValueError with the reason."""
        self.verify(header, body)
        return self._inflate(body, header.raw_size, "body")

    @staticmethod
    def chunk_of(header: FrameHeader, meta: Meta, data: bytes) -> Chunk:
        """The chunk of a frame, by its events' bytes; raises ValueError when these are not as many as it states."""
        if meta.lengths is None and lines(data) != header.events:
            raise ValueError("a frame's lines are not as many as it states")
        chunk = Chunk(
            input=meta.input,
            codec=meta.codec,
            received_at=header.received_at,
            data=data,
            ends=None if meta.lengths is None else array("I", accumulate(meta.lengths)),
            origins=meta.origins,
            origin_of=meta.origin_of,
            marks=meta.marks,
            message_ids=meta.message_ids,
            file=meta.file,
        )
        chunk.know(header.events)
        return chunk

    def _inflate(self, data: bytes, size: int, what: str) -> bytes:
        """Decompressed ``data``, which must give ``size`` bytes; allocates no more than that."""
        try:
            # The size that the zstd frame itself states is allocated unasked, so it is compared first.
            if zstandard.frame_content_size(data) != size:
                raise ValueError(f"frame {what} states another size")
            inflated = self._decompress.decompress(data, max_output_size=size, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise ValueError(f"frame {what} cannot be decompressed: {error}") from error
        if len(inflated) != size:
            raise ValueError(f"frame {what} is cut short")
        return inflated
