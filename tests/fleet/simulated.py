"""A repository of The Update Framework in memory whose metadata can be bent in every way, and an agent that takes them.

Nothing is checked on this side: a role is signed by whatever ``signers`` it has, and a file is served as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import Metadata, MetaFile, Root, Snapshot, TargetFile, Targets, Timestamp

from tests.fleet.kit import FLEET, target
from vedette.fleet.trust import Trust, TrustRefused
from vedette.region.roles import delegations

TOP = ("root", "timestamp", "snapshot", "targets")
LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)
KEYS = {letter: CryptoSigner.generate_ed25519() for letter in "abcdefghij"}
ROLLOUT_KEY = Ed25519PrivateKey.generate()
PAST = LATER - timedelta(days=60)


class Repository:
    """A ``Source``. ``signed``: each role's next metadata; ``files``: what is served; ``asked``: what was."""

    def __init__(self) -> None:
        root = Root(expires=LATER)
        self.signers = {role: [CryptoSigner.generate_ed25519()] for role in TOP}
        self.signers["rollout"] = [CryptoSigner(ROLLOUT_KEY)]
        for role in TOP:
            root.add_key(self.signers[role][0].public_key, role)
        targets = Targets(expires=LATER, delegations=delegations(ROLLOUT_KEY))
        self.signed: dict[str, Any] = {
            "root": root, "targets": targets, "rollout": Targets(expires=LATER),
            "snapshot": Snapshot(expires=LATER), "timestamp": Timestamp(expires=LATER),
        }  # fmt: skip
        for one in self.signed.values():
            one.version = 0
        self.files: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.hashes = False
        """Whether snapshot and timestamp name hash and length of what they point at."""
        self.publish("root", "targets", "rollout")

    @property
    def root(self) -> Root:
        signed_root: Root = self.signed["root"]
        return signed_root

    def metadata(self, name: str) -> bytes | None:
        self.asked.append(name)
        return self.files.get(name)

    def blob(self, sha256: str) -> bytes | None:
        return self.blobs.get(sha256)

    # --- publishing

    def publish(self, *roles: str) -> None:
        """The next version of ``roles``, and of snapshot and timestamp."""
        for role in (*roles, "snapshot", "timestamp"):
            self.next(role)

    def next(self, role: str) -> None:
        self.signed[role].version += 1
        self.write(role)

    def write(self, role: str) -> None:
        """What ``role`` is now, signed; snapshot and timestamp over what is served."""
        one = self.signed[role]
        if role == "snapshot":
            one.meta = {f"{name}.json": self.pointer(name) for name in self.signed if name not in TOP[:3]}
        elif role == "timestamp":
            one.snapshot_meta = self.pointer("snapshot")
        self.serve(role, self.signers[role])

    def serve(self, role: str, signers: Sequence[CryptoSigner]) -> None:
        metadata: Metadata[Any] = Metadata(self.signed[role])
        for signer in signers:
            metadata.sign(signer, append=True)
        self.files[self.name(role)] = metadata.to_bytes()

    def name(self, role: str) -> str:
        return "timestamp.json" if role == "timestamp" else f"{self.signed[role].version}.{role}.json"

    def pointer(self, role: str) -> MetaFile:
        version = self.signed[role].version
        data = self.files.get(self.name(role))
        if not self.hashes or data is None:
            return MetaFile(version)
        return MetaFile(version, len(data), {"sha256": hashlib.sha256(data).hexdigest()})

    def add(self, path: str, data: bytes, role: str = "targets") -> None:
        """A file that ``role`` names, once that is published."""
        sha256 = hashlib.sha256(data).hexdigest()
        self.blobs[sha256] = data
        custom = {"custom": {"fleet": FLEET, "version": 1}}
        self.signed[role].targets[path] = TargetFile(len(data), {"sha256": sha256}, path, unrecognized_fields=custom)

    def rotate(self, *roles: str) -> None:
        """New keys of ``roles`` by the next root; nothing else is signed again."""
        for role in roles:
            self.entrust(role, [CryptoSigner.generate_ed25519()])
        self.next("root")

    def entrust(self, role: str, signers: Sequence[CryptoSigner], threshold: int = 1) -> None:
        """In the root that is published next, these keys are those of ``role``, and they sign it."""
        entry = self.root.roles[role]
        for keyid in [*entry.keyids]:
            self.root.revoke_key(keyid, role)
        for signer in signers:
            self.root.add_key(signer.public_key, role)
        entry.threshold, self.signers[role] = threshold, [*signers]


class Client:
    """An agent in a folder."""

    def __init__(self, folder: Path, repository: Repository) -> None:
        self.folder, self.repository = folder, repository
        self.trust = Trust(folder, FLEET, repository.files["1.root.json"])

    def refresh(self) -> None:
        self.repository.asked.clear()
        self.trust.refresh(self.repository)

    def refuse(self, *kinds: str) -> str:
        """A refresh that is refused; why."""
        with pytest.raises(TrustRefused) as caught:
            self.refresh()
        assert caught.value.kind in kinds, f"{caught.value.kind}: {caught.value}"
        return str(caught.value)

    def download(self, path: str, data: bytes) -> bytes:
        return self.trust.fetch(target(path, data), self.repository)

    def version(self, role: str) -> int:
        """Of what it keeps; 0: nothing."""
        path = self.folder / "tuf" / f"{role}.json"
        return int(Metadata.from_file(str(path)).signed.version) if path.exists() else 0

    @property
    def versions(self) -> tuple[int, ...]:
        """Of root, timestamp, snapshot and targets."""
        return tuple(self.version(role) for role in TOP)

    def age(self, role: str) -> None:
        """What it keeps of ``role`` has expired meanwhile."""
        metadata: Metadata[Any] = Metadata.from_file(str(self.folder / "tuf" / f"{role}.json"))
        metadata.signed.expires = PAST
        metadata.signatures.clear()
        for signer in self.repository.signers[role]:
            metadata.sign(signer, append=True)
        metadata.to_file(str(self.folder / "tuf" / f"{role}.json"))
