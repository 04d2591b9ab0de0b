"""Documents that were written keep their bytes: what was signed is verified, and what lies on a disk is read.

``document_bytes.json`` has one of each kind as text (a receipt in hex).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgpack
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.differences import walk
from vedette.archive import index
from vedette.bundle.manifest import Manifest
from vedette.delivery.receipts import pack_receipt, unpack_receipt
from vedette.fleet import carried, enrolment, overlay, releases, requests
from vedette.fleet.audit import Head
from vedette.fleet.certificates import new_key
from vedette.fleet.documents import read_desired, read_rollout
from vedette.fleet.operators import read_operators
from vedette.fleet.replies import Part, Signer, pack
from vedette.region import members, sites
from vedette.region.steer.kept import Kept
from vedette.region.tokens import Tokens

BYTES = json.loads(Path(__file__).with_name("document_bytes.json").read_bytes())
BYTES = {name: bytes.fromhex(text) if name == "receipt" else text.encode() for name, text in BYTES.items()}
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
SECRET = bytes(32)
TOPIC = "vedette/v1/f1/a1/receipts"
ID = "0a" * 16


def _request(data: bytes, folder: Path) -> bytes:
    request, signature = requests.read(data)
    KEY.public_key().verify(signature, requests.DOMAIN + requests.canonical(request.document()))
    return request.signed(KEY)


def _receipt(data: bytes, folder: Path) -> bytes:
    receipt = unpack_receipt(data, TOPIC, [KEY.public_key()])
    return pack_receipt(receipt.log_id, receipt.ranges, TOPIC, KEY)


def _reply(data: bytes, folder: Path) -> bytes:
    part = Part(3, b"zz", 9, True, "done", "all of it")
    return msgpack.unpackb(pack(ID, part, Signer("plants", "vienna-1", new_key(), b"PEM")))["signed"]


def _carried(data: bytes, folder: Path) -> bytes:
    carried.pack(folder / "answer.zip", [("answer.json", data), ("audit.jsonl", b"")])
    answer = carried.read_answer(folder / "answer.zip", "plants", None)
    assert sites._head(answer.status) == Head(3, "ab" * 32)
    return dict(carried.answer("plants", answer.agent, answer.time, answer.status, b"", None))["answer.json"]


def _overlay(data: bytes, folder: Path) -> bytes:
    path = folder / "overlay.json"
    path.write_bytes(data)
    applied = overlay.Applied.open(folder)
    applied.govern("other")
    path.unlink()
    applied._write(overlay.structs.replace(applied.state, governed=("default",)))
    return path.read_bytes()


def _tokens(data: bytes, folder: Path) -> bytes:
    (folder / "tokens.json").write_bytes(data)
    Tokens(folder)._save()
    return (folder / "tokens.json").read_bytes()


def _members(data: bytes, folder: Path) -> bytes:
    (folder / "members.json").write_bytes(data)
    broker, group, by_name = members.load(folder / "members.json")
    return members.dump(broker, group, by_name.values())


def _steer(data: bytes, folder: Path) -> bytes:
    (folder / "state.json").write_bytes(data)
    memory = Kept(folder, lambda: 0)
    try:
        memory.write(memory.notes)
    finally:
        memory.close()
    return (folder / "state.json").read_bytes()


AGAIN: dict[str, Callable[[bytes, Path], bytes]] = {
    "carried": _carried,
    "desired": lambda data, folder: read_desired(data, "plants").to_bytes(),
    "enrol_answer": lambda data, folder: enrolment.frame(
        enrolment.ANSWER, enrolment.read_answer(data, SECRET, ID), SECRET
    ),
    "enrol_request": lambda data, folder: enrolment.frame(
        enrolment.REQUEST, enrolment.read_request(data, SECRET), SECRET
    ),
    "manifest": lambda data, folder: Manifest.from_bytes(data).to_bytes(),
    "members": _members,
    "operators": lambda data, folder: read_operators(data, "plants").to_bytes(),
    "overlay": _overlay,
    "receipt": _receipt,
    "release": lambda data, folder: releases.read(data).to_bytes(),
    "renewal": lambda data, folder: enrolment.read_renewal(data).to_bytes(),
    "renewal_request": lambda data, folder: enrolment.renewal_request(*enrolment.read_renewal_request(data)),
    "reply_head": _reply,
    "request": _request,
    "request_group": _request,
    "rollout": lambda data, folder: read_rollout(data, "plants").to_bytes(),
    "row": lambda data, folder: index.decode(data).encode(),
    "steer": _steer,
    "tokens": _tokens,
}


@walk("name", sorted(BYTES))
def test_bytes(name: str, tmp_path: Path) -> None:
    """A document is read, and written again as the bytes it had."""
    assert AGAIN[name](BYTES[name], tmp_path) == BYTES[name]
