"""A reply as it travels: numbered parts, each signed by the agent's certificate key. Bytes and values.

A part is a msgpack map ``{"signed", "signature", "certificate", "data"}``: ``signed`` is JSON in one form
(``documents.canonical``), ``signature`` ECDSA by the key of ``certificate`` (PEM) over ``DOMAIN`` and it, ``data`` one
zstd frame (RFC 8878) of JSON lines, the records::

    {"format": 1, "request": id, "fleet", "agent", "part": n from 0, "size": bytes of the lines, "sha256": of the frame,
     "last": bool, "state": "running" | STATES, "reason": text}

Each part proves itself, so a forged one is refused alone and the others count; parts may come in any order, twice, and
over several connections. Nothing of a part is unpacked before its signature, its digest and its stated size were
checked: a bomb by an agent whose key was stolen is refused by the frame's own header.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgpack
import zstandard
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Meta, Struct

from vedette.fleet.certificates import sign, signed_by, vouched
from vedette.fleet.documents import canonical
from vedette.system import documents, foreign

FORMAT = 1
DOMAIN = b"vedette reply 1\n"
PART_RAW = 512 << 10
"""Bytes of a part's lines, at most."""
MAX_RECORD = 128 << 10
"""Bytes of a line."""
MAX_MESSAGE = PART_RAW + (64 << 10)
"""Bytes of a part as it travels."""
MAX_REASON = 500
"""Characters."""
RUNNING = "running"
_Ended = Literal["done", "limited", "cancelled", "failed", "refused", "unknown"]
STATES: tuple[str, ...] = get_args(_Ended)
"""How a reply ends. ``limited``: what it may take was used up; what came is true, and not all. ``unknown``: the agent
works on no such request, and answers a ``resume`` or ``cancel``."""
_WINDOW = 8 << 20
_FRAME = 512
"""Bytes by which a frame may be longer than what is in it, beside a 128th."""


class ReplyRefused(ValueError):
    """The part is not believed. ``kind``: a word for machines."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Part(NamedTuple):
    """``data``: the records as one zstd frame, ``size`` bytes when unpacked."""

    number: int
    data: bytes
    size: int
    last: bool = False
    state: str = RUNNING
    reason: str = ""


class Reply(NamedTuple):
    """A part that was proved to be of this agent's reply to this request."""

    request: str
    agent: str
    part: Part


class Signer(NamedTuple):
    """An agent's name, key and certificate (PEM)."""

    fleet: str
    agent: str
    key: ec.EllipticCurvePrivateKey
    certificate: bytes


_Text = Annotated[str, Meta(max_length=MAX_REASON, description=f"a text of at most {MAX_REASON} characters")]


class _Message(Struct, frozen=True):
    signed: bytes
    signature: bytes
    certificate: bytes
    data: bytes


class _Head(Struct, frozen=True):
    """What is signed."""

    request: _Text
    fleet: _Text
    agent: _Text
    part: Annotated[int, Meta(ge=0, lt=2**31, description="the number of a part")]
    size: Annotated[int, Meta(ge=0, le=PART_RAW, description=f"0 to {PART_RAW} bytes")]
    sha256: _Text
    last: bool
    state: Literal["running"] | _Ended
    reason: _Text

    def __post_init__(self) -> None:
        if self.last == (self.state == RUNNING):
            raise documents.Misfit("state", "expects that of a last part, or running")


def packed(lines: bytes) -> bytes:
    """The frame of a part."""
    return zstandard.ZstdCompressor(level=3, write_content_size=True).compress(lines)


def pack(request: str, part: Part, signer: Signer) -> bytes:
    signed = canonical({
        "format": FORMAT, "request": request, "fleet": signer.fleet, "agent": signer.agent, "part": part.number,
        "size": part.size, "sha256": hashlib.sha256(part.data).hexdigest(), "last": part.last, "state": part.state,
        "reason": part.reason[:MAX_REASON],
    })  # fmt: skip
    message: bytes = msgpack.packb({
        "signed": signed, "signature": sign(DOMAIN + signed, signer.key), "certificate": signer.certificate,
        "data": part.data,
    })  # fmt: skip
    return message


def unpack(message: bytes, fleet: str, authorities: bytes | None, revoked: Collection[int] = ()) -> Reply:
    """The part in ``message``, its records still packed. ``authorities`` (PEM) vouch for agents, ``revoked`` are serial
    numbers of certificates. ``authorities`` None: they vouched when it came, and who holds its certificate now, or not
    any more, is no matter. Raises ReplyRefused."""
    try:
        if len(message) > MAX_MESSAGE:
            raise ValueError(f"{len(message)} bytes, at most {MAX_MESSAGE}")
        fields = msgpack.unpackb(
            message, max_str_len=16, max_bin_len=MAX_MESSAGE, max_array_len=0, max_map_len=4, max_ext_len=0
        )
        proof = documents.read(_Message, fields)
        head = documents.read(_Head, documents.of_format(foreign.read(proof.signed), FORMAT))
    except (ValueError, msgpack.UnpackException) as error:
        raise ReplyRefused("malformed", f"not a part of a reply: {str(error)[:200]}") from error
    try:
        if authorities is not None:
            vouched(proof.certificate, head.agent, authorities, revoked)
        if not signed_by(DOMAIN + proof.signed, proof.signature, proof.certificate):
            raise ValueError(f"it is not signed by the key of {head.agent}")
    except ValueError as error:
        raise ReplyRefused("signature", str(error)) from error
    if head.fleet != fleet:
        raise ReplyRefused("fleet", f"it is of fleet {head.fleet}")
    if hashlib.sha256(proof.data).hexdigest() != head.sha256:
        raise ReplyRefused("digest", "its data are not those that were signed")
    return Reply(head.request, head.agent, Part(head.part, proof.data, head.size, head.last, head.state, head.reason))


def records(part: Part) -> list[dict[str, Any]]:
    """What a part says, nested as ``foreign.read`` cuts it. Raises ReplyRefused for one that is damaged or unpacks to
    more than it may."""
    try:
        if len(part.data) > part.size + (part.size >> 7) + _FRAME:
            raise ReplyRefused("bomb", f"{len(part.data)} bytes for {part.size} unpacked")
        stated = zstandard.get_frame_parameters(part.data)
        if stated.content_size != part.size or part.size > PART_RAW or stated.window_size > _WINDOW:
            raise ReplyRefused("bomb", f"unpacked it has {stated.content_size} bytes, not {part.size} as was signed")
        lines = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompress(
            part.data, max_output_size=PART_RAW, allow_extra_data=False
        )
        rows = [foreign.read(line, cut=True) for line in lines.splitlines()]
    except (zstandard.ZstdError, ValueError) as error:
        if isinstance(error, ReplyRefused):
            raise
        raise ReplyRefused("malformed", f"its records cannot be read: {error}") from error
    if len(lines) != part.size or not all(isinstance(row, dict) for row in rows):
        raise ReplyRefused("malformed", "its records are no JSON objects")
    return rows
