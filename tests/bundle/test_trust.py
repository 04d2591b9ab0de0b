"""Every way to be refused, and the two ways to be taken."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bundle.conftest import CREATED, DAY, Author
from vedette.bundle import trust
from vedette.bundle.manifest import MANIFEST, SIGNATURE, Manifest, describe
from vedette.bundle.trust import BundleRefused, Installed, admit, inspect, verify
from vedette.region.build import archive
from vedette.region.sign import sign


def entries(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def changed(data: bytes, **change: bytes | None) -> bytes:
    """``data`` with entries put in, replaced, or (None) taken out, behind the signer's back."""
    names = {"manifest": MANIFEST, "signature": SIGNATURE, "plan": "plan.msgpack", "tests": "tests.msgpack"}
    content = entries(data) | {names.get(key, key): value for key, value in change.items()}
    return archive({name: value for name, value in content.items() if value is not None})


def refuse(data: bytes, author: Author, said: str, agent_version: str = "0.1.0") -> None:
    with pytest.raises(BundleRefused, match=said):
        verify(data, [author.public], agent_version)


def test_a_good_bundle_is_taken(author: Author) -> None:
    """A bundle signed by a trusted key gives back all that was put in."""
    bundle = verify(author.bundle(3), [author.public], "0.1.0")
    assert bundle.version == 3
    assert bundle.key == author.public
    assert bundle.plan == b"plan of version 3"
    assert bundle.databases == {"prefilter": b"\xdb" * 100}
    assert bundle.sources == {"linux/sshd.yml": b"title: a rule\n"}
    assert bundle.rules == [{"id": "r1", "title": "a rule", "level": "high"}]
    assert bundle.tests == [{"raw": b"<38>a line", "rules": ["r1"]}]


def test_deflated_entries_are_taken(author: Author) -> None:
    """The zip may be packed by another tool: the digest, which the signature covers, stays."""
    data = author.bundle()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries(data).items():
            file.writestr(name, content)
    packed = verify(buffer.getvalue(), [author.public], "0.1.0")
    plain = verify(data, [author.public], "0.1.0")
    assert packed.digest == plain.digest
    assert packed.sha256 != plain.sha256


def test_any_of_several_keys(author: Author, another: Callable[[], Author]) -> None:
    """One trusted key among several is enough (keys are rotated by trusting two for a while)."""
    assert verify(author.bundle(), [another().public, author.public], "0.1.0").key == author.public


def test_untrusted_key(author: Author, another: Callable[[], Author]) -> None:
    """A bundle signed by somebody else is refused, and the key is named."""
    refuse(another().bundle(), author, "not among bundles.trusted_keys")


def test_no_key_trusted(author: Author) -> None:
    """Without trusted keys nothing is taken."""
    with pytest.raises(BundleRefused, match="not among"):
        verify(author.bundle(), [], "0.1.0")


def test_bad_signature(author: Author) -> None:
    """A manifest changed after signing is refused."""
    data = author.bundle(1)
    manifest = entries(data)[MANIFEST].replace(b'"version": 1', b'"version": 9')
    refuse(changed(data, manifest=manifest), author, "changed after signing")


def test_signature_of_another_bundle(author: Author) -> None:
    """A signature does not move from one bundle to another."""
    stolen = entries(author.bundle(2))[SIGNATURE]
    refuse(changed(author.bundle(1), signature=stolen), author, "changed after signing")


def test_key_id_of_a_trusted_key_on_a_foreign_signature(author: Author, another: Callable[[], Author]) -> None:
    """Naming a trusted key is not enough: its signature must fit."""
    foreign = another().bundle()
    signature = json.loads(entries(foreign)[SIGNATURE])
    signature["key_id"] = trust.key_id(author.public)
    refuse(changed(foreign, signature=json.dumps(signature).encode()), author, "changed after signing")


def test_unsigned(author: Author) -> None:
    """A bundle nobody signed is refused with the command that signs."""
    refuse(author.build(), author, "not signed")


@pytest.mark.parametrize("signature", [b"", b"[]", b"{}", b'{"key_id": 1, "signature": "%%"}', b"[" * 4000, b"\xff"])
def test_signature_that_is_none(author: Author, signature: bytes) -> None:
    """A signature file that cannot be read is refused."""
    refuse(changed(author.bundle(), signature=signature), author, "not a signature")


