"""Who signs what of a fleet's metadata, and for how long: roles, and keys as the metadata have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from securesystemslib.signer import CryptoSigner, SSlibKey
from tuf.api.metadata import DelegatedRole, Delegations, Key, Metadata, Role, Root, Snapshot, Targets, Timestamp

from vedette.fleet.documents import ROLLOUT

DAYS = {"root": 365, "targets": 90, "snapshot": 7, "timestamp": 1, "rollout": 7}
"""For which metadata are signed."""
WARN_DAYS = {"root": 60, "targets": 14, "snapshot": 1, "timestamp": 0.25, "rollout": 1}
"""Before the end of which they should be signed again."""
ONLINE = ("snapshot", "timestamp", "rollout")
NAME = "x-vedette-name"
"""In the metadata: whose key it is."""


class Signatory(NamedTuple):
    """One key of a role: whose it is, and its public part."""

    name: str
    public: Ed25519PublicKey


def assign(root: Root, role: str, keys: Sequence[Signatory], threshold: int) -> None:
    """``keys`` are those of ``role``, and no others."""
    for keyid in list(root.roles[role].keyids):
        root.revoke_key(keyid, role)
    root.roles[role] = Role([], threshold)
    for name, public in keys:
        root.add_key(key_of(name, public), role)


def key_of(name: str, public: Ed25519PublicKey) -> SSlibKey:
    """As metadata have it."""
    key = SSlibKey.from_crypto(public)
    key.unrecognized_fields[NAME] = name
    return key


def public_of(key: Key) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.keyval["public"]))


def delegations(key: Ed25519PrivateKey) -> Delegations:
    """Of targets: ``key`` signs the roll-out document, and nothing else."""
    public = key_of("rollout", key.public_key())
    role = DelegatedRole("rollout", [public.keyid], 1, True, paths=[ROLLOUT])
    return Delegations({public.keyid: public}, {"rollout": role})


def signed(content: Root | Targets | Snapshot | Timestamp, key: Ed25519PrivateKey) -> Metadata[Any]:
    """Metadata with one signature."""
    metadata: Metadata[Any] = Metadata(content)
    metadata.sign(CryptoSigner(key))
    return metadata
