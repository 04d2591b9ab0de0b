"""A batch of alerts on the wire: compressed by the agent, taken apart by the landing.

* A **batch** is the msgpack map of ``envelope.pack_batch``. Each alert is kept as its own bytes, so that one that
  cannot be read does not take the others with it: ``split_batch``, then ``decode_row`` for each.
* **Compressed** it is that map in one Zstandard frame (RFC 8878), which states the size of its content and the id of
  its dictionary. ``DICTIONARIES`` has all that this version knows, each in a file that never changes, trained by
  ``bench/dictionary.py``. A later version adds one and keeps the others.
* **Who may**: a landing says in its receipts which dictionaries it knows; an agent compresses by the highest of them
  that it knows as well.

A frame is believed in nothing: without a stated size, or with one beyond ``MAX_MESSAGE`` or ``MOST_TIMES`` its own, it
is refused before anything is allocated for it; so is one by another dictionary, one that is cut, and one with anything
behind it, or with more than BESIDE bytes in it that are no alert: what unpacks to little of use would cost its sender
nothing. What gets smaller than a frame may be travels as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgpack
import zstandard

from vedette.delivery.envelope import MAX_BATCH, MAX_FIELDS, MAX_MESSAGE, flat

DICTIONARIES = {int(path.stem): path for path in (Path(__file__).parent / "dictionaries").glob("*.zdict")}
"""By the id in it."""
MOST_TIMES = 256
"""So much larger than its frame a batch may be. Alerts in a burst are 14 times as large, of one event again and again
30 to 200 times."""
BESIDE = 4096
LEVEL = 1
"""Of zstd: higher ones take two to ten times as long, and save a twentieth of a single alert and nothing of many."""


def press(dictionaries: Iterable[int]) -> Callable[[bytes], bytes] | None:
    """What compresses a batch for a landing that has these dictionaries; None: this version has none of them."""
    both = DICTIONARIES.keys() & dictionaries
    if not both:
        return None
    compress = _compressor(max(both)).compress

    def pressed(plain: bytes) -> bytes:
        frame = compress(plain)
        return frame if len(plain) <= MOST_TIMES * len(frame) else plain

    return pressed


@cache
def _compressor(number: int) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=LEVEL, dict_data=_dictionary(number), write_checksum=True)


@cache
def _decompressor(number: int) -> zstandard.ZstdDecompressor:
    return zstandard.ZstdDecompressor(dict_data=_dictionary(number))


def _dictionary(number: int) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(DICTIONARIES[number].read_bytes(), zstandard.DICT_TYPE_FULLDICT)


def split_batch(data: bytes) -> tuple[str, list[bytes]]:
    """``log_id`` and the encoded alerts of a batch, not yet read; raises ValueError."""
    if len(data) > MAX_MESSAGE:
        raise ValueError(f"{len(data)} bytes, at most {MAX_MESSAGE}")
    if not data.startswith(zstandard.FRAME_HEADER):
        return _split(data)
    plain = _unpressed(data)
    log_id, alerts = _split(plain)
    if (beside := len(plain) - sum(map(len, alerts))) > BESIDE + 8 * len(alerts):
        raise ValueError(f"a compressed batch with {beside} bytes beside its {len(alerts)} alerts")
    return log_id, alerts


def _unpressed(frame: bytes) -> bytes:
    try:
        stated = zstandard.get_frame_parameters(frame)
        most = min(MAX_MESSAGE, MOST_TIMES * len(frame))
        if stated.content_size > most:  # also when it states none
            raise ValueError(f"a frame for {stated.content_size} bytes, at most {most}")
        if stated.dict_id not in DICTIONARIES:
            raise ValueError(f"compressed by dictionary {stated.dict_id}, known are {sorted(DICTIONARIES)}")
        return _decompressor(stated.dict_id).decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(f"is not a batch in Zstandard: {error}") from error


def _split(data: bytes) -> tuple[str, list[bytes]]:
    log_id: object = None
    alerts: list[bytes] | None = None
    try:
        unpacker = flat(data)
        for _ in range(min(unpacker.read_map_header(), MAX_FIELDS)):
            match unpacker.unpack():
                case "log_id":
                    log_id = unpacker.unpack()
                case "alerts":
                    alerts = list(_binaries(unpacker))
                case _:
                    unpacker.skip()
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"is not a batch in msgpack: {str(error) or type(error).__name__}") from error
    if unpacker.tell() != len(data):
        raise ValueError(f"{len(data)} bytes, of which the batch has only {unpacker.tell()}")
    if not isinstance(log_id, str) or not log_id:
        raise ValueError("log_id: missing, empty or not a string")
    if alerts is None:
        raise ValueError("alerts: missing")
    return log_id, alerts


def _binaries(unpacker: Any) -> Iterator[bytes]:
    count = unpacker.read_array_header()
    if count > MAX_BATCH:
        raise ValueError(f"alerts: {count} in one batch, at most {MAX_BATCH}")
    for _ in range(count):
        data = unpacker.unpack()
        if type(data) is not bytes:
            raise ValueError("alerts: not a list of binaries")
        yield data
