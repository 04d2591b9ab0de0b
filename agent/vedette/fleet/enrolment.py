"""What a host and its region say to each other when the host enrols: a token, a request, an answer. Pure.

A **token** lets its holder become a member of one fleet: ``v1:FLEET:ID:SECRET``, SECRET being 32 random bytes in
base64url. The secret is never sent. Both messages are one frame::

    64 hex digits of HMAC-SHA256(secret, kind + LF + body)   LF   body (JSON)

so that the region knows that the request is of who holds the token, and the host that the answer, the region's
authorities in it, is of who made the token: no certificate has to be on the host beforehand, and who reads along, the
broker too, can use neither. ``kind`` keeps a request from passing for an answer.

    request  {"format": 1, "id", "token", "fleet", "name", "csr": PEM, "machine": hex, "version": text, "time": int}
    answer   {"format": 1, "id", "certificate": PEM, "authorities": PEM, "settings": {}, "files": {name: text}}
        or   {"format": 1, "id", "refused": reason}

The key stays on the host: the request holds a certificate signing request, whose own signature proves that its sender
has the key. Of its subject nothing is believed; the name is the request's. ``machine`` is a digest of the host's
machine-id: it tells an operator "the same host again", and proves nothing.

A member that has a certificate **renews** it over its own connection, where the broker's access list proves who asks:
request and answer are::

    {"format": 1, "csr": PEM, "signature": base64}
    {"format": 1, "certificate": PEM, "authorities": PEM, "signature": base64}

The one signature is that of ``csr`` by the key that the certificate in force is for; the other that of ``authorities``
by an authority that the host trusts already. So neither side has to trust the broker.

Whatever is wrong raises ``EnrolmentRefused``, whose text says what, and what to do.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import orjson

from vedette.system import foreign
from vedette.system.within import is_name

FORMAT = 1
MAX_MESSAGE = 64 << 10
"""Bytes of a request or an answer."""
MAX_CSR = 8 << 10
REQUEST, ANSWER = "vedette-enrolment-request", "vedette-enrolment-answer"
"""Kinds of messages."""
_TOKEN = re.compile(r"v1:([A-Za-z0-9._-]{1,64}):([0-9a-f]{16}):([A-Za-z0-9_-]{43})")
_ID = re.compile(r"[0-9a-f]{32}")
_HEX = re.compile(r"[0-9a-f]{0,64}")


class EnrolmentRefused(ValueError):
    """A token, a request or an answer that cannot be used."""


class Token(NamedTuple):
    """Who holds it may enrol in ``fleet``; ``secret`` is 32 bytes."""

    fleet: str
    id: str
    secret: bytes

    def text(self) -> str:
        return f"v1:{self.fleet}:{self.id}:{urlsafe_b64encode(self.secret).rstrip(b'=').decode()}"


def new_token(fleet: str) -> Token:
    return Token(fleet, secrets.token_hex(8), secrets.token_bytes(32))


def parse_token(text: str) -> Token:
    """Raises EnrolmentRefused; its text never holds the secret."""
    if (found := _TOKEN.fullmatch(text.strip())) is None or not is_name(found[1]):
        raise EnrolmentRefused("not a token: expects v1:FLEET:ID:SECRET, as 'vedette region token create' prints it")
    return Token(found[1], found[2], urlsafe_b64decode(found[3] + "="))


@dataclass(frozen=True, slots=True)
class Request:
    """``name`` asks to become a member; ``time`` in UTC microseconds, for people only."""

    id: str
    token: str
    fleet: str
    name: str
    csr: str
    machine: str = ""
    version: str = ""
    time: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """A certificate and the authorities to trust (PEM), or why not.

    ``settings``: what the region says of the host: ``labels``, ``receipt_keys``, ``trusted_keys``; ``files``: more for
    the host, such as the root of trust of its fleet, by name.
    """

    id: str
    certificate: str = ""
    authorities: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Renewal:
    """A new certificate and the authorities to trust (PEM); ``signature`` of ``authorities``, as bytes."""

    certificate: str
    authorities: str
    signature: bytes

    def to_bytes(self) -> bytes:
        return orjson.dumps({"format": FORMAT, **asdict(self), "signature": b64encode(self.signature).decode()})


def frame(kind: str, message: Request | Answer, secret: bytes) -> bytes:
    """``message`` as bytes that say who wrote it."""
    body = orjson.dumps({"format": FORMAT, **asdict(message)})
    return _mac(kind, body, secret).encode() + b"\n" + body


def token_of(data: bytes) -> str:
    """The token that a request names, before anything is believed. Raises EnrolmentRefused."""
    _, _, body = data.partition(b"\n")
    return _text(_object_of(body), "token", 16)


def read_request(data: bytes, secret: bytes) -> Request:
    """Raises EnrolmentRefused."""
    body = _checked(REQUEST, data, secret)
    moment = body.get("time", 0)
    request = Request(
        _text(body, "id", 32), _text(body, "token", 16), _text(body, "fleet", 64), _text(body, "name", 64),
        _text(body, "csr", MAX_CSR), _text(body, "machine", 64), _text(body, "version", 64),
        moment if isinstance(moment, int) and not isinstance(moment, bool) else 0,
    )  # fmt: skip
    if not _ID.fullmatch(request.id) or not _HEX.fullmatch(request.machine):
        raise EnrolmentRefused("the request's id or machine is malformed")
    if not is_name(request.name, 64):
        raise EnrolmentRefused(
            f"name {request.name!r}: expects 1 to 64 letters, digits, '.', '_' or '-', no dot at the beginning"
        )
    return request


def read_answer(data: bytes, secret: bytes, id: str) -> Answer:
    """The answer to the request ``id``. Raises EnrolmentRefused."""
    body = _checked(ANSWER, data, secret)
    answer = Answer(
        _text(body, "id", 32), _text(body, "certificate", MAX_MESSAGE), _text(body, "authorities", MAX_MESSAGE),
        _object(body, "settings"), _texts(body, "files"), _text(body, "refused", 1000),
    )  # fmt: skip
    if answer.id != id:
        raise EnrolmentRefused("the answer is to another request")
    return answer


def renewal_request(csr: str, signature: bytes) -> bytes:
    """What ``read_renewal_request`` reads."""
    return orjson.dumps({"format": FORMAT, "csr": csr, "signature": b64encode(signature).decode()})


def read_renewal_request(data: bytes) -> tuple[str, bytes]:
    """The signing request and its signature by the key that it replaces. Raises EnrolmentRefused."""
    body = _object_of(data)
    return _text(body, "csr", MAX_CSR), _signature(body)


def read_renewal(data: bytes) -> Renewal:
    """Raises EnrolmentRefused."""
    body = _object_of(data)
    certificate, authorities = (_text(body, key, MAX_MESSAGE) for key in ("certificate", "authorities"))
    return Renewal(certificate, authorities, _signature(body))


# --- frames


def _mac(kind: str, body: bytes, secret: bytes) -> str:
    return hmac.new(secret, kind.encode() + b"\n" + body, hashlib.sha256).hexdigest()


def _object_of(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_MESSAGE:
        raise EnrolmentRefused(f"a message of {len(data):,} bytes: at most {MAX_MESSAGE:,}")
    try:
        body = foreign.read(data)
    except ValueError as error:
        raise EnrolmentRefused(f"not a message of enrolment: {error}") from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise EnrolmentRefused(f"not a message of enrolment of format {FORMAT}: is the other side older or newer?")
    return body


def _checked(kind: str, data: bytes, secret: bytes) -> dict[str, Any]:
    mac, _, body = data.partition(b"\n")
    if not hmac.compare_digest(mac, _mac(kind, body, secret).encode()):
        raise EnrolmentRefused("the message was not written by who holds the token")
    return _object_of(body)


def _text(body: dict[str, Any], key: str, longest: int) -> str:
    value = body.get(key, "")
    if not isinstance(value, str) or len(value) > longest:
        raise EnrolmentRefused(f"{key}: expects a text of at most {longest} characters")
    return value


def _signature(body: dict[str, Any]) -> bytes:
    try:
        return b64decode(_text(body, "signature", 1000), validate=True)
    except ValueError as error:
        raise EnrolmentRefused(f"signature: {error}") from error


def _object(body: dict[str, Any], key: str) -> dict[str, Any]:
    value = body.get(key, {})
    if not isinstance(value, dict):
        raise EnrolmentRefused(f"{key}: expects an object")
    return value


def _texts(body: dict[str, Any], key: str) -> dict[str, str]:
    value = _object(body, key)
    if not all(isinstance(one, str) for one in value.values()):
        raise EnrolmentRefused(f"{key}: expects texts by name")
    return value
