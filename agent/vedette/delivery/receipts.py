"""Receipts: the region's word that alerts are on its disk, on which an agent deletes them.

* A **receipt** is a msgpack map ``{"log_id": str, "ranges": [[first seq, last seq], ...], "signature": bin}``, both
  ends included; without a signing key it has no ``signature``. ``log_id`` names the numbering (``Outbox.log_id``).
  ``"dictionaries": [int, ...]`` says by which of them this landing reads compressed batches (``delivery/batch.py``).
  ``"resend_after": int`` asks agents to wait for a receipt so many seconds at least, where more than they do.
  Former agents pass over both, former landings leave them out. They are not signed: forged, they only delay alerts.
* The **signature** is Ed25519 (RFC 8032) of the msgpack array ``["vedette receipt 1", topic, log_id, ranges]`` with
  every number and length in its shortest form. ``topic`` is the one it is published on, so a receipt is good for one
  agent and one numbering. Replayed, it names alerts that are gone already: a ``seq`` is given once in a numbering.
* One message has at most ``MAX_RANGES`` ranges and ``MAX_RECEIPT`` bytes; a longer one is not parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import msgpack
from msgspec import Meta, Struct

from vedette.delivery.envelope import MAX_VALUE, unpack
from vedette.system import documents

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

MAX_RECEIPT = 64 << 10
MAX_RANGES = 1000
_SIGNATURE = 64
"""Bytes."""
_Seq = Annotated[int, Meta(ge=0, le=(1 << 63) - 1, description="a seq from 0 to 2**63 - 1")]


class Receipt(Struct, frozen=True):
    """See the module's text."""

    log_id: str
    ranges: Annotated[tuple[tuple[_Seq, _Seq], ...], Meta(description="a list of [first, last]")]
    dictionaries: tuple[int, ...] = ()
    resend_after: documents.Count = 0
    signature: Any = None

    def __post_init__(self) -> None:
        if any(first > last for first, last in self.ranges):
            raise documents.Misfit("ranges", "expects [first, last] with first <= last")


def pack_receipt(
    log_id: str,
    ranges: Sequence[tuple[int, int]],
    topic: str = "",
    key: Ed25519PrivateKey | None = None,
    dictionaries: Sequence[int] = (),
    resend_after: int = 0,
) -> bytes:
    """The message for ``topic`` that says alerts ``first..last`` of each range are on the region's disk."""
    document: dict[str, object] = {"log_id": log_id, "ranges": [list(pair) for pair in ranges]}
    if dictionaries:
        document["dictionaries"] = list(dictionaries)
    if resend_after:
        document["resend_after"] = resend_after
    if key is not None:
        document["signature"] = key.sign(_signed(topic, log_id, ranges))
    data: bytes = msgpack.packb(document)
    return data


def unpack_receipt(data: bytes, topic: str = "", keys: Sequence[Ed25519PublicKey] = ()) -> Receipt:
    """The receipt that came on ``topic``.

    Raises ValueError when it is none, or when ``keys`` are given and none of them signed it.
    """
    if len(data) > MAX_RECEIPT:
        raise ValueError(f"{len(data)} bytes, at most {MAX_RECEIPT}")
    document = unpack(data, items=MAX_RANGES, text=MAX_VALUE, binary=_SIGNATURE)
    receipt = documents.read(Receipt, document)
    if keys:
        _verify(receipt.signature, _signed(topic, receipt.log_id, receipt.ranges), keys)
    return receipt


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same seqs as ascending ranges that neither touch nor overlap."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def ranges(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """``seqs`` (any order, doubles allowed) as ascending ranges without gaps."""
    return joined((seq, seq) for seq in seqs)


def common(some: Iterable[tuple[int, int]], others: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The seqs that are in both; each as ``joined`` gives it."""
    shared, at = [], 0
    for first, last in some:
        while at < len(others) and others[at][1] < first:
            at += 1
        for a, b in islice(others, at, None):
            if a > last:
                break
            shared.append((max(a, first), min(b, last)))
    return shared


def _signed(topic: str, log_id: str, ranges: Sequence[tuple[int, int]]) -> bytes:
    data: bytes = msgpack.packb(["vedette receipt 1", topic, log_id, ranges])
    return data


def _verify(signature: object, signed: bytes, keys: Sequence[Ed25519PublicKey]) -> None:
    if not isinstance(signature, bytes):
        raise ValueError("it is not signed, and uplink.receipt_keys asks for it: run landings with --receipt-key")
    from cryptography.exceptions import InvalidSignature

    for key in keys:
        with suppress(InvalidSignature):
            return key.verify(signature, signed)
    raise ValueError("none of uplink.receipt_keys signed it")
