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
from typing import Any, NamedTuple

import msgpack
import zstandard
from cryptography.hazmat.primitives.asymmetric import ec

from vedette.fleet.certificates import sign, signed_by, vouched
from vedette.fleet.documents import canonical
from vedette.system import foreign

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
STATES = ("done", "limited", "cancelled", "failed", "refused", "unknown")
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
        fields = msgpack.unpackb(message, max_str_len=16, max_bin_len=MAX_MESSAGE, max_array_len=0, max_map_len=4,
                                 raw=True, strict_map_key=False)  # fmt: skip
        signed, signature, certificate, data = (
            fields[name] for name in (b"signed", b"signature", b"certificate", b"data")
        )
        if not all(isinstance(one, bytes) for one in (signed, signature, certificate, data)):
            raise TypeError("expects bytes")
        head = foreign.read(signed)
        agent, part = _head(head)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ReplyRefused("malformed", f"not a part of a reply: {str(error)[:200]}") from error
    try:
        if authorities is not None:
            vouched(certificate, agent, authorities, revoked)
        if not signed_by(DOMAIN + signed, signature, certificate):
            raise ValueError(f"it is not signed by the key of {agent}")
    except ValueError as error:
        raise ReplyRefused("signature", str(error)) from error
    if head["fleet"] != fleet:
        raise ReplyRefused("fleet", f"it is of fleet {head['fleet']}")
    if hashlib.sha256(data).hexdigest() != head["sha256"]:
        raise ReplyRefused("digest", "its data are not those that were signed")
    return Reply(head["request"], agent, part._replace(data=data))


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
        found = [foreign.read(line, cut=True) for line in lines.splitlines()]
    except (zstandard.ZstdError, ValueError) as error:
        if isinstance(error, ReplyRefused):
            raise
        raise ReplyRefused("malformed", f"its records cannot be read: {error}") from error
    if len(lines) != part.size or not all(isinstance(one, dict) for one in found):
        raise ReplyRefused("malformed", "its records are no JSON objects")
    return found


def _head(head: Any) -> tuple[str, Part]:
    """Raises ValueError, TypeError, KeyError."""
    number, size, last, state = head["part"], head["size"], head["last"], head["state"]
    texts = [head[name] for name in ("request", "fleet", "agent", "sha256", "state", "reason")]
    if head["format"] != FORMAT or not all(isinstance(one, str) and len(one) <= MAX_REASON for one in texts):
        raise ValueError("its head has an unknown form")
    if type(number) is not int or not 0 <= number < 2**31 or type(size) is not int or not 0 <= size <= PART_RAW:
        raise ValueError("part and size: expects numbers within bounds")
    if type(last) is not bool or state not in ((*STATES,) if last else (RUNNING,)):
        raise ValueError("state: expects that of a last part, or running")
    return head["agent"], Part(number, b"", size, last, state, head["reason"])
