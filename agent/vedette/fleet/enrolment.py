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
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Any, NamedTuple, TypeVar

import orjson
from msgspec import Meta, Struct, structs, to_builtins

from vedette.system import documents
from vedette.system.documents import Hex32
from vedette.system.within import NAME, is_name

FORMAT = 1
MAX_MESSAGE = 64 << 10
"""Bytes of a request or an answer."""
MAX_CSR = 8 << 10
REQUEST, ANSWER = "vedette-enrolment-request", "vedette-enrolment-answer"
"""Kinds of messages."""
_TOKEN = re.compile(r"v1:([A-Za-z0-9._-]{1,64}):([0-9a-f]{16}):([A-Za-z0-9_-]{43})")
T = TypeVar("T")
_Text16 = Annotated[str, Meta(max_length=16, description="a text of at most 16 characters")]
_Text64 = Annotated[str, Meta(max_length=64, description="a text of at most 64 characters")]
_Csr = Annotated[str, Meta(max_length=MAX_CSR, description=f"a text of at most {MAX_CSR} characters")]
_Signature = Annotated[bytes, Meta(max_length=750, description="Base64 of at most 1000 characters")]


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
    match = _TOKEN.fullmatch(text.strip())
    if match is None or not is_name(match[1]):
        raise EnrolmentRefused("not a token: expects v1:FLEET:ID:SECRET, as 'vedette region token create' prints it")
    return Token(match[1], match[2], urlsafe_b64decode(match[3] + "="))


class Request(Struct, frozen=True):
    """``name`` asks to become a member; ``time`` in UTC microseconds, for people only."""

    id: Hex32
    token: _Text16
    fleet: _Text64
    name: Annotated[
        str,
        Meta(pattern=rf"\A{NAME}\Z", max_length=64,
             description="1 to 64 letters, digits, '.', '_' or '-', no dot at the beginning"),
    ]  # fmt: skip
    csr: _Csr
    machine: Annotated[str, Meta(pattern=r"\A[0-9a-f]{0,64}\Z", description="at most 64 hex digits")] = ""
    version: _Text64 = ""
    time: int = 0


class Answer(Struct, frozen=True):
    """A certificate and the authorities to trust (PEM), or why not.

    ``settings``: what the region says of the host: ``labels``, ``receipt_keys``, ``trusted_keys``; ``files``: more for
    the host, such as the root of trust of its fleet, by name.
    """

    id: str
    certificate: str = ""
    authorities: str = ""
    settings: dict[str, Any] = {}
    files: dict[str, str] = {}
    refused: Annotated[str, Meta(max_length=1000, description="a text of at most 1000 characters")] = ""


class Renewal(Struct, frozen=True):
    """A new certificate and the authorities to trust (PEM); ``signature`` of ``authorities``, as bytes."""

    certificate: str
    authorities: str
    signature: _Signature

    def to_bytes(self) -> bytes:
        return orjson.dumps({"format": FORMAT, **to_builtins(self)})


class _RenewalRequest(Struct, frozen=True):
    csr: _Csr
    signature: _Signature


class _Claim(Struct, frozen=True):
    """Of a request that nobody believes yet."""

    token: _Text16


def frame(kind: str, message: Request | Answer, secret: bytes) -> bytes:
    """``message`` as bytes that say who wrote it."""
    body = orjson.dumps({"format": FORMAT, **structs.asdict(message)})
    return _mac(kind, body, secret).encode() + b"\n" + body


def token_of(data: bytes) -> str:
    """The token that a request names, before anything is believed. Raises EnrolmentRefused."""
    _, _, body = data.partition(b"\n")
    return _read(_Claim, body).token


def read_request(data: bytes, secret: bytes) -> Request:
    """Raises EnrolmentRefused."""
    return _read(Request, _checked(REQUEST, data, secret))


def read_answer(data: bytes, secret: bytes, id: str) -> Answer:
    """The answer to the request ``id``. Raises EnrolmentRefused."""
    answer = _read(Answer, _checked(ANSWER, data, secret))
    if answer.id != id:
        raise EnrolmentRefused("the answer is to another request")
    return answer


def renewal_request(csr: str, signature: bytes) -> bytes:
    """What ``read_renewal_request`` reads."""
    return orjson.dumps({"format": FORMAT, **to_builtins(_RenewalRequest(csr, signature))})


def read_renewal_request(data: bytes) -> tuple[str, bytes]:
    """The signing request and its signature by the key that it replaces. Raises EnrolmentRefused."""
    request = _read(_RenewalRequest, data)
    return request.csr, request.signature


def read_renewal(data: bytes) -> Renewal:
    """Raises EnrolmentRefused."""
    return _read(Renewal, data)


# --- frames


def _mac(kind: str, body: bytes, secret: bytes) -> str:
    return hmac.new(secret, kind.encode() + b"\n" + body, hashlib.sha256).hexdigest()


def _checked(kind: str, data: bytes, secret: bytes) -> bytes:
    mac, _, body = data.partition(b"\n")
    if not hmac.compare_digest(mac, _mac(kind, body, secret).encode()):
        raise EnrolmentRefused("the message was not written by who holds the token")
    return body


def _read(kind: type[T], body: bytes) -> T:
    try:
        document = documents.opened(body, MAX_MESSAGE, FORMAT)
    except ValueError as error:
        raise EnrolmentRefused(f"not a message of enrolment: {error}; is the other side older or newer?") from error
    return documents.read(kind, document, refused=EnrolmentRefused)