def test_digest_mismatch(author: Author) -> None:
    """A part exchanged behind the manifest is refused by its name, of the same length or not."""
    refuse(changed(author.bundle(), plan=b"plan of version X"), author, r"plan\.msgpack.*differ")
    refuse(changed(author.bundle(), plan=b"longer than it was before"), author, r"plan\.msgpack.*differ")


def test_missing_part(author: Author) -> None:
    """A part of the manifest that is not there is refused."""
    refuse(changed(author.bundle(), plan=None), author, r"plan\.msgpack' is missing")


def test_required_part_missing_from_the_manifest(author: Author) -> None:
    """A signed manifest without a plan is refused all the same."""
    parts = {"rules.json": b"[]"}
    manifest = Manifest("x", 1, CREATED, CREATED + DAY, "0.1.0", "", describe(parts))
    with pytest.raises(BundleRefused, match=r"plan\.msgpack' is missing"):
        sign(archive({MANIFEST: manifest.to_bytes(), **parts}), author.key)


def test_part_beside_the_manifest(author: Author) -> None:
    """A part that the manifest does not list is refused."""
    refuse(changed(author.bundle(), **{"rules/more.yml": b"title: x"}), author, "not in the manifest")


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/cron.d/evil", "rules/../../evil.yml", "evil.sh", "rules/", "plan.msgpack\0x"]
)
def test_unknown_and_escaping_names(author: Author, name: str) -> None:
    """Zip-slip names and names outside the format are refused before anything is unpacked."""
    with zipfile.ZipFile(buffer := io.BytesIO(author.bundle()), "a") as file:
        info = zipfile.ZipInfo("x" * len(name))
        file.writestr(info, b"x")
    data = buffer.getvalue().replace(b"x" * len(name), name.encode())
    refuse(data, author, "does not belong|not a whole zip")


