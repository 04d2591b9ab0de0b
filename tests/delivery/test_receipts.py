"""Receipts: what is signed comes back, whatever else is refused."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vedette.delivery.receipts import MAX_RANGES, MAX_RECEIPT, common, joined, pack_receipt, unpack_receipt

LOG = "ab" * 16
TOPIC = "vedette/v1/f1/a1/receipts"
LONGEST = [((1 << 62) + 2 * n, (1 << 62) + 2 * n) for n in range(MAX_RANGES)]
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


@pytest.mark.parametrize("ranges", [[(1, 5), (7, 7)], LONGEST])
def test_a_signed_receipt_comes_back(ranges: list[tuple[int, int]]) -> None:
    """Also by a reader that asks for no signature, and when another key is tried first."""
    data = pack_receipt(LOG, ranges, TOPIC, KEY)
    assert len(data) <= MAX_RECEIPT
    keys = [Ed25519PrivateKey.generate().public_key(), KEY.public_key()]
    receipt = unpack_receipt(data, TOPIC, keys)
    assert receipt == unpack_receipt(data)
    assert (receipt.log_id, [*receipt.ranges], receipt.dictionaries) == (LOG, ranges, ())


def test_what_a_landing_can_read_comes_with_a_receipt() -> None:
    """Beside what is signed, which stays as it was; former agents pass over the key, and its absence says nothing."""
    data = pack_receipt(LOG, [(1, 5)], TOPIC, KEY, [40001, 40002])
    assert unpack_receipt(data, TOPIC, [KEY.public_key()]).dictionaries == (40001, 40002)
    document = msgpack.unpackb(data)
    assert document.pop("dictionaries") == [40001, 40002]
    assert document == msgpack.unpackb(pack_receipt(LOG, [(1, 5)], TOPIC, KEY))
    for dictionaries in ("40001", [b"x"], [1.5], [1] * 1001):
        with pytest.raises(ValueError, match=r"dictionaries|max_array_len"):
            unpack_receipt(msgpack.packb({**document, "dictionaries": dictionaries}))


def test_the_signature_is_fixed() -> None:
    """The bytes that are signed do not change between versions: landings and agents are upgraded one by one."""
    signature = msgpack.unpackb(pack_receipt(LOG, [(1, 5), (7, 1 << 40)], TOPIC, KEY))["signature"]
    signed = msgpack.packb(["vedette receipt 1", TOPIC, LOG, [[1, 5], [7, 1 << 40]]])
    KEY.public_key().verify(signature, signed)


@pytest.mark.parametrize(
    ("change", "topic", "says"),
    [
        ({}, TOPIC.replace("a1", "a2"), "none of uplink.receipt_keys"),
        ({"log_id": "cd" * 16}, TOPIC, "none of uplink.receipt_keys"),
        ({"ranges": [[1, 6]]}, TOPIC, "none of uplink.receipt_keys"),
        ({"signature": bytes(64)}, TOPIC, "none of uplink.receipt_keys"),
        ({"signature": b""}, TOPIC, "none of uplink.receipt_keys"),
        ({"signature": None}, TOPIC, "not signed"),
        ({"signature": bytes(65)}, TOPIC, "max_bin_len"),
        ({"ranges": [[0, 0]] * 1001}, TOPIC, "max_array_len"),
        ({"ranges": [[1, [[]] * 900]]}, TOPIC, r"ranges\[0\]\[1\]: expects a seq"),
        ({"ranges": [[1]]}, TOPIC, r"ranges\[0\]: expects a list of 2"),
        ({"ranges": [[1, 1], [2, 1]]}, TOPIC, r"ranges: expects \[first, last\] with first <= last"),
    ],
)
def test_what_was_not_signed(change: dict[str, Any], topic: str, says: str) -> None:
    """A receipt that was changed, or is for another agent, is refused with the reason."""
    document = msgpack.unpackb(pack_receipt(LOG, [(1, 5)], TOPIC, KEY))
    with pytest.raises(ValueError, match=says):
        unpack_receipt(msgpack.packb({**document, **change}), topic, [KEY.public_key()])


def test_range_arithmetic() -> None:
    """Joined and common ranges name the same seqs as sets would."""
    some, others = [(5, 9), (1, 2), (3, 3), (8, 12)], [(2, 6), (11, 20)]
    assert joined(some) == [(1, 3), (5, 12)]
    assert common(joined(some), others) == [(2, 3), (5, 6), (11, 12)]
    assert joined([]) == common([], others) == []
