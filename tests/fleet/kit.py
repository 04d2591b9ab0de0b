"""A fleet's metadata made by the centre's own code, and the ways an attacker bends them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import Metadata

from vedette.fleet.documents import Change, Desired, Group, Progress, Ring, Rollout, State, Target
from vedette.fleet.trust import FolderSource
from vedette.region.repository import Repository
from vedette.region.roles import Signatory
from vedette.system.wallclock import utc_now

FLEET = "plants"
DAY = 86_400_000_000


def target(path: str, data: bytes, version: int = 1) -> Target:
    return Target(path, hashlib.sha256(data).hexdigest(), version)


def group(name: str, match: str = "all", **changes: Any) -> Group:
    return Group(name, match, **changes)


def desired(serial: int, *groups: Group, rings: tuple[Ring, ...] = (), fleet: str = FLEET) -> Desired:
    return Desired(fleet, serial, "2026-11-22T00:00:00Z", groups, rings)


def overlay(serial: int, data: bytes, *, fleet: str = FLEET) -> Desired:
    """One group of all, with the overlay ``data``."""
    change = Change(f"c{serial}", target(f"config/{serial}.toml", data, serial))
    return desired(serial, group("everyone", config=change), fleet=fleet)


@dataclass
class Centre:
    """A repository with two of three operators, whose keys are here."""

    folder: Path
    fleet: str = FLEET
    now: int = 0
    """UTC microseconds; 0: the host's clock."""
    roots: list[Ed25519PrivateKey] = field(default_factory=lambda: [Ed25519PrivateKey.generate() for _ in range(3)])
    operators: list[Ed25519PrivateKey] = field(default_factory=lambda: [Ed25519PrivateKey.generate() for _ in range(3)])

    def __post_init__(self) -> None:
        self.repository = Repository(self.folder, lambda: self.now or utc_now())
        self.repository.create(self.fleet, named("root", self.roots), 2, named("operator", self.operators), 2)
        for key in (*self.roots[:2], *self.operators[:2]):
            self.repository.sign(key)
        self.repository.commit()

    @property
    def root(self) -> bytes:
        return (self.folder / "tuf" / "1.root.json").read_bytes()

    @property
    def source(self) -> FolderSource:
        return FolderSource(self.folder)

    def publish(
        self, document: Desired, blobs: Mapping[str, bytes] | None = None, rollout: Rollout | None = None
    ) -> None:
        self.repository.stage_desired(document, blobs or {})
        for key in self.operators[:2]:
            self.repository.sign(key)
        self.repository.commit(rollout)

    def forge(self, role: str, *keys: Ed25519PrivateKey, version: int = 0, **changes: Any) -> None:
        """Write the newest metadata of ``role`` with ``changes``, signed by ``keys`` alone."""
        one = self.repository.newest(role)
        assert one is not None
        for name, value in changes.items():
            setattr(one.signed, name, value)
        one.signed.version = version or one.signed.version
        one.signatures.clear()
        for key in keys:
            one.sign(CryptoSigner(key), append=True)
        self.write(role, one)

    def write(self, role: str, one: Metadata[Any]) -> None:
        name = "timestamp.json" if role == "timestamp" else f"{one.signed.version}.{role}.json"
        (self.folder / "tuf" / name).write_bytes(one.to_bytes())


def named(what: str, keys: list[Ed25519PrivateKey]) -> list[Signatory]:
    return [Signatory(f"{what}-{i}", key.public_key()) for i, key in enumerate(keys, 1)]


def rolled(serial: int, fleet: str = FLEET, **changes: Progress) -> Rollout:
    return Rollout(fleet, serial, changes)


DONE = Progress(State.DONE)