def test_entry_twice(author: Author) -> None:
    """Two entries of one name are refused: readers differ in which one they take."""
    buffer = io.BytesIO(author.bundle())
    with zipfile.ZipFile(buffer, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("plan.msgpack", b"another")
    refuse(buffer.getvalue(), author, "there twice")


def test_not_a_bundle(author: Author) -> None:
    """A zip without a manifest, and an empty one, are refused."""
    refuse(archive({"rules/a.yml": b""}), author, "not a bundle")
    refuse(archive({}), author, "not a bundle")


def test_truncated_zip(author: Author) -> None:
    """A zip cut anywhere is refused."""
    data = author.bundle()
    for length in range(0, len(data), 97):
        refuse(data[:length], author, "zip")


def test_oversize(author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beyond the bound is refused unread."""
    data = author.bundle()
    monkeypatch.setattr(trust, "MAX_BUNDLE", 1000)
    refuse(data, author, "more than the 1000")


def test_unpacked_oversize(author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries whose stated sizes sum up beyond the bound are refused."""
    data = author.bundle()
    monkeypatch.setattr(trust, "MAX_UNPACKED", 500)
    refuse(data, author, "unpack to more than the 500|longer than it may")


def test_too_many_entries(author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    """More entries than the bound are refused."""
    data = author.bundle()
    monkeypatch.setattr(trust, "MAX_ENTRIES", 5)
    refuse(data, author, "more than the 5")


def test_oversize_signature(author: Author) -> None:
    """What is read before anything is authentic is small."""
    refuse(changed(author.bundle(), signature=b" " * 5000), author, "longer than it may be")


def test_decompression_bomb(author: Author) -> None:
    """An entry that unpacks to a thousand times its size is refused unread."""
    buffer = io.BytesIO(author.bundle())
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("rules/bomb.yml", bytes(20 << 20))
    assert len(buffer.getvalue()) < 50_000
    refuse(buffer.getvalue(), author, "times its size")


def test_bomb_that_states_a_small_size(author: Author) -> None:
    """An entry that lies about its size is not unpacked beyond what it states."""
    buffer = io.BytesIO(author.bundle())
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("rules/bomb.yml", bytes(20 << 20))
    lie = buffer.getvalue().replace(struct.pack("<L", 20 << 20), struct.pack("<L", 1000))
    refuse(lie, author, "another size|not a whole zip")


def test_other_packing(author: Author) -> None:
    """Packing methods other than stored and deflated are refused."""
    buffer = io.BytesIO(author.bundle())
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_LZMA) as file:
        file.writestr("rules/a.yml", b"x" * 100)
    refuse(buffer.getvalue(), author, "method 14")


def test_encrypted(author: Author) -> None:
    """An encrypted entry is refused."""
    data = bytearray(author.bundle())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    refuse(bytes(data), author, "encrypted")


def test_agent_too_old(author: Author) -> None:
    """A bundle for a newer agent is refused with both versions."""
    data = author.bundle(min_agent="0.10.0")
    refuse(data, author, r"needs agent 0\.10\.0, this one is 0\.9\.1", "0.9.1")
    verify(data, [author.public], "0.10.0")


def test_newer_format(author: Author) -> None:
    """A format from the future is refused with what to do."""
    data = author.build()
    content = entries(data)
    document = json.loads(content[MANIFEST]) | {"format": 2}
    with pytest.raises(BundleRefused, match="upgrade the agent"):
        inspect(changed(data, manifest=json.dumps(document).encode()))


def test_older_version(author: Author) -> None:
    """A lower version than the installed one is refused (a rollback by replay)."""
    bundle = verify(author.bundle(3), [author.public], "0.1.0")
    with pytest.raises(BundleRefused, match="older than the installed version 4"):
        admit(bundle, Installed(4, "aa"), CREATED)


def test_same_version_other_contents(author: Author) -> None:
    """One version is one rule set."""
    bundle = verify(author.bundle(3), [author.public], "0.1.0")
    with pytest.raises(BundleRefused, match="other contents"):
        admit(bundle, Installed(3, "0" * 12), CREATED)


def test_expired(author: Author) -> None:
    """An expired bundle is refused for a new installation, but not when it is the installed one."""
    bundle = verify(author.bundle(3), [author.public], "0.1.0")
    late = CREATED + 31 * DAY
    for installed in (None, Installed(2, "aa")):
        with pytest.raises(BundleRefused, match="expired at 2030-04-16T17:46:40Z"):
            admit(bundle, installed, late)
    admit(bundle, Installed(3, bundle.digest[:12]), late)
    assert bundle.expired(late)


def test_clock_that_was_never_set(author: Author) -> None:
    """A host whose clock stands at 1970 takes a good bundle."""
    bundle = verify(author.bundle(3), [author.public], "0.1.0")
    admit(bundle, Installed(2, "aa"), 0)
    assert not bundle.expired(0)


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:AAAA", "rsa:" + "A" * 43 + "=", "ed25519:" + "*" * 44])
def test_public_keys_that_are_none(text: str) -> None:
    """A wrong key in the configuration raises ValueError with the form that is expected."""
    with pytest.raises(ValueError, match="ed25519:"):
        trust.public_key(text)


def test_lists_of_the_wrong_kind(author: Author) -> None:
    """A rule list or self-test of another type raises ValueError when it is asked for."""
    parts = {"plan.msgpack": b"", "rules.json": b"{}", "tests.msgpack": msgpack.packb({})}
    manifest = Manifest("x", 1, CREATED, CREATED + DAY, "0.1.0", "", describe(parts))
    bundle = inspect(archive({MANIFEST: manifest.to_bytes(), **parts}))
    with pytest.raises(ValueError, match=r"rules\.json"):
        _ = bundle.rules
    with pytest.raises(ValueError, match=r"tests\.msgpack"):
        _ = bundle.tests


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    author = Author(tmp_path_factory.mktemp("author") / "key.pem")
    return author.bundle(), author.public


@settings(deadline=None, max_examples=100)
@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_flipped_bit_changes_what_runs(signed: tuple[bytes, str], position: float, bit: int) -> None:
    """A bundle with one bit flipped is refused, or gives exactly what was signed (a bit of no meaning in the zip)."""
    data, public = signed
    damaged = bytearray(data)
    damaged[int(position * len(data))] ^= 1 << bit
    good = verify(data, [public], "0.1.0")
    try:
        bundle = verify(bytes(damaged), [public], "0.1.0")
    except BundleRefused:
        return
    assert (bundle.digest, bundle.parts) == (good.digest, good.parts)


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    """Bytes of any kind are refused and raise nothing else."""
    with pytest.raises(BundleRefused):
        inspect(data)
