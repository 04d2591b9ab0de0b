"""Batches on the wire: what is sent comes back, compressed or not, and no frame is believed."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pytest
import zstandard

from tests.delivery.kit import alert
from vedette.delivery.batch import DICTIONARIES, press, split_batch
from vedette.delivery.envelope import MAX_MESSAGE, decode, decode_row, encode, pack_batch

LOG = "ab" * 16
RELEASED = {40001: "aeeff522e44d9ca319572a816c850540688c93450227afefd1ef7b518be94345"}
"""SHA-256 of the dictionaries by which agents of some version compress."""


def pressed(data: bytes, dictionaries: Iterable[int] = DICTIONARIES) -> bytes:
    compress = press(dictionaries)
    assert compress is not None
    return compress(data)


def frame(plain: bytes, number: int = 40001, **how: Any) -> bytes:
    """``plain`` by a dictionary, or by none, as a sender of another mind writes it."""
    dictionary = zstandard.ZstdCompressionDict(DICTIONARIES[number].read_bytes()) if number else None
    return zstandard.ZstdCompressor(dict_data=dictionary, **how).compress(plain)


@pytest.mark.parametrize("count", [0, 1, 2, 140, 1000])
def test_a_batch_comes_back(count: int) -> None:
    """It carries its numbering and its alerts in order, as it is and compressed, which takes a tenth."""
    alerts = [alert(seq) for seq in range(1, count + 1)]
    plain = pack_batch(LOG, [encode(one) for one in alerts])
    for data in (plain, pressed(plain)):
        log_id, parts = split_batch(data)
        assert (log_id, [decode(part) for part in parts]) == (LOG, alerts)
    if count:
        assert len(pressed(plain)) < 50 * count + 200


def test_one_bad_alert_does_not_take_the_batch_with_it() -> None:
    """``split_batch`` gives each alert's own bytes, so that the good ones can be read."""
    good = encode(alert(1))
    data = pack_batch(LOG, [good, b"\xc1", good])
    assert split_batch(data) == split_batch(pressed(data)) == (LOG, [good, b"\xc1", good])
    with pytest.raises(ValueError, match="is not msgpack"):
        decode_row(b"\xc1")


@pytest.mark.parametrize(
    "document",
    [
        {"log_id": 1, "alerts": []},
        {"log_id": LOG, "alerts": [{}]},
        {"log_id": LOG},
        {"log_id": LOG, "alerts": [b""] * 10_001},
    ],
)
def test_a_malformed_batch_is_refused(document: dict[str, Any]) -> None:
    """A batch without numbering, without alerts or beyond its bound raises ValueError, also out of a frame."""
    for data in (msgpack.packb(document), pressed(msgpack.packb(document))):
        with pytest.raises(ValueError, match=r"log_id|alerts|exceeds|msgpack"):
            split_batch(data)


def test_released_dictionaries_stay() -> None:
    """Each is there, unchanged, under the id in it: what an agent of any version sends can be read."""
    assert {number: sha256(path.read_bytes()).hexdigest() for number, path in DICTIONARIES.items()} == RELEASED
    for number, path in DICTIONARIES.items():
        assert zstandard.ZstdCompressionDict(path.read_bytes()).dict_id() == number
        assert path.stat().st_size <= 64 << 10


