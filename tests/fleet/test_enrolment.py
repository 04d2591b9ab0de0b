"""Tokens, requests and answers: what is believed, and what is refused."""

from __future__ import annotations

import secrets
from base64 import encodebytes
from collections.abc import Callable
from datetime import UTC, datetime

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from vedette.fleet.certificates import issued, new_key, requested_key, sign, signing_request
from vedette.fleet.enrolment import (
    ANSWER,
    REQUEST,
    Answer,
    EnrolmentRefused,
    Renewal,
    Request,
    frame,
    new_token,
    parse_token,
    read_answer,
    read_renewal,
    read_renewal_request,
    read_request,
    renewal_request,
    token_of,
)
from vedette.region.authority import Authority

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
TOKEN = new_token("plants")
ID = secrets.token_hex(16)
CSR = signing_request("web-1", new_key())
ASKED = Request(ID, TOKEN.id, "plants", "web-1", CSR, "ab" * 32, "0.1.0", 1_795_390_000_000_000)
ANSWERED = Answer(ID, "certificate", "authorities", {"labels": {"site": "vienna"}}, {"root.json": "{}"})


def test_a_token_as_text() -> None:
    assert parse_token(f" {TOKEN.text()}\n") == TOKEN
    assert new_token("plants").secret != TOKEN.secret


def test_what_is_no_token_is_refused_without_its_secret() -> None:
    token = TOKEN.text()
    for text in ("", "v1:plants:abc:def", "v2" + token[2:], token[:-1], token + "x"):
        with pytest.raises(EnrolmentRefused, match="vedette region token") as refused:
            parse_token(text)
        assert len(text) < 20 or text[-20:] not in str(refused.value)


def test_messages_come_through_whole() -> None:
    data = frame(REQUEST, ASKED, TOKEN.secret)
    assert token_of(data) == TOKEN.id
    assert read_request(data, TOKEN.secret) == ASKED
    assert TOKEN.text().rsplit(":", 1)[1].encode() not in data
    assert read_answer(frame(ANSWER, ANSWERED, TOKEN.secret), TOKEN.secret, ID) == ANSWERED


def test_no_other_secret_and_no_changed_byte_is_believed() -> None:
    data = frame(REQUEST, ASKED, TOKEN.secret)
    with pytest.raises(EnrolmentRefused, match="not written by who holds the token"):
        read_request(data, new_token("plants").secret)
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(EnrolmentRefused):
            read_request(bytes(changed), TOKEN.secret)


def test_a_request_does_not_pass_for_an_answer() -> None:
    with pytest.raises(EnrolmentRefused, match="not written by"):
        read_answer(frame(REQUEST, ASKED, TOKEN.secret), TOKEN.secret, ID)
    with pytest.raises(EnrolmentRefused, match="not written by"):
        read_request(frame(ANSWER, ANSWERED, TOKEN.secret), TOKEN.secret)


def test_an_answer_is_to_one_request() -> None:
    with pytest.raises(EnrolmentRefused, match="another request"):
        read_answer(frame(ANSWER, ANSWERED, TOKEN.secret), TOKEN.secret, secrets.token_hex(16))


WRONG: dict[str, Callable[[dict[str, object]], object]] = {
    "format": lambda body: body.update(format=2),
    "a name with a slash": lambda body: body.update(name="a/b"),
    "no name": lambda body: body.update(name=""),
    "a long name": lambda body: body.update(name="x" * 65),
    "an id that is none": lambda body: body.update(id="#"),
    "a number for the CSR": lambda body: body.update(csr=1),
    "an endless CSR": lambda body: body.update(csr="x" * 10_000),
    "a machine that is none": lambda body: body.update(machine="<script>"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_holder_of_the_token_may_not_send_anything_either(what: str) -> None:
    body = orjson.loads(frame(REQUEST, ASKED, TOKEN.secret).partition(b"\n")[2])
    WRONG[what](body)
    import hashlib
    import hmac

    text = orjson.dumps(body)
    mac = hmac.new(TOKEN.secret, REQUEST.encode() + b"\n" + text, hashlib.sha256).hexdigest()
    with pytest.raises(EnrolmentRefused):
        read_request(mac.encode() + b"\n" + text, TOKEN.secret)


@pytest.mark.parametrize("data", [b"", b"\n", b"x" * 100_000, b"0\n[]", b"0\n{", b"0\n" + b"[" * 60_000, b"\xff\n\xff"])
def test_garbage_is_refused(data: bytes) -> None:
    for read in (
        token_of,
        lambda data: read_request(data, TOKEN.secret),
        lambda data: read_answer(data, TOKEN.secret, ID),
        read_renewal,
        read_renewal_request,
    ):
        with pytest.raises(EnrolmentRefused):
            read(data)


def test_a_renewal_and_its_request() -> None:
    key = new_key()
    assert read_renewal_request(renewal_request(CSR, sign(CSR.encode(), key)))[0] == CSR
    renewal = Renewal("certificate", "authorities", b"signature")
    assert read_renewal(renewal.to_bytes()) == renewal


def test_a_version_that_is_none_is_refused_as_anything_else() -> None:
    """cryptography raises an error of another kind for it: an enroller that it ended would be sent the request again
    at each start."""
    key = new_key()
    der = x509.load_pem_x509_csr(signing_request("web-1", key).encode()).public_bytes(Encoding.DER)
    with pytest.raises(ValueError, match="cannot be read"):
        requested_key(_pem("CERTIFICATE REQUEST", der.replace(b"\x02\x01\x00", b"\x02\x01\x02", 1)))
    der = x509.load_pem_x509_certificate(Authority.create("ca", NOW).pem()).public_bytes(Encoding.DER)
    broken = _pem("CERTIFICATE", der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07", 1))
    with pytest.raises(ValueError, match="cannot be read"):
        issued(broken.encode(), key, "web-1", b"")


def _pem(what: str, der: bytes) -> str:
    return f"-----BEGIN {what}-----\n{encodebytes(der).decode()}-----END {what}-----\n"
