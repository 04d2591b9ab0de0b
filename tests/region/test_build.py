from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from vedette.bundle.seal import BundleRefused
from vedette.bundle.trust import verify
from vedette.region.build import build
from vedette.region.sign import keygen, load_key, public_text, sign

SECOND = 1_000_000


def make(**changes: Any) -> bytes:
    values: dict[str, Any] = {
        "name": "starter",
        "version": 1,
        "created": 10 * SECOND,
        "expires": 20 * SECOND,
        "plan": b"plan",
        "databases": {"b": b"2", "a": b"1"},
        "sources": {"web/b.yml": b"b", "linux/a.yml": b"a"},
        "rules": [{"title": "t", "id": "1"}],
        "tests": [],
        "hyperscan_version": "5.4.12",
    }
    return build(**(values | changes))


def test_the_same_rules_give_the_same_bytes(tmp_path: Path) -> None:
    """A build depends on its arguments only, not on their order; so does its signature."""
    again = make(databases={"a": b"1", "b": b"2"}, sources={"linux/a.yml": b"a", "web/b.yml": b"b"})
    assert make() == again
    keygen(tmp_path / "key.pem")
    key = load_key(tmp_path / "key.pem")
    assert sign(make(), key) == sign(again, key)


def test_signing_again_replaces_the_signature(tmp_path: Path) -> None:
    """A bundle has one signature: the last signer's."""
    keygen(tmp_path / "one.pem")
    second = keygen(tmp_path / "two.pem")
    data = sign(sign(make(), load_key(tmp_path / "one.pem")), load_key(tmp_path / "two.pem"))
    assert verify(data, [second], "0.1.0").key == second
    assert data == sign(make(), load_key(tmp_path / "two.pem"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"expires": 10 * SECOND}, "expires"),
        ({"sources": {"../a.yml": b""}}, "a.yml"),
        ({"sources": {"a.txt": b""}}, "a.txt"),
        ({"databases": {"a/b": b""}}, "a/b"),
        ({"name": "a b"}, "name"),
        ({"version": 0}, "version"),
        ({"min_agent": "x"}, "min_agent"),
    ],
)
def test_what_no_agent_would_take_is_not_built(change: dict[str, Any], said: str) -> None:
    """A bundle that would be refused is not built, and the argument is named."""
    with pytest.raises(ValueError, match=said):
        make(**change)


def test_only_a_bundle_is_signed(tmp_path: Path) -> None:
    """Signing something else is refused."""
    keygen(tmp_path / "key.pem")
    with pytest.raises(BundleRefused):
        sign(b"PK", load_key(tmp_path / "key.pem"))


def test_a_new_key_is_for_its_owner_only(tmp_path: Path) -> None:
    """A private key is written with mode 0600 and never over another."""
    path = tmp_path / "key.pem"
    public = keygen(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert public_text(load_key(path)) == public
    with pytest.raises(FileExistsError):
        keygen(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_that_others_can_reach(tmp_path: Path, mode: int) -> None:
    """A key file with loose permissions is refused with the command that mends them."""
    path = tmp_path / "key.pem"
    keygen(path)
    os.chmod(path, mode)
    with pytest.raises(PermissionError, match="chmod 600"):
        load_key(path)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def test_files_that_are_no_key(tmp_path: Path) -> None:
    """Another kind of key, an encrypted one and plain rubbish are refused by what they are."""
    rsa = generate_private_key(65537, 1024).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(ValueError, match="not an Ed25519 key"):
        load_key(write(tmp_path / "rsa.pem", rsa))
    keygen(tmp_path / "key.pem")
    locked = load_key(tmp_path / "key.pem").private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")
    )
    with pytest.raises(ValueError, match="unencrypted"):
        load_key(write(tmp_path / "locked.pem", locked))
    with pytest.raises(ValueError, match="PEM"):
        load_key(write(tmp_path / "rubbish.pem", b"rubbish"))