def test_a_later_dictionary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides use the highest that both know; a landing reads each that it has, and refuses others by name."""
    plain = pack_batch(LOG, [encode(alert(1))])
    samples = [pack_batch(LOG, [encode(alert(seq))]) for seq in range(500)]
    later = tmp_path / "40002.zdict"
    later.write_bytes(zstandard.train_dictionary(8192, samples, dict_id=40002).as_bytes())
    assert press([]) is press([40002]) is None
    former = pressed(plain)
    monkeypatch.setitem(DICTIONARIES, 40002, later)
    newer = pressed(plain, [40001, 40002, 50000])
    assert pressed(plain, [40001]) == former
    assert [zstandard.get_frame_parameters(data).dict_id for data in (former, newer)] == [40001, 40002]
    assert split_batch(former) == split_batch(newer) == split_batch(plain)
    monkeypatch.delitem(DICTIONARIES, 40002)
    with pytest.raises(ValueError, match=r"dictionary 40002, known are \[40001\]"):
        split_batch(newer)


PLAIN = pack_batch(LOG, [encode(alert(seq)) for seq in range(1, 4)])
GOOD = pressed(PLAIN)


def stated(size: int) -> bytes:
    """The header of a frame by 40001 that states this size of its content (8 bytes), in one segment."""
    return zstandard.FRAME_HEADER + bytes([0b1110_0010]) + (40001).to_bytes(2, "little") + size.to_bytes(8, "little")


HOSTILE = {
    "too large": (frame(Random(1).randbytes(8000) + bytes(MAX_MESSAGE - 7999)), "at most 1048576"),
    "a bomb": (frame(bytes(8 << 20), level=19), "for 8388608 bytes, at most"),
    "a bomb within the bound": (frame(bytes(MAX_MESSAGE)), "for 1048576 bytes, at most"),
    "a bomb that states little": (stated(100) + frame(bytes(1 << 20))[9:], "Zstandard"),
    "2**60 bytes stated": (stated(1 << 60), "at most"),
    "all bytes stated, none there": (stated(3000), "Zstandard"),
    "no size stated": (frame(PLAIN, write_content_size=False), "for 18446744073709551615 bytes, at most"),
    "no dictionary": (frame(PLAIN, 0), "dictionary 0"),
    "no id of its dictionary": (
        frame(PLAIN, compression_params=zstandard.ZstdCompressionParameters(write_dict_id=False)), "dictionary 0",
    ),
    "another dictionary": (GOOD[:5] + b"\x42\x9c" + GOOD[7:], "dictionary 40002"),
    "little of use": (
        frame(msgpack.packb({"log_id": LOG, "alerts": [encode(alert(1))], "pad": Random(1).randbytes(5000)})),
        "bytes beside its 1 alerts",
    ),
    "two frames": (GOOD + GOOD, "Zstandard"),
    "a byte behind": (GOOD + b"\0", "Zstandard"),
    "a skippable frame behind": (GOOD + b"\x50\x2a\x4d\x18\x04\0\0\0abcd", "Zstandard"),
    "a skippable frame before": (b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + GOOD, "msgpack"),
    "changed": (GOOD[:-10] + bytes([GOOD[-10] ^ 1]) + GOOD[-9:], "Zstandard"),
    "a window of 2 GiB": (zstandard.FRAME_HEADER + b"\x82\xa8\x41\x9c" + GOOD[-8:], "Zstandard|at most"),
    "a frame in a frame": (pressed(GOOD), "msgpack"),
    "nothing in it": (pressed(b""), "msgpack"),
    "over the wire's bound": (zstandard.FRAME_HEADER + bytes(MAX_MESSAGE), "at most 1048576"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_frame_is_refused(name: str) -> None:
    """With the reason, before anything is allocated for what it states."""
    data, says = HOSTILE[name]
    with pytest.raises(ValueError, match=says):
        split_batch(data)
    assert split_batch(GOOD) == split_batch(PLAIN)


def test_a_frame_that_is_cut_is_refused() -> None:
    """Wherever it is."""
    for end in range(len(GOOD)):
        with pytest.raises(ValueError, match=r"Zstandard|msgpack|at most"):
            split_batch(GOOD[:end])


def test_the_largest_batch() -> None:
    """MAX_MESSAGE bytes fit, out of any frame."""
    alerts = [bytes(400_000), Random(1).randbytes(400_000)]
    last = MAX_MESSAGE - len(pack_batch(LOG, [*alerts, bytes(70_000)])) + 70_000
    plain = pack_batch(LOG, [*alerts, bytes(last)])
    assert len(plain) == MAX_MESSAGE
    assert split_batch(pressed(plain)) == split_batch(frame(plain, level=19)) == split_batch(plain)


def test_what_gets_too_small_travels_as_it_is() -> None:
    """No frame that an agent sends is one that a landing refuses; the same alert again and again is far from it."""
    smallest = pack_batch(LOG, [bytes(400_000)])
    assert pressed(smallest) == smallest
    again = encode(alert(1, raw="x" * 2000, fields={"message": "x" * 1000}))
    plain = pack_batch(
        LOG, [again.replace(b"0" * 31, Random(seq).randbytes(16).hex()[1:].encode()) for seq in range(40)]
    )
    assert len(pressed(plain)) < len(plain) / 50
    assert split_batch(pressed(plain)) == split_batch(plain)
