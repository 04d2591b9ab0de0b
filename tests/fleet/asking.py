"""Operators, their requests and a host that decides on them, for tests."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from vedette.fleet.operators import Operator, Operators
from vedette.fleet.replies import Signer
from vedette.fleet.requests import Host, Request
from vedette.fleet.signedtime import SignedTime
from vedette.fleet.spool import Spool

NOW = 1_795_228_874_000_000
"""2026-11-21T02:41:14Z"""
HOUR = 3_600_000_000
FLEET, AGENT = "plants", "vienna-1"
KEYS = {name: Ed25519PrivateKey.generate() for name in ("vera", "ann", "otto", "past")}
OPERATORS = Operators(
    FLEET,
    1,
    {
        name: Operator(name, KEYS[name].public_key(), frozenset(roles), NOW + (0 if name == "past" else 24 * HOUR))
        for name, roles in (("vera", ["viewer"]), ("ann", ["analyst"]), ("otto", ["operator"]), ("past", ["viewer"]))
    },
)


def asked(kind: str = "ask", operator: str = "vera", **fields: Any) -> Request:
    """A request to this agent for its status, good for an hour, but for ``fields``."""
    defaults = {"body": {"question": "status"}, "agents": (AGENT,), "created": NOW, "expires": NOW + HOUR}
    return Request(fields.pop("fleet", FLEET), kind, operator, **{**defaults, **fields})


def signed(request: Request, by: str = "") -> bytes:
    return request.signed(KEYS[by or request.operator])


def host(*, clock: Callable[[], int] = lambda: NOW, **fields: Any) -> Host:
    labels: Mapping[str, str] = {"id": AGENT, "site": "vienna"}
    defaults = {"allow": ("ask", "evidence", "hunt"), "operators": OPERATORS, "trusted_until": NOW + 24 * HOUR}
    return Host(FLEET, AGENT, labels, **{**defaults, **fields}, clock=clock)


def spooled(folder: Path, clock: Callable[[], int] = lambda: NOW) -> Spool:
    """What a host keeps in ``folder``, by ``clock``."""
    return Spool(folder, SignedTime(folder / "time", clock))


class Authority:
    """Signs certificates of agents that are good for an hour."""

    def __init__(self) -> None:
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _name("authority")
        self.pem = self._sign(self._name, self._key.public_key(), 1).public_bytes(Encoding.PEM)

    def agent(self, name: str = AGENT, *, fleet: str = FLEET, serial: int = 7, ended: bool = False) -> Signer:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(_name(name), key.public_key(), serial, ended=ended)
        return Signer(fleet, name, key, certificate.public_bytes(Encoding.PEM))

    def _sign(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey, serial: int, *, ended: bool = False
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(serial)
            .not_valid_before(now - datetime.timedelta(hours=2))
            .not_valid_after(now + datetime.timedelta(hours=-1 if ended else 1))
            .sign(self._key, hashes.SHA256())
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
